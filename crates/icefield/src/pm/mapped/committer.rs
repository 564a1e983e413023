//! The thread that syncs for others: for those who were acknowledged before, and for those who wait without a thread of
//! their own. It also wakes the latter, whoever made the sync: it holds no lock.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::dirty::{Dirty, Work};
use crate::pm::SyncMode;
use crate::pm::io::lock;

/// The thread, started when it is first needed; it ends with this.
#[derive(Debug)]
pub(super) struct Committer {
    dirty: Arc<Dirty>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// How long something may wait for a sync that nobody asks for.
    longest: Option<Duration>,
    /// A child of a fork has no such thread, and no right to touch its locks.
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

    /// Whether this is the thread.
    pub(super) fn is_current(&self) -> bool {
        let current = std::thread::current().id();
        lock(&self.thread).as_ref().is_some_and(|thread| thread.thread().id() == current)
    }

    /// Sees to it that the thread is there.
    pub(super) fn start(&self) -> io::Result<()> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let (dirty, longest) = (Arc::clone(&self.dirty), self.longest);
            let work = move || loop {
                match dirty.await_work(longest) {
                    // A failure is told to those who wait, and to the next who fence.
                    Work::Sync => {
                        let _ = dirty.settle();
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
                // A waker had the table last: the thread ends when that is done.
                return;
            }
            // It cannot have panicked in a way that concerns anybody: what it left undone, closing has done.
            let _ = thread.join();
        } else {
            std::mem::forget(thread);
        }
    }
}
