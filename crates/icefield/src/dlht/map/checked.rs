//! Changes that return an error where the plain call panics.

use std::hash::{BuildHasher, Hash};

use super::api::{accepted, both};
use super::memory::RecordAllocator;
use super::record::Refused;
use super::write::{Put, When};
use super::{DlhtGuard, DlhtNamespace, DlhtRecordMap};
use crate::outcome::{Computed, Decision, Occupied};

both! {
    /// Like [`insert`](Self::insert), but returns an error, with the record, instead of panicking.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory) if the record or a larger index cannot be allocated, and
    /// [`Error::Full`](crate::Error::Full) if the options of the map forbid a larger index, and
    /// [`Error::Shadowed`](crate::Error::Shadowed) if a shadow insert holds the key. The map is unchanged.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// match map.checked_insert(1, 10, &guard) {
    ///     Ok(before) => assert_eq!(before, None),
    ///     Err(refused) => println!("{refused}: {} is kept elsewhere", refused.value),
    /// }
    /// ```
    pub fn checked_insert<'g>(
        &self,
        key: K,
        value: V,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<Option<&'g V>, Refused<K, V>>
    where
        K: 'g,
    {
        self.map().put_one(self.number(), key, value, When::Always, guard).map(Put::replaced)
    }

    /// Like [`try_insert`](Self::try_insert), but returns an error, with the record, instead of panicking.
    ///
    /// # Errors
    /// As [`checked_insert`](Self::checked_insert).
    ///
    /// ```
    /// use icefield::Occupied;
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.checked_try_insert(1, 10, &guard)?, Ok(()));
    /// assert_eq!(map.checked_try_insert(1, 11, &guard)?, Err(Occupied(&10)));
    /// # Ok::<(), icefield::Refused<u32, u32>>(())
    /// ```
    pub fn checked_try_insert<'g>(
        &self,
        key: K,
        value: V,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<Result<(), Occupied<&'g V>>, Refused<K, V>>
    where
        K: 'g,
    {
        self.map().put_one(self.number(), key, value, When::Absent, guard).map(accepted)
    }

    /// Like [`put`](Self::put), but returns an error, with the record, instead of panicking.
    ///
    /// # Errors
    /// As [`checked_insert`](Self::checked_insert).
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// map.checked_put(1, 10)?;
    /// assert_eq!(map.get_cloned(&1), Some(10));
    /// # Ok::<(), icefield::Refused<u32, u32>>(())
    /// ```
    pub fn checked_put(&self, key: K, value: V) -> Result<(), Refused<K, V>> {
        let guard = self.map().pin();
        self.map().put_one(self.number(), key, value, When::Always, &guard).map(drop)
    }

    /// Like [`update`](Self::update), but returns an error, with the record, instead of panicking.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory) if the record cannot be allocated; the map is unchanged. An
    /// update needs no room in the index.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert_eq!(map.checked_update(1, 11, &map.pin())?, Some(&10));
    /// # Ok::<(), icefield::Refused<i32, i32>>(())
    /// ```
    pub fn checked_update<'g>(
        &self,
        key: K,
        value: V,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<Option<&'g V>, Refused<K, V>>
    where
        K: 'g,
    {
        self.map().put_one(self.number(), key, value, When::Present, guard).map(Put::replaced)
    }

    /// Like [`get_or_insert_with`](Self::get_or_insert_with), but returns an error, with the record, instead of
    /// panicking.
    ///
    /// # Errors
    /// As [`checked_insert`](Self::checked_insert).
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, String>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.checked_get_or_insert_with(1, || "one".to_owned(), &guard)?, "one");
    /// # Ok::<(), icefield::Refused<u32, String>>(())
    /// ```
    pub fn checked_get_or_insert_with<'g>(
        &self,
        key: K,
        f: impl FnOnce() -> V,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<&'g V, Refused<K, V>>
    where
        K: 'g,
    {
        self.map().find_or_put(self.number(), key, |_| f(), guard)
    }

    /// Like [`compute`](Self::compute), but returns an error instead of panicking. The record is dropped then.
    ///
    /// # Errors
    /// As [`checked_insert`](Self::checked_insert).
    ///
    /// ```
    /// use icefield::{Computed, Decision};
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// assert_eq!(map.checked_compute(1, |_| Decision::Put(10), &map.pin())?, Computed::Put(None));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn checked_compute<'g>(
        &self,
        key: K,
        f: impl FnMut(Option<&V>) -> Decision<V>,
        guard: &'g DlhtGuard<'_>,
    ) -> crate::Result<Computed<&'g V>>
    where
        K: 'g,
    {
        self.map().compute_one(self.number(), key, f, guard)
    }

    /// Like [`compare_exchange`](Self::compare_exchange), but returns an error instead of panicking. The record is
    /// dropped then.
    ///
    /// # Errors
    /// As [`checked_update`](Self::checked_update).
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert_eq!(map.checked_compare_exchange(1, &10, 11, &map.pin())?, Ok(()));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn checked_compare_exchange<'g>(
        &self,
        key: K,
        current: &V,
        new: V,
        guard: &'g DlhtGuard<'_>,
    ) -> crate::Result<Result<(), Option<&'g V>>>
    where
        K: 'g,
        V: PartialEq,
    {
        self.map().exchange_one(self.number(), key, current, new, guard)
    }
}
