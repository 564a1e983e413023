//! Extreme numbers in every option and argument, and calls that need more resources than there are.

use std::path::Path;
use std::sync::Arc;

use icefield::storage::{Errno, FaultPlan};
use icefield::{
    Cursor, DashEh, DashLh, Durability, Error, Expansion, Iceberg, Plush, Result, SyncMode,
};

const ENDS: [u64; 6] = [0, 1, 2, 1 << 38, 1 << 40, u64::MAX];

/// Accepts success and the errors listed here. There must be no panic, no hang and no other error.
fn judged<T>(what: &str, made: Result<T>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(
            Error::NoSpace { .. }
            | Error::NoMemory { .. }
            | Error::InvalidOption { .. }
            | Error::Unsupported(_),
        ) => None,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Uses a table of words that was created with extreme options.
macro_rules! used {
    ($what:expr, $made:expr) => {
        if let Some(table) = judged($what, $made) {
            for key in 0..2000_u64 {
                if judged($what, table.put(key, key)).is_some() {
                    assert_eq!(table.get(key).unwrap(), Some(key), "{}", $what);
                }
            }
            for n in [0, 1, usize::MAX] {
                table.scan(Cursor::START, n).unwrap();
            }
            drop(table);
        }
    };
}

macro_rules! common_options {
    ($table:ident) => {
        let scratch = tempfile::tempdir().unwrap();
        let mut number = 0;
        let mut path = || {
            number += 1;
            scratch.path().join(number.to_string())
        };
        let options = $table::<u64, u64>::options;
        for end in ENDS {
            let what = format!("{}: {end}", stringify!($table));
            used!(&what, options().capacity(end).in_memory());
            used!(&what, options().capacity(end).max_bytes(1 << 30).create(path()));
            used!(&what, options().max_bytes(end).in_memory());
            used!(&what, options().max_bytes(end).create(path()));
        }
        // A refused call takes no space.
        let table = options().create(path()).unwrap();
        (0..1000).for_each(|key| table.put(key, key).unwrap());
        let bytes = |path: &Path| {
            use std::os::unix::fs::MetadataExt;
            let files = std::fs::read_dir(path).unwrap();
            files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum::<u64>()
        };
        let before = (table.capacity(), bytes(table.path()));
        for additional in [1 << 50, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            let refused = table.reserve(additional);
            assert!(
                matches!(refused, Err(Error::NoSpace { .. } | Error::NoMemory { .. })),
                "{}: reserve({additional}): {refused:?}",
                stringify!($table)
            );
        }
        assert_eq!((table.capacity(), bytes(table.path())), before, "{}", stringify!($table));
        table.reserve(0).unwrap();
        table.reserve(1).unwrap();
        table.reserve(20_000).unwrap();
        assert!(table.capacity() >= 20_000);
        drop(table);
        let table = options().max_bytes(64 << 20).create(path()).unwrap();
        let before = (table.capacity(), bytes(table.path()));
        assert!(matches!(table.reserve(1 << 26), Err(Error::NoSpace { .. })));
        assert_eq!((table.capacity(), bytes(table.path())), before, "{}", stringify!($table));
        // Simulates a system without `fallocate`.
        for errno in [Errno::NOSYS, Errno::OPNOTSUPP] {
            let plan = || Arc::new(FaultPlan::refusing(&["allocate", "punch_hole"], errno));
            let path = path();
            let mut table = options().faults(plan()).create(&path).unwrap();
            for seed in 0..3 {
                (0..20_000).for_each(|key| table.put(key, key ^ seed).unwrap());
                drop(table);
                table = options().faults(plan()).open(&path).unwrap();
                for key in 0..20_000 {
                    assert_eq!(table.remove(key).unwrap(), Some(key ^ seed));
                }
                table.shrink_to_fit().unwrap();
                table.clear().unwrap();
            }
            assert!(table.check().unwrap().is_clean());
        }
        for additional in [1 << 41, u64::MAX] {
            let memory = options().in_memory().unwrap();
            let refused = memory.reserve(additional);
            assert!(
                matches!(refused, Err(Error::NoSpace { .. } | Error::NoMemory { .. })),
                "{} in memory: reserve({additional}): {refused:?}",
                stringify!($table)
            );
        }
    };
}

#[test]
fn dash_eh() {
    common_options!(DashEh);
}

#[test]
fn dash_lh() {
    common_options!(DashLh);
    let options = DashLh::<u64, u64>::options;
    for end in [0, 1, 2, 3, 64, 65, 4096, 4097, 1 << 31, u32::MAX] {
        let what = format!("{end}");
        used!(&what, options().first_array(end).in_memory());
        used!(&what, options().stride(end).in_memory());
        let percent = end.min(u8::MAX.into()).try_into().unwrap();
        used!(&what, options().expansion(Expansion::Load { percent }).in_memory());
    }
}

#[test]
fn iceberg() {
    common_options!(Iceberg);
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("t");
    let options = Iceberg::<u64, u64>::options;
    drop(options().create(&path).unwrap());
    for threads in [0, 1, 2, usize::MAX] {
        used!(&format!("{threads} threads"), options().threads(threads).open(&path));
    }
    for load in [0.0, -1.0, f64::MIN_POSITIVE, 1.0, 1.000_001, f64::NAN, f64::INFINITY] {
        used!(&format!("load {load}"), options().max_load(load).in_memory());
    }
}

#[test]
fn plush() {
    common_options!(Plush);
    let options = Plush::<u64, u64>::options;
    for end in ENDS {
        let what = format!("{end}");
        used!(&what, options().dram_limit(end).in_memory());
        used!(&what, options().dram_limit(end).capacity(100_000).in_memory());
        used!(&what, options().dram_filters(end as usize).in_memory());
    }
    for levels in [0, 1, usize::MAX] {
        used!(&format!("{levels} levels"), options().preallocate(levels).in_memory());
    }
    let table = options().in_memory().unwrap();
    (0..5000).for_each(|key| table.put_unlogged(key, key).unwrap());
    for threads in [0, 1, 2, usize::MAX] {
        table.checkpoint(threads).unwrap();
    }
    // In the build directory, because the usual temporary directory may be in memory.
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for milliseconds in [0, 1, u64::MAX] {
        let path = scratch.path().join(milliseconds.to_string());
        let options = options().durability(Durability::Disk).sync(SyncMode::Every(milliseconds));
        used!(&format!("every {milliseconds} ms"), options.clone().create(&path));
        drop(options.open(&path).unwrap());
    }
}

/// The blocks of replaced values become free soon enough, so a table that is nearly full can replace all of them again
/// and again.
#[test]
fn long_values_are_replaced_in_little_space() {
    macro_rules! replaced {
        ($table:ident) => {
            let options = $table::<u64, [u8]>::options().max_bytes(4 << 20).hash_seed([3, 5]);
            let table = options.in_memory().unwrap();
            let most = (0..).take_while(|&key| table.put(key, &[1; 4_096]).is_ok()).count() as u64;
            let keys = most / 10 * 9;
            (keys..most).for_each(|key| assert!(table.remove(key).unwrap().is_some()));
            for step in 0..10 * keys {
                let put = table.put(step * 7 % keys, &[step as u8; 4_096]);
                put.unwrap_or_else(|error| panic!("{}, {step}: {error}", stringify!($table)));
            }
            assert!(keys > 300 && table.len().unwrap() == keys, "{keys}");
            assert!(table.check().unwrap().is_clean());
        };
    }
    replaced!(DashEh);
    replaced!(DashLh);
    replaced!(Iceberg);
}
