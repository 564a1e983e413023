"""Relations to join, what their join must count, and the engines that join them.

Keys are those of `icefield-bench`: the n-th is SplitMix64's finalizer of n plus a scrambled seed. Files of relations
are those that `icefield-bench join --relations DIR` reads: `build.u64` and `probe-NAME.u64`, little-endian words.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np

MASK = (1 << 64) - 1


def mix(words):
    """Scrambles 64-bit words; a bijection."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def keys(first, count, seed):
    """The keys numbered `first` and on, all different, in no order."""
    offset = mix(np.array([seed & MASK], dtype=np.uint64))[0]
    with np.errstate(over="ignore"):
        return mix(np.arange(first, first + count, dtype=np.uint64) + offset)


def relations(build_rows, probe_rows, selectivity, seed):
    """Different keys to build of, and keys to probe with, of which so many percent match; both in no order."""
    random = np.random.default_rng(seed + selectivity)
    build = keys(0, build_rows, seed)
    hits = probe_rows * selectivity // 100 if build_rows else 0
    drawn = build[random.integers(0, max(build_rows, 1), hits)]
    probe = np.concatenate([drawn, keys(build_rows, probe_rows - hits, seed)])
    random.shuffle(probe)
    return build, probe


def cases(rows, seed):
    """Small relations by name that joins get wrong: duplicates, nothing, extreme keys, negative ones."""
    random = np.random.default_rng(seed)
    none = np.array([], dtype=np.uint64)
    some, asked = relations(rows, 2 * rows, 20, seed)
    few = max(rows // 10, 1)
    largest = np.array([MASK, MASK - 1, 0, 1, MASK], dtype=np.uint64)
    signed = np.iinfo(np.int64)
    negative = np.array([-1, -2, signed.min, signed.max, 0, -1], dtype=np.int64)
    return {
        "matches-0": relations(rows, 2 * rows, 0, seed),
        "matches-20": (some, asked),
        "matches-100": relations(rows, 2 * rows, 100, seed),
        "duplicates": (random.choice(some[:few], rows), random.choice(some[: 2 * few], rows)),
        "one-key": (np.full(few, 7, dtype=np.uint64), np.full(few, 7, dtype=np.uint64)),
        "empty-build": (none, asked),
        "empty-probe": (some, none),
        "empty-both": (none, none),
        "largest-keys": (random.choice(largest, rows), np.concatenate([largest, asked])),
        "negative-keys": (random.choice(negative, rows), np.arange(-500, 500, dtype=np.int64)),
    }


def tpch(scale):
    """The keys of TPC-H's orders and line items, as its generator makes them: all lines of one order after another."""
    modulus, multiplier, seed = (1 << 31) - 1, 16_807, 1_434_868_289
    orders = int(1_500_000 * scale)
    rows = np.arange(1, orders + 1, dtype=np.uint64)
    build = (rows >> np.uint64(3) << np.uint64(5)) + (rows & np.uint64(7))
    powers = np.array([multiplier], dtype=np.uint64)
    while len(powers) < orders:
        powers = np.concatenate([powers, powers * powers[-1] % np.uint64(modulus)])
    drawn = powers[:orders] * np.uint64(seed) % np.uint64(modulus)
    lines = 1 + (drawn / modulus * 7).astype(np.int64)
    return build, np.repeat(build, lines)


def expected(build, probe):
    """How many pairs of equal keys there are."""
    if not len(build):
        return 0
    there, counts = np.unique(build, return_counts=True)
    place = np.minimum(np.searchsorted(there, probe), len(there) - 1)
    return int(counts[place][there[place] == probe].sum())


class DuckDb:
    """Tables of its own, in memory."""

    name = "duckdb"

    def __init__(self, build, probe, threads):
        import duckdb
        import pyarrow

        self.connection = duckdb.connect(config={"threads": threads})
        for name, side in (("r", build), ("s", probe)):
            self.connection.register("side", pyarrow.table({"key": side}))
            self.connection.execute(f"CREATE TABLE {name} AS SELECT * FROM side")
            self.connection.unregister("side")

    def count(self):
        return self.connection.execute("SELECT COUNT(*) FROM r JOIN s ON r.key = s.key").fetchone()[0]


class Polars:
    """Frames over the arrays. Its threads are set by the environment before it is imported."""

    name = "polars"

    def __init__(self, build, probe, threads):
        os.environ["POLARS_MAX_THREADS"] = str(threads)
        import polars

        self.build, self.probe = (polars.DataFrame({"key": side}) for side in (build, probe))
        self.length = polars.len()

    def count(self):
        joined = self.probe.lazy().join(self.build.lazy(), on="key", how="inner")
        return joined.select(self.length).collect().item()


class DataFusion:
    """Record batches in memory, as many parts as threads."""

    name = "datafusion"

    def __init__(self, build, probe, threads):
        import datafusion
        import pyarrow

        config = datafusion.SessionConfig().with_target_partitions(threads)
        self.context = datafusion.SessionContext(config)
        for name, side in (("r", build), ("s", probe)):
            parts = np.array_split(side, threads)
            batches = [pyarrow.table({"key": part}).to_batches(max_chunksize=1 << 16) for part in parts]
            empty = pyarrow.record_batch({"key": side[:0]})
            self.context.register_record_batches(name, [part or [empty] for part in batches])

    def count(self):
        answer = self.context.sql("SELECT COUNT(*) AS n FROM r JOIN s ON r.key = s.key").collect()
        return answer[0].column("n")[0].as_py()


ENGINES = {engine.name: engine for engine in (DuckDb, Polars, DataFusion)}


def timed(engine):
    """What an engine counts, and in how many seconds."""
    began = time.perf_counter()
    count = engine.count()
    return count, time.perf_counter() - began


def write(directory, build, probe):
    """Writes relations for Icefield."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name, side in (("build", build), ("probe-1", probe)):
        side.view(np.uint64).astype("<u8").tofile(directory / f"{name}.u64")


def icefield(program, directory, threads, medium):
    """What an index counts in the relations of a directory, and in how many seconds: built anew, and opened."""
    command = [program, "join", "--tables", "join", "--relations", str(directory), "--repeat", "1"]
    command += ["--threads", str(threads), "--medium", medium, "--json", "-"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    phases = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        rate = row["mops"] * 1e6
        phases[row["extra"]["phase"]] = (row["extra"].get("matches"), row["ops"] / rate if rate else 0.0)
    return phases
