#!/usr/bin/env python3
"""Measures joins of TPC-H's files: icefield-sql, DataFusion, DuckDB, Polars. See README.md."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import duckdb
import polars

HERE = pathlib.Path(__file__).resolve().parent
SQL = HERE.parent.parent / "crates" / "icefield-sql"
TABLES = ["region", "nation", "part", "supplier", "partsupp", "customer", "orders", "lineitem"]
INDEXES = {
    "orders": ("o_orderkey", "o_custkey,o_orderdate,o_shippriority,o_orderpriority,o_totalprice,o_orderstatus"),
    "customer": ("c_custkey", "c_mktsegment,c_nationkey,c_name,c_acctbal,c_phone,c_address,c_comment"),
    "part": ("p_partkey", "p_type,p_name"),
    "supplier": ("s_suppkey", "s_nationkey,s_name"),
}
COUNT = "SELECT count(*) FROM lineitem JOIN orders ON l_orderkey = o_orderkey"
ROWS = "SELECT l_orderkey, l_extendedprice, o_custkey, o_orderdate FROM lineitem JOIN orders ON l_orderkey = o_orderkey"
SCAN = "SELECT count(l_orderkey) FROM lineitem WHERE l_orderkey >= 0"
QUERIES = sorted((SQL / "tests" / "tpch").glob("q*.sql"))


class Icefield:
    """Runs queries by icefield-sql, with or without indexes."""

    def __init__(self, args, indexes):
        self.program, self.data, self.threads, self.indexes = args.program, args.data, args.threads, indexes

    def run(self, sql, output):
        command = [self.program, "query", sql, "--threads", str(self.threads), "-o", output]
        with tempfile.NamedTemporaryFile(suffix=".ndjson") as report:
            command += ["--json", report.name]
            for table in TABLES:
                index = self.data / f"{table}.ice"
                if self.indexes and table in INDEXES:
                    command += ["--index", index]
                else:
                    command += ["--table", f"{table}={self.data}/{table}.parquet"]
            ran = subprocess.run(command, capture_output=True, text=True)
            if ran.returncode:
                sys.exit(ran.stderr)
            return json.loads(pathlib.Path(report.name).read_text())["seconds"]


class DuckDb:
    """Runs queries by DuckDB on views of the files."""

    def __init__(self, args):
        self.engine = duckdb.connect(config={"threads": args.threads})
        for table in TABLES:
            self.engine.execute(f"CREATE VIEW {table} AS SELECT * FROM '{args.data}/{table}.parquet'")

    def run(self, sql, output):
        started = time.perf_counter()
        target = "(FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 1048576)" if output.endswith("parquet") else "(FORMAT csv, HEADER)"
        self.engine.execute(f"COPY ({sql}) TO '{output}' {target}")
        return time.perf_counter() - started


class Polars:
    """Runs the two joins by Polars."""

    def __init__(self, args):
        self.data = args.data

    def run(self, sql, output):
        lines = polars.scan_parquet(self.data / "lineitem.parquet")
        orders = polars.scan_parquet(self.data / "orders.parquet")
        started = time.perf_counter()
        if sql == COUNT:
            lines, orders = lines.select("l_orderkey"), orders.select("o_orderkey")
            joined = lines.join(orders, left_on="l_orderkey", right_on="o_orderkey").select(polars.len())
            joined.collect(engine="streaming").write_csv(output)
        else:
            lines = lines.select("l_orderkey", "l_extendedprice")
            orders = orders.select("o_orderkey", "o_custkey", "o_orderdate")
            joined = lines.join(orders, left_on="l_orderkey", right_on="o_orderkey")
            joined.sink_parquet(output, compression="snappy", row_group_size=1 << 20)
        return time.perf_counter() - started


def build(args, out):
    for table, (key, include) in INDEXES.items():
        target = args.data / f"{table}.ice"
        command = [args.program, "build-index", args.data / f"{table}.parquet", "--on", key, "--include", include]
        ran = subprocess.run([*command, "--index", target, "--replace", "--json", "-"], capture_output=True, text=True)
        if ran.returncode:
            sys.exit(ran.stderr)
        built = json.loads(ran.stdout)
        seconds = built["read_seconds"] + built["build_seconds"]
        out({"what": "build", "table": table, "rows": built["rows"], "seconds": round(seconds, 3)})


def answer(path):
    """Returns the rows of a CSV file with numbers rounded, because engines print decimals differently."""
    rows = []
    for line in pathlib.Path(path).read_text().splitlines()[1:]:
        fields = []
        for field in line.split(","):
            try:
                fields.append(f"{float(field):.6g}")
            except ValueError:
                fields.append(field.strip('"'))
        rows.append(fields)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path, help="directory with TPC-H's tables as Parquet files")
    parser.add_argument("--program", type=pathlib.Path, default=SQL / "target" / "release" / "icefield-sql")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="run only what begins with this")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results as JSON lines")
    args = parser.parse_args()
    lines = []

    def out(line):
        lines.append(json.dumps(line))
        print("  ".join(f"{key} {value}" for key, value in line.items()), flush=True)

    build(args, out)
    engines = {
        "icefield": Icefield(args, True),
        "datafusion": Icefield(args, False),
        "duckdb": DuckDb(args),
        "polars": Polars(args),
    }
    work = [("count", COUNT, "csv", list(engines)), ("rows", ROWS, "parquet", list(engines))]
    work += [("scan", SCAN, "csv", ["datafusion", "duckdb"])]
    work += [(path.stem, path.read_text(), "csv", ["icefield", "datafusion", "duckdb"]) for path in QUERIES]
    ratios = []
    with tempfile.TemporaryDirectory(dir=args.data) as place:
        for name, sql, ending, names in work:
            if not name.startswith(args.only):
                continue
            seconds = {engine: [] for engine in names}
            for round in range(args.rounds + 1):
                for engine in names:
                    output = f"{place}/{engine}.{ending}"
                    pathlib.Path(output).unlink(missing_ok=True)
                    taken = engines[engine].run(sql, output)
                    if round > 0:
                        seconds[engine].append(taken)
            if ending == "csv":
                answers = {engine: answer(f"{place}/{engine}.csv") for engine in names}
                for engine in names[1:]:
                    if answers[engine] != answers[names[0]]:
                        sys.exit(f"{name}: {engine} and {names[0]} differ")
            medians = {engine: statistics.median(taken) for engine, taken in seconds.items()}
            line = {"what": name, **{engine: round_(median) for engine, median in medians.items()}}
            if "icefield" in medians:
                best = min(median for engine, median in medians.items() if engine != "icefield")
                line["times_best"] = round_(best / medians["icefield"])
                line["times_datafusion"] = round_(medians["datafusion"] / medians["icefield"])
                if name.startswith("q"):
                    ratios.append(medians["datafusion"] / medians["icefield"])
            out(line)
    if ratios:
        out({"what": "queries", "times_datafusion": round_(statistics.geometric_mean(ratios)), "least": round_(min(ratios))})
    if args.json:
        args.json.write_text("\n".join(lines) + "\n")


def round_(value):
    return float(f"{value:.3g}")


if __name__ == "__main__":
    main()
