//! DLHT's map and set under measurement. For the map, each 64-bit word is converted to a key or value of the measured
//! size, in a separately allocated record.

use std::hash::{Hash, Hasher};

use allocator_api2::alloc::System;
use icefield::{
    DlhtBuildHasher, DlhtMap, DlhtMapOp, DlhtNamespace, DlhtSet, Global, OnFailure,
    RecordAllocator, Result, Stats,
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

/// A key of up to eight bytes: those of the word without the zeros at the end.
#[derive(PartialEq, Eq)]
pub(crate) struct ShortKey {
    len: u8,
    bytes: [u8; 8],
}

impl Hash for ShortKey {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.bytes[..usize::from(self.len)]);
    }
}

impl MapKey for ShortKey {
    #[inline(always)]
    fn of(word: u64) -> Self {
        Self { len: 8 - (word.leading_zeros() / 8) as u8, bytes: word.to_le_bytes() }
    }
}

/// A value type: the first word is the one from which the value is derived. The others are zero, so the sum of all
/// words is equal to the first one.
pub(crate) trait MapValue: Send + Sync + 'static {
    fn of(word: u64) -> Self;
    fn words(&self) -> &[u64];
}

impl<const N: usize> MapValue for [u64; N] {
    #[inline(always)]
    fn of(word: u64) -> Self {
        let mut value = [0; N];
        value[0] = word;
        value
    }

    #[inline(always)]
    fn words(&self) -> &[u64] {
        self
    }
}

/// A value of 8 to 56 bytes, 32 on average, depending on the word.
impl MapValue for Box<[u64]> {
    #[inline(always)]
    fn of(word: u64) -> Self {
        let mut value = vec![0; (word % 7) as usize + 1];
        value[0] = word;
        value.into()
    }

    #[inline(always)]
    fn words(&self) -> &[u64] {
        self
    }
}

/// The records of one namespace of a map.
struct Map<K, V, A: RecordAllocator, const NAMESPACE: u16> {
    map: DlhtMap<K, V, DlhtBuildHasher, A>,
    /// True if a `get` reads the whole value, not only its first word.
    whole: bool,
}

/// The measured sizes of values, in maps with keys of eight bytes. The paper's largest value has 1500 bytes.
pub(crate) const VALUE_BYTES: [usize; 9] = [8, 16, 32, 64, 128, 256, 512, 1024, 1504];
/// The measured sizes of keys, in maps with values of eight bytes.
pub(crate) const KEY_BYTES: [usize; 6] = [8, 16, 32, 64, 128, 256];
/// The size of the values, or their mean size, in the comparison of the forms of records.
pub(crate) const FORM_BYTES: usize = 32;

/// Returns the function that creates a map of these records, if there is one.
fn maker(records: Records) -> Option<fn(Setup) -> Made> {
    Some(match (records.key_bytes, records.value_bytes, records.form) {
        (8, 8, Form::Plain) => |setup| plain::<u64, 1>(setup),
        (8, 16, Form::Plain) => |setup| plain::<u64, 2>(setup),
        (8, 32, Form::Plain) => |setup| plain::<u64, 4>(setup),
        (8, 64, Form::Plain) => |setup| plain::<u64, 8>(setup),
        (8, 128, Form::Plain) => |setup| plain::<u64, 16>(setup),
        (8, 256, Form::Plain) => |setup| plain::<u64, 32>(setup),
        (8, 512, Form::Plain) => |setup| plain::<u64, 64>(setup),
        (8, 1024, Form::Plain) => |setup| plain::<u64, 128>(setup),
        (8, 1504, Form::Plain) => |setup| plain::<u64, 188>(setup),
        (16, 8, Form::Plain) => |setup| plain::<[u64; 2], 1>(setup),
        (32, 8, Form::Plain) => |setup| plain::<[u64; 4], 1>(setup),
        (64, 8, Form::Plain) => |setup| plain::<[u64; 8], 1>(setup),
        (128, 8, Form::Plain) => |setup| plain::<[u64; 16], 1>(setup),
        (256, 8, Form::Plain) => |setup| plain::<[u64; 32], 1>(setup),
        (8, 32, Form::Values) => |setup| make::<u64, Box<[u64]>, _, 0>(setup, Global),
        (8, 32, Form::Keys) => |setup| make::<ShortKey, [u64; 4], _, 0>(setup, Global),
        (8, 32, Form::Namespace) => |setup| make::<u64, [u64; 4], _, 1>(setup, Global),
        (8, 32, Form::Malloc) => |setup| make::<u64, [u64; 4], _, 0>(setup, System),
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

fn plain<K: MapKey, const N: usize>(setup: Setup) -> Made {
    make::<K, [u64; N], _, 0>(setup, Global)
}

fn make<K: MapKey, V: MapValue, A: RecordAllocator, const NAMESPACE: u16>(
    setup: Setup,
    allocator: A,
) -> Made {
    let capacity = usize::try_from(setup.capacity).unwrap_or(usize::MAX);
    let hash = DlhtBuildHasher::default();
    let map = DlhtMap::with_capacity_and_hasher_in(capacity, hash, allocator);
    Ok(Box::new(Shared(Map::<K, V, A, NAMESPACE> { map, whole: setup.records.whole })))
}

/// Returns the record derived from a key.
#[inline(always)]
fn record<K: MapKey, V: MapValue>(key: u64) -> (K, V) {
    (K::of(key), V::of(value_of(key)))
}

/// Returns the word that a value is derived from.
#[inline(always)]
fn first<V: MapValue>(value: Option<&V>) -> Option<u64> {
    value.map(|value| value.words()[0])
}

impl<K: MapKey, V: MapValue, A: RecordAllocator, const NAMESPACE: u16> Map<K, V, A, NAMESPACE> {
    #[inline(always)]
    fn records(&self) -> Result<DlhtNamespace<'_, K, V, DlhtBuildHasher, A>> {
        self.map.namespace(NAMESPACE)
    }

    #[inline(always)]
    fn read(&self, value: Option<&V>) -> Option<u64> {
        value.map(|value| match self.whole {
            true => value.words().iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)),
            false => value.words()[0],
        })
    }
}

impl<K: MapKey, V: MapValue, A: RecordAllocator, const NAMESPACE: u16> Adapter
    for Map<K, V, A, NAMESPACE>
{
    type Key = u64;

    #[inline(always)]
    fn one(&self, call: Call, key: u64, _: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        let (map, guard) = (self.records()?, self.map.pin());
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
        let (map, guard) = (self.records()?, self.map.pin());
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
        let mut calls: Vec<(Call, DlhtMapOp<'_, '_, K, V>)> = Vec::new();
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
        self.records()?.execute(&mut calls, OnFailure::Continue, &guard);
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
