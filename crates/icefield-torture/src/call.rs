//! One operation on one key, as plain numbers: the call, the table's reply, and the correct reply.
//!
//! [`Action::step`] is the complete sequential specification of a key. The reference map, the linearizability checker
//! and the crash and kill checkers all use it.

use std::task::{Context, Poll, Waker};

use icefield::{Arg, Computed, Data, Decision, OnFailure, Op, Result, Table};

use crate::rng::Rng;
use crate::subject::{FOREIGN, Sample};

/// An operation on the key with number `key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The key, as [`Sample`] numbers it.
    pub key: u64,
    /// The operation.
    pub action: Action,
}

/// An operation on a key. Values are given by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the calls of `Table` of the same names")]
pub enum Action {
    Get,
    GetWith,
    GetAsync,
    Contains,
    TryInsert(u64),
    Insert(u64),
    Put(u64),
    Update(u64),
    Remove,
    Delete,
    Compute(Rule),
    CompareExchange { current: u64, new: u64 },
}

impl Action {
    /// Returns a random action; common calls are more likely. A write gets the value `value`.
    pub fn any(rng: &mut Rng, value: u64) -> Self {
        // Values are numbered in the order of their creation, so one of the last few may be present.
        let current = value.saturating_sub(1 + rng.below(6));
        *rng.pick(&[
            Action::Get,
            Action::GetWith,
            Action::GetAsync,
            Action::CompareExchange { current, new: value },
            Action::Contains,
            Action::TryInsert(value),
            Action::TryInsert(value),
            Action::Insert(value),
            Action::Put(value),
            Action::Update(value),
            Action::Remove,
            Action::Remove,
            Action::Delete,
            Action::Compute(Rule::Put(value)),
            Action::Compute(Rule::PutIfAbsent(value)),
            Action::Compute(Rule::PutIfPresent(value)),
            Action::Compute(Rule::RemoveEven),
        ])
    }
}

/// The decision rule of an [`Action::Compute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Keeps the present state.
    Keep,
    /// Puts a value.
    Put(u64),
    /// Puts a value if the key is absent.
    PutIfAbsent(u64),
    /// Puts a value if the key is present.
    PutIfPresent(u64),
    /// Removes the key.
    Remove,
    /// Removes the key if its value has an even number, else keeps it.
    RemoveEven,
}

impl Rule {
    /// Returns the decision for the present value.
    #[must_use]
    pub fn decide(self, value: Option<u64>) -> Decision<u64> {
        match (self, value) {
            (Self::Put(new), _)
            | (Self::PutIfAbsent(new), None)
            | (Self::PutIfPresent(new), Some(_)) => Decision::Put(new),
            (Self::Remove, _) => Decision::Remove,
            (Self::RemoveEven, Some(value)) if value % 2 == 0 => Decision::Remove,
            _ => Decision::Keep,
        }
    }
}

/// The result of an operation. Values are given by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The call returns no value.
    Done,
    /// `true` if the key was present.
    Present(bool),
    /// The value found, or the previous one.
    Value(Option<u64>),
    /// The outcome of a `try_insert`.
    TryInsert(std::result::Result<(), u64>),
    /// The outcome of a `compute`.
    Computed(Computed<u64>),
    /// The outcome of a `compare_exchange`.
    Exchanged(std::result::Result<(), Option<u64>>),
}

impl Action {
    /// Specifies the operation: given the value before it, returns the value after it and the reply.
    #[must_use]
    pub fn step(self, value: Option<u64>) -> (Option<u64>, Reply) {
        match self {
            Self::Get | Self::GetWith | Self::GetAsync => (value, Reply::Value(value)),
            Self::Contains => (value, Reply::Present(value.is_some())),
            Self::TryInsert(new) => match value {
                Some(present) => (value, Reply::TryInsert(Err(present))),
                None => (Some(new), Reply::TryInsert(Ok(()))),
            },
            Self::Insert(new) => (Some(new), Reply::Value(value)),
            Self::Put(new) => (Some(new), Reply::Done),
            Self::Update(new) => (value.map(|_| new), Reply::Value(value)),
            Self::Remove => (None, Reply::Value(value)),
            Self::Delete => (None, Reply::Done),
            Self::Compute(rule) => match rule.decide(value) {
                Decision::Keep => (value, Reply::Computed(Computed::Kept(value))),
                Decision::Put(new) => (Some(new), Reply::Computed(Computed::Put(value))),
                Decision::Remove => (None, Reply::Computed(Computed::Removed(value))),
            },
            Self::CompareExchange { current, new } if value == Some(current) => {
                (Some(new), Reply::Exchanged(Ok(())))
            }
            Self::CompareExchange { .. } => (value, Reply::Exchanged(Err(value))),
        }
    }

    /// Returns whether an operation with this reply counts as failed for [`OnFailure::Stop`].
    #[must_use]
    pub fn failed(self, reply: &Reply) -> bool {
        match reply {
            Reply::TryInsert(outcome) => outcome.is_err(),
            Reply::Value(found) => found.is_none() && !matches!(self, Self::Insert(_)),
            _ => false,
        }
    }

    /// Returns whether the operation may change the key.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(
            self,
            Self::Get | Self::GetWith | Self::GetAsync | Self::Contains | Self::Compute(Rule::Keep)
        )
    }
}

/// The batch calls of [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the batch calls of `Table`")]
pub enum BatchKind {
    Get,
    Insert,
    Put,
    Update,
    TryInsert,
    Remove,
    Execute(OnFailure),
}

impl BatchKind {
    /// All kinds of batches.
    pub const ALL: [Self; 8] = [
        Self::Get,
        Self::Insert,
        Self::Put,
        Self::Update,
        Self::TryInsert,
        Self::Remove,
        Self::Execute(OnFailure::Continue),
        Self::Execute(OnFailure::Stop),
    ];

    /// Returns the operation that takes the place of `action` in a batch of this kind. A mixed batch keeps each action
    /// that it supports. If the replacement is a write, it writes `value`.
    #[must_use]
    pub fn action(self, action: Action, value: u64) -> Action {
        match self {
            Self::Get => Action::Get,
            Self::Insert => Action::Insert(value),
            Self::Put => Action::Put(value),
            Self::Update => Action::Update(value),
            Self::TryInsert => Action::TryInsert(value),
            Self::Remove => Action::Remove,
            Self::Execute(_) => match action {
                Action::Contains | Action::GetWith | Action::GetAsync => Action::Get,
                Action::Delete => Action::Remove,
                Action::Compute(_) | Action::CompareExchange { .. } => Action::Insert(value),
                other => other,
            },
        }
    }
}

type KeyOf<T> = <<T as Table>::Key as Data>::Owned;
type ValueOf<T> = <<T as Table>::Value as Data>::Owned;

fn number<D: Sample + ?Sized>(owned: &D::Owned) -> u64 {
    D::number(owned).unwrap_or(FOREIGN)
}

fn numbers<D: Sample + ?Sized>(owned: &[Option<D::Owned>]) -> Vec<Reply> {
    owned.iter().map(|found| Reply::Value(found.as_ref().map(number::<D>))).collect()
}

/// Executes `call` on `table`.
///
/// # Errors
/// Returns the table's error.
pub fn ask<T>(table: &T, call: Call) -> Result<Reply>
where
    T: Table<Key: Sample, Value: Sample>,
{
    let owned_key = T::Key::sample(call.key);
    let key = T::Key::arg(&owned_key);
    let value_number =
        |found: Option<ValueOf<T>>| Reply::Value(found.as_ref().map(number::<T::Value>));
    let with = |n: u64, f: &dyn Fn(Arg<'_, T::Value>) -> Result<Reply>| {
        let value = T::Value::sample(n);
        f(T::Value::arg(&value))
    };
    match call.action {
        Action::Get => table.get(key).map(value_number),
        Action::GetWith => {
            let shown = table.get_with(key, |value| number::<T::Value>(&value.own_ref()));
            shown.map(Reply::Value)
        }
        Action::GetAsync => at_once(table.get_async(key)).map(value_number),
        Action::Contains => table.contains(key).map(Reply::Present),
        Action::TryInsert(n) => with(n, &|value| {
            Ok(Reply::TryInsert(
                table.try_insert(key, value)?.map_err(|present| number::<T::Value>(&present.0)),
            ))
        }),
        Action::Insert(n) => with(n, &|value| table.insert(key, value).map(value_number)),
        Action::Put(n) => with(n, &|value| table.put(key, value).map(|()| Reply::Done)),
        Action::Update(n) => with(n, &|value| table.update(key, value).map(value_number)),
        Action::Remove => table.remove(key).map(value_number),
        Action::Delete => table.delete(key).map(|()| Reply::Done),
        Action::Compute(rule) => compute(table, key, rule),
        Action::CompareExchange { current, new } => {
            T::Value::compare_exchange(table, key, current, new).map(Reply::Exchanged)
        }
    }
}

/// Polls a future to completion. The future must make progress whenever it is polled, because nothing wakes it.
fn at_once<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut context) {
            return outcome;
        }
    }
}

fn compute<T>(table: &T, key: Arg<'_, T::Key>, rule: Rule) -> Result<Reply>
where
    T: Table<Key: Sample, Value: Sample>,
{
    let before = |found: Option<ValueOf<T>>| found.as_ref().map(number::<T::Value>);
    let computed = table.compute(key, |value| {
        let decision = rule.decide(value.map(|value| number::<T::Value>(&value.own_ref())));
        match decision {
            Decision::Keep => Decision::Keep,
            Decision::Put(n) => Decision::Put(T::Value::sample(n)),
            Decision::Remove => Decision::Remove,
        }
    })?;
    Ok(Reply::Computed(match computed {
        Computed::Kept(value) => Computed::Kept(before(value)),
        Computed::Put(value) => Computed::Put(before(value)),
        Computed::Removed(value) => Computed::Removed(before(value)),
    }))
}

/// Executes a batch on `table`. Returns the replies of the operations that ran, in order.
///
/// # Errors
/// Returns the table's error.
pub fn ask_batch<T>(table: &T, kind: BatchKind, calls: &[Call]) -> Result<Vec<Reply>>
where
    T: Table<Key: Sample, Value: Sample>,
{
    let keys: Vec<KeyOf<T>> = calls.iter().map(|call| T::Key::sample(call.key)).collect();
    let values: Vec<ValueOf<T>> =
        calls.iter().map(|call| T::Value::sample(value_of(call.action))).collect();
    let key_args: Vec<Arg<'_, T::Key>> = keys.iter().map(T::Key::arg).collect();
    let pairs: Vec<_> = key_args.iter().copied().zip(values.iter().map(T::Value::arg)).collect();
    let mut found = vec![None; calls.len()];
    match kind {
        // Batches of an even length take the values in place.
        BatchKind::Get if calls.len().is_multiple_of(2) => {
            let mut shown = Vec::new();
            table.get_batch_with(&key_args, |index, value| {
                shown.push(index);
                found[index] = value.map(T::Value::own_ref);
            })?;
            assert!(shown.into_iter().eq(0..calls.len()), "each key once and in order");
        }
        BatchKind::Get => table.get_batch(&key_args, &mut found)?,
        BatchKind::Insert => table.insert_batch(&pairs, &mut found)?,
        BatchKind::Update => table.update_batch(&pairs, &mut found)?,
        BatchKind::Remove => table.remove_batch(&key_args, &mut found)?,
        BatchKind::Put => {
            table.put_batch(&pairs)?;
            return Ok(vec![Reply::Done; calls.len()]);
        }
        BatchKind::TryInsert => {
            let mut outcomes = vec![Ok(()); calls.len()];
            table.try_insert_batch(&pairs, &mut outcomes)?;
            let reply = |outcome: icefield::TryInsert<T::Value>| {
                Reply::TryInsert(outcome.map_err(|present| number::<T::Value>(&present.0)))
            };
            return Ok(outcomes.into_iter().map(reply).collect());
        }
        BatchKind::Execute(on_failure) => {
            let mut ops: Vec<Op<'_, T::Key, T::Value>> = calls
                .iter()
                .zip(&pairs)
                .map(|(call, &(key, value))| op_of(call.action, key, value))
                .collect();
            let ran = table.execute(&mut ops, on_failure)?;
            return Ok(ops.iter().take(ran).map(reply_of).collect());
        }
    }
    Ok(numbers::<T::Value>(&found))
}

fn value_of(action: Action) -> u64 {
    match action {
        Action::TryInsert(n) | Action::Insert(n) | Action::Put(n) | Action::Update(n) => n,
        _ => 0,
    }
}

fn op_of<'a, K: Sample + icefield::Key + ?Sized, V: Sample + icefield::Value + ?Sized>(
    action: Action,
    key: Arg<'a, K>,
    value: Arg<'a, V>,
) -> Op<'a, K, V> {
    match action {
        Action::TryInsert(_) => Op::try_insert(key, value),
        Action::Insert(_) => Op::insert(key, value),
        Action::Put(_) => Op::put(key, value),
        Action::Update(_) => Op::update(key, value),
        Action::Remove | Action::Delete => Op::remove(key),
        Action::Get
        | Action::GetWith
        | Action::GetAsync
        | Action::Contains
        | Action::Compute(_)
        | Action::CompareExchange { .. } => Op::get(key),
    }
}

fn reply_of<K, V>(op: &Op<'_, K, V>) -> Reply
where
    K: Sample + icefield::Key + ?Sized,
    V: Sample + icefield::Value + ?Sized,
{
    match op {
        Op::Get(_, found)
        | Op::Insert(_, _, found)
        | Op::Update(_, _, found)
        | Op::Remove(_, found) => Reply::Value(found.as_ref().map(number::<V>)),
        Op::TryInsert(_, _, outcome) => {
            Reply::TryInsert(outcome.clone().map_err(|present| number::<V>(&present.0)))
        }
        // `op_of` creates no shadow inserts, because not every table has them.
        Op::Put(..) | Op::Shadow(..) => Reply::Done,
    }
}
