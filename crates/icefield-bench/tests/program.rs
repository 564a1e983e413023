//! The command line of `icefield-bench`: its output, its exit status, and the arguments that it rejects.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::process::{Command, Output};

const MOST: &str = "18446744073709551615";

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_icefield-bench")).args(args).output().unwrap()
}

/// Checks that the program exits with `status` and prints a message.
fn fails(status: i32, args: &[&str]) {
    let ran = run(args);
    let message = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(status), "{args:?}: {message}");
    assert!(!message.is_empty() && !message.contains("panicked"), "{args:?}: {message}");
}

#[test]
fn help_has_examples() {
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    assert!(help.contains("Usage: icefield-bench"), "{help}");
    assert!(help.contains("  icefield-bench get --quick") && help.contains("--json"), "{help}");
    let list = String::from_utf8(run(&["list"]).stdout).unwrap();
    assert!(list.contains("batch-size") && list.contains("recovery"), "{list}");
}

#[test]
fn bad_usage_is_2() {
    for args in [
        &["nonsense"][..],
        &["get", "--tables", "nonsense"],
        &["compare", "nowhere.jsonl", "nowhere.jsonl"],
        &["get", "--sync", "sometimes"],
    ] {
        fails(2, args);
    }
}

#[test]
fn numbers_at_their_ends_are_taken_or_refused() {
    for args in [
        &["--threads", "0"][..],
        &["--threads", MOST],
        &["--keys", "0"],
        &["--keys", "18446744073709551615G"],
        &["--ops", "0"],
        &["--repeat", "0"],
        &["--batch", "0"],
        &["--batch", MOST],
    ] {
        fails(2, &[&["get", "--tables", "dlht"], args].concat());
    }
    // More records than any memory holds.
    fails(1, &["get", "--tables", "dlht", "--keys", MOST]);
}
