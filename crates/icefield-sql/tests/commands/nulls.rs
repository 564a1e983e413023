//! Texts that are read as null, and joins in which nulls are equal.

use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, DictionaryArray, Int8Array, RecordBatch, StringArray};
use arrow::ipc::writer::FileWriter;

use super::super::{Place, lines};

fn place() -> Place {
    let place = Place::new();
    place.file("l.csv", "k,a,d\n1,x,2024-05-01\nNULL,y,-\n-,NULL,2024-05-02\n2,.*,\n");
    place.file("r.csv", "k,b\n1,p\nNULL,q\n2,-\n,s\n");
    let build = ["build-index", "l.csv", "--on", "k", "--include", "*", "--null", "NULL"];
    place.ok(&[&build[..], &["--null", "-"]].concat());
    place
}

#[test]
fn texts_are_read_as_null() {
    let place = place();
    let join = |sql: &str| {
        let sql = format!("SELECT l.k, a, d, b FROM l {sql}");
        let with = ["--table", "r=r.csv", "--null", "NULL", "--null", "-", "--index", "l.ice"];
        let plan = place.run(&[&["query", &format!("EXPLAIN {sql}")], &with[..]].concat()).out;
        assert!(plan.contains("IndexJoinExec"), "{plan}");
        place.ok(&[&["query", &sql], &with[..]].concat())
    };
    assert_eq!(lines(&join("JOIN r ON l.k = r.k")), ["1,x,2024-05-01,p", "2,.*,,"]);
    let equal = lines(&join("JOIN r ON l.k IS NOT DISTINCT FROM r.k")).join("; ");
    assert_eq!(equal, ",,2024-05-02,q; ,,2024-05-02,s; ,y,,q; ,y,,s; 1,x,2024-05-01,p; 2,.*,,");
    // The files as others read them.
    let raw = ["query", "SELECT count(*) FROM 'l.csv' AS l JOIN 'r.csv' AS r ON l.k = r.k"];
    assert_eq!(place.ok(&[&raw[..], &["--index", "l.ice"]].concat()), "count(*)\n3\n");
    let told = place.fails(2, &["query", "SELECT 1", "--table", "r=r.parquet", "--null", "x"]);
    assert!(told.contains("r.parquet"), "{told}");
    // An update reads new files in the same way.
    place.file("more.csv", "k,a,d\n-,w,NULL\n");
    place.ok(&["update-index", "l.ice", "more.csv"]);
    assert_eq!(place.json(&["inspect", "l.ice"])["rows"], 5);
    let rows = place.ok(&["query", "SELECT a FROM indexes.l WHERE k IS NULL", "--index", "l.ice"]);
    assert_eq!(lines(&rows), ["\"\"", "w", "y"]);
}

/// The type is that of the first million rows.
#[test]
fn other_texts_are_named() {
    let place = Place::new();
    place.file("late.csv", format!("k,v\n{}2,none\n", "1,NULL\n7,8\n".repeat(500_000)));
    let told = place
        .fails(1, &["build-index", "late.csv", "--on", "k", "--include", "v", "--null", "NULL"]);
    for part in ["late.csv", "row 1000001", "column `v`", "`none`", "Int64", "--null"] {
        assert!(told.contains(part), "{told}");
    }
    assert!(!place.names().contains("late.ice"));
}

/// A single column of integers has no room for a null, but a hash has.
#[test]
fn nulls_are_equal_if_asked_for() {
    let place = Place::new();
    let many = ",x\n".repeat(300);
    place.file("l.csv", format!("k,j\n1,x\n,y\n{many}"));
    place.file("r.csv", format!("k,j\n1,x\n2,\n,y\n{many}"));
    for (keys, pairs, found) in
        [("k", 301 * 301 + 1, 302), ("j", 301 * 301 + 1, 302), ("k,j", 300 * 300 + 2, 302)]
    {
        for parts in ["1", "3"] {
            let build = ["build-index", "r.csv", "--replace", "--include", "*", "--on", keys];
            place.ok(&[&build[..], &["--partitions", parts]].concat());
            let on = keys.split(',').map(|key| format!("(l.{key} IS NOT DISTINCT FROM r.{key})"));
            let on = on.collect::<Vec<_>>().join(" AND ");
            let count = |from: &str| {
                let sql = format!("SELECT count(*) FROM {from} ON {on}");
                let with = ["--table", "l=l.csv", "--index", "r.ice"];
                let plan =
                    place.run(&[&["query", &format!("EXPLAIN {sql}")], &with[..]].concat()).out;
                assert!(plan.contains("IndexJoinExec"), "{plan}");
                place.ok(&[&["query", &sql], &with[..]].concat())
            };
            assert_eq!(count("l JOIN r"), format!("count(*)\n{pairs}\n"), "{keys}");
            assert_eq!(count("l LEFT SEMI JOIN r"), format!("count(*)\n{found}\n"), "{keys}");
            assert_eq!(count("l LEFT ANTI JOIN r"), "count(*)\n0\n", "{keys}");
            assert_eq!(count("l RIGHT ANTI JOIN r"), "count(*)\n1\n", "{keys}");
            assert_eq!(count("l FULL JOIN r"), format!("count(*)\n{}\n", pairs + 1), "{keys}");
        }
    }
}

/// Without an index, a filter on one of two columns with a name may reach the wrong one.
#[test]
fn filters_on_equal_names_keep_rows() {
    let place = Place::new();
    place.file("p.csv", "k,x\n1,1\n2,1\n3,1\n");
    place.file("q.csv", "k,x\n1,5\n7,\n8,6\n");
    place.ok(&["build-index", "p.csv", "--on", "k", "--include", "*"]);
    place.ok(&["build-index", "q.csv", "--on", "k", "--include", "*"]);
    for equal in ["p.k = q.k", "p.k IS NOT DISTINCT FROM q.k"] {
        let sql = format!(
            "SELECT p.x AS px, q.k, q.x AS qx FROM p RIGHT JOIN q ON {equal} WHERE p.x IS NULL"
        );
        for with in [
            ["--index", "p.ice", "--table", "q=q.csv"],
            ["--table", "p=p.csv", "--index", "q.ice"],
            ["--index", "p.ice", "--index", "q.ice"],
        ] {
            let rows = place.ok(&[&["query", &sql], &with[..]].concat());
            assert_eq!(lines(&rows), [",7,", ",8,6"], "{with:?}");
        }
    }
}

/// Rows of a key beyond the first match are not looked at, and an index whose keys repeat does not answer a join that
/// compares more. Each of these queries took minutes before.
#[test]
fn many_rows_of_a_key_take_little_time() {
    let place = Place::new();
    let rows = |key: &str| (0..8_000).map(|id| format!("{key},{id},\n")).collect::<String>();
    for (name, key) in [("t", "text"), ("n", "")] {
        place.file(&format!("{name}.csv"), format!("k,id,s\n{}zz,1,a\n", rows(key)));
        place.ok(&["build-index", &format!("{name}.csv"), "--on", "k", "--include", "*"]);
        place.file(&format!("{name}2.csv"), format!("k,id,s\n{}zz,1,a\n", rows(key)));
        let tables = ["--index", &format!("{name}.ice"), "--table", &format!("u={name}2.csv")];
        let count = |sql: &str| {
            let sql = format!("SELECT count(*) FROM {sql}");
            place.ok(&[&["query", &sql], &tables[..]].concat())
        };
        let on = format!("({name}.k IS NOT DISTINCT FROM u.k)");
        let started = Instant::now();
        assert_eq!(
            count(&format!("u WHERE EXISTS (SELECT 1 FROM {name} WHERE {on})")),
            "count(*)\n8001\n"
        );
        assert_eq!(
            count(&format!("{name} WHERE EXISTS (SELECT 1 FROM u WHERE {on})")),
            "count(*)\n8001\n"
        );
        assert_eq!(
            count(&format!("u WHERE NOT EXISTS (SELECT 1 FROM {name} WHERE {on})")),
            "count(*)\n0\n"
        );
        let all = count(&format!("(SELECT k, id FROM u INTERSECT SELECT k, id FROM {name})"));
        assert_eq!(all, "count(*)\n8001\n");
        println!("{name}: {:?}", started.elapsed());
    }
}

#[test]
fn columns_without_values_and_nulls_of_dictionaries() {
    let place = Place::new();
    place.file("p.csv", "id,name,x\n1,a,-1\n-1,b,-1\n");
    let build = ["build-index", "p.csv", "--on", "id", "--include", "*", "--null", "-1"];
    let told = place.ok(&build);
    assert!(told.contains("2 rows by id, 1 with a null"), "{told}");
    let inspected = place.ok(&["inspect", "p.ice"]);
    assert!(inspected.contains("null \"-1\""), "{inspected}");
    let rows = place.ok(&["query", "SELECT * FROM p", "--table", "p=p.csv", "--null", "-1"]);
    assert_eq!(lines(&rows), [",b,", "1,a,"]);
    // The second value of the dictionary is null, as is the fourth key.
    let keys = Int8Array::from(vec![Some(0), Some(1), Some(2), None, Some(1)]);
    let values = StringArray::from(vec![Some("x"), None, Some("z")]);
    let column: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(values)));
    let rows = RecordBatch::try_from_iter([("s", column)]).unwrap();
    let file = File::create(place.path("d.arrow")).unwrap();
    let mut writer = FileWriter::try_new(file, &rows.schema()).unwrap();
    writer.write(&rows).unwrap();
    writer.finish().unwrap();
    place.ok(&["build-index", "d.arrow", "--on", "s"]);
    let nulls = "SELECT count(*) FROM indexes.d WHERE s IS NULL";
    assert_eq!(place.ok(&["query", nulls, "--index", "d.ice"]), "count(*)\n3\n");
    place.file("e.csv", "s\nx\n\"\"\n");
    let join = "SELECT count(*) FROM d JOIN e ON (d.s IS NOT DISTINCT FROM e.s)";
    let with = ["--index", "d.ice", "--table", "e=e.csv"];
    assert_eq!(place.ok(&[&["query", join], &with[..]].concat()), "count(*)\n4\n");
}
