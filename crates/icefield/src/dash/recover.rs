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
use super::layout::{Bucket, SLOTS};
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
    let Some(mark) = Mark::take(&core.pm, state) else { return Ok(true) };
    match directory.settle(core, id, mark.is_fresh())? {
        Standing::Whole => {}
        Standing::Born => return Ok(true),
        Standing::Elsewhere => return Ok(false),
    }
    core.reserve_segment(id)?;
    fetch(core, segment);
    reset_locks(core, segment)?;
    remove_duplicates(core, segment)?;
    core.finish_split(directory, id)?;
    directory.finish_merge(core, id)?;
    core.rebuild_overflow(segment)?;
    core.mark_ready(id);
    Ok(true)
}

/// The right to recover a segment. Ends by [`Core::mark_ready`], or gives the segment free for another try.
pub(super) struct Mark<'a> {
    state: &'a AtomicU8,
    before: u8,
}

impl<'a> Mark<'a> {
    /// Waits for whoever recovers the segment; `None`: it is ready.
    pub(super) fn take(pm: &impl Medium, state: &'a AtomicU8) -> Option<Self> {
        let mut before = state.load(Acquire);
        let mut rounds = 0;
        loop {
            match before {
                READY => return None,
                RECOVERING => {
                    pm.wait(rounds);
                    rounds = rounds.saturating_add(1);
                    before = state.load(Acquire);
                }
                // AcqRel: one thread recovers; Acquire pairs with the Release in `mark_ready`.
                _ => match state.compare_exchange(before, RECOVERING, AcqRel, Acquire) {
                    Ok(before) => return Some(Self { state, before }),
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
        if let Some(state) = self.touched.get(id as usize) {
            // Release (E5): who sees the mark sees the reset locks.
            state.store(READY, Release);
        }
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
            // One that was never used in this session stays so. Release: as in `mark_ready`.
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

/// Whatever the locks hold is from another session. The metadata is checked here, once, so that no later code meets
/// slots that the geometry does not have.
fn reset_locks<T: Kinds>(core: &Core<T>, segment: Segment<'_>) -> Result<()> {
    for site in core.sites(segment) {
        let (_, bucket) = site?;
        version_lock::reset(bucket.version_lock(&core.pm));
        let meta = bucket.meta(&core.pm);
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

/// Removes second copies of records. A record is copied only within its home and probing bucket, or from the stash to
/// these, with its very words; so equal key words are enough, and no blob is freed.
fn remove_duplicates<T: Kinds>(core: &Core<T>, segment: Segment<'_>) -> Result<()> {
    let pm = &core.pm;
    let normal = core.geometry.buckets as usize;
    let mut removed = false;
    for number in 0..normal {
        // The copy in the probing bucket goes, wherever it came from.
        let (bucket, next) =
            (&segment.buckets[number], &segment.buckets[core.geometry.next(number)]);
        removed |= strike_copies(core, bucket, next, next.meta(pm).members())?;
    }
    for site in core.sites(segment).skip(normal) {
        let (_, stashed) = site?;
        for slot in Bucket::slots_of(stashed.meta(pm).allocated()) {
            let [home, probing] = core.pair(segment, core.hash_at(stashed, slot)?);
            removed |= strike_copies(core, home, stashed, 1 << slot)?
                || strike_copies(core, probing, stashed, 1 << slot)?;
        }
    }
    if removed {
        // P17: no copy is left before either may change.
        pm.fence();
    }
    Ok(())
}

/// Takes those of `suspects`, slots of `bucket`, out that `original` holds as well; flushed.
fn strike_copies<T: Kinds>(
    core: &Core<T>,
    original: &Bucket,
    bucket: &Bucket,
    suspects: u32,
) -> Result<bool> {
    let pm = &core.pm;
    let meta = bucket.meta(pm);
    let mut copies = 0;
    for slot in Bucket::slots_of(meta.allocated() & suspects) {
        let (key, byte) = (bucket.record(pm, slot).0, bucket.fingerprint_at(pm, slot));
        let twin = Bucket::slots_of(original.candidates(pm, u64::from(byte)))
            .any(|other| original.record(pm, other).0 == key);
        copies |= u32::from(twin) << slot;
    }
    if copies != 0 {
        bucket.publish(pm, meta.without(copies));
    }
    Ok::<_, Error>(copies != 0)
}
