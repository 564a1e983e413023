//! Lazy recovery: a segment is recovered when a session first touches it (§4.8).
//!
//! The paper keeps a version number in every segment and compares it with a global one. Here a mark per segment in DRAM
//! replaces both. All marks are zero when a table is opened, so no version can wrap and opening stores nothing per
//! segment. Segments are recovered after a clean shutdown as well, because locks and overflow metadata are never made
//! durable: a power failure right after the shutdown may leave any values in them.
//!
//! Recovery of one segment resets its locks, removes duplicates that a displacement or a move from the stash left,
//! finishes a committed split, and rebuilds the overflow metadata. Each step only repeats work that may already have
//! been done, so recovery may itself be interrupted by a crash.

use std::sync::atomic::Ordering::Relaxed;

use super::directory::Directory;
use super::kinds::Kinds;
use super::layout::{Bucket, Meta, SLOTS, State};
use super::located::Standing;
use super::marks::{DUE, READY, STILL};
use super::segment::{Core, Segment};
use super::still::Still;
use crate::base::version_lock;
use crate::storage::{Medium, Persist, Properties, refuse_child};
use crate::{Error, Result};

/// Makes sure that a segment has been recovered in this session; costs one DRAM load if it has been. Returns `false` if
/// the segment is not part of the table, or if the split that makes it is due in a session that only reads. The caller
/// holds no lock of a segment.
#[inline]
pub(super) fn ensure_recovered<T: Kinds>(
    core: &Core<T>,
    directory: &impl Directory,
    id: u32,
) -> Result<bool> {
    if core.marks.is_ready(id) {
        return Ok(true);
    }
    recover(core, directory, id)
}

#[cold]
fn recover<T: Kinds>(core: &Core<T>, directory: &impl Directory, id: u32) -> Result<bool> {
    refuse_child(&core.storage)?;
    let segment = core.segment(id)?;
    if core.still.is_none()
        && let Err(Error::Forked) = core.storage.check_writable()
    {
        // The files belong to the parent process, which may have recovered the segment since the fork and may be
        // changing it.
        return Err(Error::Forked);
    }
    let Some(mark) = core.marks.take(&core.storage, id)? else {
        return Ok(!core.marks.is_due(id));
    };
    match directory.determine_state(core, id, mark.is_fresh())? {
        Standing::Whole => {}
        Standing::Born => return Ok(true),
        Standing::Elsewhere => return Ok(false),
        Standing::Due => {
            core.marks.set(id, DUE);
            return Ok(false);
        }
    }
    let Some(still) = &core.still else {
        recover_segment(core, directory, segment)?;
        core.marks.set(id, READY);
        return Ok(true);
    };
    fetch(core, segment);
    check_metadata(core, segment)?;
    if core.is_unsettled(segment)? {
        recover_segment(core, directory, segment)?;
    }
    core.let_be(still, segment)?;
    Ok(true)
}

/// Recovers one segment.
fn recover_segment<T: Kinds>(
    core: &Core<T>,
    directory: &impl Directory,
    segment: Segment<'_>,
) -> Result<()> {
    core.reserve_segment(segment.id)?;
    fetch(core, segment);
    check_metadata(core, segment)?;
    reset_locks(core, segment)?;
    remove_duplicates(core, segment)?;
    core.finish_split(directory, segment.id)?;
    directory.finish_merge(core, segment.id)?;
    core.rebuild_overflow(segment)
}

/// Reads the segment's lines in order, which the processor does at its full bandwidth. The steps below access the same
/// lines in random order.
fn fetch<T: Kinds>(core: &Core<T>, segment: Segment<'_>) {
    for bucket in segment.buckets {
        bucket.meta(&core.storage);
        for slot in (2..SLOTS).step_by(4) {
            bucket.slots[slot].key.load(&core.storage, Relaxed);
        }
    }
}

/// Checks the metadata once, so that no later code accesses slots that the geometry does not have.
fn check_metadata<T: Kinds>(core: &Core<T>, segment: Segment<'_>) -> Result<()> {
    for site in core.sites(segment) {
        let meta = site?.1.meta(&core.storage);
        if (meta.allocated() | meta.members()) & !core.geometry.slot_mask() != 0 {
            let detail =
                format!("a bucket of segment {} has impossible metadata {meta:?}", segment.id);
            return Err(core.segments.fault(
                &core.storage,
                u64::from(segment.id) * core.geometry.segment_bytes(),
                detail,
            ));
        }
    }
    Ok(())
}

/// Resets all locks: their contents are from an earlier session.
fn reset_locks<T: Kinds>(core: &Core<T>, segment: Segment<'_>) -> Result<()> {
    for site in core.sites(segment) {
        version_lock::reset(site?.1.version_lock(&core.storage));
    }
    Ok(())
}

/// Removes the second copies of records.
fn remove_duplicates<T: Kinds>(core: &Core<T>, segment: Segment<'_>) -> Result<()> {
    let storage = &core.storage;
    let mut removed = false;
    let searched = copies(core, segment, |bucket, meta, slots| {
        bucket.publish(storage, meta.without(slots));
        removed = true;
    });
    if removed {
        // P17: the duplicates are durably removed before the remaining copies may change. Also if the search failed
        // halfway: a later one does not find these duplicates.
        storage.fence();
    }
    searched
}

/// Calls `found` for each bucket that holds second copies of records, with the bucket's metadata and the copies' slots,
/// before it checks the next bucket. Second copies are in the probing bucket or the stash. Both copies have the same
/// two words, so comparing key words is sufficient, and removing a copy must not free the blobs.
pub(super) fn copies<T: Kinds>(
    core: &Core<T>,
    segment: Segment<'_>,
    mut found: impl FnMut(&Bucket, Meta, u32),
) -> Result<()> {
    let storage = &core.storage;
    let normal = core.geometry.buckets as usize;
    for number in 0..normal {
        // The copy in the probing bucket is removed, even if it is the original.
        let (bucket, next) =
            (&segment.buckets[number], &segment.buckets[core.geometry.next(number)]);
        let meta = next.meta(storage);
        let slots = copies_in(storage, bucket, next, meta.members());
        if slots != 0 {
            found(next, meta, slots);
        }
    }
    for site in core.sites(segment).skip(normal) {
        let (_, stashed) = site?;
        let meta = stashed.meta(storage);
        let mut slots = 0;
        for slot in Bucket::slots_of(meta.allocated()) {
            let pair = core.pair(segment, core.hash_at(stashed, slot)?);
            slots |= pair
                .map(|original| copies_in(storage, original, stashed, 1 << slot))
                .into_iter()
                .fold(0, |all, one| all | one);
        }
        if slots != 0 {
            found(stashed, meta, slots);
        }
    }
    Ok(())
}

/// Returns a mask of those slots of `bucket` among `suspects` whose records are also in `original`.
fn copies_in(storage: &impl Medium, original: &Bucket, bucket: &Bucket, suspects: u32) -> u32 {
    let mut copies = 0;
    for slot in Bucket::slots_of(bucket.meta(storage).allocated() & suspects) {
        let (key, byte) = (bucket.record(storage, slot).0, bucket.fingerprint_at(storage, slot));
        let twin = Bucket::slots_of(original.candidates(storage, u64::from(byte)))
            .any(|other| original.record(storage, other).0 == key);
        copies |= u32::from(twin) << slot;
    }
    copies
}

impl<T: Kinds> Core<T> {
    /// In `still`, sets the bits of the home buckets that have stashed records; then marks the segment as readable.
    pub(super) fn let_be(&self, still: &Still, segment: Segment<'_>) -> Result<()> {
        for site in self.sites(segment).skip(self.geometry.buckets as usize) {
            let (_, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(&self.storage).allocated()) {
                still.note(segment.id, self.geometry.home(self.hash_at(bucket, slot)?));
            }
        }
        self.marks.set(segment.id, STILL);
        Ok(())
    }

    /// Returns whether a crash interrupted a change of the segment.
    pub(super) fn is_unsettled(&self, segment: Segment<'_>) -> Result<bool> {
        if matches!(self.link(segment.id)?.state, State::Splitting | State::Absorbing) {
            return Ok(true);
        }
        let mut found = 0;
        copies(self, segment, |_, _, slots| found |= slots)?;
        Ok(found != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Release;

    use super::*;
    use crate::engine::dash::Eh;
    use crate::engine::dash::insert::copy_fingerprint;
    use crate::engine::dash::options::table_of_words;
    use crate::engine::{Operations, WriteKind};
    use crate::storage::sim::{Sim, SimOptions};
    use crate::types::{Ignore, Raw};

    type Check = std::result::Result<(), Box<dyn std::error::Error>>;

    /// A later search finds no duplicates, and would not make the removal durable.
    #[test]
    fn removed_duplicates_are_durable_although_the_search_fails() -> Check {
        let sim = Sim::new(SimOptions { counting: true, ..SimOptions::default() });
        let table = table_of_words::<Eh, _>(sim.clone())?;
        let core = &table.core;
        table.write(WriteKind::Put, &Raw::Word(7), &Raw::Word(7), Ignore)?;
        let segment = core.segment(table.directory.check(core, &mut |_| {})?[0])?;
        let home = core.geometry.home(core.records.hash_key(&Raw::Word(7)).hash);
        let [bucket, next] = [home, core.geometry.next(home)].map(|at| &segment.buckets[at]);
        let slot = Bucket::slots_of(bucket.meta(&sim).allocated()).next().ok_or("no record")?;
        let (key, value) = bucket.record(&sim, slot);
        next.slots[0].key.store(&sim, key, Release);
        next.slots[0].value.store(&sim, value, Release);
        copy_fingerprint(&sim, bucket, slot, next, 0);
        next.publish(&sim, Meta(0).with(0, true));
        // A chained block that does not exist.
        core.header(segment.id)?.chain.store(&sim, 1 << 30, Release);
        let before = sim.counters().fences;
        let removed = remove_duplicates(core, segment);
        assert!(matches!(removed, Err(Error::Corrupt { .. })), "{removed:?}");
        assert_eq!((next.meta(&sim).count(), sim.counters().fences - before), (0, 1));
        Ok(())
    }
}
