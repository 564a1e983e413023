//! Addresses of regions.
//!
//! A reservation maps more bytes than its region has, and is extended in place ([`crate::base::addresses`]), so that a
//! region never moves. If the addresses behind it are taken, the file is mapped a second time, in a larger window
//! (`region_file`).

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::param::page_size;

use crate::base::addresses::Window;
use crate::storage::io::{Io, Placement, Sharing};

/// The smallest length of a reservation, unless its region's bound is less. It is so large that small tables rarely
/// extend their reservations.
pub(super) const LEAST_RESERVATION: u64 = 16 << 20;
/// The kernel maps an aligned range of this size by one page table entry, where it can.
pub(super) const HUGE_PAGE: u64 = 2 << 20;

/// The content that the addresses of a reservation show.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    Zeros,
    File(&'a OwnedFd, Sharing),
}

/// A range of addresses that belongs to a region.
#[derive(Debug)]
pub(super) struct Reservation {
    base: NonNull<u8>,
    /// Grows under the region's lock for growing.
    bytes: AtomicUsize,
    io: Io,
    /// `None` if the reservation cannot grow.
    _window: Option<Window>,
}

// SAFETY: plain address space; accesses obey the contracts of `Region`.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Maps `wanted` bytes of `content`, or at least `len` where the process has no addresses for more. Where the
    /// process has enough addresses, the addresses behind the mapping stay free, so that it can grow to `most` bytes.
    pub(super) fn map(
        io: &Io,
        content: Content<'_>,
        len: u64,
        wanted: u64,
        most: u64,
    ) -> Result<Self, Errno> {
        let page = page_size() as u64;
        let most = round_up(most, page);
        let least = round_up(len.max(1), page);
        let wanted = round_up(wanted, page).clamp(least, most.max(least));
        match Self::try_map(io, content, wanted, most) {
            Err(Errno::NOMEM | Errno::OVERFLOW) if least < wanted => {
                Self::try_map(io, content, least, most)
            }
            answer => answer,
        }
    }

    fn try_map(io: &Io, content: Content<'_>, bytes: u64, most: u64) -> Result<Self, Errno> {
        let reservation = Self::new(io, bytes, most)?;
        // SAFETY: the reservation is new.
        unsafe { reservation.show(content, 0, bytes, Placement::Replace) }?;
        Ok(reservation)
    }

    /// Extends the mapping in place to at least `bytes`: to twice its length if possible, and to at most `most`.
    ///
    /// # Errors
    /// `NOMEM`: the process has no more addresses, or the next ones are taken.
    pub(super) fn extend(&self, content: Content<'_>, bytes: u64, most: u64) -> Result<(), Errno> {
        let page = page_size() as u64;
        let (now, most) = (self.bytes(), round_up(most, page));
        if bytes <= now {
            return Ok(());
        }
        let least = round_up(bytes, page);
        let usual = round_up(bytes, HUGE_PAGE).max(now.saturating_mul(2)).min(most).max(least);
        for target in [usual, least] {
            // SAFETY: nothing is at these addresses, or the call fails.
            match unsafe { self.show(content, now, target, Placement::IfFree) } {
                Ok(()) => {
                    let target = usize::try_from(target).map_err(|_| Errno::NOMEM)?;
                    // Relaxed: readers hold the same lock, or use a range that was published with the region's length.
                    self.bytes.store(target, Ordering::Relaxed);
                    return Ok(());
                }
                Err(Errno::NOMEM | Errno::EXIST | Errno::OVERFLOW) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::NOMEM)
    }

    /// Maps the content from byte `start` to `end`.
    ///
    /// # Safety
    /// These addresses are not in use, or `placement` is `IfFree`.
    unsafe fn show(
        &self,
        content: Content<'_>,
        start: u64,
        end: u64,
        placement: Placement,
    ) -> Result<(), Errno> {
        let (from, to) = (
            usize::try_from(start).map_err(|_| Errno::NOMEM)?,
            usize::try_from(end).map_err(|_| Errno::NOMEM)?,
        );
        if self.base.addr().get().checked_add(to).is_none() {
            return Err(Errno::NOMEM);
        }
        // No pointer addition: addresses that are not mapped yet are in no allocation.
        let address = self.base.map_addr(|base| base.saturating_add(from));
        // SAFETY: the caller's contract.
        unsafe {
            match content {
                Content::File(file, sharing) => {
                    self.io.map_file(address, to - from, (file.as_fd(), start), sharing, placement)
                }
                Content::Zeros => self.io.map_zeros(address, to - from, placement),
            }
        }
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn bytes(&self) -> u64 {
        // Relaxed: see `extend`.
        self.bytes.load(Ordering::Relaxed) as u64
    }

    /// Returns the offset of a range in the reservation; `None` if the range does not lie in it.
    pub(super) fn offset_of(&self, start: *const u8, bytes: usize) -> Option<u64> {
        let offset = start.addr().checked_sub(self.base.addr().get())?;
        (offset.checked_add(bytes)? as u64 <= self.bytes()).then_some(offset as u64)
    }

    /// Reserves `bytes` (a multiple of the page size) at the start of a window, aligned for huge pages when the region
    /// may have some.
    fn new(io: &Io, bytes: u64, most: u64) -> Result<Self, Errno> {
        let slack = if most >= HUGE_PAGE { HUGE_PAGE } else { 0 };
        let window = (most > bytes).then(Window::next);
        let mut free = window.as_ref().map_or(bytes, |window| window.bytes(bytes, most));
        let (start, total) = loop {
            let total = usize::try_from(free.checked_add(slack).ok_or(Errno::NOMEM)?);
            let total = total.map_err(|_| Errno::NOMEM)?;
            match io.reserve_addresses(total) {
                Ok(start) => break (start, total),
                Err(Errno::NOMEM) if free > bytes => {
                    free = round_up(free / 2, page_size() as u64).max(bytes);
                }
                Err(errno) => return Err(errno),
            }
        };
        let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let skipped = if slack == 0 {
            0
        } else {
            start.addr().get().wrapping_neg() & (HUGE_PAGE as usize - 1)
        };
        // SAFETY: `skipped` is less than the slack, so all three parts lie inside the reserved range, on page borders;
        // the two parts that are unmapped are not in use.
        unsafe {
            let base = start.add(skipped);
            if skipped > 0 {
                io.unmap(start, skipped);
            }
            if total > skipped + bytes {
                io.unmap(base.add(bytes), total - skipped - bytes);
            }
            let (bytes, io) = (AtomicUsize::new(bytes), io.clone());
            Ok(Self { base, bytes, io, _window: window })
        }
    }

    /// Maps zeros from byte `offset` up to `end`, both on page borders.
    ///
    /// # Safety
    /// The range is not in use.
    pub(super) unsafe fn map_zeros(&self, offset: u64, end: u64) -> Result<(), Errno> {
        debug_assert!(offset < end && end <= self.bytes(), "zeros go inside the reservation");
        // SAFETY: inside the reservation; unused by the caller's contract.
        unsafe { self.show(Content::Zeros, offset, end, Placement::Replace) }
    }

    /// Makes a mapped range durable.
    pub(super) fn sync(&self, range: Range<u64>) -> Result<(), Errno> {
        let page = page_size() as u64;
        let start = range.start / page * page;
        let end = round_up(range.end, page).min(self.bytes());
        if start >= end {
            return Ok(());
        }
        // SAFETY: on page borders inside the reservation.
        unsafe { self.io.sync_mapping(self.base.add(start as usize), (end - start) as usize) }
    }

    /// Requests huge pages for the first `len` bytes, if they fill at least one: a small table must not take 2 MiB for
    /// each region.
    pub(super) fn advise_huge_pages(&self, len: u64) {
        let end = round_up(len, HUGE_PAGE).min(self.bytes());
        if len >= HUGE_PAGE {
            // SAFETY: a part of the reservation, mapped by `map`.
            unsafe { self.io.advise_huge_pages(self.base, end as usize) };
        }
    }

    /// Moves the content of all whole huge pages inside the range into huge pages, where the kernel can.
    pub(super) fn collapse(&self, range: Range<u64>) {
        let start = round_up(range.start, HUGE_PAGE);
        let end = range.end.min(self.bytes()) / HUGE_PAGE * HUGE_PAGE;
        if start < end {
            // SAFETY: a part of the reservation, mapped by `map`.
            unsafe { self.io.collapse(self.base.add(start as usize), (end - start) as usize) };
        }
    }

    /// Maps a frame for every page of the range, where the kernel can.
    ///
    /// # Errors
    /// As for [`Io::map_pages`].
    pub(super) fn map_pages(&self, range: Range<u64>) -> Result<(), Errno> {
        let page = page_size() as u64;
        let (start, end) = (range.start / page * page, round_up(range.end, page));
        if start >= end {
            return Ok(());
        }
        // SAFETY: a part of the reservation, mapped by `map`.
        unsafe { self.io.map_pages(self.base.add(start as usize), (end - start) as usize) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: every `Region` over the reservation keeps it alive, so it is not in use any more.
        unsafe { self.io.unmap(self.base, *self.bytes.get_mut()) };
    }
}

/// Returns the next multiple of `unit`, a power of two; on overflow, the largest multiple.
pub(super) fn round_up(bytes: u64, unit: u64) -> u64 {
    bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX - (unit - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_up_without_overflowing() {
        assert_eq!(round_up(0, 4096), 0);
        assert_eq!(round_up(1, 4096), 4096);
        assert_eq!(round_up(4096, 4096), 4096);
        assert_eq!(round_up(u64::MAX, 4096), u64::MAX - 4095);
    }

    #[test]
    fn takes_less_where_addresses_are_few() {
        use crate::storage::io::{FaultAction, FaultAt, FaultMode, FaultPlan};
        let wanted = 4 * HUGE_PAGE;
        let plan = |nth, mode| {
            let fault = FaultAt { nth, mode, action: FaultAction::Fail(Errno::NOMEM) };
            Io::new(Some(std::sync::Arc::new(FaultPlan::new(fault))))
        };
        let map = |io: &Io, len, most| {
            Reservation::map(io, Content::Zeros, len, wanted, most)
                .map(|reservation| reservation.bytes())
        };
        // With 1 the fault hits the reservation of the window; with 99 it hits no call.
        for nth in [1, 99] {
            assert_eq!(map(&plan(nth, FaultMode::Once), 1, 1 << 30), Ok(wanted));
        }
        assert_eq!(map(&plan(1, FaultMode::Once), 1, wanted), Ok(page_size() as u64));
        assert_eq!(map(&plan(1, FaultMode::Once), wanted, wanted), Err(Errno::NOMEM));
        assert_eq!(map(&plan(1, FaultMode::ForGood), 1, 1 << 30), Err(Errno::NOMEM));
    }

    #[test]
    fn large_reservations_are_aligned_for_huge_pages() {
        let io = Io::default();
        for bytes in [4096 * 16, HUGE_PAGE, 3 * HUGE_PAGE + 65536] {
            let reservation = Reservation::new(&io, bytes, bytes).unwrap();
            assert_eq!(reservation.bytes(), bytes);
            let alignment = if bytes >= HUGE_PAGE { HUGE_PAGE as usize } else { page_size() };
            assert_eq!(reservation.base.addr().get() % alignment, 0);
        }
    }

    #[test]
    fn is_extended_in_place_until_something_is_in_the_way() {
        let io = Io::default();
        // Uses a window with room for the mappings of concurrent tests.
        let most = 1 << 40;
        let reservation = Reservation::map(&io, Content::Zeros, 1, HUGE_PAGE, most).unwrap();
        assert_eq!(reservation.bytes(), HUGE_PAGE);
        for (bytes, expected) in
            [(1, 1), (HUGE_PAGE + 1, 2), (9 * HUGE_PAGE - 1, 9), (64 * HUGE_PAGE, 64)]
        {
            reservation.extend(Content::Zeros, bytes, most).unwrap();
            assert_eq!(reservation.bytes(), expected * HUGE_PAGE);
        }
        let end = 64 * HUGE_PAGE;
        let behind = reservation.base.map_addr(|base| base.saturating_add(end as usize));
        // SAFETY: nothing is at the address, or the call fails.
        unsafe { io.map_zeros(behind, page_size(), Placement::IfFree) }.unwrap();
        assert_eq!(reservation.extend(Content::Zeros, end + 1, most), Err(Errno::NOMEM));
        // SAFETY: mapped above.
        unsafe { io.unmap(behind, page_size()) };
        reservation.extend(Content::Zeros, end + 1, most).unwrap();
        assert_eq!(reservation.bytes(), 2 * end);
    }
}
