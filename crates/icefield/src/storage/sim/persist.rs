//! Flushes and fences of the simulated medium, and the calls that begin and end its use by a table.

use std::panic::Location;
use std::path::Path;
use std::sync::Arc;

use super::mapping::report_unrecorded;
use super::model::Model;
use super::regions::in_use_by_table;
use super::state::State;
use super::{Claim, Sim, image, mode};
use crate::storage::commit::SyncMode;
use crate::storage::durability::Durability;
use crate::storage::mapped::Mapped;
use crate::storage::medium::{Medium, Persist, Properties, in_use, sealed};
use crate::{Error, Result};

impl sealed::Sealed for Sim {}

impl Sim {
    fn fence_by(&self, take_effect: impl FnOnce(&mut State)) {
        let modes = self.step();
        if modes & (mode::RECORD | mode::COUNT) == 0 {
            return;
        }
        let mut state = self.state();
        if modes & mode::YIELD != 0 && state.makes_up() {
            drop(state);
            self.stand_back();
            state = self.state();
        }
        let found = if state.shadow_due() { self.unrecorded(&state) } else { None };
        take_effect(&mut state);
        drop(state);
        report_unrecorded(found);
    }
}

impl Persist for Sim {
    #[track_caller]
    fn flush(&self, start: *const u8, bytes: usize) {
        let modes = self.step();
        if modes & (mode::RECORD | mode::COUNT) != 0 && bytes > 0 {
            let (slot, offset) = self.place(start.addr());
            self.state().flush(slot, offset, bytes, Location::caller());
        }
    }

    #[track_caller]
    fn fence(&self) {
        let site = Location::caller();
        self.fence_by(|state| state.fence(site));
    }

    #[track_caller]
    fn fence_later(&self) -> Result<()> {
        if !self.fence_syncs() {
            return self.try_fence();
        }
        self.step();
        let mut state = self.state();
        state.fence_later(Location::caller());
        // Simulates the thread that syncs every few milliseconds.
        if matches!(state.sync, SyncMode::Every(_))
            && image::mix(state.seed ^ state.seq).is_multiple_of(4)
        {
            state.fence_deferred(Location::caller());
        }
        Ok(())
    }

    #[track_caller]
    fn begin_fence(&self) -> Result<u64> {
        if !self.fence_syncs() {
            return self.try_fence().map(|()| 0);
        }
        self.step();
        Ok(self.state().begin_fence(Location::caller()))
    }

    #[track_caller]
    fn end_fence(&self, begun: u64) -> Result<()> {
        if self.fence_syncs() {
            let site = Location::caller();
            self.fence_by(|state| state.end_fence(begun, site));
        }
        Ok(())
    }

    #[track_caller]
    fn fence_deferred(&self) -> Result<()> {
        if self.fence_syncs() {
            self.step();
            self.state().fence_deferred(Location::caller());
        }
        Ok(())
    }
}

impl Properties for Sim {
    fn check_writable(&self) -> Result<()> {
        if self.modes() & mode::READ_ONLY == 0 { Ok(()) } else { Err(Error::ReadOnly) }
    }

    fn durability(&self) -> Durability {
        match self.state().model {
            Model::Pmem => Durability::Pmem,
            Model::Disk => Durability::Disk,
        }
    }

    fn path(&self) -> &Path {
        Path::new("simulated.ice")
    }

    fn sync_mode(&self) -> SyncMode {
        let state = self.state();
        if state.model == Model::Disk { state.sync } else { SyncMode::Always }
    }

    fn fence_is_free(&self) -> bool {
        let state = self.state();
        state.free_fences && state.model == Model::Pmem
    }

    fn fence_syncs(&self) -> bool {
        self.state().model == Model::Disk
    }
}

impl Medium for Sim {
    type Copied = Mapped;

    fn claimed(mut self) -> Result<Self> {
        let mut state = self.state();
        if state.is_claimed {
            return Err(in_use_by_table());
        }
        let mut regions = state.regions().iter().filter_map(|region| region.region.as_ref());
        if let Some(region) = regions.find(|region| region.is_shared()) {
            return Err(in_use(region));
        }
        state.is_claimed = true;
        drop(state);
        self.1 = Some(Arc::new(Claim(Arc::clone(&self.0))));
        Ok(self)
    }

    fn publish_created(&self) -> Result<()> {
        self.state().published = true;
        Ok(())
    }

    fn close(&self) {
        self.check_shadow();
    }
}
