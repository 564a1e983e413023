//! `icefield-sql build-index`.

use std::path::PathBuf;

use datafusion::error::{DataFusionError, Result as DfResult};
use icefield::Durability;
use icefield_console::failure::{Failure, Outcome};
use icefield_console::interrupt::Interrupt;
use icefield_console::json::{JsonArgs, Line, Output, with_output};
use icefield_console::progress::over_records;
use icefield_console::terminal::{shown, shown_path};
use indicatif::ProgressBar;

use super::session::{FormatArgs, block_on, failure};
use crate::index::MOST_PARTS;
use crate::index::build::{BuildOptions, Built, Progress, build};

const EXAMPLES: &str = "\
Examples:
  icefield-sql build-index orders.parquet --on o_orderkey
  icefield-sql build-index 'orders/*.parquet' --on o_orderkey --include o_custkey,o_orderdate --index orders.ice
  icefield-sql build-index lines.tsv.gz --on order,line --include '*' --replace
  icefield-sql build-index people.csv --on id --include name --null NULL --null '\\N'
  icefield-sql build-index 'orders/*.parquet' --on o_orderkey --partitions 16 --index /srv/indexes/orders.ice

Keys are one or several columns of integers, decimals, booleans, dates, times, timestamps, strings or bytes;
floats are refused. A row whose key has a null is found only by queries that treat nulls as equal, such as those
with IS NOT DISTINCT FROM. The index has a copy of the key columns and of those that --include names: a join can
be answered by the index if it needs no other column of the table.
Memory: the stored columns of 262,144 rows of each partition. The index appears when it is complete and
durable; after Ctrl-C or a crash, a former index is unchanged.";

/// Build an index of key columns of a table's files
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Index these files: names, patterns or directories
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Take the keys from these columns
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', required = true)]
    on: Vec<String>,
    /// Store these columns, too; `*` means all
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    include: Vec<String>,
    /// Create the index in this directory; without it FILE with the ending .ice
    #[arg(long, value_name = "DIR")]
    index: Option<PathBuf>,
    /// Divide the index into N partitions by a hash of its keys, so that the processes of a cluster each need a part of
    /// it in memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PARTS)))]
    partitions: u32,
    #[command(flatten)]
    format: FormatArgs,
    /// Replace an existing index when the new one is complete
    #[arg(long)]
    replace: bool,
    /// Build with N threads; without it with as many as the machine has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Use N bits of the filter per key, 2 to 64, or 0 for no filter; without it 11
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    filter_bits: Option<u32>,
    /// Make the index survive what this durability covers: auto, process, pmem, pmem-forced (for tests), disk
    #[arg(long, value_name = "DURABILITY", default_value = "auto")]
    durability: Durability,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    with_output(&args.json, &[], |out| {
        if args.durability == Durability::Memory {
            return Err(Failure::Usage(
                "--durability memory: the index would not outlive this command; choose another durability".to_owned(),
            ));
        }
        let options = BuildOptions {
            sources: args.files.clone(),
            format: args.format.of_all(&args.files)?,
            keys: args.on.clone(),
            include: args.include.clone(),
            parts: args.partitions,
            target: target(args)?,
            replace: args.replace,
            threads: args.threads.map(usize::from),
            filter_bits: args.filter_bits,
            durability: args.durability,
        };
        occupied(&options)?;
        let interrupt = Interrupt::listen()?;
        let bar = Bar::new("reading", &interrupt);
        // The build checks the flag itself, so that it removes what it has begun.
        let work = async { build(&options, &bar).await.map_err(failure) };
        let built = block_on(work);
        bar.finish();
        report(&options.target, &built?, out)?;
        Ok(true)
    })
}

fn target(args: &Args) -> Result<PathBuf, Failure> {
    if let Some(target) = &args.index {
        return Ok(target.clone());
    }
    match &args.files[..] {
        [file] if !file.contains(['*', '?', '[']) => {
            Ok(PathBuf::from(file.trim_end_matches('/')).with_extension("ice"))
        }
        _ => Err(Failure::Usage("--index: name the directory to create".to_owned())),
    }
}

/// Fails if something exists at the target that is not to be replaced.
fn occupied(options: &BuildOptions) -> Result<(), Failure> {
    let target = &options.target;
    let Ok(found) = target.symlink_metadata() else { return Ok(()) };
    let is_empty =
        found.is_dir() && target.read_dir().is_ok_and(|mut entries| entries.next().is_none());
    if is_empty {
        return Ok(());
    }
    let shown = target.display();
    if !options.replace {
        return Err(Failure::Usage(format!(
            "{shown}: already exists; --replace builds it again, --index names another place"
        )));
    }
    if !target.join(icefield_console::stamp::NAME).exists() {
        return Err(Failure::Usage(format!(
            "{shown}: is not a join index, so --replace does not replace it; name another place with --index"
        )));
    }
    Ok(())
}

/// A progress bar that ends the build on Ctrl-C.
pub struct Bar<'a> {
    bar: ProgressBar,
    interrupt: &'a Interrupt,
}

impl<'a> Bar<'a> {
    pub fn new(title: &str, interrupt: &'a Interrupt) -> Self {
        Self { bar: over_records(title, 0), interrupt }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Bar<'_> {
    fn total(&self, rows: Option<u64>) {
        if let Some(rows) = rows {
            self.bar.set_length(rows);
        }
    }

    fn read(&self, rows: u64) {
        self.bar.set_position(rows);
    }

    fn check(&self) -> DfResult<()> {
        if self.interrupt.asked() {
            let failure = Failure::Interrupted("interrupted; nothing was changed".to_owned());
            return Err(DataFusionError::External(Box::new(failure)));
        }
        Ok(())
    }
}

/// Reports a build.
pub fn report(target: &std::path::Path, built: &Built, out: &mut Output) -> Result<(), Failure> {
    let &Built { ref stamp, index_bytes, durability, rows_read, seconds } = built;
    let keys = stamp.keys.join(",");
    out.say(format_args!(
        "{}: {} rows by {}, {} with a null there, in {:.1} s, durability {durability}",
        shown_path(target),
        stamp.rows,
        shown(&keys),
        stamp.nulls,
        seconds.0 + seconds.1
    ))?;
    let survives = matches!(durability, Durability::Pmem | Durability::Disk);
    if !survives {
        out.say("note: this medium survives the end of any process, but not a power cut")?;
    }
    let files: Vec<_> = stamp.files.iter().map(|file| file.path.display().to_string()).collect();
    out.line(
        Line::new()
            .field("index", &target.display().to_string())
            .field("files", &files)
            .field("keys", &stamp.keys)
            .field("rows", &stamp.rows)
            .field("pairs", &stamp.pairs())
            .field("partitions", &stamp.parts.len())
            .field("rows_read", &rows_read)
            .field("index_bytes", &index_bytes)
            .field("read_seconds", &seconds.0)
            .field("build_seconds", &seconds.1)
            .field("durability", &durability.to_string())
            .field("survives_power_cut", &survives),
    )
}
