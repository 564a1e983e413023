//! The reports of a table: sizes, checks, recovery, backup and salvage.

use std::fmt;
use std::time::Duration;

use crate::error::without_advice;
use crate::storage::Durability;

/// Sizes and counters of a table at one moment, from [`Table::stats`](crate::Table::stats).
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// let stats = table.stats();
/// assert_eq!(stats.len_estimate, 0);
/// assert!(stats.details.iter().any(|(name, _)| *name == "splits"));
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Estimated number of records. Exact on a quiescent table that was closed cleanly, except in Plush, whose blind
    /// writes do not check whether their keys are present. After a crash, Dash counts only the changes since opening
    /// until [`Table::len`](crate::Table::len) is called, IcebergHT counts its records during recovery, and Plush
    /// estimates them from a sample.
    pub len_estimate: u64,
    /// Number of records that fit before the table must grow.
    pub capacity: u64,
    /// Total length of the table's regions on the medium, in bytes.
    pub storage_bytes: u64,
    /// DRAM that the table uses in addition to its regions, in bytes.
    pub dram_bytes: u64,
    /// The medium; `None` for tables that have no regions.
    pub durability: Option<Durability>,
    /// Counters that are specific to the design (segments, depth, splits ...), by name.
    pub details: Vec<(&'static str, u64)>,
}

/// The result of opening a table, from [`Durable::recovery`](crate::Durable::recovery).
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// let report = table.recovery();
/// println!("opened in {:?}, {} changes settled", report.open_time, report.resolved);
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// `true` if the table had been closed cleanly.
    pub was_clean: bool,
    /// Number of times that the table has been opened, this time included. For a [`JoinIndex`](crate::JoinIndex), the
    /// number of the present generation.
    pub generation: u64,
    /// Number of structure changes that a crash had interrupted and that opening completed or undid.
    pub resolved: u64,
    /// Duration of the opening.
    pub open_time: Duration,
}

/// The number of faults that a report lists one by one.
const FAULTS_TOLD: usize = 100;

/// The result of [`Durable::check`](crate::Durable::check).
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// let report = table.check()?;
/// assert!(report.is_clean(), "{:#?}", report.faults);
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Number of records seen.
    pub records: u64,
    /// The broken invariants, each with its number in the table's module header. At most 100 are listed; a last entry
    /// reports that there are more.
    pub faults: Vec<String>,
    /// Number of blocks that belong neither to the table nor to a free list. Any such block is a fault.
    pub leaked: u64,
}

impl CheckReport {
    /// Returns `true` if there is no fault and no leaked block.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.leaked == 0
    }

    /// Adds a fault, up to a limit: a table that is badly damaged has more faults than a reader can use.
    pub(crate) fn fault(&mut self, words: String) {
        match self.faults.len() {
            0..FAULTS_TOLD => self.faults.push(without_advice(words)),
            FAULTS_TOLD => self.faults.push("further faults are not listed".to_owned()),
            _ => {}
        }
    }
}

/// The result of [`Durable::backup`](crate::Durable::backup).
///
/// ```
/// let directory = tempfile::tempdir()?;
/// let table = icefield::DashEh::<u64, u64>::open_or_create(directory.path().join("a.ice"))?;
/// let report = table.backup(directory.path().join("copy.ice"))?;
/// println!("{} bytes; writers waited {:?}", report.bytes, report.pause);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BackupReport {
    /// Number of bytes copied.
    pub bytes: u64,
    /// Duration for which writers had to wait.
    pub pause: Duration,
}

/// The result of [`Durable::salvage`](crate::Durable::salvage).
///
/// ```
/// let directory = tempfile::tempdir()?;
/// let table = icefield::DashEh::<u64, u64>::open_or_create(directory.path().join("a.ice"))?;
/// table.put(1, 10)?;
/// let report = table.salvage(directory.path().join("rescued.ice"))?;
/// assert_eq!(report.records, 1);
/// assert!(report.lost.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Number of records copied to the new table.
    pub records: u64,
    /// Descriptions of everything that was not copied: damaged records, and parts of the files that are missing or
    /// unreadable.
    pub lost: Vec<String>,
    /// The damaged records, with the bytes that are left of them. Each is also listed in `lost`.
    pub damaged: Vec<DamagedRecord>,
}

impl SalvageReport {
    /// Adds the description of a part of the files that cannot be read.
    pub(crate) fn lose(&mut self, words: impl fmt::Display) {
        self.lost.push(without_advice(words));
    }

    /// Adds a damaged record that is not copied.
    pub(crate) fn damaged(&mut self, mut record: DamagedRecord) {
        record.reason = without_advice(record.reason);
        self.lost.push(record.to_string());
        self.damaged.push(record);
    }
}

/// A damaged record that [`Durable::salvage`](crate::Durable::salvage) found and left out. `Display` formats it as in
/// [`SalvageReport::lost`].
///
/// ```
/// # use icefield::{DamagedRecord, SalvageReport};
/// fn tell(report: &SalvageReport) {
///     for DamagedRecord { key, place, reason, .. } in &report.damaged {
///         println!("{key:?}, in {place}: {reason}");
///     }
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedRecord {
    /// The stored bytes of the key (a word is little-endian); `None` if they cannot be read. Either the key or the
    /// value may be the damaged part.
    pub key: Option<Vec<u8>>,
    /// The stored bytes of the value, in the same form as those of the key.
    pub value: Option<Vec<u8>>,
    /// The part of the files that refers to the record, in the design's terms.
    pub place: String,
    /// The fault.
    pub reason: String,
}

impl fmt::Display for DamagedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}
