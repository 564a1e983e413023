//! Messages that say what to do.

use std::fs;

use super::super::{Place, lines};

#[test]
fn messages_name_what_is_wrong() {
    let place = Place::with_tables();
    place.file("t.tsv", "k\tv\n2\ty\n");
    place.file("head.csv", "k,v\n");
    place.file("dump.gz", fs::read(place.path("r.csv")).unwrap());
    fs::create_dir_all(place.path("d/inner")).unwrap();
    for (status, what, line) in [
        (
            2,
            "t.tsv: has other separators than r.csv",
            "build-index r.csv t.tsv --on k --index n.ice",
        ),
        (2, "x.csv.gz: the files of an index", "build-index r.csv x.csv.gz --on k --index n.ice"),
        (2, "r.parquet: the files of an index", "update-index r.ice r.parquet"),
        (2, "of a file in this directory", "build-index d --on k"),
        (2, "`k`: it has no values", "build-index head.csv --on k"),
        (2, "none.ice: no such index", "inspect none.ice"),
        (2, "none.ice: no such index", "update-index none.ice"),
        (2, "d: not an index", "join l.csv --index d"),
        (1, "gzip", "build-index dump.gz --format csv --on k"),
        (2, "there are r; --table NAME=FILE", "query SELECT*FROM\u{a0}none --index r.ice"),
        (2, "there are \"R\", r;", "query SELECT*FROM\u{a0}none --index r.ice --index R=r.ice"),
        (2, "there are none", "query SELECT*FROM\u{a0}none"),
        (2, "--index NAME=DIR: another table", "query SELECT\u{a0}1 --index r.ice --index r.ice"),
        (
            2,
            "--table NAME=FILE: another table",
            "query SELECT\u{a0}1 --index r.ice --table r=r.csv",
        ),
        (2, "named none. Valid fields", "query SELECT\u{a0}none\u{a0}FROM\u{a0}r --index r.ice"),
    ] {
        let args: Vec<_> = line.split(' ').map(|arg| arg.replace('\u{a0}', " ")).collect();
        let told = place.fails(status, &args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(told.contains(what), "{line}: {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let join = "SELECT a, b FROM l JOIN other ON l.k = other.k";
    let rows = ["query", join, "--table", "l=l.csv", "--index", "other=r.ice"];
    assert_eq!(lines(&place.ok(&rows)).len(), 5);
}

/// A file that was named itself may be gone by mistake.
#[test]
fn files_that_are_gone_are_dropped_if_asked_for() {
    let place = Place::with_tables();
    place.file("m.csv", "k,b\n8,m\n");
    place.ok(&["update-index", "r.ice", "m.csv"]);
    fs::remove_file(place.path("m.csv")).unwrap();
    let told = place.fails(2, &["update-index", "r.ice"]);
    assert!(told.contains("m.csv: is gone; --drop-missing"), "{told}");
    assert_eq!(place.run(&["inspect", "r.ice"]).status, Some(1));
    assert_eq!(place.json(&["update-index", "r.ice", "--drop-missing"])["rows"], 5);
    assert_eq!(place.run(&["inspect", "r.ice"]).status, Some(0));
    fs::remove_file(place.path("r.csv")).unwrap();
    let told = place.fails(2, &["update-index", "r.ice", "--drop-missing"]);
    assert!(told.contains("no files are left"), "{told}");
    let rows = ["query", "SELECT * FROM indexes.r", "--index", "r.ice", "--allow-stale"];
    assert_eq!(lines(&place.ok(&rows)).len(), 5);
}

#[test]
fn files_with_other_columns_are_refused() {
    let place = Place::new();
    place.file("1.csv", "id,x\n1,5\n");
    place.file("2.csv", "x,id\n7,2\n");
    let told = place.fails(2, &["build-index", "1.csv", "2.csv", "--on", "id", "--index", "i.ice"]);
    assert!(told.contains("2.csv: has the columns x, id, and other files id, x"), "{told}");
    place.ok(&["build-index", "1.csv", "--on", "id"]);
    assert!(place.fails(2, &["update-index", "1.ice", "2.csv"]).contains("has the columns x, id"));
}
