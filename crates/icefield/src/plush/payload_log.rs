//! The payload log (§4.3): where keys and values are that do not fit into a slot.
//!
//! A chunk takes records one after the other and then stays as it is; what in it is needed is found by looking the keys
//! up, and moved (`collect`). A reference holds the chunk's epoch, which steps when the chunk is freed: what led into
//! it before leads nowhere then. A record that is longer than a chunk has chunks of its own.
//!
//! - Y1: a chunk's word says that it is used, durably, before anything is written to it, and that it is free after
//!   everything needed has moved, durably. That it is free need not be durable: a crash may show it used again, with
//!   the records that it had, as nobody writes to it before it is taken.
//! - Y2: an epoch is never used twice. A chunk with the last one is not used again.
//! - Y3: a reader is pinned before it compares epochs. A chunk is written again when all have left who were pinned when
//!   its epoch stepped: whoever found a word to be current may read behind it until it leaves.
//! - Y4: whoever finds that the epoch has stepped has also the newer record of that key before it, or fails its
//!   validation: the version of the root entry steps in between (`collect`).
//! - Y5: of a run that was freed the first chunk is taken before the others, or with them: as long as a crash can show
//!   it used, its record is whole. Chunks are therefore taken from the lowest on, and the others' words still say that
//!   they continue: they are as free as the first is. When that is used anew by itself, a crash may give them to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::core::lock;
use crate::base::hash::{Hash, HashKind};
use crate::base::reclaim::{Guard, Reclaimer};
use crate::pm::{Cell64, Medium, Region};
use crate::{Error, Result};

/// Bytes of a record before its key.
const HEAD_BYTES: usize = 24;
/// Records begin at multiples of this.
const UNIT_BYTES: u64 = 8;
const UNIT_BITS: u32 = 16;
const EPOCH_BITS: u32 = 20;
const CHUNK_BITS: u32 = 64 - UNIT_BITS - EPOCH_BITS;
/// No reference has it.
const LAST_EPOCH: u64 = (1 << EPOCH_BITS) - 1;
/// The largest chunk that references can reach into.
pub(super) const MAX_CHUNK_BYTES: u64 = UNIT_BYTES << UNIT_BITS;
/// Bytes of the map per chunk.
const WORD_BYTES: u64 = size_of::<Cell64>() as u64;
/// After chunks that were needed, the next look comes this many chunks later at most.
const MAX_PATIENCE: u32 = 64;

/// Where a payload is: chunk, epoch and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PayloadRef {
    pub(super) chunk: u32,
    epoch: u64,
    offset: u64,
}

impl PayloadRef {
    pub(super) fn pack(self) -> u64 {
        u64::from(self.chunk) << (UNIT_BITS + EPOCH_BITS)
            | self.epoch << UNIT_BITS
            | (self.offset / UNIT_BYTES)
    }

    pub(super) fn unpack(word: u64) -> Self {
        Self {
            chunk: (word >> (UNIT_BITS + EPOCH_BITS)) as u32,
            epoch: word >> UNIT_BITS & LAST_EPOCH,
            offset: (word & ((1 << UNIT_BITS) - 1)) * UNIT_BYTES,
        }
    }
}

/// What the map says of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkWord {
    epoch: u64,
    used: bool,
    /// It belongs to the chunk before it.
    continues: bool,
}

impl ChunkWord {
    fn pack(self) -> u64 {
        self.epoch << 2 | u64::from(self.continues) << 1 | u64::from(self.used)
    }

    fn unpack(word: u64) -> Self {
        Self { epoch: word >> 2, used: word & 1 == 1, continues: word & 2 == 2 }
    }
}

/// What a chunk turns out to be when a table is opened, with those that continue it.
enum Found {
    /// The first chunk of its run.
    Full(u32),
    Free,
    /// Its epochs are used up.
    Spent,
}

/// The payload log of a table.
pub(super) struct PayloadLog {
    region: Region,
    map: Region,
    chunk_bytes: u64,
    reclaimer: Arc<Reclaimer>,
    space: Mutex<Space>,
    /// Chunks that everybody has left.
    returned: Arc<Mutex<Vec<u32>>>,
    /// One thread at a time looks for chunks that can be freed.
    collecting: Mutex<()>,
}

/// The chunks, in DRAM.
#[derive(Default)]
struct Space {
    /// The chunk that takes records, and from which byte on.
    current: Option<(u32, u64)>,
    /// Taken from the lowest on (Y5).
    free: BTreeSet<u32>,
    /// Chunks that are full, the oldest first; the first of each run.
    full: VecDeque<u32>,
    /// Chunks of a run, where there are more than one.
    runs: BTreeMap<u32, u32>,
    /// Records written that no slot refers to yet, by chunk.
    pending: BTreeMap<u32, u32>,
    /// How many chunks the region has.
    chunks: u32,
    /// So many chunks are taken before the oldest is looked at again; and after the next disappointment.
    patience: u32,
    next_patience: u32,
}

/// A record as it is stored.
pub(super) struct Payload<'a> {
    pub(super) hash: u64,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// The chunks that everybody has left. Nobody waits while holding them.
fn unwaiting(returned: &Mutex<Vec<u32>>) -> MutexGuard<'_, Vec<u32>> {
    returned.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of a record in the log.
fn stored_bytes(key: usize, value: usize) -> u64 {
    ((HEAD_BYTES + key + value) as u64).next_multiple_of(UNIT_BYTES)
}

/// The checksum of a record at its place.
pub fn checksum(word: u64, hash: u64, lengths: u64, content: &[u8]) -> u64 {
    // Not a secret: only accidents are to be told from records.
    let sum = Hash::new(HashKind::Strong, [0x504C_5553, 0x5041_594C]);
    sum.bytes(content) ^ sum.word(word ^ lengths.rotate_left(32)).wrapping_add(hash)
}

impl PayloadLog {
    /// The log of a table; [`PayloadLog::resume`] follows where there are chunks already.
    pub(super) fn open(pm: &impl Medium, chunk_bytes: u64, max_bytes: u64) -> Result<Self> {
        let chunk_bytes = chunk_bytes.min(MAX_CHUNK_BYTES);
        let chunks = max_bytes.div_ceil(chunk_bytes).min(1 << CHUNK_BITS);
        Ok(Self {
            region: pm.region("payload.ice", max_bytes)?,
            map: pm.region("payloadmap.ice", (chunks * WORD_BYTES).next_multiple_of(4096))?,
            chunk_bytes,
            reclaimer: Arc::new(Reclaimer::with_batch(1)),
            space: Mutex::default(),
            returned: Arc::default(),
            collecting: Mutex::new(()),
        })
    }

    /// Bytes of its regions.
    pub(super) fn bytes(&self) -> u64 {
        self.region.len() + self.map.len()
    }

    /// Keeps chunks from being written again that can be reached now.
    #[inline]
    pub(super) fn pin(&self) -> Guard<'_> {
        self.reclaimer.pin()
    }

    pub(super) fn lock_collecting(&self, pm: &impl Medium) -> MutexGuard<'_, ()> {
        lock(pm, &self.collecting)
    }

    fn word(&self, pm: &impl Medium, chunk: u32) -> Result<&Cell64> {
        let offset = u64::from(chunk) * WORD_BYTES;
        self.map.at(offset).ok_or_else(|| {
            let file = pm.path().join(self.map.name());
            Error::corrupt(file, offset, "the file ends before the chunk's word")
        })
    }

    /// Finds out what the chunks are, after a crash or not.
    pub(super) fn resume(&self, pm: &impl Medium) -> Result<()> {
        let chunks = (self.map.len() / WORD_BYTES).min(self.region.len() / self.chunk_bytes);
        let mut space = lock(pm, &self.space);
        space.chunks = chunks as u32;
        let mut found = Found::Free;
        for chunk in 0..chunks as u32 {
            let word = ChunkWord::unpack(self.word(pm, chunk)?.load(pm, Acquire));
            found = match (word.used, word.continues) {
                (_, true) => found,
                (true, false) => Found::Full(chunk),
                (false, false) if word.epoch < LAST_EPOCH => Found::Free,
                (false, false) => Found::Spent,
            };
            match found {
                Found::Full(first) if first == chunk => space.full.push_back(chunk),
                Found::Full(first) => *space.runs.entry(first).or_insert(1) += 1,
                Found::Free => {
                    space.free.insert(chunk);
                }
                Found::Spent => {}
            }
        }
        Ok(())
    }

    /// Whether chunks should be looked at before so long a record is written.
    pub(super) fn is_collection_due(&self, pm: &impl Medium, key: usize, value: usize) -> bool {
        let mut space = lock(pm, &self.space);
        space.free.extend(unwaiting(&self.returned).drain(..));
        let bytes = stored_bytes(key, value);
        let fits = space.current.is_some_and(|(_, at)| at + bytes <= self.chunk_bytes);
        if fits || !space.free.is_empty() || space.full.len() < 2 {
            return false;
        }
        space.patience = space.patience.saturating_sub(1);
        space.patience == 0
    }

    /// Writes a record; flushed. It cannot be freed before [`PayloadLog::finish`].
    pub(super) fn write(
        &self,
        pm: &impl Medium,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<u64> {
        let bytes = stored_bytes(key.len(), value.len());
        let (chunk, offset) = self.reserve(pm, bytes)?;
        let write = || {
            let epoch = ChunkWord::unpack(self.word(pm, chunk)?.load(pm, Acquire)).epoch;
            let word = PayloadRef { chunk, epoch, offset }.pack();
            let lengths = key.len() as u64 | (value.len() as u64) << 32;
            let mut record = Vec::with_capacity(bytes as usize);
            record.extend_from_slice(&lengths.to_le_bytes());
            record.extend_from_slice(&hash.to_le_bytes());
            record.extend_from_slice(&[0; 8]);
            record.extend_from_slice(key);
            record.extend_from_slice(value);
            let sum = checksum(word, hash, lengths, &record[HEAD_BYTES..]);
            record[16..24].copy_from_slice(&sum.to_le_bytes());
            let at = u64::from(chunk) * self.chunk_bytes + offset;
            // SAFETY: the range was handed out to this thread alone, out of a chunk that nobody who is pinned can have
            // a reference into from its former use (Y3).
            unsafe { pm.write_bytes(&self.region, at, &record) };
            pm.flush(self.region.base().as_ptr().wrapping_add(at as usize), record.len());
            Ok(word)
        };
        write().inspect_err(|_| self.finish(pm, chunk))
    }

    /// A slot refers to the record, or never will.
    pub(super) fn finish(&self, pm: &impl Medium, chunk: u32) {
        let mut space = lock(pm, &self.space);
        if let Some(pending) = space.pending.get_mut(&chunk) {
            *pending -= 1;
            if *pending == 0 {
                space.pending.remove(&chunk);
            }
        }
    }

    /// A place for a record, pending.
    fn reserve(&self, pm: &impl Medium, bytes: u64) -> Result<(u32, u64)> {
        let mut space = lock(pm, &self.space);
        let place = match space.current {
            Some((chunk, at)) if at + bytes <= self.chunk_bytes => {
                space.current = Some((chunk, at + bytes));
                (chunk, at)
            }
            _ if bytes > self.chunk_bytes => {
                let run = bytes.div_ceil(self.chunk_bytes) as u32;
                let chunk = self.take(pm, &mut space, run)?;
                space.full.push_back(chunk);
                (chunk, 0)
            }
            former => {
                let chunk = self.take(pm, &mut space, 1)?;
                space.full.extend(former.map(|(chunk, _)| chunk));
                space.current = Some((chunk, bytes));
                (chunk, 0)
            }
        };
        *space.pending.entry(place.0).or_insert(0) += 1;
        Ok(place)
    }

    /// Takes a run of free chunks, or new ones.
    fn take(&self, pm: &impl Medium, space: &mut Space, run: u32) -> Result<u32> {
        space.free.extend(unwaiting(&self.returned).drain(..));
        let starts = space.free.iter().copied();
        let found = starts.into_iter().find(|&start| {
            (start..start.saturating_add(run)).all(|chunk| space.free.contains(&chunk))
        });
        let start = match found {
            Some(start) => start,
            None => self.grow(pm, space, run)?,
        };
        for chunk in start..start + run {
            let cell = self.word(pm, chunk)?;
            let word = ChunkWord::unpack(cell.load(pm, Acquire));
            let used = ChunkWord { used: true, continues: chunk != start, ..word };
            cell.store(pm, used.pack(), Release);
            pm.flush_object(cell);
        }
        // Y1.
        pm.fence();
        (start..start + run).for_each(|chunk| {
            space.free.remove(&chunk);
        });
        if run > 1 {
            space.runs.insert(start, run);
        }
        Ok(start)
    }

    fn grow(&self, pm: &impl Medium, space: &mut Space, run: u32) -> Result<u32> {
        let start = space.chunks;
        let chunks = u64::from(start) + u64::from(run);
        pm.grow(&self.region, chunks * self.chunk_bytes)?;
        pm.grow(&self.map, chunks * WORD_BYTES)?;
        space.chunks = chunks as u32;
        // In case that the words cannot be stored: others may have them.
        space.free.extend(start..start + run);
        Ok(start)
    }

    /// The record behind a word; `None` when its chunk has been freed since.
    ///
    /// The caller is pinned, and has the word from a slot or a log, or made it up: then the bytes may be anything.
    #[inline]
    pub(super) fn read<'a>(
        &'a self,
        pm: &'a impl Medium,
        word: u64,
    ) -> Result<Option<Payload<'a>>> {
        if self.is_current(pm, word)? { self.read_found(pm, word).map(Some) } else { Ok(None) }
    }

    /// The record behind a word that [`PayloadLog::is_current`] knew since the caller was pinned: its chunk may have
    /// been freed meanwhile, but is not written again (Y3).
    #[inline]
    pub(super) fn read_found<'a>(&'a self, pm: &'a impl Medium, word: u64) -> Result<Payload<'a>> {
        let place = PayloadRef::unpack(word);
        let at = u64::from(place.chunk) * self.chunk_bytes + place.offset;
        let corrupt = |detail: &str| Error::corrupt(pm.path().join(self.region.name()), at, detail);
        // SAFETY: a word with its chunk's epoch was stored after the record had been written (E3), and the chunk is not
        // written again at that place before this thread, which was pinned when the epochs were equal, has left (Y3).
        let head = unsafe { pm.read_bytes(&self.region, at, HEAD_BYTES) };
        let head = head.ok_or_else(|| corrupt("the file ends before the record"))?;
        let [key, value] = lengths(head);
        let content = key.checked_add(value).and_then(|bytes| {
            // SAFETY: as above.
            unsafe { pm.read_bytes(&self.region, at + HEAD_BYTES as u64, bytes) }
        });
        let content = content.ok_or_else(|| corrupt("the file ends inside the record"))?;
        let (key, value) = content.split_at(key);
        Ok(Payload { hash: word_at(head, 8), key, value })
    }

    /// Whether the chunk that a word leads into has not been freed since.
    #[inline]
    pub(super) fn is_current(&self, pm: &impl Medium, word: u64) -> Result<bool> {
        let place = PayloadRef::unpack(word);
        let offset = u64::from(place.chunk) * WORD_BYTES;
        let Some(cell) = self.map.at::<Cell64>(offset) else { return Ok(false) };
        // A peek: chunks with records that count are durably used, and a freed one has none.
        let chunk = ChunkWord::unpack(pm.peek(|| cell.load(pm, Acquire)));
        Ok(chunk.used && chunk.epoch == place.epoch)
    }

    /// What is wrong with a record, if anything.
    pub(super) fn fault(&self, pm: &impl Medium, word: u64) -> Result<Option<&'static str>> {
        let payload = match self.read(pm, word) {
            Ok(Some(payload)) => payload,
            Ok(None) => return Ok(Some("its payload is gone")),
            Err(Error::Corrupt { .. }) => return Ok(Some("its payload leaves the file")),
            Err(error) => return Err(error),
        };
        let place = PayloadRef::unpack(word);
        let at = u64::from(place.chunk) * self.chunk_bytes + place.offset;
        Ok((!self.is_record(pm, at, word, &payload)).then_some("its payload's checksum is wrong"))
    }

    fn is_record(&self, pm: &impl Medium, at: u64, word: u64, payload: &Payload<'_>) -> bool {
        // SAFETY: as in `read`, which has been here.
        let Some(head) = (unsafe { pm.read_bytes(&self.region, at, HEAD_BYTES) }) else {
            return false;
        };
        let content = [payload.key, payload.value].concat();
        checksum(word, payload.hash, word_at(head, 0), &content) == word_at(head, 16)
    }

    /// How many chunks or runs are full.
    pub(super) fn full_chunks(&self, pm: &impl Medium) -> usize {
        lock(pm, &self.space).full.len()
    }

    /// The oldest full chunk whose records all have their slots. It is the caller's until [`PayloadLog::keep`] or
    /// [`PayloadLog::release`].
    pub(super) fn oldest(&self, pm: &impl Medium) -> Option<u32> {
        let mut space = lock(pm, &self.space);
        let at = space.full.iter().position(|chunk| !space.pending.contains_key(chunk))?;
        space.full.remove(at)
    }

    /// Bytes of a chunk, or of the run that begins with it.
    pub(super) fn chunk_bytes(&self, pm: &impl Medium, chunk: u32) -> u64 {
        let run = lock(pm, &self.space).runs.get(&chunk).copied().unwrap_or(1);
        u64::from(run) * self.chunk_bytes
    }

    /// The chunk is needed as it is: the next look comes later.
    pub(super) fn keep(&self, pm: &impl Medium, chunk: u32) {
        let mut space = lock(pm, &self.space);
        space.full.push_back(chunk);
        space.patience = space.next_patience.max(1);
        space.next_patience = (space.patience * 2).min(MAX_PATIENCE);
    }

    /// The whole records of a full chunk: word, and bytes that they take. Holes of former crashes are skipped.
    pub(super) fn records_in(&self, pm: &impl Medium, chunk: u32) -> Result<Vec<(u64, u64)>> {
        let epoch = ChunkWord::unpack(self.word(pm, chunk)?.load(pm, Acquire)).epoch;
        let (mut offset, mut records) = (0, Vec::new());
        let room = self.chunk_bytes(pm, chunk);
        while offset + HEAD_BYTES as u64 <= self.chunk_bytes {
            let word = PayloadRef { chunk, epoch, offset }.pack();
            let at = u64::from(chunk) * self.chunk_bytes + offset;
            let bytes = self.whole_record(pm, at, word, room - offset)?;
            if let Some(bytes) = bytes {
                records.push((word, bytes));
            }
            offset += bytes.unwrap_or(UNIT_BYTES);
        }
        Ok(records)
    }

    fn whole_record(&self, pm: &impl Medium, at: u64, word: u64, room: u64) -> Result<Option<u64>> {
        // SAFETY: the chunk is full and the caller's: nobody writes to it.
        let Some(head) = (unsafe { pm.read_bytes(&self.region, at, HEAD_BYTES) }) else {
            return Ok(None);
        };
        let [key, value] = lengths(head);
        let bytes = stored_bytes(key, value);
        if bytes > room {
            return Ok(None);
        }
        let payload = self.read(pm, word)?;
        Ok(payload.filter(|payload| self.is_record(pm, at, word, payload)).map(|_| bytes))
    }

    /// Frees a chunk that nothing needed refers to, durably, or the run that begins with it. It is used again when
    /// everybody has left.
    pub(super) fn release(&self, pm: &impl Medium, guard: &Guard<'_>, chunk: u32) -> Result<()> {
        let cell = self.word(pm, chunk)?;
        let epoch = ChunkWord::unpack(cell.load(pm, Acquire)).epoch + 1;
        // Durable when the chunk is taken (Y1); those that continue it stay as they are (Y5).
        cell.store(pm, ChunkWord { epoch, used: false, continues: false }.pack(), Release);
        let mut space = lock(pm, &self.space);
        space.next_patience = 0;
        let run = space.runs.remove(&chunk).unwrap_or(1);
        // A run whose first chunk is never taken again is not, either.
        if epoch < LAST_EPOCH {
            let returned = Arc::clone(&self.returned);
            // The holder of this mutex only takes them out.
            guard.retire(move || unwaiting(&returned).extend(chunk..chunk + run));
        }
        Ok(())
    }

    /// Frees all chunks: the table is empty. Nobody writes.
    pub(super) fn release_all(&self, pm: &impl Medium) -> Result<()> {
        let guard = self.pin();
        loop {
            let chunk = {
                let mut space = lock(pm, &self.space);
                let current = space.current.take().map(|(chunk, _)| chunk);
                current.or_else(|| space.full.pop_front())
            };
            match chunk {
                Some(chunk) => self.release(pm, &guard, chunk)?,
                None => return Ok(()),
            }
        }
    }
}

fn word_at(head: &[u8], at: usize) -> u64 {
    head.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

/// The lengths of key and value.
fn lengths(head: &[u8]) -> [usize; 2] {
    let word = word_at(head, 0);
    [(word & u64::from(u32::MAX)) as usize, (word >> 32) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_and_chunk_words_survive_packing() {
        let place = PayloadRef {
            chunk: (1 << CHUNK_BITS) - 1,
            epoch: LAST_EPOCH - 1,
            offset: MAX_CHUNK_BYTES - UNIT_BYTES,
        };
        assert_eq!(PayloadRef::unpack(place.pack()), place);
        for (used, continues) in [(false, false), (true, false), (true, true)] {
            let word = ChunkWord { epoch: LAST_EPOCH, used, continues };
            assert_eq!(ChunkWord::unpack(word.pack()), word);
        }
    }
}
