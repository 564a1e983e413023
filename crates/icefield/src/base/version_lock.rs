//! A bucket lock in one word: writers exclude one another, and readers proceed without a store.
//!
//! ```text
//! bits 31..2  version    incremented at the end of every change
//! bit 1       CHANGING   readers must not look: what they would see is half done, or not durable yet
//! bit 0       WRITER     one writer holds the lock
//! ```
//!
//! A reader takes the version, reads the data with `Relaxed` atomic loads, and then checks that the version is
//! unchanged. If it has changed, the data is discarded and the reader starts again. **Misses are validated exactly
//! like hits.** Readers ignore WRITER: a holder may prepare words that readers do not follow yet (free slots) for as
//! long as it likes. Readers wait only while CHANGING is set, from [`WriteGuard::begin_change`] to the unlock or to
//! [`WriteGuard::end_change`].
//!
//! # Ordering
//!
//! - E1. `begin_change` sets CHANGING and executes a Release fence; then the holder changes data. A reader that saw
//!   any of those changes executes an Acquire fence in [`validate`] and therefore sees CHANGING or a later version,
//!   so it fails.
//! - E2. Unlocking stores the incremented version with Release after the last change. A reader's Acquire load in
//!   [`read_begin`] obtains the version together with all data that it covers. The Release store also pairs with the
//!   Acquire of the next writer.
//! - E3. A Release fence follows the acquisition of the lock. Consider a reader that saw a word which a holder wrote
//!   *without* `begin_change`, into a slot that had become free but that the reader still considered in use. The
//!   fence makes the reader see the version under which the slot became free, so it fails. The holder has seen that
//!   version; without the fence, a reader that sees the holder's word might not see that version.
//!
//! # Progress
//!
//! Readers never store and never block a writer. Writers that change a bucket without pause can starve its readers. A
//! holder that is preempted after `begin_change` delays the readers of its bucket. The version has 30 bits: a reader
//! that is suspended for exactly 2^30 changes of one bucket, or a multiple of that, does not detect them.

use std::cell::Cell;

use super::sync::{self, AtomicU32, Ordering, fence};

const WRITER: u32 = 1;
const CHANGING: u32 = 2;
const VERSION_STEP: u32 = 4;

/// A word that can serve as a version lock, in any kind of memory.
pub trait LockCell: Copy {
    /// Loads the word.
    fn load(self, order: Ordering) -> u32;
    /// Stores `word`.
    fn store(self, word: u32, order: Ordering);
    /// Performs a weak compare-and-exchange.
    ///
    /// # Errors
    /// Returns the word that was found, also after a spurious failure.
    fn cas_weak(
        self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32>;
    /// Waits briefly for another thread. `rounds` is the number of earlier calls during the same wait.
    fn wait(self, rounds: u32) {
        sync::wait(rounds);
    }
}

impl LockCell for &AtomicU32 {
    #[inline(always)]
    fn load(self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline(always)]
    fn store(self, word: u32, order: Ordering) {
        self.store(word, order);
    }

    #[inline(always)]
    fn cas_weak(
        self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.compare_exchange_weak(current, new, success, failure)
    }
}

/// The version under which a reader started, for [`validate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what was read under a version means nothing until it is validated"]
pub struct Version(u32);

/// Starts a read: waits until no change is in progress, and returns the version to validate against.
#[inline]
pub fn read_begin(cell: impl LockCell) -> Version {
    let mut rounds = 0;
    loop {
        if let Some(version) = try_read_begin(cell) {
            return version;
        }
        cell.wait(rounds);
        rounds = rounds.saturating_add(1);
    }
}

/// Like [`read_begin`], but returns `None` instead of waiting.
#[inline]
pub fn try_read_begin(cell: impl LockCell) -> Option<Version> {
    // Acquire (E2): makes the data that this version covers visible.
    let word = cell.load(Ordering::Acquire);
    (word & CHANGING == 0).then_some(Version(word & !WRITER))
}

/// Returns whether all data read since `version` was taken is consistent.
#[inline]
#[must_use]
pub fn validate(cell: impl LockCell, version: Version) -> bool {
    // Acquire (E1, E3): if any of our Relaxed loads saw a holder's store, the load below sees that holder's lock
    // word.
    fence(Ordering::Acquire);
    // Relaxed: ordered by the fence.
    cell.load(Ordering::Relaxed) & !WRITER == version.0
}

/// Takes the lock unless another writer holds it.
#[inline]
pub fn try_lock<C: LockCell>(cell: C) -> Option<WriteGuard<C>> {
    // Relaxed: a first look; the exchange decides.
    let mut word = cell.load(Ordering::Relaxed);
    while word & WRITER == 0 {
        // Acquire (E2): makes the changes of earlier holders visible.
        match cell.cas_weak(word, word | WRITER, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {
                // Release (E3).
                fence(Ordering::Release);
                return Some(WriteGuard { cell, word: Cell::new(word | WRITER) });
            }
            Err(seen) => word = seen,
        }
    }
    None
}

/// Takes the lock, waiting for other writers. A thread that already holds any lock must use [`try_lock`] instead.
#[inline]
pub fn lock<C: LockCell>(cell: C) -> WriteGuard<C> {
    let mut rounds = 0;
    loop {
        if let Some(guard) = try_lock(cell) {
            return guard;
        }
        cell.wait(rounds);
        rounds = rounds.saturating_add(1);
    }
}

/// Frees the lock regardless of its state, and increments the version. For recovery, which runs before other threads
/// use the word: a lock that was held when the process died must not be waited for.
#[inline]
pub fn reset(cell: impl LockCell) {
    // Relaxed: no other thread uses the word.
    let word = cell.load(Ordering::Relaxed);
    // Release (E2): readers that start now see what recovery did.
    cell.store(stepped(word), Ordering::Release);
}

/// Returns the word that an unlock after a change stores.
#[inline]
fn stepped(word: u32) -> u32 {
    (word & !(WRITER | CHANGING)).wrapping_add(VERSION_STEP)
}

/// Holds the lock until dropped, also during unwinding.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard<C: LockCell> {
    cell: C,
    /// The current word. Only the lock holder stores it.
    word: Cell<u32>,
}

impl<C: LockCell> WriteGuard<C> {
    /// Makes new readers wait and readers in progress fail. Must precede the first change of a word that readers
    /// follow. A second call does nothing.
    #[inline]
    pub fn begin_change(&self) {
        let word = self.word.get();
        if word & CHANGING != 0 {
            return;
        }
        self.word.set(word | CHANGING);
        // Relaxed: the fence below orders it before the changes.
        self.cell.store(word | CHANGING, Ordering::Relaxed);
        // Release (E1): a reader that sees one of the following changes, and fences, sees CHANGING.
        fence(Ordering::Release);
    }

    /// Ends the change but keeps the lock: readers are admitted again and see the change. Does nothing unless a change
    /// is in progress.
    #[inline]
    pub fn end_change(&self) {
        let word = self.word.get();
        if word & CHANGING == 0 {
            return;
        }
        let unchanging = stepped(word) | WRITER;
        self.word.set(unchanging);
        // Release (E2): like an unlock.
        self.cell.store(unchanging, Ordering::Release);
        // Release (E3): like taking the lock.
        fence(Ordering::Release);
    }

    /// Returns whether a change has begun ([`WriteGuard::begin_change`]) and has not ended yet.
    #[inline]
    #[must_use]
    pub fn is_changing(&self) -> bool {
        self.word.get() & CHANGING != 0
    }

    /// Returns the cell that this guard has locked.
    #[inline]
    #[must_use]
    pub fn cell(&self) -> C {
        self.cell
    }
}

impl<C: LockCell> Drop for WriteGuard<C> {
    #[inline]
    fn drop(&mut self) {
        let word = self.word.get();
        let unlocked = if word & CHANGING != 0 { stepped(word) } else { word & !WRITER };
        // Release (E2): a thread that takes the version or the lock from here on sees every change.
        self.cell.store(unlocked, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn writers_exclude_one_another() {
        let cell = AtomicU32::new(0);
        let guard = lock(&cell);
        assert!(try_lock(&cell).is_none());
        drop(guard);
        assert!(try_lock(&cell).is_some());
    }

    #[test]
    fn a_lock_that_changed_nothing_disturbs_no_reader() {
        let cell = AtomicU32::new(0);
        let version = read_begin(&cell);
        let guard = lock(&cell);
        assert!(validate(&cell, version));
        assert_eq!(read_begin(&cell), version, "a reader may start under the writer bit");
        drop(guard);
        assert!(validate(&cell, version));
    }

    #[test]
    fn a_change_fails_readers_until_they_start_again() {
        let cell = AtomicU32::new(0);
        let version = read_begin(&cell);
        let guard = lock(&cell);
        guard.begin_change();
        assert!(guard.is_changing());
        assert!(!validate(&cell, version));
        guard.begin_change();
        drop(guard);
        assert!(!validate(&cell, version));
        let version = read_begin(&cell);
        assert!(validate(&cell, version));
    }

    #[test]
    fn a_change_that_ends_lets_readers_in_and_no_writer() {
        let cell = AtomicU32::new(0);
        let before = read_begin(&cell);
        let guard = lock(&cell);
        guard.end_change();
        assert!(validate(&cell, before));
        guard.begin_change();
        guard.end_change();
        assert!(!guard.is_changing() && !validate(&cell, before));
        let between = read_begin(&cell);
        assert!(validate(&cell, between) && try_lock(&cell).is_none());
        guard.begin_change();
        assert!(!validate(&cell, between));
        drop(guard);
        assert!(!validate(&cell, between) && try_lock(&cell).is_some());
    }

    #[test]
    fn a_reader_that_starts_under_the_writer_bit_notices_its_change() {
        let cell = AtomicU32::new(0);
        let guard = lock(&cell);
        let version = read_begin(&cell);
        guard.begin_change();
        assert!(!validate(&cell, version));
        drop(guard);
        assert!(!validate(&cell, version));
    }

    #[test]
    fn the_version_wraps_without_touching_the_bits() {
        let cell = AtomicU32::new(!(WRITER | CHANGING));
        let version = read_begin(&cell);
        let guard = lock(&cell);
        guard.begin_change();
        drop(guard);
        assert_eq!(cell.load(Ordering::Relaxed), 0);
        assert!(!validate(&cell, version));
    }

    #[test]
    fn recovery_frees_a_lock_whatever_it_holds() {
        for garbage in [VERSION_STEP, WRITER, WRITER | CHANGING, CHANGING, u32::MAX, 0xDEAD_BEEF] {
            let cell = AtomicU32::new(garbage);
            reset(&cell);
            let version = read_begin(&cell);
            assert_ne!(version.0, garbage & !WRITER);
            assert!(validate(&cell, version) && try_lock(&cell).is_some(), "{garbage:#x}");
        }
    }

    #[test]
    fn unwinding_releases_the_lock() {
        let cell = AtomicU32::new(0);
        let result = std::panic::catch_unwind(|| {
            let guard = lock(&cell);
            guard.begin_change();
            std::panic::resume_unwind(Box::new("stop"));
        });
        assert!(result.is_err());
        assert_eq!(cell.load(Ordering::Relaxed), VERSION_STEP);
    }

    /// The data consists of two words; it is consistent only when they are equal.
    #[test]
    fn readers_never_see_half_of_a_change() {
        let rounds: u64 = if cfg!(miri) { 50 } else { 50_000 };
        let cell = AtomicU32::new(0);
        let record = [AtomicU64::new(0), AtomicU64::new(0)];
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let guard = lock(&cell);
                        let value = record[0].load(Ordering::Relaxed);
                        guard.begin_change();
                        record.iter().for_each(|word| word.store(value + 1, Ordering::Relaxed));
                    }
                });
            }
            scope.spawn(|| {
                let mut last = 0;
                while last < 2 * rounds {
                    let version = read_begin(&cell);
                    let [a, b] = record.each_ref().map(|word| word.load(Ordering::Relaxed));
                    if validate(&cell, version) {
                        assert_eq!(a, b);
                        assert!(a >= last, "time runs forwards");
                        last = a;
                    }
                }
            });
        });
        assert_eq!(record[0].load(Ordering::Relaxed), 2 * rounds, "no change was lost");
    }
}
