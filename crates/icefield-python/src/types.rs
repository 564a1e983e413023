//! The types of keys and values: their names, their bytes, and their Python objects.

use std::ffi::CStr;

use arrow_schema::DataType as ArrowType;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyString};

/// The Python type of a key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Unsigned,
    Signed,
    Float,
    Bool,
    Bytes,
    Str,
}

/// A type that Python programs can store.
#[derive(Debug, PartialEq, Eq)]
pub struct DataType {
    /// The library's name, which is also the name in `Map.open`.
    pub name: &'static str,
    pub kind: Kind,
    /// The number of bytes; 0 for a type of variable length.
    pub width: usize,
    /// The format of the buffer protocol, and NumPy's name.
    pub format: &'static CStr,
    pub numpy: &'static str,
}

/// A `&'static DataType` serves as the type's identity.
pub type Type = &'static DataType;

const fn data_type(
    name: &'static str,
    kind: Kind,
    width: usize,
    format: &'static CStr,
    numpy: &'static str,
) -> DataType {
    DataType { name, kind, width, format, numpy }
}

pub static TYPES: [DataType; 13] = [
    data_type("u8", Kind::Unsigned, 1, c"B", "uint8"),
    data_type("u16", Kind::Unsigned, 2, c"H", "uint16"),
    data_type("u32", Kind::Unsigned, 4, c"I", "uint32"),
    data_type("u64", Kind::Unsigned, 8, c"Q", "uint64"),
    data_type("i8", Kind::Signed, 1, c"b", "int8"),
    data_type("i16", Kind::Signed, 2, c"h", "int16"),
    data_type("i32", Kind::Signed, 4, c"i", "int32"),
    data_type("i64", Kind::Signed, 8, c"q", "int64"),
    data_type("f32", Kind::Float, 4, c"f", "float32"),
    data_type("f64", Kind::Float, 8, c"d", "float64"),
    data_type("bool", Kind::Bool, 1, c"?", "bool"),
    data_type("bytes", Kind::Bytes, 0, c"B", "bytes"),
    data_type("str", Kind::Str, 0, c"B", "str"),
];

/// Returns the type of this name.
pub fn named(name: &str, what: &str) -> PyResult<Type> {
    TYPES.iter().find(|known| known.name == name).ok_or_else(|| {
        let names: Vec<_> = TYPES.iter().map(|known| known.name).collect();
        PyValueError::new_err(format!("{what}: expected one of {}, got `{name}`", names.join(", ")))
    })
}

/// The bytes of one key or value.
pub enum Datum<'a> {
    Word([u8; 8], u8),
    Slice(&'a [u8]),
    Owned(Vec<u8>),
}

impl Datum<'_> {
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Word(bytes, width) => &bytes[..usize::from(*width)],
            Self::Slice(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl DataType {
    pub fn is_key(&self) -> bool {
        self.kind != Kind::Float
    }

    /// Returns the bytes of a Python object.
    #[inline]
    pub fn datum<'a>(&self, object: &'a Bound<'_, PyAny>, what: &str) -> PyResult<Datum<'a>> {
        let word = match self.kind {
            Kind::Unsigned => {
                let number =
                    object.extract::<u64>().map_err(|error| self.refused(object, what, error))?;
                if self.width < 8 && number >> (8 * self.width) != 0 {
                    return Err(self.out_of_range(object, what));
                }
                number
            }
            Kind::Signed => {
                let number =
                    object.extract::<i64>().map_err(|error| self.refused(object, what, error))?;
                let unused = 64 - 8 * self.width;
                if number << unused >> unused != number {
                    return Err(self.out_of_range(object, what));
                }
                number as u64
            }
            Kind::Float => {
                let number = object.extract::<f64>().map_err(|_| self.wrong(object, what))?;
                if self.width == 8 {
                    number.to_bits()
                } else if number.is_finite() && !(number as f32).is_finite() {
                    return Err(self.out_of_range(object, what));
                } else {
                    u64::from((number as f32).to_bits())
                }
            }
            Kind::Bool => object.extract::<bool>().map_err(|_| self.wrong(object, what))?.into(),
            Kind::Bytes => {
                if let Ok(bytes) = object.cast::<PyBytes>() {
                    return Ok(Datum::Slice(bytes.as_bytes()));
                }
                let bytes = object.cast::<PyByteArray>().map_err(|_| self.wrong(object, what))?;
                return Ok(Datum::Owned(bytes.to_vec()));
            }
            Kind::Str => {
                let text = object.cast::<PyString>().map_err(|_| self.wrong(object, what))?;
                let text = text.to_str().map_err(|_| {
                    PyValueError::new_err(format!("{what}: expected text without lone surrogates"))
                })?;
                return Ok(Datum::Slice(text.as_bytes()));
            }
        };
        Ok(Datum::Word(word.to_le_bytes(), self.width as u8))
    }

    /// Returns the Python object of stored bytes.
    #[inline]
    pub fn object<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self.kind {
            Kind::Unsigned => word(bytes).into_pyobject(py)?.into_any(),
            Kind::Signed => signed(bytes).into_pyobject(py)?.into_any(),
            Kind::Float => PyFloat::new(py, float(bytes)).into_any(),
            Kind::Bool => PyBool::new(py, bytes.first() == Some(&1)).to_owned().into_any(),
            Kind::Bytes => PyBytes::new(py, bytes).into_any(),
            Kind::Str => PyString::from_bytes(py, bytes)?.into_any(),
        })
    }

    /// Returns the sum of a stored number and another one, or `None` if it is not a number of this type.
    pub fn sum(&self, stored: Option<&[u8]>, by: &Datum<'_>) -> Option<Vec<u8>> {
        let (stored, by) = (stored.unwrap_or(&[]), by.bytes());
        let unused = 64 - 8 * self.width as u32;
        let sum = match self.kind {
            Kind::Unsigned => {
                word(stored).checked_add(word(by)).filter(|sum| sum << unused >> unused == *sum)?
            }
            Kind::Signed => {
                let sum = signed(stored).checked_add(signed(by))?;
                (sum << unused >> unused == sum).then_some(sum as u64)?
            }
            Kind::Float if self.width == 8 => (float(stored) + float(by)).to_bits(),
            Kind::Float => u64::from(((float(stored) + float(by)) as f32).to_bits()),
            Kind::Bool | Kind::Bytes | Kind::Str => return None,
        };
        Some(sum.to_le_bytes()[..self.width].to_vec())
    }

    /// Returns the type of Arrow arrays of results.
    pub fn arrow(&self) -> ArrowType {
        match (self.kind, self.width) {
            (Kind::Unsigned, 1) => ArrowType::UInt8,
            (Kind::Unsigned, 2) => ArrowType::UInt16,
            (Kind::Unsigned, 4) => ArrowType::UInt32,
            (Kind::Unsigned, _) => ArrowType::UInt64,
            (Kind::Signed, 1) => ArrowType::Int8,
            (Kind::Signed, 2) => ArrowType::Int16,
            (Kind::Signed, 4) => ArrowType::Int32,
            (Kind::Signed, _) => ArrowType::Int64,
            (Kind::Float, 4) => ArrowType::Float32,
            (Kind::Float, _) => ArrowType::Float64,
            (Kind::Bool, _) => ArrowType::Boolean,
            (Kind::Bytes, _) => ArrowType::LargeBinary,
            (Kind::Str, _) => ArrowType::LargeUtf8,
        }
    }

    /// Returns whether every value of `other` is a value of this type with the same meaning.
    pub fn holds(&self, other: Type) -> bool {
        match (self.kind, other.kind) {
            (Kind::Signed, Kind::Unsigned) => self.width > other.width,
            (Kind::Bytes, Kind::Str) => false,
            (kind, from) => kind == from && self.width >= other.width,
        }
    }

    #[cold]
    fn refused(&self, object: &Bound<'_, PyAny>, what: &str, error: PyErr) -> PyErr {
        if error.is_instance_of::<PyOverflowError>(object.py()) {
            return self.out_of_range(object, what);
        }
        self.wrong(object, what)
    }

    #[cold]
    fn out_of_range(&self, object: &Bound<'_, PyAny>, what: &str) -> PyErr {
        let shown = object.repr().map_or_else(|_| "a number".to_owned(), |text| text.to_string());
        PyValueError::new_err(format!(
            "{what}: expected a number within {}, got {shown}",
            self.name
        ))
    }

    #[cold]
    fn wrong(&self, object: &Bound<'_, PyAny>, what: &str) -> PyErr {
        let given = object
            .get_type()
            .name()
            .map_or_else(|_| "another type".to_owned(), |name| name.to_string());
        let expected = match self.kind {
            Kind::Unsigned | Kind::Signed => "int",
            Kind::Float => "float",
            Kind::Bool => "bool",
            Kind::Bytes => "bytes",
            Kind::Str => "str",
        };
        PyTypeError::new_err(format!("{what}: expected {expected} ({}), got {given}", self.name))
    }
}

/// Returns at most 8 little-endian bytes as a number.
#[inline]
pub fn word(bytes: &[u8]) -> u64 {
    if let Ok(bytes) = bytes.try_into() {
        return u64::from_le_bytes(bytes);
    }
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(word)
}

/// Returns at most 8 little-endian bytes as a number with a sign.
#[inline]
fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    (word(bytes) << unused) as i64 >> unused
}

fn float(bytes: &[u8]) -> f64 {
    match bytes.len() {
        4 => f32::from_bits(word(bytes) as u32).into(),
        _ => f64::from_bits(word(bytes)),
    }
}
