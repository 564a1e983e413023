//! The types that a superblock can name, with their widths and validity checks.

use crate::types::{Data, Form, Item, Kind, Raw, Word};
use crate::{Error, Result};

/// A type that this crate provides.
#[derive(Clone, Copy)]
struct Known {
    kind: Kind,
    /// The number of bytes of a word or fixed-size type; 0 for a type of variable length.
    width: usize,
    is_key: bool,
}

const fn word<W: Word>() -> Known {
    Known { kind: Kind::of::<W>(), width: size_of::<W>(), is_key: W::IS_KEY }
}

const fn data<D: Data + ?Sized>() -> Known {
    let width = match D::FORM {
        Form::Fixed(width) => width,
        Form::Word | Form::Variable => 0,
    };
    Known { kind: Kind::of::<D>(), width, is_key: true }
}

const KNOWN: [Known; 26] = [
    word::<u8>(),
    word::<u16>(),
    word::<u32>(),
    word::<u64>(),
    word::<i8>(),
    word::<i16>(),
    word::<i32>(),
    word::<i64>(),
    word::<bool>(),
    word::<char>(),
    word::<f32>(),
    word::<f64>(),
    word::<[u8; 1]>(),
    word::<[u8; 2]>(),
    word::<[u8; 3]>(),
    word::<[u8; 4]>(),
    word::<[u8; 5]>(),
    word::<[u8; 6]>(),
    word::<[u8; 7]>(),
    word::<[u8; 8]>(),
    data::<u128>(),
    data::<[u8; 16]>(),
    data::<[u8; 32]>(),
    data::<[u8; 64]>(),
    data::<[u8]>(),
    data::<str>(),
];

/// The keys or values of a batch, in their stored form.
pub(super) enum Arguments<'a> {
    None,
    Words(Vec<u64>),
    Slice(&'a [u64]),
    Bytes(Vec<&'a [u8]>),
    ByteSlice(&'a [&'a [u8]]),
}

impl Arguments<'_> {
    /// Returns a key or value by its index.
    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> Raw<'_> {
        match self {
            Self::None => Raw::NONE,
            Self::Words(words) => Raw::Word(words[index]),
            Self::Slice(words) => Raw::Word(words[index]),
            Self::Bytes(bytes) => Raw::Slice(bytes[index]),
            Self::ByteSlice(bytes) => Raw::Slice(bytes[index]),
        }
    }
}

/// A key or value type, with its name in the table's superblock.
#[derive(Clone)]
pub(super) struct DataType {
    name: String,
    known: Known,
}

impl DataType {
    /// Returns the type that a superblock names. A name that this crate does not define is that of a user's [`Word`],
    /// because users can define no other types. Such a type is treated as a word of 8 bytes.
    pub(super) fn stored(name: &str) -> Self {
        let known = KNOWN.into_iter().find(|known| known.kind.name == name);
        Self { name: name.to_owned(), known: known.unwrap_or(word::<u64>()) }
    }

    /// Returns the type for a new table; only types of this crate are accepted.
    pub(super) fn new(option: &'static str, name: &str) -> Result<Self> {
        let known = KNOWN.into_iter().find(|known| known.kind.name == name).ok_or_else(|| {
            Error::InvalidOption {
                option,
                detail: format!(
                    "`{name}` is not a type; choose one of {}",
                    KNOWN.map(|known| known.kind.name).join(", ")
                ),
            }
        })?;
        if option == KEY && !known.is_key {
            return Err(Error::InvalidOption {
                option,
                detail: format!("`{name}` cannot be a key: equal floats may have different bits"),
            });
        }
        Ok(Self { name: name.to_owned(), known })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn form(&self) -> Form {
        self.known.kind.form
    }

    /// Returns `true` for a word of 8 bytes of which every value is valid.
    #[inline]
    pub(super) fn is_any_word(&self) -> bool {
        // A narrower type has words that are not valid; each word of the types with 8 bytes is.
        self.known.kind.form == Form::Word && self.known.width == 8
    }

    /// Returns an error unless `bytes` are a value of this type.
    #[inline]
    pub(super) fn check(&self, option: &'static str, bytes: &[u8]) -> Result<()> {
        let width = self.known.width;
        if width != 0 && bytes.len() != width {
            return Err(self.wrong_width(option, bytes.len()));
        }
        let kind = &self.known.kind;
        let is_valid = match kind.form {
            Form::Word => kind.accepts_word(word_of(bytes)),
            Form::Fixed(_) | Form::Variable => kind.accepts_bytes(bytes),
        };
        if is_valid { Ok(()) } else { Err(self.not_a_value(option)) }
    }

    #[cold]
    fn wrong_width(&self, option: &'static str, len: usize) -> Error {
        let detail = format!("{len} bytes given, but a {} has {}", self.name, self.known.width);
        Error::InvalidOption { option, detail }
    }

    #[cold]
    fn not_a_value(&self, option: &'static str) -> Error {
        let detail = format!("the bytes are not a valid {}", self.name);
        Error::InvalidOption { option, detail }
    }

    /// Returns the stored forms of a batch's keys or values.
    ///
    /// # Errors
    /// As [`DataType::check`].
    pub(super) fn arguments<'a>(
        &self,
        option: &'static str,
        all: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<Arguments<'a>> {
        if self.known.kind.form == Form::Word {
            let mut words = Vec::with_capacity(all.len());
            for bytes in all {
                self.check(option, bytes)?;
                words.push(word_of(bytes));
            }
            return Ok(Arguments::Words(words));
        }
        let mut some = Vec::with_capacity(all.len());
        for bytes in all {
            self.check(option, bytes)?;
            some.push(bytes);
        }
        Ok(Arguments::Bytes(some))
    }

    /// As [`DataType::arguments`], for slices, which bytes keep as they are.
    pub(super) fn arguments_of<'a>(
        &self,
        option: &'static str,
        all: &'a [&'a [u8]],
    ) -> Result<Arguments<'a>> {
        if self.known.kind.form == Form::Word {
            return self.arguments(option, all.iter().copied());
        }
        all.iter().try_for_each(|bytes| self.check(option, bytes))?;
        Ok(Arguments::ByteSlice(all))
    }

    /// Returns the type for `check` and `salvage`.
    pub(super) fn kind(&self) -> Kind {
        self.known.kind
    }

    /// Returns the stored form of bytes that [`DataType::check`] has accepted.
    #[inline]
    pub(super) fn raw<'a>(&self, bytes: &'a [u8]) -> Raw<'a> {
        match self.known.kind.form {
            Form::Word => Raw::Word(word_of(bytes)),
            Form::Fixed(_) | Form::Variable => Raw::Slice(bytes),
        }
    }

    /// Converts a stored key or value to the bytes of this type; returns `None` if the item is not a valid value of the
    /// type.
    pub(super) fn decode(&self, item: Item) -> Option<Vec<u8>> {
        self.known.kind.accepts(&item.raw()).then(|| self.bytes(item))
    }

    /// Converts a stored key or value of this type to its bytes.
    pub(super) fn bytes(&self, item: Item) -> Vec<u8> {
        let mut bytes = item.into_bytes();
        if self.known.kind.form == Form::Word {
            bytes.truncate(self.known.width);
        }
        bytes
    }

    /// Calls `f` with the bytes of a stored key or value; returns `None`, without a call, if it is not a valid value of
    /// this type.
    #[inline]
    pub(super) fn show<T>(&self, raw: &Raw<'_>, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if !self.known.kind.accepts(raw) {
            return None;
        }
        Some(match raw {
            Raw::Word(word) => f(&word.to_le_bytes()[..self.known.width]),
            bytes => f(bytes.bytes()),
        })
    }
}

/// The name of the key argument in errors.
pub(super) const KEY: &str = "key";
/// The name of the value argument in errors.
pub(super) const VALUE: &str = "value";

/// Converts at most 8 little-endian bytes to a word.
pub(super) fn word_of(bytes: &[u8]) -> u64 {
    if let [a, b, c, d, e, f, g, h] = *bytes {
        return u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    }
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_and_values_are_checked() {
        let int = DataType::stored("i32");
        assert!(int.check(KEY, &(-5_i32).to_le_bytes()).is_ok());
        assert!(int.check(KEY, &[0; 8]).is_err());
        assert!(DataType::stored("bool").check(KEY, &[2]).is_err());
        assert!(DataType::stored("char").check(KEY, &0xD800_u32.to_le_bytes()).is_err());
        assert!(DataType::stored("str").check(VALUE, &[0xFF]).is_err());
        assert!(DataType::stored("bytes").check(VALUE, &[0xFF]).is_ok());
        assert!(DataType::stored("[u8; 16]").check(VALUE, &[1; 15]).is_err());
        assert!(DataType::stored("u128").check(VALUE, &[1; 16]).is_ok());
    }

    #[test]
    fn words_come_back_in_their_width() {
        let word = Item::Word((-5_i32).to_word());
        assert_eq!(DataType::stored("i32").decode(word), Some((-5_i32).to_le_bytes().to_vec()));
        assert_eq!(DataType::stored("u8").decode(Item::Word(256)), None);
    }

    #[test]
    fn a_users_word_has_eight_bytes() {
        let order = DataType::stored("order-id");
        assert_eq!((order.name(), order.form()), ("order-id", Form::Word));
        assert!(order.check(KEY, &7_u64.to_le_bytes()).is_ok());
        assert!(DataType::new(KEY, "order-id").is_err());
    }

    #[test]
    fn floats_are_values_only() {
        assert!(DataType::new(KEY, "f64").is_err());
        assert!(DataType::new(VALUE, "f64").is_ok());
    }
}
