//! Records as words: those of key and value themselves where both types have a fixed width, else the key's hash and a
//! reference into the payload log.

use std::marker::PhantomData;

use crate::key::{Data, Form, Key, Raw, Value, WordArray};
use crate::pm::superblock::Identity;
use crate::record::types;

use super::layout::SLOTS;

/// The superblock parameter that holds the widths of records that are wider than two words.
const WIDTHS: usize = 9;
/// Words of the widest key or value.
pub(super) const MAX_WIDTH: usize = 8;
const WORD_BYTES: usize = size_of::<u64>();

/// How many words of a record are its key's and its value's. Fixed at a table's creation, by its types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Widths {
    pub(super) key: usize,
    pub(super) value: usize,
    /// Whether these are the key and the value themselves.
    pub(super) inline: bool,
}

impl Widths {
    /// Of records whose words are a hash and a reference.
    const BY_REFERENCE: Self = Self { key: 1, value: 1, inline: false };

    /// Those of records of some forms.
    const fn of([key, value]: [Form; 2]) -> Self {
        const fn words(form: Form) -> Option<usize> {
            match form {
                Form::Word => Some(1),
                Form::Fixed(bytes) => Some(bytes.div_ceil(WORD_BYTES)),
                Form::Variable => None,
            }
        }
        match (words(key), words(value)) {
            (Some(key), Some(value)) => Self { key, value, inline: true },
            _ => Self::BY_REFERENCE,
        }
    }

    /// Words of a record.
    #[inline(always)]
    pub(super) const fn words(self) -> usize {
        self.key + self.value
    }

    /// Words of a log record.
    #[inline(always)]
    pub(super) const fn log_words(self) -> usize {
        self.words() + 1
    }

    /// Words of a bucket.
    #[inline(always)]
    pub(super) const fn bucket_words(self) -> usize {
        SLOTS * self.words()
    }

    /// Bytes of a bucket.
    pub(super) const fn bucket_bytes(self) -> u64 {
        (self.bucket_words() * WORD_BYTES) as u64
    }

    /// Bytes of so many records of a log.
    pub(super) const fn log_bytes(self, records: u32) -> u64 {
        records as u64 * (self.log_words() * WORD_BYTES) as u64
    }

    /// As a superblock parameter.
    fn pack(self) -> u64 {
        if self.words() == 2 { 0 } else { (self.key | self.value << 8) as u64 }
    }
}

/// The widths of the records of `K -> V`: known to the compiler, unless one of them stands for any type of bytes.
pub(super) struct Measure<K: ?Sized, V: ?Sized> {
    stored: Widths,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> Clone for Measure<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized, V: ?Sized> Copy for Measure<K, V> {}

impl<K: Key + ?Sized, V: Value + ?Sized> Measure<K, V> {
    const KNOWN: Option<Widths> =
        if is_any::<K>() || is_any::<V>() { None } else { Some(Widths::of([K::FORM, V::FORM])) };

    /// Writes the widths of a new table down.
    pub(super) fn inscribe(identity: &mut Identity) -> Result<Self, ()> {
        let stored = widths_of(identity)?;
        identity.params[WIDTHS] = stored.pack();
        Ok(Self { stored, types: PhantomData })
    }

    /// That of a table; `Err` when its superblock says the impossible.
    pub(super) fn of(identity: &Identity) -> Result<Self, ()> {
        let stored = widths_of(identity)?;
        let fits = identity.params[WIDTHS] == stored.pack();
        if fits { Ok(Self { stored, types: PhantomData }) } else { Err(()) }
    }

    #[inline(always)]
    pub(super) fn widths(self) -> Widths {
        match Self::KNOWN {
            Some(widths) => widths,
            None => self.stored,
        }
    }

    /// Whether records hold keys and values themselves.
    #[inline(always)]
    pub(super) fn is_inline(self) -> bool {
        self.widths().inline
    }

    /// The record whose words `word` gives by their numbers.
    #[inline(always)]
    pub(super) fn record(self, dead: bool, mut word: impl FnMut(usize) -> u64) -> RecordOf<K, V> {
        let Widths { key: keys, value: values, .. } = self.widths();
        let key = self.key(&mut word);
        let mut value = V::Words::ZERO;
        for (at, place) in value.as_mut().iter_mut().take(values).enumerate() {
            *place = word(keys + at);
        }
        Record { key, value, dead }
    }

    /// The key words of such a record.
    #[inline(always)]
    pub(super) fn key(self, mut word: impl FnMut(usize) -> u64) -> K::Words {
        let mut key = K::Words::ZERO;
        for (at, place) in key.as_mut().iter_mut().take(self.widths().key).enumerate() {
            *place = word(at);
        }
        key
    }

    /// Shows each word of a record, after its number.
    #[inline(always)]
    pub(super) fn each_word(self, record: &RecordOf<K, V>, mut show: impl FnMut(usize, u64)) {
        let Widths { key: keys, value: values, .. } = self.widths();
        for (at, &word) in record.key.as_ref().iter().take(keys).enumerate() {
            show(at, word);
        }
        for (at, &word) in record.value.as_ref().iter().take(values).enumerate() {
            show(keys + at, word);
        }
    }

    /// The key of a record that holds it.
    #[inline(always)]
    pub(super) fn key_of<'a>(self, words: &K::Words) -> Raw<'a> {
        raw_of_words(K::FORM, &words.as_ref()[..self.widths().key])
    }

    /// The value of a record that holds it.
    #[inline(always)]
    pub(super) fn value_of<'a>(self, words: &V::Words) -> Raw<'a> {
        raw_of_words(V::FORM, &words.as_ref()[..self.widths().value])
    }
}

/// Whether a type stands for any that is no word.
const fn is_any<T: Data + ?Sized>() -> bool {
    T::TYPE.is_empty() && matches!(T::FORM, Form::Variable)
}

fn widths_of(identity: &Identity) -> Result<Widths, ()> {
    let widths = Widths::of(types::forms(identity).ok_or(())?);
    let fits = |words: usize| (1..=MAX_WIDTH).contains(&words);
    if fits(widths.key) && fits(widths.value) { Ok(widths) } else { Err(()) }
}

/// A record: its words, and whether it says that its key was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<A, B> {
    /// The key, or its hash where records are in the payload log.
    pub(super) key: A,
    /// The value, or where in the payload log the record is.
    pub(super) value: B,
    pub(super) dead: bool,
}

/// A record of `K -> V`.
pub(super) type RecordOf<K, V> = Record<<K as Data>::Words, <V as Data>::Words>;

impl<A, B: WordArray> Record<A, B> {
    /// Where in the payload log it is.
    #[inline(always)]
    pub(super) fn reference(&self) -> u64 {
        first(&self.value)
    }
}

/// The first of some words.
#[inline(always)]
pub(super) fn first<A: WordArray>(words: &A) -> u64 {
    words.as_ref()[0]
}

/// One word, before others that mean nothing.
#[inline(always)]
pub(super) fn one_word<A: WordArray>(word: u64) -> A {
    let mut words = A::ZERO;
    words.as_mut()[0] = word;
    words
}

/// The words of a key or value.
#[inline]
pub(super) fn words_of<A: WordArray>(raw: &Raw<'_>) -> A {
    if let Raw::Word(word) = raw {
        return one_word(*word);
    }
    let mut words = A::ZERO;
    let (chunks, _) = raw.bytes().as_chunks();
    for (word, bytes) in words.as_mut().iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// The inverse of [`words_of`].
#[inline]
fn raw_of_words<'a>(form: Form, words: &[u64]) -> Raw<'a> {
    if matches!(form, Form::Word) {
        return Raw::Word(words[0]);
    }
    let mut bytes = [0; MAX_WIDTH * WORD_BYTES];
    for (chunk, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *chunk = word.to_le_bytes();
    }
    Raw::Array { bytes, len: (words.len() * WORD_BYTES) as u8 }
}

/// The bytes of a key or value in the payload log.
pub(super) fn bytes_of<'a>(raw: &'a Raw<'_>, buffer: &'a mut [u8; 8]) -> &'a [u8] {
    if let Raw::Word(word) = raw {
        *buffer = word.to_le_bytes();
        return buffer;
    }
    raw.bytes()
}

/// The inverse of [`bytes_of`]; `None` for bytes that are no word where one is expected.
pub(super) fn raw_of(form: Form, bytes: &[u8]) -> Option<Raw<'_>> {
    match form {
        Form::Word => bytes.try_into().ok().map(|word| Raw::Word(u64::from_le_bytes(word))),
        _ => Some(Raw::Slice(bytes)),
    }
}

/// The measure of two types.
#[cfg(test)]
pub(super) fn measure<K: Key + ?Sized, V: Value + ?Sized>() -> Measure<K, V> {
    let mut identity = Identity::default();
    types::StoredTypes::default().inscribe::<K, V>(&mut identity);
    Measure::inscribe(&mut identity).expect("types have widths")
}
