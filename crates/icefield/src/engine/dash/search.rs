//! Search for a key in its segment (§4.2, §4.3, Algorithm 3): without a lock, or under the lock of its home bucket.

use super::kinds::{Ablation, Kinds};
use super::layout::Bucket;
use super::segment::{Core, Found, Segment, Site, Target};
use super::stash::{self, StashHint};
use super::still::Still;
use crate::Result;
use crate::base::reclaim::PROTECTED;
use crate::base::version_lock::{self, Version};
use crate::engine::LookupKey;
use crate::storage::SimHooks;

/// The result of an optimistic search.
pub(super) enum Search<T> {
    /// The validated result.
    Sure(T),
    /// A writer intervened: start again from the directory.
    Again,
}

/// A search without a lock that has read no records yet.
#[derive(Clone, Copy, Default)]
pub(super) struct Begun {
    /// `None` if the search cannot be completed: a writer was changing a bucket, or the segment was not ready.
    versions: Option<[Version; 2]>,
    /// As [`Core::candidates`] returns them.
    pub(super) candidates: u32,
}

/// Returns the first of the [`Core::candidates`]: the index of its bucket in the pair, and its slot.
#[inline]
pub(super) fn place_of(candidates: u32) -> (usize, usize) {
    let place = candidates.trailing_zeros() as usize;
    (place / 16, place % 16)
}

impl<T: Kinds> Core<T> {
    /// Finds a key without a lock (Algorithm 3). `current` checks whether the hash still belongs to the segment; it is
    /// called after the versions have been read. `take` converts the value word after the versions have been validated.
    #[inline(always)]
    pub(super) fn search<R>(
        &self,
        Target { located, pair }: Target<'_>,
        probe: &LookupKey<'_>,
        current: impl FnOnce() -> bool,
        take: impl FnOnce(u64) -> R,
    ) -> Result<Search<Option<R>>> {
        let storage = &self.storage;
        // Acquire (E1), in `read_begin`: pairs with the Release of the unlocking writer.
        let versions = pair.map(|bucket| version_lock::read_begin(bucket.version_lock(storage)));
        if !current() {
            return Ok(Search::Again);
        }
        let found = match self.find_in_pair(pair, probe) {
            Ok(Some((which, slot))) => Ok(Some(pair[which].value(slot).load(storage, PROTECTED))),
            Ok(None) => match self.stash_hint(pair, probe.hash) {
                hint if hint.is_empty() => Ok(None),
                hint => self.search_stash(located.segment, probe, hint),
            },
            Err(error) => Err(error),
        };
        // Hits, misses and errors alike are valid only if no writer intervened.
        if !self.still_holds(pair, versions) {
            return Ok(Search::Again);
        }
        Ok(Search::Sure(found?.map(take)))
    }

    /// Returns whether no writer has changed the buckets since their versions were read.
    #[inline(always)]
    fn still_holds(&self, pair: [&Bucket; 2], versions: [Version; 2]) -> bool {
        let holds = pair.iter().zip(versions).all(|(bucket, version)| {
            version_lock::validate(bucket.version_lock(&self.storage), version)
        });
        if !holds {
            self.storage.forget_reads();
        }
        holds
    }

    /// Begins a search without a lock, for [`Core::find_begun`].
    #[inline(always)]
    pub(super) fn begin_search(&self, Target { located, pair }: Target<'_>, hash: u64) -> Begun {
        let versions =
            pair.map(|bucket| version_lock::try_read_begin(bucket.version_lock(&self.storage)));
        let versions = match versions {
            // After the versions: if the segment leaves the table later, it has other versions when it is ready again.
            [Some(home), Some(probing)] if self.marks.is_ready(located.segment) => {
                Some([home, probing])
            }
            _ => None,
        };
        Begun { versions, candidates: self.candidates(pair, hash) }
    }

    /// The value word of a key, if a search that has begun finds it in the two buckets, or finds that it is nowhere.
    /// The outer `None` means that a whole search is needed, which may return an error. Since the search began, the
    /// caller has found that the hash still belongs to the segment.
    #[inline(always)]
    pub(super) fn find_begun(
        &self,
        pair: [&Bucket; 2],
        probe: &LookupKey<'_>,
        Begun { versions, candidates }: Begun,
    ) -> Option<Option<u64>> {
        let versions = versions?;
        self.storage.repeat_reads(|| _ = self.candidates(pair, probe.hash));
        let found = match self.find_among(pair, candidates, probe) {
            Ok(Some((which, slot))) => {
                Some(Some(pair[which].value(slot).load(&self.storage, PROTECTED)))
            }
            Ok(None) if self.stash_hint(pair, probe.hash).is_empty() => Some(None),
            _ => None,
        };
        if self.still_holds(pair, versions) { found } else { None }
    }

    /// Returns a mask of the slots of the two buckets that hold a record with the key's fingerprint. The bits of the
    /// probing bucket begin at bit 16.
    #[inline(always)]
    pub(super) fn candidates(&self, pair: [&Bucket; 2], hash: u64) -> u32 {
        let [home, probing] = pair.map(|bucket| move || self.candidates_in(bucket, hash));
        if T::Ablation::PARTS.probing { home() | probing() << 16 } else { home() }
    }

    #[inline(always)]
    pub(super) fn candidates_in(&self, bucket: &Bucket, hash: u64) -> u32 {
        if T::Ablation::PARTS.fingerprints {
            bucket.candidates(&self.storage, hash)
        } else {
            bucket.meta(&self.storage).allocated()
        }
    }

    /// Returns whether a taken slot holds the key.
    #[inline(always)]
    fn holds(&self, bucket: &Bucket, slot: usize, probe: &LookupKey<'_>) -> Result<bool> {
        // PROTECTED (E3): pairs with the Release in `store_record`. A reference that this thread sees leads to a
        // completely written blob, which the thread's pin protects.
        let word = bucket.slots[slot].key.load(&self.storage, PROTECTED);
        if T::Ablation::PARTS.fingerprints {
            self.records.matches(&self.storage, word, probe)
        } else {
            self.records.is_key(&self.storage, word, probe)
        }
    }

    /// Returns the key's slot in a bucket.
    #[inline]
    fn find_in(&self, bucket: &Bucket, probe: &LookupKey<'_>) -> Result<Option<usize>> {
        let mut candidates = self.candidates_in(bucket, probe.hash);
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            if self.holds(bucket, slot, probe)? {
                return Ok(Some(slot));
            }
            candidates &= candidates - 1;
        }
        Ok(None)
    }

    /// Returns whether records of a home bucket may be elsewhere. The caller holds its lock, or needs a hint only.
    #[inline]
    pub(super) fn overflows(&self, home: &Bucket) -> bool {
        !T::Ablation::PARTS.overflow_metadata || home.overflows(&self.storage)
    }

    /// Returns the stash buckets that may hold a key with this hash.
    #[inline(always)]
    fn stash_hint(&self, [home, probing]: [&Bucket; 2], hash: u64) -> StashHint {
        if !T::Ablation::PARTS.overflow_metadata {
            return StashHint { buckets: 0, all: true };
        }
        // If there is a stash, the next bucket may hold overflow fingerprints that did not fit into the home bucket.
        let both = T::Ablation::PARTS.probing || self.geometry.stash > 0;
        let probing = if both { probing } else { home };
        stash::hint(&self.storage, [home, probing], hash)
    }

    /// Returns the index in `pair` of the bucket that holds the key, and the key's slot. The fingerprints of both
    /// buckets are compared together, because either bucket may hold the key.
    #[inline(always)]
    pub(super) fn find_in_pair(
        &self,
        pair: [&Bucket; 2],
        probe: &LookupKey<'_>,
    ) -> Result<Option<(usize, usize)>> {
        self.find_among(pair, self.candidates(pair, probe.hash), probe)
    }

    /// Does the same as [`Core::find_in_pair`], given the candidates.
    #[inline(always)]
    fn find_among(
        &self,
        pair: [&Bucket; 2],
        mut candidates: u32,
        probe: &LookupKey<'_>,
    ) -> Result<Option<(usize, usize)>> {
        while candidates != 0 {
            let (which, slot) = place_of(candidates);
            if self.holds(pair[which], slot, probe)? {
                return Ok(Some((which, slot)));
            }
            candidates &= candidates - 1;
        }
        Ok(None)
    }

    /// Returns the value word of a key in the stash or its chain. Validates the version of each stash bucket. The
    /// caller validates the home bucket's version, which every change to its stashed records increments.
    #[cold]
    fn search_stash(
        &self,
        segment: u32,
        probe: &LookupKey<'_>,
        hint: StashHint,
    ) -> Result<Option<u64>> {
        let (storage, segment) = (&self.storage, self.segment(segment)?);
        let stash = self.stash(segment).iter().enumerate();
        let hinted = stash
            .filter(|(number, _)| hint.all || hint.buckets >> number & 1 == 1)
            .map(|(_, bucket)| Ok(bucket));
        let chained = hint
            .all
            .then(|| self.chain(segment.id).map(|block| block.map(|(_, block)| &block.bucket)));
        for bucket in hinted.chain(chained.into_iter().flatten()) {
            let bucket = bucket?;
            let value = loop {
                let lock = bucket.version_lock(storage);
                let version = version_lock::read_begin(lock);
                let value = self
                    .find_in(bucket, probe)
                    .map(|slot| slot.map(|slot| bucket.value(slot).load(storage, PROTECTED)));
                if version_lock::validate(lock, version) {
                    break value;
                }
                storage.forget_reads();
            };
            if let Some(value) = value? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Finds a key under the lock of its home bucket, which keeps every record of that home in its place.
    #[inline]
    pub(super) fn find_locked<'a>(
        &'a self,
        segment: u32,
        pair: [&'a Bucket; 2],
        probe: &LookupKey<'_>,
    ) -> Result<Option<Found<'a>>> {
        // Read through `read_unvalidated`, as in `find_stashed`: other threads may be changing records of the probing
        // bucket that have another home. No result depends on those.
        let found = self.storage.read_unvalidated(|| self.find_in_pair(pair, probe))?;
        if let Some((which, slot)) = found {
            return Ok(Some(Found { bucket: pair[which], slot, site: Site::Normal }));
        }
        let hint = self.stash_hint(pair, probe.hash);
        if hint.is_empty() {
            return Ok(None);
        }
        self.find_stashed(segment, probe, hint)
    }

    /// Does the same as [`Core::find_locked`], but reads the probing bucket only if the home bucket overflows. In a batch,
    /// this saves a line for most keys; in a single operation, the branch costs more than the line.
    #[inline]
    pub(super) fn find_locked_in_steps<'a>(
        &'a self,
        segment: u32,
        pair: [&'a Bucket; 2],
        probe: &LookupKey<'_>,
    ) -> Result<Option<Found<'a>>> {
        let [home, _] = pair;
        if let Some(slot) = self.find_in(home, probe)? {
            return Ok(Some(Found { bucket: home, slot, site: Site::Normal }));
        }
        if self.overflows(home) { self.find_locked(segment, pair, probe) } else { Ok(None) }
    }

    #[cold]
    pub(super) fn find_stashed<'a>(
        &'a self,
        segment: u32,
        probe: &LookupKey<'_>,
        hint: StashHint,
    ) -> Result<Option<Found<'a>>> {
        let segment = self.segment(segment)?;
        // Read through `read_unvalidated`: the home bucket's lock protects the stashed records of this key, which are
        // durable. Other threads may be publishing bits of other keys' records in the same metadata word, but no result
        // depends on those bits.
        let find = |bucket| self.storage.read_unvalidated(|| self.find_in(bucket, probe));
        for (number, bucket) in self.stash(segment).iter().enumerate() {
            if (hint.all || hint.buckets >> number & 1 == 1)
                && let Some(slot) = find(bucket)?
            {
                return Ok(Some(Found { bucket, slot, site: Site::Stash(number) }));
            }
        }
        if hint.all {
            for block in self.chain(segment.id) {
                let bucket = &block?.1.bucket;
                if let Some(slot) = find(bucket)? {
                    return Ok(Some(Found { bucket, slot, site: Site::Chain }));
                }
            }
        }
        Ok(None)
    }
}

impl<T: Kinds> Core<T> {
    /// Finds a key in a session that only reads.
    pub(super) fn find_still<'a>(
        &'a self,
        still: &Still,
        segment: Segment<'a>,
        probe: &LookupKey<'_>,
    ) -> Result<Option<Found<'a>>> {
        let pair = self.pair(segment, probe.hash);
        if let Some((which, slot)) = self.find_in_pair(pair, probe)? {
            return Ok(Some(Found { bucket: pair[which], slot, site: Site::Normal }));
        }
        if !still.overflows(segment.id, self.geometry.home(probe.hash)) {
            return Ok(None);
        }
        self.find_stashed(segment.id, probe, StashHint { buckets: 0, all: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::HashKind;
    use crate::engine::dash::directory::Directory;
    use crate::engine::dash::layout::Geometry;
    use crate::engine::dash::options::DashSettings;
    use crate::engine::dash::{Eh, Lh};
    use crate::engine::opening::Common;
    use crate::engine::{Design, Operations, WriteKind};
    use crate::storage::Mapped;
    use crate::types::{Forms, Ignore, InWord, Raw};

    type Words = Forms<InWord, InWord>;
    type Check = std::result::Result<(), Box<dyn std::error::Error>>;

    /// A search that a `clear` overtakes must fail validation, even if it followed chains that now belong to other
    /// segments.
    fn is_told_of_clearings<P: Directory>() -> Check {
        let common = Common { hash: HashKind::Constant, ..Common::default() };
        let geometry = Geometry { buckets: 4, slots: 7, stash: 2 };
        let settings = DashSettings { geometry, ..DashSettings::default() };
        let storage = Mapped::anonymous(common.anonymous(P::TITLE, P::ALLOWS_DISK)?)?;
        let (table, _) = <P as Design>::create::<Words, Mapped>(common, settings, storage)?;
        let core = &table.core;
        for (clearings, key) in [(0, 7), (1, 7), (2, 7), (1, 199), (2, 199), (1, 1000), (2, 1000)] {
            for key in 0..200 {
                table.write(WriteKind::Put, &Raw::Word(key), &Raw::Word(key), Ignore)?;
            }
            let raw = Raw::Word(key);
            let probe = core.records.hash_key(&raw);
            let Some(target) = table.try_locate(probe.hash) else {
                return Err("no segment".into());
            };
            let overtaken = || {
                let current = table.directory.is_current(core, probe.hash, target.located);
                current && (0..clearings).all(|_| table.clear_all().is_ok())
            };
            match core.search(target, &probe, overtaken, |word| word)? {
                Search::Sure(found) => assert_eq!((clearings, found), (0, Some(key))),
                Search::Again => assert_ne!(clearings, 0),
            }
        }
        Ok(())
    }

    /// A split may move a key after its segment was found and before the search begins.
    fn is_told_of_splits<P: Directory>() -> Check {
        let common = Common::default();
        let storage = Mapped::anonymous(common.anonymous(P::TITLE, P::ALLOWS_DISK)?)?;
        let settings = DashSettings::default();
        let (table, _) = <P as Design>::create::<Words, Mapped>(common, settings, storage)?;
        let core = &table.core;
        let put = |key| table.write(WriteKind::Put, &Raw::Word(key), &Raw::Word(key), Ignore);
        for key in 0..100 {
            put(key)?;
        }
        let raws = Vec::from_iter((0..100).map(Raw::Word));
        let sighted = Vec::from_iter(raws.iter().map(|raw| {
            let probe = core.records.hash_key(raw);
            let target = table.try_locate(probe.hash);
            (probe, target)
        }));
        for key in 100..100_000 {
            put(key)?;
        }
        let mut wrong = 0;
        for (probe, target) in sighted {
            let Some(target) = target else { return Err("no segment".into()) };
            let begun = core.begin_search(target, probe.hash);
            if core.find_begun(target.pair, &probe, begun) == Some(None) {
                assert!(!table.directory.is_unchanged(target.located));
                wrong += 1;
            }
        }
        assert_ne!(wrong, 0);
        Ok(())
    }

    #[test]
    fn searches_are_told_of_splits() -> Check {
        is_told_of_splits::<Eh>()?;
        is_told_of_splits::<Lh>()
    }

    #[test]
    fn searches_are_told_of_clearings() -> Check {
        is_told_of_clearings::<Eh>()?;
        is_told_of_clearings::<Lh>()
    }
}
