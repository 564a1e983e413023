//! Batches: what lies ahead is asked for, writes go through windows.

use std::ops::ControlFlow;

use super::Plush;
use super::op::{Mode as Own, Wrote};
use super::window::Window;
use crate::Result;
use crate::base::pipeline;
use crate::key::{Key, Raw, Value};
use crate::pm::Medium;
use crate::record::Probe;
use crate::record::engine::Mode;
use crate::table::{
    Arg, Occupied, OnFailure, Op, Owned, RecordArg, Table, TryInsert, no_shadows, run_mixed,
    same_length,
};

/// How far ahead of a batch of writes its keys are asked for.
const HINT_DISTANCE: usize = 16;
/// How far ahead reads fetch what they look at first, and how many at a time.
const RING: usize = 24;
const BURST: usize = 8;

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Plush<K, V, M> {
    pub(super) fn read_batch(
        &self,
        keys: &[Arg<'_, K>],
        found: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(keys.len(), found.len())?;
        let (core, mut failure) = (&self.core, Ok(()));
        let _pin = core.pin();
        let reads = pipeline::stages(
            |at| core.probe(keys[at]).hash,
            |hash| core.prefetch(hash),
            |_, _| (),
            |at, hash| {
                let value = core.find(&Probe { hash, key: K::raw(keys[at]) });
                match value.and_then(|word| word.map(|word| self.own_value(word)).transpose()) {
                    Ok(value) => {
                        found[at] = value;
                        ControlFlow::Continue(())
                    }
                    Err(error) => {
                        failure = Err(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        pipeline::rolling_in_bursts::<BURST, _>(keys.len(), RING, BURST, reads);
        failure
    }

    /// Runs writes in order through windows. `operation` gives key, value and what to do; `answer` gets the value
    /// before, where the operation looks, in order, once it is durable.
    fn write_all<'k, 'v>(
        &self,
        count: usize,
        operation: impl Fn(usize) -> (Arg<'k, K>, Raw<'v>, Own),
        mut answer: impl FnMut(usize, Option<Owned<V>>),
    ) -> Result<()>
    where
        K: 'k,
    {
        let _pin = self.core.pin();
        let mut answer = |index, wrote: Wrote| {
            answer(index, wrote.before.map(|word| self.own_value(word)).transpose()?);
            Ok(())
        };
        let mut window = Window::new(&self.core);
        for index in 0..count {
            if index + HINT_DISTANCE < count {
                let (ahead, ..) = operation(index + HINT_DISTANCE);
                self.core.root.prefetch(self.core.root_entry(self.core.probe(ahead).hash));
            }
            let (key, value, mode) = operation(index);
            window.run(index, &self.core.probe(key), value, mode, &mut answer)?;
        }
        window.commit(&mut answer)
    }

    pub(super) fn upsert_batch(
        &self,
        pairs: &[RecordArg<'_, K, V>],
        mode: Mode,
        mut previous: Option<&mut [Option<Owned<V>>]>,
    ) -> Result<()> {
        if let Some(previous) = &previous {
            same_length(pairs.len(), previous.len())?;
        }
        // Without places for answers, nobody needs to look.
        let mode = if previous.is_none() { Own::Put } else { mode.into() };
        let operation = |at: usize| (pairs[at].0, V::raw(pairs[at].1), mode);
        self.write_all(pairs.len(), operation, |at, before| {
            if let Some(previous) = &mut previous {
                previous[at] = before;
            }
        })
    }

    pub(super) fn try_insert_all(
        &self,
        pairs: &[RecordArg<'_, K, V>],
        outcomes: &mut [TryInsert<V>],
    ) -> Result<()> {
        same_length(pairs.len(), outcomes.len())?;
        let operation = |at: usize| (pairs[at].0, V::raw(pairs[at].1), Own::TryInsert);
        self.write_all(pairs.len(), operation, |at, before| {
            outcomes[at] = before.map_or(Ok(()), |value| Err(Occupied(value)));
        })
    }

    pub(super) fn remove_all(
        &self,
        keys: &[Arg<'_, K>],
        removed: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(keys.len(), removed.len())?;
        let operation = |at: usize| (keys[at], Raw::Word(0), Own::Remove);
        self.write_all(keys.len(), operation, |at, before| removed[at] = before)
    }

    pub(super) fn execute_all(
        &self,
        ops: &mut [Op<'_, K, V>],
        on_failure: OnFailure,
    ) -> Result<usize> {
        no_shadows(ops)?;
        let _pin = self.core.pin();
        let mut window = Window::new(&self.core);
        let (ran, result) =
            run_mixed(ops.len(), on_failure, |index| self.execute_one(&mut window, ops, index));
        // What came before a failure is made durable and filled in.
        let finished = window.commit(&mut |index, wrote| self.fill_in(&mut ops[index], wrote));
        result.and(finished).map(|()| ran)
    }

    /// Runs or stages one operation; says whether it found its key occupied or absent.
    fn execute_one<'t>(
        &'t self,
        window: &mut Window<'t, K, V, M>,
        ops: &mut [Op<'_, K, V>],
        index: usize,
    ) -> Result<bool> {
        let probe = self.core.probe(ops[index].key());
        let (value, mode) = match &ops[index] {
            Op::Get(key, _) => {
                let key = *key;
                if window.has(&probe) {
                    window.commit(&mut |index, wrote| self.fill_in(&mut ops[index], wrote))?;
                }
                if let Op::Get(_, found) = &mut ops[index] {
                    *found = Table::get(self, key)?;
                }
                return Ok(ops[index].failed());
            }
            Op::TryInsert(_, value, _) => (V::raw(*value), Own::TryInsert),
            Op::Insert(_, value, _) => (V::raw(*value), Own::Upsert),
            Op::Put(_, value) => (V::raw(*value), Own::Put),
            Op::Update(_, value, _) => (V::raw(*value), Own::Update),
            Op::Remove(..) => (Raw::Word(0), Own::Remove),
            // Refused before the batch began.
            Op::Shadow(..) => return Ok(false),
        };
        let mut answer = |index: usize, wrote| self.fill_in(&mut ops[index], wrote);
        window.run(index, &probe, value, mode, &mut answer).map(|done| !done)
    }

    fn fill_in(&self, op: &mut Op<'_, K, V>, wrote: Wrote) -> Result<()> {
        op.fill(wrote.before.map(|word| self.own_value(word)).transpose()?);
        Ok(())
    }
}
