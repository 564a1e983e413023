//! A part of a parallel iteration: a range of positions of a scan.

use rayon::iter::plumbing::{Folder, UnindexedConsumer, UnindexedProducer, bridge_unindexed};

use crate::dlht::Dlht;
use crate::dlht::api::plain;
use crate::dlht::hasher::Hasher;
use crate::dlht::scan::GENERATION_BITS;
use crate::outcome::SCAN_PAGE;
use crate::types::Word;

/// The positions `from..end` in the order of `hasher`.
pub(super) struct ScanRange<'a, K, V> {
    table: &'a Dlht<K, V>,
    hasher: Hasher,
    from: u64,
    end: u64,
    /// Ranges with fewer positions are not divided.
    least: u64,
}

impl<'a, K: Word, V: Word> ScanRange<'a, K, V> {
    /// Iterates over all records in parallel.
    pub(super) fn drive<C: UnindexedConsumer<(K, V)>>(
        table: &'a Dlht<K, V>,
        consumer: C,
    ) -> C::Result {
        let hasher = table.core.current(&table.core.pin()).hasher;
        let pages = (table.len() / SCAN_PAGE).max(1) as u64;
        let end = 1 << (u64::BITS - GENERATION_BITS);
        let whole = Self { table, hasher, from: 0, end, least: 2 * end / pages };
        bridge_unindexed(whole, consumer)
    }

    fn cursor(&self, place: u64) -> u64 {
        place << GENERATION_BITS | u64::from(self.hasher.generation)
    }

    fn contains(&self, key: u64) -> bool {
        (self.from..self.end).contains(&(self.hasher.order(key) >> GENERATION_BITS))
    }

    /// Returns whether a scan that continues at `cursor` can return further keys of this range.
    fn continues_at(&self, cursor: u64) -> bool {
        // The cursor of another function is a position in another order.
        cursor as u16 != self.hasher.generation || cursor >> GENERATION_BITS < self.end
    }
}

impl<K: Word, V: Word> UnindexedProducer for ScanRange<'_, K, V> {
    type Item = (K, V);

    fn split(self) -> (Self, Option<Self>) {
        if self.end - self.from < self.least {
            return (self, None);
        }
        let middle = self.from + (self.end - self.from) / 2;
        (Self { end: middle, ..self }, Some(Self { from: middle, ..self }))
    }

    fn fold_with<F: Folder<(K, V)>>(self, folder: F) -> F {
        let mut folder = folder;
        let mut words = Vec::new();
        let mut next = Some(self.cursor(self.from));
        while let Some(cursor) = next
            && self.continues_at(cursor)
            && !folder.full()
        {
            words.clear();
            next = plain(self.table.core.scan(cursor, SCAN_PAGE, &mut words));
            let own = words.iter().filter(|&&(key, _)| self.contains(key));
            let typed =
                own.filter_map(|&(key, value)| Some((K::from_word(key)?, V::from_word(value)?)));
            folder = folder.consume_iter(typed);
        }
        folder
    }
}
