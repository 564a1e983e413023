//! A small shared file in which a child records the steps that it has started and finished. It survives the child.
//!
//! The parent reads it after the child's death. A store to a shared mapping survives the death of its process, and
//! the words of one thread are stored in program order.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of the file.
const FILE_BYTES: usize = 4096;
/// Words before those of the threads.
const HEAD_WORDS: usize = 8;
/// Maximum number of threads of a child.
pub(crate) const MAX_THREADS: usize = (FILE_BYTES / 8 - HEAD_WORDS) / 2;

/// The current activity of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Starting,
    Creating,
    Opening,
    Working,
    Closing,
    Closed,
}

impl Stage {
    pub(crate) const ALL: [Self; 6] =
        [Self::Starting, Self::Creating, Self::Opening, Self::Working, Self::Closing, Self::Closed];
}

/// The mapped file.
#[derive(Debug)]
pub(crate) struct Acks {
    words: NonNull<u8>,
}

// SAFETY: the mapping is accessed only through the atomics of `word`.
unsafe impl Send for Acks {}
// SAFETY: as above.
unsafe impl Sync for Acks {}

impl Acks {
    /// Creates the file, with all words zero.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        std::fs::write(path, [0; FILE_BYTES])?;
        Self::open(path)
    }

    /// Maps the file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() < FILE_BYTES as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file of acknowledgements is too short",
            ));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel, so it overlaps no other memory of this process.
        let base = unsafe {
            mmap(std::ptr::null_mut(), FILE_BYTES, protection, MapFlags::SHARED, &file, 0)?
        };
        let words = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { words })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < FILE_BYTES / 8, "word {index} is outside the file");
        // SAFETY: in bounds of the mapping (just checked), which is page-aligned and lives as long as `self`; both
        // processes access its words only as atomics.
        unsafe { &*self.words.as_ptr().cast::<AtomicU64>().add(index) }
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        self.word(0).store(stage as u64, Ordering::Release);
    }

    pub(crate) fn stage(&self) -> Stage {
        let stage = self.word(0).load(Ordering::Acquire);
        Stage::ALL.into_iter().find(|known| *known as u64 == stage).unwrap_or(Stage::Starting)
    }

    /// Returns the number of steps that `thread` has started. Any part of the last one may have taken effect.
    pub(crate) fn begun(&self, thread: usize) -> &AtomicU64 {
        self.word(HEAD_WORDS + 2 * thread)
    }

    /// Returns the number of steps of `thread` that have returned.
    pub(crate) fn done(&self, thread: usize) -> &AtomicU64 {
        self.word(HEAD_WORDS + 2 * thread + 1)
    }
}

impl Drop for Acks {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`, with no reference left. A failure would only leak a page.
        let _ = unsafe { munmap(self.words.as_ptr().cast(), FILE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_says_the_other_reads() {
        let path = std::env::temp_dir().join(format!("icefield-acks-{}", std::process::id()));
        let child = Acks::create(&path).expect("create");
        let parent = Acks::open(&path).expect("open");
        child.set_stage(Stage::Closing);
        child.done(MAX_THREADS - 1).store(7, Ordering::Release);
        assert_eq!(parent.stage(), Stage::Closing);
        assert_eq!(parent.done(MAX_THREADS - 1).load(Ordering::Acquire), 7);
        std::fs::remove_file(path).expect("remove");
    }
}
