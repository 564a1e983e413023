//! Columns of keys and values that Python programs pass: buffers, Arrow arrays, or sequences of objects.

use std::ffi::CStr;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteArrayType;
use arrow_array::{Array, ArrayRef, BooleanArray, GenericByteArray};
use arrow_schema::DataType as ArrowType;
use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use crate::arrow;
use crate::store::Piece;
use crate::types::{Kind, TYPES, Type};

/// A column whose values are known to be valid for its type.
pub struct Column {
    len: usize,
    width: usize,
    values: Values,
}

enum Values {
    /// Values of a width in a buffer of another object.
    Buffer(PyUntypedBuffer),
    /// Values of a width in an Arrow array.
    Array(ArrayRef),
    /// Values of a width, converted.
    Converted(Vec<u8>),
    /// Values of variable length in Arrow arrays.
    Arrays(Vec<ArrayRef>),
    /// Values of variable length, converted, and where they end.
    Texts(Vec<u8>, Vec<usize>),
}

impl Column {
    /// Reads a column. Copies it only if its layout or width differs from the type's.
    pub fn read(object: &Bound<'_, PyAny>, data_type: Type, what: &str) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err(format!(
                "{what}: expected a column of {}, got str",
                data_type.name
            )));
        }
        if let Some(arrays) = arrow::arrays_of(object)? {
            return Self::from_arrays(arrays, data_type, what);
        }
        let is_bytes = object.is_instance_of::<PyBytes>() || object.is_instance_of::<PyByteArray>();
        if is_bytes && data_type.name != "u8" {
            return Err(wrong_type(what, data_type, "bytes"));
        }
        if data_type.width > 0
            && let Ok(buffer) = PyUntypedBuffer::get(object)
        {
            return Self::from_buffer(buffer, data_type, what);
        }
        if data_type.width > 0 && object.hasattr("__array__")? {
            let array = object.call_method0("__array__")?;
            let is_object = array.getattr("dtype")?.getattr("kind")?.eq("O")?;
            if !is_object && let Ok(buffer) = PyUntypedBuffer::get(&array) {
                return Self::from_buffer(buffer, data_type, what);
            }
        }
        Self::from_objects(object, data_type, what)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns a range of the values.
    pub fn piece(&self, range: Range<usize>) -> Piece<'_> {
        let width = self.width;
        let fixed = |bytes| Piece::Fixed { bytes, width };
        let bytes = range.start * width..range.end * width;
        match &self.values {
            Values::Buffer(buffer) => fixed(&buffer_bytes(buffer)[bytes]),
            Values::Array(array) => {
                let data = array.to_data();
                let all = data.buffers()[0].as_slice();
                let first = (data.offset() + range.start) * width;
                // SAFETY: the array, which `self` owns, keeps the buffer alive; `to_data` has only shared it.
                let all: &[u8] = unsafe { std::slice::from_raw_parts(all.as_ptr(), all.len()) };
                fixed(&all[first..first + bytes.len()])
            }
            Values::Converted(converted) => fixed(&converted[bytes]),
            Values::Arrays(arrays) => Piece::Slices(slices(arrays, range)),
            Values::Texts(text, ends) => {
                let begin = |index: usize| if index == 0 { 0 } else { ends[index - 1] };
                Piece::Slices(range.map(|index| &text[begin(index)..ends[index]]).collect())
            }
        }
    }

    /// Returns an error if a value is too long to be stored.
    pub fn check_lengths(&self, most: usize, what: &str) -> PyResult<()> {
        // A column of this size is needed for one such value.
        let total: usize = match &self.values {
            Values::Texts(text, _) => text.len(),
            Values::Arrays(arrays) => {
                arrays.iter().map(|array| array.get_buffer_memory_size()).sum()
            }
            _ => 0,
        };
        if total <= most {
            return Ok(());
        }
        let Piece::Slices(slices) = self.piece(0..self.len) else { return Ok(()) };
        let longest = slices.iter().map(|slice| slice.len()).max().unwrap_or(0);
        if longest <= most {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "{what}: expected at most {most} bytes each, got {longest}"
        )))
    }

    /// Returns whether the column's memory and `other` have bytes in common. Columns of variable length have none with
    /// results of one width.
    pub fn overlaps(&self, other: &[u8]) -> bool {
        let Piece::Fixed { bytes, .. } = self.piece(0..self.len) else { return false };
        let (own, other) = (bytes.as_ptr_range(), other.as_ptr_range());
        own.start < other.end && other.start < own.end
    }

    /// Returns the values of a column of 8 bytes, if they are aligned.
    pub fn words(&self) -> Option<&[u64]> {
        let Piece::Fixed { bytes, width: 8 } = self.piece(0..self.len) else { return None };
        // SAFETY: any 8 bytes are a `u64`.
        let (before, words, _) = unsafe { bytes.align_to::<u64>() };
        before.is_empty().then_some(words)
    }

    fn from_buffer(buffer: PyUntypedBuffer, data_type: Type, what: &str) -> PyResult<Self> {
        let given = type_of(buffer.format());
        let shown = buffer.format().to_string_lossy().into_owned();
        let Some(given) = given.filter(|given| data_type.holds(given)) else {
            let shown = given.map_or(format!("format `{shown}`"), |given| given.numpy.to_owned());
            // An empty list becomes an array of floats.
            if buffer.item_count() == 0 {
                return Ok(Self::converted(Vec::new(), data_type));
            }
            return Err(wrong_type(what, data_type, &shown));
        };
        if buffer.dimensions() != 1 || !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err(format!(
                "{what}: expected a contiguous column of one dimension; copy it with `numpy.ascontiguousarray`"
            )));
        }
        let len = buffer.item_count();
        if given.kind == Kind::Bool && buffer_bytes(&buffer).iter().any(|&byte| byte > 1) {
            return Err(PyValueError::new_err(format!(
                "{what}: expected bytes 0 and 1 in a column of bool"
            )));
        }
        if given.width == data_type.width {
            return Ok(Self { len, width: given.width, values: Values::Buffer(buffer) });
        }
        Ok(Self::converted(widened(buffer_bytes(&buffer), given, data_type), data_type))
    }

    fn from_arrays(mut arrays: Vec<ArrayRef>, data_type: Type, what: &str) -> PyResult<Self> {
        arrays.retain(|array| !array.is_empty());
        for array in &arrays {
            if array.logical_null_count() > 0 {
                return Err(PyValueError::new_err(format!(
                    "{what}: expected no nulls; drop or fill them first"
                )));
            }
            check_array(array, data_type, what)?;
        }
        let len = arrays.iter().map(|array| array.len()).sum();
        if data_type.width == 0 {
            return Ok(Self { len, width: 0, values: Values::Arrays(arrays) });
        }
        if let [array] = &arrays[..]
            && *array.data_type() == data_type.arrow()
            && data_type.kind != Kind::Bool
        {
            let values = Values::Array(ArrayRef::clone(array));
            return Ok(Self { len, width: data_type.width, values });
        }
        let mut converted = Vec::with_capacity(len * data_type.width);
        for array in &arrays {
            if let Some(bits) = array.as_any().downcast_ref::<BooleanArray>() {
                converted.extend(bits.values().iter().map(u8::from));
                continue;
            }
            let data = array.to_data();
            let given = of_arrow(array.data_type()).unwrap_or(data_type);
            let (first, bytes) = (data.offset() * given.width, array.len() * given.width);
            converted.extend(widened(&data.buffers()[0][first..first + bytes], given, data_type));
        }
        Ok(Self::converted(converted, data_type))
    }

    fn from_objects(object: &Bound<'_, PyAny>, data_type: Type, what: &str) -> PyResult<Self> {
        let objects = object.try_iter().map_err(|_| {
            let given =
                object.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
            PyTypeError::new_err(format!(
                "{what}: expected a column of {}, got {given}",
                data_type.name
            ))
        })?;
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for object in objects {
            bytes.extend_from_slice(data_type.datum(&object?, what)?.bytes());
            ends.push(bytes.len());
        }
        if data_type.width > 0 {
            return Ok(Self::converted(bytes, data_type));
        }
        Ok(Self { len: ends.len(), width: 0, values: Values::Texts(bytes, ends) })
    }

    fn converted(bytes: Vec<u8>, data_type: Type) -> Self {
        let width = data_type.width.max(1);
        Self { len: bytes.len() / width, width, values: Values::Converted(bytes) }
    }
}

/// Returns an error unless two columns have the same length.
pub fn same_length(keys: &Column, values: &Column) -> PyResult<()> {
    if keys.len() == values.len() {
        return Ok(());
    }
    let (keys, values) = (keys.len(), values.len());
    Err(PyValueError::new_err(format!(
        "expected as many values as keys, got {keys} keys and {values} values"
    )))
}

fn wrong_type(what: &str, data_type: Type, given: &str) -> PyErr {
    let expected = data_type.numpy;
    PyTypeError::new_err(format!(
        "{what}: expected a column of {expected} ({}), got {given}",
        data_type.name
    ))
}

/// Returns the bytes of a contiguous buffer.
pub fn buffer_bytes(buffer: &PyUntypedBuffer) -> &[u8] {
    if buffer.len_bytes() == 0 {
        return &[];
    }
    // SAFETY: while `buffer` exists, its object may not move or free the memory. Programs must not change it during a
    // call, as `docs/python.md` says.
    unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) }
}

/// Returns the type that has this format in the buffer protocol.
pub fn type_of(format: &CStr) -> Option<Type> {
    let text = format.to_bytes();
    let (size, kind) = match ElementType::from_format(format) {
        // The other byte order is not a type of ours.
        _ if matches!(text.first(), Some(b'>' | b'!')) => return None,
        ElementType::SignedInteger { bytes } => (bytes, Kind::Signed),
        ElementType::UnsignedInteger { bytes } => (bytes, Kind::Unsigned),
        ElementType::Float { bytes } => (bytes, Kind::Float),
        ElementType::Bool => (1, Kind::Bool),
        ElementType::Unknown => return None,
    };
    TYPES.iter().find(|known| known.kind == kind && known.width == size)
}

fn of_arrow(given: &ArrowType) -> Option<Type> {
    TYPES.iter().find(|known| known.width > 0 && known.arrow() == *given)
}

/// Converts numbers to a wider type.
fn widened(bytes: &[u8], given: Type, data_type: Type) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() / given.width * data_type.width);
    for number in bytes.chunks_exact(given.width) {
        if given.kind == Kind::Float && given.width < data_type.width {
            let number = f32::from_bits(crate::types::word(number) as u32);
            out.extend_from_slice(&f64::from(number).to_le_bytes());
            continue;
        }
        let negative = given.kind == Kind::Signed && number[given.width - 1] & 0x80 != 0;
        out.extend_from_slice(number);
        out.resize(out.len() + data_type.width - given.width, if negative { 0xFF } else { 0 });
    }
    out
}

/// Returns an error unless an array holds values of the type.
fn check_array(array: &ArrayRef, data_type: Type, what: &str) -> PyResult<()> {
    let given = array.data_type();
    let fits = match data_type.kind {
        Kind::Str => matches!(given, ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View),
        Kind::Bytes => {
            matches!(given, ArrowType::Binary | ArrowType::LargeBinary | ArrowType::BinaryView)
        }
        _ => of_arrow(given).is_some_and(|given| data_type.holds(given)),
    };
    if !fits {
        return Err(wrong_type(what, data_type, &given.to_string()));
    }
    if data_type.kind == Kind::Str {
        // Other libraries do not check what programs put into their buffers.
        array.to_data().validate_data().map_err(|error| {
            PyValueError::new_err(format!("{what}: expected valid UTF-8: {error}"))
        })?;
    }
    Ok(())
}

fn slices(arrays: &[ArrayRef], range: Range<usize>) -> Vec<&[u8]> {
    fn add<'a, T: ByteArrayType>(
        array: &'a GenericByteArray<T>,
        range: Range<usize>,
        out: &mut Vec<&'a [u8]>,
    ) where
        T::Native: AsRef<[u8]>,
    {
        out.extend(range.map(|index| AsRef::<[u8]>::as_ref(array.value(index))));
    }
    let mut out = Vec::with_capacity(range.len());
    let mut first = 0;
    for array in arrays {
        let from = range.start.saturating_sub(first).min(array.len());
        let to = range.end.saturating_sub(first).min(array.len());
        first += array.len();
        let part = from..to;
        match array.data_type() {
            ArrowType::Utf8 => add(array.as_string::<i32>(), part, &mut out),
            ArrowType::LargeUtf8 => add(array.as_string::<i64>(), part, &mut out),
            ArrowType::Binary => add(array.as_binary::<i32>(), part, &mut out),
            ArrowType::LargeBinary => add(array.as_binary::<i64>(), part, &mut out),
            ArrowType::Utf8View => {
                out.extend(part.map(|index| array.as_string_view().value(index).as_bytes()));
            }
            _ => out.extend(part.map(|index| array.as_binary_view().value(index))),
        }
    }
    out
}
