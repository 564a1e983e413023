//! Calls that only DLHT tables have, against a reference map: snapshots, copies, entries, removal of all records,
//! shrinking, batches with shadow inserts.

use std::collections::BTreeMap;

use icefield::{DlhtTable, NotShadowed, OnFailure, Op, Shadows, Threading};

use crate::reference::Reference;
use crate::rng::Rng;

/// Number of keys of batches, in addition to those in the table.
const KEYS: u64 = 60;
/// First of the keys that make a table grow in the middle of a transaction.
const FRESH: u64 = 1 << 32;

/// Makes a snapshot or a copy, shrinks or drains the table, removes some records by `retain`, uses entries, or runs a
/// transaction of shadow inserts; `seed` selects which.
pub(super) fn own_call<M: Threading>(
    table: &DlhtTable<u64, u64, M>,
    seed: u64,
    right: &mut Reference,
) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    match rng.below(10) {
        0 => table.shrink_to_fit(),
        1 => {
            let snapshot = table.snapshot();
            compare("a snapshot", snapshot.iter().collect(), right)?;
        }
        2 => {
            table.retain(|key, value| (key ^ value) % 4 != 0);
            right.retain(|key, value| (key ^ value) % 4 != 0);
        }
        3 => {
            let copy = table.clone();
            compare("a copy", copy.iter().collect(), right)?;
            if copy != *table {
                return Err("the copy is not equal".to_owned());
            }
            let records = copy.into_iter();
            if records.len() != right.sorted().len() {
                return Err(format!("{records:?} instead of {}", right.sorted().len()));
            }
            compare("the records of a copy", records.collect(), right)?;
        }
        4 => {
            compare("drained", table.drain().collect(), right)?;
            right.clear();
        }
        5 | 6 => (0..60).try_for_each(|_| entry(table, right, &mut rng))?,
        _ => Transaction { table, right, held: BTreeMap::new(), rng }.run()?,
    }
    compare("afterwards", table.iter().collect(), right)
}

/// Performs a call that depends on whether a key is present.
fn entry<M: Threading>(
    table: &DlhtTable<u64, u64, M>,
    right: &mut Reference,
    rng: &mut Rng,
) -> Result<(), String> {
    let (key, value) = (rng.below(KEYS), rng.word());
    let before = right.get(key);
    let added = before.map(|present| present.wrapping_add(1));
    let entry = table.entry(key);
    let (call, got, expected, after) = match rng.below(9) {
        0 => (
            "or_insert",
            Some(entry.or_insert(value)),
            before.or(Some(value)),
            before.or(Some(value)),
        ),
        1 => {
            let sum =
                entry.and_modify(|present| *present = present.wrapping_add(1)).or_insert(value);
            ("and_modify, or_insert", Some(sum), added.or(Some(value)), added.or(Some(value)))
        }
        2 => {
            drop(entry.and_modify(|present| *present = present.wrapping_add(1)));
            ("and_modify alone", table.get(key), added, added)
        }
        3 => {
            let sum = entry.and_modify(|present| *present = present.wrapping_add(1)).apply();
            ("apply", sum, added, added)
        }
        4 => ("entry, insert", entry.insert(value), before, Some(value)),
        5 => ("entry, remove", entry.remove(), before, None),
        6 => {
            let removed = table.remove_if(key, |present| present % 2 == 0);
            let is_even = before.is_some_and(|present| present % 2 == 0);
            ("remove_if", removed, before.filter(|_| is_even), before.filter(|_| !is_even))
        }
        7 => {
            let got = table.get_or_insert_with(key, || value);
            ("get_or_insert_with", Some(got), before.or(Some(value)), before.or(Some(value)))
        }
        _ => ("or_default", Some(entry.or_default()), before.or(Some(0)), before.or(Some(0))),
    };
    right.set(key, after);
    if got == expected && table.get(key) == after && table.contains_key(key) == after.is_some() {
        return Ok(());
    }
    Err(format!("{call} of {key}, which was {before:?}: {got:?} instead of {expected:?}"))
}

fn compare(what: &str, mut records: Vec<(u64, u64)>, right: &Reference) -> Result<(), String> {
    records.sort_unstable();
    if records == right.sorted() {
        return Ok(());
    }
    Err(format!("{what}: {records:?} instead of {:?}", right.sorted()))
}

/// A transaction: a batch with shadow inserts, other calls while they are held, and their commits or aborts.
struct Transaction<'a, M: Threading> {
    table: &'a DlhtTable<u64, u64, M>,
    right: &'a mut Reference,
    held: BTreeMap<u64, u64>,
    rng: Rng,
}

/// The result of an operation in a batch.
#[derive(Debug, PartialEq)]
enum Answer {
    Value(Option<u64>),
    Shadow(Result<(), NotShadowed<u64>>),
}

fn answer_of(op: &Op<'_, u64, u64>) -> Answer {
    match op {
        Op::Shadow(.., outcome) => Answer::Shadow(*outcome),
        Op::Get(_, found)
        | Op::Insert(_, _, found)
        | Op::Update(_, _, found)
        | Op::Remove(_, found) => Answer::Value(*found),
        Op::TryInsert(.., outcome) => Answer::Value(outcome.err().map(|present| present.0)),
        Op::Put(..) => Answer::Value(None),
    }
}

impl<M: Threading> Transaction<'_, M> {
    fn run(mut self) -> Result<(), String> {
        let shadows = self.table.shadows();
        for _ in 0..=self.rng.below(2) {
            self.batch(&shadows)?;
            for _ in 0..self.rng.below(4) {
                self.disturb()?;
            }
            self.judge(&shadows)?;
        }
        self.settle_some(&shadows)?;
        self.judge(&shadows)?;
        match self.rng.below(3) {
            0 => shadows.abort(),
            1 => drop(shadows),
            _ => {
                shadows.commit();
                self.held.iter().for_each(|(&key, &value)| self.right.set(key, Some(value)));
            }
        }
        Ok(())
    }

    /// Returns a key that is held, present, or neither.
    fn key(&mut self) -> u64 {
        let present = self.right.sorted();
        match self.rng.below(3) {
            0 if !present.is_empty() => self.rng.pick(&present).0,
            _ => self.rng.below(KEYS),
        }
    }

    fn batch(&mut self, shadows: &Shadows<'_, u64, u64, M>) -> Result<(), String> {
        let on_failure = *self.rng.pick(&[OnFailure::Continue, OnFailure::Stop]);
        let (mut ops, mut expected, mut ended) = (Vec::new(), Vec::new(), false);
        for _ in 0..self.rng.below(60) {
            let (key, value) = (self.key(), self.rng.word());
            let op = match self.rng.below(8) {
                0 => Op::get(key),
                1 => Op::update(key, value),
                2 => Op::remove(key),
                // Inserting a held key, except by another shadow insert, would end the batch with an error.
                3 if !self.held.contains_key(&key) => Op::insert(key, value),
                _ => Op::shadow(key, value, shadows),
            };
            if !ended {
                let (answer, failed) = self.right_answer(&op);
                expected.push(answer);
                ended = failed && on_failure == OnFailure::Stop;
            }
            ops.push(op);
        }
        let ran = self.table.execute(&mut ops, on_failure);
        let answers: Vec<_> = ops[..ran].iter().map(answer_of).collect();
        if answers == expected {
            return Ok(());
        }
        Err(format!("{ops:?} ({on_failure:?}): {answers:?} instead of {expected:?}"))
    }

    /// Executes `op` on the reference. Returns its correct result and whether that is a failure.
    fn right_answer(&mut self, op: &Op<'_, u64, u64>) -> (Answer, bool) {
        let before = self.right.get(op.key());
        match *op {
            Op::Shadow(key, value, ..) => {
                let outcome = match (before, self.held.contains_key(&key)) {
                    (Some(present), _) => Err(NotShadowed::Occupied(present)),
                    (None, true) => Err(NotShadowed::Shadowed),
                    (None, false) => Ok(()),
                };
                if outcome.is_ok() {
                    self.held.insert(key, value);
                }
                (Answer::Shadow(outcome), outcome.is_err())
            }
            Op::Insert(key, value, _) => {
                self.right.set(key, Some(value));
                (Answer::Value(before), false)
            }
            Op::Update(key, value, _) if before.is_some() => {
                self.right.set(key, Some(value));
                (Answer::Value(before), false)
            }
            Op::Remove(key, _) => {
                self.right.set(key, None);
                (Answer::Value(before), before.is_none())
            }
            _ => (Answer::Value(before), before.is_none()),
        }
    }

    /// Changes the table while shadow inserts are held.
    fn disturb(&mut self) -> Result<(), String> {
        match self.rng.below(6) {
            0 => self.table.reserve(self.rng.below(500) as usize),
            1 => self.table.shrink_to_fit(),
            2 => {
                self.table.clear();
                self.right.clear();
            }
            3 => compare("a snapshot", self.table.snapshot().iter().collect(), self.right)?,
            4 => {
                let pairs: Vec<_> =
                    (FRESH..FRESH + 150).map(|key| (key, self.rng.word())).collect();
                self.table.put_batch(&pairs);
                pairs.into_iter().for_each(|(key, value)| self.right.set(key, Some(value)));
            }
            _ => {
                let keys: Vec<u64> = (FRESH..FRESH + 150).collect();
                let mut removed = vec![None; keys.len()];
                self.table.remove_batch(&keys, &mut removed);
                for (key, removed) in keys.into_iter().zip(removed) {
                    if removed != self.right.get(key) {
                        return Err(format!("removed {removed:?} of {key}"));
                    }
                    self.right.set(key, None);
                }
            }
        }
        Ok(())
    }

    /// Ends some shadow inserts individually.
    fn settle_some(&mut self, shadows: &Shadows<'_, u64, u64, M>) -> Result<(), String> {
        for (key, value) in self.held.clone() {
            let end = self.rng.below(4);
            if end > 1 {
                continue;
            }
            let Some(shadow) = shadows.take(key) else {
                return Err(format!("{key} is not held"));
            };
            if (shadow.key(), shadow.value()) != (key, value) {
                return Err(format!("{shadow:?} instead of {key} and {value}"));
            }
            self.held.remove(&key);
            if end == 0 {
                shadow.commit();
                self.right.set(key, Some(value));
            } else {
                shadow.abort();
            }
        }
        Ok(())
    }

    /// Checks that the shadow inserts are held and invisible.
    fn judge(&self, shadows: &Shadows<'_, u64, u64, M>) -> Result<(), String> {
        compare("while shadows are held", self.table.iter().collect(), self.right)?;
        let (held, len) = (shadows.len(), self.table.len());
        if held != self.held.len() || len != self.right.len() {
            return Err(format!("{held} held instead of {:?}, len {len}", self.held));
        }
        for &key in self.held.keys() {
            let other = self.table.try_insert_shadow(key, 0).err();
            if other != Some(NotShadowed::Shadowed) || self.table.contains(key) {
                return Err(format!("{key} is not held: {other:?}"));
            }
        }
        Ok(())
    }
}
