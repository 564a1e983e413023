//! Converts between types and words. Each operation is defined here once, with its errors; the public interfaces call
//! it.

use std::ops::ControlFlow;

use super::DlhtTable;
use super::batch::{BatchOp, Operations};
use super::header::SlotState;
use super::mode::Threading;
use super::shadow::shadowed;
use super::write::{Outcome, Rule};
use crate::outcome::{Computed, Decision, Occupied, OnFailure};
use crate::table::{HeldKeys, NotShadowed, Op, TryInsert, same_length};
use crate::types::Word;
use crate::{Error, Result};

/// Decodes a word. All words come from [`Word::to_word`], so decoding succeeds.
#[inline(always)]
fn decoded<V: Word>(word: Option<u64>) -> Option<V> {
    word.and_then(V::from_word)
}

/// Returns the value before a write.
#[inline(always)]
fn before<V: Word>(outcome: Outcome) -> Result<Option<V>> {
    match outcome {
        Outcome::Inserted => Ok(None),
        Outcome::Replaced(word) => Ok(V::from_word(word)),
        Outcome::Kept(word) => Ok(decoded(word)),
        Outcome::Shadowed => Err(Error::Shadowed),
    }
}

#[inline(always)]
fn inserted<V: Word>(outcome: Outcome, value: V) -> Result<TryInsert<V>> {
    match outcome {
        Outcome::Inserted | Outcome::Kept(None) => Ok(Ok(())),
        Outcome::Replaced(word) | Outcome::Kept(Some(word)) => {
            Ok(Err(Occupied(V::from_word(word).unwrap_or(value))))
        }
        Outcome::Shadowed => Err(Error::Shadowed),
    }
}

impl<K: Word, V: Word, M: Threading> DlhtTable<K, V, M> {
    #[inline(always)]
    pub(super) fn get_one(&self, key: K) -> Option<V> {
        decoded(self.core.get(key.to_word()))
    }

    #[inline(always)]
    pub(super) fn try_insert_one(&self, key: K, value: V) -> Result<TryInsert<V>> {
        inserted(self.write(key, value, Rule::IfAbsent)?, value)
    }

    #[inline(always)]
    pub(super) fn insert_one(&self, key: K, value: V) -> Result<Option<V>> {
        before(self.write(key, value, Rule::Always)?)
    }

    #[inline(always)]
    pub(super) fn update_one(&self, key: K, value: V) -> Result<Option<V>> {
        match self.write(key, value, Rule::IfPresent)? {
            Outcome::Replaced(word) => Ok(V::from_word(word)),
            _ => Ok(None),
        }
    }

    #[inline(always)]
    pub(super) fn remove_one(&self, key: K) -> Option<V> {
        match self.core.take(key.to_word(), None) {
            Outcome::Replaced(word) => V::from_word(word),
            _ => None,
        }
    }

    #[inline(always)]
    fn write(&self, key: K, value: V, rule: Rule) -> Result<Outcome> {
        self.core.store(key.to_word(), value.to_word(), rule, SlotState::Valid)
    }

    /// No bin is claimed and no index is pinned while `f` runs. The write that follows checks that the value is
    /// unchanged.
    pub(super) fn compute_one(
        &self,
        key: K,
        mut f: impl FnMut(Option<&V>) -> Decision<V>,
    ) -> Result<Computed<V>> {
        let word = key.to_word();
        loop {
            let present = self.core.get(word);
            let value: Option<V> = decoded(present);
            match (f(value.as_ref()), present) {
                (Decision::Keep, _) => return Ok(Computed::Kept(value)),
                (Decision::Put(new), None) => match self.write(key, new, Rule::IfAbsent)? {
                    Outcome::Inserted => return Ok(Computed::Put(None)),
                    Outcome::Shadowed => return Err(Error::Shadowed),
                    _ => {}
                },
                (Decision::Put(new), Some(old)) => {
                    if let Outcome::Replaced(_) = self.write(key, new, Rule::IfEquals(old))? {
                        return Ok(Computed::Put(value));
                    }
                }
                (Decision::Remove, None) => return Ok(Computed::Removed(None)),
                (Decision::Remove, Some(old)) => {
                    if let Outcome::Replaced(_) = self.core.take(word, Some(old)) {
                        return Ok(Computed::Removed(value));
                    }
                }
            }
        }
    }

    /// Stores the value that `f` computes from the present one, in one atomic step; returns the value stored. Calls `f`
    /// again if another thread changes the key meanwhile.
    pub(super) fn write_computed(&self, key: K, mut f: impl FnMut(Option<V>) -> V) -> Result<V> {
        loop {
            let present = self.core.get(key.to_word());
            let new = f(decoded(present));
            let rule = present.map_or(Rule::IfAbsent, Rule::IfEquals);
            match self.write(key, new, rule)? {
                Outcome::Inserted | Outcome::Replaced(_) => return Ok(new),
                Outcome::Shadowed => return Err(Error::Shadowed),
                Outcome::Kept(_) => {}
            }
        }
    }

    /// Changes the value of `key` by `f` in one atomic step; returns the new value, or `None` if the key is absent. Calls
    /// `f` again if another thread changes the value meanwhile.
    pub(super) fn modify_one(&self, key: K, mut f: impl FnMut(&mut V)) -> Option<V> {
        loop {
            let present = self.core.get(key.to_word())?;
            let mut value = V::from_word(present)?;
            f(&mut value);
            // A key that is present needs no room and is not held by a shadow insert, so the write is not refused.
            if let Ok(Outcome::Replaced(_)) = self.write(key, value, Rule::IfEquals(present)) {
                return Some(value);
            }
        }
    }

    #[inline]
    pub(super) fn get_all(&self, keys: &[K], found: &mut [Option<V>]) -> Result<()> {
        same_length(keys.len(), found.len())?;
        self.core.get_all(
            keys.len(),
            |at| {
                debug_assert!(at < keys.len());
                // SAFETY: `Core::get_all` passes numbers below that of the keys.
                unsafe { keys.get_unchecked(at) }.to_word()
            },
            |at, word| {
                debug_assert!(at < found.len());
                // SAFETY: as above; there are as many places as keys.
                unsafe { *found.get_unchecked_mut(at) = decoded(word) };
            },
        );
        Ok(())
    }

    /// Writes each record by `rule`, and passes each outcome to `done`.
    #[inline]
    pub(super) fn write_all(
        &self,
        records: &[(K, V)],
        rule: Rule,
        mut done: impl FnMut(usize, Outcome) -> Result<()>,
    ) -> Result<()> {
        let key = |at: usize| records[at].0.to_word();
        let write =
            |at: usize, turn: BatchOp<'_, M>| done(at, turn.store(records[at].1.to_word(), rule)?);
        self.core.run_all(records.len(), (key, write)).map(drop)
    }

    pub(super) fn insert_all(&self, records: &[(K, V)], previous: &mut [Option<V>]) -> Result<()> {
        same_length(records.len(), previous.len())?;
        self.write_all(records, Rule::Always, |at, outcome| {
            previous[at] = before(outcome)?;
            Ok(())
        })
    }

    pub(super) fn put_all(&self, records: &[(K, V)]) -> Result<()> {
        self.write_all(records, Rule::Always, |_, outcome| before::<V>(outcome).map(drop))
    }

    pub(super) fn update_all(&self, records: &[(K, V)], previous: &mut [Option<V>]) -> Result<()> {
        same_length(records.len(), previous.len())?;
        self.write_all(records, Rule::IfPresent, |at, outcome| {
            previous[at] = before(outcome)?;
            Ok(())
        })
    }

    pub(super) fn try_insert_all(
        &self,
        records: &[(K, V)],
        outcomes: &mut [TryInsert<V>],
    ) -> Result<()> {
        same_length(records.len(), outcomes.len())?;
        self.write_all(records, Rule::IfAbsent, |at, outcome| {
            outcomes[at] = inserted(outcome, records[at].1)?;
            Ok(())
        })
    }

    pub(super) fn remove_all(&self, keys: &[K], removed: &mut [Option<V>]) -> Result<()> {
        same_length(keys.len(), removed.len())?;
        let key = |at: usize| keys[at].to_word();
        let remove = |at: usize, turn: BatchOp<'_, M>| {
            removed[at] = before(turn.take())?;
            Ok(())
        };
        self.core.run_all(keys.len(), (key, remove)).map(drop)
    }

    pub(super) fn execute_all(
        &self,
        ops: &mut [Op<'_, K, V>],
        on_failure: OnFailure,
    ) -> Result<usize> {
        let mixed = MixedOps { table: self, ops, on_failure };
        self.core.run_all(mixed.ops.len(), mixed)
    }

    /// Performs a shadow insert of a batch. Not inlined, so that the loop stays small.
    #[inline(never)]
    fn shadow_in_turn(
        &self,
        key: K,
        value: V,
        held: &HeldKeys,
        turn: &BatchOp<'_, M>,
    ) -> Result<std::result::Result<(), NotShadowed<V>>> {
        held.must_be_of(self)?;
        let outcome = shadowed(turn.shadow(value.to_word())?, value)?;
        if outcome.is_ok() {
            held.add(key.to_word(), value.to_word());
        }
        Ok(outcome)
    }
}

/// A batch of operations of different kinds.
struct MixedOps<'a, 'k, K: Word, V: Word, M: Threading> {
    table: &'a DlhtTable<K, V, M>,
    ops: &'a mut [Op<'k, K, V>],
    on_failure: OnFailure,
}

impl<K: Word, V: Word, M: Threading> Operations<M> for MixedOps<'_, '_, K, V, M> {
    #[inline(always)]
    fn key(&self, at: usize) -> u64 {
        self.ops[at].key().to_word()
    }

    #[inline(always)]
    fn run(&mut self, at: usize, turn: BatchOp<'_, M>) -> Result<ControlFlow<()>> {
        let op = &mut self.ops[at];
        match op {
            Op::Get(_, found) => *found = decoded(turn.get()),
            Op::TryInsert(_, value, outcome) => {
                *outcome = inserted(turn.store(value.to_word(), Rule::IfAbsent)?, *value)?;
            }
            Op::Insert(_, value, previous) => {
                *previous = before(turn.store(value.to_word(), Rule::Always)?)?;
            }
            Op::Put(_, value) => {
                before::<V>(turn.store(value.to_word(), Rule::Always)?)?;
            }
            Op::Update(_, value, previous) => {
                *previous = before(turn.store(value.to_word(), Rule::IfPresent)?)?;
            }
            Op::Remove(_, removed) => *removed = before(turn.take())?,
            Op::Shadow(key, value, held, outcome) => {
                *outcome = self.table.shadow_in_turn(*key, *value, held, &turn)?;
            }
        }
        let stop = self.on_failure == OnFailure::Stop && op.failed();
        Ok(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}
