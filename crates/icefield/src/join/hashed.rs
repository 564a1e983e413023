//! Keys of bytes: by a 64-bit hash of the caller's, and a look at what the payload stands for.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::JoinIndex;
use super::bitmap::Bitmap;
use super::merge::MergeReport;
use super::options::JoinOptions;
use super::probe::{marked, no_marks};
use super::source::{JoinSource, share};
use crate::Result;
use crate::key::Word;

/// Keys hashed at a time; a multiple of 64, so that batches share no word of a bitmap.
const BATCH: usize = 1 << 16;
const _: () = assert!(BATCH.is_multiple_of(64));
/// What a hash function is known by: the hash of these bytes.
const TOKEN: &[u8] = b"icefield";

/// The hash of a key of bytes, as such an index stores it. Has a name of its own, so that the index is not opened as
/// one of numbers.
///
/// ```
/// use icefield::{KeyHash, Word};
/// assert_eq!(KeyHash(7).to_word(), 7);
/// assert_ne!(KeyHash::TYPE, u64::TYPE);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub u64);

impl Word for KeyHash {
    const TYPE: &'static str = "hash-of-bytes";

    fn to_word(self) -> u64 {
        self.0
    }

    fn from_word(word: u64) -> Option<Self> {
        Some(Self(word))
    }
}

/// A [`JoinIndex`] with keys of bytes, from [`JoinOptions::build_with_hash`]: it stores their hashes. Each pair that it
/// finds for a hash is shown to `verify`, with the key and the payload, which says whether the row that the payload
/// stands for has that key: so different keys with equal hashes are told apart.
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
/// assert_eq!(index.merge()?.pairs, 2);
/// assert!(index.hashes().check()?.is_clean() && !index.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HashedJoinIndex<H, V> {
    index: JoinIndex<KeyHash>,
    hash: H,
    verify: V,
}

/// Byte keys on their way into an index.
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

impl<K: Word> JoinOptions<K> {
    /// Builds an index whose keys are bytes: it stores their hashes, which `hash` makes, the same in every process.
    /// `verify` says whether the row that a payload stands for has a key. See [`HashedJoinIndex`] for an example.
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

    /// Opens an index whose keys are bytes, with the `hash` that it was built with.
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
    /// As [`open`](Self::open); [`Error::InvalidOption`](crate::Error::InvalidOption) for another hash function.
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
    /// As [`open_with_hash`](Self::open_with_hash), for reading only.
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

    /// Hashes keys batch by batch; `each` gets where a batch begins, its hashes and its keys.
    fn in_batches<B: AsRef<[u8]>>(
        &self,
        keys: &[B],
        mut each: impl FnMut(usize, &[KeyHash], &[B]) -> Result<()>,
    ) -> Result<()> {
        let mut hashes = Vec::new();
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            hashes.clear();
            hashes.extend(keys.iter().map(|key| self.key(key.as_ref())));
            each(batch * BATCH, &hashes, keys)?;
        }
        Ok(())
    }

    /// As [`JoinIndex::probe`].
    ///
    /// # Errors
    /// As [`JoinIndex::probe`].
    pub fn probe<B: AsRef<[u8]> + Sync>(
        &self,
        keys: &[B],
        visit: impl Fn(usize, u64) + Sync,
    ) -> Result<()> {
        self.in_batches(keys, |first, hashes, keys| {
            self.index.probe(hashes, |position, payload| {
                if (self.verify)(keys[position].as_ref(), payload) {
                    visit(first + position, payload);
                }
            })
        })
    }

    /// As [`JoinIndex::probe_count`].
    ///
    /// # Errors
    /// As [`JoinIndex::probe`].
    pub fn probe_count<B: AsRef<[u8]> + Sync>(&self, keys: &[B]) -> Result<u64> {
        let count = AtomicU64::new(0);
        // Relaxed: read when all threads have ended.
        self.probe(keys, |_, _| {
            count.fetch_add(1, Relaxed);
        })?;
        Ok(count.into_inner())
    }

    /// As [`JoinIndex::semi`]. Of a key's pairs, those up to the first that `verify` accepts are shown to it.
    ///
    /// # Errors
    /// As [`JoinIndex::probe`].
    pub fn semi<B: AsRef<[u8]> + Sync>(&self, keys: &[B]) -> Result<Bitmap> {
        let words = no_marks(keys.len());
        let core = &self.index.core;
        self.in_batches(keys, |first, hashes, keys| {
            let wanted = |position: usize, payload| (self.verify)(keys[position].as_ref(), payload);
            core.view().mark_wanted(hashes, core.threads(), &words[first / 64..], wanted)
        })?;
        Ok(marked(words, keys.len()))
    }

    /// As [`JoinIndex::semi_count`].
    ///
    /// # Errors
    /// As [`JoinIndex::probe`].
    pub fn semi_count<B: AsRef<[u8]> + Sync>(&self, keys: &[B]) -> Result<(Bitmap, u64)> {
        let (words, pairs) = (no_marks(keys.len()), AtomicU64::new(0));
        // Relaxed: read when all threads have ended.
        self.probe(keys, |at, _| {
            words[at / 64].fetch_or(1 << (at % 64), Relaxed);
            pairs.fetch_add(1, Relaxed);
        })?;
        Ok((marked(words, keys.len()), pairs.into_inner()))
    }

    /// As [`JoinIndex::anti`].
    ///
    /// # Errors
    /// As [`JoinIndex::probe`].
    pub fn anti<B: AsRef<[u8]> + Sync>(&self, keys: &[B]) -> Result<Bitmap> {
        Ok(self.semi(keys)?.inverted())
    }

    /// As [`JoinIndex::insert`].
    ///
    /// # Errors
    /// As [`JoinIndex::insert`].
    pub fn insert(&self, key: &[u8], payload: u64) -> Result<()> {
        self.index.insert(self.key(key), payload)
    }

    /// As [`JoinIndex::remove`]. Where another key has the same hash, pair by pair: a crash in between leaves some.
    ///
    /// # Errors
    /// As [`JoinIndex::insert`].
    pub fn remove(&self, key: &[u8]) -> Result<u64> {
        let payloads = std::sync::Mutex::new(Vec::new());
        self.probe(&[key], |_, payload| {
            payloads.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(payload);
        })?;
        let payloads = payloads.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.index.core.remove_pairs(self.key(key).0, &payloads)
    }

    /// As [`JoinIndex::remove_pair`].
    ///
    /// # Errors
    /// As [`JoinIndex::insert`].
    pub fn remove_pair(&self, key: &[u8], payload: u64) -> Result<bool> {
        Ok((self.verify)(key, payload) && self.index.remove_pair(self.key(key), payload)?)
    }

    /// As [`JoinIndex::merge`].
    ///
    /// # Errors
    /// As [`JoinIndex::merge`].
    pub fn merge(&self) -> Result<MergeReport> {
        self.index.merge()
    }

    /// How many pairs there are.
    pub fn len(&self) -> u64 {
        self.index.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The index of hashes, for everything else.
    pub fn hashes(&self) -> &JoinIndex<KeyHash> {
        &self.index
    }
}
