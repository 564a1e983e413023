//! The options of `icefield-bench`.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Parser;
use icefield::storage::HugePages;
use icefield::{Durability, SyncMode, Yards};
use icefield_torture::workload::Distribution;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{Error, Outcome};

/// Options of a run. The defaults are those of a full run; `--quick` makes a small one.
///
/// ```
/// let mut args = icefield_bench::Args::new("get");
/// (args.keys, args.threads) = (Some(1_000_000), vec![1]);
/// ```
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Run this experiment, or `list` or `all` of them; `compare` and `report` read earlier results
    #[arg(default_value = "list")]
    pub experiment: String,
    /// Read these: for `compare` two files of results, the earlier first; for `report` a directory that `--out`
    /// made
    pub results: Vec<PathBuf>,
    /// Measure these tables, e.g. `dash-eh` [default: those of the experiment]
    #[arg(long, value_name = "T,...", value_delimiter = ',')]
    pub tables: Vec<String>,
    /// Measure these competitors too: `none`, `all`, or names of those that were built in; `all` means those in files
    /// with `--medium disk`, otherwise those in memory [default: none; for the experiment `all` all of them, with
    /// `--quick` in some experiments]
    #[arg(long, value_name = "PEER,...", value_delimiter = ',')]
    pub peers: Vec<String>,
    /// Measure a competitor from a shared library (see `icefield_peer.h`); may be repeated
    #[arg(long, value_name = "FILE")]
    pub peer_lib: Vec<PathBuf>,
    /// Run with these numbers of threads [default: 1 and all cores]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Store N records in the table, e.g. `8M` [default: 32M in DRAM, 8M on persistent media, 200k simulated]
    #[arg(long, value_name = "N", value_parser = count)]
    pub keys: Option<u64>,
    /// Run N operations per measurement [default: one pass over the keys]
    #[arg(long, value_name = "N", value_parser = count)]
    pub ops: Option<u64>,
    /// Take each measurement R times and report the median
    #[arg(long, value_name = "R", default_value_t = 3)]
    pub repeat: usize,
    /// Draw the keys of reads from this distribution: `uniform`, `zipf:0.99`, `latest:0.99`, `hot:1000:90`
    #[arg(long, default_value = "uniform")]
    pub dist: Distribution,
    /// Pass operations to the table in this way: `none` (one by one), a number (batches of that size), `stream`
    /// [default: stream; none and 32 in amplification, none in load-factor]
    #[arg(long, value_name = "B,...", value_delimiter = ',')]
    pub batch: Vec<Batch>,
    /// Create tables on this medium: `memory`, `process`, `pmem` (flush instructions on any kind of file), `disk`,
    /// `sim` [default: memory for tables that support no other, else pmem; sim for amplification]
    #[arg(long)]
    pub medium: Option<Medium>,
    /// Acknowledge writes on a disk in this mode, where a table offers the choice: `always`, `every:MS`, `never`;
    /// competitors offer `always` and their own relaxed mode for the others; implies `--medium disk` [default:
    /// always]
    #[arg(long, visible_alias = "durability", value_name = "MODE")]
    pub sync: Option<SyncMode>,
    /// Give each Plush a thread that moves records down ahead of the writers, except on disks
    #[arg(long)]
    pub helper: bool,
    /// Use small pages for the files of tables and for the bare loops [default: huge pages where the kernel
    /// supports them, as directly mapped persistent memory may have them]
    #[arg(long)]
    pub small_pages: bool,
    /// Create files in this directory [default: /dev/shm; with `--medium disk` the directory of temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Load the table to this share of its resize point, e.g. `0.9` [default: capacity for the keys]; in `space`,
    /// `amplification` and `levels`, to this share of its slots if it can fill them all [default: 0.95 in levels]
    #[arg(long, value_name = "F", value_parser = share)]
    pub fill: Option<f64>,
    /// Measure these shares of inserts in `mixed`, e.g. `0.2` or `20%` [default: 0 to 1 in steps of 0.2]
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', value_parser = share)]
    pub insert_ratio: Vec<f64>,
    /// Give each segment N stash buckets, 2 to 4 [default: the table's; 2 and 4 in load-factor]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=4))]
    pub stash_buckets: Vec<u32>,
    /// Give IcebergHT's front and back buckets these slots, e.g. `64/8,32/4` [default: the table's; the paper's six
    /// in levels]
    #[arg(long, value_name = "FRONT/BACK,...", value_delimiter = ',', value_parser = yards)]
    pub yards: Vec<Yards>,
    /// Map keys to DLHT's bins by this function [default: strong]
    #[arg(long)]
    pub hash: Option<Hashing>,
    /// Give each of DLHT's bins this number of link buckets, 0 to 3 [default: the table's; 1/8 and 1/5 in
    /// occupancy]
    #[arg(long, value_name = "RATIO,...", value_delimiter = ',')]
    pub link_ratio: Vec<f64>,
    /// Make the writes of `ycsb-*` replace present records, or insert new ones
    #[arg(long, default_value = "update")]
    pub ycsb_writes: YcsbWrites,
    /// Let these percentages of the probe rows match in `join` and `cache-misses`, e.g. `20,100` [default: 20, 40,
    /// 60, 80, 100; in `join` also 0, TPC-H's orders, and DLHT's workload A]
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100))]
    pub selectivity: Vec<u32>,
    /// Join the relations of this directory in `join` instead of generated ones: `build.u64` and one
    /// `probe-NAME.u64` or more, each the rows' keys as little-endian words; keys may repeat
    #[arg(long, value_name = "DIR")]
    pub relations: Option<PathBuf>,
    /// Seed the keys and every random choice with S
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Write results as JSON lines to this file, which is FILE.partial until the run is complete; `-` writes them,
    /// and nothing else, to standard output
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<String>,
    /// Write results.jsonl, results.csv and report.html with its figures to this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Measure once, with at most 4 million keys, 1 million operations and three points per sweep
    #[arg(long)]
    pub quick: bool,
    /// The program that `recovery` and `join-share` start as a child process, followed by its first arguments. If
    /// empty, they start this program.
    #[arg(skip)]
    pub program: Vec<OsString>,
}

impl Args {
    /// Returns the default options for `experiment`.
    ///
    /// ```
    /// assert_eq!(icefield_bench::Args::new("get").repeat, 3);
    /// ```
    #[must_use]
    pub fn new(experiment: &str) -> Self {
        let parsed = Only::try_parse_from(["icefield-bench", experiment]);
        parsed.expect("every option has a default").args
    }

    pub(crate) fn huge_pages(&self) -> HugePages {
        if self.small_pages { HugePages::Never } else { HugePages::Growth }
    }

    /// Returns the program and its first arguments for a child process; see [`Args::program`].
    pub(crate) fn this_program(&self) -> Outcome<Vec<OsString>> {
        if !self.program.is_empty() {
            return Ok(self.program.clone());
        }
        let this = std::env::current_exe();
        let this = this.map_err(|error| Error::file(Path::new("this program"), error))?;
        Ok(vec![this.into()])
    }
}

/// A parser for the options alone, without a program's name and help.
#[derive(clap::Parser)]
struct Only {
    #[command(flatten)]
    args: Args,
}

/// The way in which operations are passed to a table.
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
    /// One call per this number of operations.
    Of(usize),
    /// One call per 4096 operations: the table's prefetch ring is rarely empty.
    Stream,
}

/// Operations per call under [`Batch::Stream`]. They are enough to make the time to fill the table's prefetch ring
/// negligible, and few enough for their arguments and answers to stay in the L2 cache.
const STREAM_CHUNK: usize = 4096;

impl Batch {
    /// Returns the number of operations per call.
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
                _ => Err(format!("`{text}` is not one of `none`, `stream`, 1 to 65536")),
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

impl Serialize for Batch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Of(size) => serializer.serialize_u64(*size as u64),
            Self::None | Self::Stream => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let size = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        size.parse().map_err(D::Error::custom)
    }
}

/// The mapping of keys to bins, where a table offers the choice.
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

/// The kind of writes in the YCSB mixes.
///
/// ```
/// use icefield_bench::{Args, YcsbWrites};
/// assert_eq!(Args::new("ycsb-a").ycsb_writes, YcsbWrites::Update);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum YcsbWrites {
    /// Replace the value of a present key.
    Update,
    /// Insert a new key, so that tables grow during the run.
    Insert,
}

/// The medium on which a table lives.
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
    /// The flush and fence instructions of persistent memory, on any kind of file.
    Pmem,
    /// A shared mapping; a fence is an fdatasync.
    Disk,
    /// The simulated medium: exact counts, no meaningful times.
    Sim,
}

impl Medium {
    /// Returns the durability with which a table is opened; `None` for the simulated medium.
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

    /// Returns the name used in options and results.
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

/// Parses a count: `8000000`, `8_000_000`, `8M`, `200k`.
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
        .ok_or_else(|| format!("`{text}` is not a count such as 8000000, 8M or 200k"))
}

/// Parses bucket sizes: `64/8`.
fn yards(text: &str) -> Result<Yards, String> {
    let parsed = text.split_once('/').and_then(|(front, back)| {
        let (front, back) = (front.parse().ok()?, back.parse().ok()?);
        ((1..=64).contains(&front) && (1..=8).contains(&back)).then_some(Yards { front, back })
    });
    parsed.ok_or_else(|| format!("`{text}` is not a pair of sizes from 1/1 to 64/8"))
}

/// Parses a share: `0.2` or `20%`.
fn share(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    number
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("`{text}` is not a share such as 0.2 or 20%"))
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
