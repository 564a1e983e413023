//! `icefield salvage`: the salvaged records, the damaged ones, and the reports about them.

use std::path::PathBuf;

use icefield::{AnyTable, JoinIndex};
use serde_json::{Value, json};

use super::outputs::names;
use crate::support::{Place, finish, handles_ctrl_c, json_lines};

/// Returns the file in which a table stores its values.
fn bytes_file(place: &Place) -> PathBuf {
    let mut files =
        ["blobs.ice", "payload.ice"].map(|name| place.path("m.ice").join(name)).into_iter();
    files.find(|path| path.exists()).unwrap()
}

/// Creates a table of two records and damages the value of the first.
fn damaged(place: &Place, design: &str) {
    place.file("m.csv", "id,name\n1,Alice in Wonderland\n2,Bob\n");
    place.ok(&["load", "m.ice", "m.csv", "--create", "--table", design]);
    let file = bytes_file(place);
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(6).position(|some| some == b"Wonder").unwrap();
    bytes[at] = b'X';
    std::fs::write(&file, bytes).unwrap();
}

#[test]
fn damaged_records_are_listed_left_out_and_kept() {
    for design in AnyTable::DESIGNS {
        let place = Place::new();
        damaged(&place, design);
        assert_eq!(place.run(&["check", "m.ice"]).status, Some(1), "{design}");
        // Reads report the damaged record and return the others.
        let ran = place.run(&["get", "m.ice", "1", "2"]);
        assert_eq!((ran.status, ran.out.as_str()), (Some(1), "2\tBob\n"), "{design}: {ran:?}");
        assert!(ran.err.starts_with("1: damaged: "), "{}", ran.err);
        for (command, out) in [("scan", "2\tBob\n"), ("export", "id,name\n2,Bob\n")] {
            let ran = place.run(&[command, "m.ice"]);
            assert_eq!((ran.status, ran.out.as_str()), (Some(1), out), "{design}: {ran:?}");
            assert!(
                ran.err.starts_with("record 1: ") && ran.err.contains("checksum"),
                "{}",
                ran.err
            );
        }
        let args = ["salvage", "m.ice", "m2.ice", "--keep-damaged", "left.ndjson"];
        let ran = place.run(&args);
        assert_eq!((ran.status, ran.err.as_str()), (Some(1), ""), "{design}: {ran:?}");
        let [damaged, count] = ran.out.lines().collect::<Vec<_>>()[..] else { panic!("{ran:?}") };
        assert!(
            damaged.starts_with("damaged: record 1: ") && damaged.ends_with("wrong"),
            "{damaged}"
        );
        let told = "1 records rescued, 1 damaged (in left.ndjson), 0 other losses";
        assert_eq!(count, format!("m2.ice: {told}"));
        let left = json_lines(&std::fs::read_to_string(place.path("left.ndjson")).unwrap());
        let [left] = &left[..] else { panic!("{design}: {left:?}") };
        assert_eq!((&left["key"], &left["stored_key"]), (&json!(1), &json!("0x0100000000000000")));
        assert_eq!(
            left["stored_value"],
            json!("0x416c69636520696e20586f6e6465726c616e64"),
            "{design}"
        );
        assert!(left["reason"].as_str().unwrap().contains("checksum"), "{left}");
        assert!(!left["where"].as_str().unwrap().is_empty(), "{left}");
        assert!(place.ok(&["check", "m2.ice"]).contains("1 records, no faults"));
        // The columns are copied too.
        assert_eq!(place.ok(&["export", "m2.ice"]), "id,name\n2,Bob\n", "{design}");

        let line = &place.json(&["salvage", "m.ice", "m3.ice"])[0];
        assert_eq!((&line["records"], &line["damaged"]), (&json!(1), &json!(1)), "{line}");
        assert_eq!(line["lost"].as_array().unwrap().len(), 1, "{line}");
        place.ok(&["salvage", "m2.ice", "m4.ice", "--keep-damaged", "none.ndjson"]);
        assert_eq!(std::fs::read(place.path("none.ndjson")).unwrap(), b"");
    }
}

#[test]
fn as_many_records_are_left_out_as_check_finds() {
    const ROWS: usize = 20_000;
    /// The most faults that `check` lists.
    const LISTED: usize = 100;
    for design in AnyTable::DESIGNS {
        let place = Place::new();
        let value = |row: usize| format!("{row}: {}", "text ".repeat(2 + row % 7));
        let rows: String = (0..ROWS).map(|row| format!("{row},{}\n", value(row))).collect();
        place.file("m.csv", &format!("id,name\n{rows}"));
        place.ok(&["load", "m.ice", "m.csv", "--create", "--table", design]);
        let file = bytes_file(&place);
        let mut bytes = std::fs::read(&file).unwrap();
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        for (flips, new, left) in [(0..90, "a.ice", "a.ndjson"), (90..200, "b.ice", "b.ndjson")] {
            let is_last = flips.end == 200;
            for flip in flips {
                bytes[flip * 2_654_435_761 % end] ^= 1 << (flip % 8);
            }
            std::fs::write(&file, &bytes).unwrap();
            let faults = place.json(&["check", "m.ice"])[0]["faults"].clone();
            // Skips the fault about the number of records, because an unreadable value causes this fault too.
            let is_of_a_record =
                |fault: &&Value| !fault.as_str().unwrap().contains("records were found");
            let faults = faults.as_array().unwrap().iter().filter(is_of_a_record).count();
            let ran = place.run(&["salvage", "m.ice", new, "--keep-damaged", left]);
            let damaged = json_lines(&std::fs::read_to_string(place.path(left)).unwrap()).len();
            assert!(damaged > 20 && (is_last || damaged == faults), "{design}: {damaged} {faults}");
            assert!(
                !is_last || damaged > LISTED && faults >= LISTED - 1,
                "{design}: {damaged} {faults}"
            );
            // Exports leave out the same records.
            let exported = place.run(&["export", "m.ice", "m-out.csv"]);
            let told = format!("m-out.csv: {} records, {damaged} left out\n", ROWS - damaged);
            assert_eq!(
                (exported.status, exported.out),
                (Some(1), told),
                "{design}: {}",
                exported.err
            );
            let (more, rescued) = (damaged - 10, ROWS - damaged);
            let told = format!(
                "... and {more} more losses\n{new}: {rescued} records rescued, {damaged} damaged (in {left}), 0 other \
                 losses\n"
            );
            assert!(ran.status == Some(1) && ran.out.ends_with(&told), "{design}: {}", ran.out);
            assert_eq!(ran.out.lines().count(), 12, "{}", ran.out);
            let checked = place.ok(&["check", new]);
            assert!(checked.contains(&format!("{rescued} records, no faults")), "{checked}");
            for line in place.ok(&["export", new, "--raw"]).lines().skip(1) {
                let (row, name) = line.split_once(',').unwrap();
                assert_eq!(name, value(row.parse().unwrap()), "{design}");
            }
        }
    }
}

#[test]
fn salvage_writes_over_nothing() {
    let place = Place::new();
    damaged(&place, "dash-eh");
    let kept = place.file("left.ndjson", "old\n");
    for file in ["m.ice/lock", "m.ice/left.ndjson", "new.ice", "-", "/dev/stdout", "nowhere/x"] {
        place.fails(2, &["salvage", "m.ice", "new.ice", "--keep-damaged", file]);
    }
    let both = ["--keep-damaged", "both.ndjson", "--json", "both.ndjson"];
    place.fails(2, &[&["salvage", "m.ice", "new.ice"], &both[..]].concat());
    place.fails(2, &["salvage", "m.ice", "new.ice", "--json", "new.ice"]);
    // `both.ndjson` contains only the report of the failure.
    std::fs::remove_file(place.path("both.ndjson")).unwrap();
    place.file("taken.ice", "");
    for new in ["m.ice", "m.csv", "taken.ice", "nowhere/new.ice"] {
        place.fails(2, &["salvage", "m.ice", new, "--keep-damaged", "left.ndjson"]);
    }
    place.fails(2, &["salvage", "nowhere.ice", "new.ice", "--keep-damaged", "left.ndjson"]);
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "old\n");
    assert_eq!(names(&place), ["left.ndjson", "m.csv", "m.ice", "taken.ice"]);
    let full = place.fails(1, &["salvage", "m.ice", "new.ice", "--keep-damaged", "/dev/full"]);
    assert!(full.contains("/dev/full"), "{full}");
    assert_eq!(names(&place).len(), 4);
    // An empty directory may be in place of the new table. Leftovers of a killed salvage are removed.
    std::fs::create_dir(place.path("new.ice")).unwrap();
    let killed = place.path(".new.ice.building-killed/table");
    std::fs::create_dir_all(&killed).unwrap();
    for name in ["table.ice", "columns.json"] {
        std::fs::write(killed.join(name), "x").unwrap();
    }
    assert_eq!(place.run(&["salvage", "m.ice", "new.ice"]).status, Some(1));
    assert_eq!(names(&place), ["left.ndjson", "m.csv", "m.ice", "new.ice", "taken.ice"]);
}

#[test]
fn an_interrupted_salvage_makes_no_table() {
    let place = Place::new();
    // The table is so large that its salvage takes some hundred milliseconds.
    crate::filled(&place, 200_000);
    let before = names(&place);
    let mut interrupted = 0;
    for round in 0..4 {
        let new = format!("{round}.ice");
        let child = place.command(&["salvage", "t.ice", &new]).spawn().unwrap();
        assert!(handles_ctrl_c(child.id()), "the salvage never began");
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
        let ran = finish(child);
        if ran.status == Some(130) {
            interrupted += 1;
            assert_eq!(names(&place), before, "{ran:?}");
            continue;
        }
        // The salvage had ended before the signal arrived.
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(place.ok(&["check", &new]).contains("200000 records, no faults"));
        std::fs::remove_dir_all(place.path(&new)).unwrap();
    }
    assert!(interrupted > 0, "each salvage was done before the signal came");
}

/// Returns the pairs of an index, sorted.
fn pairs(place: &Place, name: &str) -> Vec<(u64, u64)> {
    let index = JoinIndex::<u64>::open_read_only(place.path(name)).unwrap();
    assert!(index.check().unwrap().is_clean());
    let mut pairs = Vec::new();
    index.for_each(|key, payload| pairs.push((key, payload))).unwrap();
    pairs.sort_unstable();
    pairs
}

/// Creates an index of 3,004 pairs through the library. The base has two pairs per key, and the delta store has eight
/// changes, which add four pairs.
fn index(place: &Place) {
    let (keys, rows): (Vec<u64>, Vec<u64>) = (0..3000).map(|row| (row / 2, row)).unzip();
    // The seed determines which pairs are in the last block of the base, which is shorter than the others.
    let options = JoinIndex::<u64>::options().hash_seed([1, 2]);
    let index = options.build(place.path("i.ice"), &keys, &rows).unwrap();
    for (key, row) in [(7, 9001), (8, 9002), (5000, 9003), (5000, 9003), (5000, 9004), (6000, 9005)]
    {
        index.insert(key, row).unwrap();
    }
    assert_eq!(index.remove(6000).unwrap(), 1);
    assert!(index.remove_pair(5000, 9003).unwrap());
}

/// Returns the position of `words` in a file of the index.
fn position(place: &Place, file: &str, words: &[u64]) -> usize {
    let bytes = std::fs::read(place.path("i.ice").join(file)).unwrap();
    let wanted: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.windows(wanted.len()).position(|some| some == wanted).unwrap()
}

fn flip(place: &Place, file: &str, at: usize) {
    let path = place.path("i.ice").join(file);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at] ^= 4;
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn pairs_of_a_join_index_without_a_file_are_rescued() {
    const ROOT_WORDS: [usize; 2] = [4096, 4096 + 64];
    let place = Place::new();
    index(&place);
    let all = pairs(&place, "i.ice");
    assert_eq!(all.len(), 3004);
    let told = place.ok(&["salvage", "i.ice", "whole.ice"]);
    assert_eq!(told, "whole.ice: 3004 records rescued, 0 damaged, 0 other losses\n");
    assert_eq!(pairs(&place, "whole.ice"), all);

    flip(&place, "base-1.ice", position(&place, "base-1.ice", &[700, 1400]));
    let checked = place.run(&["check", "i.ice"]);
    assert!(checked.out.contains("DAMAGED; `icefield salvage`"), "{checked:?}");
    let ran = place.run(&["salvage", "i.ice", "base.ice"]);
    assert!(
        ran.status == Some(1) && ran.out.contains("lost: base-1.ice: 256 pairs, records "),
        "{ran:?}"
    );
    let rescued = pairs(&place, "base.ice");
    assert_eq!(rescued.len(), 3004 - 256);
    assert!(rescued.iter().all(|pair| all.binary_search(pair).is_ok()));

    // Damages a record in the middle of the log, and the words that identify the generation.
    flip(&place, "delta-1.ice", position(&place, "delta-1.ice", &[8, 9002]));
    for at in ROOT_WORDS {
        flip(&place, "table.ice", at);
    }
    let ran = place.run(&["salvage", "i.ice", "log.ice"]);
    for told in
        ["salvaged generation 1", "delta-1.ice: 1 changes, records 1 to 1:", " 3 other losses"]
    {
        assert!(ran.status == Some(1) && ran.out.contains(told), "{ran:?}");
    }
    let rescued: Vec<_> = rescued.into_iter().filter(|&pair| pair != (8, 9002)).collect();
    assert_eq!(pairs(&place, "log.ice"), rescued);

    // Without the log, salvage also returns pairs of the base that were removed; in this index none were.
    std::fs::remove_file(place.path("i.ice/delta-1.ice")).unwrap();
    let ran = place.run(&["salvage", "i.ice", "base-alone.ice"]);
    assert!(ran.status == Some(1) && ran.out.contains("delta-1.ice: 8 changes"), "{ran:?}");
    assert_eq!(pairs(&place, "base-alone.ice").len(), 3000 - 256);
    // Without the checksums at the end of the file, nothing can be verified.
    let base = std::fs::File::options().write(true).open(place.path("i.ice/base-1.ice")).unwrap();
    base.set_len(base.metadata().unwrap().len() / 2).unwrap();
    let ran = place.run(&["salvage", "i.ice", "short.ice"]);
    assert!(ran.out.contains("lost: base-1.ice: 3000 pairs, records 0 to 2999: "), "{ran:?}");
    std::fs::write(place.path("i.ice/base-1.ice"), [7; 8192]).unwrap();
    assert_eq!(place.run(&["salvage", "i.ice", "nothing.ice"]).status, Some(1));
}

#[test]
fn a_rescued_index_of_hashes_is_one_of_the_same_function() {
    let place = Place::new();
    let hash = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(7, |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
    };
    let names = ["ann", "bob", "cid"];
    let options = JoinIndex::<u64>::options();
    let verify = |bytes: &[u8], row: u64| names[row as usize].as_bytes() == bytes;
    drop(options.build_with_hash(place.path("i.ice"), &names, &[0, 1, 2], hash, verify).unwrap());
    place.ok(&["salvage", "i.ice", "new.ice"]);
    let index = options.open_with_hash(place.path("new.ice"), hash, verify).unwrap();
    assert_eq!(index.probe_count(&["bob", "eve", "cid"]).unwrap(), 2);
    assert!(options.open_with_hash(place.path("new.ice"), |_: &[u8]| 1, verify).is_err());
}

#[test]
fn files_beside_a_table_that_are_none_stop_nothing() {
    for kind in ["pipe", "directory", "text"] {
        let place = Place::new();
        damaged(&place, "dash-eh");
        for name in ["columns.json", "source.json"] {
            let path = place.path("m.ice").join(name);
            let _ = std::fs::remove_file(&path);
            match kind {
                "pipe" => rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap(),
                "directory" => std::fs::create_dir(&path).unwrap(),
                _ => std::fs::write(&path, b"\xFF{").unwrap(),
            }
        }
        let ran = place.run(&["salvage", "m.ice", "new.ice"]);
        assert!(ran.status == Some(1) && ran.err.contains("note: "), "{kind}: {ran:?}");
        assert_eq!(place.ok(&["export", "new.ice"]), "key,value\n2,Bob\n", "{kind}");
        assert_ne!(place.run(&["export", "m.ice"]).status, Some(0), "{kind}");
        place.run(&["stat", "m.ice"]);
        assert_eq!(place.run(&["check", "m.ice"]).status, Some(1), "{kind}");
    }
}

#[test]
fn the_parts_of_a_divided_index_are_named() {
    let place = Place::new();
    index(&place);
    std::fs::create_dir(place.path("d.ice")).unwrap();
    std::fs::rename(place.path("i.ice"), place.path("d.ice/part-000")).unwrap();
    std::fs::write(place.path("d.ice/source.json"), "{}").unwrap();
    for command in ["stat", "check"] {
        let told = place.fails(2, &[command, "d.ice"]);
        assert!(told.contains("such as d.ice/part-000"), "{told}");
        place.ok(&[command, "d.ice/part-000"]);
    }
    let told = place.fails(2, &["backup", "d.ice", "b.ice"]);
    assert!(told.contains("such as d.ice/part-000"), "{told}");
}

#[test]
fn an_index_of_files_is_shown_copied_and_built_again() {
    let place = Place::new();
    index(&place);
    let stamp = r#"{"version":4,"sources":["/data/a b.csv"],"files":[{"path":"/data/a b.csv","bytes":7,"rows":3000}],
        "keys":["k","l"],"columns":["k","l","v"],"rows":3000,"form":"word","unknown":1}"#;
    std::fs::write(place.path("i.ice/source.json"), stamp).unwrap();
    std::fs::write(place.path("i.ice/columns.arrow"), "columns").unwrap();
    let stat = place.ok(&["stat", "i.ice"]);
    for line in ["file          /data/a b.csv", "keys          k, l", "columns       k, l, v"] {
        assert!(stat.contains(line), "{stat}");
    }
    assert_eq!(place.json(&["stat", "i.ice"])[0]["files"][0], "/data/a b.csv");
    place.ok(&["backup", "i.ice", "copy.ice"]);
    for name in ["source.json", "columns.arrow"] {
        let [one, other] =
            ["i.ice", "copy.ice"].map(|index| std::fs::read(place.path(index).join(name)).unwrap());
        assert_eq!(one, other, "{name}");
    }
    let advice =
        "icefield-sql build-index '/data/a b.csv' --on k,l --include v --index i.ice --replace";
    let told = place.fails(2, &["salvage", "i.ice", "new.ice"]);
    assert!(told.contains(advice), "{told}");
    flip(&place, "base-1.ice", position(&place, "base-1.ice", &[700, 1400]));
    let checked = place.run(&["check", "i.ice"]);
    assert!(checked.status == Some(1) && checked.out.contains(advice), "{checked:?}");
    for (version, what) in
        [("1", "version 1, but this program reads version 4"), ("4", "missing field")]
    {
        std::fs::write(place.path("i.ice/source.json"), format!("{{\"version\":{version}}}"))
            .unwrap();
        let told = place.fails(1, &["stat", "i.ice"]);
        assert!(told.contains(what), "{told}");
    }
}
