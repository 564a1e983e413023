//! The effect of each durability, failed syncs, forks.

use super::*;
use std::sync::atomic::AtomicU64;

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: i32) -> !;
}

/// Runs `child` in a forked process. Returns its exit status, or 0 if a signal ends it, as the alarm does after a
/// minute.
pub fn in_fork(child: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child calls only code that needs none of the locks that other threads may have held, and never
    // returns.
    unsafe {
        let pid = fork();
        assert!(pid >= 0);
        if pid == 0 {
            alarm(60);
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(99);
            _exit(i32::from(code));
        }
        let mut status = 0;
        assert_eq!(waitpid(pid, &raw mut status, 0), pid);
        status >> 8
    }
}

#[test]
fn auto_takes_what_is_there_and_says_so() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let storage = make(&path, MappedOptions::default(), 8);
    assert!(matches!(storage.durability(), Durability::Process | Durability::Pmem));
    let granted = storage.durability() == Durability::Pmem;
    drop(storage);
    match Mapped::open(&path, with(Durability::Pmem)) {
        Ok(storage) => assert!(granted && storage.durability() == Durability::Pmem),
        Err(error) => assert!(!granted && matches!(error, Error::Unsupported(_)), "{error}"),
    }
    for durability in [Durability::Process, Durability::PmemForced, Durability::Disk] {
        assert_eq!(Mapped::open(&path, with(durability)).unwrap().durability(), durability);
        assert_eq!(
            Mapped::open_read_only(&path, with(durability)).unwrap().durability(),
            durability
        );
    }
    assert!(matches!(
        Mapped::open(&path, with(Durability::Memory)),
        Err(Error::InvalidOption { .. })
    ));
    let refused = Mapped::create(scratch.path().join("u"), with(Durability::Memory));
    assert!(matches!(refused, Err(Error::InvalidOption { .. })));
    assert_eq!(names(scratch.path()), ["t"]);
    assert!(matches!(Mapped::anonymous(with(Durability::Disk)), Err(Error::InvalidOption { .. })));
    assert_eq!(
        Mapped::anonymous(with(Durability::PmemForced)).unwrap().durability(),
        Durability::PmemForced
    );
    assert_eq!(
        Mapped::anonymous(MappedOptions::default()).unwrap().durability(),
        Durability::Memory
    );
}

#[test]
fn write_backs_keep_what_was_stored() {
    for skip_flush in [false, true] {
        let storage =
            Mapped::anonymous(MappedOptions { skip_flush, ..with(Durability::PmemForced) })
                .unwrap();
        let region = data(&storage);
        storage.grow(&region, 1 << 16).unwrap();
        for offset in (0..1 << 16).step_by(8) {
            cell(&region, offset).store(&storage, offset, Relaxed);
        }
        storage.flush(region.base().as_ptr(), 1 << 16);
        storage.fence();
        assert!(
            (0..1 << 16)
                .step_by(8)
                .all(|offset| cell(&region, offset).load(&storage, Relaxed) == offset)
        );
    }
}

/// Opens a published table on disk. Its system calls are counted from here on and fail according to `fault`.
fn on_disk(path: &Path, fault: Option<FaultAt>) -> (Mapped, Region, Arc<FaultPlan>) {
    drop(make(path, process(), 1 << 20));
    let plan = Arc::new(fault.map_or_else(FaultPlan::counting, FaultPlan::new));
    let storage = Mapped::open(
        path,
        MappedOptions { faults: Some(Arc::clone(&plan)), ..with(Durability::Disk) },
    )
    .unwrap();
    let region = data(&storage);
    (storage, region, plan)
}

#[test]
fn a_fence_on_disk_syncs_what_was_flushed() {
    let scratch = scratch();
    let (storage, region, plan) = on_disk(&scratch.path().join("t"), None);
    let other = storage.region("other.ice", 1 << 20).unwrap();
    storage.grow(&other, 4096).unwrap();
    let before = plan.calls();
    storage.fence();
    assert_eq!(plan.calls(), before, "nothing to sync");
    storage.flush_object(cell(&region, 0));
    storage.flush_object(cell(&region, 1 << 19));
    storage.flush_object(cell(&other, 8));
    assert_eq!(plan.calls(), before);
    storage.fence();
    assert_eq!(plan.calls(), before + 2, "one call for each region");
    storage.fence();
    assert_eq!(plan.calls(), before + 2);
    let outside = 5_u64;
    storage.persist(&outside);
    assert_eq!(plan.calls(), before + 2, "memory that is no region's");
    storage.flush_object(cell(&region, 0));
    std::thread::scope(|scope| {
        scope.spawn(|| storage.fence());
    });
    assert_eq!(plan.calls(), before + 2, "another thread's fence does not cover it");
    storage.close();
    assert_eq!(plan.calls(), before + 3, "closing covers everybody");
    storage.check_writable().unwrap();
    assert!(plan.sites().contains(&"sync_mapping"));
}

#[test]
fn a_fence_that_is_ended_covers_those_begun_before() {
    let scratch = scratch();
    let (storage, region, plan) = on_disk(&scratch.path().join("t"), None);
    let before = plan.calls();
    storage.flush_object(cell(&region, 0));
    let first = storage.begin_fence().unwrap();
    storage.flush_object(cell(&region, 8));
    let second = storage.begin_fence().unwrap();
    assert_eq!(plan.calls(), before, "a fence that has only begun");
    storage.end_fence(second).unwrap();
    assert_eq!(plan.calls(), before + 1);
    storage.end_fence(first).unwrap();
    assert_eq!(plan.calls(), before + 1);
    storage.flush_object(cell(&region, 16));
    let third = storage.begin_fence().unwrap();
    std::thread::scope(|scope| {
        // This thread has flushed nothing itself.
        scope.spawn(|| storage.end_fence(storage.begin_fence().unwrap()).unwrap());
    });
    assert_eq!(plan.calls(), before + 2);
    storage.end_fence(third).unwrap();
    storage.end_fence(storage.begin_fence().unwrap()).unwrap();
    assert_eq!(plan.calls(), before + 2, "nothing to sync");
}

/// Once the blocks of a table take more than three quarters of the memory, their pages are read alone, without
/// neighbours.
#[test]
fn a_table_larger_than_memory_is_read_page_by_page() {
    const BYTES: u64 = 2 << 20;
    let scratch = scratch();
    let path = scratch.path().join("t");
    let counting = Arc::new(FaultPlan::counting());
    let options = |memory| MappedOptions {
        memory: Some(memory),
        faults: Some(Arc::clone(&counting)),
        ..with(Durability::Disk)
    };
    let storage = make(&path, options(1 << 20), 4 << 20);
    let blocks = storage.region_with_holes("blocks.ice", 1 << 30).unwrap();
    let request = |storage: &Mapped, blocks: &Region, at: u64| {
        storage.read_soon(blocks.base().as_ptr().wrapping_add(at as usize), 8);
    };
    storage.grow(&blocks, 1 << 16).unwrap();
    storage.plan_reads();
    request(&storage, &blocks, 4096);
    assert!(!counting.sites().contains(&"read_pages"), "they fit");
    storage.grow(&blocks, BYTES).unwrap();
    // SAFETY: no other thread uses the range.
    unsafe { storage.write_bytes(&blocks, 0, &vec![1; BYTES as usize]) };
    storage.flush(blocks.base().as_ptr(), BYTES as usize);
    storage.fence();
    request(&storage, &blocks, 4096);
    assert!(counting.sites().contains(&"read_pages"));
    storage.close();
    drop((blocks, storage));

    let file = fs::File::open(path.join("blocks.ice")).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let reader = Mapped::open_read_only(&path, options(1 << 20)).unwrap();
    let blocks = reader.region_with_holes("blocks.ice", 1 << 30).unwrap();
    reader.plan_reads();
    for at in [5 * 4096, BYTES / 2, BYTES - 8] {
        request(&reader, &blocks, at);
        assert_eq!(blocks.at::<Cell64>(at).unwrap().load(&reader, Relaxed), 0x0101_0101_0101_0101);
    }
    let mut pages = vec![0; BYTES as usize / 4096];
    // SAFETY: the range is mapped, and there is a byte for each of its pages.
    let answer =
        unsafe { libc::mincore(blocks.base().as_ptr().cast(), BYTES as usize, pages.as_mut_ptr()) };
    assert_eq!(answer, 0);
    let present = pages.iter().filter(|&&page| page & 1 == 1).count();
    // File systems that keep their pages in memory have them all.
    assert!(present == 3 || present == pages.len(), "{present} of {} pages", pages.len());
}

#[test]
fn fences_that_meet_share_a_sync() {
    const THREADS: u64 = 4;
    const FENCES: u64 = 25;
    let scratch = scratch();
    let (storage, region, plan) = on_disk(&scratch.path().join("t"), None);
    let before = plan.calls();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (storage, region) = (&storage, &region);
            scope.spawn(move || {
                for fence in 0..FENCES {
                    let cell = cell(region, (thread * FENCES + fence) * 4096);
                    cell.store(storage, 1, Relaxed);
                    storage.persist(cell);
                    storage.check_writable().unwrap();
                }
            });
        }
    });
    let syncs = plan.calls() - before;
    assert!(
        (FENCES..=THREADS * FENCES).contains(&syncs),
        "{syncs} syncs for {} fences",
        THREADS * FENCES
    );
}

#[test]
fn a_failed_sync_poisons_for_good() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let (storage, region, plan) = on_disk(&path, None);
    let nth = plan.calls() + 1;
    drop((storage, region));
    let fault = FaultAt { nth, mode: FaultMode::Once, action: FaultAction::Fail(Errno::IO) };
    let (storage, region, plan) = on_disk_again(&path, fault);
    cell(&region, 0).store(&storage, 5, Relaxed);
    storage.persist(cell(&region, 0));
    assert_eq!(plan.fired(), 1);
    assert!(matches!(storage.check_writable(), Err(Error::Poisoned)));
    let calls = plan.calls();
    storage.persist(cell(&region, 0));
    assert_eq!(plan.calls(), calls, "never tried again: the kernel may have dropped the pages");
    assert!(matches!(storage.check_writable(), Err(Error::Poisoned)));
    assert_eq!(cell(&region, 0).load(&storage, Relaxed), 5, "reading goes on");
    let (table, _) = superblock::read(&storage).unwrap();
    assert!(matches!(superblock::begin_session(&storage, &table), Err(Error::Poisoned)));
    assert!(matches!(superblock::end_session(&storage, &table, 1), Err(Error::Poisoned)));
    storage.close();
    drop((storage, region, table));
    Mapped::open(&path, with(Durability::Disk)).unwrap().check_writable().unwrap();
}

fn on_disk_again(path: &Path, fault: FaultAt) -> (Mapped, Region, Arc<FaultPlan>) {
    let plan = Arc::new(FaultPlan::new(fault));
    let storage = Mapped::open(
        path,
        MappedOptions { faults: Some(Arc::clone(&plan)), ..with(Durability::Disk) },
    )
    .unwrap();
    let region = data(&storage);
    (storage, region, plan)
}

/// Whatever the error is. After it, no file changes.
#[test]
fn a_growth_whose_sync_fails_poisons_and_is_not_tried_with_less() {
    const MORE: u64 = (3 << 20) + 1;
    let scratch = scratch();
    let path = |nth: u64| scratch.path().join(nth.to_string());
    let (storage, region, plan) = on_disk(&path(0), None);
    let before = plan.calls();
    storage.grow(&region, MORE).unwrap();
    let calls = before + 1..=plan.calls();
    let mut poisoned = 0;
    for nth in calls {
        drop(make(&path(nth), process(), 1 << 20));
        let fault = FaultAt { nth, mode: FaultMode::Once, action: FaultAction::Fail(Errno::NOSPC) };
        let (storage, region, plan) = on_disk_again(&path(nth), fault);
        let len = region.len();
        let grown = storage.grow(&region, MORE);
        assert_eq!(plan.fired(), 1);
        if storage.check_writable().is_err() {
            poisoned += 1;
            assert!(matches!(grown, Err(Error::NoSpace { .. })), "call {nth}: {grown:?}");
            let calls = plan.calls();
            assert!(matches!(storage.grow(&region, MORE), Err(Error::Poisoned)));
            assert!(matches!(storage.grow_exactly(&region, MORE), Err(Error::Poisoned)));
            assert_eq!((plan.calls(), region.len()), (calls, len));
        }
    }
    assert_eq!(poisoned, 1);
}

#[test]
fn every_thread_of_a_failed_sync_learns_of_it() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let (storage, region, plan) = on_disk(&path, None);
    let nth = plan.calls() + 10;
    drop((storage, region));
    let fault = FaultAt { nth, mode: FaultMode::Once, action: FaultAction::Fail(Errno::IO) };
    let (storage, region, _plan) = on_disk_again(&path, fault);
    let told = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (storage, region, told) = (&storage, &region, &told);
            scope.spawn(move || {
                for fence in 0..1000 {
                    storage.persist(cell(region, (thread * 60 + fence % 60) * 4096));
                    if storage.check_writable().is_err() {
                        told.fetch_add(1, Relaxed);
                        return;
                    }
                }
            });
        }
    });
    assert_eq!(told.load(Relaxed), 3);
}

#[test]
fn a_forked_child_may_read_and_not_write() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    for storage in [
        make(&path, process(), 4096),
        make(&scratch.path().join("d"), with(Durability::Disk), 4096),
        Mapped::anonymous(MappedOptions::default()).unwrap(),
    ] {
        let region = data(&storage);
        storage.grow(&region, 4096).unwrap();
        cell(&region, 0).store(&storage, 77, Relaxed);
        let status = in_fork(|| match storage.check_writable() {
            Err(Error::Forked) if cell(&region, 0).load(&storage, Relaxed) == 77 => 7,
            Err(_) => 1,
            Ok(()) => 2,
        });
        assert_eq!(status, 7);
        storage.check_writable().unwrap();
    }
}

#[test]
fn a_forked_child_notices_also_where_the_kernel_does_not_help() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let counting = Arc::new(FaultPlan::counting());
    let options =
        |plan: &Arc<FaultPlan>| MappedOptions { faults: Some(Arc::clone(plan)), ..process() };
    drop(make(&path, process(), 4096));
    drop(Mapped::open(&path, options(&counting)).unwrap());
    let mut fallbacks = 0;
    for nth in 1..=counting.calls() {
        let plan = Arc::new(FaultPlan::new(FaultAt {
            nth,
            mode: FaultMode::Once,
            action: FaultAction::Fail(Errno::INVAL),
        }));
        let Ok(storage) = Mapped::open(&path, options(&plan)) else { continue };
        fallbacks += 1;
        storage.check_writable().unwrap();
        assert_eq!(
            in_fork(|| if matches!(storage.check_writable(), Err(Error::Forked)) { 7 } else { 1 }),
            7
        );
    }
    assert!(fallbacks > 0);
}

#[test]
fn a_forked_child_that_drops_the_table_does_not_disturb_the_parent() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let unpublished = scratch.path().join("u");
    let storage = make(&path, process(), 4096);
    let creating = Mapped::create(&unpublished, process()).unwrap();
    superblock::create(&creating).unwrap();
    // SAFETY: bitwise copies, dropped only in the child, which has its own memory.
    let (copy, creating_copy) =
        unsafe { (std::ptr::read(&raw const storage), std::ptr::read(&raw const creating)) };
    let (copy, creating_copy) =
        (std::mem::ManuallyDrop::new(copy), std::mem::ManuallyDrop::new(creating_copy));
    let status = in_fork(|| {
        drop(std::mem::ManuallyDrop::into_inner(copy));
        drop(std::mem::ManuallyDrop::into_inner(creating_copy));
        7
    });
    assert_eq!(status, 7);
    assert!(
        matches!(Mapped::open(&path, process()), Err(Error::Locked { pid, .. }) if pid == std::process::id())
    );
    creating.publish_created().unwrap();
    assert!(unpublished.join(TABLE_REGION).exists());
    let region = data(&storage);
    cell(&region, 0).store(&storage, 78, Relaxed);
    drop((storage, region));
    assert_eq!(first_word(&path), 78);
}

#[test]
fn a_child_that_lives_on_does_not_keep_the_lock() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let storage = make(&path, process(), 4096);
    let mut pipe = std::io::pipe().unwrap();
    // SAFETY: the child only waits and exits.
    let pid = unsafe { fork() };
    assert!(pid >= 0);
    if pid == 0 {
        drop(pipe.1);
        let _ = std::io::Read::read(&mut pipe.0, &mut [0]);
        // SAFETY: ends the child.
        unsafe { _exit(0) };
    }
    drop(storage);
    drop(Mapped::open(&path, process()).unwrap());
    drop(pipe);
    // SAFETY: a child of this process.
    unsafe { waitpid(pid, std::ptr::null_mut(), 0) };
}
