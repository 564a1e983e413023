//! Resizing (§3.2.5): the next index, and the transfer of records to it.
//!
//! Every index has a reference to its successor. A record is in the first index of the chain whose bin for its key is
//! not `DoneTransfer`. The chain may have any length: a successor that becomes full gets its own successor, even while
//! bins are still being moved to it.

use super::core::Core;
use super::get::Step;
use super::header::{BinState, Header, SLOTS_PER_BIN, SlotState};
use super::index::{Entry, Index, Patience, Size};
use super::layout::{HEADER, PRIMARY_SLOTS};
use super::mode::Threading;
use crate::base::sync::{Line, Ordering};
use crate::{Error, Result};

/// The number of bins that [`Core::finish`] assigns to its thread at once.
pub(super) const CHUNK: u64 = 1 << 14;

/// A record in transfer.
#[derive(Clone, Copy)]
struct Moving {
    key: u64,
    value: u64,
    state: SlotState,
}

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

impl<M: Threading> Core<M> {
    /// Returns the next index; creates one if there is none. The options that limit growth do not apply to a thread
    /// that is `moving` bins.
    pub(super) fn successor<'g>(&self, index: &'g Index, moving: bool) -> Result<&'g Index> {
        while index.next().is_none() {
            let size = self.plan.next_size(index, self.len(), moving)?;
            self.make_next(index, size, Entry::Resize)?;
        }
        index.next().ok_or(Error::Full)
    }

    /// Creates the next index, unless there is one. Returns whether it created one. A resize to the same size changes
    /// the hash function.
    pub(super) fn make_next(&self, index: &Index, size: Size, entry: Entry) -> Result<bool> {
        let crowded = entry == Entry::Resize && size == index.size;
        let hasher = if crowded { index.hasher.successor() } else { index.hasher };
        Ok(index.install(self.plan.index(size, hasher, entry)?))
    }

    /// Assigns the next `bins` bins of `index` to this thread, if any are left, and moves those that no other thread
    /// has begun to move.
    pub(super) fn help(&self, index: &Index, bins: u64, patience: Patience) -> Result<()> {
        let cursor = &index.transfer.cursor;
        // All accesses to the cursor are Relaxed: the header of a bin decides which thread moves it.
        if cursor.load(Ordering::Relaxed) >= index.len() {
            return Ok(());
        }
        let first = cursor.fetch_add(bins, Ordering::Relaxed);
        let (mut bin, end) = (first, index.len().min(first.saturating_add(bins)));
        let mut moved = 0;
        let mut result = Ok(());
        while bin < end {
            index.look_ahead(bin);
            if let Some((next, count)) = index.move_region::<M>(bin) {
                (bin, moved) = (next, moved + count);
                continue;
            }
            match self.move_bin(index, bin, patience) {
                Ok(count) => moved += count,
                Err(error) => {
                    // `move_bin` has reset the cursor to this bin, so the remaining bins are assigned again together
                    // with it.
                    result = Err(error);
                    break;
                }
            }
            bin += 1;
        }
        self.count_moved(index, moved);
        result
    }

    /// Moves some bins for a request that has found `index` in transfer. So an index is left after a bounded number of
    /// requests of any kind. Does not wait for a bin that another thread has claimed. Errors are ignored: they concern
    /// other bins.
    #[cold]
    #[inline(never)]
    pub(super) fn help_on(&self, index: &Index, bins: u64) {
        let _ = self.help(index, bins, Patience::None);
    }

    /// Resets the cursor, so that the bins from `bin` on are assigned again.
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

    /// Moves one bin for an insert that needs it.
    pub(super) fn move_one(&self, index: &Index, bin: u64) -> Result<()> {
        let moved = self.move_bin(index, bin, Patience::Waits)?;
        self.count_moved(index, moved);
        Ok(())
    }

    fn count_moved(&self, index: &Index, moved: u64) {
        if moved == 0 {
            return;
        }
        // AcqRel (E3): a thread that sees the last count sees every bin moved.
        let before = index.transfer.moved.fetch_add(moved, Ordering::AcqRel);
        if before + moved == index.len() {
            self.advance();
        }
    }

    /// Moves all bins of `index`, together with other threads, and returns when all have been moved.
    pub(super) fn finish(&self, index: &Index) -> Result<()> {
        let mut rounds = 0;
        while !index.is_left() {
            let done = self.help(index, CHUNK, Patience::Waits);
            if let Err(error) = done {
                // A `clear` cannot be undone, because the bins that it has frozen stay frozen. So the loop repeats
                // until there is memory. A `clear` copies only shadow inserts, which need less memory than all records.
                match index.next() {
                    Some(next) if next.entry != Entry::Clear => {
                        // Release (E3): a failed snapshot must not make writers wait.
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

    /// Moves one bin to the next index, unless another thread has begun to. Returns the number of bins moved.
    fn move_bin(&self, index: &Index, bin: u64, patience: Patience) -> Result<u64> {
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
                BinState::Claimed if patience == Patience::None => {
                    self.come_by_again(index, bin);
                    return Ok(0);
                }
                BinState::Claimed => M::wait(rounds),
                BinState::InTransfer | BinState::DoneTransfer => return Ok(0),
            }
            rounds += 1;
        };
        M::pause();
        let clear = next.entry == Entry::Clear;
        if let Err(error) = self.copy_records(index, line, frozen, next, clear) {
            // Release (E1): the bin is as before. Reserved slots are still reserved.
            line.0[HEADER].store(frozen.taken_back().0, Ordering::Release);
            // Meanwhile the bin may have been assigned to another thread, which skipped it because it was in transfer.
            self.come_by_again(index, bin);
            return Err(error);
        }
        if clear {
            // The bin stays frozen, and readers see its records, until all bins are frozen.
            M::add(&self.count, -i64::from(frozen.count()));
        } else {
            M::pause();
            // Release (E1): a thread that sees this header finds the records in the next index.
            line.0[HEADER].store(frozen.done().0, Ordering::Release);
        }
        Ok(1)
    }

    /// Copies the records of a frozen bin. Slots in `TryInsert` are not copied: their inserts fail to publish and
    /// retry.
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
                // Both loads are Relaxed: the bin is frozen.
                let key = place.key().load(Ordering::Relaxed);
                let value = place.value().load(Ordering::Relaxed);
                records.push(Moving { key, value, state });
            }
        }
        // If the next index has the same hash function and a multiple of the bins, each of its bins receives records of
        // one old bin only. The same number and the double are recognised, without a division.
        let alone = next.hasher.generation == index.hasher.generation
            && [index.len(), 2 * index.len()].contains(&next.len());
        let mut rest = records.as_mut();
        while let Some((&mut first, _)) = rest.split_first_mut() {
            let bin = next.bin_of(first.key);
            let together = if alone { bring_together(rest, next, bin) } else { 1 };
            let (some, others) = rest.split_at_mut(together);
            if !(alone && next.fill::<M>(bin, some)) {
                for record in some.iter() {
                    if let Err(error) = self.adopt(next, *record) {
                        // `disown` does nothing for records that were not copied yet, because it does not find them.
                        records.as_mut().iter().for_each(|copied| self.disown(next, copied.key));
                        return Err(error);
                    }
                }
            }
            rest = others;
        }
        Ok(())
    }

    /// Inserts a record into `index` or a later one. Its key is in none of them, and no other thread can insert it
    /// while its old bin is in transfer.
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

    /// Undoes [`Core::adopt`].
    fn disown(&self, index: &Index, key: u64) {
        let mut index = index;
        while let Step::Moved = index.disown::<M>(key) {
            index = index.next().unwrap_or(index);
        }
    }
}

/// Moves the records of bin `bin` to the front, and returns their number.
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
    /// Stores `records` in bin `bin` with one exchange, if the bin is untouched and its primary bucket suffices.
    /// No other thread inserts into the bin meanwhile, but a thread may begin to move the bin.
    fn fill<M: Threading>(&self, bin: u64, records: &[Moving]) -> bool {
        let line = self.bin(bin);
        let fits = records.len() <= PRIMARY_SLOTS as usize && Self::header(line).is_unwritten();
        if !fits || !self.touch::<M>(line) {
            return false;
        }
        let mut header = Header(0);
        for (slot, record) in (0..).zip(records) {
            let place = self.pool.used_place(line, slot);
            // Relaxed: the exchange publishes them, and no reader has accessed these slots before.
            place.key().store(record.key, Ordering::Relaxed);
            place.value().store(record.value, Ordering::Relaxed);
            header = header.with(slot, record.state);
        }
        Self::change::<M>(line, Header(0), header)
    }

    /// Inserts a record whose key is absent and is not inserted by other threads.
    fn adopt<M: Threading>(&self, record: Moving) -> Step<()> {
        let line = self.line_of(record.key);
        loop {
            let Some(header) = self.settled::<M>(line) else { return Step::Moved };
            if header.is_unwritten() && !self.touch::<M>(line) {
                return Step::Moved;
            }
            let Some(slot) = header.first_free() else { return Step::Full };
            let Some(place) = self.pool.place::<M>(line, slot) else { return Step::Full };
            let reserved = header.with(slot, SlotState::TryInsert);
            if !Self::change::<M>(line, header, reserved) {
                continue;
            }
            // Release (E2): as in `Index::try_store`.
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

    fn disown<M: Threading>(&self, key: u64) -> Step<()> {
        let line = self.line_of(key);
        loop {
            let Some(header) = self.settled::<M>(line) else { return Step::Moved };
            let Some(hit) = self.find(line, header.held(), key) else { return Step::Done(()) };
            if self.free::<M>(line, header, hit.slot) {
                return Step::Done(());
            }
        }
    }
}
