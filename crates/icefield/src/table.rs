//! The one interface over all tables: operations, their outcomes, reports.

mod held;
mod iter;
mod mixed;

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use crate::error::without_advice;
use crate::key::{Data, Key, Value, Word};
use crate::pm::Durability;
use crate::{Error, Result};

pub use held::{HeldKeys, NotShadowed};
pub use iter::Iter;
pub(crate) use mixed::run_mixed;

/// How calls take a `D`.
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
/// How calls give a `D` back.
///
/// ```
/// let names = icefield::DashEh::<u64, str>::in_memory()?;
/// names.put(1, "one")?;
/// let owned: Option<icefield::Owned<str>> = names.get(1)?;
/// assert_eq!(owned, Some(String::from("one")));
/// # Ok::<(), icefield::Error>(())
/// ```
pub type Owned<D> = <D as Data>::Owned;

/// A key and its value, as batches take them.
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// let records: [icefield::RecordArg<'_, u64, u64>; 2] = [(1, 10), (2, 20)];
/// table.put_batch(&records)?;
/// assert_eq!(table.len()?, 2);
/// # Ok::<(), icefield::Error>(())
/// ```
pub type RecordArg<'a, K, V> = (Arg<'a, K>, Arg<'a, V>);

/// The key is present; holds its value.
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
    /// The present value.
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

/// What [`Table::try_insert`] says of one key.
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// let mut outcomes: [icefield::TryInsert<u64>; 2] = [Ok(()); 2];
/// table.try_insert_batch(&[(1, 10), (1, 11)], &mut outcomes)?;
/// assert_eq!(outcomes, [Ok(()), Err(icefield::Occupied(10))]);
/// # Ok::<(), icefield::Error>(())
/// ```
pub type TryInsert<V> = std::result::Result<(), Occupied<Owned<V>>>;

/// The outcome of a compare-and-exchange: `Err` holds the value that was there instead, if there was one.
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

/// What a [`Table::compute`] closure decides.
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

/// What [`Table::compute`] did, with the value before.
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
    /// Nothing; the value, if present.
    Kept(Option<O>),
    /// Put a value; the one it replaced.
    Put(Option<O>),
    /// Removed the key; the value it had.
    Removed(Option<O>),
}

impl<O> Computed<O> {
    /// The value before the call.
    pub fn before(self) -> Option<O> {
        match self {
            Self::Kept(before) | Self::Put(before) | Self::Removed(before) => before,
        }
    }
}

/// One operation of a mixed batch ([`Table::execute`]); the last field of each is filled in when it runs.
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
    /// A shadow insert on a DLHT table, held by the [`Shadows`](crate::Shadows) whose keys these are; `Ok` until it
    /// runs.
    Shadow(Arg<'a, K>, Arg<'a, V>, &'a HeldKeys, Result<(), NotShadowed<Owned<V>>>),
}

/// Each makes an operation that has not run yet.
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
    /// Inserts or replaces, telling the previous value.
    pub fn insert(key: Arg<'a, K>, value: Arg<'a, V>) -> Self {
        Self::Insert(key, value, None)
    }
    /// Inserts or replaces, blindly.
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
    /// Inserts `key` so that only `shadows` knows, which is what commits or aborts it. Tables other than
    /// [`DlhtTable`](crate::DlhtTable) refuse the batch with [`Error::Unsupported`] before anything runs.
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
    /// The operation's key.
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
    /// Whether the operation, having run, found its key occupied (`TryInsert`; `Shadow`, also by another shadow insert)
    /// or absent (`Get`, `Update`, `Remove`).
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

/// Whether a mixed batch goes on after an operation that found its key occupied or absent.
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
    /// End after the first such operation.
    Stop,
}

/// Where a [`Table::scan`] goes on. Survives resizes, splits and reopening.
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
    /// The beginning of the table.
    pub const START: Self = Self(0);
}

/// A part of a table, from [`Table::scan`].
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
    /// The records, in the table's own order.
    pub records: Vec<(Owned<K>, Owned<V>)>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<Cursor>,
}

/// Gets the key of a damaged record of a scan, if that can be read, and the error; an error that it returns ends the scan.
pub(crate) type OnDamage<'a, K> = dyn FnMut(Option<Owned<K>>, Error) -> Result<()> + 'a;

impl<K: Key + ?Sized, V: Value + ?Sized> Page<K, V> {
    /// Adds a record as it could be read.
    #[inline]
    pub(crate) fn add(
        &mut self,
        key: Result<Owned<K>>,
        value: impl FnOnce() -> Result<Owned<V>>,
        damaged: &mut OnDamage<'_, K>,
    ) -> Result<()> {
        match key {
            Ok(key) => match value() {
                Ok(value) => self.records.push((key, value)),
                Err(error) => damaged(Some(key), error)?,
            },
            Err(error) => damaged(None, error)?,
        }
        Ok(())
    }
}

/// What a table is made of just now. Constant time.
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
    /// About how many records there are: exact when quiescent and cleanly opened; after a crash it counts from the last
    /// exact count until [`Table::len`] is called.
    pub len_estimate: u64,
    /// How many records fit before the table must grow.
    pub capacity: u64,
    /// Bytes of the table's regions on the medium (their lengths).
    pub pm_bytes: u64,
    /// Bytes of DRAM that the table keeps beside them.
    pub dram_bytes: u64,
    /// The medium.
    pub durability: Option<Durability>,
    /// The design's own counts (segments, depth, splits ...), by name.
    pub details: Vec<(&'static str, u64)>,
}

/// What opening found, and what it did.
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
    /// Whether the table had been closed properly.
    pub was_clean: bool,
    /// How often the table has been opened, this time included.
    pub generation: u64,
    /// Structure changes that a crash had interrupted and that opening finished or undid.
    pub resolved: u64,
    /// How long opening took.
    pub open_time: Duration,
}

/// More faults than this are not told.
const FAULTS_TOLD: usize = 100;

/// What [`Durable::check`] found.
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
    /// Records seen.
    pub records: u64,
    /// Every broken invariant, by its number in the table's header, in words.
    pub faults: Vec<String>,
    /// Blocks that belong neither to the table nor to a free list. Any is a fault.
    pub leaked: u64,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.leaked == 0
    }

    /// Tells of a fault, unless there have been many: a table that is wholly broken has more than anybody reads.
    pub(crate) fn fault(&mut self, words: String) {
        match self.faults.len() {
            0..FAULTS_TOLD => self.faults.push(without_advice(words)),
            FAULTS_TOLD => self.faults.push("more faults, which are not listed".to_owned()),
            _ => {}
        }
    }
}

/// What [`Durable::backup`] did.
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
    /// Bytes copied.
    pub bytes: u64,
    /// How long writers had to wait.
    pub pause: Duration,
}

/// What [`Durable::salvage`] rescued.
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
    /// Records copied to the new table.
    pub records: u64,
    /// What could not be read, or not be trusted, in words: damaged records, and parts of the files that are gone.
    pub lost: Vec<String>,
    /// The damaged ones of the lost records, with what is left of them.
    pub damaged: Vec<DamagedRecord>,
}

impl SalvageReport {
    /// Lists a part of the files that cannot be read.
    pub(crate) fn lose(&mut self, words: impl fmt::Display) {
        self.lost.push(without_advice(words));
    }

    /// Lists a record that is left out.
    pub(crate) fn damaged(&mut self, mut record: DamagedRecord) {
        record.reason = without_advice(record.reason);
        self.lost.push(record.to_string());
        self.damaged.push(record);
    }
}

/// A record that [`Durable::salvage`] found and left out, because it is not what was written. Displayed as in
/// [`SalvageReport::lost`].
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
    /// The bytes where the key is stored (a word little-endian); `None` when they cannot be reached. Either part may be
    /// the damaged one.
    pub key: Option<Vec<u8>>,
    /// The bytes where the value is stored, likewise.
    pub value: Option<Vec<u8>>,
    /// The part of the files that refers to the record, in the design's terms.
    pub place: String,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for DamagedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// Every operation, on every map of this crate. All calls may be made by any number of threads at once; each is
/// linearizable, and on a durable table what a returned call did, or told, survives any crash that the medium covers.
///
/// The types' inherent methods have the same names, so the trait is only needed for generic code.
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
/// Batches, the fast path:
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
/// Generic code over it:
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

    /// The value of `key`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when a file was damaged.
    fn get(&self, key: Arg<'_, Self::Key>) -> Result<Option<Owned<Self::Value>>> {
        self.get_with(key, Self::Value::own_ref)
    }

    /// Shows the value of `key` to `f`, in memory where it is, from files as a copy. No lock is held meanwhile: `f` may
    /// call the table.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn get_with<R>(
        &self,
        key: Arg<'_, Self::Key>,
        f: impl FnOnce(&Self::Value) -> R,
    ) -> Result<Option<R>>;

    /// Whether `key` is present.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn contains(&self, key: Arg<'_, Self::Key>) -> Result<bool> {
        Ok(self.get_with(key, |_| ())?.is_some())
    }

    /// Inserts `key` only if it is absent; else gives the present value.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::Poisoned`], [`Error::KeyTooLong`], ...; nothing was changed
    /// then.
    fn try_insert(
        &self,
        key: Arg<'_, Self::Key>,
        value: Arg<'_, Self::Value>,
    ) -> Result<TryInsert<Self::Value>>;

    /// Inserts or replaces; gives the previous value.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn insert(
        &self,
        key: Arg<'_, Self::Key>,
        value: Arg<'_, Self::Value>,
    ) -> Result<Option<Owned<Self::Value>>>;

    /// Inserts or replaces, saying nothing of the previous value.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn put(&self, key: Arg<'_, Self::Key>, value: Arg<'_, Self::Value>) -> Result<()>;

    /// Replaces the value only if `key` is present; gives the previous one.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn update(
        &self,
        key: Arg<'_, Self::Key>,
        value: Arg<'_, Self::Value>,
    ) -> Result<Option<Owned<Self::Value>>>;

    /// Removes `key`; gives the value it had.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Poisoned`], [`Error::Corrupt`].
    fn remove(&self, key: Arg<'_, Self::Key>) -> Result<Option<Owned<Self::Value>>>;

    /// Removes `key`, saying nothing of whether it was there.
    ///
    /// # Errors
    /// As [`Table::remove`].
    fn delete(&self, key: Arg<'_, Self::Key>) -> Result<()>;

    /// Atomic read-modify-write: shows the present value to `f` and does what it decides, calling `f` again when
    /// another thread came between. No lock is held while `f` runs.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn compute(
        &self,
        key: Arg<'_, Self::Key>,
        f: impl FnMut(Option<&Self::Value>) -> Decision<Owned<Self::Value>>,
    ) -> Result<Computed<Owned<Self::Value>>>;

    /// Replaces the value by `new` if it equals `current`; otherwise `Err` holds the present value, `None` when the key
    /// is absent. Values of bytes are compared as a whole.
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

    /// Adds `delta` to the value of `key` (absent counts as zero), wrapping around; gives the value before.
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

    /// How many records there are: exact when quiescent. After a crash the first call counts them all.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn len(&self) -> Result<u64>;

    /// Whether there is no record.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// How many records fit before the table must grow.
    fn capacity(&self) -> u64;

    /// What the table is made of. Constant time.
    fn stats(&self) -> Stats;

    /// About `n` records from `cursor` on. Weakly consistent: over a whole pass every key that is present throughout is
    /// seen exactly once, also across splits.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn scan(&self, cursor: Cursor, n: usize) -> Result<Page<Self::Key, Self::Value>>;

    /// The records, as [`Table::scan`] sees them.
    fn iter(&self) -> Iter<'_, Self>
    where
        Self: Sized,
    {
        Iter::new(self)
    }

    /// Calls `f` with every record, as [`Table::scan`] sees them, until it breaks. No lock is held meanwhile.
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

    /// Removes every record, all at once: a crash leaves all or none of them.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn clear(&self) -> Result<()>;

    /// Makes room for `additional` more records, so that inserting them meets few splits or none.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; what room was made stays.
    fn reserve(&self, additional: u64) -> Result<()>;

    /// Gives space back that the records do not need, as far as the design can; by default: not at all.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Io`]; every record is where it was or where it shall be.
    fn shrink_to_fit(&self) -> Result<()> {
        Ok(())
    }

    /// Removes the records for which `f` returns `false`, each by an operation of its own; returns how many it removed.
    ///
    /// # Errors
    /// As [`Table::remove`].
    fn retain(&self, mut f: impl FnMut(Arg<'_, Self::Key>, &Self::Value) -> bool) -> Result<usize> {
        let mut removed = 0;
        let mut next = Some(Cursor::START);
        while let Some(cursor) = next {
            let page = self.scan(cursor, SCAN_PAGE)?;
            for (key, _) in &page.records {
                let key = Self::Key::arg(key);
                let computed = self.compute(key, |value| match value {
                    Some(value) if !f(key, value) => Decision::Remove,
                    _ => Decision::Keep,
                })?;
                removed += usize::from(matches!(computed, Computed::Removed(_)));
            }
            next = page.next;
        }
        Ok(removed)
    }

    /// [`Table::get`] of each key in order, memory latencies overlapped.
    ///
    /// # Errors
    /// As [`Table::get`]; [`Error::InvalidOption`] when the slices differ in length.
    fn get_batch(
        &self,
        keys: &[Arg<'_, Self::Key>],
        found: &mut [Option<Owned<Self::Value>>],
    ) -> Result<()>;

    /// [`Table::insert`] of each record in order; durable when it returns, the flushes sharing fences. After a crash
    /// inside it any subset of the keys may have been inserted, per key a prefix.
    ///
    /// # Errors
    /// As [`Table::try_insert`]; the operations before the failing one are durable and filled in.
    fn insert_batch(
        &self,
        records: &[RecordArg<'_, Self::Key, Self::Value>],
        previous: &mut [Option<Owned<Self::Value>>],
    ) -> Result<()>;

    /// [`Table::put`] of each record, as [`Table::insert_batch`].
    ///
    /// # Errors
    /// As [`Table::insert_batch`].
    fn put_batch(&self, records: &[RecordArg<'_, Self::Key, Self::Value>]) -> Result<()>;

    /// [`Table::update`] of each record, as [`Table::insert_batch`].
    ///
    /// # Errors
    /// As [`Table::insert_batch`].
    fn update_batch(
        &self,
        records: &[RecordArg<'_, Self::Key, Self::Value>],
        previous: &mut [Option<Owned<Self::Value>>],
    ) -> Result<()>;

    /// [`Table::try_insert`] of each record, as [`Table::insert_batch`].
    ///
    /// # Errors
    /// As [`Table::insert_batch`].
    fn try_insert_batch(
        &self,
        records: &[RecordArg<'_, Self::Key, Self::Value>],
        outcomes: &mut [TryInsert<Self::Value>],
    ) -> Result<()>;

    /// [`Table::remove`] of each key, as [`Table::insert_batch`].
    ///
    /// # Errors
    /// As [`Table::insert_batch`].
    fn remove_batch(
        &self,
        keys: &[Arg<'_, Self::Key>],
        removed: &mut [Option<Owned<Self::Value>>],
    ) -> Result<()>;

    /// Runs a mixed batch strictly in order and tells how many operations ran. What ran is durable and filled in.
    ///
    /// # Errors
    /// As [`Table::insert_batch`]; [`Error::Unsupported`], before anything ran, when there is an [`Op::Shadow`] and the
    /// design has no shadow inserts; [`Error::InvalidOption`] at one that names the shadows of another table.
    fn execute(
        &self,
        ops: &mut [Op<'_, Self::Key, Self::Value>],
        on_failure: OnFailure,
    ) -> Result<usize>;

    /// Hints that `key` will be asked for soon.
    ///
    /// ```
    /// use icefield::{DashEh, Table};
    /// let table = DashEh::<u64, u64>::in_memory()?;
    /// Table::prefetch(&table, 1); // Its lines are on their way while this thread does something else.
    /// assert_eq!(Table::get(&table, 1)?, None);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    fn prefetch(&self, key: Arg<'_, Self::Key>);

    /// Prefetches, yields to the executor once, then reads.
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

/// What a durable table can do beyond [`Table`].
///
/// A table's files belong to it while it is open. No other program may write to them, truncate or replace them; what it
/// writes can be read as values. A copy that is made meanwhile by other means than [`Durable::backup`] (`cp -r`, `rsync`)
/// opens without an error and may hold wrong values, which [`Durable::check`] finds.
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
    /// Returns when everything done before is durable. Needed only after relaxed writes; otherwise every call is
    /// durable when it returns.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when a sync failed.
    fn sync(&self) -> Result<()>;

    /// Checks every invariant and checksum, changing nothing. Call it on a quiescent table.
    ///
    /// # Errors
    /// [`Error::Io`] when the files cannot be read at all.
    fn check(&self) -> Result<CheckReport>;

    /// As [`Table::scan`], but continues after a damaged record: `damaged` gets its key, if that can be read, and the error.
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

    /// Copies whatever can still be read to a new table at `path`.
    ///
    /// # Errors
    /// The new table could not be written.
    fn salvage(&self, path: &Path) -> Result<SalvageReport>;

    /// Makes a copy of the table's directory at `path` that opens as a table. Writers pause, readers go on.
    ///
    /// # Errors
    /// The copy could not be written; nothing is left at `path` then.
    fn backup(&self, path: &Path) -> Result<BackupReport>;

    /// The table's directory.
    fn path(&self) -> &Path;

    /// What opening found and did.
    fn recovery(&self) -> RecoveryReport;
}

/// A word that can be added to.
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
    /// Nothing.
    const ZERO: Self;
    /// The sum, wrapping around at the type's width.
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

/// Records per page of a whole-table pass.
pub(crate) const SCAN_PAGE: usize = 1024;

/// A future that is pending exactly once.
pub(crate) fn yield_once() -> impl Future<Output = ()> + Send {
    YieldOnce(false)
}

/// As [`yield_once`] says.
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

/// Refuses batches with shadow inserts, for tables that have none.
pub(crate) fn no_shadows<K: Key + ?Sized, V: Value + ?Sized>(ops: &[Op<'_, K, V>]) -> Result<()> {
    if ops.iter().any(|op| matches!(op, Op::Shadow(..))) {
        let detail = "only DLHT tables of words have shadow inserts";
        return Err(Error::Unsupported(detail.to_owned()));
    }
    Ok(())
}

/// Refuses slices of different lengths by name.
pub(crate) fn same_length(keys: usize, results: usize) -> Result<()> {
    if keys == results {
        return Ok(());
    }
    Err(Error::InvalidOption {
        option: "results",
        detail: format!("{results} places for the results of {keys} operations"),
    })
}
