//! The role of a medium that loads and stores words.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::sealed::Sealed;
use crate::base::group::WholeLoads;
use crate::storage::arch::{self, TwoWords};

/// Loads and stores of words. Only the cells of [`crate::storage::cell`] make these calls; tables use the cells. The
/// calls are `#[track_caller]`, so that the simulator can identify each site in the code, and skip or reorder its
/// access.
pub trait Words: Sealed {
    /// True if words may also be loaded without a call of this trait, for example several at once by a vector
    /// instruction. False on a medium that observes each load.
    const DIRECT_LOADS: bool;

    /// Loads a durable word.
    #[track_caller]
    fn load32(&self, cell: &AtomicU32, order: Ordering) -> u32;

    /// Loads a durable word.
    #[track_caller]
    fn load64(&self, cell: &AtomicU64, order: Ordering) -> u64;

    /// Loads two durable words with Acquire ordering: as one, given the proof that the processor can.
    #[inline(always)]
    #[track_caller]
    fn load128(&self, words: &TwoWords, whole: Option<WholeLoads>) -> [u64; 2] {
        arch::load_two(words, whole)
    }

    /// Stores a durable word.
    #[track_caller]
    fn store32(&self, cell: &AtomicU32, value: u32, order: Ordering);

    /// Stores a durable word.
    #[track_caller]
    fn store64(&self, cell: &AtomicU64, value: u64, order: Ordering);

    /// Loads a volatile word.
    #[track_caller]
    fn load_volatile32(&self, cell: &AtomicU32, order: Ordering) -> u32;

    /// Loads a volatile word.
    #[track_caller]
    fn load_volatile64(&self, cell: &AtomicU64, order: Ordering) -> u64;

    /// Stores a volatile word.
    #[track_caller]
    fn store_volatile32(&self, cell: &AtomicU32, value: u32, order: Ordering);

    /// Stores a volatile word.
    #[track_caller]
    fn store_volatile64(&self, cell: &AtomicU64, value: u64, order: Ordering);

    /// Weak compare-and-exchange of a volatile word.
    ///
    /// # Errors
    /// The value that the cell held; `current` if the exchange failed spuriously.
    #[track_caller]
    fn cas_volatile32(
        &self,
        cell: &AtomicU32,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> std::result::Result<u32, u32>;

    /// Weak compare-and-exchange of a volatile word.
    ///
    /// # Errors
    /// The value that the cell held; `current` if the exchange failed spuriously.
    #[track_caller]
    fn cas_volatile64(
        &self,
        cell: &AtomicU64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> std::result::Result<u64, u64>;
}
