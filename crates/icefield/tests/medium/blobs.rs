//! The space of keys and values stored by reference: in long use at constant size, and after most have been removed.

use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use icefield::{DashEh, DashLh, Durability, Iceberg};

type Check = Result<(), Box<dyn Error>>;

/// Returns the bytes that a table's files occupy on the file system.
fn allocated(path: &Path) -> Result<u64, std::io::Error> {
    let mut bytes = 0;
    for file in std::fs::read_dir(path)? {
        bytes += file?.metadata()?.blocks() * 512;
    }
    Ok(bytes)
}

/// Returns a key that contains its number, from which its value follows.
fn key(number: u64) -> String {
    format!("key {number} {:.*}", (number % 30) as usize, "of some length, which differs")
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 9 + (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % 240]
}

fn live_bytes(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.map(|number| (key(number).len() + value(number).len() + 16) as u64).sum()
}

/// Small chunks, so that one partly filled chunk for each of the 40 size classes takes little space.
const CHUNK_BYTES: u32 = 4 << 10;
/// The size of a table with one record (64 segments in linear hashing), plus the size of these chunks.
const CONSTANT: u64 = 3 << 20;

macro_rules! table {
    ($module:ident, $table:ident) => {
        mod $module {
            use super::*;

            fn make(path: &Path) -> icefield::Result<$table<str, [u8]>> {
                let options = $table::options().durability(Durability::Process);
                options.huge_pages(false).blob_chunk_bytes(CHUNK_BYTES).create(path)
            }

            /// Reads keys from `first` to `last` until `done`. Each key must have its value or be absent.
            fn read(table: &$table<str, [u8]>, first: u64, last: u64, done: &AtomicBool) {
                let mut number = first;
                while !done.load(Ordering::Relaxed) {
                    number = first + (number + 7) % (last - first);
                    let right = table.get_with(&key(number), |found| found == value(number));
                    assert!(right.expect("readable").unwrap_or(true), "key {number}");
                }
            }

            #[test]
            fn is_bounded_in_long_use() -> Check {
                const LIVE: u64 = 3_000;
                let directory = tempfile::tempdir()?;
                let path = directory.path().join("t.ice");
                let table = make(&path)?;
                let done = AtomicBool::new(false);
                let bound = |numbers| 4 * live_bytes(numbers) + CONSTANT;
                let turned = std::thread::scope(|scope| -> Check {
                    scope.spawn(|| read(&table, 0, 30 * LIVE, &done));
                    let turns = || -> Check {
                        let mut written = 0;
                        for _ in 0..20 {
                            for number in written..written + 30 * LIVE {
                                table.put(&key(number), &value(number))?;
                                if number >= LIVE {
                                    table.delete(&key(number - LIVE))?;
                                }
                            }
                            written += 30 * LIVE;
                            // A suspended reader prevents the reuse of space that it may read, so more rounds may be
                            // needed.
                            if allocated(&path)? <= bound(written - LIVE..written) {
                                return Ok(());
                            }
                        }
                        Err(format!("{} bytes at last", allocated(&path)?).into())
                    };
                    let turned = turns();
                    done.store(true, Ordering::Relaxed);
                    turned
                });
                turned?;
                assert!(table.check()?.is_clean());
                Ok(())
            }

            #[test]
            fn is_given_back() -> Check {
                const RECORDS: u64 = 40_000;
                let directory = tempfile::tempdir()?;
                let path = directory.path().join("t.ice");
                let mut table = make(&path)?;
                for reopened in [false, true] {
                    for number in 0..RECORDS {
                        table.put(&key(number), &value(number))?;
                    }
                    for number in (0..RECORDS).filter(|number| number % 15 != 0) {
                        table.delete(&key(number))?;
                    }
                    if reopened {
                        drop(table);
                        let options = $table::options().durability(Durability::Process);
                        table = options.huge_pages(false).open(&path)?;
                    }
                    let done = AtomicBool::new(false);
                    std::thread::scope(|scope| {
                        scope.spawn(|| read(&table, 0, RECORDS, &done));
                        // A reader that borrows a value all the time must not prevent the shrinking.
                        let shrunk = table.get_with(&key(0), |shown| {
                            let shrunk = table.shrink_to_fit();
                            assert_eq!(shown, value(0));
                            shrunk
                        });
                        done.store(true, Ordering::Relaxed);
                        shrunk
                    })?
                    .transpose()?;
                    let live = live_bytes((0..RECORDS).step_by(15));
                    let found = allocated(&path)?;
                    assert!(found <= 2 * live + CONSTANT, "{found} bytes for {live}");
                    for number in 0..RECORDS {
                        let expected = number.is_multiple_of(15).then(|| value(number));
                        assert_eq!(table.get(&key(number))?, expected, "key {number}");
                    }
                    assert!(table.check()?.is_clean());
                }
                Ok(())
            }

            #[test]
            fn is_known_after_reopening() -> Check {
                let directory = tempfile::tempdir()?;
                let path = directory.path().join("t.ice");
                let table = make(&path)?;
                for number in 0..1_000 {
                    table.put(&key(number), &value(number))?;
                }
                drop(table);
                let options = || $table::<str, [u8]>::options().durability(Durability::Process);
                for read_only in [true, false] {
                    let options = options();
                    let table = if read_only {
                        options.open_read_only(&path)?
                    } else {
                        options.open(&path)?
                    };
                    let stats = table.stats();
                    let in_use = stats.details.iter().find(|(name, _)| *name == "blob_bytes");
                    let (in_use, live) =
                        (in_use.map_or(0, |&(_, bytes)| bytes), live_bytes(0..1_000));
                    assert!((live..=2 * live + CONSTANT).contains(&in_use), "{in_use} of {live}");
                }
                Ok(())
            }

            #[test]
            fn is_verified_where_asked_for() -> Check {
                use std::os::unix::fs::FileExt;
                let directory = tempfile::tempdir()?;
                let path = directory.path().join("t.ice");
                let table = make(&path)?;
                table.put("the first key, damaged", b"a value that is whole")?;
                table.put("the second key, whole", b"A VALUE THAT WILL BE DAMAGED")?;
                table.put("the third key, whole", b"a value that is whole, too")?;
                drop(table);
                let file = path.join("blobs.ice");
                let bytes = std::fs::read(&file)?;
                for text in [&b"first key"[..], b"VALUE"] {
                    let at = bytes.windows(text.len()).position(|bytes| bytes == text);
                    let file = std::fs::File::options().write(true).open(&file)?;
                    file.write_all_at(b"?", at.expect("stored") as u64)?;
                }
                let options = || $table::<str, [u8]>::options().durability(Durability::Process);
                let table = options().open(&path)?;
                assert_eq!(table.get("the first key, damaged")?, None);
                let damaged = table.get("the second key, whole")?;
                assert_eq!(damaged.as_deref(), Some(&b"A ?ALUE THAT WILL BE DAMAGED"[..]));
                drop(table);
                let table = options().verify(true).open(&path)?;
                for key in ["the first key, damaged", "the second key, whole"] {
                    let corrupt = |answer| matches!(answer, Err(icefield::Error::Corrupt { .. }));
                    assert!(corrupt(table.get(key).map(|_| ())), "get of {key}");
                    assert!(corrupt(table.get_with(key, |_| ()).map(|_| ())), "get_with of {key}");
                }
                let whole = table.get_with("the third key, whole", <[u8]>::to_vec)?;
                assert_eq!(whole.as_deref(), Some(&b"a value that is whole, too"[..]));
                assert_eq!(table.get("some other key")?, None);
                Ok(())
            }
        }
    };
}

table!(dash_eh, DashEh);
table!(dash_lh, DashLh);
table!(iceberg, Iceberg);
