//! Atomics, fences and waiting: those of the standard library, or loom's when a model is checked.
//!
//! Protocols that `tests/loom.rs` explores use the atomics of this module. Words on a medium or in zeroed memory are
//! standard library atomics in every build, because loom's atomics are not plain words. [`Lines`] are the exception:
//! they have an implementation for each case.

mod atomic;
mod barrier;
mod line;
mod per_thread;

pub use atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Condvar, JoinHandle, Mutex,
    MutexGuard, Ordering, ThreadBuilder, fence, spin_loop, yield_now,
};
pub use barrier::Barrier;
pub use line::{GrowingLines, Line, Lines};
pub use per_thread::PerThread;

/// True if this build checks a model. The sections of a reclaimer announce nothing then, and nothing is reclaimed
/// before the model ends. The reclaimer has its own model; in other models it would only add executions to explore.
pub(crate) const MODELLED: bool = cfg!(loom);

/// A waiting thread spins in its first `SPIN_ROUNDS` rounds, and yields to the scheduler in later ones.
#[cfg(not(loom))]
const SPIN_ROUNDS: u32 = 64;
/// In a model, spinning lets no time pass, so every round yields to another thread.
#[cfg(loom)]
const SPIN_ROUNDS: u32 = 0;

/// Waits briefly for another thread. `rounds` is the number of earlier calls during the same wait.
#[inline]
pub fn wait(rounds: u32) {
    if rounds < SPIN_ROUNDS {
        spin_loop();
    } else {
        yield_now();
    }
}
