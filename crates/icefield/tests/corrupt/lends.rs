//! A value that `get_with` lends must not change while it is borrowed, whatever a file contains and whatever is
//! written.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use icefield::{DashEh, DashLh, Durability, Iceberg};

type Check = Result<(), Box<dyn Error>>;

/// The first record's text, which occurs once in the file. If all letters were equal, an `a` in front of the text would
/// shift the first match.
const FIRST: &str = "baaaaaaaaaaaaaaa";
const SECOND: &str = "AAAAAAAAAAAAAAAA";
const OTHER: &str = "\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}";

/// The keys of the two records whose slots and blocks are damaged.
const KEYS: [u64; 2] = [0x1111_1111, 0x2222_2222];

/// A file of a closed table.
struct Damaged(PathBuf, Vec<u8>);

impl Damaged {
    fn file(table: &Path, name: &str) -> std::io::Result<Self> {
        let path = table.join(name);
        let bytes = std::fs::read(&path)?;
        Ok(Self(path, bytes))
    }

    fn find(&self, what: &[u8]) -> usize {
        self.1.windows(what.len()).position(|bytes| bytes == what).expect("it was stored")
    }

    fn write(&self, at: usize, bytes: &[u8]) -> std::io::Result<()> {
        File::options().write(true).open(&self.0)?.write_all_at(bytes, at as u64)
    }
}

/// A way to damage a table; `slots` is the file of the slots.
type Damage = fn(&Path, slots: &str) -> Check;

/// Sets a length that extends over many blocks.
fn long_length(table: &Path, _: &str) -> Check {
    let blobs = Damaged::file(table, "blobs.ice")?;
    Ok(blobs.write(blobs.find(FIRST.as_bytes()) - 16, &40_000_u32.to_le_bytes())?)
}

/// Makes the second key's slot refer to the block of the first key, or to a place near that block.
fn refer(table: &Path, slots: &str, change: impl FnOnce(u64) -> u64) -> Check {
    let slots = Damaged::file(table, slots)?;
    let [from, to] = KEYS.map(|key| slots.find(&key.to_le_bytes()) + 8);
    let word = slots.1[from..].first_chunk().map(|word| u64::from_le_bytes(*word));
    Ok(slots.write(to, &change(word.expect("a slot")).to_le_bytes())?)
}

/// Lets two slots refer to one block.
fn one_block_twice(table: &Path, slots: &str) -> Check {
    refer(table, slots, |word| word)
}

/// Makes a slot refer to the middle of a block, where the content looks like a block's header: 16 bytes of the content
/// are read as a length and an owner.
fn middle_of_a_block(table: &Path, slots: &str) -> Check {
    let blobs = Damaged::file(table, "blobs.ice")?;
    let content = blobs.find(FIRST.as_bytes());
    blobs.write(content, &4_000_u32.to_le_bytes())?;
    refer(table, slots, |word| word + 1)
}

/// Makes a slot refer to a block that was freed before the damage.
fn a_free_block(table: &Path, slots: &str) -> Check {
    refer(table, slots, |word| word + 4)
}

macro_rules! table {
    ($module:ident, $table:ident, $slots:literal) => {
        mod $module {
            use super::*;

            /// Borrows the damaged record while all free space is overwritten. The borrowed bytes must not change.
            fn stays(damage: Damage) -> Check {
                let directory = tempfile::tempdir()?;
                let path = directory.path().join("t.ice");
                let options = || $table::<u64, str>::options().durability(Durability::Process);
                let table = options().create(&path)?;
                for (key, value) in KEYS.into_iter().zip([FIRST, SECOND]) {
                    table.put(key, value)?;
                }
                for key in 0..6 {
                    table.put(key, "eeeeeeeeeeeeeeee")?;
                }
                for key in 0..6 {
                    table.delete(key)?;
                }
                drop(table);
                damage(&path, $slots)?;
                let table = options().open(&path)?;
                // These calls make the blob store's scan, and then the reclaimer, reach the block.
                for key in 100..200 {
                    table.put(key, "dddddddddddddddd")?;
                }
                table.delete(KEYS[0])?;
                for key in 100..200 {
                    table.delete(key)?;
                }
                for key in KEYS {
                    let shown = table.get_with(key, |shown| {
                        let before = shown.to_owned();
                        for key in 1000..1300 {
                            table.put(key, OTHER)?;
                        }
                        assert_eq!(before.as_bytes(), shown.as_bytes());
                        Ok::<_, icefield::Error>(())
                    });
                    match shown {
                        Ok(done) => done.transpose()?.unwrap_or_default(),
                        Err(icefield::Error::Corrupt { .. }) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(())
            }

            #[test]
            fn under_a_length_that_is_too_long() -> Check {
                stays(long_length)
            }

            #[test]
            fn of_a_block_that_has_two_slots() -> Check {
                stays(one_block_twice)
            }

            #[test]
            fn of_the_middle_of_a_block() -> Check {
                stays(middle_of_a_block)
            }

            #[test]
            fn of_a_free_block() -> Check {
                stays(a_free_block)
            }
        }
    };
}

table!(dash_eh, DashEh, "segments.ice");
table!(dash_lh, DashLh, "segments.ice");
table!(iceberg, Iceberg, "front.ice");
