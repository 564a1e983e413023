//! `icefield load`: loads the rows of a file or a pipe into a table.
//!
//! One thread reads and converts rows ([`reader`]). The main thread puts them into the table in batches, and each batch
//! is durable before the next begins. After a crash or Ctrl-C at any time, the table holds every batch counted so far.
//! Running the same command again completes the load, because the same rows give the same records.

mod reader;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use icefield::{AnyTable, Error};
use indicatif::ProgressBar;

use crate::columns;
use crate::create::{self, NewTable};
use crate::infer;
use crate::rows::{self, BadRow, Columns, DialectArgs, Format, Input, Row, RowResult, Rows};
use crate::table::{HexArg, TableArg, Types, describe};
use crate::text::{self, canonical_type};
use icefield_console::failure::{Failure, Outcome};
use icefield_console::interrupt::Interrupt;
use icefield_console::json::{JsonArgs, Line, Output, warn, with_output};
use icefield_console::progress;
use icefield_console::terminal::shown_path;
use reader::{Batch, Event, Record};

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield load orders.ice orders.csv --create
  icefield load prices.ice orders.csv --key o_orderkey --value o_totalprice --strict
  icefield load flights.ice flights.csv --create --key-row-number
  icefield load orders.ice orders.ndjson.gz --key id --json summary.ndjson
  icefield load orders.ice orders.txt --delimiter ';' --null NA
  mysql -e 'select * from orders' | icefield load orders.ice - --delimiter tab

Columns: the key is --key, else the column `key`, else the first one; the value is --value, else the
only other column, else all others together as a JSON object. `icefield export` writes the columns again.
Inputs in gzip, zstd and UTF-16 are recognized by their content.
With --create the types are inferred from the first rows so that no text changes: 007 is not an integer,
1.50 is not a float. A later row that would change, or is not a value of the type, is rejected;
--key-type and --value-type set the types instead.
Exit status: 0 every row was loaded, 1 rows were rejected or loading failed, 2 bad usage, 130 Ctrl-C";

/// Load CSV or newline-delimited JSON into a table
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = after_long_help())]
pub struct Args {
    #[command(flatten)]
    table: TableArg,
    /// Read the rows from this file; `-` is standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Read rows in this format; without it the one that the file's name suggests (.ndjson, .jsonl, .json), else
    /// csv
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    dialect: DialectArgs,
    /// Take the keys from this column
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// Use the row numbers as keys, from 1; the value is --value, else the only column, else all as a JSON object
    #[arg(long, conflicts_with = "key")]
    key_row_number: bool,
    /// Take the values from this column (default: the only other column, else a JSON object of all others)
    #[arg(long, value_name = "COLUMN")]
    value: Option<String>,
    /// Treat a row whose key is present, from an earlier row or an earlier load, in this way
    #[arg(long, value_name = "WHAT", default_value = "replace")]
    on_duplicate: OnDuplicate,
    /// Stop at the first malformed row; without it such rows are reported, counted and skipped
    #[arg(long)]
    strict: bool,
    /// Make at most N rows durable at once
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch: u32,
    /// Create the table if it does not exist; its types are inferred from the first rows unless they are given
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    hex: HexArg,
    #[command(flatten)]
    json: JsonArgs,
    /// Store keys of this type; without it the type is inferred
    #[arg(long, help_heading = "With --create", value_name = "TYPE", value_parser = canonical_type, requires = "create")]
    key_type: Option<String>,
    /// Store values of this type; without it the type is inferred
    #[arg(long, help_heading = "With --create", value_name = "TYPE", value_parser = canonical_type, requires = "create")]
    value_type: Option<String>,
    #[command(flatten, next_help_heading = "With --create")]
    new: NewTable,
}

/// The treatment of a row whose key is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OnDuplicate {
    /// Replace the present value
    Replace,
    /// Keep the present value; the row is skipped and counted
    Keep,
    /// Stop loading
    Error,
}

/// The number of rows, and the approximate number of bytes, from which the types of a new table are inferred.
const SAMPLE_ROWS: usize = 1000;
const SAMPLE_BYTES: usize = 8 << 20;
/// The number of malformed rows that are reported individually.
const TOLD_ROWS: u64 = 10;

fn after_long_help() -> String {
    format!("Types: {}\n(floats can be values only)\n\n{EXAMPLES}", text::TYPES)
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    with_output(&args.json, &[&args.table.table, &args.file], |out| {
        if !args.create && args.new.is_asked() {
            return Err(Failure::Usage(
                "--table, --capacity, --max-bytes: only with --create".to_owned(),
            ));
        }
        let format = args.format.unwrap_or_else(|| Format::of_file(&args.file));
        let dialect = args.dialect.of(format, &args.file)?;
        // Without --create, the table is opened first, so that a wrong path is reported even before a pipe delivers
        // its first row.
        let table = if args.create { None } else { Some(args.table.open(args.new.durability)?) };
        let input = Counted::open(&args.file)?;
        let (consumed, total) = (Arc::clone(&input.read), input.total);
        let columns = Columns {
            key: args.key.clone(),
            key_is_number: args.key_row_number,
            value: args.value.clone(),
        };
        let mut rows = Rows::open(rows::text(Box::new(input))?, format, &dialect, &columns)?;
        let (table, sample) = match table {
            Some(table) => (table, Vec::new()),
            None => open_or_create(args, &mut rows, out)?,
        };
        let mut types = Types::of(&table, args.hex);
        if rows.value_column().is_none() && !types.value.takes_any_text() {
            let but = rows.key_column().map_or_else(String::new, |key| format!(" but `{key}`"));
            return Err(Failure::Usage(format!(
                "--value: name the column of the values; all columns{but} together are not a {}",
                types.value.name()
            )));
        }
        // If types are inferred, every text must match its type exactly, even if an earlier run with the same arguments
        // created the table.
        types.exact_keys = args.create && args.key_type.is_none();
        types.exact_values = args.create && args.value_type.is_none();
        let records = table.len()?;
        columns::Columns::of(&rows).keep(table.path(), records == 0)?;
        // Until here, Ctrl-C ends the process by default, which is safe because no row has been loaded.
        let interrupt = Interrupt::listen()?;
        let events = reader::spawn(rows, sample, types, args.batch as usize, args.strict)?;
        let bar = progress::over_bytes(total);
        let mut load = Load { table, args, bar, consumed, records, tally: Tally::default(), out };
        let ended = load.all(&events, &interrupt);
        load.bar.finish_and_clear();
        load.summary(ended)
    })
}

/// An input that counts the bytes read from it.
struct Counted {
    input: Input,
    read: Arc<AtomicU64>,
    /// The input's length, if it is known.
    total: Option<u64>,
}

impl Counted {
    fn open(file: &Path) -> Result<Self, Failure> {
        let read = Arc::default();
        if file == Path::new("-") {
            return Ok(Self { input: Box::new(io::stdin()), read, total: None });
        }
        let opened = File::open(file).map_err(|error| Failure::io(file, &error))?;
        let metadata = opened.metadata().map_err(|error| Failure::io(file, &error))?;
        if metadata.is_dir() {
            let file = shown_path(file);
            return Err(Failure::Usage(format!("{file}: a directory, not a file of rows")));
        }
        let total = metadata.is_file().then_some(metadata.len());
        Ok(Self { input: Box::new(opened), read, total })
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        // Relaxed: the count is only for a progress bar and orders no other memory accesses.
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// Implements `--create`: opens the table if it exists, else creates it with the given types or those inferred from the
/// first rows. Also returns the rows that were read to infer the types.
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
    let (mut sample, mut bytes) = (Vec::new(), 0);
    if args.key_type.is_none() || args.value_type.is_none() {
        while sample.len() < SAMPLE_ROWS
            && bytes < SAMPLE_BYTES
            && let Some(row) = rows.next()
        {
            bytes += row.as_ref().map_or(0, |row| row.as_ref().map_or(0, Row::bytes));
            sample.push(row);
        }
    }
    let good: Vec<&Row> =
        sample.iter().filter_map(|row| row.as_ref().ok()?.as_ref().ok()).collect();
    if good.is_empty() && (args.key_type.is_none() || args.value_type.is_none()) {
        return Err(no_types(sample));
    }
    let (mut key, mut value) = infer::types(&good);
    if rows.key_column().is_none() {
        key = "u64";
    }
    if rows.value_column().is_none() {
        value = "str";
    }
    let key = args.key_type.as_deref().unwrap_or(key);
    let value = args.value_type.as_deref().unwrap_or(value);
    let table = create::make(&args.table.table, &args.new, key, value)?;
    create::announce(&table, out)?;
    Ok((table, sample))
}

/// Returns the failure for a sample that has no usable row from which types can be inferred.
fn no_types(sample: Vec<RowResult>) -> Failure {
    let what = "so the types of the table cannot be inferred";
    match sample.into_iter().next() {
        Some(Ok(Err(bad))) => {
            Failure::Problem(format!("--create: no row can be read, {what}; {bad}"))
        }
        Some(Err(error)) => Failure::Problem(format!("the input: {error}")),
        _ => Failure::Usage(format!(
            "--create: the input has no rows, {what}; give --key-type and --value-type"
        )),
    }
}

fn refuse_other_types(args: &Args, table: &AnyTable) -> Result<(), Failure> {
    let same =
        |asked: &Option<String>, found: &str| asked.as_deref().is_none_or(|asked| asked == found);
    if same(&args.key_type, table.key_type()) && same(&args.value_type, table.value_type()) {
        return Ok(());
    }
    let path = shown_path(table.path());
    Err(Failure::Usage(format!(
        "{path}: already exists as a {}; give its types, or load into another table",
        describe(table)
    )))
}

/// Counts of the load so far.
#[derive(Debug, Default)]
struct Tally {
    /// The number of rows that are durable.
    loaded: u64,
    /// The number of rows that were skipped because they are malformed.
    rejected: u64,
    /// The number of rows that were skipped because their keys were present.
    kept: u64,
}

/// The reason why loading ended.
enum Ended {
    /// All rows are loaded.
    Complete,
    /// `--strict` met a malformed row.
    Strict,
    /// `--on-duplicate error` met a row whose key was present; the text describes it.
    Duplicate(String),
    /// Ctrl-C.
    Interrupted,
    /// The input or the table failed.
    Failed(Failure),
}

struct Load<'a> {
    table: AnyTable,
    args: &'a Args,
    bar: ProgressBar,
    consumed: Arc<AtomicU64>,
    /// The number of records before the load.
    records: u64,
    tally: Tally,
    out: &'a mut Output,
}

impl Load<'_> {
    fn all(&mut self, events: &Receiver<Event>, interrupt: &Interrupt) -> Ended {
        loop {
            if interrupt.asked() {
                return Ended::Interrupted;
            }
            // The timeout bounds the time until Ctrl-C is noticed while no data arrives from a pipe.
            match events.recv_timeout(Duration::from_millis(100)) {
                Ok(Event::Batch(batch)) => match self.batch(batch) {
                    Ok(None) => {}
                    Ok(Some(ended)) => return ended,
                    Err(failure) => return Ended::Failed(failure),
                },
                Ok(Event::Failed(failure)) => return Ended::Failed(failure),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ended::Complete,
            }
        }
    }

    /// Makes a batch durable. If loading must end after this batch, returns the reason.
    fn batch(&mut self, mut batch: Batch) -> Result<Option<Ended>, Failure> {
        let mut ended = self.leave_out_duplicates(&mut batch.records)?;
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
            // With --strict, reading ends at the first malformed row, so a batch has at most one.
            self.reject(bad)?;
            go_on &= !self.args.strict;
        }
        self.bar.set_position(self.consumed.load(Ordering::Relaxed));
        self.bar.set_message(format!("{} rows", self.tally.loaded));
        if !go_on {
            ended.get_or_insert(Ended::Strict);
        }
        Ok(ended)
    }

    /// Removes records whose keys are present in the table or earlier in the batch, unless they are to replace the old
    /// value. If such a record ends the load, also removes all later ones and returns the reason. Between this check
    /// and the puts, no other process can change the table.
    fn leave_out_duplicates(
        &mut self,
        records: &mut Vec<Record>,
    ) -> Result<Option<Ended>, Failure> {
        if self.args.on_duplicate == OnDuplicate::Replace {
            return Ok(None);
        }
        let mut fresh = Vec::with_capacity(records.len());
        let mut keys = HashSet::new();
        for record in records.iter() {
            fresh.push(keys.insert(&record.key) && !self.table.contains(&record.key)?);
        }
        let first = fresh.iter().position(|is_fresh| !is_fresh);
        if let Some(first) = first
            && self.args.on_duplicate == OnDuplicate::Error
        {
            let Record { line, key, .. } = &records[first];
            let key = Types::of(&self.table, self.args.hex).key.listed(key);
            let why = format!("line {line}: the key {key} is present already");
            records.truncate(first);
            return Ok(Some(Ended::Duplicate(why)));
        }
        let mut fresh = fresh.into_iter();
        let all = records.len();
        records.retain(|_| fresh.next().unwrap_or(true));
        self.tally.kept += (all - records.len()) as u64;
        Ok(None)
    }

    /// Puts the records of a batch one by one, because the batch failed: some records are too long for the table.
    /// Records that the failed batch did store are put again, which changes nothing.
    fn one_by_one(&mut self, records: &[Record]) -> Result<bool, Failure> {
        for record in records {
            match self.table.put(&record.key, &record.value) {
                Ok(()) => self.tally.loaded += 1,
                Err(error) if is_about_a_row(&error) => {
                    self.reject(&BadRow { line: record.line, reason: error.to_string() })?;
                    if self.args.strict {
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
        let Self { tally: Tally { loaded, rejected, kept }, args, out, table, records, .. } = self;
        if rejected > TOLD_ROWS {
            warn(format_args!("... and {} more malformed rows", rejected - TOLD_ROWS));
        }
        // If the count fails, an earlier call of the table has already returned an error.
        let after = table.len().unwrap_or(records);
        let replaced = loaded.saturating_sub(after.saturating_sub(records));
        let line = Line::new()
            .field("table", &table.path().display().to_string())
            .field("loaded", &loaded)
            .field("replaced", &replaced)
            .field("kept", &kept)
            .field("rejected", &rejected)
            .field("complete", &matches!(ended, Ended::Complete));
        out.line(line)?;
        let durable = format!("{loaded} rows are durable");
        let again = match args.on_duplicate {
            OnDuplicate::Error => "",
            _ => "; run the same command again to complete the load",
        };
        match ended {
            Ended::Complete => {
                let count = |n, what| if n == 0 { String::new() } else { format!(", {n} {what}") };
                out.say(format_args!(
                    "{loaded} rows loaded{}{}{}",
                    count(replaced, "of them replaced the value of a key that was present"),
                    count(kept, "skipped: their keys were present"),
                    count(rejected, "rejected")
                ))?;
                let repeated = loaded.saturating_sub(after).max(kept.saturating_sub(records));
                if repeated > 0 && repeated * 2 >= loaded + kept {
                    warn_of_repeated_keys(args, repeated, loaded + kept);
                }
                Ok(rejected == 0)
            }
            Ended::Strict => {
                Err(Failure::Problem(format!("stopped at a malformed row (--strict); {durable}")))
            }
            Ended::Duplicate(why) => {
                Err(Failure::Problem(format!("{why} (--on-duplicate error); {durable}")))
            }
            Ended::Interrupted => {
                Err(Failure::Interrupted(format!("interrupted; {durable}{again}")))
            }
            Ended::Failed(Failure::Table(error)) if matches!(error, Error::NoSpace { .. }) => {
                Err(Failure::Problem(format!("{error}; {durable}{again}")))
            }
            Ended::Failed(failure) => Err(Failure::Problem(format!("{failure}; {durable}"))),
        }
    }
}

fn warn_of_repeated_keys(args: &Args, repeated: u64, rows: u64) {
    let column = match &args.key {
        Some(column) => format!("the column `{column}`"),
        None => "the key's column".to_owned(),
    };
    warn(format_args!(
        "note: {repeated} of {rows} rows have the key of another row; if {column} does not identify rows, name another \
         with --key, or number the rows with --key-row-number"
    ));
}

/// Returns whether the error is about a single row, so that loading can continue with the others.
fn is_about_a_row(error: &Error) -> bool {
    matches!(
        error,
        Error::KeyTooLong { .. } | Error::ValueTooLong { .. } | Error::InvalidOption { .. }
    )
}
