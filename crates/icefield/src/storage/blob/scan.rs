//! The scan: finds out, in bounded steps, which blocks of former sessions are still owned.
//!
//! Two searches examine the unscanned chunks. They share one lock, and each has its own budget. The *sweep* visits
//! every chunk once and finds free ones. The *hunt* looks for chunks of one class, from the end of the map, when that
//! class needs room. The hunt selects chunks by SMALL words, which never lie inside a run (I1); the sweep skips the
//! chunks that the hunt has taken.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, TryLockError};

use super::BlobStore;
use super::allocate::Held;
use super::block::{BlobRef, MAX_BLOB_BYTES, fold};
use super::chunk::{Chunk, SmallChunk};
use super::class::{Extent, FREE};
use super::owner::Owner;
use super::scanner::{Examination, Hunt, Scanner};
use super::shared::Shared;
use super::space::{SCAN_PER_CHUNK, map_word};
use crate::Result;
use crate::storage::Medium;
use crate::storage::mutex::lock;

/// The largest number of blocks that one call of [`BlobStore::prepare`] examines in the sweep, and again in the hunt.
const BLOCKS_PER_CALL: u32 = 256;
/// The largest number of map words that a hunt passes in one search for a chunk of its class.
const WORDS_PER_HUNT: u32 = 1024;

/// The table's answer about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Live,
    Dead,
    /// The table could not decide, or its answer contradicts the header: the block is left alone in this session.
    Unclear,
}

impl Shared {
    /// Returns a scan of the chunks below `end`. The sweep's start differs from session to session, so that a store
    /// that is always opened for a few operations only is eventually scanned completely.
    pub(super) fn scanner<M: Medium>(&self, storage: &M, end: u32) -> Mutex<Scanner> {
        let some = fold(self.params.session ^ 0x2545_F491_4F6C_DD1D, 0x9E6C_63D0_876A_68EE)
            % u64::from(end.max(1));
        let start = self.border(storage, some as u32, end).unwrap_or(0);
        let ranges =
            [(0, start), (start, end)].into_iter().filter(|(from, to)| from < to).collect();
        let hunts = (0..self.classes.count()).map(|_| Hunt { next: end, at: None }).collect();
        Mutex::new(Scanner { ranges, swept: None, hunts })
    }

    /// Returns the first chunk from `number` on that is not inside a run; `None` when this cannot be
    /// determined because a word is damaged.
    fn border<M: Medium>(&self, storage: &M, number: u32, end: u32) -> Option<u32> {
        let mut before = (number.saturating_sub(self.longest_run())..number).rev();
        match before.find_map(|near| Some((near, self.word_at(storage, near)?.transpose()?))) {
            None | Some((_, Ok(Extent::Small(_)))) => Some(number),
            Some((near, Ok(Extent::Large(chunks)))) => {
                Some(near.saturating_add(chunks).clamp(number, end))
            }
            Some((_, Err(_))) => None,
        }
    }

    fn word_at<M: Medium>(
        &self,
        storage: &M,
        number: u32,
    ) -> Option<Result<Option<Extent>, super::class::Damaged>> {
        // Relaxed: words of former sessions need no ordering, and callers check the chunk's state before they rely on a
        // word that this session may have written.
        let word = map_word(&self.map, number)?.load(storage, Ordering::Relaxed);
        Some(self.classes.decode(number, word))
    }

    fn is_unscanned(&self, number: u32) -> bool {
        self.chunks.peek(number).is_none_or(|chunk| matches!(*lock(chunk), Chunk::Unscanned))
    }

    /// Returns the number of unscanned chunks that are in use according to the map.
    pub(super) fn unscanned_in_use<M: Medium>(&self, storage: &M) -> u64 {
        let fresh = lock(&self.space).fresh;
        let in_use = (0..fresh).filter(|&number| self.is_unscanned(number));
        let chunks = in_use.map(|number| match self.word_at(storage, number) {
            Some(Ok(Some(Extent::Large(chunks)))) => u64::from(chunks.min(fresh - number)),
            Some(Ok(Some(Extent::Small(_)))) => 1,
            _ => 0,
        });
        chunks.sum()
    }

    /// Begins to examine a chunk. The chunk is then no longer unscanned, and none of its blocks is known to be owned.
    /// In a file that was copied with holes, free blocks may lie in holes, so space is reserved first. If that fails,
    /// the chunk stays as it is.
    fn begin<M: Medium>(&self, storage: &M, number: u32, class: usize) -> Option<Examination> {
        let chunk_bytes = u64::from(self.params.chunk_bytes);
        storage.reserve(&self.blobs, u64::from(number) * chunk_bytes, chunk_bytes).ok()?;
        let unexamined = SmallChunk::unexamined(class, self.classes.blocks(class));
        self.chunks.set_small(number, unexamined);
        Some(Examination { chunk: number, class, next_block: 0 })
    }

    /// Subtracts `chunks` from the numbers of unscanned chunks and of chunks that are due.
    fn count_scanned(&self, chunks: u32) {
        // Relaxed, all: hints and statistics; only the thread that holds the scanner's lock lowers them.
        let left = self.unscanned.load(Ordering::Relaxed).saturating_sub(chunks);
        self.unscanned.store(left, Ordering::Relaxed);
        let pay = |due: u32| Some(if left == 0 { 0 } else { due.saturating_sub(chunks) });
        let _ = self.scan_due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
    }
}

impl BlobStore {
    /// Does a bounded part of the work that is due before a content of `len` bytes is written: examines up to 512
    /// blocks of former sessions (more for a content of megabytes), and moves reclaimed chunks to the free ones. Costs
    /// three loads when nothing is due. Skips the scan while another thread performs it.
    ///
    /// A table calls this before each [`BlobStore::write`], without holding a lock of the table. Without these calls
    /// the store works, but does not find the free space of former sessions.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`] when a fence failed.
    #[inline]
    pub fn prepare<M: Medium>(&self, storage: &M, table: &impl Owner, len: usize) -> Result<()> {
        let shared = &self.shared;
        // `write` refuses a longer content.
        let extent = shared.classes.extent(len.min(MAX_BLOB_BYTES));
        // Relaxed, both: hints, as in `is_due`.
        let wanting = match extent {
            Extent::Small(class) => shared.pools[class].appetite() > 0,
            Extent::Large(_) => shared.unscanned.load(Ordering::Relaxed) > 0,
        };
        if wanting || self.is_due() { self.prepare_now(storage, table, extent) } else { Ok(()) }
    }

    fn is_due(&self) -> bool {
        // Relaxed, both: hints; the work itself is ordered by locks.
        self.shared.scan_due.load(Ordering::Relaxed) > 0
            || self.shared.ripe_runs.load(Ordering::Relaxed) > 0
    }

    #[cold]
    fn prepare_now<M: Medium>(
        &self,
        storage: &M,
        table: &impl Owner,
        extent: Extent,
    ) -> Result<()> {
        let shared = &self.shared;
        shared.settle_ripe(storage)?;
        let mut scanner = match self.scanner.try_lock() {
            Ok(scanner) => scanner,
            Err(TryLockError::Poisoned(scanner)) => scanner.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let mut budget = BLOCKS_PER_CALL;
        match extent {
            Extent::Small(class) => self.hunt(storage, table, &mut scanner.hunts[class], class),
            Extent::Large(chunks) if lock(&shared.space).runs.longest() < chunks => {
                let due = chunks * SCAN_PER_CHUNK;
                shared.scan_due.fetch_max(due, Ordering::Relaxed);
                budget = budget.max(due);
            }
            Extent::Large(_) => {}
        }
        while budget > 0 && shared.scan_due.load(Ordering::Relaxed) > 0 {
            match self.sweep(storage, table, &mut scanner, budget) {
                Some(examined) => budget = budget.saturating_sub(examined),
                // The sweep is complete: hunts are examining the chunks that are left.
                None => shared.scan_due.store(0, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    /// Scans everything that is left, flushes the reclaimer and frees all spare blocks, for a table that got
    /// [`crate::Error::NoSpace`] and is about to try again. Blocks that readers may still reference are not freed. The
    /// caller must not hold a lock of the table.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`] when a fence failed.
    pub fn make_room<M: Medium>(&self, storage: &M, table: &impl Owner) -> Result<()> {
        let mut scanner = lock(&self.scanner);
        while self.sweep(storage, table, &mut scanner, u32::MAX).is_some() {}
        for hunt in &mut scanner.hunts {
            self.examine_blocks(storage, table, &mut hunt.at, u32::MAX);
        }
        drop(scanner);
        self.reclaimer.pin().flush();
        self.shared.free_spares();
        self.shared.settle_ripe(storage)
    }

    /// Searches chunks of a class until one with room is found, the requested number of chunks has been searched, or
    /// the budget of the call is used up.
    fn hunt<M: Medium>(&self, storage: &M, table: &impl Owner, hunt: &mut Hunt, class: usize) {
        let pool = &self.shared.pools[class];
        let mut budget = BLOCKS_PER_CALL;
        while budget > 0 && pool.appetite() > 0 {
            if pool.has_room() {
                return pool.set_appetite(0);
            }
            if hunt.at.is_none() {
                hunt.at = self.next_of(storage, hunt, class);
                if hunt.at.is_none() && hunt.next == 0 {
                    return pool.end_hunt();
                }
                pool.set_appetite(pool.appetite() - 1);
            }
            budget -= self.examine_blocks(storage, table, &mut hunt.at, budget).max(1);
        }
    }

    /// Returns the next unscanned chunk of the class, if a bounded walk down the map finds one.
    fn next_of<M: Medium>(
        &self,
        storage: &M,
        hunt: &mut Hunt,
        class: usize,
    ) -> Option<Examination> {
        let stop = hunt.next.saturating_sub(WORDS_PER_HUNT);
        while hunt.next > stop {
            hunt.next -= 1;
            // The state is checked first: the word of a chunk that the session has taken may not be durable yet.
            if !self.shared.is_unscanned(hunt.next) {
                continue;
            }
            if let Some(Ok(Some(Extent::Small(found)))) = self.shared.word_at(storage, hunt.next)
                && found == class
                && let Some(examination) = self.shared.begin(storage, hunt.next, class)
            {
                return Some(examination);
            }
        }
        None
    }

    /// Continues the sweep. Returns the number of blocks (or map words) examined, at least one and at most `budget`;
    /// `None` when the sweep is complete.
    fn sweep<M: Medium>(
        &self,
        storage: &M,
        table: &impl Owner,
        scanner: &mut Scanner,
        budget: u32,
    ) -> Option<u32> {
        if scanner.swept.is_some() {
            return Some(self.examine_blocks(storage, table, &mut scanner.swept, budget));
        }
        let &mut (ref mut next, end) = scanner.ranges.last_mut()?;
        let number = *next;
        let mut chunks = 1;
        // A chunk in another state has been taken by the hunt.
        if self.shared.is_unscanned(number) {
            match self.shared.word_at(storage, number) {
                Some(Ok(None)) => self.find_free(number),
                Some(Ok(Some(Extent::Small(class)))) => {
                    scanner.swept = self.shared.begin(storage, number, class);
                    if scanner.swept.is_none() {
                        self.shared.count_scanned(1);
                    }
                }
                Some(Ok(Some(Extent::Large(run)))) if self.is_run(storage, number, run, end) => {
                    self.examine_run(storage, table, number, run);
                    chunks = run;
                }
                // The following chunks may be inside a run whose word was damaged, so none of them is freed. `check`
                // reports the word.
                _ => {
                    chunks = end - number;
                    self.shared.count_scanned(chunks);
                }
            }
        }
        *next += chunks;
        if *next == end {
            scanner.ranges.pop();
        }
        Some(1)
    }

    fn find_free(&self, number: u32) {
        *lock(self.shared.chunks.get(number)) = Chunk::Vacant;
        let new = lock(&self.shared.space).runs.put(number, 1);
        debug_assert!(new, "the sweep passes a chunk once");
        self.shared.count_scanned(1);
    }

    /// Returns whether the run that a map word describes is plausible: it ends at or before `end`, the words inside it
    /// are FREE, and this session has used none of its chunks.
    fn is_run<M: Medium>(&self, storage: &M, start: u32, chunks: u32, end: u32) -> bool {
        let inside = |number| {
            map_word(&self.shared.map, number)
                .is_some_and(|word| word.load(storage, Ordering::Relaxed) == FREE)
                && self.shared.is_unscanned(number)
        };
        chunks <= end - start && (start + 1..start + chunks).all(inside)
    }

    /// Examines up to `budget` further blocks of the chunk in `at` and returns their number. Clears `at` after the
    /// chunk's last block. Dead blocks become free when no reader can reference them any more.
    fn examine_blocks<M: Medium>(
        &self,
        storage: &M,
        table: &impl Owner,
        at: &mut Option<Examination>,
        budget: u32,
    ) -> u32 {
        let Some(Examination { chunk: number, class, next_block }) = at else { return 0 };
        let (number, class, first) = (*number, *class, *next_block);
        let blocks = self.shared.classes.blocks(class);
        let last = blocks.min(first.saturating_add(budget));
        let start = u64::from(number) * u64::from(self.shared.params.chunk_bytes);
        let chunk = self.shared.chunks.get(number);
        let mut condemned = Vec::new();
        for block in first..last {
            let offset = start + u64::from(block) * u64::from(self.shared.classes.size(class));
            let own = || {
                if let Chunk::Small(small) = &mut *lock(chunk) {
                    small.own(block);
                }
            };
            if self.examine(storage, table, offset, Extent::Small(class), own) == Verdict::Dead {
                condemned.push(block);
            }
        }
        if last == blocks {
            *at = None;
            self.shared.count_scanned(1);
        } else {
            *next_block = last;
        }
        if !condemned.is_empty() {
            self.after_readers(move |shared| {
                shared.after_change(number, |small| {
                    condemned.into_iter().for_each(|block| small.free(block));
                });
            });
        }
        last - first
    }

    fn examine_run<M: Medium>(&self, storage: &M, table: &impl Owner, start: u32, chunks: u32) {
        let chunk = self.shared.chunks.get(start);
        *lock(chunk) = Chunk::Large { chunks, owned: false };
        let own = || *lock(chunk) = Chunk::Large { chunks, owned: true };
        let offset = u64::from(start) * u64::from(self.shared.params.chunk_bytes);
        if self.examine(storage, table, offset, Extent::Large(chunks), own) == Verdict::Dead {
            self.after_readers(move |shared| shared.release(Held::Run { start, chunks }));
        }
        self.shared.count_scanned(chunks);
    }

    /// Queries the table about one block. Calls `own` under the table's locks when the block is live.
    fn examine<M: Medium>(
        &self,
        storage: &M,
        table: &impl Owner,
        offset: u64,
        extent: Extent,
        own: impl Fn(),
    ) -> Verdict {
        let Some(header) = self.header(offset) else { return Verdict::Unclear };
        if header.is_blank(storage) {
            return Verdict::Dead;
        }
        let fits = self.shared.classes.extent(header.len(storage)) == extent;
        let mut verdict = Verdict::Unclear;
        table.is_live(header.owner(storage), BlobRef::at(offset), &mut |live| {
            verdict = match (live, fits) {
                (true, true) => {
                    own();
                    Verdict::Live
                }
                (true, false) => Verdict::Unclear,
                (false, _) => Verdict::Dead,
            };
        });
        if verdict == Verdict::Live {
            self.shared.used_bytes.add(self.shared.extent_bytes(extent) as i64);
        }
        verdict
    }

    /// Runs `work` when every present reader has left.
    pub(super) fn after_readers(&self, work: impl FnOnce(&Shared) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let guard = self.reclaimer.pin();
        guard.retire(move || work(&shared));
        guard.flush();
    }
}
