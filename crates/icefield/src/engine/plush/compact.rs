//! Compaction in place (not in the paper): an entry of the last level drops its stale records, so that updates and
//! removals do not fill the table. An entry merges updates as soon as a migration brings them: an entry of fifteen
//! records needs no second bucket for fifteen newer versions of them.
//!
//! The new contents of the entry go into a journal first. Once the journal is durable, a crash may leave the entry in
//! any state, because opening repeats the compaction.

use super::core::Core;
use super::epoch::LogEpoch;
use super::journals::Contents;
use super::layout::{EntryRef, State};
use super::moving::{Moving, MovingOf};
use super::newest::Newest;
use super::root_lock::Held;
use crate::Result;
use crate::storage::{Medium, not_poisoned};
use crate::types::RecordForm;

/// The share of records that a compaction must drop to be worth its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// A fifth: the records fit without a compaction, but need more buckets.
    Early,
    /// A sixteenth: the records do not fit. A few full entries among thousands must not cause a level that the others
    /// do not need.
    Full,
    /// One record: no space is left, or the caller requested a compaction.
    Any,
}

impl Worth {
    pub(super) fn is_met(self, before: usize, after: usize) -> bool {
        match self {
            Self::Early => after * 5 <= before * 4 && before > 0,
            Self::Full => after * 16 <= before * 15 && before > 0,
            Self::Any => after < before,
        }
    }
}

/// The outcome of an attempt to merge arriving records with those of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absorbed {
    Yes,
    /// Too few of the records, the arriving ones included, are stale.
    Worthless,
    /// The records do not fit, a merge saves no space, or the entry is continued.
    Impossible,
}

/// The records of an entry, divided for a compaction.
pub(super) struct Sifted<R> {
    /// Oldest first.
    pub(super) needed: Vec<R>,
    pub(super) dropped: Vec<R>,
}

/// The other half of a split leaf.
pub(super) struct Split<'a> {
    /// The first leaf of the chain.
    pub(super) first: EntryRef<'a>,
    /// The lower bound of the new leaf.
    pub(super) bound: &'a [u8],
    pub(super) leaf: EntryRef<'a>,
    /// The number of records of the new leaf.
    pub(super) size: usize,
}

/// An entry and its records.
type LiveOf<'a, R> = (EntryRef<'a>, Sifted<MovingOf<R>>);

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Drops the stale records of an entry of the last level, and of the entries that continue it, if their share meets
    /// `worth`. Returns whether it did.
    pub(super) fn compact(
        &self,
        held: &Held<'_, M>,
        first: EntryRef<'_>,
        worth: Worth,
    ) -> Result<bool> {
        self.compact_hidden(held, first, &[], worth)
    }

    /// Does the same as [`Core::compact`], given `newer`, the records above that have hashes of the entry, newest
    /// first. The levels below must have no older records that the removals in the chain hide.
    fn compact_hidden(
        &self,
        held: &Held<'_, M>,
        first: EntryRef<'_>,
        newer: &[MovingOf<R>],
        worth: Worth,
    ) -> Result<bool> {
        let live = self.live(first, newer)?;
        let after: usize = live.iter().map(|(_, sifted)| sifted.needed.len()).sum();
        let dropped: usize = live.iter().map(|(_, sifted)| sifted.dropped.len()).sum();
        if !worth.is_met(after + dropped, after) {
            return Ok(false);
        }
        self.tallies.add_compaction();
        let had_leaves = self.has_leaves(first)?;
        let rewritten = self.rewrite_all(held, live);
        held.begin_change();
        let unchained = rewritten.and_then(|()| self.unchain_empty(first)).and_then(|()| {
            match had_leaves && !self.has_leaves(first)? {
                true => self.forget_continuations(first),
                false => Ok(()),
            }
        });
        if self.placement.ranges().is_some() {
            self.leaves.forget(first.id);
        }
        held.end_change();
        unchained.map(|()| true)
    }

    fn rewrite_all(&self, held: &Held<'_, M>, live: Vec<LiveOf<'_, R>>) -> Result<()> {
        // Oldest first: an entry with the removal of a key comes after those with the removed records.
        for (entry, Sifted { needed, dropped }) in live {
            if !dropped.is_empty() {
                self.rewrite(held, entry, &needed, None)?;
                dropped.into_iter().for_each(|moving| self.note_dropped(moving.record));
            }
        }
        Ok(())
    }

    /// Returns the newest record of each key in a chain, given newer records above. Removals are dropped, because
    /// nothing below is left for them to hide.
    fn live<'a>(
        &'a self,
        first: EntryRef<'a>,
        newer: &[MovingOf<R>],
    ) -> Result<Vec<LiveOf<'a, R>>> {
        let mut newest = Newest::with_capacity(self.shape.records() + newer.len());
        self.each_newest(&mut newest, newer, |_, _| {})?;
        let mut all = Vec::new();
        for entry in self.chain_of(first)?.into_iter().rev() {
            let mut newest_first = Vec::with_capacity(self.shape.records());
            self.read_entry(entry, &mut newest_first, |_| true)?;
            all.push((entry, newest_first));
        }
        let sifted = all.iter().map(|(entry, newest_first)| {
            newest.reserve(newest_first.len());
            Ok((*entry, self.sift(&mut newest, newest_first)?))
        });
        let mut live = sifted.collect::<Result<Vec<_>>>()?;
        live.reverse();
        Ok(live)
    }

    /// Divides the records of one entry into needed and dropped ones. No other entry of its chain has the same keys.
    pub(super) fn sifted(&self, entry: EntryRef<'_>) -> Result<Sifted<MovingOf<R>>> {
        let mut newest_first = Vec::with_capacity(self.shape.records());
        self.read_entry(entry, &mut newest_first, |_| true)?;
        self.sift(&mut Newest::with_capacity(newest_first.len()), &newest_first)
    }

    /// An upper bound for the number of stale records among some, without reading payloads: removals, records whose
    /// hash bits collide with those of another record, and records whose payload has been freed.
    fn stale_at_most(&self, records: &[MovingOf<R>]) -> Result<usize> {
        let mut seen = [0_u64; 128];
        let mut stale = 0;
        for &Moving { record, hash } in records {
            // The high bits are the same for all records of the entry, so only low bits are used.
            let (word, bit) = (&mut seen[(hash >> 6) as usize % 128], 1 << (hash % 64));
            stale += usize::from(record.dead || *word & bit != 0 || self.dangles(record)?);
            *word |= bit;
        }
        Ok(stale)
    }

    /// Divides the records of an entry into needed and dropped ones.
    fn sift<'m>(
        &self,
        newest: &mut Newest<'m, R::KeyWords, R::ValueWords>,
        newest_first: &'m [MovingOf<R>],
    ) -> Result<Sifted<MovingOf<R>>> {
        let (mut needed, mut dropped) = (Vec::with_capacity(newest_first.len()), Vec::new());
        self.each_newest(newest, newest_first, |moving, is_newest| {
            if is_newest && !moving.record.dead {
                needed.push(*moving);
            } else {
                dropped.push(*moving);
            }
        })?;
        needed.reverse();
        Ok(Sifted { needed, dropped })
    }

    /// Merges newer records that arrive at an entry of the last level with the entry's records, if that is worth it and
    /// the entry is not continued. Called when appending the arriving records would take more runs.
    pub(super) fn absorb(
        &self,
        held: &Held<'_, M>,
        entry: EntryRef<'_>,
        coming: &[MovingOf<R>],
        worth: Worth,
    ) -> Result<Absorbed> {
        if self.next_of(entry)?.is_some() {
            return Ok(Absorbed::Impossible);
        }
        let before = self.state(entry)?.size + coming.len();
        let mut newest_first = Vec::with_capacity(before);
        newest_first.extend(coming.iter().rev());
        self.read_entry(entry, &mut newest_first, |_| true)?;
        if !worth.is_met(before, before - self.stale_at_most(&newest_first)?) {
            return Ok(Absorbed::Worthless);
        }
        let Sifted { needed, dropped } =
            self.sift(&mut Newest::with_capacity(before), &newest_first)?;
        if !worth.is_met(before, needed.len()) {
            return Ok(Absorbed::Worthless);
        }
        let fits = needed.len() <= self.shape.records();
        let saves =
            before > self.shape.records() || self.runs_for(needed.len()) < self.runs_for(before);
        if !(fits && saves) {
            return Ok(Absorbed::Impossible);
        }
        self.provide_now(&[(entry, needed.len())])?;
        self.tallies.add_compaction();
        // The records are still in the entries above, too: the upper copy of a record hides the lower one.
        self.rewrite(held, entry, &needed, None)?;
        dropped.into_iter().for_each(|moving| self.note_dropped(moving.record));
        Ok(Absorbed::Yes)
    }

    /// Drops the stale records of all levels. Returns whether there were any.
    pub(super) fn compact_all(&self) -> Result<bool> {
        let mut dropped = false;
        for entry in 0..self.root.entries() {
            let _pin = self.pin();
            dropped |= self.compact_below(&self.root.lock(&self.storage, entry))?;
        }
        Ok(dropped)
    }

    /// Drops the stale records in the levels below a root entry: records that newer ones hide, and removals. Needs no
    /// space. Returns whether there were any.
    pub(super) fn compact_below(&self, held: &Held<'_, M>) -> Result<bool> {
        // An unfinished migration relies on its copies below, which may be dropped here, so it must start again.
        self.give_up_underway(held)?;
        let (step, place) = (self.shape.step(0), self.shape.place_below(0));
        let mut newer = vec![Vec::new(); 1 << step];
        for moving in self.newer_for_good(held)? {
            newer[place(moving.hash)].push(moving);
        }
        let mut dropped = false;
        for (child, newer) in newer.iter().enumerate() {
            let index = ((held.entry as u64) << step) + child as u64;
            dropped |= self.compact_under(held, 1, index, newer)?;
        }
        Ok(dropped)
    }

    /// Returns the records of a root entry that have no copy in level 1, newest first, if all of them survive a
    /// crash; none otherwise.
    fn newer_for_good(&self, held: &Held<'_, M>) -> Result<Vec<MovingOf<R>>> {
        if self.root.has_unlogged(held.entry) || self.root.is_halfway(held.entry) {
            return Ok(Vec::new());
        }
        // This fence includes the records that were acknowledged before they were durable.
        self.storage.fence_deferred()?;
        let records = (self.root.moved(held.entry)..self.root.size(held.entry)).rev();
        Ok(records.map(|at| self.moving(self.root.record(held.entry, at))).collect())
    }

    /// Does the same as [`Core::compact_below`] for an entry and those below it, given `newer`, the records above that
    /// have hashes of the entry, newest first. Works from the bottom up: when a removal is dropped, the records that it
    /// hides are gone already.
    fn compact_under(
        &self,
        held: &Held<'_, M>,
        level: usize,
        index: u64,
        newer: &[MovingOf<R>],
    ) -> Result<bool> {
        let first = self.level_entry(level, index)?;
        let mut dropped = false;
        if level < self.levels.count(&self.storage) {
            let mut all = newer.to_vec();
            self.newest_first_where(first, &mut all, |_| true)?;
            let (place, step) = (self.shape.place_below(level), self.shape.step(level));
            let mut parts = vec![Vec::new(); 1 << step];
            all.into_iter().for_each(|moving| parts[place(moving.hash)].push(moving));
            for (child, part) in parts.iter().enumerate() {
                let child = (index << step) + child as u64;
                dropped |= self.compact_under(held, level + 1, child, part)?;
            }
        }
        Ok(self.compact_hidden(held, first, newer, Worth::Any)? || dropped)
    }

    fn unchain_empty(&self, first: EntryRef<'_>) -> Result<()> {
        let mut before = first;
        while let Some(next) = self.next_of(before)? {
            if self.state(next)?.size == 0 {
                self.unchain(before, next)?;
            } else {
                before = next;
            }
        }
        Ok(())
    }

    /// Replaces the records of an entry by `records`. With `split`, the remaining records belong to the new leaf
    /// afterwards.
    pub(super) fn rewrite(
        &self,
        held: &Held<'_, M>,
        entry: EntryRef<'_>,
        records: &[MovingOf<R>],
        split: Option<Split<'_>>,
    ) -> Result<()> {
        let other = split.as_ref().map(|split| (split.leaf, split.size));
        let (journal, _lock) = self.journals.take(&self.storage)?;
        // After a failed sync, the journal must not be overwritten: the next opening may have to roll it forward.
        not_poisoned(&self.storage)?;
        let leaf = other.map(|(leaf, size)| (leaf.id, size));
        // Fails here, and not between the words of the entry, if the references of the entry are damaged.
        self.writable(entry, records.len())?;
        journal.write(&self.storage, entry.id, records, leaf);
        // P10, commit point of the compaction: from here on it is rolled forward.
        self.storage.try_fence()?;
        held.begin_change();
        let replaced = self.replace(entry, records, other).and_then(|()| {
            // P12: the journal has ended durably before the entry changes again.
            journal.end(&self.storage)
        });
        let replaced = match split {
            None => replaced.and_then(|()| self.give_back(entry, records.len())),
            // A split gives no runs back, because the entry fills up again. The leaf gets its bound even if a sync
            // failed: readers continue with the words that were stored.
            Some(Split { first, bound, leaf, .. }) => {
                if self.state(leaf).is_ok_and(|state| state.size > 0) {
                    self.bound_leaf(first, bound, leaf);
                }
                replaced
            }
        };
        held.end_change();
        replaced
    }

    /// Stores the new records of an entry, and makes them durable.
    fn replace(
        &self,
        entry: EntryRef<'_>,
        records: &[MovingOf<R>],
        other: Option<(EntryRef<'_>, usize)>,
    ) -> Result<()> {
        let State { epoch, .. } = self.state(entry)?;
        if !records.is_empty() {
            self.write_records(entry, 0, records)?;
        }
        self.store_state(entry, State { size: records.len(), epoch });
        if let Some((other, size)) = other {
            self.store_state(other, State { size, epoch: LogEpoch::NONE });
        }
        // P11: the new records are durable before the journal ends.
        self.storage.try_fence()
    }

    /// Rolls forward the compactions that a crash interrupted, and returns their number. Idempotent.
    pub(super) fn redo_journals(&self) -> Result<u64> {
        let unfinished = self.journals.unfinished(&self.storage)?;
        for (journal, Contents { entry, records, other }) in &unfinished {
            let other = other.map(|(id, size)| Ok((self.entry(id)?, size))).transpose()?;
            let records: Vec<_> = records.iter().map(|&record| self.moving(record)).collect();
            self.replace(self.entry(*entry)?, &records, other)?;
            // The end of the journal becomes durable by the next fence of the opening, before the entry can change.
            journal.end_unfenced(&self.storage);
        }
        Ok(unfinished.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::{Acquire, Release};

    use crate::engine::plush::options::table_of_words;
    use crate::engine::{Operations, WriteKind};
    use crate::storage::{Mapped, MappedOptions};
    use crate::types::{Ignore, Raw};

    #[test]
    fn an_entry_with_a_damaged_reference_is_not_rewritten() {
        let storage = Mapped::anonymous(MappedOptions::default()).expect("memory");
        let table = table_of_words(storage).expect("memory");
        for key in 0..20_000 {
            let (key, value) = (Raw::Word(key), Raw::Word(key));
            table.write(WriteKind::Put, &key, &value, Ignore).expect("space");
        }
        let core = &*table.core;
        let entry = core.level_entry(1, 0).expect("it exists");
        let held = core.root.lock(&core.storage, 0);
        let mut before = core.sifted(entry).expect("whole").needed;
        before.truncate(20);
        core.rewrite(&held, entry, &before, None).expect("whole");
        let unused = entry.entry.runs.iter().filter(|run| run.load(&core.storage, Acquire) == 0);
        unused.for_each(|run| run.store(&core.storage, u32::MAX, Release));
        let more: Vec<_> = before.iter().cycle().take(core.shape.records()).copied().collect();
        let rewritten = core.rewrite(&held, entry, &more, None);
        assert!(matches!(rewritten, Err(crate::Error::Corrupt { .. })), "{rewritten:?}");
        assert!(core.journals.unfinished(&core.storage).expect("whole").is_empty());
        let now = core.sifted(entry).expect("whole").needed;
        let now = now.iter().map(|moving| moving.hash);
        assert!(now.eq(before.iter().map(|moving| moving.hash)));
    }
}
