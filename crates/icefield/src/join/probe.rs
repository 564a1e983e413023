//! Probing reads the line of a key's group and, if the key passes the group's filter, the lines of its bucket.
//!
//! Keys pass through a ring. Each key is hashed and the line of its group is prefetched. 64 keys later, when the line
//! is probably in the cache, the filter is tested (all five words at once where the processor can), and a key that
//! passes is recorded, without a branch that depends on the data. For a key that does not pass, nothing else is done.
//! When eight keys have passed, the ends of their buckets are read from the same lines, and the lines of the buckets
//! are prefetched. When enough keys wait for those lines, the oldest are compared, two lines at a time. So steps rarely
//! wait for memory, and neither hits nor misses cause mispredicted branches.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::base::{Areas, Extent};
use super::bitmap::Bitmap;
use super::layout::{LINE_RECORDS, RECORD_BYTES, bucket_of, share_of};
use super::line::Line;
use super::view::View;
use crate::Result;
use crate::base::group::{Isa, Kernel, dispatch};
use crate::base::hash::Hash;
use crate::base::parallel::{Tasks, in_parallel, threads_for};
use crate::base::pipeline::prefetch_read;
use crate::storage::Medium;
use crate::types::Word;

/// `RING`: distance, in keys, between the prefetch of a group's line and the test of its filter. `BURST`: number of
/// keys tested at a time.
const RING: usize = 64;
const BURST: usize = 8;
/// Number of passed keys whose buckets are located at a time.
const OPENED: usize = 8;
const PASSED: usize = OPENED + BURST;
const _: () = assert!(PASSED.is_power_of_two() && OPENED >= BURST);
/// `COMPARED`: number of keys that are compared at a time. `QUEUED`: number of keys that must still wait for the lines
/// of their buckets after that, so that the prefetches have time to complete.
const QUEUED: usize = 48;
const COMPARED: usize = 8;
const WAITING: usize = 64;
const _: () = assert!(QUEUED + COMPARED + OPENED <= WAITING && WAITING.is_power_of_two());
const _: () = assert!(BURST <= OPENED && OPENED <= COMPARED && RING.is_power_of_two());

/// Number of keys between two decisions about the use of the filter.
const SEGMENT: usize = 1 << 14;
/// Number of keys of a task; a multiple of 64, so that threads share no word of a bitmap.
const TASK: usize = 1 << 16;
/// Percentage of passing keys above which the filter is bypassed.
const MOST_PASS: usize = 75;
/// Number of segments that bypass the filter before it is tried again.
const BYPASSED: usize = 15;
const _: () = assert!(TASK.is_multiple_of(SEGMENT) && SEGMENT.is_multiple_of(64));

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
fn any_payload(
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

/// Marks positions for which a caller's function accepts one of the pairs.
struct MarkWanted<'b, 'f, F>(Mark<'b>, &'f F);

impl<F: Fn(usize, u64) -> bool> Sink for MarkWanted<'_, '_, F> {
    fn gathered(&mut self, position: usize, payload: u64) -> bool {
        let wanted = (self.1)(position, payload);
        self.0.mark(position, wanted);
        wanted
    }
}

/// Marks positions and counts pairs.
pub(super) struct MarkAndCount<'b>(Mark<'b>, Count);

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

impl<M: Medium> View<M> {
    /// Probes for all keys, with as many threads as their number justifies; returns each thread's sink.
    pub(super) fn probe<K: Word, S: Sink + Send>(
        &self,
        keys: &[K],
        threads: usize,
        sink: impl Fn() -> S + Sync,
    ) -> Result<Vec<S>> {
        let tasks = Tasks::new(keys.len().div_ceil(TASK));
        in_parallel(threads_for(threads, keys.len(), SEGMENT), || {
            let mut prober = Prober::new(self, keys, sink())?;
            while let Some(task) = tasks.take() {
                prober.probe(task * TASK..keys.len().min((task + 1) * TASK))?;
            }
            Ok(prober.sink)
        })
    }

    /// Returns a bitmap in which the bit of each key that has a pair is set.
    pub(super) fn mark<K: Word>(&self, keys: &[K], threads: usize) -> Result<Bitmap> {
        let words = no_marks(keys.len());
        self.probe(keys, threads, || Mark(&words))?;
        Ok(marked(words, keys.len()))
    }

    /// Sets the bit of each key that has a pair for which `wanted` returns `true`. `words` has a word for each 64 keys.
    pub(super) fn mark_wanted<K: Word>(
        &self,
        keys: &[K],
        threads: usize,
        words: &[AtomicU64],
        wanted: impl Fn(usize, u64) -> bool + Sync,
    ) -> Result<()> {
        self.probe(keys, threads, || MarkWanted(Mark(words), &wanted)).map(drop)
    }

    /// Like [`mark`](Self::mark), but also returns the number of all pairs.
    pub(super) fn mark_and_count<K: Word>(
        &self,
        keys: &[K],
        threads: usize,
    ) -> Result<(Bitmap, u64)> {
        let words = no_marks(keys.len());
        let sinks = self.probe(keys, threads, || MarkAndCount(Mark(&words), Count::default()))?;
        let pairs = sinks.into_iter().map(|MarkAndCount(_, Count(pairs))| pairs).sum();
        Ok((marked(words, keys.len()), pairs))
    }
}

/// Returns zero words with a bit for each key.
pub(super) fn no_marks(keys: usize) -> Vec<AtomicU64> {
    (0..keys.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()
}

pub(super) fn marked(words: Vec<AtomicU64>, keys: usize) -> Bitmap {
    Bitmap::new(words.into_iter().map(AtomicU64::into_inner).collect(), keys)
}

/// The state of one thread that probes.
struct Prober<'a, M, K, S> {
    view: &'a View<M>,
    areas: Areas<'a>,
    keys: &'a [K],
    sink: S,
    /// Number of segments that will still bypass the filter.
    bypass: usize,
    /// Positions of keys that may be in the delta store.
    flagged: Vec<usize>,
}

impl<'a, M: Medium, K: Word, S: Sink> Prober<'a, M, K, S> {
    fn new(view: &'a View<M>, keys: &'a [K], sink: S) -> Result<Self> {
        let areas = view.base.areas(&view.frame.storage)?;
        let flagged = Vec::new();
        // If the index has no filter, no segment tests one.
        let bypass = if view.bits.is_filter() { 0 } else { usize::MAX };
        Ok(Self { view, areas, keys, sink, bypass, flagged })
    }

    fn probe(&mut self, range: Range<usize>) -> Result<()> {
        for start in range.clone().step_by(SEGMENT) {
            let segment = start..range.end.min(start + SEGMENT);
            if self.view.frame.verify {
                self.verify(segment.clone())?;
            }
            match (self.bypass == 0, self.view.has_changes()) {
                (true, false) => self.segment::<true, false>(segment),
                (true, true) => self.segment::<true, true>(segment),
                (false, false) => self.segment::<false, false>(segment),
                (false, true) => self.segment::<false, true>(segment),
            }?;
        }
        Ok(())
    }

    fn verify(&self, segment: Range<usize>) -> Result<()> {
        let frame = &self.view.frame;
        self.keys[segment].iter().try_for_each(|key| {
            let hash = frame.hash.word(key.to_word());
            self.view.base.verify_probe(&frame.storage, &frame.sums, hash)
        })
    }

    fn segment<const FILTER: bool, const DELTA: bool>(
        &mut self,
        segment: Range<usize>,
    ) -> Result<()> {
        let count = segment.len();
        if DELTA {
            self.flagged.resize(SEGMENT + 1, 0);
        }
        let run = Run::<_, _, _, FILTER, DELTA> { prober: self, segment };
        let Told { passed, flagged, bad } = dispatch(run);
        if let Some(hash) = bad {
            let group = share_of(hash, self.view.base.layout().groups);
            return Err(self.view.base.impossible(&self.view.frame.storage, group));
        }
        if DELTA {
            self.gather(flagged)?;
        }
        self.bypass = match FILTER {
            true if passed * 100 > count * MOST_PASS => BYPASSED,
            true => 0,
            false if self.bypass == usize::MAX => usize::MAX,
            false => self.bypass - 1,
        };
        Ok(())
    }

    /// Looks up, in the delta store and in the base, the keys that may be in the delta store.
    #[cold]
    fn gather(&mut self, flagged: usize) -> Result<()> {
        for at in 0..flagged {
            let position = self.flagged[at];
            let key = self.keys[position].to_word();
            let sink = &mut self.sink;
            let visit = |payload| !sink.gathered(position, payload);
            self.view.gather(self.view.frame.hash.word(key), key, visit)?;
        }
        Ok(())
    }
}

/// A segment to probe. The code is compiled for each instruction set.
struct Run<'r, 'a, M, K, S, const FILTER: bool, const DELTA: bool> {
    prober: &'r mut Prober<'a, M, K, S>,
    segment: Range<usize>,
}

/// The result of probing a segment.
#[derive(Default)]
struct Told {
    /// Number of keys that passed.
    passed: usize,
    /// Number of keys that may be in the delta store.
    flagged: usize,
    /// The hash of a key whose group's line is invalid.
    bad: Option<u64>,
}

impl<M: Medium, K: Word, S: Sink, const FILTER: bool, const DELTA: bool> Kernel
    for Run<'_, '_, M, K, S, FILTER, DELTA>
{
    type Output = Told;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> Told {
        let Prober { view, areas, keys, sink, flagged, .. } = self.prober;
        let Some(nothing) = areas.groups.first() else { return Told::default() };
        let queue = Queue {
            isa,
            storage: &view.frame.storage,
            areas: *areas,
            keys: &keys[self.segment.clone()],
            first: self.segment.start,
            sink,
            waiting: [Candidate::default(); WAITING],
            opened: 0,
            compared: 0,
            bad: None,
        };
        let segment = Segment::<_, _, _, _, FILTER, DELTA> {
            view,
            hash: view.frame.hash,
            ring: [(0, nothing); RING],
            passed: [(0, 0); PASSED],
            count: 0,
            begun: 0,
            queue,
            flagged,
            flagged_count: 0,
        };
        segment.run()
    }
}

/// The state of probing a segment.
struct Segment<'r, 'q, M, K, S, I, const FILTER: bool, const DELTA: bool> {
    view: &'r View<M>,
    hash: Hash,
    /// Hashes of keys whose groups' lines have been prefetched, and these lines.
    ring: [(u64, &'q Line); RING],
    /// The last keys that passed: hashes and indexes.
    passed: [(u64, usize); PASSED],
    /// Number of keys that have passed.
    count: usize,
    /// Number of sets of eight passed keys whose buckets have been located.
    begun: usize,
    queue: Queue<'q, M, K, S, I>,
    flagged: &'r mut [usize],
    flagged_count: usize,
}

impl<M, K, S, I, const FILTER: bool, const DELTA: bool> Segment<'_, '_, M, K, S, I, FILTER, DELTA>
where
    M: Medium,
    K: Word,
    S: Sink,
    I: Isa,
{
    #[inline(always)]
    fn run(mut self) -> Told {
        let count = self.queue.keys.len();
        for index in 0..count.min(RING) {
            self.ask(index);
        }
        let mut start = 0;
        while start + RING + BURST <= count {
            for index in start..start + BURST {
                self.test(index);
            }
            for index in start + RING..start + RING + BURST {
                self.ask(index);
            }
            self.go_on();
            start += BURST;
        }
        for index in start..count {
            self.test(index);
            if index + RING < count {
                self.ask(index + RING);
            }
            self.go_on();
        }
        if FILTER {
            for at in self.begun * OPENED..self.count {
                self.open(at);
            }
        }
        for at in self.queue.compared..self.queue.opened {
            self.queue.compare(at);
        }
        Told { passed: self.count, flagged: self.flagged_count, bad: self.queue.bad }
    }

    /// Hashes a key and prefetches its group's line.
    #[inline(always)]
    fn ask(&mut self, index: usize) {
        let hash = self.hash.word(self.queue.keys[index].to_word());
        let groups = self.queue.areas.groups;
        let group = &groups[share_of(hash, groups.len() as u64) as usize];
        prefetch_read(&raw const *group);
        if DELTA {
            prefetch_read(self.view.filter.word(hash));
        }
        self.ring[index % RING] = (hash, group);
    }

    /// Tests the filter and records a key that passes. No branch depends on the result.
    #[inline(always)]
    fn test(&mut self, index: usize) {
        let (hash, group) = self.ring[index % RING];
        let mut passed = true;
        if FILTER {
            passed = group.has_bits(self.queue.storage, self.queue.isa, hash);
        }
        if DELTA {
            let flagged = self.view.filter.may_know(hash);
            self.flagged[self.flagged_count] = self.queue.first + index;
            self.flagged_count += usize::from(flagged);
            passed &= !flagged;
        }
        if FILTER {
            self.passed[self.count % PASSED] = (hash, index);
            self.count += usize::from(passed);
        } else {
            self.queue.open(hash, group, index, passed);
        }
    }

    /// Locates the buckets of eight passed keys if at least eight are pending. Compares the oldest waiting keys if
    /// enough wait.
    #[inline(always)]
    fn go_on(&mut self) {
        if FILTER && self.count / OPENED > self.begun {
            let first = self.begun * OPENED;
            for at in first..first + OPENED {
                self.open(at);
            }
            self.begun += 1;
        }
        if self.queue.opened - self.queue.compared >= QUEUED + COMPARED {
            self.queue.compare_some();
        }
    }

    #[inline(always)]
    fn open(&mut self, at: usize) {
        let (hash, index) = self.passed[at % PASSED];
        let groups = self.queue.areas.groups;
        let group = &groups[share_of(hash, groups.len() as u64) as usize];
        self.queue.open(hash, group, index, true);
    }
}

/// A key that may be in a bucket whose lines have been prefetched.
#[derive(Clone, Copy, Default)]
struct Candidate {
    start: u64,
    end: u64,
    /// The index of the key in the segment.
    index: usize,
}

/// The candidates that wait for the lines of their buckets.
struct Queue<'q, M, K, S, I> {
    isa: I,
    storage: &'q M,
    areas: Areas<'q>,
    /// The keys of the segment.
    keys: &'q [K],
    /// The position at which the segment begins.
    first: usize,
    sink: &'q mut S,
    waiting: [Candidate; WAITING],
    opened: usize,
    compared: usize,
    /// The hash of a key whose group's line is invalid.
    bad: Option<u64>,
}

impl<M: Medium, K: Word, S: Sink, I: Isa> Queue<'_, M, K, S, I> {
    /// Locates a key's bucket, prefetches its lines, and appends the key if it has `passed` and the bucket is not
    /// empty. No branch depends on these conditions.
    #[inline(always)]
    fn open(&mut self, hash: u64, group: &Line, index: usize, passed: bool) {
        let Extent { start, end, bad } = self.areas.extent(self.storage, group, bucket_of(hash));
        if bad {
            self.bad = Some(hash);
        }
        self.waiting[self.opened % WAITING] = Candidate { start, end, index };
        self.opened += usize::from((start < end) & passed);
        // Prefetches the first and the last line of the bucket. Only long buckets have more lines.
        let record = |at: u64| {
            self.areas.lines.as_ptr().wrapping_byte_add(at.wrapping_mul(RECORD_BYTES) as usize)
        };
        prefetch_read(record(start));
        prefetch_read(record(end.wrapping_sub(1)));
    }

    /// Compares the records of the oldest candidates.
    #[inline(always)]
    fn compare_some(&mut self) {
        for at in self.compared..self.compared + COMPARED {
            self.compare(at);
        }
        self.compared += COMPARED;
    }

    #[inline(always)]
    fn compare(&mut self, at: usize) {
        let Candidate { start, end, index } = self.waiting[at % WAITING];
        let key = self.keys[index].to_word();
        let (first, last) = (start / LINE_RECORDS, (end - 1) / LINE_RECORDS);
        let next = last.min(first + 1);
        let one = self.areas.lines[first as usize].find_keys(self.storage, self.isa, key);
        let two = self.areas.lines[next as usize].find_keys(self.storage, self.isa, key);
        // Of the even bits, which belong to keys, this keeps those of records in the bucket. If the bucket lies in one
        // line, no bit of `two` is kept.
        let records = (end - start).min(2 * LINE_RECORDS);
        let bucket = ((1_u32 << (2 * records)) - 1) << (2 * (start % LINE_RECORDS));
        let mask = (one & 0xFF | (two & 0xFF) << 8) & bucket & 0x5555;
        let position = self.first + index;
        let done = self.sink.hits(self.storage, &self.areas, position, first * LINE_RECORDS, mask);
        if last > first + 1 && !done {
            self.compare_rest(key, first + 2..last + 1, end, position);
        }
    }

    /// Compares the third and later lines of a long bucket, until the sink needs no further pairs.
    #[cold]
    fn compare_rest(&mut self, key: u64, lines: Range<u64>, end: u64, position: usize) {
        for line in lines {
            let found = self.areas.lines[line as usize].find_keys(self.storage, self.isa, key);
            let records = (end - line * LINE_RECORDS).min(LINE_RECORDS);
            let mask = found & ((1 << (2 * records)) - 1) & 0x55;
            if self.sink.hits(self.storage, &self.areas, position, line * LINE_RECORDS, mask) {
                break;
            }
        }
    }
}
