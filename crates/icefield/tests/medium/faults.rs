//! Each system call fails once, fails permanently, or kills the process. The remaining files must open.

use super::*;

const ERRNOS: [Errno; 2] = [Errno::IO, Errno::NOSPC];

/// Operations on a table whose system calls fail. Returns at the first failure.
type Scenario = fn(&Path, MappedOptions) -> icefield::Result<()>;

/// Creates a table with two regions, publishes it and continues to use it.
fn create(path: &Path, options: MappedOptions) -> icefield::Result<()> {
    let storage = Mapped::create(path, options)?;
    let table = superblock::create(&storage)?;
    let region = storage.region(DATA, 1 << 30)?;
    storage.grow(&region, 100_000)?;
    cell(&region, 0).store(&storage, 77, Relaxed);
    storage.persist(cell(&region, 0));
    superblock::seal(&storage, &table, &identity())?;
    storage.publish_created()?;
    use_table(&storage)
}

/// Opens a table, uses the whole medium and closes it.
fn open(path: &Path, options: MappedOptions) -> icefield::Result<()> {
    let storage = Mapped::open(path, options)?;
    superblock::read(&storage)?;
    use_table(&storage)
}

fn use_table(storage: &Mapped) -> icefield::Result<()> {
    let (table, _) = superblock::read(storage)?;
    superblock::begin_session(storage, &table)?;
    let region = storage.region(DATA, 1 << 30)?;
    assert_eq!(cell(&region, 0).load(storage, Relaxed), 77);
    storage.region("new.ice", 1 << 20)?;
    let len = region.len();
    storage.grow(&region, len + 3_000_000)?;
    for offset in [len, len + 2_999_000 / 8 * 8] {
        cell(&region, offset).store(storage, offset, Relaxed);
        storage.persist(cell(&region, offset));
        storage.check_writable()?;
    }
    storage.punch(&region, 4096, 100_000)?;
    storage.reserve(&region, 4096, 100_000)?;
    superblock::end_session(storage, &table, 5)?;
    storage.close();
    storage.check_writable()
}

fn open_read_only(path: &Path, options: MappedOptions) -> icefield::Result<()> {
    let storage = Mapped::open_read_only(path, options)?;
    let (table, _) = superblock::read(&storage)?;
    superblock::begin_session(&storage, &table)?;
    let region = storage.region(DATA, 1 << 30)?;
    assert_eq!(cell(&region, 0).load(&storage, Relaxed), 77);
    storage.grow(&region, region.len() + 100_000)?;
    storage.punch(&region, 4096, 100_000)
}

fn back_up(path: &Path, options: MappedOptions) -> icefield::Result<()> {
    let storage = Mapped::open(path, options)?;
    let region = storage.region(DATA, 1 << 30)?;
    storage.backup_to(path.with_extension("copy"))?;
    assert_eq!(cell(&region, 0).load(&storage, Relaxed), 77);
    Ok(())
}

/// Opens a table whose unlocking may have failed. The lock ends when the last copy of its descriptor is closed, and a
/// child that another test is just starting holds a copy for a moment.
fn open_when_free(path: &Path) -> icefield::Result<Mapped> {
    for _ in 0..200 {
        match Mapped::open(path, process()) {
            Err(icefield::Error::Locked { .. }) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            opened => return opened,
        }
    }
    Mapped::open(path, process())
}

/// Checks the files that a scenario leaves when it is interrupted at any call.
fn check_what_is_left(directory: &Path, existed: bool, trace: &str) {
    let path = directory.join("t");
    for name in names(directory) {
        assert!(!name.starts_with('.'), "{trace}: {name} was left");
        let table = directory.join(&name);
        let storage = open_when_free(&table).unwrap_or_else(|error| panic!("{trace}: {error}"));
        let (table, found) =
            superblock::read(&storage).unwrap_or_else(|error| panic!("{trace}: {error}"));
        assert_eq!(found, identity(), "{trace}");
        superblock::begin_session(&storage, &table).unwrap();
        let region = data(&storage);
        assert_eq!(cell(&region, 0).load(&storage, Relaxed), 77, "{trace}");
        let len = region.len();
        storage.grow(&region, len + 100_000).unwrap();
        assert_eq!(cell(&region, len.next_multiple_of(8)).load(&storage, Relaxed), 0, "{trace}");
        superblock::end_session(&storage, &table, 5).unwrap();
    }
    assert!(!existed || path.exists(), "{trace}");
}

/// Returns the number and the names of the calls that `scenario` makes.
fn count(scenario: Scenario, durability: Durability, existed: bool) -> (u64, Vec<&'static str>) {
    let scratch = scratch_for(durability);
    let path = scratch.path().join("t");
    if existed {
        drop(make(&path, process(), 200_000));
    }
    let plan = Arc::new(FaultPlan::counting());
    scenario(&path, MappedOptions { faults: Some(Arc::clone(&plan)), ..with(durability) }).unwrap();
    assert_eq!(plan.fired(), 0);
    (plan.calls(), plan.sites())
}

fn fail_everywhere(scenario: Scenario, durability: Durability, existed: bool) -> Vec<&'static str> {
    let (calls, sites) = count(scenario, durability, existed);
    let mut errors = 0;
    for nth in 1..=calls {
        for mode in [FaultMode::Once, FaultMode::ForGood] {
            for errno in ERRNOS {
                let trace =
                    format!("{durability}: call {nth} of {calls} fails {mode:?} with {errno}");
                let scratch = scratch_for(durability);
                let path = scratch.path().join("t");
                if existed {
                    drop(make(&path, process(), 200_000));
                }
                let plan = Arc::new(FaultPlan::new(FaultAt {
                    nth,
                    mode,
                    action: FaultAction::Fail(errno),
                }));
                let options = MappedOptions { faults: Some(plan), ..with(durability) };
                errors += u64::from(scenario(&path, options).is_err());
                check_what_is_left(scratch.path(), existed, &trace);
            }
        }
    }
    assert!(errors >= calls, "{errors} errors from {calls} calls");
    sites
}

#[test]
fn creation() {
    let mut sites = fail_everywhere(create, Durability::Process, false);
    sites.extend(fail_everywhere(create, Durability::Disk, false));
    for site in [
        "open_directory",
        "status_at",
        "names",
        "make_directory",
        "open_directory_at",
        "create_file",
        "try_lock",
        "status",
        "write",
        "reserve_addresses",
        "map_file",
        "map_zeros",
        "wipe_on_fork",
        "allocate",
        "sync_file",
        "sync_directory",
        "rename",
        "sync_data",
        "sync_mapping",
        "punch_hole",
        "advise_huge_pages",
        "map_pages",
        "collapse",
        "unmap",
        "unlock",
    ] {
        assert!(sites.contains(&site), "{site} was never called");
    }
}

#[test]
fn opening_and_use() {
    let mut sites = fail_everywhere(open, Durability::Process, true);
    sites.extend(fail_everywhere(open, Durability::PmemForced, true));
    sites.extend(fail_everywhere(open, Durability::Disk, true));
    for site in ["open_directory", "open_file_to_read", "open_file", "restore_content"] {
        assert!(sites.contains(&site), "{site} was never called");
    }
}

#[test]
fn opening_read_only() {
    let sites = fail_everywhere(open_read_only, Durability::Process, true);
    assert!(sites.contains(&"open_file_to_read"));
}

#[test]
fn backup() {
    let sites = fail_everywhere(back_up, Durability::Process, true);
    for site in ["share_blocks", "next_data", "next_hole", "copy_range"] {
        assert!(
            sites.contains(&site) || sites.contains(&"share_blocks"),
            "{site} was never called"
        );
    }
}

#[test]
fn copying_by_hand_serves_where_the_kernel_does_not_copy() {
    let (calls, _) = count(back_up, Durability::Process, true);
    let mut by_hand = 0;
    for nth in 1..=calls {
        for errno in [Errno::XDEV, Errno::OPNOTSUPP] {
            let scratch = fast_scratch();
            let path = scratch.path().join("t");
            drop(make(&path, process(), 200_000));
            let fault = FaultAt { nth, mode: FaultMode::Once, action: FaultAction::Fail(errno) };
            let plan = Arc::new(FaultPlan::new(fault));
            if back_up(&path, MappedOptions { faults: Some(Arc::clone(&plan)), ..process() })
                .is_ok()
            {
                by_hand +=
                    u64::from(plan.sites().contains(&"read") || plan.sites().contains(&"write"));
                assert_eq!(first_word(&path.with_extension("copy")), 77);
            }
            check_what_is_left(scratch.path(), true, &format!("call {nth} answers {errno}"));
        }
    }
    assert!(by_hand > 0);
}

#[test]
fn death_at_every_call() {
    let mut deaths = 0;
    for (name, scenario, existed) in
        [("create", create as Scenario, false), ("open", open, true), ("backup", back_up, true)]
    {
        let (calls, _) = count(scenario, Durability::Disk, existed);
        for nth in 1..=calls {
            let scratch = scratch();
            let path = scratch.path().join("t");
            if existed {
                drop(make(&path, process(), 200_000));
            }
            let status = crate::in_child(
                "faults::child_that_dies",
                &[
                    ("ICEFIELD_SCENARIO", name.to_owned()),
                    ("ICEFIELD_PATH", path.to_str().unwrap().to_owned()),
                    ("ICEFIELD_NTH", nth.to_string()),
                ],
            );
            let signal = std::os::unix::process::ExitStatusExt::signal(&status);
            assert_eq!(signal, Some(9), "{name}, call {nth} of {calls}: {status:?}");
            deaths += 1;
            // The next creation under either name removes leftovers.
            for name in
                ["t", "copy"].map(|extension| path.with_extension(extension)).iter().chain([&path])
            {
                let _ = Mapped::create(name, process());
            }
            check_what_is_left(
                scratch.path(),
                existed,
                &format!("{name}: killed at call {nth} of {calls}"),
            );
        }
    }
    assert!(deaths > 50, "{deaths} deaths");
}

#[test]
#[ignore = "run by death_at_every_call"]
fn child_that_dies() {
    let variable = |name| std::env::var(name).unwrap();
    let scenario: Scenario = match variable("ICEFIELD_SCENARIO").as_str() {
        "create" => create,
        "open" => open,
        _ => back_up,
    };
    let nth = variable("ICEFIELD_NTH").parse().unwrap();
    let plan = FaultPlan::new(FaultAt { nth, mode: FaultMode::Once, action: FaultAction::Kill });
    let options = MappedOptions { faults: Some(Arc::new(plan)), ..with(Durability::Disk) };
    scenario(Path::new(&variable("ICEFIELD_PATH")), options).unwrap();
}

#[test]
fn a_failed_publication_can_be_tried_again() {
    let scratch = fast_scratch();
    let path = scratch.path().join("t");
    let (mut refused, mut published) = (0, 0);
    for nth in 1..200 {
        let plan = Arc::new(FaultPlan::new(FaultAt {
            nth,
            mode: FaultMode::Once,
            action: FaultAction::Fail(Errno::IO),
        }));
        let options = MappedOptions { faults: Some(plan), ..process() };
        let Ok(storage) = Mapped::create(&path, options) else { continue };
        let Ok(table) = superblock::create(&storage) else { continue };
        superblock::seal(&storage, &table, &identity()).unwrap();
        if storage.publish_created().is_err() {
            refused += 1;
            assert!(!path.exists(), "call {nth}");
            storage.publish_created().unwrap();
        }
        published += 1;
        drop((storage, table));
        drop(Mapped::open(&path, process()).unwrap());
        fs::remove_dir_all(&path).unwrap();
    }
    assert!(refused >= 3 && published > refused, "{refused} of {published}");
}
