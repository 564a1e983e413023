//! The destinations of results: JSON lines, a directory of results, a table on standard output; and the display of
//! progress on a terminal.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::compare::Comparison;
use crate::prelude::*;
use crate::results::RESULTS;
use crate::row::{FIELDS, PM_FIELDS, text};

pub(crate) struct Output {
    json: Option<Lines>,
    jsonl: Option<Lines>,
    csv: Option<(PathBuf, csv::Writer<File>)>,
    /// Files that are renamed to their final names when the run is complete.
    partial: Vec<PathBuf>,
    /// True if standard output carries JSON lines only.
    quiet: bool,
    progress: bool,
    rows: Vec<Row>,
}

struct Lines {
    path: PathBuf,
    writer: Box<dyn Write>,
}

impl Lines {
    fn create(path: PathBuf, begun: &mut Vec<PathBuf>) -> Outcome<Self> {
        let writer = Box::new(BufWriter::new(create(&path, begun)?));
        Ok(Self { path, writer })
    }

    /// Writes a line and flushes the writer, so that readers of the file see the line at once.
    fn put(&mut self, line: &str) -> Outcome {
        let written = writeln!(self.writer, "{line}").and_then(|()| self.writer.flush());
        written.map_err(|error| Error::file(&self.path, error))
    }
}

/// The name of standard output in errors.
const STDOUT: &str = "standard output";

/// Returns the error for a failed write to standard output.
pub(crate) fn stdout_fault(source: io::Error) -> Error {
    Error::file(Path::new(STDOUT), source)
}

impl Output {
    pub fn open(args: &Args) -> Outcome<Self> {
        let quiet = args.json.as_deref() == Some("-");
        if let Some(json) = &args.json {
            refuse_reads(Path::new(json), &args.results)?;
        }
        let mut partial = Vec::new();
        let json = match args.json.as_deref() {
            None => None,
            Some("-") => Some(Lines { path: STDOUT.into(), writer: Box::new(io::stdout()) }),
            Some(path) => Some(Lines::create(path.into(), &mut partial)?),
        };
        let (mut jsonl, mut csv) = (None, None);
        if let Some(dir) = &args.out {
            std::fs::create_dir_all(dir).map_err(|error| Error::file(dir, error))?;
            jsonl = Some(Lines::create(dir.join("results.jsonl"), &mut partial)?);
            let path = dir.join("results.csv");
            let mut writer = csv::WriterBuilder::new().from_writer(create(&path, &mut partial)?);
            writer.write_record(columns()).map_err(|error| Error::file(&path, error))?;
            csv = Some((path, writer));
        }
        let progress = io::stderr().is_terminal();
        Ok(Self { json, jsonl, csv, partial, quiet, progress, rows: Vec::new() })
    }

    /// Renames the files to their final names; called when the run is complete.
    pub fn finish(&mut self) -> Outcome {
        for path in std::mem::take(&mut self.partial) {
            std::fs::rename(partial(&path), &path).map_err(|error| Error::file(&path, error))?;
        }
        Ok(())
    }

    /// Writes a result at once, so that readers of the file see it before the run is complete.
    pub fn row(&mut self, row: Row) -> Outcome {
        let line = serde_json::to_string(&row).map_err(not_json)?;
        for lines in [&mut self.json, &mut self.jsonl].into_iter().flatten() {
            lines.put(&line)?;
        }
        if let Some((path, csv)) = &mut self.csv {
            let mut cells = cells(&row)?;
            let record = columns().into_iter().map(|name| cells.remove(&name).unwrap_or_default());
            let written = csv.write_record(record).map_err(io::Error::from);
            written.and_then(|()| csv.flush()).map_err(|error| Error::file(path, error))?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Writes the comparison of two runs.
    pub fn compared(&mut self, comparison: &Comparison) -> Outcome {
        if let Some(json) = &mut self.json {
            comparison.lines().try_for_each(|line| json.put(&line.to_string()))?;
        }
        self.say(&comparison.to_string())
    }

    /// Prints `line`, unless standard output carries JSON. With `--json`, also writes `value` to the JSON output.
    pub fn told(&mut self, line: &str, value: &Value) -> Outcome {
        if let Some(json) = &mut self.json {
            json.put(&value.to_string())?;
        }
        self.say(line)
    }

    /// Prints a line, unless standard output carries JSON.
    pub fn say(&self, line: &str) -> Outcome {
        if self.quiet {
            return Ok(());
        }
        writeln!(io::stdout(), "{line}").map_err(stdout_fault)
    }

    /// Prints the rows of one experiment, which are those added since the last call, as a table.
    pub fn finish_experiment(&mut self) -> Outcome {
        self.progress("");
        let rows = std::mem::take(&mut self.rows);
        if self.quiet || rows.is_empty() {
            return Ok(());
        }
        let table = table_text(&rows)?;
        io::stdout().write_all(table.as_bytes()).map_err(stdout_fault)
    }

    /// Shows the current activity on a terminal. The next call overwrites the text.
    pub fn progress(&self, text: &str) {
        if self.progress {
            // A failed progress line must not stop the measurement.
            let _ = write!(io::stderr(), "\r\x1b[K{text}").and_then(|()| io::stderr().flush());
        }
    }

    /// Prints a warning on standard error.
    pub fn warn(&self, text: &str) {
        self.progress("");
        eprintln!("{text}");
    }
}

/// Creates a file under its partial name, at which readers find the rows while the run continues. Pipes, devices and
/// open descriptors are written directly.
fn create(path: &Path, begun: &mut Vec<PathBuf>) -> Outcome<File> {
    let is_odd = path.metadata().is_ok_and(|metadata| !metadata.is_file());
    let is_descriptor = ["/dev/fd", "/dev/stdout", "/dev/stderr", "/proc"];
    let made = if is_odd || is_descriptor.iter().any(|prefix| path.starts_with(prefix)) {
        File::options().append(true).open(path)
    } else {
        // Follows links, so that the file they point to is replaced.
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let made = File::create(partial(&place));
        begun.push(place);
        made
    };
    made.map_err(|error| Error::file(path, error))
}

/// Returns the name that a file has until it is complete.
fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Replaces a file as a whole: readers find either the former content or the new one.
pub(crate) fn replace(path: &Path, text: &str) -> Outcome {
    let partial = partial(path);
    let written = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path));
    written.map_err(|error| Error::file(path, error))
}

/// Fails if the results would overwrite an input: a file of results, or [`RESULTS`] in a directory.
fn refuse_reads(json: &Path, reads: &[PathBuf]) -> Outcome {
    let id = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let written = id(json).filter(|_| json.is_file());
    let mut read = reads.iter().flat_map(|path| [id(path), id(&path.join(RESULTS))]);
    match written.is_some() && read.any(|read| read == written) {
        true => Err(Error::option("json", "a file that the command reads")),
        false => Ok(()),
    }
}

/// Returns the names of the columns: [`FIELDS`], with `pm` replaced by a column for each of its fields.
fn columns() -> Vec<String> {
    let of = |field: &&str| match *field {
        "pm" => PM_FIELDS.map(|count| format!("pm.{count}")).to_vec(),
        plain => vec![plain.to_owned()],
    };
    FIELDS.iter().flat_map(of).collect()
}

/// Fields without a printed column: `experiment`, which all printed rows share; `peer`, which the name of the measured
/// table implies; the range of `mops`; and `extra`, whose figures follow the columns as text.
const NOT_PRINTED: &[&str] = &["experiment", "peer", "mops_min", "mops_max", "extra"];

/// Returns a row's cells by the name of their column: a count of `pm` as `pm.NAME`, `extra` as JSON.
fn cells(row: &Row) -> Outcome<HashMap<String, String>> {
    let mut cells = HashMap::new();
    let fields: Map<String, Value> =
        serde_json::to_value(row).and_then(serde_json::from_value).map_err(not_json)?;
    for (name, value) in fields {
        match value {
            Value::Object(inner) if name == "pm" => {
                let inner = inner.iter().map(|(count, n)| (format!("pm.{count}"), text(n)));
                cells.extend(inner);
            }
            value => _ = cells.insert(name, text(&value)),
        }
    }
    Ok(cells)
}

/// Converts an error of serialization. It occurs only for maps whose keys are not strings, which no row has.
fn not_json(error: serde_json::Error) -> Error {
    Error::failed(format!("a result is not JSON: {error}"))
}

/// Formats one line per row and one column per field that any row has; the experiment's own figures come last.
fn table_text(rows: &[Row]) -> Outcome<String> {
    let cells = rows.iter().map(cells).collect::<Outcome<Vec<_>>>()?;
    let mut columns = columns();
    columns.retain(|column| {
        !NOT_PRINTED.contains(&column.as_str()) && cells.iter().any(|row| row.contains_key(column))
    });
    let line = |row: &HashMap<String, String>| -> Vec<String> {
        columns.iter().map(|column| row.get(column).cloned().unwrap_or_default()).collect()
    };
    let mut lines = vec![columns.clone()];
    lines.extend(cells.iter().map(line));
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let backing = rows.iter().find_map(|row| row.point("backing"));
    let backing = backing.map(|backing| format!(" (pmem: {backing})")).unwrap_or_default();
    let mut table = format!("{}{backing}\n", rows[0].experiment);
    for (i, line) in lines.iter().enumerate() {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        let padded: Vec<String> = padded.collect();
        let extra = i.checked_sub(1).map(|row| extra_text(&rows[row])).unwrap_or_default();
        table += &format!("{}  {extra}\n", padded.join("  "));
    }
    Ok(table)
}

/// Formats the experiment's own figures briefly. Most nested figures are left out; the JSON output has them.
fn extra_text(row: &Row) -> String {
    let short = |(name, value): (&String, &Value)| match value {
        _ if name == "backing" => None,
        Value::Object(class) if class.contains_key("calls") => Some(format!(
            "{name}={} calls with {} flushes, {} fences",
            class["calls"], class["flushes"], class["fences"]
        )),
        Value::Object(_) if !matches!(name.as_str(), "lines" | "usual") => None,
        Value::Array(_) => None,
        value => Some(format!("{name}={}", text(value))),
    };
    row.extra.iter().filter_map(short).collect::<Vec<_>>().join(" ")
}
