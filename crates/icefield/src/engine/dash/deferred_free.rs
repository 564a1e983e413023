//! Freed space that operations may still access. It is returned to the file system once all of them have ended.
//!
//! A thread that looked up a segment before another thread freed it detects the change, but it may already have stored
//! a lock word there. A store into a hole would be fatal if the device is full. A hole also reads as zero, so the
//! version of a lock would repeat. Therefore every operation is pinned, and freed space waits for the operations that
//! were running when it was freed. The space may be used and freed again meanwhile; then it waits for the operations
//! that were running when it was last freed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::slots::EpochGuard;

/// Freed spaces, numbered by the directory policy.
#[derive(Default)]
pub(super) struct DeferredFree(Arc<Mutex<Spaces>>);

#[derive(Default)]
struct Spaces {
    /// For each space, the number of its frees that still wait for operations to end.
    waiting: HashMap<u32, u32>,
    /// Spaces that no operation can access any more.
    ready: Vec<u32>,
}

impl DeferredFree {
    fn lock(spaces: &Mutex<Spaces>) -> MutexGuard<'_, Spaces> {
        spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a space that is about to be freed.
    pub(super) fn enter(&self, pin: &EpochGuard<'_>, space: u32) {
        *Self::lock(&self.0).waiting.entry(space).or_default() += 1;
        let spaces = Arc::clone(&self.0);
        pin.defer(move || {
            let mut spaces = Self::lock(&spaces);
            if let Some(count) = spaces.waiting.get_mut(&space) {
                *count -= 1;
                if *count == 0 {
                    spaces.waiting.remove(&space);
                    spaces.ready.push(space);
                }
            }
        });
    }

    /// Removes and returns the spaces that may be punched. The caller checks [`DeferredFree::waits`] for each of them,
    /// once no other thread can free it.
    pub(super) fn leave(&self) -> Vec<u32> {
        std::mem::take(&mut Self::lock(&self.0).ready)
    }

    /// Returns whether the space has been freed again and is still waiting.
    pub(super) fn waits(&self, space: u32) -> bool {
        Self::lock(&self.0).waiting.contains_key(&space)
    }

    pub(super) fn is_empty(&self) -> bool {
        let spaces = Self::lock(&self.0);
        spaces.waiting.is_empty() && spaces.ready.is_empty()
    }
}
