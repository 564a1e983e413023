#!/usr/bin/env python3
"""Compares joins through indexes with those of DuckDB.

    ICEFIELD_DUMP=DIR ICEFIELD_CASES=4000 cargo test --test joins
    tests/with_duckdb.py DIR

needs the package `duckdb`. Each case in DIR has two tables, a query, and the rows that icefield-sql returned.
"""

import pathlib
import sys

import duckdb

SHOWN = 5


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip())
        return 2
    compared, refused, wrong = 0, 0, 0
    for case in sorted(pathlib.Path(sys.argv[1]).iterdir(), key=lambda path: int(path.name)):
        engine = duckdb.connect()
        for name in "lr":
            engine.execute(f"CREATE VIEW {name} AS SELECT * FROM '{case}/{name}.parquet'")
        sql = (case / "case.sql").read_text()
        try:
            rows = engine.execute(sql).fetchall()
        except duckdb.Error as error:
            # Types that DuckDB does not compare without a cast.
            refused += 1
            if refused <= SHOWN:
                print(f"not compared: {case.name}: {str(error).splitlines()[0]}: {sql}")
            continue
        found = sorted("|".join("null" if value is None else str(value) for value in row) for row in rows)
        expected = sorted((case / "rows.txt").read_text().split("\n")) if rows or (case / "rows.txt").read_text() else []
        compared += 1
        if found != expected:
            wrong += 1
            if wrong <= SHOWN:
                print(f"different: {case}: {sql}\n  DuckDB: {found[:20]}\n  icefield-sql: {expected[:20]}")
    print(f"{compared} cases compared, {wrong} different, {refused} that DuckDB refuses")
    return int(wrong > 0 or compared == 0)


if __name__ == "__main__":
    sys.exit(main())
