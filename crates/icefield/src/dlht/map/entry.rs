//! Entries: several operations on one key, none of which holds a lock.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use super::api::{asked, both};
use super::memory::RecordAllocator;
use super::write::When;
use super::{DlhtBuildHasher, DlhtGuard, DlhtNamespace, DlhtRecordMap, Global};
use crate::dlht::api::plain;
use crate::dlht::mode::{Shared, Threading};
use crate::outcome::{Computed, Decision};

/// A key of a map, present or absent, from [`DlhtMap::entry`](crate::DlhtMap::entry).
///
/// An entry holds no lock and no place in the map: it consists of the key, the map and the guard. Each call on it is
/// one atomic operation, which finds the record as it is at that moment. Between two calls on an entry, other threads
/// may change the record. [`and_modify`](Self::and_modify) followed by one of the `or_` calls is atomic as a whole:
/// exactly one of the two takes effect, and no change by another thread is lost.
///
/// Values do not change in place, because readers may hold references to them: a modified copy replaces the record.
///
/// ```
/// let map = icefield::DlhtMap::<String, u32>::new();
/// let guard = map.pin();
/// for word in ["to", "be", "or", "not", "to", "be"] {
///     map.entry(word.to_owned(), &guard).and_modify(|count| *count += 1).or_insert(1);
/// }
/// assert_eq!(map.get("be", &guard), Some(&2));
/// ```
pub struct DlhtMapEntry<
    'g,
    K,
    V,
    S = DlhtBuildHasher,
    A: RecordAllocator = Global,
    M: Threading = Shared,
> {
    map: &'g DlhtRecordMap<K, V, S, A, M>,
    namespace: u16,
    key: K,
    guard: &'g DlhtGuard<'g>,
}

/// An entry after [`DlhtMapEntry::and_modify`].
///
/// ```
/// let map = icefield::DlhtMap::from([(1, 10)]);
/// let guard = map.pin();
/// assert_eq!(map.entry(1, &guard).and_modify(|value| *value += 1).or_insert(0), &11);
/// ```
pub struct DlhtMapAndModify<
    'g,
    K,
    V,
    F,
    S = DlhtBuildHasher,
    A: RecordAllocator = Global,
    M: Threading = Shared,
> {
    state: Modified<'g, K, V, F, S, A, M>,
}

enum Modified<'g, K, V, F, S, A: RecordAllocator, M: Threading> {
    /// The key was present; its new value.
    Present(&'g V),
    /// The key was absent. The closure is called if it is present by the time of the next call.
    Absent(DlhtMapEntry<'g, K, V, S, A, M>, F),
}

both! {
    /// Returns the entry of `key`, for calls on one key. It holds no lock: see [`DlhtMapEntry`].
    ///
    /// ```
    /// let map = icefield::DlhtMap::<&str, Vec<u32>>::new();
    /// let guard = map.pin();
    /// let primes = map.entry("primes", &guard).or_insert_with(|| vec![2, 3, 5]);
    /// assert_eq!(primes, &[2, 3, 5]);
    /// ```
    pub fn entry<'g>(&'g self, key: K, guard: &'g DlhtGuard<'_>) -> DlhtMapEntry<'g, K, V, S, A, M> {
        let map = self.map();
        DlhtMapEntry { map, namespace: self.number(), key, guard: map.checked(guard) }
    }
}

impl<'g, K, V, S, A, M> DlhtMapEntry<'g, K, V, S, A, M>
where
    K: Hash + Eq + Send,
    V: Send,
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
{
    /// Returns the key.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// assert_eq!(map.entry(1, &map.pin()).key(), &1);
    /// ```
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the key of the entry.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<String, u32>::new();
    /// assert_eq!(map.entry("one".to_owned(), &map.pin()).into_key(), "one");
    /// ```
    pub fn into_key(self) -> K {
        self.key
    }

    /// Returns the present value.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert_eq!(map.entry(1, &map.pin()).get(), Some(&10));
    /// ```
    pub fn get(&self) -> Option<&'g V> {
        self.map.find(self.namespace, &self.key, self.guard).map(|record| &record.value)
    }

    /// Returns the present value; if the key is absent, inserts `value`. Atomic.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.entry(1, &guard).or_insert(10), &10);
    /// assert_eq!(map.entry(1, &guard).or_insert(20), &10);
    /// ```
    pub fn or_insert(self, value: V) -> &'g V {
        self.or_insert_with(|| value)
    }

    /// Returns the present value; if the key is absent, inserts the value that `f` returns. If another thread inserts
    /// the key meanwhile, its value is returned and that of `f` is dropped. The insertion is atomic; `f` runs before
    /// it.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, String>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.entry(1, &guard).or_insert_with(|| "one".to_owned()), "one");
    /// ```
    pub fn or_insert_with(self, f: impl FnOnce() -> V) -> &'g V {
        self.or_insert_with_key(|_| f())
    }

    /// Like [`or_insert_with`](Self::or_insert_with), for a value that depends on the key.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<String, usize>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.entry("four".to_owned(), &guard).or_insert_with_key(|key| key.len()), &4);
    /// ```
    pub fn or_insert_with_key(self, f: impl FnOnce(&K) -> V) -> &'g V {
        asked(self.map.find_or_put(self.namespace, self.key, f, self.guard))
    }

    /// Returns the present value; if the key is absent, inserts the default value. Atomic.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, String>::new();
    /// assert_eq!(map.entry(1, &map.pin()).or_default(), "");
    /// ```
    pub fn or_default(self) -> &'g V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// If the key is present, replaces its value by a copy that `f` has changed. If another thread changes the record
    /// meanwhile, `f` is called again with a copy of the new value, so no change is lost. No lock is held while `f`
    /// runs.
    ///
    /// A call of `or_insert`, `or_insert_with`, `or_insert_with_key` or `or_default` that follows belongs to the same
    /// atomic operation: either one modification takes effect, or one insertion.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, vec![10])]);
    /// let guard = map.pin();
    /// map.entry(1, &guard).and_modify(|list| list.push(11));
    /// map.entry(2, &guard).and_modify(|list| list.push(21)).or_default();
    /// assert_eq!((map.get(&1, &guard), map.get(&2, &guard)), (Some(&vec![10, 11]), Some(&vec![])));
    /// ```
    pub fn and_modify<F: FnMut(&mut V)>(self, mut f: F) -> DlhtMapAndModify<'g, K, V, F, S, A, M>
    where
        V: Clone,
    {
        let Self { map, namespace, key, guard } = self;
        let never = None::<fn(&K) -> V>;
        let state = match asked(map.modify_or(namespace, key, &mut f, never, guard)) {
            Ok(value) => Modified::Present(value),
            Err(key) => Modified::Absent(Self { map, namespace, key, guard }, f),
        };
        DlhtMapAndModify { state }
    }

    /// Inserts the key or replaces its value; returns the previous value. Atomic.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert_eq!(map.entry(1, &map.pin()).insert(11), Some(&10));
    /// ```
    pub fn insert(self, value: V) -> Option<&'g V> {
        let put = self.map.put_one(self.namespace, self.key, value, When::Always, self.guard);
        asked(put).replaced()
    }

    /// Removes the key; returns the value that it had. Atomic.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert_eq!(map.entry(1, &map.pin()).remove(), Some(&10));
    /// ```
    pub fn remove(self) -> Option<&'g V> {
        let record = self.map.take_one(self.namespace, &self.key, self.guard)?;
        Some(&record.value)
    }

    /// Calls [`DlhtMap::compute`](crate::DlhtMap::compute) with the key.
    ///
    /// ```
    /// use icefield::{Computed, Decision};
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// let guard = map.pin();
    /// let computed = map.entry(1, &guard).compute(|value| match value {
    ///     Some(10) => Decision::Remove,
    ///     _ => Decision::Keep,
    /// });
    /// assert_eq!(computed, Computed::Removed(Some(&10)));
    /// ```
    pub fn compute(self, f: impl FnMut(Option<&V>) -> Decision<V>) -> Computed<&'g V> {
        plain(self.map.compute_one(self.namespace, self.key, f, self.guard))
    }
}

impl<'g, K, V, F, S, A, M> DlhtMapAndModify<'g, K, V, F, S, A, M>
where
    K: Hash + Eq + Send,
    V: Clone + Send,
    F: FnMut(&mut V),
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
{
    /// Returns the value after the modification; `None` if the key was absent.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// let guard = map.pin();
    /// assert_eq!(map.entry(1, &guard).and_modify(|value| *value += 1).modified(), Some(&11));
    /// ```
    pub fn modified(&self) -> Option<&'g V> {
        match self.state {
            Modified::Present(value) => Some(value),
            Modified::Absent(..) => None,
        }
    }

    /// Returns the modified value; if the key was absent, inserts `value`. See [`DlhtMapEntry::and_modify`].
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.entry(1, &guard).and_modify(|value| *value += 1).or_insert(10), &10);
    /// ```
    pub fn or_insert(self, value: V) -> &'g V {
        self.or_insert_with(|| value)
    }

    /// Like [`or_insert`](Self::or_insert), with the value that `f` returns.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.entry(1, &guard).and_modify(|value| *value += 1).or_insert_with(|| 10), &10);
    /// ```
    pub fn or_insert_with(self, f: impl FnOnce() -> V) -> &'g V {
        self.or_insert_with_key(|_| f())
    }

    /// Like [`or_insert`](Self::or_insert), with the value that `f` returns for the key.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// let entry = map.entry(1, &guard).and_modify(|value| *value += 1);
    /// assert_eq!(entry.or_insert_with_key(|key| key * 10), &10);
    /// ```
    pub fn or_insert_with_key(self, f: impl FnOnce(&K) -> V) -> &'g V {
        match self.state {
            Modified::Present(value) => value,
            Modified::Absent(DlhtMapEntry { map, namespace, key, guard }, modify) => {
                match asked(map.modify_or(namespace, key, modify, Some(f), guard)) {
                    Ok(value) => value,
                    Err(_) => unreachable!("a value was made"),
                }
            }
        }
    }

    /// Like [`or_insert`](Self::or_insert), with the default value.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.entry(1, &guard).and_modify(|value| *value += 1).or_default(), &0);
    /// ```
    pub fn or_default(self) -> &'g V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}

impl<K: fmt::Debug, V, S, A: RecordAllocator, M: Threading> fmt::Debug
    for DlhtMapEntry<'_, K, V, S, A, M>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtMapEntry").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<K, V: fmt::Debug, F, S, A, M> fmt::Debug for DlhtMapAndModify<'_, K, V, F, S, A, M>
where
    A: RecordAllocator,
    M: Threading,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modified = match &self.state {
            Modified::Present(value) => Some(value),
            Modified::Absent(..) => None,
        };
        f.debug_struct("DlhtMapAndModify").field("modified", &modified).finish_non_exhaustive()
    }
}
