//! Extendible hashing over segments: the directory, its doubling, splits, `clear` (§4.1, §4.7).
//!
//! The directory of depth *g* has a place of its own: entries 2^g to 2^(g+1) of a region. So doubling needs no
//! allocation and leaks nothing; old directories stay below the new one, half its size in all. Two regions take turns,
//! one per generation of `clear`.
//!
//! The root word is stored and made durable first, and mirrored in DRAM afterwards; everybody reads the mirror, so
//! nobody acts on a directory that a crash could take back.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use super::bucket::Guard;
use super::directory::{Directory, Located, Range};
use super::layout::{Link, MAX_DEPTH, RootWord, State, split_bit};
use super::segment::{ChainBlocks, Core, Segment, SegmentBlocks};
use super::split::MAX_CHAIN_TO_SPLIT;
use crate::base::counter::ShardedCounter;
use crate::key::{Key, Value};
use crate::pm::{Cell64, Medium, Region};
use crate::{Error, Result};

/// Marks a directory entry that has been stored.
const PRESENT: u64 = 1 << 63;
/// The allocator's tag for the segment that `clear` starts anew with, and for those of a new table.
const NO_SOURCE: u32 = u32::MAX;
/// A directory may have this many entries per segment; a split that needs a larger one lengthens a chain instead.
/// Random hashes stay below 4; a crowd of equal hashes would double for ever.
const MAX_ENTRIES_PER_SEGMENT: u64 = 16;
/// The part of the slots that `capacity` and `reserve` plan to use: far enough below the load at which segments split
/// that the fullest of many thousands does not.
const PLANNED_LOAD_PERCENT: u64 = 75;

/// The extendible-hashing directory.
///
/// ```
/// let table: icefield::Dash<u64, u64, icefield::Eh> = icefield::DashEh::in_memory()?;
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct Eh {
    /// [`RootWord`], a copy of the durable one, never ahead of it.
    mirror: AtomicU64,
    regions: [Region; 2],
    /// Splits hold it shared, `clear` and `backup` alone.
    structure: RwLock<()>,
    /// Guards directory entries and doubling.
    entries: Mutex<()>,
    doublings: ShardedCounter,
}

impl Eh {
    fn map<M: Medium>(pm: &M) -> Result<[Region; 2]> {
        let max_bytes = 16 << MAX_DEPTH;
        Ok([pm.region("directory-0.ice", max_bytes)?, pm.region("directory-1.ice", max_bytes)?])
    }

    fn new(regions: [Region; 2], root: RootWord) -> Self {
        Self {
            mirror: AtomicU64::new(root.pack()),
            regions,
            structure: RwLock::new(()),
            entries: Mutex::new(()),
            doublings: ShardedCounter::default(),
        }
    }

    #[inline]
    fn root(&self) -> RootWord {
        // Acquire (E4): pairs with the Release in `set_root`; the directory behind the word is complete.
        RootWord::unpack(self.mirror.load(Acquire))
    }

    fn lock_entries(&self) -> MutexGuard<'_, ()> {
        // A panic cannot have left anything half done that a crash could not: recovery handles it.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entries of the directory that `root` names.
    fn entries<M: Medium>(&self, pm: &M, root: RootWord) -> Result<&[Cell64]> {
        let count = 1_u64 << root.depth;
        let region = &self.regions[root.parity()];
        region.slice_at(count * 8, count as usize).ok_or_else(|| {
            let detail = format!("the file ends before the directory of depth {}", root.depth);
            Error::corrupt(pm.path().join(region.name()), count * 8, detail)
        })
    }

    /// The segment of a hash in the directory that `root` names; `None`: there is no such entry.
    #[inline(always)]
    fn entry<M: Medium>(&self, pm: &M, root: RootWord, hash: u64) -> Option<u32> {
        let cell = self.regions[root.parity()].at::<Cell64>(root.place(hash) * 8)?;
        // Acquire (E4): pairs with the Release in `redirect`.
        segment_of(cell.load(pm, Acquire))
    }

    #[cold]
    fn no_entry<M: Medium>(&self, pm: &M, root: RootWord, index: u64) -> Error {
        let region = &self.regions[root.parity()];
        let offset = ((1 << root.depth) + index) * 8;
        let detail = match region.at::<Cell64>(offset) {
            Some(entry) => format!("directory entry {:#x}", entry.load(pm, Relaxed)),
            None => format!("the file ends before entry {index} of the directory"),
        };
        Error::corrupt(pm.path().join(region.name()), offset, detail)
    }

    /// Stores, persists and then publishes a root word.
    fn set_root<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        root: RootWord,
    ) -> Result<()> {
        let cell = &core.root()?.directory;
        cell.store(&core.pm, root.pack(), Release);
        // P12, commit point of doubling and of `clear`.
        core.pm.persist(cell);
        // Release (E4): pairs with the Acquire in `root`.
        self.mirror.store(root.pack(), Release);
        Ok(())
    }

    /// Makes the directory twice as large; the caller holds the entries' mutex. `false`: it would be out of proportion.
    fn double<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
    ) -> Result<bool> {
        let pm = &core.pm;
        let old = self.root();
        let new = RootWord { depth: old.depth + 1, ..old };
        let used = core.segment_blocks.used(pm, &core.root()?.segments);
        if new.depth > MAX_DEPTH || 1 << new.depth > used.saturating_mul(MAX_ENTRIES_PER_SEGMENT) {
            return Ok(false);
        }
        pm.grow(&self.regions[new.parity()], 16 << new.depth)?;
        let (from, to) = (self.entries(pm, old)?, self.entries(pm, new)?);
        for (index, entry) in from.iter().enumerate() {
            let entry = entry.load(pm, Relaxed);
            to[2 * index].store(pm, entry, Release);
            to[2 * index + 1].store(pm, entry, Release);
        }
        pm.flush(to.as_ptr().cast(), size_of_val(to));
        // P13: the new directory is durable before the root names it.
        pm.fence();
        self.set_root(core, new)?;
        self.doublings.add(1);
        Ok(true)
    }

    /// Points the entries of the hashes `pattern..` (`depth` bits) from one segment to another. Entries that name a
    /// third segment stay: it has split off since (recovery may come late).
    fn redirect<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        (pattern, depth): (u64, u32),
        from: u32,
        to: u32,
    ) -> Result<()> {
        let pm = &core.pm;
        let _entries = self.lock_entries();
        let root = self.root();
        let (first, last) = (root.index(pattern), root.index(pattern | hashes_below(depth)));
        let entries = self.entries(pm, root)?.get(first as usize..=last as usize).unwrap_or(&[]);
        for entry in
            entries.iter().filter(|entry| entry.load(pm, Relaxed) == PRESENT | u64::from(from))
        {
            // Release (E4): the segment behind the entry is complete.
            entry.store(pm, PRESENT | u64::from(to), Release);
        }
        // P14: durable by the fence of P8, before the split is declared over. Until then recovery stores the same
        // entries.
        pm.flush(entries.as_ptr().cast(), size_of_val(entries));
        Ok(())
    }

    /// Splits a locked segment. `false`: the directory may not grow that far, or the segment's chain is too long.
    fn split<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        segment: Segment<'_>,
        guards: &[Guard<'_, M>],
    ) -> Result<bool> {
        let chained = core.chain(segment.id).take(MAX_CHAIN_TO_SPLIT + 1).count();
        if chained > MAX_CHAIN_TO_SPLIT {
            return Ok(false);
        }
        // One split at a time may need chained buckets, so that the few intents suffice.
        let _alone = (chained > 0)
            .then(|| core.chained_split.lock().unwrap_or_else(PoisonError::into_inner));
        let link = core.link(segment.id)?;
        {
            let _entries = self.lock_entries();
            if link.depth >= self.root().depth && !self.double(core)? {
                return Ok(false);
            }
        }
        let pattern = core.header(segment.id)?.pattern.load(&core.pm, Acquire);
        let records = core.count(segment)?;
        let mut new = core.new_segment(segment.id)?;
        let bit = split_bit(link.depth);
        let right = Link { state: State::Stable, depth: link.depth + 1, side: link.side };
        let copied = core
            .copy_half(segment, &mut new, bit)
            .and_then(|()| core.complete(&new, right, pattern | bit));
        if let Err(error) = copied {
            core.abandon(new)?;
            return Err(error);
        }
        let new_id = new.segment.id;
        new.unlock();
        // P15, commit point of the split: from here on it is rolled forward.
        core.set_link(segment.id, State::Splitting, link.depth, Some(new_id))?;
        core.adopt(new)?;
        self.redirect(core, (pattern | bit, link.depth + 1), segment.id, new_id)?;
        guards.iter().for_each(Guard::begin_change);
        core.strike_half(segment, bit)?;
        // P16: the split is over.
        core.set_link(segment.id, State::Stable, link.depth + 1, Some(new_id))?;
        core.counts.splits.add(1);
        core.counts.split_records.add(records as i64);
        core.counts.split_slots.add(core.geometry.segment_slots() as i64);
        Ok(true)
    }

    /// Whether a segment is in the directory, or about to be because its neighbour's split has been committed.
    fn is_owned<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        id: u32,
    ) -> Result<bool> {
        let pattern = core.header(id)?.pattern.load(&core.pm, Acquire);
        let holder = self.locate(core, pattern)?.segment;
        if holder == id {
            return Ok(true);
        }
        let link = core.link(holder)?;
        Ok(link.state == State::Splitting && link.side == Some(id))
    }

    /// Splits until no segment that covers `hash` is shallower than `depth`.
    fn deepen<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        hash: u64,
        depth: u32,
    ) -> Result<()> {
        let _structure = self.structure.read().unwrap_or_else(PoisonError::into_inner);
        loop {
            let located = self.locate(core, hash)?;
            super::recover::touch(core, self, located.segment)?;
            let segment = core.segment(located.segment)?;
            let guards = core.lock_all(segment);
            if self.is_current(&core.pm, hash, located)
                && (core.link(segment.id)?.depth >= depth || !self.split(core, segment, &guards)?)
            {
                return Ok(());
            }
        }
    }
}

/// The segment that a directory entry names.
#[inline]
fn segment_of(entry: u64) -> Option<u32> {
    (entry >> 32 == PRESENT >> 32).then_some(entry as u32)
}

/// All hash bits below the first `depth`.
fn hashes_below(depth: u32) -> u64 {
    u64::MAX.checked_shr(depth).unwrap_or(0)
}

/// The directory depth at which `records` records fill the segments as planned.
fn planned_depth(segment_slots: u64, records: u64) -> u32 {
    let per_segment = (segment_slots * PLANNED_LOAD_PERCENT / 100).max(1);
    let segments = records.div_ceil(per_segment).max(1);
    segments.next_power_of_two().trailing_zeros().min(MAX_DEPTH)
}

impl Directory for Eh {
    const DESIGN: &'static str = "dash-eh";

    fn create<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        core: &Core<K, V, M>,
        capacity: u64,
    ) -> Result<Self> {
        let pm = &core.pm;
        let root = RootWord {
            generation: 0,
            depth: planned_depth(core.geometry.segment_slots(), capacity),
        };
        let eh = Self::new(Self::map(pm)?, root);
        pm.grow(&eh.regions[0], 16 << root.depth)?;
        let count = 1_u32 << root.depth;
        // All at once, so that the file grows in one step.
        pm.grow(&core.segments, u64::from(count) * core.geometry.segment_bytes())?;
        for index in 0..count {
            let mut new = core.new_segment(NO_SOURCE)?;
            core.header(new.segment.id)?.chain.store(pm, 0, Release);
            let side = (index + 1 < count).then_some(index + 1);
            let link = Link { state: State::Stable, depth: root.depth, side };
            // Bit 63 goes to index bit depth - 1; in two shifts because depth 0 would shift by 64.
            core.complete(&new, link, u64::from(index) << 1 << (63 - root.depth))?;
            eh.entries(pm, root)?[index as usize].store(
                pm,
                PRESENT | u64::from(new.segment.id),
                Release,
            );
            new.unlock();
            core.adopt(new)?;
        }
        let entries = eh.entries(pm, root)?;
        pm.flush(entries.as_ptr().cast(), size_of_val(entries));
        eh.set_root(core, root)?;
        Ok(eh)
    }

    fn open<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        core: &Core<K, V, M>,
    ) -> Result<(Self, u64)> {
        let words = core.root()?;
        let root = RootWord::unpack(words.directory.load(&core.pm, Acquire));
        let eh = Self::new(Self::map(&core.pm)?, root);
        if root.depth > MAX_DEPTH {
            return Err(core.corrupt(
                &core.table,
                crate::pm::superblock::ROOT_OFFSET,
                format!("directory depth {}", root.depth),
            ));
        }
        eh.entries(&core.pm, root)?;
        let mut resolved = core.segment_blocks.recover(
            &core.pm,
            &words.segments,
            &SegmentBlocks(core),
            |block, _| eh.is_owned(core, block),
        )?;
        resolved += core.chain_blocks.recover(
            &core.pm,
            &words.chains,
            &ChainBlocks(core),
            |block, owner| Ok(eh.is_owned(core, owner)? && core.owns_chain_block(owner, block)?),
        )?;
        Ok((eh, resolved))
    }

    #[inline(always)]
    fn glance<M: Medium>(&self, pm: &M, hash: u64) -> Option<Located> {
        let root = self.root();
        let segment = self.entry(pm, root, hash)?;
        Some(Located { segment, generation: root.generation })
    }

    fn locate<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        hash: u64,
    ) -> Result<Located> {
        loop {
            let root = self.root();
            if let Some(segment) = self.entry(&core.pm, root, hash) {
                return Ok(Located { segment, generation: root.generation });
            }
            // A cleared directory is reused two generations later: what was not an entry may have been another root's.
            if self.root() == root {
                return Err(self.no_entry(&core.pm, root, root.index(hash)));
            }
        }
    }

    fn range<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        hash: u64,
    ) -> Result<Range> {
        loop {
            let located = self.locate(core, hash)?;
            super::recover::touch(core, self, located.segment)?;
            let link = core.link(located.segment)?;
            // A segment in the middle of its split still has its old depth, but the directory may know better already.
            let depth = link.depth + u32::from(link.state == State::Splitting);
            if self.is_current(&core.pm, hash, located) && core.link(located.segment)? == link {
                if depth > self.root().depth {
                    let offset = u64::from(located.segment) * 32;
                    let detail = format!(
                        "segment {} is deeper ({depth}) than the directory",
                        located.segment
                    );
                    return Err(core.corrupt(&core.headers, offset, detail));
                }
                let below = hashes_below(depth);
                return Ok(Range { located, first: hash & !below, last: hash | below });
            }
        }
    }

    fn make_room<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        hash: u64,
        located: Located,
    ) -> Result<()> {
        let _structure = self.structure.read().unwrap_or_else(PoisonError::into_inner);
        let segment = core.segment(located.segment)?;
        let guards = core.lock_all(segment);
        if !self.is_current(&core.pm, hash, located) || core.has_room(segment, hash)? {
            return Ok(());
        }
        if !self.split(core, segment, &guards)? {
            core.extend_chain(segment)?;
        }
        Ok(())
    }

    fn finish_split<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        id: u32,
    ) -> Result<()> {
        let link = core.link(id)?;
        let (State::Splitting, Some(right)) = (link.state, link.side) else { return Ok(()) };
        let bit = split_bit(link.depth);
        let pattern = core.header(id)?.pattern.load(&core.pm, Acquire) | bit;
        self.redirect(core, (pattern, link.depth + 1), id, right)?;
        core.strike_half(core.segment(id)?, bit)?;
        core.set_link(id, State::Stable, link.depth + 1, Some(right))
    }

    fn reserve<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        records: u64,
    ) -> Result<()> {
        let depth = planned_depth(core.geometry.segment_slots(), records);
        let mut hash = 0_u64;
        loop {
            self.deepen(core, hash, depth)?;
            let range = self.range(core, hash)?;
            match range.last.checked_add(1) {
                Some(next) => hash = next,
                None => return Ok(()),
            }
        }
    }

    fn clear<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        before: impl FnOnce(u64),
        mut retire: impl FnMut(Segment<'_>) -> Result<()>,
    ) -> Result<()> {
        let _structure = self.structure.write().unwrap_or_else(PoisonError::into_inner);
        let pm = &core.pm;
        let old = self.root();
        let root = RootWord { generation: old.generation + 1, depth: 0 };
        pm.grow(&self.regions[root.parity()], 16)?;
        let old_segments = self.check(core, &mut |_| {})?;
        let mut new = core.new_segment(NO_SOURCE)?;
        core.header(new.segment.id)?.chain.store(pm, 0, Release);
        core.complete(&new, Link { state: State::Stable, depth: 0, side: None }, 0)?;
        let words = core.root()?;
        core.segment_blocks.prepare_switch(pm, &words.segments, Some(new.segment.id));
        core.chain_blocks.prepare_switch(pm, &words.chains, None);
        let entry = &self.entries(pm, root)?[0];
        entry.store(pm, PRESENT | u64::from(new.segment.id), Release);
        // P13, as in `double`.
        pm.persist(entry);
        before(root.generation);
        new.unlock();
        self.set_root(core, root)?;
        core.segment_blocks.switch();
        core.chain_blocks.switch();
        core.adopt(new)?;
        for id in old_segments {
            let segment = core.segment(id)?;
            // Waits out the writers that came before the store above.
            let _guards = core.lock_all(segment);
            retire(segment)?;
        }
        Ok(())
    }

    fn without_splits<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let _structure = self.structure.write().unwrap_or_else(PoisonError::into_inner);
        f()
    }

    fn check<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        fault: &mut dyn FnMut(String),
    ) -> Result<Vec<u32>> {
        let root = self.root();
        let entries = self.entries(&core.pm, root)?;
        let mut segments: Vec<u32> = Vec::new();
        let mut index = 0;
        while index < entries.len() {
            let entry = entries[index].load(&core.pm, Acquire);
            let faulty = segment_of(entry)
                .ok_or_else(|| self.no_entry(&core.pm, root, index as u64))
                .and_then(|id| {
                    super::recover::touch(core, self, id)?;
                    let (link, pattern) = (core.link(id)?, core.header(id)?.pattern.load(&core.pm, Acquire));
                    Ok((id, link, pattern))
                })
                .and_then(|(id, link, pattern)| {
                    let span = 1_usize << root.depth.saturating_sub(link.depth);
                    let covered = entries.get(index..index + span).unwrap_or(&[]);
                    // I1: a segment of depth d fills the 2^(g-d) entries of its pattern, aligned, and no others.
                    let wrong = link.depth > root.depth
                        || link.state != State::Stable
                        || root.index(pattern) != index as u64
                        || pattern & hashes_below(link.depth) != 0
                        || covered.len() != span
                        || covered.iter().any(|other| other.load(&core.pm, Acquire) != entry);
                    if wrong {
                        return Err(core.corrupt(
                            &core.headers,
                            u64::from(id) * 32,
                            format!("I1: segment {id} ({link:?}, pattern {pattern:#x}) does not fit directory entry {index} of depth {}", root.depth),
                        ));
                    }
                    segments.push(id);
                    Ok(span)
                });
            index += match faulty {
                Ok(span) => span,
                Err(error) => {
                    fault(error.to_string());
                    1
                }
            };
        }
        Ok(segments)
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.regions.iter().map(Region::len).sum()
    }

    fn capacity<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(&self, core: &Core<K, V, M>) -> u64 {
        let segments =
            core.root().map_or(0, |words| core.segment_blocks.used(&core.pm, &words.segments));
        segments * (core.geometry.segment_slots() * PLANNED_LOAD_PERCENT / 100).max(1)
    }

    fn skip(&self, hash: u64) -> Option<u64> {
        (hash | hashes_below(self.root().depth)).checked_add(1)
    }

    fn generation(&self) -> u64 {
        self.root().generation
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        let root = self.root();
        vec![
            ("directory_depth", u64::from(root.depth)),
            ("generation", root.generation),
            ("doublings", self.doublings.sum() as u64),
        ]
    }
}
