//! An index and its surroundings: copies while another process inserts and merges; directories that are moved or
//! replaced while a handle is open; relative paths.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use icefield::{Durability, Error, JoinIndex};

/// The environment variable that passes orders to a child process. The child runs [`beside_entry`].
const ORDERS: &str = "ICEFIELD_JOIN_BESIDE";
/// The first of the consecutive keys that a writer inserts. No index has them at the start.
const FIRST_KEY: u64 = 1 << 40;
/// Number of keys of an index at the start.
const KEYS: u64 = 20_000;

/// Starts this program again with orders.
fn child(orders: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "beside::beside_entry", "--nocapture", "--test-threads=1"]);
    command.env(ORDERS, orders).stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// The entry of a child with orders. Without orders it does nothing.
#[test]
fn beside_entry() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    match orders.split_whitespace().collect::<Vec<_>>()[..] {
        ["write", merge_every, directory] => {
            write(merge_every.parse().unwrap(), Path::new(directory))
        }
        ["leave", directory] => leave(Path::new(directory)),
        _ => panic!("{orders}"),
    }
    std::process::exit(0)
}

/// Returns the number of keys that a writer has acknowledged.
fn acknowledged(file: &File) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Inserts key after key and acknowledges each, with occasional merges, until the parent exits.
fn write(merge_every: u64, directory: &Path) {
    let index = JoinIndex::<u64>::options().threads(1).open(directory.join("index")).unwrap();
    let told = File::options().write(true).open(directory.join("told")).unwrap();
    let mut count = acknowledged(&File::open(directory.join("told")).unwrap());
    // Standard input ends when the parent exits or closes it.
    std::thread::spawn(|| {
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
        std::process::exit(0);
    });
    loop {
        index.insert(FIRST_KEY + count, count).unwrap();
        count += 1;
        told.write_all_at(&count.to_ne_bytes(), 0).unwrap();
        if count.is_multiple_of(merge_every) {
            index.merge().unwrap();
        }
    }
}

/// Copies an index while another process inserts and merges.
fn copies_beside(merge_every: u64, copies: u32) {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("index"), directory.path().join("copy"));
    let keys: Vec<u64> = (0..KEYS).collect();
    drop(JoinIndex::build(&path, &keys, &keys).unwrap());
    fs::write(directory.path().join("told"), [0; 8]).unwrap();
    let told = File::open(directory.path().join("told")).unwrap();
    let old = JoinIndex::<u64>::open_read_only(&path).unwrap();
    let mut writer = child(&format!("write {merge_every} {}", directory.path().display()));
    while acknowledged(&told) == 0 {
        assert!(writer.try_wait().unwrap().is_none(), "the writer has ended");
    }
    for number in 0..copies {
        // One handle was just opened, the other one before the first change.
        let new = JoinIndex::<u64>::open_read_only(&path).unwrap();
        let handle = if number.is_multiple_of(2) { &new } else { &old };
        let before = acknowledged(&told);
        let report = handle.backup(&copy).unwrap();
        let after = acknowledged(&told) + 1;
        assert!(report.pause.is_zero());
        let copied = JoinIndex::<u64>::open(&copy).unwrap();
        assert!(copied.recovery().was_clean);
        let count = copied.len() - KEYS;
        assert!((before..=after).contains(&count), "{count} of {before} to {after}");
        let inserted: Vec<u64> = (FIRST_KEY..FIRST_KEY + count).collect();
        assert_eq!(copied.anti(&inserted).unwrap().count_ones(), 0);
        assert_eq!(copied.probe_count(&keys).unwrap(), KEYS);
        assert!(copied.check().unwrap().is_clean());
        // The copy accepts changes.
        copied.insert(7, 7).unwrap();
        copied.merge().unwrap();
        drop(copied);
        fs::remove_dir_all(&copy).unwrap();
    }
    assert!(writer.try_wait().unwrap().is_none(), "the writer has ended");
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());
    // The handle keeps the generation that it opened.
    assert_eq!(old.len(), KEYS);
    let end = JoinIndex::<u64>::open(&path).unwrap();
    assert!(end.check().unwrap().is_clean());
}

#[test]
fn copies_beside_an_inserting_process() {
    copies_beside(u64::MAX, 20);
}

#[test]
fn copies_beside_a_merging_process() {
    copies_beside(40, 40);
}

#[test]
fn copies_by_the_handle_that_changes() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let keys: Vec<u64> = (0..KEYS).collect();
    for durability in [Durability::Process, Durability::Disk] {
        let path = directory.path().join(format!("{durability}"));
        let index = JoinIndex::<u64>::options()
            .threads(2)
            .durability(durability)
            .build(&path, &keys, &keys)
            .unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for key in FIRST_KEY.. {
                    index.insert(key, key).unwrap();
                    if key.is_multiple_of(100) {
                        index.merge().unwrap();
                    }
                    if done.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            });
            for _ in 0..10 {
                let before = index.len();
                index.backup(&copy).unwrap();
                let after = index.len();
                let copied = JoinIndex::<u64>::open_read_only(&copy).unwrap();
                assert!((before..=after).contains(&copied.len()));
                assert!(copied.check().unwrap().is_clean());
                fs::remove_dir_all(&copy).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
    let index = JoinIndex::in_memory(&[1_u64, 2], &[10, 20]).unwrap();
    index.insert(3, 30).unwrap();
    index.backup(&copy).unwrap();
    assert_eq!(JoinIndex::<u64>::open(&copy).unwrap().probe_count(&[1, 2, 3]).unwrap(), 3);
    assert!(matches!(index.backup(&copy), Err(Error::AlreadyExists { .. })));
}

#[test]
fn a_damaged_index_is_not_copied() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("index"), directory.path().join("copy"));
    let keys: Vec<u64> = (0..KEYS).collect();
    drop(JoinIndex::build(&path, &keys, &keys).unwrap());
    let base = path.join("base-1.ice");
    let file = File::options().read(true).write(true).open(&base).unwrap();
    let at = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    let index = JoinIndex::<u64>::open(&path).unwrap();
    let refused = index.backup(&copy);
    assert!(matches!(&refused, Err(Error::Corrupt { file, .. }) if *file == base), "{refused:?}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "something is left of the copy");
}

fn pairs(path: &Path) -> u64 {
    JoinIndex::<u64>::open_read_only(path).unwrap().len()
}

#[test]
fn a_handle_stays_with_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let keys: Vec<u64> = (0..1000).collect();
    drop(JoinIndex::build(at("a"), &keys, &keys).unwrap());
    let [index, reader] = [(); 2].map(|()| JoinIndex::<u64>::open(at("a")).unwrap());
    fs::rename(at("a"), at("moved")).unwrap();
    drop(JoinIndex::build(at("a"), &[1_u64], &[1]).unwrap());
    let (uuid, len) = (index.uuid(), index.len());
    index.insert(99, 99).unwrap();
    index.merge().unwrap();
    assert_eq!((index.uuid(), index.len()), (uuid, len + 1));
    assert_eq!((pairs(&at("a")), pairs(&at("moved"))), (1, 1001));
    // Copies and the lock belong to the opened directory, too.
    reader.backup(at("copy")).unwrap();
    assert_eq!(pairs(&at("copy")), 1001);
    assert!(matches!(reader.insert(1, 1), Err(Error::Locked { .. })));
    drop(index);
    reader.insert(1, 1).unwrap();
    assert_eq!((pairs(&at("a")), pairs(&at("moved"))), (1, 1002));
}

#[test]
fn another_index_in_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    drop(JoinIndex::build(at("a"), &[1_u64, 2], &[1, 2]).unwrap());
    drop(JoinIndex::build(at("b"), &[1_u64], &[1]).unwrap());
    let index = JoinIndex::<u64>::open(at("a")).unwrap();
    for file in ["table.ice", "base-1.ice"] {
        // Renaming replaces the file at the path; the mapping of the previous file is unaffected.
        fs::rename(at("b").join(file), at("a").join(file)).unwrap();
    }
    for refused in [index.insert(3, 3), index.merge().map(drop), index.backup(at("copy")).map(drop)]
    {
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    }
    assert!(!at("copy").exists());
    assert_eq!((index.len(), index.probe_count(&[1, 2]).unwrap()), (2, 2));
    // After the directory is removed, inserts fail, but probes still work.
    fs::remove_dir_all(at("a")).unwrap();
    assert!(matches!(index.insert(3, 3), Err(Error::NotFound { .. })));
    assert_eq!(index.probe_count(&[1, 2]).unwrap(), 2);
}

#[test]
fn a_relative_path_is_that_of_the_opening() {
    let directory = tempfile::tempdir().unwrap();
    assert!(child(&format!("leave {}", directory.path().display())).wait().unwrap().success());
    assert_eq!(pairs(&directory.path().join("a.ice")), 3);
}

/// Opens an index by a relative path, and changes it from another directory.
fn leave(directory: &Path) {
    std::env::set_current_dir(directory).unwrap();
    fs::create_dir("elsewhere").unwrap();
    drop(JoinIndex::build("a.ice", &[1_u64, 2], &[1, 2]).unwrap());
    let index = JoinIndex::<u64>::open("a.ice").unwrap();
    std::env::set_current_dir("elsewhere").unwrap();
    index.insert(7, 7).unwrap();
    index.merge().unwrap();
    index.backup(PathBuf::from("copy.ice")).unwrap();
    assert_eq!(pairs(Path::new("copy.ice")), 3);
}
