//! Journals: the new contents of entries that are compacted or split. Once a journal is durable, a crash may leave its
//! entry in any state, because opening repeats the change.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard};

use super::layout::{EntryId, JOURNALS, Journal, MAX_RECORDS, Shape, Widths, journal_bytes};
use super::moving::MovingOf;
use super::words::{Measure, RecordOf};
use crate::Result;
use crate::base::hash::{Hash, HashKind};
use crate::engine::exclusion::lock;
use crate::storage::{Cell64, Medium, Region};
use crate::types::RecordForm;

pub(super) struct Journals<R> {
    region: Region,
    /// One for each journal.
    locks: [Mutex<()>; JOURNALS],
    measure: Measure<R>,
    /// The number of records that an entry can hold.
    room: usize,
}

/// A journal on the medium.
pub(super) struct JournalRef<'a, R> {
    head: &'a Journal,
    /// The words of the records, one record after the other.
    words: &'a [Cell64],
    measure: Measure<R>,
}

/// The new contents of an entry.
pub(super) struct Contents<R: RecordForm> {
    pub(super) entry: EntryId,
    pub(super) records: Vec<RecordOf<R>>,
    /// The other leaf of a split, and its new number of records.
    pub(super) other: Option<(EntryId, usize)>,
}

/// Returns the bytes of all journals.
pub(super) fn journals_bytes(widths: Widths) -> u64 {
    JOURNALS as u64 * journal_bytes(widths)
}

impl<R: RecordForm> Journals<R> {
    pub(super) fn new(region: Region, shape: Shape, measure: Measure<R>) -> Self {
        let locks = std::array::from_fn(|_| Mutex::new(()));
        Self { region, locks, measure, room: shape.records() }
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Takes a journal that no other thread uses.
    pub(super) fn take<'a>(
        &'a self,
        storage: &impl Medium,
    ) -> Result<(JournalRef<'a, R>, MutexGuard<'a, ()>)> {
        let mut locks = self.locks.iter().enumerate();
        let free = locks.find_map(|(number, lock)| Some((number, lock.try_lock().ok()?)));
        let (number, guard) = free.unwrap_or_else(|| (0, lock(storage, &self.locks[0])));
        Ok((self.at(storage, number)?, guard))
    }

    /// Returns the journals that were not ended, and what they contain.
    pub(super) fn unfinished(
        &self,
        storage: &impl Medium,
    ) -> Result<Vec<(JournalRef<'_, R>, Contents<R>)>> {
        let mut unfinished = Vec::new();
        for number in 0..JOURNALS {
            let journal = self.at(storage, number)?;
            if let Some(contents) = journal.read(storage, self.room) {
                unfinished.push((journal, contents));
            }
        }
        Ok(unfinished)
    }

    fn at(&self, storage: &impl Medium, number: usize) -> Result<JournalRef<'_, R>> {
        let widths = self.measure.widths();
        let offset = number as u64 * journal_bytes(widths);
        let head = self.region.get(storage, offset, "a journal")?;
        let after = offset + size_of::<Journal>() as u64;
        let count = MAX_RECORDS * widths.words();
        let words = self.region.get_slice(storage, after, count, "a journal's words")?;
        Ok(JournalRef { head, words, measure: self.measure })
    }
}

impl<R: RecordForm> JournalRef<'_, R> {
    /// Stores the new contents of an entry, and of the other leaf if the entry is split. They are durable after the
    /// next fence.
    pub(super) fn write(
        &self,
        storage: &impl Medium,
        entry: EntryId,
        records: &[MovingOf<R>],
        other: Option<(EntryId, usize)>,
    ) {
        let &Self { head, words, measure } = self;
        let other =
            other.map_or(0, |(leaf, size)| (size as u64) << u32::BITS | u64::from(leaf.pack()));
        head.entry.store(storage, entry.pack().into(), Relaxed);
        head.records.store(storage, records.len() as u64, Relaxed);
        head.other.store(storage, other, Relaxed);
        for (slot, moving) in words.chunks_exact(measure.widths().words()).zip(records) {
            measure.each_word(&moving.record, |at, word| slot[at].store(storage, word, Relaxed));
        }
        for (number, word) in head.dead.iter().enumerate() {
            let bits = (0..64).map(|bit| {
                let moving = records.get(number * 64 + bit);
                u64::from(moving.is_some_and(|moving| moving.record.dead)) << bit
            });
            word.store(storage, bits.sum(), Relaxed);
        }
        let seal = self.seal(entry, records.iter().map(|moving| moving.record), other);
        head.seal.store(storage, seal, Release);
        storage.flush_object(head);
        let words = &words[..records.len() * measure.widths().words()];
        storage.flush(words.as_ptr().cast(), size_of_val(words));
    }

    /// Ends the journal, durably.
    pub(super) fn end(&self, storage: &impl Medium) -> Result<()> {
        self.head.seal.store(storage, 0, Release);
        storage.try_persist(&self.head.seal)
    }

    /// Ends the journal; durable after the next fence.
    pub(super) fn end_unfenced(&self, storage: &impl Medium) {
        self.head.seal.store(storage, 0, Release);
        storage.flush_object(&self.head.seal);
    }

    /// Reads the contents; `None` if the journal was ended, or is torn. `room` is the number of records that an entry
    /// can hold.
    fn read(&self, storage: &impl Medium, room: usize) -> Option<Contents<R>> {
        let &Self { head, words, measure } = self;
        let sealed = head.seal.load(storage, Acquire);
        let count = head.records.load(storage, Relaxed);
        if sealed == 0 || count > room as u64 {
            return None;
        }
        let entry = EntryId::unpack(head.entry.load(storage, Relaxed) as u32);
        let slots = words.chunks_exact(measure.widths().words()).take(count as usize);
        let record = |(at, slot): (usize, &[Cell64])| {
            let dead = head.dead[at / 64].load(storage, Relaxed) >> (at % 64) & 1 == 1;
            measure.record(dead, |word| slot[word].load(storage, Relaxed))
        };
        let records: Vec<_> = slots.enumerate().map(record).collect();
        let other = head.other.load(storage, Relaxed);
        let size = (other >> u32::BITS) as usize;
        let fits = self.seal(entry, records.iter().copied(), other) == sealed && size <= room;
        let other = (size > 0).then(|| (EntryId::unpack(other as u32), size));
        fits.then_some(Contents { entry, records, other })
    }

    /// Returns the checksum of a journal's contents; never 0.
    fn seal(
        &self,
        entry: EntryId,
        records: impl ExactSizeIterator<Item = RecordOf<R>>,
        other: u64,
    ) -> u64 {
        let record_bytes = self.measure.widths().words() * size_of::<u64>() + 1;
        let mut bytes = Vec::with_capacity(16 + records.len() * record_bytes);
        bytes.extend_from_slice(&u64::from(entry.pack()).to_le_bytes());
        bytes.extend_from_slice(&other.to_le_bytes());
        for record in records {
            self.measure.each_word(&record, |_, word| bytes.extend_from_slice(&word.to_le_bytes()));
            bytes.push(record.dead.into());
        }
        // The seed of the hash is public, because the seal only has to detect torn journals.
        Hash::new(HashKind::Strong, [0x504C_5553, 0x4A4F_5552]).bytes(&bytes).max(1)
    }
}
