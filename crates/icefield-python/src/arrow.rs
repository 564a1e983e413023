//! Arrow's capsules: arrays and streams of other libraries, and arrays for them.

use std::sync::Mutex;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, from_ffi_and_data_type, to_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, ArrayRef, StructArray, make_array};
use arrow_schema::{ArrowError, DataType, Field, Fields};
use pyo3::exceptions::{PyImportError, PyIndexError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyTuple};

use crate::flat::Flat;
use crate::types::Type;

fn raised(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Returns the arrays of an object with Arrow's capsules; `None` if it has none.
pub fn arrays_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<ArrayRef>>> {
    if object.hasattr("__arrow_c_array__")? {
        let capsules = object.call_method0("__arrow_c_array__")?;
        return array_of(capsules.cast::<PyTuple>()?).map(|array| Some(vec![array]));
    }
    let Some(mut stream) = Stream::of(object)? else { return Ok(None) };
    let mut arrays = Vec::new();
    while let Some(array) = stream.next()? {
        arrays.push(array);
    }
    Ok(Some(arrays))
}

fn array_of(capsules: &Bound<'_, PyTuple>) -> PyResult<ArrayRef> {
    let (schema, array) = (capsules.get_item(0)?, capsules.get_item(1)?);
    let schema = schema.cast::<PyCapsule>()?.pointer_checked(Some(c"arrow_schema"))?;
    let array = array.cast::<PyCapsule>()?.pointer_checked(Some(c"arrow_array"))?;
    // SAFETY: capsules of these names have these structures. `from_raw` moves the array out of its capsule.
    let data = unsafe {
        let array = FFI_ArrowArray::from_raw(array.cast().as_ptr());
        from_ffi(array, schema.cast::<FFI_ArrowSchema>().as_ref())
    };
    Ok(make_array(data.map_err(raised)?))
}

/// A stream of arrays of one type.
pub struct Stream {
    stream: FFI_ArrowArrayStream,
    data_type: DataType,
}

impl Stream {
    /// Returns the stream of an object; `None` if it has none.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if !object.hasattr("__arrow_c_stream__")? {
            return Ok(None);
        }
        let capsule = match object.call_method0("__arrow_c_stream__") {
            Ok(capsule) => capsule,
            // pandas needs PyArrow for it.
            Err(error) if error.is_instance_of::<PyImportError>(object.py()) => return Ok(None),
            Err(error) => return Err(error),
        };
        let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(c"arrow_array_stream"))?;
        // SAFETY: capsules of this name have this structure, which is moved out of its capsule.
        let mut stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) };
        let get_schema = stream.get_schema.filter(|_| stream.release.is_some());
        let get_schema =
            get_schema.ok_or_else(|| PyValueError::new_err("the Arrow stream has been read"))?;
        let mut schema = FFI_ArrowSchema::empty();
        // SAFETY: a stream that has not been released has this function.
        let status = unsafe { get_schema(&mut stream, &mut schema) };
        if status != 0 {
            return Err(Self::failed(&mut stream));
        }
        let data_type = DataType::try_from(&schema).map_err(raised)?;
        Ok(Some(Self { stream, data_type }))
    }

    /// Returns the next array.
    pub fn next(&mut self) -> PyResult<Option<ArrayRef>> {
        let mut array = FFI_ArrowArray::empty();
        let Some(get_next) = self.stream.get_next else { return Ok(None) };
        // SAFETY: the stream has not been released.
        if unsafe { get_next(&mut self.stream, &mut array) } != 0 {
            return Err(Self::failed(&mut self.stream));
        }
        if array.is_released() {
            return Ok(None);
        }
        // SAFETY: the stream returns arrays of its type.
        let data = unsafe { from_ffi_and_data_type(array, self.data_type.clone()) };
        Ok(Some(make_array(data.map_err(raised)?)))
    }

    fn failed(stream: &mut FFI_ArrowArrayStream) -> PyErr {
        let mut text = "the Arrow stream failed".to_owned();
        if let Some(get_last_error) = stream.get_last_error {
            // SAFETY: the stream has not been released; the text is valid until the next call.
            unsafe {
                let pointer = get_last_error(stream);
                if !pointer.is_null() {
                    text = std::ffi::CStr::from_ptr(pointer).to_string_lossy().into_owned();
                }
            }
        }
        PyValueError::new_err(text)
    }
}

/// The batches of a table's rows that a program passes to `Map.load`.
#[pyclass(module = "icefield")]
pub struct Batches {
    stream: Mutex<Stream>,
}

#[pymethods]
impl Batches {
    /// Reads a table, or a reader of batches, with Arrow's stream capsule.
    #[new]
    fn new(source: &Bound<'_, PyAny>) -> PyResult<Self> {
        let stream = Stream::of(source)?.ok_or_else(|| {
            PyTypeError::new_err("expected an object with `__arrow_c_stream__`, such as a table")
        })?;
        Ok(Self { stream: Mutex::new(stream) })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self) -> PyResult<Option<RecordBatch>> {
        let mut stream =
            self.stream.lock().map_err(|_| PyRuntimeError::new_err("a failed stream"))?;
        let Some(array) = stream.next()? else { return Ok(None) };
        let array = array.as_any().downcast_ref::<StructArray>().cloned();
        let array =
            array.ok_or_else(|| PyTypeError::new_err("expected a stream of rows, got a column"))?;
        Ok(Some(RecordBatch { array }))
    }
}

/// A column of results in Arrow's format.
///
/// It is a sequence of Python objects, and any library with Arrow's capsules reads it without a copy, for example
/// `pyarrow.array(column)` or `polars.Series(column)`.
#[pyclass(frozen, module = "icefield")]
pub struct Column {
    array: ArrayRef,
    data_type: Type,
}

impl Column {
    pub fn new(values: Flat, data_type: Type, found: Option<&[u8]>) -> PyResult<Self> {
        Ok(Self { array: values.into_array(found)?, data_type })
    }

    fn object<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        if self.array.is_null(index) {
            return Ok(py.None().into_bound(py));
        }
        let data = self.array.to_data();
        if let Some(bits) = self.array.as_any().downcast_ref::<arrow_array::BooleanArray>() {
            return self.data_type.object(py, &[u8::from(bits.value(index))]);
        }
        let width = self.data_type.width;
        if width > 0 {
            let first = (data.offset() + index) * width;
            return self.data_type.object(py, &data.buffers()[0][first..first + width]);
        }
        let ends = &data.buffer::<i64>(0)[index..=index + 1];
        self.data_type.object(py, &data.buffers()[1][ends[0] as usize..ends[1] as usize])
    }
}

#[pymethods]
impl Column {
    fn __len__(&self) -> usize {
        self.array.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let len = self.array.len() as isize;
        let index = if index < 0 { index + len } else { index };
        if !(0..len).contains(&index) {
            return Err(PyIndexError::new_err("column index out of range"));
        }
        self.object(py, index as usize)
    }

    /// Returns the values as a list; nulls are `None`.
    fn to_pylist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let objects: PyResult<Vec<_>> =
            (0..self.array.len()).map(|index| self.object(py, index)).collect();
        PyList::new(py, objects?)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.array.data_type())
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        capsules(py, &self.array)
    }

    fn __repr__(&self) -> String {
        format!("<icefield.Column of {} {}>", self.array.len(), self.data_type.name)
    }
}

/// Rows in Arrow's format: a batch with the columns `key` and `value`.
///
/// Libraries with Arrow's capsules read it without a copy, for example `pyarrow.record_batch(batch)` or
/// `polars.DataFrame(batch)`.
#[pyclass(frozen, module = "icefield")]
pub struct RecordBatch {
    array: StructArray,
}

impl RecordBatch {
    pub fn new(keys: Flat, values: Flat, [key_type, value_type]: [Type; 2]) -> PyResult<Self> {
        let fields = Fields::from(vec![
            Field::new("key", key_type.arrow(), false),
            Field::new("value", value_type.arrow(), false),
        ]);
        let columns = vec![keys.into_array(None)?, values.into_array(None)?];
        Ok(Self { array: StructArray::try_new(fields, columns, None).map_err(raised)? })
    }
}

#[pymethods]
impl RecordBatch {
    fn __len__(&self) -> usize {
        self.array.len()
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.array.column_names().into_iter().map(str::to_owned).collect()
    }

    /// Returns a column by name, for libraries with Arrow's capsules.
    fn column(&self, name: &str) -> PyResult<ArrowArray> {
        let array = self.array.column_by_name(name).cloned();
        let names = || self.array.column_names().join(", ");
        let array = array.ok_or_else(|| {
            pyo3::exceptions::PyKeyError::new_err(format!(
                "no column `{name}`; there are {}",
                names()
            ))
        })?;
        Ok(ArrowArray { array })
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.array.data_type())
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        capsules(py, &self.array)
    }

    fn __repr__(&self) -> String {
        format!("<icefield.RecordBatch of {} rows>", self.array.len())
    }
}

/// A column of a batch of another library.
#[pyclass(frozen, module = "icefield")]
pub struct ArrowArray {
    array: ArrayRef,
}

#[pymethods]
impl ArrowArray {
    fn __len__(&self) -> usize {
        self.array.len()
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        capsules(py, &self.array)
    }
}

fn schema_capsule<'py>(py: Python<'py>, data_type: &DataType) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(data_type).map_err(raised)?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

fn capsules<'py>(
    py: Python<'py>,
    array: &dyn Array,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let (array, schema) = to_ffi(&array.to_data()).map_err(raised)?;
    Ok((
        PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
        PyCapsule::new_with_value(py, array, c"arrow_array")?,
    ))
}
