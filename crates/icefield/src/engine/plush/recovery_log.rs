//! Recovery logs (§4.2): they keep each record durable from its write until the record has left the root.
//!
//! A log is a ring of chunks. The chunks are filled strictly one after the other, each from its first record to its
//! last. A log record consists of the words of key and value, and one more word. Each word has a flag bit, and the
//! record counts when the flags of all words are those of its chunk's turn (§4.2, after Mnemosyne). This holds for any
//! number of words, in whatever order they became durable. The flag changes from one round of the ring to the next. The
//! protocol relies on:
//!
//! - L1: in the chunk that is being filled, all words of places that were not handed out yet have the other flag.
//! - L2: in every other chunk that was ever begun, all words have the flag of its turn.
//! - L3: a chunk is begun anew only when none of its records is needed: those that were in the root have left it,
//!   durably. Each root entry stores which chunk has its oldest record.
//!
//! A crash leaves holes: places that were handed out, but whose records were not completely written. Opening restores
//! L1 and L2. A hole before the last record becomes a record that belongs to no epoch. Its last word is stored first,
//! so that no mixture of old and new words counts. Behind the last record, opening sets the flags back to those of the
//! turn before.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard};

use super::epoch::LogEpoch;
use super::layout::{ChunkHead, MAX_LOG_CHUNKS, MAX_LOG_RECORDS, Shape};
use super::log_record::{FLAG, dead_bit, decode, encode};
use super::words::{Measure, RecordOf};
use crate::engine::exclusion::{lock, try_lock};
use crate::storage::{Cell64, Medium, Region};
use crate::types::RecordForm;
use crate::{Error, Result};

/// With at least this many chunks, the oldest chunk is prepared when half of the last ready chunk is used, so that no
/// writer waits for it. With fewer chunks, too many of its records would still be needed.
const CHUNKS_AHEAD: u32 = 4;
/// Larger turns are rejected as damage: no table reaches them.
const LAST_TURN: u64 = 1 << 62;

/// All recovery logs of a table.
pub(super) struct RecoveryLogs<R> {
    measure: Measure<R>,
    region: Region,
    shape: Shape,
    logs: Box<[Log]>,
}

/// A log. Aligned to two processor lines, because the hardware prefetches lines in pairs, and every write to a log
/// changes the words here.
#[repr(align(128))]
struct Log {
    /// [`Filling`].
    filling: AtomicU64,
    /// Number of chunks begun so far. The last of them is being filled.
    turn: AtomicU64,
    /// The last turn whose chunk may be begun.
    ready: AtomicU64,
    /// Held by the thread that begins a chunk.
    beginning: Mutex<()>,
    /// Held by the thread that prepares the next chunk.
    recycling: Mutex<()>,
    /// Number of completed records of each chunk.
    written: [AtomicU32; MAX_LOG_CHUNKS],
}

/// The position up to which a log has been filled. The word also holds the chunk and the flag, so that writers need no
/// division.
#[derive(Clone, Copy)]
struct Filling {
    /// Number of places of the chunk that were handed out.
    handed_out: u32,
    chunk: u32,
    /// `true` if records of this turn have the flag bit set.
    flag: bool,
    /// The lower bits of the turn, so that the word never repeats while a thread holds an old copy of it.
    low_turn: u64,
}

/// Bits of the packed word for `handed_out` and for `chunk`.
const HANDED_OUT_BITS: u32 = 21;
const CHUNK_BITS: u32 = 6;
const _: () = assert!(MAX_LOG_RECORDS < 1 << HANDED_OUT_BITS);
const _: () = assert!(MAX_LOG_CHUNKS <= 1 << CHUNK_BITS);

impl Filling {
    #[inline]
    fn pack(self) -> u64 {
        let low_bits = u64::from(self.chunk) << 1 | u64::from(self.flag);
        (self.low_turn << (CHUNK_BITS + 1) | low_bits) << HANDED_OUT_BITS
            | u64::from(self.handed_out)
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        let above = word >> HANDED_OUT_BITS;
        Self {
            handed_out: (word & ((1 << HANDED_OUT_BITS) - 1)) as u32,
            chunk: (above >> 1 & ((1 << CHUNK_BITS) - 1)) as u32,
            flag: above & 1 == 1,
            low_turn: above >> (CHUNK_BITS + 1),
        }
    }
}

/// A record's place in a log, handed out to one thread. The upper half is the log, the lower half is the packed
/// [`Filling`] without the turn. One word, so that consecutive places differ by 1.
#[must_use = "a place that is never written holds its chunk up for ever"]
pub(super) struct Place(u64);

const _: () = assert!(HANDED_OUT_BITS + 1 + CHUNK_BITS <= u32::BITS);

impl Place {
    #[inline]
    fn new(log: usize, filling: Filling) -> Self {
        Self((log as u64) << u32::BITS | filling.pack() & u64::from(u32::MAX))
    }

    /// Adds `count` places from this one on to the spans. Extends the log's last span, whose index is `last`, if the
    /// places follow that span.
    #[inline(always)]
    pub(super) fn note(&self, count: u32, spans: &mut Vec<Span>, last: &mut usize) {
        let Filling { handed_out: first, chunk, .. } = self.filling();
        match spans.get_mut(*last) {
            Some(span) if (span.chunk, span.end) == (chunk, first) => span.end += count,
            _ => {
                *last = spans.len();
                spans.push(Span { log: self.log() as u32, chunk, first, end: first + count });
            }
        }
    }

    #[inline(always)]
    fn log(&self) -> usize {
        (self.0 >> u32::BITS) as usize
    }

    #[inline(always)]
    pub(super) fn chunk(&self) -> usize {
        self.filling().chunk as usize
    }

    /// The record's index in its chunk, the chunk, and the flag.
    #[inline]
    fn filling(&self) -> Filling {
        Filling::unpack(self.0 & u64::from(u32::MAX))
    }
}

/// Consecutive places of a chunk, handed out to one thread.
#[must_use = "places that are never written hold their chunk up for ever"]
pub(super) struct Places {
    next: Place,
    left: u32,
}

impl Places {
    pub(super) const NONE: Self = Self { next: Place(0), left: 0 };

    /// Calls [`Place::note`] for all places, if there are any.
    #[inline(always)]
    pub(super) fn note(&self, spans: &mut Vec<Span>, last: &mut usize) {
        if self.left > 0 {
            self.next.note(self.left, spans, last);
        }
    }
}

impl ExactSizeIterator for Places {}

impl Iterator for Places {
    type Item = Place;

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }

    #[inline(always)]
    fn next(&mut self) -> Option<Place> {
        self.left = self.left.checked_sub(1)?;
        let Place(word) = self.next;
        // The lowest bits are the number of records handed out.
        self.next = Place(word + 1);
        Some(Place(word))
    }
}

/// Consecutive records of a chunk.
pub(super) struct Span {
    log: u32,
    chunk: u32,
    first: u32,
    end: u32,
}

/// The flag of a turn. In the first round it is the flag that fresh files do not have.
fn flag_of(turn: u64, chunks: u64) -> u64 {
    if ((turn - 1) / chunks).is_multiple_of(2) { FLAG } else { 0 }
}

impl<R: RecordForm> RecoveryLogs<R> {
    /// The logs of a table. The region has its full length already.
    pub(super) fn new(region: Region, shape: Shape, measure: Measure<R>) -> Self {
        let full = Filling { handed_out: shape.log_records, chunk: 0, flag: false, low_turn: 0 };
        let log = || Log {
            filling: AtomicU64::new(full.pack()),
            turn: AtomicU64::new(0),
            ready: AtomicU64::new(shape.log_chunks.into()),
            beginning: Mutex::new(()),
            recycling: Mutex::new(()),
            written: std::array::from_fn(|_| AtomicU32::new(0)),
        };
        Self { measure, region, shape, logs: (0..1 << shape.log_bits).map(|_| log()).collect() }
    }

    /// Writes zeros over the region of a new table. The file system has only reserved its blocks, and without this
    /// each sync in the first round of the logs would also have to write metadata.
    pub(super) fn overwrite(&self, storage: &impl Medium) {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut offset = 0;
        while offset < self.region.len() {
            let bytes = (self.region.len() - offset).min(ZEROS.len() as u64);
            // SAFETY: no other thread can access the table yet.
            unsafe { storage.write_bytes(&self.region, offset, &ZEROS[..bytes as usize]) };
            offset += bytes;
        }
        storage.flush_range(&self.region, 0, self.region.len());
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    pub(super) fn count(&self) -> usize {
        self.logs.len()
    }

    #[inline]
    pub(super) fn log_of(&self, entry: usize) -> usize {
        entry & (self.logs.len() - 1)
    }

    fn chunks(&self) -> u64 {
        self.shape.log_chunks.into()
    }

    fn chunk_of(&self, turn: u64) -> usize {
        ((turn - 1) % self.chunks()) as usize
    }

    fn offset(&self, log: usize, chunk: usize) -> u64 {
        (log as u64 * self.chunks() + chunk as u64) * self.shape.chunk_bytes(self.measure.widths())
    }

    fn head(&self, storage: &impl Medium, log: usize, chunk: usize) -> Result<&ChunkHead> {
        let offset = self.offset(log, chunk);
        self.region.get(storage, offset, "a chunk of a recovery log")
    }

    #[inline]
    fn words(&self, storage: &impl Medium, log: usize, chunk: usize) -> Result<&[Cell64]> {
        let offset = self.offset(log, chunk) + size_of::<ChunkHead>() as u64;
        let words = self.shape.log_records as usize * self.log_words();
        self.region.get_slice(storage, offset, words, "a chunk of a recovery log")
    }

    /// The words of a chunk's records, one slice for each record.
    fn slots(
        &self,
        storage: &impl Medium,
        log: usize,
        chunk: usize,
    ) -> Result<std::slice::ChunksExact<'_, Cell64>> {
        Ok(self.words(storage, log, chunk)?.chunks_exact(self.log_words()))
    }

    #[inline(always)]
    fn log_words(&self) -> usize {
        self.measure.widths().log_words()
    }

    /// Decodes a slot, if all its words have the flag.
    #[inline]
    fn read(
        &self,
        storage: &impl Medium,
        slot: &[Cell64],
        flag: u64,
    ) -> Option<(RecordOf<R>, LogEpoch)> {
        decode(self.measure, flag, |word| slot[word].load(storage, Relaxed))
    }

    #[cold]
    fn fault(&self, storage: &impl Medium, offset: u64, detail: &str) -> Error {
        let detail = format!("a chunk of a recovery log: {detail}");
        self.region.fault(storage, offset, detail)
    }

    /// Hands out up to `wanted` consecutive places of a log, within one chunk. Returns no place if a chunk must be
    /// prepared first.
    #[inline]
    pub(super) fn hand_out(
        &self,
        storage: &impl Medium,
        log: usize,
        wanted: u32,
    ) -> Result<Places> {
        let word = &self.logs[log].filling;
        let mut filling = self.filling(storage, log);
        loop {
            if filling.handed_out == self.shape.log_records {
                if !self.begin_chunk(storage, log)? {
                    return Ok(Places::NONE);
                }
                filling = self.filling(storage, log);
                continue;
            }
            let left = wanted.min(self.shape.log_records - filling.handed_out);
            let next = Filling { handed_out: filling.handed_out + left, ..filling };
            storage.sim_yield_point();
            // Acquire (E9): pairs with the Release in `fill`; the turn is durable.
            match word.compare_exchange_weak(filling.pack(), next.pack(), Acquire, Acquire) {
                Ok(_) => {
                    return Ok(Places { next: Place::new(log, filling), left });
                }
                Err(now) => filling = Filling::unpack(now),
            }
        }
    }

    /// Begins the next chunk of a log if the current one is full and the next one is ready. Returns whether a chunk
    /// has room.
    #[cold]
    fn begin_chunk(&self, storage: &impl Medium, log: usize) -> Result<bool> {
        let own = &self.logs[log];
        let _beginning = lock(storage, &own.beginning);
        if self.filling(storage, log).handed_out < self.shape.log_records {
            return Ok(true);
        }
        // Relaxed: changed under the mutex only. Acquire (E9): pairs with the Release in `make_ready`.
        let turn = own.turn.load(Relaxed) + 1;
        if turn > own.ready.load(Acquire) {
            return Ok(false);
        }
        let chunk = self.chunk_of(turn);
        let head = self.head(storage, log, chunk)?;
        own.written[chunk].store(0, Relaxed);
        // All former records of the chunk become durable (L2): they may have been acknowledged before they were
        // durable.
        storage.fence_deferred()?;
        head.turn.store(storage, turn, Release);
        // P1: from here on, records with this turn's flag count, and the chunk's former records do not (L3).
        storage.try_persist(&head.turn)?;
        self.fill(log, turn, 0);
        Ok(true)
    }

    /// Continues the log in the chunk of a turn. `handed_out` places of the chunk were handed out already.
    fn fill(&self, log: usize, turn: u64, handed_out: u32) {
        let (own, chunk) = (&self.logs[log], self.chunk_of(turn) as u32);
        let flag = flag_of(turn, self.chunks()) != 0;
        own.turn.store(turn, Relaxed);
        let filling = Filling { handed_out, chunk, flag, low_turn: turn };
        // Release (E9): pairs with the Acquire in `hand_out`; the turn is durable.
        own.filling.store(filling.pack(), Release);
    }

    /// Writes a record to its place. The record is flushed, and durable after the thread's next fence.
    #[inline]
    pub(super) fn write(
        &self,
        storage: &impl Medium,
        place: &Place,
        record: &RecordOf<R>,
        epoch: LogEpoch,
    ) -> Result<()> {
        let slot = self.store(storage, place, record, epoch)?;
        flush(storage, slot);
        Ok(())
    }

    /// Does the same as [`RecoveryLogs::write`] without the flush.
    #[inline(always)]
    pub(super) fn store(
        &self,
        storage: &impl Medium,
        place: &Place,
        record: &RecordOf<R>,
        epoch: LogEpoch,
    ) -> Result<&[Cell64]> {
        let Filling { handed_out: at, chunk, flag, .. } = place.filling();
        let words = self.log_words();
        let all = self.words(storage, place.log(), chunk as usize)?;
        let slot = &all[at as usize * words..][..words];
        let flag = if flag { FLAG } else { 0 };
        // Relaxed: the flag of each word shows whether the word was stored.
        encode(self.measure, (record, epoch), flag, |at, word| {
            slot[at].store(storage, word, Relaxed)
        });
        Ok(slot)
    }

    /// Flushes the records of some spans, each line of a span once.
    #[inline]
    pub(super) fn flush_all(&self, storage: &impl Medium, spans: &[Span]) -> Result<()> {
        for span in spans {
            let words = self.words(storage, span.log as usize, span.chunk as usize)?;
            let [first, end] = [span.first, span.end].map(|at| at as usize * self.log_words());
            flush(storage, &words[first..end]);
        }
        Ok(())
    }

    /// Does the same as [`RecoveryLogs::finish`] for many records.
    pub(super) fn finish_all(&self, spans: &[Span]) {
        for span in spans {
            // Release: as in `finish`.
            self.logs[span.log as usize].written[span.chunk as usize]
                .fetch_add(span.end - span.first, Release);
        }
    }

    /// Counts a record as completed: it is durable, and in the root if it is needed.
    #[inline]
    pub(super) fn finish(&self, place: Place) {
        // Release: pairs with the Acquire in `oldest`.
        self.logs[place.log()].written[place.chunk()].fetch_add(1, Release);
    }

    /// Returns whether a log is filling its last ready chunk, and at least `handed_out` places of that chunk were
    /// handed out.
    #[inline]
    fn is_at_last(&self, storage: &impl Medium, log: usize, handed_out: u32) -> bool {
        let own = &self.logs[log];
        // Acquire (E9), all: as in `begin_chunk`. If another thread begins a chunk between the loads, the first load
        // read the previous chunk, which is full by now. At worst, the next chunk is then prepared too early.
        self.filling(storage, log).handed_out >= handed_out
            && own.turn.load(Acquire) == own.ready.load(Acquire)
    }

    /// Returns the lock under which the next chunk of a log is prepared, if that is due. While another thread prepares
    /// it, waits if the log has no room left, and otherwise returns `None`. Taken before every lock of a root entry.
    #[inline]
    pub(super) fn lock_recycling(
        &self,
        storage: &impl Medium,
        log: usize,
    ) -> Option<MutexGuard<'_, ()>> {
        // On disks a chunk is not prepared ahead of time, because moving the records that are still needed takes syncs.
        let ahead = self.shape.log_chunks >= CHUNKS_AHEAD && !storage.fence_syncs();
        let all = self.shape.log_records;
        let due = if ahead { all / 2 } else { all };
        if !self.is_at_last(storage, log, due) {
            return None;
        }
        let recycling = &self.logs[log].recycling;
        let locked = match self.is_at_last(storage, log, all) {
            true => lock(storage, recycling),
            false => try_lock(recycling)?,
        };
        self.is_at_last(storage, log, due).then_some(locked)
    }

    /// The oldest chunk of a log, which is begun next; `None` if that chunk was never begun. Waits until all its
    /// records are in the root or have left it. Called under the recycling lock.
    pub(super) fn oldest(&self, storage: &impl Medium, log: usize) -> Option<usize> {
        // Relaxed: changed under the recycling lock only.
        let turn = self.logs[log].ready.load(Relaxed) + 1;
        if turn <= self.chunks() {
            return None;
        }
        let chunk = self.chunk_of(turn);
        let mut rounds = 0;
        // Acquire: pairs with the Release in `finish`. A thread that has a place waits for a sync and
        // for root entries, but for no thread that prepares a chunk.
        while self.logs[log].written[chunk].load(Acquire) != self.shape.log_records {
            storage.wait(rounds);
            rounds = rounds.saturating_add(1);
        }
        Some(chunk)
    }

    /// Allows the chunk of [`RecoveryLogs::oldest`] to be begun: no root entry needs its records any more.
    pub(super) fn make_ready(&self, storage: &impl Medium, log: usize) {
        storage.sim_yield_point();
        // Release (E9): the thread that begins the chunk sees that its records have moved on.
        self.logs[log].ready.fetch_add(1, Release);
    }

    /// The number of places in the chunk that a log is filling that were handed out and not finished.
    #[cfg(test)]
    pub(super) fn unfinished(&self, storage: &impl Medium, log: usize) -> u32 {
        let Filling { handed_out, chunk, low_turn, .. } = self.filling(storage, log);
        // A log that was never used counts as full.
        if low_turn == 0 {
            return 0;
        }
        // Acquire: as in `oldest`.
        handed_out - self.logs[log].written[chunk as usize].load(Acquire)
    }

    #[inline]
    fn filling(&self, storage: &impl Medium, log: usize) -> Filling {
        storage.sim_yield_point();
        // Acquire (E9): as in `hand_out`.
        Filling::unpack(self.logs[log].filling.load(Acquire))
    }

    /// The turns of the chunks of a log that were begun, oldest first.
    fn turns(&self, storage: &impl Medium, log: usize) -> Result<std::ops::RangeInclusive<u64>> {
        let mut last = 0;
        for chunk in 0..self.shape.log_chunks as usize {
            let turn = self.head(storage, log, chunk)?.turn.load(storage, Acquire);
            if turn > LAST_TURN || turn > 0 && self.chunk_of(turn) != chunk {
                return Err(self.fault(storage, self.offset(log, chunk), "its turn is impossible"));
            }
            last = last.max(turn);
        }
        let first = last.saturating_sub(self.chunks() - 1).max(1);
        for turn in first..=last {
            let chunk = self.chunk_of(turn);
            if self.head(storage, log, chunk)?.turn.load(storage, Relaxed) != turn {
                return Err(self.fault(storage, self.offset(log, chunk), "its turn is missing"));
            }
        }
        Ok(first..=last)
    }

    /// Calls `visit` with every record of a log and its chunk, in the order in which they were written.
    pub(super) fn replay(
        &self,
        storage: &impl Medium,
        log: usize,
        mut visit: impl FnMut(usize, RecordOf<R>, LogEpoch) -> Result<()>,
    ) -> Result<()> {
        for turn in self.turns(storage, log)? {
            let (chunk, flag) = (self.chunk_of(turn), flag_of(turn, self.chunks()));
            for slot in self.slots(storage, log, chunk)? {
                if let Some((record, epoch)) = self.read(storage, slot, flag) {
                    visit(chunk, record, epoch)?;
                }
            }
        }
        Ok(())
    }

    /// Turns the records of a log for which `is_meant` holds into removals. The stores are flushed.
    pub(super) fn mark_dead(
        &self,
        storage: &impl Medium,
        log: usize,
        is_meant: impl Fn(&RecordOf<R>, LogEpoch) -> bool,
    ) -> Result<()> {
        let last_word = self.log_words() - 1;
        self.change(storage, log, last_word, is_meant, |word| word | dead_bit(self.measure))
    }

    /// Makes the records of a log for which `is_meant` holds refer to another payload. Both references have the same
    /// top bit. The stores are flushed.
    pub(super) fn redirect(
        &self,
        storage: &impl Medium,
        log: usize,
        is_meant: impl Fn(&RecordOf<R>, LogEpoch) -> bool,
        payload: u64,
    ) -> Result<()> {
        let reference = self.measure.widths().key;
        self.change(storage, log, reference, is_meant, |word| word & FLAG | payload & !FLAG)
    }

    /// Changes a word, but not its flag, in those records of a log for which `is_meant` holds. The records must be of a
    /// root entry that the caller has locked, and of epochs that this entry still needs, so that their chunks stay.
    fn change(
        &self,
        storage: &impl Medium,
        log: usize,
        word: usize,
        is_meant: impl Fn(&RecordOf<R>, LogEpoch) -> bool,
        changed: impl Fn(u64) -> u64,
    ) -> Result<()> {
        for chunk in 0..self.shape.log_chunks as usize {
            let turn = self.head(storage, log, chunk)?.turn.load(storage, Acquire);
            if turn == 0 || turn > LAST_TURN {
                continue;
            }
            let flag = flag_of(turn, self.chunks());
            for slot in self.slots(storage, log, chunk)? {
                let read = storage.read_unvalidated(|| self.read(storage, slot, flag));
                if read.is_some_and(|(record, epoch)| is_meant(&record, epoch)) {
                    // Relaxed: a single word, whose flag does not change.
                    slot[word].store(storage, changed(slot[word].load(storage, Relaxed)), Relaxed);
                    storage.flush_object(&slot[word]);
                }
            }
        }
        Ok(())
    }

    /// Restores L1 and L2 and continues at the end of the log. Records that are not `whole`, because their payload is
    /// missing, become holes as well. Idempotent.
    pub(super) fn resume(
        &self,
        storage: &impl Medium,
        log: usize,
        whole: impl Fn(RecordOf<R>, LogEpoch) -> Result<bool>,
    ) -> Result<()> {
        let turns = self.turns(storage, log)?;
        let last = *turns.end();
        if last == 0 {
            return Ok(());
        }
        let mut holes = Vec::new();
        let mut handed_out = 0;
        for turn in turns {
            let (chunk, flag) = (self.chunk_of(turn), flag_of(turn, self.chunks()));
            let slots = self.slots(storage, log, chunk)?;
            let is_there = |slot| self.read(storage, slot, flag).is_some();
            let filled = match turn == last {
                true => slots.clone().rposition(is_there).map_or(0, |at| at + 1),
                false => slots.len(),
            };
            for slot in slots.clone().take(filled) {
                let found = self.read(storage, slot, flag);
                if !found.map_or(Ok(false), |(record, epoch)| whole(record, epoch))? {
                    holes.push((slot, flag));
                }
            }
            slots.skip(filled).for_each(|slot| turn_back(storage, slot, flag));
            self.logs[log].written[chunk].store(filled as u32, Relaxed);
            handed_out = filled as u32;
        }
        let last_word = self.log_words() - 1;
        for &(slot, flag) in &holes {
            // Release: on the medium, this store follows earlier stores to the other words of the slot.
            slot[last_word].store(storage, flag | LogEpoch::NONE.bits(), Release);
            storage.flush_object(&slot[last_word]);
        }
        // P2: the last words are durable first, so that no mixture of old words and the words stored below has an
        // epoch.
        storage.try_fence()?;
        for (slot, flag) in holes {
            for cell in &slot[..last_word] {
                cell.store(storage, flag, Release);
            }
            flush(storage, slot);
        }
        // The changed words are durable by the next fence of the opening, before the first record of the session.
        // Relaxed: no other thread can access the table yet.
        self.logs[log].ready.store(last.max(self.chunks()), Relaxed);
        self.fill(log, last, handed_out);
        Ok(())
    }

    /// Returns descriptions of the violations of L1 and L2 in a log.
    pub(super) fn check(&self, storage: &impl Medium, log: usize) -> Result<Vec<String>> {
        let turns = self.turns(storage, log)?;
        let (last, handed_out) = (*turns.end(), self.filling(storage, log).handed_out as usize);
        let mut faults = Vec::new();
        for turn in turns {
            let (chunk, flag) = (self.chunk_of(turn), flag_of(turn, self.chunks()));
            for (at, slot) in self.slots(storage, log, chunk)?.enumerate() {
                let expected = if turn < last || at < handed_out { flag } else { flag ^ FLAG };
                if slot.iter().any(|word| word.load(storage, Relaxed) & FLAG != expected) {
                    faults
                        .push(format!("record {at} of chunk {chunk} of log {log} has other flags"));
                }
            }
        }
        Ok(faults)
    }
}

#[inline(always)]
fn flush(storage: &impl Medium, words: &[Cell64]) {
    storage.flush(words.as_ptr().cast(), size_of_val(words));
}

/// Sets the flags of an incompletely written record back to those of the turn before.
fn turn_back(storage: &impl Medium, slot: &[Cell64], flag: u64) {
    let mut turned = false;
    for cell in slot {
        if cell.load(storage, Relaxed) & FLAG == flag {
            cell.store(storage, flag ^ FLAG, Release);
            turned = true;
        }
    }
    if turned {
        flush(storage, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_change_from_round_to_round() {
        let flags: Vec<_> = (1..=8).map(|turn| flag_of(turn, 2) != 0).collect();
        assert_eq!(flags, [true, true, false, false, true, true, false, false]);
    }

    #[test]
    fn how_far_a_log_is_filled_fits_a_word() {
        let turns = [0, 1, LAST_TURN, LAST_TURN + 7];
        for (chunk, turn) in (0..MAX_LOG_CHUNKS as u32).zip(turns.into_iter().cycle()) {
            for handed_out in [0, 1, MAX_LOG_RECORDS] {
                let flag = chunk % 3 == 1;
                let filling = Filling { handed_out, chunk, flag, low_turn: turn };
                let unpacked = Filling::unpack(filling.pack());
                assert_eq!((unpacked.handed_out, unpacked.chunk), (handed_out, chunk));
                assert_eq!((unpacked.flag, unpacked.pack()), (flag, filling.pack()));
                let next = Filling { handed_out: handed_out + 1, ..unpacked };
                assert!(handed_out == MAX_LOG_RECORDS || next.pack() == filling.pack() + 1);
            }
        }
    }
}
