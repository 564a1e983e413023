//! One window of a batch: the operations between two pairs of fences (`batch` has the protocol).

use std::sync::atomic::Ordering::Release;

use super::bucket::Guard;
use super::directory::Located;
use super::insert::choose;
use super::layout::{Bucket, Meta};
use super::op::{Mode, Wrote};
use super::record::{Pin, Probe, Unlinked};
use super::segment::{Core, Found, Segment, Site};
use super::stash;
use crate::Result;
use crate::key::{Key, Value};
use crate::pm::Medium;

/// Operations that share fences.
pub(super) const WINDOW: usize = 32;

/// What a window has in mind for a key. Buckets are places in [`Window::held`].
#[derive(Clone, Copy)]
pub(super) enum Plan {
    /// Nothing: the answer is known.
    Answer(Wrote),
    /// A record, already in a free slot.
    Insert { place: usize, slot: usize, member: bool, site: Site },
    /// Another value word.
    Replace { place: usize, value: Address, before: u64, word: u64 },
    /// The end of a record.
    Remove { place: usize, slot: usize, site: Site, before: (u64, u64) },
}

/// A slot of a bucket that may not be held: a stashed record is replaced under its home bucket's lock.
#[derive(Clone, Copy)]
pub(super) struct Address(*const Bucket, usize);

pub(super) struct Staged {
    pub(super) hash: u64,
    /// The places of the home and the probing bucket.
    pair: [usize; 2],
    pub(super) generation: u64,
    pub(super) plan: Plan,
}

/// A bucket that the window holds.
struct Held<'a, M: Medium> {
    bucket: &'a Bucket,
    guard: Guard<'a, M>,
    /// Slots that the window has filled but not published.
    pending: u32,
    /// Bits that the metadata word gains.
    added: u32,
    /// Slots that it loses.
    removed: u32,
}

/// The operations between two pairs of fences.
pub(super) struct Window<'a, K: ?Sized, V: ?Sized, M: Medium> {
    core: &'a Core<K, V, M>,
    held: Vec<Held<'a, M>>,
    pub(super) staged: Vec<Staged>,
}

/// What became of an attempt to stage an operation.
pub(super) enum Attempt {
    Staged,
    /// Not in this window; in the next, or if this one is empty, not in any.
    Refused,
}

/// A write as the window sees it.
#[derive(Clone, Copy)]
pub(super) enum Write {
    Put(Mode, Unlinked),
    Remove,
}

impl<'a, K: Key + ?Sized, V: Value + ?Sized, M: Medium> Window<'a, K, V, M> {
    pub(super) fn new(core: &'a Core<K, V, M>) -> Self {
        Self { core, held: Vec::with_capacity(2 * WINDOW + 4), staged: Vec::with_capacity(WINDOW) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Takes a bucket's lock if that needs no waiting, or is the first; gives its place in `held`.
    #[inline]
    fn hold(&mut self, bucket: &'a Bucket) -> Option<usize> {
        let pm = &self.core.pm;
        let guard = if self.held.is_empty() {
            bucket.lock(pm)
        } else {
            match bucket.try_lock(pm) {
                Some(guard) => guard,
                // Ours already, or another thread's.
                None => {
                    return self.held.iter().rposition(|held| std::ptr::eq(held.bucket, bucket));
                }
            }
        };
        self.held.push(Held { bucket, guard, pending: 0, added: 0, removed: 0 });
        Some(self.held.len() - 1)
    }

    /// Decides what the operation will do and prepares it.
    pub(super) fn stage(
        &mut self,
        (located, segment): (Located, Segment<'a>),
        current: impl FnOnce() -> Result<bool>,
        probe: &Probe<'_>,
        write: Write,
    ) -> Result<Attempt> {
        let (home, probing) = self.core.pair(segment, probe.hash);
        let before = self.held.len();
        let Some(at_home) = self.hold(home) else { return Ok(Attempt::Refused) };
        let was_held = at_home < before;
        let Some(at_probing) = self.hold(probing) else { return Ok(Attempt::Refused) };
        let pair = [at_home, at_probing];
        if !current()? || (was_held && self.staged.iter().any(|staged| staged.hash == probe.hash)) {
            return Ok(Attempt::Refused);
        }
        let plan = match (self.core.find_locked(segment, probe)?, write) {
            (Some(found), Write::Put(mode, record)) => {
                Some(self.stage_present(&found, pair, mode, record))
            }
            (Some(found), Write::Remove) => self.stage_remove(&found, pair),
            (None, Write::Remove | Write::Put(Mode::Update, _)) => {
                Some(Plan::Answer(Wrote::Absent))
            }
            (None, Write::Put(_, record)) => self.stage_insert(segment, pair, record),
        };
        let Some(plan) = plan else { return Ok(Attempt::Refused) };
        self.staged.push(Staged { hash: probe.hash, pair, generation: located.generation, plan });
        Ok(Attempt::Staged)
    }

    /// The place whose version readers of a found record go by: its own bucket, or the home bucket of a stashed one.
    fn versioned(&self, found: &Found<'_>, pair: [usize; 2]) -> usize {
        pair[usize::from(std::ptr::eq(found.bucket, self.held[pair[1]].bucket))]
    }

    fn stage_present(
        &self,
        found: &Found<'_>,
        pair: [usize; 2],
        mode: Mode,
        record: Unlinked,
    ) -> Plan {
        let (_, before) = found.bucket.record(&self.core.pm, found.slot);
        if mode == Mode::TryInsert {
            return Plan::Answer(Wrote::Occupied(before));
        }
        let value = Address(found.bucket, found.slot);
        Plan::Replace { place: self.versioned(found, pair), value, before, word: record.value }
    }

    fn stage_remove(&mut self, found: &Found<'a>, pair: [usize; 2]) -> Option<Plan> {
        let place = match found.site {
            Site::Normal => self.versioned(found, pair),
            Site::Stash(_) | Site::Chain => self.hold(found.bucket)?,
        };
        let before = found.bucket.record(&self.core.pm, found.slot);
        Some(Plan::Remove { place, slot: found.slot, site: found.site, before })
    }

    /// Writes a record into a free slot of one of the two buckets, or of the stash.
    fn stage_insert(
        &mut self,
        segment: Segment<'a>,
        pair: [usize; 2],
        record: Unlinked,
    ) -> Option<Plan> {
        let mask = self.core.geometry.slot_mask();
        if let Some((which, slot)) = choose(pair.map(|place| self.taken(place)), mask) {
            return Some(self.fill(pair[which], slot, record, which == 1, Site::Normal));
        }
        for (number, bucket) in self.core.stash(segment).iter().enumerate() {
            // A look without the lock: a full bucket is passed by.
            if Bucket::free_slot(bucket.meta(&self.core.pm).allocated(), mask).is_none() {
                continue;
            }
            let place = self.hold(bucket)?;
            if let Some(slot) = Bucket::free_slot(self.taken(place), mask) {
                self.core.counts.stash_inserts.add(1);
                return Some(self.fill(place, slot, record, false, Site::Stash(number)));
            }
        }
        None
    }

    fn taken(&self, place: usize) -> u32 {
        let held = &self.held[place];
        held.bucket.meta(&self.core.pm).allocated() | held.pending
    }

    fn fill(
        &mut self,
        place: usize,
        slot: usize,
        record: Unlinked,
        member: bool,
        site: Site,
    ) -> Plan {
        let held = &mut self.held[place];
        held.pending |= 1 << slot;
        // Flushed in `commit`: the next operation's lock would wait for the write-back.
        held.bucket.store_record(&self.core.pm, slot, record.key, record.value);
        Plan::Insert { place, slot, member, site }
    }

    /// Makes all that was staged durable and visible. Two fences; one when no record is new; none when nothing changes.
    pub(super) fn commit(&mut self, pin: &Pin<'_>) {
        let pm = &self.core.pm;
        let inserts = self.staged.iter().any(|staged| matches!(staged.plan, Plan::Insert { .. }));
        if inserts || self.staged.iter().any(|staged| !matches!(staged.plan, Plan::Answer(_))) {
            for staged in &self.staged {
                if let Plan::Insert { place, slot, .. } = staged.plan {
                    pm.flush_object(&self.held[place].bucket.slots[slot]);
                }
            }
            if inserts || self.core.records.blobs().is_some() {
                // P1, P18 for the whole window: records and blobs are durable before any word says that they exist.
                pm.fence();
            }
            let staged = std::mem::take(&mut self.staged);
            staged.iter().for_each(|staged| self.change_words(staged));
            for held in self.held.iter().filter(|held| held.added | held.removed != 0) {
                held.bucket
                    .publish(pm, Meta(held.bucket.meta(pm).without(held.removed).0 | held.added));
            }
            // P2 for the whole window, commit point.
            pm.fence();
            staged.iter().for_each(|staged| self.after_commit(staged, pin));
            self.staged = staged;
        }
        self.staged.clear();
        self.held.clear();
    }

    /// Stores what one operation changes, short of the metadata words.
    fn change_words(&mut self, staged: &Staged) {
        let pm = &self.core.pm;
        match staged.plan {
            Plan::Answer(_) => {}
            Plan::Insert { place, slot, member, .. } => {
                let held = &mut self.held[place];
                held.guard.begin_change();
                held.bucket.set_fingerprint(pm, slot, staged.hash);
                held.added |= Meta(0).with(slot, member).0;
            }
            Plan::Replace { place, value: Address(bucket, slot), word, .. } => {
                self.held[place].guard.begin_change();
                // SAFETY: the address of a bucket of this table's mapping, found in this window; mappings outlive the table.
                let cell = unsafe { &*bucket }.value(slot);
                // Release (E3): the blob behind a reference was written before.
                cell.store(pm, word, Release);
                pm.flush_object(cell);
            }
            Plan::Remove { place, slot, site, .. } => {
                self.held[place].guard.begin_change();
                self.held[place].removed |= 1 << slot;
                if site != Site::Normal {
                    staged.pair.iter().for_each(|&place| self.held[place].guard.begin_change());
                }
            }
        }
    }

    /// What follows once everything is durable: overflow metadata, and blobs that nothing refers to any more.
    fn after_commit(&self, staged: &Staged, pin: &Pin<'_>) {
        let (pm, records) = (&self.core.pm, &self.core.records);
        let [home, probing] = staged.pair.map(|place| self.held[place].bucket);
        match staged.plan {
            Plan::Insert { site, .. } if site != Site::Normal => {
                staged.pair.iter().for_each(|&place| self.held[place].guard.begin_change());
                stash::note(pm, home, probing, staged.hash, site.stash_bucket());
            }
            Plan::Answer(_) | Plan::Insert { .. } => {}
            Plan::Replace { before, .. } => records.retire_value(pin, before),
            Plan::Remove { site, before: (key, value), .. } => {
                if site != Site::Normal {
                    stash::forget(pm, home, probing, staged.hash, site.stash_bucket());
                }
                records.retire_key(pin, key);
                records.retire_value(pin, value);
            }
        }
    }
}

impl Plan {
    /// The operation's answer once its window is committed.
    pub(super) fn answer(&self) -> Wrote {
        match *self {
            Plan::Answer(wrote) => wrote,
            Plan::Insert { .. } => Wrote::Inserted,
            Plan::Replace { before, .. } | Plan::Remove { before: (_, before), .. } => {
                Wrote::Replaced(before)
            }
        }
    }
}
