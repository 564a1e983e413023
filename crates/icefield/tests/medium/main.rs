//! The real medium: directories, locks, lengths, durabilities, forks, full devices.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use icefield::storage::superblock::{self, Identity, TABLE_REGION};
use icefield::storage::{
    Bytes, Cell64, Errno, FaultAction, FaultAt, FaultMode, FaultPlan, HugePages, Mapped,
    MappedOptions, Medium, Persist, Properties, Region, Regions,
};
use icefield::{Durability, Error};
// Its tables are compiled already (record 0108).
use icefield_torture as _;

mod alone;
mod backup;
mod blobs;
mod copies;
mod creating;
mod durability;
mod faults;
mod footprint;
mod full;
mod lengths;
mod opening;
mod refusals;
mod space;

const DATA: &str = "data.ice";

/// Creates a scratch directory in the build directory, which is not on a `tmpfs`.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Creates a scratch directory where syncs are free, for tests that create thousands of tables. Not for
/// [`Durability::Disk`], which is refused there.
fn fast_scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| scratch())
}

/// Creates a scratch directory for tables of a durability.
fn scratch_for(durability: Durability) -> tempfile::TempDir {
    if durability == Durability::Disk { scratch() } else { fast_scratch() }
}

fn with(durability: Durability) -> MappedOptions {
    MappedOptions { durability, huge_pages: HugePages::All, ..MappedOptions::default() }
}

fn process() -> MappedOptions {
    with(Durability::Process)
}

fn identity() -> Identity {
    Identity { design: "test".into(), ..Identity::default() }
}

fn cell(region: &Region, offset: u64) -> &Cell64 {
    region.at::<Cell64>(offset).unwrap()
}

fn data(storage: &Mapped) -> Region {
    storage.region(DATA, 1 << 30).unwrap()
}

/// Creates a published table with `bytes` bytes of data; its first word is 77.
fn make(path: &Path, options: MappedOptions, bytes: u64) -> Mapped {
    let storage = Mapped::create(path, options).unwrap();
    let table = superblock::create(&storage).unwrap();
    let region = data(&storage);
    storage.grow(&region, bytes).unwrap();
    cell(&region, 0).store(&storage, 77, Relaxed);
    storage.persist(cell(&region, 0));
    superblock::seal(&storage, &table, &identity()).unwrap();
    storage.publish_created().unwrap();
    storage
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Copies a directory as `cp` does: runs of zeros become holes.
fn copy_with_holes(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in names(from) {
        let bytes = fs::read(from.join(&name)).unwrap();
        let file = fs::File::create_new(to.join(&name)).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        for (page, content) in bytes.chunks(4096).enumerate() {
            if content.iter().any(|&byte| byte != 0) {
                file.write_all_at(content, page as u64 * 4096).unwrap();
            }
        }
    }
}

fn first_word(path: &Path) -> u64 {
    let storage = Mapped::open_read_only(path, process()).unwrap();
    cell(&data(&storage), 0).load(&storage, Relaxed)
}

/// Runs one ignored test of this file in a separate process.
fn in_child(test: &str, variables: &[(&str, String)]) -> std::process::ExitStatus {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command.envs(variables.iter().map(|(name, value)| (*name, value)));
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command.status().unwrap()
}
