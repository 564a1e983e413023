//! Iteration: the front yard's buckets, then the back yard's, each in the order of their bit-reversed numbers, then the
//! overflow yard's slots.
//!
//! A record never changes its level while the table is open. A doubling splits a bucket into two that are neighbours in
//! that order, and a halving joins two, so a cursor stays valid across both. Each record is read as in *get*: without a
//! lock, and durable when it is returned. Before a scan reads a bucket, it completes the bucket's move if a doubling is
//! in progress; a session that only reads searches both places instead.

use super::Iceberg;
use super::core::Core;
use super::fingerprints::{FrontLine, used_back};
use super::layout::{EMPTY_KEY, Phase, SIDE_KEY, Shape, Slot, back_is_behind, scan_place};
use crate::engine::slots::table::SlotTable;
use crate::engine::{OnDamage, Scanned};
use crate::outcome::Cursor;
use crate::storage::Medium;
use crate::types::{RecordForm, Take};
use crate::{Error, Result};

/// The position of a scan. A place is a bucket number with its bits reversed. A cursor word has the yard in its two
/// highest bits, followed by the place without its lowest bits, or by the slot number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// The front bucket at this place in scan order; the first place includes the side slot.
    Front(u64),
    /// The back bucket at this place.
    Back(u64),
    /// The overflow slot with this number.
    Overflow(u64),
}

/// Number of low bits of a place that a cursor does not store; they are 0, because a table has at most 2^32 buckets.
const PLACE_SHIFT: u32 = 2;

impl Position {
    fn of(cursor: Cursor) -> Option<Self> {
        let rest = cursor.0 << PLACE_SHIFT;
        Some(match cursor.0 >> (64 - PLACE_SHIFT) {
            0 => Self::Front(rest),
            1 => Self::Back(rest),
            2 => Self::Overflow(rest >> PLACE_SHIFT),
            _ => return None,
        })
    }

    fn cursor(self) -> Cursor {
        let (yard, rest) = match self {
            Self::Front(place) => (0, place >> PLACE_SHIFT),
            Self::Back(place) => (1, place >> PLACE_SHIFT),
            Self::Overflow(slot) => (2, slot),
        };
        Cursor(yard << (64 - PLACE_SHIFT) | rest)
    }
}

/// Number of overflow slots that are read at a time.
const OVERFLOW_AT_A_TIME: u64 = 64;

/// Returns the place of the next bucket in scan order, after the bucket that contains `place`; `None` after the last.
fn next_place(place: u64, depth: u32) -> Option<u64> {
    let width = 1_u64.checked_shl(64 - depth)?;
    (place & !(width - 1)).checked_add(width)
}

/// Key and value words of records.
type Entries = Vec<(u64, u64)>;

impl<R: RecordForm, M: Medium> Iceberg<R, M> {
    /// Returns about `n` records from `cursor` on; damaged records go to `damaged`.
    pub(super) fn scan_page<K: Take + Copy, V: Take + Copy>(
        &self,
        cursor: Cursor,
        n: usize,
        take: (K, V),
        damaged: &mut OnDamage<'_, K::Out>,
    ) -> Result<Scanned<K::Out, V::Out>> {
        let core = &self.core;
        let pin = core.pin();
        let mut entries = Entries::new();
        let mut next = Position::of(cursor);
        while let Some(position) = next
            && entries.len() < n.max(1)
        {
            next = core.read_position(position, &mut entries)?;
        }
        let records = Vec::with_capacity(entries.len());
        let mut page = Scanned { records, next: next.map(Position::cursor) };
        for (key, value) in entries {
            page.add(self.take_key(key, take.0), || self.take_value(None, value, take.1), damaged)?;
        }
        drop(pin);
        Ok(page)
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Reads the records at a position and returns the next position. No step can begin meanwhile.
    fn read_position(&self, position: Position, entries: &mut Entries) -> Result<Option<Position>> {
        let _pass = self.exclusion.enter();
        let shape = self.shape();
        let bucket_at = |place: u64| scan_place(place) & (shape.buckets() - 1);
        let source = |bucket: u64| bucket & (shape.buckets() / 2).wrapping_sub(1);
        if shape.is(Phase::Clearing) {
            return Ok(None);
        }
        let unfinished = !shape.is(Phase::Stable) && self.only_reads();
        Ok(Some(match position {
            Position::Front(place) => {
                let bucket = bucket_at(place);
                if shape.is(Phase::Doubling) && !unfinished {
                    self.move_both(shape, source(bucket))?;
                }
                if place == 0 {
                    self.read_side(shape, entries)?;
                }
                let read = entries.len();
                if unfinished {
                    let read = |at, entries: &mut Entries| self.read_front(at, entries);
                    let is_home = |hash, _| shape.front(hash) == bucket;
                    self.read_both(shape, bucket, entries, read, is_home)?;
                } else {
                    self.read_front(bucket, entries)?;
                }
                self.drop_seen(entries, read, place, bucket, |hash| scan_place(hash) >= place);
                next_place(place, shape.depth()).map_or(Position::Back(0), Position::Front)
            }
            Position::Back(place) => {
                let bucket = bucket_at(place);
                if shape.is(Phase::Doubling) && !unfinished {
                    self.move_both(shape, source(bucket))?;
                }
                let read = entries.len();
                if unfinished {
                    let read = |at, entries: &mut Entries| self.read_back(shape, at, entries);
                    self.read_both(shape, bucket, entries, read, |hash, at| {
                        let homes = shape.back(hash);
                        homes.contains(&bucket) && (at == bucket || !homes.contains(&at))
                    })?;
                } else {
                    self.read_back(shape, bucket, entries)?;
                }
                self.drop_seen(entries, read, place, bucket, |hash| {
                    back_is_behind(hash, bucket, shape.depth(), place)
                });
                next_place(place, shape.depth()).map_or(Position::Overflow(0), Position::Back)
            }
            Position::Overflow(first) => {
                let end = u64::from(self.overflow.slots());
                let next = (first + OVERFLOW_AT_A_TIME).min(end);
                let slots = (first..next).filter_map(|slot| self.overflow.slot(slot as u32));
                self.read_shared_slots(shape, slots, entries)?;
                return Ok((next < end).then_some(Position::Overflow(next)));
            }
        }))
    }

    /// Keeps the first `read` entries. From the others it removes the records that the scan has returned before: a
    /// halving may have joined the bucket at the cursor with buckets that the scan has read. `is_ahead` returns `true`
    /// for a hash whose records the scan has not read yet.
    fn drop_seen(
        &self,
        entries: &mut Entries,
        read: usize,
        place: u64,
        bucket: u64,
        is_ahead: impl Fn(u64) -> bool,
    ) {
        if place == scan_place(bucket) {
            return;
        }
        let mut at = 0;
        entries.retain(|&(key, _)| {
            at += 1;
            at <= read || self.records.hash_of(&self.storage, key).is_ok_and(&is_ahead)
        });
    }

    /// Reads the records of a bucket, each once, while a step is unfinished: some may still be in their former bucket.
    /// `is_home` takes the hash of a record and the bucket in which it was found, and returns whether the record
    /// belongs to `bucket`.
    fn read_both(
        &self,
        shape: Shape,
        bucket: u64,
        entries: &mut Entries,
        read: impl Fn(u64, &mut Entries) -> Result<()>,
        is_home: impl Fn(u64, u64) -> bool,
    ) -> Result<()> {
        let begin = entries.len();
        for at in [shape.unfinished(bucket), Some(bucket)].into_iter().flatten() {
            let mut there = Entries::new();
            read(at, &mut there)?;
            for (key, value) in there {
                // A record whose key cannot be read stays in its bucket.
                let hash = self.records.hash_of(&self.storage, key);
                let is_home = hash.map_or(at == bucket, |hash| is_home(hash, at));
                if is_home && entries[begin..].iter().all(|&(seen, _)| seen != key) {
                    entries.push((key, value));
                }
            }
        }
        Ok(())
    }

    fn read_side(&self, shape: Shape, entries: &mut Entries) -> Result<()> {
        let slot = &self.root()?.side;
        let line = self.buckets.line(&self.storage, shape.front(self.records.hash.word(EMPTY_KEY)));
        let [key, value] = self.read_settled(slot, line);
        if key == SIDE_KEY {
            entries.push((EMPTY_KEY, value));
        }
        Ok(())
    }

    /// Reads all records of a front bucket.
    fn read_front(&self, bucket: u64, entries: &mut Entries) -> Result<()> {
        let line = self.buckets.line(&self.storage, bucket);
        let mut used = self.buckets.front_mask() & !line.empty(self.buckets.front_mask());
        while used != 0 {
            let [key, value] = self.read_settled(
                self.buckets.front_slot(&self.storage, bucket, used.trailing_zeros())?,
                line,
            );
            used &= used - 1;
            if key != EMPTY_KEY {
                entries.push((key, value));
            }
        }
        Ok(())
    }

    fn read_back(&self, shape: Shape, bucket: u64, entries: &mut Entries) -> Result<()> {
        let used = used_back(
            self.buckets.back_word(&self.storage, bucket).load(),
            self.buckets.yards().back,
        );
        let slots = used
            .map(|slot| self.buckets.back_slot(&self.storage, bucket, slot))
            .collect::<Result<Vec<_>>>()?;
        self.read_shared_slots(shape, slots.into_iter(), entries)
    }

    /// Reads the records of slots that share no lock: each slot changes under the lock of its record's key.
    fn read_shared_slots<'a>(
        &self,
        shape: Shape,
        slots: impl Iterator<Item = &'a Slot>,
        entries: &mut Entries,
    ) -> Result<()> {
        for slot in slots {
            loop {
                // This read only determines the lock of the slot.
                let key = self.storage.read_unvalidated(|| slot.key(&self.storage));
                if key == EMPTY_KEY {
                    break;
                }
                let hash = match self.records.hash_of(&self.storage, key) {
                    // The key cannot be read, so no line's lock protects the slot.
                    Err(Error::Corrupt { .. }) => {
                        entries.push((
                            key,
                            self.storage.read_unvalidated(|| slot.value(&self.storage)),
                        ));
                        break;
                    }
                    hash => hash?,
                };
                let line = self.buckets.line(&self.storage, shape.front(hash));
                let [now, value] = self.read_settled(slot, line);
                if now == key {
                    entries.push((key, value));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns both words of a slot once they are durable. `line` has the lock under which they change.
    fn read_settled(&self, slot: &Slot, line: FrontLine<'_>) -> [u64; 2] {
        if self.whole_loads.is_some() {
            let words = slot.load(&self.storage, self.whole_loads);
            // If the lock is free, the loaded words are durable, as in `lookup_slowly`.
            self.wait_unlocked(line);
            return words;
        }
        line.lock(&self.storage);
        let words = [slot.key(&self.storage), slot.value(&self.storage)];
        line.unlock();
        words
    }
}
