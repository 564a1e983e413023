//! Address space, reserved once for each region, so that a region never moves.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::param::page_size;

use crate::pm::io::{Io, Sharing};

/// Below this a smaller reservation is no help: the region would soon be full.
const LEAST_RESERVATION: u64 = 1 << 30;
/// The kernel backs an aligned range of this size by one page table entry, where it can.
pub(super) const HUGE_PAGE: u64 = 2 << 20;

/// A run of addresses that belongs to us.
#[derive(Debug)]
pub(super) struct Reservation {
    base: NonNull<u8>,
    bytes: usize,
    io: Io,
}

// SAFETY: plain address space; who touches it obeys the contracts of `Region`.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `wanted` bytes, of which at least the first `len` are needed, and maps `file` (or zeros) over them.
    ///
    /// Where the system has no address space for that: half as much, and half of that, until there is some, and then an
    /// eighth of it, for a table has several regions.
    pub(super) fn map(
        io: &Io,
        file: Option<(&OwnedFd, Sharing)>,
        wanted: u64,
        len: u64,
    ) -> Result<Self, Errno> {
        let page = page_size() as u64;
        let least = round_up(len, page).max(wanted.min(LEAST_RESERVATION));
        let smaller = |bytes: u64, part: u64| round_up(bytes / part, page).max(least);
        let mut bytes = wanted;
        loop {
            match Self::try_map(io, file, bytes) {
                Err(Errno::NOMEM | Errno::OVERFLOW) if bytes > least => bytes = smaller(bytes, 2),
                Ok(all_there_is) if bytes < wanted && bytes > least => {
                    drop(all_there_is);
                    return Self::try_map(io, file, smaller(bytes, 8));
                }
                answer => return answer,
            }
        }
    }

    fn try_map(io: &Io, file: Option<(&OwnedFd, Sharing)>, bytes: u64) -> Result<Self, Errno> {
        let reservation = Self::new(io, bytes)?;
        let (base, bytes) = (reservation.base, reservation.bytes);
        match file {
            // SAFETY: the reservation is new.
            Some((file, sharing)) => unsafe { io.map_file(base, bytes, file.as_fd(), sharing) }?,
            // SAFETY: as above.
            None => unsafe { io.map_zeros(base, bytes) }?,
        }
        Ok(reservation)
    }

    /// Where it begins.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How long it is.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Where in the reservation the range lies, if it does.
    pub(super) fn offset_of(&self, start: *const u8, bytes: usize) -> Option<u64> {
        let offset = start.addr().checked_sub(self.base.addr().get())?;
        (offset.checked_add(bytes)? <= self.bytes).then_some(offset as u64)
    }

    /// Reserves `bytes` (a multiple of the page size), aligned for huge pages when it is large enough for them.
    fn new(io: &Io, bytes: u64) -> Result<Self, Errno> {
        let slack = if bytes >= HUGE_PAGE { HUGE_PAGE } else { 0 };
        let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let total = bytes.checked_add(slack as usize).ok_or(Errno::NOMEM)?;
        let start = io.reserve_addresses(total)?;
        let skipped = if slack == 0 {
            0
        } else {
            start.addr().get().wrapping_neg() & (HUGE_PAGE as usize - 1)
        };
        // SAFETY: `skipped` is less than the slack, so all three parts lie inside the reservation, on page borders; the
        // two that are given back are in nobody's use.
        unsafe {
            let base = start.add(skipped);
            if skipped > 0 {
                io.unmap(start, skipped);
            }
            if slack as usize > skipped {
                io.unmap(base.add(bytes), slack as usize - skipped);
            }
            Ok(Self { base, bytes, io: io.clone() })
        }
    }

    /// Maps zeros from byte `offset` up to `end`, both on page borders.
    ///
    /// # Safety
    /// Nobody uses that range.
    pub(super) unsafe fn map_zeros(&self, offset: u64, end: u64) -> Result<(), Errno> {
        debug_assert!(offset < end && end <= self.bytes as u64, "zeros go inside the reservation");
        // SAFETY: inside the reservation; unused by the caller's contract.
        unsafe { self.io.map_zeros(self.base.add(offset as usize), (end - offset) as usize) }
    }

    /// Makes a mapped range durable.
    pub(super) fn sync(&self, range: Range<u64>) -> Result<(), Errno> {
        let page = page_size() as u64;
        let start = range.start / page * page;
        let end = round_up(range.end, page).min(self.bytes as u64);
        if start >= end {
            return Ok(());
        }
        // SAFETY: on page borders inside the reservation.
        unsafe { self.io.sync_mapping(self.base.add(start as usize), (end - start) as usize) }
    }

    /// Asks for huge pages for the first `len` bytes, as soon as they fill one: a small table shall not take 2 MiB a
    /// region.
    pub(super) fn advise_huge_pages(&self, len: u64) {
        let end = round_up(len, HUGE_PAGE).min(self.bytes as u64);
        if len >= HUGE_PAGE {
            // SAFETY: a part of the reservation, mapped by `map`.
            unsafe { self.io.advise_huge_pages(self.base, end as usize) };
        }
    }

    /// Puts what lies in whole huge pages inside the range into such, where the kernel can.
    pub(super) fn collapse(&self, range: Range<u64>) {
        let start = round_up(range.start, HUGE_PAGE);
        let end = range.end.min(self.bytes as u64) / HUGE_PAGE * HUGE_PAGE;
        if start < end {
            // SAFETY: a part of the reservation, mapped by `map`.
            unsafe { self.io.collapse(self.base.add(start as usize), (end - start) as usize) };
        }
    }

    /// Gives every page of the range a frame, where the kernel can.
    pub(super) fn map_pages(&self, range: Range<u64>) {
        let page = page_size() as u64;
        let (start, end) = (range.start / page * page, round_up(range.end, page));
        if start < end {
            // SAFETY: a part of the reservation, mapped by `map`.
            unsafe { self.io.map_pages(self.base.add(start as usize), (end - start) as usize) };
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: ours; every `Region` over it keeps it alive, so nobody uses it any more.
        unsafe { self.io.unmap(self.base, self.bytes) };
    }
}

/// The next multiple of `unit`, a power of two; the last one there is when that overflows.
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
    fn halves_until_it_fits() {
        use crate::pm::io::{FaultAction, FaultAt, FaultMode, FaultPlan};
        let wanted = (3 << 30) + 4 * page_size() as u64;
        let plan = |nth, mode| {
            let fault = FaultAt { nth, mode, action: FaultAction::Fail(Errno::NOMEM) };
            Io::new(Some(std::sync::Arc::new(FaultPlan::new(fault))))
        };
        for (nth, len, expected) in
            [(1, 0, 1 << 30), (1, 2 << 30, 2 << 30), (1, wanted, 0), (99, 0, wanted)]
        {
            let mapped = Reservation::map(&plan(nth, FaultMode::Once), None, wanted, len);
            assert_eq!(
                mapped.map_or(0, |mapped| mapped.bytes()),
                expected,
                "call {nth}, {len} bytes"
            );
        }
        let never = Reservation::map(&plan(1, FaultMode::ForGood), None, wanted, 0);
        assert_eq!(never.err(), Some(Errno::NOMEM));
    }

    #[test]
    fn large_reservations_are_aligned_for_huge_pages() {
        let io = Io::default();
        for bytes in [4096 * 16, HUGE_PAGE, 3 * HUGE_PAGE + 65536] {
            let reservation = Reservation::new(&io, bytes).unwrap();
            assert_eq!(reservation.bytes as u64, bytes);
            let alignment = if bytes >= HUGE_PAGE { HUGE_PAGE as usize } else { page_size() };
            assert_eq!(reservation.base.addr().get() % alignment, 0);
        }
    }
}
