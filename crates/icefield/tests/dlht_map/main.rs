//! `DlhtMap`: random sequences of all calls against a reference map, with good, bad and constant hash functions;
//! concurrent threads; allocators that count and that refuse.

mod calls;
mod counting;
mod entries;
mod formats;
mod history;
mod memory;
mod options;
mod owned_guards;
mod parallel;
mod shadows;
mod spread;
mod threads;
mod whole;
mod within_calls;

/// Returns a smaller number under Miri, which is slow.
const fn fewer(usual: usize, under_miri: usize) -> usize {
    if cfg!(miri) { under_miri } else { usual }
}
