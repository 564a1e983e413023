//! HashSet mode (§3.1): keys only.

use std::fmt;
use std::marker::PhantomData;

use super::api::plain;
use super::batch::BatchOp;
use super::core::Core;
use super::header::SlotState;
use super::mode::Shared;
use super::plan::Plan;
use super::write::{Outcome, Rule};
use crate::Result;
use crate::outcome::{Cursor, SCAN_PAGE};
use crate::report::Stats;
use crate::table::{Collection, same_length};
use crate::types::{Key, Word};

/// The value word of all slots.
const NO_VALUE: u64 = 0;

/// A concurrent set of words: DLHT without values. It can also serve as a lock manager: a successful insert takes a
/// lock, a removal releases it, and batches keep their order.
///
/// # Panics
/// The constructors, [`DlhtSet::insert`] and its batch, [`DlhtSet::reserve`], [`DlhtSet::shrink_to_fit`] and
/// [`DlhtSet::clear`] panic if the system has no memory for an index. Batches panic if their slices differ in length.
///
/// ```
/// let locks = icefield::DlhtSet::<u64>::new();
/// assert!(locks.insert(7));
/// assert!(!locks.insert(7), "somebody has it");
/// locks.remove(7);
/// ```
pub struct DlhtSet<K> {
    core: Core<Shared>,
    types: PhantomData<fn(K)>,
}

impl<K: Word> Collection for DlhtSet<K> {
    fn len(&self) -> Result<u64> {
        Ok(self.len())
    }
    fn capacity(&self) -> u64 {
        self.capacity()
    }
    fn stats(&self) -> Stats {
        self.stats()
    }
    fn clear(&self) -> Result<()> {
        self.core.clear()
    }
    fn reserve(&self, additional: u64) -> Result<()> {
        self.core.reserve(self.len().saturating_add(additional))
    }
    fn shrink_to_fit(&self) -> Result<()> {
        self.core.shrink()
    }
}

impl<K: Word> Default for DlhtSet<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Word> DlhtSet<K> {
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
    pub fn with_capacity(keys: u64) -> Self {
        const { <K as Key>::USABLE };
        Self { core: plain(Core::new(Plan::default(), keys)), types: PhantomData }
    }

    /// Returns whether `key` is in the set.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from_iter([1_u32]);
    /// assert!(set.contains(1) && !set.contains(2));
    /// ```
    #[inline]
    pub fn contains(&self, key: K) -> bool {
        self.core.get(key.to_word()).is_some()
    }

    /// Adds `key`; returns whether it was absent.
    ///
    /// ```
    /// let set = icefield::DlhtSet::new();
    /// assert_eq!((set.insert(1_u32), set.insert(1)), (true, false));
    /// ```
    #[inline]
    pub fn insert(&self, key: K) -> bool {
        let outcome = self.core.store(key.to_word(), NO_VALUE, Rule::IfAbsent, SlotState::Valid);
        plain(outcome) == Outcome::Inserted
    }

    /// Removes `key`; returns whether it was present.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from_iter([1_u32]);
    /// assert_eq!((set.remove(1), set.remove(1)), (true, false));
    /// ```
    #[inline]
    pub fn remove(&self, key: K) -> bool {
        matches!(self.core.take(key.to_word(), None), Outcome::Replaced(_))
    }

    /// Calls [`DlhtSet::contains`] for each key in order, with memory latencies overlapped.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from_iter([1_u32]);
    /// let mut found = [false; 2];
    /// set.contains_batch(&[1, 2], &mut found);
    /// assert_eq!(found, [true, false]);
    /// ```
    pub fn contains_batch(&self, keys: &[K], found: &mut [bool]) {
        plain(same_length(keys.len(), found.len()));
        self.core.get_all(
            keys.len(),
            |at| keys[at].to_word(),
            |at, value| found[at] = value.is_some(),
        );
    }

    /// Calls [`DlhtSet::insert`] for each key in order, with memory latencies overlapped.
    ///
    /// ```
    /// let set = icefield::DlhtSet::new();
    /// let mut inserted = [false; 2];
    /// set.insert_batch(&[1_u32, 1], &mut inserted);
    /// assert_eq!(inserted, [true, false]);
    /// ```
    pub fn insert_batch(&self, keys: &[K], inserted: &mut [bool]) {
        plain(same_length(keys.len(), inserted.len()));
        let key = |at: usize| keys[at].to_word();
        let insert = |at: usize, turn: BatchOp<'_, Shared>| {
            inserted[at] = turn.store(NO_VALUE, Rule::IfAbsent)? == Outcome::Inserted;
            Ok(())
        };
        plain(self.core.run_all(keys.len(), (key, insert)));
    }

    /// Calls [`DlhtSet::remove`] for each key in order, with memory latencies overlapped.
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
        let remove = |at: usize, turn: BatchOp<'_, Shared>| {
            removed[at] = matches!(turn.take(), Outcome::Replaced(_));
            Ok(())
        };
        plain(self.core.run_all(keys.len(), (key, remove)));
    }

    /// Returns the number of keys. The number is exact while no thread changes the set.
    ///
    /// ```
    /// assert_eq!(icefield::DlhtSet::from_iter([1_u32, 2]).len(), 2);
    /// ```
    pub fn len(&self) -> u64 {
        self.core.len()
    }

    /// Returns whether the set is empty. The answer is exact while no thread changes the set.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many keys fit before the set must grow.
    pub fn capacity(&self) -> u64 {
        self.core.capacity()
    }

    /// Returns statistics of the set.
    ///
    /// ```
    /// let set: icefield::DlhtSet<u32> = (0..1000).collect();
    /// assert!(set.stats().dram_bytes > 8 * 1000);
    /// ```
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Makes room for `additional` more keys. If that needs a larger index, returns when all keys have been moved
    /// there.
    ///
    /// ```
    /// let set = icefield::DlhtSet::<u32>::new();
    /// set.reserve(1000);
    /// assert!(set.capacity() >= 1000);
    /// ```
    pub fn reserve(&self, additional: u64) {
        plain(self.core.reserve(self.len().saturating_add(additional)));
    }

    /// Moves all keys to the smallest index that takes them.
    ///
    /// ```
    /// let set = icefield::DlhtSet::<u32>::with_capacity(100_000);
    /// set.shrink_to_fit();
    /// assert!(set.capacity() < 1000);
    /// ```
    pub fn shrink_to_fit(&self) {
        plain(self.core.shrink());
    }

    /// Removes all keys in one atomic step.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from_iter([1_u32]);
    /// set.clear();
    /// assert!(set.is_empty());
    /// ```
    pub fn clear(&self) {
        plain(self.core.clear());
    }

    /// Removes the keys for which `f` returns `false`, each by a separate operation; returns how many it removed.
    ///
    /// ```
    /// let set: icefield::DlhtSet<u32> = (0..10).collect();
    /// assert_eq!(set.retain(|key| key % 2 == 0), 5);
    /// assert_eq!(set.len(), 5);
    /// ```
    pub fn retain(&self, mut f: impl FnMut(K) -> bool) -> usize {
        self.iter().filter(|key| !f(*key) && self.remove(*key)).count()
    }

    /// Prefetches the bin of `key`, for an operation that follows soon.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from_iter([1_u32]);
    /// set.prefetch(1);
    /// // Other work, while the line is loaded.
    /// assert!(set.contains(1));
    /// ```
    pub fn prefetch(&self, key: K) {
        self.core.prefetch(key.to_word());
    }

    /// Returns an iterator over the keys. It is weakly consistent: a key that is present during the whole iteration is
    /// returned exactly once.
    ///
    /// ```
    /// assert_eq!(icefield::DlhtSet::from_iter([1_u32]).iter().collect::<Vec<_>>(), [1]);
    /// ```
    pub fn iter(&self) -> DlhtSetIter<'_, K> {
        DlhtSetIter { set: self, page: Vec::new().into_iter(), next: Some(Cursor::START) }
    }
}

impl<K: Word> fmt::Debug for DlhtSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<K: Word> FromIterator<K> for DlhtSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let keys = keys.into_iter();
        let mut set = Self::with_capacity(keys.size_hint().0 as u64);
        set.extend(keys);
        set
    }
}

impl<K: Word> Extend<K> for DlhtSet<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        keys.into_iter().for_each(|key| {
            self.insert(key);
        });
    }
}

impl<'a, K: Word> IntoIterator for &'a DlhtSet<K> {
    type Item = K;
    type IntoIter = DlhtSetIter<'a, K>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// An iterator over the keys of a set, from [`DlhtSet::iter`]. It reads ahead one page at a time.
///
/// ```
/// let set = icefield::DlhtSet::<u64>::from_iter([1, 2]);
/// assert_eq!(set.iter().sum::<u64>(), 3);
/// ```
pub struct DlhtSetIter<'a, K> {
    set: &'a DlhtSet<K>,
    page: std::vec::IntoIter<(u64, u64)>,
    next: Option<Cursor>,
}

impl<K: Word> DlhtSetIter<'_, K> {
    fn read_page(&mut self, cursor: Cursor) -> Result<()> {
        let mut words = Vec::new();
        self.next = self.set.core.scan(cursor.0, SCAN_PAGE, &mut words)?.map(Cursor);
        self.page = words.into_iter();
        Ok(())
    }
}

impl<K: Word> Iterator for DlhtSetIter<'_, K> {
    type Item = K;

    fn next(&mut self) -> Option<K> {
        loop {
            if let Some(key) = self.page.by_ref().find_map(|(word, _)| K::from_word(word)) {
                return Some(key);
            }
            let cursor = self.next.take()?;
            plain(self.read_page(cursor));
        }
    }
}

impl<K: Word> fmt::Debug for DlhtSetIter<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtSetIter").field("next", &self.next).finish_non_exhaustive()
    }
}
