//! Leaves (not in the paper): where a table is partitioned by ranges, an entry that overflows is split by keys.
//!
//! The place of a key among all keys selects its entry of the last level, but keys may crowd in few places: they have
//! a common prefix, or are small numbers of a wide type. Such an entry is not continued by one that receives the next
//! records, but split. The entry and those that continue it are its *leaves*: like the leaves of a B-tree, each has
//! the keys between two bounds. Their order in the chain is arbitrary. A search reads one leaf, and an arriving
//! record goes to one leaf. A full leaf drops its stale records, or else moves the upper half of its records to a new
//! leaf.
//!
//! The bounds are in DRAM only. When a chain is first read, the lower bound of a leaf is its least key. That may be
//! higher than the former bound, if keys have been removed since, but no record of the leaf is below it. The first
//! leaf has no lower bound. A leaf that has lost its last record has no bounds: it is spare.
//!
//! A split is the compaction of one leaf by a journal that also holds the new number of records of the other leaf
//! (`compact`). So a crash leaves both changes or neither, and no record in two leaves.

use std::ops::Bound::{Included, Unbounded};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::compact::{Sifted, Split, Worth};
use super::core::Core;
use super::filter::Image;
use super::layout::EntryRef;
use super::layout::{EntryId, State};
use super::leaf_bounds::{Chain, Found};
use super::moving::{MovingOf, counted};
use super::partition::SortKey;
use super::root_lock::Held;
use crate::Result;
use crate::storage::Medium;
use crate::types::RecordForm;

/// A record that moves, and its sort key.
type Sorted<'a, R> = (SortKey<'a>, R);

/// A leaf, the range of the arriving records that belong to it, the number of its records, and the number of arriving
/// records that fit.
struct Share<'a> {
    leaf: EntryRef<'a>,
    coming: Range<usize>,
    size: usize,
    taken: usize,
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Returns whether an entry is split into leaves.
    #[inline]
    pub(super) fn has_leaves(&self, first: EntryRef<'_>) -> Result<bool> {
        Ok(self.placement.ranges().is_some() && self.next_of(first)?.is_some())
    }

    /// Returns the leaf of a chain for a key, and the lower bound of the next leaf. The caller is pinned. If the caller
    /// also holds the lock of the root entry, the bounds of the chain are in DRAM afterwards.
    pub(super) fn leaf_of<'a>(
        &'a self,
        first: EntryRef<'a>,
        key: &[u8],
    ) -> Result<(EntryRef<'a>, Option<Box<[u8]>>)> {
        let EntryId::Level(number) = first.id else { return Ok((first, None)) };
        let Found { block, end } = loop {
            self.storage.sim_yield_point();
            let (known, forgotten) = {
                let shard = self.leaves.read(number);
                (shard.chains.get(&number).map(|chain| chain.find(key)), shard.forgotten)
            };
            if let Some(found) = known {
                break found;
            }
            let chain = self.read_leaves(first)?;
            self.storage.sim_yield_point();
            let mut shard = self.leaves.write(number);
            // If no chain was forgotten since, these bounds are current: a thread that changes a chain has loaded the
            // chain's bounds before and updates them, or else forgets them afterwards.
            if shard.forgotten == forgotten {
                break shard.chains.entry(number).or_insert(chain).find(key);
            }
        };
        let leaf = match block {
            None => first,
            Some(block) => self.entry(EntryId::Chained(block))?,
        };
        Ok((leaf, end))
    }

    /// Reads the bounds of a chain's leaves from the medium.
    fn read_leaves(&self, first: EntryRef<'_>) -> Result<Chain> {
        let mut chain = Chain::default();
        let mut records = Vec::with_capacity(self.shape.records());
        for entry in self.chain_of(first)?.into_iter().skip(1) {
            let EntryId::Chained(block) = entry.id else { continue };
            records.clear();
            self.read_entry(entry, &mut records, |_| true)?;
            let mut least: Option<SortKey<'_>> = None;
            for moving in &records {
                // The key of a freed payload is gone; no search needs its record.
                let Some(key) = self.sort_key_of(moving)? else { continue };
                if least.as_ref().is_none_or(|least| **least > *key) {
                    least = Some(key);
                }
            }
            match least {
                Some(key) => {
                    chain.bounds.insert((*key).into(), block);
                }
                None if records.is_empty() => chain.spare.push(block),
                None => {}
            }
        }
        Ok(chain)
    }

    /// Returns whether the key ranges of the leaves of a chain are disjoint. Records with freed payloads are ignored.
    pub(super) fn are_leaves_apart(&self, first: EntryRef<'_>) -> Result<bool> {
        let mut spans: Vec<[SortKey<'_>; 2]> = Vec::new();
        let mut records = Vec::with_capacity(self.shape.records());
        for entry in self.chain_of(first)? {
            records.clear();
            self.read_entry(entry, &mut records, |_| true)?;
            let sorted = self.sorted(&records)?;
            spans.extend(sorted.first().zip(sorted.last()).map(|(a, b)| [a.0, b.0]));
        }
        spans.sort_unstable_by(|[a, _], [b, _]| (**a).cmp(b));
        Ok(spans.windows(2).all(|pair| *pair[0][1] < *pair[1][0]))
    }

    /// The sort key of a record; `None` when its payload has been freed.
    pub(super) fn sort_key_of(&self, moving: &MovingOf<R>) -> Result<Option<SortKey<'_>>> {
        let Some(ranges) = self.placement.ranges() else { return Ok(None) };
        if self.measure.is_inline() {
            let key = self.measure.key_of(&moving.record.key);
            return Ok(Some(ranges.sort_key_of_owned(&key)));
        }
        let payload = self.payload(moving.record.reference())?;
        Ok(payload.and_then(|payload| ranges.sort_key_of_stored(R::KEY, payload.key)))
    }

    /// Copies records of different keys, at most as many as an entry holds, to their leaves, durably. They stay above
    /// as well, where each record hides its copy. Returns `false` if not all were copied, because a leaf of the last
    /// level (`level`) would have to be split and a level has been added instead.
    pub(super) fn scatter(
        &self,
        held: &Held<'_, M>,
        (level, first): (usize, EntryRef<'_>),
        records: &[MovingOf<R>],
    ) -> Result<bool> {
        // The caller has dropped stale records. Until all records have arrived, those that have arrived are copies of
        // records above.
        let mut left = self.sorted(records)?;
        while !left.is_empty() {
            let shares = self.shares(first, &left)?;
            self.take_shares(held, first, &shares, &left)?;
            let mut rest = Vec::new();
            for Share { leaf, coming, taken, .. } in &shares {
                let behind = &left[coming.start + taken..coming.end];
                if behind.is_empty() {
                    self.compact_if_half_dead(held, first, *leaf)?;
                    continue;
                }
                if !self.make_room_in_leaf(held, (level, first), *leaf, &behind[0].0)? {
                    return Ok(false);
                }
                rest.extend_from_slice(behind);
            }
            left = rest;
        }
        self.tallies.add_moves(records.len());
        // The records will leave their source, so they are not new: this cancels the additions of `take_shares`.
        self.tallies.add_records(-counted(records));
        Ok(true)
    }

    /// Sorts records by their keys. Records whose payload has been freed are left out.
    fn sorted(&self, records: &[MovingOf<R>]) -> Result<Vec<Sorted<'_, MovingOf<R>>>> {
        let mut sorted = Vec::with_capacity(records.len());
        for &moving in records {
            sorted.extend(self.sort_key_of(&moving)?.map(|key| (key, moving)));
        }
        sorted.sort_unstable_by(|(a, _), (b, _)| (**a).cmp(b));
        Ok(sorted)
    }

    /// Assigns sorted records to leaves.
    fn shares<'a>(
        &'a self,
        first: EntryRef<'a>,
        records: &[Sorted<'_, MovingOf<R>>],
    ) -> Result<Vec<Share<'a>>> {
        let mut shares = Vec::new();
        let mut start = 0;
        while let Some((key, _)) = records.get(start) {
            let (leaf, bound) = self.leaf_of(first, key)?;
            let rest = &records[start..];
            let count =
                bound.map_or(rest.len(), |bound| rest.partition_point(|(key, _)| **key < *bound));
            let size = self.state(leaf)?.size;
            let taken = count.min(self.shape.records() - size);
            shares.push(Share { leaf, coming: start..start + count, size, taken });
            start += count;
        }
        Ok(shares)
    }

    /// Appends to each leaf the records for which it has room.
    fn take_shares(
        &self,
        held: &Held<'_, M>,
        first: EntryRef<'_>,
        shares: &[Share<'_>],
        records: &[Sorted<'_, MovingOf<R>>],
    ) -> Result<()> {
        let taking = || shares.iter().filter(|share| share.taken > 0);
        if taking().next().is_none() {
            return Ok(());
        }
        let provided = self.provide(taking().map(|to| (to.leaf, to.size + to.taken)))?;
        let mut portion = Vec::with_capacity(self.shape.records());
        let mut copied = 0;
        let appended = taking().try_for_each(|Share { leaf, coming, size, taken }| {
            let coming = &records[coming.start..coming.start + taken];
            portion.clear();
            portion.extend(coming.iter().map(|(_, moving)| *moving));
            copied += counted(&portion);
            self.write_records(*leaf, *size, &portion)
        });
        if self.next_of(first)?.is_some() {
            self.open_filter(first);
        }
        if let Err(error) = appended {
            return self.settle_runs(&provided).and(Err(error));
        }
        // P3, P6: the runs, records and filters of these leaves are durable before the records count.
        self.end_runs(&provided, self.storage.try_fence())?;
        held.begin_change();
        for Share { leaf, size, taken, .. } in taking() {
            let State { epoch, .. } = self.state(*leaf)?;
            self.store_state(*leaf, State { size: size + taken, epoch });
        }
        self.tallies.add_records(copied);
        // P7: from here on a crash keeps the records in their leaves.
        self.storage.try_fence()?;
        held.end_change();
        Ok(())
    }

    /// Sets all bits of the first leaf's filter, because searches of any leaf check this filter first. The stores are
    /// flushed.
    fn open_filter(&self, first: EntryRef<'_>) {
        if self.filter_of(first).words() != Image::full().words() {
            self.store_filter(first, &Image::full());
        }
    }

    /// Makes room in a full leaf for records from the key `coming` on. Drops its stale records, splits it, or adds a
    /// level. Returns `false` if it added a level.
    fn make_room_in_leaf(
        &self,
        held: &Held<'_, M>,
        (level, first): (usize, EntryRef<'_>),
        leaf: EntryRef<'_>,
        coming: &[u8],
    ) -> Result<bool> {
        let Sifted { needed, dropped } = self.sifted(leaf)?;
        if Worth::Full.is_met(needed.len() + dropped.len(), needed.len()) {
            return self.compact_leaf(held, first, leaf, Sifted { needed, dropped }).map(|()| true);
        }
        if self.add_level_if_due(level, true)? {
            return Ok(false);
        }
        let sorted = self.sorted(&needed)?;
        // If the arriving records follow all records of the leaf, the latter stay where they are, so that ascending
        // keys fill their leaves.
        let half = sorted.len() / 2;
        if half == 0 {
            return Err(self.levels.region().fault(
                &self.storage,
                0,
                format!("{:?} has too few keys to be split", leaf.id),
            ));
        }
        let at_end = sorted.last().is_some_and(|(last, _)| **last < *coming);
        let bound = if at_end { coming } else { &sorted[half].0 };
        let other = self.new_leaf(held, first)?;
        if !at_end {
            let moving = |(_, moving): &Sorted<'_, MovingOf<R>>| *moving;
            let lower: Vec<_> = sorted[..half].iter().map(moving).collect();
            let upper: Vec<_> = sorted[half..].iter().map(moving).collect();
            if let Err(error) = self.provide_now(&[(other, upper.len())]) {
                // Keeps the new leaf as a spare one, which the next attempt uses.
                self.spare_leaf(held, first, other, None);
                return Err(error);
            }
            self.write_records(other, 0, &upper)?;
            // P6: the records of the other leaf are durable before the journal contains their number.
            self.storage.try_fence()?;
            let split = Split { first, bound, leaf: other, size: upper.len() };
            self.rewrite(held, leaf, &lower, Some(split))?;
            dropped.iter().for_each(|moving| self.note_dropped(moving.record));
            return Ok(true);
        }
        held.begin_change();
        self.bound_leaf(first, bound, other);
        held.end_change();
        Ok(true)
    }

    /// Drops the stale records of a leaf if half of its records are removals. All its keys may have been removed, and
    /// then no further record would arrive to trigger the compaction.
    fn compact_if_half_dead(
        &self,
        held: &Held<'_, M>,
        first: EntryRef<'_>,
        leaf: EntryRef<'_>,
    ) -> Result<()> {
        let size = self.state(leaf)?.size;
        let dead: u32 = leaf.entry.dead.iter().enumerate().fold(0, |dead, (number, word)| {
            let counting = size.saturating_sub(number * 64).min(64) as u32;
            // Relaxed (E3): under the lock. In two steps, because a shift by 64 would overflow.
            let bits = word.load(&self.storage, Relaxed)
                & !(u64::MAX << (counting / 2) << counting.div_ceil(2));
            dead + bits.count_ones()
        });
        if dead == 0 || (dead as usize) * 2 < size {
            return Ok(());
        }
        let sifted = self.sifted(leaf)?;
        self.compact_leaf(held, first, leaf, sifted)
    }

    /// Replaces the records of a leaf by the needed ones.
    fn compact_leaf(
        &self,
        held: &Held<'_, M>,
        first: EntryRef<'_>,
        leaf: EntryRef<'_>,
        Sifted { needed, dropped }: Sifted<MovingOf<R>>,
    ) -> Result<()> {
        self.tallies.add_compaction();
        let known = if needed.is_empty() { dropped.first() } else { None };
        let known = known.map(|moving| self.sort_key_of(moving)).transpose()?.flatten();
        self.rewrite(held, leaf, &needed, None)?;
        dropped.iter().for_each(|moving| self.note_dropped(moving.record));
        if let Some(key) = known {
            self.spare_leaf(held, first, leaf, Some(&key));
        }
        Ok(())
    }

    /// Returns an empty leaf of a chain: a spare one, or a new one.
    fn new_leaf<'a>(&'a self, held: &Held<'_, M>, first: EntryRef<'a>) -> Result<EntryRef<'a>> {
        let EntryId::Level(number) = first.id else { return Ok(first) };
        self.storage.sim_yield_point();
        let spare = {
            let mut shard = self.leaves.write(number);
            shard.chains.entry(number).or_default().spare.pop()
        };
        if let Some(block) = spare {
            return self.entry(EntryId::Chained(block));
        }
        held.begin_change();
        let extended = self.extend(first);
        held.end_change();
        extended?;
        Ok(self.next_of(first)?.unwrap_or(first))
    }

    /// Adds a leaf with its lower bound. Called while readers wait.
    pub(super) fn bound_leaf(&self, first: EntryRef<'_>, bound: &[u8], leaf: EntryRef<'_>) {
        let (EntryId::Level(number), EntryId::Chained(block)) = (first.id, leaf.id) else { return };
        self.storage.sim_yield_point();
        let mut shard = self.leaves.write(number);
        shard.chains.entry(number).or_default().bounds.insert(bound.into(), block);
    }

    /// Makes a leaf without records spare. If it had a bound, its keys belong to the leaf before it from here on;
    /// `key` was one of them.
    fn spare_leaf(
        &self,
        held: &Held<'_, M>,
        first: EntryRef<'_>,
        leaf: EntryRef<'_>,
        key: Option<&[u8]>,
    ) {
        let (EntryId::Level(number), EntryId::Chained(block)) = (first.id, leaf.id) else { return };
        held.begin_change();
        self.storage.sim_yield_point();
        {
            let mut shard = self.leaves.write(number);
            let chain = shard.chains.entry(number).or_default();
            let bound = key.and_then(|key| {
                let mut up_to = chain.bounds.range::<[u8], _>((Unbounded, Included(key)));
                let bound = up_to.next_back().filter(|(_, known)| **known == block);
                bound.map(|(bound, _)| bound.clone())
            });
            if key.is_none() || bound.is_some() {
                chain.spare.push(block);
            }
            if let Some(bound) = bound {
                chain.bounds.remove(&bound);
            }
        }
        held.end_change();
    }
}
