"""No call leaks. ICEFIELD_CALLS is the number of calls of each kind: 5,000 by default, 10,000,000 in a long run."""

import gc
import resource
from pathlib import Path

import icefield
import numpy as np
import pyarrow as pa
import pytest
from conftest import count

CALLS = count("ICEFIELD_CALLS", 5_000)


def resident() -> int:
    """Return the resident memory in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("in_memory", [True, False])
def test_growth(tmp_path: Path, in_memory: bool) -> None:
    if in_memory:
        texts, words = icefield.Map.memory("str", "str"), icefield.Map.memory("u64", "u64")
    else:
        texts = icefield.Map.open(tmp_path / "s.ice", "str", "str")
        words = icefield.Map.open(tmp_path / "w.ice", "u64", "u64")
    index = icefield.JoinIndex.build(tmp_path / "i.ice", [1, 2, 3])
    names, numbers = pa.array(["a", "b"]), np.array([1, 2], dtype="uint64")
    texts.update(a="x", b="y")
    words.update({1: 1, 2: 2})

    def missing() -> None:
        try:
            words[99]
        except KeyError:
            pass

    def wrong() -> None:
        try:
            words.get_many(names)
        except TypeError:
            pass

    calls = {
        "get": lambda: words[1],
        "get a string": lambda: texts["a"],
        "set": lambda: words.__setitem__(1, 1),
        "set a string": lambda: texts.__setitem__("a", "x"),
        "missing": missing,
        "wrong": wrong,
        "increment": lambda: words.increment(2, 1),
        "iterate": lambda: list(texts.items()),
        "get_many": lambda: words.get_many(numbers),
        "get_many of strings": lambda: texts.get_many(names),
        "put_many": lambda: words.put_many(numbers, numbers),
        "put_many of strings": lambda: texts.put_many(names, names),
        "insert_many": lambda: words.insert_many(numbers, numbers),
        "remove_many": lambda: texts.remove_many(names),
        "to_arrow": lambda: pa.record_batch(words.to_arrow()),
        "join": lambda: index.join(numbers),
        "get_indexer": lambda: index.get_indexer(numbers),
    }
    for name, call in calls.items():
        for _ in range(2000):
            call()
        gc.collect()
        before = resident()
        for _ in range(CALLS):
            call()
        gc.collect()
        grown = resident() - before
        assert grown < 4 << 20, f"{name}: {grown} bytes after {CALLS} calls"


def test_results_only() -> None:
    words = icefield.Map.memory("u64", "u64", capacity=100_000)
    keys = np.arange(4_000_000, dtype="uint64")
    out = np.zeros(len(keys), dtype="uint64")
    words.get_many(keys, out=out)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    words.get_many(keys, out=out)
    # The mask has 4 MB.
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 8 << 20
