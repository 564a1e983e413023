//! An index: an array of bins with its link buckets, and the reference to the next index.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::exchange::Exchange;
use super::hasher::Hasher;
use super::header::Header;
use super::layout::{HEADER, LINKS, Links, Pool};
use crate::base::pipeline::prefetch_read;
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

/// The choice of a thread that is moving bins and meets a claimed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// It waits for the three instructions of the update, and moves the bin.
    Waits,
    /// It leaves the bin to others.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) bins: u64,
    /// The number of link buckets that are handed out singly, and of pairs of them.
    pub(super) singles: usize,
    pub(super) pairs: usize,
    /// The number of records that such an index takes: the capacity.
    pub(super) records: u64,
}

impl Size {
    /// The allocated bytes. Memory that was never accessed is included, but occupies no pages.
    pub(super) fn bytes(&self) -> u64 {
        let links = 1 + self.singles as u64 + 2 * self.pairs as u64;
        (self.bins + links + self.bins.div_ceil(REGION * 8)) * 64
    }
}

/// The number of bins in a region: 8 pages. An index notes which regions were written to, so that its unused parts are
/// neither read nor moved. The words of a large table should stay in the second-level cache, so there is
/// not one for each page.
const REGION: u64 = 512;
/// The states of a region: none of its bins was ever written to; bins were written to; none was, and the region belongs
/// to the next index.
const UNTOUCHED: u64 = 0;
const TOUCHED: u64 = 1;
const MOVED: u64 = 2;

/// Bins, link buckets, and the state of their transfer to the next index.
///
/// The type is public because a public trait names it, but it cannot be named outside the crate.
#[derive(Debug)]
pub struct Index {
    bins: Lines,
    shift: u32,
    pub(super) size: Size,
    pub(super) hasher: Hasher,
    pub(super) pool: Pool,
    /// The states of all regions, one in each word.
    regions: Lines,
    pub(super) entry: Entry,
    /// Set when writers may enter this index: at creation for a resize, otherwise after all bins of the old index have
    /// been frozen.
    pub(super) open: AtomicBool,
    /// The next index: an [`Arc`] as a raw pointer, set once; null before.
    next: AtomicPtr<Index>,
    pub(super) transfer: Transfer,
}

/// The fields with which a batch finds bins: a copy, which the compiler can keep in registers.
#[derive(Clone, Copy)]
pub(super) struct Bins<'a> {
    bins: &'a [Line],
    shift: u32,
    hasher: Hasher,
    /// Bucket 0 of the pool.
    buckets: *const Line,
}

impl<'a> Bins<'a> {
    #[inline(always)]
    pub(super) fn of(&self, key: u64) -> &'a Line {
        let bin = self.hasher.bin_of(key, self.bins.len() as u64, self.shift);
        // SAFETY: `bin_of` returns a number below that of the bins.
        unsafe { self.bins.get_unchecked(bin as usize) }
    }

    /// Prefetches the first link bucket of a bin that has been prefetched. Most bins have none; for these, bucket 0 is
    /// prefetched, which is always cached.
    #[inline(always)]
    pub(super) fn peek(&self, line: &Line) {
        prefetch_read(self.buckets.wrapping_add(Index::links_of(line).single()));
    }
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
        let lines = |count: u64| {
            Lines::new(usize::try_from(count).map_err(|_| io::ErrorKind::OutOfMemory)?)
        };
        Ok(Self {
            bins: lines(size.bins)?,
            shift: hasher.shift(size.bins),
            size,
            hasher,
            pool: Pool::new(size.singles, size.pairs)?,
            regions: lines(size.bins.div_ceil(REGION * 8))?,
            entry,
            open: AtomicBool::new(entry == Entry::Resize),
            next: AtomicPtr::new(std::ptr::null_mut()),
            transfer: Transfer::default(),
        })
    }

    #[inline(always)]
    pub(super) fn len(&self) -> u64 {
        self.size.bins
    }

    pub(super) fn bytes(&self) -> u64 {
        self.size.bytes()
    }

    #[inline(always)]
    pub(super) fn bin_of(&self, key: u64) -> u64 {
        self.hasher.bin_of(key, self.size.bins, self.shift)
    }

    #[inline(always)]
    pub(super) fn bins(&self) -> Bins<'_> {
        let buckets = self.pool.address(0);
        Bins { bins: &self.bins, shift: self.shift, hasher: self.hasher, buckets }
    }

    /// Returns the bin of `key`.
    #[inline(always)]
    pub(super) fn line_of(&self, key: u64) -> &Line {
        // SAFETY: `bin_of` returns a number below that of the bins.
        unsafe { self.bins.get_unchecked(self.bin_of(key) as usize) }
    }

    /// Returns bin `number`.
    ///
    /// # Panics
    /// If `number` is not below [`Index::len`].
    #[inline(always)]
    pub(super) fn bin(&self, number: u64) -> &Line {
        &self.bins[number as usize]
    }

    /// Returns the word with the state of the region of a bin.
    fn region(&self, bin: u64) -> &AtomicU64 {
        let region = bin / REGION;
        &self.regions[(region / 8) as usize].0[(region % 8) as usize]
    }

    fn region_of(&self, line: &Line) -> &AtomicU64 {
        let start = self.bins.as_ptr().addr();
        self.region((std::ptr::from_ref(line).addr() - start) as u64 / size_of::<Line>() as u64)
    }

    /// Must be called before the header of a bin is changed for the first time. Returns `false` if the bin belongs to
    /// the next index.
    pub(super) fn touch<M: Exchange>(&self, line: &Line) -> bool {
        let region = self.region_of(line);
        // Acquire (E7), here and below: pairs with the exchange of a thread that moved the region.
        region.load(Ordering::Acquire) == TOUCHED
            || M::exchange(region, UNTOUCHED, TOUCHED)
            || region.load(Ordering::Acquire) == TOUCHED
    }

    /// Returns whether no bin of this bin's region was ever written to.
    pub(super) fn is_untouched(&self, bin: u64) -> bool {
        // Acquire (E7): as in `touch`.
        self.region(bin).load(Ordering::Acquire) != TOUCHED
    }

    /// Returns the first bin after `bin`'s region if no bin of that was ever written to.
    pub(super) fn untouched_until(&self, bin: u64) -> Option<u64> {
        self.is_untouched(bin).then(|| (bin - bin % REGION + REGION).min(self.len()))
    }

    /// Returns the numbers of all bins in regions that were written to.
    pub(super) fn touched(&self) -> impl Iterator<Item = u64> {
        let starts = (0..self.len()).step_by(REGION as usize);
        let touched = starts.filter(|&start| !self.is_untouched(start));
        touched.flat_map(|start| start..self.len().min(start + REGION))
    }

    /// Returns whether a bin, which was never written to, belongs to the next index.
    pub(super) fn is_moved_untouched(&self, line: &Line) -> bool {
        // Acquire (E7): as in `touch`.
        self.is_leaving() && self.region_of(line).load(Ordering::Acquire) == MOVED
    }

    /// Moves the region of `bin` to the next index if none of its bins was ever written to. Returns the first bin of the
    /// next region and the number of bins that this call moved; `None` if the bins of the region must be moved one by
    /// one.
    pub(super) fn move_region<M: Exchange>(&self, bin: u64) -> Option<(u64, u64)> {
        let (start, end) = (bin - bin % REGION, (bin - bin % REGION + REGION).min(self.len()));
        if M::exchange(self.region(bin), UNTOUCHED, MOVED) {
            return Some((end, end - start));
        }
        // Acquire (E7): as in `touch`.
        (self.region(bin).load(Ordering::Acquire) == MOVED).then_some((end, 0))
    }

    /// Prefetches for a thread that moves bins in order and has come to `bin`: a later bin, and the link bucket of one that
    /// was prefetched before.
    pub(super) fn look_ahead(&self, bin: u64) {
        const AHEAD: u64 = 12;
        if let Some(later) = self.bins.get((bin + 2 * AHEAD) as usize) {
            prefetch_read(later);
            self.bins().peek(self.bin(bin + AHEAD));
        }
    }

    /// Returns whether there is a next index, to which bins are being moved.
    #[inline(always)]
    pub(super) fn is_leaving(&self) -> bool {
        // Acquire (E4): as in `next`.
        !self.next.load(Ordering::Acquire).is_null()
    }

    /// Returns the address of the next index, or 0 if there is none.
    #[inline(always)]
    pub(super) fn next_address(&self) -> u64 {
        // Acquire (E4): as in `next`.
        self.next.load(Ordering::Acquire).addr() as u64
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
        for lines in [&mut own.bins, own.pool.buckets_mut(), &mut own.regions] {
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
