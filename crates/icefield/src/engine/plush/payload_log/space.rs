//! The free, taken and full chunks: how records get their places, and how chunks are freed.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chunks::{CHUNK_BITS, Chunk, ChunkState, ChunkWord, LAST_EPOCH, PayloadRef};
use super::collection::Collection;
use super::lanes::Current;
use super::state::{Purpose, SPARE, Space, Usage};
use super::{PayloadLog, WORD_BYTES};
use crate::base::reclaim::Guard;
use crate::engine::exclusion::lock;
use crate::storage::Medium;
use crate::{Error, Result};

/// The state of a chunk, and of those that continue it, when a table is opened.
enum Found {
    /// In use; the number is that of the first chunk of the run.
    Full(u32),
    Free,
    /// Its epochs are used up.
    Spent,
}

/// The chunks that all readers have left. No thread waits while it holds this mutex.
fn unwaiting(returned: &Mutex<Vec<u32>>) -> MutexGuard<'_, Vec<u32>> {
    returned.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PayloadLog {
    /// Reads the states of all chunks, after a crash or not.
    pub(in crate::engine::plush) fn resume(&self, storage: &impl Medium) -> Result<()> {
        let chunks = (self.map.len() / WORD_BYTES).min(self.region.len() / self.chunk_bytes);
        let chunks = chunks.min(1 << CHUNK_BITS) as u32;
        self.chunks.extend(chunks);
        let mut space = lock(storage, &self.space);
        space.chunks = chunks;
        let (mut found, mut seed) = (Found::Free, 0_u64);
        for chunk in 0..chunks {
            let word = ChunkWord::unpack(self.word(storage, chunk)?.load(storage, Acquire));
            seed = seed.wrapping_add(word.epoch);
            found = match (word.used, word.continues) {
                (_, true) => found,
                (true, false) => Found::Full(chunk),
                (false, false) if word.epoch < LAST_EPOCH => Found::Free,
                (false, false) => Found::Spent,
            };
            match found {
                Found::Full(first) => {
                    let run = if first == chunk {
                        space.full.insert(chunk);
                        1
                    } else {
                        let run = space.runs.entry(first).or_insert(1);
                        *run += 1;
                        *run
                    };
                    space.used += 1;
                    self.set_limit(storage, first, u64::from(run) * self.chunk_bytes)?;
                }
                Found::Free => {
                    space.whole.insert(chunk);
                }
                Found::Spent => {}
            }
        }
        // Even a session that writes less than a chunk takes one step.
        self.taken.store(1, Relaxed);
        *self.lock_collection(storage) = Collection::of_unknown(seed);
        Ok(())
    }

    /// Sets how far a used chunk is written.
    fn set_limit(&self, storage: &impl Medium, chunk: u32, limit: u64) -> Result<()> {
        let epoch = ChunkWord::unpack(self.word(storage, chunk)?.load(storage, Acquire)).epoch;
        self.chunks.set(storage, chunk, ChunkState { epoch, used: epoch < LAST_EPOCH, limit });
        Ok(())
    }

    /// Reserves a place for a record, counts the record as pending, and returns the lane of the record's chunk: until
    /// it is dropped, no other thread writes to the chunk.
    pub(super) fn reserve<'a>(
        &'a self,
        storage: &'a impl Medium,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<(MutexGuard<'a, Current>, PayloadRef)> {
        let mut lane = self.lanes.enter(storage);
        match self.place_in(storage, &mut lane, bytes, purpose) {
            Ok(place) => Ok((lane, place)),
            Err(error @ Error::NoSpace { .. }) => {
                drop(lane);
                // No chunk is free, but one that other threads write to may have room.
                let has_room = |lane: &MutexGuard<'_, Current>| {
                    lane.is_some_and(|(_, at)| self.fits(at, bytes))
                };
                let mut lane = self.lanes.each(storage).find(has_room).ok_or(error)?;
                let place = self.place_in(storage, &mut lane, bytes, purpose)?;
                Ok((lane, place))
            }
            Err(error) => Err(error),
        }
    }

    /// Reserves a place in the lane's chunk, or in a new one.
    fn place_in(
        &self,
        storage: &impl Medium,
        lane: &mut Current,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<PayloadRef> {
        // Relaxed: done under the lane's mutex, before other threads can see the chunk as full.
        let count = |chunk: &Chunk| chunk.pending.fetch_add(1, Relaxed);
        let (chunk, offset) = match *lane {
            Some((chunk, at)) if self.fits(at, bytes) => {
                self.chunks.get(chunk).map(count);
                *lane = Some((chunk, at + bytes));
                (chunk, at)
            }
            former => {
                let mut space = lock(storage, &self.space);
                let run = bytes.div_ceil(self.chunk_bytes) as u32;
                let chunk = self.take(storage, &mut space, run, purpose)?;
                self.chunks.get(chunk).map(count);
                if run > 1 {
                    // The lane keeps its chunk.
                    space.full.insert(chunk);
                } else {
                    space.full.extend(former.map(|(chunk, _)| chunk));
                    *lane = Some((chunk, bytes));
                }
                if let Some(usual) = self.bytes.sum().checked_div(self.records.sum()) {
                    // Relaxed: for hints only.
                    self.usual_bytes.store(usual.clamp(0, u32::MAX.into()) as u32, Relaxed);
                }
                (chunk, 0)
            }
        };
        self.bytes.add(bytes as i64);
        self.records.add(1);
        Ok(PayloadRef { chunk, epoch: self.chunks.state(storage, chunk).epoch, offset })
    }

    /// Returns whether a record fits into a chunk at an offset.
    fn fits(&self, at: u64, bytes: u64) -> bool {
        at + bytes <= self.chunk_bytes
    }

    /// Takes a run of free chunks, or of new ones.
    fn take(
        &self,
        storage: &impl Medium,
        space: &mut Space,
        run: u32,
        purpose: Purpose,
    ) -> Result<u32> {
        space.whole.extend(unwaiting(&self.returned).drain(..));
        let spare = if purpose == Purpose::Write { SPARE } else { 0 };
        let mut settled = false;
        let (start, taken) = loop {
            let start = match space.run_of_free(run, spare) {
                Some(start) => start,
                None => self.grow(storage, space, run, spare)?,
            };
            let taken = start..start + run;
            match self.fill_holes(storage, space, taken.clone()) {
                // A former session has given the space back. Other chunks may have space.
                Err(Error::NoSpace { .. })
                    if taken.clone().any(|chunk| space.whole.contains(&chunk)) =>
                {
                    // Chunks behind these are taken before them from now on (Y5). One fence serves all chunks that
                    // are passed over, because this call takes no chunk that is freed meanwhile.
                    if !settled {
                        self.settle_free(storage, space.whole.iter().copied())?;
                        settled = true;
                    }
                    space.note_punched(taken);
                }
                filled => {
                    filled?;
                    break (start, taken);
                }
            }
        };
        if let Some(other) = space.spare_beside(&taken).filter(|_| spare > 0) {
            self.fill_holes(storage, space, other..other + 1)?;
        }
        for chunk in taken.clone() {
            let cell = self.word(storage, chunk)?;
            let word = ChunkWord::unpack(cell.load(storage, Acquire));
            let used = ChunkWord { used: true, continues: chunk != start, ..word };
            cell.store(storage, used.pack(), Release);
            storage.flush_object(cell);
        }
        // Y1: the words are durable before anything is written to the chunks.
        storage.try_fence()?;
        taken.for_each(|chunk| {
            space.whole.remove(&chunk);
        });
        if run > 1 {
            space.runs.insert(start, run);
        }
        self.set_limit(storage, start, 0)?;
        space.used += u64::from(run);
        if purpose == Purpose::Write {
            // Relaxed: as in `is_step_due`.
            self.taken.fetch_add(run, Relaxed);
        }
        Ok(start)
    }

    /// Allocates the space of free chunks, which this session or a former one may have given back.
    fn fill_holes(
        &self,
        storage: &impl Medium,
        space: &mut Space,
        chunks: Range<u32>,
    ) -> Result<()> {
        let [from, to] =
            [chunks.start, chunks.end].map(|chunk| u64::from(chunk) * self.chunk_bytes);
        storage.reserve(&self.region, from, to - from)?;
        for chunk in chunks {
            if space.punched.remove(&chunk) {
                space.whole.insert(chunk);
            }
        }
        Ok(())
    }

    /// Grows the files by a run of new chunks, so that `spare` others remain free. Returns the first chunk of the
    /// run.
    fn grow(
        &self,
        storage: &impl Medium,
        space: &mut Space,
        run: u32,
        spare: usize,
    ) -> Result<u32> {
        let start = space.chunks;
        let more = run + spare.saturating_sub(space.free_chunks()) as u32;
        let chunks = start.saturating_add(more);
        if chunks > 1 << CHUNK_BITS {
            let path = self.region.path(storage);
            return Err(Error::NoSpace { path, needed_bytes: self.chunk_bytes });
        }
        storage.grow(&self.region, u64::from(chunks) * self.chunk_bytes)?;
        storage.grow(&self.map, u64::from(chunks) * WORD_BYTES)?;
        self.chunks.extend(chunks);
        space.chunks = chunks;
        // The chunks are free until the caller has stored their words. If that fails, other records may take them.
        space.whole.extend(start..chunks);
        Ok(start)
    }

    pub(in crate::engine::plush) fn usage(&self, storage: &impl Medium) -> Usage {
        let chunks = lock(storage, &self.space).used;
        let [bytes, records] = [&self.bytes, &self.records].map(|count| count.sum() as u64);
        Usage { chunks, bytes, records }
    }

    /// Lists the chunks of all lanes but the first as full, so that the collection can free them.
    pub(in crate::engine::plush) fn close_lanes(&self, storage: &impl Medium) {
        self.lanes.narrow();
        for mut lane in self.lanes.each(storage).skip(1) {
            lock(storage, &self.space).full.extend(lane.take().map(|(chunk, _)| chunk));
        }
    }

    /// The full chunks without pending records, each with the length of its run.
    pub(in crate::engine::plush) fn full(&self, storage: &impl Medium) -> Vec<(u32, u32)> {
        let space = lock(storage, &self.space);
        let settled = space.full.iter().copied().filter(|&chunk| self.is_settled(chunk));
        settled.map(|chunk| (chunk, space.run(chunk))).collect()
    }

    /// The next full chunk without pending records, from a number on, or else from the first chunk on.
    pub(in crate::engine::plush) fn full_from(
        &self,
        storage: &impl Medium,
        number: u32,
    ) -> Option<u32> {
        let space = lock(storage, &self.space);
        let around = space.full.range(number..).chain(space.full.range(..number));
        around.copied().find(|&chunk| self.is_settled(chunk))
    }

    /// Bytes of a chunk, or of the run that begins with it.
    pub(in crate::engine::plush) fn run_bytes(&self, storage: &impl Medium, chunk: u32) -> u64 {
        u64::from(lock(storage, &self.space).run(chunk)) * self.chunk_bytes
    }

    /// Frees a chunk, or the run that begins with it. Its needed records have moved, durably. The chunk is used again
    /// when all readers have left.
    pub(in crate::engine::plush) fn release(
        &self,
        storage: &impl Medium,
        guard: &Guard<'_>,
        chunk: u32,
    ) -> Result<()> {
        let cell = self.word(storage, chunk)?;
        let epoch = ChunkWord::unpack(cell.load(storage, Acquire)).epoch + 1;
        // The word need not be durable before the chunk is taken again or its space is given back (Y1). The words of
        // the chunks that continue this one do not change (Y5).
        cell.store(storage, ChunkWord { epoch, used: false, continues: false }.pack(), Release);
        let mut space = lock(storage, &self.space);
        // The limit remains for readers that have already found a record (Y3).
        let state = self.chunks.state(storage, chunk);
        self.chunks.set(storage, chunk, ChunkState { epoch, used: false, ..state });
        space.full.remove(&chunk);
        let run = space.runs.remove(&chunk).unwrap_or(1);
        space.used -= u64::from(run);
        // If the first chunk of a run is never taken again, the others are not either.
        if epoch < LAST_EPOCH {
            let returned = Arc::clone(&self.returned);
            // No deadlock: a thread that holds this mutex only changes the list, and waits for nothing.
            guard.retire(move || unwaiting(&returned).extend(chunk..chunk + run));
        }
        Ok(())
    }

    /// Frees all chunks of a table that is empty now. Called while no other thread writes.
    pub(in crate::engine::plush) fn release_all(&self, storage: &impl Medium) -> Result<()> {
        let guard = self.pin();
        guard.flush();
        *self.lock_collection(storage) = Collection::of_empty();
        for mut lane in self.lanes.each(storage) {
            if let Some((chunk, _)) = lane.take() {
                self.release(storage, &guard, chunk)?;
            }
        }
        loop {
            let first = lock(storage, &self.space).full.first().copied();
            match first {
                Some(chunk) => self.release(storage, &guard, chunk)?,
                None => return Ok(()),
            }
        }
    }

    /// Gives the space of free chunks back to the file system, except that of `spare` chunks. Returns whether any free
    /// chunk besides the spare ones still had space. The caller is not pinned.
    pub(in crate::engine::plush) fn give_back(
        &self,
        storage: &impl Medium,
        spare: usize,
    ) -> Result<bool> {
        let mut space = lock(storage, &self.space);
        let space = &mut *space;
        space.whole.extend(unwaiting(&self.returned).drain(..));
        let idle: Vec<u32> =
            space.whole.iter().take(space.whole.len().saturating_sub(spare)).copied().collect();
        if idle.is_empty() {
            return Ok(false);
        }
        // Otherwise a crash could show a chunk, or the first chunk of its run, as used although its records are gone.
        self.settle_free(storage, space.whole.iter().copied())?;
        for run in idle.chunk_by(|a, b| a + 1 == *b) {
            let [from, to] = [run[0], run[0] + run.len() as u32]
                .map(|chunk| u64::from(chunk) * self.chunk_bytes);
            // A file system that cannot punch holes keeps the pages; the chunks remain free.
            if storage.punch(&self.region, from, to - from).is_ok() {
                space.note_punched(run.iter().copied());
            }
        }
        Ok(true)
    }

    /// Makes the words of free chunks durable.
    fn settle_free(
        &self,
        storage: &impl Medium,
        mut chunks: impl Iterator<Item = u32>,
    ) -> Result<()> {
        chunks.try_for_each(|chunk| {
            storage.flush_object(self.word(storage, chunk)?);
            Ok(())
        })?;
        // Y1: the words are durable before the chunks lose their space, or count as chunks without it.
        storage.try_fence()
    }

    /// Returns whether freed chunks wait for readers to leave.
    pub(in crate::engine::plush) fn waits_for_readers(&self, storage: &impl Medium) -> bool {
        let mut space = lock(storage, &self.space);
        space.whole.extend(unwaiting(&self.returned).drain(..));
        space.used + (space.free_chunks() as u64) < u64::from(space.chunks)
    }
}
