//! Probing reads the line of a key's group and, if the key passes the group's filter, the lines of its bucket.
//!
//! Keys pass through a ring. Each key is hashed and the line of its group is prefetched. 64 keys later, when the line
//! is probably in the cache, the filter is tested (all five words at once where the processor can), and a key that
//! passes is recorded, without a branch that depends on the data. For a key that does not pass, nothing else is done.
//! When eight keys have passed, the ends of their buckets are read from the same lines, and the lines of the buckets
//! are prefetched. When enough keys wait for those lines, the oldest are compared, two lines at a time. So steps rarely
//! wait for memory, and neither hits nor misses cause mispredicted branches.
//!
//! If the delta store has entries, its filter is tested together with that of the group. Keys that pass it are looked up
//! in the delta store after the others ([`ChangedKeys`]), and then in the base by a second pass over these keys alone.

use std::ops::Range;

use super::base::{Areas, Extent};
use super::bitmap::Bitmap;
use super::changed::{ChangedKeys, DeltaTask};
use super::delta::Snapshot;
use super::layout::{LINE_RECORDS, RECORD_BYTES, bucket_of, share_of};
use super::line::Line;
use super::sink::{Accepted, Count, Keys, Mark, MarkAndCount, Sink, marked, no_marks};
use super::view::View;
use crate::Result;
use crate::base::group::{Isa, Kernel, dispatch};
use crate::base::hash::Hash;
use crate::base::parallel::{Tasks, in_parallel, threads_for};
use crate::base::pipeline::prefetch_read;
use crate::base::thread_pool::Workers;
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

/// Number of keys of a task, after which a thread decides whether to use the filter; a multiple of 64, so that threads
/// share no word of a bitmap.
const TASK: usize = 1 << 14;
const _: () = assert!(TASK.is_multiple_of(64));
/// Number of keys from which on a probe starts threads instead of waking those that wait: as fast on an idle machine,
/// and faster on a busy one (docs/decisions/0100).
const STARTED: usize = 1 << 18;
/// Percentage of passing keys above which the filter is bypassed.
const MOST_PASS: usize = 75;
/// Number of tasks that bypass the filter before it is tried again.
const BYPASSED: usize = 15;

impl<M: Medium> View<M> {
    /// Probes for all keys in one state of the delta store, with as many threads as their number justifies. Returns
    /// each thread's sink.
    pub(super) fn probe<P: Keys, S: Sink + Send>(
        &self,
        keys: P,
        workers: Workers<'_>,
        sink: impl Fn() -> S + Sync,
    ) -> Result<Vec<S>> {
        let snapshot = self.snapshot();
        let snapshot = snapshot.as_ref().map(|snapshot| snapshot.state);
        let tasks = Tasks::new(keys.len().div_ceil(TASK));
        let work = || {
            let mut prober = Prober::new(self, snapshot, Accepted { keys, sink: sink() })?;
            let mut buffer = Vec::new();
            while let Some(task) = tasks.take() {
                let first = task * TASK;
                let range = first..keys.len().min(first + TASK);
                prober.probe(keys.read(range, &mut buffer), first)?;
            }
            Ok(prober.sink.sink)
        };
        let threads = threads_for(workers.threads(), keys.len(), TASK);
        if keys.len() < STARTED { workers.run(threads, work) } else { in_parallel(threads, work) }
    }

    /// Returns the number of pairs.
    pub(super) fn count(&self, keys: impl Keys, workers: Workers<'_>) -> Result<u64> {
        let counts = self.probe(keys, workers, Count::default)?;
        Ok(counts.into_iter().map(|Count(count)| count).sum())
    }

    /// Returns a bitmap in which the bit of each key that has a pair is set.
    pub(super) fn mark(&self, keys: impl Keys, workers: Workers<'_>) -> Result<Bitmap> {
        let words = no_marks(keys.len());
        self.probe(keys, workers, || Mark(&words))?;
        Ok(marked(words, keys.len()))
    }

    /// Like [`mark`](Self::mark), but also returns the number of all pairs.
    pub(super) fn mark_and_count(
        &self,
        keys: impl Keys,
        workers: Workers<'_>,
    ) -> Result<(Bitmap, u64)> {
        let words = no_marks(keys.len());
        let sinks = self.probe(keys, workers, || MarkAndCount(Mark(&words), Count::default()))?;
        let pairs = sinks.into_iter().map(|MarkAndCount(_, Count(pairs))| pairs).sum();
        Ok((marked(words, keys.len()), pairs))
    }
}

/// The state of one thread that probes for keys of type `K`.
struct Prober<'a, M, K, S> {
    view: &'a View<M>,
    areas: Areas<'a>,
    /// The state of the delta store; `None` if it is empty.
    snapshot: Option<Snapshot>,
    sink: S,
    /// Number of tasks that will still bypass the filter.
    bypass: usize,
    /// Indexes, in the task, of keys that may be in the delta store.
    flagged: Vec<usize>,
    /// Made when a key may be in the delta store, because calls with one key are short.
    changed: Option<ChangedKeys<K>>,
}

impl<'a, M: Medium, K: Word, S: Sink> Prober<'a, M, K, S> {
    fn new(view: &'a View<M>, snapshot: Option<Snapshot>, sink: S) -> Result<Self> {
        let areas = view.base.areas(&view.frame.storage)?;
        // If the index has no filter, no task tests one.
        let bypass = if view.bits.is_filter() { 0 } else { usize::MAX };
        Ok(Self { view, areas, snapshot, sink, bypass, flagged: Vec::new(), changed: None })
    }

    /// Probes for the keys of a task; `first` is the position of the first one.
    fn probe(&mut self, keys: &[K], first: usize) -> Result<()> {
        if self.view.frame.verify {
            self.verify(keys)?;
        }
        let passed = match (self.bypass == 0, self.snapshot) {
            (true, None) => self.task::<true>(keys, first),
            (true, Some(snapshot)) => self.task_with_delta::<true>(keys, first, snapshot),
            (false, None) => self.task::<false>(keys, first),
            (false, Some(snapshot)) => self.task_with_delta::<false>(keys, first, snapshot),
        }?;
        self.bypass = match self.bypass {
            0 if passed * 100 > keys.len() * MOST_PASS => BYPASSED,
            0 => 0,
            usize::MAX => usize::MAX,
            tasks => tasks - 1,
        };
        Ok(())
    }

    fn verify(&self, keys: &[K]) -> Result<()> {
        let frame = &self.view.frame;
        keys.iter().try_for_each(|key| {
            let hash = frame.hash.word(key.to_word());
            self.view.base.verify_probe(&frame.storage, &frame.sums, hash)
        })
    }

    /// Probes the base. Returns the number of keys that passed the filter, if it was tested.
    fn task<const FILTER: bool>(&mut self, keys: &[K], first: usize) -> Result<usize> {
        let Self { view, areas, sink, .. } = self;
        let run = Run::<_, _, _, FILTER, false> {
            view,
            areas: *areas,
            keys,
            first,
            sink,
            flagged: &mut [],
        };
        run.start().map(|told| told.passed)
    }

    /// Probes the base and the delta store. Returns the number of keys that passed the filter, if it was tested.
    fn task_with_delta<const FILTER: bool>(
        &mut self,
        keys: &[K],
        first: usize,
        snapshot: Snapshot,
    ) -> Result<usize> {
        let Self { view, areas, sink, flagged, changed, .. } = self;
        let (view, areas) = (*view, *areas);
        if flagged.len() <= keys.len() {
            // The place after the last flagged key is written, too.
            flagged.resize(keys.len() + 1, 0);
        }
        let run = Run::<_, _, _, FILTER, true> { view, areas, keys, first, sink, flagged };
        let Told { passed, flagged: count, .. } = run.start()?;
        if count > 0 {
            let task = DeltaTask { view, snapshot, keys, first };
            let changed = changed.get_or_insert_with(ChangedKeys::new);
            let mut left = &flagged[..count];
            let mut is_last = false;
            while !is_last {
                is_last = changed.look_up(&task, &mut left, sink);
                let (keys, mut shown) = changed.in_base(sink);
                let (sink, flagged) = (&mut shown, &mut []);
                Run::<_, _, _, FILTER, false> { view, areas, keys, first: 0, sink, flagged }
                    .start()?;
            }
        }
        Ok(passed)
    }
}

/// A task to run. The code is compiled for each instruction set.
struct Run<'r, M, K, S, const FILTER: bool, const DELTA: bool> {
    view: &'r View<M>,
    areas: Areas<'r>,
    keys: &'r [K],
    /// The position of the first key.
    first: usize,
    sink: &'r mut S,
    /// For the indexes of keys that may be in the delta store; one longer than `keys` if `DELTA`.
    flagged: &'r mut [usize],
}

impl<M: Medium, K: Word, S: Sink, const FILTER: bool, const DELTA: bool>
    Run<'_, M, K, S, FILTER, DELTA>
{
    fn start(self) -> Result<Told> {
        let view = self.view;
        let told = dispatch(self);
        let Some(hash) = told.bad else { return Ok(told) };
        let group = share_of(hash, view.base.layout().groups);
        Err(view.base.impossible(&view.frame.storage, group))
    }
}

/// The result of a task.
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
    for Run<'_, M, K, S, FILTER, DELTA>
{
    type Output = Told;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> Told {
        let Self { view, areas, keys, first, sink, flagged } = self;
        let Some(nothing) = areas.groups.first() else { return Told::default() };
        let queue = Queue {
            isa,
            storage: &view.frame.storage,
            areas,
            keys,
            first,
            sink,
            waiting: [Candidate::default(); WAITING],
            opened: 0,
            compared: 0,
            bad: None,
        };
        let task = Task::<_, _, _, _, FILTER, DELTA> {
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
        task.run()
    }
}

/// The state of a task.
struct Task<'r, 'q, M, K, S, I, const FILTER: bool, const DELTA: bool> {
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

impl<M, K, S, I, const FILTER: bool, const DELTA: bool> Task<'_, '_, M, K, S, I, FILTER, DELTA>
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
            self.flagged[self.flagged_count] = index;
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
    /// The index of the key in the task.
    index: usize,
}

/// The candidates that wait for the lines of their buckets.
struct Queue<'q, M, K, S, I> {
    isa: I,
    storage: &'q M,
    areas: Areas<'q>,
    /// The keys of the task.
    keys: &'q [K],
    /// The position of the first key.
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
