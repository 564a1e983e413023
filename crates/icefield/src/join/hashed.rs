//! Byte keys: the index stores a 64-bit hash computed by the caller, and the caller compares keys by payload.

use std::ops::Range;
use std::path::Path;

use super::JoinIndex;
use super::bitmap::Bitmap;
use super::merge::MergeReport;
use super::options::{JoinOptions, KeyHash};
use super::pairs::Pairs;
use super::sink::{Keys, Show};
use super::source::{JoinSource, share};
use crate::Result;
use crate::types::Word;

/// Number of keys that a build hashes at a time.
const BATCH: usize = 1 << 16;
/// The bytes whose hash identifies the caller's hash function.
const TOKEN: &[u8] = b"icefield";

/// A [`JoinIndex`] with byte keys, from [`JoinOptions::build_with_hash`]. It stores the hashes of the keys. For each
/// pair with an equal hash, it calls `verify` with the key and the payload; `verify` returns whether the payload's row
/// has that key. So different keys with equal hashes are distinguished.
///
/// ```
/// use icefield::JoinIndex;
///
/// let customers = ["ann", "bob", "ann"];
/// let hash = |key: &[u8]| key.iter().fold(7, |hash: u64, &byte| hash.wrapping_mul(31) ^ u64::from(byte));
/// let verify = |key: &[u8], row: u64| customers[row as usize].as_bytes() == key;
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("customers.ice");
/// let index = JoinIndex::<u64>::options().build_with_hash(&path, &customers, &[0, 1, 2], hash, verify)?;
/// assert_eq!(index.probe_count(&["ann", "eve"])?, 2);
/// index.probe(&["ann", "eve"], |position, row| assert!(position == 0 && customers[row as usize] == "ann"))?;
/// assert_eq!(index.semi(&["eve", "bob"])?.to_bytes(), [0b10]);
/// assert_eq!(index.anti(&["eve", "bob"])?.to_bytes(), [0b01]);
/// assert_eq!(index.semi_count(&["ann", "eve", "bob"])?.1, 3);
///
/// assert!(index.remove_pair(b"ann", 2)?);
/// assert_eq!((index.remove(b"bob")?, index.len()), (1, 1));
/// index.insert(b"bob", 1)?;
/// index.insert_batch(&[("ann", 2)])?;
/// assert_eq!(index.merge()?.pairs, 3);
/// assert!(index.hashes().check()?.is_clean() && !index.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HashedJoinIndex<H, V> {
    index: JoinIndex<KeyHash>,
    hash: H,
    verify: V,
}

/// Byte keys as a source of hashes.
struct Hashes<'a, B, H> {
    keys: &'a [B],
    payloads: &'a [u64],
    hash: &'a H,
}

impl<B: AsRef<[u8]> + Sync, H: Fn(&[u8]) -> u64 + Sync> JoinSource for Hashes<'_, B, H> {
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()> {
        let share = share(self.keys.len(), part, parts);
        let (keys, payloads) = (&self.keys[share.clone()], &self.payloads[share]);
        let mut hashes = Vec::new();
        for (keys, payloads) in keys.chunks(BATCH).zip(payloads.chunks(BATCH)) {
            hashes.clear();
            hashes.extend(keys.iter().map(|key| (self.hash)(key.as_ref())));
            show(&hashes, payloads)?;
        }
        Ok(())
    }
}

/// Byte keys of a probe. Each task hashes its keys.
struct ByteKeys<'a, B, H, V> {
    keys: &'a [B],
    hash: &'a H,
    verify: &'a V,
}

impl<B, H, V> Clone for ByteKeys<'_, B, H, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B, H, V> Copy for ByteKeys<'_, B, H, V> {}

impl<B, H, V> Keys for ByteKeys<'_, B, H, V>
where
    B: AsRef<[u8]> + Sync,
    H: Fn(&[u8]) -> u64 + Sync,
    V: Fn(&[u8], u64) -> bool + Sync,
{
    type Key = KeyHash;
    const SELECTS: bool = true;

    fn len(self) -> usize {
        self.keys.len()
    }

    fn first(self, count: usize) -> Self {
        Self { keys: &self.keys[..count], ..self }
    }

    fn read<'k>(&'k self, range: Range<usize>, buffer: &'k mut Vec<KeyHash>) -> &'k [KeyHash] {
        buffer.clear();
        buffer.extend(self.keys[range].iter().map(|key| KeyHash((self.hash)(key.as_ref()))));
        buffer
    }

    fn accepts(self, position: usize, payload: u64) -> bool {
        (self.verify)(self.keys[position].as_ref(), payload)
    }
}

impl<K: Word> JoinOptions<K> {
    /// Builds an index whose keys are bytes. It stores their hashes; `hash` must return the same hashes in every
    /// process. It is also called with the bytes `icefield`, by whose hash an opening recognizes the function. `verify`
    /// returns whether the row with the given payload has the given key. See [`HashedJoinIndex`] for
    /// an example.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_with_hash<B, H, V>(
        &self,
        path: impl AsRef<Path>,
        keys: &[B],
        payloads: &[u64],
        hash: H,
        verify: V,
    ) -> Result<HashedJoinIndex<H, V>>
    where
        B: AsRef<[u8]> + Sync,
        H: Fn(&[u8]) -> u64 + Sync,
        V: Fn(&[u8], u64) -> bool + Sync,
    {
        super::source::matched(keys.len(), payloads.len())?;
        let source = Hashes { keys, payloads, hash: &hash };
        let index = self.with_hash(hash(TOKEN)).build_from(path, &source)?;
        Ok(HashedJoinIndex { index, hash, verify })
    }

    /// Opens an index whose keys are bytes. `hash` must be the function with which it was built.
    ///
    /// ```
    /// use icefield::JoinIndex;
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("customers.ice");
    /// let (hash, verify) = (|key: &[u8]| key.len() as u64, |_: &[u8], _| true);
    /// let options = JoinIndex::<u64>::options();
    /// drop(options.build_with_hash(&path, &["ann"], &[0], hash, verify)?);
    /// assert_eq!(options.open_with_hash(&path, hash, verify)?.len(), 1);
    /// assert!(options.open_with_hash(&path, |_| 5, verify).is_err(), "another hash function");
    /// assert!(options.open(&path).is_err(), "no index of numbers");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// No other program may write to its files while it is open; see [`open`](Self::open).
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Error::InvalidOption`](crate::Error::InvalidOption) if `hash` differs from the
    /// function of the build.
    pub fn open_with_hash<H, V>(
        &self,
        path: impl AsRef<Path>,
        hash: H,
        verify: V,
    ) -> Result<HashedJoinIndex<H, V>>
    where
        H: Fn(&[u8]) -> u64 + Sync,
        V: Fn(&[u8], u64) -> bool + Sync,
    {
        let index = self.with_hash(hash(TOKEN)).open(path)?;
        Ok(HashedJoinIndex { index, hash, verify })
    }
}

impl<K: Word> JoinOptions<K> {
    /// Opens an index as [`open_with_hash`](Self::open_with_hash) does, for reading only.
    ///
    /// ```
    /// use icefield::{Error, JoinIndex};
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("customers.ice");
    /// let (hash, verify) = (|key: &[u8]| key.len() as u64, |_: &[u8], _| true);
    /// let options = JoinIndex::<u64>::options();
    /// drop(options.build_with_hash(&path, &["ann"], &[0], hash, verify)?);
    /// let reader = options.open_read_only_with_hash(&path, hash, verify)?;
    /// assert!(matches!(reader.insert(b"eve", 1), Err(Error::ReadOnly)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`open_with_hash`](Self::open_with_hash).
    pub fn open_read_only_with_hash<H, V>(
        &self,
        path: impl AsRef<Path>,
        hash: H,
        verify: V,
    ) -> Result<HashedJoinIndex<H, V>>
    where
        H: Fn(&[u8]) -> u64 + Sync,
        V: Fn(&[u8], u64) -> bool + Sync,
    {
        let index = self.with_hash(hash(TOKEN)).open_read_only(path)?;
        Ok(HashedJoinIndex { index, hash, verify })
    }
}

impl<H, V> HashedJoinIndex<H, V>
where
    H: Fn(&[u8]) -> u64 + Sync,
    V: Fn(&[u8], u64) -> bool + Sync,
{
    fn key(&self, key: &[u8]) -> KeyHash {
        KeyHash((self.hash)(key))
    }

    fn keys<'a, B>(&'a self, keys: &'a [B]) -> ByteKeys<'a, B, H, V> {
        ByteKeys { keys, hash: &self.hash, verify: &self.verify }
    }

    /// Calls `visit` for every pair with an equal key, as [`JoinIndex::probe`] does. The threads that probe also hash
    /// the keys and call `verify`.
    ///
    /// # Errors
    /// As [`JoinIndex::probe`].
    pub fn probe<B: AsRef<[u8]> + Sync>(
        &self,
        keys: &[B],
        visit: impl Fn(usize, u64) + Sync,
    ) -> Result<()> {
        let core = &self.index.core;
        core.view().probe(self.keys(keys), core.workers(), || Show(&visit)).map(drop)
    }

    /// Replaces `pairs` by all pairs with equal keys, as [`JoinIndex::probe_into`] does.
    ///
    /// ```
    /// use icefield::{JoinIndex, Pairs};
    /// let customers = ["ann", "bob", "ann"];
    /// let verify = |key: &[u8], row: u64| customers[row as usize].as_bytes() == key;
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("customers.ice");
    /// let options = JoinIndex::<u64>::options();
    /// let index = options.build_with_hash(&path, &customers, &[0, 1, 2], |key| key.len() as u64, verify)?;
    /// let mut pairs = Pairs::default();
    /// index.probe_into(&["eve", "bob"], &mut pairs)?; // Equal hashes, but different keys.
    /// assert_eq!((pairs.positions(), pairs.payloads()), (&[1][..], &[1][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`JoinIndex::probe`].
    pub fn probe_into<B: AsRef<[u8]> + Sync>(&self, keys: &[B], pairs: &mut Pairs) -> Result<()> {
        self.probe_some(keys, usize::MAX, pairs).map(drop)
    }

    /// Does the same as [`probe_into`](Self::probe_into) for the first of the keys, as [`JoinIndex::probe_some`] does:
    /// for as many as have at most `most` pairs, or for one key. Returns the number of these keys.
    ///
    /// ```
    /// use icefield::{JoinIndex, Pairs};
    /// let customers = ["ann", "bob", "ann"];
    /// let verify = |key: &[u8], row: u64| customers[row as usize].as_bytes() == key;
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("customers.ice");
    /// let options = JoinIndex::<u64>::options();
    /// let index = options.build_with_hash(&path, &customers, &[0, 1, 2], |key| key.len() as u64, verify)?;
    /// let (keys, mut pairs) = (["bob", "ann", "eve"], Pairs::default());
    /// let (mut done, mut found) = (0, 0);
    /// while done < keys.len() {
    ///     done += index.probe_some(&keys[done..], 2, &mut pairs)?;
    ///     found += pairs.len(); // At most 2.
    /// }
    /// assert_eq!(found, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`JoinIndex::probe`].
    pub fn probe_some<B: AsRef<[u8]> + Sync>(
        &self,
        keys: &[B],
        most: usize,
        pairs: &mut Pairs,
    ) -> Result<usize> {
        let core = &self.index.core;
        core.view().probe_some(self.keys(keys), core.workers(), most, pairs)
    }

    /// Returns the number of pairs with equal keys, as [`JoinIndex::probe_count`] does.
    ///
    /// # Errors
    /// As [`JoinIndex::probe`].
    pub fn probe_count<B: AsRef<[u8]> + Sync>(&self, keys: &[B]) -> Result<u64> {
        self.index.core.view().count(self.keys(keys), self.index.core.workers())
    }

    /// Returns which keys are in the index, as [`JoinIndex::semi`] does. `verify` is called for the pairs of a key
    /// until it accepts one.
    ///
    /// # Errors
    /// As [`JoinIndex::probe`].
    pub fn semi<B: AsRef<[u8]> + Sync>(&self, keys: &[B]) -> Result<Bitmap> {
        self.index.core.view().mark(self.keys(keys), self.index.core.workers())
    }

    /// Returns which keys are in the index and their number of pairs, as [`JoinIndex::semi_count`] does.
    ///
    /// # Errors
    /// As [`JoinIndex::probe`].
    pub fn semi_count<B: AsRef<[u8]> + Sync>(&self, keys: &[B]) -> Result<(Bitmap, u64)> {
        self.index.core.view().mark_and_count(self.keys(keys), self.index.core.workers())
    }

    /// Returns which keys are not in the index, as [`JoinIndex::anti`] does.
    ///
    /// # Errors
    /// As [`JoinIndex::probe`].
    pub fn anti<B: AsRef<[u8]> + Sync>(&self, keys: &[B]) -> Result<Bitmap> {
        Ok(self.semi(keys)?.inverted())
    }

    /// Adds a pair, as [`JoinIndex::insert`] does.
    ///
    /// # Errors
    /// As [`JoinIndex::insert`].
    pub fn insert(&self, key: &[u8], payload: u64) -> Result<()> {
        self.index.insert(self.key(key), payload)
    }

    /// Adds pairs, as [`JoinIndex::insert_batch`] does.
    ///
    /// # Errors
    /// As [`JoinIndex::insert`].
    pub fn insert_batch<B: AsRef<[u8]>>(&self, pairs: &[(B, u64)]) -> Result<()> {
        let hashed = pairs.iter().map(|(key, payload)| (self.key(key.as_ref()), *payload));
        self.index.insert_batch(&hashed.collect::<Vec<_>>())
    }

    /// Removes all pairs of a key, as [`JoinIndex::remove`] does. If another key has the same hash, each pair is
    /// removed by a separate log record; after a crash during the call, some of the pairs may still be present.
    ///
    /// # Errors
    /// As [`JoinIndex::insert`].
    pub fn remove(&self, key: &[u8]) -> Result<u64> {
        let mut pairs = Pairs::default();
        self.probe_into(&[key], &mut pairs)?;
        self.index.core.remove_pairs(self.key(key).0, pairs.payloads())
    }

    /// Removes one pair, as [`JoinIndex::remove_pair`] does.
    ///
    /// # Errors
    /// As [`JoinIndex::insert`].
    pub fn remove_pair(&self, key: &[u8], payload: u64) -> Result<bool> {
        Ok((self.verify)(key, payload) && self.index.remove_pair(self.key(key), payload)?)
    }

    /// Merges the delta store into the next generation, as [`JoinIndex::merge`] does.
    ///
    /// # Errors
    /// As [`JoinIndex::merge`].
    pub fn merge(&self) -> Result<MergeReport> {
        self.index.merge()
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> u64 {
        self.index.len()
    }

    /// Returns `true` if the index holds no pairs.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the underlying index, whose keys are the hashes, for all other operations.
    pub fn hashes(&self) -> &JoinIndex<KeyHash> {
        &self.index
    }
}
