//! An index: an array of bins with its link buckets, and the reference to the next index.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::hasher::Hasher;
use super::header::Header;
use super::layout::{HEADER, LINKS, Links, Pool};
use crate::base::sync::{AtomicBool, AtomicPtr, AtomicU64, Line, Lines, Ordering};

/// The number of lines that are freed in one step: 16 huge pages.
const LINES_PER_STEP: usize = (32 << 20) / 64;

/// The reason for a new index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// To change the capacity. Records are moved, and writers wait only for single bins.
    Resize,
    /// To remove all records. They disappear at one moment, when every bin of the old index is frozen.
    Clear,
    /// To keep the old index as a snapshot. Writers that reach the new index wait until every bin of the old one has
    /// been moved.
    Snapshot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// The logarithm of the number of bins.
    pub(super) bits: u32,
    /// The number of link buckets.
    pub(super) links: usize,
}

/// Bins, link buckets, and the state of their transfer to the next index.
///
/// The type is public because a public trait names it, but it cannot be named outside the crate.
#[derive(Debug)]
pub struct Index {
    bins: Lines,
    shift: u32,
    mask: u64,
    pub(super) size: Size,
    pub(super) hasher: Hasher,
    pub(super) pool: Pool,
    pub(super) entry: Entry,
    /// Set when writers may enter this index: at creation for a resize, otherwise after all bins of the old index have
    /// been frozen.
    pub(super) open: AtomicBool,
    /// The next index: an [`Arc`] as a raw pointer, set once; null before.
    next: AtomicPtr<Index>,
    pub(super) transfer: Transfer,
}

/// The progress of the transfer. It lies on other lines than the fields that every request reads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Transfer {
    /// The first bin that has not been assigned to a thread to be moved.
    pub(super) cursor: AtomicU64,
    /// The number of moved bins.
    pub(super) moved: AtomicU64,
}

impl Index {
    pub(super) fn new(size: Size, hasher: Hasher, entry: Entry) -> io::Result<Self> {
        let out_of_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bins = 1_usize.checked_shl(size.bits).ok_or_else(out_of_memory)?;
        Ok(Self {
            bins: Lines::new(bins)?,
            shift: hasher.shift(size.bits),
            mask: bins as u64 - 1,
            size,
            hasher,
            pool: Pool::new(size.links)?,
            entry,
            open: AtomicBool::new(entry == Entry::Resize),
            next: AtomicPtr::new(std::ptr::null_mut()),
            transfer: Transfer::default(),
        })
    }

    #[inline(always)]
    pub(super) fn len(&self) -> u64 {
        self.mask + 1
    }

    /// The allocated bytes. Memory that was never accessed is included, but occupies no pages.
    pub(super) fn bytes(&self) -> u64 {
        (self.len() + self.pool.len() as u64 + 1) * 64
    }

    #[inline(always)]
    pub(super) fn bin_of(&self, key: u64) -> u64 {
        (self.hasher.hash(key) >> self.shift) & self.mask
    }

    /// Returns bin `number`, which must be below [`Index::len`].
    #[inline(always)]
    pub(super) fn bin(&self, number: u64) -> &Line {
        debug_assert!(number <= self.mask);
        // SAFETY: the index has mask + 1 bins from its creation on.
        unsafe { self.bins.get_unchecked((number & self.mask) as usize) }
    }

    #[inline(always)]
    pub(super) fn next(&self) -> Option<&Index> {
        // SeqCst (E4): pairs with `install`; the index is complete.
        let next = self.next.load(Ordering::SeqCst);
        // SAFETY: null, or the pointer of an `Arc` that this index owns until `leave`, which runs when no request can
        // be in progress on this index.
        unsafe { next.as_ref() }
    }

    /// Makes `next` the next index, unless there is one already. Returns whether it did.
    pub(super) fn install(&self, next: Index) -> bool {
        let next = Arc::into_raw(Arc::new(next)).cast_mut();
        // SeqCst (E4): publishes the index.
        let won = self
            .next
            .compare_exchange(std::ptr::null_mut(), next, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if !won {
            // SAFETY: made above and not shared.
            drop(unsafe { Arc::from_raw(next) });
        }
        won
    }

    /// Returns another reference to the next index.
    pub(super) fn share_next(&self) -> Option<Arc<Index>> {
        // SeqCst (E4): as in `next`. This uses the original pointer; a pointer made from a reference could not become
        // an `Arc` again.
        let next = self.next.load(Ordering::SeqCst);
        if next.is_null() {
            return None;
        }
        // SAFETY: the pointer comes from an `Arc`, which this index keeps alive.
        unsafe {
            Arc::increment_strong_count(next);
            Some(Arc::from_raw(next))
        }
    }

    /// Drops the reference to the next index, so that an index kept as a snapshot does not keep all its successors.
    /// Must be called only when no request can be in progress on this index.
    pub(super) fn leave(&self) {
        let next = self.next.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !next.is_null() {
            // SAFETY: the `Arc` that `install` turned into this pointer; the swap gives it to one caller.
            drop(unsafe { Arc::from_raw(next) });
        }
    }

    /// Performs one step of freeing the memory of an index that requests can no longer reach. Returns `Break` after the
    /// last step, or if a snapshot still keeps the index. Freeing gigabytes in one step would make one request take as
    /// long as a thousand others.
    pub(super) fn dismantle(index: &mut Arc<Index>) -> ControlFlow<()> {
        index.leave();
        let Some(own) = Arc::get_mut(index) else { return ControlFlow::Break(()) };
        for lines in [&mut own.bins, own.pool.buckets_mut()] {
            if lines.len() > LINES_PER_STEP {
                lines.shorten(lines.len() - LINES_PER_STEP);
                return ControlFlow::Continue(());
            }
        }
        ControlFlow::Break(())
    }

    pub(super) fn is_left(&self) -> bool {
        // Acquire (E3): pairs with the counting of moved bins.
        self.transfer.moved.load(Ordering::Acquire) == self.len()
    }

    #[inline(always)]
    pub(super) fn links_of(line: &Line) -> Links {
        // Relaxed: callers have seen a header that was stored after the links, or only need a hint.
        Links(line.0[LINKS].load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(super) fn header(line: &Line) -> Header {
        // Acquire (E1): pairs with every change of the header; the slots are in the states that it gives.
        Header(line.0[HEADER].load(Ordering::Acquire))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.leave();
    }
}
