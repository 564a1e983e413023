//! The operations on a table as a whole.

use std::path::Path;

use super::Iceberg;
use crate::Result;
use crate::engine::{Maintenance, OnDamage, Scanned};
use crate::outcome::Cursor;
use crate::report::{BackupReport, CheckReport, SalvageReport, Stats};
use crate::storage::{Medium, Region, sound};
use crate::types::{RecordForm, Take, Types};

impl<R: RecordForm, M: Medium> Maintenance for Iceberg<R, M> {
    type Medium = M;

    fn storage(&self) -> &M {
        &self.core.storage
    }

    fn superblock(&self) -> &Region {
        &self.core.table
    }

    /// Constant time: recovery has counted the records.
    fn len(&self) -> Result<u64> {
        Ok(self.core.length.estimate(0))
    }

    fn capacity(&self) -> u64 {
        self.core.capacity()
    }

    fn stats(&self) -> Stats {
        self.stats_now()
    }

    fn scan<K: Take + Copy, V: Take + Copy>(
        &self,
        cursor: Cursor,
        n: usize,
        take: (K, V),
        damaged: &mut OnDamage<'_, K::Out>,
    ) -> Result<Scanned<K::Out, V::Out>> {
        self.scan_page(cursor, n, take, damaged)
    }

    fn clear(&self) -> Result<()> {
        self.clear_all()
    }

    fn reserve(&self, additional: u64) -> Result<()> {
        self.core.storage.check_writable()?;
        self.core.make_room_for(self.core.length.estimate(0).saturating_add(additional))
    }

    fn shrink_to_fit(&self) -> Result<()> {
        self.core.shrink()?;
        self.core.records.compact(&self.core.storage, self)
    }

    fn sync(&self) -> Result<()> {
        sound(&self.core.storage)
    }

    fn check_records(&self, types: &Types) -> Result<CheckReport> {
        self.check_all(types)
    }

    fn salvage(&self, path: &Path, types: &Types) -> Result<SalvageReport> {
        self.salvage_to(path, types)
    }

    fn backup(&self, path: &Path) -> Result<BackupReport> {
        self.backup_to(path)
    }
}
