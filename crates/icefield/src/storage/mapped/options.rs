//! The options with which a medium is opened.

use std::sync::Arc;

use crate::storage::commit::SyncMode;
use crate::storage::durability::Durability;
use crate::storage::io::FaultPlan;

/// Options for opening a [`Mapped`](super::Mapped).
#[derive(Clone, Debug, Default)]
pub struct MappedOptions {
    /// The events that the files must survive.
    pub durability: Durability,
    /// Determines when writes are acknowledged, on [`Durability::Disk`].
    pub sync: SyncMode,
    /// The largest number of bytes of all regions together; `None`: only the file system limits them.
    pub max_bytes: Option<u64>,
    /// The memory to assume instead of what the system reports as left, for tests.
    pub memory: Option<u64>,
    /// Makes system calls fail, for tests.
    pub faults: Option<Arc<FaultPlan>>,
    /// The processor's caches are in the persistence domain (eADR, global persistent flush): `Pmem` and `PmemForced`
    /// then write no lines back and only fence.
    pub skip_flush: bool,
    /// The parts of the files that are put into huge pages.
    pub huge_pages: HugePages,
    /// [`open_read_only`](super::Mapped::open_read_only) neither waits for a writer nor locks one out: for tables that
    /// are never changed in place, and whose readers verify which data they may use.
    pub beside_writer: bool,
}

/// The parts of a table's files that are put into huge pages, where the kernel can do that: Linux 6.1 and later, in
/// `tmpfs`, and not where a fence is a sync. For anonymous memory huge pages are always requested.
///
/// ```
/// use icefield::{DashEh, HugePages};
/// let table = DashEh::<u64, u64>::options().huge_pages(HugePages::Never).in_memory()?;
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// No part of the files.
    Never,
    /// The new space of a file that is created or grows, as far as it contains whole huge pages. Making a huge page
    /// takes less time than making its small pages at their first accesses. If a file in use grows by more than 64 MiB,
    /// the new space gets no huge pages, because the writers wait meanwhile.
    #[default]
    Growth,
    /// As `Growth`, and each opening also moves all present content into huge pages. That takes half a second for a
    /// gigabyte, and several times as long where memory is fragmented or in use; later openings, and other processes,
    /// benefit from it.
    All,
}

impl From<bool> for HugePages {
    /// `true`: [`HugePages::All`]; `false`: [`HugePages::Never`].
    fn from(all: bool) -> Self {
        if all { Self::All } else { Self::Never }
    }
}
