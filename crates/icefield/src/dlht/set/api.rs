//! The calls of a set.

use super::{DlhtWordSet, NoValue};
use crate::dlht::api::plain;
use crate::dlht::batch::BatchOp;
use crate::dlht::mode::Threading;
use crate::dlht::options::DlhtOptions;
use crate::dlht::write::{Outcome, Rule};
use crate::table::{same_length, yield_once};
use crate::types::Word;
use crate::{Error, Result};

/// Construction, and calls on single keys.
///
/// # Panics
/// [`DlhtWordSet::insert`] and its batch panic if the set is full and may not grow, if a shadow insert holds the key, or
/// if the system has no memory. A set without options always grows, so it refuses an insert only for lack of memory.
/// [`DlhtWordSet::checked_insert`] and its batch return errors instead. [`DlhtWordSet::new`] and
/// [`DlhtWordSet::with_capacity`] panic if the system has no memory; [`DlhtOptions::build`] returns an error. Batches also
/// panic if their slices differ in length.
impl<K: Word, M: Threading> DlhtWordSet<K, M> {
    /// Creates an empty set that grows as needed.
    ///
    /// ```
    /// assert!(icefield::DlhtSet::<u32>::new().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Creates an empty set that takes `keys` keys before it must grow.
    ///
    /// ```
    /// assert!(icefield::DlhtSet::<u32>::with_capacity(1000).capacity() >= 1000);
    /// ```
    #[must_use]
    pub fn with_capacity(keys: usize) -> Self {
        plain(Self::options().capacity(keys).build())
    }

    /// Returns a builder for sets of this type.
    ///
    /// ```
    /// use icefield::{DlhtHash, DlhtSet};
    /// let set = DlhtSet::<u32>::options().capacity(1000).hash(DlhtHash::Modulo).build()?;
    /// assert!(set.capacity() >= 1000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn options() -> DlhtOptions<Self> {
        DlhtOptions::default()
    }

    /// Returns whether `key` is in the set.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from_iter([1_u32]);
    /// assert!(set.contains(1) && !set.contains(2));
    /// ```
    #[inline]
    pub fn contains(&self, key: K) -> bool {
        self.table.contains(key)
    }

    /// Adds `key`; returns whether it was absent.
    ///
    /// ```
    /// let set = icefield::DlhtSet::new();
    /// assert_eq!((set.insert(1_u32), set.insert(1)), (true, false));
    /// ```
    #[inline]
    pub fn insert(&self, key: K) -> bool {
        plain(self.checked_insert(key))
    }

    /// Like [`DlhtWordSet::insert`], but returns an error instead of panicking.
    ///
    /// # Errors
    /// Returns [`Error::Full`](crate::Error::Full) if the set may not grow, [`Error::Shadowed`](crate::Error::Shadowed)
    /// if a shadow insert holds the key, and [`Error::NoMemory`](crate::Error::NoMemory) if memory runs out. The set is
    /// unchanged.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from([1_u32]);
    /// assert_eq!((set.checked_insert(1)?, set.checked_insert(2)?), (false, true));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[inline]
    pub fn checked_insert(&self, key: K) -> Result<bool> {
        Ok(self.table.try_insert_one(key, NoValue)?.is_ok())
    }

    /// Removes `key`; returns whether it was present.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from_iter([1_u32]);
    /// assert_eq!((set.remove(1), set.remove(1)), (true, false));
    /// ```
    #[inline]
    pub fn remove(&self, key: K) -> bool {
        self.table.remove(key).is_some()
    }

    /// Calls [`DlhtWordSet::contains`] for each key in order, with memory latencies overlapped.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from_iter([1_u32]);
    /// let mut found = [false; 2];
    /// set.contains_batch(&[1, 2], &mut found);
    /// assert_eq!(found, [true, false]);
    /// ```
    pub fn contains_batch(&self, keys: &[K], found: &mut [bool]) {
        plain(same_length(keys.len(), found.len()));
        self.table.core.get_all(
            keys.len(),
            |at| keys[at].to_word(),
            |at, value| found[at] = value.is_some(),
        );
    }

    /// Calls [`DlhtWordSet::insert`] for each key in order, with memory latencies overlapped.
    ///
    /// ```
    /// let set = icefield::DlhtSet::new();
    /// let mut inserted = [false; 2];
    /// set.insert_batch(&[1_u32, 1], &mut inserted);
    /// assert_eq!(inserted, [true, false]);
    /// ```
    pub fn insert_batch(&self, keys: &[K], inserted: &mut [bool]) {
        plain(self.checked_insert_batch(keys, inserted));
    }

    /// Like [`DlhtWordSet::insert_batch`], but returns an error instead of panicking.
    ///
    /// # Errors
    /// As [`DlhtWordSet::checked_insert`], for the first key that is refused: the keys before it are in the set, and those
    /// after it have not been inserted. Also fails if the slices differ in length.
    ///
    /// ```
    /// use icefield::{DlhtSet, Error};
    /// let set = DlhtSet::<u32>::options().capacity(100).fixed_size().build()?;
    /// let keys: Vec<u32> = (0..10_000).collect();
    /// let batch = set.checked_insert_batch(&keys, &mut vec![false; keys.len()]);
    /// assert!(matches!(batch, Err(Error::Full)));
    /// assert!(set.contains(0) && !set.contains(9999));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn checked_insert_batch(&self, keys: &[K], inserted: &mut [bool]) -> Result<()> {
        same_length(keys.len(), inserted.len())?;
        let key = |at: usize| keys[at].to_word();
        let insert = |at: usize, turn: BatchOp<'_, M>| {
            inserted[at] = match turn.store(NoValue.to_word(), Rule::IfAbsent)? {
                Outcome::Shadowed => return Err(Error::Shadowed),
                outcome => outcome == Outcome::Inserted,
            };
            Ok(())
        };
        self.table.core.run_all(keys.len(), (key, insert)).map(drop)
    }

    /// Calls [`DlhtWordSet::remove`] for each key in order, with memory latencies overlapped.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from_iter([1_u32]);
    /// let mut removed = [false; 2];
    /// set.remove_batch(&[1, 1], &mut removed);
    /// assert_eq!(removed, [true, false]);
    /// ```
    pub fn remove_batch(&self, keys: &[K], removed: &mut [bool]) {
        plain(same_length(keys.len(), removed.len()));
        let key = |at: usize| keys[at].to_word();
        let remove = |at: usize, turn: BatchOp<'_, M>| {
            removed[at] = matches!(turn.take(), Outcome::Replaced(_));
            Ok(())
        };
        plain(self.table.core.run_all(keys.len(), (key, remove)));
    }

    /// Prefetches the bin of `key`, for an operation that follows soon.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from_iter([1_u32]);
    /// set.prefetch(1);
    /// // Other work, while the line is loaded.
    /// assert!(set.contains(1));
    /// ```
    #[inline]
    pub fn prefetch(&self, key: K) {
        self.table.prefetch(key);
    }

    /// Prefetches the bin of `key`, yields to the executor once, then returns whether the key is in the set.
    ///
    /// ```
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
    /// #     }
    /// # }
    /// let set = icefield::DlhtSet::from([1_u32]);
    /// assert!(block_on(set.contains_async(1)));
    /// ```
    pub async fn contains_async(&self, key: K) -> bool {
        self.prefetch(key);
        yield_once().await;
        self.contains(key)
    }
}
