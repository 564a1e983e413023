//! What `Durability::Disk` still has to sync.
//!
//! Each thread's flushes are noted as one hull per region; its fence syncs them. Fences of several threads that meet
//! are served by one: whoever holds the commit lock syncs for all that are queued by then, and the others find their
//! ticket served. Syncs never overlap, for the kernel tells of a failed write-back once per open file: a second thread
//! in `msync` could be told that all is well.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use rustix::io::Errno;

use super::region_file::RegionFile;
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
}

/// All threads' unsynced ranges.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    queue: Mutex<Queue>,
    /// Held during a sync. The first ticket that is not yet served, and what ended all service.
    commit: Mutex<(u64, Option<Errno>)>,
}

impl Dirty {
    /// Notes that the calling thread flushed a range.
    pub(super) fn note(&self, file: &Arc<RegionFile>, range: Range<u64>) {
        lock(&self.queue).noted.entry(std::thread::current().id()).or_default().add(file, range);
    }

    /// Syncs what the calling thread has noted.
    pub(super) fn sync_own(&self) -> Result<(), Errno> {
        let ticket = {
            let mut queue = lock(&self.queue);
            let Some(hulls) = queue.noted.remove(&std::thread::current().id()) else {
                return Ok(());
            };
            queue.waiting.append(hulls);
            queue.ticket
        };
        self.serve(ticket)
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
            (std::mem::take(&mut queue.waiting), queue.ticket)
        };
        let answer = hulls.sync();
        commit.0 = served;
        commit.1 = answer.err();
        answer
    }
}
