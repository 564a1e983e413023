"""Processes: pickling, readers, forks, and writers that are killed.

ICEFIELD_KILLS is the number of killed writers: few by default, 200 in a long run.
"""

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import icefield
import numpy as np
import pytest
from conftest import TABLES, count

KILLS = count("ICEFIELD_KILLS", 6)
N = 50_000
SPAWN = multiprocessing.get_context("spawn")


def total(made: icefield.Map, part: int) -> int:
    """Sum a quarter of the values, in another process."""
    keys = np.arange(part, N, 4, dtype="uint64")
    values, found = made.get_many(keys)
    assert found.all()
    assert made.mode == "r"
    return int(values.sum())


def matches(index: icefield.JoinIndex, keys: list[int]) -> int:
    """Count pairs, in another process."""
    return index.count(keys)


@pytest.mark.parametrize("table", TABLES)
def test_readers(tmp_path: Path, table: str) -> None:
    path = tmp_path / "t.ice"
    with icefield.Map.open(path, "u64", "u64", table=table) as made:
        made.put_many(np.arange(N, dtype="uint64"), np.arange(N, dtype="uint64"))
    with icefield.Map.open(path, mode="r") as made, ProcessPoolExecutor(4, SPAWN) as pool:
        assert sum(pool.map(total, [made] * 4, range(4))) == N * (N - 1) // 2


def test_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with icefield.Map.open("t.ice", "str", "str") as made:
        made["secret key"] = "secret value"
        with pytest.raises(TypeError, match='mode="r"'):
            pickle.dumps(made)
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="memory"):
            call(icefield.Map.memory("u64", "u64"))
    with icefield.Map.open("t.ice", mode="r", verify=True) as made:
        pickled = pickle.dumps(made)
        assert b"secret" not in pickled
        monkeypatch.chdir("/")
        with pickle.loads(pickled) as again:
            assert again == made
    os.rename(tmp_path / "t.ice", tmp_path / "old.ice")
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickled)
    icefield.Map.open(tmp_path / "t.ice", "str", "str").close()
    with pytest.raises(icefield.IcefieldError, match="another table") as kept:
        pickle.loads(pickled)
    icefield.Map.open(tmp_path / "t.ice").close()
    assert kept.traceback, "kept, without keeping the other table open"
    monkeypatch.chdir(tmp_path)
    with icefield.Map.open("old.ice", mode="r") as made:
        # The pickle names the open table, although another one is at the path now, and the directory has changed.
        os.rename("old.ice", "older.ice")
        os.rename("t.ice", "old.ice")
        monkeypatch.chdir("/")
        pickled = pickle.dumps(made)
        with pytest.raises(icefield.IcefieldError, match="another table"):
            pickle.loads(pickled)
        os.rename(tmp_path / "old.ice", tmp_path / "t.ice")
        os.rename(tmp_path / "older.ice", tmp_path / "old.ice")
        assert pickle.loads(pickled) == made

    index = icefield.JoinIndex.build(tmp_path / "i.ice", [1])
    with pytest.raises(TypeError, match='mode="r"'):
        pickle.dumps(index)
    reader = icefield.JoinIndex.open(tmp_path / "i.ice", mode="r")
    assert pickle.loads(pickle.dumps(reader)).count([1, 2]) == 1


def test_readers_beside_a_writer(tmp_path: Path) -> None:
    index = icefield.JoinIndex.build(tmp_path / "i.ice", range(1000))
    reader = icefield.JoinIndex.open(tmp_path / "i.ice", mode="r")
    with ProcessPoolExecutor(4, SPAWN) as pool:
        found = [pool.submit(matches, reader, list(range(2000))) for _ in range(20)]
        for number in range(5):
            index.insert([1000 + number], [0])
            index.merge()
        assert all(1000 <= future.result() <= 1005 for future in found)


def in_fork(call) -> str:
    """Return the name of the exception that a call raises in a forked process, or its result."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(call())
        except BaseException as error:  # noqa: BLE001  # The parent compares it.
            text = type(error).__name__
        os.write(sending, text.encode())
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


@pytest.mark.parametrize("kind", ["memory", *TABLES])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork(kind: str, tmp_path: Path) -> None:
    if kind == "memory":
        made = icefield.Map.memory("u64", "u64")
    else:
        made = icefield.Map.open(tmp_path / "t.ice", "u64", "u64", table=kind)
    made[1] = 1
    keys = iter(made)
    for call in [
        lambda: made[1],
        lambda: made.update({2: 2}),
        lambda: made.put_many([2], [2]),
        lambda: list(keys),
        lambda: len(made),
        made.close,
        made.sync,
    ]:
        assert in_fork(call) == "ForkedError"

    def drop() -> str:
        nonlocal made
        del made
        return "dropped"

    assert in_fork(drop) == "dropped"
    made[3] = 3
    assert dict(made) == {1: 1, 3: 3}
    made.close()
    if kind != "memory":
        with icefield.Map.open(tmp_path / "t.ice") as made:
            assert dict(made) == {1: 1, 3: 3}
            assert made.check() == []
        # Readers are opened again.
        with icefield.Map.open(tmp_path / "t.ice", mode="r") as made:
            assert in_fork(lambda: sorted(made)) == "[1, 3]"
            assert in_fork(lambda: made.get_many([3])[0]) == "[3]"
            assert sorted(made) == [1, 3]
            os.rename(tmp_path / "t.ice", tmp_path / "old.ice")
            icefield.Map.open(tmp_path / "t.ice", "u64", "u64").close()
            assert in_fork(lambda: made[3]) == "IcefieldError"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork_of_an_index(tmp_path: Path) -> None:
    index = icefield.JoinIndex.build(tmp_path / "i.ice", [1])
    reader = icefield.JoinIndex.open(tmp_path / "i.ice", mode="r")
    assert in_fork(lambda: index.count([1])) == "ForkedError"
    assert in_fork(lambda: reader.count([1])) == "1"
    os.rename(tmp_path / "i.ice", tmp_path / "old.ice")
    icefield.JoinIndex.build(tmp_path / "i.ice", [1]).close()
    assert in_fork(lambda: reader.count([1])) == "IcefieldError"
    os.rename(tmp_path / "i.ice", tmp_path / "new.ice")
    os.rename(tmp_path / "old.ice", tmp_path / "i.ice")
    index.insert([2], [2])
    assert len(index) == 2


BATCHES = """
import sys, icefield, numpy
made = icefield.Map.open(sys.argv[1])
index = icefield.JoinIndex.open(sys.argv[2])
number = int(sys.argv[3])
while True:
    keys = numpy.arange(number * 10, number * 10 + 10, dtype="uint64")
    made.put_many(keys, keys)
    index.insert(keys, keys)
    print(number, flush=True)
    number += 1
"""


def test_killed_writers(tmp_path: Path) -> None:
    paths = [str(tmp_path / "t.ice"), str(tmp_path / "i.ice")]
    icefield.Map.open(paths[0], "u64", "u64", table="dash-eh").close()
    icefield.JoinIndex.build(paths[1], [2**40]).close()
    reader = icefield.JoinIndex.open(paths[1], mode="r")
    acknowledged = -1
    for kill in range(KILLS):
        command = [sys.executable, "-c", BATCHES, *paths, str(acknowledged + 1)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        acknowledged = int(child.stdout.readline())
        assert reader.count([2**40]) == 1
        time.sleep(0.001 * (kill % 20))
        child.kill()
        lines = child.communicate()[0].split("\n")
        # The last line may be incomplete.
        acknowledged = max([acknowledged, *(int(line) for line in lines[:-1])])
        keys = np.arange((acknowledged + 1) * 10, dtype="uint64")
        with icefield.Map.open(paths[0], mode="r") as made:
            values, found = made.get_many(keys)
            assert found.all()
            assert (values == keys).all()
        with icefield.JoinIndex.open(paths[1], mode="r") as index:
            assert index.semi(keys).all()
        assert reader.count([2**40]) == 1
    with icefield.Map.open(paths[0]) as made:
        assert made.check() == []
    print(f"{KILLS} killed writers, {acknowledged + 1} acknowledged batches")
