//! The choice between the two rings of reads (`reads`), from the share of absent keys in the reads before.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The number of reads by which a ring is judged ([`Judgement`]).
const SPAN: usize = 64;
/// With this many misses in `SPAN` reads or fewer, a batch changes to the ring for misses.
const MANY_MISSES: usize = SPAN / 4;
/// With fewer misses than this in `SPAN` reads, a batch changes to the ring for hits.
const FEW_MISSES: usize = SPAN / 8;

/// Which ring suits the reads of a table, judged by spans. In the ring for misses, a span is [`SPAN`] reads; in the ring
/// for hits, it ends with the miss number [`MANY_MISSES`]. A span of short batches continues in the next batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Judgement {
    /// `true` for the ring for misses.
    often_misses: bool,
    /// Reads and misses of the span so far.
    reads: usize,
    misses: usize,
}

/// The [`Judgement`] between two batches, of whatever threads. Nothing else is in its line, because batches change it
/// while all operations read the table's other fields.
#[repr(align(128))]
pub(super) struct LastJudgement(AtomicU32);

impl LastJudgement {
    pub(super) fn new(often_misses: bool) -> Self {
        Self(AtomicU32::new(often_misses.into()))
    }

    pub(super) fn load(&self) -> Judgement {
        // Relaxed: a guess.
        let [often_misses, reads, misses, _] = self.0.load(Relaxed).to_le_bytes();
        Judgement { often_misses: often_misses == 1, reads: reads.into(), misses: misses.into() }
    }

    pub(super) fn store(&self, Judgement { often_misses, reads, misses }: Judgement) {
        let bytes = [u8::from(often_misses), reads as u8, misses as u8, 0];
        // Relaxed: as above.
        self.0.store(u32::from_le_bytes(bytes), Relaxed);
    }
}

const _: () = assert!(SPAN <= u8::MAX as usize);

/// The span during a batch.
pub(super) struct Span {
    often_misses: bool,
    /// The first read of the span; it may be in an earlier batch, so that the number wraps around.
    start: usize,
    misses: usize,
}

impl Span {
    /// Continues the span of the batch before.
    pub(super) fn after(Judgement { often_misses, reads, misses }: Judgement) -> Self {
        Self { often_misses, start: 0_usize.wrapping_sub(reads), misses }
    }

    /// Returns whether the ring for misses suits the next reads.
    pub(super) fn often_misses(&self) -> bool {
        self.often_misses
    }

    /// Returns the number of reads in the span before the read `index`.
    #[inline(always)]
    fn reads_before(&self, index: usize) -> usize {
        index.wrapping_sub(self.start)
    }

    /// Begins a span after the read `index`.
    fn restart_after(&mut self, index: usize) {
        (self.start, self.misses) = (index + 1, 0);
    }

    /// Notes a miss in the ring for hits. Returns whether the batch changes the ring after it.
    #[cold]
    pub(super) fn note_miss(&mut self, index: usize) -> bool {
        self.misses += 1;
        if self.misses == MANY_MISSES {
            self.often_misses = self.reads_before(index) < SPAN;
            self.restart_after(index);
        }
        self.often_misses
    }

    /// Notes a read in the ring for misses. Returns whether the batch changes the ring after it.
    #[inline(always)]
    pub(super) fn note_read(&mut self, index: usize, is_miss: bool) -> bool {
        self.misses += usize::from(is_miss);
        self.reads_before(index) >= SPAN - 1 && self.end(index)
    }

    #[cold]
    fn end(&mut self, index: usize) -> bool {
        self.often_misses = self.misses >= FEW_MISSES;
        self.restart_after(index);
        !self.often_misses
    }

    /// Returns what the next batch should know, after a batch of `count` reads.
    pub(super) fn judgement(&self, count: usize) -> Judgement {
        let Self { often_misses, misses, .. } = *self;
        let reads = self.reads_before(count);
        let few = if often_misses { FEW_MISSES } else { MANY_MISSES };
        let suits = (misses * SPAN < reads * few) != often_misses;
        // A span that confirms the ring is forgotten, so that most batches store nothing. A batch of `SPAN` reads or
        // more needs no earlier ones.
        if suits || reads == 0 || count >= SPAN {
            return Judgement { often_misses, reads: 0, misses: 0 };
        }
        Judgement { often_misses, reads, misses }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a batch, and returns whether it ends in the ring for misses.
    fn read(last: &LastJudgement, count: usize, is_miss: impl Fn(usize) -> bool) -> bool {
        let mut span = Span::after(last.load());
        for index in 0..count {
            if span.often_misses() {
                span.note_read(index, is_miss(index));
            } else if is_miss(index) {
                span.note_miss(index);
            }
        }
        last.store(span.judgement(count));
        span.often_misses()
    }

    #[test]
    fn batches_of_any_length_change_the_ring_and_keep_it() {
        for count in [1, 4, 15, 63, 64, 1000] {
            let last = LastJudgement::new(false);
            let read = |is_miss: fn(usize) -> bool| {
                // Enough batches for two spans.
                let rings: Vec<bool> =
                    (0..128_usize.div_ceil(count)).map(|_| read(&last, count, is_miss)).collect();
                (rings[0], rings[rings.len() - 1])
            };
            assert_eq!(read(|_| false), (false, false), "{count}");
            assert_eq!(read(|_| true), (count >= MANY_MISSES, true), "{count}");
            assert_eq!(read(|_| true), (true, true), "{count}");
            assert!(!read(|_| false).1, "{count}");
        }
    }

    #[test]
    fn shares_between_the_limits_keep_the_ring_if_they_are_regular() {
        let last = LastJudgement::new(false);
        assert!(!read(&last, 10_000, |index| index.is_multiple_of(6)));
        assert!(read(&last, 100, |_| true));
        assert!(read(&last, 10_000, |index| index.is_multiple_of(6)));
        assert!(!read(&last, 10_000, |index| index.is_multiple_of(9)));
    }
}
