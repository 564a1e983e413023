//! The class `Map`: single operations, and the calls of whole tables. `icefield/_map.py` adds the rest of the protocol
//! of mappings.

use std::path::PathBuf;

use icefield::{AnyOptions, AnyTable, Cursor};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::arrow::RecordBatch;
use crate::base::{MapBase, Mode, Shared};
use crate::batches;
use crate::errors::{raised, replaced};
use crate::flat::Flat;
use crate::opening::{Request, in_memory, parsed};
use crate::pages::Pages;
use crate::store::Store;
use crate::types::named;

#[pymethods]
impl MapBase {
    #[new]
    #[pyo3(signature = (path, key, value, table, mode, durability, sync, capacity, max_bytes, verify))]
    #[expect(clippy::too_many_arguments, reason = "the options of `Map.open`")]
    fn new(
        py: Python<'_>,
        path: Option<PathBuf>,
        key: Option<&str>,
        value: Option<&str>,
        table: Option<String>,
        mode: &str,
        durability: &str,
        sync: &str,
        capacity: Option<u64>,
        max_bytes: Option<u64>,
        verify: bool,
    ) -> PyResult<Self> {
        let key = key.map(|name| named(name, "key")).transpose()?;
        let value = value.map(|name| named(name, "value")).transpose()?;
        if key.is_some_and(|key| !key.is_key()) {
            return Err(PyValueError::new_err(
                "key: floats cannot be keys: equal floats may have different bits",
            ));
        }
        let mode = match mode {
            "r" => Mode::Read,
            "a" => Mode::Append,
            "w" => Mode::Write,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "mode: expected one of r, a, w, got `{mode}`"
                )));
            }
        };
        let Some(path) = path else {
            let (Some(key), Some(value)) = (key, value) else {
                return Err(PyTypeError::new_err(
                    "expected `key` and `value`, such as key=\"str\", value=\"u64\"",
                ));
            };
            return in_memory([key, value], capacity);
        };
        let options = AnyOptions {
            capacity,
            durability: parsed(durability, "durability")?,
            sync: parsed(sync, "sync")?,
            max_bytes,
            verify,
        };
        let request = Request { path, types: [key, value], design: table, mode, options };
        py.detach(|| request.open())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.call(py, Store::len).map(|len| usize::try_from(len).unwrap_or(usize::MAX))
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, datum) = (key.py(), self.key_type().datum(key, "key")?);
        self.handle.with(|store| {
            let value = store.get_with(datum.bytes(), |bytes| self.value_type().object(py, bytes));
            value.map_err(raised)?.unwrap_or_else(|| Err(PyKeyError::new_err(key.clone().unbind())))
        })
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let datum = self.key_type().datum(key, "key")?;
        self.handle.with(|store| store.contains(datum.bytes()).map_err(raised))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check_writable()?;
        let datum = self.key_type().datum(key, "key")?;
        let value = self.value_type().datum(value, "value")?;
        self.call(key.py(), |store| store.put(datum.bytes(), value.bytes()))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check_writable()?;
        let datum = self.key_type().datum(key, "key")?;
        let removed = self.call(key.py(), |store| store.remove(datum.bytes()))?;
        removed.map(drop).ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    #[pyo3(signature = (key, default = None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, datum) = (key.py(), self.key_type().datum(key, "key")?);
        let found = self.handle.with(|store| {
            let value = store.get_with(datum.bytes(), |bytes| self.value_type().object(py, bytes));
            value.map_err(raised)?.transpose()
        })?;
        Ok(found.or(default))
    }

    #[pyo3(signature = (key, default = None, /))]
    fn setdefault<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.check_writable()?;
        let datum = self.key_type().datum(key, "key")?;
        // No type has the value `None`, so this is a `TypeError`.
        let default = default.unwrap_or_else(|| key.py().None().into_bound(key.py()));
        let new = self.value_type().datum(&default, "default")?;
        match self.call(key.py(), |store| store.try_insert(datum.bytes(), new.bytes()))? {
            Some(present) => self.value_type().object(key.py(), &present),
            None => self.value_type().object(key.py(), new.bytes()),
        }
    }

    /// Removes a key; returns its value, or `None`.
    fn _take<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.check_writable()?;
        let datum = self.key_type().datum(key, "key")?;
        let removed = self.call(key.py(), |store| store.remove(datum.bytes()))?;
        removed.map(|value| self.value_type().object(key.py(), &value)).transpose()
    }

    #[pyo3(signature = (key, by))]
    fn increment<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        by: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.check_writable()?;
        let (value_type, datum) = (self.value_type(), self.key_type().datum(key, "key")?);
        if value_type
            .sum(None, &crate::types::Datum::Word([0; 8], value_type.width as u8))
            .is_none()
        {
            return Err(PyTypeError::new_err(format!(
                "expected a map of numbers, got values of {}",
                value_type.name
            )));
        }
        let by = value_type.datum(by, "by")?;
        let sum = self.call(key.py(), |store| {
            let mut sum = None;
            store.compute(datum.bytes(), &mut |value| {
                sum = value_type.sum(value, &by);
                sum.clone()
            })?;
            Ok(sum)
        })?;
        let sum = sum.ok_or_else(|| {
            PyValueError::new_err(format!(
                "expected a sum within {}; the value is unchanged",
                value_type.name
            ))
        })?;
        value_type.object(key.py(), &sum)
    }

    #[pyo3(signature = (key, expected, new))]
    fn compare_and_set(
        &self,
        key: &Bound<'_, PyAny>,
        expected: Option<&Bound<'_, PyAny>>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.check_writable()?;
        let datum = self.key_type().datum(key, "key")?;
        let expected =
            expected.map(|expected| self.value_type().datum(expected, "expected")).transpose()?;
        let new = self.value_type().datum(new, "new")?;
        self.call(key.py(), |store| {
            let mut is_set = false;
            store.compute(datum.bytes(), &mut |value| {
                is_set = value == expected.as_ref().map(crate::types::Datum::bytes);
                is_set.then(|| new.bytes().to_vec())
            })?;
            Ok(is_set)
        })
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.check_writable()?;
        self.call(py, Store::clear)
    }

    fn reserve(&self, py: Python<'_>, additional: u64) -> PyResult<()> {
        self.check_writable()?;
        self.call(py, |store| store.reserve(additional))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |store| store.as_durable().map_or(Ok(()), AnyTable::sync))
    }

    /// Returns the faults that a check of every invariant and checksum finds.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.call(py, |store| {
            let Some(table) = store.as_durable() else { return Ok(Vec::new()) };
            let mut report = table.check()?;
            if report.leaked > 0 {
                report.faults.push(format!("{} leaked blocks", report.leaked));
            }
            Ok(report.faults)
        })
    }

    /// Copies the table's directory while it is in use.
    fn backup(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        if self.path.is_none() {
            return Err(PyTypeError::new_err(
                "expected a durable map: a map in memory has no files",
            ));
        }
        self.call(py, |store| {
            store.as_durable().map_or(Ok(()), |table| table.backup(&path).map(drop))
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.close(py)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }

    #[getter]
    fn table(&self) -> &'static str {
        self.design
    }

    #[getter]
    fn mode(&self) -> &'static str {
        match self.mode {
            Mode::Read => "r",
            Mode::Append => "a",
            Mode::Write => "w",
        }
    }

    #[getter(key_type)]
    fn key_name(&self) -> &'static str {
        self.key_type().name
    }

    #[getter(value_type)]
    fn value_name(&self) -> &'static str {
        self.value_type().name
    }

    /// Returns the arguments with which a pickled map is opened again.
    fn _reopen_arguments(&self) -> PyResult<(PathBuf, u128, bool)> {
        let Some(Shared { path, uuid }) = self.shared.clone() else {
            return Err(PyTypeError::new_err(
                "only a durable map that was opened with mode=\"r\" can be pickled: another process cannot share a \
                 writable map or one in memory",
            ));
        };
        self.handle.table()?;
        Ok((path, uuid, self.verify))
    }

    /// Returns an error if this is not the pickled table.
    fn _check_uuid(&self, uuid: u128) -> PyResult<()> {
        match &self.shared {
            Some(shared) if shared.uuid != uuid => Err(replaced(&shared.path, "table", "pickled")),
            _ => Ok(()),
        }
    }

    #[pyo3(signature = (keys, default = None, out = None))]
    fn get_many(
        &self,
        keys: &Bound<'_, PyAny>,
        default: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        batches::get(self, keys, default, out)
    }

    fn contains_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        batches::contains(self, keys)
    }

    fn put_many(&self, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        batches::put(self, keys, values)
    }

    fn insert_many(
        &self,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        batches::insert(self, keys, values)
    }

    fn remove_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        batches::remove(self, keys)
    }

    fn to_arrow(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        let [mut keys, mut values] = self.types.map(|data_type| Flat::with_capacity(data_type, 0));
        let mut next = Some(Cursor::START);
        while let Some(cursor) = next {
            let page = self.page(py, cursor, batches::PIECE)?;
            keys.append(&page.keys);
            values.append(&page.values);
            next = page.next;
            py.check_signals()?;
        }
        RecordBatch::new(keys, values, self.types)
    }

    /// Returns an iterator over keys, values, records or batches.
    #[pyo3(signature = (what, size))]
    fn _pages(this: Py<Self>, what: &str, size: usize) -> PyResult<Pages> {
        Pages::new(this, what, size)
    }
}
