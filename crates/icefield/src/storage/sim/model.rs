//! The models of a crash, which determine the stores that may survive it.

/// Determines which pending stores may survive a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// Persistent memory: within a line, a Release store survives only with every earlier atomic store.
    #[default]
    Pmem,
    /// A page cache over a disk: each 8-byte word survives in any of its versions.
    Disk,
}
