//! The 64-bit header of a bin: the states of its 15 slots, the state of the bin, and a version.
//!
//! ```text
//! 63 ........ 32 | 31 30 | 29 28 | ... | 3 2 | 1 0
//!     version      bin     slot 14       slot 1 slot 0
//! ```
//!
//! Each state has two bits. In a slot's state, the lower bit means that the slot holds a record, and the upper bit
//! means that readers must skip the slot. In the bin's state, the upper bit means that the bin is in transfer or has
//! been moved, so the fast path of readers tests one bit.

/// The lower bit of every slot's state.
const HELD: u64 = 0x1555_5555;
/// The states of all slots.
const SLOTS: u64 = (1 << 30) - 1;
/// The states of the slots in the single and in the double link bucket.
pub(super) const SINGLE_STATES: u64 = 0xFF << 6;
pub(super) const DOUBLE_STATES: u64 = 0xFFFF << 14;
const CLAIMED: u64 = 1 << 30;
/// Set in `InTransfer` and `DoneTransfer`.
const TRANSFER: u64 = 1 << 31;
const ONE_VERSION: u64 = 1 << 32;

/// The maximum number of slots of a bin.
pub(super) const SLOTS_PER_BIN: u32 = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// The slot is empty; an insert may take it.
    Invalid = 0b00,
    /// The slot holds a record.
    Valid = 0b01,
    /// An insert has reserved the slot and has not published its record yet. Only the inserting thread accesses the
    /// slot.
    TryInsert = 0b10,
    /// The slot holds the record of a shadow insert that has neither committed nor aborted.
    Shadow = 0b11,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinState {
    /// The bin admits reads and writes.
    NoTransfer,
    /// A thread is replacing a value. Only this thread may change the header.
    Claimed,
    /// The bin is frozen while its records are copied to the next index.
    InTransfer,
    /// All records of the bin have been moved to the next index.
    DoneTransfer,
}

/// A loaded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header(pub(super) u64);

impl Header {
    #[inline(always)]
    pub(super) fn state(self) -> BinState {
        match self.0 & (TRANSFER | CLAIMED) {
            0 => BinState::NoTransfer,
            CLAIMED => BinState::Claimed,
            TRANSFER => BinState::InTransfer,
            _ => BinState::DoneTransfer,
        }
    }

    /// Returns a mask of the `Valid` and `Shadow` slots: the lower bit of the state of each.
    #[inline(always)]
    pub(super) fn held(self) -> u64 {
        self.0 & HELD
    }

    /// Returns a mask of the `Valid` slots: the lower bit of the state of each.
    #[inline(always)]
    pub(super) fn valid(self) -> u64 {
        self.0 & !(self.0 >> 1) & HELD
    }

    #[inline(always)]
    pub(super) fn slot(self, slot: u32) -> SlotState {
        match self.0 >> (2 * slot) & 0b11 {
            0b00 => SlotState::Invalid,
            0b01 => SlotState::Valid,
            0b10 => SlotState::TryInsert,
            _ => SlotState::Shadow,
        }
    }

    /// Returns whether a slot of a link bucket is not `Invalid`.
    #[inline(always)]
    pub(super) fn has_links(self) -> bool {
        self.has_taken(SINGLE_STATES | DOUBLE_STATES)
    }

    /// Returns whether a slot is not `Invalid`, of those whose states are in a mask.
    #[inline(always)]
    pub(super) fn has_taken(self, states: u64) -> bool {
        self.0 & states != 0
    }

    /// Returns the last slot that is `Valid` or `Shadow`.
    pub(super) fn last_held(self) -> Option<u32> {
        self.held().checked_ilog2().map(|bit| bit / 2)
    }

    /// Returns the same header in a claimed bin.
    pub(super) fn in_claim(self) -> Self {
        Self(self.0 | CLAIMED)
    }

    /// The number of slots that are not `Invalid`.
    pub(super) fn taken(self) -> u32 {
        ((self.0 | self.0 >> 1) & HELD).count_ones()
    }

    /// Returns whether the bin is `NoTransfer` and was written to.
    #[inline(always)]
    pub(super) fn is_plain(self) -> bool {
        self.0 & (TRANSFER | CLAIMED) == 0 && !self.is_unwritten()
    }

    /// Returns whether the bin was never written to. (Or so often that its version is 0 again.)
    #[inline(always)]
    pub(super) fn is_unwritten(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub(super) fn first_free(self) -> Option<u32> {
        let free = !(self.0 | self.0 >> 1) & HELD;
        (free != 0).then(|| free.trailing_zeros() / 2)
    }

    /// Returns the header with `slot` in `state`, and the next version.
    #[inline(always)]
    pub(super) fn with(self, slot: u32, state: SlotState) -> Self {
        let cleared = self.0 & !(0b11 << (2 * slot));
        Self((cleared | (state as u64) << (2 * slot)).wrapping_add(ONE_VERSION))
    }

    /// Returns the header after the change from `NoTransfer` to `Claimed`, with the next version.
    #[inline(always)]
    pub(super) fn claimed(self) -> Self {
        Self((self.0 | CLAIMED).wrapping_add(ONE_VERSION))
    }

    /// Returns the header after the change from `Claimed` to `NoTransfer`. The version stays, because the claim has
    /// changed it.
    #[inline(always)]
    pub(super) fn released(self) -> Self {
        Self(self.0 & !CLAIMED)
    }

    /// Returns the header after the change from `NoTransfer` to `InTransfer`. The version stays, so that readers in
    /// progress succeed.
    #[inline(always)]
    pub(super) fn in_transfer(self) -> Self {
        Self(self.0 | TRANSFER)
    }

    /// Returns the header after the change from `InTransfer` to `DoneTransfer`.
    #[inline(always)]
    pub(super) fn done(self) -> Self {
        Self(self.0 | TRANSFER | CLAIMED)
    }

    /// Returns the header after the change from `InTransfer` back to `NoTransfer`, with the next version. Used when
    /// memory for the next index runs out.
    #[inline(always)]
    pub(super) fn taken_back(self) -> Self {
        Self((self.0 & !(TRANSFER | CLAIMED)).wrapping_add(ONE_VERSION))
    }

    /// Returns whether data read between `self` and `later` is valid without a further check: the header is unchanged,
    /// except that a claim may have been released, and the bin is not in transfer.
    #[inline(always)]
    pub(super) fn is_quiet_until(self, later: Self) -> bool {
        ((self.0 ^ later.0) & !CLAIMED) | (self.0 & TRANSFER) == 0
    }

    /// Returns whether `later` has the same slots and the bin has not been moved. A transfer may have begun.
    #[inline(always)]
    pub(super) fn holds_until(self, later: Self) -> bool {
        ((self.0 ^ later.0) & !(CLAIMED | TRANSFER)) == 0 && later.state() != BinState::DoneTransfer
    }

    /// The number of `Valid` slots.
    pub(super) fn count(self) -> u32 {
        self.valid().count_ones()
    }

    /// The numbers of the `Valid` and `Shadow` slots.
    pub(super) fn held_slots(self) -> impl Iterator<Item = u32> {
        let held = self.held();
        (0..SLOTS_PER_BIN).filter(move |slot| held >> (2 * slot) & 1 == 1)
    }
}

const _: () = assert!(HELD | HELD << 1 == SLOTS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_disturb_one_another() {
        let states =
            [SlotState::TryInsert, SlotState::Valid, SlotState::Shadow, SlotState::Invalid];
        let mut header = Header(0);
        let mut expected = [SlotState::Invalid; SLOTS_PER_BIN as usize];
        for round in 0..200_u32 {
            let (slot, state) = (round * 7 % SLOTS_PER_BIN, states[round as usize * 5 / 3 % 4]);
            header = header.with(slot, state);
            expected[slot as usize] = state;
            assert_eq!(header.state(), BinState::NoTransfer);
            assert_eq!(header.0 >> 32, u64::from(round) + 1);
            for (slot, state) in (0..).zip(expected) {
                assert_eq!(header.slot(slot), state);
                assert_eq!(header.valid() >> (2 * slot) & 1 == 1, state == SlotState::Valid);
            }
            let free = expected.iter().position(|&state| state == SlotState::Invalid);
            assert_eq!(header.first_free(), free.map(|slot| slot as u32));
        }
    }

    #[test]
    fn readers_accept_claims_and_nothing_else() {
        let quiet = Header(0).with(3, SlotState::Valid);
        let claimed = quiet.claimed();
        assert!(quiet.is_quiet_until(quiet));
        assert!(claimed.is_quiet_until(claimed.released()));
        assert!(!quiet.is_quiet_until(claimed), "a value may have been replaced before");
        assert!(!quiet.is_quiet_until(quiet.with(4, SlotState::TryInsert)));
        assert!(!quiet.is_quiet_until(quiet.in_transfer()));
        assert!(!quiet.in_transfer().is_quiet_until(quiet.in_transfer()));
        assert!(quiet.holds_until(quiet.in_transfer()));
        assert!(!quiet.in_transfer().holds_until(quiet.in_transfer().done()));
        assert!(!quiet.holds_until(quiet.in_transfer().taken_back()));
    }

    #[test]
    fn a_bin_goes_round() {
        let start = Header(u64::MAX << 32).with(0, SlotState::Shadow);
        assert_eq!(start.0 >> 32, 0, "versions wrap without touching anything else");
        assert_eq!(start.claimed().state(), BinState::Claimed);
        assert_eq!(start.claimed().released().state(), BinState::NoTransfer);
        assert_eq!(start.in_transfer().state(), BinState::InTransfer);
        assert_eq!(start.in_transfer().done().state(), BinState::DoneTransfer);
        assert_eq!(start.in_transfer().done().held(), start.held());
        assert_eq!((start.held(), start.valid(), start.count()), (1, 0, 0));
    }
}
