//! Runs the program `icefield` in tests.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// A temporary directory, in which the binary runs.
pub struct Place {
    dir: TempDir,
}

/// The result of a run.
#[derive(Debug)]
pub struct Ran {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_icefield"));
        command.args(args).current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args).output().unwrap())
    }

    pub fn run_with_input(&self, args: &[&str], input: &str) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // A command that ends before it has read all input breaks the pipe. The test must not fail because of this.
        let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let output = finish(child);
        writer.join().unwrap();
        output
    }

    /// Runs a command that must succeed without output on standard error. Returns its output.
    pub fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{args:?}: {}", ran.out);
        ran.out
    }

    /// Runs a command that must fail with `status`. Returns its message.
    pub fn fails(&self, status: i32, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.status, Some(status), "{args:?}: {} {}", ran.out, ran.err);
        assert!(!ran.err.contains("panicked"), "{args:?}: {}", ran.err);
        ran.err
    }

    /// Runs a command with `--json -` and returns its JSON lines. Any other output fails the test.
    pub fn json(&self, args: &[&str]) -> Vec<Value> {
        let mut args = args.to_vec();
        args.extend(["--json", "-"]);
        json_lines(&self.run(&args).out)
    }
}

pub fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

pub fn finish(child: Child) -> Ran {
    ran(child.wait_with_output().unwrap())
}

fn ran(output: Output) -> Ran {
    Ran {
        status: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Waits until a process handles SIGINT; returns `false` after a timeout.
pub fn handles_ctrl_c(process: u32) -> bool {
    let handles = || -> Option<bool> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        Some(u64::from_str_radix(mask.trim(), 16).ok()? & 1 << 1 != 0)
    };
    (0..20_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        handles() == Some(true)
    })
}
