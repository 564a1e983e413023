//! The experiments on tables in memory, small: the answers are right, the ceilings fit, the rows have their fields.

#![allow(clippy::unwrap_used, reason = "a test program: to panic is to fail")]

mod support;

use icefield_bench::{Args, Batch, Error, Hashing, Medium, run};

use support::{number, rows, small};

/// A small run of DLHT.
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
        args.tables = ["dlht", "dlht-local", "dlht-set"].map(str::to_owned).to_vec();
        args.batch = vec![Batch::None, Batch::Of(32), Batch::Stream];
        args.threads = vec![1, 2];
        let rows = rows(args);
        // A set cannot update; one table is for one thread.
        let tables = if experiment == "putheavy" { 2 + 1 } else { 3 + 2 };
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
    // 20 000 records need 2^14 bins, which take 1.9 each.
    assert!((29_000.0..30_000.0).contains(&number(&rows[0], "keys")), "{rows:?}");
    assert!((40.0..41.0).contains(&number(&rows[0], "bytes_per_key")), "{rows:?}");
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
fn every_usual_table_runs_where_it_lives() {
    let rows = rows(Args { tables: Vec::new(), ..small("get") });
    let seen: Vec<_> = rows.iter().map(|row| (&row["table"], &row["medium"])).collect();
    assert_eq!(seen, [(&"dash-eh".into(), &"pmem".into()), (&"dlht".into(), &"memory".into())]);
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
