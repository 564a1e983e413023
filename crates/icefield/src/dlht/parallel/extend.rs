//! Filling tables and sets in parallel, in batches.

use rayon::iter::{FromParallelIterator, IntoParallelIterator, ParallelExtend, ParallelIterator};

use crate::dlht::{Dlht, DlhtSet};
use crate::outcome::SCAN_PAGE;
use crate::types::Word;

/// Passes the items of `items` to `insert`, a page at a time.
pub(in crate::dlht) fn in_pages<T: Send>(
    items: impl ParallelIterator<Item = T>,
    insert: impl Fn(&mut Vec<T>) + Sync,
) {
    let add = |mut page: Vec<T>, item| {
        page.push(item);
        if page.len() == SCAN_PAGE {
            insert(&mut page);
            page.clear();
        }
        page
    };
    items.fold(Vec::new, add).for_each(|mut page| insert(&mut page));
}

/// Inserts the records in no particular order: if a key occurs several times, any of its values stays.
///
/// ```
/// use rayon::prelude::*;
/// let mut table = icefield::Dlht::<u64, u64>::new();
/// table.par_extend((0..10_000_u64).into_par_iter().map(|key| (key, key)));
/// assert_eq!(table.len(), 10_000);
/// ```
impl<K: Word, V: Word> ParallelExtend<(K, V)> for Dlht<K, V> {
    fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, records: I) {
        let records = records.into_par_iter();
        self.reserve(records.opt_len().unwrap_or(0));
        in_pages(records, |page| self.put_batch(page));
    }
}

/// As for records by value.
impl<'r, K: Word, V: Word> ParallelExtend<(&'r K, &'r V)> for Dlht<K, V> {
    fn par_extend<I: IntoParallelIterator<Item = (&'r K, &'r V)>>(&mut self, records: I) {
        self.par_extend(records.into_par_iter().map(|(&key, &value)| (key, value)));
    }
}

/// Inserts the records in no particular order: if a key occurs several times, any of its values stays.
impl<K: Word, V: Word> FromParallelIterator<(K, V)> for Dlht<K, V> {
    fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(records: I) -> Self {
        let mut table = Self::new();
        table.par_extend(records);
        table
    }
}

impl<K: Word> ParallelExtend<K> for DlhtSet<K> {
    fn par_extend<I: IntoParallelIterator<Item = K>>(&mut self, keys: I) {
        let keys = keys.into_par_iter();
        self.reserve(keys.opt_len().unwrap_or(0));
        in_pages(keys, |page| self.insert_batch(page, &mut [false; SCAN_PAGE][..page.len()]));
    }
}

impl<'r, K: Word> ParallelExtend<&'r K> for DlhtSet<K> {
    fn par_extend<I: IntoParallelIterator<Item = &'r K>>(&mut self, keys: I) {
        self.par_extend(keys.into_par_iter().copied());
    }
}

impl<K: Word> FromParallelIterator<K> for DlhtSet<K> {
    fn from_par_iter<I: IntoParallelIterator<Item = K>>(keys: I) -> Self {
        let mut set = Self::new();
        set.par_extend(keys);
        set
    }
}
