//! Paths that open and paths that are refused, and concurrent openings.

use super::*;

#[test]
fn what_is_no_table_is_not_touched() {
    let scratch = scratch();
    let missing = scratch.path().join("missing");
    let file = scratch.path().join("file");
    let directory = scratch.path().join("directory");
    fs::write(&file, "text").unwrap();
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("notes"), "mine").unwrap();
    std::os::unix::fs::symlink("nowhere", scratch.path().join("dangling")).unwrap();
    for path in [&missing, &file, &directory, &scratch.path().join("dangling"), &PathBuf::new()] {
        assert!(
            matches!(Mapped::open(path, process()), Err(Error::NotFound { .. })),
            "{}",
            path.display()
        );
        assert!(matches!(Mapped::open_read_only(path, process()), Err(Error::NotFound { .. })));
    }
    assert_eq!(names(&directory), ["notes"]);
    assert!(matches!(Mapped::open("nul\0nul", process()), Err(Error::Io { .. })));
    std::os::unix::fs::symlink("loop", scratch.path().join("loop")).unwrap();
    assert!(matches!(Mapped::open(scratch.path().join("loop"), process()), Err(Error::Io { .. })));
}

/// Returns the visible state of a directory: names, kinds, lengths, blocks, contents, modification times.
fn state(directory: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let seen = |name: &String| {
        let path = directory.join(name);
        let status = fs::symlink_metadata(&path).unwrap();
        let content = if status.len() < 1 << 20 { fs::read(&path).ok() } else { None };
        let (mode, len, blocks) = (status.mode(), status.len(), status.blocks());
        let (mtime, nanoseconds) = (status.mtime(), status.mtime_nsec());
        format!("{name}: {mode:o} {len} {blocks} {mtime}.{nanoseconds} {content:?}")
    };
    names(directory).iter().map(seen).collect()
}

#[test]
fn nothing_is_changed_before_a_table_is_verified() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let victim = scratch.path().join("victim");
    fs::write(&victim, "forty two years of diaries\n".repeat(1000)).unwrap();
    let fresh = |head: &[u8], bytes: u64| {
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        let table = fs::File::create_new(path.join(TABLE_REGION)).unwrap();
        table.write_all_at(head, 0).unwrap();
        table.set_len(bytes).unwrap();
    };
    let refused = |what: &str, expected: fn(&Error) -> bool| {
        let before = (state(scratch.path()), state(&path));
        for opened in [Mapped::open(&path, process()), Mapped::open_read_only(&path, process())] {
            assert!(expected(&opened.unwrap_err()), "{what}");
        }
        assert_eq!((state(scratch.path()), state(&path)), before, "{what}");
    };
    let corrupt = |error: &Error| matches!(error, Error::Corrupt { .. });
    let none = |error: &Error| matches!(error, Error::NotFound { .. });

    fresh(b"nothing", 7);
    fs::write(path.join("lock"), "the lock file of another program\n".repeat(10)).unwrap();
    refused("a short file", corrupt);
    fresh(b"", 0);
    refused("an empty file", none);
    fresh(b"", 3 << 30);
    fs::write(path.join("lock"), "").unwrap();
    refused("a sparse file", none);
    fresh(b"icefield and no more", 3 << 30);
    refused("a sparse file with the magic", corrupt);

    let remake = || {
        let _ = fs::remove_dir_all(&path);
        drop(make(&path, process(), 8));
        let _ = fs::remove_file(path.join("lock"));
    };
    remake();
    fs::hard_link(&victim, path.join("lock")).unwrap();
    refused("a lock file that is a hard link", corrupt);
    fs::remove_file(path.join("lock")).unwrap();
    fs::copy(&victim, path.join("lock")).unwrap();
    refused("a lock file that no table wrote", corrupt);
    remake();
    fs::File::options()
        .write(true)
        .open(path.join(TABLE_REGION))
        .unwrap()
        .set_len(3 << 30)
        .unwrap();
    fs::write(path.join("lock"), "").unwrap();
    refused("a valid superblock in a sparse file", corrupt);
    remake();
    fs::hard_link(path.join(TABLE_REGION), scratch.path().join("link")).unwrap();
    fs::write(path.join("lock"), "").unwrap();
    refused("a first file that is a hard link", corrupt);
}

#[test]
fn regions_have_plain_names() {
    let scratch = scratch();
    let storage = make(&scratch.path().join("t"), process(), 8);
    for name in ["", ".", "..", "../x", "/etc/passwd", ".hidden", "lock", "a/b", "nul\0"] {
        assert!(matches!(storage.region(name, 4096), Err(Error::InvalidOption { .. })), "{name:?}");
    }
}

#[test]
fn odd_files_are_refused() {
    for odd in ["symlink", "directory", "fifo", "hard link"] {
        let scratch = scratch();
        let path = scratch.path().join("t");
        drop(make(&path, process(), 8));
        fs::write(scratch.path().join("other"), "1\n").unwrap();
        for name in [DATA, "lock"] {
            let file = path.join(name);
            let _ = fs::remove_file(&file);
            match odd {
                "symlink" => std::os::unix::fs::symlink(TABLE_REGION, &file).unwrap(),
                "directory" => fs::create_dir(&file).unwrap(),
                "hard link" => fs::hard_link(scratch.path().join("other"), &file).unwrap(),
                _ => rustix::fs::mknodat(
                    rustix::fs::CWD,
                    &file,
                    rustix::fs::FileType::Fifo,
                    rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
                    0,
                )
                .unwrap(),
            }
            let opened =
                Mapped::open(&path, process()).and_then(|storage| storage.region(DATA, 1 << 30));
            assert!(matches!(opened, Err(Error::Corrupt { .. })), "{odd} {name}: {opened:?}");
            let _ = fs::remove_file(&file).or_else(|_| fs::remove_dir(&file));
            let _ = fs::remove_file(path.join("lock"));
        }
    }
}

#[test]
fn one_writer_or_many_readers() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let writer = make(&path, process(), 8);
    let locked = |result: icefield::Result<Mapped>| match result {
        Err(Error::Locked { pid, .. }) => Some(pid),
        _ => None,
    };
    assert_eq!(locked(Mapped::open(&path, process())), Some(std::process::id()));
    assert_eq!(locked(Mapped::open_read_only(&path, process())), Some(std::process::id()));
    let named = || fs::read_to_string(path.join("lock")).unwrap().trim().to_owned();
    assert_eq!(named(), std::process::id().to_string());
    drop(writer);
    assert_eq!(named(), "");

    let reader = Mapped::open_read_only(&path, process()).unwrap();
    let another = Mapped::open_read_only(&path, process()).unwrap();
    assert_eq!(locked(Mapped::open(&path, process())), Some(0), "readers leave no name");
    drop(reader);
    assert_eq!(locked(Mapped::open(&path, process())), Some(0));
    drop(another);
    drop(Mapped::open(&path, process()).unwrap());
}

#[test]
fn a_mapping_keeps_the_lock() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let storage = make(&path, process(), 8);
    let region = data(&storage);
    drop(storage);
    assert!(matches!(Mapped::open(&path, process()), Err(Error::Locked { .. })));
    let other = Mapped::anonymous(MappedOptions::default()).unwrap();
    assert_eq!(cell(&region, 0).load(&other, Relaxed), 77, "the mapping outlives the medium");
    assert!(other.grow(&region, 1 << 20).is_err(), "another medium's region");
    drop(region);
    drop(Mapped::open(&path, process()).unwrap());
}

#[test]
fn the_name_of_a_dead_writer_is_not_given() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    drop(make(&path, process(), 8));
    for text in ["999999999", "-5", "0", "not a number", "99999999999999999999999999"] {
        fs::write(path.join("lock"), text).unwrap();
        let reader = Mapped::open_read_only(&path, process()).unwrap();
        assert!(
            matches!(Mapped::open(&path, process()), Err(Error::Locked { pid: 0, .. })),
            "{text}"
        );
        drop(reader);
    }
}

#[test]
fn a_missing_lock_file_is_restored_by_a_writer_only() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    drop(make(&path, process(), 8));
    fs::remove_file(path.join("lock")).unwrap();
    assert!(matches!(Mapped::open_read_only(&path, process()), Err(Error::Corrupt { .. })));
    assert!(!path.join("lock").exists());
    drop(Mapped::open(&path, process()).unwrap());
    assert!(path.join("lock").exists());
}

#[test]
fn readers_change_nothing() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    drop(make(&path, process(), 5000));
    let before: Vec<_> =
        names(&path).iter().map(|name| fs::read(path.join(name)).unwrap()).collect();
    let storage = Mapped::open_read_only(&path, process()).unwrap();
    assert!(matches!(storage.check_writable(), Err(Error::ReadOnly)));
    let region = data(&storage);
    let len = region.len();
    cell(&region, 8).store(&storage, 5, Relaxed);
    storage.persist(cell(&region, 8));
    storage.grow(&region, len + 10_000).unwrap();
    for offset in [len, len + 9_992] {
        assert_eq!(cell(&region, offset).load(&storage, Relaxed), 0);
        cell(&region, offset).store(&storage, 6, Relaxed);
    }
    let fresh = storage.region("fresh.ice", 1 << 20).unwrap();
    assert!(fresh.is_empty());
    storage.grow(&fresh, 100_000).unwrap();
    cell(&fresh, 99_992).store(&storage, 7, Relaxed);
    storage.punch(&region, 0, 4096).unwrap();
    assert_eq!(cell(&region, 8).load(&storage, Relaxed), 0);
    let (table, _) = superblock::read(&storage).unwrap();
    superblock::begin_session(&storage, &table).unwrap();
    superblock::end_session(&storage, &table, 3).unwrap();
    assert!(superblock::begin_session(&storage, &table).unwrap().was_clean);
    storage.close();
    drop((storage, region, fresh, table));
    let after: Vec<_> =
        names(&path).iter().map(|name| fs::read(path.join(name)).unwrap()).collect();
    assert_eq!(before, after);
}

#[test]
fn permissions_are_respected() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to become another user in one thread");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let scratch = scratch();
    let path = scratch.path().join("t");
    drop(make(&path, process(), 8));
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for directory in [scratch.path(), &path] {
        mode(directory, 0o755);
    }
    let denied = |result: icefield::Result<Mapped>| matches!(result, Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Changes the user of this thread only, which ends soon.
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65534)).unwrap();
            assert!(denied(Mapped::open(&path, process())));
            assert!(denied(Mapped::create(scratch.path().join("new"), process())));
            assert_eq!(first_word(&path), 77);
        });
    });
    mode(&path, 0o700);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65534)).unwrap();
            assert!(denied(Mapped::open_read_only(&path, process())));
            assert!(denied(Mapped::open(&path, process())));
        });
    });
    drop(Mapped::open(&path, process()).unwrap());
}
