//! Atomics, fences and waiting: the standard library's, or loom's when a model is being checked.
//!
//! Protocols that `tests/loom.rs` explores take their atomics from here. Words that live on a medium or in zeroed
//! memory are the standard library's in every build, because loom's atomics are not plain words; [`Lines`] are the
//! exception, made so that they can be either.

mod line;

pub use line::{Line, Lines};

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
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

/// Loads a pointer to something that may be retired, after the thread has announced itself to the reclaimer. Of order
/// [`PROTECTED`](super::reclaim::PROTECTED).
#[cfg(not(loom))]
#[inline(always)]
pub fn load_protected<T>(pointer: &AtomicPtr<T>) -> *mut T {
    pointer.load(super::reclaim::PROTECTED)
}
/// Loads a pointer to something that may be retired. A model does not know the reclaimer's barriers, so a load could
/// give it a pointer from before; an exchange sees the newest.
#[cfg(loom)]
pub fn load_protected<T>(pointer: &AtomicPtr<T>) -> *mut T {
    let nothing = std::ptr::null_mut();
    match pointer.compare_exchange(nothing, nothing, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(current) | Err(current) => current,
    }
}
