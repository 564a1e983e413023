//! The operations of a map, and of its namespaces.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::ControlFlow;

use super::iter::DlhtMapIter;
use super::memory::RecordAllocator;
use super::record::{Record, Refused};
use super::write::{Put, When};
use super::{DlhtBuildHasher, DlhtGuard, DlhtMap, DlhtMapOp, Global};
use crate::Error;
use crate::dlht::api::plain;
use crate::outcome::{Computed, Decision, Occupied, OnFailure};
use crate::report::Stats;
use crate::table::{Collection, yield_once};

/// The number of namespaces (§3.4.2).
const NAMESPACES: u16 = 4096;

/// Returns the result, or panics with the reason of the refusal.
#[inline]
#[track_caller]
fn asked<K, V, T>(put: Result<T, Refused<K, V>>) -> T {
    plain(put.map_err(Refused::reason))
}

/// Converts an outcome to the result of `try_insert`.
#[inline]
fn accepted<V>(put: Put<'_, V>) -> Result<(), Occupied<&V>> {
    match put {
        Put::Kept(Some(present)) | Put::Replaced(present) => Err(Occupied(present)),
        Put::Inserted | Put::Kept(None) => Ok(()),
    }
}

macro_rules! calls {
    ($(#[$doc:meta])* $self:ident: $ty:ty, $map:expr, $namespace:expr) => {
        $(#[$doc])*
        impl<K: Hash + Eq + Send, V: Send, S: BuildHasher, A: RecordAllocator> $ty {
            /// Returns the value of `key`. Never waits; usually reads one line of the index, and the record.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([("one".to_owned(), 1)]);
            /// assert_eq!(map.get("one", &map.pin()), Some(&1));
            /// ```
            pub fn get<'g, Q: Hash + Eq + ?Sized>(
                &$self,
                key: &Q,
                guard: &'g DlhtGuard<'_>,
            ) -> Option<&'g V>
            where
                K: Borrow<Q> + 'g,
            {
                $map.find($namespace, key, guard).map(|record| &record.value)
            }

            /// Returns whether `key` is present.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// assert!(map.contains(&1));
            /// ```
            pub fn contains<Q: Hash + Eq + ?Sized>(&$self, key: &Q) -> bool
            where
                K: Borrow<Q>,
            {
                $map.find($namespace, key, &$map.pin()).is_some()
            }

            /// Passes the value of `key` to `f`, under a guard that this call takes, and returns the result of `f`. `f`
            /// may use the map.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, "one".to_owned())]);
            /// assert_eq!(map.get_with(&1, |value| value.len()), Some(3));
            /// ```
            pub fn get_with<Q: Hash + Eq + ?Sized, T>(
                &$self,
                key: &Q,
                f: impl FnOnce(&V) -> T,
            ) -> Option<T>
            where
                K: Borrow<Q>,
            {
                $map.find($namespace, key, &$map.pin()).map(|record| f(&record.value))
            }

            /// Returns a copy of the value of `key`.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// assert_eq!(map.get_cloned(&1), Some(10));
            /// ```
            pub fn get_cloned<Q: Hash + Eq + ?Sized>(&$self, key: &Q) -> Option<V>
            where
                K: Borrow<Q>,
                V: Clone,
            {
                $map.find($namespace, key, &$map.pin()).map(|record| record.value.clone())
            }

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
                &$self,
                key: K,
                value: V,
                guard: &'g DlhtGuard<'_>,
            ) -> Result<(), Occupied<&'g V>>
            where
                K: 'g,
            {
                accepted(asked($map.put_one($namespace, key, value, When::Absent, guard)))
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
                &$self,
                key: K,
                value: V,
                guard: &'g DlhtGuard<'_>,
            ) -> Option<&'g V>
            where
                K: 'g,
            {
                asked($map.put_one($namespace, key, value, When::Always, guard)).replaced()
            }

            /// Inserts `key` or replaces its value, without returning the previous value. Needs no guard.
            ///
            /// ```
            /// let map = icefield::DlhtMap::<u32, u32>::new();
            /// map.put(1, 10);
            /// assert_eq!(map.get_cloned(&1), Some(10));
            /// ```
            pub fn put(&$self, key: K, value: V) {
                let guard = $map.pin();
                asked($map.put_one($namespace, key, value, When::Always, &guard));
            }

            /// Like [`insert`](Self::insert), but returns an error, with the record, instead of panicking.
            ///
            /// # Errors
            /// Returns [`Error::NoMemory`](crate::Error::NoMemory) if the record or a larger index cannot be allocated;
            /// the map is unchanged.
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
                &$self,
                key: K,
                value: V,
                guard: &'g DlhtGuard<'_>,
            ) -> Result<Option<&'g V>, Refused<K, V>>
            where
                K: 'g,
            {
                $map.put_one($namespace, key, value, When::Always, guard).map(Put::replaced)
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
                &$self,
                key: K,
                value: V,
                guard: &'g DlhtGuard<'_>,
            ) -> &'g V
            where
                K: 'g,
            {
                $self.get_or_insert_with(key, || value, guard)
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
                &$self,
                key: K,
                f: impl FnOnce() -> V,
                guard: &'g DlhtGuard<'_>,
            ) -> &'g V
            where
                K: 'g,
            {
                asked($map.find_or_put($namespace, key, f, guard))
            }

            /// Replaces the value if `key` is present; returns the previous one.
            ///
            /// ```
            /// let map = icefield::DlhtMap::<u32, u32>::new();
            /// assert_eq!(map.update(1, 10, &map.pin()), None);
            /// assert!(map.is_empty());
            /// ```
            pub fn update<'g>(
                &$self,
                key: K,
                value: V,
                guard: &'g DlhtGuard<'_>,
            ) -> Option<&'g V>
            where
                K: 'g,
            {
                asked($map.put_one($namespace, key, value, When::Present, guard)).replaced()
            }

            /// Removes `key`; returns the value that it had.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// assert_eq!(map.remove(&1, &map.pin()), Some(&10));
            /// ```
            pub fn remove<'g, Q: Hash + Eq + ?Sized>(
                &$self,
                key: &Q,
                guard: &'g DlhtGuard<'_>,
            ) -> Option<&'g V>
            where
                K: Borrow<Q> + 'g,
            {
                $map.take($namespace, key, |_| true, guard).map(|record| &record.value)
            }

            /// Like [`remove`](Self::remove), without returning the value. Needs no guard.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// map.delete(&1);
            /// assert!(!map.contains(&1));
            /// ```
            pub fn delete<Q: Hash + Eq + ?Sized>(&$self, key: &Q)
            where
                K: Borrow<Q>,
            {
                let guard = $map.pin();
                $map.take($namespace, key, |_| true, &guard);
            }

            /// Performs an atomic read-modify-write: passes the value to `f`, executes its decision, and returns the
            /// previous value. If another thread changes the key meanwhile, `f` is called again. No lock is held while
            /// `f` runs: it may use the map, but must not change this key on every call.
            ///
            /// ```
            /// use icefield::{Computed, Decision};
            /// let map = icefield::DlhtMap::from_iter([(1, vec![10])]);
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
                &$self,
                key: K,
                f: impl FnMut(Option<&V>) -> Decision<V>,
                guard: &'g DlhtGuard<'_>,
            ) -> Computed<&'g V>
            where
                K: 'g,
            {
                plain($map.compute_one($namespace, key, f, guard))
            }

            /// Replaces the value by `new` if it equals `current`; otherwise returns the present value as `Err`.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// let guard = map.pin();
            /// assert_eq!(map.compare_exchange(1, &10, 11, &guard), Ok(()));
            /// assert_eq!(map.compare_exchange(1, &10, 12, &guard), Err(Some(&11)));
            /// ```
            pub fn compare_exchange<'g>(
                &$self,
                key: K,
                current: &V,
                new: V,
                guard: &'g DlhtGuard<'_>,
            ) -> Result<(), Option<&'g V>>
            where
                K: 'g,
                V: PartialEq,
            {
                plain($map.exchange_one($namespace, key, current, new, guard))
            }

            /// Calls [`get`](Self::get) for each key in order, with the memory latencies of bins and records overlapped
            /// (§3.3). Both slices must have the same length.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// let guard = map.pin();
            /// let mut found = [None; 2];
            /// map.get_batch(&[&1, &2], &mut found, &guard);
            /// assert_eq!(found, [Some(&10), None]);
            /// ```
            pub fn get_batch<'g, Q: Hash + Eq + ?Sized>(
                &$self,
                keys: &[&Q],
                found: &mut [Option<&'g V>],
                guard: &'g DlhtGuard<'_>,
            ) where
                K: Borrow<Q> + 'g,
            {
                $map.find_all($namespace, keys, found, guard);
            }

            /// Calls [`insert`](Self::insert) for each record in order, with memory latencies overlapped (§3.3), and
            /// returns the results. Operations of other threads may come in between. If memory runs out, the records
            /// before the failed one have been inserted.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// let guard = map.pin();
            /// let before = map.insert_batch([(1, 11), (2, 20), (1, 12)], &guard);
            /// assert_eq!(before, [Some(&10), None, Some(&11)]);
            /// ```
            pub fn insert_batch<'g>(
                &$self,
                records: impl IntoIterator<Item = (K, V)>,
                guard: &'g DlhtGuard<'_>,
            ) -> Vec<Option<&'g V>>
            where
                K: 'g,
            {
                $map.put_each($namespace, records, When::Always, guard, Put::replaced)
            }

            /// Calls [`try_insert`](Self::try_insert) for each record, like [`insert_batch`](Self::insert_batch).
            ///
            /// ```
            /// use icefield::Occupied;
            /// let map = icefield::DlhtMap::<u32, u32>::new();
            /// let guard = map.pin();
            /// let outcomes = map.try_insert_batch([(1, 10), (1, 20)], &guard);
            /// assert_eq!(outcomes, [Ok(()), Err(Occupied(&10))]);
            /// ```
            pub fn try_insert_batch<'g>(
                &$self,
                records: impl IntoIterator<Item = (K, V)>,
                guard: &'g DlhtGuard<'_>,
            ) -> Vec<Result<(), Occupied<&'g V>>>
            where
                K: 'g,
            {
                $map.put_each($namespace, records, When::Absent, guard, accepted)
            }

            /// Calls [`update`](Self::update) for each record, like [`insert_batch`](Self::insert_batch).
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// let guard = map.pin();
            /// assert_eq!(map.update_batch([(1, 11), (2, 20)], &guard), [Some(&10), None]);
            /// ```
            pub fn update_batch<'g>(
                &$self,
                records: impl IntoIterator<Item = (K, V)>,
                guard: &'g DlhtGuard<'_>,
            ) -> Vec<Option<&'g V>>
            where
                K: 'g,
            {
                $map.put_each($namespace, records, When::Present, guard, Put::replaced)
            }

            /// Calls [`remove`](Self::remove) for each key, like [`insert_batch`](Self::insert_batch). Both slices must
            /// have the same length.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// let guard = map.pin();
            /// let mut removed = [None; 2];
            /// map.remove_batch(&[&1, &1], &mut removed, &guard);
            /// assert_eq!(removed, [Some(&10), None]);
            /// ```
            pub fn remove_batch<'g, Q: Hash + Eq + ?Sized>(
                &$self,
                keys: &[&Q],
                removed: &mut [Option<&'g V>],
                guard: &'g DlhtGuard<'_>,
            ) where
                K: Borrow<Q> + 'g,
            {
                $map.take_all($namespace, keys, removed, guard);
            }

            /// Runs a mixed batch in order, with memory latencies overlapped (§3.3), and returns how many operations
            /// have run; each holds its result. With [`OnFailure::Stop`], the batch ends after the first operation that
            /// finds its key occupied or absent. Operations of other threads may come in between. Each operation runs
            /// once: one that ran in an earlier batch is skipped.
            ///
            /// ```
            /// use icefield::{DlhtMap, DlhtMapOp, OnFailure};
            /// let map = DlhtMap::from_iter([(1, 10)]);
            /// let guard = map.pin();
            /// let mut ops = [DlhtMapOp::remove(&1), DlhtMapOp::get(&1), DlhtMapOp::insert(2, 20)];
            /// assert_eq!(map.execute(&mut ops, OnFailure::Stop, &guard), 2, "ends at the absent key");
            /// assert_eq!(ops[0].value(), Some(&10));
            /// assert_eq!(map.execute(&mut ops, OnFailure::Continue, &guard), 3, "goes on");
            /// assert_eq!(map.get(&2, &guard), Some(&20));
            /// ```
            pub fn execute<'g, Q: Hash + Eq + ?Sized>(
                &$self,
                ops: &mut [DlhtMapOp<'_, 'g, K, V, Q>],
                on_failure: OnFailure,
                guard: &'g DlhtGuard<'_>,
            ) -> usize
            where
                K: Borrow<Q> + 'g,
            {
                $map.execute_all($namespace, ops, on_failure, guard)
            }

            /// Prefetches the bin of `key`, for an operation that follows later (§3.3, coroutines).
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// map.prefetch(&1);
            /// // ... something else ...
            /// assert_eq!(map.get_cloned(&1), Some(10));
            /// ```
            pub fn prefetch<Q: Hash + Eq + ?Sized>(&$self, key: &Q)
            where
                K: Borrow<Q>,
            {
                $map.core.prefetch($map.hash_of($namespace, key));
            }

            /// Prefetches the bin of `key`, yields to the executor once, then returns the value. Because of the guard,
            /// the future must stay on one thread; [`get_cloned_async`](Self::get_cloned_async) has no such
            /// restriction.
            ///
            /// ```
            /// # fn block_on<F: Future>(future: F) -> F::Output {
            /// #     let mut future = std::pin::pin!(future);
            /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            /// #     loop {
            /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
            /// #     }
            /// # }
            /// let map = icefield::DlhtMap::from_iter([("one".to_owned(), 1)]);
            /// let guard = map.pin();
            /// assert_eq!(block_on(map.get_async("one", &guard)), Some(&1));
            /// ```
            pub async fn get_async<'g, Q: Hash + Eq + ?Sized>(
                &$self,
                key: &Q,
                guard: &'g DlhtGuard<'_>,
            ) -> Option<&'g V>
            where
                K: Borrow<Q> + 'g,
                V: 'g,
            {
                $self.prefetch(key);
                yield_once().await;
                $self.get(key, guard)
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
            /// let map = icefield::DlhtMap::from_iter([("one".to_owned(), 1)]);
            /// assert_eq!(block_on(map.get_cloned_async("one")), Some(1));
            /// ```
            pub async fn get_cloned_async<Q: Hash + Eq + ?Sized>(&$self, key: &Q) -> Option<V>
            where
                K: Borrow<Q>,
                V: Clone,
            {
                $self.prefetch(key);
                yield_once().await;
                $self.get_cloned(key)
            }

            /// Removes the records for which `f` returns `false`, each by a separate operation; returns how many it
            /// removed.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter((0..10).map(|key| (key, key)));
            /// assert_eq!(map.retain(|key, _| key % 2 == 0), 5);
            /// assert_eq!(map.len(), 5);
            /// ```
            pub fn retain(&$self, mut f: impl FnMut(&K, &V) -> bool) -> usize {
                let guard = $map.pin();
                let mut removed = 0;
                for (key, _) in $self.iter(&guard) {
                    let unwanted = |record: &Record<K, V>| !f(&record.key, &record.value);
                    removed += usize::from($map.take($namespace, key, unwanted, &guard).is_some());
                }
                removed
            }

            /// Calls `f` for each record of [`iter`](Self::iter), until `f` returns `Break`.
            ///
            /// ```
            /// use std::ops::ControlFlow;
            /// let map = icefield::DlhtMap::from_iter([(1, 10), (2, 20)]);
            /// let mut sum = 0;
            /// map.for_each(|_, value| {
            ///     sum += value;
            ///     ControlFlow::Continue(())
            /// });
            /// assert_eq!(sum, 30);
            /// ```
            pub fn for_each(&$self, mut f: impl FnMut(&K, &V) -> ControlFlow<()>) {
                let guard = $map.pin();
                // Ignored: a break is the decision of the caller's closure.
                let _ = $self.iter(&guard).try_for_each(|(key, value)| f(key, value));
            }

            /// Returns an iterator over the records. It is weakly consistent: it returns every key that is present
            /// during the whole iteration exactly once.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// assert_eq!(map.iter(&map.pin()).collect::<Vec<_>>(), [(&1, &10)]);
            /// ```
            pub fn iter<'g>(
                &'g $self,
                guard: &'g DlhtGuard<'_>,
            ) -> DlhtMapIter<'g, K, V, S, A> {
                DlhtMapIter::new($map, $namespace, guard)
            }
        }
    };
}
calls! {
    /// Operations on namespace 0.
    self: DlhtMap<K, V, S, A>, self, 0
}
calls! {
    /// The operations of [`DlhtMap`], on this namespace.
    self: DlhtNamespace<'_, K, V, S, A>, self.map, self.number
}

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher, A: RecordAllocator> DlhtMap<K, V, S, A> {
    /// Returns a namespace, whose keys are separate from equal keys of other namespaces (§3.4.2). Namespace 0 is the
    /// map itself.
    ///
    /// # Errors
    /// Returns [`Error::InvalidOption`] if `number` is not below 4096.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let (orders, guard) = (map.namespace(7)?, map.pin());
    /// orders.insert(1, 10, &guard);
    /// assert_eq!((orders.get(&1, &guard), map.get(&1, &guard)), (Some(&10), None));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn namespace(&self, number: u16) -> crate::Result<DlhtNamespace<'_, K, V, S, A>> {
        if number >= NAMESPACES {
            return Err(Error::InvalidOption {
                option: "namespace",
                detail: format!("{number} is not below {NAMESPACES}"),
            });
        }
        Ok(DlhtNamespace { map: self, number })
    }

    /// Removes all records of all namespaces at one moment.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
    /// map.clear();
    /// assert!(map.is_empty());
    /// ```
    pub fn clear(&self) {
        plain(self.clear_all(&self.pin()));
    }
}

impl<K, V, S, A> Collection for DlhtMap<K, V, S, A>
where
    K: Hash + Eq + Send,
    V: Send,
    S: BuildHasher,
    A: RecordAllocator,
{
    fn len(&self) -> crate::Result<u64> {
        Ok(self.len())
    }
    fn capacity(&self) -> u64 {
        self.capacity()
    }
    fn stats(&self) -> Stats {
        self.stats()
    }
    fn clear(&self) -> crate::Result<()> {
        self.clear_all(&self.pin())
    }
    fn reserve(&self, additional: u64) -> crate::Result<()> {
        self.try_reserve(additional)
    }
    fn shrink_to_fit(&self) -> crate::Result<()> {
        self.core.shrink()
    }
}

/// A namespace of a [`DlhtMap`], from [`DlhtMap::namespace`].
///
/// ```
/// let map = icefield::DlhtMap::<u64, &str>::new();
/// let (animals, plants) = (map.namespace(1)?, map.namespace(2)?);
/// let guard = map.pin();
/// animals.insert(7, "newt", &guard);
/// plants.insert(7, "moss", &guard);
/// assert_eq!(animals.get(&7, &guard), Some(&"newt"));
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct DlhtNamespace<'a, K, V, S = DlhtBuildHasher, A: RecordAllocator = Global> {
    map: &'a DlhtMap<K, V, S, A>,
    number: u16,
}

impl<K, V, S, A: RecordAllocator> fmt::Debug for DlhtNamespace<'_, K, V, S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtNamespace").field("number", &self.number).finish_non_exhaustive()
    }
}
