//! Sets with the interface of the other tables. All keys have the value [`VALUE`].

use icefield::{
    Computed, Cursor, Decision, DlhtSetShadow, DlhtWordSet, Error, Interleaved, NotShadowed,
    Occupied, OnFailure, Op, Page, Result, Stats, Table, TryInsert,
};

use super::held::Shadowing;
use super::tiny;
use super::turns::Batons;
use crate::subject::Seen;

/// The value of all keys: an even number, so that [`Rule::RemoveEven`](crate::call::Rule::RemoveEven) removes them.
pub(super) const VALUE: u64 = 300;

type Turns = Interleaved<Batons>;

/// A set whose threads take turns.
#[derive(Debug)]
pub struct DlhtKeys(DlhtWordSet<u64, Turns>);

impl DlhtKeys {
    /// Creates a tiny set whose shape `seed` determines.
    ///
    /// # Errors
    /// Returns an error if memory is exhausted.
    pub fn new(seed: u64) -> Result<Self> {
        tiny::<DlhtWordSet<u64, Turns>>(seed).build().map(Self)
    }

    /// Returns all keys of a snapshot.
    ///
    /// # Errors
    /// Returns the set's error.
    pub(super) fn snapshot(&self) -> Result<Option<Seen>> {
        Ok(Some(self.0.try_snapshot()?.iter().map(|key| (key, VALUE)).collect()))
    }

    fn insert_all(&self, keys: &[u64]) -> Result<Vec<bool>> {
        let mut inserted = vec![false; keys.len()];
        self.0.checked_insert_batch(keys, &mut inserted)?;
        Ok(inserted)
    }
}

fn value_if(present: bool) -> Option<u64> {
    present.then_some(VALUE)
}

fn keys_of(records: &[(u64, u64)]) -> Vec<u64> {
    records.iter().map(|&(key, _)| key).collect()
}

fn fill(results: &mut [Option<u64>], present: impl IntoIterator<Item = bool>) {
    results.iter_mut().zip(present).for_each(|(result, present)| *result = value_if(present));
}

impl Table for DlhtKeys {
    type Key = u64;
    type Value = u64;

    fn get_with<R>(&self, key: u64, f: impl FnOnce(&u64) -> R) -> Result<Option<R>> {
        Ok(value_if(self.0.contains(key)).as_ref().map(f))
    }
    fn try_insert(&self, key: u64, _: u64) -> Result<TryInsert<u64>> {
        Ok(if self.0.checked_insert(key)? { Ok(()) } else { Err(Occupied(VALUE)) })
    }
    fn insert(&self, key: u64, _: u64) -> Result<Option<u64>> {
        Ok(value_if(!self.0.checked_insert(key)?))
    }
    fn put(&self, key: u64, _: u64) -> Result<()> {
        self.0.checked_insert(key).map(drop)
    }
    /// A value never changes, so this is a read.
    fn update(&self, key: u64, _: u64) -> Result<Option<u64>> {
        self.get(key)
    }
    fn remove(&self, key: u64) -> Result<Option<u64>> {
        Ok(value_if(self.0.remove(key)))
    }
    fn delete(&self, key: u64) -> Result<()> {
        self.0.remove(key);
        Ok(())
    }
    /// Makes the one call of a set that does what `f` decides for an absent and for a present key.
    fn compute(
        &self,
        key: u64,
        mut f: impl FnMut(Option<&u64>) -> Decision<u64>,
    ) -> Result<Computed<u64>> {
        let (if_absent, if_present) = (f(None), f(Some(&VALUE)));
        let before = match (&if_absent, &if_present) {
            (Decision::Put(_), Decision::Remove) => {
                return Err(Error::Unsupported("a set has no such call".to_owned()));
            }
            (Decision::Put(_), _) => !self.0.checked_insert(key)?,
            (_, Decision::Remove) => self.0.remove(key),
            (_, _) => self.0.contains(key),
        };
        let before = value_if(before);
        Ok(match if before.is_some() { if_present } else { if_absent } {
            Decision::Keep => Computed::Kept(before),
            Decision::Put(_) => Computed::Put(before),
            Decision::Remove => Computed::Removed(before),
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
    fn scan(&self, cursor: Cursor, n: usize) -> Result<Page<u64, u64>> {
        let page = self.0.scan(cursor, n);
        let records = page.keys.into_iter().map(|key| (key, VALUE)).collect();
        Ok(Page { records, next: page.next })
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
    fn get_batch(&self, keys: &[u64], found: &mut [Option<u64>]) -> Result<()> {
        let mut present = vec![false; keys.len()];
        self.0.contains_batch(keys, &mut present);
        fill(found, present);
        Ok(())
    }
    fn insert_batch(&self, records: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        let inserted = self.insert_all(&keys_of(records))?;
        fill(previous, inserted.into_iter().map(|inserted| !inserted));
        Ok(())
    }
    fn put_batch(&self, records: &[(u64, u64)]) -> Result<()> {
        self.insert_all(&keys_of(records)).map(drop)
    }
    fn update_batch(&self, records: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        self.get_batch(&keys_of(records), previous)
    }
    fn try_insert_batch(
        &self,
        records: &[(u64, u64)],
        outcomes: &mut [TryInsert<u64>],
    ) -> Result<()> {
        for (outcome, inserted) in outcomes.iter_mut().zip(self.insert_all(&keys_of(records))?) {
            *outcome = if inserted { Ok(()) } else { Err(Occupied(VALUE)) };
        }
        Ok(())
    }
    fn remove_batch(&self, keys: &[u64], removed: &mut [Option<u64>]) -> Result<()> {
        let mut present = vec![false; keys.len()];
        self.0.remove_batch(keys, &mut present);
        fill(removed, present);
        Ok(())
    }
    /// A set has no mixed batches: runs one operation after the other.
    fn execute(&self, ops: &mut [Op<'_, u64, u64>], on_failure: OnFailure) -> Result<usize> {
        for (at, op) in ops.iter_mut().enumerate() {
            let failed = match op {
                Op::Get(key, value) | Op::Update(key, _, value) => {
                    *value = self.get(*key)?;
                    value.is_none()
                }
                Op::Remove(key, value) => {
                    *value = self.remove(*key)?;
                    value.is_none()
                }
                Op::TryInsert(key, value, outcome) => {
                    *outcome = self.try_insert(*key, *value)?;
                    outcome.is_err()
                }
                Op::Insert(key, value, previous) => {
                    *previous = self.insert(*key, *value)?;
                    false
                }
                Op::Put(key, value) => {
                    self.put(*key, *value)?;
                    false
                }
                Op::Shadow(..) => {
                    return Err(Error::Unsupported("shadow inserts in batches".to_owned()));
                }
            };
            if failed && on_failure == OnFailure::Stop {
                return Ok(at + 1);
            }
        }
        Ok(ops.len())
    }
    fn prefetch(&self, key: u64) {
        self.0.prefetch(key);
    }
}

impl Shadowing for DlhtKeys {
    type Shadow<'a> = DlhtSetShadow<'a, u64, Turns>;

    fn shadow(&self, key: u64, _: u64) -> std::result::Result<Self::Shadow<'_>, NotShadowed<u64>> {
        self.0.try_insert_shadow(key).map_err(|refused| match refused {
            NotShadowed::Occupied(()) => NotShadowed::Occupied(VALUE),
            NotShadowed::Shadowed => NotShadowed::Shadowed,
        })
    }
    fn record(shadow: &Self::Shadow<'_>) -> (u64, u64) {
        (shadow.key(), VALUE)
    }
    fn commit(shadow: Self::Shadow<'_>) {
        shadow.commit();
    }
}
