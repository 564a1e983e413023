//! Peers compared with one of our tables: they run in turns with it, and their answers are checked.

#![allow(clippy::unwrap_used, reason = "a test program: to panic is to fail")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use icefield_bench::{Args, Batch, Error, Medium, run};

use support::{judged_rows, number, rows, small};

/// Arguments of a small run of DLHT and its peers.
fn beside(experiment: &str) -> Args {
    let mut args = small(experiment);
    (args.tables, args.threads) = (vec!["dlht".to_owned()], vec![2]);
    args
}

/// Builds the example library with `defines`; `None` without a compiler.
fn library(dir: &Path, defines: &[&str]) -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../icefield-peers");
    let library = dir.join("libpeer.so");
    let mut compiler = Command::new("g++");
    compiler.args(["-O2", "-std=c++17", "-shared", "-fPIC"]).args(defines).arg("-I").arg(&home);
    compiler.arg("-o").arg(&library).arg(home.join("examples-cpp/std_unordered_map.cpp"));
    assert!(compiler.status().ok()?.success(), "the example does not compile");
    Some(library)
}

#[test]
fn a_shared_library_takes_part_in_every_experiment() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = library(dir.path(), &[]) else { return };
    for experiment in ["get", "get-miss", "insert", "populate", "insdel", "putheavy", "delete"] {
        let mut args = beside(experiment);
        args.batch = vec![Batch::None, Batch::Stream];
        args.peer_lib = vec![library.clone()];
        let rows = rows(args);
        let seen: Vec<_> = rows.iter().map(|row| (&row["table"], &row["peer"])).collect();
        let one = [(&"dlht".into(), &false.into()), (&"std-unordered-map".into(), &true.into())];
        assert_eq!(seen, [one, one].concat(), "{experiment}");
        assert!(rows.iter().all(|row| number(row, "mops") > 0.0 && number(row, "ops") == 20_000.0));
        assert!(rows.iter().all(|row| row["peer"] == false || row.get("ceiling").is_none()));
    }
    for (experiment, count) in [("mixed", 2 * 6), ("latency", 7 + 5)] {
        let rows = rows(Args { peer_lib: vec![library.clone()], ..beside(experiment) });
        assert_eq!(rows.len(), count, "{experiment}");
    }
}

#[test]
fn a_peer_holds_as_many_records_as_our_table() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = library(dir.path(), &[]) else { return };
    let mut args = beside("get");
    (args.peer_lib, args.fill) = (vec![library], Some(0.9));
    let rows = rows(args);
    assert_eq!(rows[0]["keys"], rows[1]["keys"]);
}

#[test]
fn wrong_answers_are_marked() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = library(dir.path(), &["-DWRONG"]) else { return };
    let (sound, rows) = judged_rows(Args { peer_lib: vec![library], ..beside("get") });
    assert!(!sound);
    assert!(rows[0]["extra"].get("wrong_answers").is_none(), "ours are right");
    assert_eq!(rows[1]["extra"]["wrong_answers"], true);
}

#[test]
fn what_is_no_peer_is_an_error() {
    let option = |args: Args| match run(args) {
        Err(Error::Option { option, .. }) => option,
        other => panic!("{other:?}"),
    };
    assert_eq!(option(Args { peers: vec!["nobody".to_owned()], ..beside("get") }), "peers");
    assert_eq!(option(Args { peer_lib: vec!["/no/such.so".into()], ..beside("get") }), "peer-lib");
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = library(dir.path(), &[]) else { return };
    let plush = vec!["plush".to_owned()];
    let args = Args { tables: plush, medium: Some(Medium::Disk), ..beside("get") };
    assert_eq!(option(Args { peer_lib: vec![library], ..args }), "medium", "it lives in memory");
}

/// Arguments of a small run of Plush and its peers on a disk, in batches of 1000.
#[cfg(feature = "peers-kv")]
fn on_a_disk(experiment: &str, sync: icefield::SyncMode) -> Args {
    let mut args = beside(experiment);
    (args.tables, args.peers) = (vec!["plush".to_owned()], vec!["all".to_owned()]);
    (args.sync, args.batch) = (Some(sync), vec![Batch::Of(1000)]);
    args
}

#[cfg(feature = "peers-kv")]
#[test]
fn stores_in_files_take_part_on_a_disk() {
    use icefield::SyncMode;
    for (experiment, sync) in [
        ("put", SyncMode::Always),
        ("put", SyncMode::Every(100)),
        ("get", SyncMode::Always),
        ("insert", SyncMode::Never),
        ("insdel", SyncMode::Every(100)),
        ("putheavy", SyncMode::Never),
        ("delete", SyncMode::Always),
    ] {
        let rows = rows(on_a_disk(experiment, sync));
        let names: Vec<_> = rows.iter().map(|row| row["table"].as_str().unwrap()).collect();
        assert_eq!(names, ["plush", "redb", "lmdb", "rocksdb"], "{experiment}");
        for row in &rows {
            assert_eq!(row["peer"], row["table"] != "plush");
            assert_eq!(row["medium"], "disk");
            assert_eq!(row["extra"]["sync"], sync.to_string());
            assert!(number(row, "mops") > 0.0);
        }
    }
    // The peer is reopened for the warm probes.
    let rows = rows(Args { selectivity: vec![100], ..on_a_disk("join", SyncMode::Every(100)) });
    assert!(["redb", "lmdb", "rocksdb"].iter().all(|name| {
        rows.iter().any(|row| row["table"] == *name && row["extra"]["phase"] == "warm")
    }));
}

#[cfg(feature = "peers-kv")]
#[test]
fn stores_in_files_have_long_records_on_any_medium_with_files() {
    let mut args = beside("var-gets");
    args.tables = vec!["dash-eh".to_owned()];
    args.peers = ["redb", "lmdb", "rocksdb"].map(str::to_owned).to_vec();
    args.medium = Some(Medium::Pmem);
    let rows = rows(args);
    let names: Vec<_> = rows.iter().map(|row| row["table"].as_str().unwrap()).collect();
    assert_eq!(names, ["dash-eh", "redb", "lmdb", "rocksdb"].repeat(2));
    assert!(rows.iter().all(|row| row["medium"] == "pmem" && number(row, "mops") > 0.0));
}

#[cfg(feature = "peers-kv")]
#[test]
fn stores_in_files_stay_away_from_memory() {
    let refused = run(Args { peers: vec!["redb".to_owned()], ..beside("get") });
    assert!(matches!(refused, Err(Error::Option { option: "medium", .. })), "{refused:?}");
    let rows = rows(Args { peers: vec!["all".to_owned()], ..beside("get") });
    assert!(rows.iter().all(|row| row["medium"] == "memory"));
}

#[cfg(feature = "peers")]
#[test]
fn built_in_peers_take_part() {
    for experiment in ["get", "insert", "insdel", "putheavy", "populate"] {
        let rows = rows(Args { peers: vec!["all".to_owned()], ..beside(experiment) });
        let names: Vec<_> = rows.iter().map(|row| row["table"].as_str().unwrap()).collect();
        let mut expected = vec!["dlht", "dashmap", "papaya", "scc", "hashbrown-sharded"];
        if cfg!(feature = "peers-cpp") {
            expected.extend(["libcuckoo", "onetbb"]);
        }
        assert_eq!(names, expected, "those in files are not in memory");
    }
    let rows = rows(Args { peers: vec!["papaya".to_owned()], ..beside("get") });
    assert_eq!(rows[1]["table"], "papaya");
}
