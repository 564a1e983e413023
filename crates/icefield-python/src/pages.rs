//! Iterators over a map. They read a page at a time, so the map may change meanwhile.

use std::sync::Mutex;

use icefield::Cursor;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arrow::RecordBatch;
use crate::base::MapBase;
use crate::flat::Flat;
use crate::store::Page;

#[derive(Clone, Copy)]
enum What {
    Keys,
    Values,
    Items,
    Batches,
}

struct Progress {
    page: Option<(Flat, Flat)>,
    index: usize,
    next: Option<Cursor>,
}

/// An iterator over a map.
#[pyclass(frozen, module = "icefield._icefield")]
pub struct Pages {
    map: Py<MapBase>,
    what: What,
    size: usize,
    progress: Mutex<Progress>,
}

impl Pages {
    pub fn new(map: Py<MapBase>, what: &str, size: usize) -> PyResult<Self> {
        let what = match what {
            "keys" => What::Keys,
            "values" => What::Values,
            "items" => What::Items,
            _ => What::Batches,
        };
        if size == 0 {
            return Err(PyValueError::new_err("size: expected at least 1, got 0"));
        }
        map.get().handle.table()?;
        let progress = Progress { page: None, index: 0, next: Some(Cursor::START) };
        Ok(Self { map, what, size, progress: Mutex::new(progress) })
    }
}

#[pymethods]
impl Pages {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // A thread that waited here would hold the interpreter's lock, which the other thread needs.
        let mut progress = self.progress.try_lock().map_err(|_| {
            PyRuntimeError::new_err("two threads use one iterator; give each its own")
        })?;
        let map = self.map.get();
        loop {
            let Progress { page, index, next } = &mut *progress;
            if let Some((keys, values)) = page
                && *index < keys.len()
            {
                let [key_type, value_type] = map.types;
                let at = *index;
                *index += 1;
                return Ok(Some(match self.what {
                    What::Keys => key_type.object(py, keys.get(at))?,
                    What::Values => value_type.object(py, values.get(at))?,
                    What::Items | What::Batches => {
                        let key = key_type.object(py, keys.get(at))?;
                        let value = value_type.object(py, values.get(at))?;
                        PyTuple::new(py, [key, value])?.into_any()
                    }
                }));
            }
            let Some(cursor) = *next else {
                *page = None;
                return Ok(None);
            };
            let Page { keys, values, next: after, .. } = map.page(py, cursor, self.size)?;
            *next = after;
            if matches!(self.what, What::Batches) {
                if keys.len() == 0 {
                    continue;
                }
                let batch = RecordBatch::new(keys, values, map.types)?;
                return Ok(Some(Bound::new(py, batch)?.into_any()));
            }
            (*page, *index) = (Some((keys, values)), 0);
        }
    }
}
