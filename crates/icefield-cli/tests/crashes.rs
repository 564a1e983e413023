//! Commands that are killed, interrupted, or run out of disk space. The table that they leave must open and answer.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::{Place, finish, json_lines};

fn rows(count: u64) -> String {
    let rows: String = (0..count).map(|row| format!("{row},value-{row}\n")).collect();
    format!("key,value\n{rows}")
}

/// The number of kills, spread over the time of a whole load.
const ROUNDS: u32 = 40;

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn kills_leave_an_openable_table_or_none() {
    let place = Place::new();
    place.file("rows.csv", &rows(100_000));
    let begun = Instant::now();
    place.ok(&["load", "whole.ice", "rows.csv", "--create", "--batch", "64"]);
    let whole = begun.elapsed();
    let (mut absent, mut partial) = (0, 0);
    for round in 0..ROUNDS {
        let table = format!("{round}.ice");
        let args = ["load", &table, "rows.csv", "--create", "--batch", "64"];
        let mut child = place.command(&args).stdout(Stdio::null()).spawn().unwrap();
        // Kills are spread from before the table exists to near the end of the load.
        sleep(whole * round / ROUNDS);
        child.kill().unwrap();
        child.wait().unwrap();
        if !place.path(&table).exists() {
            absent += 1;
            place.ok(&["create", &table, "--value", "str"]);
            continue;
        }
        let line = &place.json(&["check", &table])[0];
        assert_eq!(line["clean"], true, "round {round}: {line}");
        let records = line["records"].as_u64().unwrap();
        partial += u64::from(records > 0 && records < 100_000);
        // Batches become durable in order, so the table holds all rows of the first batches, and possibly some rows of
        // the next one.
        let keys: Vec<String> =
            (0..records.saturating_sub(64)).step_by(100).map(|key| key.to_string()).collect();
        if !keys.is_empty() {
            let args: Vec<&str> =
                ["get", &table, "0"].into_iter().chain(keys.iter().map(String::as_str)).collect();
            let found = place.ok(&args);
            assert!(
                keys.iter().all(|key| found.contains(&format!("{key}\tvalue-{key}\n"))),
                "round {round}"
            );
        }
    }
    println!("{absent} killed before the table existed, {partial} in the middle of loading");
    assert!(partial > 0, "no kill came in the middle of a load");
}

#[test]
fn a_killed_load_is_completed_by_running_it_again() {
    let place = Place::new();
    place.file("rows.csv", &rows(50_000));
    let args = ["load", "t.ice", "rows.csv", "--create", "--batch", "16"];
    let mut child = place.command(&args).stdout(Stdio::null()).spawn().unwrap();
    sleep(Duration::from_millis(30));
    child.kill().unwrap();
    child.wait().unwrap();
    let again = place.run(&["load", "t.ice", "rows.csv", "--create", "--json", "-"]);
    assert_eq!(again.status, Some(0), "{}", again.err);
    let line = &place.json(&["check", "t.ice"])[0];
    assert_eq!((line["clean"].as_bool(), line["records"].as_u64()), (Some(true), Some(50_000)));
}

#[test]
fn ctrl_c_ends_after_the_batch_and_tells_what_is_durable() {
    let place = Place::new();
    place.ok(&["create", "t.ice", "--value", "str"]);
    let args = ["load", "t.ice", "-", "--batch", "100", "--json", "load.ndjson"];
    let mut child = place.command(&args).stdin(Stdio::piped()).spawn().unwrap();
    // The pipe stays open, so the command waits for more rows until Ctrl-C.
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(rows(3050).as_bytes()).unwrap();
    stdin.flush().unwrap();
    sleep(Duration::from_millis(500));
    signal(&child, Signal::INT);
    let ran = finish(child);
    assert_eq!(ran.status, Some(130), "{}", ran.err);
    let line = &json_lines(&std::fs::read_to_string(place.path("load.ndjson")).unwrap())[0];
    let durable = line["loaded"].as_u64().unwrap();
    assert!(ran.err.contains(&format!("{durable} rows are durable")), "{}", ran.err);
    assert!(durable.is_multiple_of(100) && durable <= 3000, "{durable}");
    assert_eq!(place.json(&["check", "t.ice"])[0]["records"].as_u64(), Some(durable));
}

#[test]
fn ctrl_c_takes_the_tours_directory_away() {
    let place = Place::new();
    let work = place.dir().to_str().unwrap().to_owned();
    for delay_ms in [50, 400, 1500] {
        let args = ["tour", "--scale", "0.05", "--dir", &work];
        let child = place.command(&args).spawn().unwrap();
        sleep(Duration::from_millis(delay_ms));
        signal(&child, Signal::INT);
        let ran = finish(child);
        // A signal that arrives before the handler is installed kills the process.
        assert!(matches!(ran.status, Some(130 | 0) | None), "{ran:?}");
        assert_eq!(std::fs::read_dir(place.dir()).unwrap().count(), 0, "after {delay_ms} ms");
    }
}

/// Runs a script with a small private tmpfs at `mnt`; `None` where the system does not permit it.
fn with_small_tmpfs(place: &Place, script: &str) -> Option<support::Ran> {
    std::fs::create_dir(place.path("mnt")).unwrap();
    let script = format!("mount -t tmpfs -o size=8m none mnt || exit 99\n{script}");
    for namespace in [&["--mount"][..], &["--mount", "--user", "--map-root-user"]] {
        let mut command = Command::new("unshare");
        command.args(namespace).args(["sh", "-c", &script]).current_dir(place.dir());
        command
            .env("ICEFIELD", env!("CARGO_BIN_EXE_icefield"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let Ok(child) = command.spawn() else { continue };
        let ran = finish(child);
        if ran.status == Some(0) {
            return Some(ran);
        }
        println!("{namespace:?}: {ran:?}");
    }
    None
}

#[test]
fn a_full_disk_is_a_clear_error_and_the_table_answers() {
    let place = Place::new();
    place.file("rows.csv", &rows(1_000_000));
    let script = "\
        $ICEFIELD load mnt/t.ice rows.csv --create --capacity 1000; echo status $?
        $ICEFIELD get mnt/t.ice 0; echo status $?
        $ICEFIELD check mnt/t.ice; echo status $?
        $ICEFIELD del mnt/t.ice 0; echo status $?
        $ICEFIELD put mnt/t.ice 0 back; echo status $?
        $ICEFIELD get mnt/t.ice 0; echo status $?";
    let Some(ran) = with_small_tmpfs(&place, script) else {
        println!("skipped: a tmpfs cannot be mounted here");
        return;
    };
    assert!(ran.err.contains("no space"), "{ran:?}");
    assert!(ran.err.contains("rows are durable"), "{ran:?}");
    let statuses: Vec<&str> =
        ran.out.lines().filter_map(|line| line.strip_prefix("status ")).collect();
    assert_eq!(statuses, ["1", "0", "0", "0", "0", "0"], "{ran:?}");
    assert!(ran.out.contains("no faults") && ran.out.contains("\nback\n"), "{ran:?}");
}
