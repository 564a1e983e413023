//! The rows of keys that ascend: a file with a bitmap of the keys, and the number of keys before each word of it.
//!
//! The primary key of a table is often a nearly dense integer in ascending order. The row of a key is then the number
//! of smaller keys. This takes 16 bytes for 64 values of the key's range, and a lookup reads one cache line, where the
//! hash index has 18 bytes for every key and reads from a random place.
//!
//! The file is mapped into memory. Each group of blocks has a checksum, which is compared when the group is first read,
//! so opening a large file takes no longer than a small one.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use arrow::array::{Array, UInt64Array};
use arrow::buffer::ScalarBuffer;
use datafusion::error::Result;
use icefield::base::hash::{Hash, HashKind};

use super::file::mapped;
use crate::error::{at_path, damaged};

/// The name of the file in the directory of an index.
pub const NAME: &str = "ranks.bin";
/// The range of the keys has at most this many values for each key. Then the bitmap is smaller than the hash index.
const MOST_VALUES: u64 = 16;
/// The first word of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"ICERANK1");
/// Number of words before the blocks: the magic word, the least key, the number of blocks, the number of rows; zeros.
const HEADER: usize = 8;
/// Number of blocks with a common checksum: 64 KiB.
const GROUP: usize = 1 << 12;

/// The rows of keys that are unique and ascend with the rows.
#[derive(Debug)]
pub struct Ranks {
    path: PathBuf,
    /// The word of the least key.
    first: u64,
    rows: u64,
    /// For 64 values each: the bits of those that are keys, and the number of smaller keys.
    blocks: ScalarBuffer<u64>,
    /// The checksum of each group.
    sums: ScalarBuffer<u64>,
    /// Groups whose checksum has been compared.
    checked: Box<[AtomicBool]>,
}

impl Ranks {
    /// Writes the file for the words of `chunks` chunks, durably, and returns the checksum with which it is opened.
    /// Writes nothing and returns `None` if the words do not ascend, are not dense, or a row has none.
    ///
    /// # Errors
    /// If `words` fails, or the file cannot be written.
    pub fn write(
        path: &Path,
        chunks: usize,
        rows: u64,
        words: impl Fn(usize) -> Result<UInt64Array>,
    ) -> Result<Option<u64>> {
        let Some((first, bits)) = bitmap(chunks, rows, words)? else { return Ok(None) };
        let write = || {
            let mut file = BufWriter::new(File::create_new(path)?);
            let mut header = [0; HEADER];
            header[..4].copy_from_slice(&[MAGIC, first, bits.len() as u64, rows]);
            let mut sums = Vec::new();
            file.write_all(&bytes_of(&header))?;
            let mut before = 0;
            for group in bits.chunks(GROUP) {
                let mut blocks = Vec::with_capacity(2 * group.len());
                for &bits in group {
                    blocks.extend([bits, before]);
                    before += u64::from(bits.count_ones());
                }
                let blocks = bytes_of(&blocks);
                sums.push(hash().bytes(&blocks));
                file.write_all(&blocks)?;
            }
            let sums = bytes_of(&sums);
            file.write_all(&sums)?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            Ok(sum_of(&bytes_of(&header), &sums))
        };
        write().map(Some).map_err(|error| at_path(path, error))
    }

    /// Maps the file. `sum` is what [`write`](Self::write) has returned, and `rows` the number of rows of the index.
    ///
    /// # Errors
    /// If the file cannot be opened or is damaged.
    pub fn open(path: PathBuf, rows: u64, sum: u64) -> Result<Self> {
        let buffer = mapped(&path)?;
        let words = buffer.len() / 8;
        if words < HEADER || !buffer.len().is_multiple_of(8) {
            return Err(damaged(&path, "it has the wrong length"));
        }
        let all = ScalarBuffer::<u64>::new(buffer.clone(), 0, words);
        let word = |at: usize| u64::from_le(all[at]);
        let (first, blocks) = (word(1), word(2));
        let fits = usize::try_from(blocks).ok().filter(|&blocks| {
            let length = blocks.checked_mul(2).and_then(|words| words.checked_add(HEADER));
            let length = length.and_then(|words| words.checked_add(blocks.div_ceil(GROUP)));
            length == Some(words)
        });
        let Some(blocks) = fits.filter(|_| word(0) == MAGIC && word(3) == rows) else {
            return Err(damaged(&path, "its header is wrong"));
        };
        let end = HEADER + 2 * blocks;
        let groups = words - end;
        if sum_of(&buffer[..8 * HEADER], &buffer[8 * end..]) != sum {
            return Err(damaged(&path, "the checksum of the header is wrong"));
        }
        let blocks = ScalarBuffer::new(buffer.clone(), HEADER, 2 * blocks);
        let sums = ScalarBuffer::new(buffer, end, groups);
        let checked = (0..groups).map(|_| AtomicBool::new(false)).collect();
        Ok(Self { path, first, rows, blocks, sums, checked })
    }

    /// Returns the row of a word.
    ///
    /// # Errors
    /// If the file is damaged there.
    #[inline]
    pub fn row(&self, word: u64) -> Result<Option<u64>> {
        let at = word.wrapping_sub(self.first);
        let block = (at / 64) as usize;
        if block >= self.blocks.len() / 2 {
            return Ok(None);
        }
        // Relaxed: the file does not change, and several threads may check a group.
        if !self.checked[block / GROUP].load(Relaxed) {
            self.check(block / GROUP)?;
        }
        let [bits, before] = [2 * block, 2 * block + 1].map(|at| u64::from_le(self.blocks[at]));
        let bit = 1_u64 << (at % 64);
        Ok((bits & bit != 0).then(|| before + u64::from((bits & (bit - 1)).count_ones())))
    }

    /// Compares all checksums.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn check_all(&self) -> Result<()> {
        (0..self.checked.len()).try_for_each(|group| self.check(group))
    }

    #[cold]
    fn check(&self, group: usize) -> Result<()> {
        let end = self.blocks.len().min(2 * GROUP * (group + 1));
        let blocks = &self.blocks[2 * GROUP * group..end];
        let is_row = |block: &[u64]| {
            let count = u64::from_le(block[0]).count_ones().into();
            u64::from_le(block[1]).checked_add(count).is_some_and(|end| end <= self.rows)
        };
        let sum = hash().bytes(&self.blocks.inner()[16 * GROUP * group..8 * end]);
        if sum != u64::from_le(self.sums[group]) || !blocks.chunks_exact(2).all(is_row) {
            return Err(damaged(&self.path, "the checksum of a group of blocks is wrong"));
        }
        self.checked[group].store(true, Relaxed);
        Ok(())
    }
}

/// Returns the least word and the bits of all words, if they ascend and are dense.
fn bitmap(
    chunks: usize,
    rows: u64,
    words: impl Fn(usize) -> Result<UInt64Array>,
) -> Result<Option<(u64, Vec<u64>)>> {
    let Some(last) = chunks.checked_sub(1) else { return Ok(None) };
    let (first, last) = (words(0)?, words(last)?);
    if first.is_empty() || last.is_empty() {
        return Ok(None);
    }
    let (first, last) = (first.value(0), last.value(last.len() - 1));
    // Words of negative numbers are large. Distances are right for them, too.
    let range = last.wrapping_sub(first);
    if range / MOST_VALUES > rows {
        return Ok(None);
    }
    let mut bits = vec![0_u64; range as usize / 64 + 1];
    let mut next = 0;
    for chunk in 0..chunks {
        let words = words(chunk)?;
        if words.null_count() > 0 {
            return Ok(None);
        }
        for &word in words.values() {
            let at = word.wrapping_sub(first);
            if at < next || at > range {
                return Ok(None);
            }
            next = at + 1;
            bits[at as usize / 64] |= 1 << (at % 64);
        }
    }
    Ok(Some((first, bits)))
}

fn hash() -> Hash {
    Hash::new(HashKind::Strong, [0, 0])
}

/// Returns the bytes of words in the file.
fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn sum_of(header: &[u8], sums: &[u8]) -> u64 {
    hash().bytes(&[header, sums].concat())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    fn ranks(chunks: &[Vec<u64>]) -> Option<Ranks> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let rows = chunks.iter().map(Vec::len).sum::<usize>() as u64;
        let words = |chunk: usize| Ok(chunks[chunk].clone().into());
        let sum = Ranks::write(&path, chunks.len(), rows, words).unwrap()?;
        assert!(Ranks::open(path.clone(), rows, sum ^ 1).is_err());
        assert!(Ranks::open(path.clone(), rows + 1, sum).is_err());
        Some(Ranks::open(path, rows, sum).unwrap())
    }

    #[test]
    fn rows_are_those_of_the_keys() {
        let keys: Vec<u64> =
            (-70_i64..3000).filter(|key| key % 7 < 3).map(i64::cast_unsigned).collect();
        let ranks = ranks(&[keys[..500].to_vec(), keys[500..].to_vec()]).unwrap();
        for value in -200_i64..4000 {
            let word = value.cast_unsigned();
            let row = keys.iter().position(|&key| key == word);
            assert_eq!(ranks.row(word).unwrap(), row.map(|row| row as u64), "{value}");
        }
        assert_eq!(ranks.row(u64::MAX / 2).unwrap(), None);
    }

    #[test]
    fn other_keys_have_no_ranks() {
        assert!(ranks(&[]).is_none());
        assert!(ranks(&[vec![]]).is_none());
        assert!(ranks(&[vec![1, 1]]).is_none(), "two rows with the same key");
        assert!(ranks(&[vec![1, 3, 2, 4]]).is_none(), "descending");
        assert!(ranks(&[vec![1, 1000]]).is_none(), "not dense");
        let with_null = || Ok(UInt64Array::from(vec![Some(1), None, Some(2)]));
        let path = Path::new("/not/written");
        assert!(Ranks::write(path, 1, 3, |_| with_null()).unwrap().is_none());
        assert_eq!(ranks(&[vec![5]]).unwrap().row(5).unwrap(), Some(0));
    }

    #[test]
    fn damage_is_found_where_it_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        // Two groups.
        let keys: Vec<u64> = (0..300_000).collect();
        let rows = keys.len() as u64;
        let sum = Ranks::write(&path, 1, rows, |_| Ok(keys.clone().into())).unwrap().unwrap();
        let good = std::fs::read(&path).unwrap();
        let open = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Ranks::open(path.clone(), rows, sum)
        };
        assert_eq!(open(&good).unwrap().row(299_999).unwrap(), Some(299_999));
        let change = |at: usize| {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            bad
        };
        let ranks = open(&change(8 * HEADER + 100)).unwrap();
        assert!(ranks.row(7).is_err() && ranks.row(299_999).unwrap() == Some(299_999));
        for at in [0, 8, 16, 24, 40, good.len() - 1] {
            assert!(open(&change(at)).is_err(), "{at}");
        }
        for length in [0, 8, 8 * HEADER, good.len() - 8, good.len() - 1] {
            assert!(open(&good[..length]).is_err(), "{length}");
        }
    }
}
