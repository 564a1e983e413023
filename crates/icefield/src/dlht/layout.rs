//! Bins, buckets and slots, and the pool that link buckets come from.
//!
//! ```text
//! primary bucket  | header 8 | links 2 x 4 | (key, value) | (key, value) | (key, value) |      slots 0 .. 2
//! link bucket     | (key, value) | (key, value) | (key, value) | (key, value) |                slots 3 .. 6
//! two more, neighbours in the pool                                                             slots 7 .. 14
//! ```
//!
//! Link buckets are named by their number, so that the layout can be mapped anywhere. Number 0 belongs to no bin: it
//! stands for "none", and a hint to fetch it costs nothing as it is always cached.

use super::mode::Mode;
use crate::base::sync::{AtomicU64, Line, Lines, Ordering};

/// Words of a primary bucket.
pub(super) const HEADER: usize = 0;
pub(super) const LINKS: usize = 1;
/// The positions of keys in a line: the even words, of a primary bucket those after header and links.
pub(super) const PRIMARY_KEYS: u32 = 0b0101_0100;
pub(super) const LINK_KEYS: u32 = 0b0101_0101;
/// A header's slots, shifted left by this, lie at the positions of a primary bucket's keys.
pub(super) const PRIMARY_SHIFT: u32 = 2;
/// The lower bits of the slots beyond the primary bucket.
pub(super) const LINK_SLOTS: u64 = 0x1555_5540;

/// Slots of a primary bucket, and of it and the first link bucket.
pub(super) const PRIMARY_SLOTS: u32 = 3;
const SINGLE_SLOTS: u32 = 7;

// Every third of these holds by the one type that all of them are.
const _: () = assert!(PRIMARY_SLOTS == 3 && SINGLE_SLOTS == 3 + 4);
const _: () = assert!(super::header::SLOTS_PER_BIN == SINGLE_SLOTS + 8);
const _: () = assert!(align_of::<Line>() == 64);
const _: () = assert!(PRIMARY_KEYS == 1 << 2 | 1 << 4 | 1 << 6);

/// The three link buckets of a bin: by how much a header's slots are shifted right to lie at its keys, and the number
/// of its first slot.
pub(super) const LINK_BUCKETS: [(u32, u32); 3] = [(6, 3), (14, 7), (22, 11)];

/// A bin's two link numbers, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Links(pub(super) u64);

impl Links {
    /// The bucket of slots 3 to 6; 0 when there is none.
    #[inline(always)]
    pub(super) fn single(self) -> usize {
        self.0 as u32 as usize
    }

    /// The first bucket of slots 7 to 14; 0 when there is none.
    #[inline(always)]
    pub(super) fn double(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// The number of link bucket 0, 1 or 2 of the bin; 0 when there is none.
    #[inline(always)]
    pub(super) fn bucket(self, which: usize) -> usize {
        match which {
            0 => self.single(),
            _ if self.double() == 0 => 0,
            _ => self.double() + which - 1,
        }
    }
}

/// Where a record is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    line: &'a Line,
    /// The key's word; even.
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

/// The link buckets of an index: a fixed number, taken by bins one or two at a time and never given back by a bin. What
/// a thread took and lost the race to use goes to a stack.
#[derive(Debug)]
pub(super) struct Pool {
    buckets: Lines,
    counts: Counts,
}

/// Words that inserts change, apart from those that every request reads.
#[derive(Debug)]
#[repr(align(128))]
struct Counts {
    /// How many buckets have been taken from the fresh ones, number 0 included.
    taken: AtomicU64,
    /// The top of the stack of returned buckets, with a count in the upper half against ABA.
    returned: AtomicU64,
}

impl Pool {
    /// A pool of `buckets` link buckets.
    pub(super) fn new(buckets: usize) -> std::io::Result<Self> {
        let counts = Counts { taken: AtomicU64::new(1), returned: AtomicU64::new(0) };
        Ok(Self { buckets: Lines::new(buckets + 1)?, counts })
    }

    /// All buckets, to give them back.
    pub(super) fn buckets_mut(&mut self) -> &mut Lines {
        &mut self.buckets
    }

    /// How many buckets there are.
    pub(super) fn len(&self) -> usize {
        self.buckets.len() - 1
    }

    /// How many have been taken so far.
    pub(super) fn taken(&self) -> u64 {
        // Relaxed: a count for reports.
        self.counts.taken.load(Ordering::Relaxed) - 1
    }

    /// Bucket `number`; the dummy for a number that does not exist, which no bin has.
    #[inline(always)]
    pub(super) fn bucket(&self, number: usize) -> &Line {
        self.buckets.get(number).unwrap_or(&self.buckets[0])
    }

    /// The address of bucket `number`, to ask for it ahead.
    #[inline(always)]
    pub(super) fn address(&self, number: usize) -> *const Line {
        self.buckets.as_ptr().wrapping_add(number)
    }

    /// The place of `slot` in the bin of `line`; chains link buckets to the bin if the slot is in one that it does not
    /// have yet. `None` when there is no bucket left.
    #[inline(always)]
    pub(super) fn place<'a, M: Mode>(&'a self, line: &'a Line, slot: u32) -> Option<Place<'a>> {
        if slot < PRIMARY_SLOTS {
            return Some(Place::new(line, 2 * slot as usize + 2));
        }
        self.link_place::<M>(line, slot)
    }

    fn link_place<'a, M: Mode>(&'a self, line: &'a Line, slot: u32) -> Option<Place<'a>> {
        // Acquire (E5): pairs with the exchange of the thread that chained the bucket.
        let mut links = Links(line.0[LINKS].load(Ordering::Acquire));
        let which = LINK_BUCKETS.iter().rposition(|&(_, first)| slot >= first)?;
        if links.bucket(which) == 0 {
            links = self.chain::<M>(line, which != 0)?;
        }
        let first = LINK_BUCKETS[which].1;
        Some(Place::new(self.bucket(links.bucket(which)), 2 * (slot - first) as usize))
    }

    /// Where a slot is that has been used: its buckets are there.
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

    /// Gives the bin its single or its double link bucket, whoever of those that try comes first.
    fn chain<M: Mode>(&self, line: &Line, double: bool) -> Option<Links> {
        let number = if double { self.take_two::<M>() } else { self.take_one::<M>() };
        loop {
            // Acquire (E5): a bucket that another thread gave this bin.
            let links = Links(line.0[LINKS].load(Ordering::Acquire));
            let present = if double { links.double() } else { links.single() };
            if present != 0 {
                for lost in number
                    .into_iter()
                    .flat_map(|number| [number, number + 1])
                    .take(if double { 2 } else { 1 })
                {
                    self.give_back::<M>(lost);
                }
                return Some(links);
            }
            let chained = Links(links.0 | number? << if double { 32 } else { 0 });
            // Release (E5): the bucket is empty and the bin's.
            if M::exchange(&line.0[LINKS], links.0, chained.0) {
                return Some(chained);
            }
        }
    }

    fn take_one<M: Mode>(&self) -> Option<u64> {
        self.take_returned::<M>().or_else(|| self.take_fresh::<M>(1))
    }

    fn take_two<M: Mode>(&self) -> Option<u64> {
        self.take_fresh::<M>(2)
    }

    /// The first of `count` neighbours. Looks before it takes: a count that ran past the end would never come back.
    fn take_fresh<M: Mode>(&self, count: u64) -> Option<u64> {
        loop {
            let taken = self.counts.taken.load(Ordering::Relaxed);
            if taken + count > self.buckets.len() as u64 {
                return None;
            }
            if M::exchange(&self.counts.taken, taken, taken + count) {
                return Some(taken);
            }
        }
    }

    fn take_returned<M: Mode>(&self) -> Option<u64> {
        loop {
            // Acquire (E6): pairs with `give_back`; the word below is what it stored.
            let top = self.counts.returned.load(Ordering::Acquire);
            let number = top & u64::from(u32::MAX);
            if number == 0 {
                return None;
            }
            // Relaxed: if somebody else has taken the bucket, this is garbage, and the count has changed.
            let below = self.bucket(number as usize).0[0].load(Ordering::Relaxed);
            let next = (top >> 32).wrapping_add(1) << 32 | below & u64::from(u32::MAX);
            if M::exchange(&self.counts.returned, top, next) {
                return Some(number);
            }
        }
    }

    fn give_back<M: Mode>(&self, number: u64) {
        loop {
            let top = self.counts.returned.load(Ordering::Relaxed);
            self.bucket(number as usize).0[0].store(top & u64::from(u32::MAX), Ordering::Relaxed);
            let next = (top >> 32).wrapping_add(1) << 32 | number;
            // Release (E6): the word that says what is below.
            if M::exchange(&self.counts.returned, top, next) {
                return;
            }
        }
    }
}

/// A pool and some bins alone, for models of them: what threads do to them when they race for a link bucket.
#[cfg(feature = "sim")]
#[derive(Debug)]
pub struct LinkPool {
    pool: Pool,
    bins: Lines,
}

#[cfg(feature = "sim")]
impl LinkPool {
    /// A pool of `buckets` link buckets, none of which any of `bins` bins has.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn new(buckets: usize, bins: usize) -> std::io::Result<Self> {
        Ok(Self { pool: Pool::new(buckets)?, bins: Lines::new(bins)? })
    }

    /// A bucket that is nobody's: a returned one, else a fresh one.
    pub fn take(&self) -> Option<u64> {
        self.pool.take_one::<super::Shared>()
    }

    /// Returns a bucket that was taken.
    pub fn give_back(&self, number: u64) {
        self.pool.give_back::<super::Shared>(number);
    }

    /// What the owner of a bucket may do: writes a record's key into it.
    pub fn write(&self, number: u64, key: u64) {
        // Release (E2), as every key.
        self.pool.bucket(number as usize).0[0].store(key, Ordering::Release);
    }

    /// Gives `bin` its single or its double link bucket, if it has none and there is one.
    pub fn chain(&self, bin: usize, double: bool) {
        self.pool.chain::<super::Shared>(&self.bins[bin], double);
    }

    /// The numbers of the buckets that `bin` has.
    pub fn buckets_of(&self, bin: usize) -> Vec<u64> {
        // Acquire (E5).
        let links = Links(self.bins[bin].0[LINKS].load(Ordering::Acquire));
        (0..LINK_BUCKETS.len())
            .map(|which| links.bucket(which) as u64)
            .filter(|&number| number != 0)
            .collect()
    }
}
