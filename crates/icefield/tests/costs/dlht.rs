//! The costs of DLHT: locked instructions, and lines as computed from its geometry.

use std::cell::Cell;

use icefield::base::hash::{Hash, HashKind};
use icefield::{DlhtTable, Interleaved, OnFailure, Op, Turns};

thread_local! {
    static LOCKED: Cell<u64> = const { Cell::new(0) };
}

/// Counts locked instructions, and does not make threads take turns.
struct Counting;

impl Turns for Counting {
    fn give_way() {}

    fn locked() {
        LOCKED.set(LOCKED.get() + 1);
    }
}

type CountingDlht = DlhtTable<u64, u64, Interleaved<Counting>>;

/// Returns the number of locked instructions in `operation`.
fn locked<T>(operation: impl FnOnce() -> T) -> u64 {
    let before = LOCKED.get();
    operation();
    LOCKED.get() - before
}

fn detail(table: &CountingDlht, name: &str) -> u64 {
    let details = table.stats().details;
    details.iter().find(|(found, _)| *found == name).map_or(0, |(_, count)| *count)
}

/// Creates a table of 2^`bits` bins.
fn dlht(bits: u32) -> CountingDlht {
    CountingDlht::options().geometry(bits, 1).hash_seed([1, 2]).build().expect("small")
}

/// The number of bins of a region. The first write to one costs one locked instruction more.
const REGION: u64 = 512;

/// Returns how many link buckets a bin has taken or returned, when the number of used ones has changed by `change`: the
/// double one counts as two.
fn kinds(change: u64) -> u64 {
    change % 2 + change / 2
}

/// Returns the number of locked instructions in `operation`, without those for a link bucket that it takes or returns.
fn without_links<T>(table: &CountingDlht, operation: impl FnOnce() -> T) -> u64 {
    let links = || detail(table, "link-buckets-used");
    let before = links();
    locked(operation) - 2 * kinds(before.abs_diff(links()))
}

#[test]
fn dlht_needs_the_locked_instructions_that_its_header_says() {
    let table = dlht(14);
    let keys = table.capacity() as u64 * 9 / 10;
    let mut touched = 0;
    for key in 0..keys {
        let insert = without_links(&table, || table.try_insert(key, key));
        assert!((3..=4).contains(&insert), "insert {key}: {insert}");
        touched += insert - 3;
    }
    assert_eq!(touched, (1 << 14) / REGION);
    assert_eq!(detail(&table, "bins"), 1 << 14, "no transfer came between");
    let (links, mut returned) = (detail(&table, "link-buckets-used"), 0);
    for key in 0..keys {
        let absent = key + keys;
        assert_eq!(locked(|| (table.get(key), table.contains(absent))), 0, "get {key}");
        assert_eq!(locked(|| table.try_insert(key, 1)), 0, "try_insert of present {key}");
        assert_eq!(locked(|| table.update(absent, 1)), 0, "update of absent {key}");
        assert_eq!(locked(|| table.remove(absent)), 0, "remove of absent {key}");
        assert_eq!(locked(|| table.update(key, 1)), 1, "update {key}");
        assert_eq!(locked(|| table.put(key, 2)), 1, "put over {key}");
        assert_eq!(without_links(&table, || table.remove(key)), 2, "remove {key}");
        returned += u64::from(detail(&table, "link-buckets-used") < links);
        let shadow = table.try_insert_shadow(key, 3).expect("absent");
        assert_eq!(locked(|| shadow.commit()), 2, "commit {key}");
        table.delete(key);
        let shadow = table.try_insert_shadow(key, 3).expect("absent");
        assert_eq!(without_links(&table, || shadow.abort()), 1, "abort {key}");
        assert_eq!(without_links(&table, || table.insert(key, 3)), 3, "insert {key} again");
        assert_eq!(detail(&table, "link-buckets-used"), links, "as before");
    }
    println!("{keys} inserts, {links} link buckets; {returned} removals returned one");
    assert!(links > 500 && returned > 500);
}

#[test]
fn dlht_counts_once_a_batch() {
    let table = dlht(14);
    let pairs: Vec<(u64, u64)> = (0..1000).map(|key| (key, key)).collect();
    let keys: Vec<u64> = (0..1000).collect();
    let mut found = vec![None; 1000];
    let puts = without_links(&table, || table.put_batch(&pairs));
    assert!((2001..=2001 + (1 << 14) / REGION).contains(&puts), "{puts}");
    assert_eq!(locked(|| table.get_batch(&keys, &mut found)), 0);
    assert_eq!(locked(|| table.update_batch(&pairs, &mut found)), 1000);
    assert_eq!(without_links(&table, || table.remove_batch(&keys, &mut found)), 1001);
    let mut ops: Vec<Op<'_, u64, u64>> = (0..500).map(|key| Op::put(key, key)).collect();
    ops.extend((0..500).flat_map(|key| [Op::get(key), Op::update(key, 1), Op::remove(key)]));
    let mixed = locked(|| table.execute(&mut ops, OnFailure::Continue));
    // The inserts and removals cancel out, so not even the length is updated.
    assert_eq!(mixed, 500 * (2 + 1 + 1));
}

/// Computes the lines that a get of each key reads, from the number of keys in each bin. The number of link buckets
/// confirms the computation.
#[test]
fn dlht_gets_touch_the_lines_that_its_header_says() {
    const BITS: u32 = 14;
    let table = dlht(BITS);
    let hash = Hash::new(HashKind::Strong, [1, 2]);
    let capacity = table.capacity();
    let mut records = vec![0_u64; 1 << BITS];
    let (mut hit_lines, mut key) = (0, 0);
    for share in [0.25, 0.5, 0.75, 0.95] {
        while (key as f64) < capacity as f64 * share {
            let bin = &mut records[(hash.word(key) >> (64 - BITS)) as usize];
            // Slots are used in order: three beside the header, then four in each link bucket.
            hit_lines += 1 + bin.saturating_sub(2).div_ceil(4);
            *bin += 1;
            table.put(key, key);
            key += 1;
        }
        assert_eq!(detail(&table, "bins"), 1 << BITS, "no transfer came between");
        let links = |records: u64| u64::from(records > 3) + 2 * u64::from(records > 7);
        let links: u64 = records.iter().map(|&records| links(records)).sum();
        assert_eq!(detail(&table, "link-buckets-used"), links);
        let miss_lines: u64 =
            records.iter().map(|records| 1 + records.saturating_sub(3).div_ceil(4)).sum();
        let (hit, miss) = (hit_lines as f64 / key as f64, miss_lines as f64 / records.len() as f64);
        println!("at {share} of the capacity: {hit:.3} lines a hit, {miss:.3} a miss");
        assert!((1.0..1.1).contains(&hit) && (1.0..1.13).contains(&miss), "{hit} {miss}");
    }
}
