//! `icefield join run`: joins a file's rows with an index.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take;

use super::bar::bar;
use super::failures::internal;
use super::input::{Batch, Input};
use super::loaded::{ByteKeys, LoadedColumns, go_on};
use super::opened::{Opened, Pair};
use super::output::RowFile;
use super::select::{Chosen, Side, Sides};
use super::threads::{all_threads, threads};
use crate::join_index;
use crate::join_index::key_type::{KeyType, Stored};
use crate::join_index::stamp::Stamp;
use icefield_console::failure::{Failure, Outcome};
use icefield_console::interrupt::Interrupt;
use icefield_console::json::{JsonArgs, Line, Output, warn, with_output};

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield join run lineitem.parquet --index orders.ice --on l_orderkey
  icefield join run lineitem.parquet --index orders.ice --on l_orderkey --semi -o matched.parquet
  icefield join run lineitem.csv --index orders.ice --on l_orderkey --anti | head
  icefield join run lineitem.parquet --index orders.ice --on l_orderkey \\
      --select l_orderkey,l_quantity,orders.o_totalprice -o joined.parquet

A pair is a row of FILE and a row of the indexed file with equal keys. --count (the default) prints the
number of pairs, the length of the inner join; standard error and --json also have the number of rows of
FILE in pairs. --semi writes the rows of FILE that have a pair, --anti those that have none (also rows
without a key, like NOT EXISTS), each with all its columns, in order. --select writes each pair: columns by
name, left.NAME (FILE), right.NAME or INDEXED.NAME (the indexed file, without its ending), * for all.
Null equals nothing. Integers are compared by value, whatever their width and sign; dates and timestamps
join only with the same unit, strings only with strings or bytes. In CSV an empty field is null, all
other columns are texts, and timestamps with a zone are written in UTC. Columns of the indexed file that
--select names are read into memory, and so is its key column if it has strings: the index knows only
their hashes.
Exit status: 0 done, 1 the file has changed since it was indexed or cannot be read, 2 bad usage";

/// Join a file with the indexed file
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Read this file: CSV with a header line, or Parquet; `-` is CSV from standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Probe the index in this directory
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    /// Take the keys from this column; without it from the one with the name of the indexed column
    #[arg(long, value_name = "COLUMN")]
    on: Option<String>,
    #[command(flatten)]
    wanted: Wanted,
    /// Write rows to FILE, as Parquet if it ends in .parquet, else as CSV; without it, or for `-`, to standard
    /// output
    #[arg(short, long, value_name = "FILE|-", default_value = "-")]
    output: PathBuf,
    /// Read the indexed file from this path, if it was moved
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,
    /// Read and probe with N threads; without it with as many as the machine has
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,
    /// Continue even if the file has changed since it was indexed
    #[arg(long)]
    allow_stale: bool,
    /// Verify the checksum of every block of the index that is read
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    json: JsonArgs,
}

impl Args {
    /// Returns the paths that the command will read, as far as they are known before it starts.
    fn reads(&self) -> Vec<PathBuf> {
        let stamp = Stamp::read(&self.index).ok().flatten();
        let source = self.source.clone().or_else(|| Some(stamp?.file));
        [self.file.clone(), self.index.clone()].into_iter().chain(source).collect()
    }
}

/// The kind of result.
#[derive(clap::Args, Debug)]
#[group(multiple = false)]
struct Wanted {
    /// Count the pairs
    #[arg(long)]
    count: bool,
    /// Return the rows that have a pair
    #[arg(long)]
    semi: bool,
    /// Return the rows that have no pair
    #[arg(long)]
    anti: bool,
    /// Return the pairs, with these columns
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    select: Vec<String>,
}

impl Wanted {
    fn is_count(&self) -> bool {
        !self.semi && !self.anti && self.select.is_empty()
    }
}

/// The number of pairs that are held in memory at a time. A single key with more pairs exceeds it.
const PAIRS: u64 = 1 << 22;
/// The number of pairs written at a time.
const WRITTEN: usize = 1 << 13;

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let writes_rows = !args.wanted.is_count();
    if writes_rows && args.output == Path::new("-") && args.json.takes_stdout() {
        return Err(Failure::Usage(
            "--json -: the rows go to standard output already; name a file for them with -o"
                .to_owned(),
        ));
    }
    if !writes_rows && args.output != Path::new("-") {
        return Err(Failure::Usage(
            "-o: --count writes no rows; add --semi, --anti or --select".to_owned(),
        ));
    }
    let reads = args.reads();
    let reads: Vec<&Path> = reads.iter().map(PathBuf::as_path).collect();
    with_output(&args.json, &reads, |out| {
        let stamp = stamp(&args.index)?;
        let source = args.source.as_ref().unwrap_or(&stamp.file);
        if !args.allow_stale {
            stamp.check(source)?;
        }
        let input = Input::open(&args.file)?;
        let on = args.on.as_ref().unwrap_or(&stamp.column);
        let key = input.column(on)?;
        refuse_other_values(&input, key, &stamp, args)?;
        // Until here, Ctrl-C ends the process by default, which is safe because nothing has been written.
        let interrupt = Interrupt::listen()?;
        let plan = Plan::make(args, &stamp, source, &input, key, &interrupt)?;
        let started = Instant::now();
        // The output must not overwrite the file of `--json` either.
        let reads: Vec<&Path> = reads.iter().copied().chain(args.json.json.as_deref()).collect();
        let tally = plan.run(input, &reads, &interrupt)?;
        tell(args, &tally, started.elapsed().as_secs_f64(), out)?;
        Ok(true)
    })
}

/// Reads the index's stamp.
fn stamp(index: &Path) -> Result<Stamp, Failure> {
    let path = index.display();
    if join_index::open(index)?.is_none() {
        // The directory holds another kind of table, or no table. Opening it as a table returns the fitting error.
        let table = icefield::AnyTable::open_read_only(index)?;
        return Err(Failure::Usage(format!(
            "{path}: a {} table, not a join index; build one with `icefield join build-index`",
            table.design()
        )));
    }
    Stamp::read(index)?.ok_or_else(|| {
        Failure::Usage(format!(
            "{path}: the file of its rows is unknown; build the index with `icefield join build-index`"
        ))
    })
}

fn refuse_other_values(
    input: &Input,
    key: usize,
    stamp: &Stamp,
    args: &Args,
) -> Result<(), Failure> {
    if !input.has_types() {
        return Ok(());
    }
    let (path, field) = (input.path().display(), input.schema().field(key));
    let name = field.name();
    let here = KeyType::of(field.data_type())
        .map_err(|reason| Failure::Usage(format!("{path}: `{name}`: {reason}")))?;
    if stamp.key.joins(here.values) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{path}: `{name}` has {}, but the index {} has {} (`{}` of {})",
        here.values,
        args.index.display(),
        stamp.key.values,
        stamp.column,
        stamp.file.display()
    )))
}

/// The counts of a run.
#[derive(Default)]
struct Tally {
    rows: u64,
    /// The number of rows that have a pair; set only if the command counts pairs.
    matched: u64,
    /// The number of pairs, or of rows written.
    found: u64,
}

/// The work for each batch.
enum Work {
    Count,
    Filter { wants_matched: bool },
    Select { chosen: Vec<Chosen>, right: LoadedColumns, right_places: Vec<usize> },
}

/// Everything that is determined before the first row is read.
struct Plan<'a> {
    args: &'a Args,
    key_type: KeyType,
    index: Opened,
    work: Work,
    /// The columns to read from the probing file.
    columns: Vec<usize>,
    /// The position of the key column among `columns`.
    key: usize,
    /// The schema of the result.
    schema: SchemaRef,
}

impl<'a> Plan<'a> {
    fn make(
        args: &'a Args,
        stamp: &Stamp,
        source: &Path,
        input: &Input,
        key: usize,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let all = input.schema();
        let threads = args.threads;
        let open = |keys| Opened::open(&args.index, stamp, keys, threads, args.verify);
        let (columns, schema, work, keys) = if !args.wanted.select.is_empty() {
            let right = Input::open(source)?;
            let (chosen, schema) =
                Sides { left: (input.path(), all), right: (source, right.schema()) }
                    .choose(&args.wanted.select)?;
            let columns = places(&chosen, Side::Left, Some(key));
            let (right, right_places, keys) = load(args, stamp, right, &chosen, interrupt)?;
            (columns, schema, Work::Select { chosen, right, right_places }, keys)
        } else {
            let keys = match stamp.key.stored {
                Stored::Hashes => load(args, stamp, Input::open(source)?, &[], interrupt)?.2,
                _ => ByteKeys::default(),
            };
            if args.wanted.is_count() {
                (vec![key], SchemaRef::clone(all), Work::Count, keys)
            } else {
                let work = Work::Filter { wants_matched: args.wanted.semi };
                ((0..all.fields().len()).collect(), SchemaRef::clone(all), work, keys)
            }
        };
        let key =
            columns.binary_search(&key).map_err(|_| internal("the key column was not read"))?;
        let index = open(keys)?;
        Ok(Self { args, key_type: stamp.key, index, work, columns, key, schema })
    }

    fn run(&self, input: Input, reads: &[&Path], interrupt: &Interrupt) -> Result<Tally, Failure> {
        let (path, has_types) = (input.path().to_owned(), input.has_types());
        let bar = bar("joining", input.rows());
        let threads = self.args.threads.unwrap_or_else(all_threads);
        let mut file = match self.work {
            Work::Count => None,
            _ => Some(RowFile::create(&self.args.output, &self.schema, reads)?),
        };
        let mut tally = Tally::default();
        let mut batches = input.read(&self.columns, threads)?;
        while let Some(batch) = batches.next(interrupt)? {
            let keys = self.key_type.keys_of_batch(&batch, self.key, has_types, &path)?;
            match (&self.work, &mut file) {
                (Work::Filter { wants_matched }, Some(file)) => {
                    let (matched, _) = self.index.matched(&keys)?;
                    write_filtered(file, &batch.records, &matched, *wants_matched)?;
                }
                (Work::Select { .. }, Some(file)) => {
                    self.write_pairs(file, &batch, &keys, interrupt)?
                }
                _ => {
                    let (matched, pairs) = self.index.matched(&keys)?;
                    tally.matched += matched.true_count() as u64;
                    tally.found += pairs;
                }
            }
            bar.set_position(batches.rows());
        }
        bar.finish_and_clear();
        if let Some(file) = file {
            tally.found = file.written();
            file.finish()?;
        }
        tally.rows = batches.rows();
        Ok(tally)
    }

    /// Finds and writes the pairs of a batch, in parts if there are too many to hold in memory.
    fn write_pairs(
        &self,
        file: &mut RowFile,
        batch: &Batch,
        keys: &ArrayRef,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        let mut parts = vec![(0, keys.len())];
        while let Some((from, len)) = parts.pop() {
            let part = keys.slice(from, len);
            if len > 1 && self.index.count(&part)? > PAIRS {
                parts.push((from + len / 2, len - len / 2));
                parts.push((from, len / 2));
                continue;
            }
            for pairs in self.index.pairs(&part)?.chunks(WRITTEN) {
                go_on(interrupt)?;
                self.write_some(file, &batch.records, from as u32, pairs)?;
            }
        }
        Ok(())
    }

    fn write_some(
        &self,
        file: &mut RowFile,
        records: &RecordBatch,
        from: u32,
        pairs: &[Pair],
    ) -> Result<(), Failure> {
        let Work::Select { chosen, right, right_places } = &self.work else { return Ok(()) };
        let left_rows = UInt32Array::from_iter_values(pairs.iter().map(|(row, _)| from + row));
        let right_rows: Vec<u64> = pairs.iter().map(|&(_, row)| row).collect();
        let right_rows = right.places(&right_rows)?;
        let mut columns = Vec::with_capacity(chosen.len());
        for one in chosen {
            let read = match one.side {
                Side::Left => &self.columns,
                Side::Right => right_places,
            };
            let place = read.binary_search(&one.column);
            let place = place.map_err(|_| internal("a selected column was not read"))?;
            columns.push(match one.side {
                Side::Left => take(records.column(place), &left_rows, None).map_err(internal)?,
                Side::Right => right.take(place, &right_rows)?,
            });
        }
        let joined = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(internal)?;
        file.write(&joined)
    }
}

fn write_filtered(
    file: &mut RowFile,
    records: &RecordBatch,
    matched: &BooleanArray,
    wants_matched: bool,
) -> Result<(), Failure> {
    let wanted = BooleanArray::from_unary(matched, |is_matched| is_matched == wants_matched);
    file.write(&filter_record_batch(records, &wanted).map_err(internal)?)
}

/// Returns the sorted positions of a side's chosen columns and `more`, without duplicates.
fn places(chosen: &[Chosen], side: Side, more: Option<usize>) -> Vec<usize> {
    let columns = chosen.iter().filter(|one| one.side == side).map(|one| one.column);
    let mut places: Vec<usize> = columns.chain(more).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// Reads the chosen columns of the indexed file and its key column. Returns these columns, their positions in the file,
/// and, if the keys are bytes, the keys.
fn load(
    args: &Args,
    stamp: &Stamp,
    input: Input,
    chosen: &[Chosen],
    interrupt: &Interrupt,
) -> Result<(LoadedColumns, Vec<usize>, ByteKeys), Failure> {
    let key = input.column(&stamp.column)?;
    // The key column is read even if no column is chosen, so that the rows are counted.
    let places = places(chosen, Side::Right, Some(key));
    let key = places.binary_search(&key).map_err(|_| internal("the key column was not read"))?;
    let (path, has_types) = (input.path().to_owned(), input.has_types());
    let bar = bar("reading the indexed file", input.rows());
    let threads = args.threads.unwrap_or_else(all_threads);
    let mut keys = ByteKeys::default();
    let batches = input.read(&places, threads)?;
    let loaded = LoadedColumns::read(batches, places.len(), interrupt, |batch| {
        bar.set_position(batch.first_row);
        if stamp.key.stored == Stored::Hashes {
            let column = stamp.key.keys_of_batch(batch, key, has_types, &path)?;
            keys.push(batch.first_row, &column)?;
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    if loaded.rows() != stamp.rows && !args.allow_stale {
        let (now, then) = (loaded.rows(), stamp.rows);
        let path = path.display();
        return Err(Failure::Problem(format!(
            "{path}: has {now} rows, {then} when it was indexed"
        )));
    }
    Ok((loaded, places, keys))
}

fn tell(args: &Args, tally: &Tally, seconds: f64, out: &mut Output) -> Result<(), Failure> {
    let &Tally { rows, matched, found } = tally;
    let rate = rows as f64 / seconds.max(1e-9);
    let kind = match &args.wanted {
        Wanted { semi: true, .. } => "semi",
        Wanted { anti: true, .. } => "anti",
        wanted if wanted.is_count() => "count",
        _ => "select",
    };
    let counts = kind == "count";
    if counts {
        out.say(found)?;
    }
    if !args.json.takes_stdout() {
        out.flush()?;
        let what = match counts {
            true => format!("{matched} of them matched, {found} pairs"),
            false => format!("{found} rows written"),
        };
        warn(format_args!("{rows} rows probed, {what}, {seconds:.2} s, {rate:.0} rows/s"));
    }
    let line = Line::new()
        .field("index", &args.index.display().to_string())
        .field("file", &args.file.display().to_string())
        .field("kind", kind)
        .field("rows", &rows);
    let line = match counts {
        true => line.field("matched_rows", &matched).field("pairs", &found),
        false => line.field("written", &found),
    };
    out.line(line.field("seconds", &seconds).field("rows_per_second", &rate))
}
