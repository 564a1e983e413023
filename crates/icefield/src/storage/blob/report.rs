//! The result of a check of the store.

/// The largest number of faults that a report describes. Further faults are only counted.
const FAULTS_TOLD: usize = 100;

/// The result of [`BlobStore::check`](super::BlobStore::check).
#[derive(Clone, Debug, Default)]
pub struct BlobReport {
    /// Blobs that the table refers to.
    pub blobs: u64,
    /// The bytes of their contents.
    pub content_bytes: u64,
    /// Blocks that are owned according to the store, but that no slot refers to.
    pub leaked: u64,
    /// Descriptions of the faults found.
    pub faults: Vec<String>,
    /// The number of faults that are not in `faults`.
    pub untold: u64,
}

impl BlobReport {
    /// Returns whether the store has no faults and no leaks.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.leaked == 0
    }

    pub(super) fn fault(&mut self, words: impl FnOnce() -> String) {
        if self.faults.len() < FAULTS_TOLD {
            self.faults.push(words());
        } else {
            self.untold += 1;
        }
    }
}
