//! Maintenance of a table: `check`, `salvage`, `backup`, `stats`.

use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;

use super::Iceberg;
use super::buckets::DRAM_BYTES;
use super::core::{At, Core, Place};
use super::fingerprints::candidates_back;
use super::layout::{EMPTY_KEY, Phase, SIDE_KEY, Shape, Slot, fingerprint};
use super::options::{IcebergHt, IcebergSettings};
use crate::Result;
use crate::base::counter::ShardedCounter;
use crate::engine::new_table::create_for_salvage;
use crate::engine::slots::table::SlotTable;
use crate::engine::{LookupKey, Maintenance, Operations, WriteKind};
use crate::report::{BackupReport, CheckReport, SalvageReport, Stats};
use crate::storage::Medium;
use crate::storage::blob::{BlobRef, BlobStore, Owner};
use crate::types::{Ignore, Raw, RecordForm, Types};

/// Results of `check` over all slots.
#[derive(Default)]
struct Findings {
    report: CheckReport,
    blobs: Vec<(u64, BlobRef)>,
    /// Overflow slots that hold records.
    used: HashSet<u32>,
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Returns every slot of the table, used or not.
    fn places(&self, shape: Shape) -> impl Iterator<Item = Place> + use<R, M> {
        let (front, back) = (self.buckets.yards().front, self.buckets.yards().back);
        let in_front = (0..shape.buckets()).flat_map(move |bucket| {
            (0..front).map(move |slot| Place::Front(At::new(bucket, slot)))
        });
        let in_back = (0..shape.buckets())
            .flat_map(move |bucket| (0..back).map(move |slot| Place::Back(At::new(bucket, slot))));
        let in_overflow = (0..self.overflow.slots()).map(Place::Overflow);
        std::iter::once(Place::Side).chain(in_front).chain(in_back).chain(in_overflow)
    }

    /// Returns the key and value word of a slot, if it holds a record.
    fn words(&self, place: Place) -> Result<Option<(u64, u64)>> {
        let slot = self.slot(place)?;
        let key = slot.key(&self.storage);
        let key = match place {
            Place::Side if key == SIDE_KEY => EMPTY_KEY,
            Place::Side => return Ok(None),
            _ if key == EMPTY_KEY => return Ok(None),
            _ => key,
        };
        Ok(Some((key, slot.value(&self.storage))))
    }

    /// Returns the fingerprint byte of a slot, and the byte that a record with this hash should have.
    fn bytes(&self, place: Place, hash: Option<u64>) -> (u8, u8) {
        let wanted = hash.map_or(0, fingerprint);
        match place {
            Place::Front(at) => {
                let byte = self.buckets.line(&self.storage, at.bucket()).byte(at.slot());
                (byte, if at.slot() == 63 { wanted & 0x7F } else { wanted })
            }
            Place::Back(at) => {
                (self.buckets.back_word(&self.storage, at.bucket()).byte(at.slot()), wanted)
            }
            Place::Side | Place::Overflow(_) => (wanted, wanted),
        }
    }

    /// Returns whether a record with this hash may be in this place.
    fn is_home(&self, shape: Shape, place: Place, hash: u64) -> bool {
        match place {
            Place::Front(at) => shape.front(hash) == at.bucket(),
            Place::Back(at) => shape.back(hash).contains(&at.bucket()),
            Place::Side | Place::Overflow(_) => true,
        }
    }

    /// Returns all places where reads would find the key, except the side slot.
    fn places_of(&self, shape: Shape, probe: &LookupKey<'_>) -> Result<Vec<Place>> {
        let mut places = Vec::new();
        let holds = |slot: &Slot| {
            let key = slot.key(&self.storage);
            Ok::<_, crate::Error>(
                key != EMPTY_KEY && self.records.matches(&self.storage, key, probe)?,
            )
        };
        let bucket = shape.front(probe.hash);
        let line = self.buckets.line(&self.storage, bucket);
        let mut candidates = line.candidates(fingerprint(probe.hash), self.buckets.front_mask());
        while candidates != 0 {
            let slot = candidates.trailing_zeros();
            candidates &= candidates - 1;
            if holds(self.buckets.front_slot(&self.storage, bucket, slot)?)? {
                places.push(Place::Front(At::new(bucket, slot)));
            }
        }
        let [first, second] = shape.back(probe.hash);
        let both = [first, second];
        for &bucket in &both[..if first == second { 1 } else { 2 }] {
            let word = self.buckets.back_word(&self.storage, bucket).load();
            for slot in 0..self.buckets.yards().back {
                if candidates_back([word, 0], fingerprint(probe.hash)) >> slot & 1 == 1
                    && holds(self.buckets.back_slot(&self.storage, bucket, slot)?)?
                {
                    places.push(Place::Back(At::new(bucket, slot)));
                }
            }
        }
        self.overflow.find(probe.hash, |number, slot| {
            if holds(slot)? {
                places.push(Place::Overflow(number));
            }
            Ok(None::<()>)
        })?;
        Ok(places)
    }
}

impl<R: RecordForm, M: Medium> Iceberg<R, M> {
    pub(super) fn check_all(&self, types: &Types) -> Result<CheckReport> {
        let core = &self.core;
        let _structure = core.exclusion.lock(&core.storage);
        core.finish_step()?;
        let _pin = core.pin();
        let mut findings = Findings::default();
        let shape = core.shape();
        self.check_shape(shape, &mut findings)?;
        for place in core.places(shape) {
            if let Err(error) = self.check_slot(shape, place, types, &mut findings) {
                findings.report.fault(format!("{place:?}: {error}"));
            }
        }
        self.check_overflow(&mut findings);
        if let Some(blobs) = core.records.blobs() {
            let found = blobs.check(&core.storage, std::mem::take(&mut findings.blobs));
            findings.report.leaked += found.leaked;
            found.faults.into_iter().for_each(|words| findings.report.fault(words));
        }
        let (records, known) = (findings.report.records, core.length.estimate(0));
        if known != records {
            findings.report.fault(format!("I7: {records} records were found, {known} counted"));
        }
        Ok(findings.report)
    }

    /// I1: the files are long enough for the shape, and no step is in progress.
    fn check_shape(&self, shape: Shape, findings: &mut Findings) -> Result<()> {
        let core = &self.core;
        let stored = core.root()?.shape.load(&core.storage, std::sync::atomic::Ordering::Acquire);
        if stored != shape.word() || !shape.is(Phase::Stable) {
            findings.report.fault(format!(
                "I1: the stored shape is {stored:#x}, but the present one is {shape:?}"
            ));
        }
        for (region, bytes) in core.buckets.bytes(shape) {
            if region.len() < bytes {
                findings
                    .report
                    .fault(format!("I1: {} is shorter than {bytes} bytes", region.name()));
            }
        }
        Ok(())
    }

    /// Checks I2, I3 and I4 for one slot.
    fn check_slot(
        &self,
        shape: Shape,
        place: Place,
        types: &Types,
        findings: &mut Findings,
    ) -> Result<()> {
        let core = &self.core;
        let Some((key, value)) = core.words(place)? else {
            let (byte, _) = core.bytes(place, None);
            if byte != 0 {
                findings
                    .report
                    .fault(format!("I3: {place:?} is empty, but its fingerprint is {byte:#x}"));
            }
            return Ok(());
        };
        if let Place::Overflow(slot) = place {
            findings.used.insert(slot);
        }
        let owned = match self.valid((key, value), types) {
            Ok((_, owned, _)) => owned,
            Err(error) => {
                findings.report.fault(format!("I2: {place:?}: {error}"));
                return Ok(());
            }
        };
        findings.report.records += 1;
        let owned = owned.raw();
        let probe = core.records.hash_key(&owned);
        let blobs = core.records.references(key, value);
        findings.blobs.extend(blobs.map(|blob| (probe.hash, blob)));
        if !core.is_home(shape, place, probe.hash) {
            findings
                .report
                .fault(format!("I2: {place:?} is not a place for a record with this hash"));
        }
        let (byte, wanted) = core.bytes(place, Some(probe.hash));
        if byte != wanted {
            findings
                .report
                .fault(format!("I3: {place:?} has fingerprint {byte:#x}, not {wanted:#x}"));
        }
        let front = shape.front(probe.hash);
        if matches!(place, Place::Back(_))
            && !core.buckets.leads_behind(&core.storage, shape, probe.hash)
        {
            findings.report.fault(format!("I3: {place:?} is not marked at front bucket {front}"));
        }
        let places = core.places_of(shape, &probe)?;
        let alone = if place == Place::Side { places.is_empty() } else { places == [place] };
        if !alone {
            findings.report.fault(format!("I4: the record in {place:?} is found in {places:?}"));
        }
        Ok(())
    }

    /// I5: exactly the overflow slots without a record are free.
    fn check_overflow(&self, findings: &mut Findings) {
        let free = self.core.overflow.free_slots();
        for pair in free.windows(2).filter(|pair| pair[0] == pair[1]) {
            findings.report.fault(format!("I5: overflow slot {} is free twice", pair[0]));
        }
        for slot in free.iter().filter(|slot| findings.used.contains(slot)).collect::<Vec<_>>() {
            findings.report.fault(format!("I5: overflow slot {slot} is free and in use"));
        }
        let known = free.len() as u64 + findings.used.len() as u64;
        findings.report.leaked += u64::from(self.core.overflow.slots()).saturating_sub(known);
    }

    pub(super) fn stats_now(&self) -> Stats {
        let core = &self.core;
        let count = |counter: &ShardedCounter| u64::try_from(counter.sum()).unwrap_or(0);
        let shape = core.shape();
        let blobs = core.records.blobs();
        let in_use = blobs.map_or(0, |blobs| blobs.bytes_in_use(&core.storage));
        let blobs = blobs.map(BlobStore::stats).unwrap_or_default();
        let details = vec![
            ("buckets", shape.buckets()),
            ("slots", shape.buckets() * core.buckets.yards().slots()),
            ("overflow_slots", core.overflow.slots().into()),
            ("doublings", count(&core.counts.doublings)),
            ("halvings", count(&core.counts.halvings)),
            ("is_doubling", u64::from(shape.is(Phase::Doubling))),
            ("back_inserts", count(&core.counts.back_inserts)),
            ("overflow_inserts", count(&core.counts.overflow_inserts)),
            ("blob_bytes", in_use),
        ];
        let regions =
            [&core.table, core.buckets.front(), core.buckets.back(), core.overflow.region()];
        // Two bytes for the next doubling.
        let beside = shape.buckets() * (DRAM_BYTES + 2);
        Stats {
            len_estimate: core.length.estimate(0),
            capacity: core.capacity(),
            storage_bytes: regions.iter().map(|region| region.len()).sum::<u64>()
                + blobs.region_bytes,
            dram_bytes: beside + core.overflow.dram_bytes() + size_of::<Self>() as u64,
            durability: Some(core.storage.durability()),
            details,
        }
    }

    pub(super) fn salvage_to(&self, path: &Path, types: &Types) -> Result<SalvageReport> {
        let core = &self.core;
        let (records, settings) = (core.length.estimate(0), IcebergSettings::default());
        let rescued = create_for_salvage::<IcebergHt, R>(&core.storage, records, settings, path)?;
        let _structure = core.exclusion.lock(&core.storage);
        core.finish_step()?;
        let _pin = core.pin();
        let mut report = SalvageReport::default();
        let shape = core.shape();
        for place in core.places(shape) {
            let words = match core.words(place) {
                Ok(Some(words)) => words,
                Ok(None) => continue,
                Err(error) => {
                    report.lose(error);
                    continue;
                }
            };
            // During a doubling, records may still be in their former buckets.
            let anywhere = shape.is(Phase::Doubling);
            let is_home = |hash| match anywhere || core.is_home(shape, place, hash) {
                true => Ok(()),
                false => Err("not a place for a record with this hash".to_owned()),
            };
            let put = |key: &Raw<'_>, value: &Raw<'_>| {
                rescued.write(WriteKind::Put, key, value, Ignore).map(|_| ())
            };
            self.rescue(words, types, format_args!("{place:?}"), &mut report, is_home, put)?;
        }
        report.records = rescued.len()?;
        Ok(report)
    }

    pub(super) fn backup_to(&self, path: &Path) -> Result<BackupReport> {
        let core = &self.core;
        let _structure = core.exclusion.lock(&core.storage);
        let paused = Instant::now();
        let _closed = core.exclusion.close(&core.storage)?;
        let bytes = core.storage.backup_to(path)?;
        Ok(BackupReport { bytes, pause: paused.elapsed() })
    }
}

impl<R: RecordForm, M: Medium> Owner for Iceberg<R, M> {
    fn is_live(&self, owner: u64, blob: BlobRef, mark: &mut dyn FnMut(bool)) {
        let core = &self.core;
        let inside = core.enter();
        let Ok(_locked) = core.lock(&inside, owner) else { return };
        if let Ok(slot) = core.referring(inside.shape, owner, blob) {
            mark(slot.is_some());
        }
    }

    fn relink(&self, owner: u64, blob: BlobRef, copy: BlobRef) -> Result<bool> {
        let core = &self.core;
        let inside = core.enter();
        let _locked = core.lock(&inside, owner)?;
        let Some(slot) = core.referring(inside.shape, owner, blob)? else { return Ok(false) };
        if let Some(key) = core.records.relinked(slot.key(&core.storage), true, blob, copy) {
            slot.set_key(&core.storage, key);
        }
        if let Some(value) = core.records.relinked(slot.value(&core.storage), false, blob, copy) {
            slot.set_value(&core.storage, value);
        }
        // P14, commit point: the copy was made durable before.
        core.storage.persist(slot);
        core.storage.check_writable().map(|()| true)
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Returns the slot of a record with this hash that refers to the blob. The caller holds the lock of the hash.
    fn referring(&self, shape: Shape, hash: u64, blob: BlobRef) -> Result<Option<&Slot>> {
        let refers = |slot: &Slot| {
            let [key, value] = self
                .storage
                .read_unvalidated(|| [slot.key(&self.storage), slot.value(&self.storage)]);
            key != EMPTY_KEY && self.records.refers(key, value, blob)
        };
        let bucket = shape.front(hash);
        let line = self.buckets.line(&self.storage, bucket);
        let mut candidates = line.candidates(fingerprint(hash), self.buckets.front_mask());
        while candidates != 0 {
            let slot =
                self.buckets.front_slot(&self.storage, bucket, candidates.trailing_zeros())?;
            if refers(slot) {
                return Ok(Some(slot));
            }
            candidates &= candidates - 1;
        }
        for bucket in shape.back(hash) {
            let mut candidates = candidates_back(
                [self.buckets.back_word(&self.storage, bucket).load(), 0],
                fingerprint(hash),
            );
            while candidates != 0 {
                let slot =
                    self.buckets.back_slot(&self.storage, bucket, candidates.trailing_zeros())?;
                if refers(slot) {
                    return Ok(Some(slot));
                }
                candidates &= candidates - 1;
            }
        }
        let listed = self.overflow.find(hash, |number, slot| Ok(refers(slot).then_some(number)))?;
        if let Some(number) = listed {
            return self.slot(Place::Overflow(number)).map(Some);
        }
        let side = &self.root()?.side;
        let is_side = self.records.keys_are_words()
            && hash == self.records.hash.word(EMPTY_KEY)
            && side.key(&self.storage) == SIDE_KEY
            && self.records.refers(EMPTY_KEY, side.value(&self.storage), blob);
        Ok(is_side.then_some(side))
    }
}
