//! The commands of `icefield-sql`, as users run them.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod commands {
    mod large;
    mod messages;
    mod nulls;
    mod partitions;
}

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// A temporary directory, in which the program runs.
struct Place(TempDir);

/// The result of a run.
struct Ran {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_icefield-sql"));
        command.args(args).current_dir(self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        let output = self.command(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs a command that must succeed without output on standard error.
    fn ok(&self, args: &[&str]) -> String {
        let Ran { status, out, err } = self.run(args);
        assert_eq!((status, err.as_str()), (Some(0), ""), "{args:?}: {out}");
        out
    }

    /// Runs a command that must fail with `status`. Returns its message.
    fn fails(&self, status: i32, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.status, Some(status), "{args:?}: {} {}", ran.out, ran.err);
        assert!(!ran.err.contains("panicked"), "{args:?}: {}", ran.err);
        ran.err
    }

    fn json(&self, args: &[&str]) -> Value {
        let out = self.ok(&[args, &["--json", "-"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{out}: {error}"))
    }

    /// Returns the names of everything in the directory.
    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Two tables and an index of the second one.
    fn with_tables() -> Self {
        let place = Self::new();
        place.file("l.csv", "k,a\n1,x\n2,y\n,z\n2,w\n9,v\n");
        place.file("r.csv", "k,b\n2,p\n1,q\n2,r\n,s\n5,t\n");
        place.ok(&["build-index", "r.csv", "--on", "k", "--include", "b"]);
        place
    }
}

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().skip(1).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn the_commands_have_help() {
    let place = Place::new();
    assert!(place.ok(&["--help"]).contains("icefield-sql build-index"));
    for command in ["build-index", "update-index", "inspect", "join", "query"] {
        let help = place.ok(&[command, "--help"]);
        assert!(
            help.contains("--json") && help.contains(&format!("icefield-sql {command} ")),
            "{help}"
        );
    }
}

#[test]
fn every_kind_of_join() {
    let place = Place::with_tables();
    let join = |more: &[&str]| place.ok(&[&["join", "l.csv", "--index", "r.ice"], more].concat());
    assert_eq!(join(&[]), "5\n");
    assert_eq!(join(&["--count", "--threads", "1"]), "5\n");
    assert_eq!(lines(&join(&["--semi"])), ["1,x", "2,w", "2,y"]);
    assert_eq!(lines(&join(&["--anti"])), [",z", "9,v"]);
    let pairs = ["1,x,1,q", "2,w,2,p", "2,w,2,r", "2,y,2,p", "2,y,2,r"];
    assert_eq!(lines(&join(&["--inner"])), pairs);
    assert_eq!(lines(&join(&["--left"])), [&[",z,,"][..], &pairs, &["9,v,,"]].concat());
    assert_eq!(lines(&join(&["--right"])), [&[",,,s", ",,5,t"][..], &pairs].concat());
    assert_eq!(lines(&join(&["--full"])).len(), 9);
    let selected = join(&["--select", "b,left.k,r.k"]);
    assert!(selected.starts_with("b,k,right.k\n"), "{selected}");
    assert_eq!(lines(&selected), ["p,2,2", "p,2,2", "q,1,1", "r,2,2", "r,2,2"]);
    for ending in ["parquet", "arrow", "ndjson", "tsv", "csv"] {
        let file = format!("o.{ending}");
        let told =
            place.json(&["join", "l.csv", "--index", "r.ice", "--select", "a,b", "-o", &file]);
        assert_eq!(told["rows"], 5);
        let sql = format!("SELECT count(*), min(a), max(b) FROM '{file}'");
        let answer = match ending {
            "tsv" | "ndjson" => {
                let table = format!("t={file}");
                place.ok(&["query", "SELECT count(*), min(a), max(b) FROM t", "--table", &table])
            }
            _ => place.ok(&["query", &sql]),
        };
        assert_eq!(lines(&answer), ["5,w,r"], "{ending}");
    }
}

#[test]
fn queries_use_indexes_and_say_why_not() {
    let place = Place::with_tables();
    let query = |sql: &str| place.run(&["query", sql, "--index", "r.ice", "--table", "l=l.csv"]);
    let explained = query("EXPLAIN SELECT a, b FROM l JOIN r ON l.k = r.k WHERE b > 'p'");
    assert_eq!(explained.status, Some(0), "{}", explained.err);
    assert!(
        explained
            .out
            .contains("IndexJoinExec: index=r (right), join_type=Inner, on=[k = k@0], predicate")
    );
    assert!(
        explained.err.contains("Inner join on k@0 = k@0: right side: index r"),
        "{}",
        explained.err
    );
    let explained = query("EXPLAIN SELECT count(*) FROM l JOIN r ON l.a = r.b");
    assert!(
        explained.err.contains("no index: left: no index of exactly these files"),
        "{}",
        explained.err
    );
    assert!(
        explained.err.contains("right: r: the join does not compare the key `k`"),
        "{}",
        explained.err
    );
    place.ok(&["build-index", "r.csv", "--on", "k", "--replace"]);
    let explained = query("EXPLAIN SELECT a, b FROM l JOIN r ON l.k = r.k");
    assert!(
        explained.err.contains("the index does not include the column `b`"),
        "{}",
        explained.err
    );
    let answer = query("SELECT sum(l.k * r.k) FROM l JOIN r ON l.k = r.k");
    assert_eq!((answer.status, lines(&answer.out)), (Some(0), vec!["17"]), "{}", answer.err);
}

#[test]
fn rows_are_looked_up_by_key() {
    let place = Place::new();
    let rows: String = (0..3000).map(|at| format!("{},{},v{at}\n", at % 1000, at % 7)).collect();
    place.file("t.csv", format!("k,j,v\n{rows}"));
    place.ok(&["build-index", "t.csv", "--on", "k", "--include", "v", "--index", "one.ice"]);
    place.ok(&[
        "build-index",
        "t.csv",
        "--on",
        "k,j",
        "--include",
        "v",
        "--index",
        "two.ice",
        "--partitions",
        "4",
    ]);
    let query = |sql: &str| place.run(&["query", sql, "--index", "one.ice", "--index", "two.ice"]);
    for (filter, found, expected) in [
        ("k = 7", Some(3), 3),
        ("7 = k AND v <> 'v7'", Some(3), 2),
        ("k IN (7, 8, 9, 10, 5000)", Some(12), 12),
        ("k = 7 OR k = 9", Some(6), 6),
        ("k = 7 OR v = 'v9'", None, 4),
        ("k > 7 AND k < 9", None, 3),
        ("k <> 7", None, 2997),
        ("k = 5000", Some(0), 0),
    ] {
        let sql = format!("SELECT count(*) FROM indexes.one WHERE {filter}");
        let answer = query(&sql);
        assert_eq!(lines(&answer.out), [expected.to_string()], "{filter}: {}", answer.err);
        let explained = query(&format!("EXPLAIN {sql}")).out;
        let looked_up = found.map(|found: i32| format!("rows looked up={found}"));
        let is_empty_plan = explained.contains("EmptyExec");
        assert!(
            is_empty_plan
                || looked_up.is_some_and(|text| explained.contains(&text))
                || found.is_none(),
            "{filter}: {explained}"
        );
        assert_eq!(
            explained.contains("looked up"),
            found.is_some() && !is_empty_plan,
            "{explained}"
        );
    }
    let sql = "SELECT k, j FROM indexes.two WHERE k IN (3, 5) AND (j = 3 OR j = 6) ORDER BY k, j";
    let answer = query(sql);
    let expected: Vec<String> = (0..3000)
        .filter(|at| [3, 5].contains(&(at % 1000)) && [3, 6].contains(&(at % 7)))
        .map(|at| format!("{},{}", at % 1000, at % 7))
        .collect();
    let mut expected: Vec<_> = expected.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(lines(&answer.out), expected, "{}", answer.err);
    assert!(query(&format!("EXPLAIN {sql}")).out.contains("looked up"));
    let answer = query("SELECT count(*) FROM indexes.two JOIN indexes.one ON two.k = one.k");
    assert_eq!(lines(&answer.out), ["9000"], "{}", answer.err);
}

#[test]
fn names_are_taken_as_they_are() {
    let place = Place::new();
    let names = [
        "a%20b.csv",
        "a b.csv",
        "x[1].csv",
        "x1.csv",
        "y*.csv",
        "yy.csv",
        "z?.csv",
        "a:b.csv",
        "é'\".csv",
    ];
    for (at, name) in names.iter().enumerate() {
        place.file(name, format!("k,v\n{at},{at}\n"));
    }
    place.file("p.csv", "k\n0\n1\n2\n3\n4\n5\n6\n7\n8\n");
    for (at, name) in names.iter().enumerate() {
        let index = format!("{at}.ice");
        let built =
            place.run(&["build-index", name, "--on", "k", "--include", "v", "--index", &index]);
        if built.status == Some(2) {
            // DataFusion has no address for the name.
            assert!(built.err.contains("cannot be indexed"), "{name}: {}", built.err);
            continue;
        }
        assert_eq!(built.status, Some(0), "{name}: {}", built.err);
        let found = place.ok(&["join", "p.csv", "--index", &index, "--select", "v"]);
        assert_eq!(lines(&found), [at.to_string()], "{name}");
        assert!(place.ok(&["update-index", &index]).contains("is up to date"), "{name}");
        // Other commands read the same file.
        let table = format!("t={name}");
        let sql = "SELECT t.v FROM t JOIN 'p.csv' AS p ON t.k = p.k";
        assert_eq!(
            lines(&place.ok(&["query", sql, "--table", &table])),
            [at.to_string()],
            "{name}"
        );
    }
}

#[test]
fn an_index_follows_its_files() {
    follow_files("1");
}

/// Builds an index of this number of partitions, and updates it when its files have changed.
fn follow_files(partitions: &str) {
    let place = Place::new();
    fs::create_dir(place.path("parts")).unwrap();
    for part in ["a", "b", "c"] {
        place.file(&format!("parts/{part}.csv"), format!("k,v\n1,{part}\n2,{part}\n"));
    }
    place.file("p.csv", "k\n1\n3\n");
    let built = place.json(&[
        "build-index",
        "parts/*.csv",
        "--on",
        "k",
        "--include",
        "*",
        "--index",
        "i.ice",
        "--partitions",
        partitions,
    ]);
    assert_eq!((&built["rows"], &built["rows_read"]), (&6.into(), &6.into()));
    let join = ["join", "p.csv", "--index", "i.ice", "--select", "v"];
    assert_eq!(lines(&place.ok(&join)), ["a", "b", "c"]);
    assert!(place.ok(&["update-index", "i.ice"]).contains("is up to date"));

    let modified = fs::metadata(place.path("parts/b.csv")).unwrap().modified().unwrap();
    place.file("parts/b.csv", "k,v\n1,b\n3,b\n3,bb\n");
    let told = place.fails(1, &join);
    assert!(
        told.contains("b.csv: has changed since it was indexed: its length, from 12 to 17 bytes"),
        "{told}"
    );
    assert!(told.contains("--replace") && told.contains("--allow-stale"), "{told}");
    assert_eq!(lines(&place.ok(&[&join[..], &["--allow-stale"]].concat())), ["a", "b", "c"]);
    assert_eq!(place.run(&["inspect", "i.ice"]).status, Some(1));
    let updated = place.json(&["update-index", "i.ice"]);
    assert_eq!((&updated["rows"], &updated["rows_read"]), (&7.into(), &3.into()));
    assert_eq!(lines(&place.ok(&join)), ["a", "b", "b", "bb", "c"]);

    fs::remove_file(place.path("parts/a.csv")).unwrap();
    assert!(place.fails(1, &join).contains("is gone"));
    place.file("parts/d.csv", "k,v\n3,d\n");
    let updated = place.json(&["update-index", "i.ice"]);
    assert_eq!((&updated["rows"], &updated["rows_read"]), (&6.into(), &1.into()));
    assert_eq!(lines(&place.ok(&join)), ["b", "b", "bb", "c", "d"]);

    // The same length and contents at another time, and other contents of the same length at the same time.
    place.file("parts/b.csv", "k,v\n1,b\n3,b\n3,bb\n");
    let file = File::options().write(true).open(place.path("parts/b.csv")).unwrap();
    file.set_modified(modified + Duration::from_secs(5)).unwrap();
    assert!(place.fails(1, &join).contains("its time of modification"));
    place.file("other.csv", "k,v\n1,o\n");
    let updated = place.json(&["update-index", "i.ice", "other.csv"]);
    assert_eq!((&updated["rows"], &updated["rows_read"]), (&7.into(), &4.into()));
    assert_eq!(lines(&place.ok(&join)), ["b", "b", "bb", "c", "d", "o"]);
    place.file("parts/e.csv", "k,v\n1,e\n");
    let told = place.fails(1, &join);
    assert!(told.contains("1 of its files are new") && told.contains("parts/e.csv"), "{told}");
    let inspected = place.run(&["inspect", "i.ice"]);
    assert!(
        inspected.status == Some(1) && inspected.out.contains("parts/e.csv, new"),
        "{}",
        inspected.out
    );
    assert_eq!(lines(&place.ok(&[&join[..], &["--allow-stale"]].concat())).len(), 6);
    fs::remove_file(place.path("parts/e.csv")).unwrap();
    let inspected = place.ok(&["inspect", "i.ice"]);
    assert!(
        inspected.contains("keys          k") && inspected.contains("other.csv, 1 rows, unchanged"),
        "{inspected}"
    );
    assert!(inspected.contains(&format!("partitions    {partitions}")), "{inspected}");
    assert_eq!(place.names().len(), 4, "{:?}", place.names());
}

#[test]
fn dialects_and_compression() {
    let place = Place::new();
    place.file("p.tbl", "1|one|\n2||\n");
    let options = ["--no-header", "--on", "column_1", "--include", "column_2"];
    place.ok(&[&["build-index", "p.tbl"], &options[..]].concat());
    place.file("l.tsv", "k\tv\n1\t\"a\tb\"\n2\tc\n");
    let join = ["join", "l.tsv", "--index", "p.ice", "--on", "k", "--select", "v,column_2"];
    assert_eq!(lines(&place.ok(&join)), ["a\tb,one", "c,"]);
    let gzipped = {
        let mut child = Command::new("gzip")
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"k,v\n1,x\n7,y\n").unwrap();
        child.wait_with_output().unwrap().stdout
    };
    place.file("l.csv.gz", gzipped);
    let join = ["join", "l.csv.gz", "--index", "p.ice", "--on", "k", "--semi"];
    assert_eq!(lines(&place.ok(&join)), ["1,x"]);
    place.file("l.ndjson", "{\"k\": 2, \"v\": \"x\"}\n{\"k\": 4}\n");
    let join = ["join", "l.ndjson", "--index", "p.ice", "--on", "k"];
    assert_eq!(place.ok(&join), "1\n");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let told = Place::new().fails(2, &["query", "SELECT 1", "--memory", "0"]);
    assert!(told.contains("more than 0"), "{told}");
    let place = Place::with_tables();
    place.file("short.csv", "k,v\n1,x\n2\n");
    place.file("empty.csv", "");
    place.file("late.csv", format!("k\n{}one\n", "1\n".repeat(1_100_000)));
    place.file("bytes.csv", b"k\n\xff\n");
    place.file("false.parquet", "PAR1 not at all");
    place.file("odd.ndjson", "{\"f\": 1.5, \"l\": [1], \"t\": \"1\"}\n");
    place.file("noending", "k\n1\n");
    let before = place.names();
    for (status, what, line) in [
        (2, "--on: r.csv has no column `x`; it has k, b", "build-index r.csv --on x --replace"),
        (2, "--include: r.csv has no column `y`", "build-index r.csv --on k --include y --replace"),
        (2, "already exists; --replace", "build-index r.csv --on k"),
        (2, "none.csv: no such file", "build-index none.csv --on k"),
        (2, "name it with --format", "build-index noending --on k --index n.ice"),
        (2, "floats cannot be keys", "build-index odd.ndjson --on f"),
        (2, "cannot be a key", "build-index odd.ndjson --on l"),
        (2, "for CSV", "build-index odd.ndjson --on t --delimiter ;"),
        (2, "is not a join index", "build-index r.csv --on k --replace --index .."),
        (2, "name the directory", "build-index *.csv --on k"),
        (1, "short.csv", "build-index short.csv --on k"),
        (1, "late.csv", "build-index late.csv --on k"),
        (1, "bytes.csv", "build-index bytes.csv --on k"),
        (1, "false.parquet", "build-index false.parquet --on k"),
        (2, "outlive", "build-index r.csv --on k --durability memory --replace"),
        (2, "no such index", "join l.csv --index none.ice"),
        (2, "is a file, not an index", "join l.csv --index l.csv"),
        (2, "no column `x`", "join l.csv --on x --index r.ice"),
        (2, "the index has the keys k", "join l.csv --on k,a --index r.ice"),
        (2, "no column `z`", "join l.csv --select z --index r.ice"),
        (2, "left.k or right.k", "join l.csv --select k --index r.ice"),
        (2, "cannot be used with", "join l.csv --semi --anti --index r.ice"),
        (2, "writes no rows", "join l.csv -o x.csv --index r.ice"),
        (2, "standard output", "join l.csv --semi --json - --index r.ice"),
        (2, "the ending determines the format", "join l.csv --semi -o x.txt --index r.ice"),
        (2, "reads or writes", "join l.csv --semi -o l.csv --index r.ice"),
        (2, "NAME=FILE", "query x --table l"),
        (2, "Line: 1, Column: 7", "query SELECT,"),
        (2, "--memory", "query x --memory lots"),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let told = place.fails(status, &args);
        assert!(told.contains(what), "{line}: {told}");
        assert_eq!(place.names(), before, "{line}");
    }
}

#[test]
fn damaged_indexes_are_refused() {
    let place = Place::with_tables();
    let join = ["join", "l.csv", "--index", "r.ice", "--select", "b"];
    place.ok(&join);
    for name in ["columns.arrow", "source.json", "base-1.ice", "table.ice"] {
        let path = place.path("r.ice").join(name);
        let good = fs::read(&path).unwrap();
        for at in (0..good.len()).step_by(good.len() / 40 + 1) {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            fs::write(&path, &bad).unwrap();
            let ran = place.run(&join);
            assert!(
                matches!(ran.status, Some(0..=2)),
                "{name} at {at}: {:?} {}",
                ran.status,
                ran.err
            );
            assert!(!ran.err.contains("panicked"), "{name} at {at}: {}", ran.err);
            assert!(name != "source.json" || ran.status != Some(0), "{at}");
            let checked = place.run(&["inspect", "r.ice", "--check"]);
            assert!(matches!(checked.status, Some(1 | 2)), "{name} at {at}: {}", checked.out);
        }
        for length in [0, good.len() / 2, good.len() - 1] {
            fs::write(&path, &good[..length]).unwrap();
            let ran = place.run(&join);
            assert!(
                matches!(ran.status, Some(0..=2)),
                "{name} of {length}: {:?} {}",
                ran.status,
                ran.err
            );
            assert!(!ran.err.contains("panicked"), "{name} of {length}: {}", ran.err);
        }
        fs::write(&path, &good).unwrap();
    }
    place.ok(&join);
    assert!(place.ok(&["inspect", "r.ice", "--check"]).contains("no damage"));
}

#[test]
fn damaged_ranks_are_refused() {
    let place = Place::new();
    let rows: String = (0..2000).map(|key| format!("{key},{}\n", key % 7)).collect();
    place.file("r.csv", format!("k,b\n{rows}"));
    place.ok(&["build-index", "r.csv", "--on", "k", "--include", "b"]);
    let join = ["join", "r.csv", "--index", "r.ice", "--on", "k", "--select", "right.b"];
    let expected = place.ok(&join);
    let path = place.path("r.ice/ranks.bin");
    let good = fs::read(&path).unwrap();
    let mut refused = 0;
    for at in (0..good.len()).step_by(good.len() / 15 + 1) {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        fs::write(&path, &bad).unwrap();
        let told = place.fails(1, &join);
        assert!(told.contains("ranks.bin: damaged"), "at {at}: {told}");
        assert_eq!(place.run(&["inspect", "r.ice", "--check"]).status, Some(1));
        refused += 1;
    }
    println!("{refused} damaged files are refused");
    fs::remove_file(&path).unwrap();
    assert!(place.fails(2, &join).contains("ranks.bin"));
    fs::write(&path, &good).unwrap();
    assert_eq!(place.ok(&join), expected);
}

#[test]
fn a_killed_build_leaves_the_old_index_or_the_new_one() {
    let place = Place::new();
    for rows in [300, 500] {
        let keys: String = (0..rows).map(|key| format!("{key}\n")).collect();
        place.file(&format!("{rows}.csv"), format!("k\n{keys}"));
    }
    place.ok(&["build-index", "300.csv", "--on", "k", "--index", "x.ice"]);
    let (mut old, mut new) = (0, 0);
    for round in 0..16 {
        let before = place.json(&["inspect", "x.ice"])["pairs"].as_u64().unwrap();
        let other = if before == 300 { "500.csv" } else { "300.csv" };
        let partitions = if round % 2 == 0 { "1" } else { "3" };
        let args = ["build-index", other, "--on", "k", "--index", "x.ice", "--replace"];
        let args = [&args[..], &["--partitions", partitions]].concat();
        let mut child = place.command(&args).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(round * 12));
        child.kill().unwrap();
        child.wait().unwrap();
        let pairs = place.json(&["inspect", "x.ice"])["pairs"].as_u64().unwrap();
        let file = format!("{pairs}.csv");
        assert_eq!(place.ok(&["join", &file, "--index", "x.ice"]), format!("{pairs}\n"));
        if pairs == before { old += 1 } else { new += 1 }
    }
    println!("16 builds killed: {old} times the old index, {new} times the new one");
    place.ok(&["build-index", "300.csv", "--on", "k", "--index", "x.ice", "--replace"]);
    assert_eq!(place.names(), ["300.csv", "500.csv", "x.ice"].map(String::from).into());
}
