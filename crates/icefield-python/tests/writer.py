"""A process that writes records as it is told, and is killed at the end."""

import json
import subprocess
import sys
from typing import Self

CODE = """
import json, sys, icefield
made = icefield.Map.open(sys.argv[1])
print("open", flush=True)
for line in sys.stdin:
    key, value = json.loads(line)
    made[key] = value
    print("done", flush=True)
"""


class Writer:
    """A child process with the map at `path`."""

    def __init__(self, path: str) -> None:
        command = [sys.executable, "-c", CODE, path]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._expect("open")

    def put(self, key: str, value: str) -> None:
        """Write a record; when this returns, the child has acknowledged it."""
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps([key, value]) + "\n")
        self.child.stdin.flush()
        self._expect("done")

    def _expect(self, line: str) -> None:
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == line + "\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.communicate()
