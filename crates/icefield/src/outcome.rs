//! The outcomes of operations, and positions in a table, for tables and engines alike.

use std::fmt;

/// The error of an insert whose key is present; holds the present value.
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// table.put(1, 10)?;
/// assert_eq!(table.try_insert(1, 11)?, Err(icefield::Occupied(10)));
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupied<O>(pub O);

impl<O> Occupied<O> {
    /// Returns the present value.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// let value = table.try_insert(1, 11).map_or_else(|occupied| occupied.into_inner(), |()| 11);
    /// assert_eq!(value, 10);
    /// ```
    pub fn into_inner(self) -> O {
        self.0
    }
}

impl<O> fmt::Display for Occupied<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key is present")
    }
}

impl<O: fmt::Debug> std::error::Error for Occupied<O> {}

/// The decision of a [`Table::compute`](crate::Table::compute) closure.
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// use icefield::Decision;
/// let halve = |value: Option<&u64>| match value {
///     None => Decision::Keep,
///     Some(0) => Decision::Remove,
///     Some(value) => Decision::Put(value / 2),
/// };
/// table.put(1, 10)?;
/// table.compute(1, halve)?;
/// assert_eq!(table.get(1)?, Some(5));
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<O> {
    /// Leave the key as it is.
    Keep,
    /// Insert or replace.
    Put(O),
    /// Remove the key, if present.
    Remove,
}

/// The outcome of [`Table::compute`](crate::Table::compute), with the value before the call.
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// use icefield::{Computed, Decision};
/// assert_eq!(table.compute(1, |_| Decision::Put(10))?, Computed::Put(None));
/// assert_eq!(table.compute(1, |_| Decision::Remove)?.before(), Some(10));
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Computed<O> {
    /// Nothing was changed; holds the value, or `None` if the key is absent.
    Kept(Option<O>),
    /// A value was stored; holds the replaced value, or `None` if the key was absent.
    Put(Option<O>),
    /// The key was removed; holds its value, or `None` if the key was absent.
    Removed(Option<O>),
}

impl<O> Computed<O> {
    /// Returns the value before the call.
    pub fn before(self) -> Option<O> {
        match self {
            Self::Kept(before) | Self::Put(before) | Self::Removed(before) => before,
        }
    }
}

/// The action of a mixed batch after an operation that failed ([`Op::failed`](crate::Op::failed)).
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// use icefield::{OnFailure, Op};
/// let mut ops = [Op::update(1, 10), Op::put(2, 20)];
/// assert_eq!(table.execute(&mut ops, OnFailure::Stop)?, 1, "ends at the absent key");
/// assert_eq!(table.execute(&mut ops, OnFailure::Continue)?, 2);
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Run every operation.
    Continue,
    /// Stop after the first operation that failed.
    Stop,
}

/// A position in a [`Table::scan`](crate::Table::scan). It stays valid across resizes, splits and reopening.
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// table.put_batch(&[(1, 10), (2, 20), (3, 30)])?;
/// let (mut seen, mut next) = (0, Some(icefield::Cursor::START));
/// while let Some(cursor) = next {
///     let page = table.scan(cursor, 2)?;
///     seen += page.records.len();
///     next = page.next;
/// }
/// assert_eq!(seen, 3);
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub u64);

impl Cursor {
    /// The beginning of a table.
    pub const START: Self = Self(0);
}

/// Number of records in a page when the library scans a whole table.
pub(crate) const SCAN_PAGE: usize = 1024;
