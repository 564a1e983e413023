//! `icefield join build-index`: builds an index of a column of a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{Array, ArrayRef};
use icefield::storage::{Mapped, MappedOptions};
use icefield::{Durability, Error, JoinIndex, JoinOptions, JoinStats, SyncMode, Word};
use indicatif::ProgressBar;

use super::bar::bar;
use super::failures::{internal, interrupted};
use super::input::{Batch, Batches, Input};
use super::key::{Guess, texts};
use super::loaded::ByteKeys;
use super::opened::{Verify, WordKeys, hash_bytes};
use super::threads::{all_threads, threads};
use crate::create::warning;
use crate::join_index;
use crate::join_index::key_type::{KeyType, Stored};
use crate::join_index::stamp::{FileState, Stamp};
use crate::table::Keeping;
use icefield_console::failure::{Failure, Outcome};
use icefield_console::interrupt::Interrupt;
use icefield_console::json::{JsonArgs, Line, Output, with_output};
use icefield_console::progress;
use icefield_console::site::Site;
use icefield_console::terminal::{shown, shown_path};

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield join build-index orders.parquet --on o_orderkey
  icefield join build-index customers.csv --on email --index customers-by-email.ice
  icefield join build-index orders.parquet --on o_orderkey --replace --threads 4

Keys are integers (8 to 64 bits, with or without a sign, compared by value), dates, timestamps, strings
and bytes; floats are refused. A row whose key is null (an empty field of CSV) is not indexed. The keys
of CSV are integers if all of them are integers in plain form (007 is not), else strings; --key-type sets
the type. An index without keys joins with every column: no row has a pair.
The key column is in memory while the index is built: 8 bytes a row, or for strings their bytes and 32.
The index appears when it is complete and durable; after Ctrl-C or a crash, a previous index is unchanged.";

/// Build an index of a column, for joins of its file with others
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Index this file: CSV with a header line, or Parquet
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Take the keys from this column
    #[arg(long, value_name = "COLUMN")]
    on: String,
    /// Create the index in this directory; without it FILE with the ending .ice
    #[arg(long, value_name = "DIR")]
    index: Option<PathBuf>,
    /// Treat the keys of a CSV file as this type; without it the type is inferred
    #[arg(long, value_name = "TYPE")]
    key_type: Option<CsvKeys>,
    /// Replace an existing index when the new one is complete
    #[arg(long)]
    replace: bool,
    /// Read and build with N threads; without it with as many as the machine has
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,
    /// Use N bits of the filter per key, 2 to 64, or 0 for no filter; without it 11
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    filter_bits: Option<u32>,
    /// Make the index survive what this durability covers: auto, process, pmem, pmem-forced (for tests), disk
    #[arg(long, value_name = "DURABILITY", default_value = "auto")]
    durability: Keeping,
    #[command(flatten)]
    json: JsonArgs,
}

/// The type of the keys in a CSV file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CsvKeys {
    /// Integers of at most 64 bits
    Integer,
    /// Strings, compared byte by byte
    Text,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    with_output(&args.json, &[&args.file], |out| {
        let started = Instant::now();
        let durability = durability(args)?;
        let target = target(args)?;
        let _held = occupied(&target, args.replace)?;
        let before = state(&args.file)?;
        let input = Input::open(&args.file)?;
        let column = input.column(&args.on)?;
        let site = Site::new(&target, &[crate::join_index::stamp::NAME])?;
        // Until here, Ctrl-C ends the process by default, which is safe because the build has not begun.
        let interrupt = Interrupt::listen()?;
        let keys = read(args, input, column, &interrupt)?;
        let stamp = Stamp::new(&args.file, before, &args.on, keys.key_type, keys.rows)?;
        if stamp.state != state(&args.file)? {
            let file = args.file.display();
            return Err(Failure::Problem(format!("{file}: changed while it was read")));
        }
        let sign = progress::waiting("building");
        let built = build(args, &keys, &stamp, durability, &site.path());
        sign.finish_and_clear();
        let stats =
            built.map_err(|failure| if interrupt.asked() { interrupted() } else { failure })?;
        if interrupt.asked() {
            return Err(interrupted());
        }
        stamp.write(&site.path())?;
        site.publish(args.replace)?;
        tell(&target, &stamp, &stats, started, out)?;
        Ok(true)
    })
}

/// Returns the directory for the index, with symbolic links resolved.
fn target(args: &Args) -> Result<PathBuf, Failure> {
    let target = args.index.clone().unwrap_or_else(|| args.file.with_extension("ice"));
    if !target.is_symlink() {
        return Ok(target);
    }
    target.canonicalize().map_err(|error| Failure::io(&target, &error))
}

fn durability(args: &Args) -> Result<Durability, Failure> {
    match args.durability {
        Keeping { durability: Durability::Memory, .. } => Err(Failure::Usage(
            "--durability memory: the index would not outlive this command; choose another durability".to_owned(),
        )),
        Keeping { durability, sync: SyncMode::Always } => Ok(durability),
        Keeping { .. } => Err(Failure::Usage(
            "--durability: an index is durable when it is built, so it has no sync mode; use `disk`"
                .to_owned(),
        )),
    }
}

fn state(file: &Path) -> Result<FileState, Failure> {
    FileState::of(file).map_err(|error| Failure::io(file, &error))
}

/// Checks what exists at the target. If an index is to be replaced, the returned value keeps it locked against changes.
fn occupied(target: &Path, replace: bool) -> Result<Option<Mapped>, Failure> {
    if target.symlink_metadata().is_err() {
        return Ok(None);
    }
    if !replace {
        return Err(exists(target));
    }
    // A directory with a stamp is an index that this command built, even if the index is damaged now.
    let is_ours = Stamp::read(target).is_ok_and(|stamp| stamp.is_some());
    if !is_ours && join_index::open(target)?.is_none() {
        let target = target.display();
        return Err(Failure::Usage(format!(
            "{target}: is not a join index, so --replace does not replace it; name another place with --index"
        )));
    }
    hold(target)
}

fn exists(target: &Path) -> Failure {
    Failure::Usage(format!(
        "{}: already exists; --replace builds it again, --index names another place",
        target.display()
    ))
}

/// Locks the index at `target`, which will be replaced. Fails if another process is changing the index. Returns `None`
/// if the superblock is damaged or missing, because then no process can open the index.
fn hold(target: &Path) -> Result<Option<Mapped>, Failure> {
    match Mapped::open(target, MappedOptions::default()) {
        Err(Error::Corrupt { .. } | Error::NotFound { .. }) => Ok(None),
        held => Ok(Some(held?)),
    }
}

/// The key column in memory.
struct KeyColumn {
    key_type: KeyType,
    rows: u64,
    keys: Keys,
}

enum Keys {
    Words(WordKeys),
    Bytes(ByteKeys),
}

fn read(
    args: &Args,
    input: Input,
    column: usize,
    interrupt: &Interrupt,
) -> Result<KeyColumn, Failure> {
    let threads = args.threads.unwrap_or_else(all_threads);
    let bar = bar("reading", input.rows());
    let of_column =
        |reason| Failure::Usage(format!("{}: `{}`: {reason}", args.file.display(), args.on));
    let known = if input.has_types() {
        if args.key_type.is_some() {
            return Err(Failure::Usage(
                "--key-type: only for CSV; the columns of Parquet have types".to_owned(),
            ));
        }
        Some(KeyType::of(input.schema().field(column).data_type()).map_err(of_column)?)
    } else {
        (args.key_type == Some(CsvKeys::Text)).then_some(KeyType::TEXTS)
    };
    let has_types = input.has_types();
    let mut reader = Reader { args, batches: input.read(&[column], threads)?, interrupt, bar };
    let column = match known {
        Some(key_type) => reader.typed(key_type, has_types),
        None => reader.guessed(),
    };
    reader.bar.finish_and_clear();
    column
}

struct Reader<'a> {
    args: &'a Args,
    batches: Batches,
    interrupt: &'a Interrupt,
    bar: ProgressBar,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<Option<Batch>, Failure> {
        let batch = self.batches.next(self.interrupt)?;
        self.bar.set_position(self.batches.rows());
        Ok(batch)
    }

    fn typed(&mut self, key_type: KeyType, has_types: bool) -> Result<KeyColumn, Failure> {
        let mut keys = self.no_keys(key_type);
        while let Some(batch) = self.next()? {
            self.add(&mut keys, key_type, &batch, has_types)?;
        }
        Ok(KeyColumn { key_type, rows: self.batches.rows(), keys })
    }

    /// Reads the keys as texts first, because their type is known only after the last one.
    fn guessed(&mut self) -> Result<KeyColumn, Failure> {
        let (mut guess, mut all) = (Guess::new(), Vec::new());
        while let Some(batch) = self.next()? {
            guess.look(texts(batch.records.column(0))?);
            all.push(batch);
        }
        let key_type = match self.args.key_type {
            Some(CsvKeys::Integer) => guess.integers(),
            _ => guess.key_type(),
        };
        let mut keys = self.no_keys(key_type);
        for batch in all {
            self.add(&mut keys, key_type, &batch, false)?;
        }
        Ok(KeyColumn { key_type, rows: self.batches.rows(), keys })
    }

    fn no_keys(&self, key_type: KeyType) -> Keys {
        let interrupt = self.interrupt.clone();
        match key_type.stored {
            Stored::Hashes => Keys::Bytes(ByteKeys::default()),
            _ => Keys::Words(WordKeys::new(Arc::new(move || interrupt.asked()))),
        }
    }

    fn add(
        &self,
        keys: &mut Keys,
        key_type: KeyType,
        batch: &Batch,
        has_types: bool,
    ) -> Result<(), Failure> {
        let column = key_type.keys_of_batch(batch, 0, has_types, &self.args.file)?;
        refuse_lost(&self.args.file, batch, &column)?;
        match keys {
            Keys::Words(words) => words.push(batch.first_row, column),
            Keys::Bytes(bytes) => bytes.push(batch.first_row, &column)?,
        }
        Ok(())
    }
}

/// Fails if the conversion to keys turned a value into null, which happens to integers that are too large.
fn refuse_lost(file: &Path, batch: &Batch, keys: &ArrayRef) -> Result<(), Failure> {
    let column = batch.records.column(0);
    if keys.null_count() == column.logical_null_count() {
        return Ok(());
    }
    let nulls = column.logical_nulls();
    let was_valid = |at: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at));
    let lost = (0..keys.len()).find(|&at| was_valid(at) && keys.is_null(at)).unwrap_or_default();
    let row = batch.name_of(lost);
    Err(Failure::Problem(format!(
        "{}: {row}: an integer that does not fit into 64 bits together with the others; use --key-type text",
        file.display()
    )))
}

fn build(
    args: &Args,
    column: &KeyColumn,
    stamp: &Stamp,
    durability: Durability,
    path: &Path,
) -> Result<JoinStats, Failure> {
    match (&column.keys, column.key_type.stored) {
        (Keys::Words(words), Stored::Signed) => {
            let index = options::<i64>(args, durability).build_from(path, words)?;
            Ok(index.stats()?)
        }
        (Keys::Words(words), Stored::Unsigned) => {
            let index = options::<u64>(args, durability).build_from(path, words)?;
            Ok(index.stats()?)
        }
        (Keys::Bytes(bytes), Stored::Hashes) => {
            let (keys, rows) = bytes.valid();
            let verify: Verify = Box::new(|_, _| true);
            let options = options::<u64>(args, durability);
            let index = options.build_with_hash(path, &keys, &rows, hash_bytes(stamp), verify)?;
            Ok(index.hashes().stats()?)
        }
        _ => Err(internal("the keys are of another kind than the index")),
    }
}

fn options<K: Word>(args: &Args, durability: Durability) -> JoinOptions<K> {
    let mut options = JoinIndex::<K>::options().durability(durability);
    if let Some(threads) = args.threads {
        options = options.threads(threads);
    }
    if let Some(bits) = args.filter_bits {
        options = options.filter_bits_per_key(bits);
    }
    options
}

fn tell(
    target: &Path,
    stamp: &Stamp,
    stats: &JoinStats,
    started: Instant,
    out: &mut Output,
) -> Result<(), Failure> {
    let durability = stats.durability.unwrap_or_default();
    let (column, values) = (&stamp.column, stamp.key.values);
    let (pairs, rows, seconds) = (stats.pairs, stamp.rows, started.elapsed().as_secs_f64());
    out.say(format_args!(
        "{}: {pairs} of {rows} rows by `{}` ({values}) in {seconds:.1} s, durability {durability}",
        shown_path(target),
        shown(column)
    ))?;
    if let Some(warning) = warning(durability) {
        out.say(warning)?;
    }
    let line = Line::new()
        .field("index", &target.display().to_string())
        .field("file", &stamp.file.display().to_string())
        .field("column", column)
        .field("values", &values)
        .field("rows", &rows)
        .field("pairs", &pairs)
        .field("nulls", &(rows - pairs))
        .field("bytes", &stats.file_bytes)
        .field("seconds", &seconds)
        .field("durability", &durability.to_string())
        .field("survives_power_cut", &warning(durability).is_none());
    out.line(line)
}
