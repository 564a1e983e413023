//! Records as words: the words of the key and of the value if both types have a fixed width; otherwise the key's hash
//! and a reference into the payload log.

use std::marker::PhantomData;

use crate::engine::stored_types;
use crate::storage::superblock::Identity;
use crate::types::{Form, Raw, RecordForm, WordArray};

use super::layout::{WORD_BYTES, Widths};

/// The superblock parameter with the widths of records of more than two words.
const WIDTHS: usize = 9;
/// Words of the widest key or value.
pub(super) const MAX_WIDTH: usize = 8;

/// The widths of a table's records. They are known at compile time, unless the form of the key or of the value is
/// `InAnyBytes`: then only the superblock determines them.
pub(super) struct Measure<R> {
    stored: Widths,
    form: PhantomData<fn() -> R>,
}

impl<R> Clone for Measure<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Measure<R> {}

impl<R: RecordForm> Measure<R> {
    const KNOWN: Option<Widths> =
        if R::IS_KNOWN { Some(Widths::of([R::KEY, R::VALUE])) } else { None };

    /// Stores the widths in the identity of a new table.
    pub(super) fn inscribe(identity: &mut Identity) -> Result<Self, ()> {
        let stored = widths_of(identity)?;
        identity.params[WIDTHS] = stored.pack();
        Ok(Self { stored, form: PhantomData })
    }

    /// Reads the widths of a table; `Err` when its superblock holds impossible ones.
    pub(super) fn of(identity: &Identity) -> Result<Self, ()> {
        let stored = widths_of(identity)?;
        let fits = identity.params[WIDTHS] == stored.pack();
        if fits { Ok(Self { stored, form: PhantomData }) } else { Err(()) }
    }

    #[inline(always)]
    pub(super) fn widths(self) -> Widths {
        match Self::KNOWN {
            Some(widths) => widths,
            None => self.stored,
        }
    }

    /// Returns whether records hold keys and values themselves.
    #[inline(always)]
    pub(super) fn is_inline(self) -> bool {
        self.widths().inline
    }

    /// Returns the record whose words are `word(0)`, `word(1)` and so on.
    #[inline(always)]
    pub(super) fn record(self, dead: bool, mut word: impl FnMut(usize) -> u64) -> RecordOf<R> {
        let Widths { key: keys, value: values, .. } = self.widths();
        let key = self.key(&mut word);
        let mut value = R::ValueWords::ZERO;
        for (at, place) in value.as_mut().iter_mut().take(values).enumerate() {
            *place = word(keys + at);
        }
        Record { key, value, dead }
    }

    /// Returns the key of the record whose words are `word(0)`, `word(1)` and so on.
    #[inline(always)]
    pub(super) fn key(self, mut word: impl FnMut(usize) -> u64) -> R::KeyWords {
        let mut key = R::KeyWords::ZERO;
        for (at, place) in key.as_mut().iter_mut().take(self.widths().key).enumerate() {
            *place = word(at);
        }
        key
    }

    /// Calls `show` with the index and the content of each word of a record.
    #[inline(always)]
    pub(super) fn each_word(self, record: &RecordOf<R>, mut show: impl FnMut(usize, u64)) {
        let Widths { key: keys, value: values, .. } = self.widths();
        for (at, &word) in record.key.as_ref().iter().take(keys).enumerate() {
            show(at, word);
        }
        for (at, &word) in record.value.as_ref().iter().take(values).enumerate() {
            show(keys + at, word);
        }
    }

    /// The key of a record that holds it inline.
    #[inline(always)]
    pub(super) fn key_of<'a>(self, words: &R::KeyWords) -> Raw<'a> {
        raw_of_words(R::KEY, &words.as_ref()[..self.widths().key])
    }

    /// The value of a record that holds it inline.
    #[inline(always)]
    pub(super) fn value_of<'a>(self, words: &R::ValueWords) -> Raw<'a> {
        raw_of_words(R::VALUE, &words.as_ref()[..self.widths().value])
    }
}

fn widths_of(identity: &Identity) -> Result<Widths, ()> {
    let widths = Widths::of(stored_types::forms(identity).ok_or(())?);
    let fits = |words: usize| (1..=MAX_WIDTH).contains(&words);
    if fits(widths.key) && fits(widths.value) { Ok(widths) } else { Err(()) }
}

/// The words of a record, and whether it is a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<A, B> {
    /// The key, or its hash if records are in the payload log.
    pub(super) key: A,
    /// The value, or the reference to the payload.
    pub(super) value: B,
    pub(super) dead: bool,
}

pub(super) type RecordOf<R> = Record<<R as RecordForm>::KeyWords, <R as RecordForm>::ValueWords>;

impl<A, B: WordArray> Record<A, B> {
    /// The reference to the payload.
    #[inline(always)]
    pub(super) fn reference(&self) -> u64 {
        first(&self.value)
    }
}

#[inline(always)]
pub(super) fn first<A: WordArray>(words: &A) -> u64 {
    words.as_ref()[0]
}

/// Returns `word`, followed by zero words.
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

/// The inverse of [`bytes_of`]. Returns `None` if `form` is a word but there are not exactly 8 bytes.
pub(super) fn raw_of(form: Form, bytes: &[u8]) -> Option<Raw<'_>> {
    match form {
        Form::Word => bytes.try_into().ok().map(|word| Raw::Word(u64::from_le_bytes(word))),
        _ => Some(Raw::Slice(bytes)),
    }
}

/// Returns the widths of records of form `R`, for tests.
#[cfg(test)]
pub(super) fn measure<R: RecordForm>() -> Measure<R> {
    let mut identity = Identity::default();
    stored_types::StoredTypes::named(("", R::KEY), ("", R::VALUE)).inscribe(&mut identity);
    Measure::inscribe(&mut identity).expect("types have widths")
}
