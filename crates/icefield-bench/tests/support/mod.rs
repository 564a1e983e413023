//! Small runs, and their rows.

#![allow(dead_code, reason = "each test program uses a part")]
#![allow(clippy::unwrap_used, reason = "a test program: to panic is to fail")]

use icefield_bench::{Args, FIELDS, run};
use serde_json::{Map, Value};

/// The README of this crate, which lists the fields of `extra`.
const README: &str = include_str!("../../README.md");

/// Returns arguments small enough for a test.
pub fn small(experiment: &str) -> Args {
    let mut args = Args::new(experiment);
    args.tables = vec!["dash-eh".to_owned()];
    args.keys = Some(20_000);
    args.repeat = 1;
    args.threads = vec![1];
    args.dir = Some(std::env::temp_dir());
    let program = std::env::current_exe().unwrap();
    args.program = vec![program.into(), "bench".into()];
    args
}

/// Runs `args`, checks that no table answered wrongly, and returns the rows.
pub fn rows(args: Args) -> Vec<Map<String, Value>> {
    let (sound, rows) = judged_rows(args);
    assert!(sound, "a table answered wrongly");
    rows
}

/// Runs `args`. Returns whether every answer was correct, and the rows.
pub fn judged_rows(mut args: Args) -> (bool, Vec<Map<String, Value>>) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows");
    args.json = Some(file.to_str().unwrap().to_owned());
    let sound = run(args).unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    let rows: Vec<Map<String, Value>> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for row in &rows {
        let unknown: Vec<_> =
            row.keys().filter(|field| !FIELDS.contains(&field.as_str())).collect();
        assert!(unknown.is_empty(), "undocumented fields {unknown:?}");
        let extra = row.get("extra").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        let unknown: Vec<_> = extra.filter(|name| !README.contains(&format!("`{name}`"))).collect();
        assert!(unknown.is_empty(), "fields of `extra` that the README does not list: {unknown:?}");
        assert!(row.values().all(|value| !value.is_null()), "absent fields are left out: {row:?}");
        assert!(row["experiment"].is_string() && row["table"].is_string() && row["op"].is_string());
        assert!(row["peer"].is_boolean());
    }
    (sound, rows)
}

pub fn number(row: &Map<String, Value>, field: &str) -> f64 {
    row.get(field).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {field} in {row:?}"))
}

pub fn extra(row: &Map<String, Value>, field: &str) -> f64 {
    row["extra"][field].as_f64().unwrap_or_else(|| panic!("no extra.{field} in {row:?}"))
}
