//! Resizing (§3.2.5): the next index, and the way of records into it.
//!
//! Every index knows its successor, if it has one. A record is in the first index of the chain whose bin for its key is
//! not `DoneTransfer`, so a chain may have any length: a successor that is full gets a successor of its own, also while
//! bins are still being moved to it.

use super::core::Core;
use super::get::Step;
use super::header::{BinState, Header, SLOTS_PER_BIN, SlotState};
use super::index::{Entry, Index, Size};
use super::layout::{HEADER, PRIMARY_SLOTS};
use super::mode::Mode;
use crate::base::sync::{Line, Ordering};
use crate::{Error, Result};

/// Bins that an insert moves at most, beyond its own, when its bin is full.
pub(super) const HELP_WHEN_FULL: u64 = 8;
/// Bins that a write moves at most when its bin has gone already.
pub(super) const HELP_WHEN_MOVED: u64 = 1;
/// Bins that a thread takes at once when it wants the whole index moved.
pub(super) const CHUNK: u64 = 1 << 14;

/// A record on its way.
#[derive(Clone, Copy)]
struct Moving {
    key: u64,
    value: u64,
    state: SlotState,
}

/// The records of one bin.
struct Batch {
    records: [Moving; SLOTS_PER_BIN as usize],
    len: usize,
}

impl Default for Batch {
    fn default() -> Self {
        let nothing = Moving { key: 0, value: 0, state: SlotState::Invalid };
        Self { records: [nothing; SLOTS_PER_BIN as usize], len: 0 }
    }
}

impl Batch {
    fn push(&mut self, record: Moving) {
        self.records[self.len] = record;
        self.len += 1;
    }

    fn as_mut(&mut self) -> &mut [Moving] {
        &mut self.records[..self.len]
    }
}

impl<M: Mode> Core<M> {
    /// The index after `index`; makes one when there is none. Whoever moves bins may not be refused by an option.
    pub(super) fn successor<'g>(&self, index: &'g Index, moving: bool) -> Result<&'g Index> {
        while index.next().is_none() {
            let size = self.plan.next_size(index, self.len());
            if !moving {
                self.may_grow(size)?;
            }
            self.make_next(index, size, Entry::Resize)?;
        }
        index.next().ok_or(Error::Full)
    }

    fn may_grow(&self, size: Size) -> Result<()> {
        let bytes = (1_u64 << size.bits) * 64 + size.links as u64 * 64;
        if self.plan.fixed || bytes > self.plan.max_bytes { Err(Error::Full) } else { Ok(()) }
    }

    /// Makes an index after `index`, unless there is one; whether it did. Of the same size, it has another hash
    /// function.
    pub(super) fn make_next(&self, index: &Index, size: Size, entry: Entry) -> Result<bool> {
        let crowded = entry == Entry::Resize && size.bits == index.size.bits;
        let hasher = if crowded { index.hasher.successor() } else { index.hasher };
        Ok(index.install(self.plan.index(size, hasher, entry)?))
    }

    /// Moves bins of `index` until `bins` have been moved or looked at, or there is none left to begin with.
    pub(super) fn help(&self, index: &Index, bins: u64) -> Result<()> {
        let cursor = &index.transfer.cursor;
        // Relaxed, all: whose bin it is to move is decided by its header.
        if cursor.load(Ordering::Relaxed) >= index.len() {
            return Ok(());
        }
        let first = cursor.fetch_add(bins, Ordering::Relaxed);
        let mut moved = 0;
        let mut result = Ok(());
        for bin in first..index.len().min(first.saturating_add(bins)) {
            match self.move_bin(index, bin) {
                Ok(count) => moved += count,
                Err(error) => {
                    // The rest is handed out again with this one.
                    result = Err(error);
                    break;
                }
            }
        }
        self.count_moved(index, moved);
        result
    }

    /// Lets the bins from `bin` on be handed out again.
    fn come_by_again(&self, index: &Index, bin: u64) {
        let cursor = &index.transfer.cursor;
        let mut next = cursor.load(Ordering::Relaxed);
        // Relaxed: as in `help`.
        while next > bin
            && let Err(other) =
                cursor.compare_exchange(next, bin, Ordering::Relaxed, Ordering::Relaxed)
        {
            next = other;
        }
    }

    /// Moves one bin, on behalf of an insert that needs it moved.
    pub(super) fn move_one(&self, index: &Index, bin: u64) -> Result<()> {
        let moved = self.move_bin(index, bin)?;
        self.count_moved(index, moved);
        Ok(())
    }

    fn count_moved(&self, index: &Index, moved: u64) {
        if moved == 0 {
            return;
        }
        // AcqRel (E3): whoever sees the last one sees every bin moved.
        let before = index.transfer.moved.fetch_add(moved, Ordering::AcqRel);
        if before + moved == index.len() {
            self.advance();
        }
    }

    /// Moves the whole of `index`, with whoever else is at it, and returns when that is done.
    pub(super) fn finish(&self, index: &Index) -> Result<()> {
        let mut rounds = 0;
        while !index.is_left() {
            let done = self.help(index, CHUNK);
            if let Err(error) = done {
                // Records that are being cleared are frozen: there is no way back. What is copied then is less than
                // what there was, so memory for it will be found.
                match index.next() {
                    Some(next) if next.entry != Entry::Clear => {
                        // Release (E3): a snapshot that will not be taken holds nobody up.
                        next.open.store(true, Ordering::Release);
                        return Err(error);
                    }
                    _ => {}
                }
            }
            M::wait(rounds);
            rounds += 1;
        }
        self.advance();
        Ok(())
    }

    /// Moves one bin to the next index, unless somebody has begun to. How many were moved.
    fn move_bin(&self, index: &Index, bin: u64) -> Result<u64> {
        let line = index.bin(bin);
        let Some(next) = index.next() else { return Ok(0) };
        let mut rounds = 0;
        let frozen = loop {
            let header = Index::header(line);
            match header.state() {
                BinState::NoTransfer => {
                    let frozen = header.in_transfer();
                    if Index::change::<M>(line, header, frozen) {
                        break frozen;
                    }
                }
                BinState::Claimed => M::wait(rounds),
                BinState::InTransfer | BinState::DoneTransfer => return Ok(0),
            }
            rounds += 1;
        };
        M::pause();
        let clear = next.entry == Entry::Clear;
        if let Err(error) = self.copy_records(index, line, frozen, next, clear) {
            // Release (E1): the bin is as it was. Slots that were being reserved still are.
            line.0[HEADER].store(frozen.taken_back().0, Ordering::Release);
            // Whoever was handed the bin meanwhile has passed it over.
            self.come_by_again(index, bin);
            return Err(error);
        }
        if clear {
            // It stays frozen, and readers see its records, until all bins are.
            M::add(&self.count, -i64::from(frozen.count()));
        } else {
            M::pause();
            // Release (E1): whoever sees it finds the records in the next index.
            line.0[HEADER].store(frozen.done().0, Ordering::Release);
        }
        Ok(1)
    }

    /// Copies the records of a frozen bin. Slots in `TryInsert` are left behind: their inserts will notice.
    fn copy_records(
        &self,
        index: &Index,
        line: &Line,
        frozen: Header,
        next: &Index,
        shadows_only: bool,
    ) -> Result<()> {
        let mut records = Batch::default();
        for slot in frozen.held_slots() {
            let state = frozen.slot(slot);
            if !shadows_only || state == SlotState::Shadow {
                let place = index.pool.used_place(line, slot);
                // Relaxed, both: the bin is frozen.
                let key = place.key().load(Ordering::Relaxed);
                let value = place.value().load(Ordering::Relaxed);
                records.push(Moving { key, value, state });
            }
        }
        // With the same order of hashes and no fewer bins, nothing else comes to the bins that these records go to.
        let alone =
            next.hasher.generation == index.hasher.generation && next.size.bits >= index.size.bits;
        let mut rest = records.as_mut();
        while let Some((&mut first, _)) = rest.split_first_mut() {
            let bin = next.bin_of(first.key);
            let together = if alone { bring_together(rest, next, bin) } else { 1 };
            let (some, others) = rest.split_at_mut(together);
            if !(alone && next.fill::<M>(bin, some)) {
                for record in some.iter() {
                    if let Err(error) = self.adopt(next, *record) {
                        // Those that were not copied are not there: nothing is taken back for them.
                        records.as_mut().iter().for_each(|copied| self.disown(next, copied.key));
                        return Err(error);
                    }
                }
            }
            rest = others;
        }
        Ok(())
    }

    /// Puts a record into `index` or one after it. Its key is in none of them, and nobody else can bring it there while
    /// its old bin is in transfer.
    fn adopt(&self, index: &Index, record: Moving) -> Result<()> {
        let mut index = index;
        loop {
            match index.adopt::<M>(record) {
                Step::Done(()) => return Ok(()),
                Step::Moved => index = index.next().unwrap_or(index),
                Step::Full => {
                    let next = self.successor(index, true)?;
                    self.move_one(index, index.bin_of(record.key))?;
                    index = next;
                }
            }
        }
    }

    /// Takes back what [`Core::adopt`] did.
    fn disown(&self, index: &Index, key: u64) {
        let mut index = index;
        while let Step::Moved = index.disown::<M>(key) {
            index = index.next().unwrap_or(index);
        }
    }
}

/// Brings the records of bin `bin` to the front; how many they are.
fn bring_together(records: &mut [Moving], next: &Index, bin: u64) -> usize {
    let mut together = 0;
    for at in 0..records.len() {
        if next.bin_of(records[at].key) == bin {
            records.swap(together, at);
            together += 1;
        }
    }
    together
}

impl Index {
    /// Puts `records` into bin `bin` by one exchange, if it is untouched and they fit into its primary bucket. Nobody
    /// else inserts there meanwhile; at most the bin itself may begin to move on.
    fn fill<M: Mode>(&self, bin: u64, records: &[Moving]) -> bool {
        let line = self.bin(bin);
        if records.len() > PRIMARY_SLOTS as usize || Self::header(line) != Header(0) {
            return false;
        }
        let mut header = Header(0);
        for (slot, record) in (0..).zip(records) {
            let place = self.pool.used_place(line, slot);
            // Relaxed: the exchange publishes them, and no reader has looked at these slots before.
            place.key().store(record.key, Ordering::Relaxed);
            place.value().store(record.value, Ordering::Relaxed);
            header = header.with(slot, record.state);
        }
        Self::change::<M>(line, Header(0), header)
    }

    /// Inserts a record whose key is not there and will not come there.
    fn adopt<M: Mode>(&self, record: Moving) -> Step<()> {
        let line = self.bin(self.bin_of(record.key));
        loop {
            let Some(header) = self.settled::<M>(line) else { return Step::Moved };
            let Some(slot) = header.first_free() else { return Step::Full };
            let Some(place) = self.pool.place::<M>(line, slot) else { return Step::Full };
            let reserved = header.with(slot, SlotState::TryInsert);
            if !Self::change::<M>(line, header, reserved) {
                continue;
            }
            // Release (E2): as in `Index::store`.
            place.key().store(record.key, Ordering::Release);
            place.value().store(record.value, Ordering::Release);
            let mut header = reserved;
            while !Self::change::<M>(line, header, header.with(slot, record.state)) {
                match self.settled::<M>(line) {
                    Some(settled) => header = settled,
                    None => return Step::Moved,
                }
            }
            return Step::Done(());
        }
    }

    fn disown<M: Mode>(&self, key: u64) -> Step<()> {
        let line = self.bin(self.bin_of(key));
        loop {
            let Some(header) = self.settled::<M>(line) else { return Step::Moved };
            let Some(hit) = self.find(line, header.held(), key) else { return Step::Done(()) };
            if Self::change::<M>(line, header, header.with(hit.slot, SlotState::Invalid)) {
                return Step::Done(());
            }
        }
    }
}
