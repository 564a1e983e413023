//! The public interface of the tables, and the parts in which their types differ.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use super::directory::Directory;
use super::options::DashOptions;
use super::{Dash, RecoveryReport};
use crate::Result;
use crate::base::pipeline::prefetch_read;
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
    table: Dash,
    policy: P: Directory,
    public: DashEh,
    design: P::DESIGN,
    options: DashOptions,
    get: "The value of `key` (§4.6, Algorithm 3). Takes no lock and writes nothing; two to three cache \
        lines.",
    try_insert: "Inserts `key` only if it is absent; else gives the present value (§4.6, Algorithm 1). Two \
        flushes and two fences, unless it displaces a record or splits a segment.",
    remove: "Removes `key`; gives the value it had (§4.6). One flush, one fence.",
    len: "How many records there are: exact when quiescent. After a crash the first call counts them \
        all.",
    capacity: "About how many records fit before segments have to split.",
    iter: "All records, weakly consistent: every key that is present throughout is seen exactly once, \
        also across splits. Reads one segment at a time, each as it was at one moment.",
    scan: "About `n` records from `cursor` on, as [`iter`](Self::iter) sees them. Cursors survive splits \
        and reopening.",
    clear: "Removes every record by one durable store: a crash leaves all or none of them. Then waits for \
        the writers that came before.",
    reserve: "Makes room for `additional` more records, splitting ahead.",
    insert_batch: "[`insert`](Self::insert) of each record in order; durable when it returns, 32 operations sharing \
        two fences. After a crash inside it any subset of the keys may have been inserted, per key a \
        prefix.",
    sync: "Returns at once: every operation is durable when it returns.",
    check: "Checks every invariant and checksum, changing no record. Call it on a quiescent table.",
}

impl<K: Key + ?Sized, V: Value + ?Sized, P: Directory, M: Medium> Dash<K, V, P, M> {
    fn count(&self) -> Result<u64> {
        self.length.exact(self.directory.generation(), || self.count_all())
    }

    fn room(&self) -> u64 {
        self.directory.capacity(&self.core)
    }

    fn make_room_for(&self, additional: u64) -> Result<()> {
        self.core.storage.check_writable()?;
        let _pin = self.core.pin();
        self.directory.reserve(&self.core, self.stats().len_estimate.saturating_add(additional))
    }

    /// Merges segments while two fit into one, halves the directory, and returns the freed space to the file system
    /// (§4.7). Compacts the storage of keys and values by reference as well. Other threads can use the table meanwhile.
    /// Gives up capacity that was requested at creation or reserved.
    ///
    /// A table that holds few records also shrinks automatically, but not below its requested capacity.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`], [`crate::Error::Forked`], [`crate::Error::Corrupt`], [`crate::Error::Io`].
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::options().capacity(100_000).in_memory()?;
    /// table.put(1, 10)?;
    /// table.shrink_to_fit()?;
    /// assert_eq!(table.get(1)?, Some(10));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn shrink_to_fit(&self) -> Result<()> {
        self.shrink()
    }

    fn shrink(&self) -> Result<()> {
        self.shrink_all()
    }

    fn sync_now(&self) -> Result<()> {
        sound(&self.core.storage)
    }

    fn prefetch_key(&self, key: Arg<'_, K>) {
        if let Some(target) = self.try_locate(self.core.records.hash_key(key).hash) {
            target.pair.into_iter().for_each(|bucket| prefetch_read(bucket));
        }
    }
}
