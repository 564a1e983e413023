//! Entries: calls that read, change or insert one key in one atomic step.

use std::cell::LazyCell;
use std::fmt;
use std::thread;

use super::DlhtTable;
use super::api::plain;
use super::mode::{Shared, Threading};
use crate::outcome::Occupied;
use crate::types::Word;

/// A key of a table, present or absent, from [`DlhtTable::entry`]. Each call is one atomic step:
///
/// | call | step |
/// |---|---|
/// | [`get`](Self::get), [`insert`](Self::insert), [`remove`](Self::remove) | the call of the same name on the table |
/// | [`or_insert`](Self::or_insert) and its variants | if the key is absent, inserts it; returns the value after the step |
/// | [`and_modify`](Self::and_modify), then `or_insert` or a variant | if the key is present, changes its value, else inserts it; returns the value after the step |
/// | `and_modify` alone | if the key is present, changes its value |
///
/// An entry holds no lock and has not read the key. Other threads can change the key between the creation of an entry
/// and a call, and while closures run: the closure of `and_modify` is called again then. Closures may call the table.
/// Values are returned by copy, so changing a returned value changes no record.
///
/// # Panics
/// Calls that insert panic as [`DlhtTable::insert`] does; the others never panic.
///
/// ```
/// let words = icefield::Dlht::<u64, u64>::new();
/// for word in [7, 8, 7] {
///     words.entry(word).and_modify(|count| *count += 1).or_insert(1);
/// }
/// assert_eq!((words.get(7), words.get(8)), (Some(2), Some(1)));
/// ```
pub struct DlhtEntry<'a, K: Word, V: Word, M: Threading = Shared> {
    table: &'a DlhtTable<K, V, M>,
    key: K,
}

impl<K: Word, V: Word, M: Threading> DlhtTable<K, V, M> {
    /// Returns the entry of `key`, for changes that depend on whether the key is present. An entry holds no lock:
    /// [`DlhtEntry`] states which calls are atomic.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.entry(1).or_insert(10), 10);
    /// assert_eq!(table.entry(1).or_insert(20), 10);
    /// ```
    pub fn entry(&self, key: K) -> DlhtEntry<'_, K, V, M> {
        DlhtEntry { table: self, key }
    }

    /// Returns the value of `key`; if `key` is absent, inserts `value` first. One atomic step.
    ///
    /// # Panics
    /// As [`DlhtTable::insert`], if `key` is absent.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.get_or_insert(1, 10), 10);
    /// assert_eq!(table.get_or_insert(1, 20), 10);
    /// ```
    pub fn get_or_insert(&self, key: K, value: V) -> V {
        self.get_or_insert_with(key, || value)
    }

    /// Returns the value of `key`; if `key` is absent, inserts the value that `f` returns. `f` is called once at most,
    /// without a lock, and may call the table. If another thread inserts the key meanwhile, its value is returned, and
    /// that of `f` is discarded.
    ///
    /// # Panics
    /// As [`DlhtTable::insert`], if `key` is absent.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.get_or_insert_with(1, || 10), 10);
    /// assert_eq!(table.get_or_insert_with(1, || unreachable!("present")), 10);
    /// ```
    pub fn get_or_insert_with(&self, key: K, f: impl FnOnce() -> V) -> V {
        if let Some(value) = self.get(key) {
            return value;
        }
        let value = f();
        match self.try_insert(key, value) {
            Ok(()) => value,
            Err(Occupied(present)) => present,
        }
    }
}

impl<'a, K: Word, V: Word, M: Threading> DlhtEntry<'a, K, V, M> {
    /// Returns the key.
    ///
    /// ```
    /// assert_eq!(icefield::Dlht::<u64, u64>::new().entry(1).key(), 1);
    /// ```
    pub fn key(&self) -> K {
        self.key
    }

    /// Returns the present value.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10)]);
    /// assert_eq!(table.entry(1).get(), Some(10));
    /// ```
    pub fn get(&self) -> Option<V> {
        self.table.get(self.key)
    }

    /// Inserts the key or replaces its value; returns the previous value.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.entry(1).insert(10), None);
    /// assert_eq!(table.entry(1).insert(11), Some(10));
    /// ```
    pub fn insert(self, value: V) -> Option<V> {
        self.table.insert(self.key, value)
    }

    /// Removes the key; returns the value that it had.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10)]);
    /// assert_eq!(table.entry(1).remove(), Some(10));
    /// ```
    pub fn remove(self) -> Option<V> {
        self.table.remove(self.key)
    }

    /// Adds a change of the value, if the key is present, to the step that follows: `or_insert` or one of its variants,
    /// which performs both as one atomic step. If the result is dropped instead, `f` alone is applied. `f` is called
    /// again if another thread changes the value meanwhile.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10)]);
    /// assert_eq!(table.entry(1).and_modify(|value| *value += 1).or_insert(0), 11);
    /// table.entry(1).and_modify(|value| *value += 1);
    /// assert_eq!(table.get(1), Some(12));
    /// ```
    pub fn and_modify<F: FnMut(&mut V)>(self, f: F) -> DlhtAndModify<'a, K, V, M, F> {
        DlhtAndModify { entry: self, modify: Some(f) }
    }

    /// Inserts `value` if the key is absent; returns the value in the table.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.entry(1).or_insert(10), 10);
    /// ```
    pub fn or_insert(self, value: V) -> V {
        self.or_insert_with(|| value)
    }

    /// Inserts the value that `f` returns if the key is absent; returns the value in the table. `f` is called once at
    /// most. If another thread inserts the key meanwhile, the value of `f` is discarded.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.entry(1).or_insert_with(|| 10), 10);
    /// ```
    pub fn or_insert_with(self, f: impl FnOnce() -> V) -> V {
        self.table.get_or_insert_with(self.key, f)
    }

    /// Like [`DlhtEntry::or_insert_with`], for a closure that takes the key.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.entry(1).or_insert_with_key(|key| key * 10), 10);
    /// ```
    pub fn or_insert_with_key(self, f: impl FnOnce(&K) -> V) -> V {
        let key = self.key;
        self.or_insert_with(|| f(&key))
    }

    /// Inserts the default value if the key is absent; returns the value in the table.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.entry(1).or_default(), 0);
    /// ```
    pub fn or_default(self) -> V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}

impl<K: Word, V: Word, M: Threading> fmt::Debug for DlhtEntry<'_, K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtEntry").field("key", &self.key).finish_non_exhaustive()
    }
}

/// An entry with a change of its value, from [`DlhtEntry::and_modify`]. The change happens in the call that consumes this
/// value, or when this value is dropped; it is not applied if the thread is panicking then.
///
/// ```
/// let table = icefield::Dlht::<u64, u64>::new();
/// let add = |delta: u64| table.entry(1).and_modify(move |sum| *sum += delta).or_insert(delta);
/// assert_eq!((add(5), add(6)), (5, 11));
/// ```
pub struct DlhtAndModify<'a, K: Word, V: Word, M: Threading, F: FnMut(&mut V)> {
    entry: DlhtEntry<'a, K, V, M>,
    /// `None` after a call has applied it.
    modify: Option<F>,
}

impl<'a, K: Word, V: Word, M: Threading, F: FnMut(&mut V)> DlhtAndModify<'a, K, V, M, F> {
    /// Returns the key.
    ///
    /// ```
    /// assert_eq!(icefield::Dlht::<u64, u64>::new().entry(1).and_modify(|value| *value += 1).key(), 1);
    /// ```
    pub fn key(&self) -> K {
        self.entry.key
    }

    /// Adds another change, which follows the first one in the same atomic step.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10)]);
    /// let entry = table.entry(1).and_modify(|value| *value += 1).and_modify(|value| *value *= 2);
    /// assert_eq!(entry.apply(), Some(22));
    /// ```
    pub fn and_modify<G: FnMut(&mut V)>(
        mut self,
        mut g: G,
    ) -> DlhtAndModify<'a, K, V, M, impl FnMut(&mut V)> {
        let mut first = self.modify.take();
        let DlhtEntry { table, key } = self.entry;
        DlhtEntry { table, key }.and_modify(move |value| {
            if let Some(first) = &mut first {
                first(value);
            }
            g(value);
        })
    }

    /// Applies the change if the key is present, and returns the new value. Returns `None` if the key is absent.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10)]);
    /// assert_eq!(table.entry(1).and_modify(|value| *value += 1).apply(), Some(11));
    /// assert_eq!(table.entry(2).and_modify(|value| *value += 1).apply(), None);
    /// ```
    pub fn apply(mut self) -> Option<V> {
        self.modify.take().and_then(|f| self.entry.table.modify_one(self.entry.key, f))
    }

    /// Applies the change if the key is present, else inserts `value`; returns the new value. One atomic step.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.entry(1).and_modify(|value| *value += 1).or_insert(10), 10);
    /// assert_eq!(table.entry(1).and_modify(|value| *value += 1).or_insert(10), 11);
    /// ```
    pub fn or_insert(self, value: V) -> V {
        self.or_insert_with(|| value)
    }

    /// Applies the change if the key is present, else inserts the value that `f` returns; returns the new value. One
    /// atomic step. `f` is called once at most; its value is discarded if another thread inserts the key meanwhile.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.entry(1).and_modify(|value| *value += 1).or_insert_with(|| 10), 10);
    /// ```
    pub fn or_insert_with(mut self, f: impl FnOnce() -> V) -> V {
        let mut modify = self.modify.take();
        let absent = LazyCell::new(f);
        plain(self.entry.table.write_computed(self.entry.key, |present| {
            let Some(mut value) = present else { return *absent };
            if let Some(modify) = &mut modify {
                modify(&mut value);
            }
            value
        }))
    }

    /// Like [`DlhtAndModify::or_insert_with`], for a closure that takes the key.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.entry(1).and_modify(|value| *value += 1).or_insert_with_key(|key| key * 10), 10);
    /// ```
    pub fn or_insert_with_key(self, f: impl FnOnce(&K) -> V) -> V {
        let key = self.entry.key;
        self.or_insert_with(|| f(&key))
    }

    /// Applies the change if the key is present, else inserts the default value; returns the new value. One atomic step.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.entry(1).and_modify(|value| *value += 1).or_default(), 0);
    /// ```
    pub fn or_default(self) -> V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}

impl<K: Word, V: Word, M: Threading, F: FnMut(&mut V)> Drop for DlhtAndModify<'_, K, V, M, F> {
    fn drop(&mut self) {
        if let Some(modify) = self.modify.take()
            && !thread::panicking()
        {
            self.entry.table.modify_one(self.entry.key, modify);
        }
    }
}

impl<K: Word, V: Word, M: Threading, F: FnMut(&mut V)> fmt::Debug
    for DlhtAndModify<'_, K, V, M, F>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtAndModify").field("key", &self.entry.key).finish_non_exhaustive()
    }
}
