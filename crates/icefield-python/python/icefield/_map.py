"""The class `Map`: the parts of the protocol of mappings that need no speed."""

from __future__ import annotations

import os
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from types import TracebackType
from typing import Any, Self, cast

from icefield._icefield import Batches, MapBase, RecordBatch

_MISSING: Any = object()
_PAGE = 1024


class _Keys(KeysView[Any]):
    def __init__(self, of: Map) -> None:
        super().__init__(of)
        self._of = of

    def __iter__(self) -> Iterator[Any]:
        return self._of._pages("keys", _PAGE)


class _Values(ValuesView[Any]):
    def __init__(self, of: Map) -> None:
        super().__init__(of)
        self._of = of

    def __iter__(self) -> Iterator[Any]:
        return self._of._pages("values", _PAGE)


class _Items(ItemsView[Any, Any]):
    def __init__(self, of: Map) -> None:
        super().__init__(of)
        self._of = of

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._of._pages("items", _PAGE)


class Map(MapBase, MutableMapping[Any, Any]):
    """A mutable mapping over a table in a directory or in memory, made by `Map.open` or `Map.memory`.

    >>> import icefield, tempfile
    >>> directory = tempfile.TemporaryDirectory()
    >>> with icefield.Map.open(directory.name + "/words.ice", key="str", value="u64") as words:
    ...     words["one"] = 1
    ...     words.update(two=2)
    ...     sorted(words.items())
    [('one', 1), ('two', 2)]
    """

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        key: str | None = None,
        value: str | None = None,
        table: str | None = None,
        mode: str = "a",
        durability: str = "auto",
        *,
        sync: str = "always",
        capacity: int | None = None,
        max_bytes: int | None = None,
        verify: bool = False,
    ) -> Self:
        """Open the table in the directory `path`.

        `mode` is "r" (read only), "a" (create the table if it is absent) or "w" (also remove its records). `key`,
        `value` and `table` are those of the stored table if they are not given; a new table needs `key` and `value`.

        >>> import icefield, tempfile
        >>> directory = tempfile.TemporaryDirectory()
        >>> ages = icefield.Map.open(directory.name + "/ages.ice", key="str", value="u8")
        >>> ages["Ann"] = 40
        >>> ages.close()
        >>> icefield.Map.open(directory.name + "/ages.ice", mode="r")["Ann"]
        40
        """
        path = os.fspath(path)
        return cls.__new__(cls, path, key, value, table, mode, durability, sync, capacity, max_bytes, verify)

    @classmethod
    def memory(cls, key: str, value: str, *, capacity: int | None = None) -> Self:
        """Make a map in memory.

        >>> import icefield
        >>> squares = icefield.Map.memory("u64", "u64")
        >>> squares.put_many([1, 2, 3], [1, 4, 9])
        >>> squares[3]
        9
        """
        return cls.__new__(cls, None, key, value, None, "a", "auto", "always", capacity, None, False)

    # `MutableMapping` comes after `MapBase`, but its mixins would hide these from type checkers.
    __getitem__ = MapBase.__getitem__
    __setitem__ = MapBase.__setitem__
    __delitem__ = MapBase.__delitem__
    __len__ = MapBase.__len__
    __contains__ = MapBase.__contains__

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the keys.

        Keys that are present throughout are returned once, even if other records are written meanwhile.
        """
        return self._pages("keys", _PAGE)

    def keys(self) -> KeysView[Any]:
        """Return a view of the keys."""
        return _Keys(self)

    def values(self) -> ValuesView[Any]:
        """Return a view of the values."""
        return _Values(self)

    def items(self) -> ItemsView[Any, Any]:
        """Return a view of the records."""
        return _Items(self)

    def items_batches(self, size: int = 65536) -> Iterator[RecordBatch]:
        """Iterate over the records in Arrow batches of about `size` rows, with the columns `key` and `value`."""
        return self._pages("batches", size)

    def pop(self, key: Any, default: Any = _MISSING, /) -> Any:
        """Remove a key and return its value, or `default` if the key is absent."""
        value = self._take(key)
        if value is not None:
            return value
        if default is _MISSING:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[Any, Any]:
        """Remove any record and return it."""
        # Another thread may remove the record first.
        for key in self:
            value = self._take(key)
            if value is not None:
                return key, value
        raise KeyError("popitem(): the map is empty")

    def load(
        self,
        source: Any,
        *,
        key: str = "key",
        value: str = "value",
        progress: Callable[[int], object] | bool | None = None,
    ) -> int:
        """Put the rows of an Arrow reader or table, a batch at a time, and return their number.

        `progress` is called with the number of rows so far, or `True` shows a bar of `tqdm`.

        >>> import icefield
        >>> copy = icefield.Map.memory("u64", "u64")
        >>> source = icefield.Map.memory("u64", "u64")
        >>> source[7] = 70
        >>> for batch in source.items_batches():
        ...     copy.put_many(batch.column("key"), batch.column("value"))
        >>> dict(copy)
        {7: 70}
        """
        bar = None
        if progress is True:
            import tqdm  # type: ignore[import-untyped, unused-ignore]

            bar = tqdm.tqdm(unit=" rows")
        rows = 0
        try:
            for batch in Batches(source):
                self.put_many(batch.column(key), batch.column(value))
                rows += len(batch)
                if bar is not None:
                    bar.update(len(batch))
                elif callable(progress):
                    progress(rows)
        finally:
            if bar is not None:
                bar.close()
        return rows

    def __or__(self, other: object) -> dict[Any, Any]:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {**self, **other}

    def __ror__(self, other: object) -> dict[Any, Any]:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {**other, **self}

    def __ior__(self, other: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> Self:  # type: ignore[misc]
        self.update(other)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        place = "in memory" if self.path is None else f"at {os.fspath(self.path)!r}, mode {self.mode}"
        closed = " (closed)" if self.closed else ""
        return f"<icefield.Map {self.table}<{self.key_type}, {self.value_type}> {place}{closed}>"

    def __reduce__(self) -> tuple[Callable[..., Map], tuple[Any, ...]]:
        return _reopen, (type(self), *self._reopen_arguments())


def _reopen(cls: type[Map], path: str, uuid: int, verify: bool) -> Map:
    """Open the table of a pickled map."""
    reopened = cast(Map, cls.open(path, mode="r", verify=verify))
    try:
        reopened._check_uuid(uuid)
    except BaseException:
        # Otherwise a caller that keeps the exception keeps the table open.
        reopened.close()
        raise
    return reopened
