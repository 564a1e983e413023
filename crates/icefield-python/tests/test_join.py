"""Join indexes, and joins of frames."""

from pathlib import Path

import icefield
import icefield.pandas
import numpy as np
import pandas as pd
import pytest
from conftest import needs_polars, pl

if pl:
    import icefield.polars


@pytest.mark.parametrize("key", ["u64", "i64"])
def test_index(tmp_path: Path, key: str) -> None:
    dtype = {"u64": "uint64", "i64": "int64"}[key]
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 100_000, 300_000).astype(dtype)
    probes = rng.integers(0, 200_000, 600_000).astype(dtype)
    index = icefield.JoinIndex.build(tmp_path / "i.ice", keys, key=key)
    expected = pd.DataFrame({"k": probes, "at": range(len(probes))}).merge(
        pd.DataFrame({"k": keys, "row": range(len(keys))}), on="k"
    )
    positions, rows = index.join(probes)
    assert sorted(zip(positions.tolist(), rows.tolist())) == sorted(zip(expected["at"], expected["row"]))
    assert index.count(probes) == len(expected)
    assert (index.semi(probes) == np.isin(probes, keys)).all()
    assert (index.anti(probes) == ~np.isin(probes, keys)).all()
    with pytest.raises(ValueError, match="one pair"):
        index.get_indexer(probes)


def test_changes(tmp_path: Path) -> None:
    index = icefield.JoinIndex.build(tmp_path / "i.ice", [1, 2], [10, 20])
    reader = icefield.JoinIndex.open(tmp_path / "i.ice", mode="r")
    index.insert([3, 3], [30, 31])
    assert index.remove([1]) == 1
    assert index.get_indexer([1, 2, 4]).tolist() == [-1, 20, -1]
    assert index.get_indexer([1]).dtype == np.int64
    generation = index.generation
    assert index.merge() == index.generation > generation
    assert sorted(index.join([1, 2, 3])[1].tolist()) == [20, 30, 31]
    assert reader.count([1, 2]) == 2
    with pytest.raises(icefield.ReadOnlyError):
        reader.insert([1], [1])
    assert len(index) == 3
    assert "u64" in repr(index)
    index.close()
    with icefield.JoinIndex.open(tmp_path / "i.ice") as again:
        assert len(again) == 3


def test_bad_input(tmp_path: Path) -> None:
    for arguments, error in [
        (([1, -1],), ValueError),
        ((["a"],), TypeError),
        (([1], [1, 2]), ValueError),
        ((np.array([1.0]),), TypeError),
    ]:
        with pytest.raises(error, match="expected"):
            icefield.JoinIndex.build(tmp_path / "i.ice", *arguments)
    index = icefield.JoinIndex.build(tmp_path / "i.ice", [1], [2**63])
    with pytest.raises(ValueError, match=r"below 2\*\*63"):
        index.get_indexer([1])
    with pytest.raises(FileExistsError):
        icefield.JoinIndex.build(tmp_path / "i.ice", [1])
    with pytest.raises(ValueError, match="1 keys and 2 values"):
        index.insert([1], [1, 2])
    with pytest.raises(TypeError, match="uint64"):
        index.join(np.array([1.5]))


@needs_polars
@pytest.mark.parametrize("with_nulls", [False, True])
def test_frames(tmp_path: Path, with_nulls: bool) -> None:
    right = pl.DataFrame(
        {"id": [1, 2, 2, 0], "name": ["a", "b", "c", "d"]}, schema={"id": pl.UInt64, "name": pl.String}
    )
    ids = [2, 7, 1, 0, None if with_nulls else 8]
    left = pl.DataFrame({"id": ids, "x": range(5), "name": list("vwxyz")}, schema_overrides={"id": pl.UInt64})
    index = icefield.JoinIndex.build(tmp_path / "i.ice", right["id"])
    for how in ("inner", "left"):
        joined = icefield.polars.join(left, index, right, on="id", how=how)
        expected = left.join(right, on="id", how=how)
        assert joined.sort("x", "name_right").equals(expected.sort("x", "name_right")), how
        merged = icefield.pandas.merge(left.to_pandas(), index, right.to_pandas(), on="id", how=how)
        wanted = left.to_pandas().merge(right.to_pandas(), on="id", how=how)
        columns = ["x", "name_x", "name_y"]
        order = {"by": ["x", "name_y"], "ignore_index": True}
        pd.testing.assert_frame_equal(
            merged[columns].sort_values(**order), wanted[columns].sort_values(**order), check_dtype=False
        )
    for how in ("semi", "anti"):
        joined = icefield.polars.join(left, index, on="id", how=how)
        assert joined.equals(left.join(right, on="id", how=how)), how
    assert icefield.polars.join(left, index, on="id").columns == ["id", "x", "name", "payload"]
    assert list(icefield.pandas.merge(left.to_pandas(), index, on="id").columns) == ["id", "x", "name", "payload"]
