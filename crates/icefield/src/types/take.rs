//! The ways to take keys and values from an engine: as a copy of the caller's type, in place, or not at all.

use std::marker::PhantomData;

use super::data::{Data, Raw};
use super::form::Form;

/// Takes one stored key or value.
pub trait Take {
    /// The result of taking.
    type Out;
    /// `true` if [`Take::take_vec`] avoids a copy.
    const KEEPS_VEC: bool = false;

    /// Returns the name of the expected type, for error messages.
    fn type_name(&self) -> &'static str {
        "value"
    }

    /// Takes the value; returns `None` if the bytes are not a value of the expected type.
    fn take(self, raw: Raw<'_>) -> Option<Self::Out>;

    /// Like [`Take::take`], for bytes that have been copied already.
    #[inline]
    fn take_vec(self, bytes: Vec<u8>) -> Option<Self::Out>
    where
        Self: Sized,
    {
        self.take(Raw::Slice(&bytes))
    }
}

/// A [`Take`] whose results can be stored again.
pub trait Keep: Take + Copy {
    fn raw(out: &Self::Out) -> Raw<'_>;
}

/// Takes a copy of the user's type `D`.
pub struct Own<D: ?Sized>(PhantomData<fn(&D)>);

impl<D: ?Sized> Own<D> {
    pub(crate) const NEW: Self = Self(PhantomData);
}

impl<D: ?Sized> Clone for Own<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: ?Sized> Copy for Own<D> {}

impl<D: Data + ?Sized> Take for Own<D> {
    type Out = D::Owned;
    const KEEPS_VEC: bool = matches!(D::FORM, Form::Variable);

    #[inline]
    fn type_name(&self) -> &'static str {
        D::TYPE
    }

    #[inline]
    fn take(self, raw: Raw<'_>) -> Option<D::Owned> {
        D::own(raw)
    }
    #[inline]
    fn take_vec(self, bytes: Vec<u8>) -> Option<D::Owned> {
        D::own_vec(bytes)
    }
}

impl<D: Data + ?Sized> Keep for Own<D> {
    #[inline]
    fn raw(out: &D::Owned) -> Raw<'_> {
        D::raw(D::arg(out))
    }
}

/// Calls `F` with the value of the user's type `D`.
pub struct Show<D: ?Sized, F>(F, PhantomData<fn(&D)>);

impl<D: ?Sized, F: Clone> Clone for Show<D, F> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<D: ?Sized, F: Copy> Copy for Show<D, F> {}

impl<D: ?Sized, F> Show<D, F> {
    pub(crate) fn new(show: F) -> Self {
        Self(show, PhantomData)
    }
}

impl<D: Data + ?Sized, R, F: FnOnce(&D) -> R> Take for Show<D, F> {
    type Out = R;

    #[inline]
    fn type_name(&self) -> &'static str {
        D::TYPE
    }

    #[inline]
    fn take(self, raw: Raw<'_>) -> Option<R> {
        D::view(raw, self.0)
    }
}

/// Takes nothing; any bytes are valid.
#[derive(Clone, Copy)]
pub struct Ignore;

impl Take for Ignore {
    type Out = ();

    #[inline]
    fn take(self, _: Raw<'_>) -> Option<()> {
        Some(())
    }
}

/// Takes a copy in the stored form; any bytes are valid.
#[derive(Clone, Copy)]
pub struct Copied;

/// A stored key or value, from [`Copied`].
pub enum Item {
    Word(u64),
    Bytes(Vec<u8>),
}

impl Item {
    #[inline]
    pub(crate) fn raw(&self) -> Raw<'_> {
        match self {
            Self::Word(word) => Raw::Word(*word),
            Self::Bytes(bytes) => Raw::Slice(bytes),
        }
    }

    /// Returns the bytes; those of a word are little-endian.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            word => word.raw().stored(),
        }
    }
}

impl Take for Copied {
    type Out = Item;
    const KEEPS_VEC: bool = true;

    #[inline]
    fn take(self, raw: Raw<'_>) -> Option<Item> {
        Some(match raw {
            Raw::Word(word) => Item::Word(word),
            bytes => Item::Bytes(bytes.bytes().to_vec()),
        })
    }
    #[inline]
    fn take_vec(self, bytes: Vec<u8>) -> Option<Item> {
        Some(Item::Bytes(bytes))
    }
}

/// Takes a copy in the stored form if it is a value of the type.
#[derive(Clone, Copy)]
pub struct CopiedAs(pub(crate) Kind);

impl Take for CopiedAs {
    type Out = Item;
    const KEEPS_VEC: bool = true;

    fn type_name(&self) -> &'static str {
        self.0.name
    }
    fn take(self, raw: Raw<'_>) -> Option<Item> {
        if self.0.accepts(&raw) { Copied.take(raw) } else { None }
    }
    fn take_vec(self, bytes: Vec<u8>) -> Option<Item> {
        if self.0.accepts(&Raw::Slice(&bytes)) { Some(Item::Bytes(bytes)) } else { None }
    }
}

/// Calls a closure with the stored form; any bytes are valid.
#[derive(Clone, Copy)]
pub struct Visit<F>(pub(crate) F);

impl<F: FnOnce(&Raw<'_>)> Take for Visit<F> {
    type Out = ();

    #[inline]
    fn take(self, raw: Raw<'_>) -> Option<()> {
        (self.0)(&raw);
        Some(())
    }
}

/// The key and value types of a table, as run-time values.
#[derive(Clone, Copy)]
pub struct Types {
    pub(crate) key: Kind,
    pub(crate) value: Kind,
}

impl Types {
    pub(crate) fn of<K: Data + ?Sized, V: Data + ?Sized>() -> Self {
        Self { key: Kind::of::<K>(), value: Kind::of::<V>() }
    }
}

/// A key or value type, as a run-time value.
#[derive(Clone, Copy)]
pub struct Kind {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    valid: Valid,
}

/// Which stored words or bytes of a type's width are its values. The functions take their argument in registers: a
/// [`Raw`] would be written to memory and read at once.
#[derive(Clone, Copy)]
enum Valid {
    All,
    Words(fn(u64) -> bool),
    Bytes(fn(&[u8]) -> bool),
}

impl Kind {
    pub(crate) const fn of<D: Data + ?Sized>() -> Self {
        let valid = match D::FORM {
            _ if D::ACCEPTS_ALL => Valid::All,
            Form::Word => Valid::Words(|word| D::view(Raw::Word(word), |_| ()).is_some()),
            _ => Valid::Bytes(|bytes| D::view(Raw::Slice(bytes), |_| ()).is_some()),
        };
        Self { name: D::TYPE, form: D::FORM, valid }
    }

    /// Returns whether a word, or bytes of the type's width, are a value of the type.
    #[inline]
    pub(crate) fn accepts(&self, raw: &Raw<'_>) -> bool {
        match self.valid {
            Valid::All => true,
            Valid::Words(is_valid) => is_valid(raw.word()),
            Valid::Bytes(is_valid) => is_valid(raw.bytes()),
        }
    }

    /// As [`Kind::accepts`], for a word.
    #[inline]
    pub(crate) fn accepts_word(&self, word: u64) -> bool {
        !matches!(self.valid, Valid::Words(is_valid) if !is_valid(word))
    }

    /// As [`Kind::accepts`], for bytes.
    #[inline]
    pub(crate) fn accepts_bytes(&self, bytes: &[u8]) -> bool {
        !matches!(self.valid, Valid::Bytes(is_valid) if !is_valid(bytes))
    }
}
