//! Small runs of every experiment through the library. Rows must have the documented fields, counts must match the
//! designs, and no table may give a wrong answer.
//!
//! Measured times are not checked. This program does not use the test harness, so that it can be its own child process:
//! `recovery` starts it as `experiments bench recovery-child ...`, and `join-share` starts it in the same way.

#![allow(clippy::unwrap_used, reason = "a test program: to panic is to fail")]

mod experiments {
    pub mod costs;

    use super::{full_iceberg, pm};
}
mod support;

use std::panic::catch_unwind;
use std::process::ExitCode;

use clap::Parser;
use experiments::costs;
use icefield_bench::{Args, Batch, Error, Medium, run};
use serde_json::{Map, Value};

use support::{extra, number, rows, small};

const TESTS: &[(&str, fn())] = &[
    ("list_names_every_experiment", list_names_every_experiment),
    ("wrong_options_are_errors", wrong_options_are_errors),
    ("limits_are_measured_on_every_kind_of_memory", limits_are_measured_on_every_kind_of_memory),
    ("throughput_comes_with_its_ceilings", throughput_comes_with_its_ceilings),
    ("the_ceiling_fits_the_medium_and_the_batch", the_ceiling_fits_the_medium_and_the_batch),
    ("mixed_sweeps_the_share_of_inserts", mixed_sweeps_the_share_of_inserts),
    ("growth_tells_load_factors", growth_tells_load_factors),
    ("a_fill_curve_has_twenty_points", a_fill_curve_has_twenty_points),
    ("costs_are_counted_per_call", costs::costs_are_counted_per_call),
    ("batches_share_fences", costs::batches_share_fences),
    ("an_iceberg_writes_one_line", costs::an_iceberg_writes_one_line),
    ("filters_spare_lines", filters_spare_lines),
    ("filters_in_dram_are_told_apart", filters_in_dram_are_told_apart),
    ("filters_are_those_of_the_tables_asked_for", filters_are_those_of_the_tables_asked_for),
    ("optimistic_searches_write_nothing", optimistic_searches_write_nothing),
    ("page_faults_are_counted", page_faults_are_counted),
    ("logs_can_be_left_out", logs_can_be_left_out),
    ("records_have_any_size", records_have_any_size),
    (
        "long_records_are_read_one_by_one_and_in_streams",
        long_records_are_read_one_by_one_and_in_streams,
    ),
    (
        "tables_by_name_are_measured_beside_typed_ones",
        tables_by_name_are_measured_beside_typed_ones,
    ),
    ("levels_fill_as_the_paper_says", levels_fill_as_the_paper_says),
    ("recovery_is_independent_of_size", recovery_is_independent_of_size),
    ("processes_share_an_index", processes_share_an_index),
    ("latencies_are_in_order", latencies_are_in_order),
    ("space_is_what_the_files_take", space_is_what_the_files_take),
    ("a_full_iceberg_is_nearly_all_records", a_full_iceberg_is_nearly_all_records),
    ("results_go_to_a_directory", results_go_to_a_directory),
    ("runs_are_compared", runs_are_compared),
];

/// The command line with which `recovery` and `join-share` start this program.
#[derive(Parser)]
enum Program {
    Bench(Args),
}

fn main() -> ExitCode {
    let filter = std::env::args().nth(1);
    if filter.as_deref() == Some("bench") {
        let Program::Bench(args) = Program::parse();
        return if run(args).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let filter = filter.filter(|filter| !filter.starts_with('-')).unwrap_or_default();
    let mut failed = 0;
    for (name, test) in TESTS.iter().filter(|(name, _)| name.contains(&filter)) {
        let passed = catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn pm(row: &Map<String, Value>, field: &str) -> f64 {
    row["pm"][field].as_f64().unwrap_or_else(|| panic!("no pm.{field} in {row:?}"))
}

fn list_names_every_experiment() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("list");
    let mut args = Args::new("list");
    args.json = Some(file.to_str().unwrap().to_owned());
    assert!(run(args).unwrap());
    let listed = std::fs::read_to_string(file).unwrap();
    for name in [
        "limit",
        "get",
        "get-miss",
        "insert",
        "put",
        "populate",
        "insdel",
        "delete",
        "mixed",
        "load-factor",
        "fill-curve",
        "filters",
        "locks",
        "prefault",
        "levels",
        "amplification",
        "recovery",
        "latency",
        "space",
        "join",
        "join-share",
    ] {
        assert!(listed.contains(&format!("\"{name}\"")), "{name} is missing");
    }
}

fn wrong_options_are_errors() {
    let error = run(Args::new("no-such-experiment")).unwrap_err();
    assert!(matches!(error, Error::NoExperiment(name) if name == "no-such-experiment"));
    type Change = fn(&mut Args);
    let changes: [(&str, Change); 4] = [
        ("tables", |args| args.tables = vec!["no-such-table".to_owned()]),
        ("peers", |args| args.peers = vec!["no-such-peer".to_owned()]),
        ("repeat", |args| args.repeat = 0),
        ("threads", |args| args.threads = vec![0]),
    ];
    for (name, change) in changes {
        let mut args = small("get");
        change(&mut args);
        let error = run(args).unwrap_err();
        assert!(matches!(error, Error::Option { option, .. } if option == name), "{error:?}");
    }
    // Dash does not support `Medium::Disk`.
    let disk = Args { medium: Some(Medium::Disk), ..small("get") };
    let error = run(disk).unwrap_err();
    assert!(matches!(error, Error::Option { option: "medium", .. }), "{error:?}");
    let nowhere = Args { json: Some("/no/such/file".to_owned()), ..small("get") };
    let error = run(nowhere).unwrap_err();
    assert!(matches!(error, Error::File { path, .. } if path.ends_with("no/such/file")));
}

fn limits_are_measured_on_every_kind_of_memory() {
    let mut args = small("limit");
    args.ops = Some(10_000);
    let rows = rows(args);
    for pages in ["4 KiB", "2 MiB", "as mapped"] {
        assert!(rows.iter().any(|row| row["extra"]["pages"] == pages));
    }
    for ceiling in [
        "read-chase",
        "read-ring-64",
        "read-batch-32",
        "cas8-batch-32",
        "store-flush-fence",
        "store-flush-32-fence",
    ] {
        assert!(
            rows.iter().any(|row| row["ceiling"] == ceiling && number(row, "mops") > 0.0),
            "no {ceiling}"
        );
    }
}

fn throughput_comes_with_its_ceilings() {
    for experiment in ["get", "get-miss", "insert", "put", "populate", "insdel", "delete"] {
        let mut args = small(experiment);
        args.threads = vec![1, 2];
        args.repeat = 2;
        let rows = rows(args);
        assert_eq!(rows.len(), 2, "a row per number of threads");
        for row in rows {
            assert_eq!((&row["experiment"], &row["op"]), (&experiment.into(), &experiment.into()));
            assert_eq!(
                (&row["table"], &row["medium"], &row["batch"]),
                (&"dash-eh".into(), &"pmem".into(), &"stream".into())
            );
            assert_eq!((number(&row, "keys"), number(&row, "ops")), (20_000.0, 20_000.0));
            assert!(
                number(&row, "mops_min") <= number(&row, "mops")
                    && number(&row, "mops") <= number(&row, "mops_max")
            );
            assert!(number(&row, "limit_ratio") > 0.0 && number(&row, "shape_ratio") > 0.0);
        }
    }
}

fn the_ceiling_fits_the_medium_and_the_batch() {
    for (experiment, medium, batch, ceiling) in [
        ("get", Medium::Pmem, Batch::None, "read-independent"),
        ("get", Medium::Memory, Batch::Of(32), "read-batch-32"),
        ("get", Medium::Process, Batch::Stream, "read-ring-64"),
        ("insert", Medium::Pmem, Batch::None, "store-flush-fence"),
        ("insert", Medium::Pmem, Batch::Of(32), "store-flush-32-fence"),
        ("insert", Medium::Process, Batch::Of(32), "cas8-batch-32"),
        ("insert", Medium::Memory, Batch::Stream, "cas8-ring-64"),
    ] {
        let mut args = small(experiment);
        (args.medium, args.batch) = (Some(medium), vec![batch]);
        let rows = rows(args);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0]["ceiling"], ceiling);
    }
}

fn mixed_sweeps_the_share_of_inserts() {
    let all = rows(small("mixed"));
    assert_eq!(
        all.iter().map(|row| extra(row, "insert_ratio")).collect::<Vec<_>>(),
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    );
    let mut args = small("mixed");
    (args.insert_ratio, args.batch) = (vec![0.2], vec![Batch::None]);
    assert_eq!(rows(args).len(), 1);
}

fn growth_tells_load_factors() {
    let mut args = small("load-factor");
    args.keys = Some(100_000);
    let rows = rows(args);
    let (ladder, tables): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row["extra"].get("technique").is_some());
    assert_eq!(
        tables.iter().map(|row| extra(row, "stash_buckets")).collect::<Vec<_>>(),
        [2.0, 4.0]
    );
    // Adding a technique never lowers the load factor of segments, whatever their size.
    assert_eq!(ladder.len(), 5 * 8);
    for size in ladder.chunks(5) {
        let loads: Vec<f64> = size.iter().map(|row| extra(row, "split_load_factor")).collect();
        println!("segments of {} KiB: {loads:?}", size[0]["extra"]["segment_kib"]);
        assert!(loads.is_sorted() && loads[4] >= 0.85 && loads[0] <= 0.85, "{loads:?}");
    }
    for row in tables {
        let (min, mean, peak) = (
            extra(&row, "min_load_factor"),
            extra(&row, "mean_load_factor"),
            extra(&row, "peak_load_factor"),
        );
        assert!(0.0 < min && min <= mean && mean <= peak && peak <= 1.0, "{row:?}");
        assert!((0.9..=1.0).contains(&extra(&row, "split_load_factor")), "{row:?}");
    }
}

fn filters_spare_lines() {
    let rows = rows(small("filters"));
    assert_eq!(rows.len(), 2 * 2 * 5, "keys of two sizes, two calls, five tables");
    let lines = |table: &str, call: &str, key_bytes: u64| -> Map<String, Value> {
        let is_it = |row: &&Map<String, Value>| {
            row["table"] == table
                && row["extra"]["call"] == call
                && row["extra"]["key_bytes"] == key_bytes
        };
        let row = rows.iter().find(is_it).unwrap();
        assert!(number(row, "mops") > 0.0 && extra(row, "whole_speed_ratio") > 0.0);
        println!("{table} {call} {key_bytes}: {} {}", row["extra"]["lines"], row["pm"]);
        row["extra"]["lines"].as_object().unwrap().clone()
    };
    let bucket = |table, call, key_bytes| number(&lines(table, call, key_bytes), "bucket");
    for key_bytes in [8, 16] {
        assert!((2.0..2.4).contains(&bucket("dash-eh", "get-miss", key_bytes)));
        assert!((2.0..3.1).contains(&bucket("dash-eh", "get", key_bytes)));
        // A search without fingerprints reads nearly all lines of both buckets. Without overflow metadata, it also
        // reads the lines of the stash.
        assert!((6.5..9.0).contains(&bucket("dash-eh-no-fingerprints", "get-miss", key_bytes)));
        assert!(bucket("dash-eh-no-filters", "get-miss", key_bytes) > 8.0);
        assert!(bucket("dash-eh-no-overflow", "get-miss", key_bytes) >= 4.0);
        assert!((2.5..=4.1).contains(&bucket("cceh-like", "get-miss", key_bytes)));
    }
    // Without fingerprints, every key of both buckets is compared.
    assert!(number(&lines("dash-eh-no-filters", "get-miss", 16), "blob") > 10.0);
    assert!(
        lines("dash-eh", "get-miss", 16).get("blob").is_none_or(|lines| lines.as_f64() < Some(0.1))
    );
}

fn filters_in_dram_are_told_apart() {
    let mut args = small("filters");
    args.tables = vec!["plush".to_owned()];
    let rows = rows(args);
    assert_eq!(rows.len(), 9, "three settings, three calls");
    for (row, name) in
        rows.iter().zip(["none", "prealloc", "prealloc+dramfilter"].map(|name| [name; 3]).concat())
    {
        assert_eq!(row["extra"]["filters"], name);
        assert!(number(row, "mops") > 0.0, "{row:?}");
    }
}

fn filters_are_those_of_the_tables_asked_for() {
    let with = |tables: &[&str]| Args {
        tables: tables.iter().map(|name| (*name).to_owned()).collect(),
        keys: Some(2_000),
        ..small("filters")
    };
    let rows = rows(with(&["iceberg", "plush", "dash-eh"]));
    let tables: Vec<_> = rows.iter().map(|row| row["table"].as_str().unwrap()).collect();
    assert_eq!(tables.iter().filter(|name| **name == "plush").count(), 9);
    assert_eq!((tables.len(), tables[0], tables[28]), (29, "dash-eh", "plush"), "Dash comes first");
    let error = run(with(&["iceberg", "dash-lh"])).unwrap_err();
    assert!(matches!(error, Error::Option { option: "tables", .. }), "{error:?}");
}

fn optimistic_searches_write_nothing() {
    let rows = rows(small("locks"));
    assert_eq!(rows.len(), 2 * 2, "two calls of two tables");
    for row in &rows {
        let written = pm(row, "line_writes");
        match row["table"].as_str() {
            Some("dash-eh") => assert_eq!(written, 0.0, "{row:?}"),
            _ => assert!((1.9..2.5).contains(&written), "{row:?}"),
        }
    }
}

fn page_faults_are_counted() {
    let rows = rows(small("prefault"));
    let states: Vec<_> =
        rows.iter().map(|row| (&row["extra"]["pages"], &row["extra"]["start"])).collect();
    assert_eq!(states.len(), 4, "{states:?}");
    // A table that grows on small pages causes page faults.
    assert!(extra(&rows[0], "page_faults") > 0.001, "{:?}", rows[0]);
}

fn logs_can_be_left_out() {
    let loads = rows(small("bulk-load"));
    let ops: Vec<_> = loads.iter().map(|row| row["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["put", "put_unlogged"]);
    assert_eq!(extra(&loads[0], "to_logged"), 1.0);
    assert!(extra(&loads[1], "durable_mops") <= number(&loads[1], "mops"));
    let mut args = small("checkpoint");
    args.threads = vec![1, 2];
    let checkpoints = rows(args);
    assert_eq!(checkpoints.len(), 2);
    assert_eq!(extra(&checkpoints[0], "to_first"), 1.0);
    assert!(checkpoints.iter().all(|row| extra(row, "checkpoint_ms") > 0.0));
    assert!(checkpoints.iter().all(|row| number(row, "ops") > 0.0), "nothing was moved");
}

fn records_have_any_size() {
    let mut args = small("var-records");
    args.tables = vec!["plush".into(), "dash-eh".into(), "iceberg".into()];
    args.keys = Some(2_000);
    let rows = rows(args);
    let point =
        |row: &Map<String, Value>| (extra(row, "record_bytes"), extra(row, "write_percent"));
    assert_eq!(rows.len(), 3 * 9);
    assert_eq!(rows.iter().filter(|row| point(row).0 == 1_016.0).count(), 9);
    assert_eq!(rows.iter().filter(|row| point(row) == (32.0, 50.0)).count(), 3);
}

fn long_records_are_read_one_by_one_and_in_streams() {
    let mut args = small("var-gets");
    args.tables = vec!["plush".into(), "dash-lh".into(), "iceberg".into()];
    args.keys = Some(5_000);
    let rows = rows(args);
    let batches: Vec<_> = rows.iter().map(|row| row["batch"].as_str().unwrap()).collect();
    assert_eq!(batches, ["none", "none", "none", "stream", "stream", "stream"]);
    assert!(
        rows.iter().all(|row| extra(row, "record_bytes") == 116.0 && number(row, "mops") > 0.0)
    );
}

fn tables_by_name_are_measured_beside_typed_ones() {
    let mut args = small("any-table");
    args.tables = vec!["dash-eh".into(), "plush".into()];
    args.keys = Some(2_000);
    let rows = rows(args);
    assert_eq!(rows.len(), 2 * 2 * 4);
    for row in &rows {
        let difference = extra(row, "any_ns") - extra(row, "typed_ns");
        assert!((difference - extra(row, "difference_ns")).abs() < 1.0, "{row:?}");
    }
}

fn a_fill_curve_has_twenty_points() {
    let rows = rows(small("fill-curve"));
    assert_eq!(rows.len(), 20);
    for row in &rows {
        assert!(
            number(row, "mops") > 0.0
                && extra(row, "get_mops") > 0.0
                && extra(row, "get_miss_mops") > 0.0
        );
    }
    assert_eq!(extra(&rows[19], "fill"), 1.0);
}

/// Arguments of `experiment` on IcebergHT at 95 % fill.
fn full_iceberg(experiment: &str, keys: u64) -> Args {
    let tables = vec!["iceberg".to_owned()];
    Args { tables, keys: Some(keys), fill: Some(0.95), ..small(experiment) }
}

fn levels_fill_as_the_paper_says() {
    let all = rows(full_iceberg("levels", 300_000));
    let sizes: Vec<_> = all.iter().map(|row| row["extra"]["yards"].as_str().unwrap()).collect();
    assert_eq!(sizes, ["64/8", "64/6", "64/4", "32/8", "32/6", "32/4"]);
    assert!(extra(&all[0], "front_yard") >= 0.91);
    for row in &all {
        let shares = ["front_yard", "back_yard", "overflow"].map(|level| extra(row, level));
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 2e-4, "{shares:?}");
        assert!((number(row, "load_factor") - 0.95).abs() < 1e-3, "{row:?}");
        assert!(number(row, "keys") >= 300_000.0);
    }
    for same_front in all.chunks(3) {
        assert!(same_front.is_sorted_by_key(|row| extra(row, "overflow")), "{same_front:?}");
    }
    let one = Args {
        yards: vec![icefield::Yards { front: 16, back: 2 }],
        ..full_iceberg("levels", 10_000)
    };
    let one = rows(one);
    assert_eq!((one.len(), &one[0]["extra"]["yards"]), (1, &"16/2".into()));
}

fn recovery_is_independent_of_size() {
    let lines = |keys| {
        let mut args = small("recovery");
        args.keys = Some(keys);
        let rows = rows(args);
        assert_eq!(rows.len(), 1);
        assert!(extra(&rows[0], "first_answer_ms") >= extra(&rows[0], "open_ms"));
        assert!(extra(&rows[0], "full_speed_ms") > 0.0);
        extra(&rows[0], "first_answer_lines")
    };
    // The two counts differ only because segments are filled randomly. Over the thousands of segments of a larger
    // table, this averages out.
    let (small, large) = (lines(20_000), lines(160_000));
    assert!((small / large - 1.0).abs() < 0.2, "{small} lines, {large} lines");
}

fn processes_share_an_index() {
    let rows = rows(Args { keys: Some(400_000), ..small("join-share") });
    let [one, eight] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((extra(one, "processes"), extra(eight, "processes")), (1.0, 8.0));
    let bytes = number(one, "bytes_per_key") * 400_000.0;
    for row in [one, eight] {
        // The two sizes differ slightly, because files consist of whole pages.
        let mapped = extra(row, "index_pss_bytes");
        assert!((0.9..1.1).contains(&(mapped / bytes)), "{mapped} of {bytes} bytes: {row:?}");
        assert!(extra(row, "pss_bytes") > mapped, "{row:?}");
    }
    assert!(extra(eight, "index_pss_ratio") < 1.1, "{eight:?}");
}

fn latencies_are_in_order() {
    let rows = rows(small("latency"));
    assert_eq!(rows.len(), 7);
    for row in rows {
        let times: Vec<f64> = ["p50_ns", "p95_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"]
            .iter()
            .map(|field| number(&row, field))
            .collect();
        assert!(times.is_sorted() && times[0] > 0.0, "{row:?}");
        assert_eq!(extra(&row, "samples"), 20_000.0);
    }
}

fn space_is_what_the_files_take() {
    let rows = rows(small("space"));
    assert_eq!(rows.len(), 1);
    assert_eq!(extra(&rows[0], "data_bytes"), 320_000.0);
    assert!(extra(&rows[0], "storage_bytes") >= 320_000.0);
    for over_data in ["growth_pm_over_data", "updated_pm_over_data"] {
        assert!((1.0..100.0).contains(&extra(&rows[0], over_data)), "{rows:?}");
    }
    // Usually the share is one half. But if the system suspends a reader, the space that it may be reading is not
    // released.
    assert!(extra(&rows[0], "removed_share") <= 1.0);
    assert_eq!(extra(&rows[0], "check_faults"), 0.0);
    assert!(number(&rows[0], "bytes_per_key") >= 16.0);
}

fn a_full_iceberg_is_nearly_all_records() {
    let rows = rows(full_iceberg("space", 300_000));
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    let [pm, dram, data] =
        ["storage_bytes", "dram_bytes", "data_bytes"].map(|name| extra(row, name));
    assert!((extra(row, "data_share") - data / (pm + dram)).abs() < 1e-4);
    assert!(extra(row, "data_share") >= 0.88, "{row:?}");
    let beside = extra(row, "free_slot_bytes") + extra(row, "overhead_bytes");
    assert_eq!(pm, data + beside);
}

fn results_go_to_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut args = small("get");
    args.out = Some(dir.path().join("new"));
    args.batch = vec![Batch::None, Batch::Of(16)];
    let rows = rows(args);
    let jsonl = std::fs::read_to_string(dir.path().join("new/results.jsonl")).unwrap();
    let csv = std::fs::read_to_string(dir.path().join("new/results.csv")).unwrap();
    assert_eq!((rows.len(), jsonl.lines().count(), csv.lines().count()), (2, 2, 3));
    assert_eq!(rows[1]["batch"], 16);
    assert!(csv.starts_with("experiment,table,op,"));
    let page = std::fs::read_to_string(dir.path().join("new/report.html")).unwrap();
    // On the page, results come before the facts of the machine. Claims without rows in this run are left out.
    let place = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part} is missing: {page}"));
    assert!(place("id=\"get\"") < place("id=\"machine\""));
    assert!(!page.contains("<td>SPAR-HT</td>"), "{page}");
    let left: Vec<_> = dir.path().join("new").read_dir().unwrap().flatten().collect();
    assert!(
        left.iter().all(|entry| !entry.file_name().to_string_lossy().ends_with(".partial")),
        "{left:?}"
    );
    assert!(page.contains("<th>processor</th>") && !page.contains("http://www.w3.org/1999/xlink"));
    let loads = ["src=", "url(", "<script", "<link", "@import"];
    assert!(loads.iter().all(|word| !page.contains(word)), "the page loads something");
    // There is one figure for single calls and one for batches.
    let figures: Vec<_> = dir.path().join("new/figures").read_dir().unwrap().collect();
    assert_eq!(figures.len(), 2);
}

fn runs_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let [before, after] = ["before.jsonl", "after.jsonl"].map(|name| dir.path().join(name));
    std::fs::write(
        &before,
        "{\"experiment\":\"get\",\"table\":\"a\",\"op\":\"get\",\"mops\":10}\n",
    )
    .unwrap();
    std::fs::write(&after, "{\"experiment\":\"get\",\"table\":\"a\",\"op\":\"get\",\"mops\":5}\n")
        .unwrap();
    let compared = |files: &[&std::path::PathBuf]| {
        let mut args = Args::new("compare");
        args.json = Some(dir.path().join("compared.jsonl").display().to_string());
        args.results = files.iter().map(|path| (*path).clone()).collect();
        run(args)
    };
    assert!(compared(&[&before, &before]).unwrap());
    assert!(!compared(&[&before, &after]).unwrap(), "half the speed is worse");
    let told = std::fs::read_to_string(dir.path().join("compared.jsonl")).unwrap();
    assert!(told.contains("\"verdict\":\"worse\""), "{told}");
    assert!(
        compared(&[&before]).is_err() && compared(&[&before, &dir.path().join("none")]).is_err()
    );
}
