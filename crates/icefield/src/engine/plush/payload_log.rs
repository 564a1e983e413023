//! The payload log (§4.3): keys and values that do not fit into a slot.
//!
//! Records are appended to a chunk until it is full; then the chunk does not change any more. The collection
//! (`collect`) looks up the keys of a chunk's records to find the needed ones, and moves these. A reference contains
//! the chunk's epoch, which is incremented when the chunk is freed: older references into the chunk are then invalid. A
//! record that is longer than a chunk gets a run of chunks for itself.
//!
//! A record holds its key as well as its value, also when it replaces another one: a search compares the key of the
//! newest record, and the collection of a chunk finds the owner of a record by the key next to it. If a record
//! borrowed the key of an older one, the chunk of the older one could not be freed. Key and value are written and
//! flushed in one piece, so that the key costs its bytes, but no further flush or fence.
//!
//! - Y1: a chunk's word in the map durably marks the chunk as used before anything is written to the chunk. The word
//!   marks it as free only after all needed records have durably moved. The word of a free chunk need not be durable: a
//!   crash may show the chunk as used again, with its former records, because nothing is written to it before it is
//!   taken. The word must be durable before the chunk's space goes back to the file system.
//! - Y2: an epoch is never used twice. A chunk with the last epoch is not used again.
//! - Y3: a reader pins before it compares epochs. A chunk is written again only after all readers that were pinned when
//!   its epoch was incremented have left: a reader that found a reference to be current may read the record until it
//!   leaves.
//! - Y4: a reader that finds the epoch incremented also finds the newer record of that key, or its validation fails:
//!   the version of the root entry changes in between (`collect`).
//! - Y5: the first chunk of a freed run is taken before the others, or together with them. So the record of the run is
//!   whole as long as a crash can show the first chunk as used. Therefore chunks are taken from the lowest on. The
//!   words of the other chunks still mark them as continuing the first one, and these chunks are free if the first one
//!   is. If the first one is then used again alone, a crash may show it and the others as one run. Before space is
//!   given back, the words of all free chunks become durable; so do they before the first chunk without space is passed
//!   over. So if the first chunk of a run has lost its space, the other chunks may be taken in any order.
//! - Y6: borrowed bytes are never written, whatever the files contain. DRAM holds for each chunk how far it is written
//!   ([`ChunkState::limit`]); a chunk is written from its start on, by the thread that holds the mutex of its lane. A
//!   reference is valid only with the chunk's present epoch, and only if all its bytes are written. They are not written
//!   again before the chunk is taken again, which is after the readers have left (Y3). A chunk that the files show as
//!   used when a table is opened takes no more records: its limit is its end. The limit of a free chunk, and of one that
//!   continues another, is not used, because no reference matches their state. Even wrong references, for example to
//!   bytes that are not a record, lend only bytes that do not change.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::base::counter::ShardedCounter;
use crate::base::hash::{Hash, HashKind};
use crate::base::reclaim::{Guard, Reclaimer};
use crate::engine::exclusion::{lock, try_lock};
use crate::storage::{Cell64, Medium, Region};
use crate::{Error, Result};

use self::chunks::{CHUNK_BITS, ChunkState, Chunks, UNIT_BYTES};
pub(super) use self::chunks::{MAX_CHUNK_BYTES, PayloadRef};
pub(super) use self::collection::{Collection, Count, Known, Round};
pub(super) use self::hints::HINTED_AHEAD;
use self::lanes::Lanes;
use self::state::Space;
pub(super) use self::state::{Purpose, SPARE};

mod chunks;
mod collection;
mod hints;
mod lanes;
mod mend;
mod space;
mod state;

/// Bytes of a record before its key.
const HEAD_BYTES: usize = 24;
/// Bytes of the map for each chunk.
const WORD_BYTES: u64 = size_of::<Cell64>() as u64;

pub(super) struct PayloadLog {
    region: Region,
    map: Region,
    chunk_bytes: u64,
    /// `true` if reads verify checksums.
    verifies: bool,
    reclaimer: Arc<Reclaimer>,
    chunks: Chunks,
    lanes: Lanes,
    space: Mutex<Space>,
    /// Free chunks that all readers have left.
    returned: Arc<Mutex<Vec<u32>>>,
    /// Chunks taken for writes since the last step of the collection.
    taken: AtomicU32,
    /// Bytes and records that this session has written.
    bytes: ShardedCounter,
    records: ShardedCounter,
    /// The average length of the records that this session has written, updated at each new chunk; 0 before the first
    /// chunk is full. For prefetches.
    usual_bytes: AtomicU32,
    /// Held by the thread that collects.
    collection: Mutex<Collection>,
}

/// The contents of a record.
pub(super) struct Payload<'a> {
    pub(super) hash: u64,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

impl Payload<'_> {
    fn stored_bytes(&self) -> u64 {
        stored_bytes(self.key.len(), self.value.len())
    }

    /// The part that must be kept: for a removal only the key.
    pub(super) fn needed(&self, dead: bool) -> Self {
        Self { value: if dead { &[] } else { self.value }, ..*self }
    }

    /// Bytes of [`Payload::needed`] in the log.
    pub(super) fn needed_bytes(&self, dead: bool) -> u64 {
        self.needed(dead).stored_bytes()
    }
}

/// The bytes of a record that is written, but not flushed.
#[must_use]
pub(super) struct Unflushed {
    at: u64,
    bytes: u64,
}

/// A record as it is stored in the log.
struct Stored<'a> {
    head: &'a [u8],
    content: &'a [u8],
    key: usize,
}

/// Bytes that a record takes in the log.
fn stored_bytes(key: usize, value: usize) -> u64 {
    ((HEAD_BYTES + key + value) as u64).next_multiple_of(UNIT_BYTES)
}

/// The hash function of the checksums. Its seed is public: checksums detect accidents, not attacks.
struct Seal(Hash);

impl Seal {
    fn new() -> Self {
        Self(Hash::new(HashKind::Strong, [0x504C_5553, 0x5041_594C]))
    }

    fn of_content(&self, content: &[u8]) -> u64 {
        self.0.bytes(content)
    }

    fn of_place(&self, word: u64, lengths: u64) -> u64 {
        self.0.word(word ^ lengths.rotate_left(32))
    }
}

/// Computes the checksum of a record at its place.
pub fn checksum(word: u64, hash: u64, lengths: u64, content: &[u8]) -> u64 {
    let seal = Seal::new();
    seal.of_content(content) ^ seal.of_place(word, lengths).wrapping_add(hash)
}

impl<'a> Stored<'a> {
    fn payload(&self) -> Payload<'a> {
        let (key, value) = self.content.split_at(self.key);
        Payload { hash: word_at(self.head, 8), key, value }
    }

    /// Returns whether the checksum is that of a record at this place.
    fn is_whole(&self, word: u64) -> bool {
        let [lengths, hash, sum] = [0, 8, 16].map(|at| word_at(self.head, at));
        checksum(word, hash, lengths, self.content) == sum
    }
}

impl PayloadLog {
    /// Creates or opens the log. For existing chunks, [`PayloadLog::resume`] must follow. With `verifies`, every read
    /// verifies the checksum of its record.
    pub(super) fn open(
        storage: &impl Medium,
        chunk_bytes: u64,
        max_bytes: u64,
        verifies: bool,
    ) -> Result<Self> {
        let chunk_bytes = chunk_bytes.min(MAX_CHUNK_BYTES);
        let chunks = max_bytes.div_ceil(chunk_bytes).min(1 << CHUNK_BITS);
        Ok(Self {
            region: storage.region_with_holes("payload.ice", max_bytes)?,
            map: storage.region("payloadmap.ice", (chunks * WORD_BYTES).next_multiple_of(4096))?,
            chunk_bytes,
            verifies,
            reclaimer: Arc::new(Reclaimer::with_batch(1)),
            chunks: Chunks::default(),
            lanes: Lanes::default(),
            space: Mutex::default(),
            returned: Arc::default(),
            taken: AtomicU32::new(0),
            bytes: ShardedCounter::default(),
            records: ShardedCounter::default(),
            usual_bytes: AtomicU32::new(0),
            collection: Mutex::new(Collection::of_empty()),
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.region.len() + self.map.len()
    }

    /// Pins the thread: while the guard exists, chunks that can be reached now are not written again.
    #[inline]
    pub(super) fn pin(&self) -> Guard<'_> {
        self.reclaimer.pin()
    }

    pub(super) fn lock_collection(&self, storage: &impl Medium) -> MutexGuard<'_, Collection> {
        lock(storage, &self.collection)
    }

    fn word(&self, storage: &impl Medium, chunk: u32) -> Result<&Cell64> {
        let offset = u64::from(chunk) * WORD_BYTES;
        self.map.get(storage, offset, "the chunk's word")
    }

    /// Returns whether steps of the collection are due: one for each chunk that writes have taken.
    #[inline]
    pub(super) fn is_step_due(&self) -> bool {
        // Relaxed: the count decides only about space.
        self.taken.load(Relaxed) > 0
    }

    /// Locks the collection, and returns the number of steps that are due. Waits for another thread's steps only if
    /// more than `patience` are due.
    pub(super) fn lock_steps(
        &self,
        storage: &impl Medium,
        patience: u32,
    ) -> Option<(MutexGuard<'_, Collection>, u32)> {
        // Relaxed, both: as in `is_step_due`.
        let collection = match self.taken.load(Relaxed) > patience {
            true => self.lock_collection(storage),
            false => try_lock(&self.collection)?,
        };
        Some((collection, self.taken.swap(0, Relaxed)))
    }

    /// Writes a record, flushed, and returns its reference. The record cannot be freed before [`PayloadLog::finish`].
    pub(super) fn write(
        &self,
        storage: &impl Medium,
        hash: u64,
        content: (&[u8], &[u8]),
        purpose: Purpose,
    ) -> Result<u64> {
        let (word, unflushed) = self.append(storage, hash, content, purpose)?;
        self.flush(storage, unflushed);
        Ok(word)
    }

    /// Flushes a record, once, before a fence makes it durable.
    pub(super) fn flush(&self, storage: &impl Medium, Unflushed { at, bytes }: Unflushed) {
        storage.flush_range(&self.region, at, bytes);
    }

    /// Does the same as [`PayloadLog::write`] without the flush.
    pub(super) fn append(
        &self,
        storage: &impl Medium,
        hash: u64,
        (key, value): (&[u8], &[u8]),
        purpose: Purpose,
    ) -> Result<(u64, Unflushed)> {
        let bytes = stored_bytes(key.len(), value.len());
        let lengths = key.len() as u64 | (value.len() as u64) << 32;
        let mut record = Vec::with_capacity(bytes as usize);
        record.extend_from_slice(&lengths.to_le_bytes());
        record.extend_from_slice(&hash.to_le_bytes());
        record.extend_from_slice(&[0; 8]);
        record.extend_from_slice(key);
        record.extend_from_slice(value);
        let (lane, place) = self.reserve(storage, bytes, purpose)?;
        let (word, at) = (place.pack(), self.offset_of(place));
        let sum = checksum(word, hash, lengths, &record[HEAD_BYTES..]);
        record[16..24].copy_from_slice(&sum.to_le_bytes());
        // SAFETY: the range belongs to this thread while it holds the lane, and is not below the chunk's limit (Y6). No
        // pinned reader can have a reference into the chunk from the chunk's former use (Y3).
        let write = || unsafe { storage.write_bytes(&self.region, at, &record) };
        if purpose == Purpose::Move && storage.fence_syncs() {
            // Visible before it is durable: the original stays until the next `fence_deferred` (R3).
            storage.store_copy(write);
        } else {
            write();
        }
        let state = self.chunks.state(storage, place.chunk);
        self.chunks.set(storage, place.chunk, ChunkState { limit: place.offset + bytes, ..state });
        // Before any flush, because a locked instruction after a flush would wait for the flushed lines.
        drop(lane);
        Ok((word, Unflushed { at, bytes: record.len() as u64 }))
    }

    fn offset_of(&self, place: PayloadRef) -> u64 {
        u64::from(place.chunk) * self.chunk_bytes + place.offset
    }

    /// Counts a record of the chunk as no longer pending: a slot refers to the record, or none ever will.
    #[inline]
    pub(super) fn finish(&self, chunk: u32) {
        if let Some(chunk) = self.chunks.get(chunk) {
            // Release: pairs with the Acquire in `is_settled`; the slot refers to the record.
            chunk.pending.fetch_sub(1, Release);
        }
    }

    /// Returns whether no record of a full chunk is pending.
    fn is_settled(&self, chunk: u32) -> bool {
        // Acquire: pairs with the Release in `finish`.
        self.chunks.get(chunk).is_some_and(|chunk| chunk.pending.load(Acquire) == 0)
    }

    /// Reads the record of a reference; `None` when its chunk has been freed since.
    ///
    /// The caller is pinned. If the reference is not from a slot or a log, the bytes may be anything.
    #[inline]
    pub(super) fn read<'a>(
        &'a self,
        storage: &'a impl Medium,
        word: u64,
    ) -> Result<Option<Payload<'a>>> {
        let Some((place, limit)) = self.current(storage, word) else { return Ok(None) };
        self.stored(storage, place, limit).map(|stored| Some(stored.payload()))
    }

    /// Does the same as [`PayloadLog::read`], but verifies the record if `verifies` is set, and returns `None` instead
    /// of an error. After `None` the caller searches again.
    #[inline(always)]
    pub(super) fn try_read<'a>(
        &'a self,
        storage: &'a impl Medium,
        word: u64,
    ) -> Option<Payload<'a>> {
        let (place, limit) = self.current(storage, word)?;
        let stored = self.try_stored(storage, place, limit)?;
        (!self.verifies || stored.is_whole(word)).then(|| stored.payload())
    }

    /// Reads the record of a reference that was current according to [`PayloadLog::is_current`] at some time since
    /// the caller was pinned. Its chunk may have been freed since, but is not written again (Y3).
    #[inline(always)]
    pub(super) fn read_found<'a>(
        &'a self,
        storage: &'a impl Medium,
        word: u64,
    ) -> Result<Payload<'a>> {
        let stored = self.stored_at(storage, word)?;
        if self.verifies && !stored.is_whole(word) {
            return Err(self.damaged(storage, PayloadRef::unpack(word)));
        }
        Ok(stored.payload())
    }

    /// The key of the record that [`PayloadLog::read_found`] reads, without verification: records also move when they
    /// are damaged.
    #[inline]
    pub(super) fn key_found<'a>(&'a self, storage: &'a impl Medium, word: u64) -> Result<&'a [u8]> {
        Ok(self.stored_at(storage, word)?.payload().key)
    }

    #[inline(always)]
    fn stored_at<'a>(&'a self, storage: &'a impl Medium, word: u64) -> Result<Stored<'a>> {
        let place = PayloadRef::unpack(word);
        self.stored(storage, place, self.chunks.state(storage, place.chunk).limit)
    }

    /// With `verifies`, fails if the record of a current reference is damaged: its key may not be the original one.
    #[inline]
    pub(super) fn verify(&self, storage: &impl Medium, word: u64) -> Result<()> {
        if self.verifies { self.read_found(storage, word).map(|_| ()) } else { Ok(()) }
    }

    #[cold]
    fn damaged(&self, storage: &impl Medium, place: PayloadRef) -> Error {
        self.region.fault(storage, self.offset_of(place), "the record's checksum is wrong")
    }

    /// Reads the record at a place of a chunk that is written up to `limit`.
    #[inline(always)]
    fn stored<'a>(
        &'a self,
        storage: &'a impl Medium,
        place: PayloadRef,
        limit: u64,
    ) -> Result<Stored<'a>> {
        self.try_stored(storage, place, limit).ok_or_else(|| self.no_record(storage, place, limit))
    }

    /// The record at a place of a chunk that is written up to `limit`; `None` if it is not wholly there.
    #[inline(always)]
    fn try_stored<'a>(
        &'a self,
        storage: &'a impl Medium,
        place: PayloadRef,
        limit: u64,
    ) -> Option<Stored<'a>> {
        let at = self.offset_of(place);
        let end = place.offset + HEAD_BYTES as u64;
        if end > limit {
            return None;
        }
        // SAFETY: the bytes are below the limit of their chunk. They were written before the limit was stored (E10), or
        // before the table was opened, and the chunk is not written again before this thread, which was pinned when the
        // epochs were equal, has left (Y3, Y6).
        let head = unsafe { storage.read_bytes(&self.region, at, HEAD_BYTES) }?;
        storage.read_soon(head.as_ptr(), HEAD_BYTES);
        let [key, value] = lengths(head);
        if end + key as u64 + value as u64 > limit {
            return None;
        }
        // SAFETY: as above.
        let content =
            unsafe { storage.read_bytes(&self.region, at + HEAD_BYTES as u64, key + value) }?;
        storage.read_soon(content.as_ptr(), content.len());
        Some(Stored { head, content, key })
    }

    #[cold]
    fn no_record(&self, storage: &impl Medium, place: PayloadRef, limit: u64) -> Error {
        let (at, head) = (self.offset_of(place), HEAD_BYTES as u64);
        let is_in_file = |end: u64| end <= self.region.len();
        let detail = if place.offset + head > limit {
            "the reference leads to a place that was never written"
        } else if !is_in_file(at + head) {
            "the file ends before the record"
        } else if !is_in_file(at + limit - place.offset) {
            "the file ends inside the record"
        } else {
            "the record ends beyond the written part of its chunk"
        };
        self.region.fault(storage, at, detail)
    }

    /// Returns whether the chunk of a reference has not been freed since.
    #[inline]
    pub(super) fn is_current(&self, storage: &impl Medium, word: u64) -> bool {
        self.current(storage, word).is_some()
    }

    /// The place of a reference and the limit of its chunk, unless the chunk has been freed since.
    #[inline(always)]
    fn current(&self, storage: &impl Medium, word: u64) -> Option<(PayloadRef, u64)> {
        let place = PayloadRef::unpack(word);
        let state = self.chunks.state(storage, place.chunk);
        state.is_of(place).then_some((place, state.limit))
    }

    /// Describes the damage of a record, if any.
    pub(super) fn fault(&self, storage: &impl Medium, word: u64) -> Option<&'static str> {
        let Some((place, limit)) = self.current(storage, word) else {
            return Some("its payload's chunk was freed or reused");
        };
        match self.stored(storage, place, limit) {
            Ok(stored) if stored.is_whole(word) => None,
            Ok(_) => Some("its payload's checksum is wrong"),
            Err(_) => Some("its payload ends beyond the written part of its chunk"),
        }
    }

    pub(super) fn chunk_size(&self) -> u64 {
        self.chunk_bytes
    }

    /// The valid records of a full chunk, each as its reference and its number of bytes in the log. Holes from former
    /// crashes are skipped.
    pub(super) fn records_in(&self, storage: &impl Medium, chunk: u32) -> Vec<(u64, u64)> {
        let ChunkState { epoch, limit, .. } = self.chunks.state(storage, chunk);
        let (mut offset, mut records) = (0, Vec::new());
        while offset + HEAD_BYTES as u64 <= limit.min(self.chunk_bytes) {
            let place = PayloadRef { chunk, epoch, offset };
            // Bytes that are not a record may contain any length.
            let stored = self.stored(storage, place, limit).ok();
            let whole = stored.filter(|stored| stored.is_whole(place.pack()));
            let bytes = whole.map(|stored| stored.payload().stored_bytes());
            if let Some(bytes) = bytes {
                records.push((place.pack(), bytes));
            }
            offset += bytes.unwrap_or(UNIT_BYTES);
        }
        records
    }

    /// Returns whether there is a gap before or between the valid records of a chunk.
    pub(super) fn has_gaps(records: &[(u64, u64)]) -> bool {
        let mut end = 0;
        records.iter().any(|&(word, bytes)| {
            let begin = PayloadRef::unpack(word).offset;
            begin != std::mem::replace(&mut end, begin + bytes)
        })
    }
}

fn word_at(head: &[u8], at: usize) -> u64 {
    head.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

fn lengths(head: &[u8]) -> [usize; 2] {
    let word = word_at(head, 0);
    [(word & u64::from(u32::MAX)) as usize, (word >> 32) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sim::{Image, Pick, Sim, SimOptions};
    use crate::storage::{Bytes, Mapped, MappedOptions, Persist};

    fn log(storage: &Mapped, verifies: bool) -> PayloadLog {
        PayloadLog::open(storage, 1 << 12, 1 << 20, verifies).expect("space")
    }

    fn memory() -> Mapped {
        Mapped::anonymous(MappedOptions::default()).expect("memory")
    }

    #[test]
    fn only_what_is_written_can_be_read() {
        let storage = memory();
        let log = log(&storage, false);
        let _pin = log.pin();
        let word = log.write(&storage, 7, (b"key", b"value"), Purpose::Write).expect("space");
        let read =
            |word| log.read(&storage, word).map(|it| it.map(|it| (it.hash, it.key, it.value)));
        assert_eq!(read(word).expect("written"), Some((7, &b"key"[..], &b"value"[..])));
        let place = PayloadRef::unpack(word);
        let end = place.offset + stored_bytes(3, 5);
        assert_eq!(log.chunks.state(&storage, place.chunk).limit, end);
        let behind = PayloadRef { offset: end, ..place };
        assert!(matches!(read(behind.pack()), Err(Error::Corrupt { .. })));
        let (lane, unwritten) = log.reserve(&storage, 40, Purpose::Write).expect("space");
        assert_eq!(unwritten, behind);
        assert!(matches!(read(unwritten.pack()), Err(Error::Corrupt { .. })));
        drop(lane);
        let former = PayloadRef { epoch: 1, ..place };
        assert_eq!(read(former.pack()).expect("another epoch"), None);
        let elsewhere = PayloadRef { chunk: (1 << CHUNK_BITS) - 1, ..place };
        assert_eq!(read(elsewhere.pack()).expect("no chunk"), None);
    }

    #[test]
    fn threads_that_contend_write_to_different_chunks() {
        let storage = memory();
        let log = log(&storage, false);
        let _pin = log.pin();
        let write = || log.write(&storage, 7, (b"key", b"value"), Purpose::Write).expect("space");
        let chunk_of = |word| PayloadRef::unpack(word).chunk;
        let alone = [write(), write()].map(chunk_of);
        assert_eq!(alone[0], alone[1]);
        let (lane, place) = log.reserve(&storage, 40, Purpose::Write).expect("space");
        assert_eq!(place.chunk, alone[0]);
        let other = std::thread::scope(|scope| scope.spawn(write).join()).expect("it has ended");
        assert_ne!(chunk_of(other), alone[0]);
        drop(lane);
        let usage = log.usage(&storage);
        assert_eq!((usage.chunks, usage.records), (2, 4));
        log.release_all(&storage).expect("free");
        assert_eq!(log.usage(&storage).chunks, 0);
    }

    /// Former versions took another chunk of a freed run for another record, although a crash could still show the
    /// first one as used.
    #[test]
    fn chunks_without_space_are_durably_free_before_others_are_taken() {
        let sim = Sim::new(SimOptions { counting: true, ..SimOptions::default() });
        let log = PayloadLog::open(&sim, 1 << 12, 1 << 20, false).expect("space");
        let write = |bytes: usize| {
            let word = log.write(&sim, 7, (b"key", &vec![7; bytes]), Purpose::Write);
            sim.try_fence().expect("it cannot fail");
            PayloadRef::unpack(word.expect("space")).chunk
        };
        // The word of the ninth chunk is in another line than that of the first.
        let first = write(9 * (1 << 12) - 1_000);
        log.release(&sim, &log.pin(), first).expect("it exists");
        log.pin().flush();
        let start = u64::from(first) << 12;
        sim.lose_space(&log.region, start..start + (8 << 12));
        let before = sim.counters().fences;
        let second = write(100);
        assert_eq!(second, first + 8, "the first chunk with space");
        // One for all chunks that are passed over, one for the chunk that is taken, and that of `write`.
        assert_eq!(sim.counters().fences - before, 3);
        let mut image = Image::default();
        sim.crash_point(|point| point.space().image(Pick::AllOld, &mut image));
        let map = image.region("payloadmap.ice").expect("it was created");
        let word = |chunk: u32| {
            let at = chunk as usize * WORD_BYTES as usize;
            let bytes = map[at..at + 8].try_into().expect("8 bytes");
            chunks::ChunkWord::unpack(u64::from_le_bytes(bytes))
        };
        assert_eq!([word(first).used, word(second).used], [false, true]);
    }

    #[test]
    fn closed_lanes_can_be_collected() {
        let storage = memory();
        let log = log(&storage, false);
        let _pin = log.pin();
        let write = || log.write(&storage, 7, (b"key", b"value"), Purpose::Write).expect("space");
        let chunk_of = |word| PayloadRef::unpack(word).chunk;
        let (lane, place) = log.reserve(&storage, 40, Purpose::Write).expect("space");
        let other = std::thread::scope(|scope| scope.spawn(write).join()).expect("it has ended");
        drop(lane);
        log.finish(chunk_of(other));
        assert_eq!(log.full(&storage), []);
        log.close_lanes(&storage);
        assert_eq!(log.full(&storage), [(chunk_of(other), 1)]);
        assert_eq!(chunk_of(write()), place.chunk, "there is one lane again");
    }

    #[test]
    fn a_full_log_uses_the_room_of_every_lane() {
        let storage = memory();
        let log = log(&storage, false);
        let _pin = log.pin();
        let value = [7; 100];
        let write = || log.write(&storage, 7, (b"key", &value), Purpose::Write);
        let (lane, _) = log.reserve(&storage, 40, Purpose::Write).expect("space");
        std::thread::scope(|scope| scope.spawn(write).join()).expect("ended").expect("space");
        drop(lane);
        let mut written = 0;
        while write().is_ok() {
            written += 1;
        }
        let each = (1 << 12) / stored_bytes(3, 100);
        assert_eq!(written, ((1 << 20) / (1 << 12) - 1) * each - 2, "one chunk is spare");
    }

    #[test]
    fn a_changed_length_stays_within_what_is_written() {
        let storage = memory();
        let log = log(&storage, false);
        let _pin = log.pin();
        let word = log.write(&storage, 7, (b"key", b"value"), Purpose::Write).expect("space");
        let at = log.offset_of(PayloadRef::unpack(word));
        for len in [6_u32, 4_000, 1 << 20, u32::MAX] {
            // SAFETY: nothing else reads or writes it.
            unsafe { storage.write_bytes(&log.region, at + 4, &len.to_le_bytes()) };
            assert!(matches!(log.read(&storage, word), Err(Error::Corrupt { .. })), "{len}");
        }
    }

    #[test]
    fn verified_reads_notice_a_changed_byte() {
        for verifies in [false, true] {
            let storage = memory();
            let log = log(&storage, verifies);
            let _pin = log.pin();
            let word = log.write(&storage, 7, (b"key", b"value"), Purpose::Write).expect("space");
            log.verify(&storage, word).expect("as written");
            let at = log.offset_of(PayloadRef::unpack(word)) + HEAD_BYTES as u64;
            // SAFETY: nothing else reads or writes it.
            unsafe { storage.write_bytes(&log.region, at + 4, b"X") };
            assert_eq!(log.read_found(&storage, word).is_err(), verifies);
            assert_eq!(log.verify(&storage, word).is_err(), verifies);
        }
    }
}
