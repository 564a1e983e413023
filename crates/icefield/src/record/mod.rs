//! Keys and values as the two words of a slot: the words themselves, or references into the blob store; and everything
//! that tables with such slots share, wherever their slots lie.
//!
//! Here: how records are hashed, compared, stored and dropped. Below: `engine`, the operations on one key; `batch`;
//! `length`, how many records there are; `mending`, opening what is damaged; `types`, the types in the superblock; `opening`, what the options have in
//! common; `face`, the public methods; `iter`, the iterator.

pub(crate) mod batch;
pub(crate) mod engine;
pub(crate) mod face;
pub(crate) mod length;
pub(crate) mod mending;
pub(crate) mod opening;
pub(crate) mod types;

use std::marker::PhantomData;
use std::sync::Arc;

use crate::base::hash::Hash;
use crate::base::reclaim::{Guard, Reclaimer};
use crate::key::{Form, Key, Raw, Value};
use crate::pm::Medium;
use crate::pm::blob::{BlobParams, BlobRef, BlobStore, Owner};
use crate::{Error, Result};

/// The longest key or value.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// A key on its way through the table.
#[derive(Clone, Copy)]
pub(crate) struct Probe<'a> {
    pub(crate) hash: u64,
    pub(crate) key: Raw<'a>,
}

/// A new record's words, written to the medium but not yet linked to by any slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unlinked {
    pub(crate) key: u64,
    pub(crate) value: u64,
}

/// How the table `K -> V` hashes, compares, stores and drops its records.
pub(crate) struct Records<K: ?Sized, V: ?Sized> {
    pub(crate) hash: Hash,
    /// Present when either type is stored by reference.
    blobs: Option<BlobStore>,
    reclaimer: Arc<Reclaimer>,
    /// Whether words are pinned, too: the table gives more back than records.
    always_pinned: bool,
    types: PhantomData<fn(&K, &V)>,
}

/// Tells whoever reclaims that somebody is here. Empty for words, unless the table asks for it.
pub struct Pin<'a>(Option<Guard<'a>>);

impl Pin<'_> {
    /// Runs `reclaim` once everybody who is pinned now has left, soon after. At once where nobody is ever pinned.
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

impl<K: Key + ?Sized, V: Value + ?Sized> Records<K, V> {
    const KEY_IS_WORD: bool = matches!(K::FORM, Form::Word);
    const VALUE_IS_WORD: bool = matches!(V::FORM, Form::Word);

    pub(crate) fn open(pm: &impl Medium, hash: Hash, params: BlobParams) -> Result<Self> {
        let () = K::USABLE;
        let reclaimer = Arc::new(Reclaimer::new());
        let blobs = if Self::KEY_IS_WORD && Self::VALUE_IS_WORD {
            None
        } else {
            Some(BlobStore::open(pm, params, Arc::clone(&reclaimer))?)
        };
        Ok(Self { hash, blobs, reclaimer, always_pinned: false, types: PhantomData })
    }

    /// Has operations on words pinned as well.
    pub(crate) fn always_pinned(self) -> Self {
        Self { always_pinned: true, ..self }
    }

    /// The blob store, for checks and statistics.
    pub(crate) fn blobs(&self) -> Option<&BlobStore> {
        self.blobs.as_ref()
    }

    /// The store that every by-reference type has.
    #[inline]
    fn store(&self) -> Result<&BlobStore> {
        self.blobs
            .as_ref()
            .ok_or_else(|| Error::Unsupported("a table of words has no blob store".into()))
    }

    /// Keeps blobs that can be reached now from being reused until the pin is dropped, and whatever else the table may
    /// give back.
    #[inline]
    pub(crate) fn pin(&self) -> Pin<'_> {
        let pinned = !Self::KEY_IS_WORD || !Self::VALUE_IS_WORD || self.always_pinned;
        Pin(pinned.then(|| self.reclaimer.pin()))
    }

    #[inline]
    pub(crate) fn probe<'a>(&self, key: K::Arg<'a>) -> Probe<'a> {
        let key = K::raw(key);
        let hash = if Self::KEY_IS_WORD {
            self.hash.word(key.word())
        } else {
            self.hash.bytes(key.bytes())
        };
        Probe { hash, key }
    }

    /// Refuses keys and values that the design does not store.
    #[inline]
    pub(crate) fn fits(&self, key: Raw<'_>, value: Raw<'_>) -> Result<()> {
        if !Self::KEY_IS_WORD && key.bytes().len() > MAX_BYTES {
            return Err(Error::KeyTooLong { len: key.bytes().len(), max: MAX_BYTES });
        }
        if !Self::VALUE_IS_WORD && value.bytes().len() > MAX_BYTES {
            return Err(Error::ValueTooLong { len: value.bytes().len(), max: MAX_BYTES });
        }
        Ok(())
    }

    /// The upper 16 bits of a key's reference: hash bits that neither bucket nor fingerprint use, so that a record of
    /// another key is fetched once in 2^24 fingerprint comparisons.
    #[inline]
    fn tag(hash: u64) -> u64 {
        (hash >> 24) << 48
    }

    /// The bytes behind a reference.
    #[inline]
    fn bytes(&self, pm: &impl Medium, word: u64) -> Result<&[u8]> {
        // SAFETY: every caller holds a pin taken before it loaded the word from an allocated slot, or the lock of the
        // word's bucket. A word is stored to a slot only after its blob has been written, and a stored word is always
        // published and later retired, never discarded: so the blob stays as it is while the pin or the lock is held.
        unsafe { self.store()?.read(pm, BlobRef::from_word(word)) }
    }

    /// Lets the blob store do a bounded part of its background work and get room for what is about to be written.
    #[inline]
    fn make_ready(
        &self,
        pm: &impl Medium,
        owner: &impl Owner,
        probe: &Probe<'_>,
        value: Raw<'_>,
    ) -> Result<()> {
        if let Some(blobs) = &self.blobs {
            if !Self::KEY_IS_WORD {
                blobs.prepare(pm, owner, probe.key.bytes().len())?;
            }
            if !Self::VALUE_IS_WORD {
                blobs.prepare(pm, owner, value.bytes().len())?;
            }
        }
        Ok(())
    }

    /// Whether a slot's key word stands for the probed key. Under a [`Pin`] or the bucket's lock.
    #[inline]
    pub(crate) fn matches(&self, pm: &impl Medium, word: u64, probe: &Probe<'_>) -> Result<bool> {
        if Self::KEY_IS_WORD {
            return Ok(word == probe.key.word());
        }
        if (word >> 48) << 48 != Self::tag(probe.hash) {
            return Ok(false);
        }
        self.is_key(pm, word, probe)
    }

    /// [`Records::matches`], of a reference that may be any other key's: follows it in any case.
    #[inline]
    pub(crate) fn is_key(&self, pm: &impl Medium, word: u64, probe: &Probe<'_>) -> Result<bool> {
        if Self::KEY_IS_WORD {
            return Ok(word == probe.key.word());
        }
        Ok(self.bytes(pm, word)? == probe.key.bytes())
    }

    /// Whether keys are words, not references.
    #[inline(always)]
    pub(crate) fn keys_are_words(&self) -> bool {
        Self::KEY_IS_WORD
    }

    /// Whether the probed key's word is `word`; a key by reference has none of its own.
    #[inline(always)]
    pub(crate) fn is_key_word(&self, probe: &Probe<'_>, word: u64) -> bool {
        Self::KEY_IS_WORD && probe.key.word() == word
    }

    /// The hash of a stored key.
    #[inline]
    pub(crate) fn hash_of(&self, pm: &impl Medium, word: u64) -> Result<u64> {
        if Self::KEY_IS_WORD {
            return Ok(self.hash.word(word));
        }
        self.store()?.owner_of(pm, BlobRef::from_word(word))
    }

    /// The hash of a slot's record, when everything that has a checksum is what was written for that key. Reads all of
    /// it. Under a [`Pin`] or the bucket's lock.
    pub(crate) fn verify(&self, pm: &impl Medium, key: u64, value: u64) -> Result<u64> {
        let hash = match self.key(pm, key)? {
            Raw::Word(word) => self.hash.word(word),
            bytes => self.hash.bytes(bytes.bytes()),
        };
        for blob in self.references(key, value) {
            // SAFETY: as in `bytes`.
            unsafe { self.store()?.verify(pm, hash, blob) }?;
        }
        Ok(hash)
    }

    /// The stored key behind a slot's word.
    pub(crate) fn key<'a>(&'a self, pm: &'a impl Medium, word: u64) -> Result<Raw<'a>> {
        if Self::KEY_IS_WORD {
            return Ok(Raw::Word(word));
        }
        Ok(Raw::Slice(self.bytes(pm, word)?))
    }

    /// The stored value behind a slot's word. Under a [`Pin`] or the bucket's lock.
    #[inline]
    pub(crate) fn value<'a>(&'a self, pm: &'a impl Medium, word: u64) -> Result<Raw<'a>> {
        if Self::VALUE_IS_WORD {
            return Ok(Raw::Word(word));
        }
        Ok(Raw::Slice(self.bytes(pm, word)?))
    }

    /// Writes what a new record needs beyond its slot; flushed, made durable by the caller's next fence. Holds no lock
    /// and must be called under none: the blob store may ask the table which blocks are live.
    #[inline]
    pub(crate) fn prepare(
        &self,
        pm: &impl Medium,
        owner: &impl Owner,
        probe: &Probe<'_>,
        value: Raw<'_>,
    ) -> Result<Unlinked> {
        self.make_ready(pm, owner, probe, value)?;
        match self.write(pm, probe, value) {
            // Blocks of former sessions may be free without anybody knowing yet.
            Err(Error::NoSpace { .. }) if self.blobs.is_some() => {
                self.store()?.make_room(pm, owner)?;
                self.write(pm, probe, value)
            }
            other => other,
        }
    }

    /// [`Records::prepare`] without the blob store's background work: may be called while holding bucket locks.
    #[inline]
    pub(crate) fn write(
        &self,
        pm: &impl Medium,
        probe: &Probe<'_>,
        value: Raw<'_>,
    ) -> Result<Unlinked> {
        let key = if Self::KEY_IS_WORD {
            probe.key.word()
        } else {
            self.store()?.write(pm, probe.hash, probe.key.bytes())?.word() | Self::tag(probe.hash)
        };
        match self.write_value(pm, probe, value) {
            Ok(value) => Ok(Unlinked { key, value }),
            Err(error) => {
                self.discard_key(key);
                Err(error)
            }
        }
    }

    #[inline]
    fn write_value(&self, pm: &impl Medium, probe: &Probe<'_>, value: Raw<'_>) -> Result<u64> {
        if Self::VALUE_IS_WORD {
            return Ok(value.word());
        }
        Ok(self.store()?.write(pm, probe.hash, value.bytes())?.word())
    }

    /// Gives back a key that no slot came to refer to.
    #[inline]
    pub(crate) fn discard_key(&self, word: u64) {
        if !Self::KEY_IS_WORD
            && let Some(blobs) = &self.blobs
        {
            blobs.discard(BlobRef::from_word(word));
        }
    }

    /// Gives back a value that no slot came to refer to.
    #[inline]
    pub(crate) fn discard_value(&self, word: u64) {
        if !Self::VALUE_IS_WORD
            && let Some(blobs) = &self.blobs
        {
            blobs.discard(BlobRef::from_word(word));
        }
    }

    /// Gives back a key to which no slot refers any more, durably, once all readers have left. Under the bucket's lock.
    #[inline]
    pub(crate) fn retire_key(&self, pin: &Pin<'_>, word: u64) {
        if !Self::KEY_IS_WORD
            && let (Some(blobs), Some(guard)) = (&self.blobs, &pin.0)
        {
            blobs.retire(guard, BlobRef::from_word(word));
        }
    }

    /// As [`Records::retire_key`], for a value.
    #[inline]
    pub(crate) fn retire_value(&self, pin: &Pin<'_>, word: u64) {
        if !Self::VALUE_IS_WORD
            && let (Some(blobs), Some(guard)) = (&self.blobs, &pin.0)
        {
            blobs.retire(guard, BlobRef::from_word(word));
        }
    }

    /// Whether a slot's words refer to the blob.
    pub(crate) fn refers(&self, key: u64, value: u64, blob: BlobRef) -> bool {
        (!Self::KEY_IS_WORD && BlobRef::from_word(key).same_block(blob))
            || (!Self::VALUE_IS_WORD && BlobRef::from_word(value).same_block(blob))
    }

    /// The blobs that a slot's words refer to.
    pub(crate) fn references(&self, key: u64, value: u64) -> impl Iterator<Item = BlobRef> {
        let key = (!Self::KEY_IS_WORD).then(|| BlobRef::from_word(key));
        let value = (!Self::VALUE_IS_WORD).then(|| BlobRef::from_word(value));
        key.into_iter().chain(value)
    }
}
