//! Joins of few rows: those that an index must not answer, and the sizes of batches.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::physical_plan::displayable;
use datafusion::prelude::{SessionConfig, SessionContext};
use icefield_sql::index::build::{BuildOptions, Quiet, build};
use icefield_sql::{IndexRegistry, session_state_with};

use crate::{rows, write};

/// Returns the rows of a query over two tables of which the first has an index on `k`, without and with the index, and
/// whether it is used.
async fn with_and_without(l: &str, r: &str, sql: &str) -> [(Vec<String>, bool); 2] {
    let directory = tempfile::tempdir().unwrap();
    let registry = IndexRegistry::default();
    for (name, text) in [("l", l), ("r", r)] {
        std::fs::write(directory.path().join(format!("{name}.csv")), text).unwrap();
    }
    let path = |name: &str| directory.path().join(name).display().to_string();
    let target = directory.path().join("l.ice");
    let mut options =
        BuildOptions::new(vec![path("l.csv")], vec!["k".to_owned()], target.clone()).unwrap();
    options.include = vec!["*".to_owned()];
    build(&options, &Quiet).await.unwrap();
    registry.open(&target, false).unwrap();
    let mut answers = Vec::new();
    for registry in [&IndexRegistry::default(), &registry] {
        let context =
            SessionContext::new_with_state(session_state_with(registry, SessionConfig::new()));
        for name in ["l", "r"] {
            let source = path(&format!("{name}.csv"));
            let format = icefield_sql::index::format::Format::of_source(&source).unwrap();
            let table =
                format.table(&context.state(), std::slice::from_ref(&source)).await.unwrap();
            context.register_table(name, table).unwrap();
        }
        let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let used = displayable(plan.as_ref()).indent(false).to_string().contains("IndexJoinExec");
        let batches = datafusion::physical_plan::collect(plan, context.task_ctx()).await.unwrap();
        answers.push((rows(&batches), used));
    }
    answers.try_into().unwrap()
}

/// Batches have the size that the session asks for, however many pairs a batch of keys has.
#[tokio::test]
async fn batches_are_of_the_usual_size() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv").display().to_string();
    std::fs::write(&path, format!("k\n{}", "1\n".repeat(400))).unwrap();
    let target = directory.path().join("t.ice");
    let options =
        BuildOptions::new(vec![path.clone()], vec!["k".to_owned()], target.clone()).unwrap();
    build(&options, &Quiet).await.unwrap();
    let registry = IndexRegistry::default();
    registry.open(&target, false).unwrap();
    let config = SessionConfig::new().with_batch_size(64);
    let context = SessionContext::new_with_state(session_state_with(&registry, config));
    context.register_csv("t", &path, Default::default()).await.unwrap();
    for (columns, expected) in [("1", 160_000), ("a.k", 160_000), ("count(*)", 1)] {
        let sql = format!("SELECT {columns} FROM t AS a JOIN t AS b ON a.k = b.k");
        let plan = context.sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
        assert!(displayable(plan.as_ref()).indent(false).to_string().contains("IndexJoinExec"));
        let batches = datafusion::physical_plan::collect(plan, context.task_ctx()).await.unwrap();
        assert!(batches.iter().all(|batch| batch.num_rows() <= 64), "{columns}");
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), expected, "{columns}");
    }
}

#[tokio::test]
async fn joins_that_an_index_cannot_answer() {
    let (l, r) = ("k,v\n1,\n2,x\n3,\n", "k,v\n1,\n2,x\n3,y\n");
    for (sql, is_used) in [
        ("SELECT k FROM r INTERSECT SELECT k FROM l", true),
        // Nulls are equal here, and the column `v`, which is not a key, has nulls.
        ("SELECT * FROM r INTERSECT SELECT * FROM l", true),
        ("SELECT * FROM r EXCEPT SELECT * FROM l", true),
        ("SELECT r.k FROM r WHERE r.k NOT IN (SELECT k FROM l)", false),
        ("SELECT r.k FROM r JOIN (SELECT * FROM l LIMIT 2) AS l ON l.k = r.k WHERE l.k < 0", false),
        (
            "SELECT r.k FROM r JOIN (SELECT k, random() AS x FROM l) AS l ON l.k = r.k WHERE x >= 0",
            false,
        ),
        ("SELECT r.k FROM r JOIN (SELECT max(k) AS k FROM l) AS l ON l.k = r.k", false),
        ("SELECT r.k FROM r JOIN l ON l.k + 1 = r.k", false),
        ("SELECT r.k, l.v FROM r JOIN l ON l.k = r.k AND l.v IS NOT DISTINCT FROM r.v", true),
    ] {
        let [expected, found] = with_and_without(l, r, sql).await;
        assert_eq!(found.0, expected.0, "{sql}");
        assert_eq!(found.1, is_used, "{sql}");
    }
}

/// A table that reads the indexed files in another way has other rows, so no index answers its joins.
#[tokio::test]
async fn tables_that_read_files_in_another_way_use_no_index() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv").display().to_string();
    std::fs::write(&path, "k,v\n1,7\n2,007\n7,xy\n").unwrap();
    let target = directory.path().join("t.ice");
    let mut options =
        BuildOptions::new(vec![path.clone()], vec!["k".to_owned()], target.clone()).unwrap();
    options.include = vec!["*".to_owned()];
    build(&options, &Quiet).await.unwrap();
    let registry = IndexRegistry::default();
    registry.open(&target, false).unwrap();
    for (columns, settings, is_same) in [
        ("", "", true),
        ("(k BIGINT, v VARCHAR)", "", true),
        ("(k INT, v VARCHAR)", "", false),
        ("(v VARCHAR, k VARCHAR)", "", false),
        ("(k VARCHAR, v VARCHAR)", "", false),
        ("(k VARCHAR)", ", 'format.delimiter' ';', 'format.truncated_rows' 'true'", false),
        ("(k VARCHAR, v VARCHAR)", ", 'format.has_header' 'false'", false),
        ("(k BIGINT, v VARCHAR)", ", 'format.comment' '2'", false),
    ] {
        let has_header =
            if settings.contains("has_header") { "" } else { "'format.has_header' 'true'" };
        let create = format!(
            "CREATE EXTERNAL TABLE t {columns} STORED AS CSV LOCATION '{path}' OPTIONS ({})",
            format!("{has_header}{settings}").trim_start_matches(", ")
        );
        let mut answers = Vec::new();
        for registry in [&IndexRegistry::default(), &registry] {
            let context =
                SessionContext::new_with_state(session_state_with(registry, SessionConfig::new()));
            context.sql(&create).await.unwrap();
            let sql = "SELECT t.* FROM t JOIN (VALUES ('1'), ('2'), ('7')) AS p (key) ON CAST(t.k AS VARCHAR) = key";
            let sql = if columns.contains("k VARCHAR") {
                sql.replace("CAST(t.k AS VARCHAR)", "t.k")
            } else {
                sql.replace("CAST(t.k AS VARCHAR) = key", "t.k = CAST(key AS BIGINT)")
            };
            let frame = context.sql(&sql).await.unwrap();
            let plan = frame.create_physical_plan().await.unwrap();
            let used =
                displayable(plan.as_ref()).indent(false).to_string().contains("IndexJoinExec");
            let batches =
                datafusion::physical_plan::collect(plan, context.task_ctx()).await.unwrap();
            answers.push((rows(&batches), used));
        }
        assert_eq!(answers[0].0, answers[1].0, "{create}");
        assert_eq!(answers[1].1, is_same, "{create}: {:?}", registry.take_decisions());
    }
}

/// Writes a table as Parquet, and builds an index of its column `key` if that is not empty. Returns the path.
async fn parquet(
    directory: &Path,
    registry: &IndexRegistry,
    name: &str,
    columns: &[(&str, Vec<i64>)],
    key: &str,
) -> String {
    let columns = columns.iter().map(|(name, values)| {
        let values: ArrayRef = Arc::new(Int64Array::from(values.clone()));
        (*name, values)
    });
    let path = directory.join(format!("{name}.parquet"));
    write(&path, &RecordBatch::try_from_iter(columns).unwrap());
    let path = path.display().to_string();
    if !key.is_empty() {
        let target = directory.join(format!("{name}.ice"));
        let keys = vec![key.to_owned()];
        let mut options = BuildOptions::new(vec![path.clone()], keys, target.clone()).unwrap();
        options.include = vec!["*".to_owned()];
        build(&options, &Quiet).await.unwrap();
        registry.open(&target, false).unwrap();
    }
    path
}

/// DataFusion finds the columns of a filter by their names. A filter on the second of two columns with one name stays
/// above an index join.
#[tokio::test]
async fn filters_on_equal_names_do_not_pass() {
    let directory = tempfile::tempdir().unwrap();
    let (registry, place) = (IndexRegistry::default(), directory.path());
    let numbers: Vec<i64> = (0..1000).collect();
    let mixed: Vec<i64> = numbers.iter().map(|n| n * 7919 % 1000).collect();
    let a = [("id", numbers.clone()), ("x", mixed.clone()), ("y", mixed.clone())];
    let b = [("id", numbers.clone()), ("k", numbers.clone()), ("x", numbers.clone())];
    let paths = [
        ("a", parquet(place, &registry, "a", &a, "id").await),
        ("b", parquet(place, &registry, "b", &b, "").await),
        ("i", parquet(place, &registry, "i", &[("k", numbers)], "k").await),
    ];
    let context =
        SessionContext::new_with_state(session_state_with(&registry, SessionConfig::new()));
    for (name, path) in &paths {
        context.register_parquet(*name, path, Default::default()).await.unwrap();
    }
    let smallest: Vec<String> = (0..3)
        .map(|x| mixed.iter().position(|&one| one == x).unwrap())
        .map(|id| format!("{id}"))
        .collect();
    for (column, passes) in [("b.k", true), ("a.x", false), ("b.x", false)] {
        let sql = format!(
            "SELECT b.x, a.x AS ax, b.k FROM b JOIN a ON b.id = a.id JOIN i ON b.k = i.k ORDER BY {column} LIMIT 3"
        );
        let plan = context.sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
        let text = displayable(plan.as_ref()).indent(false).to_string();
        let scan = text.lines().find(|line| line.contains("b.parquet")).unwrap();
        assert!(text.matches("IndexJoinExec").count() == 2, "{text}");
        assert_eq!(scan.contains("DynamicFilter"), passes, "{column}: {text}");
        let batches = datafusion::physical_plan::collect(plan, context.task_ctx()).await.unwrap();
        let mut found: Vec<_> =
            rows(&batches).iter().map(|row| row.split('|').next().unwrap().to_owned()).collect();
        let mut expected = if column == "a.x" {
            smallest.clone()
        } else {
            ["0", "1", "2"].map(str::to_owned).into()
        };
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{column}");
    }
}
