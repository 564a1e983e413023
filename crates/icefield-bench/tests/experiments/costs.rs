//! The counts of `amplification`.

use icefield_bench::Batch;

use super::{full_iceberg, pm};
use crate::support::{extra, rows, small};

pub fn costs_are_counted_per_call() {
    let mut args = small("amplification");
    args.batch = vec![Batch::None];
    let rows = rows(args);
    let ops: Vec<_> = rows.iter().map(|row| row["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["try_insert", "get", "get-miss", "insert", "put", "update", "remove"]);
    let by_name = |op: &str| rows.iter().find(|row| row["op"] == op).unwrap();
    for op in ["get", "get-miss"] {
        let row = by_name(op);
        assert_eq!(
            (pm(row, "line_writes"), pm(row, "flushes"), pm(row, "fences")),
            (0.0, 0.0, 0.0)
        );
        assert!(row["extra"]["lines"]["bucket"].as_f64().unwrap() >= 1.0);
    }
    assert!(by_name("get-miss")["extra"]["lines"]["bucket"].as_f64().unwrap() <= 2.1);
    for op in ["try_insert", "insert", "put"] {
        let direct = &by_name(op)["extra"]["direct"];
        // One flush and one fence in the slots beside the metadata word, two of each in the others.
        let [one, two] = one_or_two(direct, "fences_calls");
        assert_eq!(one_or_two(direct, "flushes_calls"), [one, two], "{op}");
        assert_eq!(direct["calls"], one + two, "{op}");
        assert!(one > 0 && two > one, "{op}: {one}, {two}");
    }
    let inserts = &by_name("try_insert")["extra"];
    assert!(inserts["split"]["calls"].as_u64().unwrap() > 0, "20000 records need splits");
}

/// The numbers of calls that cost one and two.
fn one_or_two(costs: &serde_json::Value, name: &str) -> [u64; 2] {
    ["1", "2"].map(|cost| costs[name][cost].as_u64().unwrap_or(0))
}

pub fn batches_share_fences() {
    let mut args = small("amplification");
    args.batch = vec![Batch::Of(32)];
    let rows = rows(args);
    let inserts = rows.iter().find(|row| row["op"] == "try_insert").unwrap();
    let direct = &inserts["extra"]["direct"];
    let [one, two] = one_or_two(direct, "fences_calls");
    assert_eq!(direct["calls"], one + two);
    // A batch has one fence if all its records are beside their metadata words.
    assert!(two > 0 && one * 20 < two, "{one}, {two}");
    assert!(extra(inserts, "fences_per_batch") <= 3.0);
    assert!(pm(inserts, "fences") <= 3.0 / 32.0);
}

pub fn an_iceberg_writes_one_line() {
    let rows = rows(full_iceberg("amplification", 60_000));
    assert_eq!(rows.len(), 14, "seven calls, alone and in batches");
    for row in &rows {
        let (op, usual) = (row["op"].as_str().unwrap(), &row["extra"]["usual"]);
        let costs = ["line_writes", "flushes", "fences"].map(|name| usual[name].as_u64().unwrap());
        match (op, row["batch"] == 32) {
            ("get" | "get-miss", _) => assert_eq!(costs, [0; 3], "{row:?}"),
            (_, false) => {
                assert_eq!(costs, [1; 3], "{row:?}");
                assert!(usual["share"].as_f64().unwrap() >= 0.999, "{row:?}");
            }
            (_, true) => {
                assert_eq!(costs, [32, 32, 1], "{row:?}");
                // A batch may update a key twice. The operations before the second update then need a separate fence.
                let most = if op == "update" { 1.05 } else { 1.0 };
                assert!(extra(row, "fences_per_batch") <= most, "{row:?}");
            }
        }
        let most = match (op, row["batch"] == 32) {
            ("get", false) => 1.14,
            ("get", true) => 1.25,
            ("get-miss", _) => 0.31,
            _ => continue,
        };
        assert!(pm(row, "line_reads") <= most, "{row:?}");
    }
}
