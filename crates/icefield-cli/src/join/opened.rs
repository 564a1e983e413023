//! An index of any key type, opened for probing.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray};
use icefield::base::hash::{Hash, HashKind};
use icefield::{Bitmap, HashedJoinIndex, JoinIndex, JoinOptions, Word};

use super::loaded::ByteKeys;
use crate::join_index::key_type::Stored;
use crate::join_index::stamp::Stamp;
use icefield_console::failure::Failure;

/// A hash function of bytes.
pub type HashBytes = Box<dyn Fn(&[u8]) -> u64 + Send + Sync>;
/// A function that returns whether a row has a key.
pub type Verify = Box<dyn Fn(&[u8], u64) -> bool + Send + Sync>;

/// The number of lists that collect pairs. The position of a key in its batch selects the list, so threads seldom wait
/// for each other.
const LISTS: usize = 64;

/// A pair of rows: one of the probing file, by its position in the batch, and one of the indexed file.
pub type Pair = (u32, u64);

/// An open index. Its methods take keys as [`KeyType::keys`](crate::join_index::key_type::KeyType::keys) returns them;
/// a null matches nothing.
pub enum Opened {
    /// An index of `i64`.
    Signed(JoinIndex<i64>),
    /// An index of `u64`.
    Unsigned(JoinIndex<u64>),
    /// An index of bytes.
    Bytes(HashedJoinIndex<HashBytes, Verify>),
}

impl Opened {
    /// Opens the index. If the keys are bytes, `keys` are those of the indexed file; they verify matches.
    pub fn open(
        path: &Path,
        stamp: &Stamp,
        keys: ByteKeys,
        threads: Option<usize>,
        verify: bool,
    ) -> Result<Self, Failure> {
        Ok(match stamp.key.stored {
            Stored::Signed => {
                Self::Signed(options(JoinIndex::options(), threads, verify).open_read_only(path)?)
            }
            Stored::Unsigned => {
                Self::Unsigned(options(JoinIndex::options(), threads, verify).open_read_only(path)?)
            }
            Stored::Hashes => {
                let options = options(JoinIndex::<u64>::options(), threads, verify);
                let is_key: Verify = Box::new(move |key, row| keys.is(row, key));
                Self::Bytes(options.open_with_hash(path, hash_bytes(stamp), is_key)?)
            }
        })
    }

    /// Returns the number of all pairs that the keys have.
    pub fn count(&self, keys: &ArrayRef) -> Result<u64, Failure> {
        Ok(match self {
            Self::Signed(index) => index.probe_count(&valid::<Int64Type>(keys).0)?,
            Self::Unsigned(index) => index.probe_count(&valid::<UInt64Type>(keys).0)?,
            Self::Bytes(index) => index.probe_count(&valid_bytes(keys).0)?,
        })
    }

    /// Returns which of the keys have a pair, and the number of all their pairs.
    pub fn matched(&self, keys: &ArrayRef) -> Result<(BooleanArray, u64), Failure> {
        let ((found, pairs), rows): ((Bitmap, u64), Vec<u32>) = match self {
            Self::Signed(index) => {
                let (valid, rows) = valid::<Int64Type>(keys);
                (index.semi_count(&valid)?, rows)
            }
            Self::Unsigned(index) => {
                let (valid, rows) = valid::<UInt64Type>(keys);
                (index.semi_count(&valid)?, rows)
            }
            Self::Bytes(index) => {
                let (valid, rows) = valid_bytes(keys);
                (index.semi_count(&valid)?, rows)
            }
        };
        let mut matched = vec![false; keys.len()];
        for at in found.ones() {
            matched[rows[at] as usize] = true;
        }
        Ok((BooleanArray::from(matched), pairs))
    }

    /// Returns all pairs of the keys, in order.
    pub fn pairs(&self, keys: &ArrayRef) -> Result<Vec<Pair>, Failure> {
        let lists: Vec<Mutex<Vec<Pair>>> = (0..LISTS).map(|_| Mutex::default()).collect();
        let each = keys.len().div_ceil(LISTS).max(1);
        let collect = |rows: &[u32], at: usize, row: u64| {
            let list = &lists[at / each];
            list.lock().unwrap_or_else(PoisonError::into_inner).push((rows[at], row));
        };
        match self {
            Self::Signed(index) => {
                let (valid, rows) = valid::<Int64Type>(keys);
                index.probe(&valid, |at, row| collect(&rows, at, row))?;
            }
            Self::Unsigned(index) => {
                let (valid, rows) = valid::<UInt64Type>(keys);
                index.probe(&valid, |at, row| collect(&rows, at, row))?;
            }
            Self::Bytes(index) => {
                let (valid, rows) = valid_bytes(keys);
                index.probe(&valid, |at, row| collect(&rows, at, row))?;
            }
        }
        let mut pairs = Vec::new();
        for list in lists {
            pairs.append(&mut list.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        pairs.sort_unstable();
        Ok(pairs)
    }
}

/// Returns the hash function of an index of bytes.
pub fn hash_bytes(stamp: &Stamp) -> HashBytes {
    let hash = Hash::new(HashKind::Strong, stamp.hash_seed);
    Box::new(move |bytes| hash.bytes(bytes))
}

fn options<K: Word>(
    options: JoinOptions<K>,
    threads: Option<usize>,
    verify: bool,
) -> JoinOptions<K> {
    let options = options.verify(verify);
    match threads {
        Some(threads) => options.threads(threads),
        None => options,
    }
}

/// Returns the keys that are not null, and their positions.
fn valid<T: ArrowPrimitiveType>(keys: &ArrayRef) -> (Vec<T::Native>, Vec<u32>) {
    let keys = keys.as_primitive::<T>();
    let valid = (0..keys.len()).filter(|&at| keys.is_valid(at));
    valid.map(|at| (keys.value(at), at as u32)).unzip()
}

fn valid_bytes(keys: &ArrayRef) -> (Vec<&[u8]>, Vec<u32>) {
    let keys = keys.as_binary::<i64>();
    let valid = (0..keys.len()).filter(|&at| keys.is_valid(at));
    valid.map(|at| (keys.value(at), at as u32)).unzip()
}

/// The keys of a file as words, from which an index is built: all keys that are not null, with their row numbers.
pub struct WordKeys {
    batches: Vec<(u64, ArrayRef)>,
    stopped: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl WordKeys {
    /// Returns an empty source. Once `stopped` returns `true`, reading from the source fails.
    pub fn new(stopped: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self { batches: Vec::new(), stopped }
    }

    /// Adds the keys of the next batch.
    pub fn push(&mut self, first_row: u64, keys: ArrayRef) {
        self.batches.push((first_row, keys));
    }
}

impl icefield::JoinSource for WordKeys {
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> icefield::Result<()>,
    ) -> icefield::Result<()> {
        for (first_row, keys) in self.batches.iter().skip(part).step_by(parts.max(1)) {
            if (self.stopped)() {
                return Err(icefield::Error::Source { detail: "interrupted".to_owned() });
            }
            let (words, rows) = words(*first_row, keys);
            show(&words, &rows)?;
        }
        Ok(())
    }
}

/// Returns the non-null keys of a batch as words, and their row numbers.
fn words(first_row: u64, keys: &ArrayRef) -> (Vec<u64>, Vec<u64>) {
    let row = |at: u32| first_row + u64::from(at);
    if keys.as_primitive_opt::<UInt64Type>().is_some() {
        let (words, rows) = valid::<UInt64Type>(keys);
        return (words, rows.into_iter().map(row).collect());
    }
    let (words, rows) = valid::<Int64Type>(keys);
    (words.into_iter().map(Word::to_word).collect(), rows.into_iter().map(row).collect())
}
