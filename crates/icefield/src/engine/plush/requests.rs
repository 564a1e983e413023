//! The requests of writers to the helper (`helper`).
//!
//! A request is a bit. Before the helper sleeps, it announces that (`sleeps`), and then looks once more for requests
//! (`entries`) and whether it must end (`ends`). A thread that stores one of these looks at `sleeps` afterwards, or
//! wakes the helper in any case. All of these accesses are SeqCst, so at least one of the two threads sees the other's
//! store. A lost request would cost nothing but time.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

/// The request that the helper got for a root entry since the entry was emptied.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    Nothing = 0,
    /// To make room below the entry.
    Below = 1,
    /// To empty the entry as well.
    All = 2,
}

/// The requests of a table.
#[derive(Debug)]
pub(super) struct Requests {
    /// A bit for each root entry.
    entries: Box<[AtomicU64]>,
    /// `true` while the helper sleeps until it is woken.
    sleeps: AtomicBool,
    ends: AtomicBool,
    helper: OnceLock<Thread>,
    /// Held during each step.
    pub(super) stepping: Mutex<()>,
    /// The process that has opened the table: a forked child has no helper.
    process: u32,
}

impl Requests {
    /// `entries` is the number of root entries.
    pub(super) fn new(entries: usize) -> Self {
        Self {
            entries: (0..entries.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            sleeps: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            helper: OnceLock::new(),
            stepping: Mutex::new(()),
            process: std::process::id(),
        }
    }

    /// Adds a request.
    pub(super) fn add(&self, entry: usize) {
        // SeqCst, both: see the header.
        self.entries[entry / 64].fetch_or(1 << (entry % 64), SeqCst);
        if self.sleeps.load(SeqCst) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // SeqCst: see the header.
        self.sleeps.store(false, SeqCst);
        self.helper.get().into_iter().for_each(Thread::unpark);
    }

    /// Calls `help` for each root entry for which there is a request, and removes the request first. Stops when the
    /// helper must end. Returns whether `help` has returned `true` for any.
    pub(super) fn each(&self, mut help: impl FnMut(usize) -> bool) -> bool {
        let mut any = false;
        for (number, word) in self.entries.iter().enumerate() {
            // Relaxed: a request that is missed here is found by the next call, or by `sleep`.
            if word.load(Relaxed) == 0 {
                continue;
            }
            // SeqCst: see the header.
            let mut bits = word.swap(0, SeqCst);
            while bits != 0 && !self.has_ended() {
                any |= help(number * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        any
    }

    /// Makes this thread the one that is woken.
    pub(super) fn wake_this_thread(&self) {
        // Fails only if there were two helpers.
        let _ = self.helper.set(std::thread::current());
    }

    /// Sleeps until there is a request, or the helper must end.
    pub(super) fn sleep(&self) {
        // SeqCst, all: see the header.
        self.sleeps.store(true, SeqCst);
        if !self.has_ended() && self.entries.iter().all(|word| word.load(SeqCst) == 0) {
            std::thread::park();
        }
        // SeqCst: see the header.
        self.sleeps.store(false, SeqCst);
    }

    /// Lets the helper end after its present step.
    pub(super) fn end(&self) {
        // SeqCst: see the header.
        self.ends.store(true, SeqCst);
        self.wake();
    }

    pub(super) fn has_ended(&self) -> bool {
        // SeqCst: see the header.
        self.ends.load(SeqCst)
    }

    /// Returns whether this process has opened the table.
    pub(super) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }
}
