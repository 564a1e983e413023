//! Probing: one line for a key that is not there, the lines of its bucket besides for one that may be.
//!
//! Keys go through the ring: the first stage hashes and asks for the group's line. The second reads it, without a
//! branch that depends on the data: the key's filter bits and its bucket's ends; a key that passes is appended to a
//! queue and its bucket's lines are asked for, another one leaves nothing. When the queue is long enough, its oldest
//! entries have arrived, and are compared two lines at a time. So neither waits for the other, and no branch is
//! mispredicted because a key is there or is not.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::base::{Areas, Extent, passes};
use super::bitmap::Bitmap;
use super::layout::{LINE_RECORDS, bucket_of, share_of};
use super::view::View;
use crate::Result;
use crate::base::group::{Isa, Kernel, dispatch};
use crate::base::parallel::{Tasks, in_parallel, threads_for};
use crate::base::pipeline::{Stages, prefetch_read, rolling_in_bursts};
use crate::key::Word;
use crate::pm::{CellLine, Medium};

/// How far ahead of its test a group's line is asked for, and how many at a time.
const RING: usize = 64;
const BURST: usize = 8;
/// Keys in the queue while their lines arrive, and how many are compared then.
const QUEUED: usize = 48;
const COMPARED: usize = 16;
const QUEUE: usize = 64;
const _: () = assert!(QUEUED + COMPARED <= QUEUE && QUEUE.is_power_of_two());

/// Keys between two decisions about the filter.
const SEGMENT: usize = 1 << 14;
/// Keys that a thread takes at a time; a multiple of 64, so that threads share no word of a bitmap.
const TASK: usize = 1 << 16;
/// The share of keys that pass beyond which the filter is not worth asking, in percent.
const MOST_PASS: usize = 75;
/// Segments without the filter before it is asked again.
const BYPASSED: usize = 15;
const _: () = assert!(TASK.is_multiple_of(SEGMENT) && SEGMENT.is_multiple_of(64));

/// Where results go.
pub(super) trait Sink {
    /// The records of `mask`'s even bits have the key at `position`: bit `2 * i` is record `first + i`.
    fn hits(&mut self, pm: &impl Medium, areas: &Areas<'_>, position: usize, first: u64, mask: u32);

    /// These are the payloads of the key at `position`, all of them.
    fn gathered(&mut self, position: usize, payloads: &[u64]);
}

/// Counts pairs.
#[derive(Default)]
pub(super) struct Count(pub(super) u64);

impl Sink for Count {
    #[inline(always)]
    fn hits(&mut self, _: &impl Medium, _: &Areas<'_>, _: usize, _: u64, mask: u32) {
        self.0 += u64::from(mask.count_ones());
    }

    fn gathered(&mut self, _: usize, payloads: &[u64]) {
        self.0 += payloads.len() as u64;
    }
}

/// Shows pairs to a caller's function.
pub(super) struct Show<'f, F>(pub(super) &'f F);

impl<F: Fn(usize, u64)> Sink for Show<'_, F> {
    #[inline(always)]
    fn hits(
        &mut self,
        pm: &impl Medium,
        areas: &Areas<'_>,
        position: usize,
        first: u64,
        mask: u32,
    ) {
        let mut left = mask;
        while left != 0 {
            let record = first + u64::from(left.trailing_zeros() / 2);
            left &= left - 1;
            // A record that was compared: its line is there.
            let line = &areas.lines[(record / LINE_RECORDS) as usize];
            let word = 2 * (record % LINE_RECORDS) as usize + 1;
            (self.0)(position, line.load(pm, word, Relaxed));
        }
    }

    fn gathered(&mut self, position: usize, payloads: &[u64]) {
        payloads.iter().for_each(|&payload| (self.0)(position, payload));
    }
}

/// Marks positions.
pub(super) struct Mark<'b>(pub(super) &'b [AtomicU64]);

impl Mark<'_> {
    #[inline(always)]
    fn mark(&self, position: usize, found: bool) {
        let word = &self.0[position / 64];
        // Relaxed, not at once: no other thread has positions of this word.
        word.store(word.load(Relaxed) | u64::from(found) << (position % 64), Relaxed);
    }
}

impl Sink for Mark<'_> {
    #[inline(always)]
    fn hits(&mut self, _: &impl Medium, _: &Areas<'_>, position: usize, _: u64, mask: u32) {
        self.mark(position, mask != 0);
    }

    fn gathered(&mut self, position: usize, payloads: &[u64]) {
        self.mark(position, !payloads.is_empty());
    }
}

/// Marks positions and counts pairs.
pub(super) struct MarkAndCount<'b>(Mark<'b>, Count);

impl Sink for MarkAndCount<'_> {
    #[inline(always)]
    fn hits(
        &mut self,
        pm: &impl Medium,
        areas: &Areas<'_>,
        position: usize,
        first: u64,
        mask: u32,
    ) {
        self.0.hits(pm, areas, position, first, mask);
        self.1.hits(pm, areas, position, first, mask);
    }

    fn gathered(&mut self, position: usize, payloads: &[u64]) {
        self.0.gathered(position, payloads);
        self.1.gathered(position, payloads);
    }
}

impl<M: Medium> View<M> {
    /// Probes for all keys, with as many threads as they are worth; gives each thread's sink.
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

    /// A bit for each key, set when it has a pair.
    pub(super) fn mark<K: Word>(&self, keys: &[K], threads: usize) -> Result<Bitmap> {
        let words = no_marks(keys.len());
        self.probe(keys, threads, || Mark(&words))?;
        Ok(marked(words, keys.len()))
    }

    /// The same, with the number of all pairs.
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

fn no_marks(keys: usize) -> Vec<AtomicU64> {
    (0..keys.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()
}

fn marked(words: Vec<AtomicU64>, keys: usize) -> Bitmap {
    Bitmap::new(words.into_iter().map(AtomicU64::into_inner).collect(), keys)
}

/// A key that passed, with its bucket.
#[derive(Clone, Copy, Default)]
struct Candidate {
    key: u64,
    start: u64,
    end: u64,
    position: usize,
}

/// One thread's way through its keys.
struct Prober<'a, M, K, S> {
    view: &'a View<M>,
    areas: Areas<'a>,
    keys: &'a [K],
    sink: S,
    /// Segments to go without the filter.
    bypass: usize,
    /// Positions of keys that the delta store may know.
    flagged: Vec<usize>,
    payloads: Vec<u64>,
}

impl<'a, M: Medium, K: Word, S: Sink> Prober<'a, M, K, S> {
    fn new(view: &'a View<M>, keys: &'a [K], sink: S) -> Result<Self> {
        let areas = view.base.areas(&view.frame.pm)?;
        let (flagged, payloads) = (Vec::new(), Vec::new());
        // Without a filter there is nothing to ask.
        let bypass = if view.bits.is_filter() { 0 } else { usize::MAX };
        Ok(Self { view, areas, keys, sink, bypass, flagged, payloads })
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
            self.view.base.verify_probe(&frame.pm, &frame.sums, hash)
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
            return Err(self.view.base.impossible(&self.view.frame.pm, group));
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

    /// Looks up the keys that the delta store may know, both there and in the base.
    #[cold]
    fn gather(&mut self, flagged: usize) -> Result<()> {
        for at in 0..flagged {
            let position = self.flagged[at];
            let key = self.keys[position].to_word();
            self.payloads.clear();
            self.view.gather(self.view.frame.hash.word(key), key, &mut self.payloads)?;
            self.sink.gathered(position, &self.payloads);
        }
        Ok(())
    }
}

/// A segment, for whichever instruction set there is.
struct Run<'r, 'a, M, K, S, const FILTER: bool, const DELTA: bool> {
    prober: &'r mut Prober<'a, M, K, S>,
    segment: Range<usize>,
}

/// What a segment tells.
struct Told {
    /// Keys that passed.
    passed: usize,
    /// Keys for the delta store.
    flagged: usize,
    /// The hash of a key whose group's line cannot be.
    bad: Option<u64>,
}

impl<M: Medium, K: Word, S: Sink, const FILTER: bool, const DELTA: bool> Kernel
    for Run<'_, '_, M, K, S, FILTER, DELTA>
{
    type Output = Told;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> Told {
        let count = self.segment.len();
        let mut told = Told { passed: 0, flagged: 0, bad: None };
        let Prober { view, areas, keys, sink, flagged, .. } = self.prober;
        let mut queue = Queue {
            isa,
            pm: &view.frame.pm,
            areas: *areas,
            sink,
            entries: [Candidate::default(); QUEUE],
            head: 0,
            tail: 0,
        };
        let stages = Segment::<_, _, _, _, FILTER, DELTA> {
            view,
            keys,
            first: self.segment.start,
            queue: &mut queue,
            flagged,
            told: &mut told,
        };
        rolling_in_bursts::<BURST, _>(count, RING, BURST, stages);
        queue.compare(queue.tail - queue.head);
        told.passed = queue.tail;
        told
    }
}

/// The stages of a segment.
struct Segment<'r, 'q, M, K, S, I, const FILTER: bool, const DELTA: bool> {
    view: &'r View<M>,
    keys: &'r [K],
    first: usize,
    queue: &'r mut Queue<'q, M, S, I>,
    flagged: &'r mut [usize],
    told: &'r mut Told,
}

impl<M, K, S, I, const FILTER: bool, const DELTA: bool> Stages
    for Segment<'_, '_, M, K, S, I, FILTER, DELTA>
where
    M: Medium,
    K: Word,
    S: Sink,
    I: Isa,
{
    type Entry = u64;

    #[inline(always)]
    fn first(&mut self, index: usize) -> u64 {
        let hash = self.view.frame.hash.word(self.keys[self.first + index].to_word());
        let groups = self.queue.areas.groups;
        prefetch_read(&raw const groups[share_of(hash, groups.len() as u64) as usize]);
        if DELTA {
            prefetch_read(self.view.filter.word(hash));
        }
        hash
    }

    #[inline(always)]
    fn second(&mut self, _: &mut u64) {}

    #[inline(always)]
    fn run(&mut self, index: usize, hash: u64) -> ControlFlow<()> {
        let Queue { pm, areas, .. } = *self.queue;
        let group = &areas.groups[share_of(hash, areas.groups.len() as u64) as usize];
        let extent = areas.extent(pm, group, bucket_of(hash));
        let mut passed = extent.start < extent.end;
        if FILTER {
            passed &= passes(pm, group, hash);
        }
        if extent.bad {
            self.told.bad = Some(hash);
        }
        let position = self.first + index;
        if DELTA {
            let flagged = self.view.filter.may_know(hash);
            self.flagged[self.told.flagged] = position;
            self.told.flagged += usize::from(flagged);
            passed &= !flagged;
        }
        self.queue.push(self.keys[position].to_word(), extent, position, passed, group);
        ControlFlow::Continue(())
    }
}

/// Candidates whose lines are on their way.
struct Queue<'q, M, S, I> {
    isa: I,
    pm: &'q M,
    areas: Areas<'q>,
    sink: &'q mut S,
    entries: [Candidate; QUEUE],
    head: usize,
    tail: usize,
}

impl<M: Medium, S: Sink, I: Isa> Queue<'_, M, S, I> {
    /// Appends a key, if it `passed`; whether it did changes no branch.
    #[inline(always)]
    fn push(&mut self, key: u64, extent: Extent, position: usize, passed: bool, near: &CellLine) {
        let Extent { start, end, .. } = extent;
        self.entries[self.tail % QUEUE] = Candidate { key, start, end, position };
        self.tail += usize::from(passed);
        let lines = self.areas.lines.as_ptr();
        let first = start / LINE_RECORDS;
        // Of a key that did not pass, a line that is there already.
        let [first, next] = if passed {
            let last = (end - 1) / LINE_RECORDS;
            [lines.wrapping_add(first as usize), lines.wrapping_add(last.min(first + 1) as usize)]
        } else {
            [std::ptr::from_ref(near); 2]
        };
        prefetch_read(first);
        prefetch_read(next);
        if self.tail - self.head == QUEUED + COMPARED {
            self.compare(COMPARED);
        }
    }

    /// Compares the records of the oldest candidates.
    #[inline(always)]
    fn compare(&mut self, count: usize) {
        for at in self.head..self.head + count {
            let candidate = self.entries[at % QUEUE];
            self.compare_one(candidate);
        }
        self.head += count;
    }

    #[inline(always)]
    fn compare_one(&mut self, Candidate { key, start, end, position }: Candidate) {
        let (first, last) = (start / LINE_RECORDS, (end - 1) / LINE_RECORDS);
        let [one, two] = [first, last.min(first + 1)]
            .map(|line| self.areas.lines[line as usize].find_keys(self.pm, self.isa, key));
        // Bits of keys only, of the bucket's records only. With one line the second half is beyond the bucket.
        let records = (end - start).min(2 * LINE_RECORDS);
        let bucket = ((1_u32 << (2 * records)) - 1) << (2 * (start % LINE_RECORDS));
        let mask = (one & 0xFF | (two & 0xFF) << 8) & bucket & 0x5555;
        self.sink.hits(self.pm, &self.areas, position, first * LINE_RECORDS, mask);
        if last > first + 1 {
            self.compare_rest(key, first + 2..last + 1, end, position);
        }
    }

    /// The lines of a long bucket behind its second.
    #[cold]
    fn compare_rest(&mut self, key: u64, lines: Range<u64>, end: u64, position: usize) {
        for line in lines {
            let found = self.areas.lines[line as usize].find_keys(self.pm, self.isa, key);
            let records = (end - line * LINE_RECORDS).min(LINE_RECORDS);
            let mask = found & ((1 << (2 * records)) - 1) & 0x55;
            self.sink.hits(self.pm, &self.areas, position, line * LINE_RECORDS, mask);
        }
    }
}
