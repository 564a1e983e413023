//! Shadow inserts (§3.2.2, "Transactions"): records that stay invisible until their insert commits.

use std::fmt;

use super::DlhtTable;
use super::header::SlotState;
use super::mode::{Shared, Threading};
use super::write::{Outcome, Rule};
use crate::table::{HeldKeys, NotShadowed};
use crate::types::Word;
use crate::{Error, Result};

/// Converts the outcome of a shadow insert of `value`.
pub(super) fn shadowed<V: Word>(
    outcome: Outcome,
    value: V,
) -> Result<std::result::Result<(), NotShadowed<V>>> {
    Ok(match outcome {
        Outcome::Inserted => Ok(()),
        Outcome::Kept(Some(present)) | Outcome::Replaced(present) => {
            Err(NotShadowed::Occupied(V::from_word(present).unwrap_or(value)))
        }
        Outcome::Shadowed => Err(NotShadowed::Shadowed),
        Outcome::Kept(None) => return Err(Error::Full),
    })
}

/// A shadow insert that has neither committed nor aborted, from [`DlhtTable::try_insert_shadow`]. Its key is absent for
/// all readers, and other inserts of the key are refused. Dropping this value aborts the insert; forgetting it holds
/// the key forever.
///
/// ```
/// let table = icefield::Dlht::<u64, u64>::new();
/// let shadow = table.try_insert_shadow(1, 10)?;
/// assert_eq!(table.get(1), None); // The record is invisible, and its key is reserved.
/// shadow.commit();
/// assert_eq!(table.get(1), Some(10));
/// # Ok::<(), icefield::NotShadowed<u64>>(())
/// ```
#[must_use = "dropping a shadow insert aborts it"]
pub struct Shadow<'a, K: Word, V: Word, M: Threading = Shared> {
    table: &'a DlhtTable<K, V, M>,
    key: K,
    value: V,
}

impl<'a, K: Word, V: Word, M: Threading> Shadow<'a, K, V, M> {
    pub(super) fn insert(
        table: &'a DlhtTable<K, V, M>,
        key: K,
        value: V,
    ) -> Result<Result<Self, NotShadowed<V>>> {
        let (word, new) = (value.to_word(), SlotState::Shadow);
        let outcome = table.core.store(key.to_word(), word, Rule::IfAbsent, new)?;
        Ok(shadowed(outcome, value)?.map(|()| Self { table, key, value }))
    }

    /// Returns the key.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.try_insert_shadow(1, 10).map(|shadow| shadow.key()), Ok(1));
    /// ```
    pub fn key(&self) -> K {
        self.key
    }

    /// Returns the value.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.try_insert_shadow(1, 10).map(|shadow| shadow.value()), Ok(10));
    /// ```
    pub fn value(&self) -> V {
        self.value
    }

    /// Makes the record visible. Never needs room: the slot is already reserved.
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
        self.resolve(SlotState::Valid);
        std::mem::forget(self);
    }

    /// Removes the record, like dropping the shadow insert.
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

    fn resolve(&self, new: SlotState) {
        let settled = self.table.core.resolve(self.key.to_word(), new);
        debug_assert!(settled, "only its holder may commit or abort a shadow insert");
    }
}

impl<K: Word, V: Word, M: Threading> Drop for Shadow<'_, K, V, M> {
    fn drop(&mut self) {
        self.resolve(SlotState::Invalid);
    }
}

impl<K: Word, V: Word, M: Threading> fmt::Debug for Shadow<'_, K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shadow").field("key", &self.key).field("value", &self.value).finish()
    }
}

/// Holds the shadow inserts of batches until they commit or abort, from [`DlhtTable::shadows`]. Dropping this value
/// aborts all shadow inserts that it holds; forgetting it holds their keys forever.
///
/// ```
/// use icefield::{Dlht, NotShadowed, OnFailure, Op};
/// let table = Dlht::from_iter([(3_u64, 30_u64)]);
/// let shadows = table.shadows();
/// let mut ops: Vec<_> = (1..4).map(|key| Op::shadow(key, 10 * key, &shadows)).collect();
/// assert_eq!(table.execute(&mut ops, OnFailure::Stop), 3, "key 3 is present");
/// assert!(matches!(ops[2], Op::Shadow(.., Err(NotShadowed::Occupied(30)))));
/// shadows.abort();
/// assert_eq!((table.get(1), table.try_insert(1, 11)), (None, Ok(())));
/// ```
#[must_use = "dropping shadow inserts aborts them"]
pub struct Shadows<'a, K: Word, V: Word, M: Threading = Shared> {
    table: &'a DlhtTable<K, V, M>,
    held: HeldKeys,
}

impl<'a, K: Word, V: Word, M: Threading> Shadows<'a, K, V, M> {
    pub(super) fn of(table: &'a DlhtTable<K, V, M>) -> Self {
        Self { table, held: HeldKeys::of(table) }
    }

    /// Returns the number of shadow inserts held.
    ///
    /// ```
    /// use icefield::{OnFailure, Op};
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let shadows = table.shadows();
    /// assert!(shadows.is_empty());
    /// table.execute(&mut [Op::shadow(1, 10, &shadows)], OnFailure::Stop);
    /// assert_eq!((shadows.len(), table.len()), (1, 0));
    /// ```
    pub fn len(&self) -> usize {
        self.held.records().len()
    }

    /// Returns whether no shadow insert is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Publishes all records that are held now, one after the other in the order of their inserts: other threads may
    /// see the first record before the last. Never needs room: the slots are already reserved.
    ///
    /// ```
    /// use icefield::{OnFailure, Op};
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let shadows = table.shadows();
    /// table.execute(&mut [Op::shadow(1, 10, &shadows)], OnFailure::Stop);
    /// assert_eq!(table.get(1), None);
    /// shadows.commit();
    /// assert_eq!(table.get(1), Some(10));
    /// ```
    pub fn commit(&self) {
        self.resolve(SlotState::Valid);
    }

    /// Removes all records that are held now.
    ///
    /// ```
    /// use icefield::{OnFailure, Op};
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let shadows = table.shadows();
    /// table.execute(&mut [Op::shadow(1, 10, &shadows)], OnFailure::Stop);
    /// shadows.abort();
    /// assert_eq!(table.try_insert(1, 11), Ok(()));
    /// ```
    pub fn abort(&self) {
        self.resolve(SlotState::Invalid);
    }

    /// Takes out the shadow insert of `key`, if it is held, to commit or abort it separately.
    ///
    /// ```
    /// use icefield::{OnFailure, Op};
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let shadows = table.shadows();
    /// let mut ops = [Op::shadow(1, 10, &shadows), Op::shadow(2, 20, &shadows)];
    /// table.execute(&mut ops, OnFailure::Stop);
    /// shadows.take(2).expect("held").commit();
    /// drop(shadows);
    /// assert_eq!((table.get(1), table.get(2)), (None, Some(20)));
    /// ```
    pub fn take(&self, key: K) -> Option<Shadow<'a, K, V, M>> {
        let word = key.to_word();
        let mut records = self.held.records();
        let at = records.iter().position(|&(held, _)| held == word)?;
        let value = V::from_word(records[at].1)?;
        records.remove(at);
        Some(Shadow { table: self.table, key, value })
    }

    fn resolve(&self, new: SlotState) {
        // Take the records and release the lock first, so that no table operation runs under the lock.
        let records = std::mem::take(&mut *self.held.records());
        for (key, _) in records {
            let settled = self.table.core.resolve(key, new);
            debug_assert!(settled, "only its holder may commit or abort a shadow insert");
        }
    }
}

impl<K: Word, V: Word, M: Threading> AsRef<HeldKeys> for Shadows<'_, K, V, M> {
    fn as_ref(&self) -> &HeldKeys {
        &self.held
    }
}

impl<K: Word, V: Word, M: Threading> Drop for Shadows<'_, K, V, M> {
    fn drop(&mut self) {
        self.abort();
    }
}

impl<K: Word, V: Word, M: Threading> fmt::Debug for Shadows<'_, K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shadows").field("held", &self.held.records()).finish_non_exhaustive()
    }
}
