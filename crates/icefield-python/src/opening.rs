//! Opening of maps.

use std::path::PathBuf;

use icefield::{AnyOptions, AnyTable, Dlht, DlhtMap, Error};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::base::{MapBase, Mode, Shared};
use crate::errors::{raised, replaced};
use crate::handle::Handle;
use crate::store::Store;
use crate::types::{Type, named};

/// The arguments of `Map.open`.
pub struct Request {
    pub path: PathBuf,
    pub types: [Option<Type>; 2],
    pub design: Option<String>,
    pub mode: Mode,
    pub options: AnyOptions,
}

impl Request {
    /// Opens or creates the table.
    pub fn open(&self) -> PyResult<MapBase> {
        let opened = match self.mode {
            Mode::Read => AnyTable::open_read_only_with(&self.path, &self.options),
            Mode::Append | Mode::Write => AnyTable::open_with(&self.path, &self.options),
        };
        let table = match opened {
            Err(Error::NotFound { .. }) if self.mode != Mode::Read => self.create()?,
            opened => opened.map_err(raised)?,
        };
        let types = self.checked(&table)?;
        if self.mode == Mode::Write {
            table.clear().map_err(raised)?;
        }
        let design = table.design();
        let shared = match self.mode {
            Mode::Read => Some(Shared {
                path: std::path::absolute(&self.path)?,
                uuid: table.uuid().map_err(raised)?,
            }),
            Mode::Append | Mode::Write => None,
        };
        let reopen = shared.clone().map(|Shared { path, uuid }| {
            let options = self.options.clone();
            Box::new(move || {
                let table = AnyTable::open_read_only_with(&path, &options).map_err(raised)?;
                if table.uuid().map_err(raised)? != uuid {
                    return Err(replaced(&path, "table", "opened"));
                }
                Ok(Store::durable(table))
            }) as _
        });
        let handle = Handle::new(Store::durable(table), reopen);
        let (path, mode, verify) = (Some(self.path.clone()), self.mode, self.options.verify);
        Ok(MapBase { handle, types, path, design, mode, verify, shared })
    }

    fn create(&self) -> PyResult<AnyTable> {
        let [Some(key), Some(value)] = self.types else {
            return Err(PyTypeError::new_err(format!(
                "{}: no table here, and a new one needs `key` and `value`, such as key=\"str\", value=\"u64\"",
                self.path.display()
            )));
        };
        let design = self.design.as_deref().unwrap_or("dash-eh");
        AnyTable::create(&self.path, design, key.name, value.name, &self.options).map_err(raised)
    }

    /// Returns the types of an open table, and an error if others were requested.
    fn checked(&self, table: &AnyTable) -> PyResult<[Type; 2]> {
        let path = self.path.display();
        let found = [table.key_type(), table.value_type()];
        for (requested, (found, what)) in self.types.iter().zip(found.iter().zip(["key", "value"]))
        {
            if let Some(requested) = requested.filter(|requested| requested.name != *found) {
                let requested = requested.name;
                return Err(PyTypeError::new_err(format!(
                    "{path}: expected {what} `{found}`, got `{requested}`"
                )));
            }
        }
        if let Some(design) = self.design.as_deref().filter(|design| *design != table.design()) {
            let found = table.design();
            return Err(PyTypeError::new_err(format!(
                "{path}: expected table `{found}`, got `{design}`"
            )));
        }
        let [key, value] = found;
        let known = |name| {
            named(name, "type").map_err(|_| {
                PyTypeError::new_err(format!(
                    "{path}: a table with the type `{name}` cannot be used from Python"
                ))
            })
        };
        Ok([known(key)?, known(value)?])
    }
}

/// Returns the value of an option.
pub fn parsed<T: std::str::FromStr<Err = String>>(text: &str, what: &str) -> PyResult<T> {
    text.parse().map_err(|error| PyValueError::new_err(format!("{what}: {error}")))
}

/// Returns a map in memory.
pub fn in_memory(types: [Type; 2], capacity: Option<u64>) -> PyResult<MapBase> {
    let capacity = usize::try_from(capacity.unwrap_or(0)).unwrap_or(usize::MAX);
    let are_words = types.iter().all(|data_type| data_type.width > 0);
    let (store, design) = if are_words {
        let table = Dlht::options().capacity(capacity).build().map_err(raised)?;
        (Store::Words { table, width: types[1].width }, "dlht")
    } else {
        let table = DlhtMap::new();
        table.try_reserve(capacity).map_err(raised)?;
        (Store::Records(table), "dlht-map")
    };
    let handle = Handle::new(store, None);
    let mode = Mode::Append;
    Ok(MapBase { handle, types, path: None, design, mode, verify: false, shared: None })
}
