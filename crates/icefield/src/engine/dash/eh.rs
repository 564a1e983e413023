//! Extendible hashing over segments: the directory, its doubling, splits, `clear` (§4.1, §4.7).
//!
//! The directory of depth *g* has a fixed place: entries 2^g to 2^(g+1) - 1 of a region. So doubling needs no
//! allocation and leaks nothing. The smaller directories stay below the present one; together they are as large as the
//! present one.
//! Submodules: `grow` splits segments and doubles the directory; `shrink` merges and halves; `check` checks.

mod check;
mod grow;
mod mend;
mod shrink;

use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::blocks::{SegmentBlocks, check_count};
use super::directory::Directory;
use super::kinds::{Ablation, Kinds, Whole};
use super::layout::{Link, MAX_DEPTH, RootWord, State, split_bit};
use super::located::{Covered, Located, Standing};
use super::marks::READY;
use super::recover::ensure_recovered;
use super::root::{Base, entry_of, hashes_below, planned_segments};
use super::segment::{Core, Segment};
use crate::Result;
use crate::base::counter::ShardedCounter;
use crate::engine::mending::Mending;
use crate::engine::slots::EpochGuard;
use crate::storage::{Cell64, Medium, Persist, Regions, SimHooks};

/// Allocator tag of segments that are not split off: those of a new table, and the first one after `clear`.
const NO_SOURCE: u32 = u32::MAX;

/// The directory of extendible hashing. `A` selects the techniques that its tables use.
///
/// ```
/// let table: icefield::Dash<u64, u64, icefield::Eh> = icefield::DashEh::in_memory()?;
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct Eh<A = Whole> {
    base: Base,
    /// Guards directory entries, doubling, and `changes`.
    entries: Mutex<()>,
    /// Incremented before and after each change of the segments of hashes: odd during a change.
    changes: AtomicU64,
    doublings: ShardedCounter,
    halvings: ShardedCounter,
    /// The index of the pair of entries that last prevented a halving of the directory.
    deep: AtomicUsize,
    ablation: PhantomData<fn() -> A>,
}

/// A change of the segments of hashes.
struct Changing<'a> {
    changes: &'a AtomicU64,
    _entries: &'a MutexGuard<'a, ()>,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // Release (E7): pairs with the Acquire in `try_locate`, which then finds the new segments.
        self.changes.fetch_add(1, Release);
    }
}

impl<A: Ablation> Eh<A> {
    fn map<M: Medium>(storage: &M, root: RootWord) -> Result<Self> {
        let base = Base::map(storage, 2 << MAX_DEPTH, root.pack())?;
        Ok(Self {
            base,
            entries: Mutex::new(()),
            changes: AtomicU64::new(0),
            doublings: ShardedCounter::default(),
            halvings: ShardedCounter::default(),
            deep: AtomicUsize::new(0),
            ablation: PhantomData,
        })
    }

    #[inline(always)]
    fn root(&self) -> RootWord {
        RootWord::unpack(self.base.word())
    }

    fn lock_entries(&self) -> MutexGuard<'_, ()> {
        // A panic leaves a state that a crash could leave as well, and recovery handles it.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a change of the segments of hashes, which ends when the result is dropped.
    fn change<'a>(&'a self, entries: &'a MutexGuard<'_, ()>) -> Changing<'a> {
        // Relaxed: the entries are stored with Release after it (E4), so a thread that sees one of them also sees this.
        self.changes.fetch_add(1, Relaxed);
        Changing { changes: &self.changes, _entries: entries }
    }

    /// Returns the entries of the directory that `root` names.
    fn entries<M: Medium>(&self, storage: &M, root: RootWord) -> Result<&[Cell64]> {
        self.base.entries(storage, root.parity(), 1 << root.depth..2 << root.depth)
    }

    /// Returns whether a segment is in the directory, or is the right segment of a committed split or merge that is not
    /// finished.
    fn is_owned<T: Kinds>(&self, core: &Core<T>, id: u32) -> Result<bool> {
        let pattern = core.header(id)?.pattern.load(&core.storage, Acquire);
        let holder = self.locate(core, pattern)?.segment;
        if holder == id {
            return Ok(true);
        }
        let link = core.link(holder)?;
        Ok(matches!(link.state, State::Splitting | State::Absorbing) && link.side == Some(id))
    }
}

/// Returns the directory depth at which `records` records fill the segments as planned. `present` segments exist; fails
/// if the space does not suffice for the others.
fn planned_depth<T: Kinds>(core: &Core<T>, records: u64, present: u64) -> Result<u32> {
    let segments = planned_segments(core.geometry.segment_slots(), records);
    let segments = segments.checked_next_power_of_two().unwrap_or(u64::MAX);
    core.check_room(segments, present)?;
    Ok(segments.trailing_zeros())
}

impl<A: Ablation> Directory for Eh<A> {
    const DESIGN: &'static str = "dash-eh";

    type Ablation = A;

    type Options = ();

    fn params((): ()) -> [u64; 3] {
        [0; 3]
    }

    fn options(_: [u64; 3]) -> Option<()> {
        Some(())
    }

    fn generation_in(root_word: u64) -> u64 {
        RootWord::unpack(root_word).generation
    }

    fn create<T: Kinds>(core: &Core<T>, (): (), capacity: u64) -> Result<Self> {
        let storage = &core.storage;
        let root = RootWord { generation: 0, depth: planned_depth(core, capacity, 0)? };
        let eh = Self::map(storage, root)?;
        eh.base.set_floor(1 << root.depth);
        eh.base.grow(storage, 0, 2 << root.depth)?;
        let count = 1_u32 << root.depth;
        // In one step, so that the file grows only once.
        storage.grow(&core.segments, u64::from(count) * core.geometry.segment_bytes())?;
        for index in 0..count {
            let mut new = core.new_segment(NO_SOURCE)?;
            core.header(new.segment.id)?.chain.store(storage, 0, Release);
            let side = (index + 1 < count).then_some(index + 1);
            let link = Link { state: State::Stable, depth: root.depth, side };
            // Index bit depth - 1 becomes bit 63. Two shifts, because depth 0 would need a shift by 64.
            core.complete(&new, link, u64::from(index) << 1 << (63 - root.depth))?;
            core.marks.set(new.segment.id, READY);
            let entry = &eh.entries(storage, root)?[index as usize];
            entry.store(storage, entry_of(new.segment.id), Release);
            new.unlock();
            core.adopt(new)?;
        }
        let entries = eh.entries(storage, root)?;
        storage.flush(entries.as_ptr().cast(), size_of_val(entries));
        eh.base.set_word(&core.storage, core.root()?, root.pack());
        Ok(eh)
    }

    fn open<T: Kinds>(core: &Core<T>, (): ()) -> Result<(Self, u64)> {
        let words = core.root()?;
        check_count(core, core.segment_blocks.used(&core.storage, &words.segments))?;
        let root = RootWord::unpack(words.directory.load(&core.storage, Acquire));
        let eh = Self::map(&core.storage, root)?;
        if root.depth > MAX_DEPTH {
            return Err(core.table.fault(
                &core.storage,
                crate::storage::superblock::ROOT_OFFSET,
                format!("the directory depth {} is impossible", root.depth),
            ));
        }
        eh.entries(&core.storage, root)?;
        let mut resolved = core.segment_blocks.recover(
            &core.storage,
            &words.segments,
            &SegmentBlocks(core),
            |block, _| eh.is_owned(core, block),
        )?;
        resolved += core.chains.recover(&core.storage, &words.chains, |block, owner| {
            Ok(eh.is_owned(core, owner)? && core.owns_chain_block(owner, block)?)
        })?;
        Ok((eh, resolved))
    }

    fn mend<T: Kinds>(core: &Core<T>, (): (), mending: &Mending) -> Result<()> {
        Self::mend_entries(core, mending)
    }

    #[inline(always)]
    fn try_locate<M: Medium>(&self, storage: &M, hash: u64) -> Option<Located> {
        // Acquire (E7): pairs with the Release at the end of a change.
        let stamp = self.changes.load(Acquire);
        let root = self.root();
        let segment = self.base.entry(storage, root.parity(), root.place(hash))?;
        Some(Located { segment, generation: root.generation, stamp })
    }

    #[inline(always)]
    fn is_unchanged(&self, located: Located) -> bool {
        // Relaxed: the caller's Acquire of the buckets' versions or locks (E1), or of the segment's mark (E5), shows
        // the changes that were made before their Release.
        let changes = self.changes.load(Relaxed);
        changes == located.stamp && changes & 1 == 0
    }

    #[inline(always)]
    fn is_current<T: Kinds>(&self, core: &Core<T>, hash: u64, located: Located) -> bool {
        self.is_unchanged(located) || self.try_locate(&core.storage, hash) == Some(located)
    }

    fn locate<T: Kinds>(&self, core: &Core<T>, hash: u64) -> Result<Located> {
        loop {
            let root = self.root();
            if let Some(located) = self.try_locate(&core.storage, hash) {
                return Ok(located);
            }
            // The region of a cleared directory is reused two generations later: if the root has changed, the entry
            // belongs to another directory.
            if self.root() == root {
                return Err(self.base.no_entry(&core.storage, root.parity(), root.place(hash)));
            }
        }
    }

    #[cold]
    fn arrive<T: Kinds>(
        &self,
        core: &Core<T>,
        hash: u64,
        located: Located,
    ) -> Result<Option<Located>> {
        let ready = ensure_recovered(core, self, located.segment)?;
        // In a session that only reads, recovery may have moved the hash to another segment, and no later check would
        // detect that.
        let is_there = core.still.is_none() || self.is_current(core, hash, located);
        Ok((ready && is_there).then_some(located))
    }

    fn covered<T: Kinds>(
        &self,
        core: &Core<T>,
        hash: u64,
        located: Located,
    ) -> Result<Option<Covered>> {
        // Read through `read_unvalidated`: the link only decides which hashes are read together, so the result stays
        // valid even if a crash reverts the link.
        let link_now = || core.storage.read_unvalidated(|| core.link(located.segment));
        let (root, link) = (self.root(), link_now()?);
        // During its split a segment still has its old depth, but the directory may already name the new segment.
        let depth = link.depth + u32::from(link.state == State::Splitting);
        let settled = self.is_current(core, hash, located) && link_now()? == link;
        if !settled || self.root() != root {
            return Ok(None);
        }
        if depth > root.depth {
            let offset = u64::from(located.segment) * 32;
            let detail =
                format!("segment {} is deeper ({depth}) than the directory", located.segment);
            return Err(core.headers.fault(&core.storage, offset, detail));
        }
        Ok(Some(Covered::new(located, hash, depth)))
    }

    fn make_room<T: Kinds>(
        &self,
        core: &Core<T>,
        hash: u64,
        located: Located,
        _records: impl Fn() -> u64,
    ) -> Result<()> {
        let _structure = self.base.shared();
        let segment = core.segment(located.segment)?;
        let guards = core.lock_all(segment);
        if !self.is_current(core, hash, located) || core.has_room(segment, hash)? {
            return Ok(());
        }
        if !self.split(core, segment, &guards)? {
            core.extend_chain(segment)?;
        }
        Ok(())
    }

    /// Changes the entries of the hashes that share the first `depth` bits of `pattern` from segment `from` to segment
    /// `to`. Entries that name a third segment stay unchanged: recovery may run late, after that segment was split off.
    fn redirect<T: Kinds>(
        &self,
        core: &Core<T>,
        (pattern, depth): (u64, u32),
        from: u32,
        to: u32,
    ) -> Result<()> {
        let storage = &core.storage;
        let guard = self.lock_entries();
        let root = self.root();
        let (first, last) = (root.index(pattern), root.index(pattern | hashes_below(depth)));
        let entries =
            self.entries(storage, root)?.get(first as usize..=last as usize).unwrap_or(&[]);
        let changing = self.change(&guard);
        for entry in entries.iter().filter(|entry| entry.load(storage, Relaxed) == entry_of(from)) {
            // Release (E4): the segment behind the entry is complete.
            entry.store(storage, entry_of(to), Release);
        }
        drop(changing);
        // P14: the fence of P8 makes the entries durable before the split is marked as finished. After a crash before
        // that fence, recovery stores the same entries.
        storage.flush(entries.as_ptr().cast(), size_of_val(entries));
        Ok(())
    }

    /// A segment that has been freed is not part of the table. The left neighbour determines the state of a segment
    /// that a crash left in state leaving.
    fn determine_state<T: Kinds>(
        &self,
        core: &Core<T>,
        segment: u32,
        fresh: bool,
    ) -> Result<Standing> {
        let link = core.link(segment)?;
        if !fresh || link.state == State::Free {
            return Ok(Standing::Elsewhere);
        }
        if link.state == State::Leaving {
            let pattern = core.header(segment)?.pattern.load(&core.storage, Acquire);
            let bit = link.depth.checked_sub(1).map_or(0, split_bit);
            let left = self.locate(core, pattern & !bit)?.segment;
            if left == segment {
                let offset = u64::from(segment) * 32;
                let detail = format!("segment {segment} leaves ({link:?}) without a neighbour");
                return Err(core.headers.fault(&core.storage, offset, detail));
            }
            ensure_recovered(core, self, left)?;
            if self.locate(core, pattern)?.segment != segment {
                return Ok(Standing::Elsewhere);
            }
            core.set_link(segment, State::Stable, link.depth, link.side)?;
        }
        Ok(Standing::Whole)
    }

    fn finish_merge<T: Kinds>(&self, core: &Core<T>, segment: u32) -> Result<()> {
        self.roll_forward(core, segment)
    }

    fn shrink<T: Kinds>(
        &self,
        core: &Core<T>,
        pin: &EpochGuard<'_>,
        hash: u64,
        percent: u64,
    ) -> Result<bool> {
        let mut merged = false;
        while self.merge(core, pin, hash, percent)? {
            merged = true;
        }
        if merged {
            self.halve(core)?;
        }
        Ok(merged)
    }

    fn shrink_all<T: Kinds>(
        &self,
        core: &Core<T>,
        pin: &EpochGuard<'_>,
        percent: u64,
    ) -> Result<()> {
        self.base.set_floor(0);
        let mut next = Some(0_u64);
        while let Some(hash) = next {
            while self.merge(core, pin, hash, percent)? {}
            next = self.range(core, hash)?.last.checked_add(1);
        }
        while self.halve(core)? {}
        Ok(())
    }

    fn give_back<T: Kinds>(&self, core: &Core<T>) -> Result<()> {
        core.punch_free_segments()
    }

    fn reserve<T: Kinds>(&self, core: &Core<T>, records: u64) -> Result<()> {
        let depth = planned_depth(core, records, self.segments(core))?;
        self.base.with_floor(1 << depth, || {
            let mut hash = 0_u64;
            loop {
                self.deepen(core, hash, depth)?;
                let range = self.range(core, hash)?;
                match range.last.checked_add(1) {
                    Some(next) => hash = next,
                    None => return Ok(()),
                }
            }
        })
    }

    fn clear<T: Kinds>(
        &self,
        core: &Core<T>,
        pin: &EpochGuard<'_>,
        before: impl FnOnce(u64),
        mut retire: impl FnMut(Segment<'_>) -> Result<()>,
    ) -> Result<()> {
        let _structure = self.base.alone();
        let storage = &core.storage;
        let old = self.root();
        let root = RootWord { generation: old.generation + 1, depth: 0 };
        self.base.grow(storage, root.parity(), 2)?;
        // Also recovers all segments.
        let mut old_segments = self.check(core, &mut |_| {})?;
        old_segments.sort_unstable();
        let mut new = core.new_segment(NO_SOURCE)?;
        let first = new.segment.id;
        core.header(new.segment.id)?.chain.store(storage, 0, Release);
        core.complete(&new, Link { state: State::Stable, depth: 0, side: None }, 0)?;
        core.marks.set(new.segment.id, READY);
        let words = core.root()?;
        core.segment_blocks.prepare_switch(storage, &words.segments, Some(new.segment.id));
        core.chains.allocator().prepare_switch(storage, &words.chains, None);
        let entry = &self.entries(storage, root)?[0];
        entry.store(storage, entry_of(new.segment.id), Release);
        // P13: the entry is durable before the root word selects the new directory.
        storage.persist(entry);
        before(root.generation);
        new.unlock();
        {
            let guard = self.lock_entries();
            let _changing = self.change(&guard);
            self.base.set_word(&core.storage, core.root()?, root.pack());
        }
        core.segment_blocks.switch();
        core.chains.allocator().switch();
        core.adopt(new)?;
        // All segments are shut, also those that are damaged: the allocator hands them out again. The records of one that
        // does not fit its entries stay: it may be a free segment, whose records were freed long ago.
        let mut retired = Ok(());
        for id in core.marks.ready().filter(|&id| id != first) {
            let segment = core.segment(id)?;
            let _guards = core.shut(segment);
            core.deferred_free.enter(pin, id);
            core.marks.away(id);
            if old_segments.binary_search(&id).is_ok() {
                retired = retired.and(retire(segment));
            }
        }
        retired
    }

    fn check<T: Kinds>(&self, core: &Core<T>, fault: &mut dyn FnMut(String)) -> Result<Vec<u32>> {
        self.check_entries(core, fault)
    }

    fn segments<T: Kinds>(&self, core: &Core<T>) -> u64 {
        core.root().map_or(0, |words| core.segment_blocks.used(&core.storage, &words.segments))
    }

    fn spare<T: Kinds>(&self, core: &Core<T>) -> Result<(Vec<u32>, u64)> {
        let words = &core.root()?.segments;
        let free = core.segment_blocks.free_blocks(&core.storage, words, &SegmentBlocks(core))?;
        Ok((free, self.segments(core)))
    }

    fn skip(&self, hash: u64) -> Option<u64> {
        (hash | hashes_below(self.root().depth)).checked_add(1)
    }

    #[inline]
    fn base(&self) -> &Base {
        &self.base
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        let root = self.root();
        vec![
            ("directory_depth", u64::from(root.depth)),
            ("generation", root.generation),
            ("doublings", self.doublings.sum() as u64),
            ("halvings", self.halvings.sum() as u64),
        ]
    }
}
