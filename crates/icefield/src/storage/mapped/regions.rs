//! The regions of the real medium: files that grow.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::region_file::{self, RegionFile};
use super::{Mapped, room};
use crate::storage::durability::Durability;
use crate::storage::io::Keeper;
use crate::storage::medium::{Regions, not_poisoned};
use crate::storage::mutex::lock;
use crate::storage::region::Region;
use crate::{Error, Result};

/// A table on a disk whose blocks take more than this many quarters of the memory is read page by page.
const QUARTERS: u64 = 3;

impl Mapped {
    fn map_region(&self, name: &'static str, max_bytes: u64, keeps_holes: bool) -> Result<Region> {
        let mut regions = lock(&self.regions);
        if let Some(file) = regions.iter().find(|file| file.region().name() == name) {
            return Ok(RegionFile::handle(file));
        }
        self.refuse_child()?;
        let opened = RegionFile::open(&self.setting(), name, max_bytes, keeps_holes);
        let file = self.poison_if(opened)?;
        let file = Arc::new(file);
        self.budget.take_unchecked(file.region().len());
        let region = RegionFile::handle(&file);
        regions.push(file);
        Ok(region)
    }
}

impl Regions for Mapped {
    fn region(&self, name: &'static str, max_bytes: u64) -> Result<Region> {
        self.map_region(name, max_bytes, false)
    }

    fn region_with_holes(&self, name: &'static str, max_bytes: u64) -> Result<Region> {
        self.map_region(name, max_bytes, true)
    }

    fn grow(&self, region: &Region, bytes: u64) -> Result<()> {
        if bytes <= region.len() {
            return Ok(());
        }
        self.refuse_child()?;
        // No file is changed after a failed sync.
        not_poisoned(self)?;
        let file = self.file_of(region)?;
        self.poison_if(file.grow(&self.setting(), &self.budget, bytes, false))?;
        if file.keeps_holes() {
            self.plan_reads();
        }
        Ok(())
    }

    fn plan_reads(&self) {
        // Relaxed, here and below: a hint.
        if self.durability != Durability::Disk || self.reads_singly.load(Relaxed) {
            return;
        }
        let keeps_holes = |file: &&Arc<RegionFile>| file.keeps_holes();
        let len = |file: &Arc<RegionFile>| file.region().len();
        let bytes: u64 = lock(&self.regions).iter().filter(keeps_holes).map(len).sum();
        let memory = match self.memory {
            None if bytes >= room::ALWAYS_THERE => room::of_file_pages(),
            assumed => assumed,
        };
        if memory.is_some_and(|memory| bytes > memory / 4 * QUARTERS) {
            self.reads_singly.store(true, Relaxed);
        }
    }

    #[inline(always)]
    fn read_soon(&self, start: *const u8, bytes: usize) {
        if self.reads_singly.load(Relaxed) {
            self.io.read_pages(start, bytes);
        }
    }

    fn grow_exactly(&self, region: &Region, bytes: u64) -> Result<()> {
        if bytes <= region.len() {
            return Ok(());
        }
        self.refuse_child()?;
        // No file is changed after a failed sync.
        not_poisoned(self)?;
        let file = self.file_of(region)?;
        self.poison_if(file.grow(&self.setting(), &self.budget, bytes, true))
    }

    fn discard_region(&self, name: &'static str) -> Result<()> {
        self.refuse_child()?;
        let mut regions = lock(&self.regions);
        if let Some(at) = regions.iter().position(|file| file.region().name() == name) {
            // Existing handles keep the mapping, and thereby the file's bytes.
            let file = regions.swap_remove(at);
            self.budget.give(file.counted_bytes());
        }
        if self.read_only() {
            return Ok(());
        }
        self.poison_if(region_file::remove(&self.setting(), name))
    }

    fn punch(&self, region: &Region, offset: u64, bytes: u64) -> Result<()> {
        self.refuse_child()?;
        let file = self.file_of(region)?;
        self.poison_if(file.punch(&self.setting(), &self.budget, offset, bytes))
    }

    fn reserve(&self, region: &Region, offset: u64, bytes: u64) -> Result<()> {
        self.refuse_child()?;
        let file = self.file_of(region)?;
        self.poison_if(file.reserve(&self.setting(), &self.budget, offset, bytes))
    }

    fn check_room(&self, bytes: u64, dram_bytes: u64) -> Result<()> {
        let no_space = || Error::NoSpace { path: self.path.clone(), needed_bytes: bytes };
        if bytes > self.budget.left() {
            return Err(no_space());
        }
        let mut memory = dram_bytes;
        match &self.directory {
            // A reader's regions grow in private pages, which take memory.
            Some(_) if self.read_only() => memory = memory.saturating_add(bytes),
            Some(directory) => {
                let left = room::of_file_system(directory.file()).unwrap_or(u64::MAX);
                if bytes > left || bytes > room::of_a_file() {
                    return Err(no_space());
                }
                if self.io.keeper(directory.file()) == Keeper::Memory {
                    memory = memory.saturating_add(bytes);
                }
            }
            None => memory = memory.saturating_add(bytes),
        }
        if memory < room::ALWAYS_THERE {
            return Ok(());
        }
        match room::of_memory() {
            Some(left) if memory > left => Err(Error::NoMemory { needed_bytes: memory }),
            _ => Ok(()),
        }
    }
}
