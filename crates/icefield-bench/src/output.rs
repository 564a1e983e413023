//! Where results go: JSON lines, a directory of results, a table for people; and progress, for people who wait.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::args::Args;
use crate::compare::Comparison;
use crate::report::RESULTS;
use crate::results::text as plain;
use crate::row::{FIELDS, PM_FIELDS, Row};
use crate::{Error, Outcome};

/// All results of a run.
pub(crate) struct Output {
    json: Option<Lines>,
    jsonl: Option<Lines>,
    csv: Option<(PathBuf, csv::Writer<File>)>,
    /// Files that get their names when the run is complete.
    partial: Vec<PathBuf>,
    /// Whether standard output belongs to JSON.
    quiet: bool,
    progress: bool,
    rows: Vec<Row>,
}

/// A file of lines, or standard output.
struct Lines {
    path: PathBuf,
    writer: Box<dyn Write>,
}

impl Lines {
    fn create(path: PathBuf, begun: &mut Vec<PathBuf>) -> Outcome<Self> {
        let writer = Box::new(BufWriter::new(create(&path, begun)?));
        Ok(Self { path, writer })
    }

    fn stdout() -> Self {
        Self { path: STDOUT.into(), writer: Box::new(io::stdout()) }
    }

    /// Writes a line; it can be read at once.
    fn put(&mut self, line: &str) -> Outcome {
        let written = writeln!(self.writer, "{line}").and_then(|()| self.writer.flush());
        written.map_err(|error| Error::file(&self.path, error))
    }
}

/// How standard output is called in errors.
const STDOUT: &str = "standard output";

/// What the system answered about standard output.
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
            Some("-") => Some(Lines::stdout()),
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

    /// Gives the files their names: the run is complete.
    pub fn finish(&mut self) -> Outcome {
        for path in std::mem::take(&mut self.partial) {
            std::fs::rename(partial(&path), &path).map_err(|error| Error::file(&path, error))?;
        }
        Ok(())
    }

    /// Takes a result; readers see it at once.
    pub fn row(&mut self, row: Row) -> Outcome {
        let line = serde_json::to_string(&row).map_err(not_json)?;
        for lines in [&mut self.json, &mut self.jsonl].into_iter().flatten() {
            lines.put(&line)?;
        }
        if let Some((path, csv)) = &mut self.csv {
            let cells = flatten(&row)?;
            let record = columns().into_iter().map(|name| cell(&cells, &name).unwrap_or_default());
            let written = csv.write_record(record).map_err(io::Error::from);
            written.and_then(|()| csv.flush()).map_err(|error| Error::file(path, error))?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Writes one line of `list`.
    pub fn listed(&mut self, experiment: &str, what: &str) -> Outcome {
        if let Some(json) = &mut self.json {
            json.put(&serde_json::json!({ "experiment": experiment, "what": what }).to_string())?;
        }
        self.say(&format!("{experiment:14} {what}"))
    }

    /// Writes how two runs compare.
    pub fn compared(&mut self, comparison: &Comparison) -> Outcome {
        if let Some(json) = &mut self.json {
            comparison.lines().try_for_each(|line| json.put(&line.to_string()))?;
        }
        self.say(&comparison.to_string())
    }

    /// Says where a report is, to machines too.
    pub fn written(&mut self, page: &Path) -> Outcome {
        if let Some(json) = &mut self.json {
            json.put(&serde_json::json!({ "report": page }).to_string())?;
        }
        self.say(&format!("report: {}", page.display()))
    }

    /// Writes a line for people.
    pub fn say(&self, line: &str) -> Outcome {
        if self.quiet {
            return Ok(());
        }
        writeln!(io::stdout(), "{line}").map_err(stdout_fault)
    }

    /// Prints the rows of one experiment, taken since the last call, as a table.
    pub fn finish_experiment(&mut self) -> Outcome {
        self.progress("");
        let rows = std::mem::take(&mut self.rows);
        if self.quiet || rows.is_empty() {
            return Ok(());
        }
        let table = table_text(&rows)?;
        io::stdout().write_all(table.as_bytes()).map_err(stdout_fault)
    }

    /// Says on a terminal what is being done; the next call overwrites it.
    pub fn progress(&self, text: &str) {
        if self.progress {
            // A progress line that cannot be shown is no reason to stop measuring.
            let _ = write!(io::stderr(), "\r\x1b[K{text}").and_then(|()| io::stderr().flush());
        }
    }

    /// Tells of a problem, or of something the reader must know, on standard error.
    pub fn warn(&self, text: &str) {
        self.progress("");
        eprintln!("{text}");
    }
}

/// Begins a file that grows beside its place, where its rows can be read; pipes, devices and open files are written as
/// they are.
fn create(path: &Path, begun: &mut Vec<PathBuf>) -> Outcome<File> {
    let is_odd = path.metadata().is_ok_and(|metadata| !metadata.is_file());
    let is_descriptor = ["/dev/fd", "/dev/stdout", "/dev/stderr", "/proc"];
    let made = if is_odd || is_descriptor.iter().any(|prefix| path.starts_with(prefix)) {
        File::options().append(true).open(path)
    } else {
        // Links lead to what is replaced.
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let made = File::create(partial(&place));
        begun.push(place);
        made
    };
    made.map_err(|error| Error::file(path, error))
}

/// What a file is called until it is complete.
pub(crate) fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Refuses to write results over those that are read: a file, or that of a directory.
fn refuse_reads(json: &Path, reads: &[PathBuf]) -> Outcome {
    let id = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let written = id(json).filter(|_| json.is_file());
    let mut read = reads.iter().flat_map(|path| [id(path), id(&path.join(RESULTS))]);
    match written.is_some() && read.any(|read| read == written) {
        true => Err(Error::option("json", "a file that the command reads")),
        false => Ok(()),
    }
}

/// Only maps with strange keys cannot be written, and no row has one.
fn not_json(error: serde_json::Error) -> Error {
    Error::failed(format!("a result that is no JSON: {error}"))
}

/// The columns: [`FIELDS`], with a column for each field of `pm`.
fn columns() -> Vec<String> {
    let of = |field: &&str| match *field {
        "pm" => PM_FIELDS.iter().map(|count| format!("pm.{count}")).collect(),
        plain => vec![plain.to_owned()],
    };
    FIELDS.iter().flat_map(of).collect()
}

/// What the printed table leaves out: the same in every row, or spread over `mops`.
const NOT_PRINTED: &[&str] = &["experiment", "peer", "mops_min", "mops_max", "extra"];

/// A row's cells by column: nested counts as `pm.NAME`, `extra` as JSON.
fn flatten(row: &Row) -> Outcome<Vec<(String, String)>> {
    let mut cells = Vec::new();
    if let Value::Object(fields) = serde_json::to_value(row).map_err(not_json)? {
        for (name, value) in fields {
            match value {
                Value::Object(inner) if name == "pm" => {
                    cells.extend(
                        inner
                            .into_iter()
                            .map(|(count, value)| (format!("pm.{count}"), plain(&value))),
                    );
                }
                value => cells.push((name, plain(&value))),
            }
        }
    }
    Ok(cells)
}

fn cell(cells: &[(String, String)], column: &str) -> Option<String> {
    cells.iter().find(|(name, _)| name == column).map(|(_, value)| value.clone())
}

/// A line per row, a column per field that some row has; what is special to the experiment comes last.
fn table_text(rows: &[Row]) -> Outcome<String> {
    let cells: Vec<_> = rows.iter().map(flatten).collect::<Outcome<_>>()?;
    let shown = |column: &String| {
        !NOT_PRINTED.contains(&column.as_str())
            && cells.iter().any(|row| cell(row, column).is_some())
    };
    let columns: Vec<String> = columns().into_iter().filter(shown).collect();
    let values = |row: &Vec<(String, String)>| -> Vec<String> {
        columns.iter().map(|column| cell(row, column).unwrap_or_default()).collect()
    };
    let lines: Vec<Vec<String>> =
        std::iter::once(columns.clone()).chain(cells.iter().map(values)).collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|i| lines.iter().map(|line| line[i].chars().count()).max().unwrap_or(0))
        .collect();
    let backing = rows.iter().find_map(|row| row.extra.get("backing")?.as_str());
    let backing = backing.map(|backing| format!(" (pmem: {backing})")).unwrap_or_default();
    let mut text = format!("{}{backing}\n", rows[0].experiment);
    for (i, line) in lines.iter().enumerate() {
        let padded: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        let extra = i.checked_sub(1).map(|row| extra_text(&rows[row])).unwrap_or_default();
        text += &format!("{}  {extra}\n", padded.join("  "));
    }
    Ok(text)
}

/// What is special to the experiment, in short: most nested figures are for machines.
fn extra_text(row: &Row) -> String {
    let short = |(name, value): (&String, &Value)| match value {
        _ if name == "backing" => None,
        Value::Object(class) if class.contains_key("calls") => Some(format!(
            "{name}={} calls with {} flushes, {} fences",
            class["calls"], class["flushes"], class["fences"]
        )),
        Value::Object(_) if !matches!(name.as_str(), "lines" | "usual") => None,
        Value::Array(_) => None,
        value => Some(format!("{name}={}", plain(value))),
    };
    row.extra.iter().filter_map(short).collect::<Vec<_>>().join(" ")
}
