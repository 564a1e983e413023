//! Segments: the buckets that share a header, and the operations that the directory policies (`eh`, `lh`) have in
//! common.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Acquire;

use super::bucket::Guard;
use super::deferred_free::DeferredFree;
use super::kinds::Kinds;
use super::layout::{Bucket, Geometry, Header, Link, MAX_DEPTH, Root};
use super::located::Located;
use super::marks::{Mark, Marks};
use super::still::Still;
use crate::base::counter::ShardedCounter;
use crate::engine::slots::{EpochGuard, Records};
use crate::storage::alloc::{Allocator, Pool};
use crate::storage::superblock;
use crate::storage::{Properties, Region, Regions};
use crate::{Error, Result};

/// The smallest unit of space that a file system frees.
const PAGE: u64 = 4096;

/// The state that every directory policy works on: the medium, the regions, the records, and the DRAM beside them.
pub struct Core<T: Kinds> {
    pub(super) geometry: Geometry,
    /// [`Geometry::own_slots`]; all slots in a table without balanced insert.
    pub(super) own_slots: u32,
    pub(super) records: Records<T::Form>,
    pub(super) table: Region,
    pub(super) headers: Region,
    pub(super) segments: Region,
    pub(super) segment_blocks: Allocator,
    pub(super) chains: Pool,
    pub(super) marks: Marks,
    /// Present in a table that is opened for reading only.
    pub(super) still: Option<Still>,
    /// Freed space: segments (`eh`) or arrays of segments (`lh`).
    pub(super) deferred_free: DeferredFree,
    /// Held by a split of a segment that has a chain.
    pub(super) chained_split: Mutex<()>,
    pub(super) counts: Counts,
    /// The last field, so that all fields that point into its mappings are dropped first.
    pub(super) storage: T::Medium,
}

/// Rare events, counted for `stats` and the benchmarks.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) splits: ShardedCounter,
    /// Records and slots of the segments that were split; they give the load factor at splits.
    pub(super) split_records: ShardedCounter,
    pub(super) split_slots: ShardedCounter,
    pub(super) merges: ShardedCounter,
    pub(super) displacements: ShardedCounter,
    pub(super) stash_inserts: ShardedCounter,
    pub(super) chain_inserts: ShardedCounter,
}

/// The buckets of one segment, normal buckets first.
#[derive(Clone, Copy)]
pub struct Segment<'a> {
    pub(super) id: u32,
    pub(super) buckets: &'a [Bucket],
}

/// The segment of a key, and its home and probing bucket there. Buckets do not move while the table is open, so a
/// target may be stale but never dangles.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) located: Located,
    pub(super) pair: [&'a Bucket; 2],
}

/// The slot of a record in a segment.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) slot: usize,
    pub(super) site: Site,
}

/// The kind of bucket that a record is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// The home or probing bucket.
    Normal,
    /// The stash bucket with this number.
    Stash(usize),
    /// A bucket of the chain.
    Chain,
}

impl Site {
    /// Returns the number of the stash bucket in the form that overflow metadata uses.
    pub(super) fn stash_bucket(self) -> Option<usize> {
        match self {
            Site::Stash(bucket) => Some(bucket),
            Site::Normal | Site::Chain => None,
        }
    }
}

impl<T: Kinds> Core<T> {
    pub(super) fn root(&self) -> Result<&Root> {
        superblock::root_words(&self.storage, &self.table)
    }

    #[inline]
    pub(super) fn segment(&self, id: u32) -> Result<Segment<'_>> {
        let offset = u64::from(id) * self.geometry.segment_bytes();
        match self.segments.slice_at(offset, self.geometry.all_buckets()) {
            Some(buckets) => Ok(Segment { id, buckets }),
            None => Err(self.no_segment(id)),
        }
    }

    /// Returns the target of a key in a segment, or `None` if the segment does not exist.
    #[inline(always)]
    pub(super) fn target(&self, located: Located, hash: u64) -> Option<Target<'_>> {
        let (segment, geometry) = (u64::from(located.segment), &self.geometry);
        let first = segment * geometry.segment_bytes();
        let buckets: &[Bucket] = self.segments.slice_at(first, geometry.all_buckets())?;
        let home = geometry.home(hash);
        Some(Target { located, pair: [buckets.get(home)?, buckets.get(geometry.next(home))?] })
    }

    #[cold]
    fn no_segment(&self, id: u32) -> Error {
        let offset = u64::from(id) * self.geometry.segment_bytes();
        self.segments.fault(&self.storage, offset, format!("segment {id} lies outside the file"))
    }

    pub(super) fn header(&self, id: u32) -> Result<&Header> {
        let offset = u64::from(id) * size_of::<Header>() as u64;
        self.headers.at(offset).ok_or_else(|| {
            self.headers.fault(&self.storage, offset, format!("segment {id} lies outside the file"))
        })
    }

    pub(super) fn link(&self, id: u32) -> Result<Link> {
        let word = self.header(id)?.link.load(&self.storage, Acquire);
        Link::unpack(word).ok_or_else(|| {
            self.headers.fault(
                &self.storage,
                u64::from(id) * size_of::<Header>() as u64,
                format!("the link word {word:#x} of segment {id} is impossible"),
            )
        })
    }

    #[inline]
    pub(super) fn stash<'a>(&self, segment: Segment<'a>) -> &'a [Bucket] {
        &segment.buckets[self.geometry.buckets as usize..]
    }

    /// Returns a key's home and probing bucket.
    #[inline]
    pub(super) fn pair<'a>(&self, segment: Segment<'a>, hash: u64) -> [&'a Bucket; 2] {
        let home = self.geometry.home(hash);
        [&segment.buckets[home], &segment.buckets[self.geometry.next(home)]]
    }

    /// Counts the records in a segment, its chain included.
    pub(super) fn count(&self, segment: Segment<'_>) -> Result<u64> {
        let in_buckets: u64 = segment
            .buckets
            .iter()
            .map(|bucket| u64::from(bucket.meta(&self.storage).count()))
            .sum();
        self.chain(segment.id).try_fold(in_buckets, |sum, block| {
            Ok(sum + u64::from(block?.1.bucket.meta(&self.storage).count()))
        })
    }

    /// Returns every bucket of a segment, together with the site of its records.
    pub(super) fn sites<'a>(
        &'a self,
        segment: Segment<'a>,
    ) -> impl Iterator<Item = Result<(Site, &'a Bucket)>> {
        let normal = self.geometry.buckets as usize;
        let own = segment.buckets.iter().enumerate().map(move |(number, bucket)| {
            let site = if number < normal { Site::Normal } else { Site::Stash(number - normal) };
            Ok((site, bucket))
        });
        own.chain(
            self.chain(segment.id)
                .map(|block| block.map(|(_, block)| (Site::Chain, &block.bucket))),
        )
    }

    /// Extends the marks in DRAM to the number of segments in the file.
    pub(super) fn reach(&self) -> Result<()> {
        let segments = self.segments.len() / self.geometry.segment_bytes();
        let extended = self.marks.extend((segments as usize).min(self.most_segments()));
        extended.map_err(|source| Error::io(self.storage.path(), source))
    }

    /// Checks that the space suffices for `segments` segments in total, of which `present` exist.
    pub(super) fn check_room(&self, segments: u64, present: u64) -> Result<()> {
        let bytes = self.geometry.segment_bytes();
        let needed = |segments: u64| segments.saturating_mul(bytes + size_of::<Header>() as u64);
        // The limit is 2^MAX_DEPTH - 1, because linear hashing cannot have 2^MAX_DEPTH segments.
        if segments > (self.most_segments() as u64).min((1 << MAX_DEPTH) - 1) {
            let path = self.segments.path(&self.storage);
            return Err(Error::NoSpace { path, needed_bytes: needed(segments) });
        }
        let used = self.segment_blocks.used(&self.storage, &self.root()?.segments).max(present);
        let spare = (self.segments.len() / bytes).saturating_sub(used);
        self.storage.check_room(needed(segments.saturating_sub(present).saturating_sub(spare)), 0)
    }

    fn most_segments(&self) -> usize {
        (self.segments.max_bytes() / self.geometry.segment_bytes()) as usize
    }

    /// Returns a pin. While it is held, the blobs of by-reference records are not reused.
    #[inline]
    pub(super) fn pin(&self) -> EpochGuard<'_> {
        self.records.pin()
    }

    /// Locks all buckets of a segment in ascending order, as every thread that waits for several locks does. These
    /// locks also protect the chain, because a thread locks a chained bucket only while it holds the lock of a home
    /// bucket. The locks of chained buckets are not taken: a split may free those buckets before the guards are
    /// dropped.
    pub(super) fn lock_all<'a>(&'a self, segment: Segment<'a>) -> Vec<Guard<'a, T::Medium>> {
        segment.buckets.iter().map(|bucket| bucket.lock(&self.storage)).collect()
    }

    /// Locks all buckets of a segment that is not part of the table, and sets their changing bits. This waits for
    /// writers that entered the segment while it was part of the table. Threads that still search the segment detect
    /// the changed versions and start again. They must: the segment's chain may now belong to another segment.
    pub(super) fn shut<'a>(&'a self, segment: Segment<'a>) -> Vec<Guard<'a, T::Medium>> {
        let guards = self.lock_all(segment);
        guards.iter().for_each(Guard::begin_change);
        guards
    }
}

impl<T: Kinds> Core<T> {
    /// Takes the mark of a segment that is not part of the table and that no operation can access. Returns `None` for
    /// any other segment.
    pub(super) fn take_away(&self, id: u32) -> Option<Mark<'_>> {
        let mark = self.marks.take_away(id)?;
        // While this thread holds the mark, no other thread can free the segment again.
        (!self.deferred_free.waits(id)).then_some(mark)
    }

    /// Punches the pages of free segments that no operation can access any more. If one cannot be punched, the others
    /// are punched all the same.
    pub(super) fn punch_free_segments(&self) -> Result<()> {
        let bytes = self.geometry.segment_bytes();
        let mut punched = Ok(());
        for id in self.deferred_free.leave() {
            let Some(_mark) = self.take_away(id) else { continue };
            // The segment shares pages with its neighbours; the shared parts are punched if the neighbours are free as
            // well.
            let [before, after] = [id.checked_sub(1), id.checked_add(1)]
                .map(|neighbour| neighbour.and_then(|neighbour| self.take_away(neighbour)));
            let start = u64::from(id) * bytes;
            let first = start - if before.is_some() { bytes.min(PAGE) } else { 0 };
            let end = start + bytes + if after.is_some() { bytes.min(PAGE) } else { 0 };
            punched = punched.and(self.storage.punch(&self.segments, first, end - first));
        }
        punched
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::hash::Seed;
    use crate::engine::dash::directory::Directory;
    use crate::engine::dash::lh::{Expansion, Growth};
    use crate::engine::dash::options::DashSettings;
    use crate::engine::dash::{Eh, Lh};
    use crate::engine::opening::Common;
    use crate::engine::{Design, Operations, WriteKind};
    use crate::storage::sim::{Sim, SimOptions};
    use crate::types::{Forms, Ignore, InWord, Raw};

    type Check = std::result::Result<(), Box<dyn std::error::Error>>;

    /// `space_of` returns the freed space that a segment belongs to; `None` for one whose space is never given back.
    fn punches_all<P: Directory>(
        policy: P::Options,
        space_of: impl Fn(u32) -> Option<u64>,
    ) -> Check {
        let sim = Sim::new(SimOptions::default());
        let common = Common { hash_seed: Some(Seed([1, 2])), ..Common::default() };
        let settings = DashSettings { policy, ..DashSettings::default() };
        let (table, _) =
            <P as Design>::create::<Forms<InWord, InWord>, Sim>(common, settings, sim.clone())?;
        let core = &table.core;
        for key in 0..8000 {
            table.write(WriteKind::Put, &Raw::Word(key), &Raw::Word(key), Ignore)?;
        }
        let ids = table.directory.check(core, &mut |_| {})?;
        // A bucket in the middle, which lies in no page that the segment shares with others.
        let spaces = || -> Result<BTreeSet<u64>> {
            let mut spaces = BTreeSet::new();
            for &id in &ids {
                let bucket = &core.segment(id)?.buckets[core.geometry.all_buckets() / 2];
                if bucket.meta(&core.storage).count() > 0 {
                    spaces.extend(space_of(id));
                }
            }
            Ok(spaces)
        };
        assert!(spaces()?.len() > 3, "{:?}", spaces()?);
        sim.fail_punches(1);
        let mut failed = u32::from(table.clear_all().is_err());
        while !core.deferred_free.is_empty() {
            core.pin().defer(|| {});
            failed += u32::from(table.directory.give_back(core).is_err());
        }
        assert_eq!((failed, spaces()?.len()), (1, 1));
        Ok(())
    }

    #[test]
    fn a_space_that_cannot_be_punched_does_not_keep_others_from_it() -> Check {
        punches_all::<Eh>((), |id| Some(id.into()))?;
        let growth = Growth { first_array: 1, stride: 1, expansion: Expansion::default() };
        // The first array has the places 0 and 1; each other array is twice as large as the one before.
        punches_all::<Lh>(growth, |id| u64::from(id).checked_sub(2).map(|_| id.ilog2().into()))
    }
}
