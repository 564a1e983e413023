//! Linear hashing over segments: expansion by one segment at a time, splits on first use, `clear` (§5).
//!
//! The root word (`extent`) holds the number of segments. An expansion only makes sure that the array of the new
//! segment exists, and stores the root word. From then on a split is due. Its source is the segment that has covered
//! the hashes of the new segment so far. The first thread that needs the new segment performs the split. Until then the
//! source holds the records of both segments, and threads whose hash stays in the source use it without a split.
//! Several splits of one source may be due, at most one for each depth; the depth in the link word of the source
//! determines which splits are due.
//!
//! Segments are not allocated: each number has a place in the file (`arrays`). The contents of a segment are ignored if
//! the root word does not count the segment, or if the split that makes it is still due.
//!
//! Submodules: `expand` adds segments; `due` performs splits; `shrink` removes segments; `growth` has the options.

mod due;
mod expand;
mod growth;
mod mend;
mod shrink;

use std::sync::Mutex;
use std::sync::atomic::Ordering::Acquire;

pub use growth::{Expansion, Growth};

use super::arrays::Arrays;
use super::blocks::check_count;
use super::directory::Directory;
use super::extent::{self, Extent};
use super::kinds::{Kinds, Whole};
use super::layout::State;
use super::located::{Covered, Located, Standing};
use super::recover::ensure_recovered;
use super::root::{Base, hashes_below, planned_records, planned_segments};
use super::segment::{Core, Segment};
use crate::Result;
use crate::base::counter::ShardedCounter;
use crate::engine::mending::Mending;
use crate::engine::slots::EpochGuard;
use crate::storage::alloc::Blocks;
use crate::storage::{Medium, Persist};

/// Minimum number of chained buckets for which space is reserved, besides those in use.
const SPARE_CHAINED: u64 = 8;

/// Maximum number of contractions that one sparse segment triggers. It is more than one because not every sparse
/// segment is detected.
const CONTRACTED_TOGETHER: u32 = 4;

/// The highest planned load of the segments that a round has not split. From about this load on, records are stashed.
const UNSPLIT_LOAD_PERCENT: u64 = 80;

/// The linear-hashing directory.
///
/// ```
/// let table: icefield::Dash<u64, u64, icefield::Lh> = icefield::DashLh::in_memory()?;
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct Lh {
    base: Base,
    arrays: Arrays,
    expansion: Expansion,
    /// Serializes expansions.
    expanding: Mutex<()>,
    expansions: ShardedCounter,
    contractions: ShardedCounter,
}

impl Lh {
    fn map<M: Medium>(storage: &M, growth: Growth, extent: Extent) -> Result<Self> {
        let arrays = growth.arrays().unwrap_or(Arrays::DEFAULT);
        Ok(Self {
            base: Base::map(storage, arrays.most(), extent.pack())?,
            arrays,
            expansion: growth.expansion,
            expanding: Mutex::new(()),
            expansions: ShardedCounter::default(),
            contractions: ShardedCounter::default(),
        })
    }

    #[inline(always)]
    fn extent(&self) -> Extent {
        Extent::unpack(self.base.word())
    }

    /// Returns the present segment of a hash. The root word alone is sufficient: the directory entries were checked
    /// when the table opened, and each later entry was stored before the root word counted a segment of its array.
    #[inline(always)]
    fn located(&self, hash: u64) -> Located {
        let root = self.base.word();
        let extent = Extent::unpack(root);
        let segment = self.id(extent, extent.index(hash));
        Located { segment, generation: extent.generation, stamp: root }
    }

    #[inline(always)]
    fn id(&self, extent: Extent, index: u64) -> u32 {
        self.arrays.place_of(index, extent.parity()) as u32
    }

    /// Returns the number of the segment at a place, or `None` if a table of this extent has none there.
    fn index(&self, extent: Extent, id: u32) -> Option<u64> {
        let index = self.arrays.index_at(id.into(), extent.parity())?;
        (index < extent.count()).then_some(index)
    }

    /// Returns one more than the generation: the value of `birth` in a header whose chain is valid.
    fn birth(extent: Extent) -> u64 {
        extent.generation + 1
    }

    /// Returns whether the chain of a segment is valid.
    fn owns_chain<T: Kinds>(&self, core: &Core<T>, id: u32) -> Result<bool> {
        let extent = self.extent();
        Ok(self.index(extent, id).is_some()
            && core.header(id)?.birth.load(&core.storage, Acquire) == Self::birth(extent))
    }
}

struct Run {
    first: u64,
    last: u64,
    depth: u32,
}

/// Returns the segments of a table in hash order.
fn runs(extent: Extent) -> impl Iterator<Item = Run> {
    let mut next = Some(0_u64);
    std::iter::from_fn(move || {
        let first = next?;
        let depth = extent.depth(first);
        let last = first | hashes_below(depth);
        next = last.checked_add(1);
        Some(Run { first, last, depth })
    })
}

/// Returns the number of segments that are planned for `records` records. In the middle of a round, the segments that the
/// round has not split yet hold twice as many records as the others. If that is more than they can hold without much use
/// of the stash, the whole round is planned.
fn planned<T: Kinds>(core: &Core<T>, records: u64) -> u64 {
    let slots = core.geometry.segment_slots();
    let planned = planned_segments(slots, records);
    let whole = 1 << planned.ilog2();
    if records.div_ceil(whole) * 100 <= slots * UNSPLIT_LOAD_PERCENT {
        planned
    } else {
        planned.checked_next_power_of_two().unwrap_or(u64::MAX)
    }
}

impl Directory for Lh {
    const DESIGN: &'static str = "dash-lh";

    type Ablation = Whole;

    type Options = Growth;

    fn params(growth: Growth) -> [u64; 3] {
        growth.params()
    }

    fn options(params: [u64; 3]) -> Option<Growth> {
        Growth::from_params(params)
    }

    fn generation_in(root_word: u64) -> u64 {
        Extent::unpack(root_word).generation
    }

    fn create<T: Kinds>(core: &Core<T>, growth: Growth, capacity: u64) -> Result<Self> {
        let planned = planned(core, capacity).max(u64::from(growth.first_array));
        core.check_room(planned, 0)?;
        let extent = Extent::of(0, planned);
        let lh = Self::map(&core.storage, growth, extent)?;
        lh.base.set_floor(extent.count());
        lh.base.grow(&core.storage, 0, lh.arrays.most())?;
        lh.lay_out(core, extent)?;
        lh.base.set_word(&core.storage, core.root()?, extent.pack());
        Ok(lh)
    }

    fn open<T: Kinds>(core: &Core<T>, growth: Growth) -> Result<(Self, u64)> {
        let words = core.root()?;
        let word = words.directory.load(&core.storage, Acquire);
        let extent = Extent::unpack(word);
        let lh = Self::map(&core.storage, growth, extent)?;
        if !extent.is_possible(lh.arrays.first_bits()) {
            let detail = format!("the root word {word:#x} is impossible");
            let offset = crate::storage::superblock::ROOT_OFFSET;
            return Err(core.table.fault(&core.storage, offset, detail));
        }
        let parity = extent.parity();
        for array in 0..lh.arrays.arrays_for(extent.count()) {
            let place = lh.arrays.place(array, parity);
            if lh.base.entry(&core.storage, parity, array) != Some(place as u32) {
                return Err(lh.base.no_entry(&core.storage, parity, array));
            }
            check_count(core, place + lh.arrays.size(array))?;
        }
        let resolved = core.chains.recover(&core.storage, &words.chains, |block, owner| {
            Ok(lh.owns_chain(core, owner)? && core.owns_chain_block(owner, block)?)
        })?;
        Ok((lh, resolved))
    }

    /// Repairs the directory and the headers; the root word gives the place of each array.
    fn mend<T: Kinds>(core: &Core<T>, growth: Growth, mending: &Mending) -> Result<()> {
        Self::mend_all(core, growth, mending)
    }

    #[inline(always)]
    fn try_locate<M: Medium>(&self, _pm: &M, hash: u64) -> Option<Located> {
        Some(self.located(hash))
    }

    fn locate<T: Kinds>(&self, _core: &Core<T>, hash: u64) -> Result<Located> {
        Ok(self.located(hash))
    }

    #[inline(always)]
    fn is_unchanged(&self, located: Located) -> bool {
        // Under one root word, a hash has one segment.
        self.base.word() == located.stamp
    }

    /// Also checks that the segment is ready: it may have been removed and added again, so that the split that makes it
    /// is due again.
    #[inline(always)]
    fn is_current<T: Kinds>(&self, core: &Core<T>, hash: u64, located: Located) -> bool {
        let is_same = self.is_unchanged(located) || self.located(hash) == located;
        is_same && core.marks.is_ready(located.segment)
    }

    /// In a session that only reads, which performs no due split, returns the segment that still holds the records.
    #[cold]
    fn arrive<T: Kinds>(
        &self,
        core: &Core<T>,
        _hash: u64,
        mut located: Located,
    ) -> Result<Option<Located>> {
        loop {
            if ensure_recovered(core, self, located.segment)? {
                return Ok(Some(located));
            }
            let extent = self.extent();
            match self.index(extent, located.segment) {
                Some(index) if core.marks.is_due(located.segment) => {
                    located.segment = self.id(extent, extent::source(index));
                }
                _ => return Ok(None),
            }
        }
    }

    fn due<T: Kinds>(&self, core: &Core<T>) -> Vec<u32> {
        let extent = self.extent();
        let ids = (0..extent.count()).map(|index| self.id(extent, index));
        ids.filter(|&id| core.marks.is_due(id) && self.owns_chain(core, id).unwrap_or(false))
            .collect()
    }

    fn covered<T: Kinds>(
        &self,
        core: &Core<T>,
        hash: u64,
        located: Located,
    ) -> Result<Option<Covered>> {
        if core.still.is_some() {
            // The range includes the hashes of segments whose split from this segment is due.
            let depth = core.link(located.segment)?.depth;
            return Ok(Some(Covered::new(located, hash, depth)));
        }
        let depth = self.extent().depth(hash);
        let settled = self.is_current(core, hash, located) && self.extent().depth(hash) == depth;
        Ok(settled.then(|| Covered::new(located, hash, depth)))
    }

    fn make_room<T: Kinds>(
        &self,
        core: &Core<T>,
        hash: u64,
        located: Located,
        records: impl Fn() -> u64,
    ) -> Result<()> {
        let _structure = self.base.shared();
        let segment = core.segment(located.segment)?;
        // Returns the depth of the segment if the hash still belongs to the segment and the segment has no room. Two
        // calls return different depths if the segment is split between them.
        let full = || -> Result<Option<u32>> {
            let full = self.is_current(core, hash, located) && !core.has_room(segment, hash)?;
            full.then(|| core.link(segment.id).map(|link| link.depth)).transpose()
        };
        let guards = core.lock_all(segment);
        let Some(depth) = full()? else { return Ok(()) };
        let is_due = depth < self.extent().depth(hash);
        if !is_due {
            // Batches stash records for which displacement could have made room in a normal bucket.
            core.rebalance_stash(segment, &guards)?;
            if core.has_room(segment, hash)? {
                return Ok(());
            }
        }
        let shall_expand = !is_due && self.shall_expand(core, segment, records)?;
        // Release these locks first: the thread that holds the mutex of expansions may be waiting for them.
        drop(guards);
        if shall_expand {
            self.expand(core)?;
        }
        if depth < self.extent().depth(hash) {
            return self.catch_up(core, hash, depth);
        }
        let _guards = core.lock_all(segment);
        if full()? != Some(depth) {
            return Ok(());
        }
        // A due split must not fail for lack of chained buckets; it needs at most as many as its segment has.
        let chained = core.chains.used(&core.storage, &core.root()?.chains);
        core.chains.blocks(&core.storage).reserve(2 * chained + SPARE_CHAINED)?;
        core.extend_chain(segment)
    }

    fn determine_state<T: Kinds>(
        &self,
        core: &Core<T>,
        segment: u32,
        fresh: bool,
    ) -> Result<Standing> {
        self.make_if_due(core, segment, fresh)
    }

    fn is_merged(&self, pattern: u64) -> bool {
        let extent = self.extent();
        extent::pattern(extent.index(pattern)) != pattern
    }

    /// Ignores the hash: linear hashing always removes the last segments.
    fn shrink<T: Kinds>(
        &self,
        core: &Core<T>,
        pin: &EpochGuard<'_>,
        _hash: u64,
        percent: u64,
    ) -> Result<bool> {
        let mut merged = false;
        for _ in 0..CONTRACTED_TOGETHER {
            if !self.contract(core, pin, percent)? {
                break;
            }
            merged = true;
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
        while self.contract(core, pin, percent)? {}
        Ok(())
    }

    fn give_back<T: Kinds>(&self, core: &Core<T>) -> Result<()> {
        self.punch_arrays(core)
    }

    fn reserve<T: Kinds>(&self, core: &Core<T>, records: u64) -> Result<()> {
        let planned = planned(core, records);
        core.check_room(planned, self.extent().count())?;
        self.base.with_floor(planned, || {
            while self.extent().count() < planned {
                let _structure = self.base.shared();
                if !self.expand(core)? {
                    break;
                }
            }
            self.each_range(core, |_| Ok(()))
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
        let old = self.extent();
        let new = old.cleared(self.arrays.first());
        // `check` also performs all due splits.
        let old_segments = self.check(core, &mut |_| {})?;
        for &id in &old_segments {
            // Waits for splits that are not finished although their new segments are already in use. Such a split may
            // still free chained buckets, which the other set of allocator words would then allocate twice.
            drop(core.lock_all(core.segment(id)?));
        }
        self.base.grow(storage, new.parity(), self.arrays.most())?;
        self.lay_out(core, new)?;
        core.chains.allocator().prepare_switch(storage, &core.root()?.chains, None);
        // P13: the entries of the arrays are durable before the root word counts their segments; so are the allocator's
        // words.
        storage.fence();
        before(new.generation);
        self.base.set_word(&core.storage, core.root()?, new.pack());
        core.chains.allocator().switch();
        // All segments are shut, also if one of them is damaged.
        let mut retired = Ok(());
        for id in old_segments {
            if self.arrays.index_at(id.into(), new.parity()).is_some() {
                // In the new generation this place belongs to another segment, which is not made yet.
                core.marks.away(id);
            }
            let segment = core.segment(id)?;
            let _guards = core.shut(segment);
            retired = retired.and(retire(segment));
        }
        for array in 1..self.arrays.arrays_for(old.count()) {
            core.deferred_free.enter(pin, array as u32);
        }
        retired
    }

    fn check<T: Kinds>(&self, core: &Core<T>, fault: &mut dyn FnMut(String)) -> Result<Vec<u32>> {
        let extent = self.extent();
        let mut segments = Vec::new();
        for run in runs(extent) {
            let id = self.id(extent, extent.index(run.first));
            match ensure_recovered(core, self, id) {
                Ok(_) if core.marks.is_due(id) => {}
                Ok(_) => segments.push((id, run)),
                Err(error) => fault(error.to_string()),
            }
        }
        for (id, run) in &segments {
            let (link, pattern) =
                (core.link(*id)?, core.header(*id)?.pattern.load(&core.storage, Acquire));
            // I1: each segment has the depth and pattern of its number; a split may be due only in a session that only
            // reads.
            let is_deep = link.depth == run.depth || core.still.is_some() && link.depth < run.depth;
            if (link.state, pattern) != (State::Stable, run.first) || !is_deep {
                fault(format!(
                    "I1: segment {id} ({link:?}, pattern {pattern:#x}) should have pattern {:#x} of {} bits",
                    run.first, run.depth
                ));
            }
        }
        Ok(segments.into_iter().map(|(id, _)| id).collect())
    }

    fn segments<T: Kinds>(&self, _: &Core<T>) -> u64 {
        self.arrays.start(self.arrays.arrays_for(self.extent().count()))
    }

    fn spare<T: Kinds>(&self, core: &Core<T>) -> Result<(Vec<u32>, u64)> {
        let extent = self.extent();
        // The first array has two places in the file of segments, for alternate generations; `end` counts both.
        let end = self.arrays.first() + self.segments(core);
        let spare =
            (0..end as u32).filter(|&id| self.index(extent, id).is_none() || core.marks.is_due(id));
        Ok((spare.collect(), end))
    }

    fn capacity<T: Kinds>(&self, core: &Core<T>) -> u64 {
        self.extent().count() * planned_records(core.geometry.segment_slots())
    }

    fn skip(&self, hash: u64) -> Option<u64> {
        (hash | hashes_below(self.extent().depth(hash))).checked_add(1)
    }

    #[inline]
    fn base(&self) -> &Base {
        &self.base
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        let extent = self.extent();
        vec![
            ("segments_in_use", extent.count()),
            ("round", u64::from(extent.level)),
            ("next", extent.next),
            ("directory_entries", self.arrays.arrays_for(extent.count())),
            ("generation", extent.generation),
            ("expansions", self.expansions.sum() as u64),
            ("contractions", self.contractions.sum() as u64),
        ]
    }
}
