#!/usr/bin/env python3
"""The joins of `icefield-bench join` in DuckDB, Polars and DataFusion, over the same relations in memory.

Counts must agree: those of all engines, of Icefield's index where `--icefield` names the program, and NumPy's, which
nobody joins with. Engines take turns. One line for each engine and case; status 1 when a count is wrong.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

import joins


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000, help="rows of the build side, all different")
    parser.add_argument("--probe", type=int, help="probing rows (2.6 for each row of the build side)")
    parser.add_argument("--selectivity", default="20", help="percent of the probing rows that match, e.g. 0,20,100")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3, help="the median is told")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engines", default=",".join(joins.ENGINES))
    parser.add_argument("--icefield", metavar="PROGRAM", help="the program `icefield-bench`, to join with it too")
    parser.add_argument("--medium", default="pmem", help="where Icefield's index lives: memory, process, pmem, disk")
    parser.add_argument("--dir", help="where relations are written for Icefield (a temporary directory)")
    parser.add_argument("--cases", action="store_true", help="instead: small relations that joins get wrong")
    parser.add_argument("--tpch", type=float, metavar="SCALE", help="instead: TPC-H's orders and line items")
    parser.add_argument("--json", action="store_true", help="lines of JSON instead of text")
    return parser.parse_args()


def told(arguments):
    """The relations to join, by name."""
    if arguments.cases:
        return joins.cases(1_000, arguments.seed)
    if arguments.tpch is not None:
        return {f"tpch-{arguments.tpch:g}": joins.tpch(arguments.tpch)}
    rows = arguments.keys * 26 // 10 if arguments.probe is None else arguments.probe
    percents = [int(percent) for percent in arguments.selectivity.split(",")]
    return {
        f"matches-{percent}": joins.relations(arguments.keys, rows, percent, arguments.seed) for percent in percents
    }


def measure(arguments, build, probe, directory):
    """The counts and times of everybody, by name."""
    names = arguments.engines.split(",")
    engines = [joins.ENGINES[name](build, probe, arguments.threads) for name in names]
    if arguments.icefield:
        joins.write(directory, build, probe)
    for engine in engines:
        engine.count()  # Whatever is made at the first query, untimed.
    results = {}
    for _ in range(arguments.repeat):
        for engine in engines:
            results.setdefault(engine.name, []).append(joins.timed(engine))
        if arguments.icefield:
            phases = joins.icefield(arguments.icefield, directory, arguments.threads, arguments.medium)
            for phase in ("cold", "warm"):
                results.setdefault(f"icefield-{phase}", []).append(phases[phase])
    return results


def main():
    arguments = options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        for case, (build, probe) in told(arguments).items():
            wanted = joins.expected(build, probe)
            directory = Path(arguments.dir or temporary) / case
            for name, results in measure(arguments, build, probe, directory).items():
                seconds = statistics.median(seconds for _, seconds in results)
                agrees = all(count == wanted for count, _ in results)
                wrong += not agrees
                row = {
                    "case": case,
                    "engine": name,
                    "threads": arguments.threads,
                    "build_rows": len(build),
                    "probe_rows": len(probe),
                    "matches": results[0][0],
                    "agrees": agrees,
                    "seconds": round(seconds, 6),
                    "mops": round(len(probe) / seconds / 1e6, 3) if seconds else 0.0,
                }
                mark = "" if agrees else f"  WRONG, not {wanted}"
                text = f"{case:14} {name:14} {row['matches']:>12} matches {row['mops']:>10} M rows/s{mark}"
                print(json.dumps(row) if arguments.json else text, flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
