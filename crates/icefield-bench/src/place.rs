//! Directories for tables under measurement, which are removed afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

use crate::{Error, Outcome};

const PREFIX: &str = "icefield-bench-";

/// A directory of this run, removed with its content on drop. If the removal fails, the next run removes the directory.
#[derive(Debug)]
pub(crate) struct Scratch(TempDir);

impl Scratch {
    /// Creates a directory inside `parent`, and removes those that killed runs left there.
    pub fn new(parent: &Path) -> Outcome<Self> {
        let fault = |error| Error::file(parent, error);
        fs::create_dir_all(parent).map_err(fault)?;
        remove_leftovers(parent);
        let prefix = format!("{PREFIX}{}-", std::process::id());
        Ok(Self(tempfile::Builder::new().prefix(&prefix).tempdir_in(parent).map_err(fault)?))
    }

    /// Returns a path inside the directory. It is unused if `number` has not been used before.
    pub fn entry(&self, number: u64) -> PathBuf {
        self.0.path().join(number.to_string())
    }
}

/// Removes the directories of dead processes. In `/dev/shm` they would occupy memory until the next boot.
fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        let gone = owner
            .and_then(Pid::from_raw)
            .is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH));
        if gone {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A directory, if any, that is removed on drop.
#[derive(Debug)]
pub(crate) struct RemovedDir(pub Option<PathBuf>);

impl Drop for RemovedDir {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Returns the size of the blocks that the file system has allocated to the files in `dir`.
pub(crate) fn allocated_bytes(dir: &Path) -> Outcome<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    let fault = |error| Error::file(dir, error);
    for entry in fs::read_dir(dir).map_err(fault)? {
        bytes += entry.and_then(|entry| entry.metadata()).map_err(fault)?.blocks() * 512;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_directories_do_not_meet_and_go_away() {
        let parent = std::env::temp_dir();
        let (one, two) = (Scratch::new(&parent).unwrap(), Scratch::new(&parent).unwrap());
        assert_ne!(one.0.path(), two.0.path());
        fs::write(one.entry(0), b"x").unwrap();
        let path = one.0.path().to_owned();
        drop(one);
        assert!(!path.exists());
    }
}
