//! A table appears complete under its name, or not at all.

use std::os::unix::fs::MetadataExt;

use super::*;

#[test]
fn a_table_appears_when_published_and_stays() {
    let scratch = scratch();
    let path = scratch.path().join("t.ice");
    let storage = Mapped::create(&path, process()).unwrap();
    let table = superblock::create(&storage).unwrap();
    let region = data(&storage);
    storage.grow(&region, 10_000).unwrap();
    cell(&region, 8000).store(&storage, 78, Relaxed);
    superblock::seal(&storage, &table, &identity()).unwrap();
    assert!(!path.exists());
    assert_eq!(storage.path(), path);
    storage.publish_created().unwrap();
    storage.publish_created().unwrap();
    assert_eq!(names(scratch.path()), ["t.ice"]);
    // Regions created later are in the same directory.
    storage.region("later.ice", 4096).unwrap();
    assert_eq!(names(&path), [DATA, "later.ice", "lock", TABLE_REGION]);
    drop((storage, table, region));

    let storage = Mapped::open(&path, process()).unwrap();
    assert_eq!(superblock::read(&storage).unwrap().1, identity());
    let region = data(&storage);
    assert!(region.len() >= 10_000);
    assert_eq!(cell(&region, 8000).load(&storage, Relaxed), 78);
}

#[test]
fn dropped_unpublished_it_leaves_nothing() {
    let scratch = scratch();
    let storage = Mapped::create(scratch.path().join("t"), process()).unwrap();
    storage.grow(&superblock::create(&storage).unwrap(), 8192).unwrap();
    assert_eq!(names(scratch.path()), [format!(".t.creating-{}", std::process::id())]);
    drop(storage);
    assert!(names(scratch.path()).is_empty());
}

#[test]
fn never_replaces_anything() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let exists =
        |path: &Path| matches!(Mapped::create(path, process()), Err(Error::AlreadyExists { .. }));
    fs::write(&path, "precious").unwrap();
    assert!(exists(&path));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("notes"), "precious").unwrap();
    assert!(exists(&path));
    assert_eq!(names(&path), ["notes"]);
    fs::remove_dir_all(&path).unwrap();
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    assert!(exists(&path), "a dangling symbolic link is something");
    fs::remove_file(&path).unwrap();

    // Anything that appears at the path during the creation is detected at the end, even an empty directory.
    for make_rival in [
        |path: &Path| fs::write(path, "rival").unwrap(),
        |path: &Path| fs::create_dir(path).unwrap(),
    ] {
        let storage = Mapped::create(&path, process()).unwrap();
        make_rival(&path);
        assert!(matches!(storage.publish_created(), Err(Error::AlreadyExists { .. })));
        drop(storage);
        assert_eq!(names(scratch.path()), ["t"]);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
    }
}

#[test]
fn two_creators_of_one_path_do_not_meet_until_the_end() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let first = Mapped::create(&path, process()).unwrap();
    let second = Mapped::create(&path, process()).unwrap();
    superblock::create(&first).unwrap();
    superblock::create(&second).unwrap();
    assert_eq!(names(scratch.path()).len(), 2);
    second.publish_created().unwrap();
    assert!(matches!(first.publish_created(), Err(Error::AlreadyExists { .. })));
    drop(first);
    assert_eq!(names(scratch.path()), ["t"]);
}

#[test]
fn leftovers_of_the_dead_go_and_those_of_the_living_stay() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    for (name, files) in [
        (".t.creating-1", &[("lock", "1\n"), ("table.ice", "x")][..]),
        (".t.creating-2-17", &[("lock", "         2         \n")]),
        (".t.creating-3", &[("lock", "")]),
        (".t.creating-4", &[]),
        (".u.creating-1", &[]),
        // Directories that no creation can have left behind are kept.
        (".t.creating-5", &[("lock", "5\n"), ("notes", "precious")]),
        (".t.creating-6", &[("lock", "7\n"), ("table.ice", "x")]),
        (".t.creating-notes", &[("lock", ""), ("table.ice", "x")]),
    ] {
        fs::create_dir(scratch.path().join(name)).unwrap();
        for (file, content) in files {
            fs::write(scratch.path().join(name).join(file), content).unwrap();
        }
    }
    let kept =
        [".t.creating-5", ".t.creating-6", ".t.creating-notes", ".u.creating-1"].map(str::to_owned);
    let living = Mapped::create(&path, process()).unwrap();
    let mut with_living = kept.to_vec();
    with_living.push(format!(".t.creating-{}", std::process::id()));
    with_living.sort();
    assert_eq!(names(scratch.path()), with_living);
    drop(Mapped::create(&path, process()).unwrap());
    assert_eq!(names(scratch.path()), with_living);
    drop(living);
    assert_eq!(names(scratch.path()), kept);
}

#[test]
fn an_empty_directory_becomes_a_table() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    for existing in ["", "lost+found"] {
        fs::create_dir_all(path.join(existing)).unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        let empty = names(&path);
        // An abandoned creation leaves the directory as it was.
        let storage = Mapped::create(&path, process()).unwrap();
        superblock::create(&storage).unwrap();
        assert!(matches!(Mapped::open(&path, process()), Err(Error::NotFound { .. })));
        assert!(matches!(Mapped::create(&path, process()), Err(Error::Locked { .. })));
        drop(storage);
        assert_eq!(names(&path), empty);

        drop(make(&path, process(), 8));
        assert_eq!(first_word(&path), 77);
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "the same directory");
        assert!(matches!(Mapped::create(&path, process()), Err(Error::AlreadyExists { .. })));
        fs::remove_dir_all(&path).unwrap();
    }
}

/// A creator that uses an existing empty directory may be killed at any of its system calls. It leaves a complete
/// table, or a state that the next creation replaces.
#[test]
fn a_creator_in_place_may_die_at_any_call() {
    let scratch = fast_scratch();
    let (source, path) = (scratch.path().join("source"), scratch.path().join("t"));
    drop(make(&source, process(), 8));
    let anew = |options| drop(make(&path, options, 8));
    let copied = |options| {
        drop(Mapped::open_read_only(&source, options).unwrap().backup_to(&path));
    };
    die_at_every_call(&path, &anew);
    die_at_every_call(&path, &copied);
}

fn die_at_every_call(path: &Path, create: &dyn Fn(MappedOptions)) {
    let (mut dead, mut complete) = (0, 0);
    for nth in 1.. {
        let _ = fs::remove_dir_all(path);
        fs::create_dir(path).unwrap();
        let fault = FaultAt { nth, mode: FaultMode::Once, action: FaultAction::Kill };
        let plan = Arc::new(FaultPlan::new(fault));
        // SAFETY: the child makes a table and exits; it uses no lock that another thread of this test holds.
        let child = unsafe { libc::fork() };
        if child == 0 {
            create(MappedOptions { faults: Some(plan), ..process() });
            // SAFETY: ends the child without the exit handlers of the test harness.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child);
        if libc::WIFEXITED(status) {
            assert_eq!(libc::WEXITSTATUS(status), 0);
            break;
        }
        match Mapped::open(path, process()) {
            Ok(storage) => {
                complete += 1;
                assert_eq!(cell(&data(&storage), 0).load(&storage, Relaxed), 77);
            }
            Err(Error::NotFound { .. }) => {
                dead += 1;
                drop(make(path, process(), 8));
                assert_eq!(names(path), [DATA, "lock", TABLE_REGION]);
            }
            Err(error) => panic!("call {nth}: {error}"),
        }
    }
    assert!(dead > 10 && complete > 0, "{dead} {complete}");
}

#[test]
fn paths_of_all_kinds() {
    let scratch = scratch();
    let root = scratch.path();
    drop(make(&root.join("slash/"), process(), 8));
    assert_eq!(first_word(&root.join("slash")), 77);
    assert_eq!(first_word(&root.join("slash//")), 77);
    assert_eq!(first_word(&root.join("./slash/.")), 77);

    let no_utf8 = root.join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    drop(make(&no_utf8, process(), 8));
    assert_eq!(first_word(&no_utf8), 77);

    let longest = root.join("n".repeat(255));
    drop(make(&longest, process(), 8));
    assert_eq!(first_word(&longest), 77);
    assert!(matches!(Mapped::create(root.join("n".repeat(256)), process()), Err(Error::Io { .. })));

    for nameless in ["", "/", "..", "."] {
        assert!(
            matches!(Mapped::create(nameless, process()), Err(Error::InvalidOption { .. })),
            "{nameless:?}"
        );
    }
    assert!(
        matches!(Mapped::create(root.join("no/such/parent"), process()), Err(Error::Io { path, .. }) if path == root.join("no/such"))
    );
    fs::write(root.join("file"), "").unwrap();
    assert!(matches!(Mapped::create(root.join("file/t"), process()), Err(Error::Io { .. })));
    assert!(matches!(Mapped::create("nul\0nul", process()), Err(Error::Io { .. })));

    std::os::unix::fs::symlink("slash", root.join("link")).unwrap();
    assert_eq!(first_word(&root.join("link")), 77);
}

#[test]
fn a_path_without_a_parent_is_in_the_working_directory() {
    let name = format!("icefield-medium-test-{}", std::process::id());
    let storage = make(Path::new(&name), process(), 8);
    assert!(fs::metadata(&name).unwrap().is_dir());
    drop(storage);
    fs::remove_dir_all(&name).unwrap();
}
