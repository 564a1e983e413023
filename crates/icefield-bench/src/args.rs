//! The options of `icefield-bench`.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use icefield::pm::HugePages;
use icefield::{Durability, SyncMode, Yards};
use icefield_torture::workload::Distribution;

use crate::{Error, Outcome};

/// What to measure and how. The defaults are those of a full run; `--quick` makes a small one.
///
/// ```
/// let mut args = icefield_bench::Args::new("get");
/// (args.keys, args.threads) = (Some(1_000_000), vec![1]);
/// ```
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The experiment; `list` names all, `all` runs all; `compare` and `report` read results
    #[arg(default_value = "list")]
    pub experiment: String,
    /// For `compare`: two files of results, the earlier first; for `report`: a directory that `--out` made
    pub results: Vec<PathBuf>,
    /// Tables to measure, e.g. `dash-eh` [default: those of the experiment]
    #[arg(long, value_name = "T,...", value_delimiter = ',')]
    pub tables: Vec<String>,
    /// Competitors to measure beside them: `none`, `all`, or some of those that were built in, by name; on `--medium disk`
    /// those that live in files, elsewhere those in memory [default: none; for the experiment `all` all of them, with
    /// `--quick` in some experiments]
    #[arg(long, value_name = "PEER,...", value_delimiter = ',')]
    pub peers: Vec<String>,
    /// A competitor as a shared library (see `icefield_peer.h`); may be given several times
    #[arg(long, value_name = "FILE")]
    pub peer_lib: Vec<PathBuf>,
    /// Thread counts [default: 1 and all cores]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Records in the table, e.g. `8M` [default: 32M in DRAM, 8M on persistent media, 200k simulated]
    #[arg(long, value_name = "N", value_parser = count)]
    pub keys: Option<u64>,
    /// Operations per measurement [default: one pass over the keys]
    #[arg(long, value_name = "N", value_parser = count)]
    pub ops: Option<u64>,
    /// How often each measurement is taken; the median is reported
    #[arg(long, value_name = "R", default_value_t = 3)]
    pub repeat: usize,
    /// Which keys reads ask for: `uniform`, `zipf:0.99`, `latest:0.99`, `hot:1000:90`
    #[arg(long, default_value = "uniform")]
    pub dist: Distribution,
    /// How operations are handed over: `none` (one by one), a number (batches of so many), `stream`
    /// [default: stream; none and 32 in amplification, none in load-factor]
    #[arg(long, value_name = "B,...", value_delimiter = ',')]
    pub batch: Vec<Batch>,
    /// Where tables live: `memory`, `process`, `pmem` (flush instructions on whatever file is there), `disk`, `sim`
    /// [default: memory for the tables that live there only, else pmem; sim for amplification]
    #[arg(long)]
    pub medium: Option<Medium>,
    /// When writes on a disk are acknowledged, where a table offers the choice: `always`, `every:MS`, `never`; competitors
    /// offer `always` and their own relaxed mode for the others; implies `--medium disk` [default: always]
    #[arg(long, visible_alias = "durability", value_name = "MODE")]
    pub sync: Option<SyncMode>,
    /// Keep the files of tables, and what they are compared with, in small pages [default: huge ones, where the kernel
    /// can, as persistent memory that is mapped directly may have them]
    #[arg(long)]
    pub small_pages: bool,
    /// Where files are made [default: /dev/shm; with `--medium disk` the directory of temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Load the table to this share of its resize point, e.g. `0.9` [default: capacity for the keys]; of all its slots
    /// in space, amplification and levels, where the table can be told to fill them [default: 0.95 in levels]
    #[arg(long, value_name = "F", value_parser = share)]
    pub fill: Option<f64>,
    /// Shares of inserts in `mixed`, e.g. `0.2` or `20%` [default: 0 to 1 in steps of 0.2]
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', value_parser = share)]
    pub insert_ratio: Vec<f64>,
    /// Stash buckets per segment, 2 to 4 [default: the table's; 2 and 4 in load-factor]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=4))]
    pub stash_buckets: Vec<u32>,
    /// Slots of IcebergHT's front and back buckets, e.g. `64/8,32/4` [default: the table's; the paper's six in levels]
    #[arg(long, value_name = "FRONT/BACK,...", value_delimiter = ',', value_parser = yards)]
    pub yards: Vec<Yards>,
    /// How DLHT spreads keys over bins [default: strong]
    #[arg(long)]
    pub hash: Option<Hashing>,
    /// Link buckets for each of DLHT's bins, 0 to 3 [default: the table's; 1/8 and 1/5 in occupancy]
    #[arg(long, value_name = "RATIO,...", value_delimiter = ',')]
    pub link_ratio: Vec<f64>,
    /// The memory node that `remote` keeps its tables on [default: each in turn]
    #[arg(long, value_name = "N")]
    pub mem_node: Option<u32>,
    /// How `ycsb-*` write: replace present records, or insert new ones
    #[arg(long, default_value = "update")]
    pub ycsb_writes: YcsbWrites,
    /// Shares of the probe rows that match in `join` and `cache-misses`, in percent, e.g. `20,100`
    /// [default: 20, 40, 60, 80, 100; in `join` also 0, TPC-H's orders, and DLHT's workload A]
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100))]
    pub selectivity: Vec<u32>,
    /// For `join`: a directory with relations to join instead of made ones, `build.u64` and one `probe-NAME.u64` or
    /// more, each the rows' keys as little-endian words; keys may repeat
    #[arg(long, value_name = "DIR")]
    pub relations: Option<PathBuf>,
    /// Seed of the keys and of every random choice
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Write results as JSON lines to this file, which grows as FILE.partial until the run is complete; `-` is standard
    /// output, and nothing else goes there then
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<String>,
    /// Write results.jsonl, results.csv and report.html with its figures to this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// At most 4 million keys, 1 million operations and three points of a sweep, measured once
    #[arg(long)]
    pub quick: bool,
    /// The program and first arguments that start this command once more, for `recovery` and `join-share` [default:
    /// this program]
    #[arg(skip)]
    pub program: Vec<OsString>,
}

impl Args {
    /// The defaults, for `experiment`.
    ///
    /// ```
    /// assert_eq!(icefield_bench::Args::new("get").repeat, 3);
    /// ```
    #[must_use]
    pub fn new(experiment: &str) -> Self {
        Self {
            experiment: experiment.to_owned(),
            results: Vec::new(),
            tables: Vec::new(),
            peers: Vec::new(),
            peer_lib: Vec::new(),
            threads: Vec::new(),
            keys: None,
            ops: None,
            repeat: 3,
            dist: Distribution::Uniform,
            batch: Vec::new(),
            medium: None,
            sync: None,
            small_pages: false,
            dir: None,
            fill: None,
            insert_ratio: Vec::new(),
            stash_buckets: Vec::new(),
            yards: Vec::new(),
            hash: None,
            link_ratio: Vec::new(),
            mem_node: None,
            ycsb_writes: YcsbWrites::Update,
            selectivity: Vec::new(),
            relations: None,
            seed: 1,
            json: None,
            out: None,
            quick: false,
            program: Vec::new(),
        }
    }
}

impl Args {
    /// What of tables' files is in huge pages.
    pub(crate) fn huge_pages(&self) -> HugePages {
        if self.small_pages { HugePages::Never } else { HugePages::Growth }
    }

    /// The program and first arguments that start this command once more.
    pub(crate) fn this_program(&self) -> Outcome<Vec<OsString>> {
        if !self.program.is_empty() {
            return Ok(self.program.clone());
        }
        let this = std::env::current_exe();
        let this = this.map_err(|error| Error::file(Path::new("this program"), error))?;
        Ok(vec![this.into()])
    }
}

/// How operations are handed to a table.
///
/// ```
/// use icefield_bench::Batch;
/// assert_eq!("none".parse(), Ok(Batch::None));
/// assert_eq!("32".parse(), Ok(Batch::Of(32)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// One call per operation.
    None,
    /// One call per so many operations.
    Of(usize),
    /// One call per 1024 operations: the table's prefetch ring is never empty for long.
    Stream,
}

/// Operations per call under [`Batch::Stream`]: enough to hide the ring's filling, few enough for the first-level
/// cache.
const STREAM_CHUNK: usize = 1024;

impl Batch {
    /// Operations per call.
    ///
    /// ```
    /// assert_eq!(icefield_bench::Batch::Of(32).size(), 32);
    /// ```
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::None => 1,
            Self::Of(size) => size,
            Self::Stream => STREAM_CHUNK,
        }
    }
}

impl FromStr for Batch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "stream" => Ok(Self::Stream),
            _ => match text.parse() {
                Ok(size @ 1..=65_536) => Ok(Self::Of(size)),
                _ => Err(format!("`{text}` is none of `none`, `stream`, 1 to 65536")),
            },
        }
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Of(size) => write!(f, "{size}"),
            Self::Stream => f.write_str("stream"),
        }
    }
}

impl serde::Serialize for Batch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str("none"),
            Self::Of(size) => serializer.serialize_u64(*size as u64),
            Self::Stream => serializer.serialize_str("stream"),
        }
    }
}

/// How keys are spread, where a table offers the choice.
///
/// ```
/// use icefield_bench::{Args, Hashing};
/// let mut args = Args::new("get");
/// args.hash = Some(Hashing::Modulo);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Hashing {
    /// A keyed hash.
    #[default]
    Strong,
    /// The key itself, modulo the number of bins.
    Modulo,
}

/// What a write of the YCSB mixes is.
///
/// ```
/// use icefield_bench::{Args, YcsbWrites};
/// assert_eq!(Args::new("ycsb-a").ycsb_writes, YcsbWrites::Update);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum YcsbWrites {
    /// It replaces the value of a present key.
    Update,
    /// It inserts a new key, so that tables grow inside the run.
    Insert,
}

/// Where a table lives.
///
/// ```
/// use icefield_bench::{Args, Medium};
/// let mut args = Args::new("amplification");
/// args.medium = Some(Medium::Sim);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Medium {
    /// Anonymous memory.
    Memory,
    /// A shared mapping; fences are free.
    Process,
    /// The flush and fence instructions of persistent memory, on whatever file is there.
    Pmem,
    /// A shared mapping; a fence is an fdatasync.
    Disk,
    /// The simulated medium: exact counts, no meaningful times.
    Sim,
}

impl Medium {
    /// What the table is opened with; `None` for the simulated medium.
    ///
    /// ```
    /// use icefield::Durability;
    /// assert_eq!(icefield_bench::Medium::Pmem.durability(), Some(Durability::PmemForced));
    /// ```
    #[must_use]
    pub fn durability(self) -> Option<Durability> {
        match self {
            Self::Memory => Some(Durability::Memory),
            Self::Process => Some(Durability::Process),
            Self::Pmem => Some(Durability::PmemForced),
            Self::Disk => Some(Durability::Disk),
            Self::Sim => None,
        }
    }

    /// Its name in options and results.
    ///
    /// ```
    /// assert_eq!(icefield_bench::Medium::Pmem.name(), "pmem");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Process => "process",
            Self::Pmem => "pmem",
            Self::Disk => "disk",
            Self::Sim => "sim",
        }
    }
}

/// A count: `8000000`, `8_000_000`, `8M`, `200k`.
fn count(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let (digits, unit) = match plain.chars().last().map(|last| last.to_ascii_lowercase()) {
        Some('k') => (&plain[..plain.len() - 1], 1_000),
        Some('m') => (&plain[..plain.len() - 1], 1_000_000),
        Some('g') => (&plain[..plain.len() - 1], 1_000_000_000),
        _ => (plain.as_str(), 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("`{text}` is no count such as 8000000, 8M or 200k"))
}

/// Bucket sizes: `64/8`.
fn yards(text: &str) -> Result<Yards, String> {
    let parsed = text.split_once('/').and_then(|(front, back)| {
        let (front, back) = (front.parse().ok()?, back.parse().ok()?);
        ((1..=64).contains(&front) && (1..=8).contains(&back)).then_some(Yards { front, back })
    });
    parsed.ok_or_else(|| format!("`{text}` is no pair of sizes from 1/1 to 64/8"))
}

/// A share: `0.2` or `20%`.
fn share(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    number
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("`{text}` is no share such as 0.2 or 20%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_documented() {
        assert_eq!(count("8M"), Ok(8_000_000));
        assert_eq!(count("200k"), Ok(200_000));
        assert_eq!(count("1_000"), Ok(1_000));
        assert!(
            count("0").is_err()
                && count("").is_err()
                && count("x").is_err()
                && count("99999999999999G").is_err()
        );
        assert_eq!(share("20%"), Ok(0.2));
        assert_eq!(share("1"), Ok(1.0));
        assert!(share("20").is_err());
        assert_eq!(yards("32/6"), Ok(Yards { front: 32, back: 6 }));
        assert!(["", "64", "65/8", "64/9", "0/1", "8/0"].iter().all(|text| yards(text).is_err()));
        assert_eq!("32".parse(), Ok(Batch::Of(32)));
        assert_eq!("stream".parse(), Ok(Batch::Stream));
        assert!("0".parse::<Batch>().is_err());
    }
}
