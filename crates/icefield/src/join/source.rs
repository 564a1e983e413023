//! Sources of pairs, which are read twice.

use std::ops::Range;

use crate::types::Word;
use crate::{Error, Result};

/// Number of pairs that the sources of this crate show at once.
const BATCH: usize = 4096;

/// A source of pairs of key and payload, from which a [`JoinIndex`](crate::JoinIndex) is built. It is read twice, part
/// by part: the first reading counts the pairs, the second one places them. So only the pairs shown at a time must fit
/// into memory.
///
/// ```
/// use icefield::{JoinIndex, JoinSource, Result};
///
/// /// The rows below `self.0`. The key of a row is half its number.
/// struct Halves(u64);
///
/// impl JoinSource for Halves {
///     fn read(
///         &self,
///         part: usize,
///         parts: usize,
///         show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
///     ) -> Result<()> {
///         for row in (part as u64..self.0).step_by(parts) {
///             show(&[row / 2], &[row])?;
///         }
///         Ok(())
///     }
/// }
///
/// let index = JoinIndex::<u64>::options().build_in_memory_from(&Halves(1000))?;
/// assert_eq!(index.probe_count(&[7, 499, 500])?, 4);
/// # Ok::<(), icefield::Error>(())
/// ```
pub trait JoinSource: Sync {
    /// Calls `show` with the pairs of one of `parts` parts, as slices of keys and payloads of equal length, and stops
    /// if `show` fails. The parts together contain every pair once; different threads may read several parts at the
    /// same time. For the same `part` and `parts`, both readings must show the same pairs, in any order.
    ///
    /// # Errors
    /// The error of `show`, or [`Error::Source`] if the pairs cannot be read.
    #[expect(clippy::type_complexity, reason = "an alias would hide what implementors write")]
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()>;
}

/// Returns the range of part number `part`, if `len` items are divided into `parts` parts.
pub(super) fn share(len: usize, part: usize, parts: usize) -> Range<usize> {
    let at = |part: usize| (len as u128 * part as u128 / parts.max(1) as u128) as usize;
    at(part)..at(part + 1)
}

/// Returns an error unless there is a payload for each key.
pub(super) fn matched(keys: usize, payloads: usize) -> Result<()> {
    if keys == payloads {
        return Ok(());
    }
    let detail = format!("length mismatch: {keys} keys, {payloads} payloads");
    Err(Error::InvalidOption { option: "payloads", detail })
}

/// Two slices as a source.
pub(super) struct Slices<'a, K> {
    pub(super) keys: &'a [K],
    pub(super) payloads: &'a [u64],
}

impl<K: Word> Slices<'_, K> {
    /// Returns an error unless there is a payload for each key.
    pub(super) fn matched(&self) -> Result<()> {
        matched(self.keys.len(), self.payloads.len())
    }
}

impl<K: Word> JoinSource for Slices<'_, K> {
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()> {
        let share = share(self.keys.len(), part, parts);
        let (keys, payloads) = (&self.keys[share.clone()], &self.payloads[share]);
        let mut words = Vec::with_capacity(BATCH.min(keys.len()));
        for (keys, payloads) in keys.chunks(BATCH).zip(payloads.chunks(BATCH)) {
            words.clear();
            words.extend(keys.iter().map(|key| key.to_word()));
            show(&words, payloads)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_everything_once() {
        for (len, parts) in [(0, 1), (0, 3), (1, 4), (10, 3), (1000, 7)] {
            let mut next = 0;
            for part in 0..parts {
                let share = share(len, part, parts);
                assert_eq!(share.start, next);
                next = share.end;
            }
            assert_eq!(next, len);
        }
    }
}
