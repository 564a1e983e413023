//! Lazy recovery: what happens to a segment when a session first touches it (§4.8).
//!
//! The paper keeps a version number in every segment and compares it with a global one. Here the global number is the
//! session itself: a mark per segment in DRAM, all zero when a table is opened, so a version cannot wrap and opening
//! stores nothing per segment. After a clean shutdown the segments are recovered just as well, because locks and
//! overflow metadata are never made durable: what a power cut right after the shutdown leaves of them is anybody's
//! guess.
//!
//! Recovery of one segment: its locks are reset; duplicates that a displacement or a homecoming left are removed; a
//! split that had been committed is finished; overflow metadata is rebuilt. Each step only repeats what may have been
//! done, so that crashes inside recovery change nothing.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::directory::{Directory, Standing};
use super::kinds::Kinds;
use super::layout::{Bucket, Meta, SLOTS};
use super::segment::{Core, Segment};
use crate::base::version_lock;
use crate::pm::{Medium, refuse_child};
use crate::{Error, Result};

/// Nobody has touched the segment in this session.
const UNTOUCHED: u8 = 0;
/// Somebody is recovering it.
const RECOVERING: u8 = 1;
/// It may be used.
pub(super) const READY: u8 = 2;
/// It is no part of the table, but has been in this session: its locks are in order.
const AWAY: u8 = 3;
/// It may be read, in a session that only reads.
pub(super) const STILL: u8 = 4;
/// In such a session: its records are in another segment, for the split that makes it is due.
pub(super) const DUE: u8 = 5;

/// Makes sure that a segment has been recovered in this session; one DRAM load when it has. `false`: it is no part of
/// the table any more. The caller holds no lock of a segment.
#[inline]
pub(super) fn touch<T: Kinds>(core: &Core<T>, directory: &impl Directory, id: u32) -> Result<bool> {
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
    refuse_child(&core.pm)?;
    let segment = core.segment(id)?;
    if core.still.is_none()
        && let Err(Error::Forked) = core.pm.writable()
    {
        // The files are the parent's, who may have recovered the segment since, and be changing it.
        return Err(Error::Forked);
    }
    let Some(mark) = Mark::take(&core.pm, state)? else { return Ok(core.mark(id) != DUE) };
    match directory.settle(core, id, mark.is_fresh())? {
        Standing::Whole => {}
        Standing::Born => return Ok(true),
        Standing::Elsewhere => return Ok(false),
        Standing::Due => {
            core.set_mark(id, DUE);
            return Ok(false);
        }
    }
    let Some(still) = &core.still else {
        settle(core, directory, segment)?;
        core.mark_ready(id);
        return Ok(true);
    };
    fetch(core, segment);
    check_metadata(core, segment)?;
    if core.is_unsettled(segment)? {
        settle(core, directory, segment)?;
    }
    core.let_be(still, segment)?;
    Ok(true)
}

/// Recovery of one segment.
fn settle<T: Kinds>(
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

/// The right to recover a segment. Ends by [`Core::set_mark`], or gives the segment free for another try.
pub(super) struct Mark<'a> {
    state: &'a AtomicU8,
    before: u8,
}

impl<'a> Mark<'a> {
    /// Waits for whoever recovers the segment; `None`: that is done.
    ///
    /// # Errors
    /// The process was forked while a thread of its parent recovered the segment: nobody would end that here.
    pub(super) fn take(pm: &impl Medium, state: &'a AtomicU8) -> Result<Option<Self>> {
        let mut before = state.load(Acquire);
        let mut rounds = 0;
        loop {
            match before {
                READY | STILL | DUE => return Ok(None),
                RECOVERING => {
                    if let Err(Error::Forked) = pm.writable() {
                        return Err(Error::Forked);
                    }
                    pm.wait(rounds);
                    rounds = rounds.saturating_add(1);
                    before = state.load(Acquire);
                }
                // AcqRel: one thread recovers; Acquire pairs with the Release in `set_mark`.
                _ => match state.compare_exchange(before, RECOVERING, AcqRel, Acquire) {
                    Ok(before) => return Ok(Some(Self { state, before })),
                    Err(now) => before = now,
                },
            }
        }
    }
}

impl<'a> Mark<'a> {
    /// The right to a segment that is away; `None`: it is not.
    fn take_away(state: &'a AtomicU8) -> Option<Self> {
        state
            .compare_exchange(AWAY, RECOVERING, AcqRel, Relaxed)
            .ok()
            .map(|before| Self { state, before })
    }

    /// Whether nobody has used the segment in this session: its locks mean nothing.
    pub(super) fn is_fresh(&self) -> bool {
        self.before == UNTOUCHED
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        // Fails when the segment is ready (and perhaps in use for long).
        let _ = self.state.compare_exchange(RECOVERING, self.before, Release, Relaxed);
    }
}

impl<T: Kinds> Core<T> {
    /// Notes that a segment may be used.
    pub(super) fn mark_ready(&self, id: u32) {
        self.set_mark(id, READY);
    }

    pub(super) fn set_mark(&self, id: u32, mark: u8) {
        if let Some(state) = self.touched.get(id as usize) {
            // Release (E5): who sees the mark sees the reset locks, or what is known of the segment.
            state.store(mark, Release);
        }
    }

    pub(super) fn mark(&self, id: u32) -> u8 {
        // Acquire (E5): pairs with the Release in `set_mark`.
        self.touched.get(id as usize).map_or(UNTOUCHED, |state| state.load(Acquire))
    }

    /// The right to a segment that is no part of the table and that nobody is on the way to.
    pub(super) fn take_away(&self, id: u32) -> Option<Mark<'_>> {
        let mark = Mark::take_away(self.touched.get(id as usize)?)?;
        // With the mark, nobody else can free it again.
        (!self.limbo.waits(id)).then_some(mark)
    }

    /// Notes that a segment that was ready is no part of the table any more.
    pub(super) fn mark_away(&self, id: u32) {
        if let Some(state) = self.touched.get(id as usize) {
            // One that was never used in this session stays so. Release: as in `set_mark`.
            let _ = state.compare_exchange(READY, AWAY, Release, Relaxed);
        }
    }
}

/// Reads the segment's lines in order, which the processor does at its full bandwidth, before the steps below hop
/// between them: recovery reads the same lines whatever the segment holds.
fn fetch<T: Kinds>(core: &Core<T>, segment: Segment<'_>) {
    for bucket in segment.buckets {
        bucket.meta(&core.pm);
        for slot in (2..SLOTS).step_by(4) {
            bucket.slots[slot].key.load(&core.pm, Relaxed);
        }
    }
}

/// The metadata is checked here, once, so that no later code meets slots that the geometry does not have.
fn check_metadata<T: Kinds>(core: &Core<T>, segment: Segment<'_>) -> Result<()> {
    for site in core.sites(segment) {
        let meta = site?.1.meta(&core.pm);
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

/// Whatever the locks hold is from another session.
fn reset_locks<T: Kinds>(core: &Core<T>, segment: Segment<'_>) -> Result<()> {
    for site in core.sites(segment) {
        version_lock::reset(site?.1.version_lock(&core.pm));
    }
    Ok(())
}

/// Removes second copies of records.
fn remove_duplicates<T: Kinds>(core: &Core<T>, segment: Segment<'_>) -> Result<()> {
    let pm = &core.pm;
    let mut removed = false;
    copies(core, segment, |bucket, meta, slots| {
        bucket.publish(pm, meta.without(slots));
        removed = true;
    })?;
    if removed {
        // P17: no copy is left before either may change.
        pm.fence();
    }
    Ok(())
}

/// Calls `found` with the slots of each bucket that hold second copies of records, and its metadata, before it looks at
/// the next one. A record is copied only within its home and probing bucket, or from the stash to these, with its very
/// words; so equal key words are enough, and no blob is freed.
pub(super) fn copies<T: Kinds>(
    core: &Core<T>,
    segment: Segment<'_>,
    mut found: impl FnMut(&Bucket, Meta, u32),
) -> Result<()> {
    let pm = &core.pm;
    let normal = core.geometry.buckets as usize;
    for number in 0..normal {
        // The copy in the probing bucket goes, wherever it came from.
        let (bucket, next) =
            (&segment.buckets[number], &segment.buckets[core.geometry.next(number)]);
        let meta = next.meta(pm);
        let slots = copies_in(pm, bucket, next, meta.members());
        if slots != 0 {
            found(next, meta, slots);
        }
    }
    for site in core.sites(segment).skip(normal) {
        let (_, stashed) = site?;
        let meta = stashed.meta(pm);
        let mut slots = 0;
        for slot in Bucket::slots_of(meta.allocated()) {
            let pair = core.pair(segment, core.hash_at(stashed, slot)?);
            slots |= pair
                .map(|original| copies_in(pm, original, stashed, 1 << slot))
                .into_iter()
                .fold(0, |all, one| all | one);
        }
        if slots != 0 {
            found(stashed, meta, slots);
        }
    }
    Ok(())
}

/// Those of `suspects`, slots of `bucket`, that `original` holds as well.
fn copies_in(pm: &impl Medium, original: &Bucket, bucket: &Bucket, suspects: u32) -> u32 {
    let mut copies = 0;
    for slot in Bucket::slots_of(bucket.meta(pm).allocated() & suspects) {
        let (key, byte) = (bucket.record(pm, slot).0, bucket.fingerprint_at(pm, slot));
        let twin = Bucket::slots_of(original.candidates(pm, u64::from(byte)))
            .any(|other| original.record(pm, other).0 == key);
        copies |= u32::from(twin) << slot;
    }
    copies
}
