//! A handle of one thread for single gets.

use std::fmt;

use super::Dlht;
use crate::base::reclaim::Desk;
use crate::types::Word;

/// A handle of one thread for the gets of a [`Dlht`], from [`Dlht::reader`]. Each get of the table itself looks up where
/// this thread announces to writers that it reads; the handle has looked it up once. It protects nothing between calls,
/// so it holds back no memory.
///
/// ```
/// let table = icefield::Dlht::<u64, u64>::from_iter([(1, 10)]);
/// let reader = table.reader();
/// assert_eq!((reader.get(1), reader.get(2)), (Some(10), None));
/// table.insert(2, 20);
/// assert_eq!(reader.get(2), Some(20));
/// ```
pub struct DlhtReader<'a, K, V> {
    table: &'a Dlht<K, V>,
    desk: Desk<'a>,
}

impl<K: Word, V: Word> Dlht<K, V> {
    /// Returns a handle for this thread's single gets, which takes a few instructions less for each. For many keys at
    /// once, [`get_batch`](Dlht::get_batch) is several times as fast.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from_iter((0..100).map(|key| (key, key)));
    /// let reader = table.reader();
    /// assert_eq!((0..100).filter_map(|key| reader.get(key)).sum::<u64>(), 4950);
    /// ```
    pub fn reader(&self) -> DlhtReader<'_, K, V> {
        DlhtReader { table: self, desk: self.core.desk() }
    }
}

impl<K: Word, V: Word> DlhtReader<'_, K, V> {
    /// Calls [`Dlht::get`].
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from_iter([(1, 10)]);
    /// assert_eq!(table.reader().get(1), Some(10));
    /// ```
    #[inline(always)]
    pub fn get(&self, key: K) -> Option<V> {
        let word = self.table.core.get_under(&self.desk.enter(), key.to_word())?;
        V::from_word(word)
    }

    /// Calls [`Dlht::contains`].
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from_iter([(1, 10)]);
    /// assert!(table.reader().contains(1));
    /// ```
    #[inline(always)]
    pub fn contains(&self, key: K) -> bool {
        self.table.core.get_under(&self.desk.enter(), key.to_word()).is_some()
    }
}

impl<K, V> fmt::Debug for DlhtReader<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DlhtReader")
    }
}
