//! Texts that are read as null, and joins in which nulls are equal.

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
    for part in ["late.csv", "row 1000001", "column `v`", "`none`", "Int64"] {
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
