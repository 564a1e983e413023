//! Bare loops: the upper bounds for any table on this machine.

use std::hint::black_box;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use icefield::base::pipeline::prefetch_read;
use icefield_torture::Xoshiro;

use super::arena::{Arena, Line};
use crate::machine::part;
use crate::table::Cost;

/// The way in which a loop hides memory latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Independent accesses, with a data-dependent branch after every 64.
    Single,
    /// Prefetches for this number of accesses, then the accesses.
    Batch(usize),
    /// Prefetches each line this number of accesses ahead, in a ring that is never empty.
    Ring(usize),
}

/// One access pattern, as a loop without overhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loop {
    /// Each line holds the index of the next: measures the latency itself.
    Chase,
    /// Reads of random lines.
    Read(Pace),
    /// A load and a store of a random line.
    Modify(Pace),
    /// An 8-byte compare-and-swap in a random line.
    Cas(Pace),
    /// Stores to random lines and flushes of them, with one fence for this number of lines.
    Persist(usize),
    SequentialRead,
    SequentialWrite,
    /// The accesses that a table documents for an operation, and nothing else.
    Shape(Cost, Pace),
}

const WINDOW: usize = 32;

impl Loop {
    pub fn name(self) -> String {
        let paced = |what: &str, pace| match pace {
            Pace::Single => format!("{what}-independent"),
            Pace::Batch(size) => format!("{what}-batch-{size}"),
            Pace::Ring(size) => format!("{what}-ring-{size}"),
        };
        match self {
            Self::Chase => "read-chase".to_owned(),
            Self::Read(pace) => paced("read", pace),
            Self::Modify(pace) => paced("modify", pace),
            Self::Cas(pace) => paced("cas8", pace),
            Self::Persist(1) => "store-flush-fence".to_owned(),
            Self::Persist(per_fence) => format!("store-flush-{per_fence}-fence"),
            Self::SequentialRead => "sequential-read".to_owned(),
            Self::SequentialWrite => "sequential-write".to_owned(),
            Self::Shape(_, pace) => paced("shape", pace),
        }
    }

    /// Returns whether the loop needs a medium with flushes.
    pub fn persists(self) -> bool {
        matches!(self, Self::Persist(_) | Self::Shape(Cost { fences: 1.., .. }, _))
    }

    /// Runs `ops` operations on `arena`. Shapes that write round up to a whole window.
    pub fn run(self, arena: &Arena, ops: usize, seed: u64) {
        let lines = arena.lines();
        let mut random = Xoshiro::new(seed);
        let sum = match self {
            Self::Chase => chase(lines, ops, &mut random),
            Self::Read(pace) => {
                paced(lines, ops, &mut random, pace, |line| line.0[0].load(Relaxed))
            }
            Self::Modify(pace) => paced(lines, ops, &mut random, pace, |line| {
                let word = line.0[0].load(Relaxed);
                line.0[0].store(word.wrapping_add(2), Release);
                word
            }),
            Self::Cas(pace) => paced(lines, ops, &mut random, pace, |line| {
                let word = line.0[0].load(Relaxed);
                line.0[0].compare_exchange(word, word.wrapping_add(2), AcqRel, Relaxed).unwrap_or(0)
            }),
            Self::Persist(per_fence) => persist(arena, ops, &mut random, per_fence),
            Self::SequentialRead => {
                sequential(lines, ops, &mut random, |line| line.0[0].load(Relaxed))
            }
            Self::SequentialWrite => {
                sequential(lines, ops, &mut random, |line| {
                    // Leaves the first two words unchanged, because the other loops use them.
                    line.0[2..].iter().for_each(|word| word.store(1, Relaxed));
                    0
                })
            }
            Self::Shape(cost, pace) if cost.fences == 0 && cost.writes > 0 => {
                return Self::Cas(pace).run(arena, ops * cost.writes, seed);
            }
            Self::Shape(cost, pace) if cost.fences == 0 => {
                shape_read(lines, ops, &mut random, cost.reads, pace)
            }
            Self::Shape(cost, pace) => shape_write(arena, ops, &mut random, cost, pace),
        };
        black_box(sum);
    }
}

fn chase(lines: &[Line], ops: usize, random: &mut Xoshiro) -> u64 {
    let mut next = random.below(lines.len() as u64);
    for _ in 0..ops {
        next = lines[next as usize].0[1].load(Relaxed);
    }
    next
}

/// Branches on the lowest bit of `word`. The word is a sum of random words, so the branch is unpredictable.
#[inline]
fn branch_on(word: u64) -> u64 {
    if word & 1 == 0 { black_box(word) } else { word.rotate_left(7) }
}

#[inline]
fn pick<'a>(lines: &'a [Line], random: &mut Xoshiro) -> &'a Line {
    &lines[random.index(lines.len())]
}

#[inline]
fn paced(
    lines: &[Line],
    ops: usize,
    random: &mut Xoshiro,
    pace: Pace,
    act: impl Fn(&Line) -> u64,
) -> u64 {
    let mut sum = 0u64;
    match pace {
        Pace::Single => {
            for i in 0..ops {
                sum = sum.wrapping_add(act(pick(lines, random)));
                if i % 64 == 63 {
                    sum = branch_on(sum);
                }
            }
        }
        Pace::Batch(size) => {
            let mut batch = vec![&lines[0]; size];
            for done in (0..ops).step_by(size) {
                let batch = &mut batch[..size.min(ops - done)];
                for line in batch.iter_mut() {
                    *line = pick(lines, random);
                    prefetch_read(std::ptr::from_ref(line));
                }
                sum = branch_on(batch.iter().fold(sum, |sum, line| sum.wrapping_add(act(line))));
            }
        }
        Pace::Ring(size) => {
            let mut ring: Vec<&Line> = (0..size).map(|_| pick(lines, random)).collect();
            let mut slot = 0;
            for _ in 0..ops {
                let next = pick(lines, random);
                prefetch_read(std::ptr::from_ref(next));
                sum = sum.wrapping_add(act(std::mem::replace(&mut ring[slot], next)));
                slot = if slot + 1 == size { 0 } else { slot + 1 };
            }
        }
    }
    sum
}

fn persist(arena: &Arena, ops: usize, random: &mut Xoshiro, per_fence: usize) -> u64 {
    for done in (0..ops).step_by(per_fence) {
        for _ in 0..per_fence.min(ops - done) {
            let line = pick(arena.lines(), random);
            line.0[2].store(done as u64, Release);
            arena.flush(line);
        }
        arena.fence();
    }
    0
}

/// Passes over all lines, starting at a random line so that threads do not run in step.
fn sequential(lines: &[Line], ops: usize, random: &mut Xoshiro, act: impl Fn(&Line) -> u64) -> u64 {
    let start = random.index(lines.len());
    let mut sum = 0u64;
    for line in lines[start..].iter().chain(lines.iter().cycle()).take(ops) {
        sum = sum.wrapping_add(act(line));
    }
    sum
}

/// Makes the accesses of `paced`, with `reads` lines per operation. Batches become longer by that factor. A ring keeps
/// its length: at most 64 lines are in flight.
fn shape_read(lines: &[Line], ops: usize, random: &mut Xoshiro, reads: usize, pace: Pace) -> u64 {
    let pace = match pace {
        Pace::Batch(size) => Pace::Batch(size * reads),
        pace => pace,
    };
    paced(lines, ops * reads, random, pace, |line| line.0[0].load(Relaxed))
}

/// Runs windows of operations. Each window reads its lines. Under `Batch`, the window has prefetched them just before;
/// under `Ring`, the preceding window has prefetched them after its own reads; under `Single`, they are not prefetched.
/// For each fence, the window then stores to a part of the lines and flushes them.
fn shape_write(arena: &Arena, ops: usize, random: &mut Xoshiro, cost: Cost, pace: Pace) -> u64 {
    let lines = arena.lines();
    let touched = cost.reads.max(cost.writes);
    let window = match pace {
        Pace::Single => 1,
        Pace::Batch(size) => size.min(WINDOW),
        Pace::Ring(_) => WINDOW,
    };
    // The lines of a window: first line 0 of every operation, then line 1 of every operation, and so on.
    let mut current: Vec<&Line> = (0..window * touched).map(|_| pick(lines, random)).collect();
    let mut ahead = current.clone();
    let hint =
        |some: &[&Line]| some.iter().for_each(|line| prefetch_read(std::ptr::from_ref(*line)));
    let mut sum = 0u64;
    for _ in (0..ops).step_by(window) {
        if matches!(pace, Pace::Batch(_)) {
            hint(&current);
        }
        let read = &current[..window * cost.reads];
        sum = read.iter().fold(sum, |sum, line| sum.wrapping_add(line.0[0].load(Relaxed)));
        ahead.iter_mut().for_each(|line| *line = pick(lines, random));
        if matches!(pace, Pace::Ring(_)) {
            hint(&ahead);
        }
        for fence in 0..cost.fences {
            let stored = part(cost.writes, fence, cost.fences);
            for line in &current[window * stored.start..window * stored.end] {
                line.0[2].store(sum, Release);
                arena.flush(line);
            }
            arena.fence();
        }
        std::mem::swap(&mut current, &mut ahead);
    }
    sum
}
