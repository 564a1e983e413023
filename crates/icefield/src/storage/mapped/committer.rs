//! The committer: the thread that syncs for others, namely for writes that were acknowledged before their sync, and
//! for futures. It also wakes the futures that wait for another thread's sync, because that thread may hold locks.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::dirty::{Dirty, Work};
use crate::storage::commit::SyncMode;
use crate::storage::mutex::lock;

/// The handle of the committer thread. The thread starts when it is first needed, and ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct Committer {
    dirty: Arc<Dirty>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The longest time that a deferred range waits for a sync that no caller requests.
    longest: Option<Duration>,
    /// The process that created the handle. A forked child has no such thread, and must not use its locks.
    process: u32,
}

impl Committer {
    pub(super) fn new(dirty: Arc<Dirty>, mode: SyncMode) -> Self {
        let longest = match mode {
            SyncMode::Every(milliseconds) => Some(Duration::from_millis(milliseconds)),
            SyncMode::Always | SyncMode::Never => None,
        };
        Self { dirty, thread: Mutex::new(None), longest, process: std::process::id() }
    }

    /// Returns whether the caller runs on the committer.
    pub(super) fn is_current(&self) -> bool {
        let current = std::thread::current().id();
        lock(&self.thread).as_ref().is_some_and(|thread| thread.thread().id() == current)
    }

    /// Starts the thread unless it runs already.
    pub(super) fn start(&self) -> io::Result<()> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let (dirty, longest) = (Arc::clone(&self.dirty), self.longest);
            let work = move || loop {
                match dirty.await_work(longest) {
                    // A failure is reported to the waiting futures, and to later fences.
                    Work::Sync => {
                        let _ = dirty.fence_deferred();
                    }
                    Work::Wake => dirty.wake(),
                    Work::None => break,
                }
            };
            let builder = std::thread::Builder::new().name("icefield-sync".to_owned());
            *thread = Some(builder.spawn(work)?);
        }
        Ok(())
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        let thread = lock(&self.thread).take();
        let Some(thread) = thread else { return };
        if std::process::id() == self.process {
            self.dirty.end_work();
            if thread.thread().id() == std::thread::current().id() {
                // A waker dropped the table's last handle: the thread ends when the waker returns.
                return;
            }
            // A panic of the thread can be ignored: closing the table has done the remaining syncs.
            let _ = thread.join();
        } else {
            std::mem::forget(thread);
        }
    }
}
