//! Batches, shadow inserts and prefetches.

use super::DlhtTable;
use super::api::plain;
use super::mode::Threading;
use super::shadow::{Shadow, Shadows};
use crate::Result;
use crate::outcome::OnFailure;
use crate::table::{NotShadowed, Op, TryInsert, yield_once};
use crate::types::Word;

/// Batches, shadow inserts and prefetches.
///
/// # Panics
/// As the calls on single keys. Batches also panic if their slices differ in length, or if an [`Op::Shadow`] names the
/// shadows of another table. The batches of the trait [`Table`](crate::Table) return errors instead.
impl<K: Word, V: Word, M: Threading> DlhtTable<K, V, M> {
    /// Inserts `key` as a shadow, visible only to its holder (§3.2.2): reads, updates and removals find the key absent,
    /// and other inserts of it are refused.
    ///
    /// ```
    /// use icefield::{Dlht, Error, NotShadowed, Table};
    /// let table = Dlht::<u64, u64>::new();
    /// let shadow = table.try_insert_shadow(1, 10)?;
    /// assert!(matches!(Table::insert(&table, 1, 11), Err(Error::Shadowed)));
    /// shadow.commit();
    /// assert_eq!(table.try_insert_shadow(1, 12).err(), Some(NotShadowed::Occupied(10)));
    /// # Ok::<(), NotShadowed<u64>>(())
    /// ```
    pub fn try_insert_shadow(
        &self,
        key: K,
        value: V,
    ) -> std::result::Result<Shadow<'_, K, V, M>, NotShadowed<V>> {
        plain(self.checked_insert_shadow(key, value))
    }

    /// Like [`DlhtTable::try_insert_shadow`], but returns an error instead of panicking.
    ///
    /// # Errors
    /// Returns [`Error::Full`](crate::Error::Full) if the table may not grow, and
    /// [`Error::NoMemory`](crate::Error::NoMemory) if memory runs out. The table is unchanged.
    ///
    /// ```
    /// use icefield::{Dlht, Error, NotShadowed};
    /// let table = Dlht::<u64, u64>::options().capacity(100).fixed_size().build()?;
    /// let refused = (0..).find_map(|key| table.checked_insert(key, key).err().map(|_| key));
    /// let shadow = table.checked_insert_shadow(refused.expect("it is full"), 1);
    /// assert!(matches!(shadow, Err(Error::Full)));
    /// assert_eq!(table.checked_insert_shadow(7, 1)?.err(), Some(NotShadowed::Occupied(7)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn checked_insert_shadow(
        &self,
        key: K,
        value: V,
    ) -> Result<std::result::Result<Shadow<'_, K, V, M>, NotShadowed<V>>> {
        Shadow::insert(self, key, value)
    }

    /// Returns a holder for the shadow inserts of batches ([`Op::shadow`], §3.2.2) until they commit or abort.
    ///
    /// ```
    /// use icefield::{OnFailure, Op};
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let shadows = table.shadows();
    /// let mut ops = [Op::shadow(1, 10, &shadows), Op::shadow(2, 20, &shadows)];
    /// table.execute(&mut ops, OnFailure::Stop);
    /// // Both keys are ours, if nothing failed, and no other thread sees them.
    /// assert!(ops.iter().all(|op| !op.failed()) && table.is_empty());
    /// shadows.commit();
    /// assert_eq!((table.get(1), table.get(2)), (Some(10), Some(20)));
    /// ```
    pub fn shadows(&self) -> Shadows<'_, K, V, M> {
        Shadows::of(self)
    }

    /// Calls [`DlhtTable::get`] for each key in order, with memory latencies overlapped (§3.3). This is the fast way to
    /// read.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// let mut found = [None; 2];
    /// table.get_batch(&[1, 2], &mut found);
    /// assert_eq!(found, [Some(10), None]);
    /// ```
    pub fn get_batch(&self, keys: &[K], found: &mut [Option<V>]) {
        plain(self.get_all(keys, found));
    }

    /// Calls [`DlhtTable::insert`] for each record in order.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let mut previous = [None; 2];
    /// table.insert_batch(&[(1, 10), (1, 11)], &mut previous);
    /// assert_eq!(previous, [None, Some(10)]);
    /// ```
    pub fn insert_batch(&self, records: &[(K, V)], previous: &mut [Option<V>]) {
        plain(self.insert_all(records, previous));
    }

    /// Calls [`DlhtTable::put`] for each record in order.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.put_batch(&[(1, 10), (2, 20)]);
    /// assert_eq!(table.len(), 2);
    /// ```
    pub fn put_batch(&self, records: &[(K, V)]) {
        plain(self.put_all(records));
    }

    /// Calls [`DlhtTable::update`] for each record in order.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.put(1, 10);
    /// let mut previous = [None; 2];
    /// table.update_batch(&[(1, 11), (2, 20)], &mut previous);
    /// assert_eq!(previous, [Some(10), None]);
    /// ```
    pub fn update_batch(&self, records: &[(K, V)], previous: &mut [Option<V>]) {
        plain(self.update_all(records, previous));
    }

    /// Calls [`DlhtTable::try_insert`] for each record in order.
    ///
    /// ```
    /// use icefield::Occupied;
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let mut outcomes = [Ok(()), Ok(())];
    /// table.try_insert_batch(&[(1, 10), (1, 11)], &mut outcomes);
    /// assert_eq!(outcomes, [Ok(()), Err(Occupied(10))]);
    /// ```
    pub fn try_insert_batch(&self, records: &[(K, V)], outcomes: &mut [TryInsert<V>]) {
        plain(self.try_insert_all(records, outcomes));
    }

    /// Calls [`DlhtTable::remove`] for each key in order.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.put(1, 10);
    /// let mut removed = [None; 2];
    /// table.remove_batch(&[1, 2], &mut removed);
    /// assert_eq!(removed, [Some(10), None]);
    /// ```
    pub fn remove_batch(&self, keys: &[K], removed: &mut [Option<V>]) {
        plain(self.remove_all(keys, removed));
    }

    /// Runs a mixed batch strictly in order and returns how many operations ran. Each operation that ran holds its
    /// result. The batch's shadow inserts are held by their [`Shadows`].
    ///
    /// ```
    /// use icefield::{OnFailure, Op};
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let mut ops = [Op::put(1, 10), Op::get(2), Op::put(3, 30)];
    /// assert_eq!(table.execute(&mut ops, OnFailure::Stop), 2);
    /// assert_eq!(table.get(3), None);
    /// ```
    pub fn execute(&self, ops: &mut [Op<'_, K, V>], on_failure: OnFailure) -> usize {
        plain(self.execute_all(ops, on_failure))
    }

    /// Prefetches the bin of `key`, for an operation that follows soon.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from_iter([(1, 10)]);
    /// table.prefetch(1);
    /// // Other work, while the line is loaded.
    /// assert_eq!(table.get(1), Some(10));
    /// ```
    #[inline]
    pub fn prefetch(&self, key: K) {
        self.core.prefetch(key.to_word());
    }

    /// Prefetches the bin of `key`, yields to the executor once, then returns the value.
    ///
    /// ```
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
    /// #     }
    /// # }
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.put(1, 10);
    /// assert_eq!(block_on(table.get_async(1)), Some(10));
    /// ```
    pub async fn get_async(&self, key: K) -> Option<V> {
        self.prefetch(key);
        yield_once().await;
        self.get(key)
    }
}
