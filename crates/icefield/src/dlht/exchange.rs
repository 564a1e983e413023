//! Compare-and-swap, for many threads or for one.

use crate::base::sync::AtomicU64;

/// A mode's compare-and-swap: an atomic instruction for many threads, a load and a store for one.
pub trait Exchange {
    /// Replaces `old` by `new` if the word is `old`; returns whether it was. Acquire and Release on success.
    #[doc(hidden)]
    fn exchange(word: &AtomicU64, old: u64, new: u64) -> bool;
}
