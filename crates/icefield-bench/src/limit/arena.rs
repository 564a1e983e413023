//! The memory that the bare loops use: mapped as the table's memory is, and touched before the clock starts.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use icefield::storage::{
    HugePages, LINE_BYTES, Mapped, MappedOptions, Medium, Persist, Region, Regions,
};
use icefield::{Durability, Result};
use icefield_torture::Xoshiro;
use icefield_torture::rng::mix;
use rustix::mm::Advice;

/// One cache line of words that threads share.
#[repr(C, align(64))]
pub(crate) struct Line(pub [AtomicU64; 8]);

const _: () = assert!(size_of::<Line>() == LINE_BYTES);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// The pages that the medium provides by default, as for the tables on it.
    AsMapped,
    Small,
    Huge,
}

/// A mapping whose lines hold random words.
pub(crate) struct Arena {
    pm: Mapped,
    region: Region,
    lines: usize,
}

impl Arena {
    /// Maps anonymous memory of at least `bytes`.
    pub fn anonymous(bytes: u64, pages: Pages) -> Result<Self> {
        let options = MappedOptions { durability: Durability::Memory, ..MappedOptions::default() };
        Self::on(Mapped::anonymous(options)?, bytes, pages)
    }

    /// Creates a file of at least `bytes` in the new directory `path`, mapped as a table's files are.
    pub fn in_dir(
        path: &Path,
        durability: Durability,
        bytes: u64,
        huge_pages: HugePages,
    ) -> Result<Self> {
        let options = MappedOptions { durability, huge_pages, ..MappedOptions::default() };
        Self::on(Mapped::create(path, options)?, bytes, Pages::AsMapped)
    }

    fn on(pm: Mapped, bytes: u64, pages: Pages) -> Result<Self> {
        let lines = (bytes / LINE_BYTES as u64).max(1024);
        let bytes = lines * LINE_BYTES as u64;
        let region = pm.region("arena.ice", bytes)?;
        advise(&region, pages);
        pm.grow(&region, bytes)?;
        let arena = Self { pm, region, lines: lines as usize };
        for (i, line) in arena.lines().iter().enumerate() {
            line.0[0].store(mix(i as u64), Relaxed);
        }
        Ok(arena)
    }

    pub fn lines(&self) -> &[Line] {
        // SAFETY: the region is page-aligned, at least this long (`on` grew it), stays mapped while `self.pm`
        // lives, and is accessed only through this slice of atomics.
        unsafe {
            std::slice::from_raw_parts(self.region.base().as_ptr().cast::<Line>(), self.lines)
        }
    }

    pub fn bytes(&self) -> u64 {
        (self.lines * LINE_BYTES) as u64
    }

    /// Starts the write-back of a line with the medium's flush instruction.
    #[inline]
    pub fn flush(&self, line: &Line) {
        self.pm.flush_object(line);
    }

    #[inline]
    pub fn fence(&self) {
        self.pm.fence();
    }

    /// Links all lines into one random cycle through their second words (Sattolo's shuffle).
    pub fn link_cycle(&self, seed: u64) {
        let mut random = Xoshiro::new(seed);
        let mut order: Vec<u32> = (0..self.lines as u32).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.index(i));
        }
        for (line, next) in self.lines().iter().zip(&order) {
            line.0[1].store(u64::from(*next), Relaxed);
        }
    }
}

/// Advises the kernel to use small or huge pages, before the first touch. A kernel without huge pages ignores the
/// advice.
fn advise(region: &Region, pages: Pages) {
    let advice = match pages {
        Pages::AsMapped => return,
        Pages::Small => Advice::LinuxNoHugepage,
        Pages::Huge => Advice::LinuxHugepage,
    };
    // SAFETY: the range is the region's own reservation; the advice changes no content.
    let _ = unsafe {
        rustix::mm::madvise(region.base().as_ptr().cast(), region.max_bytes() as usize, advice)
    };
}
