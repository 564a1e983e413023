//! One result: a line of JSON, a line of CSV, a line of the printed table.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::args::Batch;

/// The fields of a line of results, in the order of the columns; `pm` and `extra` have fields of their own.
///
/// ```
/// assert!(icefield_bench::FIELDS.contains(&"limit_ratio"));
/// ```
pub const FIELDS: &[&str] = &[
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
    "pm",
    "ceiling",
    "limit_ratio",
    "shape_ratio",
    "extra",
];

/// The fields of `pm`.
pub(crate) const PM_FIELDS: &[&str] =
    &["line_reads", "line_writes", "flushes", "fences", "media_reads", "media_writes"];

/// A measurement. Readers of results rely on the names of the fields; fields that were not measured are left out.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub experiment: &'static str,
    pub table: String,
    pub op: &'static str,
    pub peer: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medium: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dist: Option<String>,
    /// Million operations per second: the median over the repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mops_min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mops_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p9999_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_key: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pm: Option<PmCost>,
    /// The name of the loop that `limit_ratio` compares with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

impl Row {
    /// A row about the machine itself.
    pub fn machine() -> Self {
        Self { table: "machine".to_owned(), ..Self::default() }
    }

    /// Adds a figure that is specific to the experiment.
    pub fn extra(&mut self, name: &str, value: impl Into<Value>) {
        self.extra.insert(name.to_owned(), value.into());
    }

    /// Sets the median and the range of throughput, in million operations per second.
    pub fn throughput(&mut self, mops: &[f64]) {
        self.mops = crate::stats::median(mops).map(rounded);
        self.mops_min = mops.iter().copied().reduce(f64::min).map(rounded);
        self.mops_max = mops.iter().copied().reduce(f64::max).map(rounded);
        self.mean_ns = self
            .mops
            .filter(|mops| *mops > 0.0)
            .map(|mops| rounded(1e3 * self.threads.unwrap_or(1) as f64 / mops));
    }
}

/// The mean cost of one operation on persistent memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PmCost {
    /// Distinct lines read.
    pub line_reads: f64,
    /// Lines stored to.
    pub line_writes: f64,
    pub flushes: f64,
    pub fences: f64,
    /// Blocks of 256 bytes that the medium read.
    pub media_reads: f64,
    /// Blocks of 256 bytes that the medium wrote, behind its write-combining buffer.
    pub media_writes: f64,
}

impl PmCost {
    pub fn plus(self, other: Self) -> Self {
        Self {
            line_reads: self.line_reads + other.line_reads,
            line_writes: self.line_writes + other.line_writes,
            flushes: self.flushes + other.flushes,
            fences: self.fences + other.fences,
            media_reads: self.media_reads + other.media_reads,
            media_writes: self.media_writes + other.media_writes,
        }
    }

    /// Returns the mean over `count` operations.
    pub fn over(self, count: u64) -> Self {
        let mean = |sum: f64| rounded(sum / count.max(1) as f64);
        Self {
            line_reads: mean(self.line_reads),
            line_writes: mean(self.line_writes),
            flushes: mean(self.flushes),
            fences: mean(self.fences),
            media_reads: mean(self.media_reads),
            media_writes: mean(self.media_writes),
        }
    }
}

/// Rounds to four decimals.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
