//! Conversion of keys and values between text and the bytes that [`icefield::AnyTable`] takes.
//!
//! [`TextType::parse`] converts the result of [`TextType::text`] back to the same bytes, so exporting and loading a
//! table gives an equal table. `bytes` are written unchanged, or with `--hex` as hexadecimal digits.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Display;
use std::str::FromStr;

use icefield_console::json::quoted;
use icefield_console::terminal::{acts, shown_json};

/// The types that the command line accepts.
pub const TYPES: &str = "u8 u16 u32 u64 u128 i8 i16 i32 i64 f32 f64 bool char bytes str [u8; N] with N in 1..=8, 16, 32, 64";

/// The text form of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    U8,
    U16,
    U32,
    U64,
    U128,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    Bool,
    Char,
    Bytes,
    Str,
    /// An array of this length.
    Array(usize),
    /// A word type that a program defines. Its values are shown as 64-bit words.
    Foreign,
}

/// A key or value type with its text form.
#[derive(Clone, Debug)]
pub struct TextType {
    name: String,
    kind: Kind,
    /// True if bytes are hexadecimal, with or without `0x`.
    hex: bool,
}

/// Returns the canonical spelling of a type name: `[u8;16]` becomes `[u8; 16]`.
pub fn canonical_type(name: &str) -> Result<String, Infallible> {
    let squeezed: String = name.split_whitespace().collect();
    Ok(match squeezed.strip_prefix("[u8;").and_then(|rest| rest.strip_suffix(']')) {
        Some(len) => format!("[u8; {len}]"),
        None => squeezed,
    })
}

impl TextType {
    /// Returns the type of this name, as spelled in a superblock.
    pub fn new(name: &str, hex: bool) -> Self {
        let kind = match name {
            "u8" => Kind::U8,
            "u16" => Kind::U16,
            "u32" => Kind::U32,
            "u64" => Kind::U64,
            "u128" => Kind::U128,
            "i8" => Kind::I8,
            "i16" => Kind::I16,
            "i32" => Kind::I32,
            "i64" => Kind::I64,
            "f32" => Kind::F32,
            "f64" => Kind::F64,
            "bool" => Kind::Bool,
            "char" => Kind::Char,
            "bytes" => Kind::Bytes,
            "str" => Kind::Str,
            _ => array_len(name).map_or(Kind::Foreign, Kind::Array),
        };
        Self { name: name.to_owned(), kind, hex }
    }

    /// Returns the type's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether every text can be parsed as a value of this type.
    pub fn takes_any_text(&self) -> bool {
        matches!(self.kind, Kind::Bytes | Kind::Str) && !self.hex
    }

    /// Returns whether the text of the value that is stored as `bytes` is UTF-8.
    pub fn is_utf8(&self, bytes: &[u8]) -> bool {
        self.kind != Kind::Bytes || self.hex || std::str::from_utf8(bytes).is_ok()
    }

    /// Parses a text as [`TextType::parse`] does. Fails if the parsed value would be written as a different text.
    pub fn parse_exactly(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        let bytes = self.parse(text)?;
        if self.takes_any_text() || *self.text(&bytes) == *text {
            return Ok(bytes);
        }
        let (text, back) = (shortened(text), shortened(&self.text(&bytes)));
        let name = &self.name;
        Err(format!(
            "`{text}` would become `{back}` in the inferred type {name}; set the type with --key-type or \
             --value-type"
        ))
    }

    /// Parses a value; the error describes the expected text.
    pub fn parse(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        let bytes = match self.kind {
            Kind::U8 => int::<u8>(text).map(|v| v.to_le_bytes().to_vec()),
            Kind::U16 => int::<u16>(text).map(|v| v.to_le_bytes().to_vec()),
            Kind::U32 => int::<u32>(text).map(|v| v.to_le_bytes().to_vec()),
            Kind::U64 | Kind::Foreign => int::<u64>(text).map(|v| v.to_le_bytes().to_vec()),
            Kind::U128 => int::<u128>(text).map(|v| v.to_le_bytes().to_vec()),
            Kind::I8 => int::<i8>(text).map(|v| v.to_le_bytes().to_vec()),
            Kind::I16 => int::<i16>(text).map(|v| v.to_le_bytes().to_vec()),
            Kind::I32 => int::<i32>(text).map(|v| v.to_le_bytes().to_vec()),
            Kind::I64 => int::<i64>(text).map(|v| v.to_le_bytes().to_vec()),
            Kind::F32 => {
                let finite =
                    number::<f32>(text).filter(|v| !v.is_infinite() || names_infinity(text));
                finite.map(|v| v.to_le_bytes().to_vec())
            }
            Kind::F64 => {
                let finite =
                    number::<f64>(text).filter(|v| !v.is_infinite() || names_infinity(text));
                finite.map(|v| v.to_le_bytes().to_vec())
            }
            Kind::Bool => number::<bool>(text).map(|v| vec![u8::from(v)]),
            Kind::Char => one_char(text).map(|v| u32::from(v).to_le_bytes().to_vec()),
            Kind::Str => std::str::from_utf8(text).ok().map(|v| v.as_bytes().to_vec()),
            Kind::Bytes if self.hex => from_hex(text.strip_prefix(b"0x").unwrap_or(text)),
            Kind::Bytes => Some(text.to_vec()),
            Kind::Array(len) => self.array(text, len).filter(|bytes| bytes.len() == len),
        };
        bytes.ok_or_else(|| {
            format!("`{}` is not a valid {}: {}", shortened(text), self.name, self.expected())
        })
    }

    /// Describes the texts that the type accepts.
    fn expected(&self) -> String {
        match self.kind {
            Kind::U8 => range::<u8>(u8::MIN, u8::MAX),
            Kind::U16 => range::<u16>(u16::MIN, u16::MAX),
            Kind::U32 => range::<u32>(u32::MIN, u32::MAX),
            Kind::U64 | Kind::Foreign => range::<u64>(u64::MIN, u64::MAX),
            Kind::U128 => range::<u128>(u128::MIN, u128::MAX),
            Kind::I8 => range::<i8>(i8::MIN, i8::MAX),
            Kind::I16 => range::<i16>(i16::MIN, i16::MAX),
            Kind::I32 => range::<i32>(i32::MIN, i32::MAX),
            Kind::I64 => range::<i64>(i64::MIN, i64::MAX),
            Kind::F32 => {
                format!("expected a number such as 1.5, -2e9, inf or NaN, at most {:e}", f32::MAX)
            }
            Kind::F64 => {
                format!("expected a number such as 1.5, -2e9, inf or NaN, at most {:e}", f64::MAX)
            }
            Kind::Bool => "expected true or false".to_owned(),
            Kind::Char => "expected one character".to_owned(),
            Kind::Str => "expected UTF-8 text".to_owned(),
            Kind::Bytes => "expected pairs of hexadecimal digits (--hex)".to_owned(),
            Kind::Array(len) => {
                format!(
                    "expected {len} bytes, as text or as {} hexadecimal digits after 0x",
                    2 * len
                )
            }
        }
    }

    /// Parses the bytes of an array, which are given raw or as hexadecimal digits after `0x`. The length distinguishes
    /// the two.
    fn array(&self, text: &[u8], len: usize) -> Option<Vec<u8>> {
        match text.strip_prefix(b"0x") {
            Some(digits) if digits.len() == 2 * len => from_hex(digits),
            _ if self.hex => from_hex(text),
            _ => Some(text.to_vec()),
        }
    }

    /// Returns the text that [`TextType::parse`] converts back to `bytes`. It is UTF-8, except for the type `bytes`
    /// without `--hex`.
    pub fn text<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match self.kind {
            Kind::Bytes if !self.hex => Cow::Borrowed(bytes),
            _ => Cow::Owned(self.plain(bytes).into_bytes()),
        }
    }

    /// Returns [`TextType::text`] as a UTF-8 string. Values of the type `bytes` that are not UTF-8 become hexadecimal
    /// digits.
    fn plain(&self, bytes: &[u8]) -> String {
        match self.kind {
            Kind::U8 => u8::from_le_bytes(prefix(bytes)).to_string(),
            Kind::U16 => u16::from_le_bytes(prefix(bytes)).to_string(),
            Kind::U32 => u32::from_le_bytes(prefix(bytes)).to_string(),
            Kind::U64 | Kind::Foreign => u64::from_le_bytes(prefix(bytes)).to_string(),
            Kind::U128 => u128::from_le_bytes(prefix(bytes)).to_string(),
            Kind::I8 => i8::from_le_bytes(prefix(bytes)).to_string(),
            Kind::I16 => i16::from_le_bytes(prefix(bytes)).to_string(),
            Kind::I32 => i32::from_le_bytes(prefix(bytes)).to_string(),
            Kind::I64 => i64::from_le_bytes(prefix(bytes)).to_string(),
            // The debug format writes the shortest text that parses to the same number, with an exponent if the number
            // is very large or very small.
            Kind::F32 => format!("{:?}", f32::from_le_bytes(prefix(bytes))),
            Kind::F64 => format!("{:?}", f64::from_le_bytes(prefix(bytes))),
            Kind::Bool => (bytes.first() == Some(&1)).to_string(),
            Kind::Char => char::from_u32(u32::from_le_bytes(prefix(bytes)))
                .unwrap_or(char::REPLACEMENT_CHARACTER)
                .to_string(),
            Kind::Str => String::from_utf8_lossy(bytes).into_owned(),
            Kind::Array(_) => to_hex(bytes),
            Kind::Bytes => match std::str::from_utf8(bytes) {
                Ok(text) if !self.hex => text.to_owned(),
                _ => to_hex(bytes),
            },
        }
    }

    /// Returns the text for one line of a listing, without characters that a terminal would interpret.
    pub fn listed(&self, bytes: &[u8]) -> String {
        let text = self.plain(bytes);
        if !text.contains(acts) {
            return text;
        }
        if self.kind == Kind::Bytes {
            to_hex(bytes)
        } else {
            shown_json(&quoted(&text)).into_owned()
        }
    }

    /// Returns [`TextType::listed`], shortened for messages.
    pub fn named(&self, bytes: &[u8]) -> String {
        const SHOWN: usize = 60;
        let mut name = self.listed(bytes);
        if let Some((end, _)) = name.char_indices().nth(SHOWN) {
            name.truncate(end);
            name.push_str("...");
        }
        name
    }

    /// Returns a JSON value: a number or a boolean if the value is one in JSON, otherwise a string. Values of the type
    /// `bytes` that are not UTF-8 become an object with their hexadecimal digits, which `load` does not read.
    pub fn json(&self, bytes: &[u8]) -> String {
        let text = self.plain(bytes);
        match self.kind {
            Kind::Bytes if !self.is_utf8(bytes) => format!("{{\"hex\":\"{}\"}}", &text[2..]),
            Kind::Bytes | Kind::Str | Kind::Char | Kind::Array(_) | Kind::U128 => quoted(&text),
            Kind::F32 if !f32::from_le_bytes(prefix(bytes)).is_finite() => quoted(&text),
            Kind::F64 if !f64::from_le_bytes(prefix(bytes)).is_finite() => quoted(&text),
            _ => text,
        }
    }
}

/// Returns N from the name `[u8; N]`.
fn array_len(name: &str) -> Option<usize> {
    name.strip_prefix("[u8; ")?.strip_suffix(']')?.parse().ok()
}

/// Returns the first bytes as an array. A table never returns fewer bytes than the type has.
fn prefix<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    let len = bytes.len().min(N);
    array[..len].copy_from_slice(&bytes[..len]);
    array
}

fn number<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Returns whether a text that was parsed as infinity is a name of it (`inf`), not a number that is too large.
fn names_infinity(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.eq_ignore_ascii_case(&b'n'))
}

/// Parses an integer, decimal or after `0x`.
fn int<T: FromStr + TryFrom<u128>>(text: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(text).ok()?.trim();
    match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => {
            u128::from_str_radix(digits, 16).ok()?.try_into().ok()
        }
        Some(_) => None,
        None => text.parse().ok(),
    }
}

fn one_char(text: &[u8]) -> Option<char> {
    let mut chars = std::str::from_utf8(text).ok()?.chars();
    chars.next().filter(|_| chars.next().is_none())
}

fn range<T: Display>(min: T, max: T) -> String {
    format!("expected an integer from {min} to {max}")
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(hex_digit(*high)? << 4 | hex_digit(*low)?)).collect()
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Returns bytes as `0x` and hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("0x");
    for byte in bytes {
        // Writes to a string do not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns the start of an input for a message, without characters that a terminal would interpret.
fn shortened(text: &[u8]) -> String {
    const SHOWN: usize = 40;
    let text = String::from_utf8_lossy(text);
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    fn round_trip(name: &str, text: &str) {
        let ty = TextType::new(name, false);
        let bytes = ty.parse_exactly(text.as_bytes()).unwrap();
        assert_eq!(*ty.text(&bytes), *text.as_bytes(), "{name}");
    }

    #[test]
    fn plain_text_reads_back() {
        round_trip("u8", "255");
        round_trip("u64", "18446744073709551615");
        round_trip("u128", "340282366920938463463374607431768211455");
        round_trip("i8", "-128");
        round_trip("i64", "-9223372036854775808");
        round_trip("f64", "1e300");
        round_trip("f64", "NaN");
        round_trip("f32", "-0.1");
        round_trip("bool", "true");
        round_trip("char", "\u{10FFFF}");
        round_trip("bytes", "");
        round_trip("bytes", "a, \"b\"\n");
        round_trip("bytes", "0xff");
        round_trip("str", "0xyz");
        round_trip("[u8; 3]", "0x010203");
    }

    #[test]
    fn every_byte_string_has_a_text() {
        for bytes in [&b"0x"[..], b"0x41", b"\xff\xfe", b"\0\n", b"plain"] {
            for hex in [false, true] {
                let ty = TextType::new("bytes", hex);
                assert_eq!(ty.parse(&ty.text(bytes)).unwrap(), bytes);
            }
        }
        // Without --hex, `bytes` are never read as hexadecimal digits.
        assert_eq!(TextType::new("bytes", false).parse(b"0x4142").unwrap(), b"0x4142");
        assert_eq!(TextType::new("bytes", true).parse(b"0x4142").unwrap(), b"AB");
        assert_eq!(TextType::new("bytes", true).parse(b"4142").unwrap(), b"AB");
        assert_eq!(TextType::new("[u8; 4]", false).parse(b"0x12").unwrap(), b"0x12");
    }

    #[test]
    fn numbers_out_of_range_are_none() {
        let parse = |name: &str, text: &str| TextType::new(name, false).parse(text.as_bytes());
        assert!(parse("f64", "1e400").unwrap_err().contains("at most 1.79"));
        assert!(parse("f32", "-1e39").is_err() && parse("f64", "1e39").is_ok());
        assert_eq!(parse("f64", "-INF").unwrap(), f64::NEG_INFINITY.to_le_bytes());
    }

    #[test]
    fn guessed_types_change_no_text() {
        let exactly =
            |name: &str, text: &str| TextType::new(name, false).parse_exactly(text.as_bytes());
        assert!(exactly("u64", "007").unwrap_err().contains("become `7`"));
        assert!(exactly("f64", "1.50").is_err() && exactly("f64", "1.5").is_ok());
        assert!(exactly("u64", "0x1f").is_err() && exactly("i64", " 7").is_err());
    }

    #[test]
    fn bad_values_say_what_was_expected() {
        let refused =
            |name: &str, text: &str| TextType::new(name, false).parse(text.as_bytes()).unwrap_err();
        assert_eq!(
            refused("u8", "256"),
            "`256` is not a valid u8: expected an integer from 0 to 255"
        );
        assert!(refused("bool", "yes").contains("true or false"));
        assert!(refused("char", "ab").contains("one character"));
        let hex = TextType::new("bytes", true).parse(b"0x123").unwrap_err();
        assert!(hex.contains("hexadecimal"), "{hex}");
        assert!(refused("[u8; 2]", "abc").contains("2 bytes"));
        assert!(refused("u64", "0x+1").contains("integer"));
    }

    #[test]
    fn listings_keep_to_their_line() {
        assert_eq!(TextType::new("bytes", false).listed(b"a\tb"), "0x610962");
        assert_eq!(TextType::new("str", false).listed(b"a\tb"), "\"a\\tb\"");
        let unsafe_text = "\u{9b}2J\u{202e}".as_bytes();
        assert_eq!(TextType::new("str", false).listed(unsafe_text), "\"\\u009b2J\\u202e\"");
        assert_eq!(TextType::new("bytes", false).listed(b"\xff"), "0xff");
    }

    #[test]
    fn json_has_numbers_where_it_can() {
        let json = |name: &str, text: &str| {
            let ty = TextType::new(name, false);
            ty.json(&ty.parse(text.as_bytes()).unwrap())
        };
        assert_eq!(json("u64", "18446744073709551615"), "18446744073709551615");
        assert_eq!(json("f64", "inf"), "\"inf\"");
        assert_eq!(json("f64", "1"), "1.0");
        assert_eq!(json("bool", "true"), "true");
        assert_eq!(json("bytes", "a\"b"), "\"a\\\"b\"");
        assert_eq!(TextType::new("bytes", false).json(b"\xff\0"), "{\"hex\":\"ff00\"}");
    }

    #[test]
    fn array_types_have_one_spelling() {
        assert_eq!(canonical_type("[u8;16]").unwrap(), "[u8; 16]");
        assert_eq!(canonical_type(" u64").unwrap(), "u64");
    }
}
