//! One window of a batch: the operations that share two fences (`batch` describes the protocol).

use std::sync::atomic::Ordering::Release;

use super::bucket::Guard;
use super::kinds::Kinds;
use super::layout::{Bucket, Meta};
use super::segment::{Core, Found, Site, Target};
use super::stash;
use crate::Result;
use crate::base::recycled::Recycled;
use crate::engine::LookupKey;
use crate::engine::slots::batch::Write;
use crate::engine::slots::table::{WriteMode, WriteOutcome};
use crate::engine::slots::{EpochGuard, PreparedRecord};
use crate::storage::{Medium, Persist};

/// Maximum number of operations that share fences.
pub(super) const WINDOW: usize = 32;

/// The change that a window makes for one operation. `place` is an index into [`Window::held`].
#[derive(Clone, Copy)]
pub(super) enum Plan {
    /// Changes nothing: the answer is known.
    Answer(WriteOutcome),
    /// Adds a record, which is already written to a free slot.
    Insert { place: u16, slot: u8, site: Site },
    /// Replaces the value word.
    Replace { value: Address, before: u64, word: u64 },
    /// Removes a record.
    Remove { site: Site, before: (u64, u64) },
}

/// The address of a slot. The slot's bucket need not be in [`Window::held`]: the value of a stashed record is replaced
/// under the lock of its home bucket.
#[derive(Clone, Copy)]
pub(super) struct Address(*const Bucket, usize);

pub(super) struct Staged {
    pub(super) plan: Plan,
    pub(super) hash: u64,
    hold: Hold,
}

/// A bucket whose lock the window holds.
struct Held<'a, M: Medium> {
    bucket: &'a Bucket,
    guard: Guard<'a, M>,
    /// Bits that the commit adds to the metadata word. The slots of these bits are already filled.
    added: u32,
    /// Slots whose bits the commit clears in the metadata word.
    removed: u32,
}

pub(super) struct Window<'a, T: Kinds> {
    core: &'a Core<T>,
    held: Recycled<Held<'a, T::Medium>>,
    pub(super) staged: Recycled<Staged>,
    /// The generation of all staged operations; a `clear` ends the window.
    pub(super) generation: u64,
    /// Set if any plan changes the table.
    changes: bool,
    /// Set if any plan is an insert.
    inserts: bool,
    /// Set if any plan needs a step after it is durable. Every plan does, except answers and inserts into a normal
    /// bucket.
    special: bool,
}

/// The places of an operation's two buckets in [`Window::held`].
#[derive(Clone, Copy, Default)]
pub(super) struct Hold {
    home: u16,
    /// The same as `home` if the operation's plan changes nothing but the home bucket.
    probing: u16,
    /// Set if an earlier operation of this window has locked the home bucket; that operation may have the same key.
    again: bool,
}

/// The result of an attempt to stage an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The operation is in the window.
    Staged,
    /// Not possible in this window: another thread or window holds a bucket, or an operation on the same key is staged.
    Later,
    /// The segment of the operation's key has changed.
    Stale,
    /// Not possible in any window: the operation must run alone.
    Alone,
}

impl<'a, T: Kinds> Window<'a, T> {
    pub(super) fn new(core: &'a Core<T>) -> Self {
        Self {
            core,
            held: Recycled::with_capacity(2 * WINDOW + 4),
            staged: Recycled::with_capacity(WINDOW),
            generation: 0,
            changes: false,
            special: false,
            inserts: false,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns whether an operation on a key with this hash is staged.
    #[inline]
    pub(super) fn has_staged(&self, hash: u64) -> bool {
        self.staged.iter().any(|staged| staged.hash == hash)
    }

    /// Locks a bucket and returns its index in `held`. Waits only for the first lock of the window.
    #[inline(always)]
    fn hold(&mut self, bucket: &'a Bucket) -> Option<u16> {
        let (storage, place) = (&self.core.storage, self.held.len());
        let guard = if place == 0 { Some(bucket.lock(storage)) } else { bucket.try_lock(storage) };
        let Some(guard) = guard else { return self.place_of(bucket) };
        self.held.push(Held { bucket, guard, added: 0, removed: 0 });
        Some(place as u16)
    }

    /// Returns the index in `held` of a bucket that this window has already locked, or `None` if another thread holds
    /// it.
    #[cold]
    fn place_of(&self, bucket: &Bucket) -> Option<u16> {
        let place = self.held.iter().rposition(|held| std::ptr::eq(held.bucket, bucket))?;
        Some(place as u16)
    }

    /// Locks a key's home bucket.
    #[inline(always)]
    pub(super) fn hold_home(&mut self, home: &'a Bucket) -> Option<Hold> {
        let before = self.held.len() as u16;
        let home = self.hold(home)?;
        Some(Hold { home, probing: home, again: home < before })
    }

    /// Plans an operation and prepares its change. `current` returns whether the hash still belongs to the segment.
    #[inline(always)]
    pub(super) fn stage(
        &mut self,
        probe: &LookupKey<'_>,
        Target { located, pair }: Target<'a>,
        mut hold: Hold,
        current: impl FnOnce() -> bool,
        write: Write,
    ) -> Result<Attempt> {
        if self.staged.is_empty() {
            self.generation = located.generation;
        }
        if located.generation != self.generation || !current() {
            return Ok(Attempt::Stale);
        }
        if hold.again && self.has_staged(probe.hash) {
            return Ok(Attempt::Later);
        }
        let plan = match (self.core.find_locked_in_steps(located.segment, pair, probe)?, write) {
            (None, Write::Put(WriteMode::Upsert, record))
                if self.core.records.lacks_key(&record) =>
            {
                return Ok(Attempt::Alone);
            }
            (None, Write::Put(WriteMode::TryInsert | WriteMode::Upsert, record)) => {
                let taken = self.taken(hold.home);
                if let Some(slot) = self.core.choose_home(taken) {
                    self.fill(hold.home, slot, false, record);
                    Plan::Insert { place: hold.home, slot: slot as u8, site: Site::Normal }
                } else {
                    let Some(probing) = self.hold(pair[1]) else { return Ok(Attempt::Later) };
                    hold.probing = probing;
                    if let Some((which, slot)) = self.core.choose([taken, self.taken(probing)]) {
                        if which == 1 {
                            pair[0].note_spill(&self.core.storage);
                        }
                        let place = [hold.home, probing][which];
                        self.fill(place, slot, which == 1, record);
                        Plan::Insert { place, slot: slot as u8, site: Site::Normal }
                    } else {
                        match self.stage_stashed(located.segment, record)? {
                            Ok(plan) => plan,
                            Err(otherwise) => return Ok(otherwise),
                        }
                    }
                }
            }
            (None, Write::Remove | Write::Put(WriteMode::Update, _)) => {
                Plan::Answer(WriteOutcome::Absent)
            }
            (Some(found), write) => match self.stage_present(&found, pair, &mut hold, write) {
                Some(plan) => plan,
                None => return Ok(Attempt::Later),
            },
        };
        self.staged.push(Staged { plan, hash: probe.hash, hold });
        Ok(Attempt::Staged)
    }

    /// Returns the plan of an operation whose key is present.
    fn stage_present(
        &mut self,
        found: &Found<'a>,
        [home, probing]: [&'a Bucket; 2],
        hold: &mut Hold,
        write: Write,
    ) -> Option<Plan> {
        let (key, value) = found.bucket.record(&self.core.storage, found.slot);
        let plan = match (write, found.site) {
            (Write::Put(WriteMode::TryInsert, _), _) => {
                return Some(Plan::Answer(WriteOutcome::Occupied(value)));
            }
            (Write::Put(_, record), _) => {
                let address = Address(found.bucket, found.slot);
                Plan::Replace { value: address, before: value, word: record.value }
            }
            (Write::Remove, site) => {
                let place = if std::ptr::eq(found.bucket, home) {
                    hold.home
                } else {
                    hold.probing = self.hold(probing)?;
                    if site == Site::Normal { hold.probing } else { self.hold(found.bucket)? }
                };
                self.held[usize::from(place)].removed |= 1 << found.slot;
                Plan::Remove { site, before: (key, value) }
            }
        };
        (self.changes, self.special) = (true, true);
        Some(plan)
    }

    /// Writes a record into a free slot of the stash.
    #[cold]
    fn stage_stashed(
        &mut self,
        segment: u32,
        record: PreparedRecord,
    ) -> Result<std::result::Result<Plan, Attempt>> {
        let (core, mask) = (self.core, self.core.geometry.slot_mask());
        for (number, bucket) in core.stash(core.segment(segment)?).iter().enumerate() {
            if bucket.looks_full(&core.storage, mask) {
                continue;
            }
            let Some(place) = self.hold(bucket) else { return Ok(Err(Attempt::Later)) };
            if let Some(slot) = Bucket::free_slot(self.taken(place), mask) {
                core.counts.stash_inserts.add(1);
                self.fill(place, slot, false, record);
                self.special = true;
                let site = Site::Stash(number);
                return Ok(Ok(Plan::Insert { place, slot: slot as u8, site }));
            }
        }
        Ok(Err(Attempt::Alone))
    }

    #[inline]
    fn taken(&self, place: u16) -> u32 {
        let held = &self.held[usize::from(place)];
        held.bucket.meta(&self.core.storage).allocated() | Meta(held.added).allocated()
    }

    /// Fills a free slot. Readers do not see it before [`Window::commit`].
    #[inline]
    fn fill(&mut self, place: u16, slot: usize, member: bool, record: PreparedRecord) {
        let (storage, held) = (&self.core.storage, &mut self.held[usize::from(place)]);
        held.added |= Meta(0).with(slot, member).0;
        // `commit` flushes the slot, if it must: after a flush here, the next operation's lock would wait for the write-back.
        held.bucket.store_record(storage, slot, record.key, record.value);
        (self.changes, self.inserts) = (true, true);
    }

    /// Makes all staged operations durable and visible, and releases the locks. Costs two fences; one if the table has
    /// no blobs and each new record, if any, lies beside its metadata word; none if nothing changes. The answers of the
    /// staged operations are valid afterwards.
    pub(super) fn commit(&mut self, pin: &EpochGuard<'_>) {
        if self.changes {
            let storage = &self.core.storage;
            if self.inserts || self.core.records.blobs().is_some() {
                let flushed =
                    self.held.iter().fold(false, |any, held| held.flush_records(storage) | any);
                if flushed || self.core.records.blobs().is_some() {
                    // P1, P18 for the whole window: records and blobs are durable before any word refers to them.
                    storage.fence();
                }
            }
            self.staged.iter().for_each(|staged| self.begin(staged));
            for held in self.held.iter().filter(|held| held.added | held.removed != 0) {
                held.guard.begin_change();
                let meta = held.bucket.meta(storage).without(held.removed);
                held.bucket.publish(storage, Meta(meta.0 | held.added));
            }
            // P2 for the whole window, commit point.
            storage.fence();
            if self.special {
                self.staged.iter().for_each(|staged| self.finish(staged, pin));
            }
            (self.changes, self.special, self.inserts) = (false, false, false);
        }
        self.held.clear();
    }

    /// Sets the changing bits of an operation and stores its fingerprint or value word, before the metadata words
    /// change.
    fn begin(&self, staged: &Staged) {
        let storage = &self.core.storage;
        match staged.plan {
            Plan::Insert { place, slot, site } => {
                // Scans do not check the versions of stash buckets.
                if site != Site::Normal {
                    self.begin_pair(staged);
                }
                let held = &self.held[usize::from(place)];
                held.guard.begin_change();
                held.bucket.set_fingerprint(storage, usize::from(slot), staged.hash);
            }
            Plan::Replace { value: Address(bucket, slot), word, .. } => {
                // Wherever the record is, its readers validate the version of its home bucket.
                self.held[usize::from(staged.hold.home)].guard.begin_change();
                // SAFETY: `bucket` is the address of a bucket in this table's mappings, found in this window. The
                // mappings outlive the window.
                let cell = unsafe { &*bucket }.value(slot);
                // Release (E3): the blob behind a reference was written before.
                cell.store(storage, word, Release);
                storage.flush_object(cell);
            }
            Plan::Remove { site: Site::Stash(_) | Site::Chain, .. } => self.begin_pair(staged),
            Plan::Answer(_) | Plan::Remove { .. } => {}
        }
    }

    /// Sets the changing bits of the home and probing bucket, whose versions scans and readers of stashed records
    /// validate.
    fn begin_pair(&self, staged: &Staged) {
        for place in [staged.hold.home, staged.hold.probing] {
            self.held[usize::from(place)].guard.begin_change();
        }
    }

    /// Completes an operation after the second fence: updates the overflow metadata and retires unreferenced blobs.
    fn finish(&self, staged: &Staged, pin: &EpochGuard<'_>) {
        let (storage, records) = (&self.core.storage, &self.core.records);
        let Hold { home, probing, .. } = staged.hold;
        let [home, probing] = [home, probing].map(|place| self.held[usize::from(place)].bucket);
        match staged.plan {
            Plan::Insert { site, .. } if site != Site::Normal => {
                stash::note(storage, [home, probing], staged.hash, site.stash_bucket());
            }
            Plan::Answer(_) | Plan::Insert { .. } => {}
            Plan::Replace { before, .. } => records.retire_value(pin, before),
            Plan::Remove { site, before: (key, value) } => {
                if site != Site::Normal {
                    stash::forget(storage, [home, probing], staged.hash, site.stash_bucket());
                } else if staged.hold.probing != staged.hold.home {
                    home.forget_spill(storage, probing);
                }
                records.retire_key(pin, key);
                records.retire_value(pin, value);
            }
        }
    }
}

impl<M: Medium> Held<'_, M> {
    /// Flushes the new records, except those that are durable with the metadata word. Returns whether there were any.
    #[inline]
    fn flush_records(&self, storage: &M) -> bool {
        let new = Meta(self.added).allocated() & !Bucket::slots_beside_meta();
        let mut filled = new;
        while filled != 0 {
            let slot = filled.trailing_zeros() as usize;
            storage.flush_object(&self.bucket.slots[slot]);
            filled &= !Bucket::line_of(slot);
        }
        new != 0
    }
}

impl Plan {
    /// Returns the operation's answer, valid once its window is committed.
    pub(super) fn answer(&self) -> WriteOutcome {
        match *self {
            Plan::Answer(wrote) => wrote,
            Plan::Insert { .. } => WriteOutcome::Inserted,
            Plan::Replace { before, .. } | Plan::Remove { before: (_, before), .. } => {
                WriteOutcome::Replaced(before)
            }
        }
    }

    /// Returns the change in the number of records.
    #[inline]
    pub(super) fn growth(&self) -> i64 {
        match self {
            Plan::Insert { .. } => 1,
            Plan::Remove { .. } => -1,
            Plan::Answer(_) | Plan::Replace { .. } => 0,
        }
    }
}
