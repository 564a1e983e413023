//! Maps of records with the interface of the other tables.

use std::hash::{BuildHasher, Hasher};

use icefield::{
    Computed, Cursor, Decision, DlhtBuildHasher, DlhtMapOp, DlhtMapShadow, DlhtRecordMap, Error,
    Global, Interleaved, NotShadowed, Occupied, OnFailure, Op, Page, Refused, Result, Stats, Table,
    TryInsert,
};

use super::held::Shadowing;
use super::turns::Batons;
use crate::rng::mix;
use crate::subject::{FOREIGN, Sample, Seen};

type Bytes = Vec<u8>;
type Turns = Interleaved<Batons>;
type Map<S> = DlhtRecordMap<Bytes, Bytes, S, Global, Turns>;

/// A map of byte strings whose threads take turns.
#[derive(Debug)]
pub struct DlhtRecords(Map<Spread>);

impl DlhtRecords {
    /// Creates a map whose shape `seed` determines.
    ///
    /// # Errors
    /// Returns an error if memory is exhausted.
    pub fn new(seed: u64) -> Result<Self> {
        let ratio = [0.125, 0.0, 1.0, 3.0][(seed / 7 % 4) as usize];
        Map::<DlhtBuildHasher>::options()
            .hasher(Spread::new(seed))
            .link_ratio(ratio)
            .geometry((seed % 3) as u32, 1 + (seed / 3 % 2) as u32)
            .build()
            .map(Self)
    }

    /// Returns whether different keys have equal hashes. A shadow insert of one then refuses the others.
    pub(super) fn is_crowded(&self) -> bool {
        self.0.hasher().mask != u64::MAX
    }

    /// Returns all records of a snapshot.
    ///
    /// # Errors
    /// Returns the table's error.
    pub(super) fn snapshot(&self) -> Result<Option<Seen>> {
        let guard = self.0.pin();
        let snapshot = self.0.try_snapshot(&guard)?;
        Ok(Some(snapshot.iter().map(|(key, value)| (number(key), number(value))).collect()))
    }
}

fn number(bytes: &Bytes) -> u64 {
    <[u8]>::number(bytes).unwrap_or(FOREIGN)
}

/// A hash function with good results, or with few different ones.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    seed: u64,
    mask: u64,
}

impl Spread {
    fn new(seed: u64) -> Self {
        Self { seed, mask: [7, 0, u64::MAX, u64::MAX][(seed % 4) as usize] }
    }
}

impl BuildHasher for Spread {
    type Hasher = Spreading;

    fn build_hasher(&self) -> Spreading {
        Spreading { state: self.seed, mask: self.mask }
    }
}

pub(super) struct Spreading {
    state: u64,
    mask: u64,
}

impl Hasher for Spreading {
    fn write(&mut self, bytes: &[u8]) {
        let mixed = |state: u64, &byte: &u8| mix(state ^ u64::from(byte));
        self.state = bytes.iter().fold(self.state, mixed);
    }
    fn finish(&self) -> u64 {
        self.state & self.mask
    }
}

fn error_of(refused: Refused<Bytes, Bytes>) -> Error {
    refused.error
}

fn occupied(outcome: std::result::Result<(), Occupied<&Bytes>>) -> TryInsert<[u8]> {
    outcome.map_err(|present| Occupied(present.0.clone()))
}

fn owned(records: &[(&[u8], &[u8])]) -> Vec<(Bytes, Bytes)> {
    records.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn fill(results: &mut [Option<Bytes>], found: &[Option<&Bytes>]) {
    for (result, found) in results.iter_mut().zip(found) {
        *result = found.cloned();
    }
}

fn same_length(operations: usize, results: usize) -> Result<()> {
    if operations == results {
        return Ok(());
    }
    Err(Error::InvalidOption { option: "results", detail: "one for each operation".to_owned() })
}

impl Table for DlhtRecords {
    type Key = [u8];
    type Value = [u8];

    fn get_with<R>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.0.get_with(key, |value| f(value)))
    }
    fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.0.contains(key))
    }
    fn try_insert(&self, key: &[u8], value: &[u8]) -> Result<TryInsert<[u8]>> {
        let guard = self.0.pin();
        let outcome = self.0.checked_try_insert(key.to_vec(), value.to_vec(), &guard);
        outcome.map(occupied).map_err(error_of)
    }
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<Option<Bytes>> {
        let guard = self.0.pin();
        let before = self.0.checked_insert(key.to_vec(), value.to_vec(), &guard);
        before.map(Option::<&Bytes>::cloned).map_err(error_of)
    }
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.checked_put(key.to_vec(), value.to_vec()).map_err(error_of)
    }
    fn update(&self, key: &[u8], value: &[u8]) -> Result<Option<Bytes>> {
        let guard = self.0.pin();
        let before = self.0.checked_update(key.to_vec(), value.to_vec(), &guard);
        before.map(Option::<&Bytes>::cloned).map_err(error_of)
    }
    fn remove(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let guard = self.0.pin();
        Ok(self.0.remove(key, &guard).cloned())
    }
    fn delete(&self, key: &[u8]) -> Result<()> {
        self.0.delete(key);
        Ok(())
    }
    fn compute(
        &self,
        key: &[u8],
        mut f: impl FnMut(Option<&[u8]>) -> Decision<Bytes>,
    ) -> Result<Computed<Bytes>> {
        let guard = self.0.pin();
        let rule = |value: Option<&Bytes>| f(value.map(Vec::as_slice));
        let computed = self.0.checked_compute(key.to_vec(), rule, &guard)?;
        Ok(match computed {
            Computed::Kept(value) => Computed::Kept(value.cloned()),
            Computed::Put(value) => Computed::Put(value.cloned()),
            Computed::Removed(value) => Computed::Removed(value.cloned()),
        })
    }
    fn len(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }
    fn capacity(&self) -> u64 {
        self.0.capacity() as u64
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
    fn scan(&self, cursor: Cursor, n: usize) -> Result<Page<[u8], [u8]>> {
        let guard = self.0.pin();
        let page = self.0.scan(cursor, n, &guard);
        let records = page.records.into_iter().map(|(key, value)| (key.clone(), value.clone()));
        Ok(Page { records: records.collect(), next: page.next })
    }
    fn clear(&self) -> Result<()> {
        self.0.try_clear()
    }
    fn reserve(&self, additional: u64) -> Result<()> {
        self.0.try_reserve(additional as usize)
    }
    fn shrink_to_fit(&self) -> Result<()> {
        self.0.try_shrink_to_fit()
    }
    fn get_batch(&self, keys: &[&[u8]], results: &mut [Option<Bytes>]) -> Result<()> {
        same_length(keys.len(), results.len())?;
        let (guard, mut found) = (self.0.pin(), vec![None; keys.len()]);
        self.0.get_batch(keys, &mut found, &guard);
        fill(results, &found);
        Ok(())
    }
    fn insert_batch(
        &self,
        records: &[(&[u8], &[u8])],
        results: &mut [Option<Bytes>],
    ) -> Result<()> {
        same_length(records.len(), results.len())?;
        let guard = self.0.pin();
        fill(results, &self.0.insert_batch(owned(records), &guard));
        Ok(())
    }
    fn put_batch(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.0.insert_batch(owned(records), &self.0.pin());
        Ok(())
    }
    fn update_batch(
        &self,
        records: &[(&[u8], &[u8])],
        results: &mut [Option<Bytes>],
    ) -> Result<()> {
        same_length(records.len(), results.len())?;
        let guard = self.0.pin();
        fill(results, &self.0.update_batch(owned(records), &guard));
        Ok(())
    }
    fn try_insert_batch(
        &self,
        records: &[(&[u8], &[u8])],
        outcomes: &mut [TryInsert<[u8]>],
    ) -> Result<()> {
        same_length(records.len(), outcomes.len())?;
        let guard = self.0.pin();
        let made = self.0.try_insert_batch(owned(records), &guard);
        outcomes.iter_mut().zip(made).for_each(|(outcome, made)| *outcome = occupied(made));
        Ok(())
    }
    fn remove_batch(&self, keys: &[&[u8]], results: &mut [Option<Bytes>]) -> Result<()> {
        same_length(keys.len(), results.len())?;
        let (guard, mut removed) = (self.0.pin(), vec![None; keys.len()]);
        self.0.remove_batch(keys, &mut removed, &guard);
        fill(results, &removed);
        Ok(())
    }
    fn execute(&self, ops: &mut [Op<'_, [u8], [u8]>], on_failure: OnFailure) -> Result<usize> {
        let guard = self.0.pin();
        let mut asked = ops.iter().map(op_of).collect::<Result<Vec<_>>>()?;
        let ran = self.0.checked_execute(&mut asked, on_failure, &guard);
        for (op, ran) in ops.iter_mut().zip(&asked).take_while(|(_, ran)| ran.has_run()) {
            let before = ran.value().cloned();
            match op {
                Op::Get(_, value)
                | Op::Insert(_, _, value)
                | Op::Update(_, _, value)
                | Op::Remove(_, value) => *value = before,
                Op::TryInsert(_, _, outcome) => {
                    *outcome = before.map_or(Ok(()), |value| Err(Occupied(value)))
                }
                Op::Put(..) | Op::Shadow(..) => {}
            }
        }
        ran
    }
    fn prefetch(&self, key: &[u8]) {
        self.0.prefetch(key);
    }
}

fn op_of<'q, 'g>(op: &Op<'q, [u8], [u8]>) -> Result<DlhtMapOp<'q, 'g, Bytes, Bytes, [u8]>> {
    Ok(match *op {
        Op::Get(key, _) => DlhtMapOp::get(key),
        Op::Remove(key, _) => DlhtMapOp::remove(key),
        Op::TryInsert(key, value, _) => DlhtMapOp::try_insert(key.to_vec(), value.to_vec()),
        Op::Insert(key, value, _) | Op::Put(key, value) => {
            DlhtMapOp::insert(key.to_vec(), value.to_vec())
        }
        Op::Update(key, value, _) => DlhtMapOp::update(key.to_vec(), value.to_vec()),
        Op::Shadow(..) => return Err(Error::Unsupported("shadow inserts in batches".to_owned())),
    })
}

impl Shadowing for DlhtRecords {
    type Shadow<'a> = DlhtMapShadow<'a, Bytes, Bytes, Spread, Global, Turns>;

    fn shadow(
        &self,
        key: u64,
        value: u64,
    ) -> std::result::Result<Self::Shadow<'_>, NotShadowed<u64>> {
        let guard = self.0.pin();
        let made = self.0.try_insert_shadow(<[u8]>::sample(key), <[u8]>::sample(value), &guard);
        made.map_err(|refused| match refused {
            NotShadowed::Occupied(value) => NotShadowed::Occupied(number(value)),
            NotShadowed::Shadowed => NotShadowed::Shadowed,
        })
    }
    fn record(shadow: &Self::Shadow<'_>) -> (u64, u64) {
        (number(shadow.key()), number(shadow.value()))
    }
    fn commit(shadow: Self::Shadow<'_>) {
        shadow.commit();
    }
}
