"""Joins of Polars frames with a `JoinIndex` in place of a hash table."""

from __future__ import annotations

from typing import Any, Literal

import polars as pl

from icefield._icefield import JoinIndex

__all__ = ["join"]


def join(
    df: pl.DataFrame,
    index: JoinIndex,
    right: pl.DataFrame | None = None,
    *,
    on: str,
    how: Literal["inner", "left", "semi", "anti"] = "inner",
    payload: str = "payload",
    suffix: str = "_right",
) -> pl.DataFrame:
    """Join a frame with the pairs of an index.

    The payloads of the index are row numbers of `right`, whose columns are added. Without `right`, the column `payload`
    with the payloads is added. Rows with a null key have no match.

    >>> import icefield, icefield.polars, polars, tempfile
    >>> directory = tempfile.TemporaryDirectory()
    >>> index = icefield.JoinIndex.build(directory.name + "/i.ice", [1, 2])
    >>> icefield.polars.join(polars.DataFrame({"id": [2, 3]}, schema={"id": polars.UInt64}), index, on="id").rows()
    [(2, 1)]
    """
    keys = df.get_column(on)
    valid = keys.is_not_null()
    all_valid = bool(valid.all())
    # A key that is null takes part as 0, and its matches are dropped.
    filled = keys if all_valid else keys.fill_null(0)
    filled = filled.cast(pl.UInt64 if index.key_type == "u64" else pl.Int64)
    if how in ("semi", "anti"):
        found = pl.Series(index.semi(filled)) & valid
        return df.filter(found if how == "semi" else ~found)
    if how not in ("inner", "left"):
        raise ValueError(f"how: expected inner, left, semi or anti, got {how!r}")
    positions, payloads = (pl.Series(column) for column in index.join(filled))
    if not all_valid:
        keep = valid.gather(positions)
        positions, payloads = positions.filter(keep), payloads.filter(keep)
    if how == "left":
        found = pl.Series(index.semi(filled)) & valid
        absent = pl.int_range(len(df), dtype=pl.Int64, eager=True).filter(~found)
        payloads = pl.concat([payloads, pl.Series([None] * len(absent), dtype=pl.UInt64)])
        positions = pl.concat([positions, absent])
    matched: pl.DataFrame = df[positions]
    if right is None:
        return matched.with_columns(payloads.alias(payload))
    others = right.select(pl.all().gather(payloads)) if how == "left" else right[payloads]
    others = others.drop(on, strict=False)
    names: dict[str, Any] = {name: name + suffix for name in others.columns if name in df.columns}
    return pl.concat([matched, others.rename(names)], how="horizontal")
