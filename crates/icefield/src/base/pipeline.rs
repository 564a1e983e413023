//! The rolling ring: overlaps the memory latency of many operations while executing them strictly in order.
//!
//! Operation `i` passes through up to six stages: `locate` computes its hash and the address of its line, `prefetch`
//! prefetches the line, `inspect` peeks at the line and prefetches the line that it refers to, `follow` and
//! `prefetch_record` do the same for that second line and for a third one, and `run` executes the operation. While `i`
//! runs, `locate` and `prefetch` are `ring` operations ahead, `inspect` is `stage2` ahead, `follow` is two bursts
//! ahead, and `prefetch_record` is one burst ahead, so about `ring` line fills are in flight at any time. The ring
//! never drains in the middle of a batch: a barrier between groups of operations would halve the speed.
//!
//! A hint (a prefetch instruction) waits until its address is translated, and blocks all hints behind it. With many
//! small pages, the translation takes as long as the line fill itself, and hints that are one operation apart wait one
//! after the other. Tables in files therefore run the stages in bursts, with hints directly behind one another:
//! [`rolling_in_bursts`].
//!
//! Only `run` makes decisions. Apart from it, only `prefetch_record` may change state: it may take locks. Hints and
//! peeks see an earlier state of memory, and other operations of the same batch run in between. An operation's
//! [entry](Stages::Entry) should therefore hold the hash. It may hold a pointer into the table only if a resize leaves
//! the target in place, and `run` may use the pointer, or anything else that a peek has found, only after checking that
//! nothing has changed since.

use std::mem::MaybeUninit;
use std::ops::ControlFlow;

pub use super::group::prefetch::{
    fills_first_level_slowly, prefetch_read, prefetch_second_level, prefetch_write,
};

/// The longest ring. Beyond this length the processor has no fill buffers left, and entries would leave the first-level
/// cache.
pub const MAX_RING: usize = 128;

/// A good distance of `locate` ahead of `run`, for tables without a measured value.
pub const RING: usize = 48;

/// A good distance of `inspect` ahead of `run`, for tables without a measured value.
pub const STAGE2: usize = 16;

/// The stages of a ring.
///
/// A batch that is compiled for several instruction sets implements this trait with `#[inline(always)]` methods,
/// because closures do not guarantee inlining. Other batches build the stages from closures with [`stages`].
pub trait Stages {
    /// The data that an operation carries from stage to stage.
    type Entry: Copy;

    /// Computes the entry of operation `index`; may prefetch its line.
    fn locate(&mut self, index: usize) -> Self::Entry;

    /// Prefetches the line, if `locate` did not.
    #[inline(always)]
    fn prefetch(&mut self, _entry: Self::Entry) {}

    /// Peeks at the prefetched line and prefetches the line that it refers to; may change the entry for
    /// `prefetch_record`.
    fn inspect(&mut self, entry: &mut Self::Entry);

    /// Peeks at the line that `inspect` prefetched and prefetches the line that it refers to; may change the entry for
    /// `prefetch_record`. For operations whose record lies behind one more reference.
    #[inline(always)]
    fn follow(&mut self, _entry: &mut Self::Entry) {}

    /// Peeks at the line that was prefetched last and prefetches the line that it refers to, or takes the locks of the
    /// next burst; may change the entry for `run`.
    #[inline(always)]
    fn prefetch_record(&mut self, _entry: &mut Self::Entry) {}

    /// Executes the operation.
    fn run(&mut self, index: usize, entry: Self::Entry) -> ControlFlow<()>;
}

/// Builds the stages from four closures.
#[inline(always)]
pub fn stages<E: Copy>(
    locate: impl FnMut(usize) -> E,
    prefetch: impl FnMut(E),
    mut inspect: impl FnMut(E),
    run: impl FnMut(usize, E) -> ControlFlow<()>,
) -> impl Stages<Entry = E> {
    stages_with_record(locate, prefetch, move |entry| inspect(*entry), |_| (), run)
}

/// Builds the stages from five closures: those of [`stages`], of which `inspect` may change the entry, and
/// `prefetch_record`.
#[inline(always)]
pub fn stages_with_record<E: Copy>(
    locate: impl FnMut(usize) -> E,
    prefetch: impl FnMut(E),
    inspect: impl FnMut(&mut E),
    prefetch_record: impl FnMut(E),
    run: impl FnMut(usize, E) -> ControlFlow<()>,
) -> impl Stages<Entry = E> {
    Closures { locate, prefetch, inspect, prefetch_record, run }
}

struct Closures<A, Q, B, D, C> {
    locate: A,
    prefetch: Q,
    inspect: B,
    prefetch_record: D,
    run: C,
}

impl<E: Copy, A, Q, B, D, C> Stages for Closures<A, Q, B, D, C>
where
    A: FnMut(usize) -> E,
    Q: FnMut(E),
    B: FnMut(&mut E),
    D: FnMut(E),
    C: FnMut(usize, E) -> ControlFlow<()>,
{
    type Entry = E;

    #[inline(always)]
    fn locate(&mut self, index: usize) -> E {
        (self.locate)(index)
    }

    #[inline(always)]
    fn prefetch(&mut self, entry: E) {
        (self.prefetch)(entry);
    }

    #[inline(always)]
    fn inspect(&mut self, entry: &mut E) {
        (self.inspect)(entry);
    }

    #[inline(always)]
    fn prefetch_record(&mut self, entry: &mut E) {
        (self.prefetch_record)(*entry);
    }

    #[inline(always)]
    fn run(&mut self, index: usize, entry: E) -> ControlFlow<()> {
        (self.run)(index, entry)
    }
}

/// Runs operations `0..count` in order through the stages, and returns how many ran: all of them, or those up to and
/// including the first whose `run` returned `Break`. Operations that were hinted but not run have no effect.
///
/// `ring` is clamped to 1..=[`MAX_RING`], and `stage2` to 1..=`ring`.
#[inline(always)]
pub fn rolling<S: Stages>(count: usize, ring: usize, stage2: usize, stages: S) -> usize {
    roll::<1, false, S>(count, ring, stage2, stages)
}

/// Like [`rolling`], for stages that are always inlined: the loop is compiled a second time, without the limits that only
/// the end of the batch needs.
#[inline(always)]
pub fn rolling_twice_compiled<S: Stages>(
    count: usize,
    ring: usize,
    stage2: usize,
    stages: S,
) -> usize {
    roll::<1, true, S>(count, ring, stage2, stages)
}

/// Like [`rolling`], for a batch that fits into the ring: finishes each stage before it begins the next.
///
/// # Panics
/// If `count` is above [`MAX_RING`].
#[inline(always)]
pub fn stage_by_stage<S: Stages>(count: usize, mut stages: S) -> usize {
    let mut entries = [const { MaybeUninit::<S::Entry>::uninit() }; MAX_RING];
    let entries = &mut entries[..count];
    for (index, entry) in entries.iter_mut().enumerate() {
        entry.write(stages.locate(index));
    }
    for entry in entries.iter() {
        // SAFETY: written above, here and below.
        stages.prefetch(unsafe { entry.assume_init() });
    }
    for entry in entries.iter_mut() {
        // SAFETY: as above.
        stages.inspect(unsafe { entry.assume_init_mut() });
    }
    for entry in entries.iter_mut() {
        // SAFETY: as above.
        stages.follow(unsafe { entry.assume_init_mut() });
    }
    for entry in entries.iter_mut() {
        // SAFETY: as above.
        stages.prefetch_record(unsafe { entry.assume_init_mut() });
    }
    for (index, entry) in entries.iter().enumerate() {
        // SAFETY: as above.
        if stages.run(index, unsafe { entry.assume_init() }).is_break() {
            return index + 1;
        }
    }
    count
}

/// Like [`rolling`], but runs `BURST` operations directly one after the other, and then makes the same number of hints
/// and peeks. There are two uses. In tables on small pages, the addresses of a burst of hints are translated together.
/// In operations that execute a locked instruction, that instruction overlaps with nothing, so the latency of hashing
/// or peeking between two such operations would be fully exposed; in a burst these latencies overlap one another.
/// `ring` and `stage2` are clamped to at least `BURST`, the distance of `prefetch_record` ahead of `run`.
#[inline(always)]
pub fn rolling_in_bursts<const BURST: usize, S: Stages>(
    count: usize,
    ring: usize,
    stage2: usize,
    stages: S,
) -> usize {
    roll::<BURST, false, S>(count, ring, stage2, stages)
}

#[inline(always)]
fn roll<const BURST: usize, const TWICE: bool, S: Stages>(
    count: usize,
    ring: usize,
    stage2: usize,
    mut stages: S,
) -> usize {
    const { assert!(BURST >= 1 && BURST <= MAX_RING) }
    // All operations of a burst have been hinted and peeked at before it begins.
    let ring = ring.clamp(BURST, MAX_RING);
    let stage2 = stage2.clamp(BURST, ring);
    let mut entries = [const { MaybeUninit::<S::Entry>::uninit() }; MAX_RING];
    // Entry `i` is written before `inspect(i)` and `run(i)`. The next entry in the same place is i + MAX_RING, which is
    // written after `run(i)`, because ring <= MAX_RING.
    for index in 0..count.min(ring) {
        entries[index % MAX_RING].write(stages.locate(index));
    }
    for index in 0..count.min(ring) {
        // SAFETY: written above.
        stages.prefetch(unsafe { entries[index % MAX_RING].assume_init() });
    }
    for index in 0..count.min(stage2) {
        // SAFETY: stage2 <= ring, so it was written above.
        stages.inspect(unsafe { entries[index % MAX_RING].assume_init_mut() });
    }
    for index in 0..count.min(follow_distance::<BURST>(stage2)) {
        // SAFETY: the distance is at most stage2, so it was written above.
        stages.follow(unsafe { entries[index % MAX_RING].assume_init_mut() });
    }
    for index in 0..count.min(BURST) {
        // SAFETY: BURST <= ring, so it was written above.
        stages.prefetch_record(unsafe { entries[index % MAX_RING].assume_init_mut() });
    }
    let mut start = 0;
    // Not `step_by`: it cost a third of the throughput of gets in the first-level cache; this loop costs nothing. While
    // every stage has a whole burst left, the inner loops have a constant length. If the stages are not inlined into both
    // loops, the calls cost more than this saves: 186 instead of 150 instructions for an update of DLHT.
    while TWICE && start + BURST + ring <= count {
        let ends = |end| end;
        if let Some(ran) = burst::<BURST, S>(&mut stages, &mut entries, (start, ring, stage2), ends)
        {
            return ran;
        }
        start += BURST;
    }
    while start < count {
        let ends = |end: usize| end.min(count);
        if let Some(ran) = burst::<BURST, S>(&mut stages, &mut entries, (start, ring, stage2), ends)
        {
            return ran;
        }
        start += BURST;
    }
    count
}

/// Returns the distance of `follow` ahead of `run`.
#[inline(always)]
fn follow_distance<const BURST: usize>(stage2: usize) -> usize {
    stage2.min(2 * BURST)
}

/// Runs a burst of operations from `start` on, and makes as many hints and peeks ahead. `end` limits the ends of all
/// loops. Returns how many operations have run if one has returned `Break`.
#[inline(always)]
fn burst<const BURST: usize, S: Stages>(
    stages: &mut S,
    entries: &mut [MaybeUninit<S::Entry>; MAX_RING],
    (start, ring, stage2): (usize, usize, usize),
    end: impl Fn(usize) -> usize,
) -> Option<usize> {
    for index in start..end(start + BURST) {
        // SAFETY: written before the first burst, or after operation index - ring.
        let entry = unsafe { entries[index % MAX_RING].assume_init() };
        if stages.run(index, entry).is_break() {
            return Some(index + 1);
        }
    }
    for index in start + ring..end(start + ring + BURST) {
        entries[index % MAX_RING].write(stages.locate(index));
    }
    for index in start + ring..end(start + ring + BURST) {
        // SAFETY: written just now.
        stages.prefetch(unsafe { entries[index % MAX_RING].assume_init() });
    }
    for index in start + stage2..end(start + stage2 + BURST) {
        // SAFETY: written just now or earlier, as stage2 <= ring.
        stages.inspect(unsafe { entries[index % MAX_RING].assume_init_mut() });
    }
    let follow = follow_distance::<BURST>(stage2);
    for index in start + follow..end(start + follow + BURST) {
        // SAFETY: written just now or earlier, as the distance is at most stage2.
        stages.follow(unsafe { entries[index % MAX_RING].assume_init_mut() });
    }
    for index in start + BURST..end(start + 2 * BURST) {
        // SAFETY: written earlier or just now, as BURST <= ring.
        stages.prefetch_record(unsafe { entries[index % MAX_RING].assume_init_mut() });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stages that check their own order: each stage must get every operation once, in order, and exactly as far ahead
    /// of `run` as specified.
    struct Checked {
        count: usize,
        burst: usize,
        hints: usize,
        peeks: usize,
        /// The number of operations that each stage has seen.
        seen: [usize; 6],
    }

    impl Checked {
        fn see(&mut self, stage: usize, (index, entry): (usize, usize)) {
            assert_eq!((index, entry), (self.seen[stage], index * 3));
            assert!(stage == 0 || index < self.seen[stage - 1], "stage {stage} is too early");
            self.seen[stage] += 1;
        }
    }

    impl Stages for &mut Checked {
        type Entry = (usize, usize);

        fn locate(&mut self, index: usize) -> (usize, usize) {
            self.see(0, (index, index * 3));
            (index, index)
        }

        fn prefetch(&mut self, (index, entry): (usize, usize)) {
            self.see(1, (index, entry * 3));
        }

        fn inspect(&mut self, (index, entry): &mut (usize, usize)) {
            *entry *= 3;
            self.see(2, (*index, *entry));
        }

        fn follow(&mut self, entry: &mut (usize, usize)) {
            self.see(3, *entry);
        }

        fn prefetch_record(&mut self, entry: &mut (usize, usize)) {
            self.see(4, *entry);
        }

        fn run(&mut self, index: usize, entry: (usize, usize)) -> ControlFlow<()> {
            assert_eq!(index, entry.0);
            self.see(5, entry);
            let start = index / self.burst * self.burst;
            let follows = self.peeks.min(2 * self.burst);
            let ahead = [self.hints, self.hints, self.peeks, follows, self.burst];
            let expected = ahead.map(|ahead| self.count.min(start + ahead));
            assert_eq!(self.seen[..5], expected, "operation {index}, stages {ahead:?} ahead");
            ControlFlow::Continue(())
        }
    }

    fn check<const BURST: usize>(count: usize, ring: usize, stage2: usize) {
        let hints = ring.clamp(BURST, MAX_RING);
        let peeks = stage2.clamp(BURST, hints);
        let mut checked = Checked { count, burst: BURST, hints, peeks, seen: [0; 6] };
        let ran = roll::<BURST, false, _>(count, ring, stage2, &mut checked);
        assert_eq!((ran, checked.seen), (count, [count; 6]));
        let mut checked = Checked { count, burst: BURST, hints, peeks, seen: [0; 6] };
        let ran = roll::<BURST, true, _>(count, ring, stage2, &mut checked);
        assert_eq!((ran, checked.seen), (count, [count; 6]));
        if count <= MAX_RING {
            let burst = count.max(1);
            let mut checked = Checked { count, burst, hints: count, peeks: count, seen: [0; 6] };
            assert_eq!((stage_by_stage(count, &mut checked), checked.seen), (count, [count; 6]));
        }
    }

    #[test]
    fn every_stage_sees_every_operation_in_order() {
        let counts: &[usize] =
            if cfg!(miri) { &[0, 2, 129] } else { &[0, 1, 2, 5, 127, 128, 129, 300] };
        for &count in counts {
            for ring in [0, 1, 2, 48, 127, MAX_RING, usize::MAX] {
                for stage2 in [0, 1, 2, 16, MAX_RING, usize::MAX] {
                    check::<1>(count, ring, stage2);
                    check::<8>(count, ring, stage2);
                    check::<MAX_RING>(count, ring, stage2);
                }
            }
        }
    }

    #[test]
    fn a_break_ends_the_batch() {
        fn breaking(ran: &mut Vec<usize>) -> impl Stages {
            let run = |index, _| {
                ran.push(index);
                if index == 41 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            stages(|index| index, |_| (), |_| (), run)
        }
        let (mut ran, mut ran_by_stages) = (Vec::new(), Vec::new());
        assert_eq!(rolling(100, 8, 2, breaking(&mut ran)), 42);
        assert_eq!(stage_by_stage(100, breaking(&mut ran_by_stages)), 42);
        let expected: Vec<_> = (0..42).collect();
        assert_eq!((ran, ran_by_stages), (expected.clone(), expected));
    }

    #[test]
    fn prefetching_takes_any_address() {
        let word = 0_u64;
        prefetch_read(&raw const word);
        prefetch_second_level(&raw const word);
        prefetch_write(&raw const word);
        prefetch_read(std::ptr::null::<u64>());
        prefetch_second_level(std::ptr::null::<u64>());
        prefetch_write(std::ptr::without_provenance::<u64>(usize::MAX));
    }
}
