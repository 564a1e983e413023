//! Inserts, updates and removals on one index (§3.2.2 to §3.2.4), as changes of a bin's header.

use super::get::{Hit, Step};
use super::header::{BinState, DOUBLE_STATES, Header, SINGLE_STATES, SlotState};
use super::index::Index;
use super::layout::{HEADER, LINK_SLOTS, bucket_of};
use super::mode::Threading;
use crate::base::sync::{Line, Ordering};

/// The condition of a write, and its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Insert if the key is absent.
    IfAbsent,
    /// Insert or replace.
    Always,
    /// Replace if the key is present.
    IfPresent,
    /// Replace if the key has this value.
    IfEquals(u64),
}

impl Rule {
    #[inline(always)]
    fn inserts(self) -> bool {
        matches!(self, Self::IfAbsent | Self::Always)
    }

    #[inline(always)]
    fn replaces(self, value: u64) -> bool {
        match self {
            Self::IfAbsent => false,
            Self::Always | Self::IfPresent => true,
            Self::IfEquals(wanted) => value == wanted,
        }
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The key was absent and has been inserted.
    Inserted,
    /// The key had this value, which was replaced or removed.
    Replaced(u64),
    /// Nothing changed; the key has this value or, if `None`, is absent.
    Kept(Option<u64>),
    /// Nothing changed; a shadow insert holds the key.
    Shadowed,
}

/// The result of publishing an insert.
enum Published {
    Yes,
    /// Another thread has inserted the key meanwhile. The slot is free again.
    Forestalled,
    /// The records of the bin have moved to the next index; reserved slots are not copied.
    Moved,
}

impl Index {
    /// Writes `value` for `key` if `rule` allows it. An insert leaves its slot in state `new`.
    #[inline(always)]
    pub(super) fn store<M: Threading>(
        &self,
        line: &Line,
        key: u64,
        value: u64,
        rule: Rule,
        new: SlotState,
    ) -> Step<Outcome> {
        let header = Self::header(line);
        if header.is_plain() && header.held() & LINK_SLOTS == 0 {
            M::pause();
            let hit = Self::find_primary(line, header.held(), key);
            let tried = self.try_store::<M>(line, header, hit, (key, value), rule, new);
            if let Some(outcome @ Step::Done(_)) = tried {
                return outcome;
            }
        }
        self.store_slowly::<M>(line, key, value, rule, new)
    }

    /// Like [`Index::store`], for link buckets and for bins that change meanwhile.
    #[inline(never)]
    fn store_slowly<M: Threading>(
        &self,
        line: &Line,
        key: u64,
        value: u64,
        rule: Rule,
        new: SlotState,
    ) -> Step<Outcome> {
        loop {
            let Some(header) = self.settled::<M>(line) else { return Step::Moved };
            M::pause();
            let hit = self.find(line, header.held(), key);
            let tried = self.try_store::<M>(line, header, hit, (key, value), rule, new);
            if let Some(step) = tried {
                return step;
            }
        }
    }

    /// Tries a write. `hit` is the slot of the key as of `header`. Returns `None` if the caller must search again.
    #[inline(always)]
    pub(super) fn try_store<M: Threading>(
        &self,
        line: &Line,
        header: Header,
        hit: Option<Hit<'_>>,
        (key, value): (u64, u64),
        rule: Rule,
        new: SlotState,
    ) -> Option<Step<Outcome>> {
        if let Some(hit) = hit {
            return Self::store_over::<M>(line, header, hit, value, rule).map(Step::Done);
        }
        if !rule.inserts() {
            return Self::still(line, header).then_some(Step::Done(Outcome::Kept(None)));
        }
        if header.is_unwritten() && !self.touch::<M>(line) {
            return Some(Step::Moved);
        }
        let place =
            header.first_free().and_then(|slot| Some((slot, self.pool.place::<M>(line, slot)?)));
        let Some((slot, place)) = place else { return Some(Step::Full) };
        let reserved = header.with(slot, SlotState::TryInsert);
        if !Self::change::<M>(line, header, reserved) {
            return None;
        }
        // Both stores are Release (E2): a reader of the slot's former record that loads the new key or value also sees
        // the header change above.
        place.key().store(key, Ordering::Release);
        M::pause();
        place.value().store(value, Ordering::Release);
        if Self::change::<M>(line, reserved, reserved.with(slot, new)) {
            return Some(Step::Done(Outcome::Inserted));
        }
        match self.publish_slowly::<M>(line, slot, key, new) {
            Published::Yes => Some(Step::Done(Outcome::Inserted)),
            Published::Forestalled => None,
            Published::Moved => Some(Step::Moved),
        }
    }

    /// Tries a write of a key that was found. Returns `None` if the caller must search again.
    #[inline(always)]
    fn store_over<M: Threading>(
        line: &Line,
        header: Header,
        hit: Hit<'_>,
        value: u64,
        rule: Rule,
    ) -> Option<Outcome> {
        // Relaxed: exact if the claim succeeds or `still` holds, because then the header has not changed.
        let present = hit.place.value().load(Ordering::Relaxed);
        M::pause();
        let shadow = header.slot(hit.slot) == SlotState::Shadow;
        if shadow || !rule.replaces(present) {
            let outcome = match (shadow, rule.inserts()) {
                (true, true) => Outcome::Shadowed,
                (true, false) => Outcome::Kept(None),
                (false, _) => Outcome::Kept(Some(present)),
            };
            return Self::still(line, header).then_some(outcome);
        }
        let claimed = header.claimed();
        if !Self::change::<M>(line, header, claimed) {
            return None;
        }
        M::pause();
        // Release (E2): a reader of the value sees the claim. This is the linearization point of the update.
        hit.place.value().store(value, Ordering::Release);
        M::pause();
        // Release (E1). A plain store: no other thread changes the header of a claimed bin.
        line.0[HEADER].store(claimed.released().0, Ordering::Release);
        Some(Outcome::Replaced(present))
    }

    /// Gives state `new` to the slot that this thread has reserved, after another thread has changed the header. If the
    /// bin now contains the key, frees the slot instead.
    #[inline(never)]
    fn publish_slowly<M: Threading>(
        &self,
        line: &Line,
        slot: u32,
        key: u64,
        new: SlotState,
    ) -> Published {
        loop {
            let Some(header) = self.settled::<M>(line) else { return Published::Moved };
            let (changed, published) = match self.find(line, header.held(), key) {
                None => (Self::change::<M>(line, header, header.with(slot, new)), Published::Yes),
                Some(_) => (self.free::<M>(line, header, slot), Published::Forestalled),
            };
            if changed {
                return published;
            }
        }
    }

    /// Removes `key` if its value is `expected` or if `expected` is `None`. Returns the value found.
    #[inline(always)]
    pub(super) fn take<M: Threading>(
        &self,
        line: &Line,
        key: u64,
        expected: Option<u64>,
    ) -> Step<Outcome> {
        let header = Self::header(line);
        if header.is_plain() && header.valid() & LINK_SLOTS == 0 {
            let hit = Self::find_primary(line, header.valid(), key);
            if let Some(outcome) = self.try_take::<M>(line, header, hit, expected) {
                return Step::Done(outcome);
            }
        }
        self.take_slowly::<M>(line, key, expected)
    }

    /// Like [`Index::take`], for link buckets and for bins that change meanwhile.
    #[inline(never)]
    fn take_slowly<M: Threading>(
        &self,
        line: &Line,
        key: u64,
        expected: Option<u64>,
    ) -> Step<Outcome> {
        loop {
            let Some(header) = self.settled::<M>(line) else { return Step::Moved };
            let hit = self.find(line, header.valid(), key);
            if let Some(outcome) = self.try_take::<M>(line, header, hit, expected) {
                return Step::Done(outcome);
            }
        }
    }

    /// Tries a removal. `hit` is the slot of the key as of `header`. Returns `None` if the caller must search again.
    #[inline(always)]
    pub(super) fn try_take<M: Threading>(
        &self,
        line: &Line,
        header: Header,
        hit: Option<Hit<'_>>,
        expected: Option<u64>,
    ) -> Option<Outcome> {
        let Some(hit) = hit else {
            return Self::still(line, header).then_some(Outcome::Kept(None));
        };
        // Relaxed: exact if the exchange succeeds, because a claim would have changed the header.
        let present = hit.place.value().load(Ordering::Relaxed);
        if expected.is_some_and(|expected| expected != present) {
            return Self::still(line, header).then_some(Outcome::Kept(Some(present)));
        }
        self.free::<M>(line, header, hit.slot).then_some(Outcome::Replaced(present))
    }

    /// Makes `slot` free if the header of its bin is still `header`; returns whether it was.
    #[inline(always)]
    pub(super) fn free<M: Threading>(&self, line: &Line, header: Header, slot: u32) -> bool {
        if header.has_links() {
            self.free_and_pack::<M>(line, header, slot)
        } else {
            Self::change::<M>(line, header, header.with(slot, SlotState::Invalid))
        }
    }

    /// Like [`Index::free`], for a bin with records in link buckets. Moves the record of the last slot to the free one
    /// if that lies in an earlier bucket, and returns buckets without records. So a bin has no more link buckets than
    /// its records need, however often they change, and most records stay in primary buckets. (A reserved slot is not
    /// moved, so for a moment the bin may have more.)
    #[inline(never)]
    fn free_and_pack<M: Threading>(&self, line: &Line, header: Header, slot: u32) -> bool {
        let freed = header.with(slot, SlotState::Invalid);
        let moving = freed.last_held().filter(|&last| bucket_of(last) > bucket_of(slot));
        let packed = match moving {
            Some(last) => freed.with(slot, freed.slot(last)).with(last, SlotState::Invalid),
            None => freed,
        };
        let empty = [SINGLE_STATES, DOUBLE_STATES]
            .map(|states| header.has_taken(states) && !packed.has_taken(states));
        if moving.is_none() && empty == [false; 2] {
            return Self::change::<M>(line, header, freed);
        }
        // The bin is claimed by the exchange that removes the record.
        if !Self::change::<M>(line, header, freed.in_claim()) {
            return false;
        }
        M::pause();
        if let Some(last) = moving {
            let (from, to) = (self.pool.used_place(line, last), self.pool.used_place(line, slot));
            // Relaxed: the bin is claimed.
            let (key, value) =
                (from.key().load(Ordering::Relaxed), from.value().load(Ordering::Relaxed));
            // Release (E2), both: as in `Index::try_store`.
            to.key().store(key, Ordering::Release);
            to.value().store(value, Ordering::Release);
            M::pause();
            // Release (E1), before the link changes: a reader that searches the bin by the former header, and finds the
            // link without the bucket, also finds that the header has changed.
            line.0[HEADER].store(packed.in_claim().0, Ordering::Release);
            M::pause();
        }
        // An insert that has loaded the link before has also loaded the header before, so it cannot reserve a slot in
        // the bucket any more.
        let numbers = [false, true].map(|double| {
            if empty[usize::from(double)] { self.pool.unchain::<M>(line, double) } else { 0 }
        });
        M::pause();
        // Release (E1): a thread that sees this header sees the link without the buckets.
        line.0[HEADER].store(packed.0, Ordering::Release);
        for (number, double) in numbers.into_iter().zip([false, true]) {
            if number != 0 {
                self.pool.give_back::<M>(number, double);
            }
        }
        true
    }

    /// Changes the slot of `key` from `Shadow` to `new`. Returns whether there was such a slot.
    pub(super) fn resolve<M: Threading>(
        &self,
        line: &Line,
        key: u64,
        new: SlotState,
    ) -> Step<bool> {
        loop {
            let Some(header) = self.settled::<M>(line) else { return Step::Moved };
            let Some(hit) = self.find(line, header.held() & !header.valid(), key) else {
                if Self::still(line, header) {
                    return Step::Done(false);
                }
                continue;
            };
            let changed = match new {
                SlotState::Invalid => self.free::<M>(line, header, hit.slot),
                _ => Self::change::<M>(line, header, header.with(hit.slot, new)),
            };
            if changed {
                return Step::Done(true);
            }
        }
    }

    /// Returns the header of a bin that can be written to, or `None` if the records have moved to the next index. Waits
    /// while an update has claimed the bin (three instructions), and while a thread moves this bin.
    #[inline(always)]
    pub(super) fn settled<M: Threading>(&self, line: &Line) -> Option<Header> {
        let header = Self::header(line);
        if header.is_plain() { Some(header) } else { self.wait_until_settled::<M>(line) }
    }

    #[inline(never)]
    fn wait_until_settled<M: Threading>(&self, line: &Line) -> Option<Header> {
        for rounds in 0.. {
            let header = Self::header(line);
            if self.has_left(line, header) {
                break;
            }
            if header.state() == BinState::NoTransfer {
                return Some(header);
            }
            M::wait(rounds);
        }
        None
    }

    /// Changes the header of a bin from `old` to `new` if it is still `old`. AcqRel (E1).
    #[inline(always)]
    pub(super) fn change<M: Threading>(line: &Line, old: Header, new: Header) -> bool {
        M::exchange(&line.0[HEADER], old.0, new.0)
    }
}
