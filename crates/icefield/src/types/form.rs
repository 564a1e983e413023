//! The forms in which keys and values are stored. Engines are generic over these forms, not over the users' types.

use std::fmt;
use std::marker::PhantomData;

/// The form in which a type is stored.
///
/// ```
/// use icefield::{Data, Form};
/// assert_eq!(u32::FORM, Form::Word);
/// assert_eq!(<[u8; 32]>::FORM, Form::Fixed(32));
/// assert_eq!(str::FORM, Form::Variable);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In the slot, as a 64-bit word.
    Word,
    /// Always this number of bytes.
    Fixed(usize),
    /// Any number of bytes up to the design's limit.
    Variable,
}

/// An array of words.
pub trait WordArray:
    Copy + Eq + fmt::Debug + Send + Sync + 'static + AsRef<[u64]> + AsMut<[u64]>
{
    /// The array in which every word is 0.
    const ZERO: Self;
}

impl<const N: usize> WordArray for [u64; N] {
    const ZERO: Self = [0; N];
}

/// A [`Form`] as a type.
pub trait StoredForm: 'static {
    const FORM: Form;
    /// `false` if the number of bytes is fixed in each table but known only at run time.
    const IS_KNOWN: bool = true;
    /// The array of words that a slot holds for a value; one word if the slot holds a reference.
    type Words: WordArray;
    /// The form in tables whose slots have one word for each key and value.
    type InSlot: StoredForm;
}

/// [`Form::Word`] as a type.
pub struct InWord;

impl StoredForm for InWord {
    const FORM: Form = Form::Word;
    type Words = [u64; 1];
    type InSlot = Self;
}

/// [`Form::Fixed`] with `WORDS` times 8 bytes, as a type.
pub struct InWords<const WORDS: usize>;

impl<const WORDS: usize> StoredForm for InWords<WORDS> {
    const FORM: Form = Form::Fixed(WORDS * 8);
    type Words = [u64; WORDS];
    type InSlot = InBytes;
}

/// [`Form::Variable`] as a type.
pub struct InBytes;

impl StoredForm for InBytes {
    const FORM: Form = Form::Variable;
    type Words = [u64; 1];
    type InSlot = Self;
}

/// [`Form::Fixed`] with a number of bytes that only the table's superblock determines.
pub struct InAnyBytes;

impl StoredForm for InAnyBytes {
    const FORM: Form = Form::Variable;
    const IS_KNOWN: bool = false;
    /// As many words as the widest type has.
    type Words = [u64; 8];
    type InSlot = InBytes;
}

/// The forms of a table's keys and values: the only parameter of an engine that depends on the user's types.
pub trait RecordForm: 'static {
    const KEY: Form;
    const VALUE: Form;
    /// `false` if the widths of keys or values are known only at run time.
    const IS_KNOWN: bool;
    type KeyWords: WordArray;
    type ValueWords: WordArray;
}

/// The implementation of [`RecordForm`].
pub struct Forms<K, V>(PhantomData<fn() -> (K, V)>);

impl<K: StoredForm, V: StoredForm> RecordForm for Forms<K, V> {
    const KEY: Form = K::FORM;
    const VALUE: Form = V::FORM;
    const IS_KNOWN: bool = K::IS_KNOWN && V::IS_KNOWN;
    type KeyWords = K::Words;
    type ValueWords = V::Words;
}
