//! One result, which is written as a line of JSON and of CSV, and printed as a line of a table.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use crate::args::Batch;
use crate::stats::median;

/// Defines [`Row`], and [`FIELDS`] from the names of its fields.
macro_rules! row {
    ($($(#[$doc:meta])* $field:ident: $kind:ty,)*) => {
        /// A measurement. Readers of results rely on the names of the fields; fields that were not measured are left
        /// out.
        #[skip_serializing_none]
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub(crate) struct Row {
            $($(#[$doc])* pub $field: $kind,)*
            /// The values measured in each repeat, by name. [`Row::settle`] replaces them by their medians.
            #[serde(skip)]
            pub samples: BTreeMap<&'static str, Vec<f64>>,
        }

        /// The fields of a line of results, in the order of the columns; `pm` and `extra` consist of further fields.
        ///
        /// ```
        /// assert!(icefield_bench::FIELDS.contains(&"limit_ratio"));
        /// ```
        pub const FIELDS: &[&str] = &[$(stringify!($field)),*];
    };
}

row! {
    experiment: String,
    table: String,
    op: String,
    peer: bool,
    threads: Option<usize>,
    keys: Option<u64>,
    ops: Option<u64>,
    batch: Option<Batch>,
    medium: Option<String>,
    dist: Option<String>,
    /// Million operations per second: the median over the repeats.
    mops: Option<f64>,
    mops_min: Option<f64>,
    mops_max: Option<f64>,
    mean_ns: Option<f64>,
    p50_ns: Option<f64>,
    p95_ns: Option<f64>,
    p99_ns: Option<f64>,
    p999_ns: Option<f64>,
    p9999_ns: Option<f64>,
    max_ns: Option<f64>,
    bytes_per_key: Option<f64>,
    load_factor: Option<f64>,
    /// The mean numbers of accesses to persistent memory per operation: [`PM_FIELDS`].
    pm: Option<Counts>,
    /// The name of the loop that `limit_ratio` compares with.
    ceiling: Option<String>,
    limit_ratio: Option<f64>,
    shape_ratio: Option<f64>,
    /// Figures that are specific to the experiment.
    #[serde(skip_serializing_if = "Map::is_empty")]
    extra: Map<String, Value>,
}

/// The fields of `pm`: lines read, lines stored to, flushes, fences, and the blocks of 256 bytes that the medium read
/// and wrote, behind its write-combining buffer.
pub(crate) const PM_FIELDS: [&str; 6] =
    ["line_reads", "line_writes", "flushes", "fences", "media_reads", "media_writes"];

impl Row {
    /// Returns a row about `table`.
    pub fn new(experiment: &str, table: &str) -> Self {
        let (experiment, table) = (experiment.to_owned(), table.to_owned());
        Self { op: experiment.clone(), experiment, table, ..Self::default() }
    }

    /// Sets the fields that describe how the row was measured.
    pub fn at(&mut self, threads: usize, batch: Batch, keys: u64, ops: u64) {
        (self.threads, self.batch) = (Some(threads), Some(batch));
        (self.keys, self.ops) = (Some(keys), Some(ops));
    }

    /// Adds a figure that is specific to the experiment; `null` adds nothing.
    pub fn extra(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        if !value.is_null() {
            self.extra.insert(name.to_owned(), value);
        }
    }

    /// Adds figures that are specific to the experiment.
    pub fn extras<V: Into<Value>, const N: usize>(&mut self, all: [(&str, V); N]) {
        all.into_iter().for_each(|(name, value)| self.extra(name, value));
    }

    /// Adds the value of one repeat. The name `mops` means the throughput; other names are those of figures in `extra`.
    pub fn sample(&mut self, name: &'static str, value: f64) {
        self.samples.entry(name).or_default().push(value);
    }

    /// Returns the median of the samples that were added under `name` so far.
    pub fn median(&self, name: &str) -> Option<f64> {
        self.samples.get(name).and_then(|values| median(values))
    }

    /// Removes the samples of `name`, so that they do not become a figure of the row.
    pub fn forget(&mut self, name: &str) {
        self.samples.remove(name);
    }

    /// Sets the throughput's median and range, and the medians of all other samples.
    pub fn settle(&mut self) {
        for (name, values) in std::mem::take(&mut self.samples) {
            let middle = median(&values).map(rounded);
            if name != "mops" {
                self.extra(name, middle);
                continue;
            }
            self.mops = middle;
            self.mops_min = values.iter().copied().reduce(f64::min).map(rounded);
            self.mops_max = values.iter().copied().reduce(f64::max).map(rounded);
            let threads = self.threads.unwrap_or(1) as f64;
            let mean = middle.filter(|mops| *mops > 0.0).map(|mops| rounded(1e3 * threads / mops));
            self.mean_ns = self.mean_ns.or(mean);
        }
    }

    /// Returns the batch: `none`, a number or `stream`; an empty string if the row has none.
    pub fn batch(&self) -> String {
        self.batch.map(|batch| batch.to_string()).unwrap_or_default()
    }

    /// Returns the number of threads in words: `1 thread`, `2 threads`.
    pub fn told_threads(&self) -> String {
        let threads = self.threads.unwrap_or(1);
        format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
    }

    /// Returns a number by its name: a field, a field of `pm`, or a figure of the experiment. `OUTER/INNER` names a
    /// field inside a figure.
    pub fn figure(&self, name: &str) -> Option<f64> {
        match name {
            "threads" => self.threads.map(|threads| threads as f64),
            "keys" => self.keys.map(|keys| keys as f64),
            "mops" => self.mops,
            "p50_ns" => self.p50_ns,
            "p99_ns" => self.p99_ns,
            "p999_ns" => self.p999_ns,
            "max_ns" => self.max_ns,
            "bytes_per_key" => self.bytes_per_key,
            "limit_ratio" => self.limit_ratio,
            name if PM_FIELDS.contains(&name) => self.pm.as_ref()?.0.get(name).copied(),
            name => match name.split_once('/') {
                Some((outer, inner)) => self.extra.get(outer)?.get(inner)?.as_f64(),
                None => self.extra.get(name)?.as_f64(),
            },
        }
    }

    /// Returns the field `name` of `extra` as text, for example the row's position in a sweep.
    pub fn point(&self, name: &str) -> Option<String> {
        self.extra.get(name).map(text)
    }

    /// Returns the speed of the loop that `limit_ratio` compares with.
    pub fn ceiling_mops(&self) -> Option<f64> {
        Some(self.mops? / self.limit_ratio.filter(|ratio| *ratio > 0.0)?)
    }

    /// Returns whether the table had given a wrong answer by the time this row was written.
    pub fn is_wrong(&self) -> bool {
        self.extra.get("wrong_answers").is_some_and(|wrong| wrong == &Value::Bool(true))
    }
}

/// Numbers by name: accesses to persistent memory, or lines by structure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts(pub BTreeMap<Cow<'static, str>, f64>);

impl Counts {
    pub fn add(&mut self, name: &'static str, count: f64) {
        *self.0.entry(name.into()).or_default() += count;
    }

    pub fn merge(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            *self.0.entry(name.clone()).or_default() += count;
        }
    }

    /// Returns the means over `count` operations.
    pub fn over(&self, count: u64) -> Self {
        let mean = |(name, sum): (&Cow<'static, str>, &f64)| {
            (name.clone(), rounded(sum / count.max(1) as f64))
        };
        Self(self.0.iter().map(mean).collect())
    }

    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }
}

impl From<Counts> for Value {
    fn from(counts: Counts) -> Self {
        counts.0.into_iter().map(|(name, count)| (name.into_owned(), count)).collect()
    }
}

/// Formats a value for print: a string without quotation marks.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Rounds to four decimals.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
