"""Crash-safe, concurrent hash tables and join indexes.

`Map` is a mutable mapping over a table in a directory or in memory. `JoinIndex` answers joins by integer keys. Both
take batches of NumPy, PyArrow, Polars and pandas columns.
"""

from icefield._icefield import (
    Column,
    CorruptError,
    ForkedError,
    IcefieldError,
    JoinIndex,
    LockedError,
    PoisonedError,
    ReadOnlyError,
    RecordBatch,
    __version__,
)
from icefield._map import Map

__all__ = [
    "Column",
    "CorruptError",
    "ForkedError",
    "IcefieldError",
    "JoinIndex",
    "LockedError",
    "Map",
    "PoisonedError",
    "ReadOnlyError",
    "RecordBatch",
    "__version__",
]
