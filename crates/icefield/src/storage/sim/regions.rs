//! The regions of the simulated medium.

use std::panic::Location;
use std::sync::Arc;

use super::Sim;
use super::event::EventKind;
use super::state::State;
use crate::storage::arch::LINE_BYTES;
use crate::storage::medium::Regions;
use crate::storage::region::Region;
use crate::{Error, Result};

impl Sim {
    /// Returns a slot for a new region: that of a discarded region without handles, or else the next unused slot.
    fn new_slot(&self, state: &mut State, name: &'static str) -> usize {
        let Some((slot, used)) = state.abandoned() else { return state.add_region(name) };
        // SAFETY: inside the slot, and no region over it exists.
        unsafe { self.slot(slot).write_bytes(0, used) };
        state.regions_mut()[slot].name = name;
        slot
    }

    /// Fails if this handle must not access regions: while a table is open, only the table's handle may.
    fn may_touch(&self, state: &State) -> Result<()> {
        if state.is_claimed && self.1.is_none() { Err(in_use_by_table()) } else { Ok(()) }
    }

    /// Returns a handle of a region that keeps the medium's memory alive.
    fn kept(&self, region: &Region) -> Region {
        let inner = Arc::<super::Inner>::clone(&self.0);
        region.kept_by(inner)
    }

    pub(super) fn slot_of(&self, region: &Region) -> usize {
        self.place(region.base().as_ptr().addr()).0
    }
}

pub(super) fn in_use_by_table() -> Error {
    Error::InvalidOption {
        option: "medium",
        detail: "a table is open on another handle of it; drop the table first".into(),
    }
}

impl Regions for Sim {
    fn region(&self, name: &'static str, max_bytes: u64) -> Result<Region> {
        let mut state = self.state();
        self.may_touch(&state)?;
        let slot = state.regions().iter().position(|region| region.name == name);
        let slot = slot.unwrap_or_else(|| self.new_slot(&mut state, name));
        let exempt = state.exempt.contains(&name);
        let region = &mut state.regions_mut()[slot];
        if let Some(known) = &region.region {
            return Ok(self.kept(known));
        }
        let max_bytes =
            max_bytes.next_multiple_of(4096).min(1 << self.0.slot_shift).max(region.len as u64);
        // SAFETY: the slot is page-aligned, reserved and readable up to its end, and lives as long as the medium,
        // which every handle of the region keeps alive.
        let mapped = unsafe { Region::new(name, self.slot(slot), region.len as u64, max_bytes) };
        let handle = self.kept(&mapped);
        region.region = Some(mapped);
        region.exempt = exempt;
        Ok(handle)
    }

    #[track_caller]
    fn grow(&self, region: &Region, bytes: u64) -> Result<()> {
        let site = Location::caller();
        self.step();
        let slot = self.slot_of(region);
        let mut state = self.state();
        // Regions grow by whole lines, so that every line with a log of stores is complete.
        let len = bytes.next_multiple_of(LINE_BYTES as u64);
        let more = len.saturating_sub(region.len());
        if more == 0 {
            return Ok(());
        }
        let used: usize = state.used_bytes().sum();
        if len > region.max_bytes() || used as u64 + more > state.space {
            return Err(Error::NoSpace { path: region.path(self), needed_bytes: more });
        }
        if state.recording {
            let thread = state.thread();
            state.event(EventKind::Grow, thread, site);
        }
        state.lengthen(slot, len as usize);
        region.set_len(len);
        Ok(())
    }

    #[track_caller]
    fn grow_exactly(&self, region: &Region, bytes: u64) -> Result<()> {
        self.grow(region, bytes)
    }

    #[track_caller]
    fn discard_region(&self, name: &'static str) -> Result<()> {
        let site = Location::caller();
        self.step();
        let mut state = self.state();
        self.may_touch(&state)?;
        if state.regions().iter().all(|region| region.name != name) {
            return Ok(());
        }
        if state.recording {
            let thread = state.thread();
            state.event(EventKind::Punch, thread, site);
        }
        state.discard(name);
        Ok(())
    }

    #[track_caller]
    fn punch(&self, region: &Region, offset: u64, bytes: u64) -> Result<()> {
        let site = Location::caller();
        self.step();
        let end = offset.saturating_add(bytes).min(region.len()) / 4096 * 4096;
        let start = offset.next_multiple_of(4096);
        if start >= end {
            return Ok(());
        }
        let slot = self.slot_of(region);
        let mut state = self.state();
        #[cfg(test)]
        if state.failing_punches > 0 {
            state.failing_punches -= 1;
            return Err(Error::io(region.path(self), std::io::ErrorKind::Other));
        }
        if state.recording {
            let thread = state.thread();
            state.event(EventKind::Punch, thread, site);
        }
        // SAFETY: inside the region; the caller uses nothing in the range meanwhile.
        unsafe { self.slot(slot).add(start as usize).write_bytes(0, (end - start) as usize) };
        state.punch(slot, start as usize, (end - start) as usize);
        Ok(())
    }

    #[cfg(test)]
    fn reserve(&self, region: &Region, offset: u64, bytes: u64) -> Result<()> {
        let slot = self.slot_of(region);
        let meets = |(lost, range): &(usize, std::ops::Range<u64>)| {
            *lost == slot && range.start < offset + bytes && offset < range.end
        };
        match self.state().lost.iter().any(meets) {
            true => Err(Error::NoSpace { path: region.path(self), needed_bytes: bytes }),
            false => Ok(()),
        }
    }
}
