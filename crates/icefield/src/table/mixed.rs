//! The parts of mixed batches that all tables with windows share: the loop over the operations, and results that are
//! filled in after the operation has run.

use super::{Occupied, OnFailure, Op, Owned};
use crate::Result;
use crate::types::{Key, Value};

/// Runs the operations of a mixed batch in order. `run_one` returns `true` if an operation found its key occupied or
/// absent. Returns the number of operations that ran, and the error of the next one, if any.
pub(crate) fn run_mixed(
    count: usize,
    on_failure: OnFailure,
    mut run_one: impl FnMut(usize) -> Result<bool>,
) -> (usize, Result<()>) {
    for index in 0..count {
        match run_one(index) {
            Ok(true) if on_failure == OnFailure::Stop => return (index + 1, Ok(())),
            Ok(_) => {}
            Err(error) => return (index, Err(error)),
        }
    }
    (count, Ok(()))
}

impl<K: Key + ?Sized, V: Value + ?Sized> Op<'_, K, V> {
    /// Fills in the result of the operation, given the value that its key had before.
    pub(crate) fn fill(&mut self, before: Option<Owned<V>>) {
        match self {
            Self::Get(_, found)
            | Self::Insert(_, _, found)
            | Self::Update(_, _, found)
            | Self::Remove(_, found) => *found = before,
            Self::TryInsert(_, _, outcome) => {
                *outcome = before.map_or(Ok(()), |value| Err(Occupied(value)));
            }
            Self::Put(..) | Self::Shadow(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_at_its_end_at_a_failure_or_at_an_error() {
        let fails_at = |at: usize| move |index: usize| Ok(index == at);
        assert!(matches!(run_mixed(5, OnFailure::Stop, fails_at(2)), (3, Ok(()))));
        assert!(matches!(run_mixed(5, OnFailure::Continue, fails_at(2)), (5, Ok(()))));
        let breaks = |index: usize| if index == 4 { Err(crate::Error::ReadOnly) } else { Ok(true) };
        assert!(matches!(run_mixed(5, OnFailure::Continue, breaks), (4, Err(_))));
    }
}
