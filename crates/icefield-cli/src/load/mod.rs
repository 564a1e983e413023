//! `icefield load`: rows of a file or a pipe into a table.
//!
//! One thread reads and converts rows ([`reader`]); this one puts them into the table batch by batch, each durable
//! before the next begins. So a crash, or Ctrl-C, at any time leaves a table that holds every batch counted so far, and
//! running the same command again completes it: the same rows give the same records.

mod reader;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use icefield::{AnyTable, Error};
use indicatif::ProgressBar;

use crate::create::{self, NewTable};
use crate::failure::{Failure, Outcome};
use crate::infer;
use crate::interrupt::Interrupt;
use crate::json::{JsonArgs, Line, Output, warn, with_output};
use crate::progress;
use crate::rows::{BadRow, Columns, Format, Row, RowResult, Rows};
use crate::table::{HexArg, TableArg, Types, describe};
use crate::text::canonical_type;
use reader::{Batch, Event, Record};

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield load orders.ice orders.csv --create
  icefield load prices.ice orders.csv --key o_orderkey --value o_totalprice --strict
  icefield load orders.ice orders.ndjson --key id --json summary.ndjson
  zcat orders.csv.gz | icefield load orders.ice - --format csv

Columns: the key is --key, else the column `key`, else the first one; the value is --value, else the
only other column, else all others together as a JSON object.
A row whose key is present already replaces the value.
Exit status: 0 every row was loaded, 1 rows were rejected or loading failed, 2 bad usage, 130 Ctrl-C";

/// Loads CSV or newline-delimited JSON into a table
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    table: TableArg,
    /// The rows; `-` is standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// How rows are written; without it what the file's name suggests (.ndjson, .jsonl, .json), else csv
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// The column that holds the keys
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// The column that holds the values; without it the only other column, else all others as a JSON object
    #[arg(long, value_name = "COLUMN")]
    value: Option<String>,
    /// Stop at the first malformed row; without it such rows are reported, counted and left out
    #[arg(long)]
    strict: bool,
    /// How many rows become durable at once
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch: u32,
    /// Make the table when it does not exist; its types are guessed from the first rows unless they are given
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    hex: HexArg,
    #[command(flatten)]
    json: JsonArgs,
    /// The key type; without it guessed
    #[arg(long, help_heading = "With --create", value_name = "TYPE", value_parser = canonical_type, requires = "create")]
    key_type: Option<String>,
    /// The value type; without it guessed
    #[arg(long, help_heading = "With --create", value_name = "TYPE", value_parser = canonical_type, requires = "create")]
    value_type: Option<String>,
    #[command(flatten, next_help_heading = "With --create")]
    new: NewTable,
}

/// How many rows tell the types of a table to be made.
const SAMPLE_ROWS: usize = 1000;
/// How many malformed rows are told one by one.
const TOLD_ROWS: u64 = 10;

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    with_output(&args.json, |out| {
        if !args.create && args.new.is_asked() {
            return Err(Failure::Usage(
                "--design, --capacity, --max-bytes: only with --create".to_owned(),
            ));
        }
        // Without --create the table comes first: a wrong path should not wait for the first row of a pipe.
        let table = if args.create { None } else { Some(args.table.open(args.new.durability)?) };
        let (input, total) = open_input(&args.file)?;
        let format = args.format.unwrap_or_else(|| Format::of_file(&args.file));
        let columns = Columns { key: args.key.clone(), value: args.value.clone() };
        let mut rows = Rows::open(input, format, &columns)?;
        let (table, sample) = match table {
            Some(table) => (table, Vec::new()),
            None => open_or_create(args, &mut rows, out)?,
        };
        let types = Types::of(&table, args.hex);
        if rows.value_column().is_none() && !types.value.takes_any_text() {
            return Err(Failure::Usage(format!(
                "--value: name the column of the values; all columns but `{}` together are no {}",
                rows.key_column(),
                types.value.name()
            )));
        }
        // Until here Ctrl-C just ends the process: nothing is half done.
        let interrupt = Interrupt::listen()?;
        let events = reader::spawn(rows, sample, types, args.batch as usize, args.strict)?;
        let bar = progress::over_bytes(total);
        let mut load = Load { table, strict: args.strict, bar, tally: Tally::default(), out };
        let ended = load.all(&events, &interrupt);
        load.bar.finish_and_clear();
        load.summary(ended)
    })
}

/// The input, and how long it is if that can be known.
fn open_input(file: &Path) -> Result<(Box<dyn Read + Send>, Option<u64>), Failure> {
    if file == Path::new("-") {
        return Ok((Box::new(io::stdin()), None));
    }
    let opened = File::open(file).map_err(|error| Failure::io(file, &error))?;
    let metadata = opened.metadata().map_err(|error| Failure::io(file, &error))?;
    if metadata.is_dir() {
        return Err(Failure::Usage(format!("{}: a directory, not a file of rows", file.display())));
    }
    let total = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(opened), total))
}

/// `--create`: the table if it is there, else a new one of the types that were given or that the first rows suggest.
/// Also gives the rows that this took.
fn open_or_create(
    args: &Args,
    rows: &mut Rows,
    out: &mut Output,
) -> Result<(AnyTable, Vec<RowResult>), Failure> {
    match args.table.open(args.new.durability) {
        Err(Error::NotFound { .. }) => {}
        opened => {
            let table = opened?;
            refuse_other_types(args, &table)?;
            return Ok((table, Vec::new()));
        }
    }
    let mut sample = Vec::new();
    if args.key_type.is_none() || args.value_type.is_none() {
        sample.extend(rows.by_ref().take(SAMPLE_ROWS));
    }
    let good: Vec<&Row> =
        sample.iter().filter_map(|row| row.as_ref().ok()?.as_ref().ok()).collect();
    if good.is_empty() && (args.key_type.is_none() || args.value_type.is_none()) {
        return Err(Failure::Usage(
            "--create: no row to guess the types from; give --key-type and --value-type".to_owned(),
        ));
    }
    let (key, mut value) = infer::types(&good);
    if rows.value_column().is_none() {
        value = "str";
    }
    let key = args.key_type.as_deref().unwrap_or(key);
    let value = args.value_type.as_deref().unwrap_or(value);
    let table = create::make(&args.table.table, &args.new, key, value)?;
    create::announce(&table, out)?;
    Ok((table, sample))
}

fn refuse_other_types(args: &Args, table: &AnyTable) -> Result<(), Failure> {
    let same =
        |asked: &Option<String>, found: &str| asked.as_deref().is_none_or(|asked| asked == found);
    if same(&args.key_type, table.key_type()) && same(&args.value_type, table.value_type()) {
        return Ok(());
    }
    let path = table.path().display();
    Err(Failure::Usage(format!(
        "{path}: exists already as a {}, not of the types asked for",
        describe(table)
    )))
}

/// What has happened so far.
#[derive(Debug, Default)]
struct Tally {
    /// Rows that are durable.
    loaded: u64,
    /// Rows that were left out.
    rejected: u64,
}

/// Why loading ended.
enum Ended {
    /// No row is left.
    Complete,
    /// `--strict` met a malformed row.
    Strict,
    /// Ctrl-C.
    Interrupted,
    /// The input or the table failed.
    Failed(Failure),
}

struct Load<'a> {
    table: AnyTable,
    strict: bool,
    bar: ProgressBar,
    tally: Tally,
    out: &'a mut Output,
}

impl Load<'_> {
    fn all(&mut self, events: &Receiver<Event>, interrupt: &Interrupt) -> Ended {
        loop {
            if interrupt.asked() {
                return Ended::Interrupted;
            }
            // Now and then look up from a pipe that is silent.
            match events.recv_timeout(Duration::from_millis(100)) {
                Ok(Event::Batch(batch)) => match self.batch(&batch) {
                    Ok(true) => {}
                    Ok(false) => return Ended::Strict,
                    Err(failure) => return Ended::Failed(failure),
                },
                Ok(Event::Failed(failure)) => return Ended::Failed(failure),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ended::Complete,
            }
        }
    }

    /// Makes a batch durable; `false` when `--strict` ends with it.
    fn batch(&mut self, batch: &Batch) -> Result<bool, Failure> {
        let pairs: Vec<(&[u8], &[u8])> = batch
            .records
            .iter()
            .map(|record| (record.key.as_slice(), record.value.as_slice()))
            .collect();
        let mut go_on = true;
        match self.table.put_batch(&pairs) {
            Ok(()) => self.tally.loaded += pairs.len() as u64,
            Err(error) if is_about_a_row(&error) => go_on = self.one_by_one(&batch.records)?,
            Err(error) => return Err(error.into()),
        }
        for bad in &batch.bad {
            // Strict reading ends with its first malformed row, so there is at most one.
            self.reject(bad)?;
            go_on &= !self.strict;
        }
        self.bar.set_position(batch.consumed);
        self.bar.set_message(format!("{} rows", self.tally.loaded));
        Ok(go_on)
    }

    /// Puts the records of a batch in which some are too long for the table. Those that the batch put already are put
    /// again, which changes nothing.
    fn one_by_one(&mut self, records: &[Record]) -> Result<bool, Failure> {
        for record in records {
            match self.table.put(&record.key, &record.value) {
                Ok(()) => self.tally.loaded += 1,
                Err(error) if is_about_a_row(&error) => {
                    self.reject(&BadRow { line: record.line, reason: error.to_string() })?;
                    if self.strict {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn reject(&mut self, bad: &BadRow) -> Result<(), Failure> {
        self.tally.rejected += 1;
        if self.tally.rejected <= TOLD_ROWS {
            self.bar.suspend(|| warn(bad));
        }
        self.out.line(Line::new().field("line", &bad.line).field("rejected", &bad.reason))
    }

    fn summary(self, ended: Ended) -> Outcome {
        let Self { tally: Tally { loaded, rejected }, out, table, .. } = self;
        if rejected > TOLD_ROWS {
            warn(format_args!("... and {} more malformed rows", rejected - TOLD_ROWS));
        }
        let line = Line::new()
            .field("table", &table.path().display().to_string())
            .field("loaded", &loaded)
            .field("rejected", &rejected)
            .field("complete", &matches!(ended, Ended::Complete));
        out.line(line)?;
        let durable = format!("{loaded} rows are durable");
        match ended {
            Ended::Complete => {
                let left_out =
                    if rejected == 0 { String::new() } else { format!(", {rejected} rejected") };
                out.say(format_args!("{loaded} rows loaded{left_out}"))?;
                Ok(rejected == 0)
            }
            Ended::Strict => {
                Err(Failure::Problem(format!("stopped at a malformed row (--strict); {durable}")))
            }
            Ended::Interrupted => Err(Failure::Interrupted(format!(
                "interrupted; {durable}; the same command again completes the load"
            ))),
            Ended::Failed(Failure::Table(error)) if matches!(error, Error::NoSpace { .. }) => {
                Err(Failure::Problem(format!(
                    "{error}; {durable}; the same command again completes the load"
                )))
            }
            Ended::Failed(failure) => Err(Failure::Problem(format!("{failure}; {durable}"))),
        }
    }
}

/// Whether one row is to blame, so that the others can go on.
fn is_about_a_row(error: &Error) -> bool {
    matches!(
        error,
        Error::KeyTooLong { .. } | Error::ValueTooLong { .. } | Error::InvalidOption { .. }
    )
}
