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
use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::base::hash::Hash;
use crate::base::reclaim::{Guard, Reclaimer};
use crate::key::{Data, Form, Key, Raw, Value};
use crate::pm::blob::{BlobParams, BlobRef, BlobStore, Owner};
use crate::pm::{Medium, SharedBytes};
use crate::{Error, Result};

/// The longest key or value.
pub(crate) const MAX_BYTES: usize = 16 << 20;
/// Values of at most so many bytes are shown from a copy on the stack.
const SHORT_BYTES: usize = 512;

/// A key on its way through the table.
#[derive(Clone, Copy)]
pub(crate) struct Probe<'a> {
    pub(crate) hash: u64,
    pub(crate) key: Raw<'a>,
}

/// A new record's words, written to the medium but not yet linked to by any slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unlinked {
    /// 0, which is no reference, while a key by reference has not been written: its slot is expected to have it.
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
    /// Whether reads verify the checksums of blobs.
    verifies: bool,
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
        Ok(Self {
            hash,
            blobs,
            reclaimer,
            always_pinned: false,
            verifies: false,
            types: PhantomData,
        })
    }

    /// Has operations on words pinned as well.
    pub(crate) fn always_pinned(self) -> Self {
        Self { always_pinned: true, ..self }
    }

    /// Has reads verify checksums, or not.
    pub(crate) fn verifying(self, verifies: bool) -> Self {
        Self { verifies, ..self }
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

    /// The bytes behind a reference, to be copied out or compared. Under a pin taken before the word was loaded from an
    /// allocated slot, or under the lock of the word's bucket: a word is stored to a slot only after its blob has been
    /// written, and a stored word is always published and later retired, never discarded, so the blob stays as it is
    /// while the pin or the lock is held.
    #[inline]
    fn bytes(&self, pm: &impl Medium, word: u64) -> Result<SharedBytes<'_>> {
        self.store()?.read(pm, BlobRef::from_word(word))
    }

    /// Shows a copy of the bytes behind a reference. `copied` is called when it has been made.
    #[inline]
    fn show_bytes<R>(
        &self,
        pm: &impl Medium,
        word: u64,
        copied: impl FnOnce(),
        show: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let stored = self.bytes(pm, word)?;
        let mut short = [MaybeUninit::uninit(); SHORT_BYTES];
        let long;
        let copy = if stored.len() <= SHORT_BYTES {
            &*stored.copy_to(&mut short)
        } else {
            long = stored.to_vec();
            &long
        };
        self.vouch(pm, word, copy)?;
        copied();
        Ok(show(copy))
    }

    /// Where reads verify: refuses bytes that are not what was written behind this reference.
    #[inline]
    fn vouch(&self, pm: &impl Medium, word: u64, copy: &[u8]) -> Result<()> {
        if !self.verifies {
            return Ok(());
        }
        self.store()?.vouch(pm, None, BlobRef::from_word(word), copy)
    }

    fn own<D: Data + ?Sized>(&self, pm: &impl Medium, word: u64) -> Result<Option<D::Owned>> {
        match D::FORM {
            Form::Word => Ok(D::own(Raw::Word(word))),
            Form::Fixed(_) => self.show_bytes(pm, word, || {}, |bytes| D::own(Raw::Slice(bytes))),
            Form::Variable => {
                let copy = self.bytes(pm, word)?.to_vec();
                self.vouch(pm, word, &copy)?;
                Ok(D::own_vec(copy))
            }
        }
    }

    /// Lets the blob store do a bounded part of its background work and get room for what is about to be written.
    #[inline]
    fn make_ready(
        &self,
        pm: &impl Medium,
        owner: &impl Owner,
        probe: &Probe<'_>,
        value: Raw<'_>,
        needs_key: bool,
    ) -> Result<()> {
        if let Some(blobs) = &self.blobs {
            if !Self::KEY_IS_WORD && needs_key {
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
        let stored = self.bytes(pm, word)?;
        let same = stored.equal(probe.key.bytes());
        if !same && self.verifies {
            // No other key has these hash bits, as a rule: it may be the one that is sought, and damaged.
            self.vouch(pm, word, &stored.to_vec())?;
        }
        Ok(same)
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
        let hash = match Self::KEY_IS_WORD {
            true => self.hash.word(key),
            false => self.hash.bytes(&self.bytes(pm, key)?.to_vec()),
        };
        for blob in self.references(key, value) {
            self.store()?.verify(pm, hash, blob)?;
        }
        Ok(hash)
    }

    /// The bytes that stand for a slot's key and for its value, as far as they can be reached.
    pub(crate) fn remains(&self, pm: &impl Medium, key: u64, value: u64) -> [Option<Vec<u8>>; 2] {
        let bytes = |is_word, word: u64| match is_word {
            true => Some(word.to_le_bytes().to_vec()),
            false => self.bytes(pm, word).ok().map(|bytes| bytes.to_vec()),
        };
        [bytes(Self::KEY_IS_WORD, key), bytes(Self::VALUE_IS_WORD, value)]
    }

    /// The key behind a slot's word, copied out; `None` if it is no `K`. Under a [`Pin`] or the bucket's lock.
    pub(crate) fn own_key(&self, pm: &impl Medium, word: u64) -> Result<Option<K::Owned>> {
        self.own::<K>(pm, word)
    }

    /// The value behind a slot's word, copied out; `None` if it is no `V`. Under a [`Pin`] or the bucket's lock.
    #[inline]
    pub(crate) fn own_value(&self, pm: &impl Medium, word: u64) -> Result<Option<V::Owned>> {
        self.own::<V>(pm, word)
    }

    /// Shows the value behind a slot's word to `f`; `None` if it is no `V`. Under a [`Pin`]; one that is given is dropped
    /// before `f` runs, which sees a copy.
    #[inline]
    pub(crate) fn show_value<R>(
        &self,
        pm: &impl Medium,
        pin: Option<Pin<'_>>,
        word: u64,
        f: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>> {
        if Self::VALUE_IS_WORD {
            drop(pin);
            return Ok(V::view(Raw::Word(word), f));
        }
        self.show_bytes(pm, word, || drop(pin), |bytes| V::view(Raw::Slice(bytes), f))
    }

    /// Whether two slots' words stand for the same key.
    pub(crate) fn is_same_key(&self, pm: &impl Medium, one: u64, other: u64) -> Result<bool> {
        if Self::KEY_IS_WORD {
            return Ok(one == other);
        }
        Ok(self.bytes(pm, one)?.equal(&self.bytes(pm, other)?.to_vec()))
    }

    /// Writes what a record needs beyond its slot: its value, and its key if that `needs_key`. Flushed, made durable by
    /// the caller's next fence. Holds no lock and must be called under none: the blob store may ask the table which
    /// blocks are live.
    #[inline]
    pub(crate) fn prepare(
        &self,
        pm: &impl Medium,
        owner: &impl Owner,
        probe: &Probe<'_>,
        value: Raw<'_>,
        needs_key: bool,
    ) -> Result<Unlinked> {
        self.make_ready(pm, owner, probe, value, needs_key)?;
        match self.write(pm, probe, value, needs_key) {
            // Blocks of former sessions may be free without anybody knowing yet.
            Err(Error::NoSpace { .. }) if self.blobs.is_some() => {
                self.store()?.make_room(pm, owner)?;
                self.write(pm, probe, value, needs_key)
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
        needs_key: bool,
    ) -> Result<Unlinked> {
        let key = match needs_key {
            _ if Self::KEY_IS_WORD => probe.key.word(),
            true => self.write_key(pm, probe)?,
            false => 0,
        };
        match self.write_value(pm, probe, value) {
            Ok(value) => Ok(Unlinked { key, value }),
            Err(error) => {
                self.discard_key(key);
                Err(error)
            }
        }
    }

    fn write_key(&self, pm: &impl Medium, probe: &Probe<'_>) -> Result<u64> {
        let blob = self.store()?.write(pm, probe.hash, probe.key.bytes())?;
        Ok(blob.word() | Self::tag(probe.hash))
    }

    /// Whether a record's key has not been written: no slot can take it.
    #[inline(always)]
    pub(crate) fn lacks_key(&self, record: &Unlinked) -> bool {
        !Self::KEY_IS_WORD && record.key == 0
    }

    /// Writes the key of a record that lacks it. Under no lock, as [`Records::prepare`].
    #[cold]
    pub(crate) fn add_key(
        &self,
        pm: &impl Medium,
        owner: &impl Owner,
        probe: &Probe<'_>,
        record: &mut Unlinked,
    ) -> Result<()> {
        let blobs = self.store()?;
        blobs.prepare(pm, owner, probe.key.bytes().len())?;
        record.key = match self.write_key(pm, probe) {
            Err(Error::NoSpace { .. }) => {
                blobs.make_room(pm, owner)?;
                self.write_key(pm, probe)?
            }
            other => other?,
        };
        Ok(())
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

    /// The word that replaces one of a slot's words, if that refers to `blob`, when `copy` takes its place.
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

    /// Moves blobs together and gives the space of what they leave back. Under no lock.
    pub(crate) fn compact(&self, pm: &impl Medium, owner: &impl Owner) -> Result<()> {
        self.blobs.as_ref().map_or(Ok(()), |blobs| blobs.compact(pm, owner))
    }

    /// The blobs that a slot's words refer to.
    pub(crate) fn references(&self, key: u64, value: u64) -> impl Iterator<Item = BlobRef> {
        let key = (!Self::KEY_IS_WORD).then(|| BlobRef::from_word(key));
        let value = (!Self::VALUE_IS_WORD).then(|| BlobRef::from_word(value));
        key.into_iter().chain(value)
    }
}
