//! Small runs of the experiments about joins. Every table must have every phase, all must count the same pairs, and the
//! rows must have their fields.

#![allow(clippy::unwrap_used, reason = "a test program: to panic is to fail")]

mod support;

use std::path::Path;

use icefield_bench::{Args, Batch, Error, Medium, run};
use icefield_torture::tpch::Orders;
use serde_json::{Map, Value};

use support::{extra, number, rows, small};

fn of(experiment: &str, tables: &[&str]) -> Args {
    Args { tables: tables.iter().map(|name| (*name).to_owned()).collect(), ..small(experiment) }
}

fn is(row: &Map<String, Value>, name: &str, at: impl Into<Value>) -> bool {
    row["extra"].get(name) == Some(&at.into())
}

#[test]
fn every_table_has_every_phase() {
    let tables = ["join", "dlht", "dash-eh", "dash-lh", "iceberg", "plush", "cceh-like"];
    let args = Args { threads: vec![1, 2], selectivity: vec![0, 20, 100], ..of("join", &tables) };
    let joins = rows(args);
    assert_eq!(joins.len(), 2 * tables.len() * 3 * 3);
    assert!(joins.iter().all(|row| row["op"] == "join"), "shares were named, other joins not");
    for row in &joins {
        assert_eq!((number(row, "keys"), row["experiment"].as_str()), (20_000.0, Some("join")));
        assert!(number(row, "mops") > 0.0 && number(row, "bytes_per_key") > 16.0, "{row:?}");
        if is(row, "phase", "build") {
            assert_eq!(number(row, "ops"), 20_000.0);
            continue;
        }
        assert_eq!(number(row, "ops"), 52_000.0);
        assert_eq!(extra(row, "matches"), 520.0 * extra(row, "selectivity"), "{row:?}");
        if is(row, "phase", "cold") {
            assert!(extra(row, "tuples_mops") > number(row, "mops"), "{row:?}");
            continue;
        }
        assert!(is(row, "phase", "warm") && row["ceiling"] == "read-ring-64", "{row:?}");
        assert!(number(row, "limit_ratio") > 0.0);
        assert_eq!(row["extra"].get("open_ms").is_some(), row["table"] != "dlht");
        assert_eq!(row["extra"].get("payload_mops").is_some(), row["table"] == "join");
    }
}

#[test]
fn an_index_reads_as_many_lines_as_it_says() {
    let rows = rows(Args { selectivity: vec![0, 100], ..of("join", &["join"]) });
    let warm: Vec<_> = rows.iter().filter(|row| is(row, "phase", "warm")).collect();
    let lines = |row: &Map<String, Value>| row["pm"]["line_reads"].as_f64().unwrap();
    println!("{} lines without a match, {} with one", lines(warm[0]), lines(warm[1]));
    assert!((1.0..=1.03).contains(&lines(warm[0])) && (2.2..=2.6).contains(&lines(warm[1])));
    for row in warm {
        assert_eq!(extra(row, "filter_bits"), 11.0);
        assert!(extra(row, "filter_pass_rate") < 0.02, "{row:?}");
    }
    // Nothing matches, so the index reads only its filter, and the bare loop uses memory of the filter's size.
    let filter = extra(&rows[2], "ceiling_bytes");
    assert!(filter < extra(&rows[5], "ceiling_bytes") / 4.0, "{filter} bytes");
}

#[test]
fn skewed_rows_probe_one_by_one_and_in_batches() {
    let dist = "zipf:0.99".parse().unwrap();
    let batch = vec![Batch::None, Batch::Of(32)];
    let args = Args { dist, batch, selectivity: vec![60], ..of("join", &["join", "dlht"]) };
    let rows = rows(args);
    assert_eq!(rows.len(), 2 * 2 * 3, "two batches of two tables");
    assert!(rows.iter().all(|row| row["dist"] == "zipf:0.99"));
}

#[test]
fn each_line_item_has_its_order() {
    let tables = ["join", "dlht", "dash-eh", "cceh-like", "iceberg"];
    let all = rows(Args { keys: Some(15_000), ..of("join", &tables) });
    let of = |op| all.iter().filter(move |row| row["op"] == op);
    // Only DLHT is a table in memory. It is probed singly and in streams.
    assert_eq!(of("workload-a").count(), 2 * 3);
    assert!(of("workload-a").all(|row| row["table"] == "dlht" && number(row, "keys") == 3_750.0));
    let rows: Vec<_> = of("tpch").collect();
    assert_eq!(rows.len(), tables.len() * 3);
    let lines = Orders::new(15_000).lines().count() as f64;
    assert_eq!(lines, 60_175.0, "line items of scale factor 0.01");
    for row in rows {
        assert_eq!((number(row, "keys"), extra(row, "scale")), (15_000.0, 0.01), "{row:?}");
        assert!(is(row, "selectivity", 100) && number(row, "mops") > 0.0, "{row:?}");
        assert!(!row.contains_key("ceiling"), "line items are in order: {row:?}");
        if is(row, "phase", "build") {
            assert_eq!(number(row, "ops"), 15_000.0);
        } else {
            assert_eq!((number(row, "ops"), extra(row, "matches")), (lines, lines), "{row:?}");
        }
    }
}

fn write(dir: &Path, name: &str, words: &[u64]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(dir.join(name), bytes).unwrap();
}

#[test]
fn relations_come_from_files() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "build.u64", &[7, 7, u64::MAX, 0, 9]);
    write(dir.path(), "probe-twice.u64", &[7, 7, u64::MAX, 1]);
    write(dir.path(), "probe-none.u64", &[]);
    let with = |tables: &[&str]| Args {
        relations: Some(dir.path().to_owned()),
        threads: vec![2],
        ..of("join", tables)
    };
    let rows = rows(with(&["join", "dlht"]));
    let told: Vec<_> = rows
        .iter()
        .filter(|row| is(row, "phase", "warm"))
        .map(|row| (row["table"].as_str().unwrap(), row["extra"]["relation"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [("join", "probe-none"), ("join", "probe-twice")], "keys of maps are unique");
    assert_eq!((extra(&rows[1], "matches"), extra(&rows[4], "matches")), (0.0, 5.0));
    assert!(matches!(run(with(&["dlht"])), Err(Error::Option { option: "tables", .. })));
    std::fs::write(dir.path().join("probe-odd.u64"), b"odd").unwrap();
    assert!(matches!(run(with(&["join"])), Err(Error::Option { option: "relations", .. })));
    let none = Args { relations: Some("/no/such/place".into()), ..with(&["join"]) };
    assert!(matches!(run(none), Err(Error::File { .. })));
}

#[test]
fn a_tenth_more_is_merged() {
    let rows =
        rows(Args { threads: vec![1, 2], ..of("join-update", &["join", "dlht", "dash-eh"]) });
    assert_eq!(rows.len(), 2 * 3);
    for row in &rows {
        assert_eq!((number(row, "keys"), number(row, "ops")), (20_000.0, 2_000.0));
        assert!(number(row, "mops") > 0.0 && number(row, "bytes_per_key") > 16.0);
        if row["table"] == "join" {
            assert!(is(row, "merge", "per-bucket"), "{row:?}");
            assert!(extra(row, "rebuild_ratio") > 0.0 && extra(row, "merge_ms") > 0.0);
            assert!(extra(row, "probes_meanwhile") >= 20_000.0);
        }
    }
}

#[test]
fn misses_are_counted_or_simulated() {
    let args = Args { selectivity: vec![0, 100], ..of("cache-misses", &["join", "dash-eh"]) };
    let rows = rows(args);
    let simulated: Vec<_> =
        rows.iter().filter(|row| is(row, "counted_by", "simulated caches")).collect();
    assert_eq!(simulated.len(), 2 * 2);
    for row in &simulated {
        let [accesses, l1d, llc] =
            ["l1d_accesses", "l1d_misses", "llc_misses"].map(|name| extra(row, name));
        println!("{} {}: {accesses} {l1d} {llc}", row["table"], row["extra"]["selectivity"]);
        assert!(accesses > l1d && l1d >= llc && llc > 0.0, "{row:?}");
        assert!((extra(row, "llc_miss_rate") - llc / l1d).abs() < 1e-2, "{row:?}");
        assert!(extra(row, "llc_bytes") < 100e3, "as much smaller as the table: {row:?}");
    }
    // A probe without a match reads one line of the index, but two of Dash.
    let l1d = |at: usize| extra(simulated[at], "l1d_misses");
    assert!(l1d(0) < 1.1 && l1d(0) < l1d(2) && l1d(0) < l1d(1));
    let on_hardware = rows.iter().filter(|row| is(row, "counted_by", "processor")).count();
    let told = rows.iter().filter(|row| row["extra"].get("not_measured").is_some()).count();
    assert!((on_hardware, told) == (4, 0) || (on_hardware, told) == (0, 1), "{rows:?}");
}

#[test]
fn what_an_index_cannot_do_is_an_error() {
    for experiment in ["get", "insert", "mixed"] {
        let error = run(of(experiment, &["join"])).unwrap_err();
        assert!(matches!(error, Error::Option { option: "tables", .. }), "{error:?}");
    }
    assert!(matches!(run(of("amplification", &["join"])), Err(Error::Table(_))));
    for experiment in ["join", "join-update"] {
        let args = Args { medium: Some(Medium::Sim), ..of(experiment, &["join"]) };
        let error = run(args).unwrap_err();
        assert!(matches!(error, Error::Option { option: "medium", .. }), "{error:?}");
    }
    for medium in [Medium::Memory, Medium::Process, Medium::Disk] {
        let args = Args { medium: Some(medium), keys: Some(3_000), ..of("join", &["join"]) };
        let rows = rows(args);
        assert!(rows.iter().all(|row| row["op"] == "workload-a" || row["medium"] == medium.name()));
        assert!(rows.iter().any(|row| row["op"] == "tpch"));
    }
}
