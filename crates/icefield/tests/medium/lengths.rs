//! Regions: reservations, growth, truncated files, out-of-bounds accesses, holes.

use super::*;

#[test]
fn growing_gives_zeros_at_the_same_address() {
    let scratch = scratch();
    for storage in [
        make(&scratch.path().join("t"), process(), 8),
        Mapped::anonymous(MappedOptions::default()).unwrap(),
        make(&scratch.path().join("p"), with(Durability::PmemForced), 8),
        make(&scratch.path().join("d"), with(Durability::Disk), 8),
    ] {
        let region = data(&storage);
        let base = region.base();
        let mut last = region.len();
        for bytes in [4096, 5000, 70_000, 3 << 20, 33 << 20] {
            storage.grow(&region, bytes).unwrap();
            if region.len() == last {
                continue;
            }
            assert!(
                region.len() >= bytes && region.len() <= bytes + bytes / 16 + 8192,
                "{bytes}: {}",
                region.len()
            );
            assert_eq!(region.base(), base);
            for offset in
                [last, (last + region.len()) / 2, region.len() - 8].map(|offset| offset / 8 * 8)
            {
                assert_eq!(cell(&region, offset).load(&storage, Relaxed), 0);
                cell(&region, offset).store(&storage, offset + 1, Relaxed);
            }
            last = region.len();
        }
        storage.grow(&region, 1).unwrap();
        assert_eq!(region.len(), last, "never shrinks");
        assert!(
            matches!(storage.grow(&region, (1 << 30) + 1), Err(Error::NoSpace { .. })),
            "the reservation is a bound"
        );
        assert!(matches!(storage.grow(&region, u64::MAX), Err(Error::NoSpace { .. })));
        assert_eq!(storage.region(DATA, 1).unwrap().base(), base, "one name, one region");
    }
}

#[test]
fn reservations_are_large_and_bounded() {
    let storage = Mapped::anonymous(MappedOptions::default()).unwrap();
    let region = storage.region("huge.ice", u64::MAX).unwrap();
    assert!((1 << 30..=1 << 40).contains(&region.max_bytes()));
    assert_eq!(
        storage.region("small.ice", 1).unwrap().max_bytes() as usize,
        rustix::param::page_size()
    );
}

#[test]
fn smaller_reservations_serve_where_addresses_are_few() {
    // The second, third or fourth system call for the region fails once: either a smaller reservation succeeds, or an
    // error is returned.
    let scratch = scratch();
    for fails in 1..=3 {
        let plan = |nth| MappedOptions {
            durability: Durability::Process,
            faults: Some(Arc::new(FaultPlan::new(FaultAt {
                nth,
                mode: FaultMode::Once,
                action: FaultAction::Fail(Errno::NOMEM),
            }))),
            ..MappedOptions::default()
        };
        let path = scratch.path().join("t");
        let counting = Arc::new(FaultPlan::counting());
        let storage = Mapped::create(
            &path,
            MappedOptions { faults: Some(Arc::clone(&counting)), ..process() },
        )
        .unwrap();
        let before = counting.calls();
        drop(storage);
        let storage = Mapped::create(&path, plan(before + 1 + fails)).unwrap();
        let region = storage.region(DATA, u64::MAX);
        match region {
            Ok(region) => assert!(region.max_bytes() <= 1 << 40),
            Err(error) => assert!(matches!(error, Error::Io { .. })),
        }
    }
}

#[test]
fn the_length_is_what_the_file_has() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    drop(make(&path, process(), 100_000));
    for len in [50_001_u64, 4097, 13, 0] {
        fs::File::options().write(true).open(path.join(DATA)).unwrap().set_len(len).unwrap();
        let storage = Mapped::open(&path, process()).unwrap();
        let region = data(&storage);
        assert_eq!(region.len(), len);
        assert!(region.at::<Cell64>(len / 8 * 8).is_none());
        // A crash after a file is extended, but before its length is published, leaves such a tail. It must be usable.
        storage.grow(&region, len + 10_000).unwrap();
        assert_eq!(cell(&region, (len + 9_000) / 8 * 8).load(&storage, Relaxed), 0);
        drop(region);
    }
}

#[test]
fn a_file_longer_than_the_bound_is_mapped_whole() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    drop(make(&path, process(), 100_000));
    let storage = Mapped::open(&path, process()).unwrap();
    let region = storage.region(DATA, 4096).unwrap();
    assert!(region.len() >= 100_000);
    assert_eq!(cell(&region, 99_992).load(&storage, Relaxed), 0);
}

#[test]
fn truncation_while_open_is_noticed_by_the_next_growth() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let storage = make(&path, process(), 100_000);
    let region = data(&storage);
    fs::File::options().write(true).open(path.join(DATA)).unwrap().set_len(5000).unwrap();
    assert!(matches!(storage.grow(&region, 200_000), Err(Error::Corrupt { offset: 5000, .. })));
    assert!(matches!(storage.check_writable(), Err(Error::Poisoned)));
}

#[test]
fn bytes_outside_are_refused() {
    let storage = Mapped::anonymous(MappedOptions::default()).unwrap();
    let region = data(&storage);
    storage.grow(&region, 4096).unwrap();
    // SAFETY: this thread alone uses the region; the bytes that are read were written before.
    unsafe {
        storage.write_bytes(&region, 4093, b"abc");
        assert_eq!(storage.read_bytes(&region, 4093, 3), Some(&b"abc"[..]));
        assert_eq!(storage.read_bytes(&region, region.len() - 1, 2), None);
        assert_eq!(storage.read_bytes(&region, u64::MAX, 2), None);
    }
    for offset in [region.len() - 2, u64::MAX - 1] {
        let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: the call panics before it writes.
            unsafe { storage.write_bytes(&region, offset, b"abc") };
        }));
        assert!(outside.is_err());
    }
}

#[test]
fn punching_gives_space_back_and_reads_zero() {
    use std::os::unix::fs::MetadataExt;
    let scratch = scratch();
    let path = scratch.path().join("t");
    for storage in [make(&path, process(), 8), Mapped::anonymous(MappedOptions::default()).unwrap()]
    {
        let region = data(&storage);
        storage.grow(&region, 1 << 20).unwrap();
        for offset in (0..1 << 20).step_by(2048) {
            cell(&region, offset).store(&storage, 9, Relaxed);
        }
        let blocks =
            |path: &Path| fs::metadata(path.join(DATA)).map_or(0, |status| status.blocks());
        let before = blocks(&path);
        // Only whole pages are punched: from 8192 up to 1 MiB - 4096.
        storage.punch(&region, 4097, (1 << 20) - 4097 - 1).unwrap();
        for offset in (0..1 << 20).step_by(2048) {
            let kept = !(8192..(1 << 20) - 4096).contains(&offset);
            assert_eq!(
                cell(&region, offset).load(&storage, Relaxed),
                if kept { 9 } else { 0 },
                "{offset}"
            );
        }
        if storage.durability() == Durability::Process {
            assert!(blocks(&path) < before);
            storage.reserve(&region, 8192, 1 << 19).unwrap();
            assert!(blocks(&path) >= before / 2);
        }
        storage.punch(&region, 100, 200).unwrap();
        storage.punch(&region, u64::MAX - 5, 100).unwrap();
        storage.reserve(&region, 5 << 20, 100).unwrap();
    }
}

/// A sync writes whole pages: 2 MiB for a word in a huge page, and zeros for a page that was only mapped. So regions on
/// disks use neither huge pages nor pages that are mapped in advance.
#[test]
fn pages_that_are_synced_are_small_and_written_when_they_hold_something() {
    let scratch = scratch();
    let advices = |durability| {
        let counting = Arc::new(FaultPlan::counting());
        let options = MappedOptions { faults: Some(Arc::clone(&counting)), ..with(durability) };
        let storage = make(&scratch.path().join(format!("{durability:?}")), options, 8);
        storage.grow(&data(&storage), 5 << 20).unwrap();
        let sites = counting.sites();
        ["advise_huge_pages", "map_pages"].map(|advice| sites.contains(&advice))
    };
    assert_eq!(advices(Durability::Process), [true, true]);
    assert_eq!(advices(Durability::Disk), [false, false]);
}

/// Uses `tmpfs` if there is one. The kernel may provide or refuse huge pages; the content must be the same.
#[test]
fn huge_pages_change_no_content() {
    const BYTES: u64 = 6 << 20;
    let tmpfs = Path::new("/dev/shm");
    let dir =
        if tmpfs.is_dir() { tempfile::tempdir_in(tmpfs) } else { tempfile::tempdir() }.unwrap();
    let path = dir.path().join("t.ice");
    let options = |huge_pages| MappedOptions { huge_pages, ..process() };
    let holds = |storage: &Mapped, region: &Region, bytes: u64| {
        (1..bytes / 8).all(|word| cell(region, 8 * word).load(storage, Relaxed) == word)
    };
    let storage = make(&path, options(HugePages::Never), BYTES);
    let region = data(&storage);
    for word in 1..BYTES / 8 {
        cell(&region, 8 * word).store(&storage, word, Relaxed);
    }
    drop((region, storage));
    let reader = Mapped::open_read_only(&path, options(HugePages::All)).unwrap();
    assert!(holds(&reader, &data(&reader), BYTES));
    drop(reader);
    for (round, huge_pages) in (1..).zip([HugePages::Growth, HugePages::All, HugePages::Never]) {
        let storage = Mapped::open(&path, options(huge_pages)).unwrap();
        let (region, end) = (data(&storage), BYTES + round * 3_000_000 / 8 * 8);
        let before = region.len();
        storage.grow(&region, end).unwrap();
        for word in before / 8..region.len() / 8 {
            assert_eq!(cell(&region, 8 * word).load(&storage, Relaxed), 0);
            cell(&region, 8 * word).store(&storage, word, Relaxed);
        }
        assert!(holds(&storage, &region, region.len()));
    }
}
