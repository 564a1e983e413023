//! The ranges that `Durability::Disk` has yet to sync.
//!
//! Each thread's flushes are recorded as one range per region, the hull of the flushed ranges. The thread's next fence
//! queues these ranges under a ticket, the number of the next sync. Concurrent fences share a sync: the thread that
//! holds the commit lock syncs everything queued by then, and the other threads find that their ticket is served. Syncs
//! never overlap, because the kernel reports a failed write-back only once per open file: a second thread in `msync`
//! could get success.
//!
//! A fence that may be deferred leaves its ranges in the queue; the next sync by any thread includes them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::region_file::RegionFile;
use crate::storage::commit::Group;
use crate::storage::mutex::lock;

/// For each region with flushed ranges, the smallest range that contains them.
#[derive(Debug, Default)]
struct Hulls(Vec<(Arc<RegionFile>, Range<u64>)>);

impl Hulls {
    fn add(&mut self, file: &Arc<RegionFile>, range: Range<u64>) {
        match self.0.iter_mut().find(|(known, _)| Arc::ptr_eq(known, file)) {
            Some((_, hull)) => *hull = hull.start.min(range.start)..hull.end.max(range.end),
            None => self.0.push((Arc::clone(file), range)),
        }
    }

    fn append(&mut self, other: Self) {
        for (file, range) in other.0 {
            self.add(&file, range);
        }
    }

    fn sync(&self) -> Result<(), Errno> {
        self.0.iter().try_for_each(|(file, range)| file.sync_range(range.clone()))
    }
}

#[derive(Debug, Default)]
struct Queue {
    /// The ranges that each thread has flushed but not fenced.
    noted: HashMap<ThreadId, Hulls>,
    /// The ranges that were fenced and not synced yet.
    waiting: Hulls,
    /// The ticket of the next sync.
    ticket: u64,
    /// The ticket of the sync that covers all deferred ranges. `since` is the time of the first unsynced deferral.
    left: Option<u64>,
    since: Option<Instant>,
    /// A caller waits for a sync that the committer must do.
    asked: bool,
    /// A sync is over, and futures may be waiting for it.
    told: bool,
    /// The committer must do no more syncs.
    ended: bool,
}

/// The next work for the committer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Sync,
    Wake,
    /// There will be no more work.
    None,
}

/// The unsynced ranges of all threads.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    queue: Mutex<Queue>,
    /// Notified when there is work for the committer.
    work: Condvar,
    /// Held during a sync. Holds the first ticket that is not served yet, and the error after which syncs ended.
    commit: Mutex<(u64, Option<Errno>)>,
    group: Arc<Group>,
}

impl Dirty {
    /// Records that the calling thread flushed a range.
    pub(super) fn note(&self, file: &Arc<RegionFile>, range: Range<u64>) {
        lock(&self.queue).noted.entry(std::thread::current().id()).or_default().add(file, range);
    }

    /// Syncs the ranges that the calling thread has recorded. Also fails when an earlier sync of other ranges has
    /// failed: they may include data that this thread relies on.
    pub(super) fn sync_own(&self) -> Result<(), Errno> {
        let ticket = {
            let mut queue = lock(&self.queue);
            let Some(hulls) = queue.noted.remove(&std::thread::current().id()) else {
                return self.health();
            };
            queue.waiting.append(hulls);
            queue.ticket
        };
        self.serve(ticket)
    }

    /// Fails when a sync has failed.
    fn health(&self) -> Result<(), Errno> {
        if self.group.has_failed() { Err(Errno::IO) } else { Ok(()) }
    }

    /// Queues the ranges that the calling thread has recorded, so that the next sync includes them. Fails when no
    /// further sync will be made.
    pub(super) fn leave_own(&self) -> Result<(), Errno> {
        let mut queue = lock(&self.queue);
        let Some(hulls) = queue.noted.remove(&std::thread::current().id()) else {
            return self.health();
        };
        queue.waiting.append(hulls);
        queue.left = Some(queue.ticket);
        if queue.since.is_none() {
            queue.since = Some(Instant::now());
            self.work.notify_one();
        }
        self.health()
    }

    /// Syncs the deferred ranges.
    pub(super) fn fence_deferred(&self) -> Result<(), Errno> {
        let left = lock(&self.queue).left;
        match left.filter(|&ticket| !self.group.is_served(ticket)) {
            Some(ticket) => self.serve(ticket),
            None => self.health(),
        }
    }

    /// Requests a sync of everything deferred so far. Returns the group that reports when this sync is over, and the
    /// ticket of the sync; `None` when there is nothing to sync.
    pub(super) fn ask(&self) -> Option<(Arc<Group>, u64)> {
        let mut queue = lock(&self.queue);
        let ticket = queue.left.filter(|&ticket| !self.group.is_served(ticket))?;
        queue.asked = true;
        self.work.notify_one();
        Some((Arc::clone(&self.group), ticket))
    }

    /// Waits for work of the committer: futures to wake, a requested sync, or ranges that have been deferred for
    /// `longest`.
    pub(super) fn await_work(&self, longest: Option<Duration>) -> Work {
        let mut queue = lock(&self.queue);
        loop {
            if std::mem::take(&mut queue.told) {
                return Work::Wake;
            }
            if queue.ended {
                return Work::None;
            }
            if std::mem::take(&mut queue.asked) {
                return Work::Sync;
            }
            let since = queue.since.filter(|_| !self.group.has_failed());
            let left = since.zip(longest).map(|(since, most)| most.saturating_sub(since.elapsed()));
            queue = match left {
                Some(Duration::ZERO) => return Work::Sync,
                Some(left) => {
                    let woken = self.work.wait_timeout(queue, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Wakes the futures that wait for a completed sync.
    pub(super) fn wake(&self) {
        self.group.wake();
    }

    /// Makes the committer wake the futures that wait for a completed sync, because the caller may hold locks. Futures
    /// exist only where a committer does.
    fn tell(&self) {
        lock(&self.queue).told = true;
        self.work.notify_one();
    }

    pub(super) fn end_work(&self) {
        lock(&self.queue).ended = true;
        self.work.notify_all();
    }

    /// Ends all syncs after a failure.
    pub(super) fn fail(&self) {
        lock(&self.queue).waiting = Hulls::default();
        self.group.fail();
        self.tell();
    }

    /// Syncs the ranges that all threads have recorded.
    pub(super) fn sync_all(&self) -> Result<(), Errno> {
        let ticket = {
            let mut queue = lock(&self.queue);
            for (_, hulls) in std::mem::take(&mut queue.noted) {
                queue.waiting.append(hulls);
            }
            queue.ticket
        };
        self.serve(ticket)
    }

    /// Returns when everything queued under `ticket` is synced. After a failed sync all later ones fail.
    fn serve(&self, ticket: u64) -> Result<(), Errno> {
        let mut commit = lock(&self.commit);
        if let Some(errno) = commit.1 {
            return Err(errno);
        }
        if commit.0 > ticket {
            return Ok(());
        }
        let (hulls, served) = {
            let mut queue = lock(&self.queue);
            queue.ticket += 1;
            queue.since = None;
            (std::mem::take(&mut queue.waiting), queue.ticket)
        };
        let answer = hulls.sync();
        commit.0 = served;
        commit.1 = answer.err();
        drop(commit);
        match answer {
            Ok(()) => self.group.serve(served),
            Err(_) => self.group.fail(),
        }
        self.tell();
        answer
    }
}
