//! Version locks whose word lives on a medium, beside the data that it guards.

use std::sync::atomic::Ordering;

use super::{Medium, Volatile32};
use crate::base::version_lock::LockCell;

/// The word of a [`crate::base::version_lock`] in a volatile cell. Recovery resets the cell before the lock is used.
pub struct PmLock<'a, M> {
    cell: &'a Volatile32,
    storage: &'a M,
}

impl<'a, M> PmLock<'a, M> {
    /// Returns the lock in `cell`.
    #[inline(always)]
    pub fn new(storage: &'a M, cell: &'a Volatile32) -> Self {
        Self { cell, storage }
    }

    /// Returns whether the lock's word is `cell`.
    #[inline(always)]
    #[must_use]
    pub fn is(&self, cell: &Volatile32) -> bool {
        std::ptr::eq(self.cell, cell)
    }
}

impl<M> Clone for PmLock<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for PmLock<'_, M> {}

impl<M: Medium> LockCell for PmLock<'_, M> {
    #[inline(always)]
    fn load(self, order: Ordering) -> u32 {
        self.cell.load(self.storage, order)
    }
    #[inline(always)]
    fn store(self, value: u32, order: Ordering) {
        self.cell.store(self.storage, value, order);
    }
    #[inline(always)]
    fn cas_weak(
        self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.cell.compare_exchange_weak(self.storage, current, new, success, failure)
    }
    #[inline(always)]
    fn wait(self, rounds: u32) {
        self.storage.wait(rounds);
    }
}
