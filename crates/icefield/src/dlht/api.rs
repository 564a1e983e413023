//! Construction, and calls on single keys: inherent methods, which return plain values. `common` contains the common trait
//! [`Table`](crate::Table), whose methods return results.
//!
//! An in-memory table that may grow refuses almost no call, so a [`crate::Result`] around every value would burden
//! callers for little benefit. The methods of the trait return the few possible refusals as errors: a full table of
//! fixed size, a key held by a shadow insert, no memory left. In these cases the inherent methods of the same names
//! panic, like the collections of the standard library.

use super::DlhtTable;
use super::mode::Threading;
use super::options::DlhtOptions;
use crate::Result;
use crate::outcome::{Computed, Decision};
use crate::table::TryInsert;
use crate::types::{Counter, Word};

/// Returns a number of records as the standard library does.
#[inline(always)]
pub(super) fn to_usize(records: u64) -> usize {
    usize::try_from(records).unwrap_or(usize::MAX)
}

/// Returns the value, or panics with the reason of the refusal.
#[inline(always)]
#[track_caller]
pub(super) fn plain<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => refuse(&error),
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn refuse(error: &crate::Error) -> ! {
    panic!("{error}")
}

/// Calls on single keys, with the semantics of [`Table`](crate::Table).
///
/// # Panics
/// Calls that insert panic if the table is full and may not grow, if a shadow insert holds the key, or if the system
/// has no memory. A table without options always grows, so it refuses an insert only for lack of memory.
/// [`DlhtTable::checked_insert`] and the calls of [`Table`](crate::Table) return errors instead. [`DlhtTable::new`] and
/// [`DlhtTable::with_capacity`] panic if the system has no memory; [`DlhtOptions::build`] returns an error.
impl<K: Word, V: Word, M: Threading> DlhtTable<K, V, M> {
    /// Creates an empty table that grows as needed.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert!(table.is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Creates an empty table that takes `records` records before it must grow.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::with_capacity(1000);
    /// assert!(table.capacity() >= 1000);
    /// ```
    #[must_use]
    pub fn with_capacity(records: usize) -> Self {
        plain(Self::options().capacity(records).build())
    }

    /// Returns a builder for tables of this type.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::options().capacity(1000).fixed_size().build()?;
    /// assert!(table.capacity() >= 1000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn options() -> DlhtOptions<Self> {
        DlhtOptions::default()
    }

    /// Returns the value of `key` (§3.2.1). Usually reads one cache line. Stores no shared data and never waits, except
    /// while the table grows: then it also moves a bin, and may wait for a write to the bin that gets the records.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert_eq!((table.get(1), table.get(2)), (Some(10), None));
    /// ```
    #[inline]
    pub fn get(&self, key: K) -> Option<V> {
        self.get_one(key)
    }

    /// Passes the value of `key` to `f` and returns the result of `f`, which may call the table.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert_eq!(table.get_with(1, |value| value + 1), Some(11));
    /// ```
    #[inline]
    pub fn get_with<R>(&self, key: K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.get_one(key).map(|value| f(&value))
    }

    /// Returns whether `key` is present.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert!(table.contains(1));
    /// ```
    #[inline]
    pub fn contains(&self, key: K) -> bool {
        self.core.get(key.to_word()).is_some()
    }

    /// Returns whether `key` is present: [`DlhtTable::contains`] by its name in the standard library.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10)]);
    /// assert!(table.contains_key(1) && !table.contains_key(2));
    /// ```
    #[inline]
    pub fn contains_key(&self, key: K) -> bool {
        self.contains(key)
    }

    /// Inserts `key` if it is absent; otherwise returns the present value (§3.2.2). Lock-free.
    ///
    /// ```
    /// use icefield::Occupied;
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.try_insert(1, 10), Ok(()));
    /// assert_eq!(table.try_insert(1, 20), Err(Occupied(10)));
    /// ```
    #[inline(always)]
    pub fn try_insert(&self, key: K, value: V) -> TryInsert<V> {
        plain(self.try_insert_one(key, value))
    }

    /// Inserts `key` or replaces its value; returns the previous value.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.insert(1, 10), None);
    /// assert_eq!(table.insert(1, 20), Some(10));
    /// ```
    #[inline(always)]
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        plain(self.insert_one(key, value))
    }

    /// Like [`DlhtTable::insert`], but returns an error instead of panicking.
    ///
    /// # Errors
    /// Returns [`Error::Full`](crate::Error::Full) if the table may not grow,
    /// [`Error::Shadowed`](crate::Error::Shadowed) if a shadow insert holds the key, and
    /// [`Error::NoMemory`](crate::Error::NoMemory) if memory runs out. The table is unchanged.
    ///
    /// ```
    /// use icefield::{Dlht, Error};
    /// let table = Dlht::<u64, u64>::options().capacity(100).fixed_size().build()?;
    /// let refused = (0..).find_map(|key| table.checked_insert(key, key).err());
    /// assert!(matches!(refused, Some(Error::Full)));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn checked_insert(&self, key: K, value: V) -> Result<Option<V>> {
        self.insert_one(key, value)
    }

    /// Inserts `key` or replaces its value, without returning the previous value.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.put(1, 10);
    /// assert_eq!(table.get(1), Some(10));
    /// ```
    #[inline(always)]
    pub fn put(&self, key: K, value: V) {
        plain(self.insert_one(key, value));
    }

    /// Replaces the value if `key` is present; returns the previous one (§3.2.4, the paper's Put).
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.update(1, 10), None);
    /// assert!(table.is_empty());
    /// ```
    #[inline]
    pub fn update(&self, key: K, value: V) -> Option<V> {
        plain(self.update_one(key, value))
    }

    /// Removes `key`; returns the value that it had (§3.2.3). Its slot can be reused at once.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert_eq!(table.remove(1), Some(10));
    /// assert_eq!(table.remove(1), None);
    /// ```
    #[inline]
    pub fn remove(&self, key: K) -> Option<V> {
        self.remove_one(key)
    }

    /// Removes `key`, without returning the value that it had.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// table.delete(1);
    /// assert!(table.is_empty());
    /// ```
    #[inline]
    pub fn delete(&self, key: K) {
        self.remove_one(key);
    }

    /// Removes `key` if it is present and `f` returns `true` for its value; returns the value that it had. One atomic
    /// step: the value removed is the one for which `f` returned `true`. If another thread changes the value meanwhile,
    /// `f` is called again. No lock is held while `f` runs: it may call the table. Never panics, unless `f` does.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10)]);
    /// assert_eq!(table.remove_if(1, |value| *value > 10), None);
    /// assert_eq!(table.remove_if(1, |value| *value == 10), Some(10));
    /// assert!(table.is_empty());
    /// ```
    pub fn remove_if(&self, key: K, mut f: impl FnMut(&V) -> bool) -> Option<V> {
        let removed = self.compute(key, |value| match value {
            Some(value) if f(value) => Decision::Remove,
            _ => Decision::Keep,
        });
        match removed {
            Computed::Removed(value) => value,
            _ => None,
        }
    }

    /// Performs an atomic read-modify-write: passes the present value to `f` and executes its decision. If another
    /// thread changes the key meanwhile, `f` is called again. No lock is held while `f` runs: it may call the table.
    ///
    /// ```
    /// use icefield::{Computed, Decision};
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let doubled = table.compute(1, |value| Decision::Put(value.map_or(1, |value| value * 2)));
    /// assert_eq!(doubled, Computed::Put(None));
    /// ```
    pub fn compute(&self, key: K, f: impl FnMut(Option<&V>) -> Decision<V>) -> Computed<V> {
        plain(self.compute_one(key, f))
    }

    /// Replaces the value by `new` if it is `current`; otherwise returns the present value as `Err`.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert_eq!(table.compare_exchange(1, 10, 11), Ok(()));
    /// assert_eq!(table.compare_exchange(1, 10, 12), Err(Some(11)));
    /// ```
    pub fn compare_exchange(
        &self,
        key: K,
        current: V,
        new: V,
    ) -> std::result::Result<(), Option<V>> {
        let computed = self.compute(key, |value| match value {
            Some(value) if *value == current => Decision::Put(new),
            _ => Decision::Keep,
        });
        match computed {
            Computed::Put(_) => Ok(()),
            other => Err(other.before()),
        }
    }

    /// Adds `delta` to the value of `key`, wrapping around; an absent key counts as zero. Returns the previous value.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!((table.fetch_add(1, 5), table.fetch_add(1, 5)), (0, 5));
    /// ```
    pub fn fetch_add(&self, key: K, delta: V) -> V
    where
        V: Counter,
    {
        let computed = self.compute(key, |value| {
            Decision::Put(value.copied().unwrap_or(V::ZERO).wrapping_add(delta))
        });
        computed.before().unwrap_or(V::ZERO)
    }
}
