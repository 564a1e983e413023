//! Large tables, results and texts.

use std::fs;

use crate::{Place, lines};

#[test]
fn large_results_are_written_by_several_threads() {
    let place = Place::new();
    let rows = "SELECT value AS n, CASE WHEN value % 3 = 0 THEN NULL ELSE 'text ' || value END AS t, \
                [value, value + 1] AS l FROM generate_series(1, 1100000)";
    for threads in ["1", "3"] {
        place.ok(&["query", rows, "-o", "o.parquet", "--threads", threads]);
        let sums = "SELECT count(*), sum(n), count(t), max(t), sum(l[2]), count(DISTINCT n) FROM 'o.parquet'";
        let expected = "1100000,605000550000,733334,text 999998,605001650000,1100000";
        assert_eq!(lines(&place.ok(&["query", sums])), [expected], "{threads} threads");
    }
    place.ok(&["query", "SELECT 1 AS a WHERE false", "-o", "none.parquet"]);
    assert_eq!(
        place.ok(&["query", "SELECT count(a) FROM 'none.parquet'"]),
        "count(none.parquet.a)\n0\n"
    );
}

#[test]
fn an_updated_index_of_texts_stays_as_large_as_its_rows() {
    let place = Place::new();
    fs::create_dir(place.path("parts")).unwrap();
    let rows = |first: u32| {
        format!(
            "SELECT value AS k, 'a text that is longer than twelve bytes ' || value AS t \
             FROM generate_series({first}, {})",
            first + 29_999
        )
    };
    place.ok(&["query", &rows(0), "-o", "parts/0.parquet"]);
    place.ok(&["build-index", "parts", "--on", "k", "--include", "t", "--index", "i.ice"]);
    let size = || fs::metadata(place.path("i.ice/columns.arrow")).unwrap().len();
    assert!(size() < 30_000 * 100, "{}", size());
    for part in 1..4_u32 {
        place.ok(&["query", &rows(part * 30_000), "-o", &format!("parts/{part}.parquet")]);
        let updated = place.json(&["update-index", "i.ice"]);
        assert_eq!(updated["rows_read"], 30_000);
        assert!(size() < u64::from(part + 1) * 30_000 * 100, "{}", size());
    }
    let sql = "SELECT count(*), count(DISTINCT t), max(t) FROM indexes.i";
    let expected = "120000,120000,a text that is longer than twelve bytes 99999";
    assert_eq!(lines(&place.ok(&["query", sql, "--index", "i.ice"])), [expected]);
}

#[test]
fn very_many_pairs_are_counted() {
    let place = Place::new();
    place.file("l.csv", format!("k\n{}", "7\n".repeat(20_000)));
    place.file("r.csv", format!("k\n{}", "7\n".repeat(20_000)));
    place.ok(&["build-index", "r.csv", "--on", "k"]);
    assert_eq!(place.ok(&["join", "l.csv", "--index", "r.ice"]), "400000000\n");
    // The reader of a result closes it early.
    let mut child =
        place.command(&["join", "l.csv", "--index", "r.ice", "--inner"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// The texts of all pairs that are found at a time have more than the 2 GiB that an array of texts can have.
#[test]
fn long_texts_are_taken_batch_by_batch() {
    let place = Place::new();
    let text = "x".repeat(40_000);
    place.file("long.csv", format!("k,s\n{}", format!("1,{text}\n").repeat(8)));
    place.file("many.csv", format!("k\n{}", "1\n".repeat(8192)));
    place.ok(&["build-index", "long.csv", "--on", "k", "--include", "s"]);
    let sql =
        "SELECT count(*), min(length(s)), sum(length(s)) FROM long JOIN many ON long.k = many.k";
    let answer = place.run(&["query", sql, "--index", "long.ice", "--table", "many=many.csv"]);
    assert_eq!(
        (answer.status, lines(&answer.out)),
        (Some(0), vec!["65536,40000,2621440000"]),
        "{}",
        answer.err
    );
}
