//! Bitmaps of the keys of a probe.

use std::fmt;

/// A bit for each key of a probe, from [`JoinIndex::semi`](crate::JoinIndex::semi) and
/// [`JoinIndex::anti`](crate::JoinIndex::anti). Bit `i`, counted from the least significant bit of each word or byte,
/// belongs to the key at position `i`.
///
/// ```
/// let index = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?;
/// let found = index.semi(&[5, 2, 1])?;
/// assert_eq!(found.to_bytes(), [0b110]);
/// assert_eq!(found.ones().collect::<Vec<_>>(), [1, 2]);
/// assert_eq!(found.as_words(), [0b110]);
/// assert_eq!((found.len(), found.count_ones()), (3, 2));
/// assert!(found.get(2) && !found.get(0) && !found.is_empty());
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    len: usize,
}

impl Bitmap {
    /// Returns a bitmap of the first `len` bits of `words`.
    pub(super) fn new(mut words: Vec<u64>, len: usize) -> Self {
        words.truncate(len.div_ceil(64));
        if let Some(last) = words.last_mut()
            && !len.is_multiple_of(64)
        {
            *last &= (1 << (len % 64)) - 1;
        }
        Self { words, len }
    }

    /// Returns the bitmap with each bit inverted.
    pub(super) fn inverted(self) -> Self {
        Self::new(self.words.into_iter().map(|word| !word).collect(), self.len)
    }

    /// Returns the number of bits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the bitmap has no bits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns bit `at`; `false` beyond the end.
    #[must_use]
    pub fn get(&self, at: usize) -> bool {
        self.words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Returns the number of set bits.
    #[must_use]
    pub fn count_ones(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns the positions of the set bits, in order.
    pub fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(at * 64 + bit)
            })
        })
    }

    /// Returns the bits, 64 in a word. Bits beyond the end are zero.
    #[must_use]
    pub fn as_words(&self) -> &[u64] {
        &self.words
    }

    /// Returns the bits, eight in a byte, in the bit order of Apache Arrow. Bits beyond the end are zero.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes = self.words.iter().flat_map(|word| word.to_le_bytes());
        bytes.take(self.len.div_ceil(8)).collect()
    }
}

impl fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bitmap({} of {})", self.count_ones(), self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_behind_the_end_are_zero() {
        for len in [0, 1, 63, 64, 65, 130] {
            let all = Bitmap::new(vec![u64::MAX; 3], len);
            assert_eq!((all.len(), all.count_ones()), (len, len as u64));
            assert_eq!(all.ones().count(), len);
            assert!(!all.get(len));
            assert_eq!(all.to_bytes().len(), len.div_ceil(8));
            assert_eq!(all.clone().inverted().count_ones(), 0);
            assert_eq!(all.inverted().inverted().count_ones(), len as u64);
        }
    }
}
