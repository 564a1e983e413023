//! The helper (not in the paper): an optional thread that migrates ahead of the writers.
//!
//! A writer asks for help for a root entry when a quarter of its room is used, and again when a sixteenth is left. Then
//! the helper makes room below the entry, and later empties it. The writer's own steps (`incremental_migration`) begin
//! later than in a table without a helper: when half of the room is used, and when few records fit. If the helper is
//! late, or has ended, or a step of it has failed, writers do all of the work, and report the error.
//!
//! A request is a bit, and a lost request would cost nothing but time. While requests come, the helper looks for them at
//! intervals, because waking it takes longer than most writes. Only after a while without requests does it sleep until
//! a writer wakes it.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use super::core::Core;
use super::incremental_migration::Pace;
use crate::engine::exclusion::lock;
use crate::storage::Medium;
use crate::types::RecordForm;
use crate::{Error, Result};

/// The time between two looks at the requests, and the number of looks without a result before the helper sleeps until
/// it is woken.
const PAUSE: Duration = Duration::from_micros(100);
const LOOKS: u32 = 200;

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
    stepping: Mutex<()>,
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
    fn add(&self, entry: usize) {
        // SeqCst, here and in `sleep`: either this thread sees that the helper sleeps, or the helper sees the request.
        self.entries[entry / 64].fetch_or(1 << (entry % 64), SeqCst);
        if self.sleeps.load(SeqCst) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.sleeps.store(false, SeqCst);
        self.helper.get().into_iter().for_each(Thread::unpark);
    }

    /// Sleeps until there is a request, or the helper must end.
    fn sleep(&self) {
        self.sleeps.store(true, SeqCst);
        if !self.has_ended() && self.entries.iter().all(|word| word.load(SeqCst) == 0) {
            std::thread::park();
        }
        self.sleeps.store(false, SeqCst);
    }

    fn has_ended(&self) -> bool {
        self.ends.load(SeqCst)
    }

    /// Returns whether this process has opened the table.
    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Asks the helper for what a root entry with `size` records needs, if it has not been asked before. Called under the
    /// lock.
    #[inline]
    pub(super) fn ask_helper(&self, requests: &Requests, entry: usize, size: usize) {
        let wanted = if self.is_nearly_full(size) {
            Asked::All
        } else if !self.root.is_relieved(entry) {
            Asked::Below
        } else {
            return;
        };
        if self.root.ask(entry, wanted) {
            requests.add(entry);
        }
    }

    /// Returns whether the helper empties a root entry that has `size` records.
    #[inline]
    fn is_nearly_full(&self, size: usize) -> bool {
        (self.shape.records() - size) * 16 <= self.shape.records()
    }

    /// Keeps the helper from its next step until the result is dropped. A table on which no other thread works is
    /// quiescent then.
    pub(super) fn pause_helper(&self) -> Option<MutexGuard<'_, ()>> {
        let requests = self.requests.as_deref().filter(|requests| requests.is_own())?;
        Some(lock(&self.storage, &requests.stepping))
    }

    /// Does all that the helper has been asked for. Returns whether there was anything that it could do.
    pub(super) fn help(&self) -> bool {
        let Some(requests) = &self.requests else { return false };
        let mut any = false;
        for (number, word) in requests.entries.iter().enumerate() {
            if word.load(Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, SeqCst);
            while bits != 0 && !requests.has_ended() {
                let entry = number * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                any |= self.help_entry(requests, entry);
            }
        }
        any
    }

    /// Takes the next step that is due for a root entry. Returns `false` if that is not possible now; then, and if
    /// further steps may be due, the request remains.
    fn help_entry(&self, requests: &Requests, entry: usize) -> bool {
        let _stepping = lock(&self.storage, &requests.stepping);
        if self.storage.check_writable().is_err() {
            return true;
        }
        let pass = self.exclusion.try_enter();
        let _pin = self.pin();
        let held = pass.as_ref().and_then(|_| self.root.try_lock(&self.storage, entry));
        let Some(held) = held else {
            requests.add(entry);
            return false;
        };
        if self.takes_step(&held, Pace::Whole) {
            // The next step comes later, so that writers that wait for the lock get it.
            requests.add(entry);
        } else if self.is_nearly_full(self.root.size(entry)) {
            // If this fails, the write that meets the full entry fails, too, and reports the error.
            let _ = self.empty_together(&held);
        }
        true
    }
}

/// The thread of a table. It ends after its present step when this is dropped.
pub(super) struct Helper {
    /// `None` after the drop.
    thread: Option<JoinHandle<()>>,
    requests: Arc<Requests>,
}

impl Helper {
    /// Starts the thread, if the table has requests for one.
    pub(super) fn start<R: RecordForm, M: Medium>(core: &Arc<Core<R, M>>) -> Result<Option<Self>> {
        let Some(requests) = &core.requests else { return Ok(None) };
        let (own, asked) = (Arc::clone(core), Arc::clone(requests));
        let builder = std::thread::Builder::new().name("icefield-helper".into());
        let started = builder.spawn(move || run(&own, &asked));
        let thread = started.map_err(|error| Error::io(core.storage.path(), error))?;
        Ok(Some(Self { thread: Some(thread), requests: Arc::clone(requests) }))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.requests.is_own() {
            // This process has no such thread to wait for.
            std::mem::forget(thread);
            return;
        }
        self.requests.ends.store(true, SeqCst);
        thread.thread().unpark();
        // A panic has been reported, and no lock remains.
        let _ = thread.join();
    }
}

/// The thread's function.
fn run<R: RecordForm, M: Medium>(core: &Core<R, M>, requests: &Requests) {
    // Fails only if there were two threads.
    let _ = requests.helper.set(std::thread::current());
    let mut in_vain = 0;
    while !requests.has_ended() {
        in_vain = if core.help() { 0 } else { in_vain + 1 };
        if in_vain < LOOKS {
            std::thread::park_timeout(PAUSE);
        } else {
            requests.sleep();
            in_vain = 0;
        }
    }
}
