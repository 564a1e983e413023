//! Key columns: the Arrow types that can be keys, and how arrays of them are converted for the index.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, StringArray, UInt64Array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, TimeUnit};

use super::failures::internal;
use super::input::Batch;
use crate::join_index::key_type::{KeyType, Stored, Values};
use icefield_console::failure::Failure;

impl KeyType {
    /// The key type of a CSV file in which no row has a key.
    const UNKNOWN: Self = Self { values: Values::Unknown, stored: Stored::Signed };

    /// Returns whether a column of `values` can be joined with an index of this type.
    pub fn joins(self, values: Values) -> bool {
        self.values == Values::Unknown || self.values == values
    }

    /// The key type of strings.
    pub const TEXTS: Self = Self { values: Values::Texts, stored: Stored::Hashes };

    /// Returns the key type of a column, or the reason why it cannot be a key.
    pub fn of(data_type: &DataType) -> Result<Self, String> {
        use DataType as D;
        let values = match data_type {
            D::Int8 | D::Int16 | D::Int32 | D::Int64 => Values::Integers,
            D::UInt8 | D::UInt16 | D::UInt32 | D::UInt64 => {
                return Ok(Self { values: Values::Integers, stored: Stored::Unsigned });
            }
            D::Utf8 | D::LargeUtf8 | D::Utf8View => return Ok(Self::TEXTS),
            D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => {
                return Ok(Self::TEXTS);
            }
            D::Dictionary(_, values) => return Self::of(values),
            D::Date32 => Values::Days,
            D::Date64 => Values::DateMillis,
            D::Timestamp(unit, zone) => timestamps(*unit, zone.is_some()),
            D::Float16 | D::Float32 | D::Float64 => {
                return Err("floats cannot be keys: equal values may have different bits".into());
            }
            other => {
                return Err(format!(
                    "a column of type {other} cannot be a key; integers, dates, timestamps, strings and bytes can"
                ));
            }
        };
        Ok(Self { values, stored: Stored::Signed })
    }

    /// Returns the Arrow type with which texts are parsed as dates or times; `None` for all other kinds of values.
    fn calendar(self) -> Option<DataType> {
        let timestamp = |unit| Some(DataType::Timestamp(unit, None));
        let instant = |unit| Some(DataType::Timestamp(unit, Some("+00:00".into())));
        match self.values {
            Values::Unknown | Values::Integers | Values::Texts => None,
            Values::Days => Some(DataType::Date32),
            Values::DateMillis => Some(DataType::Date64),
            Values::LocalSeconds => timestamp(TimeUnit::Second),
            Values::LocalMillis => timestamp(TimeUnit::Millisecond),
            Values::LocalMicros => timestamp(TimeUnit::Microsecond),
            Values::LocalNanos => timestamp(TimeUnit::Nanosecond),
            Values::UtcSeconds => instant(TimeUnit::Second),
            Values::UtcMillis => instant(TimeUnit::Millisecond),
            Values::UtcMicros => instant(TimeUnit::Microsecond),
            Values::UtcNanos => instant(TimeUnit::Nanosecond),
        }
    }

    /// Converts a column to the arrays that the index takes: `Int64`, `UInt64` or `LargeBinary`. Nulls stay null.
    /// Integers outside the index's type also become null, because they are equal to none of its keys.
    pub fn keys(self, column: &ArrayRef) -> Result<ArrayRef, Failure> {
        if self.values == Values::Unknown {
            return Ok(Arc::new(Int64Array::new_null(column.len())));
        }
        let column = match column.data_type() {
            DataType::Dictionary(_, values) => &cast(column, values)?,
            _ => column,
        };
        match self.stored {
            Stored::Signed => cast(column, &DataType::Int64),
            Stored::Unsigned => cast(column, &DataType::UInt64),
            Stored::Hashes => cast(column, &DataType::LargeBinary),
        }
    }

    /// Does the same as [`keys`](Self::keys) for a column of texts. The inner error is the position of the first text
    /// that is not a value of the key type.
    pub fn keys_of_texts(self, column: &ArrayRef) -> Result<Result<ArrayRef, usize>, Failure> {
        if matches!(self.values, Values::Texts | Values::Unknown) {
            return self.keys(column).map(Ok);
        }
        let texts = texts(column)?;
        let readable: ArrayRef = match self.calendar() {
            Some(calendar) => cast(column, &calendar)?,
            None => {
                let odd = texts.iter().position(|text| text.is_some_and(|text| !is_integer(text)));
                if let Some(odd) = odd {
                    return Ok(Err(odd));
                }
                let integers = self.integers(texts);
                return Ok(Ok(integers));
            }
        };
        let odd = (0..texts.len()).find(|&at| texts.is_valid(at) && readable.is_null(at));
        match odd {
            Some(odd) => Ok(Err(odd)),
            None => self.keys(&readable).map(Ok),
        }
    }

    fn integers(self, texts: &StringArray) -> ArrayRef {
        match self.stored {
            Stored::Unsigned => {
                let keys = texts.iter().map(|text| text.and_then(|text| text.parse().ok()));
                Arc::new(keys.collect::<UInt64Array>())
            }
            _ => {
                let keys = texts.iter().map(|text| text.and_then(|text| text.parse().ok()));
                Arc::new(keys.collect::<Int64Array>())
            }
        }
    }

    /// Returns the keys of a batch, converted from the batch's column at `place`.
    pub fn keys_of_batch(
        self,
        batch: &Batch,
        place: usize,
        has_types: bool,
        path: &Path,
    ) -> Result<ArrayRef, Failure> {
        let column = batch.records.column(place);
        if has_types {
            return self.keys(column);
        }
        self.keys_of_texts(column)?.map_err(|odd| {
            let (path, name) = (path.display(), batch.records.schema_ref().field(place).name());
            let text = texts(column).map(|texts| texts.value(odd).to_owned()).unwrap_or_default();
            let (row, values) = (batch.name_of(odd), self.values);
            Failure::Problem(format!(
                "{path}: {row}: `{name}` is `{}`, but {values} are expected",
                shortened(&text)
            ))
        })
    }
}

fn timestamps(unit: TimeUnit, has_zone: bool) -> Values {
    match (unit, has_zone) {
        (TimeUnit::Second, false) => Values::LocalSeconds,
        (TimeUnit::Millisecond, false) => Values::LocalMillis,
        (TimeUnit::Microsecond, false) => Values::LocalMicros,
        (TimeUnit::Nanosecond, false) => Values::LocalNanos,
        (TimeUnit::Second, true) => Values::UtcSeconds,
        (TimeUnit::Millisecond, true) => Values::UtcMillis,
        (TimeUnit::Microsecond, true) => Values::UtcMicros,
        (TimeUnit::Nanosecond, true) => Values::UtcNanos,
    }
}

/// Casts the values to another type. Values that the type cannot represent become null.
fn cast(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, Failure> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    cast_with_options(column, data_type, &options).map_err(internal)
}

/// Returns a column of CSV as texts.
pub fn texts(column: &ArrayRef) -> Result<&StringArray, Failure> {
    let texts = column.as_any().downcast_ref::<StringArray>();
    texts.ok_or_else(|| internal("a column of CSV is not text"))
}

/// Returns whether a text is an integer of any size.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Shortens a text for a message.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 40;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Infers, text by text, the stored form of the keys of a CSV file.
#[derive(Clone, Copy, Debug)]
pub struct Guess {
    has_keys: bool,
    has_texts: bool,
    has_negative: bool,
    has_large: bool,
}

impl Guess {
    /// Returns the state before the first key.
    pub fn new() -> Self {
        Self { has_keys: false, has_texts: false, has_negative: false, has_large: false }
    }

    /// Examines more keys.
    pub fn look(&mut self, texts: &StringArray) {
        for text in texts.iter().flatten() {
            self.has_keys = true;
            match text.parse::<i64>() {
                Ok(number) => self.has_negative |= number < 0,
                Err(_) if text.parse::<u64>().is_ok() => self.has_large = true,
                Err(_) => self.has_texts = true,
            }
            // A text such as 007 is not stored as an integer, because it would be printed as 7.
            self.has_texts |= !is_plain(text);
        }
    }

    /// Returns the key type for the keys examined so far: texts, unless all are integers that fit one type.
    pub fn key_type(self) -> KeyType {
        if !self.has_keys {
            return KeyType::UNKNOWN;
        }
        let fit_no_type = self.has_large && self.has_negative;
        if self.has_texts || fit_no_type { KeyType::TEXTS } else { self.integers() }
    }

    /// Returns the integer type for the keys examined so far, for a user who requires integers.
    pub fn integers(self) -> KeyType {
        let unsigned = self.has_large && !self.has_negative;
        let stored = if unsigned { Stored::Unsigned } else { Stored::Signed };
        KeyType { values: Values::Integers, stored }
    }
}

/// Returns whether a text is an integer as programs print it: without leading zeros or a plus sign.
fn is_plain(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    is_integer(text)
        && !text.starts_with('+')
        && (digits == text || digits != "0")
        && (digits == "0" || !digits.starts_with('0'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    fn guessed(texts: &[&str]) -> KeyType {
        let mut guess = Guess::new();
        guess.look(&StringArray::from(texts.to_vec()));
        guess.key_type()
    }

    #[test]
    fn integers_are_guessed_only_where_nothing_is_lost() {
        let integers = |stored| KeyType { values: Values::Integers, stored };
        assert_eq!(guessed(&[]), KeyType::UNKNOWN);
        assert_eq!(guessed(&["0", "-9223372036854775808"]), integers(Stored::Signed));
        assert_eq!(guessed(&["0", "18446744073709551615"]), integers(Stored::Unsigned));
        for texts in [
            &["-1", "18446744073709551615"][..],
            &["18446744073709551616"],
            &["007"],
            &["+7"],
            &["-0"],
            &["7", "x"],
            &["7 "],
            &["-"],
        ] {
            assert_eq!(guessed(texts), KeyType::TEXTS, "{texts:?}");
        }
    }

    #[test]
    fn integers_are_compared_by_value() {
        let signed = KeyType { values: Values::Integers, stored: Stored::Signed };
        let unsigned = KeyType { values: Values::Integers, stored: Stored::Unsigned };
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![7, u64::MAX]));
        let negative: ArrayRef = Arc::new(Int64Array::from(vec![7, -1]));
        assert_eq!(
            signed.keys(&large).unwrap().as_any().downcast_ref::<Int64Array>().unwrap(),
            &Int64Array::from(vec![Some(7), None])
        );
        assert_eq!(
            unsigned.keys(&negative).unwrap().as_any().downcast_ref::<UInt64Array>().unwrap(),
            &UInt64Array::from(vec![Some(7), None])
        );
    }

    #[test]
    fn texts_are_read_as_the_index_wants_them() {
        let column: ArrayRef =
            Arc::new(StringArray::from(vec![Some("7"), None, Some("99999999999999999999")]));
        let signed = KeyType { values: Values::Integers, stored: Stored::Signed };
        let keys = signed.keys_of_texts(&column).unwrap().unwrap();
        let keys = keys.as_any().downcast_ref::<Int64Array>().unwrap();
        assert_eq!(keys, &Int64Array::from(vec![Some(7), None, None]));
        let days = KeyType { values: Values::Days, stored: Stored::Signed };
        let column: ArrayRef = Arc::new(StringArray::from(vec!["1970-01-03", "yesterday"]));
        assert_eq!(days.keys_of_texts(&column).unwrap().unwrap_err(), 1);
        assert_eq!(days.keys_of_texts(&column.slice(0, 1)).unwrap().unwrap().len(), 1);
    }
}
