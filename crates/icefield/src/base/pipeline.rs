//! The rolling ring: overlaps the memory latency of many operations while running them strictly in order.
//!
//! Operation `i` goes through up to five stages: `first` computes its hash and where its line is, `ask` asks for it,
//! `second` peeks at that line and asks for the one that it leads to, `third` the same once more, `run` executes it.
//! While `i` runs, `first` and `ask` are `ring` operations ahead, `second` is `stage2` ahead and `third` a burst, so
//! about `ring` line fills are in flight at any time. The ring never drains in the middle: a barrier between groups of
//! operations halves the speed.
//!
//! A hint waits, and all behind it, until its address is translated. Where pages are small and many that takes as long
//! as the line itself, and hints that are an operation apart from each other wait one after the other. So stages are
//! made in bursts, hints right behind hints, where tables live in files: [`rolling_in_bursts`].
//!
//! Only `run` may decide anything, and only `third` besides may change anything: it may take locks. Hints and peeks see
//! memory as it was earlier, and other operations of the same batch run in between; so an entry should hold the hash, and
//! never a pointer into a table that may be resized, unless it stays where it is then (and even so it is a hint).

use std::mem::MaybeUninit;
use std::ops::ControlFlow;

pub use super::group::prefetch::{prefetch_read, prefetch_second_level, prefetch_write};

/// The longest ring: beyond this many the processor has no fill buffers left, and entries would leave the first-level
/// cache.
pub const MAX_RING: usize = 128;

/// A good distance of `first` ahead of `run`, for tables that have not measured their own.
pub const RING: usize = 48;

/// A good distance of `second` ahead of `run`, likewise.
pub const STAGE2: usize = 16;

/// The stages of a ring.
///
/// A batch that is compiled for one of several instruction sets makes them methods that are always inlined, which
/// closures cannot promise to be; elsewhere [`stages`] makes them of closures.
pub trait Stages {
    /// What goes from stage to stage.
    type Entry: Copy;

    /// Computes what operation `index` needs, and may ask for its line.
    fn first(&mut self, index: usize) -> Self::Entry;

    /// Asks for its line, if `first` did not.
    #[inline(always)]
    fn ask(&mut self, _entry: Self::Entry) {}

    /// Peeks at that line and asks for the one that it leads to; what it tells `third` is in the entry.
    fn second(&mut self, entry: &mut Self::Entry);

    /// Peeks at what `second` asked for, where that leads on; or takes the locks of the burst that comes next.
    #[inline(always)]
    fn third(&mut self, _entry: Self::Entry) {}

    /// Executes the operation.
    fn run(&mut self, index: usize, entry: Self::Entry) -> ControlFlow<()>;
}

/// Stages of four closures.
#[inline(always)]
pub fn stages<E: Copy>(
    first: impl FnMut(usize) -> E,
    ask: impl FnMut(E),
    second: impl FnMut(E),
    run: impl FnMut(usize, E) -> ControlFlow<()>,
) -> impl Stages<Entry = E> {
    Closures { first, ask, second, run }
}

struct Closures<A, Q, B, C> {
    first: A,
    ask: Q,
    second: B,
    run: C,
}

impl<E: Copy, A, Q, B, C> Stages for Closures<A, Q, B, C>
where
    A: FnMut(usize) -> E,
    Q: FnMut(E),
    B: FnMut(E),
    C: FnMut(usize, E) -> ControlFlow<()>,
{
    type Entry = E;

    #[inline(always)]
    fn first(&mut self, index: usize) -> E {
        (self.first)(index)
    }

    #[inline(always)]
    fn ask(&mut self, entry: E) {
        (self.ask)(entry);
    }

    #[inline(always)]
    fn second(&mut self, entry: &mut E) {
        (self.second)(*entry);
    }

    #[inline(always)]
    fn run(&mut self, index: usize, entry: E) -> ControlFlow<()> {
        (self.run)(index, entry)
    }
}

/// Runs operations `0..count` in order through the stages, and returns how many ran: all of them, or as many as
/// it took for `run` to answer `Break` (that one included). What was hinted and then not run leaves no trace.
///
/// `ring` is brought into 1..=[`MAX_RING`], and `stage2` into 1..=`ring`.
#[inline(always)]
pub fn rolling<S: Stages>(count: usize, ring: usize, stage2: usize, stages: S) -> usize {
    rolling_in_bursts::<1, S>(count, ring, stage2, stages)
}

/// [`rolling`], with `BURST` operations run one right after the other, and then as many hints and peeks made. For tables
/// in small pages, whose addresses are translated together then; and for operations that execute a locked instruction
/// each: nothing overlaps with those, so the latency of a hash or of a look at a line between any two of them would be
/// waited for, and in a burst they pass together. `ring` and `stage2` are at least `BURST`, which is how far ahead
/// `third` is.
#[inline(always)]
pub fn rolling_in_bursts<const BURST: usize, S: Stages>(
    count: usize,
    ring: usize,
    stage2: usize,
    mut stages: S,
) -> usize {
    const { assert!(BURST >= 1 && BURST <= MAX_RING) }
    // A burst has been hinted and peeked at before it begins.
    let ring = ring.clamp(BURST, MAX_RING);
    let stage2 = stage2.clamp(BURST, ring);
    let mut entries = [const { MaybeUninit::<S::Entry>::uninit() }; MAX_RING];
    // Entry `i` is written before `second(i)` and `run(i)`, and its place goes to entry i + MAX_RING at the earliest,
    // after `run(i)`, as ring <= MAX_RING.
    for index in 0..count.min(ring) {
        entries[index % MAX_RING].write(stages.first(index));
    }
    for index in 0..count.min(ring) {
        // SAFETY: written above.
        stages.ask(unsafe { entries[index % MAX_RING].assume_init() });
    }
    for index in 0..count.min(stage2) {
        // SAFETY: stage2 <= ring, so it was written above.
        stages.second(unsafe { entries[index % MAX_RING].assume_init_mut() });
    }
    for index in 0..count.min(BURST) {
        // SAFETY: BURST <= ring, so it was written above.
        stages.third(unsafe { entries[index % MAX_RING].assume_init() });
    }
    // Not `step_by`: gets in the first-level cache fell by a third with it, and stand as they were with this.
    let mut start = 0;
    while start < count {
        let end = count.min(start + BURST);
        for index in start..end {
            // SAFETY: written above, or below when operation index - ring had run.
            let entry = unsafe { entries[index % MAX_RING].assume_init() };
            if stages.run(index, entry).is_break() {
                return index + 1;
            }
        }
        for index in start + ring..count.min(end + ring) {
            entries[index % MAX_RING].write(stages.first(index));
        }
        for index in start + ring..count.min(end + ring) {
            // SAFETY: written just now.
            stages.ask(unsafe { entries[index % MAX_RING].assume_init() });
        }
        for index in start + stage2..count.min(end + stage2) {
            // SAFETY: written just now or earlier, as stage2 <= ring.
            stages.second(unsafe { entries[index % MAX_RING].assume_init_mut() });
        }
        for index in end..count.min(end + BURST) {
            // SAFETY: written earlier or just now, as BURST <= ring.
            stages.third(unsafe { entries[index % MAX_RING].assume_init() });
        }
        start = end;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stages that check that each sees every operation once, in order, and neither too late nor too early.
    struct Checked {
        count: usize,
        burst: usize,
        hints: usize,
        peeks: usize,
        /// How many operations each stage has seen.
        seen: [usize; 5],
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

        fn first(&mut self, index: usize) -> (usize, usize) {
            self.see(0, (index, index * 3));
            (index, index)
        }

        fn ask(&mut self, (index, entry): (usize, usize)) {
            self.see(1, (index, entry * 3));
        }

        fn second(&mut self, (index, entry): &mut (usize, usize)) {
            *entry *= 3;
            self.see(2, (*index, *entry));
        }

        fn third(&mut self, entry: (usize, usize)) {
            self.see(3, entry);
        }

        fn run(&mut self, index: usize, entry: (usize, usize)) -> ControlFlow<()> {
            assert_eq!(index, entry.0);
            self.see(4, entry);
            let start = index / self.burst * self.burst;
            let ahead = [self.hints, self.hints, self.peeks, self.burst];
            let expected = ahead.map(|ahead| self.count.min(start + ahead));
            assert_eq!(self.seen[..4], expected, "operation {index}, stages {ahead:?} ahead");
            ControlFlow::Continue(())
        }
    }

    fn check<const BURST: usize>(count: usize, ring: usize, stage2: usize) {
        let hints = ring.clamp(BURST, MAX_RING);
        let peeks = stage2.clamp(BURST, hints);
        let mut checked = Checked { count, burst: BURST, hints, peeks, seen: [0; 5] };
        let ran = rolling_in_bursts::<BURST, _>(count, ring, stage2, &mut checked);
        assert_eq!((ran, checked.seen), (count, [count; 5]));
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
        let mut ran = Vec::new();
        let breaking = stages(
            |index| index,
            |_| (),
            |_| (),
            |index, _| {
                ran.push(index);
                if index == 41 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        let count = rolling(100, 8, 2, breaking);
        assert_eq!(count, 42);
        assert_eq!(ran, (0..42).collect::<Vec<_>>());
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
