//! A gate that many threads pass concurrently and that one thread can close for a moment: a readers-writer lock whose
//! readers write only their own line. It suits frequent operations that a rare, short step must exclude.
//!
//! Passing the gate costs two plain stores and a load. It needs no locked instruction, which would delay the
//! following loads until all earlier stores, flushes and fences are complete. The closing thread bears the cost: it
//! requests a barrier on every processor that runs a thread of this process, and reads every thread's line.
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | G1 | `inside` (Relaxed, light barrier) | `inside` (heavy barrier, Acquire) | that the thread is inside |
//! | G2 | `closed` (SeqCst, heavy barrier) | `closed` (light barrier, Acquire) | that the gate is closed |
//! | G3 | `inside` (Release) | `inside` (Acquire) | what was done inside |
//! | G4 | `closed` (Release) | `closed` (Acquire) | what was done while it was closed |
//!
//! Of an entering thread and a closing thread, at least one sees the other's store: the two barriers are ordered, and
//! the thread whose barrier comes second sees what the other thread stored before the first barrier (G1, G2).

use std::io;
use std::marker::PhantomData;
use std::sync::PoisonError;

use super::sync::{self, AtomicBool, AtomicU32, Barrier, Mutex, MutexGuard, Ordering, PerThread};

/// The number of times that a thread has entered the gate and not left it yet. It fills two lines, because processors
/// prefetch lines in pairs: two threads with one line each would contend for the pair.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Presence(AtomicU32);

impl Presence {
    /// Adds `by`. Only the thread that owns the count calls this.
    #[inline(always)]
    fn change(&self, by: i32, order: Ordering) {
        // Relaxed: only this thread stores it.
        let inside = self.0.load(Ordering::Relaxed);
        self.0.store(inside.wrapping_add_signed(by), order);
    }
}

/// The gate. See the module documentation.
pub struct Gate {
    inside: PerThread<Presence>,
    barrier: Barrier,
    closed: AtomicBool,
    /// Held by the thread that closes the gate.
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

/// Proof that a thread is inside. The thread leaves when the pass is dropped.
#[derive(Debug)]
#[must_use = "the thread is outside again when the pass is dropped"]
pub struct Pass<'a> {
    inside: &'a Presence,
    /// Makes the pass `!Send`.
    _own: PhantomData<*const ()>,
}

/// Proof that the gate is closed and no thread is inside. The gate opens when this is dropped.
#[must_use = "the gate opens when this is dropped"]
#[derive(Debug)]
pub struct Closed<'a> {
    gate: &'a Gate,
    _alone: MutexGuard<'a, ()>,
}

impl Gate {
    /// Enters, waiting while the gate is closed. A thread must not enter twice: it would wait forever if the gate
    /// were closed between the two calls.
    #[inline]
    pub fn enter(&self) -> Pass<'_> {
        self.try_enter().unwrap_or_else(|| self.wait_and_enter())
    }

    /// Like [`Gate::enter`], but returns `None` while the gate is closed.
    #[inline(always)]
    pub fn try_enter(&self) -> Option<Pass<'_>> {
        let inside = self.inside.mine();
        // Relaxed (G1): the barrier orders it.
        inside.change(1, Ordering::Relaxed);
        self.barrier.light();
        let pass = Pass { inside, _own: PhantomData };
        // Acquire (G2, G4). A pass that is not returned undoes the count.
        (!self.closed.load(Ordering::Acquire)).then_some(pass)
    }

    #[cold]
    fn wait_and_enter(&self) -> Pass<'_> {
        loop {
            let mut rounds = 0;
            // Acquire (G4).
            while self.closed.load(Ordering::Acquire) {
                sync::wait(rounds);
                rounds = rounds.saturating_add(1);
            }
            if let Some(pass) = self.try_enter() {
                return pass;
            }
        }
    }

    /// Closes the gate and waits until all threads have left, so the calling thread must not be inside. On return, the
    /// stores that the threads made inside are visible to the caller.
    ///
    /// # Errors
    /// Fails if the system refuses the barrier, for example in a sandbox that was set up after the gate was created.
    /// The gate is open then.
    pub fn close(&self) -> io::Result<Closed<'_>> {
        // The mutex protects no data that a panic could leave inconsistent.
        let alone = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        // SeqCst (G2): the heavy barrier below orders this store before the loads of `inside`.
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
