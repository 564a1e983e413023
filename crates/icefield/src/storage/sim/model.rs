//! The freedom that a crash has with stores.

/// The freedom that a crash has with stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// Persistent memory: order within a line.
    #[default]
    Pmem,
    /// A page cache over a disk: order within an 8-byte word.
    Disk,
}
