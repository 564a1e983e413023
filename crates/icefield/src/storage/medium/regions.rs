//! The role of a medium that maps, grows and punches regions.

use super::sealed::Sealed;
use crate::Result;
use crate::storage::region::Region;

/// The regions of a table: mapped by name, grown, discarded, and given back page by page.
pub trait Regions: Sealed {
    /// Maps the region `name`, creating an empty one when the directory has none, and reserves address space for
    /// `max_bytes`. The same name gives the same region. If the file was copied with holes and is opened for writing,
    /// space for every byte is reserved first, so that no store can find the device full.
    ///
    /// # Errors
    /// The file cannot be opened, sized or mapped; [`crate::Error::NoSpace`] when its holes cannot be filled.
    fn region(&self, name: &'static str, max_bytes: u64) -> Result<Region>;

    /// Like [`Regions::region`], for an owner that calls [`Regions::punch`]: holes stay holes, and the owner calls
    /// [`Regions::reserve`] before it stores to a range that may be a hole. Such regions consist of blocks that are read
    /// in any order.
    ///
    /// # Errors
    /// The file cannot be opened, sized or mapped.
    fn region_with_holes(&self, name: &'static str, max_bytes: u64) -> Result<Region> {
        self.region(name, max_bytes)
    }

    /// Called when the regions of a table are mapped. If those with holes are on a disk and take more than three
    /// quarters of the memory, now or after they grow, [`Regions::read_soon`] takes effect from here on.
    fn plan_reads(&self) {}

    /// Called before bytes at an address in a region with holes are read. A system would read up to megabytes around
    /// them, and drive more useful pages of a large table from memory. This call begins to read only their pages.
    #[inline(always)]
    fn read_soon(&self, _start: *const u8, _bytes: usize) {}

    /// Makes at least the first `bytes` of `region` usable; new bytes are zero. The space is reserved before the length
    /// is published, so a later store cannot run out of space. Crash-safe: a crash leaves the old or the new length.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] when the file system or the region's `max_bytes` has no room. Nothing has changed
    /// then.
    fn grow(&self, region: &Region, bytes: u64) -> Result<()>;

    /// Like [`Regions::grow`], for a region whose final length is known: takes only the bytes requested, rounded up to
    /// whole pages.
    ///
    /// # Errors
    /// As for [`Regions::grow`].
    fn grow_exactly(&self, region: &Region, bytes: u64) -> Result<()>;

    /// Removes a region and its bytes from the table. A missing region is not an error. The next [`Regions::region`] of
    /// that name creates an empty one. Existing handles continue to show the old content. On a medium that is open for
    /// reading, nothing is removed, but the next [`Regions::region`] opens the file under that name again.
    ///
    /// # Errors
    /// The system call failed; the region may or may not have been removed.
    fn discard_region(&self, name: &'static str) -> Result<()>;

    /// Gives the pages that lie wholly inside the range back to the file system; they read as zero afterwards.
    ///
    /// # Errors
    /// The system call failed; the range is unchanged.
    fn punch(&self, region: &Region, offset: u64, bytes: u64) -> Result<()>;

    /// Reserves space for a range of `region`'s bytes again, before data is stored to it: the range may have been
    /// punched, or the file copied sparsely. Costs nothing where the region has no holes.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] when the file system has no room.
    fn reserve(&self, region: &Region, offset: u64, bytes: u64) -> Result<()> {
        let _ = (region, offset, bytes);
        Ok(())
    }

    /// Fails unless `bytes` more bytes fit in the medium's files and `dram_bytes` in memory. For calls that would
    /// otherwise use up all space before they fail. The check reserves nothing.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] or [`crate::Error::NoMemory`].
    fn check_room(&self, bytes: u64, dram_bytes: u64) -> Result<()> {
        let _ = (bytes, dram_bytes);
        Ok(())
    }
}

/// Returns the error for a medium whose `region` is in use elsewhere.
pub(crate) fn in_use(region: &Region) -> crate::Error {
    crate::Error::InvalidOption {
        option: "medium",
        detail: format!("its region `{}` is in use; drop the region first", region.name()),
    }
}
