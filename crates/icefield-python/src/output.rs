//! Memory for results: NumPy arrays if NumPy is installed, and memory views otherwise.

use std::cell::UnsafeCell;
use std::ffi::c_int;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyByteArray;

use crate::column::type_of;
use crate::types::{Type, named};

/// A column of results of one width, in memory that Python owns.
pub struct Output {
    object: Py<PyAny>,
    buffer: PyUntypedBuffer,
}

impl Output {
    /// Returns a new column whose values are not set.
    pub fn new(py: Python<'_>, data_type: Type, len: usize) -> PyResult<Self> {
        let object = match numpy(py)? {
            Some(numpy) => numpy.call_method1("empty", (len, data_type.numpy))?,
            None => {
                let bytes = PyByteArray::new_with(py, len * data_type.width, |_| Ok(()))?;
                view(bytes.as_any(), data_type)?
            }
        };
        let buffer = PyUntypedBuffer::get(&object)?;
        Ok(Self { object: object.unbind(), buffer })
    }

    /// Returns a new column of `bool`.
    pub fn mask(py: Python<'_>, len: usize) -> PyResult<Self> {
        Self::new(py, named("bool", "mask")?, len)
    }

    /// Returns a column that a program has passed for its results.
    pub fn given(object: &Bound<'_, PyAny>, data_type: Type, len: usize) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object).map_err(|_| {
            PyTypeError::new_err("out: expected an object with the buffer protocol")
        })?;
        if type_of(buffer.format()) != Some(data_type) {
            let given = buffer.format().to_string_lossy();
            return Err(PyTypeError::new_err(format!(
                "out: expected {} ({}), got format `{given}`",
                data_type.numpy, data_type.name
            )));
        }
        if buffer.readonly() {
            return Err(PyValueError::new_err(
                "out: expected writable memory, got read-only memory",
            ));
        }
        if buffer.dimensions() != 1 || !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err(
                "out: expected a contiguous column of one dimension",
            ));
        }
        if buffer.item_count() != len {
            let given = buffer.item_count();
            return Err(PyValueError::new_err(format!(
                "out: expected {len} values, one for each key, got {given}"
            )));
        }
        Ok(Self { object: object.clone().unbind(), buffer })
    }

    /// Returns the memory.
    pub fn bytes(&mut self) -> &mut [u8] {
        if self.buffer.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: the buffer is contiguous and writable, and exists as long as `self`. Programs must not use it during
        // a call, as `docs/python.md` says.
        unsafe {
            std::slice::from_raw_parts_mut(self.buffer.buf_ptr().cast(), self.buffer.len_bytes())
        }
    }

    pub fn into_object(self) -> Py<PyAny> {
        self.object
    }
}

/// Returns the module `numpy`, if it is installed.
fn numpy(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyAny>>> {
    static NUMPY: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let module =
        NUMPY.get_or_init(py, || py.import("numpy").ok().map(|module| module.into_any().unbind()));
    Ok(module.as_ref().map(|module| module.bind(py)))
}

fn view<'py>(bytes: &Bound<'py, PyAny>, data_type: Type) -> PyResult<Bound<'py, PyAny>> {
    let view = bytes.py().import("builtins")?.call_method1("memoryview", (bytes,))?;
    let flat = view.call_method1("cast", ("B",))?;
    flat.call_method1("cast", (data_type.format.to_str().unwrap_or("B"),))
}

/// Memory of results whose number was not known before.
#[pyclass(frozen, module = "icefield")]
pub struct Memory {
    words: UnsafeCell<Vec<u64>>,
    len: isize,
}

// SAFETY: after its creation, the memory is used through buffers only, whose users have to take care of it themselves.
unsafe impl Sync for Memory {}

#[pymethods]
impl Memory {
    /// # Safety
    /// `view` is null, or points to the structure that Python wants filled.
    unsafe fn __getbuffer__(
        this: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let words = this.get().words.get();
        // SAFETY: `view` is as above; the vector is neither moved nor changed in length while `this` exists.
        let status = unsafe {
            let bytes = (*words).as_mut_ptr().cast();
            ffi::PyBuffer_FillInfo(view, this.as_ptr(), bytes, this.get().len * 8, 0, flags)
        };
        if status == 0 { Ok(()) } else { Err(PyErr::fetch(this.py())) }
    }
}

/// Returns words as a column of a type of 8 bytes, without a copy.
pub fn column_of(py: Python<'_>, words: Vec<u64>, data_type: Type) -> PyResult<Py<PyAny>> {
    let memory = Memory { len: words.len() as isize, words: UnsafeCell::new(words) };
    let memory = Bound::new(py, memory)?.into_any();
    let column = match numpy(py)? {
        // NumPy refuses memory without a value.
        Some(numpy) if memory.cast::<Memory>()?.get().len == 0 => {
            numpy.call_method1("empty", (0, data_type.numpy))?
        }
        Some(numpy) => numpy.call_method1("frombuffer", (memory, data_type.numpy))?,
        None => view(&memory, data_type)?,
    };
    Ok(column.unbind())
}
