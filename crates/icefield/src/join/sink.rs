//! The keys of a probe, and the receivers of the pairs that it finds.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::base::Areas;
use super::bitmap::Bitmap;
use super::layout::LINE_RECORDS;
use crate::storage::Medium;
use crate::types::Word;

/// The keys of a probe. Threads read them task by task.
pub(super) trait Keys: Copy + Sync {
    type Key: Word;
    /// `true` if [`accepts`](Self::accepts) must be called for each pair.
    const SELECTS: bool;

    fn len(self) -> usize;

    /// Returns the first `count` keys.
    fn first(self, count: usize) -> Self;

    /// Returns the keys at some positions. May use `buffer` for them.
    fn read<'k>(&'k self, range: Range<usize>, buffer: &'k mut Vec<Self::Key>) -> &'k [Self::Key];

    /// Returns whether a pair that has the key at a position belongs to the result.
    fn accepts(self, position: usize, payload: u64) -> bool;
}

impl<K: Word> Keys for &[K] {
    type Key = K;
    const SELECTS: bool = false;

    fn len(self) -> usize {
        self.len()
    }

    fn first(self, count: usize) -> Self {
        &self[..count]
    }

    fn read<'k>(&'k self, range: Range<usize>, _: &'k mut Vec<K>) -> &'k [K] {
        &self[range]
    }

    #[inline(always)]
    fn accepts(self, _: usize, _: u64) -> bool {
        true
    }
}

/// The receiver of results. Each call returns `true` if no further pairs of the key at `position` are needed.
pub(super) trait Sink {
    /// Receives records that have the key: record `first + i` for each set bit `2 * i` of `mask`.
    #[inline(always)]
    fn hits(
        &mut self,
        storage: &impl Medium,
        areas: &Areas<'_>,
        position: usize,
        first: u64,
        mask: u32,
    ) -> bool {
        any_payload(storage, areas, first, mask, |payload| self.gathered(position, payload))
    }

    /// Receives the payload of a pair that has the key.
    fn gathered(&mut self, position: usize, payload: u64) -> bool;
}

/// Calls `visit` with the payload of each record that [`Sink::hits`] names, until one call returns `true`. Returns
/// whether one did.
#[inline(always)]
pub(super) fn any_payload(
    storage: &impl Medium,
    areas: &Areas<'_>,
    first: u64,
    mask: u32,
    mut visit: impl FnMut(u64) -> bool,
) -> bool {
    let mut left = mask;
    while left != 0 {
        let record = first + u64::from(left.trailing_zeros() / 2);
        left &= left - 1;
        // The record has been compared, so its line is in bounds.
        let line = &areas.lines[(record / LINE_RECORDS) as usize];
        let word = 2 * (record % LINE_RECORDS) as usize + 1;
        if visit(line.load(storage, word, Relaxed)) {
            return true;
        }
    }
    false
}

/// Counts pairs.
#[derive(Default)]
pub(super) struct Count(pub(super) u64);

impl Sink for Count {
    #[inline(always)]
    fn hits(&mut self, _: &impl Medium, _: &Areas<'_>, _: usize, _: u64, mask: u32) -> bool {
        self.0 += u64::from(mask.count_ones());
        false
    }

    fn gathered(&mut self, _: usize, _: u64) -> bool {
        self.0 += 1;
        false
    }
}

/// Passes pairs to a caller's function.
pub(super) struct Show<'f, F>(pub(super) &'f F);

impl<F: Fn(usize, u64)> Sink for Show<'_, F> {
    #[inline(always)]
    fn gathered(&mut self, position: usize, payload: u64) -> bool {
        (self.0)(position, payload);
        false
    }
}

/// Marks positions.
pub(super) struct Mark<'b>(pub(super) &'b [AtomicU64]);

impl Mark<'_> {
    #[inline(always)]
    fn mark(&self, position: usize, found: bool) {
        let word = &self.0[position / 64];
        // Relaxed, and no read-modify-write: no other thread has positions in this word.
        word.store(word.load(Relaxed) | u64::from(found) << (position % 64), Relaxed);
    }
}

impl Sink for Mark<'_> {
    #[inline(always)]
    fn hits(&mut self, _: &impl Medium, _: &Areas<'_>, position: usize, _: u64, mask: u32) -> bool {
        self.mark(position, mask != 0);
        mask != 0
    }

    fn gathered(&mut self, position: usize, _: u64) -> bool {
        self.mark(position, true);
        true
    }
}

/// Marks positions and counts pairs.
pub(super) struct MarkAndCount<'b>(pub(super) Mark<'b>, pub(super) Count);

impl Sink for MarkAndCount<'_> {
    #[inline(always)]
    fn hits(
        &mut self,
        storage: &impl Medium,
        areas: &Areas<'_>,
        position: usize,
        first: u64,
        mask: u32,
    ) -> bool {
        self.0.hits(storage, areas, position, first, mask);
        self.1.hits(storage, areas, position, first, mask)
    }

    fn gathered(&mut self, position: usize, payload: u64) -> bool {
        self.0.gathered(position, payload);
        self.1.gathered(position, payload)
    }
}

/// Passes on the pairs that the keys accept.
pub(super) struct Accepted<P, S> {
    pub(super) keys: P,
    pub(super) sink: S,
}

impl<P: Keys, S: Sink> Sink for Accepted<P, S> {
    #[inline(always)]
    fn hits(
        &mut self,
        storage: &impl Medium,
        areas: &Areas<'_>,
        position: usize,
        first: u64,
        mask: u32,
    ) -> bool {
        if !P::SELECTS {
            return self.sink.hits(storage, areas, position, first, mask);
        }
        any_payload(storage, areas, first, mask, |payload| self.gathered(position, payload))
    }

    #[inline(always)]
    fn gathered(&mut self, position: usize, payload: u64) -> bool {
        self.keys.accepts(position, payload) && self.sink.gathered(position, payload)
    }
}

/// Returns zero words with a bit for each key.
pub(super) fn no_marks(keys: usize) -> Vec<AtomicU64> {
    (0..keys.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()
}

pub(super) fn marked(words: Vec<AtomicU64>, keys: usize) -> Bitmap {
    Bitmap::new(words.into_iter().map(AtomicU64::into_inner).collect(), keys)
}
