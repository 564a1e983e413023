//! `salvage` copies the whole records of each entry to a new table and lists the others. `mend` extends the files of a
//! damaged table while it is opened for salvage.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::Plush;
use super::core::Core;
use super::filter;
use super::layout::{CLASSES, EntryRef, RUNS, State, class_of};
use super::mended::Mended;
use super::options::{PlushHt, PlushSettings};
use super::words::RecordOf;
use crate::Result;
use crate::engine::exclusion::lock;
use crate::engine::mending::Mending;
use crate::engine::new_table::create_for_salvage;
use crate::engine::{Maintenance, Operations, WriteKind};
use crate::report::{DamagedRecord, SalvageReport};
use crate::storage::{Mapped, Medium};
use crate::types::{Ignore, RecordForm, Types};

/// The contents of a range of hashes: the newest record of each key, and descriptions of the losses.
struct Found<R> {
    records: Vec<R>,
    lost: Vec<String>,
    next: Option<u64>,
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Extends files with zeros if they end too early, resets the words that only writers need, and empties the entries
    /// whose buckets are lost. For a table opened for salvage, in private copies of its pages.
    pub(super) fn mend(&self, mending: &Mending) -> Result<()> {
        let (storage, words) = (&self.storage, self.root_words()?);
        let levels = words.levels.load(storage, Acquire);
        if levels == 0 || levels > self.shape.max_levels() as u64 {
            // Recovery rejects this number of levels.
            return Ok(());
        }
        mending.lengthen(storage, self.levels.region(), self.levels.bytes_of(levels as usize))?;
        if let Some(payloads) = self.payloads() {
            payloads.mend(storage, mending)?;
        }
        let mut there = [0; CLASSES];
        for (class, words) in words.runs.iter().enumerate() {
            there[class] = self.runs[class].room();
            mending.lengthen_pool(storage, &self.runs[class], words)?;
        }
        mending.lengthen_pool(storage, &self.chains, &words.chains)?;
        self.levels.adopt(levels as usize);
        self.empty_bereft(levels as usize, &there, mending)
    }

    /// Empties the entries that have lost buckets, because the zeros that replace the buckets are not their records.
    fn empty_bereft(&self, levels: usize, there: &[u64; CLASSES], mending: &Mending) -> Result<()> {
        let mut emptied = 0;
        for level in 1..=levels {
            for index in 0..self.shape.entries(level) {
                let Ok(chain) =
                    self.level_entry(level, index).and_then(|first| self.chain_of(first))
                else {
                    continue;
                };
                for entry in chain {
                    let gone = (0..RUNS).any(|run| {
                        let block = entry.entry.runs[run].load(&self.storage, Relaxed);
                        u64::from(block) > there[class_of(run)]
                    });
                    let state = State::unpack(entry.entry.state.load(&self.storage, Relaxed));
                    if gone && state.size > 0 {
                        let empty = State { size: 0, ..state };
                        entry.entry.state.store(&self.storage, empty.pack(), Relaxed);
                        emptied += 1;
                    }
                }
            }
        }
        if emptied > 0 {
            mending.note(format!(
                "{emptied} entries had lost buckets; the records of these entries are lost"
            ));
        }
        Ok(())
    }

    /// Moves the records of a full root entry aside. If levels are lost, it is unknown which log records have arrived
    /// below, and more records may be replayed than the entry has room for.
    pub(super) fn spill(&self, mended: &Mended, entry: usize) {
        let mut spilled = lock(&self.storage, &mended.spilled);
        for record in (0..self.root.size(entry)).map(|at| self.root.record(entry, at)) {
            let mut words = vec![0; self.measure.widths().words()];
            self.measure.each_word(&record, |at, word| words[at] = word);
            spilled.entry(self.hash_of(record)).or_default().push((record.dead, words));
        }
        self.root.empty(entry);
    }

    /// The records of the range that begins with a hash.
    fn rescued_range(&self, from: u64) -> Found<RecordOf<R>> {
        let entry = self.root_entry(from);
        loop {
            let version = self.root.read_begin(&self.storage, entry);
            let found = self.rescue_range(entry, from);
            if self.root.validate(&self.storage, entry, version) {
                return found;
            }
            self.storage.forget_reads();
        }
    }

    fn rescue_range(&self, root: usize, from: u64) -> Found<RecordOf<R>> {
        let levels = self.levels.count(&self.storage);
        let index = self.shape.index(levels, from);
        let mut found =
            Found { records: Vec::new(), lost: Vec::new(), next: self.range_after(levels, from) };
        let mut newest: HashMap<u64, Vec<RecordOf<R>>> = HashMap::new();
        let mut add = |record: RecordOf<R>| {
            let hash = self.hash_of(record);
            if self.shape.index(levels, hash) != index {
                return;
            }
            let known = newest.entry(hash).or_default();
            if !known.iter().any(|newer| self.replaces(*newer, record)) {
                known.push(record);
                found.records.push(record);
            }
        };
        (0..self.root.size(root)).rev().for_each(|at| add(self.root.record(root, at)));
        if let Some(mended) = &self.mended {
            let last = found.next.map_or(u64::MAX, |next| next - 1);
            let spilled = lock(&self.storage, &mended.spilled);
            for (dead, words) in spilled.range(from..=last).flat_map(|(_, all)| all.iter().rev()) {
                add(self.measure.record(*dead, |at| words[at]));
            }
        }
        for level in 1..=levels {
            // An entry above the last level covers several ranges. Its losses are reported with the first of them only.
            let width = self.shape.prefix(levels) - self.shape.prefix(level);
            let is_first = index & ((1 << width) - 1) == 0;
            let mut tell = |words: String| {
                if is_first {
                    found.lost.push(words);
                }
            };
            let at = self.shape.index(level, from);
            let chain = self.level_entry(level, at).and_then(|first| self.chain_of(first));
            match chain {
                Ok(chain) => {
                    for entry in chain.into_iter().rev() {
                        self.rescue_entry((level, at), entry, &mut add, &mut tell);
                    }
                }
                Err(error) => tell(error.to_string()),
            }
        }
        found.records.retain(|record| !record.dead);
        found
    }

    /// Returns whether a record replaces an older one with the same hash. Damaged keys cannot be compared. Then equal
    /// hashes count as equal keys, so that a damaged record or removal does not restore an older value.
    fn replaces(&self, newer: RecordOf<R>, older: RecordOf<R>) -> bool {
        let is_whole = |record: RecordOf<R>| match self.payloads() {
            Some(payloads) => payloads.fault(&self.storage, record.reference()).is_none(),
            None => true,
        };
        match self.same_key(newer, older) {
            Ok(same) => same || !is_whole(newer) || !is_whole(older),
            Err(_) => true,
        }
    }

    /// Passes the valid records of an entry to `add`, newest first, and descriptions of the losses to `tell`.
    fn rescue_entry(
        &self,
        (level, index): (usize, u64),
        entry: EntryRef<'_>,
        add: &mut impl FnMut(RecordOf<R>),
        tell: &mut impl FnMut(String),
    ) {
        let size = match self.state(entry) {
            Ok(state) => state.size,
            Err(error) => return tell(error.to_string()),
        };
        for at in (0..size).rev() {
            let record = match self.record(entry, at) {
                Ok(record) => record,
                Err(error) => {
                    tell(format!("record {at} of {:?}: {error}", entry.id));
                    continue;
                }
            };
            let hash = self.hash_of(record);
            let (bucket, _) = self.slot_of(at);
            let is_known = filter::candidates(&self.storage, entry.entry, hash) >> bucket & 1 == 1;
            if self.shape.index(level, hash) == index && is_known {
                add(record);
            } else {
                tell(format!(
                    "record {at} of {:?} of level {level} does not match its prefix or filter",
                    entry.id
                ));
            }
        }
    }
}

impl<R: RecordForm, M: Medium> Plush<R, M> {
    pub(super) fn salvage_to(&self, path: &Path, types: &Types) -> Result<SalvageReport> {
        let settings = PlushSettings::partitioned_as(self.core.placement.ranges());
        let rescued = create_for_salvage::<PlushHt, R>(&self.core.storage, 0, settings, path)?;
        let mut report = SalvageReport::default();
        let _paused = self.core.pause_helper();
        let _pin = self.core.pin();
        let mut next = Some(0);
        while let Some(hash) = next {
            let found = self.core.rescued_range(hash);
            found.lost.iter().for_each(|words| report.lose(words));
            for record in found.records {
                self.rescue(record, types, &rescued, &mut report)?;
            }
            next = found.next;
        }
        report.records = rescued.len()?;
        Ok(report)
    }

    /// Copies a record, or reports it as damaged.
    fn rescue(
        &self,
        record: RecordOf<R>,
        types: &Types,
        rescued: &Plush<R, Mapped>,
        report: &mut SalvageReport,
    ) -> Result<()> {
        let core = &self.core;
        let fault =
            core.payloads().and_then(|payloads| payloads.fault(&core.storage, record.reference()));
        let reason = match (fault, self.valid(record, types)) {
            (None, Ok((key, value))) => {
                return rescued.write(WriteKind::Put, &key.raw(), &value.raw(), Ignore).map(|_| ());
            }
            (Some(fault), _) => fault.to_owned(),
            (None, Err(error)) => error.to_string(),
        };
        let payload = match core.payloads() {
            Some(payloads) => payloads.read(&core.storage, record.reference()).ok().flatten(),
            None => None,
        };
        let (key, value) = match (payload, core.measure.is_inline()) {
            (Some(payload), _) => (Some(payload.key.to_vec()), Some(payload.value.to_vec())),
            (None, true) => (
                Some(core.measure.key_of(&record.key).stored()),
                Some(core.measure.value_of(&record.value).stored()),
            ),
            (None, false) => (None, None),
        };
        let place = format!("the record with hash {:#018x}", core.hash_of(record));
        report.damaged(DamagedRecord { key, value, place, reason });
        Ok(())
    }
}
