"""Speed of batches against other libraries, in one run: a table on the screen, and JSON with `--json FILE`.

Libraries that are not installed are left out. The ratios are of this run only; absolute times depend on the machine.
"""

import argparse
import contextlib
import importlib
import json
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from functools import partial

import icefield
import numpy as np

HITS = (100, 20, 0)


def optional(name: str):
    """Import a library, or return None."""
    with contextlib.suppress(ImportError):
        return importlib.import_module(name)


def best(rounds: int, call: Callable[..., object], *arguments: object) -> float:
    """Return the shortest time of a call in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)


def comprehension(mapping: dict, keys: list) -> list:
    """Read the keys in dict's fastest way."""
    return [mapping.get(key) for key in keys]


def single(mapping, keys: list) -> None:
    """Read the keys one by one."""
    for key in keys:
        mapping[key]


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Return different keys that look random, for different numbers (the finaliser of splitmix64)."""
    keys = numbers.astype("uint64")
    for shift, factor in [(30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)]:
        keys = (keys ^ (keys >> np.uint64(shift))) * np.uint64(factor)
    return keys ^ (keys >> np.uint64(31))


def probes(keys: np.ndarray, size: int, hits: int, rng: np.random.Generator) -> np.ndarray:
    """Return a batch of which `hits` percent are keys. The others are made like the keys, of other numbers.

    So absent keys are spread over the whole of an ordered index, and over the slots of a hash table, as keys are.
    """
    others = mixed(rng.integers(len(keys), 2 * len(keys), size))
    return np.where(rng.random(size) * 100 < hits, rng.choice(keys, size), others)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=1_000_000)
    parser.add_argument("--strings", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--durability", default="auto")
    parser.add_argument("--directory", default=None, help="where the durable tables are made")
    parser.add_argument("--json", default=None)
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    keys = mixed(rng.permutation(arguments.keys))
    directory = tempfile.TemporaryDirectory(dir=arguments.directory)
    rows: list[dict] = []

    def report(library: str, call: str, hits: int | None, seconds: float, count: int) -> None:
        nanoseconds = seconds / count * 1e9
        rows.append({"library": library, "call": call, "hits": hits, "ns_per_key": round(nanoseconds, 1)})
        shown = "" if hits is None else f"{hits} %"
        print(f"{library:28}{call:26}{shown:>6}{nanoseconds:12.1f} ns/key", flush=True)

    batches = {hits: probes(keys, arguments.batch, hits, rng) for hits in HITS}

    def gets(
        library: str, call: Callable[[np.ndarray], object], share: int = 1, rounds: int = arguments.rounds
    ) -> None:
        for hits, batch in batches.items():
            batch = batch[: len(batch) // share]
            report(library, "get", hits, best(rounds, call, batch), len(batch))

    def puts(library: str, put: Callable[[np.ndarray], object], share: int = 1) -> None:
        start = time.perf_counter()
        count = len(keys) // share
        for first in range(0, count, arguments.batch):
            put(keys[first : min(first + arguments.batch, count)])
        report(library, "put", None, time.perf_counter() - start, count)

    memory = icefield.Map.memory("u64", "u64", capacity=len(keys))
    puts("icefield memory", lambda part: memory.put_many(part, part))
    out = np.empty(arguments.batch, dtype="uint64")
    names = ["dash-eh", "iceberg"]
    for name in names:
        path = f"{directory.name}/{name}.ice"
        durable = icefield.Map.open(path, "u64", "u64", table=name, durability=arguments.durability, capacity=len(keys))
        puts(f"icefield {name}", lambda part, durable=durable: durable.put_many(part, part))
        durable.close()
        durable = icefield.Map.open(path, mode="r")
        get = partial(durable.get_many, out=out)
        alternating(report, name, batches, get, arguments.rounds, path=path)
        durable.close()
    alternating(report, "dlht", batches, partial(memory.get_many, out=out), arguments.rounds, keys=keys)
    strings(directory.name, report, arguments.strings, arguments.rounds)

    plain = dict(zip(keys.tolist(), keys.tolist(), strict=True))
    lists = {hits: batch.tolist() for hits, batch in batches.items()}
    for hits, batch in lists.items():
        report("dict", "get", hits, best(arguments.rounds, comprehension, plain, batch), len(batch))
    singles = random.Random(1).sample(keys.tolist(), 100_000)
    for library, mapping in [("dict", plain), ("icefield memory", memory)]:
        report(library, "m[k]", 100, best(arguments.rounds, single, mapping, singles), len(singles))
    del plain, lists

    index = icefield.JoinIndex.build(directory.name + "/join.ice", keys)
    gets("icefield JoinIndex", index.get_indexer)
    for hits, batch in batches.items():
        report("icefield JoinIndex", "join", hits, best(arguments.rounds, index.join, batch), len(batch))
    if pd := optional("pandas"):
        pandas_index = pd.Index(keys)
        pandas_index.get_indexer(batches[100])
        gets("pandas Index.get_indexer", pandas_index.get_indexer)
    if pl := optional("polars"):
        right = pl.DataFrame({"key": keys, "row": np.arange(len(keys), dtype="uint64")})
        frames = {hits: pl.DataFrame({"key": batch}) for hits, batch in batches.items()}
        for hits, frame in frames.items():
            joined = best(arguments.rounds, lambda frame: frame.join(right, on="key"), frame)
            report("polars join", "join", hits, joined, len(frame))
    others(directory.name, gets, puts)
    ratios(rows)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"arguments": vars(arguments), "rows": rows}, file, indent=1)


def alternating(report, table: str, batches: dict[int, object], get, rounds: int, **place: object) -> None:
    """Time the package and the library's own batches on the same records, in turns, in the same process.

    Builds with the feature `bench` have the library's own, for some tables.
    """
    name = "memory" if table == "dlht" else table
    native = getattr(importlib.import_module("icefield._icefield"), "_native_get", None)
    if table == "iceberg":
        native = None
    elif native is None:
        print("Rust: build with `maturin build --release --features bench` to compare")
    for hits, batch in batches.items():
        times = [best(rounds, get, batch)]
        if native:
            own = [native(table, batch, rounds, **place)]
            times.append(best(rounds, get, batch))
            own.append(native(table, batch, rounds, **place))
            report(f"Rust {name}", "get_batch", hits, min(own), len(batch))
        report(f"icefield {name}", "get", hits, min(times), len(batch))


def strings(directory: str, report, count: int, rounds: int) -> None:
    """Time batches of strings of 20 bytes."""
    pa = optional("pyarrow")
    if pa is None:
        return
    texts = pa.array([f"{number * 2654435761 % 10**20:020}" for number in range(count)])
    order = np.random.default_rng(2).integers(0, count, min(count, 1_000_000))
    batches = {100: texts.take(pa.array(order))}
    path = directory + "/texts.ice"
    with icefield.Map.open(path, "str", "u64", capacity=count) as made:
        made.put_many(texts, np.ones(count, dtype="uint64"))
    with icefield.Map.open(path, mode="r") as made:
        alternating(report, "dash-eh<str>", batches, made.get_many, rounds, path=path)


def others(directory: str, gets, puts) -> None:
    """Time stores of other libraries. The slowest ones get a part of the keys."""
    if lmdb := optional("lmdb"):
        environment = lmdb.open(directory + "/lmdb", map_size=1 << 36, sync=False, metasync=False)

        def put(part: np.ndarray) -> None:
            with environment.begin(write=True) as transaction:
                encoded = [key.tobytes() for key in part]
                transaction.cursor().putmulti(zip(encoded, encoded, strict=True))

        def get(batch: np.ndarray) -> None:
            with environment.begin() as transaction:
                transaction.cursor().getmulti([key.tobytes() for key in batch])

        puts("lmdb (no sync)", put)
        gets("lmdb getmulti", get)
    if rocksdict := optional("rocksdict"):
        options = rocksdict.Options(raw_mode=True)
        store = rocksdict.Rdict(directory + "/rocksdict", options)

        def put(part: np.ndarray) -> None:
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key in part:
                encoded = key.tobytes()
                batch.put(encoded, encoded)
            store.write(batch)

        puts("rocksdict", put)
        gets("rocksdict", lambda batch: store.get([key.tobytes() for key in batch]))
    if diskcache := optional("diskcache"):
        cache = diskcache.Cache(directory + "/diskcache")

        def put(part: np.ndarray) -> None:
            with cache.transact():
                for key in part.tolist():
                    cache[key % 2**63] = key % 2**63

        puts("diskcache", put, 1000)
        gets("diskcache", lambda batch: [cache.get(key % 2**63) for key in batch.tolist()], 1000, 1)
    database = sqlite3.connect(directory + "/sqlite3")
    database.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v INTEGER) WITHOUT ROWID")

    def put(part: np.ndarray) -> None:
        with database:
            signed = part.view("int64").tolist()
            database.executemany("INSERT OR REPLACE INTO t VALUES (?, ?)", zip(signed, signed, strict=True))

    def get(batch: np.ndarray) -> None:
        cursor = database.cursor()
        for key in batch.view("int64").tolist():
            cursor.execute("SELECT v FROM t WHERE k = ?", (key,)).fetchone()

    puts("sqlite3", put, 10)
    gets("sqlite3", get, 10)


def ratios(rows: list[dict]) -> None:
    """Print how many times as fast as the others the package is."""
    times = {(row["library"], row["call"], row["hits"]): row["ns_per_key"] for row in rows}
    pairs = [
        ("icefield memory", "get", "dict", "get"),
        ("icefield memory", "get", "pandas Index.get_indexer", "get"),
        ("icefield memory", "m[k]", "dict", "m[k]"),
        ("icefield JoinIndex", "join", "polars join", "join"),
        ("icefield memory", "get", "Rust memory", "get_batch"),
        ("icefield dash-eh", "get", "Rust dash-eh", "get_batch"),
        ("icefield dash-eh<str>", "get", "Rust dash-eh<str>", "get_batch"),
        ("icefield dash-eh", "get", "rocksdict", "get"),
        ("icefield dash-eh", "get", "lmdb getmulti", "get"),
        ("icefield dash-eh", "get", "diskcache", "get"),
        ("icefield dash-eh", "get", "sqlite3", "get"),
        ("icefield dash-eh", "put", "lmdb (no sync)", "put"),
    ]
    print("\nratios (other / icefield)")
    for library, call, other, other_call in pairs:
        for hits in (*HITS, None):
            ours, theirs = times.get((library, call, hits)), times.get((other, other_call, hits))
            if ours and theirs:
                shown = "" if hits is None else f"{hits} %"
                print(f"{library} {call} / {other}: {shown:>6} {theirs / ours:8.2f}")


if __name__ == "__main__":
    main()
