//! DLHT's map and set under measurement. For the map, each 64-bit word is converted to a key or value of the measured
//! size, in a separately allocated record.

use std::hash::Hash;

use allocator_api2::alloc::System;
use icefield::{
    DlhtBuildHasher, DlhtMap, DlhtMapOp, DlhtSet, Global, OnFailure, RecordAllocator, Result, Stats,
};

use crate::adapter::{Adapter, Scratch, Shared, expand};
use crate::prelude::*;

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

/// A map from `K` to values of `N` words. The first word of a value is the word from which the value is derived. The
/// others are zero, so the sum of all words is equal to the first one.
struct Map<K, const N: usize, A: RecordAllocator> {
    map: DlhtMap<K, [u64; N], DlhtBuildHasher, A>,
    /// True if a `get` reads the whole value, not only its first word.
    whole: bool,
}

/// The measured sizes of values, in maps with keys of eight bytes.
pub(crate) const VALUE_BYTES: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
/// The measured sizes of keys, in maps with values of eight bytes.
pub(crate) const KEY_BYTES: [usize; 4] = [8, 16, 32, 64];
/// The size of the values in the comparison of the program's allocator with the C library's.
pub(crate) const ALLOCATED_BYTES: usize = 32;

/// Returns the function that creates a map of these records, if there is one.
fn maker(records: Records) -> Option<fn(Setup) -> Made> {
    Some(match (records.key_bytes, records.value_bytes, records.malloc) {
        (8, 8, false) => |setup| boxed::<u64, 1, _>(setup, Global),
        (8, 16, false) => |setup| boxed::<u64, 2, _>(setup, Global),
        (8, 32, false) => |setup| boxed::<u64, 4, _>(setup, Global),
        (8, 32, true) => |setup| boxed::<u64, 4, _>(setup, System),
        (8, 64, false) => |setup| boxed::<u64, 8, _>(setup, Global),
        (8, 128, false) => |setup| boxed::<u64, 16, _>(setup, Global),
        (8, 256, false) => |setup| boxed::<u64, 32, _>(setup, Global),
        (8, 512, false) => |setup| boxed::<u64, 64, _>(setup, Global),
        (8, 1024, false) => |setup| boxed::<u64, 128, _>(setup, Global),
        (16, 8, false) => |setup| boxed::<[u64; 2], 1, _>(setup, Global),
        (32, 8, false) => |setup| boxed::<[u64; 4], 1, _>(setup, Global),
        (64, 8, false) => |setup| boxed::<[u64; 8], 1, _>(setup, Global),
        _ => return None,
    })
}

/// Returns whether [`create`] supports these records.
pub(crate) fn holds(records: Records) -> bool {
    maker(records).is_some()
}

/// Creates the map described by `setup`.
pub(crate) fn create(setup: Setup) -> Made {
    match maker(setup.records) {
        Some(create) => create(setup),
        None => Err(unsupported("records", format!("{:?}", setup.records))),
    }
}

fn boxed<K: MapKey, const N: usize, A: RecordAllocator>(setup: Setup, allocator: A) -> Made {
    let capacity = usize::try_from(setup.capacity).unwrap_or(usize::MAX);
    let hash = DlhtBuildHasher::default();
    let map = DlhtMap::with_capacity_and_hasher_in(capacity, hash, allocator);
    Ok(Box::new(Shared(Map::<K, N, A> { map, whole: setup.records.whole })))
}

/// Returns the record derived from a key.
#[inline(always)]
fn record<K: MapKey, const N: usize>(key: u64) -> (K, [u64; N]) {
    let mut value = [0; N];
    value[0] = value_of(key);
    (K::of(key), value)
}

/// Returns the word that a value is derived from.
#[inline(always)]
fn first<const N: usize>(value: Option<&[u64; N]>) -> Option<u64> {
    value.map(|value| value[0])
}

impl<K: MapKey, const N: usize, A: RecordAllocator> Map<K, N, A> {
    #[inline(always)]
    fn read(&self, value: Option<&[u64; N]>) -> Option<u64> {
        value.map(|value| match self.whole {
            true => value.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)),
            false => value[0],
        })
    }
}

impl<K: MapKey, const N: usize, A: RecordAllocator> Adapter for Map<K, N, A> {
    type Key = u64;

    #[inline(always)]
    fn one(&self, call: Call, key: u64, _: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        let (map, guard) = (&self.map, self.map.pin());
        if call == Call::Get {
            t.answer(self.read(map.get(&K::of(key), &guard)));
        } else if call == Call::Remove {
            t.answer(first(map.remove(&K::of(key), &guard)));
        } else {
            let (key, value) = record(key);
            match call {
                Call::TryInsert => t.insert(map.try_insert(key, value, &guard).is_ok()),
                Call::Insert => t.insert(map.insert(key, value, &guard).is_none()),
                Call::Update => t.answer(first(map.update(key, value, &guard))),
                _ => {
                    map.insert(key, value, &guard);
                    t.insert(true);
                }
            }
        }
        Ok(())
    }

    fn many(&self, call: Call, keys: &[u64], _: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        let (map, guard) = (&self.map, self.map.pin());
        if matches!(call, Call::Get | Call::Remove) {
            let own: Vec<K> = keys.iter().copied().map(K::of).collect();
            let (own, mut found): (Vec<&K>, _) = (own.iter().collect(), vec![None; keys.len()]);
            if call == Call::Get {
                map.get_batch(&own, &mut found, &guard);
                found.into_iter().for_each(|value| t.answer(self.read(value)));
            } else {
                map.remove_batch(&own, &mut found, &guard);
                found.into_iter().for_each(|value| t.answer(first(value)));
            }
            return Ok(());
        }
        let records = keys.iter().copied().map(record);
        match call {
            Call::TryInsert => {
                let outcomes = map.try_insert_batch(records, &guard);
                outcomes.iter().for_each(|outcome| t.insert(outcome.is_ok()));
            }
            Call::Update => {
                let values = map.update_batch(records, &guard);
                values.into_iter().for_each(|value| t.answer(first(value)));
            }
            call => {
                let before = map.insert_batch(records, &guard);
                let is_new = |value: &Option<_>| call == Call::Put || value.is_none();
                before.iter().for_each(|value| t.insert(is_new(value)));
            }
        }
        Ok(())
    }

    fn mixed(&self, ops: &[Mixed], _: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        let keys: Vec<K> = ops.iter().map(|op| K::of(op.key)).collect();
        let mut calls: Vec<(Call, DlhtMapOp<'_, '_, K, [u64; N]>)> = Vec::new();
        for (op, own) in ops.iter().zip(&keys) {
            expand(*op, |call, word| {
                let (key, value) = record(word);
                calls.push((
                    call,
                    match call {
                        Call::Get => DlhtMapOp::get(own),
                        Call::Remove => DlhtMapOp::remove(own),
                        Call::TryInsert => DlhtMapOp::try_insert(key, value),
                        Call::Update => DlhtMapOp::update(key, value),
                        _ => DlhtMapOp::insert(key, value),
                    },
                ));
            });
        }
        let (kinds, mut calls): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let guard = self.map.pin();
        self.map.execute(&mut calls, OnFailure::Continue, &guard);
        for (kind, done) in kinds.into_iter().zip(&calls) {
            match kind {
                Call::Get => t.answer(self.read(done.value())),
                Call::Update | Call::Remove => t.answer(first(done.value())),
                Call::Put => t.insert(true),
                _ => t.insert(done.value().is_none()),
            }
        }
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.map.stats()
    }
}

/// A set under measurement: it counts hits and has no values.
pub(crate) struct Keys(pub DlhtSet<u64>);

/// The calls that a set supports.
pub(crate) const SET_CALLS: &[Call] =
    &[Call::Get, Call::GetMiss, Call::TryInsert, Call::Remove, Call::InsDel];

impl Adapter for Keys {
    type Key = u64;

    #[inline(always)]
    fn one(&self, call: Call, key: u64, _: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        t.insert(match call {
            Call::Get => self.0.contains(key),
            Call::TryInsert => self.0.insert(key),
            _ => self.0.remove(key),
        });
        Ok(())
    }

    fn many(&self, call: Call, keys: &[u64], s: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        let answers = &mut s.flags;
        answers.clear();
        answers.resize(keys.len(), false);
        match call {
            Call::Get => self.0.contains_batch(keys, answers),
            Call::TryInsert => self.0.insert_batch(keys, answers),
            _ => self.0.remove_batch(keys, answers),
        }
        answers.iter().for_each(|answer| t.insert(*answer));
        Ok(())
    }

    fn answers(&self) -> Answers {
        Answers::Hits
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }
}
