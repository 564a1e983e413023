//! DLHT's map under measurement: each 64-bit word is turned into a key or value of any size, in separate records.

use std::hash::Hash;

use allocator_api2::alloc::System;
use icefield::{
    DlhtBuildHasher, DlhtMap, DlhtMapOp, Error, Global, Occupied, OnFailure, Op, RecordAllocator,
    Result, Stats, TryInsert,
};

use crate::ours::{Calls, Ours};
use crate::table::{Allocation, BenchTable, Records, Setup};

/// A key type that is derived from a word.
pub(crate) trait MapKey: Hash + Eq + Send + Sync + 'static {
    fn of(word: u64) -> Self;
}

impl MapKey for u64 {
    #[inline(always)]
    fn of(word: u64) -> Self {
        word
    }
}

/// A longer key: the word, repeated.
impl<const N: usize> MapKey for [u64; N] {
    #[inline(always)]
    fn of(word: u64) -> Self {
        [word; N]
    }
}

/// A map from `K` to values of `N` words. The first word of a value is the word it is derived from, the others are
/// zero, so the sum of all equals that word.
struct Map<K, const N: usize, A: RecordAllocator> {
    map: DlhtMap<K, [u64; N], DlhtBuildHasher, A>,
    /// True if gets read the whole value and not only its first word.
    whole: bool,
}

/// The measured sizes of values, with keys of eight bytes; and of keys, with values of eight bytes.
pub(crate) const VALUE_BYTES: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
pub(crate) const KEY_BYTES: [usize; 4] = [8, 16, 32, 64];
/// The size of the values that another allocator can hold.
pub(crate) const ALLOCATED_BYTES: usize = 32;

/// Returns whether [`create`] supports these records.
pub(crate) fn holds(records: Records) -> bool {
    let (key, value) = (records.key_bytes, records.value_bytes);
    match records.allocation {
        Allocation::Global if key == 8 => VALUE_BYTES.contains(&value),
        Allocation::Global => KEY_BYTES.contains(&key) && value == 8,
        Allocation::Malloc => (key, value) == (8, ALLOCATED_BYTES),
    }
}

/// Creates the map described by `setup`.
pub(crate) fn create(setup: Setup) -> Result<Box<dyn BenchTable>> {
    let Records { key_bytes, value_bytes, allocation, .. } = setup.records;
    Ok(match (key_bytes, value_bytes, allocation) {
        (8, 8, Allocation::Global) => boxed::<u64, 1, _>(setup, Global),
        (8, 16, Allocation::Global) => boxed::<u64, 2, _>(setup, Global),
        (8, 32, Allocation::Global) => boxed::<u64, 4, _>(setup, Global),
        (8, 32, Allocation::Malloc) => boxed::<u64, 4, _>(setup, System),
        (8, 64, Allocation::Global) => boxed::<u64, 8, _>(setup, Global),
        (8, 128, Allocation::Global) => boxed::<u64, 16, _>(setup, Global),
        (8, 256, Allocation::Global) => boxed::<u64, 32, _>(setup, Global),
        (8, 512, Allocation::Global) => boxed::<u64, 64, _>(setup, Global),
        (8, 1024, Allocation::Global) => boxed::<u64, 128, _>(setup, Global),
        (16, 8, Allocation::Global) => boxed::<[u64; 2], 1, _>(setup, Global),
        (32, 8, Allocation::Global) => boxed::<[u64; 4], 1, _>(setup, Global),
        (64, 8, Allocation::Global) => boxed::<[u64; 8], 1, _>(setup, Global),
        _ => {
            let detail = format!("keys of {key_bytes} and values of {value_bytes} bytes");
            return Err(Error::InvalidOption { option: "records", detail });
        }
    })
}

fn boxed<K: MapKey, const N: usize, A: RecordAllocator>(
    setup: Setup,
    allocator: A,
) -> Box<dyn BenchTable> {
    let (capacity, hash) = (setup.capacity, DlhtBuildHasher::default());
    let map = DlhtMap::with_capacity_and_hasher_in(capacity, hash, allocator);
    Box::new(Ours(Map::<K, N, A> { map, whole: setup.records.whole }))
}

/// Returns the value derived from `word`.
#[inline(always)]
fn value<const N: usize>(word: u64) -> [u64; N] {
    let mut value = [0; N];
    value[0] = word;
    value
}

/// Returns the word that a value is derived from.
#[inline(always)]
fn word<const N: usize>(value: &[u64; N]) -> u64 {
    value[0]
}

/// Does the same for an optional value.
#[inline(always)]
fn words<const N: usize>(value: Option<&[u64; N]>) -> Option<u64> {
    value.map(word)
}

impl<K: MapKey, const N: usize, A: RecordAllocator> Map<K, N, A> {
    #[inline(always)]
    fn read(&self, value: Option<&[u64; N]>) -> Option<u64> {
        value.map(|value| match self.whole {
            true => value.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)),
            false => word(value),
        })
    }

    /// Makes `call` for an array of keys and returns its answers.
    #[inline(always)]
    fn all<'g>(
        &self,
        keys: &[u64],
        call: impl FnOnce(&[&K], &mut [Option<&'g [u64; N]>]),
    ) -> Vec<Option<&'g [u64; N]>> {
        let keys: Vec<K> = keys.iter().copied().map(K::of).collect();
        let keys: Vec<&K> = keys.iter().collect();
        let mut found = vec![None; keys.len()];
        call(&keys, &mut found);
        found
    }

    /// Returns the records derived from pairs of words.
    fn records(pairs: &[(u64, u64)]) -> impl Iterator<Item = (K, [u64; N])> {
        pairs.iter().map(|&(key, word)| (K::of(key), value(word)))
    }

    /// Returns the map's operation that corresponds to an operation on words.
    fn op_of<'q, 'g>(op: &Op<'_, u64, u64>, key: &'q K) -> Result<DlhtMapOp<'q, 'g, K, [u64; N]>> {
        let own = || K::of(op.key());
        Ok(match op {
            Op::Get(..) => DlhtMapOp::get(key),
            Op::Remove(..) => DlhtMapOp::remove(key),
            Op::TryInsert(_, word, _) => DlhtMapOp::try_insert(own(), value(*word)),
            Op::Insert(_, word, _) | Op::Put(_, word) => DlhtMapOp::insert(own(), value(*word)),
            Op::Update(_, word, _) => DlhtMapOp::update(own(), value(*word)),
            Op::Shadow(..) => {
                return Err(Error::Unsupported("a map has no shadow inserts".to_owned()));
            }
        })
    }

    fn fill_in(&self, op: &mut Op<'_, u64, u64>, done: &DlhtMapOp<'_, '_, K, [u64; N]>) {
        match op {
            Op::Get(_, found) => *found = self.read(done.value()),
            Op::Insert(.., before) | Op::Update(.., before) | Op::Remove(_, before) => {
                *before = words(done.value());
            }
            Op::TryInsert(.., outcome) => {
                *outcome = words(done.value()).map_or(Ok(()), |present| Err(Occupied(present)));
            }
            Op::Put(..) | Op::Shadow(..) => {}
        }
    }
}

impl<K: MapKey, const N: usize, A: RecordAllocator> Calls for Map<K, N, A> {
    #[inline(always)]
    fn get(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.read(self.map.get(&K::of(key), &self.map.pin())))
    }

    #[inline(always)]
    fn try_insert(&self, key: u64, word: u64) -> Result<TryInsert<u64>> {
        let guard = self.map.pin();
        let outcome = self.map.try_insert(K::of(key), value(word), &guard);
        Ok(outcome.map_err(|Occupied(present)| Occupied(present[0])))
    }

    #[inline(always)]
    fn insert(&self, key: u64, word: u64) -> Result<Option<u64>> {
        Ok(words(self.map.insert(K::of(key), value(word), &self.map.pin())))
    }

    #[inline(always)]
    fn put(&self, key: u64, word: u64) -> Result<()> {
        self.insert(key, word).map(drop)
    }

    #[inline(always)]
    fn update(&self, key: u64, word: u64) -> Result<Option<u64>> {
        Ok(words(self.map.update(K::of(key), value(word), &self.map.pin())))
    }

    #[inline(always)]
    fn remove(&self, key: u64) -> Result<Option<u64>> {
        Ok(words(self.map.remove(&K::of(key), &self.map.pin())))
    }

    fn get_batch(&self, keys: &[u64], found: &mut [Option<u64>]) -> Result<()> {
        let guard = self.map.pin();
        let values = self.all(keys, |keys, found| self.map.get_batch(keys, found, &guard));
        found.iter_mut().zip(values).for_each(|(found, value)| *found = self.read(value));
        Ok(())
    }

    fn insert_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        let guard = self.map.pin();
        let values = self.map.insert_batch(Self::records(pairs), &guard);
        previous.iter_mut().zip(values).for_each(|(previous, value)| *previous = words(value));
        Ok(())
    }

    fn put_batch(&self, pairs: &[(u64, u64)]) -> Result<()> {
        self.map.insert_batch(Self::records(pairs), &self.map.pin());
        Ok(())
    }

    fn update_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        let guard = self.map.pin();
        let values = self.map.update_batch(Self::records(pairs), &guard);
        previous.iter_mut().zip(values).for_each(|(previous, value)| *previous = words(value));
        Ok(())
    }

    fn try_insert_batch(
        &self,
        pairs: &[(u64, u64)],
        outcomes: &mut [TryInsert<u64>],
    ) -> Result<()> {
        let guard = self.map.pin();
        let all = self.map.try_insert_batch(Self::records(pairs), &guard);
        for (outcome, present) in outcomes.iter_mut().zip(all) {
            *outcome = present.map_err(|Occupied(present)| Occupied(present[0]));
        }
        Ok(())
    }

    fn remove_batch(&self, keys: &[u64], removed: &mut [Option<u64>]) -> Result<()> {
        let guard = self.map.pin();
        let values = self.all(keys, |keys, removed| self.map.remove_batch(keys, removed, &guard));
        removed.iter_mut().zip(values).for_each(|(removed, value)| *removed = words(value));
        Ok(())
    }

    fn execute(&self, ops: &mut [Op<'_, u64, u64>]) -> Result<()> {
        let keys: Vec<K> = ops.iter().map(|op| K::of(op.key())).collect();
        let own = ops.iter().zip(&keys).map(|(op, key)| Self::op_of(op, key));
        let (mut own, guard) = (own.collect::<Result<Vec<_>>>()?, self.map.pin());
        self.map.execute(&mut own, OnFailure::Continue, &guard);
        ops.iter_mut().zip(&own).for_each(|(op, done)| self.fill_in(op, done));
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.map.stats()
    }
}
