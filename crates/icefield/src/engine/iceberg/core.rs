//! The table without its operations: yards, their metadata in DRAM, and the search for a key under its lock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::buckets::{Buckets, no_slot};
use super::fingerprints::{FrontLine, candidates_back, taken_back};
use super::judgement::LastJudgement;
use super::layout::{EMPTY_KEY, Root, SIDE_KEY, Shape, Slot, fingerprint};
use super::moves::Moves;
use super::overflow::Overflow;
use crate::Result;
use crate::base::counter::ShardedCounter;
use crate::base::group::{Isa, WholeLoads};
use crate::engine::LookupKey;
use crate::engine::exclusion::Exclusion;
use crate::engine::length::Length;
use crate::engine::slots::{EpochGuard, PreparedRecord, Records};
use crate::storage::superblock;
use crate::storage::{Medium, Region};
use crate::types::RecordForm;

/// The state that all files of this design share: the medium, the regions, the records, and the metadata in DRAM.
pub(crate) struct Core<R, M> {
    pub(super) records: Records<R>,
    pub(super) length: Length,
    pub(super) table: Region,
    pub(super) buckets: Buckets,
    pub(super) overflow: Overflow,
    /// [`Shape`]: a copy of the durable shape, never ahead of it.
    pub(super) shape: AtomicU64,
    /// Steps (doubling, halving, `clear`, `backup`) exclude writers and one another.
    pub(super) exclusion: Exclusion,
    pub(super) moves: Moves,
    /// Maximum depth that the address space allows.
    pub(super) max_depth: u32,
    /// Used slots per thousand at which the table doubles.
    pub(super) max_load: u32,
    /// `None` if reads must take locks.
    pub(super) whole_loads: Option<WholeLoads>,
    pub(super) counts: Counts,
    pub(super) last_judgement: LastJudgement,
    /// The last field, so that all fields that point into its mappings are dropped first.
    pub(super) storage: M,
}

/// Rare events, counted for `stats` and the benchmarks.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) doublings: ShardedCounter,
    pub(super) halvings: ShardedCounter,
    pub(super) back_inserts: ShardedCounter,
    pub(super) overflow_inserts: ShardedCounter,
}

/// The slot of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Place {
    /// The slot of the key whose word is [`EMPTY_KEY`].
    Side,
    Front(At),
    Back(At),
    Overflow(u32),
}

/// A bucket and one of its slots, in one word: two halves that are stored separately and loaded together would stall
/// the processor on every insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At(u64);

impl At {
    #[inline(always)]
    pub(super) fn new(bucket: u64, slot: u32) -> Self {
        Self(bucket << 8 | u64::from(slot))
    }

    #[inline(always)]
    pub(super) fn bucket(self) -> u64 {
        self.0 >> 8
    }

    #[inline(always)]
    pub(super) fn slot(self) -> u32 {
        u32::from(self.0 as u8)
    }
}

/// A slot and its place.
#[derive(Clone, Copy)]
pub(super) struct Located<'a> {
    pub(super) place: Place,
    pub(super) slot: &'a Slot,
}

/// The result of a search under the lock.
#[derive(Clone, Copy)]
pub(super) enum Search<'a> {
    Found(Located<'a>),
    /// The key is absent; these slots of its front bucket are empty.
    Absent {
        room: u64,
    },
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    #[inline]
    pub(super) fn root(&self) -> Result<&Root> {
        superblock::root_words(&self.storage, &self.table)
    }

    #[inline(always)]
    pub(super) fn shape(&self) -> Shape {
        self.storage.sim_yield_point();
        // Acquire (E4): pairs with the Release in `set_shape`.
        Shape::of(self.shape.load(Acquire))
    }

    /// Stores, persists and then publishes a shape.
    pub(super) fn set_shape(&self, shape: Shape) -> Result<()> {
        let cell = &self.root()?.shape;
        cell.store(&self.storage, shape.word(), Release);
        // P3, P6, P7, P9, P10, P13: see the header of `mod.rs`.
        self.storage.persist(cell);
        // Release (E4): pairs with the Acquire in `shape`.
        self.shape.store(shape.word(), Release);
        Ok(())
    }

    pub(super) fn slot(&self, place: Place) -> Result<&Slot> {
        match place {
            Place::Side => Ok(&self.root()?.side),
            Place::Front(at) => self.buckets.front_slot(&self.storage, at.bucket(), at.slot()),
            Place::Back(at) => self.buckets.back_slot(&self.storage, at.bucket(), at.slot()),
            Place::Overflow(slot) => self
                .overflow
                .slot(slot)
                .ok_or_else(|| no_slot(&self.storage, self.overflow.region(), 0, slot)),
        }
    }

    /// Returns whether the side slot is the place of this key, present or not.
    #[inline(always)]
    pub(super) fn is_side(&self, probe: &LookupKey<'_>) -> bool {
        self.records.is_key_word(probe, EMPTY_KEY)
    }

    /// Protects by-reference records from reuse while the pin is held.
    #[inline]
    pub(super) fn pin(&self) -> EpochGuard<'_> {
        self.records.pin()
    }

    /// Finds a key under its lock, which is in `line`. During a doubling, the result is only a guess unless the caller
    /// has made sure that the key's buckets are MOVED.
    #[inline(always)]
    pub(super) fn find_locked(
        &self,
        isa: impl Isa,
        shape: Shape,
        line: FrontLine<'_>,
        probe: &LookupKey<'_>,
    ) -> Result<Search<'_>> {
        if self.is_side(probe) {
            return self.find_side();
        }
        let bucket = shape.front(probe.hash);
        let view = line.view(isa, fingerprint(probe.hash), self.buckets.front_mask());
        if let Some((at, slot)) = self.find_in_front(bucket, view.candidates, probe)? {
            return Ok(Search::Found(Located { place: Place::Front(at), slot }));
        }
        if !self.may_be_behind(shape, probe.hash) {
            return Ok(Search::Absent { room: view.empty });
        }
        let found = self.find_behind(shape, probe)?;
        Ok(found.map_or(Search::Absent { room: view.empty }, Search::Found))
    }

    /// Returns the slot of a front bucket that holds the key, one of `candidates`.
    #[inline(always)]
    pub(super) fn find_in_front(
        &self,
        bucket: u64,
        mut candidates: u64,
        probe: &LookupKey<'_>,
    ) -> Result<Option<(At, &Slot)>> {
        while candidates != 0 {
            let number = candidates.trailing_zeros();
            let slot = self.buckets.front_slot(&self.storage, bucket, number)?;
            if self.holds(slot.key(&self.storage), probe)? {
                return Ok(Some((At::new(bucket, number), slot)));
            }
            candidates &= candidates - 1;
        }
        Ok(None)
    }

    #[cold]
    fn find_side(&self) -> Result<Search<'_>> {
        let slot = &self.root()?.side;
        let found = Search::Found(Located { place: Place::Side, slot });
        Ok(if slot.key(&self.storage) == SIDE_KEY { found } else { Search::Absent { room: 0 } })
    }

    /// Returns whether a record with this hash may be in the back yard or the overflow yard. During a doubling, the
    /// caller has moved the back buckets of the hash, which has marked its front bucket if a record is there.
    #[inline(always)]
    pub(super) fn may_be_behind(&self, shape: Shape, hash: u64) -> bool {
        if self.buckets.leads_behind(&self.storage, shape, hash) {
            let words =
                shape.back(hash).map(|bucket| self.buckets.back_word(&self.storage, bucket).load());
            if candidates_back(words, fingerprint(hash)) != 0 {
                return true;
            }
        }
        !self.overflow.is_empty(hash)
    }

    /// Continues [`Core::find_locked`] in the back yard and the overflow yard.
    fn find_behind(&self, shape: Shape, probe: &LookupKey<'_>) -> Result<Option<Located<'_>>> {
        let buckets = shape.back(probe.hash);
        let words = buckets.map(|bucket| self.buckets.back_word(&self.storage, bucket).load());
        let mut candidates = candidates_back(words, fingerprint(probe.hash));
        while candidates != 0 {
            let (which, number) = place_of(candidates);
            let slot = self.buckets.back_slot(&self.storage, buckets[which], number)?;
            if self.holds(self.storage.read_unvalidated(|| slot.key(&self.storage)), probe)? {
                let place = Place::Back(At::new(buckets[which], number));
                return Ok(Some(Located { place, slot }));
            }
            candidates &= candidates - 1;
        }
        if self.overflow.is_empty(probe.hash) {
            return Ok(None);
        }
        let place = self.overflow.find(probe.hash, |number, slot| {
            let holds =
                self.holds(self.storage.read_unvalidated(|| slot.key(&self.storage)), probe)?;
            Ok(holds.then_some(Place::Overflow(number)))
        })?;
        place.map(|place| Ok(Located { place, slot: self.slot(place)? })).transpose()
    }

    /// Returns whether a slot with this key word holds the key.
    #[inline(always)]
    pub(super) fn holds(&self, key: u64, probe: &LookupKey<'_>) -> Result<bool> {
        Ok(key != EMPTY_KEY && self.records.matches(&self.storage, key, probe)?)
    }

    /// Claims a free slot for an absent key, under its lock: one of those in the front bucket (`room`), else one in the
    /// emptier of the two back buckets, else one in the overflow yard (Algorithms 1 and 2 of the paper).
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the overflow yard cannot grow.
    #[inline(always)]
    pub(super) fn claim(
        &self,
        shape: Shape,
        probe: &LookupKey<'_>,
        room: u64,
    ) -> Result<Located<'_>> {
        if room == 0 {
            return self.claim_elsewhere(shape, probe);
        }
        let (at, slot) = self.claim_front(shape, probe.hash, room)?;
        Ok(Located { place: Place::Front(at), slot })
    }

    /// Claims the first slot of `room`.
    #[inline(always)]
    pub(super) fn claim_front(&self, shape: Shape, hash: u64, room: u64) -> Result<(At, &Slot)> {
        let (bucket, slot) = (shape.front(hash), room.trailing_zeros());
        self.buckets.guess(bucket, room & (room - 1));
        Ok((At::new(bucket, slot), self.buckets.front_slot(&self.storage, bucket, slot)?))
    }

    #[inline(never)]
    pub(super) fn claim_elsewhere(
        &self,
        shape: Shape,
        probe: &LookupKey<'_>,
    ) -> Result<Located<'_>> {
        let place =
            if self.is_side(probe) { Place::Side } else { self.claim_behind(shape, probe.hash)? };
        Ok(Located { place, slot: self.slot(place)? })
    }

    fn claim_behind(&self, shape: Shape, hash: u64) -> Result<Place> {
        let [first, second] = shape.back(hash);
        let load = |bucket| taken_back(self.buckets.back_word(&self.storage, bucket).load());
        let order = if load(second) < load(first) { [second, first] } else { [first, second] };
        for bucket in order {
            if let Some(slot) =
                self.buckets.back_word(&self.storage, bucket).claim(self.buckets.yards().back)
            {
                self.buckets.lead_behind(shape, hash);
                self.counts.back_inserts.add(1);
                return Ok(Place::Back(At::new(bucket, slot)));
            }
        }
        let slot = self.overflow.claim(&self.storage)?;
        self.counts.overflow_inserts.add(1);
        Ok(Place::Overflow(slot))
    }

    #[inline(always)]
    pub(super) fn fill(&self, claimed: &Located<'_>, record: PreparedRecord) {
        let key = if claimed.place == Place::Side { SIDE_KEY } else { record.key };
        claimed.slot.fill(&self.storage, key, record.value);
    }

    /// Publishes a claimed, durable slot to reads; `line` has the key's lock.
    #[inline(always)]
    pub(super) fn publish(&self, line: FrontLine<'_>, place: Place, hash: u64) {
        match place {
            Place::Front(at) => line.publish(at.slot(), fingerprint(hash)),
            elsewhere => self.publish_elsewhere(elsewhere, hash),
        }
    }

    #[inline(never)]
    fn publish_elsewhere(&self, place: Place, hash: u64) {
        match place {
            Place::Side | Place::Front(_) => {}
            Place::Back(at) => self
                .buckets
                .back_word(&self.storage, at.bucket())
                .publish(at.slot(), fingerprint(hash)),
            Place::Overflow(slot) => self.overflow.link(slot, hash),
        }
    }

    /// Frees the slot of a record whose removal is durable.
    #[inline]
    pub(super) fn release(&self, place: Place, hash: u64) {
        match place {
            Place::Side => {}
            Place::Front(at) => {
                self.buckets.line(&self.storage, at.bucket()).clear(at.slot());
                self.buckets.guess_emptied(at.bucket(), at.slot());
            }
            Place::Back(at) => self.buckets.back_word(&self.storage, at.bucket()).clear(at.slot()),
            Place::Overflow(slot) => self.overflow.unlink(slot, hash),
        }
    }
}

/// Returns the first of the [`candidates_back`]: the index of its bucket among the two, and its slot.
#[inline(always)]
pub(super) fn place_of(candidates: u32) -> (usize, u32) {
    let place = candidates.trailing_zeros();
    (place as usize / 8, place % 8)
}
