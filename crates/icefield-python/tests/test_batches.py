"""Batches of every kind of column."""

import signal
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import icefield
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import needs_polars, pl

N = 200_000


@pytest.mark.parametrize(
    "column",
    [
        list,
        tuple,
        iter,
        np.array,
        pd.Series,
        pd.Index,
        lambda keys: pd.Series(keys, dtype="UInt64"),
        lambda keys: pa.array(keys, pa.uint64()),
        lambda keys: pa.array(keys, pa.uint16()),
        lambda keys: pa.chunked_array([pa.array(keys[:3], pa.uint64()), pa.array(keys[3:], pa.uint64())]),
        lambda keys: pa.array([0, *keys], pa.uint64())[1:],
        pytest.param(lambda keys: pl.Series(keys, dtype=pl.UInt64), marks=needs_polars),
        lambda keys: array("Q", keys),
        lambda keys: memoryview(array("Q", keys)),
        lambda keys: np.array(keys, dtype="uint32"),
    ],
)
def test_columns_of_numbers(words: icefield.Map, column) -> None:
    keys = [5, 1, 2, 9]
    if column in (np.array, pd.Series, pd.Index):
        make = column

        def column(keys):
            return make(np.array(keys, dtype="uint64"))

    words.put_many(column(keys), column(keys))
    assert dict(words) == {key: key for key in keys}
    values, found = words.get_many(column([9, 3]), 7)
    assert values.tolist() == [9, 7]
    assert values.dtype == np.uint64
    assert found.tolist() == [True, False]
    assert found.dtype == bool
    assert words.contains_many(column([9, 3])).tolist() == [True, False]
    assert words.insert_many(column([5, 6, 6]), column([0, 1, 2])).tolist() == [False, True, False]
    assert (words[5], words[6]) == (5, 1)
    assert words.remove_many(column([5, 7, 5])).tolist() == [True, False, False]


@pytest.mark.parametrize(
    "column",
    [
        list,
        np.array,
        pd.Series,
        pa.array,
        lambda keys: pa.array(keys, pa.large_string()),
        lambda keys: pa.array(keys, pa.string_view()),
        lambda keys: pa.chunked_array([keys[:1], keys[1:]], pa.string()),
        pytest.param(lambda keys: pl.Series(keys), marks=needs_polars),
    ],
)
def test_columns_of_strings(texts: icefield.Map, column) -> None:
    keys = ["eins", "", "drei" * 10]
    texts.put_many(column(keys), column(keys))
    assert dict(texts) == {key: key for key in keys}
    values, found = texts.get_many(column(["", "vier"]))
    assert list(values) == ["", None]
    assert found.tolist() == [True, False]
    assert pa.array(values).to_pylist() == ["", None]
    if pl:
        assert pl.Series(values).to_list() == ["", None]
    assert texts.get_many(column(["", "vier"]), "x")[0].to_pylist() == ["", "x"]
    assert texts.insert_many(column(["eins", "x", "x"]), column(["a", "b", "c"])).tolist() == [False, True, False]
    assert texts.remove_many(column(["eins", "x", "y"])).tolist() == [True, True, False]


def test_unaligned(words: icefield.Map) -> None:
    keys = np.frombuffer(b"x" + np.arange(5, dtype="uint64").tobytes(), "uint64", offset=1)
    assert not keys.flags.aligned
    words.put_many(keys[:3], keys[:3])
    assert words.insert_many(keys, keys).tolist() == [False] * 3 + [True] * 2
    assert words.get_many(keys)[0].tolist() == [0, 1, 2, 3, 4]
    assert words.remove_many(keys).all()


@pytest.mark.parametrize("table", ["dash-eh", "plush"])
def test_other_words(tmp_path: Path, table: str) -> None:
    scores = icefield.Map.open(tmp_path / "scores.ice", "i64", "f64", table=table)
    scores.put_many([-1, 2], [0.5, -2.0])
    assert scores.insert_many([2, -3, -3], [0.0, 1.0, 2.0]).tolist() == [False, True, False]
    assert dict(scores) == {-1: 0.5, 2: -2.0, -3: 1.0}
    values, found = scores.get_many([-3, 7], 9.5)
    assert (values.tolist(), found.tolist()) == ([1.0, 9.5], [True, False])
    assert scores.remove_many([-1, 7, -1]).tolist() == [True, False, False]


def test_many_pieces(words: icefield.Map) -> None:
    keys = np.random.default_rng(1).permutation(N).astype("uint64")
    words.put_many(keys, keys * 2)
    assert len(words) == N
    values, found = words.get_many(np.arange(2 * N, dtype="uint64"))
    assert (values[:N] == np.arange(N) * 2).all()
    assert (found == (np.arange(2 * N) < N)).all()
    assert not words.insert_many(keys, keys).any()
    table = pa.table(pa.record_batch(words.to_arrow()).to_pydict())
    assert sorted(table["key"].to_pylist()) == list(range(N))
    batches = [pa.record_batch(batch) for batch in words.items_batches(10_000)]
    assert sum(batch.num_rows for batch in batches) == N
    assert len(batches) > 5
    # A size far beyond memory.
    assert sum(len(batch) for batch in words.items_batches(2**62)) == N
    assert words.remove_many(keys[::2].copy()).all()
    assert len(words) == N // 2


def test_load(texts: icefield.Map) -> None:
    table = pa.table({"name": [str(i) for i in range(1000)], "text": ["x" * (i % 7) for i in range(1000)]})
    seen: list[int] = []
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=100))
    assert texts.load(reader, key="name", value="text", progress=seen.append) == 1000
    assert seen == list(range(100, 1001, 100))
    assert texts["13"] == "x" * 6
    pairs = {"key": ["k"], "value": ["v"]}
    assert texts.load(pl.DataFrame(pairs) if pl else pa.table(pairs)) == 1
    with pytest.raises(KeyError):
        texts.load(table)
    with pytest.raises(TypeError, match="arrow_c_stream"):
        texts.load([1])
    assert len(pl.DataFrame(texts.to_arrow()) if pl else texts.to_arrow()) == len(texts) == 1001


def test_bools_and_floats() -> None:
    flags = icefield.Map.memory("i32", "bool")
    flags.put_many(pa.array([-1, 2], pa.int8()), pa.array([True, False]))
    assert dict(flags) == {-1: True, 2: False}
    assert flags.get_many(np.array([-1, 2], dtype="int16"))[0].tolist() == [True, False]
    assert pa.record_batch(flags.to_arrow()).column("value").to_pylist() == list(flags.values())
    scores = icefield.Map.memory("str", "f64")
    scores.put_many(["a"], np.array([0.5], dtype="float32"))
    assert scores.increment("a", 1) == 1.5


def test_empty(words: icefield.Map, texts: icefield.Map) -> None:
    for made in (words, texts):
        made.put_many([], [])
        values, found = made.get_many([])
        assert len(values) == len(found) == 0
        assert made.remove_many(np.array([])).tolist() == [] if made is words else True
        assert list(made.items_batches()) == []
        assert len(made.to_arrow()) == 0


@pytest.fixture
def handler() -> Iterator[None]:
    """Install Python's handler of Ctrl-C, which programs in the background of a shell begin without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("handler")
def test_interrupt(tmp_path: Path) -> None:
    made = icefield.Map.memory("u64", "u64")
    keys = np.random.default_rng(1).integers(0, 2**63, 20_000_000, dtype="uint64")

    def interrupt() -> None:
        time.sleep(0.2)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(100):
            made.put_many(keys, keys)
    thread.join()
    made.get_many(keys[:10])
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        icefield.JoinIndex.build(tmp_path / "j.ice", keys).close()
        # The signal comes later than the build's end.
        time.sleep(60)
    thread.join()


@pytest.mark.usefixtures("handler")
def test_interrupt_of_a_merge(tmp_path: Path) -> None:
    index = icefield.JoinIndex.build(tmp_path / "j.ice", np.arange(3_000_000, dtype="uint64"))
    index.insert([1], [7])
    generation = index.generation
    timer = threading.Timer(0.02, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        index.merge()
        # The signal comes later than the merge's end.
        time.sleep(60)
    timer.join()
    # Waits until the merge is complete.
    index.close()
    with icefield.JoinIndex.open(tmp_path / "j.ice") as index:
        assert index.generation == generation + 1
        assert index.count([1]) == 2


def test_threads(words: icefield.Map) -> None:
    words[0] = 0

    def work(number: int) -> None:
        keys = np.arange(number * 10_000, (number + 1) * 10_000, dtype="uint64") + 1
        words.put_many(keys, keys)
        for _ in range(1000):
            words.increment(0, 1)
        assert words.get_many(keys)[1].all()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert words[0] == 4000
    assert len(words) == 40_001
