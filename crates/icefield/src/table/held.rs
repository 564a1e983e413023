//! What shadow inserts in batches leave with their caller. The tables that have them settle it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, Result};

/// Why a shadow insert was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotShadowed<V> {
    /// The key is present; holds its value.
    Occupied(V),
    /// Another shadow insert holds the key.
    Shadowed,
}

impl<V> fmt::Display for NotShadowed<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Occupied(_) => "the key is present",
            Self::Shadowed => "another shadow insert holds the key",
        })
    }
}

impl<V: fmt::Debug> std::error::Error for NotShadowed<V> {}

/// The keys that a [`Shadows`](crate::Shadows) holds, as the operations of a batch refer to them ([`Op::shadow`](crate::Op::shadow)).
#[derive(Debug)]
pub struct HeldKeys {
    /// Where the table is, which cannot move while somebody borrows this.
    table: usize,
    /// Keys and values, as words.
    records: Mutex<Vec<(u64, u64)>>,
}

impl HeldKeys {
    /// No keys yet, of `table`.
    pub(crate) fn of<T>(table: &T) -> Self {
        Self { table: std::ptr::from_ref(table).addr(), records: Mutex::default() }
    }

    /// What is held now.
    pub(crate) fn records(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses the keys of another table.
    pub(crate) fn must_be_of<T>(&self, table: &T) -> Result<()> {
        if self.table == std::ptr::from_ref(table).addr() {
            return Ok(());
        }
        let detail = "these are the shadow inserts of another table".to_owned();
        Err(Error::InvalidOption { option: "shadows", detail })
    }

    /// Takes over a shadow insert that has just been made.
    pub(crate) fn add(&self, key: u64, value: u64) {
        self.records().push((key, value));
    }
}
