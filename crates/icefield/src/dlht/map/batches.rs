//! The calls for batches.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::api::{accepted, both};
use super::memory::RecordAllocator;
use super::write::{Put, When};
use super::{DlhtGuard, DlhtMapOp, DlhtNamespace, DlhtRecordMap};
use crate::dlht::api::plain;
use crate::outcome::{Occupied, OnFailure};

both! {
    /// Calls [`get`](Self::get) for each key in order, with the memory latencies of bins and records overlapped
    /// (§3.3). Both slices must have the same length.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// let guard = map.pin();
    /// let mut found = [None; 2];
    /// map.get_batch(&[&1, &2], &mut found, &guard);
    /// assert_eq!(found, [Some(&10), None]);
    /// ```
    pub fn get_batch<'g, Q: Hash + Eq + ?Sized>(
        &self,
        keys: &[&Q],
        found: &mut [Option<&'g V>],
        guard: &'g DlhtGuard<'_>,
    ) where
        K: Borrow<Q> + 'g,
    {
        self.map().find_all(self.number(), keys, found, guard);
    }

    /// Calls [`insert`](Self::insert) for each record in order, with memory latencies overlapped (§3.3), and
    /// returns the results. Operations of other threads may come in between. If memory runs out, the records
    /// before the failed one have been inserted.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// let guard = map.pin();
    /// let before = map.insert_batch([(1, 11), (2, 20), (1, 12)], &guard);
    /// assert_eq!(before, [Some(&10), None, Some(&11)]);
    /// ```
    pub fn insert_batch<'g>(
        &self,
        records: impl IntoIterator<Item = (K, V)>,
        guard: &'g DlhtGuard<'_>,
    ) -> Vec<Option<&'g V>>
    where
        K: 'g,
    {
        self.map().put_each(self.number(), records, When::Always, guard, Put::replaced)
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
        &self,
        records: impl IntoIterator<Item = (K, V)>,
        guard: &'g DlhtGuard<'_>,
    ) -> Vec<Result<(), Occupied<&'g V>>>
    where
        K: 'g,
    {
        self.map().put_each(self.number(), records, When::Absent, guard, accepted)
    }

    /// Calls [`update`](Self::update) for each record, like [`insert_batch`](Self::insert_batch).
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// let guard = map.pin();
    /// assert_eq!(map.update_batch([(1, 11), (2, 20)], &guard), [Some(&10), None]);
    /// ```
    pub fn update_batch<'g>(
        &self,
        records: impl IntoIterator<Item = (K, V)>,
        guard: &'g DlhtGuard<'_>,
    ) -> Vec<Option<&'g V>>
    where
        K: 'g,
    {
        self.map().put_each(self.number(), records, When::Present, guard, Put::replaced)
    }

    /// Calls [`remove`](Self::remove) for each key, like [`insert_batch`](Self::insert_batch). Both slices must
    /// have the same length.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// let guard = map.pin();
    /// let mut removed = [None; 2];
    /// map.remove_batch(&[&1, &1], &mut removed, &guard);
    /// assert_eq!(removed, [Some(&10), None]);
    /// ```
    pub fn remove_batch<'g, Q: Hash + Eq + ?Sized>(
        &self,
        keys: &[&Q],
        removed: &mut [Option<&'g V>],
        guard: &'g DlhtGuard<'_>,
    ) where
        K: Borrow<Q> + 'g,
    {
        self.map().take_all(self.number(), keys, removed, guard);
    }

    /// Runs a mixed batch in order, with memory latencies overlapped (§3.3), and returns how many operations
    /// have run; each holds its result. With [`OnFailure::Stop`], the batch ends after the first operation that
    /// finds its key occupied or absent. Operations of other threads may come in between. Each operation runs
    /// once: one that ran in an earlier batch is skipped.
    ///
    /// ```
    /// use icefield::{DlhtMap, DlhtMapOp, OnFailure};
    /// let map = DlhtMap::from([(1, 10)]);
    /// let guard = map.pin();
    /// let mut ops = [DlhtMapOp::remove(&1), DlhtMapOp::get(&1), DlhtMapOp::insert(2, 20)];
    /// assert_eq!(map.execute(&mut ops, OnFailure::Stop, &guard), 2, "ends at the absent key");
    /// assert_eq!(ops[0].value(), Some(&10));
    /// assert_eq!(map.execute(&mut ops, OnFailure::Continue, &guard), 3, "goes on");
    /// assert_eq!(map.get(&2, &guard), Some(&20));
    /// ```
    pub fn execute<'g, Q: Hash + Eq + ?Sized>(
        &self,
        ops: &mut [DlhtMapOp<'_, 'g, K, V, Q>],
        on_failure: OnFailure,
        guard: &'g DlhtGuard<'_>,
    ) -> usize
    where
        K: Borrow<Q> + 'g,
    {
        plain(self.map().execute_all(self.number(), ops, on_failure, guard))
    }

    /// Like [`execute`](Self::execute), but returns an error instead of panicking. The operations before the one that
    /// was refused have run ([`DlhtMapOp::has_run`]); this one and those after it have not, and still have their
    /// records.
    ///
    /// # Errors
    /// As [`checked_insert`](Self::checked_insert).
    ///
    /// ```
    /// use icefield::{DlhtMap, DlhtMapOp, OnFailure};
    /// let map = DlhtMap::<u32, u32>::options().capacity(10).fixed_size().build()?;
    /// let guard = map.pin();
    /// let mut ops: Vec<DlhtMapOp<'_, '_, u32, u32>> =
    ///     (0..10_000).map(|key| DlhtMapOp::insert(key, key)).collect();
    /// assert!(map.checked_execute(&mut ops, OnFailure::Continue, &guard).is_err(), "full");
    /// let left = ops.into_iter().filter_map(|op| op.into_record()).count();
    /// assert_eq!(map.len() + left, 10_000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn checked_execute<'g, Q: Hash + Eq + ?Sized>(
        &self,
        ops: &mut [DlhtMapOp<'_, 'g, K, V, Q>],
        on_failure: OnFailure,
        guard: &'g DlhtGuard<'_>,
    ) -> crate::Result<usize>
    where
        K: Borrow<Q> + 'g,
    {
        self.map().execute_all(self.number(), ops, on_failure, guard)
    }
}
