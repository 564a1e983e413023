//! Changes of single keys.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::api::{accepted, asked, both};
use super::memory::RecordAllocator;
use super::record::Record;
use super::write::When;
use super::{DlhtGuard, DlhtNamespace, DlhtRecordMap};
use crate::dlht::api::plain;
use crate::outcome::{Computed, Decision, Occupied};

both! {
    /// Inserts `key` if it is absent; otherwise returns the present value.
    ///
    /// ```
    /// use icefield::Occupied;
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.try_insert(1, 10, &guard), Ok(()));
    /// assert_eq!(map.try_insert(1, 20, &guard), Err(Occupied(&10)));
    /// ```
    pub fn try_insert<'g>(
        &self,
        key: K,
        value: V,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<(), Occupied<&'g V>>
    where
        K: 'g,
    {
        accepted(asked(self.map().put_one(self.number(), key, value, When::Absent, guard)))
    }

    /// Inserts `key` or replaces its value; returns the previous value.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.insert(1, 10, &guard), None);
    /// assert_eq!(map.insert(1, 20, &guard), Some(&10));
    /// ```
    pub fn insert<'g>(
        &self,
        key: K,
        value: V,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g V>
    where
        K: 'g,
    {
        asked(self.map().put_one(self.number(), key, value, When::Always, guard)).replaced()
    }

    /// Inserts `key` or replaces its value, without returning the previous value. Needs no guard.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// map.put(1, 10);
    /// assert_eq!(map.get_cloned(&1), Some(10));
    /// ```
    pub fn put(&self, key: K, value: V) {
        let guard = self.map().pin();
        asked(self.map().put_one(self.number(), key, value, When::Always, &guard));
    }

    /// Returns the value of `key`; if `key` is absent, inserts `value` first.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.get_or_insert(1, 10, &guard), &10);
    /// assert_eq!(map.get_or_insert(1, 20, &guard), &10);
    /// ```
    pub fn get_or_insert<'g>(
        &self,
        key: K,
        value: V,
        guard: &'g DlhtGuard<'_>,
    ) -> &'g V
    where
        K: 'g,
    {
        self.get_or_insert_with(key, || value, guard)
    }

    /// Returns the value of `key`; if absent, inserts the value that `f` returns. No lock is held while `f`
    /// runs. If another thread inserts the key meanwhile, that value is returned and the one from `f` is
    /// dropped.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, String>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.get_or_insert_with(1, || "one".to_owned(), &guard), "one");
    /// ```
    pub fn get_or_insert_with<'g>(
        &self,
        key: K,
        f: impl FnOnce() -> V,
        guard: &'g DlhtGuard<'_>,
    ) -> &'g V
    where
        K: 'g,
    {
        asked(self.map().find_or_put(self.number(), key, |_| f(), guard))
    }

    /// Replaces the value if `key` is present; returns the previous one.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// assert_eq!(map.update(1, 10, &map.pin()), None);
    /// assert!(map.is_empty());
    /// ```
    pub fn update<'g>(
        &self,
        key: K,
        value: V,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g V>
    where
        K: 'g,
    {
        asked(self.map().put_one(self.number(), key, value, When::Present, guard)).replaced()
    }

    /// Removes `key`; returns the value that it had.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert_eq!(map.remove(&1, &map.pin()), Some(&10));
    /// ```
    pub fn remove<'g, Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g V>
    where
        K: Borrow<Q> + 'g,
    {
        self.map().take_one(self.number(), key, guard).map(|record| &record.value)
    }

    /// Removes `key`; returns the key that was stored, and its value.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([("one".to_owned(), 1)]);
    /// assert_eq!(map.remove_entry("one", &map.pin()), Some((&"one".to_owned(), &1)));
    /// ```
    pub fn remove_entry<'g, Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<(&'g K, &'g V)>
    where
        K: Borrow<Q> + 'g,
    {
        self.map().take_one(self.number(), key, guard).map(Record::pair)
    }

    /// Removes `key` if `f` returns `true` for its record, and returns the value that it had. Atomic: the record that
    /// is removed is the one that `f` saw. If another thread changes the record meanwhile, `f` is called again with the
    /// new one. No lock is held while `f` runs.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// let guard = map.pin();
    /// assert_eq!(map.remove_if(&1, |_, value| *value > 10, &guard), None);
    /// assert_eq!(map.remove_if(&1, |_, value| *value == 10, &guard), Some(&10));
    /// ```
    pub fn remove_if<'g, Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        mut f: impl FnMut(&K, &V) -> bool,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g V>
    where
        K: Borrow<Q> + 'g,
    {
        let wanted = |record: &Record<K, V>| f(&record.key, &record.value);
        self.map().take(self.number(), key, wanted, guard).map(|record| &record.value)
    }

    /// Like [`remove`](Self::remove), without returning the value. Needs no guard.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// map.delete(&1);
    /// assert!(!map.contains(&1));
    /// ```
    pub fn delete<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let guard = self.map().pin();
        self.map().take_one(self.number(), key, &guard);
    }

    /// Performs an atomic read-modify-write: passes the value to `f`, executes its decision, and returns the
    /// previous value. If another thread changes the key meanwhile, `f` is called again. No lock is held while
    /// `f` runs: it may use the map, but must not change this key on every call.
    ///
    /// ```
    /// use icefield::{Computed, Decision};
    /// let map = icefield::DlhtMap::from([(1, vec![10])]);
    /// let guard = map.pin();
    /// let longer = map.compute(1, |value| {
    ///     let mut value = value.cloned().unwrap_or_default();
    ///     value.push(20);
    ///     Decision::Put(value)
    /// }, &guard);
    /// assert_eq!(longer, Computed::Put(Some(&vec![10])));
    /// assert_eq!(map.get(&1, &guard), Some(&vec![10, 20]));
    /// ```
    pub fn compute<'g>(
        &self,
        key: K,
        f: impl FnMut(Option<&V>) -> Decision<V>,
        guard: &'g DlhtGuard<'_>,
    ) -> Computed<&'g V>
    where
        K: 'g,
    {
        plain(self.map().compute_one(self.number(), key, f, guard))
    }

    /// Replaces the value by `new` if it equals `current`; otherwise returns the present value as `Err`.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// let guard = map.pin();
    /// assert_eq!(map.compare_exchange(1, &10, 11, &guard), Ok(()));
    /// assert_eq!(map.compare_exchange(1, &10, 12, &guard), Err(Some(&11)));
    /// ```
    pub fn compare_exchange<'g>(
        &self,
        key: K,
        current: &V,
        new: V,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<(), Option<&'g V>>
    where
        K: 'g,
        V: PartialEq,
    {
        plain(self.map().exchange_one(self.number(), key, current, new, guard))
    }
}
