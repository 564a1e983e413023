//! Batches.

use super::Plush;
use crate::Result;
use crate::key::{Key, Value};
use crate::pm::Medium;
use crate::record::engine::Mode;
use crate::table::{
    Arg, OnFailure, Op, Owned, RecordArg, Table, TryInsert, no_shadows, same_length,
};

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Plush<K, V, M> {
    pub(super) fn read_batch(
        &self,
        keys: &[Arg<'_, K>],
        found: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(keys.len(), found.len())?;
        for (&key, found) in keys.iter().zip(found) {
            *found = self.get(key)?;
        }
        Ok(())
    }

    pub(super) fn upsert_batch(
        &self,
        pairs: &[RecordArg<'_, K, V>],
        mode: Mode,
        previous: Option<&mut [Option<Owned<V>>]>,
    ) -> Result<()> {
        let Some(previous) = previous else {
            return pairs.iter().try_for_each(|&(key, value)| self.put(key, value));
        };
        same_length(pairs.len(), previous.len())?;
        for (&(key, value), previous) in pairs.iter().zip(previous) {
            *previous = match mode {
                Mode::Update => self.update(key, value)?,
                _ => self.insert(key, value)?,
            };
        }
        Ok(())
    }

    pub(super) fn try_insert_all(
        &self,
        pairs: &[RecordArg<'_, K, V>],
        outcomes: &mut [TryInsert<V>],
    ) -> Result<()> {
        same_length(pairs.len(), outcomes.len())?;
        for (&(key, value), outcome) in pairs.iter().zip(outcomes) {
            *outcome = self.try_insert(key, value)?;
        }
        Ok(())
    }

    pub(super) fn remove_all(
        &self,
        keys: &[Arg<'_, K>],
        removed: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(keys.len(), removed.len())?;
        for (&key, removed) in keys.iter().zip(removed) {
            *removed = self.remove(key)?;
        }
        Ok(())
    }

    pub(super) fn execute_all(
        &self,
        ops: &mut [Op<'_, K, V>],
        on_failure: OnFailure,
    ) -> Result<usize> {
        no_shadows(ops)?;
        for (ran, op) in ops.iter_mut().enumerate() {
            match op {
                Op::Get(key, found) => *found = Table::get(self, *key)?,
                Op::TryInsert(key, value, outcome) => *outcome = self.try_insert(*key, *value)?,
                Op::Insert(key, value, before) => *before = self.insert(*key, *value)?,
                Op::Put(key, value) => self.put(*key, *value)?,
                Op::Update(key, value, before) => *before = self.update(*key, *value)?,
                Op::Remove(key, removed) => *removed = self.remove(*key)?,
                // Refused before the batch began.
                Op::Shadow(..) => {}
            }
            if op.failed() && on_failure == OnFailure::Stop {
                return Ok(ran + 1);
            }
        }
        Ok(ops.len())
    }
}
