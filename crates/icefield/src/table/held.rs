//! The shadow inserts of batches: the keys that the caller of a batch holds until the caller commits or aborts them.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, Result};

/// The reason why a shadow insert was not made.
///
/// ```
/// use icefield::{Dlht, NotShadowed};
/// let table = Dlht::<u64, u64>::new();
/// let held = table.try_insert_shadow(1, 10).expect("nobody has the key");
/// assert_eq!(table.try_insert_shadow(1, 11).err(), Some(NotShadowed::Shadowed));
/// held.commit();
/// assert_eq!(table.try_insert_shadow(1, 12).err(), Some(NotShadowed::Occupied(10)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotShadowed<V> {
    /// The key is present with this value.
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

/// The keys that a [`Shadows`](crate::Shadows) holds. Each [`Op::shadow`](crate::Op::shadow) of a batch names the set
/// to which its key is added.
///
/// ```
/// use icefield::{Dlht, OnFailure, Op};
/// let table = Dlht::<u64, u64>::new();
/// let shadows = table.shadows(); // Implements `AsRef<HeldKeys>`.
/// table.execute(&mut [Op::shadow(1, 10, &shadows)], OnFailure::Stop);
/// assert_eq!(table.get(1), None);
/// shadows.commit();
/// assert_eq!(table.get(1), Some(10));
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Debug)]
pub struct HeldKeys {
    /// The address of the table. The table cannot move, because [`Shadows`](crate::Shadows) borrows it.
    table: usize,
    /// The keys and values, as words.
    records: Mutex<Vec<(u64, u64)>>,
}

impl HeldKeys {
    /// Returns an empty set of keys of `table`.
    pub(crate) fn of<T>(table: &T) -> Self {
        Self { table: std::ptr::from_ref(table).addr(), records: Mutex::default() }
    }

    /// Locks and returns the held records.
    pub(crate) fn records(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an error unless these keys belong to `table`.
    pub(crate) fn must_be_of<T>(&self, table: &T) -> Result<()> {
        if self.table == std::ptr::from_ref(table).addr() {
            return Ok(());
        }
        let detail = "these are the shadow inserts of another table".to_owned();
        Err(Error::InvalidOption { option: "shadows", detail })
    }

    /// Adds a shadow insert that has just been made.
    pub(crate) fn add(&self, key: u64, value: u64) {
        self.records().push((key, value));
    }
}
