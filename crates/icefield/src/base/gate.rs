//! A gate that many threads pass at once and that one can close for a moment: a readers-writer lock whose readers touch
//! a line of their own.
//!
//! Passing costs one uncontended atomic addition and one load, leaving another atomic; closing reads every thread's
//! line. For steps that are rare and short, beside operations that are neither.

use super::sync::{self, AtomicBool, AtomicU32, Ordering};
use super::thread;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Threads are dealt out to shards in turn, so up to this many never share one.
const SHARDS: usize = 32;

/// One line pair: the processors' adjacent-line prefetch would otherwise join neighbours.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(AtomicU32);

/// The gate. See the module.
#[derive(Debug)]
pub struct Gate {
    inside: Box<[Shard; SHARDS]>,
    closed: AtomicBool,
    /// One closes at a time.
    closing: Mutex<()>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            inside: Box::new(std::array::from_fn(|_| Shard(AtomicU32::new(0)))),
            closed: AtomicBool::new(false),
            closing: Mutex::new(()),
        }
    }
}

/// Says that a thread is inside; leaving is dropping it.
#[derive(Debug)]
#[must_use = "the thread is outside again when the pass is dropped"]
pub struct Pass<'a>(&'a AtomicU32);

/// Says that the gate is closed and nobody inside; it opens when this is dropped.
#[derive(Debug)]
#[must_use = "the gate opens when this is dropped"]
pub struct Closed<'a> {
    gate: &'a Gate,
    _alone: MutexGuard<'a, ()>,
}

impl Gate {
    /// Goes inside, waiting while the gate is closed. Not twice by one thread: between the two somebody may close it.
    #[inline]
    pub fn enter(&self) -> Pass<'_> {
        let inside = &self.inside[thread::number() & (SHARDS - 1)].0;
        // SeqCst, both: of this thread and one that closes, at least one sees the other (they store and load
        // crosswise).
        inside.fetch_add(1, Ordering::SeqCst);
        if !self.closed.load(Ordering::SeqCst) {
            return Pass(inside);
        }
        self.enter_later(inside)
    }

    #[cold]
    fn enter_later<'a>(&self, inside: &'a AtomicU32) -> Pass<'a> {
        loop {
            inside.fetch_sub(1, Ordering::SeqCst);
            let mut rounds = 0;
            // Acquire: pairs with the Release in `Closed::drop`.
            while self.closed.load(Ordering::Acquire) {
                sync::wait(rounds);
                rounds = rounds.saturating_add(1);
            }
            inside.fetch_add(1, Ordering::SeqCst);
            if !self.closed.load(Ordering::SeqCst) {
                return Pass(inside);
            }
        }
    }

    /// Closes the gate and waits until everybody has left. What they did is visible then.
    pub fn close(&self) -> Closed<'_> {
        // The mutex guards nothing that a panic could leave half done.
        let alone = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        // SeqCst: see `enter`.
        self.closed.store(true, Ordering::SeqCst);
        for shard in self.inside.iter() {
            let mut rounds = 0;
            // SeqCst: see `enter`; it is an Acquire, too, which pairs with the Release in `Pass::drop`.
            while shard.0.load(Ordering::SeqCst) != 0 {
                sync::wait(rounds);
                rounds = rounds.saturating_add(1);
            }
        }
        Closed { gate: self, _alone: alone }
    }
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the load in `Gate::close`.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        // Release: who enters from now on sees what was done while it was closed.
        self.gate.closed.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn nobody_is_inside_while_it_is_closed() {
        let rounds = if cfg!(miri) { 20 } else { 2_000 };
        let (gate, inside) = (Gate::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let _pass = gate.enter();
                        inside.fetch_add(1, Relaxed);
                        inside.fetch_sub(1, Relaxed);
                    }
                });
            }
            for _ in 0..rounds / 10 {
                let closed = gate.close();
                assert_eq!(inside.load(Relaxed), 0);
                drop(closed);
                std::thread::yield_now();
            }
        });
    }
}
