//! The operations of mixed batches, and the arguments and results of batches.

use super::held::{HeldKeys, NotShadowed};
use crate::outcome::{Cursor, Occupied};
use crate::types::{Arg, Key, Owned, Value};
use crate::{Error, Result};

/// The outcome of [`Table::try_insert`](crate::Table::try_insert) for one key; `Err` holds the present value.
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// let mut outcomes: [icefield::TryInsert<u64>; 2] = [Ok(()); 2];
/// table.try_insert_batch(&[(1, 10), (1, 11)], &mut outcomes)?;
/// assert_eq!(outcomes, [Ok(()), Err(icefield::Occupied(10))]);
/// # Ok::<(), icefield::Error>(())
/// ```
pub type TryInsert<V> = std::result::Result<(), Occupied<Owned<V>>>;

/// The outcome of a compare-and-exchange; `Err` holds the present value, or `None` if the key is absent.
///
/// ```
/// use icefield::{DashEh, Exchanged};
/// let table = DashEh::<u64, str>::in_memory()?;
/// table.put(1, "draft")?;
/// let outcome: Exchanged<str> = table.compare_exchange(1, "final", "void")?;
/// assert_eq!(outcome, Err(Some(String::from("draft"))));
/// # Ok::<(), icefield::Error>(())
/// ```
pub type Exchanged<V> = std::result::Result<(), Option<Owned<V>>>;

/// One operation of a mixed batch ([`Table::execute`](crate::Table::execute)). Running it fills in its last field,
/// except for `Put`, which has no result.
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// use icefield::{OnFailure, Op};
/// let mut ops = [Op::put(1, 10), Op::get(1), Op::remove(2)];
/// table.execute(&mut ops, OnFailure::Continue)?;
/// assert!(matches!(ops[1], Op::Get(1, Some(10))));
/// assert!(ops[2].failed());
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Op<'a, K: Key + ?Sized, V: Value + ?Sized> {
    /// [`Table::get`](crate::Table::get).
    Get(Arg<'a, K>, Option<Owned<V>>),
    /// [`Table::try_insert`](crate::Table::try_insert); the outcome is `Ok` until the operation runs.
    TryInsert(Arg<'a, K>, Arg<'a, V>, TryInsert<V>),
    /// [`Table::insert`](crate::Table::insert), with the previous value.
    Insert(Arg<'a, K>, Arg<'a, V>, Option<Owned<V>>),
    /// [`Table::put`](crate::Table::put).
    Put(Arg<'a, K>, Arg<'a, V>),
    /// [`Table::update`](crate::Table::update), with the previous value.
    Update(Arg<'a, K>, Arg<'a, V>, Option<Owned<V>>),
    /// [`Table::remove`](crate::Table::remove), with the value removed.
    Remove(Arg<'a, K>, Option<Owned<V>>),
    /// A shadow insert into a DLHT table. The third field belongs to the [`Shadows`](crate::Shadows) that holds the key
    /// until it commits or aborts. The outcome is `Ok` until the operation runs.
    Shadow(Arg<'a, K>, Arg<'a, V>, &'a HeldKeys, Result<(), NotShadowed<Owned<V>>>),
}

/// Constructors of operations that have not run yet, and accessors.
///
/// ```
/// use icefield::{OnFailure, Op};
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// let mut ops = [
///     Op::try_insert(1, 10), // `TryInsert(1, 10, Ok(()))`
///     Op::insert(1, 11),
///     Op::update(2, 20),
///     Op::put(2, 21),
///     Op::get(1),
///     Op::remove(2),
/// ];
/// assert_eq!(table.execute(&mut ops, OnFailure::Continue)?, 6);
/// assert!(matches!(&ops[1], Op::Insert(1, 11, Some(10))));
/// assert!(matches!(&ops[4], Op::Get(1, Some(11))));
/// let failed: Vec<_> = ops.iter().filter(|op| op.failed()).map(Op::key).collect();
/// assert_eq!(failed, [2], "only `update` found its key absent");
/// # Ok::<(), icefield::Error>(())
/// ```
impl<'a, K: Key + ?Sized, V: Value + ?Sized> Op<'a, K, V> {
    /// Reads `key`.
    pub fn get(key: Arg<'a, K>) -> Self {
        Self::Get(key, None)
    }
    /// Inserts `key` if absent.
    pub fn try_insert(key: Arg<'a, K>, value: Arg<'a, V>) -> Self {
        Self::TryInsert(key, value, Ok(()))
    }
    /// Inserts or replaces, and returns the previous value.
    pub fn insert(key: Arg<'a, K>, value: Arg<'a, V>) -> Self {
        Self::Insert(key, value, None)
    }
    /// Inserts or replaces, without returning the previous value.
    pub fn put(key: Arg<'a, K>, value: Arg<'a, V>) -> Self {
        Self::Put(key, value)
    }
    /// Replaces if present.
    pub fn update(key: Arg<'a, K>, value: Arg<'a, V>) -> Self {
        Self::Update(key, value, None)
    }
    /// Removes `key`.
    pub fn remove(key: Arg<'a, K>) -> Self {
        Self::Remove(key, None)
    }
    /// Inserts `key` as a shadow: readers see it only after `shadows` has committed, and aborting `shadows` removes it.
    /// Tables other than [`DlhtTable`](crate::DlhtTable) refuse the batch with [`Error::Unsupported`] before any
    /// operation runs.
    ///
    /// ```
    /// use icefield::{Dlht, OnFailure, Op};
    /// let table = Dlht::<u64, u64>::new();
    /// let shadows = table.shadows();
    /// let mut ops = [Op::shadow(1, 10, &shadows), Op::get(1)];
    /// table.execute(&mut ops, OnFailure::Continue);
    /// assert!(!ops[0].failed() && ops[1].failed());
    /// shadows.commit();
    /// assert_eq!(table.get(1), Some(10));
    /// ```
    pub fn shadow(key: Arg<'a, K>, value: Arg<'a, V>, shadows: &'a impl AsRef<HeldKeys>) -> Self {
        Self::Shadow(key, value, shadows.as_ref(), Ok(()))
    }
    /// Returns the operation's key.
    pub fn key(&self) -> Arg<'a, K> {
        match self {
            Self::Get(key, _)
            | Self::TryInsert(key, ..)
            | Self::Insert(key, ..)
            | Self::Put(key, _)
            | Self::Update(key, ..)
            | Self::Remove(key, _)
            | Self::Shadow(key, ..) => *key,
        }
    }
    /// Returns `true` if a `TryInsert` or `Shadow` found its key occupied (a `Shadow` also by another shadow insert),
    /// or if a `Get`, `Update` or `Remove` found its key absent. Meaningful only after the operation has run.
    pub fn failed(&self) -> bool {
        match self {
            Self::Get(_, found) | Self::Update(_, _, found) | Self::Remove(_, found) => {
                found.is_none()
            }
            Self::TryInsert(_, _, outcome) => outcome.is_err(),
            Self::Shadow(.., outcome) => outcome.is_err(),
            Self::Insert(..) | Self::Put(..) => false,
        }
    }
}

/// One page of records, from [`Table::scan`](crate::Table::scan).
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// table.put(1, 10)?;
/// let page = table.scan(icefield::Cursor::START, 100)?;
/// assert_eq!((page.records, page.next), (vec![(1, 10)], None));
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Page<K: Key + ?Sized, V: Value + ?Sized> {
    /// The records, in the order of the table's structure.
    pub records: Vec<(Owned<K>, Owned<V>)>,
    /// The cursor of the next page; `None` after the last one.
    pub next: Option<Cursor>,
}

/// Returns an error if a batch has shadow inserts, for tables that do not support them.
pub(crate) fn no_shadows<K: Key + ?Sized, V: Value + ?Sized>(ops: &[Op<'_, K, V>]) -> Result<()> {
    if ops.iter().any(|op| matches!(op, Op::Shadow(..))) {
        let detail = "only DLHT tables of words have shadow inserts";
        return Err(Error::Unsupported(detail.to_owned()));
    }
    Ok(())
}

/// Returns an error unless there is one result slot for each operation.
pub(crate) fn same_length(keys: usize, results: usize) -> Result<()> {
    if keys == results {
        return Ok(());
    }
    Err(Error::InvalidOption {
        option: "results",
        detail: format!("length mismatch: {keys} operations, {results} result slots"),
    })
}

impl<K: Key + ?Sized, V: Value + ?Sized> Op<'_, K, V> {
    /// Fills in the result of the operation, given the value that its key had before.
    pub(crate) fn fill(&mut self, before: Option<Owned<V>>) {
        match self {
            Self::Get(_, found)
            | Self::Insert(_, _, found)
            | Self::Update(_, _, found)
            | Self::Remove(_, found) => *found = before,
            Self::TryInsert(_, _, outcome) => {
                *outcome = before.map_or(Ok(()), |value| Err(Occupied(value)));
            }
            Self::Put(..) | Self::Shadow(..) => {}
        }
    }
}
