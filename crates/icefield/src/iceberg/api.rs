//! The public interface of the table, and the parts in which its types differ.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use super::options::IcebergOptions;
use super::{Iceberg, RecoveryReport};
use crate::Result;
use crate::key::{Data, Key, Value};
use crate::record::batch::BatchEngine;
use crate::record::engine::{Engine, WriteMode};
use crate::record::face::public_face;
use crate::storage::{Mapped, Medium, sound};
use crate::table::{
    Arg, BackupReport, CheckReport, Computed, Counter, Cursor, Decision, Durable, OnFailure, Op,
    Owned, Page, RecordArg, SalvageReport, Stats, Table, TryInsert,
};

public_face! {
    table: Iceberg,
    public: Iceberg,
    design: "iceberg",
    options: IcebergOptions,
    get: "The value of `key` (§3.2, §5.1). Takes no lock and writes nothing; one line of DRAM and one of \
        the medium.",
    try_insert: "Inserts `key` only if it is absent; else gives the present value (§3.2, Algorithms 1 and 2). \
        One line, one flush, one fence.",
    remove: "Removes `key`; gives the value it had (§3.2). One flush, one fence.",
    len: "How many records there are: exact when quiescent. Constant time.",
    capacity: "How many records fit before the table doubles.",
    iter: "All records, weakly consistent: every key that is present throughout is seen exactly once, \
        also across doublings. Reads one bucket at a time.",
    scan: "About `n` records from `cursor` on, as [`iter`](Self::iter) sees them. Cursors survive \
        doublings and reopening.",
    clear: "Removes every record by one durable store: a crash leaves all or none of them. Writers wait \
        while the slots are emptied.",
    reserve: "Makes room for `additional` more records, doubling ahead.",
    insert_batch: "[`insert`](Self::insert) of each record in order; durable when it returns, 32 operations sharing \
        one fence. After a crash inside it any subset of the keys may have been inserted, per key a \
        prefix.",
    sync: "Returns at once: every operation is durable when it returns.",
    check: "Checks every invariant and checksum, changing no record (but finishing a doubling). Call it on \
        a quiescent table.",
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Iceberg<K, V, M> {
    /// Halves the table as long as every bucket has room for the records of two and the load stays below its threshold,
    /// and returns the space to the file system (§4). Writers wait meanwhile; reads continue. Then compacts the storage
    /// of keys and values by reference and returns its space as well, without blocking other threads.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`], [`crate::Error::Forked`], [`crate::Error::Corrupt`], [`crate::Error::Io`].
    ///
    /// ```
    /// let table = icefield::Iceberg::<u64, u64>::options().capacity(100_000).in_memory()?;
    /// table.put(1, 10)?;
    /// table.shrink_to_fit()?;
    /// assert!(table.capacity() < 100);
    /// assert_eq!(table.get(1)?, Some(10));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn shrink_to_fit(&self) -> Result<()> {
        self.shrink()
    }

    /// Constant time: recovery has counted the records.
    fn count(&self) -> Result<u64> {
        Ok(self.core.length.estimate(0))
    }

    fn room(&self) -> u64 {
        self.core.capacity()
    }

    fn make_room_for(&self, additional: u64) -> Result<()> {
        self.core.storage.check_writable()?;
        self.core.make_room_for(self.core.length.estimate(0).saturating_add(additional))
    }

    fn shrink(&self) -> Result<()> {
        self.core.shrink()?;
        self.core.records.compact(&self.core.storage, self)
    }

    fn sync_now(&self) -> Result<()> {
        sound(&self.core.storage)
    }

    fn prefetch_key(&self, key: Arg<'_, K>) {
        self.core.prefetch(self.core.records.hash_key(key).hash);
    }
}
