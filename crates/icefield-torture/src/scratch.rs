//! Temporary directories for real files, on a memory file system where there is one: thousands of tables are created
//! and removed there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The usual mount point of a memory file system.
const IN_MEMORY: &str = "/dev/shm";

/// `tmpfs` and `ramfs`.
const MEMORY_MAGICS: [rustix::fs::FsWord; 2] = [0x0102_1994, 0x8584_58f6];

/// An empty directory, removed with everything in it when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory in memory if possible, otherwise among the temporary files.
    ///
    /// # Errors
    /// Returns the error if the directory could not be created.
    pub fn new() -> io::Result<Self> {
        Self::within(Path::new(IN_MEMORY)).or_else(|_| Self::within(&std::env::temp_dir()))
    }

    /// Creates a directory on a file system where a sync has an effect, unlike in memory, for tables of
    /// `Durability::Disk`.
    ///
    /// # Errors
    /// Returns the error if the directory could not be created or all usual places are in memory.
    pub fn for_syncs() -> io::Result<Self> {
        let places = [std::env::temp_dir(), PathBuf::from("/var/tmp"), PathBuf::from(".")];
        let on_disk = |place: &&PathBuf| {
            let magic = rustix::fs::statfs(place.as_path()).map(|status| status.f_type);
            magic.is_ok_and(|magic| !MEMORY_MAGICS.contains(&magic))
        };
        let place = places.iter().find(on_disk);
        let nowhere = || {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "no directory on a disk; name one with --dir",
            )
        };
        Self::within(place.ok_or_else(nowhere)?)
    }

    /// Creates a directory inside `parent`, which must exist.
    ///
    /// # Errors
    /// Returns the error if the directory could not be created.
    pub fn within(parent: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("icefield-scratch-{}-{number}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The directory is temporary, so a failure to remove it is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_is_empty_and_goes_away() {
        let scratch = Scratch::new().expect("scratch");
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "x").expect("write");
        drop(scratch);
        assert!(!path.exists());
    }
}
