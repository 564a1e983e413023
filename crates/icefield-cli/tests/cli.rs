//! Every command of the program: its output, its exit status, and the arguments that it rejects.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod cli {
    pub mod copies;
    pub mod damage;
    pub mod dialects;
    pub mod numbers;
    pub mod outputs;
    pub mod salvage;
}
mod support;

use std::collections::BTreeSet;
use std::io::Read;
use std::process::Stdio;

use icefield::AnyTable;
use serde_json::{Value, json};
use support::{Place, finish, json_lines};

#[test]
fn every_command_has_help_with_examples() {
    let place = Place::new();
    let commands = [
        "tour", "create", "load", "get", "put", "del", "scan", "stat", "check", "salvage",
        "backup", "shrink", "export",
    ];
    for command in commands {
        let help = place.ok(&[command, "--help"]);
        assert!(help.contains("Usage: icefield"), "{help}");
        assert!(
            help.contains(&format!("icefield {command}")),
            "{command} --help has no example: {help}"
        );
        assert!(help.contains("--json"), "{command} --help has no --json: {help}");
        assert!(!help.contains("\\n"), "{help}");
    }
    for command in ["completions", "man"] {
        assert!(place.ok(&[command, "--help"]).contains(&format!("  icefield {command} ")));
    }
    assert!(place.ok(&["load", "--help"]).contains("Types: u8 u16"));
    assert!(place.ok(&["--help"]).contains("Examples:"));
    assert!(place.ok(&["--version"]).starts_with("icefield "));
}

#[test]
fn bad_usage_is_2() {
    let place = Place::new();
    for args in [
        &["nonsense"][..],
        &[],
        &["get"],
        &["create", "t.ice", "--key", "nonsense"],
        &["create", "t.ice", "--key", "f64"],
        &["create", "t.ice", "--table", "nonsense"],
        &["create", "t.ice", "--durability", "nonsense"],
        &["create", "t.ice", "--durability", "memory"],
        &["create", "t.ice", "--durability", "every"],
        &["create", "t.ice", "--capacity", "-1"],
        &["get", "nowhere.ice", "1"],
        &["load", "nowhere.ice", "-"],
        &["tour", "--scale", "0"],
        &["tour", "--dir", "nowhere"],
        &["shrink", "nowhere.ice"],
        &["export", "nowhere.ice", "--format", "xml"],
    ] {
        let message = place.fails(2, args);
        assert!(!message.is_empty(), "{args:?}");
    }
    assert_eq!(
        std::fs::read_dir(place.dir()).unwrap().count(),
        0,
        "nothing is made by a refused command"
    );
}

#[test]
fn records_come_and_go() {
    let place = Place::new();
    let made = place.ok(&["create", "t.ice", "--key", "u64", "--value", "str"]);
    assert!(made.contains("dash-eh<u64, str>"), "{made}");
    assert_eq!(place.ok(&["put", "t.ice", "7", "seven"]), "inserted\n");
    assert_eq!(place.ok(&["put", "t.ice", "7", "SEVEN"]), "replaced\n");
    place.ok(&["put", "t.ice", "8", "a b"]);
    assert_eq!(place.ok(&["get", "t.ice", "7"]), "SEVEN\n");
    assert_eq!(place.ok(&["get", "t.ice", "8", "7"]), "8\ta b\n7\tSEVEN\n");
    let absent = place.run(&["get", "t.ice", "7", "9"]);
    assert_eq!(
        (absent.status, absent.out.as_str(), absent.err.as_str()),
        (Some(1), "7\tSEVEN\n", "9: absent\n")
    );
    let removed = place.run(&["del", "t.ice", "7", "9", "7"]);
    assert_eq!(
        (removed.status, removed.out.as_str(), removed.err.as_str()),
        (Some(0), "removed 1\n", "9: absent\n7: absent\n")
    );
    place.fails(1, &["get", "t.ice", "7"]);
    assert!(place.ok(&["check", "t.ice"]).contains("1 records, no faults"));
}

#[test]
fn an_existing_path_is_not_touched() {
    let place = Place::new();
    place.ok(&["create", "t.ice"]);
    place.ok(&["put", "t.ice", "1", "x"]);
    assert!(place.fails(2, &["create", "t.ice"]).contains("already exists"));
    assert_eq!(place.ok(&["get", "t.ice", "1"]), "x\n");
    let file = place.file("file", "text");
    assert_ne!(place.run(&["create", "file"]).status, Some(0));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "text");
}

#[test]
fn create_says_what_does_not_survive() {
    let place = Place::new();
    let told = place.ok(&["create", "t.ice", "--durability", "process"]);
    assert_eq!(told.lines().filter(|line| line.contains("power cut")).count(), 1, "{told}");
}

#[test]
fn every_type_has_a_text() {
    let place = Place::new();
    let values = [
        ("u8", "255"),
        ("u16", "65535"),
        ("u32", "4294967295"),
        ("u64", "18446744073709551615"),
        ("u128", "340282366920938463463374607431768211455"),
        ("i8", "-128"),
        ("i16", "-32768"),
        ("i32", "-2147483648"),
        ("i64", "-9223372036854775808"),
        ("f32", "-0.1"),
        ("f64", "1e300"),
        ("bool", "true"),
        ("char", "é"),
        ("bytes", "0xff00"),
        ("str", "0xff00"),
        ("[u8;3]", "0x010203"),
        ("[u8; 16]", "0x000102030405060708090a0b0c0d0e0f"),
    ];
    for (number, (name, text)) in values.into_iter().enumerate() {
        let floats = name.starts_with('f');
        let key = if floats { "u32" } else { name };
        let key_text = if floats { "5" } else { text };
        let (table, again) = (format!("{number}.ice"), format!("{number}-again.ice"));
        place.ok(&["create", &table, "--key", key, "--value", name]);
        place.ok(&["put", &table, key_text, text]);
        assert_eq!(place.ok(&["get", &table, key_text]), format!("{text}\n"));
        for format in ["csv", "ndjson"] {
            let file = format!("{number}.{format}");
            place.ok(&["export", &table, &file]);
            let again = format!("{again}.{format}");
            place.ok(&["create", &again, "--key", key, "--value", name]);
            place.ok(&["load", &again, &file, "--strict"]);
            assert_eq!(
                place.ok(&["export", &again]),
                place.ok(&["export", &table]),
                "{name} as {format}"
            );
        }
    }
}

#[test]
fn bad_values_name_the_argument_and_what_was_expected() {
    let place = Place::new();
    place.ok(&["create", "t.ice", "--key", "u8", "--value", "bool"]);
    let message = place.fails(2, &["put", "t.ice", "256", "true"]);
    assert!(
        message.contains("KEY") && message.contains("`256`") && message.contains("0 to 255"),
        "{message}"
    );
    let message = place.fails(2, &["put", "t.ice", "25", "maybe"]);
    assert!(message.contains("VALUE") && message.contains("true or false"), "{message}");
    place.fails(2, &["get", "t.ice", ""]);
    place.fails(2, &["get", "t.ice", "-5"]);
}

#[test]
fn bytes_are_text_unless_hexadecimal_is_asked_for() {
    let place = Place::new();
    place.ok(&["create", "t.ice", "--key", "bytes", "--value", "bytes"]);
    place.ok(&["put", "t.ice", "6b6579", "0x6869", "--hex"]);
    assert_eq!(place.ok(&["get", "t.ice", "key"]), "hi\n");
    assert_eq!(place.ok(&["get", "t.ice", "0x6b6579", "--hex"]), "0x6869\n");
    assert!(place.fails(2, &["put", "t.ice", "6b", "0x123", "--hex"]).contains("hexadecimal"));
    place.ok(&["put", "t.ice", "text", "0x4142"]);
    assert_eq!(place.ok(&["get", "t.ice", "text"]), "0x4142\n");
    assert_eq!(place.ok(&["get", "t.ice", "74657874", "--hex"]), "0x307834313432\n");
    place.ok(&["put", "t.ice", "line", "a\nb"]);
    assert!(place.ok(&["scan", "t.ice"]).contains("line\t0x610a62\n"));
    assert_eq!(place.ok(&["get", "t.ice", "line"]), "a\nb\n", "one value is printed as it is");
}

#[test]
fn bytes_that_are_no_text_leave_and_come_back() {
    let place = Place::new();
    place.ok(&["create", "t.ice", "--value", "bytes"]);
    place.ok(&["put", "t.ice", "1", "ff00", "--hex"]);
    let line = &place.json(&["get", "t.ice", "1"])[0];
    assert_eq!(line["value"], json!({"hex": "ff00"}));
    place.ok(&["export", "t.ice", "out.csv"]);
    assert_eq!(std::fs::read(place.path("out.csv")).unwrap(), b"key,value\n1,\xff\0\n");
    let ran = place.run(&["export", "t.ice", "out.ndjson"]);
    assert!(ran.status == Some(1) && ran.err.contains("--hex"), "{ran:?}");
    place.ok(&["export", "t.ice", "out.ndjson", "--hex"]);
    for (file, hex) in [("out.csv", false), ("out.ndjson", true)] {
        place.ok(&["create", file.trim_start_matches("out."), "--value", "bytes"]);
        let table = file.trim_start_matches("out.");
        let mut args = vec!["load", table, file, "--strict"];
        args.extend(hex.then_some("--hex"));
        place.ok(&args);
        assert_eq!(place.ok(&["get", table, "1", "--hex"]), "0xff00\n");
    }
}

const ORDERS: &str = "id,customer,price\n1,ann,10\n2,bob,20\n3,\"c, d\",30\n";

#[test]
fn csv_loads_by_column_name() {
    let place = Place::new();
    place.file("orders.csv", ORDERS);
    place.ok(&["create", "prices.ice", "--value", "u32"]);
    let loaded = place.ok(&["load", "prices.ice", "orders.csv", "--key", "id", "--value", "price"]);
    assert_eq!(loaded, "3 rows loaded\n");
    assert_eq!(place.ok(&["get", "prices.ice", "2"]), "20\n");
    // Without `--value`, the value would be a JSON object of all columns but the key, but the table's values are u32.
    assert!(place.fails(2, &["load", "prices.ice", "orders.csv"]).contains("--value"));
    assert!(
        place
            .fails(2, &["load", "prices.ice", "orders.csv", "--key", "no"])
            .contains("id, customer, price")
    );
    assert!(place.fails(2, &["load", "prices.ice", "no.csv"]).contains("no.csv"));

    let made = place.ok(&["load", "orders.ice", "orders.csv", "--create"]);
    assert!(made.contains("dash-eh<u64, str>"), "{made}");
    assert_eq!(place.ok(&["get", "orders.ice", "3"]), "{\"customer\":\"c, d\",\"price\":\"30\"}\n");
}

#[test]
fn ndjson_loads_from_a_pipe() {
    let place = Place::new();
    let rows = "{\"id\": -1, \"t\": \"x\", \"n\": 1.5}\n\n{\"id\": 2, \"t\": \"y\", \"n\": 2}\n";
    let args =
        ["load", "t.ice", "-", "--format", "ndjson", "--create", "--key", "id", "--value", "n"];
    let ran = place.run_with_input(&args, rows);
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    // The values are stored as strings, because as a float 2 would be printed as 2.0.
    assert!(ran.out.contains("dash-eh<i64, str>"), "{}", ran.out);
    assert_eq!(place.ok(&["get", "t.ice", "-1", "2"]), "-1\t1.5\n2\t2\n");
}

#[test]
fn load_creates_nothing_unasked() {
    let place = Place::new();
    place.file("orders.csv", ORDERS);
    place.fails(2, &["load", "t.ice", "orders.csv"]);
    assert!(!place.path("t.ice").exists());
    // With --create, the second run adds to the table that the first run created.
    place.ok(&["load", "t.ice", "orders.csv", "--create"]);
    place.ok(&["load", "t.ice", "orders.csv", "--create"]);
    assert!(place.ok(&["check", "t.ice"]).contains("3 records"));
    let other = place.fails(2, &["load", "t.ice", "orders.csv", "--create", "--key-type", "i32"]);
    assert!(other.contains("dash-eh<u64, str>"), "{other}");
}

#[test]
fn malformed_rows_are_told_and_counted() {
    let place = Place::new();
    let mut rows = String::from("key,value\n");
    for row in 2..=40 {
        rows.push_str(&if row % 2 == 0 { format!("{row},{row}\n") } else { format!("{row}\n") });
    }
    rows.push_str("x,41\n");
    place.file("rows.csv", &rows);
    place.ok(&["create", "t.ice", "--value", "u64"]);
    let ran = place.run(&["load", "t.ice", "rows.csv", "--json", "load.ndjson"]);
    assert_eq!(ran.status, Some(1));
    assert_eq!(ran.out, "20 rows loaded, 20 rejected\n");
    assert!(ran.err.starts_with("line 3: 1 field, but the first line has 2\n"), "{}", ran.err);
    assert!(ran.err.ends_with("... and 10 more malformed rows\n"), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 11, "{}", ran.err);

    let lines = json_lines(&std::fs::read_to_string(place.path("load.ndjson")).unwrap());
    assert_eq!(lines.len(), 21);
    assert_eq!(lines[19]["line"], 41);
    assert!(lines[19]["rejected"].as_str().unwrap().contains("`x` is not a valid u64"));
    assert_eq!((&lines[20]["loaded"], &lines[20]["rejected"]), (&json!(20), &json!(20)));
}

#[test]
fn strict_stops_at_the_first_malformed_row() {
    let place = Place::new();
    place.file("rows.csv", "key,value\n1,1\n2,2\n3\n4,4\n");
    place.ok(&["create", "t.ice", "--value", "u64"]);
    let message = place.fails(1, &["load", "t.ice", "rows.csv", "--strict"]);
    assert!(message.contains("line 4:") && message.contains("2 rows are durable"), "{message}");
    assert!(place.ok(&["check", "t.ice"]).contains("2 records"));
}

#[test]
fn durability_is_an_option_of_whatever_writes() {
    let place = Place::new();
    for mode in ["disk", "always", "every:20", "never"] {
        let table = format!("{}.ice", mode.replace(':', "-"));
        let told = place.ok(&[
            "create",
            &table,
            "--table",
            "plush",
            "--value",
            "u64",
            "--durability",
            mode,
        ]);
        assert!(told.contains("durability disk"), "{told}");
        place.ok(&["put", &table, "1", "10", "--durability", mode]);
        place.ok(&["put", &table, "2", "20"]);
        place.ok(&["del", &table, "2", "--durability", mode]);
        assert!(place.ok(&["check", &table]).contains("1 record"));
    }
    place.ok(&["create", "dash.ice"]);
    for mode in ["disk", "every:20"] {
        place.fails(2, &["put", "dash.ice", "1", "x", "--durability", mode]);
    }
}

#[test]
fn options_of_a_new_table_need_create() {
    let place = Place::new();
    place.file("rows.csv", "key,value\n");
    place.ok(&["create", "t.ice"]);
    for option in [["--capacity", "9"], ["--key-type", "u64"]] {
        place.fails(2, &["load", "t.ice", "rows.csv", option[0], option[1]]);
    }
    // Without rows, types cannot be inferred.
    place.fails(2, &["load", "new.ice", "rows.csv", "--create"]);
    assert!(!place.path("new.ice").exists());
    place.ok(&[
        "load",
        "new.ice",
        "rows.csv",
        "--create",
        "--key-type",
        "u8",
        "--value-type",
        "i8",
    ]);
    assert_eq!(place.json(&["stat", "new.ice"])[0]["value"], json!("i8"));
}

#[test]
fn small_batches_load_the_same() {
    let place = Place::new();
    let rows: String = (0..1000).map(|row| format!("{row},{}\n", row * 2)).collect();
    place.file("rows.csv", &format!("key,value\n{rows}"));
    place.ok(&["create", "t.ice", "--value", "u64"]);
    place.ok(&["load", "t.ice", "rows.csv", "--batch", "7"]);
    assert!(place.ok(&["check", "t.ice"]).contains("1000 records"));
    place.fails(2, &["load", "t.ice", "rows.csv", "--batch", "0"]);
}

#[test]
fn an_empty_input_is_no_problem_of_a_json_pipe() {
    let place = Place::new();
    place.ok(&["create", "t.ice"]);
    assert_eq!(
        place.run_with_input(&["load", "t.ice", "-", "--format", "ndjson"], "").status,
        Some(0)
    );
    assert_eq!(
        place.run_with_input(&["load", "t.ice", "-"], "").status,
        Some(1),
        "CSV needs its header"
    );
}

fn filled(place: &Place, records: u64) {
    let rows: String = (0..records).map(|row| format!("{row},value-{row}\n")).collect();
    place.file("rows.csv", &format!("key,value\n{rows}"));
    place.ok(&["create", "t.ice", "--value", "str"]);
    place.ok(&["load", "t.ice", "rows.csv"]);
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn scan_pages_by_cursor() {
    let place = Place::new();
    filled(&place, 5000);
    let all = place.ok(&["scan", "t.ice"]);
    assert_eq!(all.lines().count(), 5000);
    let (mut pages, mut cursor) = (String::new(), 0);
    loop {
        let ran = place.run(&["scan", "t.ice", "--limit", "1500", "--cursor", &cursor.to_string()]);
        assert_eq!(ran.status, Some(0), "{}", ran.err);
        pages.push_str(&ran.out);
        match ran.err.trim().strip_prefix("more: --cursor ") {
            Some(next) => cursor = next.parse::<u64>().unwrap(),
            None => break,
        }
    }
    assert_eq!(sorted(&pages), sorted(&all), "every record once");
    let lines = place.json(&["scan", "t.ice", "--limit", "1"]);
    assert!(lines.last().unwrap()["next_cursor"].is_u64());
}

#[test]
fn stat_tells_what_there_is() {
    let place = Place::new();
    filled(&place, 100);
    let stat = place.ok(&["stat", "t.ice"]);
    assert!(stat.contains("dash-eh<u64, str>") && stat.contains("records       100"), "{stat}");
    let line = &place.json(&["stat", "t.ice"])[0];
    assert_eq!(
        (&line["records"], &line["design"], &line["key"]),
        (&json!(100), &json!("dash-eh"), &json!("u64"))
    );
    assert_eq!(line["was_clean"], json!(true));
}

#[test]
fn a_table_in_use_names_its_user() {
    let place = Place::new();
    filled(&place, 10);
    // A load that waits for rows keeps the table locked.
    let mut load = place.command(&["load", "t.ice", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let holder = load.id().to_string();
    // Waits until the lock file contains the process's id. Opening the table here could make the load fail instead.
    let lock = place.path("t.ice").join("lock");
    let held = (0..2000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        std::fs::read_to_string(&lock).is_ok_and(|name| name.contains(&holder))
    });
    assert!(held, "the load of process {holder} never began");
    let ran = place.run(&["get", "t.ice", "1"]);
    assert_eq!(ran.status, Some(1), "{}", ran.err);
    assert!(ran.err.contains(&holder), "process {holder}: {}", ran.err);
    load.kill().unwrap();
    load.wait().unwrap();
    place.ok(&["get", "t.ice", "1"]);
}

#[test]
fn every_command_speaks_json() {
    let place = Place::new();
    let one = |args: &[&str]| -> Value {
        let lines = place.json(args);
        assert_eq!(lines.len(), 1, "{args:?}");
        lines[0].clone()
    };
    assert_eq!(one(&["create", "t.ice", "--value", "u64"])["key"], json!("u64"));
    assert_eq!(one(&["put", "t.ice", "1", "2"]), json!({"key": 1, "value": 2, "previous": null}));
    assert_eq!(one(&["put", "t.ice", "1", "3"]), json!({"key": 1, "value": 3, "previous": 2}));
    assert_eq!(one(&["get", "t.ice", "1"]), json!({"key": 1, "found": true, "value": 3}));
    assert_eq!(one(&["get", "t.ice", "2"]), json!({"key": 2, "found": false}));
    assert_eq!(one(&["scan", "t.ice"]), json!({"key": 1, "value": 3}));
    assert_eq!(one(&["check", "t.ice"])["clean"], json!(true));
    assert_eq!(one(&["export", "t.ice", "out.csv"])["records"], json!(1));
    assert_eq!(one(&["load", "t.ice", "out.csv"])["loaded"], json!(1));
    assert_eq!(one(&["del", "t.ice", "1"]), json!({"key": 1, "removed": true}));
    assert!(one(&["get", "nowhere.ice", "1"])["error"].as_str().unwrap().contains("no table"));
    assert!(place.fails(2, &["export", "t.ice", "--json", "-"]).contains("standard output"));
}

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let place = Place::new();
    filled(&place, 50_000);
    for args in [&["scan", "t.ice"][..], &["export", "t.ice"], &["scan", "t.ice", "--json", "-"]] {
        let mut child = place.command(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        drop(child.stdout.take());
        let ran = finish(child);
        assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn no_control_sequences_in_a_pipe() {
    let place = Place::new();
    filled(&place, 20_000);
    let ran = place.run(&["load", "t.ice", "rows.csv"]);
    let told = "20000 rows loaded, 20000 of them replaced the value of a key that was present\n";
    assert_eq!((ran.out.as_str(), ran.err.as_str()), (told, ""));
}

#[test]
fn the_tour_loses_nothing() {
    let place = Place::new();
    let work = place.dir().to_str().unwrap().to_owned();
    let ran = place.run(&["tour", "--scale", "0.002", "--dir", &work, "--json", "tour.ndjson"]);
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    assert!(ran.out.contains("Lost: nothing."), "{}", ran.out);
    let lines = json_lines(&std::fs::read_to_string(place.path("tour.ndjson")).unwrap());
    let designs: BTreeSet<&str> =
        lines.iter().map(|line| line["design"].as_str().unwrap()).collect();
    let all = AnyTable::DESIGNS.iter().copied().chain(["dlht", "join"]);
    assert_eq!(designs, all.collect());
    for line in &lines {
        match line["design"].as_str().unwrap() {
            "dlht" => assert!(line["gets_per_second"].as_f64().unwrap() > 0.0, "{line}"),
            "join" => assert_eq!(line["found"], line["items"], "{line}"),
            _ => {
                assert_eq!(line["lost"], json!(0), "{line}");
                assert!(line["acknowledged"].as_u64().unwrap() >= 1500, "{line}");
            }
        }
    }
    assert!(ran.out.contains("Recommended tables"), "{}", ran.out);
    let left: Vec<_> =
        std::fs::read_dir(place.dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["tour.ndjson"], "the tour removes what it made");
}

#[test]
fn keys_to_remove_come_from_a_file_or_a_pipe() {
    let place = Place::new();
    filled(&place, 5000);
    let keys: String = (0..3000).map(|key| format!("{key}\r\n")).collect();
    place.file("keys.txt", &keys);
    assert_eq!(place.ok(&["del", "t.ice", "--from", "keys.txt"]), "removed 3000\n");
    let ran = place.run_with_input(&["del", "t.ice", "--from", "-"], "3000\nx\n0\n3000\n4999");
    assert_eq!((ran.status, ran.out.as_str()), (Some(1), "removed 2\n"), "{}", ran.err);
    assert!(
        ran.err.starts_with("line 2: `x` is not a valid u64") && ran.err.contains("0: absent"),
        "{}",
        ran.err
    );
    assert!(place.ok(&["check", "t.ice"]).contains("1998 records"));
    place.fails(2, &["del", "t.ice"]);
    place.fails(2, &["del", "t.ice", "1", "--from", "keys.txt"]);
    place.fails(2, &["del", "t.ice", "--from", "nowhere.txt"]);
}

#[test]
fn shells_and_man_know_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.ok(&["completions", shell]);
        assert!(script.contains("on-duplicate"), "{shell}");
    }
    assert_eq!(place.ok(&["man", "man1"]).lines().count(), 1);
    for page in ["icefield.1", "icefield-load.1"] {
        let text = std::fs::read_to_string(place.path("man1").join(page)).unwrap();
        assert!(text.contains(".SH") && text.contains("icefield"), "{page}");
    }
    let pages: Vec<_> = std::fs::read_dir(place.path("man1")).unwrap().flatten().collect();
    assert!(pages.iter().all(|page| !page.file_name().to_string_lossy().contains("tour-child")));
}
