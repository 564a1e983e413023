//! The traits of key and value types, and the stored form of their values.

use std::fmt;

use super::form::{Form, InWord, StoredForm};

/// A key or value in its stored form, as it is passed to and from a table.
///
/// ```
/// use icefield::Data;
/// assert_eq!(u32::raw(7).word(), 7);
/// assert_eq!(str::raw("seven").bytes(), b"seven");
/// ```
#[derive(Clone, Copy, Debug)]
// A narrower tag was stored as one byte and loaded as four. Such a load waits for all earlier stores, also for those
// behind a pending fence (docs/decisions/0125). Not a promise to users.
#[repr(u32)]
pub enum Raw<'a> {
    /// The word of a [`Form::Word`] type.
    Word(u64),
    /// Borrowed bytes.
    Slice(&'a [u8]),
    /// The bytes of a fixed-size type that was passed by value.
    Array {
        /// The buffer; only its first `len` bytes are used.
        bytes: [u8; 64],
        /// The number of bytes used.
        len: u8,
    },
}

impl Raw<'_> {
    /// Passed as the value to operations that take no value.
    pub(crate) const NONE: Raw<'static> = Raw::Word(0);

    /// Returns the word, or 0 for bytes.
    #[inline]
    #[must_use]
    pub fn word(&self) -> u64 {
        match self {
            Raw::Word(word) => *word,
            _ => 0,
        }
    }

    /// Returns the bytes as they are stored; a word is little-endian.
    pub(crate) fn stored(&self) -> Vec<u8> {
        match self {
            Raw::Word(word) => word.to_le_bytes().to_vec(),
            bytes => bytes.bytes().to_vec(),
        }
    }

    /// Returns the bytes, or an empty slice for a word.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Raw::Word(_) => &[],
            Raw::Slice(bytes) => bytes,
            Raw::Array { bytes, len } => &bytes[..usize::from(*len)],
        }
    }
}

mod sealed {
    /// Keeps [`Data`](super::Data) from being implemented outside of this crate.
    pub trait Sealed {}
}
pub(super) use sealed::Sealed;

impl<W: Word> Sealed for W {}

/// A type that a table can store: the common part of [`Key`] and [`Value`].
///
/// Implemented for every [`Word`], for `u128` and byte arrays of 16, 32 and 64 bytes, for `[u8]` and for `str`.
/// No other type can implement it; implement [`Word`] to store a type of your own.
///
/// ```
/// use icefield::Data;
/// assert_eq!(str::own(str::raw("seven")), Some(String::from("seven")));
/// assert_eq!(bool::own(icefield::Raw::Word(2)), None, "no `bool` is stored as 2");
///
/// let owned = "seven".own_ref();
/// assert_eq!(str::view(str::raw(str::arg(&owned)), str::len), Some(5)); // In place, not copied.
/// ```
pub trait Data: Sealed + 'static {
    /// The type of arguments: the type itself for words and arrays, `&[u8]` for `[u8]`, `&str` for `str`.
    type Arg<'a>: Copy + fmt::Debug + Send + Sync;
    /// The type of results: the type itself for words and arrays, `Vec<u8>` for `[u8]`, `String` for `str`.
    type Owned: Clone + PartialEq + fmt::Debug + Send + Sync + 'static;
    /// The type's name in superblocks, in the command line tool and in messages.
    const TYPE: &'static str;
    /// The form in which the type is stored.
    const FORM: Form = <Self::Stored as StoredForm>::FORM;
    /// [`Data::FORM`] as a type.
    #[doc(hidden)]
    type Stored: StoredForm;
    /// `true` if every word, or every byte string of the type's width, is a value.
    #[doc(hidden)]
    const ACCEPTS_ALL: bool = false;

    /// Converts an argument to its stored form.
    fn raw<'a>(arg: Self::Arg<'a>) -> Raw<'a>;
    /// Returns an owned value as an argument.
    fn arg(owned: &Self::Owned) -> Self::Arg<'_>;
    /// Calls `f` with the stored value; returns `None` if `raw` is not a value of this type (a corrupt file).
    fn view<R>(raw: Raw<'_>, f: impl FnOnce(&Self) -> R) -> Option<R>;
    /// Calls `f` with a reference to an owned value.
    #[doc(hidden)]
    fn view_owned<R>(owned: &Self::Owned, f: impl FnOnce(&Self) -> R) -> R;
    /// Returns an owned copy.
    fn own_ref(&self) -> Self::Owned;
    /// Returns the stored value; `None` if `raw` is not a value of this type (a corrupt file).
    fn own(raw: Raw<'_>) -> Option<Self::Owned>;
    /// Like [`Data::own`], but takes the bytes by value to avoid a copy.
    #[doc(hidden)]
    #[inline]
    fn own_vec(bytes: Vec<u8>) -> Option<Self::Owned> {
        Self::own(Raw::Slice(&bytes))
    }
}

/// The type in which calls take a `D`: a word or array by value, `&str` for `str`, `&[u8]` for `[u8]`.
///
/// ```
/// use icefield::{Arg, DashEh, Key};
///
/// fn knows<K: Key + ?Sized>(table: &DashEh<K, u64>, key: Arg<'_, K>) -> icefield::Result<bool> {
///     table.contains(key)
/// }
/// assert!(!knows::<str>(&DashEh::in_memory()?, "nobody")?); // `&str` for `str`,
/// assert!(!knows::<u64>(&DashEh::in_memory()?, 7)?); // `u64` for `u64`.
/// # Ok::<(), icefield::Error>(())
/// ```
pub type Arg<'a, D> = <D as Data>::Arg<'a>;
/// The type in which calls return a `D`: a word or array by value, `String` for `str`, `Vec<u8>` for `[u8]`.
///
/// ```
/// let names = icefield::DashEh::<u64, str>::in_memory()?;
/// names.put(1, "one")?;
/// let owned: Option<icefield::Owned<str>> = names.get(1)?;
/// assert_eq!(owned, Some(String::from("one")));
/// # Ok::<(), icefield::Error>(())
/// ```
pub type Owned<D> = <D as Data>::Owned;

/// A key and its value as an argument of a batch.
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// let records: [icefield::RecordArg<'_, u64, u64>; 2] = [(1, 10), (2, 20)];
/// table.put_batch(&records)?;
/// assert_eq!(table.len()?, 2);
/// # Ok::<(), icefield::Error>(())
/// ```
pub type RecordArg<'a, K, V> = (Arg<'a, K>, Arg<'a, V>);

/// A type that can be a key.
///
/// ```
/// fn new_table<K: icefield::Key + ?Sized>() -> icefield::Result<icefield::DashEh<K, u64>> {
///     icefield::DashEh::in_memory()
/// }
/// new_table::<u64>()?.put(7, 1)?;
/// new_table::<str>()?.put("seven", 1)?;
/// # Ok::<(), icefield::Error>(())
/// ```
pub trait Key: Data {
    /// Fails to compile for a word type whose equal values may have different bits.
    #[doc(hidden)]
    const USABLE: () = ();
}

/// A type that can be a value.
///
/// ```
/// fn index<V: icefield::Value + ?Sized>() -> icefield::Result<icefield::DashEh<u64, V>> {
///     icefield::DashEh::in_memory()
/// }
/// index::<f64>()?.put(7, 0.5)?;
/// index::<[u8]>()?.put(7, b"seven")?;
/// # Ok::<(), icefield::Error>(())
/// ```
pub trait Value: Data {}

/// A type that fits into 64 bits and is stored in the slot itself.
///
/// Conversions may run while a batch holds locks, so they must not call the table.
///
/// Implement it for a newtype to use the newtype as a key or value:
/// ```
/// use icefield::Word;
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct OrderId(u32);
/// impl Word for OrderId {
///     const TYPE: &'static str = "order-id";
///     fn to_word(self) -> u64 { u64::from(self.0) }
///     fn from_word(word: u64) -> Option<Self> { u32::try_from(word).ok().map(OrderId) }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can be neither a key nor a value of this table",
    label = "not a word: an integer, `bool`, `char`, a float as a value, or an array of at most 8 bytes",
    note = "durable tables name the borrowed form, `str` for text and `[u8]` for bytes: `DashEh<str, [u8]>`",
    note = "`Dlht`, `DlhtSet` and `JoinIndex` hold words only: use `DlhtMap` for other types, and \
            `JoinIndex::<u64>::options().build_with_hash(..)` to join by byte keys",
    note = "a newtype of at most 64 bits is a word once it implements `icefield::Word`"
)]
pub trait Word: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The type's name in superblocks and messages. A table opens only under the name with which it was created.
    const TYPE: &'static str;
    /// `true` if the type can be a key: equal values must have equal words, which floats do not guarantee.
    const IS_KEY: bool = true;
    /// `true` if every word represents a value.
    #[doc(hidden)]
    const ACCEPTS_ALL: bool = false;
    /// Returns the word that represents the value.
    fn to_word(self) -> u64;
    /// The inverse of [`Word::to_word`]; returns `None` for a word that represents no value.
    fn from_word(word: u64) -> Option<Self>;
}

impl<W: Word> Data for W {
    type Arg<'a> = W;
    type Owned = W;
    const TYPE: &'static str = <W as Word>::TYPE;
    type Stored = InWord;
    const ACCEPTS_ALL: bool = W::ACCEPTS_ALL;

    #[inline]
    fn raw<'a>(arg: W) -> Raw<'a> {
        Raw::Word(arg.to_word())
    }
    #[inline]
    fn arg(owned: &W) -> W {
        *owned
    }
    #[inline]
    fn view<R>(raw: Raw<'_>, f: impl FnOnce(&W) -> R) -> Option<R> {
        W::from_word(raw.word()).map(|word| f(&word))
    }
    #[inline]
    fn view_owned<R>(owned: &W, f: impl FnOnce(&W) -> R) -> R {
        f(owned)
    }
    #[inline]
    fn own_ref(&self) -> W {
        *self
    }
    #[inline]
    fn own(raw: Raw<'_>) -> Option<W> {
        W::from_word(raw.word())
    }
}

impl<W: Word> Key for W {
    const USABLE: () =
        assert!(W::IS_KEY, "floats cannot be keys: equal values may have different bits");
}
impl<W: Word> Value for W {}

/// A word type with addition, for [`Table::fetch_add`](crate::Table::fetch_add).
///
/// ```
/// use icefield::Counter;
/// assert_eq!(250_u8.wrapping_add(10), 4);
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// assert_eq!(table.fetch_add(1, 5)?, u64::ZERO, "what it was");
/// assert_eq!(table.get(1)?, Some(5));
/// # Ok::<(), icefield::Error>(())
/// ```
pub trait Counter: Word {
    /// Zero.
    const ZERO: Self;
    /// Returns the sum, wrapping around at the type's width.
    #[must_use]
    fn wrapping_add(self, delta: Self) -> Self;
}
