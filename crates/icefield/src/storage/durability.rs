//! The option that selects which events a table's files survive.

use std::fmt;

/// The events that a table's files survive, and thereby the cost of a fence.
///
/// ```
/// use icefield::{DashEh, Durability};
/// let directory = tempfile::tempdir()?;
/// let options = DashEh::<u64, u64>::options().durability(Durability::Process);
/// let table = options.create(directory.path().join("survives-a-kill.ice"))?;
/// assert_eq!(table.stats().durability, Some(Durability::Process));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// `Pmem` where the kernel grants `MAP_SYNC` on the directory's file system. `Process` elsewhere, with a warning
    /// through the `log` crate when a table is created or opened for writing.
    #[default]
    Auto,
    /// Nothing survives: anonymous memory.
    Memory,
    /// Survives the death of the process at any instruction, but not a power failure: a shared mapping of any file. A
    /// fence costs nothing.
    Process,
    /// Survives a power failure: persistent memory. A fence costs line write-backs and a store fence.
    Pmem,
    /// `Pmem`'s instructions on any file, for tests and measurements on machines without persistent memory. Survives
    /// what the file's own medium survives.
    PmemForced,
    /// Survives a power failure on SSDs and disks: a fence costs an `fdatasync` of the dirty ranges. Refused on file
    /// systems in memory (`tmpfs`, `ramfs`). On file systems of another machine or process (NFS, SMB, FUSE and
    /// others), durability depends on that machine or process; a warning through the `log` crate says so.
    Disk,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Memory => "memory",
            Self::Process => "process",
            Self::Pmem => "pmem",
            Self::PmemForced => "pmem-forced",
            Self::Disk => "disk",
        })
    }
}

impl std::str::FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Ok(match text {
            "auto" => Self::Auto,
            "memory" => Self::Memory,
            "process" => Self::Process,
            "pmem" => Self::Pmem,
            "pmem-forced" => Self::PmemForced,
            "disk" => Self::Disk,
            _ => {
                return Err(format!(
                    "`{text}` is not one of auto, memory, process, pmem, pmem-forced, disk"
                ));
            }
        })
    }
}
