//! Where results go: JSON lines, a directory of results, a table for people; and progress, for people who wait.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use serde_json::Value;

use crate::Outcome;
use crate::args::Args;
use crate::row::Row;

/// All results of a run.
pub(crate) struct Output {
    json: Option<Box<dyn Write>>,
    jsonl: Option<BufWriter<File>>,
    csv: Option<csv::Writer<File>>,
    /// Whether standard output belongs to JSON.
    quiet: bool,
    progress: bool,
    rows: Vec<Row>,
}

impl Output {
    pub fn open(args: &Args) -> Outcome<Self> {
        let quiet = args.json.as_deref() == Some("-");
        let json: Option<Box<dyn Write>> = match args.json.as_deref() {
            None => None,
            Some("-") => Some(Box::new(io::stdout())),
            Some(path) => Some(Box::new(create(Path::new(path))?)),
        };
        let (mut jsonl, mut csv) = (None, None);
        if let Some(dir) = &args.out {
            std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
            jsonl = Some(BufWriter::new(create(&dir.join("results.jsonl"))?));
            csv = Some(csv::WriterBuilder::new().from_writer(create(&dir.join("results.csv"))?));
        }
        let mut output = Self {
            json,
            jsonl,
            csv,
            quiet,
            progress: io::stderr().is_terminal(),
            rows: Vec::new(),
        };
        if let Some(csv) = &mut output.csv {
            csv.write_record(CSV_COLUMNS)?;
        }
        Ok(output)
    }

    /// Takes a result; JSON readers see it at once.
    pub fn row(&mut self, row: Row) -> Outcome {
        let line = serde_json::to_string(&row)?;
        if let Some(json) = &mut self.json {
            writeln!(json, "{line}")?;
            json.flush()?;
        }
        if let Some(jsonl) = &mut self.jsonl {
            writeln!(jsonl, "{line}")?;
        }
        if let Some(csv) = &mut self.csv {
            let cells = flatten(&row)?;
            csv.write_record(
                CSV_COLUMNS.iter().map(|column| cell(&cells, column).unwrap_or_default()),
            )?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Writes one line of `list`.
    pub fn listed(&mut self, experiment: &str, what: &str) -> Outcome {
        if let Some(json) = &mut self.json {
            writeln!(json, "{}", serde_json::json!({ "experiment": experiment, "what": what }))?;
        }
        if !self.quiet {
            println!("{experiment:14} {what}");
        }
        Ok(())
    }

    /// Prints the rows of one experiment, taken since the last call, as a table.
    pub fn finish_experiment(&mut self) -> Outcome {
        self.progress("");
        let rows = std::mem::take(&mut self.rows);
        if !self.quiet && !rows.is_empty() {
            print_table(&rows)?;
        }
        if let Some(jsonl) = &mut self.jsonl {
            jsonl.flush()?;
        }
        if let Some(csv) = &mut self.csv {
            csv.flush()?;
        }
        Ok(())
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

fn create(path: &Path) -> Outcome<File> {
    File::create(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

const CSV_COLUMNS: &[&str] = &[
    "experiment",
    "table",
    "op",
    "peer",
    "threads",
    "keys",
    "ops",
    "batch",
    "medium",
    "dist",
    "mops",
    "mops_min",
    "mops_max",
    "mean_ns",
    "p50_ns",
    "p95_ns",
    "p99_ns",
    "p999_ns",
    "p9999_ns",
    "max_ns",
    "bytes_per_key",
    "load_factor",
    "pm.line_reads",
    "pm.line_writes",
    "pm.flushes",
    "pm.fences",
    "pm.media_reads",
    "pm.media_writes",
    "ceiling",
    "limit_ratio",
    "shape_ratio",
    "extra",
];

/// What the printed table leaves out: the same in every row, or spread over `mops`.
const NOT_PRINTED: &[&str] = &["experiment", "peer", "mops_min", "mops_max", "extra"];

/// A row's cells by column: nested counts as `pm.NAME`, `extra` as JSON.
fn flatten(row: &Row) -> Outcome<Vec<(String, String)>> {
    let mut cells = Vec::new();
    if let Value::Object(fields) = serde_json::to_value(row)? {
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

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn cell(cells: &[(String, String)], column: &str) -> Option<String> {
    cells.iter().find(|(name, _)| name == column).map(|(_, value)| value.clone())
}

/// A line per row, a column per field that some row has; what is special to the experiment comes last.
fn print_table(rows: &[Row]) -> Outcome {
    let cells: Vec<_> = rows.iter().map(flatten).collect::<Outcome<_>>()?;
    let shown = |column: &&&str| {
        !NOT_PRINTED.contains(*column) && cells.iter().any(|row| cell(row, column).is_some())
    };
    let columns: Vec<&str> = CSV_COLUMNS.iter().filter(shown).copied().collect();
    let mut lines = vec![columns.iter().map(|column| (*column).to_owned()).collect::<Vec<_>>()];
    lines.extend(
        cells.iter().map(|row| {
            columns.iter().map(|column| cell(row, column).unwrap_or_default()).collect()
        }),
    );
    let widths: Vec<usize> = (0..columns.len())
        .map(|i| lines.iter().map(|line| line[i].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = io::stdout().lock();
    let backing = rows.iter().find_map(|row| row.extra.get("backing")?.as_str());
    let backing = backing.map(|backing| format!(" (pmem: {backing})")).unwrap_or_default();
    writeln!(out, "{}{backing}", rows[0].experiment)?;
    for (i, line) in lines.iter().enumerate() {
        let padded: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        let extra = i.checked_sub(1).map(|row| extra_text(&rows[row])).unwrap_or_default();
        writeln!(out, "{}  {extra}", padded.join("  "))?;
    }
    Ok(())
}

/// What is special to the experiment, in short: most nested figures are for machines.
fn extra_text(row: &Row) -> String {
    let short = |(name, value): (&String, &Value)| match value {
        _ if name == "backing" => None,
        Value::Object(class) if class.contains_key("calls") => Some(format!(
            "{name}={} calls with {} flushes, {} fences",
            class["calls"], class["flushes"], class["fences"]
        )),
        Value::Object(_) if name != "lines" => None,
        value => Some(format!("{name}={}", plain(value))),
    };
    row.extra.iter().filter_map(short).collect::<Vec<_>>().join(" ")
}
