//! Outputs of commands: they never overwrite an input, are complete or absent, and cannot control a terminal.

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Stdio;

use crate::support::{Place, finish, handles_ctrl_c};

const ROWS: &str = "key,value\n1,one\n2,two\n3,three\n";

fn table(place: &Place) {
    place.file("rows.csv", ROWS);
    place.ok(&["load", "t.ice", "rows.csv", "--create"]);
}

/// Returns the names of all files in the test's directory, including hidden ones.
pub fn names(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.dir()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn no_command_writes_to_what_it_reads() {
    let place = Place::new();
    let rows = place.file("rows.ndjson", "{\"key\":1,\"value\":2}\n");
    place.ok(&["create", "t.ice", "--value", "u64"]);
    symlink(&rows, place.path("link.ndjson")).unwrap();
    std::fs::hard_link(&rows, place.path("hard.ndjson")).unwrap();
    symlink("t.ice", place.path("linked.ice")).unwrap();
    for output in ["rows.ndjson", "link.ndjson", "hard.ndjson", "./t.ice/../rows.ndjson"] {
        let args = ["load", "t.ice", "rows.ndjson", "--json", output];
        assert!(place.fails(2, &args).contains("already reads or writes it"), "{output}");
    }
    let parts = ["t.ice/segments.ice", "t.ice/new.csv", "linked.ice/lock"];
    for output in parts {
        let before = std::fs::read(place.path(output)).ok();
        for command in ["export", "scan", "get"] {
            let args: &[&str] = match command {
                "export" => &["export", "t.ice", output],
                "scan" => &["scan", "linked.ice", "--json", output],
                _ => &["get", "t.ice", "1", "--json", output],
            };
            assert!(place.fails(2, args).contains("already reads or writes it"), "{args:?}");
        }
        assert_eq!(std::fs::read(place.path(output)).ok(), before, "{output}");
    }
    for args in [
        &["export", "t.ice", "out.csv", "--json", "out.csv"][..],
        &["export", "t.ice", "out.csv", "--json", "./out.csv"],
    ] {
        place.fails(2, args);
    }
    assert_eq!(std::fs::read_to_string(&rows).unwrap(), "{\"key\":1,\"value\":2}\n");
    assert_eq!(
        place.ok(&["load", "t.ice", "rows.ndjson", "--json", "sum.ndjson"]),
        "1 rows loaded\n"
    );

    // Standard input and output are files that are already open, as for redirections by a shell.
    let input = || std::fs::File::open(&rows).unwrap();
    let mut command =
        place.command(&["load", "t.ice", "-", "--format", "ndjson", "--json", "rows.ndjson"]);
    let ran = finish(command.stdin(input()).spawn().unwrap());
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let mut command = place.command(&["load", "t.ice", "rows.ndjson"]);
    let output = std::fs::File::options().append(true).open(&rows).unwrap();
    let ran = finish(command.stdout(output).spawn().unwrap());
    assert!(
        ran.status == Some(2) && ran.err.contains("standard output goes to rows.ndjson:"),
        "{ran:?}"
    );
}

#[test]
fn files_appear_complete_and_keep_their_permissions() {
    let place = Place::new();
    table(&place);
    let old = place.file("out.csv", "old\n");
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::create_dir(place.path("else")).unwrap();
    symlink("else/real.csv", place.path("link.csv")).unwrap();
    std::fs::write(place.path("else/real.csv"), "old\n").unwrap();
    for output in ["out.csv", "link.csv", "new.csv"] {
        place.ok(&["export", "t.ice", output]);
        assert_eq!(std::fs::read_to_string(place.path(output)).unwrap().lines().count(), 4);
    }
    assert_eq!(old.metadata().unwrap().mode() & 0o777, 0o600);
    assert!(place.path("link.csv").is_symlink());
    place.fails(2, &["export", "t.ice", "nowhere/out.csv"]);
    // A command that fails leaves the old file unchanged and no other file behind.
    let before = names(&place);
    std::fs::write(place.path("t.ice/table.ice"), [0x5A; 8192]).unwrap();
    assert_ne!(place.run(&["export", "t.ice", "out.csv"]).status, Some(0));
    assert_eq!(std::fs::read_to_string(&old).unwrap().lines().count(), 4);
    assert_eq!(names(&place), before);
}

#[test]
fn an_interrupted_command_leaves_no_part_of_a_file() {
    let place = Place::new();
    table(&place);
    place.file("out.csv", "old\n");
    let before = names(&place);
    // The load waits for rows from an empty pipe until a signal ends it.
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::KILL] {
        let mut command = place.command(&["load", "t.ice", "-", "--json", "out.csv"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"key,value\nx,y\n1,z\n").unwrap();
        assert!(handles_ctrl_c(child.id()), "the load never began");
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let ran = finish(child);
        match signal {
            rustix::process::Signal::INT => {
                // After Ctrl-C, the file is complete and contains the report of the interrupted load.
                assert_eq!(ran.status, Some(130), "{ran:?}");
                let told = std::fs::read_to_string(place.path("out.csv")).unwrap();
                assert!(told.contains("interrupted"), "{told}");
                place.file("out.csv", "old\n");
            }
            _ => {
                let left = std::fs::read_to_string(place.path("out.csv")).unwrap();
                assert_eq!(left, "old\n");
            }
        }
        assert_eq!(names(&place), before);
    }
}

#[test]
fn pipes_and_devices_are_written_as_they_are() {
    let place = Place::new();
    table(&place);
    for output in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let ran = place.run(&["export", "t.ice", output, "--json", "/dev/null"]);
        assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{output}");
        assert!(ran.out.starts_with("key,value\n") && ran.out.contains("3,three\n"), "{}", ran.out);
    }
    // Output to a file that was opened in append mode is appended.
    let log = place.file("log.csv", "first\n");
    for output in ["-", "/dev/stdout"] {
        let file = std::fs::File::options().append(true).open(&log).unwrap();
        let ran = finish(place.command(&["export", "t.ice", output]).stdout(file).spawn().unwrap());
        assert_eq!(ran.status, Some(0), "{ran:?}");
    }
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(
        text.starts_with("first\nkey,value\n") && text.matches("key,value\n").count() == 2,
        "{text}"
    );
    let fifo = place.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let child = place.command(&["export", "t.ice", "fifo"]).spawn().unwrap();
    let mut read = String::new();
    std::fs::File::open(&fifo).unwrap().read_to_string(&mut read).unwrap();
    assert_eq!((finish(child).status, read.lines().count()), (Some(0), 4));
    assert!(place.fails(1, &["export", "t.ice", "/dev/full"]).contains("/dev/full"));
}

#[test]
fn nothing_that_a_file_says_acts_on_a_terminal() {
    let place = Place::new();
    let evil = "\u{1b}[2J\u{9b}1m\u{7f}\u{202e}";
    let harmless = |ran: &crate::support::Ran| {
        let texts = format!("{}{}", ran.out, ran.err);
        assert!(!texts.contains(|c: char| c != '\n' && c != '\t' && c.is_control()), "{texts:?}");
        assert!(!texts.contains('\u{202e}'), "{texts:?}");
    };
    place.file("evil.csv", &format!("{evil},value\n{evil},{evil}\n1,2,3\n"));
    place.file("evil.ndjson", &format!("{{\"{evil}\":1}}\n").replace('\u{1b}', "\\u001b"));
    harmless(&place.run(&["load", "t.ice", "evil.csv", "--create"]));
    for args in [
        &["load", "t.ice", "evil.csv", "--key", "no"][..],
        &["load", "t.ice", "evil.ndjson", "--key", "no"],
        &["load", "t.ice", "evil.csv", "--on-duplicate", "error"],
        &["scan", "t.ice"],
        &["scan", "t.ice", "--json", "-"],
        &["get", "t.ice", evil, "1"],
        &["get", evil, "1"],
        &["stat", evil],
        &[evil],
        &["create", "u.ice", "--key", evil],
        &["load", evil, "evil.csv", "--create", "--key-type", "u8"],
    ] {
        harmless(&place.run(args));
    }
    // Output that does not go to a terminal consists of the stored bytes, unchanged.
    let stored = place.ok(&["get", "t.ice", evil]);
    assert_eq!(stored, format!("{evil}\n"));
    place.ok(&["export", "t.ice", "again.csv"]);
    assert!(std::fs::read_to_string(place.path("again.csv")).unwrap().contains(evil));
    let line = &place.json(&["get", "t.ice", evil])[0];
    assert_eq!(line["value"], serde_json::json!(evil));
}
