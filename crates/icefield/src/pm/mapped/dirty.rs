//! What `Durability::Disk` still has to sync.
//!
//! Each thread's flushes are noted as one hull per region; its fence syncs them. Fences of several threads that meet
//! are served by one: whoever holds the commit lock syncs for all that are queued by then, and the others find their
//! ticket served. Syncs never overlap, for the kernel tells of a failed write-back once per open file: a second thread
//! in `msync` could be told that all is well.
//!
//! A fence that may come later leaves its ranges in the queue: the next sync takes them along, whoever does it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::region_file::RegionFile;
use crate::pm::commit::Group;
use crate::pm::io::lock;

/// One hull for each region that was touched.
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
    /// Flushed, not yet fenced.
    noted: HashMap<ThreadId, Hulls>,
    /// Fenced, not yet synced.
    waiting: Hulls,
    /// The ticket of the next sync.
    ticket: u64,
    /// The ticket of the sync that covers all that was left to others so far, and since when something has been.
    left: Option<u64>,
    since: Option<Instant>,
    /// Somebody waits for a sync that another thread shall do.
    asked: bool,
    /// A sync is over that somebody may be waiting for.
    told: bool,
    /// No more syncs are to be done by another thread.
    ended: bool,
}

/// What there is to do for the thread that syncs for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Sync,
    Wake,
    /// There will be no more.
    None,
}

/// All threads' unsynced ranges.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    queue: Mutex<Queue>,
    /// There is something to do for the thread that syncs for others.
    work: Condvar,
    /// Held during a sync. The first ticket that is not yet served, and what ended all service.
    commit: Mutex<(u64, Option<Errno>)>,
    group: Arc<Group>,
}

impl Dirty {
    /// Notes that the calling thread flushed a range.
    pub(super) fn note(&self, file: &Arc<RegionFile>, range: Range<u64>) {
        lock(&self.queue).noted.entry(std::thread::current().id()).or_default().add(file, range);
    }

    /// Syncs what the calling thread has noted. Fails also when a sync of other ranges has failed before: some of what
    /// this thread relies on may have been among them.
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

    /// Leaves what the calling thread has noted to the next sync. Fails when there will be none.
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

    /// Syncs what was left.
    pub(super) fn settle(&self) -> Result<(), Errno> {
        let left = lock(&self.queue).left;
        match left.filter(|&ticket| !self.group.is_served(ticket)) {
            Some(ticket) => self.serve(ticket),
            None => self.health(),
        }
    }

    /// Asks for a sync of what was left so far; where its end will be told, and under which ticket. `None` when there
    /// is nothing to sync.
    pub(super) fn ask(&self) -> Option<(Arc<Group>, u64)> {
        let mut queue = lock(&self.queue);
        let ticket = queue.left.filter(|&ticket| !self.group.is_served(ticket))?;
        queue.asked = true;
        self.work.notify_one();
        Some((Arc::clone(&self.group), ticket))
    }

    /// Waits until there is something for the thread to do that syncs for others: somebody is to be woken or asks for a
    /// sync, or something has waited for so long.
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

    /// Wakes those who waited for a sync that is over.
    pub(super) fn wake(&self) {
        self.group.wake();
    }

    /// Has those woken who waited for a sync that is over: by the thread that syncs for others, for the caller may hold
    /// locks. Nobody waits where there is none.
    fn tell(&self) {
        lock(&self.queue).told = true;
        self.work.notify_one();
    }

    /// Ends [`Dirty::await_work`].
    pub(super) fn end_work(&self) {
        lock(&self.queue).ended = true;
        self.work.notify_all();
    }

    /// There will be no more syncs.
    pub(super) fn give_up(&self) {
        lock(&self.queue).waiting = Hulls::default();
        self.group.fail();
        self.tell();
    }

    /// Syncs what any thread has noted.
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

    /// Returns when everything queued under `ticket` is synced. Once a sync has failed all later ones fail.
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
