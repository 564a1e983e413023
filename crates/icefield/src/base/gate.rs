//! A gate that many threads pass at once and that one can close for a moment: a readers-writer lock whose readers touch
//! a line of their own. For steps that are rare and short, beside operations that are neither.
//!
//! Passing costs two plain stores and a load: no locked instruction, which would hold back the loads that follow until
//! all earlier stores, flushes and fences are done. Who closes pays: it asks the system for a barrier on every processor
//! that runs a thread of this process, and reads every thread's line.
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | G1 | `inside` (Relaxed, light barrier) | `inside` (heavy barrier, Acquire) | that the thread is inside |
//! | G2 | `closed` (SeqCst, heavy barrier) | `closed` (light barrier, Acquire) | that the gate is closed |
//! | G3 | `inside` (Release) | `inside` (Acquire) | what was done inside |
//! | G4 | `closed` (Release) | `closed` (Acquire) | what was done while it was closed |
//!
//! Of a thread that enters and one that closes, at least one sees the other: the barriers are ordered, and whoever's
//! comes second loads what the other had stored before (G1, G2).

use std::io;
use std::marker::PhantomData;
use std::sync::PoisonError;

use super::sync::{self, AtomicBool, AtomicU32, Barrier, Mutex, MutexGuard, Ordering, PerThread};

/// How often a thread is inside. One line pair: the processors' adjacent-line prefetch would otherwise join neighbours.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Presence(AtomicU32);

impl Presence {
    /// Adds one, or takes it away. Only the thread whose presence it is does so.
    #[inline(always)]
    fn change(&self, by: i32, order: Ordering) {
        // Relaxed: this thread's own.
        let inside = self.0.load(Ordering::Relaxed);
        self.0.store(inside.wrapping_add_signed(by), order);
    }
}

/// The gate. See the module.
pub struct Gate {
    inside: PerThread<Presence>,
    barrier: Barrier,
    closed: AtomicBool,
    /// One closes at a time.
    closing: Mutex<()>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            inside: PerThread::default(),
            barrier: Barrier::detect(),
            closed: AtomicBool::new(false),
            closing: Mutex::new(()),
        }
    }
}

/// Says that a thread is inside; leaving is dropping it.
#[derive(Debug)]
#[must_use = "the thread is outside again when the pass is dropped"]
pub struct Pass<'a> {
    inside: &'a Presence,
    /// It is one thread's.
    _own: PhantomData<*const ()>,
}

/// Says that the gate is closed and nobody inside; it opens when this is dropped.
#[must_use = "the gate opens when this is dropped"]
#[derive(Debug)]
pub struct Closed<'a> {
    gate: &'a Gate,
    _alone: MutexGuard<'a, ()>,
}

impl Gate {
    /// Goes inside, waiting while the gate is closed. Not twice by one thread: between the two somebody may close it.
    #[inline]
    pub fn enter(&self) -> Pass<'_> {
        let inside = self.inside.mine();
        if !self.tries(inside) {
            self.wait_and_enter(inside);
        }
        Pass { inside, _own: PhantomData }
    }

    /// Goes inside; says whether the gate was open.
    #[inline(always)]
    fn tries(&self, inside: &Presence) -> bool {
        // Relaxed (G1): the barrier orders it.
        inside.change(1, Ordering::Relaxed);
        self.barrier.light();
        // Acquire (G2, G4).
        !self.closed.load(Ordering::Acquire)
    }

    #[cold]
    fn wait_and_enter(&self, inside: &Presence) {
        loop {
            inside.change(-1, Ordering::Release);
            let mut rounds = 0;
            // Acquire (G4).
            while self.closed.load(Ordering::Acquire) {
                sync::wait(rounds);
                rounds = rounds.saturating_add(1);
            }
            if self.tries(inside) {
                return;
            }
        }
    }

    /// Closes the gate and waits until everybody has left. What they did is visible then.
    ///
    /// # Errors
    /// The system made no barrier, as a sandbox that came up later may cause; the gate is open.
    pub fn close(&self) -> io::Result<Closed<'_>> {
        // The mutex guards nothing that a panic could leave half done.
        let alone = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        // SeqCst (G2): with the barrier.
        self.closed.store(true, Ordering::SeqCst);
        let closed = Closed { gate: self, _alone: alone };
        if !self.barrier.heavy() {
            return Err(io::Error::other(
                "the system call membarrier, which it has granted before, fails now",
            ));
        }
        for presence in self.inside.iter() {
            let mut rounds = 0;
            // Acquire (G1, G3).
            while presence.0.load(Ordering::Acquire) != 0 {
                sync::wait(rounds);
                rounds = rounds.saturating_add(1);
            }
        }
        Ok(closed)
    }
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release (G3).
        self.inside.change(-1, Ordering::Release);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        // Release (G4).
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
                let closed = gate.close().expect("a barrier");
                assert_eq!(inside.load(Relaxed), 0);
                drop(closed);
                std::thread::yield_now();
            }
        });
    }
}
