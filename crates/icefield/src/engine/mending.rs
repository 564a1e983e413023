//! Opening damaged files for salvage. Missing parts of files are replaced by zeros in private copies of their pages, so
//! that the remaining content can be read. Nothing of this reaches the disk.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;
use crate::storage::alloc::{Pool, Words};
use crate::storage::superblock::{self, SessionEnd};
use crate::storage::{Medium, Region};

/// Collects descriptions of the parts that were missing. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct Mending(Arc<Mutex<Vec<String>>>);

impl Mending {
    pub(crate) fn note(&self, words: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(words);
    }

    /// Takes the descriptions.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Extends `region` with zeros to `bytes` if it is shorter, and describes the missing part.
    pub(crate) fn lengthen(
        &self,
        storage: &impl Medium,
        region: &Region,
        bytes: u64,
    ) -> Result<()> {
        let len = region.len();
        if len < bytes {
            storage.grow(region, bytes)?;
            let name = region.name();
            self.note(match len {
                0 => format!("{name} is missing or empty; it had {bytes} bytes"),
                _ => format!("{name} ends at byte {len} of {bytes}; the rest is lost"),
            });
        }
        Ok(())
    }

    /// Like [`Mending::lengthen`], for `used` blocks of `block_bytes` bytes. Returns `used`, or the number of blocks in
    /// the file if the region cannot hold `used` blocks.
    pub(crate) fn lengthen_blocks(
        &self,
        storage: &impl Medium,
        region: &Region,
        used: u64,
        block_bytes: u64,
    ) -> Result<u64> {
        let bytes = used.checked_mul(block_bytes).filter(|&bytes| bytes <= region.max_bytes());
        match bytes {
            Some(bytes) => self.lengthen(storage, region, bytes).map(|()| used),
            None => {
                let there = region.len() / block_bytes;
                self.note(format!(
                    "{} cannot have {used} blocks; it has room for {there}",
                    region.name()
                ));
                Ok(there)
            }
        }
    }

    /// Extends a file of blocks with zeros so that it has all blocks that its allocator has handed out, unless their
    /// number is impossible. Clears the allocator's other words.
    pub(crate) fn lengthen_pool(
        &self,
        storage: &impl Medium,
        pool: &Pool,
        words: &Words,
    ) -> Result<()> {
        words.forget(storage);
        let used = pool.used(storage, words);
        let used = self.lengthen_blocks(storage, pool.region(), used, pool.block_bytes())?;
        words.bound(storage, used);
        Ok(())
    }
}

/// Returns the number of records that the table had when it was closed; `None` after a crash, and for designs that only
/// estimate it.
pub(crate) fn recorded(storage: &impl Medium) -> Option<u64> {
    let (region, identity) = superblock::read(storage).ok()?;
    match superblock::session_end(storage, &region) {
        // Plush only estimates the number, because its blind puts do not check whether the key is present.
        Ok(SessionEnd::Clean(records)) if identity.design != "plush" => Some(records),
        _ => None,
    }
}
