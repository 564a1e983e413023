//! `icefield join`: indexes of CSV and Parquet files, and joins through them, compared with nested loops.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod join_commands {
    mod compressed;
    pub mod relations;
}
mod support;

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, Date32Array, DictionaryArray, Float64Array, Int8Array, Int16Array, Int64Array,
    ListArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt8Array, UInt64Array,
};
use join_commands::relations::{
    build, check_all, count, csv_file, joined, names, names_column, ok, parquet, parquet_rows,
    texts,
};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use support::Place;
use tpchgen::generators::{LineItemGenerator, OrderGenerator};

#[test]
fn the_commands_have_help_and_bounds() {
    let place = Place::new();
    assert!(place.ok(&["join", "--help"]).contains("icefield join build-index"));
    for command in ["build-index", "run"] {
        let help = place.ok(&["join", command, "--help"]);
        assert!(
            help.contains("--json") && help.contains(&format!("icefield join {command} ")),
            "{help}"
        );
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(place.ok(&["completions", shell]).contains("build-index"), "{shell}");
    }
    place.file("rows.csv", "key,value\n1,2\n");
    for threads in ["0", "1025", "18446744073709551615", "18446744073709551616"] {
        place.fails(2, &["join", "run", "rows.csv", "--index", "i.ice", "--threads", threads]);
    }
}

#[test]
fn integers_of_all_kinds_join_by_value() {
    let place = Place::new();
    let keys: [&[Option<i128>]; 4] = [
        &[Some(7), None, Some(-1), Some(7), Some(i64::MIN as i128), Some(9), Some(0)],
        &[Some(u64::MAX as i128), Some(7), None, Some(i64::MAX as i128), Some(7), Some(7)],
        &[Some(7), Some(-1), None, Some(9), Some(9), Some(127), Some(-128), Some(7)],
        &[],
    ];
    let mut files: Vec<(String, usize)> = Vec::new();
    for (number, keys) in keys.iter().enumerate() {
        let of = |side: &str| texts(keys, side);
        for (side, header) in [("a", "k,a"), ("b", "k,b")] {
            let rows = of(side);
            csv_file(&place, &format!("{number}{side}.csv"), header, &rows);
            let signed: Vec<Option<i64>> =
                keys.iter().map(|key| key.and_then(|key| key.try_into().ok())).collect();
            let column: ArrayRef = match number {
                1 => Arc::new(
                    keys.iter().map(|key| key.map(|key| key as u64)).collect::<UInt64Array>(),
                ),
                2 => {
                    Arc::new(keys.iter().map(|key| key.map(|key| key as i8)).collect::<Int8Array>())
                }
                _ => Arc::new(Int64Array::from(signed)),
            };
            let columns = vec![("k", column), (side, names_column(&rows))];
            parquet(&place, &format!("{number}{side}.parquet"), columns);
        }
        files.extend(["csv", "parquet"].map(|form| (form.to_owned(), number)));
    }
    let (mut joins, mut pairs) = (0, 0);
    for (left_form, left) in &files {
        for (right_form, right) in &files {
            let (a, b) = (format!("{left}a.{left_form}"), format!("{right}b.{right_form}"));
            let rows = [&texts(keys[*left], "a")[..], &texts(keys[*right], "b")[..]];
            pairs += check_all(&place, &a, &b, rows);
            joins += 1;
        }
    }
    println!("{joins} joins of integers, {pairs} pairs");
    assert!(joins == 64 && pairs > 100);
}

/// A CSV file without keys has an unknown key type: a column of any type can be joined with its index.
#[test]
fn an_index_of_no_keys_joins_with_everything() {
    let place = Place::new();
    place.file("none.csv", "k,b\n");
    place.file("empty.csv", "k,b\n,x\n,y\n");
    let rows: Vec<Vec<String>> =
        [["ann", "1"], ["7", "2"], ["", "3"]].map(|row| row.map(str::to_owned).to_vec()).to_vec();
    csv_file(&place, "texts.csv", "k,a", &rows);
    let column: ArrayRef = Arc::new(StringArray::from(vec![Some("ann"), Some("7"), None]));
    parquet(&place, "texts.parquet", vec![("k", column), ("a", names_column(&rows))]);
    let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(0), Some(1), None]));
    parquet(&place, "days.parquet", vec![("k", days), ("a", names_column(&rows))]);
    for indexed in ["none.csv", "empty.csv"] {
        let built = build(&place, &[indexed, "--on", "k", "--index", "i.ice"]);
        assert!(built.contains("(no values)"), "{built}");
        for probing in ["texts.csv", "texts.parquet", "days.parquet"] {
            let run =
                |more: &[&str]| joined(&place, &[&[probing, "--index", "i.ice"], more].concat());
            assert_eq!(run(&["--count"]).trim(), "0", "{probing} {indexed}");
            assert_eq!(run(&["--anti"]).lines().count(), 1 + rows.len(), "{probing} {indexed}");
            assert_eq!(run(&["--semi"]).lines().count(), 1, "{probing} {indexed}");
            assert_eq!(run(&["--select", "a,right.b"]).lines().count(), 1, "{probing} {indexed}");
        }
        ok(&place, &["stat", "i.ice"]);
        fs::remove_dir_all(place.path("i.ice")).unwrap();
    }
    // An index that was built with an explicit key type keeps this type even without keys.
    build(&place, &["none.csv", "--on", "k", "--index", "i.ice", "--key-type", "integer"]);
    let refused = place.fails(1, &["join", "run", "texts.csv", "--index", "i.ice"]);
    assert!(refused.contains("integers are expected"), "{refused}");
}

#[test]
fn strings_join_by_their_bytes() {
    let place = Place::new();
    let rows = |keys: &[&str], what: &str| -> Vec<Vec<String>> {
        keys.iter()
            .enumerate()
            .map(|(at, key)| vec![(*key).into(), format!("{what}{at}")])
            .collect()
    };
    let left = rows(&["ann", "", "bob", "ann", "007", "é", "eve"], "a");
    let right = rows(&["eve", "ann", "7", "", "ann", "007", "é", "Ann", "x"], "b");
    csv_file(&place, "a.csv", "k,a", &left);
    csv_file(&place, "b.csv", "k,b", &right);
    let keys = |rows: &[Vec<String>]| -> Vec<Option<String>> {
        rows.iter().map(|row| Some(row[0].clone()).filter(|key| !key.is_empty())).collect()
    };
    let plain: ArrayRef = Arc::new(StringArray::from(keys(&left)));
    parquet(&place, "a.parquet", vec![("k", plain), ("a", names_column(&left))]);
    let right_keys = keys(&right);
    let dictionary: DictionaryArray<Int32Type> = right_keys.iter().map(Option::as_deref).collect();
    parquet(&place, "b.parquet", vec![("k", Arc::new(dictionary)), ("b", names_column(&right))]);
    let mut pairs = 0;
    for a in ["a.csv", "a.parquet"] {
        for b in ["b.csv", "b.parquet"] {
            pairs += check_all(&place, a, b, [&left, &right]);
        }
    }
    println!("4 joins of strings, {pairs} pairs");
    assert_eq!(pairs, 4 * 7);
}

#[test]
fn dates_and_timestamps_join_with_their_like() {
    let place = Place::new();
    let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(0), Some(10_957), None]));
    parquet(&place, "days.parquet", vec![("k", days)]);
    build(&place, &["days.parquet", "--on", "k"]);
    place.file("days.csv", "k\n2000-01-01\n1999-12-31\n1970-01-01\n");
    let of_days = ["--index", "days.ice"];
    assert_eq!(count(&place, &[&["days.csv"][..], &of_days].concat()), 2);
    assert_eq!(count(&place, &[&["days.parquet"][..], &of_days].concat()), 2);
    place.file("odd.csv", "k\n2000-01-01\ntoday\n");
    let refused = place.fails(1, &["join", "run", "odd.csv", "--index", "days.ice"]);
    assert!(refused.contains("odd.csv: line 3: `k` is `today`"), "{refused}");

    let micros = TimestampMicrosecondArray::from(vec![Some(1_000_001), None]);
    let utc: ArrayRef = Arc::new(micros.clone().with_timezone("+00:00"));
    let paris: ArrayRef = Arc::new(micros.clone().with_timezone("Europe/Paris"));
    parquet(&place, "utc.parquet", vec![("k", utc)]);
    parquet(&place, "paris.parquet", vec![("k", paris)]);
    parquet(&place, "local.parquet", vec![("k", Arc::new(micros))]);
    build(&place, &["utc.parquet", "--on", "k"]);
    assert_eq!(count(&place, &["paris.parquet", "--index", "utc.ice"]), 1);
    place.file("utc.csv", "k\n1970-01-01T00:00:01.000001Z\n1970-01-01T00:00:01Z\n");
    assert_eq!(count(&place, &["utc.csv", "--index", "utc.ice"]), 1);
    for other in ["local.parquet", "days.parquet"] {
        let refused = place.fails(2, &["join", "run", other, "--index", "utc.ice"]);
        assert!(refused.contains("timestamps in microseconds"), "{refused}");
    }
}

#[test]
fn many_duplicates_are_all_given() {
    let place = Place::new();
    let rows = |count: usize, keys: usize, what: &str| -> Vec<Vec<String>> {
        (0..count).map(|at| vec![(at * at % keys).to_string(), format!("{what}{at}")]).collect()
    };
    let (left, right) = (rows(700, 13, "a"), rows(500, 11, "b"));
    csv_file(&place, "a.csv", "k,a", &left);
    csv_file(&place, "b.csv", "k,b", &right);
    let pairs = check_all(&place, "a.csv", "b.csv", [&left, &right]);
    println!("{pairs} pairs of 700 and 500 rows");
    assert!(pairs > 30_000);
}

#[test]
fn more_pairs_than_are_found_at_once_come_in_order() {
    const ROWS: usize = 2100;
    let place = Place::new();
    for (file, column) in [("l.csv", "a"), ("r.csv", "b")] {
        let rows: String = (0..ROWS).map(|row| format!("5,{row}\n")).collect();
        place.file(file, &format!("k,{column}\n{rows}"));
    }
    build(&place, &["r.csv", "--on", "k"]);
    joined(&place, &["l.csv", "--index", "r.ice", "--select", "a,b", "-o", "out.csv"]);
    let given = fs::read_to_string(place.path("out.csv")).unwrap();
    let mut lines = given.lines().skip(1);
    for left in 0..ROWS {
        for right in 0..ROWS {
            assert_eq!(lines.next(), Some(format!("{left},{right}").as_str()));
        }
    }
    assert_eq!(lines.next(), None);
    println!("{} pairs of one key", ROWS * ROWS);
}

#[test]
fn a_changed_file_is_noticed() {
    let place = Place::new();
    place.file("a.csv", "k,v\n1,x\n2,y\n");
    build(&place, &["a.csv", "--on", "k"]);
    let run = ["join", "run", "a.csv", "--index", "a.ice"];
    ok(&place, &run);
    let stale = |change: &str| {
        let told = place.fails(1, &run);
        assert!(told.contains("a.csv: has changed since it was indexed"), "{told}");
        assert!(told.contains(change) && told.contains("--replace"), "{told}");
        assert_eq!(joined(&place, &[&run[2..], &["--allow-stale"]].concat()).trim(), "2");
    };
    let file = File::options().write(true).open(place.path("a.csv")).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.set_modified(modified + std::time::Duration::from_secs(5)).unwrap();
    stale("its time of modification");
    place.file("a.csv", "k,v\n1,x\n2,z\n");
    file.set_modified(modified).unwrap();
    stale("its contents");
    place.file("a.csv", "k,v\n1,x\n2,yy\n");
    stale("its length, from 12 to 13 bytes");
    build(&place, &["a.csv", "--on", "k", "--replace"]);
    ok(&place, &run);
    fs::rename(place.path("a.csv"), place.path("moved.csv")).unwrap();
    let gone = place.fails(1, &["join", "run", "moved.csv", "--index", "a.ice"]);
    assert!(gone.contains("is gone") && gone.contains("--source"), "{gone}");
    let moved = ["moved.csv", "--index", "a.ice", "--source", "moved.csv"];
    assert_eq!(count(&place, &moved), 2);
    assert_eq!(names(&place), ["a.ice", "moved.csv"].map(String::from).into());
}

#[test]
fn rows_that_are_gone_are_told() {
    let place = Place::new();
    place.file("a.csv", "k,v\n1,x\n2,y\n");
    build(&place, &["a.csv", "--on", "k"]);
    place.file("p.csv", "k\n2\n");
    place.file("a.csv", "k,v\n1,x\n");
    let run = ["join", "run", "p.csv", "--index", "a.ice", "--allow-stale", "--select", "v"];
    let told = place.fails(1, &[&run[..], &["-o", "out.csv"]].concat());
    assert!(told.contains("the index refers to row 1, but its file has 1 rows"), "{told}");
    assert_eq!(names(&place), ["a.csv", "a.ice", "p.csv"].map(String::from).into());
}

/// Creates files that cannot be joined, each for a different reason.
fn odd_files(place: &Place) {
    place.file("a.csv", "k,v,v\n1,x,y\n");
    place.file("short.csv", "k,v\n1,x\n2\n");
    place.file("open.csv", "k,v\n1,\"x\n2,y\n");
    place.file("empty.csv", "");
    place.file("text.csv", "k\none\n");
    place.file("large.csv", "k\n1\n99999999999999999999\n");
    fs::write(place.path("bytes.csv"), b"k\n\xff\n").unwrap();
    place.file("false.parquet", "PAR1 not at all");
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    let list: ArrayRef =
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)])]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    parquet(place, "odd.parquet", vec![("f", floats), ("l", list), ("t", text)]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    odd_files(&place);
    place.ok(&["create", "map.ice"]);
    build(&place, &["a.csv", "--on", "k"]);
    let before = names(&place);
    for (status, what, line) in [
        (2, "no column `x`; there are k, v, v", "join build-index a.csv --on x --replace"),
        (2, "several columns", "join build-index a.csv --on v --replace"),
        (2, "already exists; --replace", "join build-index a.csv --on k"),
        (2, "no such file", "join build-index none.csv --on k"),
        (2, "floats cannot be keys", "join build-index odd.parquet --on f"),
        (2, "cannot be a key", "join build-index odd.parquet --on l"),
        (2, "have types", "join build-index odd.parquet --on t --key-type text"),
        (2, "is not a join index", "join build-index a.csv --on k --replace --index map.ice"),
        (1, "short.csv: line 3: 1 fields", "join build-index short.csv --on k"),
        (1, "open.csv: line 2: a quote is never closed", "join build-index open.csv --on k"),
        (1, "no header", "join build-index empty.csv --on k"),
        (1, "line 2: `k` is not UTF-8", "join build-index bytes.csv --on k"),
        (1, "false.parquet", "join build-index false.parquet --on k"),
        (1, "line 2: `k` is `one`", "join build-index text.csv --on k --key-type integer"),
        (1, "line 3: an integer", "join build-index large.csv --on k --key-type integer"),
        (2, "sync mode", "join build-index text.csv --on k --durability every:5"),
        (2, "dash-eh table, not a join index", "join run a.csv --index map.ice"),
        (2, "no table here", "join run a.csv --index none.ice"),
        (2, "no column `x`", "join run a.csv --on x --index a.ice"),
        (2, "strings or bytes", "join run odd.parquet --on t --index a.ice"),
        (2, "floats", "join run odd.parquet --on f --index a.ice"),
        (1, "line 2: `k` is `one`, but integers", "join run text.csv --index a.ice"),
        (2, "no column `z`", "join run a.csv --select z --index a.ice"),
        (2, "left.k or right.k", "join run a.csv --select k --index a.ice"),
        (2, "cannot be used with", "join run a.csv --semi --anti --index a.ice"),
        (2, "writes no rows", "join run a.csv -o x.csv --index a.ice"),
        (2, "standard output", "join run a.csv --semi --json - --index a.ice"),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let told = place.fails(status, &args);
        assert!(told.contains(what), "{line}: {told}");
        assert_eq!(names(&place), before, "{line}");
    }
    place.file("list.csv", "t\n1\n");
    build(&place, &["list.csv", "--on", "t", "--key-type", "text"]);
    let run = ["join", "run", "odd.parquet", "--index", "list.ice", "--semi"];
    let told = place.fails(2, &run);
    assert!(told.contains("`l`") && told.contains(".parquet"), "{told}");
    ok(&place, &[&run[..], &["-o", "out.parquet"]].concat());
    assert_eq!(parquet_rows(&place.path("out.parquet")).1.len(), 1);
}

#[test]
fn other_commands_know_an_index() {
    let place = Place::new();
    place.file("a.csv", "k,v\n1,x\n,y\n1,z\n");
    let built = build(&place, &["a.csv", "--on", "k"]);
    assert!(built.contains("2 of 3 rows by `k` (integers)"), "{built}");
    let stat = place.ok(&["stat", "a.ice"]);
    assert!(
        stat.contains("join<i64>") && stat.contains("a.csv") && stat.contains("pairs         2")
    );
    assert!(place.ok(&["check", "a.ice"]).contains("2 records, no faults"));
    place.ok(&["backup", "a.ice", "b.ice"]);
    assert_eq!(count(&place, &["a.csv", "--index", "b.ice"]), 4);
    for command in [
        &["get", "a.ice", "1"][..],
        &["put", "a.ice", "1", "2"],
        &["scan", "a.ice"],
        &["export", "a.ice"],
        &["load", "a.ice", "a.csv"],
    ] {
        let told = place.fails(2, command);
        assert!(told.contains("a join index") && told.contains("icefield join run"), "{told}");
    }
    let told = place.fails(2, &["create", "d.ice", "--table", "join"]);
    assert!(told.contains("build-index"), "{told}");

    let base = place.path("b.ice").join("base-1.ice");
    let mut bytes = fs::read(&base).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&base, bytes).unwrap();
    let damaged = place.run(&["check", "b.ice"]);
    assert!(damaged.status == Some(1) && damaged.out.contains("DAMAGED"), "{}", damaged.out);
    // `salvage` advises to rebuild the index. The command that it prints works, whichever file is damaged.
    for damaged in ["base-1.ice", "table.ice"] {
        let file = place.path("b.ice").join(damaged);
        fs::write(&file, vec![7; fs::metadata(&file).unwrap().len() as usize]).unwrap();
        let told = place.fails(2, &["salvage", "b.ice", "c.ice"]);
        let (_, command) = told.split_once(": icefield ").unwrap();
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words[..2], ["join", "build-index"], "{told}");
        place.ok(&words);
        assert_eq!(count(&place, &["a.csv", "--index", "b.ice"]), 4);
    }
    assert!(place.ok(&["check", "b.ice"]).contains("2 records, no faults"));
}

#[test]
fn json_lines_tell_the_same() {
    let place = Place::new();
    place.file("a.csv", "k,v\n1,x\n,y\n1,z\n");
    let built = place.json(&["join", "build-index", "a.csv", "--on", "k", "--threads", "2"]);
    assert_eq!((&built[0]["rows"], &built[0]["pairs"]), (&3.into(), &2.into()));
    assert_eq!(built[0]["values"], "integers");
    let run = ["join", "run", "a.csv", "--index", "a.ice"];
    let counted = place.json(&run);
    assert_eq!((&counted[0]["rows"], &counted[0]["pairs"]), (&3.into(), &4.into()));
    assert_eq!(counted[0]["matched_rows"], 2);
    let told = place.run(&run);
    assert_eq!(told.out, "4\n");
    assert!(told.err.contains("3 rows probed, 2 of them matched, 4 pairs"), "{}", told.err);
    let anti = place.json(&[&run[..], &["--anti", "-o", "out.csv"]].concat());
    assert_eq!((&anti[0]["kind"], &anti[0]["written"]), (&"anti".into(), &1.into()));
    assert_eq!(fs::read_to_string(place.path("out.csv")).unwrap(), "k,v\n,y\n");
    let stat = place.json(&["stat", "a.ice"]);
    assert_eq!((&stat[0]["design"], &stat[0]["pairs"]), (&"join".into(), &2.into()));
}

#[test]
fn rows_come_through_pipes_and_links() {
    let place = Place::new();
    place.file("a.csv", "k,v\n1,x\n2,y\n");
    build(&place, &["a.csv", "--on", "k", "--index", "i.ice"]);
    let ran =
        place.run_with_input(&["join", "run", "-", "--index", "i.ice", "--semi"], "k\n2\n3\n");
    assert_eq!((ran.status, ran.out.as_str()), (Some(0), "k\n2\n"), "{}", ran.err);
    place.file("target.csv", "old");
    std::os::unix::fs::symlink("target.csv", place.path("link.csv")).unwrap();
    joined(&place, &["a.csv", "--index", "i.ice", "--semi", "-o", "link.csv"]);
    assert_eq!(fs::read_to_string(place.path("target.csv")).unwrap(), "k,v\n1,x\n2,y\n");
    joined(&place, &["a.csv", "--index", "i.ice", "--semi", "-o", "/dev/null"]);
    assert!(!Path::new("/dev/null").is_file());
    // If a file has no known extension, its first bytes determine its format.
    let narrow: ArrayRef = Arc::new(UInt8Array::from(vec![2, 2]));
    parquet(&place, "unnamed", vec![("k", narrow)]);
    assert_eq!(count(&place, &["unnamed", "--index", "i.ice"]), 2);
}

#[test]
fn leftovers_of_a_killed_build_are_removed() {
    let place = Place::new();
    place.file("a.csv", "k\n1\n");
    fs::create_dir_all(place.path(".a.ice.building-killed/table")).unwrap();
    fs::write(place.path(".a.ice.building-killed/table/base-0.ice"), "x").unwrap();
    let other = ".a.ice.building-plans";
    fs::create_dir(place.path(other)).unwrap();
    fs::write(place.path(other).join("house.txt"), "what no build makes stays").unwrap();
    build(&place, &["a.csv", "--on", "k"]);
    assert_eq!(names(&place), [other, "a.csv", "a.ice"].map(String::from).into());
}

#[test]
fn an_index_that_somebody_changes_is_not_replaced() {
    let place = Place::new();
    place.file("a.csv", "k\n1\n");
    build(&place, &["a.csv", "--on", "k"]);
    let index = icefield::JoinIndex::<i64>::open(place.path("a.ice")).unwrap();
    index.insert(1, 0).unwrap();
    let told = place.fails(1, &["join", "build-index", "a.csv", "--on", "k", "--replace"]);
    assert!(told.contains("in use by process"), "{told}");
    assert_eq!(count(&place, &["a.csv", "--index", "a.ice"]), 2);
    drop(index);
    build(&place, &["a.csv", "--on", "k", "--replace"]);
    assert_eq!(count(&place, &["a.csv", "--index", "a.ice"]), 1);
}

#[test]
fn a_killed_build_leaves_the_old_index_or_the_new_one() {
    let place = Place::new();
    for rows in [300, 500] {
        let keys: String = (0..rows).map(|key| format!("{key}\n")).collect();
        place.file(&format!("{rows}.csv"), &format!("k\n{keys}"));
    }
    build(&place, &["300.csv", "--on", "k", "--index", "x.ice"]);
    let (mut old, mut new) = (0, 0);
    for round in 0..24 {
        let before = place.json(&["stat", "x.ice"])[0]["pairs"].as_u64().unwrap();
        let other = if before == 300 { "500.csv" } else { "300.csv" };
        let args = ["join", "build-index", other, "--on", "k", "--index", "x.ice", "--replace"];
        let mut child = place.command(&args).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(round * 2));
        child.kill().unwrap();
        child.wait().unwrap();
        let stat = &place.json(&["stat", "x.ice"])[0];
        let (pairs, rows) = (stat["pairs"].as_u64().unwrap(), stat["rows"].as_u64().unwrap());
        assert_eq!(pairs, rows, "{stat}");
        let file = format!("{pairs}.csv");
        assert!(stat["file"].as_str().unwrap().ends_with(&file), "{stat}");
        assert_eq!(count(&place, &[&file, "--index", "x.ice", "--verify"]), pairs);
        if pairs == before { old += 1 } else { new += 1 }
    }
    println!("24 builds killed: {old} times the old index, {new} times the new one");
    build(&place, &["300.csv", "--on", "k", "--index", "x.ice", "--replace"]);
    assert_eq!(names(&place), ["300.csv", "500.csv", "x.ice"].map(String::from).into());
}

#[test]
fn interrupted_work_leaves_nothing() {
    let place = Place::new();
    place.file("a.csv", "k\n1\n");
    build(&place, &["a.csv", "--on", "k"]);
    let before = names(&place);
    // The pipe stays open, so the command waits for more.
    let args = ["join", "run", "-", "--index", "a.ice", "--semi", "-o", "out.csv"];
    let mut child = place.command(&args).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"k\n1\n").unwrap();
    assert!(support::handles_ctrl_c(child.id()), "the join never began");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ran = support::finish(child);
    assert_eq!(ran.status, Some(130), "{}", ran.err);
    assert!(ran.err.contains("nothing was written"), "{}", ran.err);
    assert_eq!(names(&place), before);
}

#[test]
fn tpch_orders_join_their_lines() {
    let place = Place::new();
    let scale = 0.002;
    let mut orders = String::from("o_orderkey,o_custkey,o_totalprice\n");
    let mut prices = std::collections::BTreeMap::new();
    for order in OrderGenerator::new(scale, 1, 1).iter() {
        let price = order.o_totalprice.to_string();
        orders += &format!("{},{},{price}\n", order.o_orderkey, order.o_custkey);
        prices.insert(order.o_orderkey, price);
    }
    place.file("orders.csv", &orders);
    let (mut keys, mut numbers) = (Vec::new(), Vec::new());
    for line in LineItemGenerator::new(scale, 1, 1).iter() {
        keys.push(line.l_orderkey);
        numbers.push(i16::try_from(line.l_linenumber).unwrap());
    }
    let key_column: ArrayRef = Arc::new(Int64Array::from(keys.clone()));
    let number_column: ArrayRef = Arc::new(Int16Array::from(numbers.clone()));
    let columns = vec![("l_orderkey", key_column), ("l_linenumber", number_column)];
    let records = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1000)).build();
    let file = File::create(place.path("lines.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, records.schema(), Some(properties)).unwrap();
    writer.write(&records).unwrap();
    writer.close().unwrap();

    build(&place, &["orders.csv", "--on", "o_orderkey"]);
    build(&place, &["lines.parquet", "--on", "l_orderkey"]);
    let lines = keys.len() as u64;
    println!("{} orders, {lines} lines", prices.len());
    assert!(lines > 10_000);
    let by_orders = ["lines.parquet", "--index", "orders.ice", "--on", "l_orderkey"];
    assert_eq!(count(&place, &by_orders), lines);
    assert_eq!(count(&place, &["orders.csv", "--index", "lines.ice", "--on", "o_orderkey"]), lines);
    let select = ["--select", "l_linenumber,orders.o_totalprice", "-o", "joined.parquet"];
    joined(&place, &[&by_orders[..], &select].concat());
    let expected: Vec<Vec<String>> = keys
        .iter()
        .zip(&numbers)
        .map(|(key, number)| vec![number.to_string(), prices[key].clone()])
        .collect();
    assert_eq!(parquet_rows(&place.path("joined.parquet")).1, expected);
}
