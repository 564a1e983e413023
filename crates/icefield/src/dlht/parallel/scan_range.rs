//! A part of a parallel iteration: a range of positions of a scan.

use rayon::iter::plumbing::{Folder, UnindexedConsumer, UnindexedProducer, bridge_unindexed};

use crate::dlht::api::plain;
use crate::dlht::core::Core;
use crate::dlht::hasher::Hasher;
use crate::dlht::mode::Shared;
use crate::dlht::scan::GENERATION_BITS;
use crate::outcome::SCAN_PAGE;

/// Iterates over all records of a table of words in parallel. `items` converts each record to items.
pub(in crate::dlht) fn drive<F, I, C>(core: &Core<Shared>, items: F, consumer: C) -> C::Result
where
    F: Fn(u64, u64) -> I + Copy + Send,
    I: IntoIterator<Item: Send>,
    C: UnindexedConsumer<I::Item>,
{
    let hasher = core.current(&core.pin()).hasher;
    let pages = (core.len() / SCAN_PAGE as u64).max(1);
    let end = 1 << (u64::BITS - GENERATION_BITS);
    let whole = ScanRange { core, items, hasher, from: 0, end, least: 2 * end / pages };
    bridge_unindexed(whole, consumer)
}

/// The positions `from..end` in the order of `hasher`.
struct ScanRange<'a, F> {
    core: &'a Core<Shared>,
    items: F,
    hasher: Hasher,
    from: u64,
    end: u64,
    /// Ranges with fewer positions are not divided.
    least: u64,
}

impl<F> ScanRange<'_, F> {
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

impl<F, I> UnindexedProducer for ScanRange<'_, F>
where
    F: Fn(u64, u64) -> I + Copy + Send,
    I: IntoIterator<Item: Send>,
{
    type Item = I::Item;

    fn split(self) -> (Self, Option<Self>) {
        if self.end - self.from < self.least {
            return (self, None);
        }
        let middle = self.from + (self.end - self.from) / 2;
        (Self { end: middle, ..self }, Some(Self { from: middle, ..self }))
    }

    fn fold_with<C: Folder<I::Item>>(self, folder: C) -> C {
        let mut folder = folder;
        let mut words = Vec::new();
        let mut next = Some(self.cursor(self.from));
        while let Some(cursor) = next
            && self.continues_at(cursor)
            && !folder.full()
        {
            words.clear();
            next = plain(self.core.scan(cursor, SCAN_PAGE, &mut words));
            let own = words.iter().filter(|&&(key, _)| self.contains(key));
            folder = folder.consume_iter(own.flat_map(|&(key, word)| (self.items)(key, word)));
        }
        folder
    }
}
