//! `DlhtMap`: random sequences of every call against a reference map, with hash functions that are good, bad and
//! constant; threads against one another; allocators that count, and that refuse.

mod calls;
mod counting;
mod history;
mod memory;
mod spread;
mod threads;
mod within_calls;

/// Fewer under Miri, which takes its time.
const fn fewer(usual: usize, under_miri: usize) -> usize {
    if cfg!(miri) { under_miri } else { usual }
}
