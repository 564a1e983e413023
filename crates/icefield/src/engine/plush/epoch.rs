//! Log epochs (§4.2): the number of migrations of a root entry, with those that failed. A log record belongs to the
//! epoch in which it was written. An entry of level 1 stores the last epoch whose records have arrived there.
//!
//! The counter wraps around, so epochs are compared within half of its range. An entry of level 1 that receives no
//! records for a long time still stores the current epoch once per [round](LogEpoch::is_round), so that it never
//! falls too far behind. A few rounds whose migration fails do not matter. Log records cannot fall that far behind,
//! because they are overwritten long before.

/// The number of bits of an epoch: as many as remain free in the last word of a log record with the widest keys and
/// values.
const BITS: u32 = 46;
const MASK: u64 = (1 << BITS) - 1;
/// Every entry of level 1 stores each epoch that is a multiple of this.
const ROUND: u64 = 1 << 20;

/// An epoch of a root entry, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEpoch(u64);

impl LogEpoch {
    /// Precedes every epoch: the epoch of records that are not needed, and of entries in which no record has arrived.
    pub(super) const NONE: Self = Self(0);
    /// The first epoch of an entry.
    pub(super) const FIRST: Self = Self(1);

    #[inline]
    pub(crate) fn of_bits(bits: u64) -> Self {
        Self(bits & MASK)
    }

    /// At most 46 bits.
    #[inline]
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(super) fn next(self) -> Self {
        Self(((self.0 + 1) & MASK).max(Self::FIRST.0))
    }

    #[inline]
    pub(super) fn previous(self) -> Self {
        if self.0 <= Self::FIRST.0 { Self(MASK) } else { Self(self.0 - 1) }
    }

    /// Returns whether this epoch is later than `other`. Every epoch is later than `NONE`.
    #[inline]
    pub(super) fn is_after(self, other: Self) -> bool {
        let ahead = self.0.wrapping_sub(other.0) & MASK;
        self != Self::NONE && (other == Self::NONE || (1..=MASK / 2).contains(&ahead))
    }

    #[inline]
    pub(super) fn or_later(self, other: Self) -> Self {
        if other.is_after(self) { other } else { self }
    }

    /// Returns whether every entry of level 1 stores this epoch.
    #[inline]
    pub(super) fn is_round(self) -> bool {
        self.0.is_multiple_of(ROUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_follow_one_another_around_the_wrap() {
        let last = LogEpoch::of_bits(u64::MAX);
        assert_eq!((last.next(), LogEpoch::NONE.next()), (LogEpoch::FIRST, LogEpoch::FIRST));
        let mut epoch = LogEpoch::of_bits(MASK - 3);
        for _ in 0..8 {
            let next = epoch.next();
            assert!(next.is_after(epoch) && !epoch.is_after(next) && !next.is_after(next));
            assert_eq!(next.previous(), epoch);
            assert!(next.is_after(LogEpoch::NONE) && !LogEpoch::NONE.is_after(next));
            assert_eq!((epoch.or_later(next), next.or_later(epoch)), (next, next));
            epoch = next;
        }
        let far = LogEpoch::of_bits(MASK - ROUND);
        assert!(LogEpoch::FIRST.is_after(far) && !far.is_after(LogEpoch::FIRST));
        assert!(LogEpoch::of_bits(ROUND).is_round() && !LogEpoch::of_bits(ROUND + 1).is_round());
    }
}
