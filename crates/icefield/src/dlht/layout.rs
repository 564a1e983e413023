//! The layout of bins, buckets and slots, and the pool of link buckets.
//!
//! ```text
//! primary bucket  | header 8 | links 2 x 4 | (key, value) | (key, value) | (key, value) |      slots 0 .. 2
//! link bucket     | (key, value) | (key, value) | (key, value) | (key, value) |                slots 3 .. 6
//! two more link buckets, adjacent in the pool                                                  slots 7 .. 14
//! ```
//!
//! Link buckets are identified by number, so that the layout can be mapped at any address. Number 0 is used by no bin
//! and means "none". Prefetching bucket 0 costs nothing, because it is always cached.

use super::exchange::Exchange;
use crate::base::pipeline::prefetch_write;
use crate::base::sync::{AtomicU64, Line, Lines, Ordering};

/// Word positions in a primary bucket.
pub(super) const HEADER: usize = 0;
pub(super) const LINKS: usize = 1;
/// Masks of the words of a line that hold keys: the even words; in a primary bucket, only those after header and links.
pub(super) const PRIMARY_KEYS: u32 = 0b0101_0100;
pub(super) const LINK_KEYS: u32 = 0b0101_0101;
/// A header's slot states, shifted left by this, are aligned with the keys of a primary bucket.
pub(super) const PRIMARY_SHIFT: u32 = 2;
/// The lower bits of the slot states beyond the primary bucket.
pub(super) const LINK_SLOTS: u64 = 0x1555_5540;

/// The number of slots in the primary bucket, and (`SINGLE_SLOTS`) in the primary and the single link bucket together.
pub(super) const PRIMARY_SLOTS: u32 = 3;
const SINGLE_SLOTS: u32 = 7;

const _: () = assert!(PRIMARY_SLOTS == 3 && SINGLE_SLOTS == 3 + 4);
const _: () = assert!(super::header::SLOTS_PER_BIN == SINGLE_SLOTS + 8);
const _: () = assert!(super::header::SINGLE_STATES == 0xFF << (2 * PRIMARY_SLOTS));
const _: () = assert!(super::header::DOUBLE_STATES == 0xFFFF << (2 * SINGLE_SLOTS));
const _: () = assert!(align_of::<Line>() == 64);
const _: () = assert!(PRIMARY_KEYS == 1 << 2 | 1 << 4 | 1 << 6);

/// For each of the three link buckets of a bin: how far a header's slot states must be shifted right to be aligned with
/// the keys of the bucket, and the number of the bucket's first slot.
pub(super) const LINK_BUCKETS: [(u32, u32); 3] = [(6, 3), (14, 7), (22, 11)];

/// Returns the bucket of a slot: 0 for the primary bucket, 1 for the single link bucket, 2 for the double one.
pub(super) fn bucket_of(slot: u32) -> u32 {
    u32::from(slot >= PRIMARY_SLOTS) + u32::from(slot >= SINGLE_SLOTS)
}

/// The two link numbers of a bin, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Links(pub(super) u64);

impl Links {
    /// Returns the number of the bucket with slots 3 to 6, or 0 if there is none.
    #[inline(always)]
    pub(super) fn single(self) -> usize {
        self.0 as u32 as usize
    }

    /// Returns the number of the first of the two buckets with slots 7 to 14, or 0 if there is none.
    #[inline(always)]
    pub(super) fn double(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// Returns the number of the single or of the first double link bucket, or 0 if there is none.
    #[inline(always)]
    pub(super) fn of(self, double: bool) -> u64 {
        if double { self.double() as u64 } else { self.single() as u64 }
    }

    /// Returns the links with another single or double link bucket.
    fn with(self, double: bool, number: u64) -> Self {
        let half = u64::from(u32::MAX);
        Self(if double { self.0 & half | number << 32 } else { self.0 & !half | number })
    }

    /// Returns the number of the bin's link bucket `which` (0, 1 or 2), or 0 if there is none.
    #[inline(always)]
    pub(super) fn bucket(self, which: usize) -> usize {
        match which {
            0 => self.single(),
            _ if self.double() == 0 => 0,
            _ => self.double() + which - 1,
        }
    }
}

/// The position of a record: a line, and the words of its key and value in that line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    line: &'a Line,
    /// The position of the key's word, which is even.
    word: usize,
}

impl<'a> Place<'a> {
    #[inline(always)]
    pub(super) fn new(line: &'a Line, word: usize) -> Self {
        Self { line, word: word & 6 }
    }

    #[inline(always)]
    pub(super) fn key(&self) -> &'a AtomicU64 {
        &self.line.0[self.word]
    }

    #[inline(always)]
    pub(super) fn value(&self) -> &'a AtomicU64 {
        &self.line.0[self.word + 1]
    }
}

/// The link buckets of an index. Their number is fixed. A bin takes the bucket with slots 3 to 6 from those that are
/// handed out singly, and the two with slots 7 to 14 from those that are handed out in pairs; it returns them when their
/// last slot is freed. Both kinds are separate: singles that were made of pairs could never become pairs again.
#[derive(Debug)]
pub(super) struct Pool {
    buckets: Lines,
    singles: Stock,
    pairs: Stock,
}

/// The unused buckets of one kind: those that were never used, and a stack of those that were returned. These words
/// change often, so they lie on other lines than the fields that every request reads.
#[derive(Debug)]
#[repr(align(128))]
struct Stock {
    /// The first of these buckets, and the first bucket behind them.
    first: u64,
    end: u64,
    /// The number of buckets that are handed out together.
    step: u64,
    /// The first bucket that was never used.
    fresh: AtomicU64,
    /// The top of the stack of returned buckets, with a count in the upper half against ABA.
    returned: AtomicU64,
}

impl Stock {
    fn new(first: usize, count: usize, step: usize) -> Self {
        let (first, end) = (first as u64, (first + count * step) as u64);
        let (fresh, returned) = (AtomicU64::new(first), AtomicU64::new(0));
        Self { first, end, step: step as u64, fresh, returned }
    }

    /// Takes buckets that were never used. Checks before it takes: an addition beyond the end could not be undone.
    fn take_fresh<M: Exchange>(&self) -> Option<u64> {
        loop {
            let number = self.fresh.load(Ordering::Relaxed);
            if number >= self.end {
                return None;
            }
            if M::exchange(&self.fresh, number, number + self.step) {
                return Some(number);
            }
        }
    }
}

impl Pool {
    /// Creates a pool of `singles` link buckets and `pairs` pairs of them.
    pub(super) fn new(singles: usize, pairs: usize) -> std::io::Result<Self> {
        let buckets = Lines::new(1 + singles + 2 * pairs)?;
        let (singles, pairs) = (Stock::new(1, singles, 1), Stock::new(1 + singles, pairs, 2));
        Ok(Self { buckets, singles, pairs })
    }

    /// Returns all buckets, for freeing them.
    pub(super) fn buckets_mut(&mut self) -> &mut Lines {
        &mut self.buckets
    }

    pub(super) fn len(&self) -> usize {
        self.buckets.len() - 1
    }

    /// Returns the number of buckets that bins have, which is exact if no other thread writes meanwhile.
    pub(super) fn used(&self) -> u64 {
        let used = |stock: &Stock| {
            // Relaxed: a count for statistics.
            let taken = stock.fresh.load(Ordering::Relaxed) - stock.first;
            let mut top = stock.returned.load(Ordering::Relaxed) & u64::from(u32::MAX);
            let mut idle = 0;
            // While other threads write, the words that are followed may be anything, so their number is limited.
            while top != 0 && idle < taken {
                idle += stock.step;
                let below = self.bucket(top as usize).0[0].load(Ordering::Relaxed);
                top = below & u64::from(u32::MAX);
            }
            taken - idle
        };
        used(&self.singles) + used(&self.pairs)
    }

    /// Returns bucket `number`; for a number that does not exist, bucket 0, which no bin uses.
    #[inline(always)]
    pub(super) fn bucket(&self, number: usize) -> &Line {
        self.buckets.get(number).unwrap_or(&self.buckets[0])
    }

    /// Returns the address of bucket `number`, for prefetching.
    #[inline(always)]
    pub(super) fn address(&self, number: usize) -> *const Line {
        self.buckets.as_ptr().wrapping_add(number)
    }

    /// Returns the place of `slot` in the bin of `line`. First chains the slot's link bucket to the bin if the bin does
    /// not have it yet. Returns `None` if no bucket is left.
    #[inline(always)]
    pub(super) fn place<'a, M: Exchange>(&'a self, line: &'a Line, slot: u32) -> Option<Place<'a>> {
        if slot < PRIMARY_SLOTS {
            return Some(Place::new(line, 2 * slot as usize + 2));
        }
        self.link_place::<M>(line, slot)
    }

    fn link_place<'a, M: Exchange>(&'a self, line: &'a Line, slot: u32) -> Option<Place<'a>> {
        // Acquire (E5): pairs with the exchange of the thread that chained the bucket.
        let mut links = Links(line.0[LINKS].load(Ordering::Acquire));
        let which = LINK_BUCKETS.iter().rposition(|&(_, first)| slot >= first)?;
        if links.bucket(which) == 0 {
            links = self.chain::<M>(line, which != 0)?;
        }
        let first = LINK_BUCKETS[which].1;
        Some(Place::new(self.bucket(links.bucket(which)), 2 * (slot - first) as usize))
    }

    /// Returns the place of a slot whose bucket exists: a slot of the primary bucket, or one that has been in use.
    pub(super) fn used_place<'a>(&'a self, line: &'a Line, slot: u32) -> Place<'a> {
        if slot < PRIMARY_SLOTS {
            return Place::new(line, 2 * slot as usize + 2);
        }
        // Relaxed: the caller has seen a header that was stored after the links.
        let links = Links(line.0[LINKS].load(Ordering::Relaxed));
        let which = LINK_BUCKETS.iter().rposition(|&(_, first)| slot >= first).unwrap_or(0);
        let first = LINK_BUCKETS[which].1;
        Place::new(self.bucket(links.bucket(which)), 2 * (slot - first) as usize)
    }

    /// Chains the single or the double link bucket to the bin, unless another thread has done so first. Returns the
    /// bin's links, or `None` if no bucket is left.
    pub(super) fn chain<M: Exchange>(&self, line: &Line, double: bool) -> Option<Links> {
        let number = self.take::<M>(double);
        loop {
            // Acquire (E5): pairs with the exchange of a thread that has chained a bucket to this bin.
            let links = Links(line.0[LINKS].load(Ordering::Acquire));
            if links.of(double) != 0 {
                if let Some(lost) = number {
                    self.give_back::<M>(lost, double);
                }
                return Some(links);
            }
            let chained = links.with(double, number?);
            // Release (E5): the bucket is empty and owned by this bin.
            if M::exchange(&line.0[LINKS], links.0, chained.0) {
                return Some(chained);
            }
        }
    }

    /// Takes the single or the double link bucket from the bin, whose header says that none of its slots is in use. The
    /// caller has claimed the bin. Returns the bucket's number, to be given back when the bin is released; 0 if the bin
    /// has no such bucket.
    pub(super) fn unchain<M: Exchange>(&self, line: &Line, double: bool) -> u64 {
        loop {
            let links = Links(line.0[LINKS].load(Ordering::Relaxed));
            // An exchange, because another thread may be chaining the other kind.
            if M::exchange(&line.0[LINKS], links.0, links.with(double, 0).0) {
                return links.of(double);
            }
        }
    }

    /// Takes one bucket or two neighbouring ones. Returns the number of the first.
    pub(super) fn take<M: Exchange>(&self, double: bool) -> Option<u64> {
        let stock = self.stock(double);
        loop {
            // Acquire (E6): pairs with `give_back`; the word that is read next is the one that `give_back` stored.
            let top = stock.returned.load(Ordering::Acquire);
            let number = top & u64::from(u32::MAX);
            if number == 0 {
                return stock.take_fresh::<M>();
            }
            // Relaxed: if another thread has taken the bucket, this value is garbage, but then the count has changed
            // and the exchange fails.
            let below = self.bucket(number as usize).0[0].load(Ordering::Relaxed);
            let below = below & u64::from(u32::MAX);
            let next = (top >> 32).wrapping_add(1) << 32 | below;
            if M::exchange(&stock.returned, top, next) {
                // Returned buckets lie anywhere, and the next call must read the next one.
                prefetch_write(self.address(below as usize));
                return Some(number);
            }
        }
    }

    /// Returns what [`Pool::take`] has handed out.
    pub(super) fn give_back<M: Exchange>(&self, number: u64, double: bool) {
        let stock = self.stock(double);
        loop {
            let top = stock.returned.load(Ordering::Relaxed);
            // Release (E2): a reader that still searches the bucket for its former bin, and loads this word, also sees
            // that the header of the bin has changed.
            self.bucket(number as usize).0[0].store(top & u64::from(u32::MAX), Ordering::Release);
            let next = (top >> 32).wrapping_add(1) << 32 | number;
            // Release (E6): publishes the number of the bucket below.
            if M::exchange(&stock.returned, top, next) {
                return;
            }
        }
    }

    fn stock(&self, double: bool) -> &Stock {
        if double { &self.pairs } else { &self.singles }
    }
}
