//! The traits [`Table`] and [`Durable`], and the types of their arguments, outcomes and reports.

mod held;
mod iter;
mod mixed;

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use crate::error::without_advice;
use crate::storage::Durability;
use crate::types::{Data, Key, Value, Word};
use crate::{Error, Result};

pub use held::{HeldKeys, NotShadowed};
pub use iter::Iter;
pub(crate) use mixed::run_mixed;

/// The type in which calls take a `D`: a word or array by value, `&str` for `str`, `&[u8]` for `[u8]`.
///
/// ```
/// use icefield::{Arg, DashEh, Key};
///
/// fn knows<K: Key + ?Sized>(table: &DashEh<K, u64>, key: Arg<'_, K>) -> icefield::Result<bool> {
///     table.contains(key)
/// }
/// assert!(!knows::<str>(&DashEh::in_memory()?, "nobody")?); // `&str` for `str`,
/// assert!(!knows::<u64>(&DashEh::in_memory()?, 7)?); // `u64` for `u64`.
/// # Ok::<(), icefield::Error>(())
/// ```
pub type Arg<'a, D> = <D as Data>::Arg<'a>;
/// The type in which calls return a `D`: a word or array by value, `String` for `str`, `Vec<u8>` for `[u8]`.
///
/// ```
/// let names = icefield::DashEh::<u64, str>::in_memory()?;
/// names.put(1, "one")?;
/// let owned: Option<icefield::Owned<str>> = names.get(1)?;
/// assert_eq!(owned, Some(String::from("one")));
/// # Ok::<(), icefield::Error>(())
/// ```
pub type Owned<D> = <D as Data>::Owned;

/// A key and its value as an argument of a batch.
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// let records: [icefield::RecordArg<'_, u64, u64>; 2] = [(1, 10), (2, 20)];
/// table.put_batch(&records)?;
/// assert_eq!(table.len()?, 2);
/// # Ok::<(), icefield::Error>(())
/// ```
pub type RecordArg<'a, K, V> = (Arg<'a, K>, Arg<'a, V>);

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

/// The outcome of [`Table::try_insert`] for one key; `Err` holds the present value.
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

/// The decision of a [`Table::compute`] closure.
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

/// The outcome of [`Table::compute`], with the value before the call.
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
    /// A value was stored; holds the one it replaced, or `None` if the key was absent.
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

/// One operation of a mixed batch ([`Table::execute`]). Running it fills in its last field, except for `Put`, which has
/// no result.
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
    /// [`Table::get`].
    Get(Arg<'a, K>, Option<Owned<V>>),
    /// [`Table::try_insert`]; `Ok` until it runs.
    TryInsert(Arg<'a, K>, Arg<'a, V>, TryInsert<V>),
    /// [`Table::insert`], with the previous value.
    Insert(Arg<'a, K>, Arg<'a, V>, Option<Owned<V>>),
    /// [`Table::put`].
    Put(Arg<'a, K>, Arg<'a, V>),
    /// [`Table::update`], with the previous value.
    Update(Arg<'a, K>, Arg<'a, V>, Option<Owned<V>>),
    /// [`Table::remove`], with the value removed.
    Remove(Arg<'a, K>, Option<Owned<V>>),
    /// A shadow insert into a DLHT table. The third field belongs to the [`Shadows`](crate::Shadows) that holds the key
    /// until it commits or aborts. The outcome is `Ok` until the operation runs.
    Shadow(Arg<'a, K>, Arg<'a, V>, &'a HeldKeys, Result<(), NotShadowed<Owned<V>>>),
}

/// Constructors for operations that have not run yet, and their accessors.
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
    /// Returns whether the operation found its key occupied (`TryInsert`; `Shadow`, also by another shadow insert) or
    /// absent (`Get`, `Update`, `Remove`). Meaningful only after the operation has run.
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

/// The action of a mixed batch after an operation that failed ([`Op::failed`]).
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

/// A position in a [`Table::scan`]. It stays valid across resizes, splits and reopening.
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

/// One page of records, from [`Table::scan`].
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

/// Sizes and counters of a table at one moment, from [`Table::stats`].
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// let stats = table.stats();
/// assert_eq!(stats.len_estimate, 0);
/// assert!(stats.details.iter().any(|(name, _)| *name == "splits"));
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Estimated number of records. Exact on a quiescent table that was closed cleanly, except in Plush, whose blind
    /// writes do not check whether their keys are present. After a crash, Dash counts only the changes since opening
    /// until [`Table::len`] is called, IcebergHT counts its records during recovery, and Plush estimates them from a
    /// sample.
    pub len_estimate: u64,
    /// Number of records that fit before the table must grow.
    pub capacity: u64,
    /// Total length of the table's regions on the medium, in bytes.
    pub storage_bytes: u64,
    /// DRAM that the table uses in addition to its regions, in bytes.
    pub dram_bytes: u64,
    /// The medium; `None` for tables that have no regions.
    pub durability: Option<Durability>,
    /// Counters that are specific to the design (segments, depth, splits ...), by name.
    pub details: Vec<(&'static str, u64)>,
}

/// The result of opening a table, from [`Durable::recovery`].
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// let report = table.recovery();
/// println!("opened in {:?}, {} changes settled", report.open_time, report.resolved);
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// `true` if the table had been closed cleanly.
    pub was_clean: bool,
    /// Number of times that the table has been opened, this time included.
    pub generation: u64,
    /// Number of structure changes that a crash had interrupted and that opening completed or undid.
    pub resolved: u64,
    /// Duration of the opening.
    pub open_time: Duration,
}

/// The number of faults that a report lists one by one.
const FAULTS_TOLD: usize = 100;

/// The result of [`Durable::check`].
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// let report = table.check()?;
/// assert!(report.is_clean(), "{:#?}", report.faults);
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Number of records seen.
    pub records: u64,
    /// The broken invariants, each with its number in the table's module header. At most 100 are listed; a last entry
    /// reports that there are more.
    pub faults: Vec<String>,
    /// Blocks that belong neither to the table nor to a free list. Any such block is a fault.
    pub leaked: u64,
}

impl CheckReport {
    /// Returns `true` if there is no fault and no leaked block.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.leaked == 0
    }

    /// Adds a fault, up to a limit: a table that is badly damaged has more faults than a reader can use.
    pub(crate) fn fault(&mut self, words: String) {
        match self.faults.len() {
            0..FAULTS_TOLD => self.faults.push(without_advice(words)),
            FAULTS_TOLD => self.faults.push("more faults, which are not listed".to_owned()),
            _ => {}
        }
    }
}

/// The result of [`Durable::backup`].
///
/// ```
/// let directory = tempfile::tempdir()?;
/// let table = icefield::DashEh::<u64, u64>::open_or_create(directory.path().join("a.ice"))?;
/// let report = table.backup(directory.path().join("copy.ice"))?;
/// println!("{} bytes; writers waited {:?}", report.bytes, report.pause);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BackupReport {
    /// Number of bytes copied.
    pub bytes: u64,
    /// Duration for which writers had to wait.
    pub pause: Duration,
}

/// The result of [`Durable::salvage`].
///
/// ```
/// let directory = tempfile::tempdir()?;
/// let table = icefield::DashEh::<u64, u64>::open_or_create(directory.path().join("a.ice"))?;
/// table.put(1, 10)?;
/// let report = table.salvage(directory.path().join("rescued.ice"))?;
/// assert_eq!(report.records, 1);
/// assert!(report.lost.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Number of records copied to the new table.
    pub records: u64,
    /// Descriptions of everything that was not copied: damaged records, and parts of the files that are missing or
    /// unreadable.
    pub lost: Vec<String>,
    /// The damaged records, with the bytes that are left of them. Each is also listed in `lost`.
    pub damaged: Vec<DamagedRecord>,
}

impl SalvageReport {
    /// Adds a part of the files that cannot be read.
    pub(crate) fn lose(&mut self, words: impl fmt::Display) {
        self.lost.push(without_advice(words));
    }

    /// Adds a record that is left out.
    pub(crate) fn damaged(&mut self, mut record: DamagedRecord) {
        record.reason = without_advice(record.reason);
        self.lost.push(record.to_string());
        self.damaged.push(record);
    }
}

/// A damaged record that [`Durable::salvage`] found and left out. `Display` formats it as in [`SalvageReport::lost`].
///
/// ```
/// # use icefield::{DamagedRecord, SalvageReport};
/// fn tell(report: &SalvageReport) {
///     for DamagedRecord { key, place, reason, .. } in &report.damaged {
///         println!("{key:?}, in {place}: {reason}");
///     }
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedRecord {
    /// The stored bytes of the key (a word is little-endian); `None` if they cannot be read. Either the key or the
    /// value may be the damaged part.
    pub key: Option<Vec<u8>>,
    /// The stored bytes of the value, in the same form.
    pub value: Option<Vec<u8>>,
    /// The part of the files that refers to the record, in the design's terms.
    pub place: String,
    /// The fault.
    pub reason: String,
}

impl fmt::Display for DamagedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// The operations of a hash table of records, implemented by [`DashEh`](crate::DashEh), [`DashLh`](crate::DashLh),
/// [`Iceberg`](crate::Iceberg), [`Plush`](crate::Plush) and [`Dlht`](crate::Dlht).
///
/// Any number of threads may call a table at once. Every operation on a key is linearizable. On a durable table, the
/// effect of a returned call survives every crash that the medium covers, and so does every result that a call
/// returned; only relaxed writes, which Plush offers, wait for a sync.
///
/// The types' inherent methods have the same names, so the trait is needed only for generic code.
///
/// Operations on one key:
///
/// ```
/// use icefield::{Computed, DashEh, Decision, Dlht, Occupied, Table};
///
/// fn show(table: &impl Table<Key = u64, Value = u64>) -> icefield::Result<()> {
///     assert_eq!(table.try_insert(1, 10)?, Ok(()));
///     assert_eq!(table.try_insert(1, 11)?, Err(Occupied(10)));
///     assert_eq!(table.insert(1, 12)?, Some(10));
///     table.put(2, 20)?;
///     assert_eq!(table.update(3, 30)?, None, "absent, and stays so");
///
///     assert_eq!(table.get(1)?, Some(12));
///     assert_eq!(table.get_with(2, |value| value / 2)?, Some(10));
///     assert!(!table.contains(3)?);
///
///     let halve = |value: Option<&u64>| value.map_or(Decision::Keep, |value| Decision::Put(value / 2));
///     assert_eq!(table.compute(1, halve)?, Computed::Put(Some(12)));
///     assert_eq!(table.compare_exchange(1, 6, 7)?, Ok(()));
///     assert_eq!(table.fetch_add(1, 5)?, 7);
///
///     assert_eq!(table.remove(1)?, Some(12));
///     table.delete(2)?;
///     assert!(table.is_empty()?);
///     Ok(())
/// }
/// show(&DashEh::<u64, u64>::in_memory()?)?;
/// show(&Dlht::<u64, u64>::new())?;
/// # Ok::<(), icefield::Error>(())
/// ```
///
/// Batches, which overlap memory latencies and share fences:
///
/// ```
/// use icefield::{DashEh, Occupied, OnFailure, Op, Table};
///
/// fn show(table: &impl Table<Key = u64, Value = u64>) -> icefield::Result<()> {
///     let mut outcomes = [Ok(()); 2];
///     table.try_insert_batch(&[(1, 10), (1, 11)], &mut outcomes)?;
///     assert_eq!(outcomes, [Ok(()), Err(Occupied(10))]);
///     table.put_batch(&[(2, 20), (3, 30)])?;
///
///     let mut values = [None; 2];
///     table.insert_batch(&[(3, 31), (4, 40)], &mut values)?;
///     assert_eq!(values, [Some(30), None]);
///     table.update_batch(&[(4, 41), (5, 50)], &mut values)?;
///     assert_eq!(values, [Some(40), None]);
///     table.remove_batch(&[1, 5], &mut values)?;
///     assert_eq!(values, [Some(10), None]);
///     table.get_batch(&[3, 4], &mut values)?;
///     assert_eq!(values, [Some(31), Some(41)]);
///
///     let mut ops = [Op::get(2), Op::remove(9), Op::put(9, 90)];
///     assert_eq!(table.execute(&mut ops, OnFailure::Stop)?, 2, "9 is absent");
///     Ok(())
/// }
/// show(&DashEh::<u64, u64>::in_memory()?)?;
/// # Ok::<(), icefield::Error>(())
/// ```
///
/// The table as a whole:
///
/// ```
/// use std::ops::ControlFlow;
///
/// use icefield::{Cursor, DashEh, Table};
///
/// fn show(table: &impl Table<Key = u64, Value = u64>) -> icefield::Result<()> {
///     table.reserve(1000)?;
///     assert!(table.capacity() >= 1000);
///     (0..1000).try_for_each(|key| table.put(key, key))?;
///     table.retain(|key, _| key % 10 == 0)?;
///     assert_eq!((table.len()?, table.stats().len_estimate), (100, 100));
///
///     let mut sum = 0;
///     table.for_each(|_, value| {
///         sum += value;
///         ControlFlow::Continue(())
///     })?;
///     assert_eq!(sum, 49_500);
///     assert_eq!(table.iter().collect::<Result<Vec<_>, _>>()?.len(), 100);
///     let page = table.scan(Cursor::START, 10)?;
///     assert!(page.next.is_some(), "there is more");
///
///     table.clear()?;
///     table.shrink_to_fit()?;
///     assert!(table.scan(Cursor::START, 10)?.records.is_empty());
///     Ok(())
/// }
/// show(&DashEh::<u64, u64>::in_memory()?)?;
/// # Ok::<(), icefield::Error>(())
/// ```
///
/// Generic code:
///
/// ```
/// use icefield::{DashEh, Table};
///
/// fn total(table: &impl Table<Key = u64, Value = u64>, keys: &[u64]) -> icefield::Result<u64> {
///     let mut found = vec![None; keys.len()];
///     table.get_batch(keys, &mut found)?;
///     Ok(found.into_iter().flatten().sum())
/// }
/// let table = DashEh::<u64, u64>::in_memory()?;
/// table.put_batch(&[(1, 10), (2, 20)])?;
/// assert_eq!(total(&table, &[1, 2, 3])?, 30);
/// # Ok::<(), icefield::Error>(())
/// ```
pub trait Table: Send + Sync {
    /// The key type.
    type Key: Key + ?Sized;
    /// The value type.
    type Value: Value + ?Sized;

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a file is damaged.
    fn get(&self, key: Arg<'_, Self::Key>) -> Result<Option<Owned<Self::Value>>> {
        self.get_with(key, Self::Value::own_ref)
    }

    /// Calls `f` with the value of `key` and returns the result, or `None` if the key is absent. `f` may get a copy of
    /// the value. No lock is held while `f` runs, so `f` may call the table.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn get_with<R>(
        &self,
        key: Arg<'_, Self::Key>,
        f: impl FnOnce(&Self::Value) -> R,
    ) -> Result<Option<R>>;

    /// Returns `true` if `key` is present.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn contains(&self, key: Arg<'_, Self::Key>) -> Result<bool> {
        Ok(self.get_with(key, |_| ())?.is_some())
    }

    /// Inserts `key` only if it is absent; otherwise returns the present value.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::Poisoned`], [`Error::KeyTooLong`] and others. The table is
    /// unchanged.
    fn try_insert(
        &self,
        key: Arg<'_, Self::Key>,
        value: Arg<'_, Self::Value>,
    ) -> Result<TryInsert<Self::Value>>;

    /// Inserts `key` or replaces its value; returns the previous value.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn insert(
        &self,
        key: Arg<'_, Self::Key>,
        value: Arg<'_, Self::Value>,
    ) -> Result<Option<Owned<Self::Value>>>;

    /// Inserts `key` or replaces its value, without returning the previous value.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn put(&self, key: Arg<'_, Self::Key>, value: Arg<'_, Self::Value>) -> Result<()>;

    /// Replaces the value only if `key` is present; returns the previous value.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn update(
        &self,
        key: Arg<'_, Self::Key>,
        value: Arg<'_, Self::Value>,
    ) -> Result<Option<Owned<Self::Value>>>;

    /// Removes `key`; returns its value.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Poisoned`], [`Error::Corrupt`].
    fn remove(&self, key: Arg<'_, Self::Key>) -> Result<Option<Owned<Self::Value>>>;

    /// Removes `key`, without returning whether it was present.
    ///
    /// # Errors
    /// As [`Table::remove`].
    fn delete(&self, key: Arg<'_, Self::Key>) -> Result<()>;

    /// Reads, modifies and writes the value of `key` atomically: calls `f` with the present value, then applies its
    /// decision. If another thread changes the value in between, `f` is called again. No lock is held while `f` runs.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn compute(
        &self,
        key: Arg<'_, Self::Key>,
        f: impl FnMut(Option<&Self::Value>) -> Decision<Owned<Self::Value>>,
    ) -> Result<Computed<Owned<Self::Value>>>;

    /// Replaces the value by `new` if it equals `current`. Otherwise `Err` holds the present value, or `None` if the
    /// key is absent. Byte values are compared as a whole.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn compare_exchange(
        &self,
        key: Arg<'_, Self::Key>,
        current: Arg<'_, Self::Value>,
        new: Arg<'_, Self::Value>,
    ) -> Result<Exchanged<Self::Value>> {
        let (current, new) =
            (Self::Value::own(Self::Value::raw(current)), Self::Value::own(Self::Value::raw(new)));
        let computed = self.compute(key, |value| match (value, &current, &new) {
            (Some(value), Some(current), Some(new)) if value.own_ref() == *current => {
                Decision::Put(new.clone())
            }
            _ => Decision::Keep,
        })?;
        Ok(match computed {
            Computed::Put(_) => Ok(()),
            other => Err(other.before()),
        })
    }

    /// Adds `delta` to the value of `key`, wrapping around; returns the value before. An absent key counts as zero.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn fetch_add(&self, key: Arg<'_, Self::Key>, delta: Self::Value) -> Result<Self::Value>
    where
        Self::Value: Counter + Data<Owned = Self::Value>,
    {
        let computed = self.compute(key, |value| {
            Decision::Put(value.copied().unwrap_or(Self::Value::ZERO).wrapping_add(delta))
        })?;
        Ok(computed.before().unwrap_or(Self::Value::ZERO))
    }

    /// Returns the number of records, which is exact when the table is quiescent. The first call after a crash may scan
    /// the table; [`Plush`](crate::Plush) scans it in every call.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn len(&self) -> Result<u64>;

    /// Returns `true` if the table holds no record.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the number of records that fit before the table must grow.
    fn capacity(&self) -> u64;

    /// Returns sizes and counters of the table. Constant time.
    fn stats(&self) -> Stats;

    /// Returns about `n` records from `cursor` on. Weakly consistent: a pass over the whole table returns every key
    /// that is present throughout exactly once, also across splits.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn scan(&self, cursor: Cursor, n: usize) -> Result<Page<Self::Key, Self::Value>>;

    /// Returns an iterator over the records, as consistent as [`Table::scan`].
    fn iter(&self) -> Iter<'_, Self>
    where
        Self: Sized,
    {
        Iter::new(self)
    }

    /// Calls `f` with every record until it breaks, as consistent as [`Table::scan`]. No lock is held while `f` runs.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn for_each(
        &self,
        mut f: impl FnMut(&Owned<Self::Key>, &Owned<Self::Value>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut next = Some(Cursor::START);
        while let Some(cursor) = next {
            let page = self.scan(cursor, SCAN_PAGE)?;
            for (key, value) in &page.records {
                if f(key, value).is_break() {
                    return Ok(());
                }
            }
            next = page.next;
        }
        Ok(())
    }

    /// Removes every record at once: a crash leaves all of them or none.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn clear(&self) -> Result<()>;

    /// Makes room for `additional` more records, so that inserting them causes few splits or none.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; the room that was already made is kept.
    fn reserve(&self, additional: u64) -> Result<()>;

    /// Frees space that the records do not need, as far as the design can. By default it does nothing.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Io`]; no record is lost.
    fn shrink_to_fit(&self) -> Result<()> {
        Ok(())
    }

    /// Removes the records for which `f` returns `false`, each by a separate operation; returns the number of removed
    /// records.
    ///
    /// # Errors
    /// As [`Table::remove`].
    fn retain(&self, f: impl FnMut(Arg<'_, Self::Key>, &Self::Value) -> bool) -> Result<usize> {
        retain(self, f)
    }

    /// Runs [`Table::get`] for each key in order, with overlapping memory latencies.
    ///
    /// # Errors
    /// As [`Table::get`]; [`Error::InvalidOption`] if the slices differ in length.
    fn get_batch(
        &self,
        keys: &[Arg<'_, Self::Key>],
        found: &mut [Option<Owned<Self::Value>>],
    ) -> Result<()>;

    /// Runs [`Table::insert`] for each record in order. All are durable when the call returns; their flushes share
    /// fences. After a crash during the call, any subset of the keys may have been inserted; the operations on one key
    /// survive as a prefix.
    ///
    /// # Errors
    /// As [`Table::try_insert`]; the operations before the failing one are durable, and their results are filled in.
    fn insert_batch(
        &self,
        records: &[RecordArg<'_, Self::Key, Self::Value>],
        previous: &mut [Option<Owned<Self::Value>>],
    ) -> Result<()>;

    /// Runs [`Table::put`] for each record, as [`Table::insert_batch`] does.
    ///
    /// # Errors
    /// As [`Table::insert_batch`].
    fn put_batch(&self, records: &[RecordArg<'_, Self::Key, Self::Value>]) -> Result<()>;

    /// Runs [`Table::update`] for each record, as [`Table::insert_batch`] does.
    ///
    /// # Errors
    /// As [`Table::insert_batch`].
    fn update_batch(
        &self,
        records: &[RecordArg<'_, Self::Key, Self::Value>],
        previous: &mut [Option<Owned<Self::Value>>],
    ) -> Result<()>;

    /// Runs [`Table::try_insert`] for each record, as [`Table::insert_batch`] does.
    ///
    /// # Errors
    /// As [`Table::insert_batch`].
    fn try_insert_batch(
        &self,
        records: &[RecordArg<'_, Self::Key, Self::Value>],
        outcomes: &mut [TryInsert<Self::Value>],
    ) -> Result<()>;

    /// Runs [`Table::remove`] for each key, as [`Table::insert_batch`] does.
    ///
    /// # Errors
    /// As [`Table::insert_batch`].
    fn remove_batch(
        &self,
        keys: &[Arg<'_, Self::Key>],
        removed: &mut [Option<Owned<Self::Value>>],
    ) -> Result<()>;

    /// Runs a mixed batch strictly in order; returns the number of operations that ran. These are durable, and their
    /// results are filled in.
    ///
    /// # Errors
    /// As [`Table::insert_batch`]; [`Error::Unsupported`], before any operation runs, if there is an [`Op::Shadow`] and
    /// the table has no shadow inserts; [`Error::InvalidOption`] at an operation that names the shadows of another
    /// table.
    fn execute(
        &self,
        ops: &mut [Op<'_, Self::Key, Self::Value>],
        on_failure: OnFailure,
    ) -> Result<usize>;

    /// Prefetches the memory that a read of `key` will access.
    ///
    /// ```
    /// use icefield::{DashEh, Table};
    /// let table = DashEh::<u64, u64>::in_memory()?;
    /// Table::prefetch(&table, 1); // Its lines are on their way while this thread does something else.
    /// assert_eq!(Table::get(&table, 1)?, None);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    fn prefetch(&self, key: Arg<'_, Self::Key>);

    /// Prefetches `key`, yields to the executor once, then reads the value.
    ///
    /// # Errors
    /// As [`Table::get`].
    ///
    /// ```
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
    /// #     }
    /// # }
    /// use icefield::{DashEh, Table};
    /// async fn sum(table: &impl Table<Key = u64, Value = u64>) -> icefield::Result<Option<u64>> {
    ///     let (one, two) = (table.get_async(1).await?, table.get_async(2).await?);
    ///     Ok(one.zip(two).map(|(one, two)| one + two))
    /// }
    /// let table = DashEh::<u64, u64>::in_memory()?;
    /// table.put_batch(&[(1, 10), (2, 20)])?;
    /// assert_eq!(block_on(sum(&table))?, Some(30));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    fn get_async(
        &self,
        key: Arg<'_, Self::Key>,
    ) -> impl Future<Output = Result<Option<Owned<Self::Value>>>> + Send {
        async move {
            self.prefetch(key);
            YieldOnce(false).await;
            self.get(key)
        }
    }
}

/// [`Table::retain`] by the table's other calls.
pub(crate) fn retain<T: Table + ?Sized>(
    table: &T,
    mut f: impl FnMut(Arg<'_, T::Key>, &T::Value) -> bool,
) -> Result<usize> {
    let mut removed = 0;
    let mut next = Some(Cursor::START);
    while let Some(cursor) = next {
        let page = table.scan(cursor, SCAN_PAGE)?;
        for (key, _) in &page.records {
            let key = T::Key::arg(key);
            let computed = table.compute(key, |value| match value {
                Some(value) if !f(key, value) => Decision::Remove,
                _ => Decision::Keep,
            })?;
            removed += usize::from(matches!(computed, Computed::Removed(_)));
        }
        next = page.next;
    }
    Ok(removed)
}

/// The operations of a table that can live in files, in addition to [`Table`].
///
/// An open table owns its files. No other program may write, truncate or replace them: the table would read foreign
/// bytes as values. A copy of the open files made by other means than [`Durable::backup`] (`cp -r`, `rsync`) opens
/// without an error and may hold wrong values, which [`Durable::check`] finds.
///
/// ```
/// use icefield::{DashEh, Durable};
///
/// /// A copy beside the table; what can be rescued of it when it is damaged.
/// fn keep(table: &impl Durable) -> icefield::Result<u64> {
///     assert!(table.recovery().generation >= 1, "opened once at least");
///     table.sync()?;
///     let copy = table.path().with_extension("copy");
///     if table.check()?.is_clean() {
///         table.backup(&copy)?;
///         table.len()
///     } else {
///         Ok(table.salvage(&copy)?.records)
///     }
/// }
/// let directory = tempfile::tempdir()?;
/// let table = DashEh::<u64, u64>::create(directory.path().join("orders.ice"))?;
/// table.put(7, 70)?;
/// assert_eq!(keep(&table)?, 1);
/// let copy = DashEh::<u64, u64>::open(directory.path().join("orders.copy"))?;
/// assert_eq!(copy.get(7)?, Some(70));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Durable: Table {
    /// Returns when every earlier operation is durable. Needed only after relaxed writes; any other call is durable
    /// when it returns.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a sync failed.
    fn sync(&self) -> Result<()>;

    /// Checks every invariant and checksum, without changing a record. Call it on a quiescent table.
    ///
    /// # Errors
    /// [`Error::Io`] if the files cannot be read at all.
    fn check(&self) -> Result<CheckReport>;

    /// Scans as [`Table::scan`] does, but continues after a damaged record: calls `damaged` with its key, if that can
    /// be read, and the error.
    #[doc(hidden)]
    fn scan_whole(
        &self,
        cursor: Cursor,
        n: usize,
        damaged: &mut dyn FnMut(Option<Owned<Self::Key>>, Error),
    ) -> Result<Page<Self::Key, Self::Value>> {
        let _ = damaged;
        self.scan(cursor, n)
    }

    /// Copies everything that can still be read to a new table at `path`.
    ///
    /// # Errors
    /// The new table cannot be written.
    fn salvage(&self, path: &Path) -> Result<SalvageReport>;

    /// Copies the table's directory to `path`, where the copy opens as a table. Writers wait during the copy; readers
    /// do not.
    ///
    /// # Errors
    /// The copy cannot be written; nothing is left at `path`.
    fn backup(&self, path: &Path) -> Result<BackupReport>;

    /// Returns the table's directory.
    fn path(&self) -> &Path;

    /// Returns what opening found and did.
    fn recovery(&self) -> RecoveryReport;
}

/// A word type with addition, for [`Table::fetch_add`].
///
/// ```
/// use icefield::Counter;
/// assert_eq!(250_u8.wrapping_add(10), 4);
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// assert_eq!(table.fetch_add(1, 5)?, u64::ZERO, "what it was");
/// assert_eq!(table.get(1)?, Some(5));
/// # Ok::<(), icefield::Error>(())
/// ```
pub trait Counter: Word {
    /// Zero.
    const ZERO: Self;
    /// Returns the sum, wrapping around at the type's width.
    #[must_use]
    fn wrapping_add(self, delta: Self) -> Self;
}

macro_rules! counter {
    ($($ty:ty),*) => {$(
        impl Counter for $ty {
            const ZERO: Self = 0;
            #[inline]
            fn wrapping_add(self, delta: Self) -> Self {
                <$ty>::wrapping_add(self, delta)
            }
        }
    )*};
}
counter!(u8, u16, u32, u64, i8, i16, i32, i64);

/// Number of records in a page when the library scans a whole table.
pub(crate) const SCAN_PAGE: usize = 1024;

/// Returns a future that is pending exactly once.
pub(crate) fn yield_once() -> impl Future<Output = ()> + Send {
    YieldOnce(false)
}

struct YieldOnce(bool);

impl Future for YieldOnce {
    type Output = ();

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<()> {
        if self.0 {
            return std::task::Poll::Ready(());
        }
        self.0 = true;
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    }
}

/// Returns an error if a batch has shadow inserts, for tables that do not support them.
pub(crate) fn no_shadows<K: Key + ?Sized, V: Value + ?Sized>(ops: &[Op<'_, K, V>]) -> Result<()> {
    if ops.iter().any(|op| matches!(op, Op::Shadow(..))) {
        let detail = "only DLHT tables of words have shadow inserts";
        return Err(Error::Unsupported(detail.to_owned()));
    }
    Ok(())
}

/// Returns an error that names the argument if the slices differ in length.
pub(crate) fn same_length(keys: usize, results: usize) -> Result<()> {
    if keys == results {
        return Ok(());
    }
    Err(Error::InvalidOption {
        option: "results",
        detail: format!("{results} places for the results of {keys} operations"),
    })
}
