//! Get (§3.2.1): one line for most keys, no store, no waiting.

use std::hint::select_unpredictable;

use super::header::{BinState, Header, SLOTS_PER_BIN};
use super::index::{Entry, Index};
use super::layout::{
    HEADER, LINK_BUCKETS, LINK_KEYS, LINK_SLOTS, PRIMARY_KEYS, PRIMARY_SHIFT, Place,
};
use super::mode::Threading;
use crate::base::group::{Isa, Native};
use crate::base::sync::{Line, Ordering, fence};

/// The result of a request on one index.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<T> {
    /// The request is complete.
    Done(T),
    /// The bin has moved to the next index.
    Moved,
    /// The bin has no slot left.
    Full,
}

/// A slot that holds the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit<'a> {
    pub(super) place: Place<'a>,
    pub(super) slot: u32,
}

/// The result of a search in a primary bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    is_found: bool,
    /// The value, if the key was found.
    pub(super) value: u64,
    /// False if the bin has changed meanwhile.
    is_quiet: bool,
    header: Header,
}

impl Look {
    /// Returns whether the key has the value.
    #[inline(always)]
    pub(super) fn is_hit(&self) -> bool {
        self.is_found & self.is_quiet
    }

    /// Returns whether the primary bucket answers: it has the key, or the key cannot be elsewhere. Returns `false` for
    /// absent keys while bins may leave the index.
    #[inline(always)]
    pub(super) fn is_answer(&self, index: &Index) -> bool {
        // One test of both: a slot of a link bucket, or a next index.
        let elsewhere = self.header.valid() & LINK_SLOTS | index.next_address();
        (self.is_found | (elsewhere == 0)) & self.is_quiet
    }

    /// Returns the answer of the primary bucket. No branch depends on whether the key was found.
    #[inline(always)]
    pub(super) fn answer(&self) -> Option<u64> {
        select_unpredictable(self.is_found, Some(self.value), None)
    }

    /// Completes a get without a hit.
    #[inline(always)]
    pub(super) fn complete<M: Threading>(
        self,
        index: &Index,
        line: &Line,
        key: u64,
    ) -> Option<u64> {
        complete::<M>(self.is_quiet, self.header, index, line, key)
    }
}

/// Returns whether a key that is not in the primary bucket of `line` is absent.
#[inline(never)]
fn is_absent(is_quiet: bool, header: Header, index: &Index) -> bool {
    // A bin that was never written to may belong to the next index.
    let may_have_left = header.is_unwritten() & index.is_leaving();
    is_quiet & (header.valid() & LINK_SLOTS == 0) & !may_have_left
}

/// Implements [`Look::complete`]. Out of line, so that hits have their own branch instead of a selection among all
/// outcomes, and the loop of a batch stays small.
#[inline(never)]
fn complete<M: Threading>(
    is_quiet: bool,
    header: Header,
    index: &Index,
    line: &Line,
    key: u64,
) -> Option<u64> {
    if is_absent(is_quiet, header, index) {
        return None;
    }
    if is_quiet & !header.is_unwritten() {
        // The key may be in a link bucket.
        M::pause();
        let hit = index.find_linked(line, header.valid(), key);
        let value = hit.map(|hit| hit.place.value().load(Ordering::Relaxed));
        M::pause();
        if Index::still(line, header) {
            return value;
        }
    }
    get_slowly::<M>(index, line, key)
}

/// Continues a get whose bin has left `index`.
#[cold]
pub(super) fn get_on<M: Threading>(index: &Index, key: u64) -> Option<u64> {
    let mut index = index;
    loop {
        // A bin leaves only after the next index has been installed.
        index = index.next()?;
        if let Step::Done(value) = index.get::<M>(index.line_of(key), key) {
            return value;
        }
    }
}

/// Completes a get that [`Index::get_quick`] cannot answer. Out of line, so that the loop stays small.
#[inline(never)]
pub(super) fn get_slowly<M: Threading>(index: &Index, line: &Line, key: u64) -> Option<u64> {
    match index.get_slowly::<M>(line, key) {
        Step::Done(value) => value,
        _ => get_on::<M>(index, key),
    }
}

/// A consistent copy of the records of a bin.
#[derive(Debug, Default)]
pub(super) struct Picture {
    records: [(u64, u64); SLOTS_PER_BIN as usize],
    len: usize,
}

impl Picture {
    pub(super) fn records(&self) -> &[(u64, u64)] {
        &self.records[..self.len]
    }
}

impl Index {
    /// Searches the primary bucket of `line`. No branch depends on the position of the key.
    #[inline(always)]
    pub(super) fn look<M: Threading>(isa: impl Isa, line: &Line, key: u64) -> Look {
        let header = Self::header(line);
        M::pause();
        let slots = (header.valid() << PRIMARY_SHIFT) as u32 & PRIMARY_KEYS;
        let found = line.find_last_keys(isa, key) & slots;
        // If no key was found, this is the position of some other word, whose value is not used.
        let word = (found.trailing_zeros() as usize + 1) & 7;
        // Relaxed, here and for the keys: validated below.
        let value = line.0[word].load(Ordering::Relaxed);
        M::pause();
        // Acquire (E2): pairs with the Release stores to slots. A reader that saw such a store also sees the header
        // change that preceded it.
        fence(Ordering::Acquire);
        let later = Header(line.0[HEADER].load(Ordering::Relaxed));
        Look { is_found: found != 0, value, is_quiet: header.is_quiet_until(later), header }
    }

    /// Returns the value of `key`, or its absence, if the primary bucket of `line` is sufficient for that and the bin
    /// does not change meanwhile. Otherwise returns `None`, and the caller uses [`Index::get_slowly`].
    #[inline(always)]
    pub(super) fn get_quick<M: Threading>(
        &self,
        isa: impl Isa,
        line: &Line,
        key: u64,
    ) -> Option<Option<u64>> {
        let look = Self::look::<M>(isa, line, key);
        if look.is_hit() {
            Some(Some(look.value))
        } else {
            is_absent(look.is_quiet, look.header, self).then_some(None)
        }
    }

    /// Returns the value of `key` in this index, or its absence.
    #[inline]
    pub(super) fn get<M: Threading>(&self, line: &Line, key: u64) -> Step<Option<u64>> {
        match self.get_quick::<M>(Native::default(), line, key) {
            Some(answer) => Step::Done(answer),
            None => self.get_slowly::<M>(line, key),
        }
    }

    /// Like [`Index::get`], for keys that may be in link buckets and for bins that change meanwhile.
    #[inline(never)]
    pub(super) fn get_slowly<M: Threading>(&self, line: &Line, key: u64) -> Step<Option<u64>> {
        loop {
            let header = Self::header(line);
            if self.has_left(line, header) {
                return Step::Moved;
            }
            M::pause();
            let value = self.find(line, header.valid(), key);
            let value = value.map(|hit| hit.place.value().load(Ordering::Relaxed));
            M::pause();
            if Self::still(line, header) {
                return Step::Done(value);
            }
        }
    }

    /// Returns a consistent copy of all `Valid` records of a bin, or `None` if they have moved.
    pub(super) fn picture<M: Threading>(&self, line: &Line) -> Option<Picture> {
        loop {
            let header = Self::header(line);
            if self.has_left(line, header) {
                return None;
            }
            let picture = self.read_all(line, header);
            M::pause();
            if Self::still(line, header) {
                return Some(picture);
            }
        }
    }

    /// Reads the records that `header` marks as `Valid`.
    pub(super) fn read_all(&self, line: &Line, header: Header) -> Picture {
        let mut picture = Picture::default();
        for slot in Header(header.valid()).held_slots() {
            let place = self.pool.used_place(line, slot);
            // Relaxed: the caller validates.
            let record =
                (place.key().load(Ordering::Relaxed), place.value().load(Ordering::Relaxed));
            picture.records[picture.len] = record;
            picture.len += 1;
        }
        picture
    }

    /// Returns whether all data read under `header` is consistent, and the bin had not moved meanwhile.
    #[inline(always)]
    pub(super) fn still(line: &Line, header: Header) -> bool {
        // Acquire (E2): as in `get_quick`.
        fence(Ordering::Acquire);
        header.holds_until(Header(line.0[HEADER].load(Ordering::Relaxed)))
    }

    /// Returns whether a bin's records must be looked up in the next index. A bin in transfer still has all its
    /// records, unless a `clear` has just removed the records of the whole index.
    #[inline]
    pub(super) fn has_left(&self, line: &Line, header: Header) -> bool {
        match header.state() {
            BinState::NoTransfer => header.is_unwritten() && self.is_moved_untouched(line),
            BinState::Claimed => false,
            BinState::InTransfer => self.is_cleared(),
            BinState::DoneTransfer => true,
        }
    }

    /// Returns whether a `clear` has removed the records of this index.
    #[inline]
    pub(super) fn is_cleared(&self) -> bool {
        // Acquire (E3): pairs with the store of `open`, after every bin was frozen.
        self.next()
            .is_some_and(|next| next.entry == Entry::Clear && next.open.load(Ordering::Acquire))
    }

    /// Returns the slot with `key` among `slots` (a mask of the lower bits of slot states).
    #[inline]
    pub(super) fn find<'a>(&'a self, line: &'a Line, slots: u64, key: u64) -> Option<Hit<'a>> {
        let hit = Self::find_primary(line, slots, key);
        if hit.is_some() || slots & LINK_SLOTS == 0 {
            hit
        } else {
            self.find_linked(line, slots, key)
        }
    }

    /// Like [`Index::find`], in the primary bucket only. Compares all slots of the bucket, including unused slots: a
    /// branch that skips those would be mispredicted often, and a misprediction costs the latency of a memory access.
    ///
    /// Does not use the widest vectors: bins are often stored to word by word, and a load that is wider than a
    /// preceding store waits until that store has reached the cache.
    #[inline(always)]
    pub(super) fn find_primary(line: &Line, slots: u64, key: u64) -> Option<Hit<'_>> {
        let keys = (slots << PRIMARY_SHIFT) as u32 & PRIMARY_KEYS;
        let found = line.find_last_keys(Native::default(), key) & keys;
        let word = found.trailing_zeros();
        (found != 0).then(|| Hit {
            place: Place::new(line, word as usize),
            slot: (word / 2).wrapping_sub(1),
        })
    }

    fn find_linked<'a>(&'a self, line: &'a Line, slots: u64, key: u64) -> Option<Hit<'a>> {
        let links = Self::links_of(line);
        for (which, (shift, first)) in LINK_BUCKETS.into_iter().enumerate() {
            let keys = (slots >> shift) as u32 & LINK_KEYS;
            if keys == 0 {
                continue;
            }
            let bucket = self.pool.bucket(links.bucket(which));
            let found = bucket.find_keys(Native::default(), key) & keys;
            if found != 0 {
                let word = found.trailing_zeros();
                let place = Place::new(bucket, word as usize);
                return Some(Hit { place, slot: first + word / 2 });
            }
        }
        None
    }
}
