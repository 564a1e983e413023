//! Atomics, fences and waiting: the standard library's, or loom's when a model is being checked.
//!
//! Protocols that `tests/loom.rs` explores take their atomics from here. Words that live on a medium or in zeroed
//! memory are the standard library's in every build, because loom's atomics are not plain words; [`Lines`] are the
//! exception, made so that they can be either.

mod barrier;
mod line;
mod per_thread;

pub use barrier::Barrier;
pub use line::{GrowingLines, Line, Lines};
pub use per_thread::PerThread;

/// Whether this is a model. Sections of a reclaimer announce nothing then, and nothing is reclaimed before its end: the
/// reclaimer has a model of its own, and in others it would only multiply what there is to explore.
pub(crate) const MODELLED: bool = cfg!(loom);

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

/// Rounds of waiting that stay on the processor, before the scheduler is asked for help.
#[cfg(not(loom))]
const SPIN_ROUNDS: u32 = 64;
/// A model has no time to pass: every round lets another thread run.
#[cfg(loom)]
const SPIN_ROUNDS: u32 = 0;

/// Waits a little for another thread; `rounds` counts the calls of one wait so far, from 0.
#[inline]
pub fn wait(rounds: u32) {
    if rounds < SPIN_ROUNDS {
        spin_loop();
    } else {
        yield_now();
    }
}
