//! The file of the levels' entries, and the number of levels.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, MutexGuard};

use super::layout::{ENTRY_BYTES, Entry, Root, Shape};
use crate::Result;
use crate::engine::exclusion::lock;
use crate::storage::{Medium, Region, not_poisoned};

/// The entries of all levels, one level after the other.
pub(super) struct Levels {
    region: Region,
    shape: Shape,
    count: AtomicUsize,
    /// Held by the thread that adds a level.
    growing: Mutex<()>,
}

impl Levels {
    /// Returns the levels of a table whose number of levels is not known yet.
    pub(super) fn new(region: Region, shape: Shape) -> Self {
        Self { region, shape, count: AtomicUsize::new(1), growing: Mutex::new(()) }
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    #[inline(always)]
    pub(super) fn count(&self, storage: &impl Medium) -> usize {
        storage.sim_yield_point();
        // Acquire (E8): pairs with the Release in `adopt`; the entries are mapped.
        self.count.load(Acquire)
    }

    /// Adopts a number of levels, whose entries are in the file.
    pub(super) fn adopt(&self, levels: usize) {
        // Release (E8): pairs with the Acquire in `count`.
        self.count.store(levels, Release);
    }

    /// Returns the size of the entries of `levels` levels.
    pub(super) fn bytes_of(&self, levels: usize) -> u64 {
        self.shape.entries_above(levels + 1) * ENTRY_BYTES
    }

    /// Returns an entry by its number.
    #[inline(always)]
    pub(super) fn entry(&self, storage: &impl Medium, number: u32) -> Result<&Entry> {
        self.region.get(storage, u64::from(number) * ENTRY_BYTES, "the entry")
    }

    /// Locks the levels for a thread that may add one.
    pub(super) fn lock(&self, storage: &impl Medium) -> MutexGuard<'_, ()> {
        lock(storage, &self.growing)
    }

    /// Adds a level below the last one. Called under the lock.
    pub(super) fn add(&self, storage: &impl Medium, root: &Root) -> Result<()> {
        not_poisoned(storage)?;
        let levels = self.count(storage);
        let [from, to] = [levels, levels + 1].map(|levels| self.bytes_of(levels));
        storage.grow(&self.region, to)?;
        // The file may be long enough and still lack this space: a table that shrank has given it back.
        storage.reserve(&self.region, from, to - from)?;
        // P9: from here on a crash keeps the new level.
        self.publish(storage, root, levels + 1)
    }

    /// Removes the last level, which is empty. Called while no other thread writes.
    pub(super) fn remove_last(&self, storage: &impl Medium, root: &Root) -> Result<()> {
        // P21: from here on the level stays removed after a crash.
        self.publish(storage, root, self.count(storage) - 1)
    }

    fn publish(&self, storage: &impl Medium, root: &Root, levels: usize) -> Result<()> {
        root.levels.store(storage, levels as u64, Release);
        storage.try_persist(&root.levels)?;
        self.adopt(levels);
        Ok(())
    }

    /// Grows the file by a part of the next level.
    pub(super) fn grow_ahead(&self, storage: &impl Medium, bytes: u64) {
        let next = self.bytes_of(self.count(storage) + 1).min(self.region.len() + bytes);
        // A lack of space is reported when the level is added.
        let _ = storage.grow(&self.region, next);
    }
}
