//! Key columns as the 64-bit words of the index.
//!
//! A single column of integers, booleans, dates, times, timestamps or durations is its own word: two values are equal
//! exactly if their words are. Every other key, and every key of several columns, is a 64-bit hash of the values, so
//! two different keys may have the same word: after a lookup, the columns are compared.
//!
//! Values are compared across types: the same number has the same word as an 8-bit integer, a 64-bit integer or a
//! decimal, and the same instant as a timestamp of any unit. The functions of this module never change, because their
//! words are on disk; a stamp names them by [`FUNCTIONS`].
//!
//! Most joins find no pair for a null. For the others, such as those by `IS NOT DISTINCT FROM`, a null is hashed like a
//! value, and an index by hashes has the rows with nulls, too. Where the word is the value, a null has none; the rows
//! without a key are then found by their column ([`Index::null_rows`](super::Index::null_rows)).

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, AsArray, BooleanArray, Int64Array, PrimitiveArray,
    UInt64Array,
};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::compute::kernels::cmp;
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Int64Type, TimeUnit, UInt64Type, i256,
};
use datafusion::common::NullEquality;
use datafusion::error::Result;
use icefield::base::hash::{Hash, HashKind};
use serde::{Deserialize, Serialize};

/// The name of the functions of this module, in stamps.
pub const FUNCTIONS: &str = "icefield-key-2";

/// Maximum number of parts of an index.
pub const MOST_PARTS: u32 = 256;

/// How an index derives the words of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyForm {
    /// The value of the only key column.
    Word,
    /// The hash of all key columns, with this seed.
    Hash([u64; 2]),
}

/// The kind of a column's values. Columns of the same kind can be compared, whatever their types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Boolean,
    /// Days since 1970.
    Days,
    /// Milliseconds since 1970 at midnight.
    Date,
    TimeOfDay,
    /// A date and time without a time zone.
    Local,
    /// A moment.
    Instant,
    Duration,
    Text,
    Bytes,
}

/// Returns the kind of a column's values, or the reason why it cannot be a key.
fn kind(data_type: &DataType) -> std::result::Result<Kind, String> {
    use DataType as D;
    Ok(match data_type {
        D::Int8 | D::Int16 | D::Int32 | D::Int64 => Kind::Number,
        D::UInt8 | D::UInt16 | D::UInt32 | D::UInt64 => Kind::Number,
        other if other.is_decimal() => Kind::Number,
        D::Boolean => Kind::Boolean,
        D::Date32 => Kind::Days,
        D::Date64 => Kind::Date,
        D::Time32(_) | D::Time64(_) => Kind::TimeOfDay,
        D::Timestamp(_, None) => Kind::Local,
        D::Timestamp(_, Some(_)) => Kind::Instant,
        D::Duration(_) => Kind::Duration,
        D::Utf8 | D::LargeUtf8 | D::Utf8View => Kind::Text,
        D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => Kind::Bytes,
        D::Dictionary(_, values) => return kind(values),
        D::Null => return Err("it has no values, so its type is not known".to_owned()),
        D::Float16 | D::Float32 | D::Float64 => {
            return Err("floats cannot be keys: equal values may have different bits".to_owned());
        }
        other => return Err(format!("a column of type {other} cannot be a key")),
    })
}

impl KeyForm {
    /// Returns the form of the keys of columns of these types, or the reason why one of them cannot be a key.
    ///
    /// # Errors
    /// The position of the column, and the reason.
    pub fn of(types: &[&DataType], seed: [u64; 2]) -> std::result::Result<Self, (usize, String)> {
        for (at, data_type) in types.iter().enumerate() {
            kind(data_type).map_err(|reason| (at, reason))?;
        }
        let is_word = matches!(types, [one] if is_word(values_of(one)));
        Ok(if is_word { Self::Word } else { Self::Hash(seed) })
    }

    /// Returns the words of keys, null for a key that no row of the index can have. `columns` are compared with columns
    /// of the index of `types`.
    ///
    /// If nulls are equal to nothing, a key with a null has no word. If they are equal to each other, it has one unless
    /// the words are the values; the words in an index are these.
    ///
    /// # Errors
    /// If Arrow cannot convert a column.
    pub fn words(
        self,
        columns: &[ArrayRef],
        types: &[&DataType],
        nulls: NullEquality,
    ) -> Result<UInt64Array> {
        match (self, columns, types) {
            (Self::Word, [column], [data_type]) => exact(&plain(column)?, values_of(data_type)),
            (Self::Word, ..) => {
                Ok(UInt64Array::new_null(columns.first().map_or(0, |one| one.len())))
            }
            (Self::Hash(seed), ..) => hashes(columns, &Hash::new(HashKind::Strong, seed), nulls),
        }
    }
}

/// Returns the part of a word, of `parts` parts. It is one of the functions that never change. If `parts` is a multiple
/// of another number of parts, each part is within one of those. Part 0 also has the keys without a word.
pub fn part_of(word: Option<u64>, parts: u32) -> u32 {
    let hash = word.map_or(0, |word| Hash::new(HashKind::Strong, [17, 19]).word(word));
    ((u128::from(hash) * u128::from(parts)) >> 64) as u32
}

/// The order of keys by their parts.
pub struct ByPart {
    /// The positions of the keys of part 0, then those of part 1, and so on; those of each part ascend.
    pub order: Vec<u64>,
    /// Where each part ends in this order.
    pub ends: Vec<usize>,
}

impl ByPart {
    /// Returns the order of the keys with these words.
    pub fn of(words: impl Iterator<Item = Option<u64>>, parts: u32) -> Self {
        let parts_of: Vec<u32> = words.map(|word| part_of(word, parts)).collect();
        let mut next = vec![0; parts as usize];
        parts_of.iter().for_each(|&part| next[part as usize] += 1);
        let mut end = 0;
        for count in &mut next {
            let start = end;
            end += *count;
            *count = start;
        }
        let mut order = vec![0; parts_of.len()];
        for (at, &part) in (0_u64..).zip(&parts_of) {
            let next = &mut next[part as usize];
            order[*next] = at;
            *next += 1;
        }
        // The place after the last key of a part is its end.
        Self { order, ends: next }
    }
}

/// Returns whether values of the two types can be compared through an index of `indexed`.
pub fn comparable(indexed: &DataType, other: &DataType) -> bool {
    matches!((kind(indexed), kind(other)), (Ok(one), Ok(other)) if one == other)
}

fn is_word(data_type: &DataType) -> bool {
    let is_decimal = data_type.is_decimal();
    !is_decimal && !matches!(kind(data_type), Ok(Kind::Text | Kind::Bytes) | Err(_))
}

/// Returns the type of the values of a dictionary, or the type itself.
pub fn values_of(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values_of(values),
        other => other,
    }
}

/// Returns a column without its dictionary.
///
/// # Errors
/// If Arrow cannot convert the column.
pub fn plain(column: &ArrayRef) -> Result<ArrayRef> {
    let mut column = Arc::clone(column);
    // Arrow's cast of a dictionary to views loses the nulls among its values.
    while let Some(dictionary) = column.as_any_dictionary_opt() {
        column = take(dictionary.values(), dictionary.keys(), None)?;
    }
    Ok(column)
}

/// Casts values to another type. A value that the type does not have becomes null.
///
/// # Errors
/// If Arrow cannot cast between the types.
pub fn cast(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    Ok(cast_with_options(column, data_type, &options)?)
}

/// Returns the values of a column as words of a column of type `indexed`, null where that type does not have the value.
fn exact(column: &ArrayRef, indexed: &DataType) -> Result<UInt64Array> {
    let column = match (column.data_type(), unit(indexed)) {
        (other, _) if other.is_decimal() => {
            let integers = integers(column)?;
            if *indexed == DataType::UInt64 {
                return Ok(integers.unary_opt(|value| u64::try_from(value).ok()));
            }
            return Ok(
                integers.unary_opt(|value| i64::try_from(value).ok().map(i64::cast_unsigned))
            );
        }
        (other, Some(of_index)) => {
            let of_column = unit(other).unwrap_or(of_index);
            in_unit(&signed(column)?, of_column, of_index)
        }
        (_, None) if *indexed == DataType::UInt64 => {
            return Ok(cast(column, &DataType::UInt64)?.as_primitive::<UInt64Type>().clone());
        }
        (_, None) => signed(column)?,
    };
    Ok(unsigned(&column))
}

/// Returns the values as 64-bit integers: the number, or the count of the column's units.
fn signed(column: &ArrayRef) -> Result<Int64Array> {
    let column = match column.data_type() {
        // Arrow casts these by way of the integer of their width.
        DataType::Date32 | DataType::Time32(_) => &cast(column, &DataType::Int32)?,
        DataType::Boolean => &cast(column, &DataType::UInt8)?,
        _ => column,
    };
    Ok(cast(column, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// Returns the same 64 bits without a sign, and without a copy.
fn unsigned(column: &Int64Array) -> UInt64Array {
    let words = ScalarBuffer::<u64>::from(column.values().inner().clone());
    UInt64Array::new(words, column.nulls().cloned())
}

/// Returns the unit of a time, timestamp or duration.
fn unit(data_type: &DataType) -> Option<TimeUnit> {
    match data_type {
        DataType::Time32(unit)
        | DataType::Time64(unit)
        | DataType::Timestamp(unit, _)
        | DataType::Duration(unit) => Some(*unit),
        _ => None,
    }
}

/// Returns the number of nanoseconds of a unit.
fn nanoseconds(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Converts counts of one unit to counts of another; null where that is not a whole number of 64 bits.
fn in_unit(column: &Int64Array, from: TimeUnit, to: TimeUnit) -> Int64Array {
    let (from, to) = (nanoseconds(from), nanoseconds(to));
    if from >= to {
        let factor = from / to;
        if factor == 1 {
            column.clone()
        } else {
            column.unary_opt(|count| count.checked_mul(factor))
        }
    } else {
        let factor = to / from;
        column.unary_opt(|count| (count % factor == 0).then_some(count / factor))
    }
}

/// Returns decimals of at most 128 bits as decimals of 128 bits, and others as they are.
fn decimals(column: &ArrayRef) -> Result<ArrayRef> {
    match *column.data_type() {
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            cast(column, &DataType::Decimal128(precision, scale))
        }
        _ => Ok(Arc::clone(column)),
    }
}

/// Returns the decimals that are integers, null for the others and for integers beyond 128 bits.
fn integers(column: &ArrayRef) -> Result<PrimitiveArray<Decimal128Type>> {
    if let Some(column) = column.as_primitive_opt::<Decimal256Type>() {
        let scale = column.scale();
        return Ok(column.unary_opt(|digits| match normal(digits, scale) {
            (value, 0) => value.to_i128(),
            _ => None,
        }));
    }
    let column = decimals(column)?;
    let column = column.as_primitive::<Decimal128Type>();
    let scale = column.scale();
    Ok(column.unary_opt(|digits| match normal(digits, scale) {
        (value, 0) => Some(value),
        _ => None,
    }))
}

/// Returns the digits and scale that all decimals of the same value share. The scale is 0 for integers, unless they
/// have more bits than `T`.
fn normal<T: ArrowNativeTypeOp>(mut digits: T, scale: i8) -> (T, i8) {
    let ten = T::usize_as(10);
    let mut scale = if digits.is_zero() { 0 } else { scale };
    while scale > 0 && digits.mod_wrapping(ten).is_zero() {
        (digits, scale) = (digits.div_wrapping(ten), scale - 1);
    }
    while scale < 0 {
        match digits.mul_checked(ten) {
            Ok(more) => (digits, scale) = (more, scale + 1),
            Err(_) => break,
        }
    }
    (digits, scale)
}

/// Returns the word of a decimal of 128 bits.
fn decimal_word(digits: i128, scale: i8, hash: &Hash) -> u64 {
    match normal(digits, scale) {
        (digits, 0) if in_64_bits(digits) => digits as u64,
        (digits, scale @ 0..) => with_scale(&digits.to_le_bytes(), scale, hash),
        (digits, scale) => wide_word(i256::from_i128(digits), scale, hash),
    }
}

/// Returns the word of a decimal of 256 bits.
fn wide_word(digits: i256, scale: i8, hash: &Hash) -> u64 {
    let (digits, scale) = normal(digits, scale);
    match digits.to_i128() {
        Some(digits) if scale >= 0 => decimal_word(digits, scale, hash),
        _ => with_scale(&digits.to_le_bytes(), scale, hash),
    }
}

fn with_scale(digits: &[u8], scale: i8, hash: &Hash) -> u64 {
    hash.bytes(&[digits, &[scale.cast_unsigned()]].concat())
}

/// Returns the hash of each row; null if one of its values is null and nulls are equal to nothing.
fn hashes(columns: &[ArrayRef], hash: &Hash, equality: NullEquality) -> Result<UInt64Array> {
    let rows = columns.first().map_or(0, |column| column.len());
    let mut words = vec![0_u64; rows];
    let mut nulls: Option<NullBuffer> = None;
    for column in columns {
        let column = plain(column)?;
        add_values(&column, hash, &mut words)?;
        nulls = NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref());
    }
    let nulls = nulls.filter(|_| equality == NullEquality::NullEqualsNothing);
    Ok(UInt64Array::new(words.into(), nulls))
}

/// Mixes the values of a column into the hashes of its rows.
fn add_values(column: &ArrayRef, hash: &Hash, words: &mut [u64]) -> Result<()> {
    use DataType as D;
    let mut values = Values { hash, words };
    match column.data_type() {
        D::Utf8 => values.add(column.as_string::<i32>().iter(), |text| hash.bytes(text.as_bytes())),
        D::LargeUtf8 => {
            values.add(column.as_string::<i64>().iter(), |text| hash.bytes(text.as_bytes()))
        }
        D::Utf8View => {
            values.add(column.as_string_view().iter(), |text| hash.bytes(text.as_bytes()))
        }
        D::Binary => values.add(column.as_binary::<i32>().iter(), |bytes| hash.bytes(bytes)),
        D::LargeBinary => values.add(column.as_binary::<i64>().iter(), |bytes| hash.bytes(bytes)),
        D::BinaryView => values.add(column.as_binary_view().iter(), |bytes| hash.bytes(bytes)),
        D::FixedSizeBinary(_) => {
            values.add(column.as_fixed_size_binary().iter(), |bytes| hash.bytes(bytes));
        }
        D::Decimal256(_, scale) => {
            let decimals = column.as_primitive::<Decimal256Type>();
            values.add(decimals.iter(), |digits| wide_word(digits, *scale, hash));
        }
        other if other.is_decimal() => {
            let decimals = decimals(column)?;
            let decimals = decimals.as_primitive::<Decimal128Type>();
            let scale = decimals.scale();
            values.add(decimals.iter(), |digits| decimal_word(digits, scale, hash));
        }
        D::UInt64 => values.add(column.as_primitive::<UInt64Type>().iter(), |value| value),
        other => {
            // The remainder modulo 2^64 is the same for equal times of all units.
            let factor = unit(other).map_or(1, nanoseconds);
            values.add(signed(column)?.iter(), |value| value.wrapping_mul(factor).cast_unsigned());
        }
    }
    Ok(())
}

/// Returns whether a number is a 64-bit integer, with or without a sign.
fn in_64_bits(value: i128) -> bool {
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value)
}

/// The word of a null. A value may have the same one, because keys with the same hash are compared.
const NULL: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hashes of rows, to which a column's values are added.
struct Values<'a> {
    hash: &'a Hash,
    words: &'a mut [u64],
}

impl Values<'_> {
    fn add<T>(&mut self, values: impl Iterator<Item = Option<T>>, word: impl Fn(T) -> u64) {
        for (sum, value) in self.words.iter_mut().zip(values) {
            *sum = self.hash.word(sum.rotate_left(1) ^ value.map_or(NULL, &word));
        }
    }
}

/// Returns whether keys of one column equal those of another, row by row. Both columns have the same type.
///
/// # Errors
/// If Arrow cannot compare the types.
pub fn equal(one: &ArrayRef, other: &ArrayRef, nulls: NullEquality) -> Result<BooleanArray> {
    let (one, other) = (plain(one)?, plain(other)?);
    Ok(match nulls {
        NullEquality::NullEqualsNothing => cmp::eq(&one, &other)?,
        NullEquality::NullEqualsNull => cmp::not_distinct(&one, &other)?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use arrow::array::{
        Date32Array, Decimal128Array, Decimal256Array, Int8Array, Int32Array, StringArray,
        StringViewArray, TimestampMillisecondArray, TimestampNanosecondArray,
    };

    use super::*;

    fn words(form: KeyForm, columns: &[ArrayRef], types: &[DataType]) -> Vec<Option<u64>> {
        let types: Vec<_> = types.iter().collect();
        form.words(columns, &types, NullEquality::NullEqualsNothing).unwrap().iter().collect()
    }

    fn decimal(digits: Vec<i128>, precision: u8, scale: i8) -> ArrayRef {
        Arc::new(Decimal128Array::from(digits).with_precision_and_scale(precision, scale).unwrap())
    }

    #[test]
    fn numbers_of_all_types_have_the_words_of_their_values() {
        let columns: [ArrayRef; 4] = [
            Arc::new(Int8Array::from(vec![Some(-1), Some(7), None])),
            Arc::new(Int64Array::from(vec![Some(-1), Some(7), None])),
            decimal(vec![-100, 700, 750], 10, 2),
            Arc::new(Int32Array::from(vec![Some(-1), Some(7), None])),
        ];
        for column in columns {
            let one = std::slice::from_ref(&column);
            assert_eq!(
                words(KeyForm::Word, one, &[DataType::Int16]),
                [Some(u64::MAX), Some(7), None]
            );
            assert_eq!(words(KeyForm::Word, one, &[DataType::UInt64]), [None, Some(7), None]);
        }
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, 7]));
        let one = std::slice::from_ref(&large);
        assert_eq!(words(KeyForm::Word, one, &[DataType::Int64]), [None, Some(7)]);
        assert_eq!(words(KeyForm::Word, one, &[DataType::UInt64]), [Some(u64::MAX), Some(7)]);
    }

    #[test]
    fn times_of_all_units_have_the_words_of_their_moment() {
        let nanos: ArrayRef =
            Arc::new(TimestampNanosecondArray::from(vec![5_000_000, 5_000_001, -1_000_000]));
        let millis: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![5, i64::MAX, -1]));
        let (in_millis, in_nanos) = (
            DataType::Timestamp(TimeUnit::Millisecond, None),
            DataType::Timestamp(TimeUnit::Nanosecond, None),
        );
        assert_eq!(
            words(KeyForm::Word, std::slice::from_ref(&nanos), std::slice::from_ref(&in_millis)),
            [Some(5), None, Some(u64::MAX)]
        );
        assert_eq!(
            words(KeyForm::Word, std::slice::from_ref(&millis), std::slice::from_ref(&in_nanos)),
            [Some(5_000_000), None, Some((-1_000_000_i64).cast_unsigned())]
        );
        let hash = KeyForm::Hash([1, 2]);
        let day: ArrayRef = Arc::new(Date32Array::from(vec![1, 1, 1]));
        let types = [DataType::Date32, in_millis];
        let (one, other) =
            (words(hash, &[day.clone(), nanos], &types), words(hash, &[day, millis], &types));
        assert_eq!((one[0], one[2]), (other[0], other[2]));
        assert_ne!(one[0], one[1]);
    }

    #[test]
    fn hashes_depend_on_values_and_not_on_types() {
        let hash = KeyForm::Hash([3, 4]);
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("bc"), None]));
        let view: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), Some("bc"), None]));
        let dictionary =
            cast(&text, &DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)))
                .unwrap();
        let of = |column: &ArrayRef| words(hash, std::slice::from_ref(column), &[DataType::Utf8]);
        assert_eq!(of(&text), of(&view));
        assert_eq!(of(&text), of(&dictionary));
        assert_eq!(of(&text)[2], None);
        let integers: ArrayRef = Arc::new(Int64Array::from(vec![12, -3, 0]));
        let of = |column: &ArrayRef| {
            words(hash, &[column.clone(), text.clone()], &[DataType::Int64, DataType::Utf8])
        };
        assert_eq!(of(&integers), of(&decimal(vec![1200, -300, 0], 9, 2)));
        assert_ne!(of(&integers)[0], of(&decimal(vec![1201, -300, 0], 9, 2))[0]);
    }

    #[test]
    fn decimals_of_all_widths_have_the_words_of_their_values() {
        let hash = KeyForm::Hash([3, 4]);
        let types = [DataType::Decimal128(38, 2)];
        let of = |digits: i128, scale| {
            let wide = Decimal256Array::from(vec![i256::from_i128(digits)]);
            let wide: ArrayRef = Arc::new(wide.with_precision_and_scale(76, scale).unwrap());
            let narrow = words(hash, &[decimal(vec![digits], 38, scale)], &types);
            assert_eq!(words(hash, std::slice::from_ref(&wide), &types), narrow);
            let exact = words(KeyForm::Word, &[wide], &[DataType::Int64]);
            assert_eq!(
                exact,
                words(KeyForm::Word, &[decimal(vec![digits], 38, scale)], &[DataType::Int64])
            );
            narrow
        };
        assert_eq!(of(700, 2), of(7, 0));
        assert_eq!(of(70, -1), of(700, 0));
        assert_ne!(of(701, 2), of(7, 0));
        // More than 128 bits without the scale, and more than 256.
        assert_eq!(of(5 * 10_i128.pow(36), -9), of(5 * 10_i128.pow(35), -10));
        assert_eq!(of(5 * 10_i128.pow(36), -99), of(5 * 10_i128.pow(35), -100));
        let large = |digits: i256, scale| -> ArrayRef {
            let digits = Decimal256Array::from(vec![digits]);
            Arc::new(digits.with_precision_and_scale(76, scale).unwrap())
        };
        let one = i256::from_i128(i128::MAX).mul_wrapping(i256::from_i128(100));
        let other = one.mul_wrapping(i256::from_i128(10));
        let (one, other) = (large(one, 1), large(other, 2));
        assert_eq!(words(hash, &[one], &types), words(hash, &[other], &types));
    }

    #[test]
    fn nulls_have_hashes_if_they_are_equal() {
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, None]));
        let number: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(1), None]));
        let (columns, types) = ([number, text], [&DataType::Int64, &DataType::Utf8]);
        let of = |form: KeyForm, nulls| {
            let words = form.words(&columns, &types, nulls).unwrap();
            words.iter().collect::<Vec<_>>()
        };
        let hash = KeyForm::Hash([5, 6]);
        let (without, with) =
            (of(hash, NullEquality::NullEqualsNothing), of(hash, NullEquality::NullEqualsNull));
        assert_eq!(without, [with[0], None, None]);
        assert!(with.iter().all(Option::is_some) && with[1] != with[2], "{with:?}");
        let word = KeyForm::Word.words(&columns[..1], &types[..1], NullEquality::NullEqualsNull);
        assert_eq!(word.unwrap().iter().collect::<Vec<_>>(), [Some(1), Some(1), None]);
    }

    #[test]
    fn forms() {
        assert_eq!(KeyForm::of(&[&DataType::UInt8], [0, 0]), Ok(KeyForm::Word));
        assert_eq!(KeyForm::of(&[&DataType::Utf8], [1, 2]), Ok(KeyForm::Hash([1, 2])));
        assert_eq!(
            KeyForm::of(&[&DataType::UInt8, &DataType::UInt8], [1, 2]),
            Ok(KeyForm::Hash([1, 2]))
        );
        assert_eq!(KeyForm::of(&[&DataType::UInt8, &DataType::Float32], [1, 2]).unwrap_err().0, 1);
        assert!(comparable(&DataType::Int8, &DataType::Decimal128(10, 2)));
        assert!(!comparable(&DataType::Int8, &DataType::Utf8));
    }
}
