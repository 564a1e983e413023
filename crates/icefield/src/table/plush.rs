//! Plush tables: the operations and options that only they have.

use super::durable::DurableTable;
use super::options::TableOptions;
use crate::Result;
use crate::engine::Maintenance;
use crate::engine::plush::{Help, LogEpoch, Partition, PlushHt, Shape, rank_of};
use crate::storage::{Committed, Mapped, Medium, SyncMode};
use crate::types::{Arg, Key, Own, Owned, Value};

/// Plush: a durable, concurrent, write-optimized hash table.
///
/// ```
/// let table = icefield::Plush::<u64, u64>::in_memory()?;
/// table.put(1, 42)?;
/// assert_eq!(table.get(1)?, Some(42));
/// # Ok::<(), icefield::Error>(())
/// ```
///
/// Keys and values of 16, 32 and 64 bytes are stored in the table's slots, like words:
/// ```
/// let table = icefield::Plush::<u128, [u8; 32]>::in_memory()?;
/// table.put(1 << 100, [7; 32])?;
/// assert_eq!(table.get(1 << 100)?, Some([7; 32]));
/// # Ok::<(), icefield::Error>(())
/// ```
///
/// A `get` reads a filter line for each level, and a bucket if the filter contains the key (§5.2). `put` and
/// `delete` do not look up their key and cost one flush and one fence; the other writes look it up first (§5.3). In a
/// batch, 32 operations share a fence; on [`Durability::Disk`](crate::Durability::Disk) up to 512 share a sync.
///
/// With [`Durability::Disk`](crate::Durability::Disk), a table may be larger than the memory. If it takes more than
/// three quarters of the memory when it is opened or grows, its pages are read one by one, in batches several at a time.
///
/// Its methods are those of [`DurableTable`], its options [`PlushOptions`].
pub type Plush<K, V, M = Mapped> = DurableTable<K, V, PlushHt, M>;

/// Options for creating or opening a Plush table.
///
/// ```
/// use icefield::{Plush, PlushOptions};
/// let options: PlushOptions<u64, u64> = Plush::options().dram_limit(1 << 20);
/// assert!(options.in_memory()?.is_empty()?);
/// # Ok::<(), icefield::Error>(())
/// ```
pub type PlushOptions<K, V> = TableOptions<K, V, PlushHt>;

/// Operations of [`Plush`] only.
impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> DurableTable<K, V, PlushHt, M> {
    /// Runs a [`put`](Self::put) without waiting for a sync; the returned future resolves when the record is durable.
    /// The write itself happens in the call, before the future is polled, and reads see the record at once. If a crash
    /// comes before the future resolves, the key then has the value from before the call, or one written since. A
    /// background thread of the table runs the syncs, each for many callers. Once in a few hundred calls, the call
    /// itself waits for a sync, because the part of the table that takes its record is full.
    ///
    /// On media other than disks, the future is ready at once.
    ///
    /// # Errors
    /// The future fails as [`try_insert`](Self::try_insert) does, and with [`crate::Error::Poisoned`] when the sync
    /// failed.
    ///
    /// ```
    /// # fn block_on<F: std::future::Future>(future: F) -> F::Output {
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     let mut future = std::pin::pin!(future);
    /// #     loop {
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output }
    /// #     }
    /// # }
    /// let table = icefield::Plush::<u64, u64>::in_memory()?;
    /// block_on(async {
    ///     let (one, two) = (table.put_async(1, 10), table.put_async(2, 20));
    ///     one.await?; // One sync makes both records durable.
    ///     two.await?;
    ///     table.committed().await // Waits for all earlier writes.
    /// })?;
    /// assert_eq!(table.get(2)?, Some(20));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn put_async(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Committed {
        self.engine.put_async(&K::raw(key), &V::raw(value))
    }

    /// Returns a future that resolves when all writes that were acknowledged before this call are durable, in any
    /// [`SyncMode`](crate::SyncMode). This is the form of [`sync`](Self::sync) for callers that must not block. It
    /// requests a sync, which a background thread of the table runs and which callers share. Unlike `sync`, it does not
    /// cover records that were put without a log: these need a `sync` or a [`checkpoint`](Self::checkpoint).
    ///
    /// See [`Committed`] for an example.
    ///
    /// # Errors
    /// The future fails with [`crate::Error::Poisoned`] when the sync failed.
    pub fn committed(&self) -> Committed {
        self.engine.storage().committed()
    }

    /// Does the work that waits for a helper; see [`PlushOptions::helped_by_callers`]. Returns whether there was any.
    #[doc(hidden)]
    pub fn help(&self) -> bool {
        self.engine.help()
    }

    /// Runs a [`put`](Self::put) without a log (§5.7): the record is durable after the next
    /// [`checkpoint`](Self::checkpoint), [`sync`](Self::sync) or clean shutdown, or earlier. After a crash, each key
    /// has the value that it had at the last of these events, or one that it has had since. Reads see the record at
    /// once.
    ///
    /// # Errors
    /// As [`try_insert`](Self::try_insert).
    ///
    /// ```
    /// let table = icefield::Plush::<u64, u64>::in_memory()?;
    /// for key in 0..1000 {
    ///     table.put_unlogged(key, key)?;
    /// }
    /// table.checkpoint(1)?; // Durable from here on.
    /// assert_eq!(table.get(7)?, Some(7));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn put_unlogged(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<()> {
        self.engine.put_unlogged(&K::raw(key), &V::raw(value))
    }

    /// Makes the records durable that were put without a log, on `threads` threads. If `threads` is 0, uses as many cores
    /// as have enough work, as [`sync`](Self::sync) does. Root entries without such records remain as they are.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], [`crate::Error::ReadOnly`]; records that could not move remain without a log.
    ///
    /// ```
    /// let table = icefield::Plush::<str, u64>::in_memory()?;
    /// table.put_unlogged("answer", 42)?;
    /// table.checkpoint(2)?;
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn checkpoint(&self, threads: usize) -> Result<()> {
        self.engine.checkpoint(threads)
    }

    /// Calls [`put_unlogged`](Self::put_unlogged) for each record, then [`checkpoint`](Self::checkpoint) (§5.7), which
    /// uses as many cores as have enough work. To use them for the records too, call `put_unlogged` from several threads.
    ///
    /// # Errors
    /// As for these calls; records before the failing one may be present.
    ///
    /// ```
    /// let table = icefield::Plush::<u64, u64>::in_memory()?;
    /// table.bulk_load((0..1000).map(|key| (key, key * 2)))?;
    /// assert_eq!(table.get(500)?, Some(1000));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn bulk_load(&self, records: impl IntoIterator<Item = (Owned<K>, Owned<V>)>) -> Result<()> {
        for (key, value) in records {
            self.put_unlogged(K::arg(&key), V::arg(&value))?;
        }
        self.checkpoint(0)
    }

    /// Returns the first `limit` records from `from` on, in the order of their keys, each key once (§6.6). Requires a
    /// table that is partitioned by [`Partition::Range`](crate::Partition::Range).
    ///
    /// Weakly consistent, like [`iter`](Self::iter): the result contains every key that is present during the whole
    /// call, with a value that the key had during the call. The call reads the table in parts: one entry of the last
    /// level, or one leaf where keys are concentrated, or if many records are still wanted, one entry above the last level
    /// with what is below it. The records of a part, a few hundred or a few thousand, are a consistent snapshot. The call
    /// takes no lock of the table.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) when the table is partitioned by hashes; otherwise as
    /// [`get`](Self::get).
    ///
    /// ```
    /// use icefield::{Partition, Plush};
    /// let table = Plush::<str, u64>::options().partition(Partition::Range).in_memory()?;
    /// for (number, word) in ["plum", "fig", "apple", "pear"].into_iter().enumerate() {
    ///     table.put(word, number as u64)?;
    /// }
    /// let words: Vec<String> = table.range("b", 2)?.into_iter().map(|(word, _)| word).collect();
    /// assert_eq!(words, ["fig", "pear"]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn range(&self, from: Arg<'_, K>, limit: usize) -> Result<Vec<(Owned<K>, Owned<V>)>> {
        self.engine.range(&K::raw(from), limit, (Own::<K>::NEW, Own::<V>::NEW))
    }
}

/// Options of [`Plush`] only.
impl<K: Key + ?Sized, V: Value + ?Sized> TableOptions<K, V, PlushHt> {
    /// Sets the most DRAM that a table's root and filters may take, in bytes; 256 MiB by default.
    ///
    /// The root is sized for [`capacity`](Self::capacity) when the table is created, and keeps its size. It holds an
    /// eighth to a quarter of the capacity, or half of that if its recovery logs would otherwise take more than 64 MiB.
    /// A record of words takes 17 bytes. Filters use the rest of the limit. On disks, the root holds the whole
    /// capacity, provided that its recovery logs, which are written at creation, take at most 64 MiB. Until such a root
    /// is full, a `put` costs one sync, and so do up to 512 records of a batch.
    ///
    /// ```
    /// let table = icefield::Plush::<u64, u64>::options().dram_limit(1 << 20).in_memory()?;
    /// assert!(table.stats().dram_bytes <= 1 << 20);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn dram_limit(mut self, bytes: u64) -> Self {
        self.settings.dram_limit = bytes;
        self
    }

    /// Sets when writes on [`Durability::Disk`](crate::Durability::Disk) are acknowledged; [`SyncMode::Always`] by
    /// default.
    ///
    /// With the other modes, a call may return before its write is durable, and a read may return a value that is not
    /// durable yet. After a crash, each key has the value that it had at the last [`sync`](Plush::sync), or one that it
    /// has had since. Everything before that sync, and before a completed background sync, is durable. The table does
    /// not store the mode, so set it at each opening. On other media this option has no effect: every call is durable
    /// when it returns.
    ///
    /// ```
    /// use icefield::{Durability, Plush, SyncMode};
    /// let directory = tempfile::tempdir_in(".")?;
    /// let table = Plush::<u64, u64>::options()
    ///     .durability(Durability::Disk)
    ///     .sync(SyncMode::Every(100))
    ///     .create(directory.path().join("clicks.ice"))?;
    /// (0..1000).try_for_each(|key| table.put(key, 1))?;
    /// table.sync()?; // All of them are durable from here on.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn sync(mut self, mode: SyncMode) -> Self {
        self.common.sync = mode;
        self
    }

    /// Sets the number of levels, from the first on, whose filters are also kept in DRAM (§6.5). The default is 1 for a
    /// table created with a [`capacity`](Self::capacity) that its level 1 holds, and 2 for others.
    ///
    /// On these levels, a read accesses the medium only where a filter contains its key. The filters take one and a
    /// half bytes for each record for which the levels have room. If the filters of a level exceed
    /// [`dram_limit`](Self::dram_limit), they are not kept in DRAM. The table does not store this number, so set it at
    /// each opening, which reads the filters of these levels.
    ///
    /// ```
    /// let with = icefield::Plush::<u64, u64>::options().dram_filters(2).in_memory()?;
    /// let without = icefield::Plush::<u64, u64>::options().dram_filters(0).in_memory()?;
    /// assert!(with.stats().dram_bytes > without.stats().dram_bytes);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn dram_filters(mut self, levels: usize) -> Self {
        self.settings.dram_filters = Some(levels);
        self
    }

    /// Sets the number of levels, from the first on, whose buckets a new table allocates all at once (§6.5); 0 by
    /// default. Writes then allocate buckets only on deeper levels. Once the levels have been full, they take no more
    /// space than without this option.
    ///
    /// ```
    /// let table = icefield::Plush::<u64, u64>::options().preallocate(1).in_memory()?;
    /// assert!(table.stats().storage_bytes > icefield::Plush::<u64, u64>::in_memory()?.stats().storage_bytes);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn preallocate(mut self, levels: usize) -> Self {
        self.settings.preallocated = levels;
        self
    }

    /// Sets whether a thread of the table moves records down ahead of the writers; `false` by default.
    ///
    /// Without it, each write takes a small step of this work, and batches take whole ones. With it, writes are faster
    /// if they leave a processor core free. Writers still take steps when the thread is late. The thread ends when the
    /// table is dropped, and sleeps when there is nothing to do. The table does not store this choice, so set it at
    /// each opening. On [`Durability::Disk`](crate::Durability::Disk) it has no effect: there these moves share the
    /// syncs of batches. A forked child has no such thread, and must not read a table whose thread was at work during the fork.
    ///
    /// # Errors
    /// The table cannot be created or opened if the system starts no thread ([`Error::Io`](crate::Error::Io)).
    ///
    /// ```
    /// let table = icefield::Plush::<u64, u64>::options().helper_thread(true).in_memory()?;
    /// (0..100_000).try_for_each(|key| table.put(key, key))?;
    /// assert_eq!(table.len()?, 100_000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn helper_thread(mut self, helps: bool) -> Self {
        self.settings.helper = if helps { Help::Thread } else { Help::Nobody };
        self
    }

    /// Lets the callers of [`help`](Plush::help) do the work of a helper thread. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn helped_by_callers(mut self) -> Self {
        self.settings.helper = Help::Callers;
        self
    }

    /// Sets whether a new table places records by hash or by key order; [`Partition::Hash`] by default.
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> Self {
        self.settings.partition = partition;
        self
    }

    /// Sets the range in which the keys of a new, range-partitioned table are expected to lie, roughly evenly. The
    /// default is the range of the key type; for bytes, the range of their first eight bytes.
    ///
    /// Keys outside of this range are possible; they belong to the first or the last part of the table. A part in which
    /// keys are concentrated (small numbers among all `u64`s, or addresses with a common prefix) is split by keys.
    /// Operations on such a part cost about as much as on others, but its writers exclude one another.
    ///
    /// ```
    /// use icefield::{Partition, Plush};
    /// let options = Plush::<u64, u64>::options().partition(Partition::Range).key_range(0, 9_999);
    /// let table = options.in_memory()?;
    /// (0..10_000).try_for_each(|key| table.put(key, key))?;
    /// assert_eq!(table.range(9_998, 10)?, [(9_998, 9_998), (9_999, 9_999)]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn key_range(mut self, first: Arg<'_, K>, last: Arg<'_, K>) -> Self {
        let raws = [K::raw(first), K::raw(last)];
        self.settings.bounds = Some(raws.map(|raw| rank_of(K::TYPE, K::FORM, &raw)));
        self
    }

    /// Sets the first log epoch of a new table's entries, for tests of the counter's wrap-around.
    #[doc(hidden)]
    #[must_use]
    pub fn first_epoch(mut self, bits: u64) -> Self {
        self.settings.first_epoch = LogEpoch::of_bits(bits.max(1));
        self
    }

    /// Sets the sizes of a new table's parts, for tests and measurements.
    #[doc(hidden)]
    #[must_use]
    pub fn shape(mut self, shape: Shape) -> Self {
        self.settings.shape = Some(shape);
        self
    }
}
