//! Records as the two words of a slot. Each word is a key or value of at most 64 bits, or a reference into the blob
//! store.
//!
//! This module holds everything that tables with such slots (Dash and IcebergHT) share, wherever their slots lie. Plush
//! stores its records in another form and does not use this module.
//!
//! [`Records`] hashes, compares, stores and drops records. Module `table` contains the operations on one key. Module
//! `batch` contains batches, and implements [`Operations`](crate::engine::Operations) for every table with slots.

pub(crate) mod batch;
mod prefetch;
pub(crate) mod table;

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::base::hash::Hash;
use crate::base::reclaim::{Guard, Reclaimer};
use crate::engine::{LookupKey, MAX_BYTES};
use crate::storage::blob::{BlobParams, BlobRef, BlobStore, Owner, RETIRED_TOGETHER};
use crate::storage::{Medium, SharedBytes};
use crate::types::{Form, Raw, RecordForm, Take};
use crate::{Error, Result};

/// Values of up to this length are copied to the stack, not to the heap.
const SHORT_BYTES: usize = 512;

/// The words of a new record. Its blobs have been written to the medium, but no slot refers to them yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PreparedRecord {
    /// The key, or the reference to it. The reference is 0, which is not valid, if the key has not been written because
    /// a slot is expected to refer to it already.
    pub(crate) key: u64,
    pub(crate) value: u64,
}

/// Hashes, compares, stores and drops the records of a table.
pub(crate) struct Records<R> {
    pub(crate) hash: Hash,
    /// `None` if both types are words.
    blobs: Option<BlobStore>,
    reclaimer: Arc<Reclaimer>,
    /// `true` if operations on words pin, too, because the table reclaims more than records.
    always_pinned: bool,
    verifies: bool,
    form: PhantomData<fn() -> R>,
}

/// An epoch guard: keeps memory from being reclaimed. Empty if both types are words, unless the table always pins.
pub struct EpochGuard<'a>(Option<Guard<'a>>);

impl EpochGuard<'_> {
    /// Runs `reclaim` soon after every thread that is pinned now has unpinned. Runs it at once if the table never pins.
    pub(crate) fn defer(&self, reclaim: impl FnOnce() + Send + 'static) {
        match &self.0 {
            Some(guard) => {
                guard.retire(reclaim);
                guard.flush();
            }
            None => reclaim(),
        }
    }
}

impl<R: RecordForm> Records<R> {
    const KEY_IS_WORD: bool = matches!(R::KEY, Form::Word);
    const VALUE_IS_WORD: bool = matches!(R::VALUE, Form::Word);
    const IS_WORDS: bool = Self::KEY_IS_WORD && Self::VALUE_IS_WORD;

    pub(crate) fn open(storage: &impl Medium, hash: Hash, params: BlobParams) -> Result<Self> {
        let reclaimer = Arc::new(Reclaimer::with_batch(RETIRED_TOGETHER));
        let blobs = if Self::KEY_IS_WORD && Self::VALUE_IS_WORD {
            None
        } else {
            Some(BlobStore::open(storage, params, Arc::clone(&reclaimer))?)
        };
        Ok(Self {
            hash,
            blobs,
            reclaimer,
            always_pinned: false,
            verifies: false,
            form: PhantomData,
        })
    }

    /// Makes operations on words pin as well.
    pub(crate) fn always_pinned(self) -> Self {
        Self { always_pinned: true, ..self }
    }

    /// Sets whether reads verify checksums.
    pub(crate) fn verifying(self, verifies: bool) -> Self {
        Self { verifies, ..self }
    }

    /// Returns the blob store, for checks and statistics.
    pub(crate) fn blobs(&self) -> Option<&BlobStore> {
        self.blobs.as_ref()
    }

    /// Returns the blob store. Tables with a type that is stored by reference always have one.
    #[inline]
    fn store(&self) -> Result<&BlobStore> {
        self.blobs
            .as_ref()
            .ok_or_else(|| Error::Unsupported("a table of words has no blob store".into()))
    }

    /// Pins the current thread: until the pin is dropped, blobs that can be reached now are not reused, nor is anything
    /// else that the table reclaims.
    #[inline]
    pub(crate) fn pin(&self) -> EpochGuard<'_> {
        let pinned = !Self::KEY_IS_WORD || !Self::VALUE_IS_WORD || self.always_pinned;
        EpochGuard(pinned.then(|| self.reclaimer.pin()))
    }

    #[inline]
    pub(crate) fn hash_key<'a>(&self, key: &'a Raw<'_>) -> LookupKey<'a> {
        let hash = if Self::KEY_IS_WORD {
            self.hash.word(key.word())
        } else {
            self.hash.bytes(key.bytes())
        };
        LookupKey::new(hash, key)
    }

    /// Returns an error for keys and values that are too long.
    #[inline]
    pub(crate) fn fits(&self, key: &Raw<'_>, value: &Raw<'_>) -> Result<()> {
        if !Self::KEY_IS_WORD && key.bytes().len() > MAX_BYTES {
            return Err(Error::KeyTooLong { len: key.bytes().len(), max: MAX_BYTES });
        }
        if !Self::VALUE_IS_WORD && value.bytes().len() > MAX_BYTES {
            return Err(Error::ValueTooLong { len: value.bytes().len(), max: MAX_BYTES });
        }
        Ok(())
    }

    /// Returns the upper 16 bits of a key's reference: hash bits that select neither the bucket nor the
    /// fingerprint. With them, a record of another key is fetched only once in 2^24 fingerprint comparisons.
    #[inline]
    fn tag(hash: u64) -> u64 {
        (hash >> 24) << 48
    }

    /// Returns the bytes behind a reference, to be copied or compared. The caller holds a pin taken before it loaded
    /// the word from an allocated slot, or the lock of the word's bucket. The bytes then stay unchanged while the pin
    /// or lock is held: a word is stored to a slot only after its blob has been written, and the word of an allocated
    /// slot is later retired, never discarded.
    #[inline]
    fn bytes(&self, storage: &impl Medium, word: u64) -> Result<SharedBytes<'_>> {
        self.store()?.read(storage, BlobRef::from_word(word))
    }

    /// Copies the bytes behind a reference, calls `copied`, then calls `show` with the copy.
    #[inline]
    fn show_bytes<T>(
        &self,
        storage: &impl Medium,
        word: u64,
        copied: impl FnOnce(),
        show: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let stored = self.bytes(storage, word)?;
        let mut short = [MaybeUninit::uninit(); SHORT_BYTES];
        let long;
        let copy = if stored.len() <= SHORT_BYTES {
            &*stored.copy_to(&mut short)
        } else {
            long = stored.to_vec();
            &long
        };
        self.vouch(storage, word, copy)?;
        copied();
        Ok(show(copy))
    }

    /// If reads verify, returns an error for bytes that are not those written behind this reference.
    #[inline]
    fn vouch(&self, storage: &impl Medium, word: u64, copy: &[u8]) -> Result<()> {
        if !self.verifies {
            return Ok(());
        }
        self.store()?.vouch(storage, None, BlobRef::from_word(word), copy)
    }

    /// Passes a slot's word, or the bytes to which it refers, to `take`. Returns `None` if they are not a valid value
    /// of the type that `take` expects. The caller holds an [`EpochGuard`] or the bucket's lock. If `pin` is given, it
    /// is dropped before `take` is called.
    #[inline]
    fn take<T: Take>(
        &self,
        storage: &impl Medium,
        pin: Option<EpochGuard<'_>>,
        (is_word, word): (bool, u64),
        take: T,
    ) -> Result<Option<T::Out>> {
        if is_word {
            drop(pin);
            return Ok(take.take(Raw::Word(word)));
        }
        if T::KEEPS_VEC {
            let copy = self.bytes(storage, word)?.to_vec();
            self.vouch(storage, word, &copy)?;
            drop(pin);
            return Ok(take.take_vec(copy));
        }
        self.show_bytes(storage, word, || drop(pin), |bytes| take.take(Raw::Slice(bytes)))
    }

    /// Runs a bounded part of the blob store's background work, and obtains room for the blobs that will be written.
    #[inline]
    fn make_ready(
        &self,
        storage: &impl Medium,
        owner: &impl Owner,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
        needs_key: bool,
    ) -> Result<()> {
        if let Some(blobs) = &self.blobs {
            if !Self::KEY_IS_WORD && needs_key {
                blobs.prepare(storage, owner, probe.key.bytes().len())?;
            }
            if !Self::VALUE_IS_WORD {
                blobs.prepare(storage, owner, value.bytes().len())?;
            }
        }
        Ok(())
    }

    /// Returns whether a slot's key word denotes the probed key. The caller holds an [`EpochGuard`] or the bucket's
    /// lock.
    #[inline]
    pub(crate) fn matches(
        &self,
        storage: &impl Medium,
        word: u64,
        probe: &LookupKey<'_>,
    ) -> Result<bool> {
        if Self::KEY_IS_WORD {
            return Ok(word == probe.word);
        }
        if (word >> 48) << 48 != Self::tag(probe.hash) {
            return Ok(false);
        }
        self.is_key(storage, word, probe)
    }

    /// Like [`Records::matches`], but follows the reference even if its hash bits differ.
    #[inline]
    pub(crate) fn is_key(
        &self,
        storage: &impl Medium,
        word: u64,
        probe: &LookupKey<'_>,
    ) -> Result<bool> {
        if Self::KEY_IS_WORD {
            return Ok(word == probe.word);
        }
        let stored = self.bytes(storage, word)?;
        let same = stored.equal(probe.key.bytes());
        if !same && self.verifies {
            // Other keys rarely have these hash bits, so this may be the probed key with damaged bytes.
            self.vouch(storage, word, &stored.to_vec())?;
        }
        Ok(same)
    }

    /// Returns whether keys are words, not references.
    #[inline(always)]
    pub(crate) fn keys_are_words(&self) -> bool {
        Self::KEY_IS_WORD
    }

    /// Returns whether the probed key is the word `word`; always `false` for keys by reference.
    #[inline(always)]
    pub(crate) fn is_key_word(&self, probe: &LookupKey<'_>, word: u64) -> bool {
        Self::KEY_IS_WORD && probe.word == word
    }

    /// Returns the hash of a stored key.
    #[inline]
    pub(crate) fn hash_of(&self, storage: &impl Medium, word: u64) -> Result<u64> {
        if Self::KEY_IS_WORD {
            return Ok(self.hash.word(word));
        }
        self.store()?.owner_of(storage, BlobRef::from_word(word))
    }

    /// Reads a slot's whole record and returns the hash of its key. Returns an error unless every checksum fits and
    /// belongs to that key. The caller holds an [`EpochGuard`] or the bucket's lock.
    pub(crate) fn verify(&self, storage: &impl Medium, key: u64, value: u64) -> Result<u64> {
        let hash = match Self::KEY_IS_WORD {
            true => self.hash.word(key),
            false => self.hash.bytes(&self.bytes(storage, key)?.to_vec()),
        };
        for blob in self.references(key, value) {
            self.store()?.verify(storage, hash, blob)?;
        }
        Ok(hash)
    }

    /// Returns the bytes of a slot's key and of its value, as far as they can be read.
    pub(crate) fn remains(
        &self,
        storage: &impl Medium,
        key: u64,
        value: u64,
    ) -> [Option<Vec<u8>>; 2] {
        let bytes = |is_word, word: u64| match is_word {
            true => Some(word.to_le_bytes().to_vec()),
            false => self.bytes(storage, word).ok().map(|bytes| bytes.to_vec()),
        };
        [bytes(Self::KEY_IS_WORD, key), bytes(Self::VALUE_IS_WORD, value)]
    }

    /// Takes the key behind a slot's word, as [`Records::take`] does.
    pub(crate) fn take_key<T: Take>(
        &self,
        storage: &impl Medium,
        word: u64,
        take: T,
    ) -> Result<Option<T::Out>> {
        self.take(storage, None, (Self::KEY_IS_WORD, word), take)
    }

    /// Takes the value behind a slot's word, as [`Records::take`] does.
    #[inline]
    pub(crate) fn take_value<T: Take>(
        &self,
        storage: &impl Medium,
        pin: Option<EpochGuard<'_>>,
        word: u64,
        take: T,
    ) -> Result<Option<T::Out>> {
        self.take(storage, pin, (Self::VALUE_IS_WORD, word), take)
    }

    /// Returns whether the key words of two slots denote the same key.
    pub(crate) fn is_same_key(&self, storage: &impl Medium, one: u64, other: u64) -> Result<bool> {
        if Self::KEY_IS_WORD {
            return Ok(one == other);
        }
        Ok(self.bytes(storage, one)?.equal(&self.bytes(storage, other)?.to_vec()))
    }

    /// Writes the blobs of a record: its value, and its key if `needs_key`. They are flushed; the caller's next fence
    /// makes them durable. The caller must hold no lock, because the blob store may call the table to find out which
    /// blocks are live.
    ///
    /// Always inlined, like `write`, so that the record stays in registers. A copy of it would load both of its words as
    /// one vector, which must wait until the stores to the blobs have left the processor (decision 0120).
    #[inline(always)]
    pub(crate) fn prepare(
        &self,
        storage: &impl Medium,
        owner: &impl Owner,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
        needs_key: bool,
    ) -> Result<PreparedRecord> {
        self.make_ready(storage, owner, probe, value, needs_key)?;
        match self.write(storage, probe, value, needs_key) {
            // Blocks that became free in earlier sessions may not have been found yet.
            Err(Error::NoSpace { .. }) if self.blobs.is_some() => {
                self.store()?.make_room(storage, owner)?;
                self.write(storage, probe, value, needs_key)
            }
            other => other,
        }
    }

    /// Like [`Records::prepare`], but without the blob store's background work, so the caller may hold bucket locks.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        storage: &impl Medium,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
        needs_key: bool,
    ) -> Result<PreparedRecord> {
        let key = match needs_key {
            _ if Self::KEY_IS_WORD => probe.word,
            true => self.write_key(storage, probe)?,
            false => 0,
        };
        match self.write_value(storage, probe, value) {
            Ok(value) => Ok(PreparedRecord { key, value }),
            Err(error) => {
                self.discard_key(key);
                Err(error)
            }
        }
    }

    fn write_key(&self, storage: &impl Medium, probe: &LookupKey<'_>) -> Result<u64> {
        let blob = self.store()?.write(storage, probe.hash, probe.key.bytes())?;
        Ok(blob.word() | Self::tag(probe.hash))
    }

    /// Returns whether the key of a record has not been written. Such a record can replace a value, but not be
    /// inserted.
    #[inline(always)]
    pub(crate) fn lacks_key(&self, record: &PreparedRecord) -> bool {
        !Self::KEY_IS_WORD && record.key == 0
    }

    /// Writes the key of a record that lacks it. The caller holds no lock, as for [`Records::prepare`].
    #[cold]
    pub(crate) fn add_key(
        &self,
        storage: &impl Medium,
        owner: &impl Owner,
        probe: &LookupKey<'_>,
        record: &mut PreparedRecord,
    ) -> Result<()> {
        let blobs = self.store()?;
        blobs.prepare(storage, owner, probe.key.bytes().len())?;
        record.key = match self.write_key(storage, probe) {
            Err(Error::NoSpace { .. }) => {
                blobs.make_room(storage, owner)?;
                self.write_key(storage, probe)?
            }
            other => other?,
        };
        Ok(())
    }

    #[inline]
    fn write_value(
        &self,
        storage: &impl Medium,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
    ) -> Result<u64> {
        if Self::VALUE_IS_WORD {
            return Ok(value.word());
        }
        Ok(self.store()?.write(storage, probe.hash, value.bytes())?.word())
    }

    /// Frees a key that was never stored to a slot.
    #[inline]
    pub(crate) fn discard_key(&self, word: u64) {
        if !Self::KEY_IS_WORD
            && let Some(blobs) = &self.blobs
        {
            blobs.discard(BlobRef::from_word(word));
        }
    }

    /// Frees a value that was never stored to a slot.
    #[inline]
    pub(crate) fn discard_value(&self, word: u64) {
        if !Self::VALUE_IS_WORD
            && let Some(blobs) = &self.blobs
        {
            blobs.discard(BlobRef::from_word(word));
        }
    }

    /// Frees a key after all current readers have unpinned. No slot refers to it any more, and that state is durable.
    /// The caller holds the bucket's lock.
    #[inline]
    pub(crate) fn retire_key(&self, pin: &EpochGuard<'_>, word: u64) {
        if !Self::KEY_IS_WORD
            && let (Some(blobs), Some(guard)) = (&self.blobs, &pin.0)
        {
            blobs.retire(guard, BlobRef::from_word(word));
        }
    }

    /// Like [`Records::retire_key`], for a value.
    #[inline]
    pub(crate) fn retire_value(&self, pin: &EpochGuard<'_>, word: u64) {
        if !Self::VALUE_IS_WORD
            && let (Some(blobs), Some(guard)) = (&self.blobs, &pin.0)
        {
            blobs.retire(guard, BlobRef::from_word(word));
        }
    }

    /// Returns whether a slot's words refer to the blob.
    pub(crate) fn refers(&self, key: u64, value: u64, blob: BlobRef) -> bool {
        (!Self::KEY_IS_WORD && BlobRef::from_word(key).same_block(blob))
            || (!Self::VALUE_IS_WORD && BlobRef::from_word(value).same_block(blob))
    }

    /// Returns the word that replaces `word` when `copy` takes the place of `blob`; `None` if `word` does not refer to
    /// `blob`.
    pub(crate) fn relinked(
        &self,
        word: u64,
        is_key: bool,
        blob: BlobRef,
        copy: BlobRef,
    ) -> Option<u64> {
        let is_word = if is_key { Self::KEY_IS_WORD } else { Self::VALUE_IS_WORD };
        let stored = BlobRef::from_word(word);
        (!is_word && stored.same_block(blob)).then(|| copy.with_tag(stored.tag()).word())
    }

    /// Moves blobs into fewer chunks and frees the space of the others. The caller holds no lock.
    pub(crate) fn compact(&self, storage: &impl Medium, owner: &impl Owner) -> Result<()> {
        self.blobs.as_ref().map_or(Ok(()), |blobs| blobs.compact(storage, owner))
    }

    /// Returns the blobs that a slot's words refer to.
    pub(crate) fn references(&self, key: u64, value: u64) -> impl Iterator<Item = BlobRef> {
        let key = (!Self::KEY_IS_WORD).then(|| BlobRef::from_word(key));
        let value = (!Self::VALUE_IS_WORD).then(|| BlobRef::from_word(value));
        key.into_iter().chain(value)
    }
}
