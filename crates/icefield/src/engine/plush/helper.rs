//! The helper (not in the paper): an optional thread that migrates ahead of the writers.
//!
//! A writer asks for help for a root entry when a quarter of its room is used, and again when a sixteenth is left. Then
//! the helper makes room below the entry, and later empties it. The writer's own steps (`incremental_migration`) begin
//! later than in a table without a helper: when half of the room is used, and when few records fit. If the helper is
//! late, or has ended, or a step of it has failed, writers do all of the work, and report the error.
//!
//! While requests come, the helper looks for them at intervals, because waking it takes longer than most writes. Only
//! after a while without requests does it sleep until a writer wakes it.

use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use super::core::Core;
use super::incremental_migration::Pace;
use super::requests::{Asked, Requests};
use crate::engine::exclusion::lock;
use crate::storage::Medium;
use crate::types::RecordForm;
use crate::{Error, Result};

/// The time between two looks at the requests, and the number of looks without a result before the helper sleeps until
/// it is woken.
const PAUSE: Duration = Duration::from_micros(100);
const LOOKS: u32 = 200;

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Asks the helper for the migrations of a root entry with `size` records, if it has not been asked before. Called
    /// under the lock.
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
        requests.each(|entry| self.help_entry(requests, entry))
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
        self.requests.end();
        // Also if the thread has not said yet that it is the one to wake.
        thread.thread().unpark();
        // A panic has been reported, and no lock remains.
        let _ = thread.join();
    }
}

/// The thread's function.
fn run<R: RecordForm, M: Medium>(core: &Core<R, M>, requests: &Requests) {
    requests.wake_this_thread();
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
