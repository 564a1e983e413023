//! Shadow inserts (§3.2.2, "Transactions"): a record that nobody sees before its insert commits.

use std::fmt;

use super::DlhtTable;
use super::header::SlotState;
use super::mode::{Mode, Shared};
use super::write::{Outcome, Rule};
use crate::key::Word;
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

/// A shadow insert that has neither committed nor aborted, from [`DlhtTable::try_insert_shadow`]: its key is absent for
/// every reader and held against every other insert. Dropping it aborts; forgetting it holds the key for ever.
#[must_use = "dropping a shadow insert aborts it"]
pub struct Shadow<'a, K: Word, V: Word, M: Mode = Shared> {
    table: &'a DlhtTable<K, V, M>,
    key: K,
    value: V,
}

impl<'a, K: Word, V: Word, M: Mode> Shadow<'a, K, V, M> {
    pub(super) fn insert(
        table: &'a DlhtTable<K, V, M>,
        key: K,
        value: V,
    ) -> Result<Result<Self, NotShadowed<V>>> {
        let (word, new) = (value.to_word(), SlotState::Shadow);
        Ok(match table.core.store(key.to_word(), word, Rule::IfAbsent, new)? {
            Outcome::Inserted => Ok(Self { table, key, value }),
            Outcome::Kept(Some(present)) | Outcome::Replaced(present) => {
                Err(NotShadowed::Occupied(V::from_word(present).unwrap_or(value)))
            }
            Outcome::Shadowed => Err(NotShadowed::Shadowed),
            Outcome::Kept(None) => return Err(Error::Full),
        })
    }

    /// The key.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.try_insert_shadow(1, 10).map(|shadow| shadow.key()), Ok(1));
    /// ```
    pub fn key(&self) -> K {
        self.key
    }

    /// The value.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.try_insert_shadow(1, 10).map(|shadow| shadow.value()), Ok(10));
    /// ```
    pub fn value(&self) -> V {
        self.value
    }

    /// Makes the record visible. Never waits for room: the slot is there.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let shadow = table.try_insert_shadow(1, 10)?;
    /// assert_eq!(table.get(1), None);
    /// shadow.commit();
    /// assert_eq!(table.get(1), Some(10));
    /// # Ok::<(), icefield::NotShadowed<u64>>(())
    /// ```
    pub fn commit(self) {
        self.settle(SlotState::Valid);
        std::mem::forget(self);
    }

    /// Takes the record away; the same as dropping.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.try_insert_shadow(1, 10)?.abort();
    /// assert_eq!(table.try_insert(1, 11), Ok(()));
    /// # Ok::<(), icefield::NotShadowed<u64>>(())
    /// ```
    pub fn abort(self) {
        drop(self);
    }

    fn settle(&self, new: SlotState) {
        let settled = self.table.core.resolve(self.key.to_word(), new);
        debug_assert!(settled, "nobody else may settle a shadow insert");
    }
}

impl<K: Word, V: Word, M: Mode> Drop for Shadow<'_, K, V, M> {
    fn drop(&mut self) {
        self.settle(SlotState::Invalid);
    }
}

impl<K: Word, V: Word, M: Mode> fmt::Debug for Shadow<'_, K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shadow").field("key", &self.key).field("value", &self.value).finish()
    }
}
