"""Count words in a table that survives the program."""

import sys
import tempfile
from pathlib import Path

import icefield

path = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "words.ice"
with icefield.Map.open(path, key="str", value="u64") as counts:
    for word in ["the", "quick", "fox", "jumps", "over", "the", "lazy", "dog"]:
        counts.increment(word, 1)
    for word, count in sorted(counts.items()):
        print(word, count)
