//! The interface between the durable tables that users see and the engines that implement the designs. Engines work on
//! words, byte strings, hashes and media; [`DurableTable`](crate::DurableTable) converts the user's types.

use std::fmt;
use std::path::Path;

use crate::engine::opening::Common;
use crate::outcome::{Computed, Cursor, Decision, OnFailure};
use crate::report::{BackupReport, CheckReport, RecoveryReport, SalvageReport, Stats};
use crate::storage::{Medium, Region, superblock};
use crate::types::{Keep, Raw, RecordForm, StoredForm, Take, Types};
use crate::{Error, Result};

/// A table design: its name, its options, and the creation and opening of its tables.
pub trait Design: Sized + 'static {
    /// The name in superblocks and results.
    const NAME: &'static str;
    /// The name in messages.
    const TITLE: &'static str;
    /// `true` if the design is correct on media that reorder the stores within a line.
    const ALLOWS_DISK: bool = false;
    /// The options that only this design has.
    type Settings: Clone + Default + fmt::Debug;
    /// The form of the engine's records, given the forms of the user's keys and values.
    type Form<K: StoredForm, V: StoredForm>: RecordForm;
    type Engine<R: RecordForm, M: Medium>: Engine<Medium = M>;

    /// Creates a table on a medium.
    fn create<R: RecordForm, M: Medium>(
        common: Common,
        settings: Self::Settings,
        storage: M,
    ) -> Result<(Self::Engine<R, M>, RecoveryReport)>;

    /// Opens the table on a medium.
    fn open<R: RecordForm, M: Medium>(
        common: Common,
        settings: Self::Settings,
        storage: M,
    ) -> Result<(Self::Engine<R, M>, RecoveryReport)>;
}

/// The kinds of writes to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Insert only if absent; the present value is the result.
    TryInsert,
    /// Insert or replace; the previous value is the result.
    Insert,
    /// Insert or replace, without a result.
    Put,
    /// Replace only if present; the previous value is the result.
    Update,
    /// Remove; the previous value is the result.
    Remove,
    /// Remove, without a result.
    Delete,
}

impl WriteKind {
    /// Returns whether the value before the write is its result.
    #[inline]
    pub(crate) fn has_result(self) -> bool {
        !matches!(self, Self::Put | Self::Delete)
    }
}

/// A callback that a scan calls for each damaged record, with the record's key, if it can be read, and the error. If
/// the callback returns an error, the scan ends.
pub type OnDamage<'a, K> = dyn FnMut(Option<K>, Error) -> Result<()> + 'a;

/// One page of a scan: records in the form that the caller takes, and the start of the next page.
pub struct Scanned<K, V> {
    pub(crate) records: Vec<(K, V)>,
    pub(crate) next: Option<Cursor>,
}

impl<K, V> Scanned<K, V> {
    /// Adds a record, or passes it to `damaged` if its key or value cannot be read.
    #[inline]
    pub(crate) fn add(
        &mut self,
        key: Result<K>,
        value: impl FnOnce() -> Result<V>,
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

/// A mixed batch: operations in order, with places for their results.
pub trait Mixed<'a> {
    type Take: Take + Copy;

    fn take(&self) -> Self::Take;
    fn len(&self) -> usize;
    fn key(&self, index: usize) -> Raw<'a>;
    /// Returns the kind of the operation; `None` for a read.
    fn kind(&self, index: usize) -> Option<WriteKind>;
    /// Returns the value of the operation; [`Raw::NONE`] for a read or a removal.
    fn value(&self, index: usize) -> Raw<'a>;
    /// Fills in the result of an operation, given the value that its key had before.
    fn fill(&mut self, index: usize, before: Option<<Self::Take as Take>::Out>);
    /// Returns whether an operation failed because its key was occupied or absent. The operation must have run.
    fn failed(&self, index: usize) -> bool;
}

/// The operations on keys. Methods without a comment do the same as those of that name in [`Table`](crate::Table).
pub trait Operations {
    fn get<T: Take>(&self, key: &Raw<'_>, take: T) -> Result<Option<T::Out>>;
    fn contains(&self, key: &Raw<'_>) -> Result<bool>;
    /// Runs one write; the value of a removal is [`Raw::NONE`]. Returns the previous value if `kind` has a result.
    fn write<T: Take + Copy>(
        &self,
        kind: WriteKind,
        key: &Raw<'_>,
        value: &Raw<'_>,
        before: T,
    ) -> Result<Option<T::Out>>;
    fn compute<T: Keep>(
        &self,
        key: &Raw<'_>,
        keep: T,
        decide: impl FnMut(Option<&T::Out>) -> Decision<T::Out>,
    ) -> Result<Computed<T::Out>>;

    /// Reads `count` keys in order; passes each result to `found`. `key` and `found` get numbers below `count` only: callers
    /// rely on that for their safety.
    fn get_batch<'k, T: Take + Copy>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        take: T,
        found: impl FnMut(usize, Option<T::Out>),
    ) -> Result<()>;
    /// Runs `count` writes of one kind in order. When a write is durable, calls `answer` with its index and the result
    /// that [`Operations::write`] returns, in the same order. For a kind without a result, `answer` is not called.
    fn write_batch<'k, 'v, T: Take + Copy>(
        &self,
        kind: WriteKind,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        value: impl Fn(usize) -> Raw<'v>,
        before: T,
        answer: impl FnMut(usize, Option<T::Out>),
    ) -> Result<()>;
    fn execute<'a>(&self, batch: &mut impl Mixed<'a>, on_failure: OnFailure) -> Result<usize>;
    fn prefetch(&self, key: &Raw<'_>);
}

/// The operations on a table as a whole. Methods without a comment do the same as those of that name in
/// [`Table`](crate::Table) or [`Durable`](crate::Durable).
pub trait Maintenance {
    type Medium: Medium;

    /// Returns the table's medium.
    fn storage(&self) -> &Self::Medium;
    /// Returns the region with the superblock.
    fn superblock(&self) -> &Region;
    /// Returns the table's identifier.
    fn uuid(&self) -> Result<u128> {
        superblock::identity(self.storage(), self.superblock()).map(|identity| identity.uuid())
    }

    fn len(&self) -> Result<u64>;
    fn capacity(&self) -> u64;
    fn stats(&self) -> Stats;
    fn scan<K: Take + Copy, V: Take + Copy>(
        &self,
        cursor: Cursor,
        n: usize,
        take: (K, V),
        damaged: &mut OnDamage<'_, K::Out>,
    ) -> Result<Scanned<K::Out, V::Out>>;
    fn clear(&self) -> Result<()>;
    fn reserve(&self, additional: u64) -> Result<()>;
    fn shrink_to_fit(&self) -> Result<()>;

    fn sync(&self) -> Result<()>;
    /// Checks everything but the superblock. `types` are those of the table's keys and values.
    fn check_records(&self, types: &Types) -> Result<CheckReport>;
    fn check(&self, types: &Types) -> Result<CheckReport> {
        let mut report = self.check_records(types)?;
        let faults = superblock::check(self.storage(), self.superblock())?;
        faults.into_iter().for_each(|fault| report.fault(fault));
        Ok(report)
    }
    fn salvage(&self, path: &Path, types: &Types) -> Result<SalvageReport>;
    fn backup(&self, path: &Path) -> Result<BackupReport>;
}

/// A durable table of words and byte strings.
pub trait Engine: Operations + Maintenance + Sized + Send + Sync {}

impl<T: Operations + Maintenance + Sized + Send + Sync> Engine for T {}
