//! Overflow metadata: fingerprints and a count of the stashed records, kept in their home and probing buckets (§4.3).
//!
//! It is volatile: never flushed, rebuilt when a segment is first touched in a session. Without it, lookups would
//! miss records, so every change to the stash updates it under the same changing bits.
//!
//! The spill bit of a bucket is in the same word. While the word is 0, a batched write does not search the next bucket for
//! a key of this home. Only holders of the bucket's lock rely on the bit, so it changes without a changing bit.

use std::sync::atomic::Ordering::Relaxed;

use super::layout::{Bucket, OVERFLOW_SLOTS, OverflowWord, fingerprint};
use crate::storage::Medium;

/// The places outside the home and probing bucket where a record may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StashHint {
    /// A bit per stash bucket that holds a record with the fingerprint.
    pub(super) buckets: u32,
    /// Set if some records have no fingerprint here: the whole stash and its chain must be searched.
    pub(super) all: bool,
}

impl StashHint {
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.buckets == 0 && !self.all
    }
}

impl Bucket {
    #[inline]
    fn overflow_word(&self, storage: &impl Medium) -> OverflowWord {
        // Relaxed: the caller holds the lock or validates its version afterwards.
        OverflowWord(self.overflow.load(storage, Relaxed))
    }

    #[inline]
    fn set_overflow_word(&self, storage: &impl Medium, word: OverflowWord) {
        self.overflow.store(storage, word.0, Relaxed);
    }

    /// Returns whether records of this home may be elsewhere: in the next bucket, the stash or the chain. The caller holds
    /// this bucket's lock, or needs a hint only.
    #[inline]
    pub(super) fn overflows(&self, storage: &impl Medium) -> bool {
        self.overflow_word(storage) != OverflowWord::default()
    }

    #[inline]
    pub(super) fn spills(&self, storage: &impl Medium) -> bool {
        self.overflow_word(storage).spills()
    }

    /// Sets the spill bit, because the next bucket gets a record of this home. The caller holds this bucket's lock.
    #[inline]
    pub(super) fn note_spill(&self, storage: &impl Medium) {
        let word = self.overflow_word(storage);
        if !word.spills() {
            self.set_overflow_word(storage, word.spilling(true));
        }
    }

    /// Clears the spill bit if the next bucket, `probing`, has nothing of this home any more. The caller holds the locks
    /// of both.
    #[inline]
    pub(super) fn forget_spill(&self, storage: &impl Medium, probing: &Bucket) {
        if !probing.has_members(storage) {
            self.set_overflow_word(storage, self.overflow_word(storage).spilling(false));
        }
    }

    /// Returns whether this bucket has records of the previous bucket's home, or overflow places of such records.
    pub(super) fn has_members(&self, storage: &impl Medium) -> bool {
        self.meta(storage).members() != 0 || self.overflow_word(storage).members() != 0
    }

    /// Returns the overflow places of this bucket that have the fingerprint of `hash` and describe a record whose home
    /// is this bucket (`member` false) or the previous one (`member` true).
    #[inline]
    fn matching_places(
        &self,
        storage: &impl Medium,
        word: OverflowWord,
        hash: u64,
        member: bool,
    ) -> u32 {
        let mine = if member { word.members() } else { !word.members() };
        let places = word.taken() & mine;
        if places == 0 {
            return 0;
        }
        let fingerprints = self.overflow_fingerprints.load(storage, Relaxed).to_le_bytes();
        (0..OVERFLOW_SLOTS)
            .filter(|&place| places >> place & 1 == 1 && fingerprints[place] == fingerprint(hash))
            .fold(0, |found, place| found | 1 << place)
    }

    fn stash_buckets(word: OverflowWord, places: u32) -> u32 {
        Bucket::slots_of(places).fold(0, |buckets, place| buckets | 1 << word.stash_bucket(place))
    }
}

/// Returns the stash buckets that may hold a key with this hash.
#[inline]
pub(super) fn hint(storage: &impl Medium, [home, probing]: [&Bucket; 2], hash: u64) -> StashHint {
    let (at_home, at_probing) = (home.overflow_word(storage), probing.overflow_word(storage));
    if at_home.spilling(false) == OverflowWord::default() && at_probing.members() == 0 {
        return StashHint { buckets: 0, all: false };
    }
    let buckets =
        Bucket::stash_buckets(at_home, home.matching_places(storage, at_home, hash, false))
            | Bucket::stash_buckets(
                at_probing,
                probing.matching_places(storage, at_probing, hash, true),
            );
    StashHint { buckets, all: at_home.count() > 0 }
}

/// Notes in the overflow metadata that a record of `home` is in stash bucket `stash_bucket`, or in the chain (`None`).
/// The caller holds the locks of both buckets and has set their changing bits.
pub(super) fn note(
    storage: &impl Medium,
    [home, probing]: [&Bucket; 2],
    hash: u64,
    stash_bucket: Option<usize>,
) {
    if let Some(stash_bucket) = stash_bucket {
        for (bucket, member) in [(home, false), (probing, true)] {
            let word = bucket.overflow_word(storage);
            let place = word.taken().trailing_ones() as usize;
            if place < OVERFLOW_SLOTS {
                let mut fingerprints =
                    bucket.overflow_fingerprints.load(storage, Relaxed).to_le_bytes();
                fingerprints[place] = fingerprint(hash);
                bucket.overflow_fingerprints.store(
                    storage,
                    u32::from_le_bytes(fingerprints),
                    Relaxed,
                );
                if member {
                    home.note_spill(storage);
                }
                bucket.set_overflow_word(storage, word.with(place, member, stash_bucket));
                return;
            }
        }
    }
    let word = home.overflow_word(storage);
    home.set_overflow_word(storage, word.counted_up());
}

/// Reverts [`note`] for a record that has left the stash, under the same conditions.
pub(super) fn forget(
    storage: &impl Medium,
    [home, probing]: [&Bucket; 2],
    hash: u64,
    stash_bucket: Option<usize>,
) {
    if let Some(stash_bucket) = stash_bucket {
        for (bucket, member) in [(home, false), (probing, true)] {
            let word = bucket.overflow_word(storage);
            // Any matching place is correct: records of one home with equal fingerprints in one stash bucket are
            // interchangeable.
            let place = Bucket::slots_of(bucket.matching_places(storage, word, hash, member))
                .find(|&place| word.stash_bucket(place) == stash_bucket);
            if let Some(place) = place {
                bucket.set_overflow_word(storage, word.without(place));
                if member {
                    home.forget_spill(storage, probing);
                }
                return;
            }
        }
    }
    let word = home.overflow_word(storage);
    home.set_overflow_word(storage, word.counted_down());
}

/// Resets the overflow metadata of a bucket before a rebuild: to the spill bit, if `spills`, and nothing else.
pub(super) fn reset(storage: &impl Medium, bucket: &Bucket, spills: bool) {
    let word = OverflowWord::default().spilling(spills);
    if bucket.overflow_word(storage) != word {
        bucket.set_overflow_word(storage, word);
    }
}
