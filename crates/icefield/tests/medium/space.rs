//! Full devices and size limits.

use std::io::Write;
use std::os::unix::fs::MetadataExt;

use icefield::base::reclaim::Reclaimer;
use icefield::storage::blob::{BLOBS_REGION, BlobParams, BlobRef, BlobStore, Owner};

use super::*;

#[test]
fn max_bytes_bounds_all_regions_together() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let options = MappedOptions { max_bytes: Some(100_000), ..process() };
    for storage in [
        make(&path, options.clone(), 50_000),
        Mapped::anonymous(MappedOptions { max_bytes: Some(100_000), ..MappedOptions::default() })
            .unwrap(),
    ] {
        let region = data(&storage);
        let other = storage.region("other.ice", 1 << 30).unwrap();
        storage.grow(&region, 50_000).unwrap();
        storage.grow(&other, 30_000).unwrap();
        let len = other.len();
        assert!(
            matches!(storage.grow(&other, 90_000), Err(Error::NoSpace { needed_bytes, .. }) if needed_bytes == 90_000 - len)
        );
        assert_eq!(other.len(), len);
        storage.check_writable().unwrap();
        // The remaining space can be used up to the last byte.
        let table_bytes = if storage.durability() == Durability::Process { 8192 } else { 0 };
        let left = 100_000 - region.len() - other.len() - table_bytes;
        storage.grow(&region, region.len() + left).unwrap();
        assert!(matches!(storage.grow(&region, region.len() + 1), Err(Error::NoSpace { .. })));
    }
    // The limit includes existing files.
    let storage = Mapped::open(&path, options).unwrap();
    let (region, _other) = (data(&storage), storage.region("other.ice", 1 << 30).unwrap());
    storage.region(TABLE_REGION, 8192).unwrap();
    assert!(matches!(storage.grow(&region, region.len() + 1), Err(Error::NoSpace { .. })));
}

/// Holes made in this session do not count until they are reserved. Holes of an earlier session count, and reserving
/// them never fails because of the limit, so that a table over its limit can be opened.
#[test]
fn max_bytes_does_not_bound_holes() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let options = MappedOptions { max_bytes: Some(1 << 20), ..process() };
    for storage in [
        make(&path, options, 64 << 10),
        Mapped::anonymous(MappedOptions { max_bytes: Some(1 << 20), ..MappedOptions::default() })
            .unwrap(),
    ] {
        let region = data(&storage);
        let other = storage.region("other.ice", 1 << 30).unwrap();
        storage.grow_exactly(&region, 800 << 10).unwrap();
        let no_space = |result| assert!(matches!(result, Err(Error::NoSpace { .. })));
        no_space(storage.grow_exactly(&other, 400 << 10));
        // Punching a part twice frees it once.
        storage.punch(&region, 100 << 10, 400 << 10).unwrap();
        storage.punch(&region, 200 << 10, 100 << 10).unwrap();
        storage.grow_exactly(&other, 400 << 10).unwrap();
        no_space(storage.grow_exactly(&other, 800 << 10));
        // Reserving a part twice takes space once, and a failed reservation takes none.
        storage.reserve(&region, 100 << 10, 100 << 10).unwrap();
        storage.reserve(&region, 100 << 10, 100 << 10).unwrap();
        for _ in 0..3 {
            no_space(storage.reserve(&region, 100 << 10, 400 << 10));
        }
        storage.punch(&other, 0, 300 << 10).unwrap();
        storage.reserve(&region, 100 << 10, 400 << 10).unwrap();
        no_space(storage.reserve(&other, 0, 300 << 10));
        // A discarded region does not count, nor do its holes.
        drop(other);
        storage.discard_region("other.ice").unwrap();
        let other = storage.region("other.ice", 1 << 30).unwrap();
        storage.grow_exactly(&other, 100 << 10).unwrap();
        no_space(storage.grow_exactly(&other, 300 << 10));
        storage.punch(&region, 0, 800 << 10).unwrap();
    }
    let storage =
        Mapped::open(&path, MappedOptions { max_bytes: Some(1 << 19), ..process() }).unwrap();
    let region = storage.region_with_holes(DATA, 1 << 30).unwrap();
    storage.reserve(&region, 0, 800 << 10).unwrap();
    storage.punch(&region, 0, 800 << 10).unwrap();
    storage.reserve(&region, 0, 400 << 10).unwrap();
    assert!(matches!(storage.reserve(&region, 0, 800 << 10), Err(Error::NoSpace { .. })));
}

/// A small, separate file system.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(bytes: u64) -> Option<Self> {
        let place = scratch();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(place.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(place)),
            _ => {
                println!("skipped: cannot mount a small tmpfs here");
                None
            }
        }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_device_is_an_error_and_passes() {
    let Some(tmpfs) = Tmpfs::mount(2 << 20) else { return };
    let path = tmpfs.0.path().join("t");
    let storage = make(&path, process(), 100_000);
    let region = data(&storage);
    let len = region.len();
    assert!(matches!(storage.grow(&region, 4 << 20), Err(Error::NoSpace { .. })));
    assert_eq!(region.len(), len);
    assert_eq!(fs::metadata(path.join(DATA)).unwrap().len(), len, "the file was restored");
    storage.check_writable().unwrap();
    // Fills the device in small steps: every published byte can be stored to.
    let mut bytes = len;
    while storage.grow(&region, bytes).is_ok() {
        bytes = region.len() + 4096;
    }
    for offset in (0..region.len()).step_by(4096) {
        cell(&region, offset).store(&storage, offset, Relaxed);
    }
    let brim = region.len();
    assert!(brim > 1 << 20);
    // Another table, or a copy of this one, does not fit. Both attempts leave nothing behind.
    let target = tmpfs.0.path().join("copy");
    assert!(matches!(storage.backup_to(&target), Err(Error::NoSpace { .. })));
    let another = Mapped::create(&target, process())
        .and_then(|storage| superblock::create(&storage).map(drop));
    assert!(matches!(another, Err(Error::NoSpace { .. })), "{another:?}");
    assert_eq!(names(tmpfs.0.path()), ["t"]);
    // After space is freed, the table can grow again.
    storage.punch(&region, 0, 1 << 20).unwrap();
    storage.grow(&region, brim + 4096).unwrap();
    assert!(matches!(storage.reserve(&region, 0, 1 << 20), Err(Error::NoSpace { .. })));
    cell(&region, brim).store(&storage, 3, Relaxed);
    drop((storage, region));
    let storage = Mapped::open(&path, process()).unwrap();
    let region = storage.region_with_holes(DATA, 1 << 30).unwrap();
    assert_eq!(cell(&region, brim).load(&storage, Relaxed), 3);
}

/// Fills the device, except for the space of a lock file.
fn fill_up(filler: &Path) {
    let mut file = fs::File::create(filler).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    file.set_len(file.metadata().unwrap().len() - 4096).unwrap();
}

/// Truncates the file first, which frees its space at once: a child that another test has forked may still hold the
/// file, and a removed file keeps its blocks while it is held.
fn give_back(filler: &Path) {
    fs::File::create(filler).unwrap();
    fs::remove_file(filler).unwrap();
}

fn missing_bytes(file: &Path) -> u64 {
    let status = fs::metadata(file).unwrap();
    status.len().saturating_sub(status.blocks() * 512)
}

#[test]
fn a_copy_with_holes_gets_its_space_back_or_is_refused() {
    let Some(tmpfs) = Tmpfs::mount(4 << 20) else { return };
    let (path, copy) = (tmpfs.0.path().join("t"), tmpfs.0.path().join("copy"));
    let filler = tmpfs.0.path().join("filler");
    drop(make(&path, process(), 1 << 20));
    copy_with_holes(&path, &copy);
    let missing = missing_bytes(&copy.join(DATA));
    assert!(missing > 1 << 19);
    fill_up(&filler);
    let storage = Mapped::open(&copy, process()).unwrap();
    match storage.region(DATA, 1 << 30) {
        Err(Error::NoSpace { path, needed_bytes }) => {
            assert_eq!((path, needed_bytes), (copy.join(DATA), missing));
        }
        other => panic!("{other:?}"),
    }
    storage.check_writable().unwrap();
    // An opening with holes does not fill them, and neither does a read-only opening.
    assert_eq!(
        cell(&storage.region_with_holes(DATA, 1 << 30).unwrap(), 0).load(&storage, Relaxed),
        77
    );
    drop(storage);
    assert_eq!(first_word(&copy), 77);
    assert_eq!(missing_bytes(&copy.join(DATA)), missing);
    // With enough space, the opening fills the holes, so that no later store fails on the full device.
    give_back(&filler);
    let storage = Mapped::open(&copy, process()).unwrap();
    let region = data(&storage);
    assert_eq!(missing_bytes(&copy.join(DATA)), 0);
    fill_up(&filler);
    for offset in (0..region.len()).step_by(4096) {
        cell(&region, offset).store(&storage, offset, Relaxed);
    }
}

/// Reports every blob as referenced.
struct AllLive;

impl Owner for AllLive {
    fn is_live(&self, _owner: u64, _blob: BlobRef, mark: &mut dyn FnMut(bool)) {
        mark(true);
    }

    fn relink(&self, _owner: u64, _blob: BlobRef, _copy: BlobRef) -> icefield::Result<bool> {
        Ok(false)
    }
}

#[test]
fn free_blocks_in_holes_are_not_handed_out_on_a_full_device() {
    let Some(tmpfs) = Tmpfs::mount(4 << 20) else { return };
    let (path, copy) = (tmpfs.0.path().join("t"), tmpfs.0.path().join("copy"));
    let filler = tmpfs.0.path().join("filler");
    let open = |storage: &Mapped| {
        let params = BlobParams { growth_chunks: 1, ..BlobParams::default() };
        BlobStore::open(storage, params, Arc::new(Reclaimer::new())).unwrap()
    };
    let storage = make(&path, process(), 8);
    let blob = open(&storage).write(&storage, 1, b"first").unwrap();
    storage.fence();
    drop(storage);
    copy_with_holes(&path, &copy);
    fill_up(&filler);
    let storage = Mapped::open(&copy, process()).unwrap();
    let store = open(&storage);
    let write = |store: &BlobStore| {
        store.prepare(&storage, &AllLive, 5)?;
        store.write(&storage, 2, b"other")
    };
    assert!(matches!(write(&store), Err(Error::NoSpace { .. })));
    assert_eq!(store.verify(&storage, 1, blob).unwrap(), b"first");
    give_back(&filler);
    let store = open(&storage);
    assert_ne!(write(&store).unwrap(), blob);
    assert_eq!(missing_bytes(&copy.join(BLOBS_REGION)), 0);
    fill_up(&filler);
    // The rest of the blob's chunk can be used.
    let blocks = 1 + (1..).find(|_| write(&store).is_err()).unwrap();
    assert_eq!(blocks, BlobParams::default().chunk_bytes / 32);
}

#[test]
fn a_file_size_limit_is_an_error_and_no_signal() {
    // In a child process, because limits apply to a whole process.
    let status = crate::in_child("space::child_with_a_limit", &[]);
    assert!(status.success(), "{status:?}");
}

#[test]
#[ignore = "run by a_file_size_limit_is_an_error_and_no_signal"]
fn child_with_a_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let scratch = scratch();
    let storage = make(&scratch.path().join("t"), process(), 8);
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: Some(1 << 20), maximum }).unwrap();
    let region = data(&storage);
    assert!(matches!(storage.grow(&region, 2 << 20), Err(Error::NoSpace { .. })));
    storage.grow(&region, 1 << 20).unwrap();
}

#[test]
fn holes_are_filled_where_space_cannot_be_reserved() {
    let scratch = scratch();
    let (path, copy) = (scratch.path().join("t"), scratch.path().join("copy"));
    drop(make(&path, process(), 8 << 20));
    copy_with_holes(&path, &copy);
    let blocks = || fs::metadata(copy.join(DATA)).unwrap().blocks();
    let before = blocks();
    let plan = Arc::new(FaultPlan::refusing(&["allocate"], Errno::NOSYS));
    let storage = Mapped::open(&copy, MappedOptions { faults: Some(plan), ..process() }).unwrap();
    let region = data(&storage);
    assert_eq!(cell(&region, 0).load(&storage, Relaxed), 77);
    assert!(before < 100 && blocks() >= region.len() / 512, "{before} {}", blocks());
    storage.grow(&region, 9 << 20).unwrap();
    assert!(blocks() >= region.len() / 512);
}

/// A small archive can hold a file of any length. Opening it must not allocate space if there is not enough.
#[test]
fn more_holes_than_there_is_room_for_are_left_alone() {
    let scratch = fast_scratch();
    let path = scratch.path().join("t");
    drop(make(&path, process(), 100_000));
    let file = fs::File::options().write(true).open(path.join(DATA)).unwrap();
    file.set_len(1 << 42).unwrap();
    let blocks = || fs::metadata(path.join(DATA)).unwrap().blocks();
    let before = blocks();
    let storage = Mapped::open(&path, process()).unwrap();
    assert!(matches!(storage.region(DATA, 1 << 30), Err(Error::NoSpace { .. })));
    drop(storage);
    let storage = Mapped::open(&path, process()).unwrap();
    let region = storage.region_with_holes(DATA, 1 << 30).unwrap();
    assert!(matches!(storage.reserve(&region, 0, region.len()), Err(Error::NoSpace { .. })));
    storage.reserve(&region, 1 << 20, 4096).unwrap();
    assert!((before..before + 32).contains(&blocks()), "{before} {}", blocks());
}

#[test]
fn little_address_space_is_enough() {
    let status = crate::in_child("space::child_with_few_addresses", &[]);
    assert!(status.success(), "{status:?}");
}

#[test]
#[ignore = "run by little_address_space_is_enough"]
fn child_with_few_addresses() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(2 << 30), maximum }).unwrap();
    let scratch = scratch();
    let storage = make(&scratch.path().join("t"), process(), 8);
    for name in ["a.ice", "b.ice", "c.ice"] {
        let region = storage.region(name, u64::MAX).unwrap();
        assert_eq!(region.max_bytes(), 1 << 40);
        storage.grow(&region, 1 << 20).unwrap();
    }
    let memory = Mapped::anonymous(MappedOptions::default()).unwrap();
    let region = memory.region("a.ice", u64::MAX).unwrap();
    memory.grow(&region, 100 << 20).unwrap();
    cell(&region, (100 << 20) - 8).store(&memory, 5, Relaxed);
    for refused in
        [memory.grow(&region, 3 << 30), storage.grow(&storage.region("a.ice", 1).unwrap(), 3 << 30)]
    {
        let words = refused.unwrap_err().to_string();
        assert!(words.contains("address space") && words.contains("RLIMIT_AS"), "{words}");
    }
    assert_eq!(cell(&region, (100 << 20) - 8).load(&memory, Relaxed), 5);
    memory.grow(&region, 200 << 20).unwrap();
}

/// Occupies an address, so that nothing else is mapped there.
fn block_address(address: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let page = rustix::param::page_size();
    // SAFETY: a mapping that replaces nothing.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::with_exposed_provenance_mut(address),
            page,
            libc::PROT_NONE,
            flags,
            -1,
            0,
        )
    };
    assert_eq!(mapped.addr(), address);
}

#[test]
fn a_region_goes_on_elsewhere_when_the_next_addresses_are_taken() {
    const MIB: u64 = 1 << 20;
    let scratch = scratch();
    let path = scratch.path().join("t");
    for durability in [Durability::Process, Durability::PmemForced] {
        let storage = make(&path, with(durability), 8);
        let region = data(&storage);
        let word = |offset: u64| cell(&region, offset);
        storage.grow(&region, 10 * MIB).unwrap();
        let first = std::ptr::from_ref(word(10 * MIB - 4096));
        // The end of the newest mapping; initially that of the first one.
        let mut end = region.base().as_ptr().addr() + (16 << 20);
        let mut known = vec![(0, 77), (10 * MIB - 4096, 1)];
        word(10 * MIB - 4096).store(&storage, 1, Relaxed);
        for (round, bytes) in (2..).zip([40 * MIB, 200 * MIB]) {
            block_address(end);
            let before = region.len();
            storage.grow(&region, bytes).unwrap();
            assert_eq!(std::ptr::from_ref(word(10 * MIB - 4096)), first, "no word moves");
            let behind = std::ptr::from_ref(word(bytes - 8)).addr() - (bytes as usize - 8);
            assert_ne!(behind, region.base().as_ptr().addr());
            end = behind + 2 * bytes as usize;
            for offset in [before, bytes - 8] {
                word(offset).store(&storage, round, Relaxed);
                storage.persist(word(offset));
                known.push((offset, round));
            }
            // Accesses across the border of two mappings, by all calls.
            let across = before - 16;
            // SAFETY: this thread alone uses the region; the bytes that are read were written before.
            unsafe {
                storage.write_bytes(&region, across, &[round as u8; 16]);
                assert_eq!(storage.read_bytes(&region, across, 16), Some(&[round as u8; 16][..]));
                assert_eq!(storage.read_bytes(&region, region.len() - 1, 2), None);
            }
            storage.flush_range(&region, across, 24);
            storage.fence();
            let words = region.slice_at::<Cell64>(across, 3).unwrap();
            let expected = u64::from_ne_bytes([round as u8; 8]);
            assert_eq!(
                [0, 1, 2].map(|at| words[at].load(&storage, Relaxed)),
                [expected, expected, round]
            );
            for (offset, value) in known.iter().copied().filter(|(offset, _)| *offset + 8 != before)
            {
                assert_eq!(word(offset).load(&storage, Relaxed), value, "byte {offset}");
            }
            assert!(region.at::<Cell64>(region.len()).is_none());
        }
        storage.punch(&region, 64 * MIB, MIB).unwrap();
        assert_eq!(word(64 * MIB).load(&storage, Relaxed), 0);
        drop((region, storage));
        let storage = Mapped::open(&path, process()).unwrap();
        let region = data(&storage);
        for offset in [40 * MIB, 200 * MIB - 8] {
            assert_eq!(cell(&region, offset).load(&storage, Relaxed), 3);
        }
        drop((region, storage));
        fs::remove_dir_all(&path).unwrap();
    }
    // Anonymous memory has a single mapping, initially a 32nd of its limit.
    let storage = Mapped::anonymous(MappedOptions::default()).unwrap();
    let region = data(&storage);
    block_address(region.base().as_ptr().addr() + (32 << 20));
    storage.grow(&region, 32 * MIB).unwrap();
    let words = storage.grow(&region, 33 * MIB).unwrap_err().to_string();
    assert!(words.contains("address space"), "{words}");
    cell(&region, 32 * MIB - 8).store(&storage, 1, Relaxed);
}
