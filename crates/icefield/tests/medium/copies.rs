//! Tables that are copied during concurrent writes, and tables whose directories are moved while they are open.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use icefield::{DashEh, DashLh, Durable, Iceberg, Plush};

/// Number of writer threads.
const WRITERS: u64 = 2;
/// Number of copies of each table.
const COPIES: u64 = 4;

/// Returns a key of a writer. The keys ascend with `number`, and are far from those of other writers.
fn key(writer: u64, number: u64) -> u64 {
    writer << 32 | number
}

/// Each copy of a table that two threads fill must be clean and hold a prefix of each thread's puts: at least those
/// acknowledged before the call, at most those started before its return.
fn copies_beside_writers<T: Durable<Key = u64, Value = [u8]>>(
    create: impl Fn(&Path) -> T,
    open: impl Fn(&Path) -> T,
) {
    let scratch = fast_scratch();
    let (path, copy) = (scratch.path().join("t"), scratch.path().join("copy"));
    let table = create(&path);
    let value = |number: u64| vec![number as u8; 10 + number as usize % 90];
    let done: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (table, done, ended) = (&table, &done[writer as usize], &ended);
            scope.spawn(move || {
                for number in 0.. {
                    table.put(key(writer, number), &value(number)).unwrap();
                    done.store(number + 1, Ordering::Release);
                    // Sometimes the last put is that of an older key.
                    if number.is_multiple_of(16) {
                        table.put(key(writer, number / 2), &value(number / 2)).unwrap();
                    }
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for round in 0..COPIES {
            // The copies are taken at several table sizes.
            while done.iter().any(|done| done.load(Ordering::Acquire) < round * 1500) {
                std::thread::yield_now();
            }
            let counts =
                || done.iter().map(|done| done.load(Ordering::Acquire)).collect::<Vec<_>>();
            let before = counts();
            table.backup(&copy).unwrap();
            let after = counts();
            let copied = open(&copy);
            let mut all = 0;
            for writer in 0..WRITERS {
                let of = |number| copied.get(key(writer, number)).unwrap();
                let count =
                    (0..).take_while(|&number| of(number) == Some(value(number))).count() as u64;
                let range = before[writer as usize]..=after[writer as usize] + 1;
                assert!(range.contains(&count), "{count} of {range:?}");
                all += count;
            }
            assert_eq!(copied.len().unwrap(), all);
            let report = copied.check().unwrap();
            assert!(report.is_clean(), "{:#?}", report.faults);
            drop(copied);
            fs::remove_dir_all(&copy).unwrap();
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert!(table.check().unwrap().is_clean());
}

/// Growth, new files, copies and the lock stay with the directory that was opened, even if it is moved.
fn a_table_stays_with_its_directory<T: Durable<Key = u64, Value = [u8]>>(
    create: impl Fn(&Path) -> T,
    open: impl Fn(&Path) -> T,
) {
    let scratch = fast_scratch();
    let at = |name: &str| scratch.path().join(name);
    let table = create(&at("a"));
    table.put(0, b"zero").unwrap();
    fs::rename(at("a"), at("moved")).unwrap();
    drop(create(&at("a")));
    (1..5000).try_for_each(|key| table.put(key, &[key as u8; 50])).unwrap();
    table.reserve(20_000).unwrap();
    table.shrink_to_fit().unwrap();
    table.sync().unwrap();
    table.backup(&at("copy")).unwrap();
    drop(table);
    for moved in ["moved", "copy"] {
        let table = open(&at(moved));
        assert_eq!(table.len().unwrap(), 5000, "{moved}");
        assert!(table.check().unwrap().is_clean(), "{moved}");
    }
    assert_eq!(open(&at("a")).len().unwrap(), 0);
}

macro_rules! each_table {
    ($test:ident: $($table:ident),*) => {$(
        $test(
            |path| $table::<u64, [u8]>::create(path).unwrap(),
            |path| $table::<u64, [u8]>::open(path).unwrap(),
        );
    )*};
}

#[test]
fn copies_beside_writers_open_and_are_clean() {
    each_table!(copies_beside_writers: DashEh, DashLh, Iceberg, Plush);
}

#[test]
fn tables_stay_with_their_directories() {
    each_table!(a_table_stays_with_its_directory: DashEh, DashLh, Iceberg, Plush);
}
