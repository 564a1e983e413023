#!/usr/bin/env python3
"""How large the house is: lines of code by crate, lengths of functions, long files, unsafe blocks.

    scripts/sizes.py [DIR]    of the repository at DIR; without it, of this one

Comments and blank lines do not count. Examples and orderings are looked after by tests/layers.rs.
"""

import pathlib
import re
import sys
from collections import Counter

LONG_FILE = 500
TOLD = 5

# What may look like code and is not: comments, strings, characters. Lifetimes are left alone.
NO_CODE = re.compile(
    r"""//[^\n]*
      | /\*.*?\*/
      | (?<!\w)[bc]?r(\#*)".*?"\1
      | "(?:\\.|[^"\\])*"
      | '(?:\\[^'\n]+|[^'\\\n])'""",
    re.DOTALL | re.VERBOSE,
)


def code_of(text):
    """The code alone, line by line."""
    return NO_CODE.sub(lambda found: "\n" * found[0].count("\n"), text)


def lines_of(code):
    return sum(1 for line in code.split("\n") if line.strip())


def functions(code):
    """Line, name and length of every function that has a body."""
    for found in re.finditer(r"\bfn\s+(\w+)", code):
        at, depth = found.end(), 0
        while at < len(code) and (depth > 0 or code[at] not in "{;"):
            depth += (code[at] in "([") - (code[at] in ")]")
            at += 1
        if code[at : at + 1] != "{":
            continue
        end, depth = at + 1, 1
        while depth > 0 and end < len(code):
            depth += (code[end] == "{") - (code[end] == "}")
            end += 1
        yield code.count("\n", 0, found.start()) + 1, found[1], lines_of(code[found.start() : end])


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent
    lines, unsafe, long_files, all_functions = Counter(), Counter(), [], []
    for path in sorted(root.glob("crates/**/*.rs")):
        name = path.relative_to(root)
        code = code_of(path.read_text())
        part = "/".join(name.parts[1:3])
        lines[part] += lines_of(code)
        unsafe[part] += len(re.findall(r"\bunsafe\s*\{", code))
        if lines_of(code) > LONG_FILE:
            long_files.append(f"{name}: {lines_of(code)}")
        all_functions += [(length, f"{name}:{line}", fn) for line, fn, length in functions(code)]
    print(f"{'':28}{'lines':>8}{'unsafe blocks':>16}")
    for part in sorted(lines):
        print(f"{part:28}{lines[part]:8}{unsafe[part]:16}")
    print(f"{'all':28}{lines.total():8}{unsafe.total():16}")
    print(f"files over {LONG_FILE} lines:", *long_files or ["none"], sep="\n    ")
    ordered = sorted(all_functions)
    middle, tenth = ordered[len(ordered) // 2][0], ordered[len(ordered) * 9 // 10][0]
    print(f"{len(ordered)} functions: p50 {middle}, p90 {tenth} lines; the longest:")
    for length, place, fn in reversed(ordered[-TOLD:]):
        print(f"    {length:4} {place} {fn}")


main()
