//! The operations of an index.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use super::bitmap::Bitmap;
use super::delta::Change;
use super::merge::MergeReport;
use super::options::{JoinOptions, sensible_threads};
use super::pairs::Pairs;
use super::sink::Show;
use super::view::View;
use super::{JoinIndex, JoinStats};
use crate::report::{BackupReport, RecoveryReport};
use crate::storage::Medium;
use crate::types::Word;
use crate::{Error, Result};

/// Number of entries in [`JoinStats::bucket_sizes`]. The last one also counts all longer buckets.
const SIZES: usize = 33;
/// Maximum number of groups that are sampled for the statistics.
const SAMPLED_GROUPS: usize = 1 << 16;

impl<K: Word> JoinIndex<K> {
    /// Returns the options for building or opening an index.
    ///
    /// ```
    /// let options = icefield::JoinIndex::<i64>::options().threads(1).verify(true);
    /// let index = options.build_in_memory(&[-1, -1], &[0, 1])?;
    /// assert_eq!(index.probe_count(&[-1, 1])?, 2);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn options() -> JoinOptions<K> {
        JoinOptions::default()
    }

    /// Builds an index of `keys` at `path`. Each key has the payload at the same position.
    ///
    /// ```
    /// let directory = tempfile::tempdir()?;
    /// let index = icefield::JoinIndex::build(directory.path().join("orders.ice"), &[7_u64, 7], &[0, 1])?;
    /// assert_eq!(index.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`JoinOptions::build`].
    pub fn build(path: impl AsRef<Path>, keys: &[K], payloads: &[u64]) -> Result<Self> {
        Self::options().build(path, keys, payloads)
    }

    /// Opens the index at `path`.
    ///
    /// ```
    /// use icefield::JoinIndex;
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// drop(JoinIndex::build(&path, &[7_u64, 7], &[0, 1])?);
    /// assert_eq!(JoinIndex::<u64>::open(&path)?.probe_count(&[7])?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// No other program may write to its files while it is open; see [`JoinOptions::open`].
    ///
    /// # Errors
    /// As [`JoinOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Opens the index at `path` for reading only.
    ///
    /// ```
    /// use icefield::{Error, JoinIndex};
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// let writer = JoinIndex::build(&path, &[7_u64], &[0])?;
    /// let reader = JoinIndex::<u64>::open_read_only(&path)?;
    /// assert!(matches!(reader.insert(8, 1), Err(Error::ReadOnly)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// No other program may write to its files while it is open; see [`JoinOptions::open`].
    ///
    /// # Errors
    /// As [`JoinOptions::open`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open_read_only(path)
    }

    /// Builds an index in anonymous memory, which is freed when the index is dropped.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1_u32, 2], &[10, 20])?;
    /// assert_eq!(index.probe_count(&[2])?, 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`JoinOptions::build_in_memory`].
    pub fn in_memory(keys: &[K], payloads: &[u64]) -> Result<Self> {
        Self::options().build_in_memory(keys, payloads)
    }
}

impl<K: Word, M: Medium> JoinIndex<K, M> {
    /// Returns the number of pairs of a probe key and an equal key of the index: the number of rows of an inner join.
    /// Duplicates count on both sides. Like every probe, the call sees one state of the index for all keys.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?;
    /// assert_eq!(index.probe_count(&[2, 2, 3])?, 4);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn probe_count(&self, keys: &[K]) -> Result<u64> {
        self.core.view().count(keys, self.core.workers())
    }

    /// Calls `visit` with the position of a probe key and the payload of an equal key, for every such pair. The order
    /// is undefined, and several threads call `visit` at once. `visit` may use the index. The call sees one state of the
    /// index for all keys: it does not see changes that `visit` or other threads make during the call.
    ///
    /// ```
    /// use std::sync::Mutex;
    /// let index = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?;
    /// let rows = Mutex::new(Vec::new());
    /// index.probe(&[2, 3], |position, payload| rows.lock().unwrap().push((position, payload)))?;
    /// let mut rows = rows.into_inner()?;
    /// rows.sort();
    /// assert_eq!(rows, [(0, 20), (0, 21)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`]; `visit` may have been called for some pairs.
    pub fn probe(&self, keys: &[K], visit: impl Fn(usize, u64) + Sync) -> Result<()> {
        self.core.view().probe(keys, self.core.workers(), || Show(&visit)).map(drop)
    }

    /// Replaces `pairs` by the position of the probe key and the payload, for every pair of a probe key and an equal
    /// key of the index. Uses several threads; each collects its pairs in a separate list. Sees one state of the index
    /// for all keys.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?;
    /// let mut pairs = icefield::Pairs::default();
    /// index.probe_into(&[2, 3, 2], &mut pairs)?;
    /// assert_eq!(pairs.len(), 4);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn probe_into(&self, keys: &[K], pairs: &mut Pairs) -> Result<()> {
        self.probe_some(keys, usize::MAX, pairs).map(drop)
    }

    /// Does the same as [`probe_into`](Self::probe_into) for the first of the keys: for as many as have at most `most`
    /// pairs, or for one key if it alone has more. Returns the number of these keys, which is 0 only if there are no
    /// keys. So the memory for the pairs is limited, unless a single key has many. Each call sees one state of the index;
    /// the next call may see another one.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?;
    /// let (keys, mut pairs) = ([2, 1, 2], icefield::Pairs::default());
    /// let (mut done, mut found) = (0, 0);
    /// while done < keys.len() {
    ///     done += index.probe_some(&keys[done..], 2, &mut pairs)?;
    ///     found += pairs.len(); // At most 2.
    /// }
    /// assert_eq!(found, 5);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn probe_some(&self, keys: &[K], most: usize, pairs: &mut Pairs) -> Result<usize> {
        self.core.view().probe_some(keys, self.core.workers(), most, pairs)
    }

    /// Returns which probe keys are in the index: a semi-join.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?;
    /// assert_eq!(index.semi(&[2, 3])?.to_bytes(), [0b01]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn semi(&self, keys: &[K]) -> Result<Bitmap> {
        self.core.view().mark(keys, self.core.workers())
    }

    /// Returns which probe keys are in the index, and how many pairs they have: [`semi`](Self::semi) and
    /// [`probe_count`](Self::probe_count) in one pass, on the same state of the index.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?;
    /// let (found, pairs) = index.semi_count(&[2, 3, 1])?;
    /// assert_eq!((found.count_ones(), pairs), (2, 3));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn semi_count(&self, keys: &[K]) -> Result<(Bitmap, u64)> {
        self.core.view().mark_and_count(keys, self.core.workers())
    }

    /// Returns which probe keys are not in the index: an anti-join.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?;
    /// assert_eq!(index.anti(&[2, 3])?.to_bytes(), [0b10]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn anti(&self, keys: &[K]) -> Result<Bitmap> {
        Ok(self.semi(keys)?.inverted())
    }

    /// Adds a pair. A pair that is already present is then present twice. Durable and visible when the call returns.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1], &[10])?;
    /// index.insert(1, 11)?;
    /// assert_eq!(index.probe_count(&[1])?, 2);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DeltaFull`] if the delta store is full and may not be merged automatically, [`Error::ReadOnly`],
    /// [`Error::Locked`], [`Error::NoSpace`], [`Error::NoMemory`], [`Error::Poisoned`]. If the call merges first, also
    /// [`Error::Corrupt`].
    pub fn insert(&self, key: K, payload: u64) -> Result<()> {
        self.core.change(&[Change::Insert(key.to_word(), payload)]).map(drop)
    }

    /// Adds pairs; many of them share a fence. Durable and visible when the call returns. After a crash or an error
    /// during the call, a prefix of the batch may have been added.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1], &[10])?;
    /// index.insert_batch(&[(1, 11), (2, 20)])?;
    /// assert_eq!(index.len(), 3);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_batch(&self, pairs: &[(K, u64)]) -> Result<()> {
        let change = |&(key, payload): &(K, u64)| Change::Insert(key.to_word(), payload);
        for pairs in pairs.chunks(super::log::WINDOW) {
            self.core.change(&pairs.iter().map(change).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Removes all pairs of a key; returns their number.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?;
    /// assert_eq!((index.remove(2)?, index.remove(2)?), (2, 0));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn remove(&self, key: K) -> Result<u64> {
        self.core.change(&[Change::Remove(key.to_word())])
    }

    /// Removes all pairs of each key; returns the number of removed pairs. Many removals share a fence. Durable and
    /// visible when the call returns. After a crash or an error during the call, the pairs of a prefix of the keys may
    /// have been removed.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?;
    /// assert_eq!(index.remove_batch(&[2, 3, 2])?, 2);
    /// assert_eq!(index.len(), 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn remove_batch(&self, keys: &[K]) -> Result<u64> {
        let mut removed = 0;
        for keys in keys.chunks(super::log::WINDOW) {
            // The effects of the changes in a window must not depend on one another, so each key is removed once.
            let mut seen = HashSet::new();
            let words = keys.iter().map(|key| key.to_word());
            let changes = words.filter(|&key| seen.insert(key)).map(Change::Remove);
            removed += self.core.change(&changes.collect::<Vec<_>>())?;
        }
        Ok(removed)
    }

    /// Removes one pair, or one of several equal pairs; returns whether there was one.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[2, 2], &[20, 21])?;
    /// assert!(index.remove_pair(2, 21)? && !index.remove_pair(2, 21)?);
    /// assert_eq!(index.probe_count(&[2])?, 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn remove_pair(&self, key: K, payload: u64) -> Result<bool> {
        self.core.change(&[Change::RemovePair(key.to_word(), payload)]).map(|pairs| pairs > 0)
    }

    /// Merges the present generation and its delta store into the next generation. Probes continue meanwhile; changes
    /// wait. The report's `kind` shows whether the merge copied group by group or rebuilt the index. A crash during the
    /// call leaves the present generation and its delta store. Both generations take space on the medium until the old
    /// one is freed; a large one may be freed shortly after the call has returned.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[2, 2], &[20, 21])?;
    /// index.remove_pair(2, 21)?;
    /// assert_eq!(index.merge()?.pairs, 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the present generation is damaged; [`Error::NoSpace`], [`Error::NoMemory`],
    /// [`Error::ReadOnly`], [`Error::Locked`], [`Error::Poisoned`]. The present generation is kept.
    pub fn merge(&self) -> Result<MergeReport> {
        self.core.merge()
    }

    /// Calls `visit` with every pair, in undefined order.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[2, 2], &[20, 21])?;
    /// let mut payloads = 0;
    /// index.for_each(|_, payload| payloads += payload)?;
    /// assert_eq!(payloads, 41);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`], also if a key is not a valid `K`; `visit` may have been called for some pairs.
    pub fn for_each(&self, mut visit: impl FnMut(K, u64)) -> Result<()> {
        let view = self.core.view();
        view.for_each(&mut |keys, payloads| {
            for (&key, &payload) in keys.iter().zip(payloads) {
                let key = K::from_word(key).ok_or_else(|| {
                    let detail = format!("the key {key:#x} is not a valid {}", K::TYPE);
                    Error::corrupt(
                        view.frame.storage.path().join(view.base.region.name()),
                        0,
                        detail,
                    )
                })?;
                visit(key, payload);
            }
            Ok(())
        })
    }

    /// Returns the number of pairs.
    ///
    /// ```
    /// assert_eq!(icefield::JoinIndex::in_memory(&[2, 2], &[20, 21])?.len(), 2);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> u64 {
        self.core.view().len()
    }

    /// Returns `true` if the index holds no pairs.
    ///
    /// ```
    /// assert!(icefield::JoinIndex::<u64>::in_memory(&[], &[])?.is_empty());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of the present generation. It starts at 1 and grows by one with each merge, and with each
    /// build that replaces the index.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1], &[10])?;
    /// index.insert(2, 20)?;
    /// index.merge()?;
    /// assert_eq!(index.generation(), 2);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.core.view().root.generation
    }

    /// Returns an identifier of the index that does not depend on its path. All generations of an index have the same
    /// one.
    ///
    /// ```
    /// let [one, other] = [(); 2].map(|()| icefield::JoinIndex::in_memory(&[1], &[10]).unwrap());
    /// assert_ne!(one.uuid(), other.uuid());
    /// ```
    #[must_use]
    pub fn uuid(&self) -> u128 {
        self.core.view().frame.identity.uuid()
    }

    /// Sets the number of threads that a probe or merge may use, as [`JoinOptions::threads`] does.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[1], &[10])?;
    /// index.set_threads(1);
    /// assert_eq!(index.threads(), 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn set_threads(&self, threads: usize) {
        // Relaxed: no other data depends on the setting.
        self.core.threads.store(sensible_threads(threads), Relaxed);
    }

    /// Returns the number of threads that a probe or merge may use.
    ///
    /// ```
    /// let options = icefield::JoinIndex::<u64>::options().threads(3);
    /// assert_eq!(options.build_in_memory(&[], &[])?.threads(), 3);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn threads(&self) -> usize {
        self.core.threads()
    }

    /// Returns the directory of the index; an invented name for an index in memory.
    ///
    /// ```
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// assert_eq!(icefield::JoinIndex::build(&path, &[1], &[10])?.path(), path);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> std::path::PathBuf {
        self.core.view().frame.storage.path().to_owned()
    }

    /// Returns the report of opening the index: for example, whether the previous session had closed it.
    ///
    /// ```
    /// use icefield::JoinIndex;
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// let index = JoinIndex::build(&path, &[7_u64], &[0])?;
    /// index.insert(8, 1)?;
    /// index.sync()?;
    /// drop(index);
    /// let again = JoinIndex::<u64>::open(&path)?;
    /// assert!(again.recovery().was_clean && again.len() == 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// Returns when all changes are durable. Every change is durable when its call returns, so this returns at once.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Copies the index to a new directory at `path`. The copy is renamed to `path` after it has been verified. Changes
    /// through this handle wait for the copy; probes do not. Changes through another handle, in this process or
    /// another, do not wait: the copy then holds a state that the index had during the call.
    ///
    /// ```
    /// use icefield::JoinIndex;
    /// let directory = tempfile::tempdir()?;
    /// let index = JoinIndex::build(directory.path().join("orders.ice"), &[1_u64], &[10])?;
    /// index.backup(directory.path().join("copy.ice"))?;
    /// assert_eq!(JoinIndex::<u64>::open(directory.path().join("copy.ice"))?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NoSpace`], [`Error::Io`]; [`Error::Corrupt`] if the index is damaged. Nothing
    /// is left at `path`.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<BackupReport> {
        let copy = |view: &View<M>| view.copy_to(path.as_ref(), self.core.threads());
        let (bytes, pause) = self.core.with_present(copy)?;
        Ok(BackupReport { bytes, pause })
    }

    /// Returns statistics: counts, and the lengths of the buckets in a sample of at most 65536 groups.
    ///
    /// ```
    /// let keys: Vec<u64> = (0..100_000).collect();
    /// let stats = icefield::JoinIndex::in_memory(&keys, &keys)?.stats()?;
    /// assert_eq!((stats.pairs, stats.delta_changes), (100_000, 0));
    /// assert!(stats.file_bytes < 1_850_000 && stats.filter_bits_per_key == 11);
    /// assert!(stats.filter_pass_rate < 0.01);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn stats(&self) -> Result<JoinStats> {
        let view = self.core.view();
        let (storage, layout) = (&view.frame.storage, view.base.layout());
        let areas = view.base.areas(storage)?;
        let mut stats = JoinStats {
            pairs: view.len(),
            base_pairs: layout.records,
            delta_changes: view.changes(),
            delta_limit: view.delta_limit,
            generation: view.root.generation,
            groups: layout.groups,
            wide_groups: layout.wide,
            filter_bits_per_key: view.bits.get(),
            file_bytes: view.base.region.len(),
            dram_bytes: view.dram_bytes(),
            durability: Some(storage.durability()),
            bucket_sizes: vec![0; SIZES],
            filter_pass_rate: 0.0,
        };
        let step = areas.groups.len().div_ceil(SAMPLED_GROUPS).max(1);
        let mut sampled = 0;
        for line in areas.groups.iter().step_by(step) {
            for bucket in 0..super::layout::BUCKETS {
                let extent = areas.extent(storage, line, bucket);
                stats.bucket_sizes[((extent.end - extent.start) as usize).min(SIZES - 1)] += 1;
            }
            stats.filter_pass_rate += super::base::pass_rate(storage, line);
            sampled += 1;
        }
        stats.filter_pass_rate /= f64::from(sampled.max(1));
        Ok(stats)
    }
}
