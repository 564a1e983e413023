//! An index: an array of bins with its link buckets, and the way to the index after it.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::hasher::Hasher;
use super::header::Header;
use super::layout::{HEADER, LINKS, Links, Pool};
use crate::base::sync::{AtomicBool, AtomicPtr, AtomicU64, Line, Lines, Ordering};

/// Lines whose memory is given back at once: 16 huge pages.
const LINES_PER_STEP: usize = (32 << 20) / 64;

/// Why there is an index after another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// To have more room or less: records are moved, nobody waits but for single bins.
    Resize,
    /// To have none of the records: they disappear all at once, when every bin of the old index is frozen.
    Clear,
    /// To leave the old one behind as a picture: writers that come to the new index wait until every bin is frozen.
    Snapshot,
}

/// How big an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// The logarithm of the number of bins.
    pub(super) bits: u32,
    /// How many link buckets.
    pub(super) links: usize,
}

/// Bins, link buckets, and what is needed to leave them.
///
/// Public in name only: the module is not.
#[derive(Debug)]
pub struct Index {
    bins: Lines,
    shift: u32,
    mask: u64,
    pub(super) size: Size,
    pub(super) hasher: Hasher,
    pub(super) pool: Pool,
    pub(super) entry: Entry,
    /// Whether the old index has been left, as far as [`Entry`] wants it. From birth for a resize.
    pub(super) open: AtomicBool,
    /// The index after this one: an [`Arc`] of it as a raw pointer, set once; null before.
    next: AtomicPtr<Index>,
    pub(super) transfer: Transfer,
}

/// How far the bins have been moved. Apart from what every request reads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Transfer {
    /// The first bin that nobody has been asked to move.
    pub(super) cursor: AtomicU64,
    /// How many have been moved.
    pub(super) moved: AtomicU64,
}

impl Index {
    /// An empty index.
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

    /// How many bins.
    #[inline(always)]
    pub(super) fn len(&self) -> u64 {
        self.mask + 1
    }

    /// Bytes of memory that were asked for; what was never touched costs nothing.
    pub(super) fn bytes(&self) -> u64 {
        (self.len() + self.pool.len() as u64 + 1) * 64
    }

    /// The number of `key`'s bin.
    #[inline(always)]
    pub(super) fn bin_of(&self, key: u64) -> u64 {
        (self.hasher.hash(key) >> self.shift) & self.mask
    }

    /// Bin `number`, which is below [`Index::len`].
    #[inline(always)]
    pub(super) fn bin(&self, number: u64) -> &Line {
        debug_assert!(number <= self.mask);
        // SAFETY: there are mask + 1 bins, from creation on.
        unsafe { self.bins.get_unchecked((number & self.mask) as usize) }
    }

    /// The index after this one.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<&Index> {
        // SeqCst (E4): pairs with `install`; the index is complete.
        let next = self.next.load(Ordering::SeqCst);
        // SAFETY: null, or an `Arc` that this index owns: until `leave`, which runs when nobody can be here any more,
        // or until it is dropped.
        unsafe { next.as_ref() }
    }

    /// Makes `next` the index after this one, unless there is one already. Tells whether it did.
    pub(super) fn install(&self, next: Index) -> bool {
        let next = Arc::into_raw(Arc::new(next)).cast_mut();
        // SeqCst (E4): publishes the index.
        let won = self
            .next
            .compare_exchange(std::ptr::null_mut(), next, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if !won {
            // SAFETY: made above, and nobody else has seen it.
            drop(unsafe { Arc::from_raw(next) });
        }
        won
    }

    /// Another reference to the index after this one.
    pub(super) fn share_next(&self) -> Option<Arc<Index>> {
        // SeqCst (E4): as in `next`. The pointer itself, not one made from a reference: that could not be an `Arc`
        // again.
        let next = self.next.load(Ordering::SeqCst);
        if next.is_null() {
            return None;
        }
        // SAFETY: the pointer is that of an `Arc` which this index keeps alive meanwhile.
        unsafe {
            Arc::increment_strong_count(next);
            Some(Arc::from_raw(next))
        }
    }

    /// Gives up the index after this one, so that one which is kept (as a snapshot) does not keep all its successors.
    /// For when no request can be under way here.
    pub(super) fn leave(&self) {
        let next = self.next.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !next.is_null() {
            // SAFETY: the `Arc` that `install` turned into this pointer; the swap hands it to one caller.
            drop(unsafe { Arc::from_raw(next) });
        }
    }

    /// One step of giving back the memory of an index that no request can reach any more, and after which a snapshot may
    /// still keep it. Giving back gigabytes at once would hold a request up for as long as a thousand others take.
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

    /// Whether every bin has been moved.
    pub(super) fn is_left(&self) -> bool {
        // Acquire (E3): pairs with the counting of moved bins.
        self.transfer.moved.load(Ordering::Acquire) == self.len()
    }

    #[inline(always)]
    pub(super) fn links_of(line: &Line) -> Links {
        // Relaxed: callers have seen a header that was stored later, or only want a hint.
        Links(line.0[LINKS].load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(super) fn header(line: &Line) -> Header {
        // Acquire (E1): pairs with every change of the header; slots are as it says.
        Header(line.0[HEADER].load(Ordering::Acquire))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.leave();
    }
}
