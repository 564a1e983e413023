//! Leaves (past the paper): where a table is partitioned by ranges, an entry that overflows is split by keys.
//!
//! The place of a key among all says which entry of the last level it belongs to, but keys may crowd in few places: they
//! begin alike, or are numbers of which the type has many more. An entry there is not continued by one that takes what
//! comes next, but split: it and those that continue it, its *leaves*, have the keys between two bounds each, as the
//! leaves of a B-tree do, in any order along the chain. A search looks into one of them, and so does each record that
//! comes; a leaf that is full drops what is stale in it, or else gives the upper half of its records to a new leaf.
//!
//! The bounds are in DRAM only: the lower one of a leaf is its least key when the chain is first looked at. That may be
//! higher than it was before, as keys have gone since; none of its records is below it all the same. The first leaf has no
//! lower bound. A leaf that has lost its last record has no bounds: it is spare.
//!
//! A split is the compaction of one leaf by a journal that also says how many records the other one has from then on
//! (`compact`): a crash leaves neither or both, and no record in two leaves.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::compact::{Sifted, Worth};
use super::core::{Core, EntryRef};
use super::filter::Image;
use super::layout::{EntryId, State};
use super::level::MovingOf;
use super::migrate::counted;
use super::partition::SortKey;
use super::root::Held;
use crate::Result;
use crate::key::{Key, Value};
use crate::pm::Medium;

/// Parts of the bounds with locks of their own.
const SHARDS: usize = 64;

/// The bounds of all chains' leaves. Nobody looks at the medium while it holds one of the locks.
pub(super) struct Leaves(Box<[RwLock<Shard>]>);

#[derive(Default)]
struct Shard {
    /// By the number of the first leaf, which is an entry of a level.
    chains: HashMap<u32, Chain>,
    /// How many chains have been forgotten: what was read from one of them before means nothing any more.
    forgotten: u64,
}

/// The leaves of a chain but the first one.
#[derive(Default)]
struct Chain {
    /// Chained entries by their lower bounds.
    bounds: BTreeMap<Box<[u8]>, u32>,
    /// Those without records.
    spare: Vec<u32>,
}

/// A leaf: a chained entry, or the first of its chain; and the lower bound of the next one.
struct Found {
    block: Option<u32>,
    end: Option<Box<[u8]>>,
}

impl Chain {
    fn find(&self, key: &[u8]) -> Found {
        let up_to = self.bounds.range::<[u8], _>((Unbounded, Included(key)));
        let block = up_to.into_iter().next_back().map(|(_, &block)| block);
        let behind = self.bounds.range::<[u8], _>((Excluded(key), Unbounded)).next();
        Found { block, end: behind.map(|(bound, _)| bound.clone()) }
    }
}

impl Leaves {
    pub(super) fn new() -> Self {
        Self((0..SHARDS).map(|_| RwLock::default()).collect())
    }

    fn shard(&self, first: u32) -> &RwLock<Shard> {
        &self.0[first as usize % SHARDS]
    }

    fn read(&self, first: u32) -> RwLockReadGuard<'_, Shard> {
        self.shard(first).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, first: u32) -> RwLockWriteGuard<'_, Shard> {
        self.shard(first).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the leaves of a chain that has lost some, or was changed without regard to them. Under the lock of its root
    /// entry, after the change.
    pub(super) fn forget(&self, first: EntryId) {
        if let EntryId::Level(first) = first {
            let mut shard = self.write(first);
            shard.chains.remove(&first);
            shard.forgotten += 1;
        }
    }

    /// Forgets all.
    pub(super) fn forget_all(&self) {
        for shard in &self.0 {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.chains.clear();
            shard.forgotten += 1;
        }
    }

    /// About how many bytes of DRAM.
    pub(super) fn bytes(&self) -> u64 {
        let of_chain = |chain: &Chain| {
            let keys: usize = chain.bounds.keys().map(|key| key.len()).sum();
            keys + chain.bounds.len() * size_of::<(Box<[u8]>, u32)>()
        };
        let shards = self.0.iter().map(|shard| {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.chains.values().map(of_chain).sum::<usize>()
        });
        shards.sum::<usize>() as u64
    }
}

/// A record on its way, and the key by which it is sorted.
type Sorted<'a, R> = (SortKey<'a>, R);

/// What a split gives to a new leaf.
pub(super) struct Split<'a> {
    /// Of its chain.
    pub(super) first: EntryRef<'a>,
    /// Its lower bound.
    pub(super) bound: &'a [u8],
    pub(super) leaf: EntryRef<'a>,
    /// How many records it has.
    pub(super) size: usize,
}

/// Records of a leaf: which ones of those that come, how many it has, and how many it can take.
struct Share<'a> {
    leaf: EntryRef<'a>,
    coming: Range<usize>,
    size: usize,
    taken: usize,
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// Whether an entry's chain is one of leaves.
    #[inline]
    pub(super) fn has_leaves(&self, first: EntryRef<'_>) -> Result<bool> {
        Ok(self.ranges.is_some() && self.next_of(first)?.is_some())
    }

    /// The leaf of a chain that has a key, and the lower bound of the next one. The caller is pinned. Under the lock of its
    /// root entry, the chain's leaves are known from here on.
    pub(super) fn leaf_of<'a>(
        &'a self,
        first: EntryRef<'a>,
        key: &[u8],
    ) -> Result<(EntryRef<'a>, Option<Box<[u8]>>)> {
        let EntryId::Level(number) = first.id else { return Ok((first, None)) };
        let Found { block, end } = loop {
            self.pm.beside();
            let (known, forgotten) = {
                let shard = self.leaves.read(number);
                (shard.chains.get(&number).map(|chain| chain.find(key)), shard.forgotten)
            };
            if let Some(found) = known {
                break found;
            }
            let chain = self.read_leaves(first)?;
            self.pm.beside();
            let mut shard = self.leaves.write(number);
            // Whoever changes a chain knows its leaves before, or has them forgotten afterwards.
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

    /// Finds out the leaves of a chain.
    fn read_leaves(&self, first: EntryRef<'_>) -> Result<Chain> {
        let mut chain = Chain::default();
        let mut records = Vec::with_capacity(self.shape.records());
        for entry in self.chain_of(first)?.into_iter().skip(1) {
            let EntryId::Chained(block) = entry.id else { continue };
            records.clear();
            self.read_entry(entry, &mut records, |_| true)?;
            let mut least: Option<SortKey<'_>> = None;
            for moving in &records {
                // The key of a freed payload is gone, and is not looked for.
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

    /// Whether the records of each leaf of a chain lie between bounds of its own, but for those with freed payloads.
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

    /// By what a record is sorted; `None` when its payload has been freed.
    pub(super) fn sort_key_of(&self, moving: &MovingOf<K, V>) -> Result<Option<SortKey<'_>>> {
        let Some(ranges) = self.ranges else { return Ok(None) };
        if self.measure.is_inline() {
            let key = self.measure.key_of(&moving.record.key);
            return Ok(Some(ranges.sort_key_of_owned(&key)));
        }
        let payload = self.payload(moving.record.reference())?;
        Ok(payload.and_then(|payload| ranges.sort_key_of_stored(K::FORM, payload.key)))
    }

    /// Moves records of different keys, as many as an entry holds at most, to the leaves that have their keys; durable.
    /// They stay above, too: what is there twice is hidden once. Whether all have moved: not, when a leaf of the last
    /// level, which is `level`, would have to be split, and there is another level now.
    pub(super) fn scatter(
        &self,
        held: &Held<'_, M>,
        (level, first): (usize, EntryRef<'_>),
        records: &[MovingOf<K, V>],
    ) -> Result<bool> {
        // What is stale has been dropped before. Until all have arrived, those that have are copies.
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
        self.counts.moves.add(records.len() as i64);
        // They came from elsewhere.
        self.estimate.add(-counted(records));
        Ok(true)
    }

    /// Records in the order of their keys, less those whose payload has been freed.
    fn sorted(&self, records: &[MovingOf<K, V>]) -> Result<Vec<Sorted<'_, MovingOf<K, V>>>> {
        let mut sorted = Vec::with_capacity(records.len());
        for &moving in records {
            sorted.extend(self.sort_key_of(&moving)?.map(|key| (key, moving)));
        }
        sorted.sort_unstable_by(|(a, _), (b, _)| (**a).cmp(b));
        Ok(sorted)
    }

    /// Which leaf takes which of some records.
    fn shares<'a>(
        &'a self,
        first: EntryRef<'a>,
        records: &[Sorted<'_, MovingOf<K, V>>],
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

    /// Appends to leaves what they can take.
    fn take_shares(
        &self,
        held: &Held<'_, M>,
        first: EntryRef<'_>,
        shares: &[Share<'_>],
        records: &[Sorted<'_, MovingOf<K, V>>],
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
        // P3, P6: the runs, records and filters of these leaves.
        self.end_runs(&provided, self.pm.try_fence())?;
        held.begin_change();
        for Share { leaf, size, taken, .. } in taking() {
            let State { epoch, .. } = self.state(*leaf)?;
            self.store_state(*leaf, State { size: size + taken, epoch });
        }
        self.estimate.add(copied);
        // P7: the records are in their leaves.
        self.pm.try_fence()?;
        held.end_change();
        Ok(())
    }

    /// The filter of a first leaf knows every key: it stands for that of all leaves. Flushed.
    fn open_filter(&self, first: EntryRef<'_>) {
        if self.filter_of(first).words() != Image::full().words() {
            self.store_filter(first, &Image::full());
        }
    }

    /// Makes room in a full leaf, to which records from `coming` on are to come: drops what is stale in it, or splits it,
    /// unless another level is added. Whether there is some.
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
        // What comes behind all others leaves them where they are: numbers that count up fill their leaves.
        let half = sorted.len() / 2;
        if half == 0 {
            return Err(self.corrupt(&self.levels, 0, format!("{:?} has hardly a key", leaf.id)));
        }
        let at_end = sorted.last().is_some_and(|(last, _)| **last < *coming);
        let bound = if at_end { coming } else { &sorted[half].0 };
        let other = self.new_leaf(held, first)?;
        if !at_end {
            let moving = |(_, moving): &Sorted<'_, MovingOf<K, V>>| *moving;
            let lower: Vec<_> = sorted[..half].iter().map(moving).collect();
            let upper: Vec<_> = sorted[half..].iter().map(moving).collect();
            if let Err(error) = self.provide_now(&[(other, upper.len())]) {
                // The next attempt takes it, not another one.
                self.spare_leaf(held, first, other, None);
                return Err(error);
            }
            self.write_records(other, 0, &upper)?;
            // P6: what the other leaf will have, before the journal says so.
            self.pm.try_fence()?;
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

    /// Drops what is stale in a leaf of which half the records say that a key was removed: no key may be left, and then
    /// no record comes any more that would make it do so.
    fn compact_if_half_dead(
        &self,
        held: &Held<'_, M>,
        first: EntryRef<'_>,
        leaf: EntryRef<'_>,
    ) -> Result<()> {
        let size = self.state(leaf)?.size;
        let dead: u32 = leaf.entry.dead.iter().enumerate().fold(0, |dead, (number, word)| {
            let counting = size.saturating_sub(number * 64).min(64) as u32;
            // Relaxed (E3): under the lock. In two steps: a shift by 64 is none.
            let bits = word.load(&self.pm, Relaxed)
                & !(u64::MAX << (counting / 2) << counting.div_ceil(2));
            dead + bits.count_ones()
        });
        if dead == 0 || (dead as usize) * 2 < size {
            return Ok(());
        }
        let sifted = self.sifted(leaf)?;
        self.compact_leaf(held, first, leaf, sifted)
    }

    /// Leaves a leaf what is needed of it.
    fn compact_leaf(
        &self,
        held: &Held<'_, M>,
        first: EntryRef<'_>,
        leaf: EntryRef<'_>,
        Sifted { needed, dropped }: Sifted<MovingOf<K, V>>,
    ) -> Result<()> {
        self.counts.compactions.add(1);
        let known = if needed.is_empty() { dropped.first() } else { None };
        let known = known.map(|moving| self.sort_key_of(moving)).transpose()?.flatten();
        self.rewrite(held, leaf, &needed, None)?;
        dropped.iter().for_each(|moving| self.note_dropped(moving.record));
        if let Some(key) = known {
            self.spare_leaf(held, first, leaf, Some(&key));
        }
        Ok(())
    }

    /// An entry without records among the leaves of a chain.
    fn new_leaf<'a>(&'a self, held: &Held<'_, M>, first: EntryRef<'a>) -> Result<EntryRef<'a>> {
        let EntryId::Level(number) = first.id else { return Ok(first) };
        self.pm.beside();
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

    /// A leaf has the keys from a bound on. Readers are kept away.
    pub(super) fn bound_leaf(&self, first: EntryRef<'_>, bound: &[u8], leaf: EntryRef<'_>) {
        let (EntryId::Level(number), EntryId::Chained(block)) = (first.id, leaf.id) else { return };
        self.pm.beside();
        let mut shard = self.leaves.write(number);
        shard.chains.entry(number).or_default().bounds.insert(bound.into(), block);
    }

    /// A leaf without records is free for the next split. If it had a bound, the leaf before it has its keys, too; `key`
    /// was one of them.
    fn spare_leaf(
        &self,
        held: &Held<'_, M>,
        first: EntryRef<'_>,
        leaf: EntryRef<'_>,
        key: Option<&[u8]>,
    ) {
        let (EntryId::Level(number), EntryId::Chained(block)) = (first.id, leaf.id) else { return };
        held.begin_change();
        self.pm.beside();
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
