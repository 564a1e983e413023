//! Batches of different kinds of operations on a map.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::ControlFlow;

use super::batch::BatchOp;
use super::memory::RecordAllocator;
use super::record::Refused;
use super::write::When;
use super::{DlhtGuard, DlhtRecordMap};
use crate::Result;
use crate::dlht::mode::Threading;
use crate::outcome::OnFailure;

/// An operation of a mixed batch on a [`DlhtMap`](crate::DlhtMap), and its result. A get or removal borrows its key, as
/// `Q`; an operation that puts a record owns the record until it runs.
///
/// ```
/// use icefield::{DlhtMap, DlhtMapOp, OnFailure};
/// let map = DlhtMap::from([("one".to_owned(), 1)]);
/// let guard = map.pin();
/// let mut ops = [
///     DlhtMapOp::get("one"),
///     DlhtMapOp::insert("two".to_owned(), 2),
///     DlhtMapOp::try_insert("two".to_owned(), 3),
/// ];
/// assert_eq!(map.execute(&mut ops, OnFailure::Continue, &guard), 3);
/// assert_eq!(ops.each_ref().map(|op| op.value()), [Some(&1), None, Some(&2)]);
/// assert!(ops[2].failed());
///
/// // Without a get or a removal, the types must be named.
/// let mut ops: [DlhtMapOp<'_, '_, String, u32>; 1] = [DlhtMapOp::update("one".to_owned(), 10)];
/// map.execute(&mut ops, OnFailure::Continue, &guard);
/// assert_eq!(map.get("one", &guard), Some(&10));
/// ```
pub struct DlhtMapOp<'q, 'g, K, V, Q: ?Sized = K> {
    ask: Ask<'q, K, V, Q>,
    /// The value that the key had; set when the operation runs.
    before: Option<&'g V>,
    ran: bool,
}

enum Ask<'q, K, V, Q: ?Sized> {
    Get(&'q Q),
    Remove(&'q Q),
    /// The condition for putting the record, and the record until it is put.
    Put(When, Option<(K, V)>),
}

impl<'q, 'g, K, V, Q: ?Sized> DlhtMapOp<'q, 'g, K, V, Q> {
    fn new(ask: Ask<'q, K, V, Q>) -> Self {
        Self { ask, before: None, ran: false }
    }

    /// Creates an operation that calls [`DlhtMap::get`](crate::DlhtMap::get).
    ///
    /// ```
    /// use icefield::{DlhtMap, DlhtMapOp, OnFailure};
    /// let map = DlhtMap::from([(1, 10)]);
    /// let (guard, mut ops) = (map.pin(), [DlhtMapOp::get(&1)]);
    /// map.execute(&mut ops, OnFailure::Stop, &guard);
    /// assert_eq!(ops[0].value(), Some(&10));
    /// ```
    pub fn get(key: &'q Q) -> Self {
        Self::new(Ask::Get(key))
    }

    /// Creates an operation that calls [`DlhtMap::try_insert`](crate::DlhtMap::try_insert).
    ///
    /// ```
    /// use icefield::{DlhtMap, DlhtMapOp, OnFailure};
    /// let map = DlhtMap::from([(1, 10)]);
    /// let guard = map.pin();
    /// let mut ops: [DlhtMapOp<'_, '_, _, _>; 1] = [DlhtMapOp::try_insert(1, 11)];
    /// map.execute(&mut ops, OnFailure::Stop, &guard);
    /// assert_eq!((ops[0].failed(), ops[0].value()), (true, Some(&10)));
    /// ```
    pub fn try_insert(key: K, value: V) -> Self {
        Self::new(Ask::Put(When::Absent, Some((key, value))))
    }

    /// Creates an operation that calls [`DlhtMap::insert`](crate::DlhtMap::insert).
    ///
    /// ```
    /// use icefield::{DlhtMap, DlhtMapOp, OnFailure};
    /// let map = DlhtMap::from([(1, 10)]);
    /// let (guard, mut ops) = (map.pin(), [DlhtMapOp::insert(1, 11), DlhtMapOp::get(&1)]);
    /// map.execute(&mut ops, OnFailure::Stop, &guard);
    /// assert_eq!(ops.each_ref().map(|op| op.value()), [Some(&10), Some(&11)]);
    /// ```
    pub fn insert(key: K, value: V) -> Self {
        Self::new(Ask::Put(When::Always, Some((key, value))))
    }

    /// Creates an operation that calls [`DlhtMap::update`](crate::DlhtMap::update).
    ///
    /// ```
    /// use icefield::{DlhtMap, DlhtMapOp, OnFailure};
    /// let map = DlhtMap::from([(1, 10)]);
    /// let (guard, mut ops) = (map.pin(), [DlhtMapOp::update(1, 11), DlhtMapOp::get(&1)]);
    /// map.execute(&mut ops, OnFailure::Stop, &guard);
    /// assert_eq!(ops.each_ref().map(|op| op.value()), [Some(&10), Some(&11)]);
    /// ```
    pub fn update(key: K, value: V) -> Self {
        Self::new(Ask::Put(When::Present, Some((key, value))))
    }

    /// Creates an operation that calls [`DlhtMap::remove`](crate::DlhtMap::remove).
    ///
    /// ```
    /// use icefield::{DlhtMap, DlhtMapOp, OnFailure};
    /// let map = DlhtMap::from([(1, 10)]);
    /// let (guard, mut ops) = (map.pin(), [DlhtMapOp::remove(&1)]);
    /// map.execute(&mut ops, OnFailure::Stop, &guard);
    /// assert_eq!((ops[0].value(), map.len()), (Some(&10), 0));
    /// ```
    pub fn remove(key: &'q Q) -> Self {
        Self::new(Ask::Remove(key))
    }

    /// Returns the value that the key had when the operation ran: the value that it found, replaced or removed, or that
    /// made `try_insert` fail. `None` before the operation has run.
    pub fn value(&self) -> Option<&'g V> {
        self.before
    }

    /// Returns whether the operation has run.
    ///
    /// ```
    /// use icefield::{DlhtMap, DlhtMapOp, OnFailure};
    /// let map = DlhtMap::<u32, u32>::new();
    /// let (guard, mut ops) = (map.pin(), [DlhtMapOp::get(&1), DlhtMapOp::insert(1, 10)]);
    /// map.execute(&mut ops, OnFailure::Stop, &guard);
    /// assert_eq!(ops.each_ref().map(|op| op.has_run()), [true, false]);
    /// ```
    pub fn has_run(&self) -> bool {
        self.ran
    }

    /// Returns whether the operation has run and failed in the sense of [`OnFailure::Stop`]: its key was occupied or
    /// absent. An `insert` never fails.
    ///
    /// ```
    /// use icefield::{DlhtMap, DlhtMapOp, OnFailure};
    /// let map = DlhtMap::<u32, u32>::new();
    /// let (guard, mut ops) = (map.pin(), [DlhtMapOp::get(&1), DlhtMapOp::insert(1, 10)]);
    /// assert_eq!(map.execute(&mut ops, OnFailure::Stop, &guard), 1);
    /// assert_eq!(ops.each_ref().map(|op| op.failed()), [true, false]);
    /// ```
    pub fn failed(&self) -> bool {
        let failed = match self.ask {
            Ask::Get(_) | Ask::Remove(_) | Ask::Put(When::Present, _) => self.before.is_none(),
            Ask::Put(When::Absent, _) => self.before.is_some(),
            Ask::Put(When::Always, _) => false,
        };
        self.ran && failed
    }

    /// Returns the record of an operation that has not run, for example because its batch ended earlier.
    ///
    /// ```
    /// use icefield::{DlhtMap, DlhtMapOp, OnFailure};
    /// let map = DlhtMap::<u32, u32>::new();
    /// let (guard, mut ops) = (map.pin(), [DlhtMapOp::get(&1), DlhtMapOp::insert(1, 10)]);
    /// map.execute(&mut ops, OnFailure::Stop, &guard);
    /// assert_eq!(ops.map(|op| op.into_record()), [None, Some((1, 10))]);
    /// ```
    pub fn into_record(self) -> Option<(K, V)> {
        match self.ask {
            Ask::Put(_, record) => record,
            Ask::Get(_) | Ask::Remove(_) => None,
        }
    }
}

impl<K, V: fmt::Debug, Q: ?Sized> fmt::Debug for DlhtMapOp<'_, '_, K, V, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.ask {
            Ask::Get(_) => "get",
            Ask::Remove(_) => "remove",
            Ask::Put(When::Absent, _) => "try_insert",
            Ask::Put(When::Present, _) => "update",
            Ask::Put(When::Always, _) => "insert",
        };
        let (ran, value) = (&self.ran, &self.before);
        f.debug_struct("DlhtMapOp")
            .field("kind", &kind)
            .field("ran", ran)
            .field("value", value)
            .finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher, A: RecordAllocator, M: Threading>
    DlhtRecordMap<K, V, S, A, M>
{
    /// Runs operations in order, and skips those that ran in an earlier batch. Returns how many operations of the batch
    /// have run, including the skipped ones.
    ///
    /// # Errors
    /// Fails if a record is refused. The operations before this one have run.
    pub(super) fn execute_all<'g, Q: Hash + Eq + ?Sized>(
        &self,
        namespace: u16,
        ops: &mut [DlhtMapOp<'_, 'g, K, V, Q>],
        on_failure: OnFailure,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<usize>
    where
        K: Borrow<Q> + 'g,
    {
        let (pinned, count, mut ran) = (self.checked(guard), ops.len(), 0);
        // Borrowed for each access, because `hash` reads operations ahead of the one that runs.
        let ops = RefCell::new(ops);
        let hash = |at: usize| ops.borrow().get(at).map(|op| self.hash_of_op(namespace, op));
        self.run_all(count, hash, |_, turn| {
            let op = &mut ops.borrow_mut()[ran];
            let runs_now = match self.run_op(&turn, namespace, op, pinned) {
                Ok(runs_now) => runs_now,
                Err(error) => return ControlFlow::Break(Err(error)),
            };
            ran += 1;
            if runs_now && on_failure == OnFailure::Stop && op.failed() {
                return ControlFlow::Break(Ok(()));
            }
            ControlFlow::Continue(())
        })?;
        Ok(ran)
    }

    fn hash_of_op<Q: Hash + ?Sized>(&self, namespace: u16, op: &DlhtMapOp<'_, '_, K, V, Q>) -> u64
    where
        K: Borrow<Q>,
    {
        match &op.ask {
            Ask::Get(key) | Ask::Remove(key) => self.hash_of(namespace, *key),
            Ask::Put(_, Some((key, _))) => self.hash_of(namespace, key.borrow()),
            // The operation has run.
            Ask::Put(_, None) => 0,
        }
    }

    /// Runs `op` unless it has run before. Returns whether it ran now.
    ///
    /// # Errors
    /// Fails if a record is refused. The operation has not run then, and still has its record.
    #[inline]
    fn run_op<'g, Q: Hash + Eq + ?Sized>(
        &self,
        turn: &BatchOp<'_, M>,
        namespace: u16,
        op: &mut DlhtMapOp<'_, 'g, K, V, Q>,
        pinned: &'g DlhtGuard<'_>,
    ) -> Result<bool>
    where
        K: Borrow<Q> + 'g,
    {
        if op.ran {
            return Ok(false);
        }
        op.ran = true;
        op.before = match &mut op.ask {
            Ask::Get(key) => self.value_at(turn, namespace, *key, pinned),
            Ask::Remove(key) => {
                let taken = self.take_at(turn, namespace, *key, |_| true, pinned);
                taken.map(|record| &record.value)
            }
            Ask::Put(when, record) => {
                // The record is there, because the operation has not run.
                let Some(new) = record.take() else { return Ok(false) };
                match self.put_at(turn, namespace, new, *when, pinned) {
                    Ok(put) => put.before(),
                    Err(Refused { error, key, value }) => {
                        *record = Some((key, value));
                        op.ran = false;
                        return Err(error);
                    }
                }
            }
        };
        Ok(true)
    }
}
