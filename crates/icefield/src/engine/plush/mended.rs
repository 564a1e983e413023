//! The state of a table that is opened for salvage.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::engine::mending::Mending;

/// The state of a table that is opened for salvage.
pub(super) struct Mended {
    mending: Mending,
    /// Log records for which the root had no room, by hash, the oldest first.
    pub(super) spilled: Mutex<BTreeMap<u64, Vec<Spilled>>>,
}

/// `true` for a removal, and the words of the record.
pub(super) type Spilled = (bool, Vec<u64>);

impl Mended {
    pub(super) fn new(mending: Mending) -> Self {
        Self { mending, spilled: Mutex::default() }
    }

    pub(super) fn note(&self, words: String) {
        self.mending.note(words);
    }
}
