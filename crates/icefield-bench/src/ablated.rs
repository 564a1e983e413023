//! Dash-EH without some of its techniques, to measure what they gain (Dash Figs 9 to 11 and 13), and a replacement
//! for the paper's baseline.
//!
//! Each variant is the same table, compiled without a technique in its searches and in its choice of buckets.
//! Writers still maintain fingerprints and overflow metadata, so inserts are not compared.

use std::marker::PhantomData;

use icefield::{Ablation, Eh, Geometry, Op, Parts, Result, Stats, Table, TryInsert, Whole};

use crate::args::Medium;
use crate::designs::{Dash, at, dash_options};
use crate::ours::{Calls, Ours};
use crate::table::{BenchTable, Call, Cost, Design, Place, Records, Setup};

/// Compares keys without fingerprints, and follows references without comparing their hash bits.
pub(crate) struct NoFingerprints;
/// Searches the stash whenever a key is in neither bucket.
pub(crate) struct NoOverflow;
/// Omits both fingerprints and overflow metadata.
pub(crate) struct NoFilters;
/// Searches lock their buckets, as writers do. They write the lines that reader-writer locks would write, but
/// exclude each other in a bucket.
pub(crate) struct ReadLocks;
/// A record has a single possible bucket.
pub(crate) struct HomeOnly;
/// A record is in its home bucket, or in the next one if the home bucket was full.
pub(crate) struct Probing;
/// Four lines in a row for each key: no fingerprints, no second bucket, no stash; searches take locks.
pub(crate) struct CcehLike;

impl Ablation for NoFingerprints {
    const PARTS: Parts = Parts { fingerprints: false, ..Parts::ALL };
}
impl Ablation for NoOverflow {
    const PARTS: Parts = Parts { overflow_metadata: false, ..Parts::ALL };
}
impl Ablation for NoFilters {
    const PARTS: Parts = Parts { fingerprints: false, overflow_metadata: false, ..Parts::ALL };
}
impl Ablation for ReadLocks {
    const PARTS: Parts = Parts { optimistic: false, ..Parts::ALL };
}
impl Ablation for HomeOnly {
    const PARTS: Parts = Parts { probing: false, balancing: false, ..Parts::ALL };
}
impl Ablation for Probing {
    const PARTS: Parts = Parts { balancing: false, ..Parts::ALL };
}
impl Ablation for CcehLike {
    const PARTS: Parts = Parts {
        fingerprints: false,
        probing: false,
        balancing: false,
        optimistic: false,
        ..Parts::ALL
    };
}

/// The complete table, with which the variants are compared.
pub(crate) static WHOLE: Ablated<Whole> = Ablated::named("dash-eh");
pub(crate) static NO_FINGERPRINTS: Ablated<NoFingerprints> =
    Ablated::named("dash-eh-no-fingerprints");
pub(crate) static NO_OVERFLOW: Ablated<NoOverflow> = Ablated::named("dash-eh-no-overflow");
pub(crate) static NO_FILTERS: Ablated<NoFilters> = Ablated::named("dash-eh-no-filters");
pub(crate) static READ_LOCKS: Ablated<ReadLocks> = Ablated::named("dash-eh-read-locks");
pub(crate) static CCEH_LIKE: Ablated<CcehLike> =
    Ablated { stash_buckets: Some(0), ..Ablated::named("cceh-like") };

pub(crate) struct Ablated<A> {
    name: &'static str,
    /// The number of stash buckets, whatever the setup says.
    stash_buckets: Option<u32>,
    ablation: PhantomData<fn() -> A>,
}

impl<A> Ablated<A> {
    const fn named(name: &'static str) -> Self {
        Self { name, stash_buckets: None, ablation: PhantomData }
    }
}

/// The size of keys that are stored by reference.
pub(crate) const WIDE_BYTES: usize = 16;

impl<A: Ablation> Design for Ablated<A> {
    fn name(&self) -> &str {
        self.name
    }

    fn is_usual(&self) -> bool {
        false
    }

    fn lives_in(&self, medium: Medium) -> bool {
        Dash::Extendible.lives_in(medium)
    }

    fn usual_medium(&self) -> Medium {
        Dash::Extendible.usual_medium()
    }

    fn holds(&self, records: Records) -> bool {
        let key_bytes = if records.key_bytes == WIDE_BYTES { WIDE_BYTES } else { 8 };
        records == Records { key_bytes, ..Records::default() }
    }

    fn create(&self, place: &Place, setup: Setup) -> Result<Box<dyn BenchTable>> {
        let stash_buckets = self.stash_buckets.or(setup.stash_buckets);
        let setup = Setup { stash_buckets, ..setup };
        if setup.records.key_bytes == WIDE_BYTES {
            at!(place, dash_options::<u128, Eh<A>>(setup), create, create_on, Wide)
        } else {
            at!(place, dash_options::<u64, Eh<A>>(setup), create, create_on)
        }
    }

    fn open(&self, place: &Place, _threads: usize) -> Result<Box<dyn BenchTable>> {
        at!(place, icefield::Dash::<u64, u64, Eh<A>>::options(), open, open_on)
    }

    /// The variants have no documented costs.
    fn cost(&self, _call: Call) -> Option<Cost> {
        None
    }

    fn regions(&self) -> &'static [(&'static str, &'static str)] {
        Dash::Extendible.regions()
    }
}

/// Inserts `keys` into a table of this geometry and returns its statistics, which include the fill of segments at
/// their split.
///
/// # Errors
/// Those of the table.
pub(crate) fn fill_segments<A: Ablation>(geometry: Geometry, keys: &[u64]) -> Result<Stats> {
    let options = icefield::Dash::<u64, u64, Eh<A>>::options().geometry(geometry);
    let table = options.hash_seed([1, 2]).in_memory()?;
    for &key in keys {
        Table::put(&table, key, key)?;
    }
    Ok(Table::stats(&table))
}

/// A table whose keys are longer than a word; each key repeats one word.
struct Wide<T>(T);

/// Returns the key derived from a word.
#[inline(always)]
fn wide(key: u64) -> u128 {
    u128::from(key) << 64 | u128::from(key)
}

fn wide_pairs(pairs: &[(u64, u64)]) -> Vec<(u128, u64)> {
    pairs.iter().map(|&(key, value)| (wide(key), value)).collect()
}

fn wide_keys(keys: &[u64]) -> Vec<u128> {
    keys.iter().map(|&key| wide(key)).collect()
}

impl<T: Table<Key = u128, Value = u64>> Calls for Wide<T> {
    #[inline(always)]
    fn get(&self, key: u64) -> Result<Option<u64>> {
        self.0.get(wide(key))
    }
    fn try_insert(&self, key: u64, value: u64) -> Result<TryInsert<u64>> {
        self.0.try_insert(wide(key), value)
    }
    fn insert(&self, key: u64, value: u64) -> Result<Option<u64>> {
        self.0.insert(wide(key), value)
    }
    fn put(&self, key: u64, value: u64) -> Result<()> {
        self.0.put(wide(key), value)
    }
    fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        self.0.update(wide(key), value)
    }
    fn remove(&self, key: u64) -> Result<Option<u64>> {
        self.0.remove(wide(key))
    }
    fn get_batch(&self, keys: &[u64], found: &mut [Option<u64>]) -> Result<()> {
        self.0.get_batch(&wide_keys(keys), found)
    }
    fn insert_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        self.0.insert_batch(&wide_pairs(pairs), previous)
    }
    fn put_batch(&self, pairs: &[(u64, u64)]) -> Result<()> {
        self.0.put_batch(&wide_pairs(pairs))
    }
    fn update_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        self.0.update_batch(&wide_pairs(pairs), previous)
    }
    fn try_insert_batch(
        &self,
        pairs: &[(u64, u64)],
        outcomes: &mut [TryInsert<u64>],
    ) -> Result<()> {
        self.0.try_insert_batch(&wide_pairs(pairs), outcomes)
    }
    fn remove_batch(&self, keys: &[u64], removed: &mut [Option<u64>]) -> Result<()> {
        self.0.remove_batch(&wide_keys(keys), removed)
    }
    /// One by one: mixed batches of long keys are not measured.
    fn execute(&self, ops: &mut [Op<'_, u64, u64>]) -> Result<()> {
        for op in ops {
            match op {
                Op::Get(key, answer) => *answer = self.get(*key)?,
                Op::TryInsert(key, value, outcome) => *outcome = self.try_insert(*key, *value)?,
                Op::Insert(key, value, answer) => *answer = self.insert(*key, *value)?,
                Op::Put(key, value) => self.put(*key, *value)?,
                Op::Update(key, value, answer) => *answer = self.update(*key, *value)?,
                Op::Remove(key, answer) => *answer = self.remove(*key)?,
                Op::Shadow(..) => {}
            }
        }
        Ok(())
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
}
