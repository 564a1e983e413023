"""Bad input is refused before anything is written, with an error that states what was expected."""

from array import array
from pathlib import Path

import icefield
import numpy as np
import pyarrow as pa
import pytest

KEYS = np.arange(10, dtype="uint64")


@pytest.mark.parametrize(
    ("keys", "error", "expected"),
    [
        (KEYS.astype("int64"), TypeError, "expected a column of uint64"),
        (KEYS.astype("float64"), TypeError, "uint64"),
        (KEYS.astype(">u8"), TypeError, "uint64"),
        (KEYS.reshape(2, 5), ValueError, "one dimension"),
        (np.arange(20, dtype="uint64")[::2], ValueError, "contiguous"),
        (pa.array([1, None], pa.uint64()), ValueError, "no nulls"),
        (pa.array(["a"]), TypeError, "uint64"),
        ([1, -1], ValueError, "within u64"),
        ([1, 2**64], ValueError, "within u64"),
        ([1, 2.0], TypeError, "int"),
        ([1, "2"], TypeError, "int"),
        ("12", TypeError, "column"),
        (b"12", TypeError, "uint64"),
        (7, TypeError, "column"),
        (None, TypeError, "column"),
        (array("d", [1.0]), TypeError, "uint64"),
    ],
)
def test_columns(words: icefield.Map, keys: object, error: type[Exception], expected: str) -> None:
    with pytest.raises(error, match=expected):
        words.put_many(keys, keys)
    with pytest.raises(error, match=expected):
        words.get_many(keys)
    with pytest.raises(error, match=expected):
        words.insert_many(KEYS, keys)
    with pytest.raises(error, match=expected):
        words.remove_many(keys)
    assert len(words) == 0


def test_lengths(words: icefield.Map) -> None:
    for call in (words.put_many, words.insert_many):
        with pytest.raises(ValueError, match="10 keys and 9 values"):
            call(KEYS, KEYS[:9])
    assert len(words) == 0


def test_out(words: icefield.Map) -> None:
    words.put_many(KEYS, KEYS)
    read_only = np.zeros(10, dtype="uint64")
    read_only.flags.writeable = False
    for out, error, expected in [
        (np.zeros(10, dtype="int64"), TypeError, "uint64"),
        (np.zeros(9, dtype="uint64"), ValueError, "10 values"),
        (np.zeros(20, dtype="uint64")[::2], ValueError, "contiguous"),
        (read_only, ValueError, "writable"),
        ([0] * 10, TypeError, "buffer"),
    ]:
        with pytest.raises(error, match=expected):
            words.get_many(KEYS, out=out)
    keys = KEYS.copy()
    with pytest.raises(ValueError, match="apart"):
        words.get_many(keys, out=keys)
    assert (keys == KEYS).all()
    out = np.zeros(10, dtype="uint64")
    values, _ = words.get_many(KEYS, out=out)
    assert values is out
    assert (out == KEYS).all()


def test_texts(texts: icefield.Map) -> None:
    for key, error in [("\ud800", ValueError), (b"x", TypeError), (1, TypeError), (None, TypeError)]:
        with pytest.raises(error, match="expected"):
            texts[key] = "x"
        with pytest.raises(error, match="expected"):
            texts["x"] = key
        with pytest.raises(error, match="expected"):
            texts.put_many(["good", key], ["x", "x"])
        with pytest.raises(error, match="expected"):
            key in texts  # noqa: B015
    with pytest.raises(ValueError, match="out"):
        texts.get_many(["a"], out=np.zeros(1))
    not_text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    with pytest.raises(ValueError, match="UTF-8"):
        texts.put_many(not_text, not_text)
    assert len(texts) == 0


def test_singles(words: icefield.Map) -> None:
    for key, error in [(-1, ValueError), (2**64, ValueError), (1.0, TypeError), ("1", TypeError), (None, TypeError)]:
        for call in (words.__getitem__, words.__contains__, words.__delitem__, words.get, words.pop):
            with pytest.raises(error, match="expected"):
                call(key)
        with pytest.raises(error, match="expected"):
            words[1] = key
        with pytest.raises(error, match="expected"):
            words.increment(1, key)
    with pytest.raises(KeyError) as raised:
        words[77]
    assert raised.value.args == (77,)
    assert len(words) == 0


def test_long_values(tmp_path: Path) -> None:
    made = icefield.Map.open(tmp_path / "t.ice", "str", "bytes")
    with pytest.raises(ValueError, match="at most"):
        made.put_many(["a", "b"], [b"x", bytes((16 << 20) + 1)])
    with pytest.raises(ValueError, match="at most"):
        made["a"] = bytes((16 << 20) + 1)
    assert len(made) == 0


def test_opening(tmp_path: Path) -> None:
    path = tmp_path / "t.ice"
    with pytest.raises(FileNotFoundError):
        icefield.Map.open(path, mode="r")
    with pytest.raises(TypeError, match="needs `key`"):
        icefield.Map.open(path)
    for arguments in [{"key": "u65"}, {"mode": "x"}, {"key": "f64"}, {"durability": "some"}, {"table": "b-tree"}]:
        with pytest.raises(ValueError):
            icefield.Map.open(path, **{"key": "u64", "value": "u64", **arguments})
    with icefield.Map.open(path, "u64", "str") as made:
        made[1] = "one"
        with pytest.raises(icefield.LockedError, match="in use"):
            icefield.Map.open(path)
    for arguments in [{"key": "str"}, {"value": "u64"}, {"table": "plush"}]:
        for mode in "raw":
            with pytest.raises(TypeError, match="expected"):
                icefield.Map.open(path, mode=mode, **arguments)
    with icefield.Map.open(path, mode="r") as made:
        assert made[1] == "one"
        for call in [
            lambda: made.update({1: "x"}),
            lambda: made.pop(1),
            made.clear,
            lambda: made.put_many([1], ["x"]),
            lambda: made.remove_many([1]),
        ]:
            with pytest.raises(icefield.ReadOnlyError):
                call()
    with icefield.Map.open(path, mode="w") as made:
        assert len(made) == 0
    with pytest.raises(FileNotFoundError):
        icefield.JoinIndex.open(tmp_path / "none.ice")
    with pytest.raises(icefield.IcefieldError):
        icefield.Map.open(icefield.JoinIndex.build(tmp_path / "j.ice", [1]).path, mode="r")


def test_closed(words: icefield.Map, tmp_path: Path) -> None:
    words[1] = 1
    keys = iter(words)
    words.close()
    words.close()
    assert words.closed
    assert "closed" in repr(words)
    for call in [
        lambda: words[1],
        lambda: 1 in words,
        lambda: len(words),
        lambda: words.update({1: 1}),
        lambda: words.get_many([1]),
        lambda: words.put_many([1], [1]),
        lambda: list(words),
        lambda: list(keys),
        words.clear,
        words.to_arrow,
    ]:
        with pytest.raises(ValueError, match="closed"):
            call()
    index = icefield.JoinIndex.build(tmp_path / "j.ice", [1])
    index.close()
    for call in (lambda: index.join([1]), lambda: len(index), index.merge):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_damaged_records(tmp_path: Path) -> None:
    with icefield.Map.open(tmp_path / "t.ice", key="str", value="str") as texts:
        texts["name"] = "value" * 100
    for file in (tmp_path / "t.ice").iterdir():
        content = file.read_bytes()
        if b"valuevalue" in content:
            file.write_bytes(content.replace(b"valuevalue", b"valuEvalue", 1))
    damaged = icefield.Map.open(tmp_path / "t.ice", mode="r", verify=True)
    for read in [lambda: list(damaged), damaged.to_arrow, lambda: damaged["name"]]:
        with pytest.raises(icefield.CorruptError, match="salvage"):
            read()
