//! Lazy recovery: a segment is recovered when a session first touches it (§4.8).
//!
//! The paper keeps a version number in every segment and compares it with a global one. Here a mark per segment in DRAM
//! replaces both. All marks are zero when a table is opened, so no version can wrap and opening stores nothing per
//! segment. Segments are recovered after a clean shutdown as well, because locks and overflow metadata are never made
//! durable: a power failure right after the shutdown may leave any values in them.
//!
//! Recovery of one segment resets its locks, removes duplicates that a displacement or a move from the stash left,
//! finishes a committed split, and rebuilds the overflow metadata. Each step only repeats work that may already have
//! been done, so a crash during recovery changes nothing.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::directory::{Directory, Standing};
use super::kinds::Kinds;
use super::layout::{Bucket, Meta, SLOTS};
use super::segment::{Core, Segment};
use crate::base::version_lock;
use crate::storage::{Medium, Persist, Properties, refuse_child};
use crate::{Error, Result};

/// The segment has not been touched in this session.
const UNTOUCHED: u8 = 0;
/// A thread is recovering the segment.
const RECOVERING: u8 = 1;
/// The segment may be used.
pub(super) const READY: u8 = 2;
/// The segment is not part of the table, but was used in this session: its locks are valid.
const AWAY: u8 = 3;
/// The segment may be read, in a session that only reads.
pub(super) const STILL: u8 = 4;
/// In a session that only reads: the split that makes the segment is due, so its records are in another segment.
pub(super) const DUE: u8 = 5;

/// Makes sure that a segment has been recovered in this session; costs one DRAM load if it has been. Returns `false` if
/// the segment is no longer part of the table. The caller holds no lock of a segment.
#[inline]
pub(super) fn ensure_recovered<T: Kinds>(
    core: &Core<T>,
    directory: &impl Directory,
    id: u32,
) -> Result<bool> {
    if core.is_touched(id) {
        return Ok(true);
    }
    recover(core, directory, id)
}

#[cold]
fn recover<T: Kinds>(core: &Core<T>, directory: &impl Directory, id: u32) -> Result<bool> {
    let Some(state) = core.touched.get(id as usize) else {
        return Err(core.corrupt(&core.segments, 0, format!("segment {id} lies outside the file")));
    };
    refuse_child(&core.storage)?;
    let segment = core.segment(id)?;
    if core.still.is_none()
        && let Err(Error::Forked) = core.storage.check_writable()
    {
        // The files belong to the parent process, which may have recovered the segment since and be changing it.
        return Err(Error::Forked);
    }
    let Some(mark) = Mark::take(&core.storage, state)? else { return Ok(core.mark(id) != DUE) };
    match directory.determine_state(core, id, mark.is_fresh())? {
        Standing::Whole => {}
        Standing::Born => return Ok(true),
        Standing::Elsewhere => return Ok(false),
        Standing::Due => {
            core.set_mark(id, DUE);
            return Ok(false);
        }
    }
    let Some(still) = &core.still else {
        recover_segment(core, directory, segment)?;
        core.mark_ready(id);
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

/// The exclusive right to recover a segment: its mark is `RECOVERING`. [`Core::set_mark`] ends the recovery. If this is
/// dropped before, another thread can try.
pub(super) struct Mark<'a> {
    state: &'a AtomicU8,
    before: u8,
}

impl<'a> Mark<'a> {
    /// Waits for a thread that recovers the segment; returns `None` if the recovery is done.
    ///
    /// # Errors
    /// The process was forked while a thread of its parent recovered the segment: in this process the recovery would
    /// never end.
    pub(super) fn take(storage: &impl Medium, state: &'a AtomicU8) -> Result<Option<Self>> {
        let mut before = state.load(Acquire);
        let mut rounds = 0;
        loop {
            match before {
                READY | STILL | DUE => return Ok(None),
                RECOVERING => {
                    if let Err(Error::Forked) = storage.check_writable() {
                        return Err(Error::Forked);
                    }
                    storage.wait(rounds);
                    rounds = rounds.saturating_add(1);
                    before = state.load(Acquire);
                }
                // AcqRel: only one thread recovers; Acquire pairs with the Release in `set_mark`.
                _ => match state.compare_exchange(before, RECOVERING, AcqRel, Acquire) {
                    Ok(before) => return Ok(Some(Self { state, before })),
                    Err(now) => before = now,
                },
            }
        }
    }
}

impl<'a> Mark<'a> {
    /// Takes the mark of a segment that is `AWAY`. Returns `None` if the segment is in another state.
    fn take_away(state: &'a AtomicU8) -> Option<Self> {
        state
            .compare_exchange(AWAY, RECOVERING, AcqRel, Relaxed)
            .ok()
            .map(|before| Self { state, before })
    }

    /// Returns whether the segment has not been used in this session, so that its locks are invalid.
    pub(super) fn is_fresh(&self) -> bool {
        self.before == UNTOUCHED
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        // Fails if the segment is ready, and perhaps already in use.
        let _ = self.state.compare_exchange(RECOVERING, self.before, Release, Relaxed);
    }
}

impl<T: Kinds> Core<T> {
    pub(super) fn mark_ready(&self, id: u32) {
        self.set_mark(id, READY);
    }

    pub(super) fn set_mark(&self, id: u32, mark: u8) {
        if let Some(state) = self.touched.get(id as usize) {
            // Release (E5): a thread that sees the mark sees the reset locks and the state that recovery determined.
            state.store(mark, Release);
        }
    }

    pub(super) fn mark(&self, id: u32) -> u8 {
        // Acquire (E5): pairs with the Release in `set_mark`.
        self.touched.get(id as usize).map_or(UNTOUCHED, |state| state.load(Acquire))
    }

    /// Takes the mark of a segment that is not part of the table and that no operation can access. Returns `None` for
    /// any other segment.
    pub(super) fn take_away(&self, id: u32) -> Option<Mark<'_>> {
        let mark = Mark::take_away(self.touched.get(id as usize)?)?;
        // While this thread holds the mark, no other thread can free the segment again.
        (!self.deferred_free.waits(id)).then_some(mark)
    }

    /// Marks a segment that was ready as no longer part of the table.
    pub(super) fn mark_away(&self, id: u32) {
        if let Some(state) = self.touched.get(id as usize) {
            // The mark of a segment that this session never used does not change. Release: as in `set_mark`.
            let _ = state.compare_exchange(READY, AWAY, Release, Relaxed);
        }
    }
}

/// Reads the segment's lines in order, which the processor does at its full bandwidth. The steps below access the same
/// lines in random order, whatever the segment holds.
fn fetch<T: Kinds>(core: &Core<T>, segment: Segment<'_>) {
    for bucket in segment.buckets {
        bucket.meta(&core.storage);
        for slot in (2..SLOTS).step_by(4) {
            bucket.slots[slot].key.load(&core.storage, Relaxed);
        }
    }
}

/// Checks the metadata once, so that no later code meets slots that the geometry does not have.
fn check_metadata<T: Kinds>(core: &Core<T>, segment: Segment<'_>) -> Result<()> {
    for site in core.sites(segment) {
        let meta = site?.1.meta(&core.storage);
        if (meta.allocated() | meta.members()) & !core.geometry.slot_mask() != 0 {
            let detail = format!("metadata {meta:?} of a bucket of segment {}", segment.id);
            return Err(core.corrupt(
                &core.segments,
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
    copies(core, segment, |bucket, meta, slots| {
        bucket.publish(storage, meta.without(slots));
        removed = true;
    })?;
    if removed {
        // P17: no duplicate is left before the remaining copy may change.
        storage.fence();
    }
    Ok(())
}

/// Calls `found` for each bucket that holds second copies of records, with their slots and the bucket's metadata,
/// before it checks the next bucket. A record is copied only within its home and probing bucket, or from the stash to
/// these, with the same two words. So comparing key words is sufficient, and no blob is freed.
pub(super) fn copies<T: Kinds>(
    core: &Core<T>,
    segment: Segment<'_>,
    mut found: impl FnMut(&Bucket, Meta, u32),
) -> Result<()> {
    let storage = &core.storage;
    let normal = core.geometry.buckets as usize;
    for number in 0..normal {
        // The copy in the probing bucket is removed, wherever it came from.
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

/// Returns those of `suspects`, slots of `bucket`, whose records `original` holds as well.
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
