//! Whole chunks: takes runs of chunks, gives them back, and grows the regions.

use std::sync::atomic::Ordering;

use super::block::MAX_BLOB_BYTES;
use super::chunk::Chunk;
use super::class::{Extent, FREE};
use super::shared::Shared;
use super::space::{MAX_GROWTH_CHUNKS, SCAN_PER_CHUNK, Space, WORD_BYTES, chunks_in, map_word};
use crate::storage::Medium;
use crate::storage::mutex::lock;
use crate::{Error, Result};

/// With fewer free chunks than this, the scan searches for more.
const LOW_CHUNKS: u32 = 4;

impl Shared {
    /// The number of chunks that the longest blob takes.
    pub(super) fn longest_run(&self) -> u32 {
        MAX_BLOB_BYTES as u32 / self.params.chunk_bytes + 1
    }

    /// Returns whether, according to the map, a run begins at byte `offset` and has the length that `content` bytes
    /// need.
    #[cold]
    pub(super) fn is_run_of<M: Medium>(&self, storage: &M, offset: u64, content: usize) -> bool {
        let chunk_bytes = u64::from(self.params.chunk_bytes);
        let number = u32::try_from(offset / chunk_bytes).unwrap_or(u32::MAX);
        // Relaxed: the word was stored before the reference that led here was published (P1).
        let word =
            map_word(&self.map, number).map_or(FREE, |word| word.load(storage, Ordering::Relaxed));
        let extent = self.classes.decode(number, word).ok().flatten();
        offset.is_multiple_of(chunk_bytes) && extent == Some(self.classes.extent(content))
    }

    /// Returns the first chunk of the tail that was never used. Walks the map backwards, over at most one step of
    /// growth and one run. Unused chunks further back are left to the scan.
    pub(super) fn find_fresh<M: Medium>(&self, storage: &M, end: u32) -> u32 {
        let stop = end.saturating_sub(MAX_GROWTH_CHUNKS + self.longest_run());
        for number in (stop..end).rev() {
            // Relaxed: only former sessions have written these words.
            let word = map_word(&self.map, number)
                .map_or(FREE, |word| word.load(storage, Ordering::Relaxed));
            match self.classes.decode(number, word) {
                Ok(None) => {}
                Ok(Some(Extent::Small(_))) => return number + 1,
                Ok(Some(Extent::Large(chunks))) => return number.saturating_add(chunks).min(end),
                Err(_) => return end,
            }
        }
        // The last run before `stop` may extend beyond it.
        if stop == 0 { 0 } else { (stop + self.longest_run()).min(end) }
    }

    /// Takes `count` contiguous chunks for `extent`, reserves space on the medium for them, and writes the extent into
    /// the map. The map word is durable after this thread's next fence.
    pub(super) fn take_chunks<M: Medium>(
        &self,
        storage: &M,
        count: u32,
        extent: Extent,
    ) -> Result<u32> {
        self.settle_ripe(storage)?;
        if self.must_grow(count) {
            // A spare block may be all that keeps a chunk from being free.
            self.free_spares();
            self.settle_ripe(storage)?;
        }
        let start = self.choose_chunks(storage, count)?;
        // The range may be a hole unless it was just added: the store may have punched it, or the file was copied with
        // holes.
        let chunk_bytes = u64::from(self.params.chunk_bytes);
        let reserved = storage.reserve(
            &self.blobs,
            u64::from(start) * chunk_bytes,
            u64::from(count) * chunk_bytes,
        );
        let Some(word) = map_word(&self.map, start).filter(|_| reserved.is_ok()) else {
            lock(&self.space).runs.put(start, count);
            return reserved.and(Err(self.map_fault(start, "the map ends early")));
        };
        // The hunt selects unscanned chunks by their words, so the chunk leaves that state before the word is written.
        *lock(self.chunks.get(start)) = Chunk::Vacant;
        // P1: the word is flushed before any block of the chunk, and so is durable before a slot can refer to a block.
        word.store(storage, self.classes.encode(start, extent), Ordering::Relaxed);
        storage.flush_object(word);
        Ok(start)
    }

    /// Returns whether the region has no room for `count` contiguous chunks.
    fn must_grow(&self, count: u32) -> bool {
        let space = lock(&self.space);
        space.runs.longest() < count && count > space.end - space.fresh
    }

    fn choose_chunks<M: Medium>(&self, storage: &M, count: u32) -> Result<u32> {
        let mut space = lock(&self.space);
        let found = space.runs.take(count);
        // All accesses here are Relaxed: the values are hints for `prepare`.
        let due = match found {
            // Makes chunks due for the scan while a few free chunks are left, so that it can find more before a fresh
            // one is taken.
            Some(_) if space.runs.chunks() < LOW_CHUNKS => {
                SCAN_PER_CHUNK.saturating_sub(self.scan_due.load(Ordering::Relaxed))
            }
            Some(_) => 0,
            None => count.saturating_mul(SCAN_PER_CHUNK),
        };
        if self.unscanned.load(Ordering::Relaxed) > 0 {
            self.scan_due.fetch_add(due, Ordering::Relaxed);
        }
        if let Some(start) = found {
            return Ok(start);
        }
        if count > space.end - space.fresh {
            self.grow(storage, &mut space, count)?;
        }
        let start = space.fresh;
        space.fresh += count;
        Ok(start)
    }

    /// Grows the regions for `count` fresh chunks and, where there is space, for more, to save system calls.
    fn grow<M: Medium>(&self, storage: &M, space: &mut Space, count: u32) -> Result<()> {
        let chunk_bytes = u64::from(self.params.chunk_bytes);
        let needed = u64::from(space.fresh) + u64::from(count);
        let most = (self.blobs.max_bytes() / chunk_bytes)
            .min(self.map.max_bytes() / WORD_BYTES)
            .min(u64::from(u32::MAX));
        if needed > most {
            let needed_bytes = u64::from(count) * chunk_bytes;
            return Err(Error::NoSpace { path: self.blobs.path(storage), needed_bytes });
        }
        let step = (space.end / 8)
            .clamp(self.params.growth_chunks, MAX_GROWTH_CHUNKS.max(self.params.growth_chunks));
        let wanted = needed.max(u64::from(space.end) + u64::from(step)).min(most);
        // The map grows first: a chunk without a map word would be lost in a crash; a word without a chunk is
        // harmless.
        let grow_to = |chunks: u64| {
            storage.grow(&self.map, chunks * WORD_BYTES)?;
            storage.grow(&self.blobs, chunks * chunk_bytes)
        };
        match grow_to(wanted) {
            Err(Error::NoSpace { .. }) if wanted > needed => grow_to(needed)?,
            other => other?,
        }
        space.end = chunks_in(&self.params, &self.blobs, &self.map);
        if count > space.end - space.fresh {
            return Err(self.map_fault(space.end, "the region did not grow to the requested size"));
        }
        Ok(())
    }

    /// Records that no reader can reference a run of chunks any more.
    pub(super) fn ripen(&self, start: u32, length: u32) {
        let mut ripe = lock(&self.ripe);
        ripe.push((start, length));
        // Relaxed: a hint; the list itself is accessed under its lock.
        self.ripe_runs.store(ripe.len(), Ordering::Relaxed);
    }

    /// Moves the ripe runs to the free runs: marks them FREE in the map, and punches them if enough other space is free
    /// (see `punch_if_plenty`).
    pub(super) fn settle_ripe<M: Medium>(&self, storage: &M) -> Result<()> {
        // Relaxed: as in `ripen`.
        if self.ripe_runs.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let ripe = {
            let mut ripe = lock(&self.ripe);
            self.ripe_runs.store(0, Ordering::Relaxed);
            std::mem::take(&mut *ripe)
        };
        for &(start, _) in &ripe {
            if let Some(word) = map_word(&self.map, start) {
                word.store(storage, FREE, Ordering::Relaxed);
                storage.flush_object(word);
            }
        }
        // P2: this fence makes the FREE words durable before a chunk is reused. Without it, the map could still show a
        // reused chunk as the beginning, or the inside, of a larger run.
        storage.fence();
        storage.check_writable()?;
        for (start, length) in ripe {
            self.punch_if_plenty(storage, start, length);
            let new = lock(&self.space).runs.put(start, length);
            debug_assert!(new, "a run is given back once");
        }
        Ok(())
    }

    /// Returns a run's pages to the file system when more than an eighth of the region is free already. Otherwise they
    /// are kept: storing to punched pages costs a system call and page faults.
    fn punch_if_plenty<M: Medium>(&self, storage: &M, start: u32, length: u32) {
        let plenty = {
            let space = lock(&self.space);
            space.runs.chunks() + length > (space.end / 8).max(self.params.growth_chunks)
        };
        if plenty {
            let chunk_bytes = u64::from(self.params.chunk_bytes);
            // A file system that cannot punch holes keeps the pages; the run is free either way.
            drop(storage.punch(
                &self.blobs,
                u64::from(start) * chunk_bytes,
                u64::from(length) * chunk_bytes,
            ));
        }
    }
}
