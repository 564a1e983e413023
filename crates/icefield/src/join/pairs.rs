//! Lists of the pairs that a probe finds.

use std::sync::{Mutex, PoisonError};

use super::sink::{Keys, Sink};
use super::view::View;
use crate::Result;
use crate::base::thread_pool::Workers;
use crate::storage::Medium;

/// Maximum number of pairs for which memory is reserved before they are found.
const RESERVED: usize = 1 << 16;

/// The pairs that a probe has found, from [`JoinIndex::probe_into`](crate::JoinIndex::probe_into): for each pair the
/// position of the probe key, and the payload of the equal key in the index. The order is undefined. A later probe
/// reuses the memory.
///
/// ```
/// let index = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?;
/// let mut pairs = icefield::Pairs::default();
/// index.probe_into(&[3, 1], &mut pairs)?;
/// assert_eq!((pairs.positions(), pairs.payloads()), (&[1][..], &[10][..]));
/// assert!(pairs.len() == 1 && !pairs.is_empty());
/// assert_eq!(pairs.into_parts(), (vec![1], vec![10]));
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    positions: Vec<u64>,
    payloads: Vec<u64>,
}

impl Pairs {
    /// Returns the positions of the probe keys, pair by pair.
    #[must_use]
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// Returns the payloads, pair by pair.
    #[must_use]
    pub fn payloads(&self) -> &[u64] {
        &self.payloads
    }

    /// Returns the number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Returns `true` if there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Returns the positions and the payloads, pair by pair.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u64>, Vec<u64>) {
        (self.positions, self.payloads)
    }

    fn clear(&mut self) {
        self.positions.clear();
        self.payloads.clear();
    }

    fn append(&mut self, other: &mut Self) {
        self.positions.append(&mut other.positions);
        self.payloads.append(&mut other.payloads);
    }
}

/// Collects pairs until there are more than `most`.
struct Collect {
    pairs: Pairs,
    most: usize,
}

impl Sink for Collect {
    #[inline(always)]
    fn gathered(&mut self, position: usize, payload: u64) -> bool {
        let Self { pairs, most } = self;
        pairs.positions.push(position as u64);
        pairs.payloads.push(payload);
        // Then one pair of each further key is enough: the caller discards all of them.
        pairs.len() > *most
    }
}

impl<M: Medium> View<M> {
    /// Replaces `pairs` by the pairs of the first keys, as many as have at most `most` pairs, but at least one. Returns
    /// the number of these keys.
    pub(super) fn probe_some(
        &self,
        keys: impl Keys,
        workers: Workers<'_>,
        most: usize,
        pairs: &mut Pairs,
    ) -> Result<usize> {
        let mut count = keys.len();
        loop {
            // The pairs of one key are not divided.
            let most = if count <= 1 { usize::MAX } else { most };
            self.collect(keys.first(count), workers, most, pairs)?;
            if pairs.len() <= most {
                return Ok(count);
            }
            count /= 2;
        }
    }

    /// Replaces `pairs` by the pairs of the keys. If there are more than `most`, replaces it by more than `most` pairs,
    /// but not by all.
    fn collect(
        &self,
        keys: impl Keys,
        workers: Workers<'_>,
        most: usize,
        pairs: &mut Pairs,
    ) -> Result<()> {
        pairs.clear();
        // Often a key has one pair. Longer lists grow.
        let expected = keys.len().min(most).min(RESERVED);
        pairs.positions.reserve(expected);
        pairs.payloads.reserve(expected);
        let memory = Mutex::new(std::mem::take(pairs));
        let sink = || {
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            Collect { pairs: std::mem::take(&mut memory), most }
        };
        for mut found in self.probe(keys, workers, sink)? {
            if pairs.positions.capacity() == 0 {
                *pairs = found.pairs;
            } else {
                pairs.append(&mut found.pairs);
            }
        }
        Ok(())
    }
}
