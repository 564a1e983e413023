//! Results of earlier runs, read back from their JSON lines.

use std::path::Path;

use crate::row::Row;
use crate::{Error, Outcome};

/// The file of results in a directory of results.
pub(crate) const RESULTS: &str = "results.jsonl";

/// Fields of `extra` that former versions wrote under another name, and their present names.
const RENAMED: [(&str, &str); 3] = [
    ("pm_bytes", "storage_bytes"),
    ("removed_pm_bytes", "removed_storage_bytes"),
    ("beside_slots_bytes", "overhead_bytes"),
];

/// Reads a file of results, ignoring empty lines. Former names of fields are replaced by the present ones.
///
/// # Errors
/// The file cannot be read, or a line is not a result; the error names the line's number.
pub(crate) fn read(path: &Path) -> Outcome<Vec<Row>> {
    let content = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
    let mut rows = Vec::new();
    for (at, line) in content.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("{}: line {}", path.display(), at + 1);
        let not_one = |why: &str| {
            Error::failed(format!("{place} is not a result of `icefield-bench`: {why}"))
        };
        let mut row: Row = serde_json::from_str(line).map_err(|e| not_one(&e.to_string()))?;
        if row.experiment.is_empty() || row.table.is_empty() {
            return Err(not_one("it names no experiment or no table"));
        }
        for (old, new) in RENAMED {
            if let Some(value) = row.extra.remove(old) {
                row.extra(new, value);
            }
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Err(Error::failed(format!("{} holds no results", path.display())));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(text: &str) -> Outcome<Vec<Row>> {
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
        assert_eq!((rows[0].figure("fill"), rows[0].figure("fences")), (Some(0.5), Some(1.0)));
        assert_eq!(rows[0].point("yards").as_deref(), Some("64/8"));
        assert_eq!(
            (rows[0].figure("pm_bytes"), rows[0].figure("storage_bytes")),
            (None, Some(7.0))
        );
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
            let error = read_back(bad).expect_err("not a result").to_string();
            assert!(error.contains(why), "{bad:?}: {error}");
        }
        assert!(matches!(read(Path::new("/no/such/file")), Err(Error::File { .. })));
    }
}
