//! The announcement of a reader.

use crate::base::sync::{AtomicBool, AtomicU64};

/// The announcement of a reader that is not pinned.
pub(super) const NOWHERE: u64 = 0;

#[derive(Default)]
pub(super) struct Presence {
    /// The epoch in which the reader was pinned; [`NOWHERE`] when it is not.
    pub(super) announced: AtomicU64,
    /// Set when the reader is to process waiting objects when it leaves.
    pub(super) asked: AtomicBool,
}
