//! Results of earlier runs, read back from their JSON lines.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Error, Outcome};

/// A line of results as read back: the fields that [`FIELDS`](crate::FIELDS) names; fields that were not measured
/// are absent.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Measured {
    pub experiment: String,
    pub table: String,
    pub op: String,
    pub peer: bool,
    pub threads: Option<u64>,
    pub keys: Option<u64>,
    pub ops: Option<u64>,
    pub batch: Option<Value>,
    pub medium: Option<String>,
    pub dist: Option<String>,
    pub mops: Option<f64>,
    pub mops_min: Option<f64>,
    pub mops_max: Option<f64>,
    pub p50_ns: Option<f64>,
    pub p95_ns: Option<f64>,
    pub p99_ns: Option<f64>,
    pub p999_ns: Option<f64>,
    pub p9999_ns: Option<f64>,
    pub max_ns: Option<f64>,
    pub bytes_per_key: Option<f64>,
    pub load_factor: Option<f64>,
    pub pm: Option<BTreeMap<String, f64>>,
    pub ceiling: Option<String>,
    pub limit_ratio: Option<f64>,
    pub shape_ratio: Option<f64>,
    pub extra: Map<String, Value>,
}

impl Measured {
    /// Returns the batch: `none`, a number or `stream`; empty where the line has none.
    pub fn batch(&self) -> String {
        self.batch.as_ref().map(text).unwrap_or_default()
    }

    /// Returns `1 thread`, `2 threads`.
    pub fn told_threads(&self) -> String {
        let threads = self.threads.unwrap_or(1);
        format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
    }

    /// Returns a figure that is specific to the experiment.
    pub fn extra(&self, name: &str) -> Option<f64> {
        self.extra.get(name)?.as_f64()
    }

    /// Returns the field `name` of `extra` as text: the point of a sweep.
    pub fn point(&self, name: &str) -> Option<String> {
        self.extra.get(name).map(text)
    }

    /// Returns a count of accesses to persistent memory per operation.
    pub fn pm(&self, name: &str) -> Option<f64> {
        self.pm.as_ref()?.get(name).copied()
    }

    /// Returns the speed of the loop that `limit_ratio` compares with.
    pub fn ceiling_mops(&self) -> Option<f64> {
        Some(self.mops? / self.limit_ratio.filter(|ratio| *ratio > 0.0)?)
    }

    /// Returns whether the table had given a wrong answer by then.
    pub fn is_wrong(&self) -> bool {
        self.extra.get("wrong_answers").is_some_and(|wrong| wrong == &Value::Bool(true))
    }
}

/// Formats a value for print: a string without quotation marks.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Fields of `extra` in files of former versions, and their present names.
const RENAMED: [(&str, &str); 3] = [
    ("pm_bytes", "storage_bytes"),
    ("removed_pm_bytes", "removed_storage_bytes"),
    ("beside_slots_bytes", "overhead_bytes"),
];

/// Reads a file of results, ignoring empty lines. Former names of fields are replaced by the present ones.
///
/// # Errors
/// The file cannot be read, or a line is not a result; the error names the line's number.
pub(crate) fn read(path: &Path) -> Outcome<Vec<Measured>> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
    let numbered = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = numbered.map(|(at, line)| {
        let not_one = |why: String| {
            let place = format!("{}: line {}", path.display(), at + 1);
            Error::failed(format!("{place} is no result of `icefield-bench`: {why}"))
        };
        let mut row: Measured = serde_json::from_str(line).map_err(|e| not_one(e.to_string()))?;
        for (old, new) in RENAMED {
            if let Some(value) = row.extra.remove(old) {
                row.extra.insert(new.to_owned(), value);
            }
        }
        match row.experiment.is_empty() || row.table.is_empty() {
            true => Err(not_one("it names no experiment or no table".to_owned())),
            false => Ok(row),
        }
    });
    let rows: Vec<_> = parsed.collect::<Outcome<_>>()?;
    match rows.is_empty() {
        true => Err(Error::failed(format!("{} holds no results", path.display()))),
        false => Ok(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(text: &str) -> Outcome<Vec<Measured>> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("results.jsonl");
        std::fs::write(&path, text).expect("a file");
        read(&path)
    }

    #[test]
    fn lines_are_read_back() {
        let line = r#"{"experiment":"get","table":"dlht","op":"get","batch":32,"mops":50.0,"limit_ratio":0.5,
            "pm":{"fences":1.0},"extra":{"fill":0.5,"yards":"64/8","pm_bytes":7,"wrong_answers":true}}"#
            .replace('\n', "");
        let rows = read_back(&format!("\n{line}\n")).expect("results");
        assert_eq!((rows.len(), rows[0].batch().as_str()), (1, "32"));
        assert_eq!((rows[0].extra("fill"), rows[0].pm("fences")), (Some(0.5), Some(1.0)));
        assert_eq!(rows[0].point("yards").as_deref(), Some("64/8"));
        assert_eq!((rows[0].extra("pm_bytes"), rows[0].extra("storage_bytes")), (None, Some(7.0)));
        assert_eq!(rows[0].ceiling_mops(), Some(100.0));
        assert!(rows[0].is_wrong());
    }

    #[test]
    fn what_is_no_result_is_told_with_its_line() {
        for (bad, why) in [
            ("{\"experiment\":\"get\",\"table\":\"a\"}\nnonsense", "line 2"),
            ("{}", "line 1"),
            ("{\"experiment\":\"get\",\"table\":\"a\",\"mops\":\"fast\"}", "line 1"),
            ("\n", "no results"),
        ] {
            let error = read_back(bad).expect_err("no result").to_string();
            assert!(error.contains(why), "{bad:?}: {error}");
        }
        assert!(matches!(read(Path::new("/no/such/file")), Err(Error::File { .. })));
    }
}
