//! The rows of keys that ascend: a bitmap of the keys, and the number of keys before each word of it.
//!
//! The primary key of a table is often a nearly dense integer in ascending order. The row of a key is then the number
//! of smaller keys. This takes 16 bytes for 64 values of the key's range, and a lookup reads one cache line, where the
//! hash index has 18 bytes for every key and reads from a random place.

use arrow::array::{Array, UInt64Array};
use datafusion::error::Result;

/// The range of the keys has at most this many values for each key. Then the bitmap is smaller than the hash index.
const MOST_VALUES: u64 = 16;

/// The rows of keys that are unique and ascend with the rows.
#[derive(Debug)]
pub struct Ranks {
    /// The word of the least key.
    first: u64,
    /// For 64 values each: the bits of those that are keys, and the number of smaller keys.
    blocks: Vec<(u64, u64)>,
}

impl Ranks {
    /// Returns the rows of the words of `chunks` chunks; `None` if the words do not ascend, are not dense, or a row has
    /// none.
    ///
    /// # Errors
    /// If `words` fails.
    pub fn of(
        chunks: usize,
        rows: u64,
        words: impl Fn(usize) -> Result<UInt64Array>,
    ) -> Result<Option<Self>> {
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
        let mut before = 0;
        let blocks = bits.into_iter().map(|bits| {
            let block = (bits, before);
            before += u64::from(bits.count_ones());
            block
        });
        Ok(Some(Self { first, blocks: blocks.collect() }))
    }

    /// Returns the row of a word.
    #[inline]
    pub fn row(&self, word: u64) -> Option<u64> {
        let at = word.wrapping_sub(self.first);
        let (bits, before) = *self.blocks.get((at / 64) as usize)?;
        let bit = 1_u64 << (at % 64);
        (bits & bit != 0).then(|| before + u64::from((bits & (bit - 1)).count_ones()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    fn ranks(chunks: &[Vec<u64>]) -> Option<Ranks> {
        let rows = chunks.iter().map(Vec::len).sum::<usize>() as u64;
        Ranks::of(chunks.len(), rows, |chunk| Ok(chunks[chunk].clone().into())).unwrap()
    }

    #[test]
    fn rows_are_those_of_the_keys() {
        let keys: Vec<u64> =
            (-70_i64..3000).filter(|key| key % 7 < 3).map(i64::cast_unsigned).collect();
        let ranks = ranks(&[keys[..500].to_vec(), keys[500..].to_vec()]).unwrap();
        for value in -200_i64..4000 {
            let word = value.cast_unsigned();
            let row = keys.iter().position(|&key| key == word);
            assert_eq!(ranks.row(word), row.map(|row| row as u64), "{value}");
        }
        assert_eq!(ranks.row(u64::MAX / 2), None);
    }

    #[test]
    fn other_keys_have_no_ranks() {
        assert!(ranks(&[]).is_none());
        assert!(ranks(&[vec![]]).is_none());
        assert!(ranks(&[vec![1, 1]]).is_none(), "two rows with the same key");
        assert!(ranks(&[vec![1, 3, 2, 4]]).is_none(), "descending");
        assert!(ranks(&[vec![1, 1000]]).is_none(), "not dense");
        let with_null = || Ok(UInt64Array::from(vec![Some(1), None, Some(2)]));
        assert!(Ranks::of(1, 3, |_| with_null()).unwrap().is_none());
        assert_eq!(ranks(&[vec![5]]).unwrap().row(5), Some(0));
    }
}
