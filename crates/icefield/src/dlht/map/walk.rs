//! Walks over the records of indexes that no other thread changes, with memory for one bin: dropping a map, taking its
//! records out, and freeing the records of a cleared index.

use std::any::Any;
use std::iter;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use allocator_api2::vec::IntoIter;

use super::DlhtRecordMap;
use super::guard::DlhtGuard;
use super::memory::{RecordAllocator, free};
use super::record::{Pointer, free_crowd, hint_record, records_of, take_apart};
use crate::base::reclaim::{despite_panics, for_each_despite_panics};
use crate::base::sync::Ordering;
use crate::dlht::core::Core;
use crate::dlht::get::Picture;
use crate::dlht::header::{Header, SlotState};
use crate::dlht::index::Index;
use crate::dlht::layout::HEADER;
use crate::dlht::mode::Threading;
use crate::dlht::walk::{Walk, next_bin};

/// The number of bins whose records are freed in one step.
const BINS_PER_STEP: u64 = 1024;
/// The number of records that are prefetched before they are freed.
const PREFETCHED: usize = 16;
/// The bytes of an index that are freed in one step, or less.
const FREED_PER_STEP: u64 = 32 << 20;

/// The words of the records in a range of bins, under the conditions of a [`Walk`].
pub(super) struct Words<'i> {
    index: &'i Index,
    walk: Walk,
}

impl Iterator for Words<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.walk.next(self.index).map(|(_, word)| word)
    }
}

/// Returns the words of all records of an index, except those that have moved to the next one.
pub(super) fn words_of(index: &Index) -> Words<'_> {
    Words { index, walk: Walk::of(0..index.len()) }
}

/// Returns the words of all records that an index had before they were moved. All bins are frozen.
pub(super) fn words_before_move(index: &Index) -> Words<'_> {
    Words { index, walk: Walk::before_move(index) }
}

/// Returns the words in order, and prefetches the record of each a few words ahead: without that, freeing waits for the
/// memory of one record after the other.
fn prefetched<K, V>(mut words: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut ahead = [None; PREFETCHED];
    let mut at = 0;
    for place in &mut ahead {
        *place = words.next().inspect(|&word| hint_record::<K, V>(word));
    }
    iter::from_fn(move || {
        let next = words.next().inspect(|&word| hint_record::<K, V>(word));
        let word = std::mem::replace(&mut ahead[at], next);
        at = (at + 1) % PREFETCHED;
        word
    })
}

/// Frees the records that a word leads to, and their crowd.
///
/// # Safety
/// The word came from `word_of` with the same types and allocator, and only the caller has it.
unsafe fn free_word<K, V, A: RecordAllocator>(allocator: &A, word: u64) {
    // SAFETY: the caller's contract: the records and the crowd exist, and are freed once.
    unsafe {
        let records = records_of::<K, V, A>(word);
        let panic = despite_panics(records, |record| free(allocator, record));
        free_crowd::<K, V, A>(allocator, word);
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> Drop for DlhtRecordMap<K, V, S, A, M> {
    /// Frees all records. If a destructor panics, the others are freed all the same, and the first panic continues.
    fn drop(&mut self) {
        let guard = self.core.pin();
        // An unfinished transfer has left records in several indexes. Each record is found once, because no other
        // thread uses the map.
        let indexes = iter::successors(Some(self.core.current(&guard)), |index| index.next());
        for_each_despite_panics(prefetched::<K, V>(indexes.flat_map(words_of)), |word| {
            // SAFETY: exclusive access to the table; each record is in it once and comes from this allocator.
            unsafe { free_word::<K, V, A>(&self.allocator, word) };
        });
    }
}

/// Frees the records of a cleared index in steps, as soon as no guard protects them.
pub(super) struct Sweep<K, V, A: RecordAllocator> {
    index: Arc<Index>,
    /// The first bin whose records have not been freed.
    bin: u64,
    allocator: A,
    /// The first panic of a destructor. It continues after the last step, so that it leaks no record.
    panic: Option<Box<dyn Any + Send>>,
    records: PhantomData<*mut (K, V)>,
}

// SAFETY: owns the records of the index; they may be dropped on another thread, because `K` and `V` are `Send`.
unsafe impl<K: Send, V: Send, A: RecordAllocator> Send for Sweep<K, V, A> {}

impl<K, V, A: RecordAllocator> Sweep<K, V, A> {
    /// # Safety
    /// Every bin of `index` is frozen. The records came from the allocator and are reachable only through this index.
    pub(super) unsafe fn new(index: Arc<Index>, allocator: A) -> Self {
        Self { index, bin: 0, allocator, panic: None, records: PhantomData }
    }

    /// Returns the number of steps, or a few more.
    pub(super) fn steps(&self) -> u64 {
        self.index.len().div_ceil(BINS_PER_STEP) + self.index.bytes() / FREED_PER_STEP + 2
    }

    /// Frees the records step by step after every thread that is pinned now has unpinned.
    ///
    /// # Safety
    /// The records must be unreachable for threads that pin from now on. The guard belongs to their map.
    pub(super) unsafe fn retire(mut self, guard: &DlhtGuard<'_>)
    where
        K: Send,
        V: Send,
    {
        // SAFETY: the records outlive the reclaimer, which belongs to their map; the index and the allocator are owned.
        // A step runs when no reader holds the records.
        unsafe { guard.retire_steps_borrowing(move || self.step()) };
    }

    /// Frees the records of the next bins.
    ///
    /// # Safety
    /// No thread can reach the records: all guards that protected them have been dropped.
    unsafe fn step(&mut self) -> ControlFlow<()> {
        // Bins that were never written to take hardly any time.
        while self.bin < self.index.len()
            && let Some(next) = self.index.untouched_until(self.bin)
        {
            self.bin = next;
        }
        let end = self.bin.saturating_add(BINS_PER_STEP).min(self.index.len());
        let words = prefetched::<K, V>(Words { index: &self.index, walk: Walk::of(self.bin..end) });
        let panic = despite_panics(words, |word| {
            // SAFETY: the contracts of `new` and of this function. Each bin is swept once.
            unsafe { free_word::<K, V, A>(&self.allocator, word) };
        });
        self.panic = self.panic.take().or(panic);
        self.bin = end;
        if self.bin < self.index.len() {
            return ControlFlow::Continue(());
        }
        // Frees the memory of a large index in steps too, unless a request may still use it.
        if Arc::strong_count(&self.index) == 1 && Index::dismantle(&mut self.index).is_continue() {
            self.bin = self.index.len();
            return ControlFlow::Continue(());
        }
        match self.panic.take() {
            Some(panic) => std::panic::resume_unwind(panic),
            None => ControlFlow::Break(()),
        }
    }
}

/// Takes records out of a table to which no other thread has access, bin by bin. The records that remain in the table
/// are complete at any time.
pub(super) struct Takeout<K, V, A: RecordAllocator> {
    /// The position of the index in the chain, and the first bin that has not been emptied.
    index: usize,
    bin: u64,
    /// The records of the last bin, and the number of those that have been returned.
    picture: Picture,
    at: usize,
    crowd: Option<IntoIter<Pointer<K, V>, A>>,
}

// SAFETY: owns the records that it has taken out, like a list of boxes.
unsafe impl<K: Send, V: Send, A: RecordAllocator> Send for Takeout<K, V, A> {}
// SAFETY: gives no access to the records through `&self`.
unsafe impl<K: Sync, V: Sync, A: RecordAllocator> Sync for Takeout<K, V, A> {}

impl<K, V, A: RecordAllocator> Takeout<K, V, A> {
    pub(super) fn new() -> Self {
        Self { index: 0, bin: 0, picture: Picture::default(), at: 0, crowd: None }
    }

    /// Takes out the next record. The caller owns it.
    ///
    /// # Safety
    /// The caller has exclusive access to `map`, and passes the same map each time.
    pub(super) unsafe fn next<S, M: Threading>(
        &mut self,
        map: &DlhtRecordMap<K, V, S, A, M>,
    ) -> Option<Pointer<K, V>> {
        loop {
            if let Some(record) = self.crowd.as_mut().and_then(Iterator::next) {
                return Some(record);
            }
            self.crowd = None;
            let Some(&(_, word)) = self.picture.records().get(self.at) else {
                self.refill(&map.core)?;
                continue;
            };
            self.at += 1;
            // SAFETY: the word was taken out of the table, to which no other thread has access.
            match unsafe { take_apart::<K, V, A>(&map.allocator, word) } {
                Err(record) => return Some(record),
                Ok(crowd) => {
                    M::add(&map.crowded, 1 - crowd.len() as i64);
                    self.crowd = Some(crowd.into_iter());
                }
            }
        }
    }

    /// Empties the next bin that has records.
    fn refill<M: Threading>(&mut self, core: &Core<M>) -> Option<()> {
        let guard = core.pin();
        let first = Some(core.current(&guard));
        for index in iter::successors(first, |index| index.next()).skip(self.index) {
            if let Some((bin, picture)) = next_bin(index, self.bin..index.len(), false) {
                let line = index.bin(bin);
                let header = Index::header(line);
                let empty = Header(header.valid()).held_slots();
                let empty =
                    empty.fold(header, |header, slot| header.with(slot, SlotState::Invalid));
                // Relaxed: no other thread has access.
                line.0[HEADER].store(empty.0, Ordering::Relaxed);
                M::add(&core.count, -(picture.records().len() as i64));
                (self.bin, self.picture, self.at) = (bin + 1, picture, 0);
                return Some(());
            }
            (self.index, self.bin) = (self.index + 1, 0);
        }
        None
    }
}
