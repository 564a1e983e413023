//! The locks of the root's entries. The lock of an entry also covers the records in the levels whose hashes select the
//! entry.
//!
//! On disks, windows add records that readers do not see yet (`unseen`), and release the lock. Other users of an entry
//! lock it when it has none ([`RootTable::lock`], [`RootTable::try_lock`]). Windows themselves may add more meanwhile
//! ([`RootTable::lock_to_add`], [`RootTable::try_lock_to_add`]).

use std::sync::atomic::{AtomicU32, Ordering};

use super::root::RootTable;
use super::unseen::Unseen;
use crate::base::version_lock::{self, LockCell, Version, WriteGuard};
use crate::storage::Medium;
use crate::types::RecordForm;

/// An entry's lock word for `base::version_lock`; every access is a point at which the simulator may run other
/// threads.
pub(super) struct Latch<'a, M> {
    word: &'a AtomicU32,
    storage: &'a M,
}

impl<M> Clone for Latch<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Latch<'_, M> {}

impl<M: Medium> LockCell for Latch<'_, M> {
    #[inline(always)]
    fn load(self, order: Ordering) -> u32 {
        self.storage.sim_yield_point();
        self.word.load(order)
    }

    #[inline(always)]
    fn store(self, word: u32, order: Ordering) {
        self.storage.sim_yield_point();
        self.word.store(word, order);
    }

    #[inline(always)]
    fn cas_weak(
        self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.storage.sim_yield_point();
        self.word.compare_exchange_weak(current, new, success, failure)
    }

    fn wait(self, rounds: u32) {
        self.storage.wait(rounds);
    }
}

/// A locked entry of the root. Until it is dropped, no other thread changes records, in the root or in the levels,
/// whose hashes select the entry.
pub(super) struct Held<'a, M: Medium> {
    pub(super) entry: usize,
    guard: WriteGuard<Latch<'a, M>>,
}

impl<M: Medium> Held<'_, M> {
    /// Makes readers wait until the lock is released, or until `end_change`.
    #[inline]
    pub(super) fn begin_change(&self) {
        self.guard.begin_change();
    }

    /// Lets readers proceed.
    #[inline]
    pub(super) fn end_change(&self) {
        self.guard.end_change();
    }
}

impl<R: RecordForm> RootTable<R> {
    fn latch<'a, M>(&'a self, storage: &'a M, entry: usize) -> Latch<'a, M> {
        Latch { word: self.lock_word(entry), storage }
    }

    /// Locks an entry once readers see all its records. The caller has locked no other one.
    #[inline]
    pub(super) fn lock<'a, M: Medium>(&'a self, storage: &'a M, entry: usize) -> Held<'a, M> {
        let is_seen = || !self.has_unseen(entry);
        if is_seen() {
            let held = self.lock_any(storage, entry);
            if is_seen() {
                return held;
            }
        }
        // While the count exists, windows add nothing. It exists until the lock is taken.
        let _waiting = self.unseen(entry).map(Unseen::wait);
        self.lock_when(storage, entry, is_seen)
    }

    /// Locks an entry once a window may add records. The caller has locked no other one.
    pub(super) fn lock_to_add<'a, M: Medium>(
        &'a self,
        storage: &'a M,
        entry: usize,
    ) -> Held<'a, M> {
        self.lock_when(storage, entry, || self.may_add(entry))
    }

    /// Returns whether a window may add records: no thread waits until readers see all that an entry has, and if it is
    /// full, they see all. Called under the lock, or for an estimate.
    fn may_add(&self, entry: usize) -> bool {
        !self.unseen(entry).is_some_and(Unseen::is_awaited)
            && (self.has_room(entry) || !self.has_unseen(entry))
    }

    /// Locks an entry. The caller has locked no other one.
    #[inline]
    pub(super) fn lock_any<'a, M: Medium>(&'a self, storage: &'a M, entry: usize) -> Held<'a, M> {
        Held { entry, guard: version_lock::lock(self.latch(storage, entry)) }
    }

    /// Locks an entry at a time when `is_time` holds, which is called without the lock first.
    #[inline]
    fn lock_when<'a, M: Medium>(
        &'a self,
        storage: &'a M,
        entry: usize,
        is_time: impl Fn() -> bool,
    ) -> Held<'a, M> {
        let mut rounds = 0;
        loop {
            if is_time() {
                let held = self.lock_any(storage, entry);
                if is_time() {
                    return held;
                }
            }
            storage.wait(rounds);
            rounds = rounds.saturating_add(1);
        }
    }

    /// Locks an entry, unless another thread holds the lock, or readers do not see all its records.
    #[inline]
    pub(super) fn try_lock<'a, M: Medium>(
        &'a self,
        storage: &'a M,
        entry: usize,
    ) -> Option<Held<'a, M>> {
        self.try_lock_if(storage, entry, || !self.has_unseen(entry))
    }

    /// Locks an entry, unless another thread holds the lock, or a window may add no records now.
    #[inline]
    pub(super) fn try_lock_to_add<'a, M: Medium>(
        &'a self,
        storage: &'a M,
        entry: usize,
    ) -> Option<Held<'a, M>> {
        self.try_lock_if(storage, entry, || self.may_add(entry))
    }

    /// Locks an entry if its lock is free and `may` holds, which is called under the lock.
    #[inline]
    fn try_lock_if<'a, M: Medium>(
        &'a self,
        storage: &'a M,
        entry: usize,
        may: impl Fn() -> bool,
    ) -> Option<Held<'a, M>> {
        let guard = version_lock::try_lock(self.latch(storage, entry))?;
        may().then_some(Held { entry, guard })
    }

    /// Begins an optimistic read of an entry and everything below it.
    #[inline]
    pub(super) fn read_begin(&self, storage: &impl Medium, entry: usize) -> Version {
        version_lock::read_begin(self.latch(storage, entry))
    }

    /// Like [`RootTable::read_begin`], but returns `None` while the entry is being changed.
    #[inline]
    pub(super) fn try_read_begin(&self, storage: &impl Medium, entry: usize) -> Option<Version> {
        version_lock::try_read_begin(self.latch(storage, entry))
    }

    /// Returns whether nothing has changed since `read_begin`.
    #[inline]
    pub(super) fn validate(&self, storage: &impl Medium, entry: usize, version: Version) -> bool {
        version_lock::validate(self.latch(storage, entry), version)
    }
}
