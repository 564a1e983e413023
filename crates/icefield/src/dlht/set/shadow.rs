//! Shadow inserts of sets.

use std::fmt;

use super::{DlhtWordSet, NoValue};
use crate::dlht::api::plain;
use crate::dlht::mode::{Shared, Threading};
use crate::dlht::shadow::Shadow;
use crate::table::NotShadowed;
use crate::types::Word;

/// A shadow insert into a set that has neither committed nor aborted, from [`DlhtWordSet::try_insert_shadow`]. Its key is
/// absent for all readers, and other inserts of the key are refused. Dropping this value aborts the insert; forgetting
/// it holds the key forever.
///
/// ```
/// let set = icefield::DlhtSet::<u64>::new();
/// let shadow = set.try_insert_shadow(1)?;
/// assert!(!set.contains(1), "the key is reserved, but invisible");
/// shadow.commit();
/// assert!(set.contains(1));
/// # Ok::<(), icefield::NotShadowed<()>>(())
/// ```
#[must_use = "dropping a shadow insert aborts it"]
pub struct DlhtSetShadow<'a, K: Word, M: Threading = Shared>(Shadow<'a, K, NoValue, M>);

impl<K: Word, M: Threading> DlhtWordSet<K, M> {
    /// Inserts `key` as a shadow (§3.2.2): reads and removals find the key absent, and other inserts of it are refused,
    /// until the insert commits or aborts.
    ///
    /// # Errors
    /// Returns [`NotShadowed::Occupied`] if the key is present, and [`NotShadowed::Shadowed`] if another shadow insert
    /// holds it.
    ///
    /// # Panics
    /// Panics if the set is full and may not grow, or if the system has no memory.
    ///
    /// ```
    /// use icefield::{DlhtSet, Error, NotShadowed};
    /// let set = DlhtSet::<u64>::new();
    /// let shadow = set.try_insert_shadow(1)?;
    /// assert!(matches!(set.checked_insert(1), Err(Error::Shadowed)));
    /// shadow.commit();
    /// assert_eq!(set.try_insert_shadow(1).err(), Some(NotShadowed::Occupied(())));
    /// # Ok::<(), NotShadowed<()>>(())
    /// ```
    pub fn try_insert_shadow(&self, key: K) -> Result<DlhtSetShadow<'_, K, M>, NotShadowed<()>> {
        plain(self.checked_insert_shadow(key))
    }

    /// Like [`DlhtWordSet::try_insert_shadow`], but returns an error instead of panicking.
    ///
    /// # Errors
    /// Returns [`Error::Full`](crate::Error::Full) if the set may not grow, and
    /// [`Error::NoMemory`](crate::Error::NoMemory) if memory runs out. The set is unchanged.
    ///
    /// ```
    /// let set = icefield::DlhtSet::<u64>::new();
    /// if let Ok(shadow) = set.checked_insert_shadow(1)? {
    ///     shadow.commit();
    /// }
    /// assert!(set.contains(1));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn checked_insert_shadow(
        &self,
        key: K,
    ) -> crate::Result<Result<DlhtSetShadow<'_, K, M>, NotShadowed<()>>> {
        Ok(match self.table.checked_insert_shadow(key, NoValue)? {
            Ok(shadow) => Ok(DlhtSetShadow(shadow)),
            Err(NotShadowed::Occupied(NoValue)) => Err(NotShadowed::Occupied(())),
            Err(NotShadowed::Shadowed) => Err(NotShadowed::Shadowed),
        })
    }
}

impl<K: Word, M: Threading> DlhtSetShadow<'_, K, M> {
    /// Returns the key.
    ///
    /// ```
    /// let set = icefield::DlhtSet::<u64>::new();
    /// assert_eq!(set.try_insert_shadow(1).map(|shadow| shadow.key()), Ok(1));
    /// ```
    pub fn key(&self) -> K {
        self.0.key()
    }

    /// Makes the key visible. Never needs room: the slot is already reserved.
    ///
    /// ```
    /// let set = icefield::DlhtSet::<u64>::new();
    /// set.try_insert_shadow(1)?.commit();
    /// assert!(set.contains(1));
    /// # Ok::<(), icefield::NotShadowed<()>>(())
    /// ```
    pub fn commit(self) {
        self.0.commit();
    }

    /// Removes the key, like dropping the shadow insert.
    ///
    /// ```
    /// let set = icefield::DlhtSet::<u64>::new();
    /// set.try_insert_shadow(1)?.abort();
    /// assert!(set.insert(1));
    /// # Ok::<(), icefield::NotShadowed<()>>(())
    /// ```
    pub fn abort(self) {
        self.0.abort();
    }
}

impl<K: Word, M: Threading> fmt::Debug for DlhtSetShadow<'_, K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtSetShadow").field("key", &self.key()).finish()
    }
}
