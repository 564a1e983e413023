//! The space of a region's file: holes that are punched, and space that is reserved again.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::param::page_size;

use super::RegionFile;
use crate::Error;
use crate::storage::io::error;
use crate::storage::mapped::budget::Budget;
use crate::storage::mapped::plain_file::{length_and_space, write_into_holes, write_zeros};
use crate::storage::mapped::reservation::round_up;
use crate::storage::mapped::room;
use crate::storage::mapped::setting::{Backing, Failure, Outcome, Setting};
use crate::storage::mutex::lock;

impl RegionFile {
    /// Returns the number of bytes that count against `max_bytes`.
    pub(in crate::storage::mapped) fn counted_bytes(&self) -> u64 {
        self.region.len() - lock(&self.holes).bytes()
    }

    /// Gives the pages that lie wholly inside the range back to the file system.
    pub(in crate::storage::mapped) fn punch(
        &self,
        setting: &Setting<'_>,
        budget: &Budget,
        offset: u64,
        bytes: u64,
    ) -> Outcome<()> {
        let page = page_size() as u64;
        let end = offset.saturating_add(bytes).min(self.region.len()) / page * page;
        let start = round_up(offset.min(end), page);
        if start >= end {
            return Ok(());
        }
        let fault = |errno| Failure::from(error(&self.path, errno, 0));
        // Relaxed: a thread that stores to the range later is ordered after this thread, which freed the range.
        self.has_holes.store(true, Ordering::Relaxed);
        let given_back = match (&self.file, self.backing) {
            (Some(file), Backing::Shared | Backing::SharedSync) => {
                let is_hole = match setting.io.punch_hole(file.as_fd(), start, end - start) {
                    // The file system cannot punch holes. The space stays allocated, but the range reads as zeros, as
                    // the caller expects.
                    Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                        write_zeros(setting.io, file, start, end).map_err(fault)?;
                        false
                    }
                    answer => answer.map(|()| true).map_err(fault)?,
                };
                self.sync_status(setting, file)?;
                is_hole
            }
            _ => {
                // SAFETY: the caller uses nothing in the range.
                unsafe { self.newest().map_zeros(start, end) }.map_err(fault)?;
                true
            }
        };
        if given_back {
            budget.give(lock(&self.holes).add(start..end));
        }
        Ok(())
    }

    /// Reserves space again for a range that may contain holes, because it was punched or the file was copied.
    pub(in crate::storage::mapped) fn reserve(
        &self,
        setting: &Setting<'_>,
        budget: &Budget,
        offset: u64,
        bytes: u64,
    ) -> Outcome<()> {
        let end = offset.saturating_add(bytes).min(self.region.len());
        // Relaxed: as in `fill`.
        if offset >= end || !self.has_holes.load(Ordering::Relaxed) {
            return Ok(());
        }
        let page = page_size() as u64;
        let taken = self.take_holes(budget, offset / page * page..round_up(end, page))?;
        let filled = self.fill(setting, offset..end, end - offset);
        if filled.is_err() {
            let mut holes = lock(&self.holes);
            taken.into_iter().for_each(|part| budget.give(holes.add(part)));
        }
        filled
    }

    /// Counts the holes in a range of pages against `max_bytes` again, and returns them. Holes that former sessions
    /// punched are not among them: they have counted since the table was opened, so that they can be reserved even in a
    /// table that exceeds its bound.
    fn take_holes(&self, budget: &Budget, pages: Range<u64>) -> Outcome<Vec<Range<u64>>> {
        let mut holes = lock(&self.holes);
        let taken = holes.take(&pages);
        let bytes = taken.iter().map(|part| part.end - part.start).sum();
        if bytes == 0 || budget.take(bytes) {
            return Ok(taken);
        }
        for part in taken {
            holes.add(part);
        }
        Err(Error::NoSpace { path: self.path.clone(), needed_bytes: bytes }.into())
    }

    /// Reserves space for the whole file if it was opened with holes. Called for files that are never punched.
    pub(in crate::storage::mapped) fn fill_holes(&self, setting: &Setting<'_>) -> Outcome<()> {
        self.fill(setting, 0..self.region.len(), self.missing)?;
        // Relaxed: no other thread has the file yet.
        self.has_holes.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Reserves space for a range. A lack of space is reported as `missing` bytes needed.
    fn fill(&self, setting: &Setting<'_>, range: Range<u64>, missing: u64) -> Outcome<()> {
        let (Some(file), Backing::Shared | Backing::SharedSync) = (&self.file, self.backing) else {
            return Ok(());
        };
        // Relaxed: this thread is ordered after the one that punched the range and made it available.
        if range.is_empty() || !self.has_holes.load(Ordering::Relaxed) {
            return Ok(());
        }
        if range.end - range.start >= room::MOST_UNASKED {
            // The free space is checked first, so that nothing is taken when it does not suffice: a hostile file can
            // have any length.
            let (len, space) = length_and_space(setting.io, file, &self.path)?;
            let holes = len.saturating_sub(space).min(range.end - range.start);
            if room::of_file_system(file.as_fd()).is_some_and(|left| left < holes) {
                return Err(error(&self.path, Errno::NOSPC, holes).into());
            }
        }
        let filled = match setting.io.allocate(file.as_fd(), range.start, range.end - range.start) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                write_into_holes(setting.io, file, range.clone())
            }
            answer => answer,
        };
        let usable = filled.and_then(|()| self.map_pages(setting, file, range));
        usable.map_err(|errno| error(&self.path, errno, missing).into())
    }
}
