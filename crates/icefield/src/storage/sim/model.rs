//! The freedom that a crash has with stores.

/// The freedom that a crash has with stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// Persistent memory: within a line, a Release store survives only with every earlier atomic store.
    #[default]
    Pmem,
    /// A page cache over a disk: each 8-byte word survives in any of its versions.
    Disk,
}
