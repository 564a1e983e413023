//! The traits of the standard library's maps.

use std::fmt;

use super::api::plain;
use super::core::Core;
use super::mode::Threading;
use super::plan::Plan;
use super::{DlhtIter, DlhtTable};
use crate::Result;
use crate::outcome::{Cursor, SCAN_PAGE};
use crate::types::Word;

impl<K: Word, V: Word, M: Threading> Default for DlhtTable<K, V, M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Word, V: Word, M: Threading> fmt::Debug for DlhtTable<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Copies the records, which other threads may change meanwhile: the copy is as consistent as [`DlhtTable::iter`]. For
/// a copy of all records at one moment, collect a [`DlhtTable::snapshot`].
///
/// # Panics
/// [`DlhtTable::try_clone`] returns an error where `clone` panics: if the system has no memory.
impl<K: Word, V: Word, M: Threading> Clone for DlhtTable<K, V, M> {
    fn clone(&self) -> Self {
        plain(self.try_clone())
    }
}

impl<K: Word, V: Word, M: Threading> DlhtTable<K, V, M> {
    /// Like `clone`: copies the records to a new table with the same options, but returns an error if memory runs out.
    /// The copy of a table of fixed size, or with a limit of its bytes, has an index of the same size, or a larger one if
    /// the records do not fit into that: a random hash function may spread them less evenly. Shadow inserts are not
    /// copied.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory).
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10)]);
    /// let copy = table.try_clone()?;
    /// table.insert(1, 11);
    /// assert_eq!(copy.get(1), Some(10));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_clone(&self) -> Result<Self> {
        let plan = &self.core.plan;
        let (fixed, max_bytes) = (plan.fixed, plan.max_bytes);
        let is_limited = fixed || max_bytes != u64::MAX;
        let records = if is_limited { self.core.capacity() } else { self.core.len() };
        // A random hash function may spread the same records less evenly, so the limits apply after the copy.
        let unlimited = Plan { fixed: false, max_bytes: u64::MAX, ..plan.clone() };
        let mut copy = Self { core: Core::new(unlimited, records)?, types: self.types };
        let mut next = Some(Cursor::START);
        while let Some(cursor) = next {
            let page = self.page(cursor, SCAN_PAGE)?;
            copy.put_all(&page.records)?;
            next = page.next;
        }
        (copy.core.plan.fixed, copy.core.plan.max_bytes) = (fixed, max_bytes);
        Ok(copy)
    }
}

/// Compares the records, in any order. The result is exact if no other thread writes meanwhile.
impl<K: Word, V: Word, M: Threading> PartialEq for DlhtTable<K, V, M> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.iter().all(|(key, value)| other.get(key).is_some_and(|found| found == value))
    }
}

impl<K: Word, V: Word + Eq, M: Threading> Eq for DlhtTable<K, V, M> {}

impl<K: Word, V: Word, M: Threading, const N: usize> From<[(K, V); N]> for DlhtTable<K, V, M> {
    fn from(records: [(K, V); N]) -> Self {
        Self::from_iter(records)
    }
}

impl<K: Word, V: Word, M: Threading> FromIterator<(K, V)> for DlhtTable<K, V, M> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(records: I) -> Self {
        let records = records.into_iter();
        let mut table = Self::with_capacity(records.size_hint().0);
        table.extend(records);
        table
    }
}

impl<K: Word, V: Word, M: Threading> Extend<(K, V)> for DlhtTable<K, V, M> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, records: I) {
        let mut records = records.into_iter();
        loop {
            let some: Vec<_> = records.by_ref().take(SCAN_PAGE).collect();
            if some.is_empty() {
                return;
            }
            self.put_batch(&some);
        }
    }
}

impl<'r, K: Word, V: Word, M: Threading> Extend<(&'r K, &'r V)> for DlhtTable<K, V, M> {
    fn extend<I: IntoIterator<Item = (&'r K, &'r V)>>(&mut self, records: I) {
        self.extend(records.into_iter().map(|(&key, &value)| (key, value)));
    }
}

impl<'a, K: Word, V: Word, M: Threading> IntoIterator for &'a DlhtTable<K, V, M> {
    type Item = (K, V);
    type IntoIter = DlhtIter<'a, K, V, M>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
