//! Reads of single keys.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::api::both;
use super::memory::RecordAllocator;
use super::record::Record;
use super::{DlhtGuard, DlhtNamespace, DlhtRecordMap};
use crate::table::yield_once;

both! {
    /// Returns the value of `key`. Never waits for a write; usually reads one line of the index, and the
    /// record.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([("one".to_owned(), 1)]);
    /// assert_eq!(map.get("one", &map.pin()), Some(&1));
    /// ```
    pub fn get<'g, Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g V>
    where
        K: Borrow<Q> + 'g,
    {
        self.map().find(self.number(), key, guard).map(|record| &record.value)
    }

    /// Returns whether `key` is present.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert!(map.contains(&1));
    /// ```
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.map().find(self.number(), key, &self.map().pin()).is_some()
    }

    /// Returns whether `key` is present, under the name of the standard library.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert!(map.contains_key(&1));
    /// ```
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.contains(key)
    }

    /// Returns the key that is stored for `key`, and its value.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([("one".to_owned(), 1)]);
    /// assert_eq!(map.get_key_value("one", &map.pin()), Some((&"one".to_owned(), &1)));
    /// ```
    pub fn get_key_value<'g, Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<(&'g K, &'g V)>
    where
        K: Borrow<Q> + 'g,
    {
        self.map().find(self.number(), key, guard).map(Record::pair)
    }

    /// Passes the value of `key` to `f`, under a guard that this call takes, and returns the result of `f`. `f`
    /// may use the map.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, "one".to_owned())]);
    /// assert_eq!(map.get_with(&1, |value| value.len()), Some(3));
    /// ```
    pub fn get_with<Q: Hash + Eq + ?Sized, T>(
        &self,
        key: &Q,
        f: impl FnOnce(&V) -> T,
    ) -> Option<T>
    where
        K: Borrow<Q>,
    {
        self.map().find(self.number(), key, &self.map().pin()).map(|record| f(&record.value))
    }

    /// Returns a copy of the value of `key`.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert_eq!(map.get_cloned(&1), Some(10));
    /// ```
    pub fn get_cloned<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.map().find(self.number(), key, &self.map().pin()).map(|record| record.value.clone())
    }

    /// Prefetches the bin of `key`, for an operation that follows later (§3.3, coroutines).
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// map.prefetch(&1);
    /// // ... something else ...
    /// assert_eq!(map.get_cloned(&1), Some(10));
    /// ```
    pub fn prefetch<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.map().core.prefetch(self.map().hash_of(self.number(), key));
    }

    /// Prefetches the bin of `key`, yields to the executor once, then returns the value. The future borrows the guard.
    /// For a task that may continue on another thread, take the guard from
    /// [`DlhtMap::pin_owned`](crate::DlhtMap::pin_owned), or use [`get_cloned_async`](Self::get_cloned_async), which
    /// needs no guard.
    ///
    /// ```
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
    /// #     }
    /// # }
    /// let map = icefield::DlhtMap::from([("one".to_owned(), 1)]);
    /// let guard = map.pin_owned();
    /// assert_eq!(block_on(map.get_async("one", &guard)), Some(&1));
    /// ```
    pub fn get_async<'g, Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        guard: &'g DlhtGuard<'_>,
    ) -> impl Future<Output = Option<&'g V>>
    where
        K: Borrow<Q> + 'g,
        V: 'g,
    {
        let (map, number) = (self.map(), self.number());
        map.checked(guard);
        // The future borrows the guard for `'g`, but does not contain it: a guard of a thread is not `Send`, and only
        // its announcement matters.
        async move {
            self.prefetch(key);
            yield_once().await;
            // SAFETY: the guard of this map lives for `'g`.
            unsafe { map.find_protected::<Q>(number, key) }.map(|record: &'g Record<K, V>| &record.value)
        }
    }

    /// Like [`get_async`](Self::get_async), but returns a copy and pins only while it reads. It holds back no
    /// reclamation while it waits, and may continue on another thread.
    ///
    /// ```
    /// # fn block_on<F: Future + Send>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
    /// #     }
    /// # }
    /// let map = icefield::DlhtMap::from([("one".to_owned(), 1)]);
    /// assert_eq!(block_on(map.get_cloned_async("one")), Some(1));
    /// ```
    pub async fn get_cloned_async<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.prefetch(key);
        yield_once().await;
        self.get_cloned(key)
    }
}
