//! Where pairs come from: anything that can be read twice.

use std::ops::Range;

use crate::key::Word;
use crate::{Error, Result};

/// Pairs shown at once by the sources of this crate.
const BATCH: usize = 4096;

/// Pairs of key and payload that can be read twice, part by part: what a [`JoinIndex`](crate::JoinIndex) is built from.
/// The first reading counts, the second one places; so nothing has to fit into memory but what is shown at a time.
///
/// ```
/// use icefield::{JoinIndex, JoinSource, Result};
///
/// /// The numbers below `self.0`, each the row of its own half.
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
    /// Shows the pairs of one of `parts` parts to `show`, as slices of keys and payloads of equal length, and stops
    /// when that fails. All parts together are all pairs, each once; several are read at the same time by different
    /// threads. The same part of as many parts is the same pairs again the next time, in any order.
    ///
    /// # Errors
    /// What `show` failed with, or [`Error::Source`] when the pairs cannot be read.
    #[expect(clippy::type_complexity, reason = "an alias would hide what implementors write")]
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()>;
}

/// The `part`th of `parts` shares of `len` things.
pub(super) fn share(len: usize, part: usize, parts: usize) -> Range<usize> {
    let at = |part: usize| (len as u128 * part as u128 / parts.max(1) as u128) as usize;
    at(part)..at(part + 1)
}

/// Fails unless there is a payload for each key.
pub(super) fn matched(keys: usize, payloads: usize) -> Result<()> {
    if keys == payloads {
        return Ok(());
    }
    let detail = format!("{payloads} of them for {keys} keys");
    Err(Error::InvalidOption { option: "payloads", detail })
}

/// Two slices.
pub(super) struct Slices<'a, K> {
    pub(super) keys: &'a [K],
    pub(super) payloads: &'a [u64],
}

impl<K: Word> Slices<'_, K> {
    /// Fails unless there is a payload for each key.
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
