//! The command line of `icefield-torture`: output, rejected arguments, exit status.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_icefield-torture")).args(args).output().unwrap()
}

/// Checks that the arguments are rejected as bad usage, with a message.
fn refused(args: &[&str]) {
    let ran = run(args);
    let message = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(2), "{args:?}: {message}");
    assert!(!message.is_empty() && !message.contains("panicked"), "{args:?}: {message}");
}

#[test]
fn help_has_examples() {
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    assert!(help.contains("Usage: icefield-torture"), "{help}");
    assert!(help.contains("  icefield-torture crash --table dash-eh"), "{help}");
    let help = String::from_utf8(run(&["crash", "--help"]).stdout).unwrap();
    assert!(help.contains("--json") && !help.contains("\\n"), "{help}");
}

#[test]
fn bad_usage_is_2() {
    for args in [
        &[][..],
        &["nonsense"],
        &["crash", "--table", "dash-eh", "--model", "disk"],
        &["kill", "--table", "dash-eh", "--rounds", "0"],
        &["model", "--table", "dlht", "--seconds", "0"],
        &["crash", "--table", "plush", "--sync", "never"],
        &["linear", "--table", "dash-eh", "--seconds", "0"],
        &["linear", "--table", "dash-eh", "--seconds", "18446744073709551616"],
        &["linear", "--table", "dash-eh", "--histories", "0"],
        &["linear", "--table", "dash-eh", "--histories", "18446744073709551616"],
        &["churn", "--table", "join"],
    ] {
        refused(args);
    }
}

/// `kill` starts the same program as its children.
#[test]
fn a_run_ends_with_a_line_of_counts() {
    for (kind, count) in [("model", "--histories"), ("kill", "--rounds")] {
        let ran = run(&[kind, "--table", "dash-eh", count, "16", "--json", "-"]);
        let text = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(ran.status.code(), Some(0), "{text} {}", String::from_utf8_lossy(&ran.stderr));
        let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!((&line["kind"], &line["table"]), (&kind.into(), &"dash-eh".into()), "{line}");
        assert_eq!(line[&count[2..]], 16, "{line}");
    }
}
