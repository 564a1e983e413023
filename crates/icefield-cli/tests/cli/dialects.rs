//! Round trips of `load` and `export`: dialects of CSV, compressed files, duplicates, types, columns.

use std::io::Write;

use serde_json::json;

use crate::support::Place;

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn rows_that_replace_others_are_told() {
    let place = Place::new();
    place.file("d.csv", "year,flight\n2013,UA1\n2013,UA2\n2014,UA3\n2015,UA4\n");
    let load = |table: &str, more: &[&str]| {
        let args: Vec<&str> =
            ["load", table, "d.csv", "--create"].iter().chain(more).copied().collect();
        let ran = place.run(&args);
        (ran.status, ran.out.lines().last().unwrap_or_default().to_owned(), ran.err)
    };
    let (status, out, err) = load("replace.ice", &[]);
    assert_eq!(out, "4 rows loaded, 1 of them replaced the value of a key that was present");
    assert_eq!((status, err.as_str()), (Some(0), ""), "a quarter of the rows");
    place.file("d.csv", "year,flight\n2013,UA1\n2013,UA2\n2013,UA3\n");
    let (_, _, err) = load("most.ice", &[]);
    assert!(err.contains("2 of 3 rows") && err.contains("--key-row-number"), "{err}");

    let (status, out, err) = load("keep.ice", &["--on-duplicate", "keep"]);
    assert_eq!(
        (status, out.as_str()),
        (Some(0), "1 rows loaded, 2 skipped: their keys were present")
    );
    assert!(err.contains("2 of 3 rows"), "{err}");
    assert_eq!(place.ok(&["get", "keep.ice", "2013"]), "UA1\n");
    let (status, _, err) = load("error.ice", &["--on-duplicate", "error"]);
    assert_eq!(status, Some(1));
    assert!(
        err.contains("line 3: the key 2013 is present") && err.contains("1 rows are durable"),
        "{err}"
    );
    assert_eq!(place.ok(&["get", "error.ice", "2013"]), "UA1\n");

    let (status, out, err) = load("numbers.ice", &["--key-row-number"]);
    assert_eq!((status, out.as_str(), err.as_str()), (Some(0), "3 rows loaded", ""));
    assert_eq!(place.ok(&["get", "numbers.ice", "3"]), "{\"year\":\"2013\",\"flight\":\"UA3\"}\n");
    // A second load assigns the same row numbers.
    assert!(load("numbers.ice", &["--key-row-number"]).1.contains("3 of them replaced"));
    assert!(load("x.ice", &["--key-row-number", "--key", "year"]).0 == Some(2));
}

#[test]
fn csv_has_dialects() {
    let place = Place::new();
    place.file("a.tsv", "id\tname\n1\tone, first\n");
    place.ok(&["load", "tsv.ice", "a.tsv", "--create"]);
    assert_eq!(place.ok(&["get", "tsv.ice", "1"]), "one, first\n");
    assert_eq!(
        place.ok(&["export", "tsv.ice", "--delimiter", "tab"]),
        "id\tname\n1\t\"one, first\"\n".replace('"', "")
    );
    place.file("semi.csv", "x;y\n1;a,b\n");
    let refusal = place.fails(2, &["load", "semi.ice", "semi.csv", "--create"]);
    assert!(refusal.contains("--delimiter ';'"), "{refusal}");
    assert!(!place.path("semi.ice").exists());
    place.ok(&["load", "semi.ice", "semi.csv", "--create", "--delimiter", ";"]);
    assert_eq!(place.ok(&["get", "semi.ice", "1"]), "a,b\n");
    place.file("bare.csv", "1,NA,x\n2,5,NA\n");
    place.ok(&["load", "bare.ice", "bare.csv", "--create", "--no-header", "--null", "NA"]);
    assert_eq!(place.ok(&["get", "bare.ice", "1"]), "{\"column2\":null,\"column3\":\"x\"}\n");
    let back = place.ok(&["export", "bare.ice", "--no-header", "--null", "NA"]);
    let mut back: Vec<&str> = back.lines().collect();
    back.sort_unstable();
    assert_eq!(back, ["1,NA,x", "2,5,NA"]);
    for wrong in ["", ";;", "\"", "é", "\n"] {
        place.fails(2, &["load", "semi.ice", "semi.csv", "--delimiter", wrong]);
    }
    place.file("a.ndjson", "{\"a\":1,\"b\":2}\n");
    place.fails(2, &["load", "semi.ice", "a.ndjson", "--null", "NA"]);
}

#[test]
fn a_file_without_types_says_why() {
    let place = Place::new();
    for (text, reason) in [
        ("", "no header"),
        ("id,name\n", "the input has no rows"),
        ("id,name\n1,a,b\n", "line 2: 3 fields, but the first line has 2"),
        ("id,name\n1,\"a\n2,b\n", "line 2: a quote is never closed"),
        ("\"id,name\n1,a\n", "line 1: a quote is never closed"),
        ("id,x,x\n1,2,3\n", "2 columns have the name `x`"),
    ] {
        place.file("bad.csv", text);
        let ran = place.run(&["load", "t.ice", "bad.csv", "--create"]);
        assert!(ran.err.contains(reason) && ran.status != Some(0), "{text:?}: {ran:?}");
        assert!(!place.path("t.ice").exists(), "{text:?}");
    }
    place.file("bad.ndjson", "[1]\n");
    let ran = place.run(&["load", "t.ice", "bad.ndjson", "--create"]);
    assert!(ran.err.contains("line 1: not a JSON object"), "{ran:?}");
}

#[test]
fn compressed_and_other_encodings_are_read() {
    let place = Place::new();
    let text = "id,name\n1,é\n2,漢\n";
    let utf16 = |bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        format!("\u{feff}{text}").encode_utf16().flat_map(bytes).collect()
    };
    let zstd = ruzstd::encoding::compress_to_vec(
        text.as_bytes(),
        ruzstd::encoding::CompressionLevel::Uncompressed,
    );
    for (name, bytes) in [
        ("a.csv.gz", gzip(text)),
        ("b.csv", gzip(text)),
        ("c.csv.zst", zstd),
        ("d.csv", utf16(u16::to_le_bytes)),
        ("e.csv", utf16(u16::to_be_bytes)),
        ("f.csv", format!("\u{feff}{text}").into_bytes()),
    ] {
        std::fs::write(place.path(name), bytes).unwrap();
        let table = format!("{name}.ice");
        place.ok(&["load", &table, name, "--create"]);
        assert_eq!(place.ok(&["get", &table, "1", "2"]), "1\té\n2\t漢\n", "{name}");
    }
    std::fs::write(place.path("g.ndjson.gz"), gzip("{\"a\":1,\"b\":2}\n")).unwrap();
    place.ok(&["load", "g.ice", "g.ndjson.gz", "--create"]);
    assert_eq!(place.ok(&["get", "g.ice", "1"]), "2\n");
    std::fs::write(place.path("h.csv"), b"PAR1\x15\x04").unwrap();
    let refusal = place.fails(2, &["load", "h.ice", "h.csv", "--create"]);
    assert!(refusal.contains("icefield-sql build-index"), "{refusal}");
    assert!(!place.path("h.ice").exists());
    let whole = gzip(text);
    std::fs::write(place.path("i.csv.gz"), &whole[..whole.len() - 9]).unwrap();
    assert_eq!(place.run(&["load", "i.ice", "i.csv.gz", "--create"]).status, Some(1));
}

#[test]
fn guessed_types_change_no_value() {
    let place = Place::new();
    for (name, column, guessed) in [
        ("a", ["1.5", "10"], "str"),
        ("b", ["1.5", "1e400"], "str"),
        ("c", ["1.5", "12345678901234567890123"], "str"),
        ("d", ["1.5", "-2.0"], "f64"),
        ("e", ["1", "2"], "u64"),
        ("f", ["1", "02"], "str"),
    ] {
        let (file, table) = (format!("{name}.csv"), format!("{name}.ice"));
        place.file(&file, &format!("k,v\n1,{}\n2,{}\n", column[0], column[1]));
        let made = place.ok(&["load", &table, &file, "--create"]);
        assert!(made.contains(&format!("<u64, {guessed}>")), "{column:?}: {made}");
        let back = place.ok(&["get", &table, "1", "2"]);
        assert_eq!(back, format!("1\t{}\n2\t{}\n", column[0], column[1]));
    }
    // The types are inferred from the first rows. Later rows have values that do not fit these types.
    let rows: String = (0..1500).map(|row| format!("{row},{row}.5\n")).collect();
    place.file("long.csv", &format!("k,v\n{rows}1500,7\n0x5dd,1.5\n"));
    for _ in 0..2 {
        let ran = place.run(&["load", "long.ice", "long.csv", "--create"]);
        assert_eq!(ran.status, Some(1), "{ran:?}");
        assert!(ran.err.contains("line 1502: value: `7` would become `7.0`"), "{}", ran.err);
        assert!(ran.err.contains("line 1503: key: `0x5dd` would become `1501`"), "{}", ran.err);
    }
    let given =
        ["load", "long.ice", "long.csv", "--create", "--key-type", "u64", "--value-type", "f64"];
    assert_eq!(place.run(&given).status, Some(0));
    place.file("inf.csv", "k,v\n1,1e400\n");
    assert!(place.run(&["load", "long.ice", "inf.csv"]).err.contains("`1e400` is not a valid f64"));
}

#[test]
fn a_file_comes_back_with_its_columns() {
    let place = Place::new();
    let text = "name,id,price,note\nann,1,1.50,\"a, \"\"b\"\"\"\nbob,2,007,\nc,3,,\u{1b}x\n";
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines[1..].sort_unstable();
        lines
    };
    place.file("orders.csv", text);
    place.ok(&["load", "t.ice", "orders.csv", "--create", "--key", "id"]);
    assert_eq!(sorted(&place.ok(&["export", "t.ice"])), sorted(text));
    place.ok(&["export", "t.ice", "orders.ndjson"]);
    let json = std::fs::read_to_string(place.path("orders.ndjson")).unwrap();
    assert!(json.contains("{\"name\":\"ann\",\"id\":1,\"price\":\"1.50\""), "{json}");
    assert!(place.ok(&["export", "t.ice", "--raw"]).starts_with("key,value\n"));
    // Backups and salvaged tables have the columns too.
    place.ok(&["backup", "t.ice", "copy.ice"]);
    place.ok(&["salvage", "t.ice", "rescued.ice"]);
    for copy in ["copy.ice", "rescued.ice"] {
        assert_eq!(sorted(&place.ok(&["export", copy])), sorted(text), "{copy}");
    }
    // The first table stores two of the columns; the second stores all of them, with row numbers as keys.
    let two = ["load", "two.ice", "orders.csv", "--create", "--key", "id", "--value", "name"];
    place.ok(&two);
    assert_eq!(sorted(&place.ok(&["export", "two.ice"])), ["name,id", "ann,1", "bob,2", "c,3"]);
    place.ok(&["load", "numbers.ice", "orders.csv", "--create", "--key-row-number"]);
    assert_eq!(sorted(&place.ok(&["export", "numbers.ice"])), sorted(text));
    // For JSON, members that only later objects have are kept.
    let rows = "{\"id\":1,\"a\":{\"b\":[1]},\"d\":0}\n{\"id\":2,\"c\":1.50,\"a\":null}\n";
    place.file("more.ndjson", rows);
    place.ok(&["load", "more.ice", "more.ndjson", "--create"]);
    let back = place.ok(&["export", "more.ice", "--format", "ndjson"]);
    assert!(
        back.contains("{\"id\":1,\"a\":{\"b\":[1]},\"d\":0}\n")
            && back.contains("{\"id\":2,\"a\":null,\"c\":1.50}"),
        "{back}"
    );
}

#[test]
fn records_of_other_columns_are_told_by_key() {
    let place = Place::new();
    place.file("rows.csv", "id,a,b\n1,x,y\n2,z,w\n");
    place.ok(&["load", "t.ice", "rows.csv", "--create"]);
    place.ok(&["put", "t.ice", "3", "just text"]);
    place.ok(&["put", "t.ice", "4", "{\"a\":\"1\",\"c\":\"2\"}"]);
    let ran = place.run(&["export", "t.ice", "out.csv", "--json", "told.ndjson"]);
    assert_eq!((ran.status, ran.out.as_str()), (Some(1), "out.csv: 2 records, 2 left out\n"));
    assert!(ran.err.contains("record 3: ") && ran.err.contains("record 4: "), "{}", ran.err);
    place.ok(&["export", "t.ice", "--raw"]);
    // Loading rows with other columns removes the stored columns.
    place.file("other.csv", "id,a\n5,x\n");
    let ran = place.run(&["load", "t.ice", "other.csv"]);
    assert!(ran.status == Some(0) && ran.err.contains("other columns"), "{ran:?}");
    assert!(place.ok(&["export", "t.ice"]).starts_with("key,value\n"));
}

#[test]
fn one_row_cannot_take_all_memory() {
    let place = Place::new();
    place.ok(&["create", "t.ice", "--value", "str"]);
    let long = "x".repeat(17 << 20);
    place.file("long.csv", &format!("key,value\n1,a\n2,{long}\n3,c\n"));
    let ran = place.run(&["load", "t.ice", "long.csv"]);
    assert_eq!((ran.status, ran.out.as_str()), (Some(1), "2 rows loaded, 1 rejected\n"));
    assert!(ran.err.contains("line 3: the value has 17825792 bytes"), "{}", ran.err);
    let lines = place.json(&["scan", "t.ice"]);
    assert_eq!(lines.len(), 2);
    assert!(lines.contains(&json!({"key": 3, "value": "c"})));
}

/// Loads the longest key and value with each byte written as six characters.
#[test]
fn the_longest_record_is_loaded_from_escapes() {
    let place = Place::new();
    let text = "\\u0001".repeat(16 << 20);
    place.file("long.ndjson", &format!("{{\"key\":\"{text}\",\"value\":\"{text}\"}}\n"));
    let out = place.ok(&["load", "t.ice", "long.ndjson", "--create"]);
    assert!(out.ends_with("\n1 rows loaded\n"), "{out}");
}
