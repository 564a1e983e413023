//! Small runs of the experiments on tables in memory. Answers must be correct, ceilings must match the batch, and the
//! rows must have their fields.

#![allow(clippy::unwrap_used, reason = "a test program: to panic is to fail")]

mod support;

use icefield::AnyTable;
use icefield_bench::{Args, Batch, Error, Hashing, Medium, YcsbWrites, run};

use serde_json::{Map, Value};

use support::{extra, number, rows, small};

/// Arguments of a small run of DLHT.
fn dlht(experiment: &str) -> Args {
    Args { tables: vec!["dlht".to_owned()], ..small(experiment) }
}

#[test]
fn throughput_of_every_mode_and_batch() {
    for (experiment, kind) in [
        ("get", "read"),
        ("get-miss", "read"),
        ("insert", "cas8"),
        ("populate", "cas8"),
        ("insdel", "cas8"),
        ("putheavy", "cas8"),
        ("delete", "cas8"),
    ] {
        let mut args = dlht(experiment);
        args.tables = ["dlht", "dlht-local", "dlht-set", "dlht-map"].map(str::to_owned).to_vec();
        args.batch = vec![Batch::None, Batch::Of(32), Batch::Stream];
        args.threads = vec![1, 2];
        let rows = rows(args);
        // The set does not support updates. The single-threaded table is measured with one thread only.
        let tables = if experiment == "putheavy" { 3 + 2 } else { 4 + 3 };
        assert_eq!(rows.len(), 3 * tables);
        for row in rows {
            let pace = match row["batch"].as_str() {
                Some("none") => "independent",
                Some("stream") => "ring-64",
                _ => "batch-32",
            };
            assert_eq!(row["ceiling"], format!("{kind}-{pace}"));
            assert_eq!(
                (&row["medium"], &row["experiment"]),
                (&"memory".into(), &experiment.into())
            );
            assert!(number(&row, "mops") > 0.0);
            assert!(number(&row, "limit_ratio") > 0.0 && number(&row, "shape_ratio") > 0.0);
        }
    }
}

#[test]
fn a_table_is_loaded_to_a_share_of_its_resize_point() {
    let rows = rows(Args { fill: Some(0.95), ..dlht("get") });
    // An index for 20,000 records has bins for hardly more.
    assert!((19_000.0..19_100.0).contains(&number(&rows[0], "keys")), "{rows:?}");
    assert!((40.0..42.0).contains(&number(&rows[0], "bytes_per_key")), "{rows:?}");
}

#[test]
fn other_experiments_take_tables_in_memory() {
    for (experiment, count) in [("mixed", 6), ("fill-curve", 20), ("latency", 7), ("space", 1)] {
        let rows = rows(dlht(experiment));
        assert_eq!(rows.len(), count, "{experiment}");
        assert!(rows.iter().all(|row| row["table"] == "dlht" && row["medium"] == "memory"));
    }
}

#[test]
fn latencies_follow_the_load() {
    let rows = rows(Args { threads: vec![1], ..dlht("latency-by-load") });
    let loads: Vec<_> = rows.iter().map(|row| extra(row, "load_percent")).collect();
    assert_eq!(loads, [100.0, 10.0, 30.0, 50.0, 70.0, 90.0].repeat(2));
    assert_eq!(seen(&rows, |row| &row["op"]), ["get", "insdel"]);
    for rows in rows.chunks(6) {
        // The clock sets the pace, so a table cannot be faster than the load.
        let slow = number(&rows[1], "mops") / number(&rows[0], "mops");
        assert!(slow < 0.101, "{slow}");
    }
    assert!(rows.iter().all(|row| number(row, "p99_ns") >= number(row, "p50_ns")));
}

#[test]
fn every_usual_table_runs_where_it_lives() {
    let rows = rows(Args { tables: Vec::new(), ..small("get") });
    let seen: Vec<_> =
        rows.iter().map(|row| (row["table"].as_str(), row["medium"].as_str())).collect();
    let lasting = AnyTable::DESIGNS.iter().map(|table| (*table, "pmem"));
    let lives = lasting.chain([("dlht", "memory")]);
    let lives = lives.map(|(table, medium)| (Some(table), Some(medium)));
    assert_eq!(seen, lives.collect::<Vec<_>>());
}

#[test]
fn hashes_are_chosen_where_there_is_a_choice() {
    assert_eq!(rows(Args { hash: Some(Hashing::Modulo), ..dlht("get") }).len(), 1);
    let dash = Args { hash: Some(Hashing::Modulo), ..small("get") };
    assert!(matches!(run(dash), Err(Error::Option { option: "hash", .. })));
}

#[test]
fn what_cannot_be_is_an_error() {
    let pmem = Args { medium: Some(Medium::Pmem), ..dlht("get") };
    assert!(matches!(run(pmem), Err(Error::Option { option: "medium", .. })));
    for experiment in ["recovery", "amplification", "load-factor"] {
        let error = run(dlht(experiment)).unwrap_err();
        assert!(matches!(error, Error::Option { option: "tables", .. }), "{error}");
    }
}

/// Returns the distinct values of a field, in order.
fn seen<'a>(
    rows: &'a [Map<String, Value>],
    field: impl Fn(&'a Map<String, Value>) -> &'a Value,
) -> Vec<&'a Value> {
    let mut values: Vec<&Value> = rows.iter().map(field).collect();
    values.dedup();
    values
}

#[test]
fn batches_are_swept() {
    let rows = rows(dlht("batch-size"));
    assert_eq!(rows.len(), 2 * 11);
    assert_eq!(seen(&rows, |row| &row["op"]), ["get", "insdel"]);
    assert_eq!((&rows[0]["batch"], &rows[6]["batch"]), (&"none".into(), &24.into()));
    assert!(rows.iter().all(|row| row["experiment"] == "batch-size" && number(row, "mops") > 0.0));
}

#[test]
fn skew_is_swept() {
    let rows = rows(Args { threads: vec![2], ..dlht("skew") });
    assert_eq!(rows.len(), 3 * 7, "two kinds of gets, one of inserts");
    let percents: Vec<_> = rows.iter().step_by(3).map(|row| extra(row, "hot_percent")).collect();
    assert_eq!(percents, [0.0, 20.0, 40.0, 60.0, 80.0, 90.0, 100.0]);
    assert_eq!(rows[20]["dist"], "hot:1000:100");
    // A `dlht-map`, too, runs the operations of a mixed batch in order: otherwise some inserts and removals of the same
    // few keys would fail.
    let map = vec!["dlht-map".to_owned()];
    let rows = self::rows(Args { tables: map, threads: vec![1], ..dlht("skew") });
    assert!(rows.iter().all(|row| row["extra"].get("wrong_answers").is_none()));
}

#[test]
fn index_sizes_are_swept() {
    let rows = rows(Args { keys: Some(80_000), ..dlht("index-size") });
    assert_eq!(rows.len(), 3 * 3);
    assert_eq!(seen(&rows, |row| &row["keys"]), [8_000, 64_000, 80_000]);
}

#[test]
fn words_have_eight_bytes() {
    for (experiment, field) in [("value-size", "value_bytes"), ("key-size", "key_bytes")] {
        let rows = rows(dlht(experiment));
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| extra(row, field) == 8.0));
    }
}

#[test]
fn records_have_any_size() {
    let map = |experiment| {
        rows(Args { tables: vec!["dlht".to_owned(), "dlht-map".to_owned()], ..dlht(experiment) })
    };
    let values = map("value-size");
    let of_map = |rows: &[Map<String, Value>]| {
        rows.iter().filter(|row| row["table"] == "dlht-map").cloned().collect::<Vec<_>>()
    };
    // Three rows for each size, except eight bytes. There, the first word is the whole value, so the map has two rows,
    // and the tables of words have rows too.
    assert_eq!((values.len(), of_map(&values).len()), (3 * 8 + 2 + 2, 3 * 8 + 2));
    let sizes = |rows: &[Map<String, Value>], field| {
        let mut sizes: Vec<_> = of_map(rows).iter().map(|row| extra(row, field)).collect();
        sizes.dedup();
        sizes
    };
    let wanted = [8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 1504.0];
    assert_eq!(sizes(&values, "value_bytes"), wanted);
    let reads = seen(&values, |row| row["extra"].get("reads").unwrap_or(&Value::Null));
    assert!(["word", "value"].iter().all(|one| reads.contains(&&Value::from(*one))), "{reads:?}");
    let keys = map("key-size");
    let wanted = [8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
    assert_eq!((keys.len(), &*sizes(&keys, "key_bytes")), (2 * 7, &wanted[..]));
    for row in of_map(&values) {
        assert!(number(&row, "bytes_per_key") > extra(&row, "value_bytes") + 16.0, "{row:?}");
    }
}

#[test]
fn features_are_switched() {
    let rows = rows(dlht("features"));
    let names = seen(&rows, |row| &row["extra"]["features"]);
    assert_eq!(names, ["none", "resizing", "hashing", "resizing+hashing"]);
    assert_eq!(rows.len(), 4 * 2);
    let rows = self::rows(Args { tables: vec!["dlht-map".to_owned()], ..dlht("features") });
    let names = seen(&rows, |row| &row["extra"]["features"]);
    let forms = ["records+values", "records+keys", "records+namespace", "records+malloc"];
    assert_eq!(names, [&["records"][..], &forms].concat());
    assert_eq!(rows.len(), 5 * 2);
}

#[test]
fn one_thread_is_compared_with_many() {
    let rows = rows(Args { tables: Vec::new(), ..small("single-thread") });
    let tables: Vec<_> = rows.iter().map(|row| &row["table"]).collect();
    assert_eq!(tables, ["dlht", "dlht-local"].repeat(8));
    assert!(rows.iter().all(|row| row["threads"] == 1));
    assert_eq!(seen(&rows, |row| &row["extra"]["resizing"]), [false, true]);
}

#[test]
fn occupancy_is_what_chance_allows() {
    let rows = rows(Args { keys: Some(300_000), ..dlht("occupancy") });
    assert_eq!(rows.iter().map(|row| extra(row, "link_ratio")).collect::<Vec<_>>(), [0.125, 0.2]);
    for row in &rows {
        let (reached, wall) = (extra(row, "occupancy"), extra(row, "poisson_occupancy"));
        assert!((reached / wall - 1.0).abs() < 0.03, "{row:?}");
        assert!((1.0..1.15).contains(&extra(row, "lines_per_get")), "{row:?}");
        assert!((1.0..1.25).contains(&extra(row, "lines_per_get_miss")), "{row:?}");
    }
    assert!(extra(&rows[1], "occupancy") > extra(&rows[0], "occupancy"));
}

#[test]
fn ycsb_mixes_answer_rightly() {
    for experiment in ["ycsb-load", "ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-f"] {
        let args =
            Args { threads: vec![2], batch: vec![Batch::None, Batch::Of(32)], ..dlht(experiment) };
        let rows = rows(args);
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!((number(&row, "ops"), number(&row, "keys")), (20_000.0, 20_000.0));
            let latest = row.get("dist").is_some_and(|dist| dist == "latest:0.99");
            assert_eq!(latest, experiment == "ycsb-d", "{row:?}");
        }
    }
    let rows = rows(Args { ycsb_writes: YcsbWrites::Insert, ..dlht("ycsb-a") });
    assert_eq!(rows[0]["extra"]["writes"], "insert");
    assert!(number(&rows[0], "bytes_per_key") < 58.0, "10 000 records more");
}

#[test]
fn a_timeline_has_reads_and_inserts() {
    let rows = rows(Args { keys: Some(400_000), ..dlht("resize-timeline") });
    assert_eq!((rows.len(), &rows[0]["threads"]), (1, &2.into()), "one of each kind");
    let points = rows[0]["extra"]["timeline"].as_array().unwrap();
    assert_eq!(points.len(), 50);
    let total = |field: &str| points.iter().filter_map(|point| point[field].as_f64()).sum::<f64>();
    assert!(total("get_mops") > 0.0 && total("insert_mops") > 0.0);
    let [get, control, ratio] =
        ["longest_get_stall_us", "longest_control_stall_us", "get_to_control_stall"]
            .map(|name| extra(&rows[0], name));
    assert!(get > 0.0 && control > 0.0 && ratio > 0.0, "{get} {control} {ratio}");
}

#[test]
fn locks_are_taken_and_given_back() {
    let rows = rows(Args { tables: Vec::new(), threads: vec![2], ..small("lock-manager") });
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!(row["table"], "dlht-set");
        assert!((0.5..=1.0).contains(&extra(row, "granted")), "{row:?}");
    }
}

#[test]
fn transactions_leave_nothing_half_done() {
    for (experiment, committed) in [("tatp", 0.5..0.9), ("smallbank", 0.5..1.01)] {
        let args = Args { tables: Vec::new(), threads: vec![1, 4], ..small(experiment) };
        // Few rows, so that threads conflict.
        let rows = rows(Args { keys: Some(200), ops: Some(50_000), ..args });
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!((number(&row, "ops"), number(&row, "keys")), (50_000.0, 200.0));
            assert!(committed.contains(&extra(&row, "committed")), "{row:?}");
        }
    }
}

#[test]
fn the_list_names_the_figures() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("list");
    run(Args { json: Some(file.to_str().unwrap().to_owned()), ..Args::new("list") }).unwrap();
    let listed = std::fs::read_to_string(file).unwrap();
    for name in [
        "putheavy",
        "occupancy",
        "resize-timeline",
        "batch-size",
        "skew",
        "index-size",
        "value-size",
        "key-size",
        "features",
        "single-thread",
        "lock-manager",
        "ycsb-load",
        "ycsb-a",
        "ycsb-b",
        "ycsb-c",
        "ycsb-d",
        "ycsb-f",
        "tatp",
        "smallbank",
        "latency-by-load",
    ] {
        let start = format!("{{\"experiment\":\"{name}\"");
        let line = listed
            .lines()
            .find(|line| line.starts_with(&start))
            .unwrap_or_else(|| panic!("no {name}"));
        assert!(line.contains("DLHT") || line.contains("Iceberg"), "{line}");
    }
}
