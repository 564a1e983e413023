//! Batches: the ring in front, windows of up to 32 operations that share two fences behind it.
//!
//! Each operation of a window locks its two buckets and decides what it will do. Only the first lock of a window is
//! waited for; every other one is tried, and a failure closes the window: a thread never waits while it holds
//! something, so no order of locking is needed. New records are written to slots that are still free; one fence makes
//! them all durable; then every touched bucket gets its changes under its changing bit, and a second fence makes these
//! durable before anybody may read them.
//!
//! What a window cannot do closes it and is done the single way: a displacement, a split, a record for the chain. A
//! second operation on a key of the window closes it, too.

use std::ops::ControlFlow;

use super::Dash;
use super::directory::Directory;
use super::insert::choose;
use super::layout::Bucket;
use super::op::{Mode, Wrote};
use super::record::Probe;
use super::segment::{Target, place_of};
use super::writer::{Ahead, Writer};
use crate::Result;
use crate::base::pipeline::{self, prefetch_read, prefetch_write};
use crate::key::{Key, Raw, Value};
use crate::pm::Medium;
use crate::table::{
    Arg, Occupied, OnFailure, Op, Owned, RecordArg, TryInsert, no_shadows, same_length,
};

/// How far ahead the ring fetches buckets, and when it looks into them to fetch records.
const RING: usize = 48;
const PEEK: usize = 16;

impl<K: Key + ?Sized, V: Value + ?Sized, P: Directory, M: Medium> Dash<K, V, P, M> {
    /// Reads keys in order, fetching what lies ahead.
    pub(super) fn read_batch(
        &self,
        keys: &[Arg<'_, K>],
        found: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(keys.len(), found.len())?;
        let pin = self.core.pin();
        let mut failure = Ok(());
        let reads = pipeline::stages(
            |index| self.ahead(self.core.records.probe(keys[index]).hash, prefetch_read),
            |_, ahead| self.core.pm.peek(|| self.peek(&ahead)),
            |index, ahead| {
                let probe = Probe { hash: ahead.hash, key: K::raw(keys[index]) };
                let value = self.lookup_sighted(&pin, &probe, ahead.sighted, |word| word);
                match value.and_then(|word| word.map(|word| self.core.own_value(word)).transpose())
                {
                    Ok(value) => {
                        found[index] = value;
                        ControlFlow::Continue(())
                    }
                    Err(error) => {
                        failure = Err(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        pipeline::rolling(keys.len(), RING, PEEK, reads);
        failure
    }

    /// The first stage: asks for a key's buckets.
    #[inline]
    fn ahead(&self, hash: u64, hint: impl Fn(*const Bucket)) -> Ahead<'_> {
        let sighted = self.core.pm.peek(|| self.sight(hash));
        if let Some(Target { pair: [home, probing], .. }) = sighted {
            hint(home);
            hint(probing);
        }
        Ahead { hash, sighted }
    }

    /// Looks for the fingerprint and fetches the line of the slot that will be read. Decides nothing.
    #[inline]
    fn peek(&self, ahead: &Ahead<'_>) {
        let Some(Target { pair, .. }) = ahead.sighted else { return };
        let candidates = self.core.candidates(pair, ahead.hash);
        if candidates != 0 {
            let (which, slot) = place_of(candidates);
            prefetch_read(&raw const pair[which].slots[slot]);
        }
    }

    /// Looks for the slot that will be changed, or that a new record would take, and fetches its line. Decides nothing.
    #[inline]
    fn peek_room(&self, ahead: &Ahead<'_>) {
        let Some(Target { pair, .. }) = ahead.sighted else { return };
        let candidates = self.core.candidates(pair, ahead.hash);
        let metas = pair.map(|bucket| bucket.meta(&self.core.pm).allocated());
        let place = match candidates {
            0 => choose(metas, self.core.geometry.slot_mask()),
            _ => Some(place_of(candidates)),
        };
        if let Some((which, slot)) = place {
            prefetch_write(&raw const pair[which].slots[slot]);
        }
    }

    /// Runs `count` writes in order through windows. `operation` gives the key and what to do (nothing: remove);
    /// `answer` gets what became of each, in order, once it is durable.
    fn write_batch<'k, 'v>(
        &self,
        count: usize,
        operation: impl Fn(usize) -> (Arg<'k, K>, Option<(Mode, Raw<'v>)>),
        mut answer: impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<()>
    where
        K: 'k,
    {
        let mut writer = Writer::new(self);
        let key_of = |index| operation(index).0;
        let mut failure = Ok(());
        let writes = pipeline::stages(
            |index| self.ahead(self.core.records.probe(operation(index).0).hash, prefetch_read),
            |_, ahead| self.core.pm.peek(|| self.peek_room(&ahead)),
            |index, ahead| {
                let (key, write) = operation(index);
                let mut took = writer.take_up(index, ahead, K::raw(key), write);
                if took.is_ok() && writer.is_full() {
                    took = writer.run_all(&key_of, &mut answer);
                }
                match took {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failure = Err(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        pipeline::rolling(count, RING, PEEK, writes);
        // What came before a failure is made durable and answered.
        let finished = writer.run_all(&key_of, &mut answer);
        failure.and(finished)
    }

    pub(super) fn upsert_batch(
        &self,
        pairs: &[RecordArg<'_, K, V>],
        mode: Mode,
        previous: Option<&mut [Option<Owned<V>>]>,
    ) -> Result<()> {
        let mut previous = previous;
        if let Some(previous) = &previous {
            same_length(pairs.len(), previous.len())?;
        }
        let operation = |index: usize| (pairs[index].0, Some((mode, V::raw(pairs[index].1))));
        self.write_batch(pairs.len(), operation, |index, wrote| {
            if let Some(previous) = &mut previous {
                previous[index] = self.value_before(wrote)?;
            }
            Ok(())
        })
    }

    pub(super) fn try_insert_all(
        &self,
        pairs: &[RecordArg<'_, K, V>],
        outcomes: &mut [TryInsert<V>],
    ) -> Result<()> {
        same_length(pairs.len(), outcomes.len())?;
        let operation =
            |index: usize| (pairs[index].0, Some((Mode::TryInsert, V::raw(pairs[index].1))));
        self.write_batch(pairs.len(), operation, |index, wrote| {
            outcomes[index] =
                self.value_before(wrote)?.map_or(Ok(()), |value| Err(Occupied(value)));
            Ok(())
        })
    }

    pub(super) fn remove_all(
        &self,
        keys: &[Arg<'_, K>],
        removed: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(keys.len(), removed.len())?;
        self.write_batch(
            keys.len(),
            |index| (keys[index], None),
            |index, wrote| {
                removed[index] = self.value_before(wrote)?;
                Ok(())
            },
        )
    }

    fn value_before(&self, wrote: Wrote) -> Result<Option<Owned<V>>> {
        match wrote {
            Wrote::Replaced(word) | Wrote::Occupied(word) => self.core.own_value(word).map(Some),
            Wrote::Inserted | Wrote::Absent => Ok(None),
        }
    }

    /// A mixed batch.
    pub(super) fn execute_all(
        &self,
        ops: &mut [Op<'_, K, V>],
        on_failure: OnFailure,
    ) -> Result<usize> {
        no_shadows(ops)?;
        let mut writer = Writer::new(self);
        let mut ran = 0;
        let mut result = Ok(());
        while ran < ops.len() {
            if let Some(ahead) = ops.get(ran + PEEK) {
                self.ahead(self.core.records.probe(ahead.key()).hash, prefetch_write);
            }
            match self.execute_one(&mut writer, ops, ran) {
                Ok(failed) => {
                    ran += 1;
                    if failed && on_failure == OnFailure::Stop {
                        break;
                    }
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        // What came before a failure is made durable and filled in.
        let finished = writer.commit(&mut |index, wrote| self.fill_in(&mut ops[index], wrote));
        result.and(finished).map(|()| ran)
    }

    /// Runs or stages one operation; says whether it found its key occupied or absent.
    fn execute_one<'t>(
        &'t self,
        writer: &mut Writer<'t, K, V, P, M>,
        ops: &mut [Op<'_, K, V>],
        index: usize,
    ) -> Result<bool> {
        let probe = self.core.records.probe(ops[index].key());
        let write = match &ops[index] {
            Op::Get(..) => {
                if writer.has_staged(probe.hash) {
                    writer.commit(&mut |index, wrote| self.fill_in(&mut ops[index], wrote))?;
                }
                if let Op::Get(_, found) = &mut ops[index] {
                    *found = self.get_probed(&probe)?;
                }
                return Ok(ops[index].failed());
            }
            Op::TryInsert(_, value, _) => Some((Mode::TryInsert, V::raw(*value))),
            Op::Insert(_, value, _) | Op::Put(_, value) => Some((Mode::Upsert, V::raw(*value))),
            Op::Update(_, value, _) => Some((Mode::Update, V::raw(*value))),
            Op::Remove(..) => None,
            // Refused before the batch began.
            Op::Shadow(..) => return Ok(false),
        };
        let mut answer = |index: usize, wrote| self.fill_in(&mut ops[index], wrote);
        writer.run(index, &probe, write, &mut answer)?;
        Ok(match writer.staged_answer(index) {
            Some(wrote) => matches!(wrote, Wrote::Absent | Wrote::Occupied(_)),
            None => ops[index].failed(),
        })
    }

    fn fill_in(&self, op: &mut Op<'_, K, V>, wrote: Wrote) -> Result<()> {
        let before = self.value_before(wrote)?;
        match op {
            Op::Get(_, found)
            | Op::Insert(_, _, found)
            | Op::Update(_, _, found)
            | Op::Remove(_, found) => *found = before,
            Op::TryInsert(_, _, outcome) => {
                *outcome = before.map_or(Ok(()), |value| Err(Occupied(value)))
            }
            Op::Put(..) | Op::Shadow(..) => {}
        }
        Ok(())
    }
}
