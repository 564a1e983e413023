"""Joins of pandas frames with a `JoinIndex` in place of a hash table."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from icefield._icefield import JoinIndex

__all__ = ["merge"]


def merge(
    left: pd.DataFrame,
    index: JoinIndex,
    right: pd.DataFrame | None = None,
    *,
    on: str,
    how: Literal["inner", "left"] = "inner",
    payload: str = "payload",
    suffixes: tuple[str, str] = ("_x", "_y"),
) -> pd.DataFrame:
    """Merge a frame with the pairs of an index.

    The payloads of the index are row numbers of `right`, whose columns are added. Without `right`, the column `payload`
    with the payloads is added. The rows keep the order of `left`. Rows with a null key have no match.

    >>> import icefield, icefield.pandas, pandas, tempfile
    >>> directory = tempfile.TemporaryDirectory()
    >>> index = icefield.JoinIndex.build(directory.name + "/i.ice", [1, 2])
    >>> icefield.pandas.merge(pandas.DataFrame({"id": [2, 3]}), index, on="id").to_dict("records")
    [{'id': 2, 'payload': 1}]
    """
    if how not in ("inner", "left"):
        raise ValueError(f"how: expected inner or left, got {how!r}")
    column = left[on]
    valid = column.notna().to_numpy()
    kept = column.to_numpy() if valid.all() else column[valid].to_numpy()
    keys = np.asarray(kept)
    # pandas stores integers with nulls as floats.
    if keys.dtype.kind == "f" and not valid.all() and (np.abs(keys) < 2**53).all() and (keys % 1 == 0).all():
        keys = keys.astype("int64")
    if keys.dtype.kind not in "iu":
        raise TypeError(f"on: expected a column of integers, got {column.dtype}")
    if index.key_type == "u64" and keys.dtype.kind == "i" and (keys < 0).any():
        raise ValueError("on: expected no negative keys for an index of u64")
    found, rows = index.join(keys.astype("uint64" if index.key_type == "u64" else "int64"))
    positions = np.flatnonzero(valid)[np.asarray(found)]
    payloads = np.asarray(rows)
    present = np.ones(len(positions), dtype=bool)
    if how == "left":
        matched = np.zeros(len(left), dtype=bool)
        matched[positions] = True
        absent = np.flatnonzero(~matched)
        positions = np.concatenate([positions, absent])
        payloads = np.concatenate([payloads, np.zeros(len(absent), dtype=payloads.dtype)])
        present = np.concatenate([present, np.zeros(len(absent), dtype=bool)])
    order = np.argsort(positions, kind="stable")
    positions, payloads, present = positions[order], payloads[order], present[order]
    rows_of_left = left.take(positions).reset_index(drop=True)
    if right is None:
        column_of_payloads = pd.Series(payloads, dtype="uint64" if present.all() else "UInt64")
        return rows_of_left.assign(**{payload: column_of_payloads.where(present) if not present.all() else payloads})
    others = right.drop(columns=on, errors="ignore")
    rows_of_right = others.take(payloads.astype("int64")[present])
    rows_of_right.index = pd.Index(np.flatnonzero(present))
    if not present.all():
        rows_of_right = rows_of_right.reindex(range(len(positions)))
    shared = [name for name in rows_of_right.columns if name in rows_of_left.columns]
    rows_of_left = rows_of_left.rename(columns={name: name + suffixes[0] for name in shared})
    return rows_of_left.join(rows_of_right.rename(columns={name: name + suffixes[1] for name in shared}))
