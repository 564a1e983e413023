//! Maintenance of a table: `check`, `salvage`, `backup`, `stats`.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use super::Dash;
use super::directory::Directory;
use super::insert::Locked;
use super::kinds::Of;
use super::layout::Bucket;
use super::segment::{Found, Segment, Site};
use super::stash::{self, StashHint};
use super::still::Still;
use crate::Result;
use crate::engine::new_table::create_for_salvage;
use crate::engine::slots::table::SlotTable;
use crate::engine::{Maintenance, Operations, WriteKind};
use crate::report::{BackupReport, CheckReport, SalvageReport, Stats};
use crate::storage::blob::{BlobRef, BlobStore, Owner};
use crate::storage::{Mapped, Medium, refuse_child};
use crate::types::{Ignore, Raw, RecordForm, Types};

/// Results of `check` over all segments.
#[derive(Default)]
struct Findings {
    report: CheckReport,
    blobs: Vec<(u64, BlobRef)>,
    chained: HashSet<u32>,
}

impl<R: RecordForm, P: Directory, M: Medium> Dash<R, P, M> {
    pub(super) fn check_all(&self, types: &Types) -> Result<CheckReport> {
        let core = &self.core;
        let _pin = core.pin();
        let mut findings = Findings::default();
        let segments = self.directory.check(core, &mut |words| findings.report.fault(words))?;
        for &id in &segments {
            if let Err(error) = self.check_segment(core.segment(id)?, types, &mut findings) {
                findings.report.fault(error.to_string());
            }
        }
        for id in self.directory.due(core) {
            for block in core.chain(id) {
                findings.chained.insert(block?.0);
            }
        }
        self.check_blocks(&segments, &mut findings)?;
        if let Some(blobs) = core.records.blobs() {
            let found = blobs.check(&core.storage, std::mem::take(&mut findings.blobs));
            findings.report.leaked += found.leaked;
            found.faults.into_iter().for_each(|words| findings.report.fault(words));
        }
        let records = findings.report.records;
        if let Some(known) = self.length.known(self.directory.generation())
            && known != records
        {
            findings.report.fault(format!("I8: {records} records were found, {known} counted"));
        }
        Ok(findings.report)
    }

    fn check_segment(
        &self,
        segment: Segment<'_>,
        types: &Types,
        findings: &mut Findings,
    ) -> Result<()> {
        let core = &self.core;
        let storage = &core.storage;
        let id = segment.id;
        let mut seen: HashMap<u64, Vec<u64>> = HashMap::new();
        for block in core.chain(id) {
            findings.chained.insert(block?.0);
        }
        for (number, site) in core.sites(segment).enumerate() {
            let (site, bucket) = site?;
            let meta = bucket.meta(storage);
            // I3: only slots with a record have a membership bit.
            if meta.members() & !meta.allocated() != 0 {
                findings.report.fault(format!(
                    "I3: segment {id}, bucket {number}: free slots have membership bits ({meta:?})"
                ));
            }
            // I4: a bucket spills if the next one has anything of its records.
            if site == Site::Normal && core.still.is_none() {
                let next = &segment.buckets[core.geometry.next(number)];
                if next.has_members(storage) && !bucket.spills(storage) {
                    let words = format!("I4: segment {id}, bucket {number} has no spill bit");
                    findings.report.fault(words);
                }
            }
            for slot in Bucket::slots_of(meta.allocated()) {
                let (key, value) = bucket.record(storage, slot);
                let place = format!("segment {id}, bucket {number}, slot {slot}");
                let hash = match self.valid((key, value), types) {
                    Ok((hash, ..)) => hash,
                    Err(error) => {
                        findings.report.fault(format!("I2: {place}: {error}"));
                        continue;
                    }
                };
                findings.report.records += 1;
                findings.blobs.extend(core.records.references(key, value).map(|blob| (hash, blob)));
                if let Err(words) = self.check_record(segment, (number, site), bucket, (slot, hash))
                {
                    findings.report.fault(format!("{place}: {words}"));
                }
                let twins = seen.entry(hash).or_default();
                let probe_is_new = twins.iter().all(|&other| !self.same_key(other, key));
                // I5: a key is in one slot at most.
                if !probe_is_new {
                    findings
                        .report
                        .fault(format!("I5: {place}: the key is in another slot as well"));
                }
                twins.push(key);
            }
        }
        Ok(())
    }

    fn same_key(&self, one: u64, other: u64) -> bool {
        self.core.records.is_same_key(&self.core.storage, one, other).unwrap_or(false)
    }

    /// Checks I2, I3 and I4 for one record.
    fn check_record(
        &self,
        segment: Segment<'_>,
        (number, site): (usize, Site),
        bucket: &Bucket,
        (slot, hash): (usize, u64),
    ) -> std::result::Result<(), String> {
        let core = &self.core;
        let located = self.directory.ready(core, hash).map_err(|error| error.to_string())?;
        if located.segment != segment.id {
            return Err(format!("I2: the key belongs to segment {}", located.segment));
        }
        if bucket.fingerprint_at(&core.storage, slot) != super::layout::fingerprint(hash) {
            return Err("I2: the fingerprint is not the key's".into());
        }
        let home = core.geometry.home(hash);
        let hint = match &core.still {
            Some(still) => StashHint { buckets: 0, all: still.overflows(segment.id, home) },
            None => stash::hint(&core.storage, core.pair(segment, hash), hash),
        };
        match site {
            Site::Normal => {
                let member = bucket.meta(&core.storage).members() >> slot & 1 == 1;
                let right =
                    if member { number == core.geometry.next(home) } else { number == home };
                right.then_some(()).ok_or_else(|| {
                    format!(
                        "I3: the key's home is bucket {home}, but its membership bit is {member}"
                    )
                })
            }
            Site::Stash(stash_bucket) => {
                let known = hint.all || hint.buckets >> stash_bucket & 1 == 1;
                known
                    .then_some(())
                    .ok_or_else(|| "I4: its home bucket has no overflow metadata for it".into())
            }
            Site::Chain => hint
                .all
                .then_some(())
                .ok_or_else(|| "I4: its home bucket has no overflow metadata for it".into()),
        }
    }

    /// I6: every segment and chained bucket is either in use or free.
    fn check_blocks(&self, segments: &[u32], findings: &mut Findings) -> Result<()> {
        let core = &self.core;
        let words = core.root()?;
        let chained: Vec<u32> = findings.chained.iter().copied().collect();
        let (segment_free, segment_count) = self.directory.spare(core)?;
        let chain_free = core.chains.free_blocks(&core.storage, &words.chains)?;
        let all = [
            ("segment", segments, segment_free, segment_count),
            (
                "chained bucket",
                &chained[..],
                chain_free,
                core.chains.used(&core.storage, &words.chains),
            ),
        ];
        for (name, used, free, count) in all {
            let mut owners = vec![0_u32; count as usize];
            for &block in used.iter().chain(&free) {
                match owners.get_mut(block as usize) {
                    Some(owner) => *owner += 1,
                    None => {
                        findings.report.fault(format!("I6: {name} {block} was never allocated"))
                    }
                }
            }
            for (block, _) in owners.iter().enumerate().filter(|&(_, &owners)| owners > 1) {
                findings.report.fault(format!("I6: {name} {block} has two owners"));
            }
            findings.report.leaked += owners.iter().filter(|&&owners| owners == 0).count() as u64;
        }
        Ok(())
    }

    pub(super) fn stats_now(&self) -> Stats {
        let core = &self.core;
        let count = |counter: &crate::base::counter::ShardedCounter| {
            u64::try_from(counter.sum()).unwrap_or(0)
        };
        let segments = self.directory.segments(core);
        let chained = core.root().map_or(0, |words| core.chains.used(&core.storage, &words.chains));
        let blobs = core.records.blobs();
        let in_use = blobs.map_or(0, |blobs| blobs.bytes_in_use(&core.storage));
        let blobs = blobs.map(BlobStore::stats).unwrap_or_default();
        let mut details = vec![
            ("segments", segments),
            ("chained_buckets", chained),
            ("slots", segments * core.geometry.segment_slots()),
            ("splits", count(&core.counts.splits)),
            ("split_records", count(&core.counts.split_records)),
            ("split_slots", count(&core.counts.split_slots)),
            ("merges", count(&core.counts.merges)),
            ("displacements", count(&core.counts.displacements)),
            ("stash_inserts", count(&core.counts.stash_inserts)),
            ("chain_inserts", count(&core.counts.chain_inserts)),
            ("blob_bytes", in_use),
        ];
        details.extend(self.directory.details());
        let regions = [&core.table, &core.headers, &core.segments, core.chains.region()];
        Stats {
            len_estimate: self.length.estimate(self.directory.generation()),
            capacity: self.directory.capacity(core),
            storage_bytes: regions.iter().map(|region| region.len()).sum::<u64>()
                + blobs.region_bytes
                + self.directory.base().bytes(),
            dram_bytes: segments
                + core.still.as_ref().map_or(0, Still::bytes)
                + size_of::<Self>() as u64,
            durability: Some(core.storage.durability()),
            details,
        }
    }

    pub(super) fn salvage_to(&self, path: &Path, types: &Types) -> Result<SalvageReport> {
        let core = &self.core;
        let records = self.length.estimate(0);
        let rescued = create_for_salvage::<P, R>(&core.storage, records, Default::default(), path)?;
        let mut report = SalvageReport::default();
        let mut next = Some(0_u64);
        while let Some(hash) = next {
            next = match self.directory.range(core, hash) {
                Ok(range) => {
                    match core.segment(range.located.segment) {
                        Ok(segment) => {
                            self.salvage_segment(segment, types, &rescued, &mut report)?
                        }
                        Err(error) => report.lose(error),
                    }
                    range.last.checked_add(1)
                }
                Err(error) => {
                    report.lose(format_args!("the segment of hashes from {hash:#018x}: {error}"));
                    self.directory.skip(hash)
                }
            };
        }
        report.records = rescued.len()?;
        Ok(report)
    }

    fn salvage_segment(
        &self,
        segment: Segment<'_>,
        types: &Types,
        rescued: &Dash<R, P, Mapped>,
        report: &mut SalvageReport,
    ) -> Result<()> {
        let core = &self.core;
        let _pin = core.pin();
        for (number, site) in core.sites(segment).enumerate() {
            let (site, bucket) = match site {
                Ok(found) => found,
                Err(error) => {
                    report.lose(error);
                    continue;
                }
            };
            for slot in
                Bucket::slots_of(bucket.meta(&core.storage).allocated() & core.geometry.slot_mask())
            {
                let place = format!("segment {}, bucket {number}, slot {slot}", segment.id);
                let is_home =
                    |hash| self.check_record(segment, (number, site), bucket, (slot, hash));
                let put = |key: &Raw<'_>, value: &Raw<'_>| {
                    rescued.write(WriteKind::Put, key, value, Ignore).map(|_| ())
                };
                let words = bucket.record(&core.storage, slot);
                self.rescue(words, types, place, report, is_home, put)?;
            }
        }
        Ok(())
    }

    pub(super) fn backup_to(&self, path: &Path) -> Result<BackupReport> {
        let core = &self.core;
        if core.still.is_some() {
            let bytes = core.storage.backup_to(path)?;
            return Ok(BackupReport { bytes, pause: Duration::ZERO });
        }
        // Taking a lock stores to the files. In a forked child, the files belong to the parent process.
        refuse_child(&core.storage)?;
        self.directory.without_splits(|| {
            let paused = Instant::now();
            let segments = self.directory.check(core, &mut |_| {})?;
            let mut guards = Vec::new();
            for &id in &segments {
                guards.push(core.lock_all(core.segment(id)?));
            }
            let bytes = core.storage.backup_to(path)?;
            Ok(BackupReport { bytes, pause: paused.elapsed() })
        })
    }
}

impl<R: RecordForm, P: Directory, M: Medium> Dash<R, P, M> {
    /// Returns the slot that refers to a blob of a key with this hash. The caller holds the locks of the hash's
    /// buckets.
    fn referring<'a>(
        &self,
        locked: &Locked<'a, Of<R, M, P::Ablation>>,
        hash: u64,
        blob: BlobRef,
    ) -> Result<Option<Found<'a>>> {
        let core = &self.core;
        let slot_of = |bucket: &Bucket| {
            Bucket::slots_of(bucket.candidates(&core.storage, hash)).find(|&slot| {
                let (key, value) = bucket.record(&core.storage, slot);
                core.records.refers(key, value, blob)
            })
        };
        for bucket in locked.buckets {
            if let Some(slot) = slot_of(bucket) {
                return Ok(Some(Found { bucket, slot, site: Site::Normal }));
            }
        }
        for site in locked.core.sites(locked.segment).skip(core.geometry.buckets as usize) {
            let (site, bucket) = site?;
            // Read through `read_unvalidated`: the lock of the home bucket also protects the stashed records of this
            // hash.
            if let Some(slot) = core.storage.read_unvalidated(|| slot_of(bucket)) {
                return Ok(Some(Found { bucket, slot, site }));
            }
        }
        Ok(None)
    }
}

impl<R: RecordForm, P: Directory, M: Medium> Owner for Dash<R, P, M> {
    fn is_live(&self, owner: u64, blob: BlobRef, mark: &mut dyn FnMut(bool)) {
        let Ok((_, mut locked)) = self.lock(owner) else { return };
        locked.lock_probing();
        // After an error the owner is unknown, so the block is left unmarked.
        if let Ok(found) = self.referring(&locked, owner, blob) {
            mark(found.is_some());
        }
    }

    fn relink(&self, owner: u64, blob: BlobRef, copy: BlobRef) -> Result<bool> {
        let (_, mut locked) = self.lock(owner)?;
        locked.lock_probing();
        let Some(found) = self.referring(&locked, owner, blob)? else { return Ok(false) };
        locked.relink(&found, blob, copy);
        self.core.storage.check_writable().map(|()| true)
    }
}
