//! Indexes that are divided into partitions.

use std::fs;

use crate::{Place, follow_files, lines};

#[test]
fn a_divided_index_follows_its_files() {
    follow_files("3");
}

#[test]
fn divided_indexes_have_all_rows() {
    let place = Place::new();
    // Keys of several chunks, some of them twice, some null.
    let rows = "SELECT CASE WHEN value % 1000 = 0 THEN NULL ELSE value % 500000 END AS k, value AS v \
                FROM generate_series(1, 600000)";
    place.ok(&["query", rows, "-o", "t.parquet"]);
    place.file("p.csv", "k\n5\n99999\n300000\n499999\n777777\n");
    let build = ["build-index", "t.parquet", "--on", "k", "--include", "v", "--replace"];
    for partitions in ["2", "200"] {
        let built = place.json(&[&build[..], &["--partitions", partitions]].concat());
        assert_eq!((&built["rows"], &built["pairs"]), (&600_000.into(), &599_400.into()));
        assert_eq!(built["partitions"].to_string(), partitions);
        let inspected = place.json(&["inspect", "t.ice"]);
        assert_eq!(inspected["partitions"].to_string(), partitions);
        let sql = "SELECT count(*), count(DISTINCT v), count(k), sum(v) FROM indexes.t";
        let expected = ["600000,600000,599400,180000300000"];
        assert_eq!(lines(&place.ok(&["query", sql, "--index", "t.ice"])), expected);
        let select = ["join", "p.csv", "--index", "t.ice", "--select", "v"];
        let expected = ["499999", "5", "500005", "599999", "99999"];
        assert_eq!(lines(&place.ok(&select)), expected, "{partitions} partitions");
        // Rows with and without a match.
        let sql = "SELECT count(*), count(p.k), sum(v) FROM t LEFT JOIN 'p.csv' AS p ON t.k = p.k";
        let ran = place.run(&["query", sql, "--index", "t.ice"]);
        assert_eq!(lines(&ran.out), ["600000,5,180000300000"], "{}", ran.err);
    }
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let place = Place::new();
    let rows: String = (0..1000).map(|key| format!("{key},{}\n", key % 7)).collect();
    place.file("t.csv", format!("k,v\n{rows}"));
    place.file("p.csv", "k\n1\n2\n3\n");
    let build = |index: &str| {
        let build = ["build-index", "t.csv", "--on", "k", "--include", "v", "--partitions", "3"];
        place.ok(&[&build[..], &["--index", index]].concat());
    };
    build("t.ice");
    build("other.ice");
    let join = ["join", "p.csv", "--index", "t.ice", "--select", "v"];
    place.ok(&join);
    let part = |index: &str, part| place.path(index).join(format!("part-00{part}"));
    // Part 1 is that of another build, part 2, missing, or without its columns.
    let away = place.path("away");
    fs::rename(part("t.ice", 1), &away).unwrap();
    fs::rename(part("other.ice", 1), part("t.ice", 1)).unwrap();
    let told = place.fails(1, &join);
    assert!(told.contains("part-001: damaged: it belongs to another build"), "{told}");
    fs::rename(part("t.ice", 1), part("other.ice", 1)).unwrap();
    assert!(place.fails(1, &join).contains("part-001: damaged: this part of the index is missing"));
    fs::rename(part("t.ice", 2), part("t.ice", 1)).unwrap();
    assert!(place.fails(1, &join).contains("part-001: damaged"));
    fs::rename(part("t.ice", 1), part("t.ice", 2)).unwrap();
    fs::rename(&away, part("t.ice", 1)).unwrap();
    place.ok(&join);
    let columns = part("t.ice", 2).join("columns.arrow");
    fs::copy(part("t.ice", 0).join("columns.arrow"), &columns).unwrap();
    assert!(place.fails(1, &join).contains("part-002/columns.arrow: damaged"));
    fs::remove_file(&columns).unwrap();
    assert!(place.fails(2, &join).contains("part-002/columns.arrow"));
    for partitions in ["0", "257", "x"] {
        let build = ["build-index", "t.csv", "--on", "k", "--partitions", partitions, "--replace"];
        assert!(place.fails(2, &build).contains("--partitions"));
    }
}

#[test]
fn leftovers_of_a_killed_build_are_removed() {
    let place = Place::new();
    place.file("t.csv", "k\n1\n2\n");
    let build = ["build-index", "t.csv", "--on", "k", "--partitions", "2"];
    place.ok(&build);
    // The hidden directory of a build of several partitions that was killed, at different times.
    for (name, has_columns) in [("one", true), ("two", false)] {
        let hidden = place.path(&format!(".t.ice.building-{name}"));
        fs::create_dir(&hidden).unwrap();
        fs::rename(place.path("t.ice"), hidden.join("table")).unwrap();
        fs::create_dir(hidden.join("table/.part-002.creating-x")).unwrap();
        if has_columns {
            fs::create_dir(hidden.join(".table.creating-columns-1")).unwrap();
            fs::write(hidden.join(".table.creating-columns-1/columns.arrow"), "").unwrap();
        }
        place.ok(&build);
        assert_eq!(place.names(), ["t.csv", "t.ice"].map(String::from).into());
    }
    // Anything else is not touched.
    let hidden = place.path(".t.ice.building-three");
    fs::create_dir_all(hidden.join("table/part-000")).unwrap();
    fs::write(hidden.join("table/part-000/mine"), "").unwrap();
    place.ok(&[&build[..], &["--replace"]].concat());
    assert!(hidden.join("table/part-000/mine").exists());
}

/// A query that opens the index while another build takes its place has the one or the other.
#[test]
fn an_index_is_opened_while_it_is_replaced() {
    let place = Place::new();
    place.file("t.csv", "k\n1\n2\n3\n");
    let build = |partitions: &str| {
        let build = ["build-index", "t.csv", "--on", "k", "--replace", "--partitions", partitions];
        place.command(&build).spawn().unwrap()
    };
    assert!(build("64").wait().unwrap().success());
    let path = place.path("t.ice");
    let (mut opened, mut seen) = (0, std::collections::BTreeSet::new());
    for round in 0..6 {
        let mut child = build(if round % 2 == 0 { "200" } else { "64" });
        while child.try_wait().unwrap().is_none() {
            let index = icefield_sql::Index::open(&path, false).unwrap();
            seen.insert(index.uuid());
            opened += 1;
        }
    }
    println!("opened {opened} times, {} different builds", seen.len());
    assert!(seen.len() > 1);
}
