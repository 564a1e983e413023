//! The ranges that `Durability::Disk` has yet to sync.
//!
//! Each thread's flushes are recorded as one range per region, the hull of the flushed ranges. The thread's next fence
//! queues these ranges under a ticket, the number of the next sync. Concurrent fences share a sync: one thread syncs
//! everything queued by then, and the others wait until their ticket is served. Syncs never overlap, because the kernel
//! reports a failed write-back only once per open file: a second thread in `msync` could get success. For the same
//! reason, a sync of a file's length or holes ([`SyncAlone`]) overlaps no other one. After it has failed, all syncs
//! fail: its error may concern pages that wait here.
//!
//! If a thread always began its sync at once, threads that arrive a moment later would have to wait for the next one. So
//! the thread first waits until as many fences have joined as the last sync served or kept waiting, but no longer than
//! half of the time that the last sync took, and at most 5 ms. If fewer joined, the next sync waits for only as many as
//! this one served.
//!
//! A fence may be begun and ended by two calls, so that a thread can release locks in between.
//!
//! A fence that may be deferred leaves its ranges in the queue; the next sync by any thread includes them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::region_file::RegionFile;
use super::setting::SyncAlone;
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
    /// The ticket of the next sync, and the number of fences that wait for it.
    ticket: u64,
    fences: usize,
    /// A thread has begun a sync: it waits for other fences to join, or is in the kernel.
    syncing: bool,
    /// The first ticket that is not served yet, and the error after which syncs ended.
    next: u64,
    failure: Option<Errno>,
    /// The number of fences that the next sync waits for, and the time that the last one took.
    expected: usize,
    last_took: Duration,
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

impl Queue {
    /// Notes that a sync is over. Fails if it failed, or if the medium was poisoned meanwhile.
    fn end_sync(&mut self, answer: Result<(), Errno>) -> Result<(), Errno> {
        self.syncing = false;
        self.failure = self.failure.or(answer.err());
        self.failure.map_or(Ok(()), Err)
    }
}

/// The next work for the committer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Sync,
    Wake,
    /// There will be no more work.
    None,
}

/// The longest time that a fence waits for others.
const LONGEST_JOIN: Duration = Duration::from_millis(5);

/// The unsynced ranges of all threads.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    queue: Mutex<Queue>,
    /// Notified when there is work for the committer.
    work: Condvar,
    /// Notified when another fence waits for the next sync.
    joined: Condvar,
    /// Notified when a sync is over.
    done: Condvar,
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
        match self.queue_own() {
            Some(ticket) => self.serve(ticket, true),
            None => self.health(),
        }
    }

    /// Queues the ranges that the calling thread has recorded for the next sync. Returns the ticket of the sync that
    /// covers them and all ranges that any thread has queued before.
    pub(super) fn begin_own(&self) -> u64 {
        self.queue_own().unwrap_or_else(|| {
            let queue = lock(&self.queue);
            queue.ticket.saturating_sub(u64::from(queue.waiting.0.is_empty()))
        })
    }

    /// Returns when the sync with the ticket, and all before it, are over.
    pub(super) fn end_own(&self, ticket: u64) -> Result<(), Errno> {
        self.serve(ticket, true)
    }

    fn queue_own(&self) -> Option<u64> {
        let mut queue = lock(&self.queue);
        let hulls = queue.noted.remove(&std::thread::current().id())?;
        queue.waiting.append(hulls);
        queue.fences += 1;
        let ticket = queue.ticket;
        drop(queue);
        self.joined.notify_one();
        Some(ticket)
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
            Some(ticket) => self.serve(ticket, false),
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
        let mut queue = lock(&self.queue);
        queue.waiting = Hulls::default();
        queue.failure.get_or_insert(Errno::IO);
        drop(queue);
        self.done.notify_all();
        self.group.fail();
        self.tell();
    }

    /// Waits until no other thread syncs, and then lets none sync until `syncing` is cleared. Returns `None` if
    /// `is_over` is true of the queue before that.
    fn begin_sync(
        &self,
        is_over: impl Fn(&Queue) -> bool,
    ) -> Result<Option<MutexGuard<'_, Queue>>, Errno> {
        let mut queue = lock(&self.queue);
        loop {
            match queue.failure {
                Some(errno) => return Err(errno),
                None if is_over(&queue) => return Ok(None),
                None if !queue.syncing => break,
                None => queue = self.done.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
        queue.syncing = true;
        Ok(Some(queue))
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
        self.serve(ticket, false)
    }

    /// Returns when everything queued under `ticket` is synced. After a failed sync all later ones fail. If `waits`,
    /// lets other fences join the sync.
    fn serve(&self, ticket: u64, waits: bool) -> Result<(), Errno> {
        let Some(mut queue) = self.begin_sync(|queue| queue.next > ticket)? else { return Ok(()) };
        let mut timed_out = false;
        if waits {
            let most = (queue.last_took / 2).min(LONGEST_JOIN);
            let few = |queue: &mut Queue| queue.fences < queue.expected;
            let joined = self.joined.wait_timeout_while(queue, most, few);
            let waited;
            (queue, waited) = joined.unwrap_or_else(PoisonError::into_inner);
            timed_out = waited.timed_out();
        }
        queue.ticket += 1;
        queue.since = None;
        let (fences, served) = (std::mem::take(&mut queue.fences), queue.ticket);
        let hulls = std::mem::take(&mut queue.waiting);
        drop(queue);
        let start = Instant::now();
        let answer = hulls.sync();
        let mut queue = lock(&self.queue);
        let answer = queue.end_sync(answer);
        queue.next = served;
        // Fences that began during a sync although it had waited for them come too late to share one.
        queue.expected = fences + if timed_out { 0 } else { queue.fences };
        queue.last_took = start.elapsed();
        drop(queue);
        self.done.notify_all();
        match answer {
            Ok(()) => self.group.serve(served),
            Err(_) => self.group.fail(),
        }
        self.tell();
        answer
    }
}

impl SyncAlone for Dirty {
    fn sync_alone(&self, sync: &dyn Fn() -> Result<(), Errno>) -> Result<(), Errno> {
        self.begin_sync(|_| false)?;
        let answer = sync();
        let answer = lock(&self.queue).end_sync(answer);
        self.done.notify_all();
        answer.inspect_err(|_| self.fail())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::storage::io::{FaultPlan, Synced};
    use crate::storage::{Durability, Mapped, MappedOptions, Persist, Regions};

    fn on_disk(faults: FaultPlan) -> (tempfile::TempDir, Mapped) {
        let directory = tempfile::tempdir_in(".").expect("a directory");
        let (durability, faults) = (Durability::Disk, Some(Arc::new(faults)));
        let options = MappedOptions { durability, faults, ..MappedOptions::default() };
        let storage = Mapped::create(directory.path().join("table"), options).expect("space");
        (directory, storage)
    }

    /// The error may concern pages of the deferred writes.
    #[test]
    fn deferred_ranges_are_not_synced_after_another_sync_of_the_file_has_failed() {
        let failing = Arc::new(AtomicU32::new(0));
        let fails = Arc::clone(&failing);
        // SeqCst, all: one thread, and no cost to save.
        let watch = move |synced| matches!(synced, Synced::File(_)) && fails.load(SeqCst) > 0;
        let (_directory, storage) = on_disk(FaultPlan::watching(watch));
        let region = storage.region("data.ice", 1 << 24).expect("space");
        storage.grow(&region, 1 << 16).expect("space");
        storage.flush(region.base().as_ptr(), 4096);
        storage.fence_later().expect("no sync has failed");
        failing.store(1, SeqCst);
        storage.grow(&region, 1 << 20).expect_err("its sync fails");
        failing.store(0, SeqCst);
        // As the committer does.
        storage.dirty.fence_deferred().expect_err("a sync has failed");
        assert!(!storage.dirty.group.is_served(0) && storage.dirty.group.has_failed());
    }

    #[test]
    fn no_syncs_overlap() {
        let (now, most) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
        let seen = Arc::clone(&most);
        let watch = move |_| {
            seen.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::sleep(Duration::from_millis(2));
            now.fetch_sub(1, SeqCst);
            false
        };
        let (_directory, storage) = on_disk(FaultPlan::watching(watch));
        let region = storage.region("data.ice", 1 << 24).expect("space");
        storage.grow(&region, 1 << 16).expect("space");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        storage.flush(region.base().as_ptr(), 4096);
                        storage.try_fence().expect("no sync fails");
                    }
                });
            }
            for page in 0..20 {
                storage.punch(&region, page % 8 * 4096 + (8 << 12), 4096).expect("a hole");
            }
        });
        assert_eq!(most.load(SeqCst), 1);
    }
}
