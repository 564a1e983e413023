//! The state of a store that is shared with the reclaimer, which frees the blobs that were retired. The reclaimer keeps
//! it until its own drop.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use super::chunk::ChunkTable;
use super::class::Classes;
use super::params::BlobParams;
use super::pool::Pool;
use super::space::{Space, WORD_BYTES};
use crate::Error;
use crate::base::counter::ShardedCounter;
use crate::storage::region::Region;

/// The part of the store that the reclaimer uses too. All of it except the regions lies in DRAM.
pub(super) struct Shared {
    pub(super) params: BlobParams,
    pub(super) classes: Classes,
    pub(super) blobs: Region,
    pub(super) map: Region,
    pub(super) chunks: ChunkTable,
    /// One pool for each class, by its index.
    pub(super) pools: Vec<Pool>,
    pub(super) space: Mutex<Space>,
    /// Runs that no thread can reference any more, but whose map words are not FREE yet.
    pub(super) ripe: Mutex<Vec<(u32, u32)>>,
    pub(super) ripe_runs: AtomicUsize,
    pub(super) unscanned: AtomicU32,
    /// The number of unscanned chunks that the next calls of `prepare` scan.
    pub(super) scan_due: AtomicU32,
    pub(super) used_bytes: ShardedCounter,
}

impl Shared {
    #[cold]
    pub(super) fn fault(&self, offset: u64, detail: &str) -> Error {
        Error::corrupt(self.blobs.name(), offset, detail)
    }

    #[cold]
    pub(super) fn map_fault(&self, number: u32, detail: &str) -> Error {
        Error::corrupt(self.map.name(), u64::from(number) * WORD_BYTES, detail)
    }
}
