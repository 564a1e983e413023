//! Gives page frames to touched memory, so that no measurement includes the time to provide them.

use procfs::process::{MMPermissions, MMapPath, MemoryMap, MemoryPageFlags, PageInfo, Process};
use rustix::mm::{Advice, madvise};

use crate::Outcome;

/// Only smaller mappings are filled. A larger one is a reservation, of which a table uses a small part.
const LARGEST: u64 = 4 << 30;

/// Gives a frame to each touched page of this process's private memory, including memory that libraries have
/// mapped.
///
/// Pages that have only been read share one frame of zeros. The first write to such a page must clear a page, which
/// takes 0.2 ms for a huge page here, 2 ms if the host must provide the memory first. Untouched pages, such as most of
/// a table's reservations, get no frames.
pub(crate) fn fill() -> Outcome {
    let process = Process::myself()?;
    let (mut pages, size) = (process.pagemap()?, rustix::param::page_size());
    for map in process.maps()?.into_iter().filter(is_own) {
        let mut page = map.address.0 as usize / size;
        let infos = pages.get_range_info(page..map.address.1 as usize / size)?;
        for alike in infos.chunk_by(|one, next| is_present(one) == is_present(next)) {
            if is_present(&alike[0]) {
                let start = std::ptr::without_provenance_mut(page * size);
                // SAFETY: the advice changes no content, whatever is mapped there by now. Kernels without it, or
                // without free memory, leave the pages as they are.
                let _ = unsafe { madvise(start, alike.len() * size, Advice::LinuxPopulateWrite) };
            }
            page += alike.len();
        }
    }
    Ok(())
}

fn is_present(page: &PageInfo) -> bool {
    matches!(page, PageInfo::MemoryPage(flags) if flags.contains(MemoryPageFlags::PRESENT))
}

/// Returns whether a mapping is private writable memory.
fn is_own(map: &MemoryMap) -> bool {
    let private = MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE;
    map.perms == private
        && map.inode == 0
        && map.pathname != MMapPath::Stack
        && map.address.1 - map.address.0 <= LARGEST
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use icefield::base::memory::ZeroedArray;

    use super::*;

    /// Returns the number of minor page faults of the process's main thread so far.
    fn faults() -> u64 {
        let stat = Process::myself().unwrap().task_main_thread();
        stat.unwrap().stat().unwrap().minflt
    }

    #[test]
    fn what_was_only_read_has_frames() {
        let memory = ZeroedArray::<AtomicU64>::new(4 << 20).unwrap();
        assert!(memory.iter().all(|word| word.load(Relaxed) == 0));
        fill().unwrap();
        let before = faults();
        memory.iter().step_by(512).for_each(|word| word.store(1, Relaxed));
        let faults = faults() - before;
        assert!(faults < 8, "{faults} faults");
    }

    fn resident() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages = text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap();
        pages * rustix::param::page_size()
    }

    #[test]
    fn what_was_not_touched_stays_without_frames() {
        let memory = ZeroedArray::<AtomicU64>::new(128 << 20).unwrap();
        memory[0].store(1, Relaxed);
        let before = resident();
        fill().unwrap();
        let more = resident().saturating_sub(before);
        assert!(more < 256 << 20, "{more} bytes of the gibibyte that was reserved");
    }
}
