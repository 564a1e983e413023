//! Allocations of a program that measures peers are on huge pages, where the system has them.

#![cfg(feature = "rust")]
#![allow(clippy::unwrap_used, reason = "a test program: to panic is to fail")]

#[global_allocator]
static ALLOCATOR: icefield_peers::HugePages = icefield_peers::HugePages;

/// Returns the memory of this process on huge pages, in KiB.
fn huge_kib() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn system_has_huge_pages() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    mode.is_ok_and(|mode| !mode.contains("[never]"))
}

#[test]
fn big_and_small_allocations_are_on_huge_pages() {
    let before = huge_kib();
    let big: Vec<u64> = Vec::with_capacity(8 << 20);
    let with_big = huge_kib();
    let small: Vec<Box<[u64; 3]>> = (0..2_000_000).map(|i| Box::new([i; 3])).collect();
    let with_small = huge_kib();
    println!("{before} KiB, {with_big} KiB, {with_small} KiB");
    if system_has_huge_pages() {
        assert!(with_big >= before + (60 << 10), "{before} KiB, then {with_big} KiB");
        // 48 MiB of boxes, 16 MiB of pointers to them.
        assert!(with_small >= with_big + (50 << 10), "{with_big} KiB, then {with_small} KiB");
    }
    assert!(small.iter().enumerate().all(|(i, one)| one[2] == i as u64));
    drop(big);
    // Growing and shrinking moves data between the two kinds of allocations.
    let mut growing: Vec<u64> = Vec::new();
    growing.extend(0..3_000_000);
    growing.truncate(10);
    growing.shrink_to_fit();
    assert_eq!(growing, (0..10).collect::<Vec<_>>());
}
