//! One object-safe trait over the engines of all designs.

use std::cell::{Cell, RefCell};
use std::path::Path;

use super::types::Arguments;
use crate::Result;
use crate::engine::{Engine, OnDamage, WriteKind};
use crate::outcome::Cursor;
use crate::report::{BackupReport, CheckReport, SalvageReport, Stats};
use crate::storage::Properties;
use crate::types::{Copied, CopiedAs, Item, Raw, Types, Visit};

/// A page of records, and the cursor of the next page.
pub(super) type Part = (Vec<(Item, Item)>, Option<Cursor>);
/// The callback for the results of a batch: takes the index of an operation and the value that its key had before.
pub(super) type Answer<'a> = &'a mut dyn FnMut(usize, Option<Item>);

/// The calls of [`Engine`] that [`AnyTable`](crate::AnyTable) offers.
pub(super) trait Erased: Send + Sync {
    fn get(&self, key: &Raw<'_>) -> Result<Option<Item>>;
    /// Calls `show` with the value, if `key` is present.
    fn visit(&self, key: &Raw<'_>, show: &mut dyn FnMut(&Raw<'_>)) -> Result<()>;
    fn contains(&self, key: &Raw<'_>) -> Result<bool>;
    fn write(&self, kind: WriteKind, key: &Raw<'_>, value: &Raw<'_>) -> Result<Option<Item>>;
    fn get_batch(&self, count: usize, keys: &Arguments<'_>, found: Answer<'_>) -> Result<()>;
    /// Calls `show` with the index and the value of each key, in order; the value is `None` if the key is absent.
    fn visit_batch(
        &self,
        count: usize,
        keys: &Arguments<'_>,
        show: &mut dyn FnMut(usize, Option<&Raw<'_>>),
    ) -> Result<()>;
    fn write_batch(
        &self,
        kind: WriteKind,
        count: usize,
        keys: &Arguments<'_>,
        values: &Arguments<'_>,
        answer: Answer<'_>,
    ) -> Result<()>;
    fn len(&self) -> Result<u64>;
    fn capacity(&self) -> u64;
    fn stats(&self) -> Stats;
    /// Returns a page of records. A record whose key or value is not valid for `types` is passed to `damaged`.
    fn scan(
        &self,
        cursor: Cursor,
        n: usize,
        types: &Types,
        damaged: &mut OnDamage<'_, Item>,
    ) -> Result<Part>;
    fn clear(&self) -> Result<()>;
    fn reserve(&self, additional: u64) -> Result<()>;
    fn shrink_to_fit(&self) -> Result<()>;
    fn sync(&self) -> Result<()>;
    fn check(&self, types: &Types) -> Result<CheckReport>;
    fn salvage(&self, path: &Path, types: &Types) -> Result<SalvageReport>;
    fn backup(&self, path: &Path) -> Result<BackupReport>;
    fn path(&self) -> &Path;
    fn uuid(&self) -> Result<u128>;
}

impl<E: Engine> Erased for E {
    fn get(&self, key: &Raw<'_>) -> Result<Option<Item>> {
        E::get(self, key, Copied)
    }
    fn visit(&self, key: &Raw<'_>, show: &mut dyn FnMut(&Raw<'_>)) -> Result<()> {
        E::get(self, key, Visit(show)).map(|_| ())
    }
    fn contains(&self, key: &Raw<'_>) -> Result<bool> {
        E::contains(self, key)
    }
    fn write(&self, kind: WriteKind, key: &Raw<'_>, value: &Raw<'_>) -> Result<Option<Item>> {
        E::write(self, kind, key, value, Copied)
    }
    fn get_batch(&self, count: usize, keys: &Arguments<'_>, found: Answer<'_>) -> Result<()> {
        E::get_batch(self, count, |index| keys.at(index), Copied, found)
    }
    fn visit_batch(
        &self,
        count: usize,
        keys: &Arguments<'_>,
        show: &mut dyn FnMut(usize, Option<&Raw<'_>>),
    ) -> Result<()> {
        let (next, show) = (Cell::new(0), RefCell::new(show));
        // The keys are read in order, so this value belongs to the key with index `next`.
        let visit = |value: &Raw<'_>| show.borrow_mut()(next.get(), Some(value));
        E::get_batch(
            self,
            count,
            |index| keys.at(index),
            Visit(&visit),
            |index, value| {
                if value.is_none() {
                    show.borrow_mut()(index, None);
                }
                next.set(index + 1);
            },
        )
    }
    fn write_batch(
        &self,
        kind: WriteKind,
        count: usize,
        keys: &Arguments<'_>,
        values: &Arguments<'_>,
        answer: Answer<'_>,
    ) -> Result<()> {
        let (key, value) = (|index| keys.at(index), |index| values.at(index));
        E::write_batch(self, kind, count, key, value, Copied, answer)
    }
    fn len(&self) -> Result<u64> {
        E::len(self)
    }
    fn capacity(&self) -> u64 {
        E::capacity(self)
    }
    fn stats(&self) -> Stats {
        E::stats(self)
    }
    fn scan(
        &self,
        cursor: Cursor,
        n: usize,
        types: &Types,
        damaged: &mut OnDamage<'_, Item>,
    ) -> Result<Part> {
        let take = (CopiedAs(types.key), CopiedAs(types.value));
        let page = E::scan(self, cursor, n, take, damaged)?;
        Ok((page.records, page.next))
    }
    fn clear(&self) -> Result<()> {
        E::clear(self)
    }
    fn reserve(&self, additional: u64) -> Result<()> {
        E::reserve(self, additional)
    }
    fn shrink_to_fit(&self) -> Result<()> {
        E::shrink_to_fit(self)
    }
    fn sync(&self) -> Result<()> {
        E::sync(self)
    }
    fn check(&self, types: &Types) -> Result<CheckReport> {
        E::check(self, types)
    }
    fn salvage(&self, path: &Path, types: &Types) -> Result<SalvageReport> {
        E::salvage(self, path, types)
    }
    fn backup(&self, path: &Path) -> Result<BackupReport> {
        E::backup(self, path)
    }
    fn path(&self) -> &Path {
        self.storage().path()
    }
    fn uuid(&self) -> Result<u128> {
        E::uuid(self)
    }
}
