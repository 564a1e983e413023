//! Halving in place (§4): the records of the upper half of each yard move to the corresponding buckets of the lower
//! half, and the space of the upper half is returned to the file system.
//!
//! This is the opposite of a doubling, but the gate is closed for all of it: writers wait until all records have moved.
//! Reads continue and search the upper bucket first. A table is halved only if every lower bucket has room for the
//! records of its upper one, so that no record changes its level and no scan returns one twice.

use super::core::Core;
use super::fingerprints::{taken_back, used_back};
use super::layout::{EMPTY_KEY, Phase, Shape, Slot, fingerprint};
use super::recover::UNREADABLE;
use crate::Result;
use crate::storage::Medium;
use crate::types::RecordForm;

/// A record that moves to the lower half.
struct Falling<'a> {
    from: u32,
    to: u32,
    fingerprint: u8,
    source: &'a Slot,
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Halves the table as long as its records fit.
    pub(super) fn shrink(&self) -> Result<()> {
        self.storage.check_writable()?;
        let _structure = self.exclusion.lock(&self.storage);
        self.finish_doubling()?;
        while self.halve()? {}
        Ok(())
    }

    /// Halves the table if its records fit; the caller holds the structure's mutex.
    fn halve(&self) -> Result<bool> {
        let shape = self.shape();
        // The check is repeated under the closed gate. This one spares writers a wait if the records do not fit.
        if shape.depth() == 0 || !self.fits_half(shape) {
            return Ok(false);
        }
        {
            let _closed = self.exclusion.close(&self.storage)?;
            if !self.fits_half(shape) {
                return Ok(false);
            }
            let halving = shape.then(shape.depth() - 1, Phase::Halving);
            self.buckets.forget_marks(halving);
            // P10, commit point: from here on the halving is rolled forward.
            self.set_shape(halving)?;
            self.finish_halving(halving)?;
        }
        self.counts.halvings.add(1);
        // If one yard cannot be punched, the other one is punched all the same.
        let mut punched = Ok(());
        for ((region, to), (_, from)) in
            self.buckets.bytes(self.shape()).into_iter().zip(self.buckets.bytes(shape))
        {
            punched = punched.and(self.storage.punch(region, to, from - to));
        }
        punched.map(|()| true)
    }

    /// Returns whether every lower bucket has room for the records of its upper one, and the load stays below the
    /// threshold.
    fn fits_half(&self, shape: Shape) -> bool {
        let half = shape.buckets() / 2;
        let most = half * self.buckets.yards().slots() * u64::from(self.max_load) / 1000;
        let front = |bucket| {
            self.buckets.yards().front
                - self
                    .buckets
                    .line(&self.storage, bucket)
                    .empty(self.buckets.front_mask())
                    .count_ones()
        };
        let back = |bucket| taken_back(self.buckets.back_word(&self.storage, bucket).load());
        // In the smallest table, both back buckets of every hash are the same, so the former bucket of a record would
        // be unknown.
        let ambiguous = half == 1 && back(0) + back(1) > 0;
        self.length.estimate(0) <= most
            && !ambiguous
            && (0..half).all(|bucket| {
                front(bucket) + front(bucket + half) <= self.buckets.yards().front
                    && back(bucket) + back(bucket + half) <= self.buckets.yards().back
            })
    }

    /// Moves all records to the lower half. The caller excludes writers.
    pub(super) fn finish_halving(&self, shape: Shape) -> Result<()> {
        for bucket in 0..shape.buckets() {
            self.fold_front(shape, bucket)?;
            self.fold_back(shape, bucket)?;
        }
        // P12: the originals are durably removed before the shape becomes stable, so that a later doubling finds empty
        // slots.
        self.storage.fence();
        // P13: the halving is finished.
        self.set_shape(shape.then(shape.depth(), Phase::Stable))
    }

    fn fold_front(&self, shape: Shape, bucket: u64) -> Result<()> {
        let upper = bucket + shape.buckets();
        let (line, above) =
            (self.buckets.line(&self.storage, bucket), self.buckets.line(&self.storage, upper));
        // Excludes reads on processors that cannot load two words at once: they take this lock. Writers are excluded
        // already.
        line.lock(&self.storage);
        let folded = self.fold(
            self.buckets.yards().front,
            (
                |slot| {
                    self.buckets
                        .front_slot(&self.storage, upper, slot)
                        .map(|source| (above.byte(slot), source))
                },
                |slot| {
                    self.buckets
                        .front_slot(&self.storage, bucket, slot)
                        .map(|target| (line.byte(slot), target))
                },
            ),
            |falling| line.publish(falling.to, falling.fingerprint),
            |falling| above.clear(falling.from),
        );
        self.buckets.guess_room(&self.storage, bucket);
        line.unlock();
        folded
    }

    fn fold_back(&self, shape: Shape, bucket: u64) -> Result<()> {
        let upper = bucket + shape.buckets();
        let (word, above) = (
            self.buckets.back_word(&self.storage, bucket),
            self.buckets.back_word(&self.storage, upper),
        );
        self.fold(
            self.buckets.yards().back,
            (
                |slot| {
                    self.buckets
                        .back_slot(&self.storage, upper, slot)
                        .map(|source| (above.byte(slot), source))
                },
                |slot| {
                    self.buckets
                        .back_slot(&self.storage, bucket, slot)
                        .map(|target| (word.byte(slot), target))
                },
            ),
            |falling| word.store(word.load() | u64::from(falling.fingerprint) << (8 * falling.to)),
            |falling| above.clear(falling.from),
        )?;
        for slot in used_back(word.load(), self.buckets.yards().back) {
            if let Some(hash) = self.hash_in(self.buckets.back_slot(&self.storage, bucket, slot)?) {
                self.buckets.lead_behind(shape, hash);
            }
        }
        Ok(())
    }

    /// Moves the records of one bucket from the slots with a nonzero byte in `above` to slots with a zero byte in
    /// `below`. Costs one fence; the removal of the originals is flushed but not fenced.
    fn fold<'a>(
        &'a self,
        slots: u32,
        (above, below): (
            impl Fn(u32) -> Result<(u8, &'a Slot)>,
            impl Fn(u32) -> Result<(u8, &'a Slot)>,
        ),
        publish: impl Fn(&Falling<'_>),
        clear: impl Fn(&Falling<'_>),
    ) -> Result<()> {
        let storage = &self.storage;
        let mut present = Vec::new();
        let mut room = Vec::new();
        for slot in 0..slots {
            let (byte, target) = below(slot)?;
            if byte == 0 { room.push((slot, target)) } else { present.push(target.key(storage)) }
        }
        let (mut room, mut fallen, mut copies) = (room.into_iter(), Vec::new(), Vec::new());
        for from in 0..slots {
            let (byte, source) = above(from)?;
            let key = source.key(storage);
            if byte == 0 || key == EMPTY_KEY {
                continue;
            }
            let fingerprint = self.records.hash_of(storage, key).map_or(UNREADABLE, fingerprint);
            if present.contains(&key) {
                // This record was copied before a crash.
                copies.push(Falling { from, to: 0, fingerprint, source });
                continue;
            }
            let Some((to, target)) = room.next() else {
                return Err(self.buckets.front().fault(
                    &self.storage,
                    0,
                    "a bucket of a halved yard has no room",
                ));
            };
            target.fill(storage, key, source.value(storage));
            storage.flush_object(target);
            fallen.push(Falling { from, to, fingerprint, source });
        }
        if fallen.is_empty() && copies.is_empty() {
            return Ok(());
        }
        // P11: the copies are durable before the originals are removed.
        storage.fence();
        fallen.iter().for_each(publish);
        for falling in fallen.iter().chain(&copies) {
            falling.source.empty(storage);
            storage.flush_object(falling.source);
        }
        fallen.iter().chain(&copies).for_each(clear);
        // Recovery has counted both copies.
        self.length.add(0, -(copies.len() as i64));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::{Acquire, Release};

    use crate::engine::Design;
    use crate::engine::iceberg::options::{IcebergHt, IcebergSettings};
    use crate::engine::opening::Common;
    use crate::storage::Cell64;
    use crate::storage::sim::{Sim, SimOptions};
    use crate::types::{Forms, InWord};

    #[test]
    fn a_yard_that_cannot_be_punched_does_not_keep_the_other_from_it() {
        let sim = Sim::new(SimOptions::default());
        let common = Common { capacity: 20_000, ..Common::default() };
        let settings = IcebergSettings::default();
        let created = <IcebergHt as Design>::create::<Forms<InWord, InWord>, _>(
            common,
            settings,
            sim.clone(),
        );
        let (table, _) = created.expect("space");
        let core = &table.core;
        let last_words = core.buckets.bytes(core.shape()).map(|(region, bytes)| {
            let word: &Cell64 = region.at(bytes - 8).expect("the last value");
            word.store(&sim, 7, Release);
            word
        });
        sim.fail_punches(1);
        assert!(core.shrink().is_err());
        assert_eq!(last_words.map(|word| word.load(&sim, Acquire)), [7, 0]);
    }
}
