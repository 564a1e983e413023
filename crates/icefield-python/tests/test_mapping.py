"""The protocol of mappings: CPython's own tests, and what they do not cover."""

import doctest
import importlib
import tempfile
from pathlib import Path

import icefield
import pytest
from conftest import pl
from test import mapping_tests


class Protocol:
    """Records that are strings, for CPython's tests."""

    def _reference(self):
        return {"1": "2", "key1": "value1", "key2": "value2"}


class TestMemory(Protocol, mapping_tests.BasicTestMappingProtocol):
    @staticmethod
    def type2test():
        return icefield.Map.memory("str", "str")


class TestDurable(Protocol, mapping_tests.BasicTestMappingProtocol):
    # Of `TestMappingProtocol`, the tests of constructors, `fromkeys` and `copy` do not apply: a map has a path. Its
    # `test_mutatingiteration` expects an error where iterators of ours continue.
    table = "dash-eh"

    def type2test(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        return icefield.Map.open(directory.name + "/t.ice", "str", "str", table=self.table)

    def test_more_of_pop(self):
        # As in `TestHashMappingProtocol.test_pop`.
        mapping = self._empty_mapping()
        with pytest.raises(TypeError):
            mapping.pop()
        mapping["a"] = "b"
        assert mapping.pop("a", None) == "b"
        assert mapping.pop("a", None) is None

    def test_more_of_setdefault(self):
        # As in `TestHashMappingProtocol.test_setdefault`, without a default of None, which is not a string.
        mapping = self._empty_mapping()
        assert mapping.setdefault("a", "1") == "1"
        assert mapping.setdefault("a", "2") == "1"

    def test_more_of_popitem(self):
        # As in `TestMappingProtocol.test_popitem`: the two maps have the same order of their own.
        mapping = self._full_mapping({str(i): str(i) for i in range(100)})
        assert {mapping.popitem()[0] for _ in range(100)} == {str(i) for i in range(100)}
        assert not mapping


class TestPlush(TestDurable):
    table = "plush"


class TestIceberg(TestDurable):
    table = "iceberg"


class TestLinear(TestDurable):
    table = "dash-lh"


def test_operators_and_views(texts: icefield.Map) -> None:
    texts |= {"a": "1"}
    texts |= [("b", "2")]
    assert texts == {"a": "1", "b": "2"}
    assert texts | {"c": "3"} == {"a": "1", "b": "2", "c": "3"}
    assert {"c": "3"} | texts == {"a": "1", "b": "2", "c": "3"}
    assert texts.keys() & {"a", "z"} == {"a"}
    assert ("a", "1") in texts.items()
    assert "2" in texts.values()
    assert len(texts.items()) == 2
    assert texts.table in repr(texts)


def test_iteration_survives_writes(words: icefield.Map) -> None:
    words.put_many(range(5000), range(5000))
    seen = []
    for key in words:
        seen.append(key)
        if len(seen) % 3 == 0:
            words[10_000 + key] = 1
            words.pop(key)
    stable = [key for key in seen if key < 5000]
    assert len(stable) == len(set(stable)) == 5000


def test_increment_and_compare_and_set(words: icefield.Map) -> None:
    assert words.increment(1, 5) == 5
    assert words.increment(1, 2) == 7
    assert words.compare_and_set(1, 7, 8)
    assert not words.compare_and_set(1, 7, 9)
    assert words.compare_and_set(2, None, 1)
    assert not words.compare_and_set(2, None, 1)
    assert dict(words) == {1: 8, 2: 1}
    words[3] = 2**64 - 1
    with pytest.raises(ValueError, match="within u64"):
        words.increment(3, 1)
    assert words[3] == 2**64 - 1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("u8", [0, 255]),
        ("u16", [0, 65535]),
        ("u32", [0, 2**32 - 1]),
        ("u64", [0, 2**64 - 1]),
        ("i8", [-128, 127]),
        ("i16", [-(2**15), 2**15 - 1]),
        ("i32", [-(2**31), 2**31 - 1]),
        ("i64", [-(2**63), 2**63 - 1]),
        ("bool", [False, True]),
        ("bytes", [b"", b"\0\xff" * 100]),
        ("str", ["", "grün" * 100]),
    ],
)
@pytest.mark.parametrize("in_memory", [False, True])
def test_types(name: str, values: list, in_memory: bool, tmp_path: Path) -> None:
    for value_type, value in [(name, values[1]), ("f64", 0.1), ("f32", 0.5), ("str", "x")]:
        made = icefield.Map.memory(name, value_type)
        if not in_memory:
            made = icefield.Map.open(tmp_path / f"{value_type}.ice", name, value_type)
        for key in values:
            made[key] = value
            assert made[key] == value
        assert sorted(made) == values
        found, mask = made.get_many(values)
        assert list(found) == [value, value]
        assert list(mask) == [True, True]
        assert len(made.to_arrow()) == 2


def test_documentation() -> None:
    modules = ["icefield", "icefield._map", "icefield.pandas"] + ["icefield.polars"] * (pl is not None)
    for module in map(importlib.import_module, modules):
        assert doctest.testmod(module).failed == 0
    for kind in (icefield.Map, icefield.JoinIndex):
        globs = {"icefield": icefield}
        for test in doctest.DocTestFinder(recurse=False).find(kind, kind.__name__, globs=globs):
            assert doctest.DocTestRunner().run(test).failed == 0
