"""Fixtures: maps of every kind."""

import contextlib
import importlib
import os
from pathlib import Path

import icefield
import pytest

# Polars has no package for free-threaded Python.
pl = None
with contextlib.suppress(ImportError):
    pl = importlib.import_module("polars")
needs_polars = pytest.mark.skipif(pl is None, reason="Polars is not installed")

TABLES = ["dash-eh", "dash-lh", "iceberg", "plush"]


def count(name: str, default: int) -> int:
    """Return a number of rounds: that of CI, or that of the environment variable `name`."""
    return int(os.environ.get(name, default))


@pytest.fixture(params=["memory", *TABLES])
def words(request: pytest.FixtureRequest, tmp_path: Path):
    """Return an empty map of numbers."""
    with new_map(request.param, tmp_path / "words.ice", "u64", "u64") as made:
        yield made


@pytest.fixture(params=["memory", *TABLES])
def texts(request: pytest.FixtureRequest, tmp_path: Path):
    """Return an empty map of strings."""
    with new_map(request.param, tmp_path / "texts.ice", "str", "str") as made:
        yield made


def new_map(kind: str, path: Path, key: str, value: str) -> icefield.Map:
    """Make an empty map."""
    if kind == "memory":
        return icefield.Map.memory(key, value)
    return icefield.Map.open(path, key, value, table=kind)
