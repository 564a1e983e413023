//! The key and value types that the library provides.

use super::data::{Counter, Data, Key, Raw, Sealed, Value, Word};
use super::form::{InBytes, InWords};

macro_rules! word_as_integer {
    ($($ty:ty => $unsigned:ty),*) => {$(
        impl Word for $ty {
            const TYPE: &'static str = stringify!($ty);
            const ACCEPTS_ALL: bool = size_of::<$ty>() == 8;
            #[inline]
            fn to_word(self) -> u64 {
                u64::from(self as $unsigned)
            }
            #[inline]
            fn from_word(word: u64) -> Option<Self> {
                <$unsigned>::try_from(word).ok().map(|bits| bits as $ty)
            }
        }

        impl Counter for $ty {
            const ZERO: Self = 0;
            #[inline]
            fn wrapping_add(self, delta: Self) -> Self {
                <$ty>::wrapping_add(self, delta)
            }
        }
    )*};
}
word_as_integer!(u8 => u8, u16 => u16, u32 => u32, u64 => u64, i8 => u8, i16 => u16, i32 => u32, i64 => u64);

impl Word for bool {
    const TYPE: &'static str = "bool";
    #[inline]
    fn to_word(self) -> u64 {
        u64::from(self)
    }
    #[inline]
    fn from_word(word: u64) -> Option<Self> {
        (word < 2).then_some(word == 1)
    }
}

impl Word for char {
    const TYPE: &'static str = "char";
    #[inline]
    fn to_word(self) -> u64 {
        u64::from(u32::from(self))
    }
    #[inline]
    fn from_word(word: u64) -> Option<Self> {
        u32::try_from(word).ok().and_then(char::from_u32)
    }
}

impl Word for f32 {
    const TYPE: &'static str = "f32";
    const IS_KEY: bool = false;
    #[inline]
    fn to_word(self) -> u64 {
        u64::from(self.to_bits())
    }
    #[inline]
    fn from_word(word: u64) -> Option<Self> {
        u32::try_from(word).ok().map(f32::from_bits)
    }
}

impl Word for f64 {
    const TYPE: &'static str = "f64";
    const IS_KEY: bool = false;
    const ACCEPTS_ALL: bool = true;
    #[inline]
    fn to_word(self) -> u64 {
        self.to_bits()
    }
    #[inline]
    fn from_word(word: u64) -> Option<Self> {
        Some(f64::from_bits(word))
    }
}

macro_rules! word_as_array {
    ($($len:literal),*) => {$(
        impl Word for [u8; $len] {
            const TYPE: &'static str = concat!("[u8; ", $len, "]");
            const ACCEPTS_ALL: bool = $len == 8;
            #[inline]
            fn to_word(self) -> u64 {
                let mut bytes = [0; 8];
                bytes[..$len].copy_from_slice(&self);
                u64::from_le_bytes(bytes)
            }
            #[inline]
            fn from_word(word: u64) -> Option<Self> {
                let bytes = word.to_le_bytes();
                let (head, rest) = bytes.split_at($len);
                if rest.iter().any(|&byte| byte != 0) {
                    return None;
                }
                head.try_into().ok()
            }
        }
    )*};
}
word_as_array!(1, 2, 3, 4, 5, 6, 7, 8);

/// Copies a value of a fixed-size type into the buffer of [`Raw::Array`].
fn raw_array(bytes: &[u8]) -> Raw<'static> {
    let mut buffer = [0; 64];
    buffer[..bytes.len()].copy_from_slice(bytes);
    Raw::Array { bytes: buffer, len: bytes.len() as u8 }
}

macro_rules! data_as_array {
    ($($ty:ty, $name:literal, $len:literal, $to:expr, $from:expr);*) => {$(
        impl Data for $ty {
            type Arg<'a> = $ty;
            type Owned = $ty;
            const TYPE: &'static str = $name;
            type Stored = InWords<{ $len / 8 }>;

            #[inline]
            fn raw<'a>(arg: $ty) -> Raw<'a> {
                let to: fn(&$ty) -> [u8; $len] = $to;
                raw_array(&to(&arg))
            }
            #[inline]
            fn arg(owned: &$ty) -> $ty {
                *owned
            }
            #[inline]
            fn view<R>(raw: Raw<'_>, f: impl FnOnce(&$ty) -> R) -> Option<R> {
                Self::own(raw).map(|value| f(&value))
            }
            #[inline]
            fn view_owned<R>(owned: &$ty, f: impl FnOnce(&$ty) -> R) -> R {
                f(owned)
            }
            #[inline]
            fn own_ref(&self) -> $ty {
                *self
            }
            #[inline]
            fn own(raw: Raw<'_>) -> Option<$ty> {
                let from: fn([u8; $len]) -> $ty = $from;
                raw.bytes().try_into().ok().map(from)
            }
        }
        impl Sealed for $ty {}
        impl Key for $ty {}
        impl Value for $ty {}
    )*};
}
data_as_array!(
    u128, "u128", 16, |v| v.to_le_bytes(), u128::from_le_bytes;
    [u8; 16], "[u8; 16]", 16, |v| *v, |b| b;
    [u8; 32], "[u8; 32]", 32, |v| *v, |b| b;
    [u8; 64], "[u8; 64]", 64, |v| *v, |b| b
);

impl Data for [u8] {
    type Arg<'a> = &'a [u8];
    type Owned = Vec<u8>;
    const TYPE: &'static str = "bytes";
    type Stored = InBytes;
    const ACCEPTS_ALL: bool = true;

    #[inline]
    fn raw<'a>(arg: Self::Arg<'a>) -> Raw<'a> {
        Raw::Slice(arg)
    }
    #[inline]
    fn arg(owned: &Vec<u8>) -> &[u8] {
        owned
    }
    #[inline]
    fn view<R>(raw: Raw<'_>, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        Some(f(raw.bytes()))
    }
    #[inline]
    fn view_owned<R>(owned: &Vec<u8>, f: impl FnOnce(&[u8]) -> R) -> R {
        f(owned)
    }
    #[inline]
    fn own_ref(&self) -> Vec<u8> {
        self.to_vec()
    }
    #[inline]
    fn own(raw: Raw<'_>) -> Option<Vec<u8>> {
        Some(raw.bytes().to_vec())
    }
    #[inline]
    fn own_vec(bytes: Vec<u8>) -> Option<Vec<u8>> {
        Some(bytes)
    }
}
impl Sealed for [u8] {}
impl Key for [u8] {}
impl Value for [u8] {}

/// Returns bytes as text. ASCII is checked first, because `from_utf8` checks short text byte by byte.
#[inline]
fn text(bytes: &[u8]) -> Option<&str> {
    if bytes.is_ascii() {
        // SAFETY: ASCII is UTF-8.
        return Some(unsafe { std::str::from_utf8_unchecked(bytes) });
    }
    std::str::from_utf8(bytes).ok()
}

impl Data for str {
    type Arg<'a> = &'a str;
    type Owned = String;
    const TYPE: &'static str = "str";
    type Stored = InBytes;

    #[inline]
    fn raw<'a>(arg: Self::Arg<'a>) -> Raw<'a> {
        Raw::Slice(arg.as_bytes())
    }
    #[inline]
    fn arg(owned: &String) -> &str {
        owned
    }
    #[inline]
    fn view<R>(raw: Raw<'_>, f: impl FnOnce(&str) -> R) -> Option<R> {
        text(raw.bytes()).map(f)
    }
    #[inline]
    fn view_owned<R>(owned: &String, f: impl FnOnce(&str) -> R) -> R {
        f(owned)
    }
    #[inline]
    fn own_ref(&self) -> String {
        self.to_owned()
    }
    #[inline]
    fn own(raw: Raw<'_>) -> Option<String> {
        Self::view(raw, str::to_owned)
    }
    #[inline]
    fn own_vec(bytes: Vec<u8>) -> Option<String> {
        String::from_utf8(bytes).ok()
    }
}
impl Sealed for str {}
impl Key for str {}
impl Value for str {}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<W: Word>(value: W) {
        assert_eq!(W::from_word(value.to_word()), Some(value));
    }

    #[test]
    fn words_round_trip_at_their_limits() {
        round_trip(u64::MAX);
        round_trip(i64::MIN);
        round_trip(-1_i8);
        round_trip(i32::MIN);
        round_trip('\u{10FFFF}');
        round_trip(true);
        round_trip(f64::NEG_INFINITY);
        round_trip([1_u8, 2, 3]);
        round_trip([255_u8; 8]);
    }

    #[test]
    fn words_of_other_types_are_refused() {
        assert_eq!(u8::from_word(256), None);
        assert_eq!(bool::from_word(2), None);
        assert_eq!(char::from_word(0xD800), None);
        assert_eq!(<[u8; 3]>::from_word(1 << 24), None);
    }

    #[test]
    fn bytes_that_are_no_utf8_are_refused() {
        assert_eq!(<str as Data>::own(Raw::Slice(&[0xFF])), None);
        assert_eq!(<str as Data>::own(Raw::Slice("née".as_bytes())), Some("née".to_owned()));
    }
}
