//! The changes of a delta store in bucket order, for merging them into the next generation.

use super::delta::{Delta, Effect, Entry};
use super::layout::{BUCKETS, bucket_of, share_of};
use crate::base::hash::Hash;

/// Number of groups of a share.
pub(super) const SHARE_GROUPS: u64 = 1 << 12;
/// Number of places in a share. Each bucket of each group is a place.
const SHARE_PLACES: usize = SHARE_GROUPS as usize * BUCKETS;
/// A share with less than one change per this number of places is sorted by comparisons; any other share by a counting
/// sort over its places.
const SPARSE: usize = 16;

/// An entry of the delta store that is not dead, with its bucket.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    /// The group's number times the number of buckets of a group, plus the bucket.
    pub(super) place: u64,
    pub(super) hash: u64,
    pub(super) key: u64,
    pub(super) payload: u64,
    pub(super) effect: Effect,
}

/// The living entries of a delta store, by share of the groups.
pub(super) struct Shares<'a> {
    delta: &'a Delta,
    hash: &'a Hash,
    groups: u64,
    /// The indexes of the entries of each share.
    shares: Vec<Vec<u32>>,
    /// The number of pairs that the changes add to each share; negative if they remove more.
    growth: Vec<i64>,
}

/// The buffers of a thread that sorts shares.
#[derive(Default)]
pub(super) struct Sorter {
    placed: Vec<Placed>,
    sorted: Vec<Placed>,
    /// The index at which the next change of each place is stored.
    next: Vec<u32>,
}

impl Delta {
    /// Returns the living entries by share of `groups` groups.
    pub(super) fn shares<'a>(&'a self, hash: &'a Hash, groups: u64) -> Shares<'a> {
        let count = groups.div_ceil(SHARE_GROUPS) as usize;
        let room = self.entries.len() / count;
        let mut shares: Vec<_> = (0..count).map(|_| Vec::with_capacity(room + room / 8)).collect();
        let mut growth = vec![0_i64; count];
        for (at, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.is_alive()) {
            let share = (share_of(hash.word(entry.key), groups) / SHARE_GROUPS) as usize;
            growth[share] += match entry.effect() {
                Effect::Add => 1,
                Effect::Hide => -1,
                Effect::HideAll => -(entry.payload as i64),
            };
            shares[share].push(at as u32);
        }
        Shares { delta: self, hash, groups, shares, growth }
    }

    /// Returns the living entries in bucket order.
    pub(super) fn placed(&self, hash: &Hash, groups: u64) -> Vec<Placed> {
        let shares = self.shares(hash, groups);
        let mut sorter = Sorter::default();
        (0..shares.shares.len()).flat_map(|share| sorter.sort(&shares, share).to_vec()).collect()
    }
}

impl Shares<'_> {
    /// Returns the number of pairs that the changes add to each share; negative if they remove more.
    pub(super) fn growth(&self) -> &[i64] {
        &self.growth
    }

    fn placed(&self, entry: u32) -> Placed {
        let entry = self.delta.entries[entry as usize];
        let (Entry { key, payload, .. }, effect) = (entry, entry.effect());
        let hash = self.hash.word(key);
        let place = share_of(hash, self.groups) * BUCKETS as u64 + bucket_of(hash) as u64;
        Placed { place, hash, key, payload, effect }
    }
}

impl Sorter {
    /// Returns the entries of a share in bucket order.
    pub(super) fn sort(&mut self, shares: &Shares<'_>, share: usize) -> &[Placed] {
        let Self { placed, sorted, next } = self;
        placed.clear();
        placed.extend(shares.shares[share].iter().map(|&entry| shares.placed(entry)));
        if placed.len() < SHARE_PLACES / SPARSE {
            placed.sort_unstable_by_key(|placed| placed.place);
            return placed;
        }
        let index = |placed: &Placed| placed.place as usize - share * SHARE_PLACES;
        next.clear();
        next.resize(SHARE_PLACES, 0);
        for placed in &*placed {
            next[index(placed)] += 1;
        }
        let mut before = 0;
        for next in &mut *next {
            before += std::mem::replace(next, before);
        }
        // The copy only provides the length: each element is overwritten by the one that belongs there.
        sorted.clone_from(placed);
        for placed in &*placed {
            let next = &mut next[index(placed)];
            sorted[*next as usize] = *placed;
            *next += 1;
        }
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::HashKind;
    use crate::join::delta::Change;

    #[test]
    fn living_entries_come_in_the_order_of_buckets() {
        let hash = Hash::new(HashKind::Strong, [1, 2]);
        for (groups, keys) in [(1, 0), (3, 10), (SHARE_GROUPS * 2 + 1, 100), (5000, 40_000)] {
            let mut delta = Delta::default();
            for key in 0..keys {
                delta.reserve(&hash, 1).unwrap();
                delta.apply(Change::Insert(key, key + 1), hash.word(key), 0);
            }
            delta.reserve(&hash, 1).unwrap();
            delta.apply(Change::RemovePair(3, 4), hash.word(3), 0);
            let living = if keys == 0 { 1 } else { keys - 1 };
            let placed = delta.placed(&hash, groups);
            assert_eq!((placed.len() as u64, delta.living()), (living, living));
            assert!(placed.is_sorted_by_key(|placed| placed.place));
            assert!(
                placed
                    .iter()
                    .all(|placed| placed.place / BUCKETS as u64 == share_of(placed.hash, groups))
            );
            let growth: i64 = delta.shares(&hash, groups).growth().iter().sum();
            assert_eq!(growth, if keys == 0 { -1 } else { living as i64 });
        }
    }
}
