//! The object of a sync.

use std::os::fd::RawFd;

/// The object that a call makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synced {
    /// The pages of a mapped range.
    Mapping {
        /// The address of the range's first byte in this process.
        address: usize,
        /// The length of the range in bytes.
        bytes: usize,
    },
    /// An open file as a whole.
    File(RawFd),
    /// The names of a directory.
    Names,
}
