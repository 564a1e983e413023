//! Page frames for memory that has been touched, so that the measurement pays for none of them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::mm::{Advice, madvise};

use crate::{Error, Outcome};

/// Larger mappings are reservations, of which a table uses a small part.
const LARGEST: usize = 4 << 30;
/// Entries of the page map read at once.
const ENTRIES: usize = 1 << 13;

/// Gives a frame to each touched page of this process's private memory, including memory that libraries have
/// mapped.
///
/// Pages that have only been read share one frame of zeros. The first write to such a page costs the clearing of a
/// page: 0.2 ms for a huge page here, 2 ms where the host had to provide the memory first. Untouched pages, such as
/// most of a table's reservations, stay without frames.
pub(crate) fn fill() -> Outcome {
    let path = "/proc/self/maps";
    let maps = std::fs::read_to_string(path).map_err(|error| Error::file(path.as_ref(), error))?;
    let path = "/proc/self/pagemap";
    let pages = File::open(path).map_err(|error| Error::file(path.as_ref(), error))?;
    for range in maps.lines().filter_map(own) {
        let touched = touched(&pages, range);
        for range in touched.map_err(|error| Error::file(path.as_ref(), error))? {
            // SAFETY: the advice changes no content, whatever is mapped there by now. Kernels without it, or
            // without free memory, leave the pages as they are.
            let _ = unsafe {
                let start = std::ptr::without_provenance_mut(range.start);
                madvise(start, range.len(), Advice::LinuxPopulateWrite)
            };
        }
    }
    Ok(())
}

/// Returns the parts of a range whose pages are present.
fn touched(pages: &File, range: Range<usize>) -> io::Result<Vec<Range<usize>>> {
    let size = rustix::param::page_size();
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut entries = vec![0; ENTRIES * 8];
    for first in range.clone().step_by(ENTRIES * size) {
        let count = ((range.end - first) / size).min(ENTRIES);
        let entries = &mut entries[..count * 8];
        pages.read_exact_at(entries, (first / size * 8) as u64)?;
        for (at, entry) in entries.as_chunks::<8>().0.iter().enumerate() {
            // The uppermost bit: the page is in memory.
            if u64::from_ne_bytes(*entry) >> 63 == 0 {
                continue;
            }
            let start = first + at * size;
            match parts.last_mut() {
                Some(last) if last.end == start => last.end += size,
                _ => parts.push(start..start + size),
            }
        }
    }
    Ok(parts)
}

/// Returns the address range of a line of `/proc/self/maps`, if it is private writable memory.
fn own(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (rights, _offset, _device, inode) =
        (words.next()?, words.next()?, words.next()?, words.next()?);
    if rights != "rw-p" || inode != "0" || words.next() == Some("[stack]") {
        return None;
    }
    let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
    (range.len() <= LARGEST).then_some(range)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use icefield::base::memory::ZeroedArray;

    use super::*;

    #[test]
    fn lines_are_read() {
        let line = |rest: &str| own(&format!("7f00a000-7f00c000 {rest}"));
        assert_eq!(line("rw-p 00000000 00:00 0 "), Some(0x7f00_a000..0x7f00_c000));
        assert_eq!(line("rw-p 00000000 00:00 0  [heap]"), Some(0x7f00_a000..0x7f00_c000));
        assert_eq!(line("rw-p 00000000 00:00 0  [stack]"), None);
        assert_eq!(line("r--p 00000000 00:00 0 "), None);
        assert_eq!(line("rw-s 00000000 00:1b 7  /dev/shm/front.ice"), None);
        assert_eq!(own("1000-fffffffff000 rw-p 00000000 00:00 0 "), None);
    }

    /// Returns the page faults of this thread so far: the eighth field after its name.
    fn faults() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        text.rsplit(')').next().unwrap().split_whitespace().nth(7).unwrap().parse().unwrap()
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
