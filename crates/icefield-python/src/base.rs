//! The state of a map, and what its calls share. The calls are in `map`.

use std::path::PathBuf;

use icefield::{Cursor, Error};
use pyo3::prelude::*;

use crate::errors::{CorruptError, raised};
use crate::handle::Handle;
use crate::store::{Page, Store};
use crate::types::Type;

/// How a map was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Read,
    Append,
    Write,
}

/// A table that other processes may open, too.
#[derive(Clone)]
pub struct Shared {
    /// Absolute, because the current directory may change.
    pub path: PathBuf,
    pub uuid: u128,
}

/// The part of `icefield.Map` in Rust.
#[pyclass(frozen, subclass, module = "icefield._icefield")]
pub struct MapBase {
    pub handle: Handle<Store>,
    pub types: [Type; 2],
    pub path: Option<PathBuf>,
    pub design: &'static str,
    pub mode: Mode,
    pub verify: bool,
    /// The table for other processes, if the map is read-only.
    pub shared: Option<Shared>,
}

impl MapBase {
    pub fn key_type(&self) -> Type {
        self.types[0]
    }

    pub fn value_type(&self) -> Type {
        self.types[1]
    }

    /// Runs a call that may wait for a medium: without the interpreter's lock if the table is durable.
    pub fn call<T: Send>(
        &self,
        py: Python<'_>,
        f: impl Fn(&Store) -> icefield::Result<T> + Send + Sync,
    ) -> PyResult<T> {
        if self.path.is_none() {
            return self.handle.with(|store| f(store).map_err(raised));
        }
        let store = self.handle.table()?;
        py.detach(|| f(&store)).map_err(raised)
    }

    /// Returns an error if the map cannot be changed, before arguments are converted.
    pub fn check_writable(&self) -> PyResult<()> {
        if self.mode == Mode::Read { Err(raised(Error::ReadOnly)) } else { Ok(()) }
    }

    /// Returns about `count` records from a cursor on.
    pub fn page(&self, py: Python<'_>, cursor: Cursor, count: usize) -> PyResult<Page> {
        let types = self.types;
        let page = self.call(py, |store| store.scan(cursor, count, types))?;
        match &page.damage {
            None => Ok(page),
            Some(detail) => Err(CorruptError::new_err(format!(
                "{detail}; `check` lists every fault, the command `icefield salvage` copies the readable records"
            ))),
        }
    }
}
