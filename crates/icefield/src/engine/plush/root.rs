//! The root (§4.1): the level in DRAM, which receives every write first. Its locks are in `root_lock`.
//!
//! An entry's records are appended, the newest last. The records of one migration are removed all at once, after the
//! last of them has been copied to level 1. The records in the levels for the hashes of an entry change only under the
//! lock of the entry.

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use super::epoch::LogEpoch;
use super::layout::{LINE_WORDS, MAX_BUCKETS, MAX_LOG_CHUNKS, MAX_RECORDS, Shape};
use super::moving::{Departing, Underway};
use super::requests::Asked;
use super::unseen::Unseen;
use super::words::{Measure, RecordOf};
use crate::base::group::Isa;
use crate::base::memory::ZeroedArray;
use crate::base::pipeline::{prefetch_read, prefetch_write};
use crate::types::RecordForm;

/// The work that remains below a root entry before its next migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relief {
    /// Work may remain.
    NotYet = 0,
    /// No work remains, or a step of it has failed.
    Room = 1,
    /// No work remains, and all records that level 1 has for the entry are in the entry as well.
    Empty = 2,
}

/// The records of a root entry that have the fingerprint of a hash.
#[derive(Clone, Copy)]
pub(super) struct Suspects {
    /// The number of the newest one.
    pub(super) newest: u8,
    pub(super) are_several: bool,
}

pub(super) struct RootTable<R> {
    measure: Measure<R>,
    heads: Box<[Head]>,
    /// One byte a record.
    fingerprints: ZeroedArray<AtomicU64>,
    slots: ZeroedArray<AtomicU64>,
    /// On disks only: what windows have added to each entry and not made durable yet.
    unseen: Box<[Unseen]>,
    /// Number of records for which an entry has room.
    records: usize,
    /// Number of words with an entry's fingerprints, whole lines.
    words: usize,
}

#[derive(Default)]
#[repr(align(64))]
struct Head {
    /// `root_lock`.
    lock: AtomicU32,
    size: AtomicU32,
    /// The epoch of the entry's next log records.
    epoch: AtomicU64,
    dead: [AtomicU64; MAX_RECORDS / 64],
    /// [`UNLOGGED`], [`HALFWAY`].
    marks: AtomicU8,
    /// [`Relief`].
    relieved: AtomicU8,
    /// Number of records, from the first one on, that are also in level 1.
    moved: AtomicU16,
    /// [`Departing`]; 0 records if there is none.
    departing: AtomicU16,
    departing_place: AtomicU8,
    /// The chunk of the log with the oldest record of a group, plus one; 0 if no record of the group is in the log. The
    /// first group is the departing records, or all records while none depart; the second is the records that came
    /// after the departing ones.
    oldest_chunks: [AtomicU8; 2],
    /// [`Underway`]; level 0 if there is none.
    underway_index: AtomicU32,
    underway_level: AtomicU8,
    underway_place: AtomicU8,
    /// [`Asked`].
    asked: AtomicU8,
}

const _: () = assert!(size_of::<Head>() == 64);

/// The entry has records that are in no log.
const UNLOGGED: u8 = 1;
/// A migration of the entry has failed after some targets had stored the epoch. Recovery takes the log's copies of
/// their records for arrived.
const HALFWAY: u8 = 2;

const _: () = assert!(MAX_LOG_CHUNKS < u8::MAX as usize);

/// The number of fingerprints in a line.
const LINE_BYTES: usize = 8 * LINE_WORDS;

#[inline]
fn fingerprint(hash: u64) -> u8 {
    (hash >> 8) as u8
}

impl<R: RecordForm> RootTable<R> {
    /// `fence_syncs` as of the medium.
    pub(super) fn new(shape: Shape, measure: Measure<R>, fence_syncs: bool) -> io::Result<Self> {
        let (entries, records) = (1_usize << shape.root_bits, shape.records());
        let unseen = if fence_syncs { entries } else { 0 };
        let words = records.div_ceil(LINE_BYTES) * LINE_WORDS;
        Ok(Self {
            measure,
            heads: (0..entries).map(|_| Head::default()).collect(),
            fingerprints: ZeroedArray::new(entries * words)?,
            slots: ZeroedArray::new(entries * records * measure.widths().words())?,
            unseen: (0..unseen).map(|_| Unseen::default()).collect(),
            records,
            words,
        })
    }

    pub(super) fn entries(&self) -> usize {
        self.heads.len()
    }

    /// Touches all memory, so that the first writes do not wait for pages.
    pub(super) fn populate(&self) {
        self.fingerprints.populate();
        self.slots.populate();
    }

    /// Bytes of DRAM.
    pub(super) fn bytes(&self) -> u64 {
        (size_of_val(&*self.heads)
            + size_of_val(&*self.fingerprints)
            + size_of_val(&*self.slots)
            + size_of_val(&*self.unseen)) as u64
    }

    /// The words of a record.
    #[inline(always)]
    fn slot(&self, entry: usize, at: usize) -> &[AtomicU64] {
        let words = self.measure.widths().words();
        &self.slots[(entry * self.records + at) * words..][..words]
    }

    /// The word with which an entry is locked.
    #[inline]
    pub(super) fn lock_word(&self, entry: usize) -> &AtomicU32 {
        &self.heads[entry].lock
    }

    /// What windows have added to an entry and readers do not see yet; `None` unless a fence is a sync.
    #[inline]
    pub(super) fn unseen(&self, entry: usize) -> Option<&Unseen> {
        self.unseen.get(entry)
    }

    /// Returns whether a window has added records that readers do not see. Called under the lock, or for an estimate.
    #[inline]
    pub(super) fn has_unseen(&self, entry: usize) -> bool {
        self.unseen(entry).is_some_and(Unseen::is_any)
    }

    /// Number of records, with those that readers do not see. Called under the lock, or for an estimate.
    #[inline]
    pub(super) fn added_size(&self, entry: usize) -> usize {
        // Wraps only without the lock, where the numbers may be of different times.
        self.size(entry).wrapping_add(self.unseen(entry).map_or(0, Unseen::records))
    }

    /// Returns whether an entry has room for a record behind those that readers do not see. Called under the lock, or
    /// for an estimate.
    #[inline]
    pub(super) fn has_room(&self, entry: usize) -> bool {
        self.added_size(entry) < self.records
    }

    /// Adds a record that readers do not see until `end_unseen`. Called under the lock, on disks only.
    pub(super) fn add_unseen(&self, entry: usize, hash: u64, record: RecordOf<R>) {
        self.store(entry, self.added_size(entry), fingerprint(hash), record);
        self.unseen[entry].add();
    }

    /// Notes that a window has added the last unseen records of an entry. Returns the number of records ever added, for
    /// `end_unseen`. Called under the lock, on disks only.
    pub(super) fn begin_unseen(&self, entry: usize) -> u64 {
        self.unseen[entry].begin()
    }

    /// Ends what `begin_unseen` has begun. If the window's fence has succeeded, shows readers all records that were
    /// added by then; the fence covers those of earlier windows. Otherwise they stay unseen, unless a later window shows
    /// them, and are dropped together with the last window. Called under any lock of the entry.
    pub(super) fn end_unseen(&self, entry: usize, until: u64, is_durable: bool) {
        let shown = self.unseen[entry].end(until, is_durable);
        let size = &self.heads[entry].size;
        // Release (E4): the linearization point of these writes.
        size.store(size.load(Relaxed) + shown as u32, Release);
    }

    /// Number of records that readers see.
    #[inline(always)]
    pub(super) fn size(&self, entry: usize) -> usize {
        // Acquire (E4): pairs with the Release in `push`; the records that the size counts are visible.
        self.heads[entry].size.load(Acquire) as usize
    }

    #[inline]
    pub(super) fn is_full(&self, entry: usize) -> bool {
        self.size(entry) == self.records
    }

    #[inline]
    pub(super) fn epoch(&self, entry: usize) -> LogEpoch {
        // Relaxed: called under the lock, or while no other thread changes the table.
        LogEpoch::of_bits(self.heads[entry].epoch.load(Relaxed))
    }

    /// Called under the lock, or before other threads can access the table.
    pub(super) fn set_epoch(&self, entry: usize, epoch: LogEpoch) {
        self.heads[entry].epoch.store(epoch.bits(), Relaxed);
    }

    /// Returns whether an entry needs the records that it has in `chunk`, the oldest chunk of its log.
    #[inline]
    pub(super) fn needs_chunk(&self, entry: usize, chunk: usize) -> bool {
        // Acquire (E5): pairs with the Release in `empty` and `drop_first`; the entry's former records are durable
        // below.
        let mut oldest = self.heads[entry].oldest_chunks.iter().map(|oldest| oldest.load(Acquire));
        oldest.any(|oldest| usize::from(oldest) == chunk + 1)
    }

    /// Notes that the next record is in this chunk of the entry's log. Called under the lock, or before other threads
    /// can access the table.
    #[inline(always)]
    pub(super) fn note_chunk(&self, entry: usize, chunk: usize) {
        let head = &self.heads[entry];
        // Relaxed, all: the thread that recycles the chunk waits until the record is in the root.
        let is_behind = usize::from(head.departing.load(Relaxed) > 0);
        let oldest = &head.oldest_chunks[is_behind];
        if oldest.load(Relaxed) == 0 {
            oldest.store(chunk as u8 + 1, Relaxed);
        }
    }

    pub(super) fn has_unlogged(&self, entry: usize) -> bool {
        // Relaxed: called under the lock, or for an estimate.
        self.heads[entry].marks.load(Relaxed) & UNLOGGED != 0
    }

    /// Notes that the next record is in no log. Called under the lock.
    pub(super) fn note_unlogged(&self, entry: usize) {
        self.mark(entry, UNLOGGED);
    }

    /// Returns whether a crash may leave some of an entry's records in level 1 only. Called under the lock.
    pub(super) fn is_halfway(&self, entry: usize) -> bool {
        self.heads[entry].marks.load(Relaxed) & HALFWAY != 0
    }

    /// Notes that a migration of an entry has failed after some targets had stored the epoch. Called under the lock.
    pub(super) fn note_halfway(&self, entry: usize) {
        self.mark(entry, HALFWAY);
    }

    fn mark(&self, entry: usize, mark: u8) {
        let marks = &self.heads[entry].marks;
        // Relaxed, both: under the lock.
        marks.store(marks.load(Relaxed) | mark, Relaxed);
    }

    /// Returns whether no work is left before the entry's next migration.
    #[inline]
    pub(super) fn is_relieved(&self, entry: usize) -> bool {
        // Relaxed: called under the lock.
        self.heads[entry].relieved.load(Relaxed) != Relief::NotYet as u8
    }

    /// Returns whether all records that level 1 has for the entry are in the entry as well.
    #[inline(always)]
    pub(super) fn is_sole(&self, entry: usize) -> bool {
        // Acquire (E6): pairs with the Release in `note_relief`; level 1 was empty then.
        self.heads[entry].relieved.load(Acquire) == Relief::Empty as u8
    }

    /// Notes what the helper is asked for, unless it was asked for that or more since the last call of `empty` or
    /// `drop_first`. Returns whether the request is new. Called under the lock.
    #[inline]
    pub(super) fn ask(&self, entry: usize, wanted: Asked) -> bool {
        let asked = &self.heads[entry].asked;
        let is_new = asked.load(Relaxed) < wanted as u8;
        if is_new {
            asked.store(wanted as u8, Relaxed);
        }
        is_new
    }

    /// Called under the lock.
    pub(super) fn forget_asked(&self, entry: usize) {
        self.heads[entry].asked.store(Asked::Nothing as u8, Relaxed);
    }

    /// Called under the lock.
    pub(super) fn note_relief(&self, entry: usize, relief: Relief) {
        self.heads[entry].relieved.store(relief as u8, Release);
    }

    /// Number of records of an entry, from the first one on, that are also in level 1.
    #[inline]
    pub(super) fn moved(&self, entry: usize) -> usize {
        // Relaxed: called under the lock.
        self.heads[entry].moved.load(Relaxed).into()
    }

    /// Called under the lock.
    pub(super) fn note_moved(&self, entry: usize, moved: usize) {
        self.heads[entry].moved.store(moved as u16, Relaxed);
    }

    /// The migration of the entry's first records, if one has begun.
    #[inline]
    pub(super) fn departing(&self, entry: usize) -> Option<Departing> {
        // Relaxed: called under the lock.
        let records = self.heads[entry].departing.load(Relaxed).into();
        let place = self.heads[entry].departing_place.load(Relaxed).into();
        (records > 0).then_some(Departing { records, place })
    }

    /// Called under the lock.
    pub(super) fn set_departing(&self, entry: usize, departing: Option<Departing>) {
        let Departing { records, place } = departing.unwrap_or(Departing { records: 0, place: 0 });
        // Relaxed: as in `departing`.
        self.heads[entry].departing.store(records as u16, Relaxed);
        self.heads[entry].departing_place.store(place as u8, Relaxed);
    }

    /// The migration of an entry of a level below, if one has begun.
    pub(super) fn underway(&self, entry: usize) -> Option<Underway> {
        let head = &self.heads[entry];
        // Relaxed: called under the lock.
        let level = head.underway_level.load(Relaxed).into();
        let index = head.underway_index.load(Relaxed).into();
        let place = head.underway_place.load(Relaxed).into();
        (level > 0).then_some(Underway { level, index, place })
    }

    /// Called under the lock.
    pub(super) fn set_underway(&self, entry: usize, underway: Option<Underway>) {
        let head = &self.heads[entry];
        let Underway { level, index, place } =
            underway.unwrap_or(Underway { level: 0, index: 0, place: 0 });
        head.underway_index.store(index as u32, Relaxed);
        head.underway_level.store(level as u8, Relaxed);
        head.underway_place.store(place as u8, Relaxed);
    }

    /// Appends a record to an entry that has room. Called under the lock. Readers see the record from here on.
    #[inline(always)]
    pub(super) fn push(&self, entry: usize, hash: u64, record: RecordOf<R>) {
        debug_assert!(!self.has_unseen(entry));
        let size = &self.heads[entry].size;
        let at = size.load(Relaxed) as usize;
        self.store(entry, at, fingerprint(hash), record);
        // Release (E4): the linearization point of every write.
        size.store(at as u32 + 1, Release);
    }

    #[inline(always)]
    fn store(&self, entry: usize, at: usize, fingerprint: u8, record: RecordOf<R>) {
        self.store_words(entry, at, &record);
        let fingerprints = &self.fingerprints[entry * self.words + at / 8];
        set_bits(fingerprints, at % 8 * 8, 0xFF, fingerprint.into());
        set_bits(&self.heads[entry].dead[at / 64], at % 64, 1, record.dead.into());
    }

    #[inline(always)]
    fn store_words(&self, entry: usize, at: usize, record: &RecordOf<R>) {
        let slot = self.slot(entry, at);
        self.measure.each_word(record, |word, content| match word {
            // Relaxed (E4): published by the size.
            0 => slot[0].store(content, Relaxed),
            // Release (E3): a reader that loaded the size before the slot's former record left may read this slot.
            _ => slot[word].store(content, Release),
        });
    }

    /// Turns a record into a removal. Called under the lock, while readers wait.
    pub(super) fn mark_dead(&self, entry: usize, at: usize) {
        set_bits(&self.heads[entry].dead[at / 64], at % 64, 1, 1);
    }

    /// Makes a record refer to another payload. Called under the lock.
    pub(super) fn redirect(&self, entry: usize, at: usize, payload: u64) {
        // Release (E3): pairs with the Acquire in `record`.
        self.slot(entry, at)[self.measure.widths().key].store(payload, Release);
    }

    /// Sorts the records of an entry by their target in level 1; records with the same target keep their order. Called
    /// under the lock, while readers wait.
    pub(super) fn sort(&self, entry: usize, place_of: impl Fn(RecordOf<R>) -> usize) {
        debug_assert!(!self.has_unseen(entry));
        let mut ends = [0_usize; MAX_BUCKETS];
        let all: Vec<_> = (0..self.size(entry))
            .map(|at| {
                let record = self.record(entry, at);
                let place = place_of(record);
                ends[place] += 1;
                (record, place)
            })
            .collect();
        let mut next = 0;
        for end in &mut ends {
            next += std::mem::replace(end, next);
        }
        let (mut fingerprints, mut dead) = ([0; MAX_RECORDS / 8], [0; MAX_RECORDS / 64]);
        for (at, &(record, place)) in all.iter().enumerate() {
            let to = ends[place];
            ends[place] += 1;
            self.store_words(entry, to, &record);
            fingerprints[to / 8] |= u64::from(self.fingerprint_at(entry, at)) << (to % 8 * 8);
            dead[to / 64] |= u64::from(record.dead) << (to % 64);
        }
        // Relaxed: readers wait until the lock word ends the change (E1). The words after the last record have no
        // meaning.
        let words = &self.fingerprints[entry * self.words..][..self.words];
        for (cell, word) in
            words.iter().zip(fingerprints).chain(self.heads[entry].dead.iter().zip(dead))
        {
            cell.store(word, Relaxed);
        }
    }

    #[inline]
    fn fingerprint_at(&self, entry: usize, at: usize) -> u8 {
        // Relaxed: called under the lock.
        (self.fingerprints[entry * self.words + at / 8].load(Relaxed) >> (at % 8 * 8)) as u8
    }

    /// Drops the first records of an entry, which have arrived below. Called under the lock, while readers wait.
    pub(super) fn drop_first(&self, entry: usize, records: usize) {
        debug_assert!(!self.has_unseen(entry));
        let size = self.size(entry);
        for at in records..size {
            let fingerprint = self.fingerprint_at(entry, at);
            self.store(entry, at - records, fingerprint, self.record(entry, at));
        }
        // Relaxed: readers wait until the lock word ends the change (E1).
        self.heads[entry].size.store((size - records) as u32, Relaxed);
        let [departed, next] = &self.heads[entry].oldest_chunks;
        // Release (E5): pairs with the Acquire in `needs_chunk`, which may load `departed` before these stores and
        // `next` after them. It still finds the log's oldest chunk: if the remaining records are in that chunk, so were
        // the departed ones, and the old value of `departed` names it.
        departed.store(next.load(Relaxed), Release);
        next.store(0, Release);
        let marks = &self.heads[entry].marks;
        marks.store(marks.load(Relaxed) & !HALFWAY, Relaxed);
        self.forget_asked(entry);
        self.note_moved(entry, 0);
        self.set_departing(entry, None);
        self.note_relief(entry, Relief::NotYet);
    }

    /// Drops all records of an entry, which have arrived below. Called under the lock, while readers wait.
    pub(super) fn empty(&self, entry: usize) {
        debug_assert!(!self.has_unseen(entry));
        self.heads[entry].size.store(0, Relaxed);
        // Release (E5): pairs with the Acquire in `needs_chunk`.
        self.heads[entry].oldest_chunks.iter().for_each(|oldest| oldest.store(0, Release));
        self.heads[entry].marks.store(0, Relaxed);
        self.forget_asked(entry);
        self.note_moved(entry, 0);
        self.set_departing(entry, None);
        self.set_underway(entry, None);
        self.note_relief(entry, Relief::NotYet);
    }

    /// The record at a place.
    #[inline(always)]
    pub(super) fn record(&self, entry: usize, at: usize) -> RecordOf<R> {
        let slot = self.slot(entry, at);
        let dead = self.heads[entry].dead[at / 64].load(Relaxed) >> (at % 64) & 1 == 1;
        self.measure.record(dead, |word| match word {
            // Relaxed (E4): the size was loaded before. If a change has replaced the record since, the validation
            // fails.
            0 => slot[0].load(Relaxed),
            // Acquire (E3): pairs with the Release in `store_words`; a reader follows the reference before it
            // validates.
            _ => slot[word].load(Acquire),
        })
    }

    /// The newest record that has the fingerprint of the hash and for which `holds` returns `true`.
    #[inline(always)]
    pub(super) fn newest<E>(
        &self,
        isa: impl Isa,
        entry: usize,
        hash: u64,
        mut holds: impl FnMut(RecordOf<R>) -> Result<bool, E>,
    ) -> Result<Option<RecordOf<R>>, E> {
        let size = self.size(entry);
        for line in (0..self.lines()).rev() {
            let mut found = self.found_in(isa, entry, line, hash, size);
            while let Some(bit) = found.checked_ilog2() {
                found &= !(1 << bit);
                let record = self.record(entry, line * LINE_BYTES + bit as usize);
                if holds(record)? {
                    return Ok(Some(record));
                }
            }
        }
        Ok(None)
    }

    /// Finds the records with the fingerprint of the hash among the first `size` ones, and prefetches them.
    #[inline(always)]
    pub(super) fn hint_newest(
        &self,
        isa: impl Isa,
        entry: usize,
        hash: u64,
        size: usize,
    ) -> Option<Suspects> {
        let mut suspects = None;
        for line in 0..self.lines() {
            let mut found = self.found_in(isa, entry, line, hash, size);
            while found != 0 {
                let newest = line * LINE_BYTES + found.trailing_zeros() as usize;
                prefetch_read(&self.slot(entry, newest)[0]);
                found &= found - 1;
                suspects = Some(Suspects { newest: newest as u8, are_several: suspects.is_some() });
            }
        }
        suspects
    }

    /// The lines of fingerprints of an entry. A search reads all of them: how many have records is not predictable.
    #[inline(always)]
    fn lines(&self) -> usize {
        self.words / LINE_WORDS
    }

    /// Returns a mask of the records in a line of fingerprints, of an entry with `size` records, that have the
    /// fingerprint of the hash. The last record of the line may have another fingerprint.
    #[inline(always)]
    fn found_in(&self, isa: impl Isa, entry: usize, line: usize, hash: u64, size: usize) -> u64 {
        let words = &self.fingerprints[entry * self.words + line * LINE_WORDS..];
        let Some(words) = words.first_chunk() else { return 0 };
        let counting = size.saturating_sub(line * LINE_BYTES).min(LINE_BYTES);
        let mask = u64::MAX.checked_shr((LINE_BYTES - counting) as u32).unwrap_or(0);
        isa.find_bytes(words, fingerprint(hash)) & mask
    }

    /// Prefetches the slot of the record that will be added after `more` others.
    #[inline]
    pub(super) fn prefetch_push(&self, entry: usize, more: usize) {
        // Relaxed: a hint only.
        let at = self.heads[entry].size.load(Relaxed) as usize + more;
        if at < self.records {
            prefetch_write(&self.slot(entry, at)[0]);
            let word = entry * self.words + at / 8;
            prefetch_write(&self.fingerprints[word]);
        }
    }

    /// Prefetches records of an entry.
    pub(super) fn prefetch_records(&self, entry: usize, records: Range<usize>) {
        let words = self.measure.widths().words();
        let first = (entry * self.records + records.start) * words;
        let all = &self.slots[first..][..records.len() * words];
        all.iter().step_by(LINE_WORDS).rev().for_each(|word| prefetch_read(word));
    }

    /// Prefetches an entry.
    #[inline]
    pub(super) fn prefetch(&self, entry: usize) {
        prefetch_read(&self.heads[entry]);
    }

    /// Prefetches an entry for a thread that will lock it.
    #[inline]
    pub(super) fn prefetch_to_write(&self, entry: usize) {
        prefetch_write(&self.heads[entry]);
    }

    /// Prefetches the fingerprints of an entry.
    #[inline(always)]
    pub(super) fn prefetch_fingerprints(&self, entry: usize) {
        let words = &self.fingerprints[entry * self.words..][..self.words];
        words.iter().step_by(LINE_WORDS).for_each(|word| prefetch_read(word));
    }
}

/// Replaces some bits of a word that only the holder of the lock changes.
#[inline]
fn set_bits(word: &AtomicU64, shift: usize, mask: u64, bits: u64) {
    // Relaxed (E4): published by the size.
    word.store(word.load(Relaxed) & !(mask << shift) | bits << shift, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::super::words::measure;
    use super::*;
    use crate::base::group::Native;
    use crate::types::{Forms, InWord, InWords};

    #[test]
    fn the_newest_of_equal_keys_is_found() {
        newest_is_found::<Forms<InWord, InWord>>();
        newest_is_found::<Forms<InWords<2>, InWords<8>>>();
    }

    fn newest_is_found<R: RecordForm>() {
        let shape = Shape { root_bits: 1, ..Shape::default() };
        let root = RootTable::<R>::new(shape, measure(), true).expect("memory");
        let isa = Native::default();
        let record = |key: u64, value: u64| {
            root.measure.record(value.is_multiple_of(3), |word| {
                let keys = root.measure.widths().key;
                if word < keys { key + word as u64 } else { value * (word - keys + 1) as u64 }
            })
        };
        for n in 0..256_u64 {
            root.push(1, n % 10 * 77, record(n % 10, n));
        }
        assert!(root.is_full(1) && root.size(0) == 0);
        for key in 0..10 {
            let newest = (0..256).rev().find(|n| n % 10 == key).expect("one of ten");
            let wanted = record(key, newest);
            let found = root.newest::<()>(isa, 1, key * 77, |record| Ok(record.key == wanted.key));
            assert_eq!(found, Ok(Some(wanted)));
        }
        root.drop_first(1, 250);
        assert_eq!(root.size(1), 6);
        for n in 250..256 {
            let wanted = record(n % 10, n);
            let found =
                root.newest::<()>(isa, 1, n % 10 * 77, |record| Ok(record.key == wanted.key));
            assert_eq!(found, Ok(Some(wanted)));
        }
        root.empty(1);
        assert_eq!(root.newest::<()>(isa, 1, 77, |_| Ok(true)), Ok(None));
    }

    #[test]
    fn unseen_records_are_shown_in_order_or_dropped_with_the_last_window() {
        let shape = Shape { root_bits: 1, ..Shape::default() };
        let root = RootTable::<Forms<InWord, InWord>>::new(shape, measure(), true).expect("memory");
        let record = |key: u64| root.measure.record(false, |_| key);
        let add = |keys: &[u64]| {
            keys.iter().for_each(|&key| root.add_unseen(1, key, record(key)));
            root.begin_unseen(1)
        };
        let state = || {
            let keys: Vec<_> = (0..root.size(1)).map(|at| root.record(1, at).key[0]).collect();
            (keys, root.added_size(1), root.has_unseen(1))
        };
        root.push(1, 1, record(1));
        let (first, second, third) = (add(&[2, 3]), add(&[4]), add(&[5]));
        assert_eq!(state(), (vec![1], 5, true));
        // The second fence covers the first one's records.
        root.end_unseen(1, second, true);
        assert_eq!(state(), (vec![1, 2, 3, 4], 5, true));
        root.end_unseen(1, first, false);
        root.end_unseen(1, third, true);
        assert_eq!(state(), (vec![1, 2, 3, 4, 5], 5, false));
        root.empty(1);
        // After a failed sync, nothing stays that was not shown.
        let (first, second) = (add(&[6]), add(&[7]));
        root.end_unseen(1, second, false);
        assert_eq!(state(), (vec![], 2, true));
        root.end_unseen(1, first, true);
        assert_eq!(state(), (vec![6], 1, false));
        root.push(1, 8, record(8));
        assert_eq!(state(), (vec![6, 8], 2, false));
    }

    #[test]
    fn an_entry_needs_the_chunks_of_its_oldest_records() {
        let shape = Shape { root_bits: 1, ..Shape::default() };
        let root =
            RootTable::<Forms<InWord, InWord>>::new(shape, measure(), false).expect("memory");
        let needed = || (0..4).filter(|&chunk| root.needs_chunk(1, chunk)).collect::<Vec<_>>();
        let put = |key: u64, chunk| {
            root.note_chunk(1, chunk);
            root.push(1, key, root.measure.record(false, |_| key));
        };
        assert_eq!(needed(), []);
        put(1, 3);
        put(2, 0);
        assert_eq!(needed(), [3]);
        root.set_departing(1, Some(Departing { records: 2, place: 0 }));
        put(3, 0);
        put(4, 1);
        assert_eq!(needed(), [0, 3]);
        root.drop_first(1, 2);
        put(5, 1);
        assert_eq!(needed(), [0]);
        root.empty(1);
        assert_eq!(needed(), []);
    }
}
