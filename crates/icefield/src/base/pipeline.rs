//! The rolling ring: overlaps the memory latency of many operations while running them strictly in order.
//!
//! Operation `i` goes through three stages: `first` computes its hash and asks for its line, `second` peeks at that
//! line and asks for the one that it leads to, `run` executes it. While `i` runs, `first` is `ring` operations ahead
//! and `second` is `stage2` ahead, so about `ring` line fills are in flight at any time. The ring never drains in the
//! middle: a barrier between groups of operations halves the speed.
//!
//! Only `run` may decide anything. Hints and peeks see memory as it was earlier, and other operations of the same batch
//! run in between; so an entry should hold the hash, and never a pointer into a table that may be resized.

use std::mem::MaybeUninit;
use std::ops::ControlFlow;

pub use super::group::prefetch::{prefetch_read, prefetch_write};

/// The longest ring: beyond this many the processor has no fill buffers left, and entries would leave the first-level
/// cache.
pub const MAX_RING: usize = 128;

/// A good distance of `first` ahead of `run`, for tables that have not measured their own.
pub const RING: usize = 48;

/// A good distance of `second` ahead of `run`, likewise.
pub const STAGE2: usize = 16;

/// Runs operations `0..count` in order through the three stages, and returns how many ran: all of them, or as many as
/// it took for `run` to answer `Break` (that one included). What was hinted and then not run leaves no trace.
///
/// `ring` is brought into 1..=[`MAX_RING`], and `stage2` into 1..=`ring`.
#[inline]
pub fn rolling<E: Copy>(
    count: usize,
    ring: usize,
    stage2: usize,
    mut first: impl FnMut(usize) -> E,
    mut second: impl FnMut(usize, &E),
    mut run: impl FnMut(usize, E) -> ControlFlow<()>,
) -> usize {
    let ring = ring.clamp(1, MAX_RING);
    let stage2 = stage2.clamp(1, ring);
    let mut entries = [const { MaybeUninit::<E>::uninit() }; MAX_RING];

    // Step `s` runs operation s - ring, hints s, and peeks for s - (ring - stage2), where these exist. Running comes
    // first because operation s takes over the place of operation s - MAX_RING.
    let second_lag = ring - stage2;
    for step in 0..count.saturating_add(ring) {
        if let Some(index) = step.checked_sub(ring) {
            // SAFETY: entry `index` was written at step `index`, and its place is written again MAX_RING >= ring steps
            // later at the earliest, below, after this one has been taken.
            let entry = unsafe { entries[index % MAX_RING].assume_init() };
            if run(index, entry).is_break() {
                return index + 1;
            }
        }
        if step < count {
            entries[step % MAX_RING].write(first(step));
        }
        if let Some(index) = step.checked_sub(second_lag)
            && index < count
        {
            // SAFETY: written at step `index` <= step, and not yet overwritten, as above.
            second(index, unsafe { entries[index % MAX_RING].assume_init_ref() });
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Runs `count` operations and checks that every stage sees every operation once, in order, and not too late.
    fn check(count: usize, ring: usize, stage2: usize) {
        let stages = RefCell::new([0_usize; 3]);
        let ran = rolling(
            count,
            ring,
            stage2,
            |index| {
                assert_eq!(index, stages.borrow()[0]);
                stages.borrow_mut()[0] += 1;
                index * 3
            },
            |index, &entry| {
                assert_eq!((index, entry), (stages.borrow()[1], index * 3));
                assert!(index < stages.borrow()[0]);
                stages.borrow_mut()[1] += 1;
            },
            |index, entry| {
                let mut stages = stages.borrow_mut();
                assert_eq!((index, entry), (stages[2], index * 3));
                let ring = ring.clamp(1, MAX_RING);
                assert_eq!(stages[0], count.min(index + ring), "hints are {ring} ahead");
                assert_eq!(
                    stages[1],
                    count.min(index + stage2.clamp(1, ring)),
                    "peeks are {stage2} ahead"
                );
                stages[2] += 1;
                ControlFlow::Continue(())
            },
        );
        assert_eq!((ran, stages.into_inner()), (count, [count; 3]));
    }

    #[test]
    fn every_stage_sees_every_operation_in_order() {
        let counts: &[usize] =
            if cfg!(miri) { &[0, 2, 129] } else { &[0, 1, 2, 5, 127, 128, 129, 300] };
        for &count in counts {
            for ring in [0, 1, 2, 48, 127, MAX_RING, usize::MAX] {
                for stage2 in [0, 1, 2, 16, MAX_RING, usize::MAX] {
                    check(count, ring, stage2);
                }
            }
        }
    }

    #[test]
    fn a_break_ends_the_batch() {
        let mut ran = Vec::new();
        let count = rolling(
            100,
            8,
            2,
            |index| index,
            |_, _| (),
            |index, _| {
                ran.push(index);
                if index == 41 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!(count, 42);
        assert_eq!(ran, (0..42).collect::<Vec<_>>());
    }

    #[test]
    fn prefetching_takes_any_address() {
        let word = 0_u64;
        prefetch_read(&raw const word);
        prefetch_write(&raw const word);
        prefetch_read(std::ptr::null::<u64>());
        prefetch_write(std::ptr::without_provenance::<u64>(usize::MAX));
    }
}
