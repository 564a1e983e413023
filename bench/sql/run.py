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
# A count would be answered from the statistics of the file.
SCAN = "SELECT sum(l_orderkey) FROM lineitem"
# A join with a small index.
FEW = "SELECT l_orderkey, s_name FROM lineitem JOIN supplier ON l_suppkey = s_suppkey"
QUERIES = sorted((SQL / "tests" / "tpch").glob("q*.sql"))


class Icefield:
    """Runs queries by icefield-sql, with or without indexes."""

    def __init__(self, args, indexes):
        self.program, self.data, self.threads, self.indexes = args.program, args.data, args.threads, indexes

    def command(self, sql):
        command = [self.program, "query", sql, "--threads", str(self.threads)]
        for table in TABLES:
            index = self.data / f"{table}.ice"
            if self.indexes and table in INDEXES:
                command += ["--index", index]
            else:
                command += ["--table", f"{table}={self.data}/{table}.parquet"]
        return command

    def run(self, sql, output):
        with tempfile.NamedTemporaryFile(suffix=".ndjson") as report:
            command = [*self.command(sql), "-o", output, "--json", report.name]
            ran = subprocess.run(command, capture_output=True, text=True)
            if ran.returncode:
                sys.exit(ran.stderr)
            return json.loads(pathlib.Path(report.name).read_text())["seconds"]

    def first_row(self, sql):
        """Returns the seconds from the start of the process to the first row."""
        started = time.perf_counter()
        with subprocess.Popen(self.command(sql), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            # The first line has the names of the columns.
            row = process.stdout.readline() and process.stdout.readline()
            taken = time.perf_counter() - started
            process.kill()
        if not row:
            sys.exit(f"no row of {sql}")
        return taken

    def memory(self, sql, output):
        """Returns the peaks of resident memory and of that without pages of files, in bytes."""
        process = subprocess.Popen([*self.command(sql), "-o", output], stderr=subprocess.DEVNULL)
        resident = anonymous = 0
        while process.poll() is None:
            try:
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                continue
            # A process that has just ended has no memory any more.
            sizes = dict(line.split(":", 1) for line in status.splitlines())
            resident = max(resident, int(sizes.get("VmHWM", "0 kB").split()[0]))
            anonymous = max(anonymous, int(sizes.get("RssAnon", "0 kB").split()[0]))
            time.sleep(0.005)
        if process.returncode:
            sys.exit(f"{sql} failed")
        return 1024 * resident, 1024 * anonymous


class DuckDb:
    """Runs queries by DuckDB on views of the files."""

    def __init__(self, args):
        self.engine = duckdb.connect(config={"threads": args.threads})
        for table in TABLES:
            self.engine.execute(f"CREATE VIEW {table} AS SELECT * FROM '{args.data}/{table}.parquet'")

    def first_row(self, sql):
        started = time.perf_counter()
        # A reader receives batches while the query runs.
        batches = self.engine.sql(sql).to_arrow_reader(2048)
        if not next(batches).num_rows:
            sys.exit(f"no row of {sql}")
        return time.perf_counter() - started

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
    """Builds the indexes; returns the seconds of each."""
    seconds = {}
    for table, (key, include) in INDEXES.items():
        target = args.data / f"{table}.ice"
        command = [args.program, "build-index", args.data / f"{table}.parquet", "--on", key, "--include", include]
        ran = subprocess.run([*command, "--index", target, "--replace", "--json", "-"], capture_output=True, text=True)
        if ran.returncode:
            sys.exit(ran.stderr)
        built = json.loads(ran.stdout)
        seconds[table] = built["read_seconds"] + built["build_seconds"]
        line = {"what": "build", "table": table, "include": include, "rows": built["rows"]}
        out({**line, "seconds": round(seconds[table], 3)})
    return seconds


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


class Bench:
    """Runs and reports."""

    def __init__(self, args, place):
        self.args, self.place, self.lines, self.ratios, self.saved = args, place, [], [], 0
        self.builds = build(args, self.out)
        self.engines = {
            "icefield": Icefield(args, True),
            "datafusion": Icefield(args, False),
            "duckdb": DuckDb(args),
            "polars": Polars(args),
        }

    def out(self, line):
        self.lines.append(json.dumps(line))
        print("  ".join(f"{key} {value}" for key, value in line.items()), flush=True)

    def medians(self, names, measure):
        """Returns the median of each engine, of rounds in which each is measured once; the first round is not counted."""
        taken = {name: [] for name in names}
        for round in range(self.args.rounds + 1):
            for name in names:
                value = measure(name)
                if round > 0:
                    taken[name].append(value)
        return {name: statistics.median(values) for name, values in taken.items()}

    def seconds(self, name, sql, ending):
        """Returns how long an engine takes for a query with its output."""
        output = f"{self.place}/{name}.{ending}"
        pathlib.Path(output).unlink(missing_ok=True)
        return self.engines[name].run(sql, output)

    def compare(self, what, sql, ending, names, built=()):
        """Runs a query by several engines. `built` are the indexes that icefield-sql needs for it."""
        medians = self.medians(names, lambda name: self.seconds(name, sql, ending))
        if ending == "csv":
            answers = {name: answer(f"{self.place}/{name}.csv") for name in names}
            for name in names[1:]:
                if answers[name] != answers[names[0]]:
                    sys.exit(f"{what}: {name} and {names[0]} differ")
        line = {"what": what, **{name: round_(median) for name, median in medians.items()}}
        if "icefield" in medians:
            own = medians["icefield"]
            line["times_best"] = round_(min(median for name, median in medians.items() if name != "icefield") / own)
            line["times_duckdb"] = round_(medians["duckdb"] / own)
            line["times_datafusion"] = round_(medians["datafusion"] / own)
            saved = medians["datafusion"] - own
            if built and saved > 0:
                line["pays_after"] = round_(sum(self.builds[table] for table in built) / saved)
            if what.startswith("q"):
                self.ratios.append(medians["datafusion"] / own)
                self.saved += saved
        self.out(line)

    def write(self):
        """Writes the rows of the join without joining: icefield from an Arrow file, DuckDB from a table in memory."""
        rows, duckdb = f"{self.place}/rows.arrow", self.engines["duckdb"].engine
        self.engines["icefield"].run(ROWS, rows)
        duckdb.execute(f"CREATE TEMP TABLE rows AS {ROWS}")
        tables = {"icefield": f"'{rows}'", "duckdb": "rows"}
        medians = self.medians(list(tables), lambda name: self.seconds(name, f"SELECT * FROM {tables[name]}", "parquet"))
        duckdb.execute("DROP TABLE rows")
        self.out({"what": "write", **{name: round_(median) for name, median in medians.items()}})

    def first_rows(self):
        for what, sql in [("first row, orders", ROWS), ("first row, supplier", FEW)]:
            medians = self.medians(["icefield", "duckdb"], lambda name: self.engines[name].first_row(sql))
            line = {"what": what, **{name: round_(median) for name, median in medians.items()}}
            self.out({**line, "times_duckdb": round_(medians["duckdb"] / medians["icefield"])})

    def memory(self):
        for what, sql, ending in [("memory, count", COUNT, "csv"), ("memory, rows", ROWS, "parquet")]:
            line = {"what": what}
            for name in ["icefield", "datafusion"]:
                resident, anonymous = self.engines[name].memory(sql, f"{self.place}/{name}.{ending}")
                line[name] = f"{resident >> 20} MiB, {anonymous >> 20} without files"
            self.out(line)

    def run(self):
        engines = list(self.engines)
        work = [
            ("count", lambda: self.compare("count", COUNT, "csv", engines, ["orders"])),
            ("rows", lambda: self.compare("rows", ROWS, "parquet", engines, ["orders"])),
            ("scan", lambda: self.compare("scan", SCAN, "csv", ["datafusion", "duckdb"])),
            ("write", self.write),
            ("first", self.first_rows),
            ("memory", self.memory),
        ]
        for path in QUERIES:
            sql, names = path.read_text(), ["icefield", "datafusion", "duckdb"]
            work.append((path.stem, lambda what=path.stem, sql=sql: self.compare(what, sql, "csv", names)))
        for what, measure in work:
            if what.startswith(tuple(self.args.only.split(","))):
                measure()
        if self.ratios:
            mean = statistics.geometric_mean(self.ratios)
            line = {"what": "queries", "times_datafusion": round_(mean), "least": round_(min(self.ratios))}
            if self.saved > 0:
                # How often all of them have to run until the indexes have paid.
                line["pays_after"] = round_(sum(self.builds.values()) / self.saved)
            self.out(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path, help="directory with TPC-H's tables as Parquet files")
    parser.add_argument("--program", type=pathlib.Path, default=SQL / "target" / "release" / "icefield-sql")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="run only what begins with one of these, with commas between")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results as JSON lines")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.data) as place:
        bench = Bench(args, place)
        bench.run()
    if args.json:
        args.json.write_text("\n".join(bench.lines) + "\n")


def round_(value):
    return float(f"{value:.3g}")


if __name__ == "__main__":
    main()
