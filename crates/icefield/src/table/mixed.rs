//! What mixed batches of all tables with windows share: running in order, and answers that come later.

use super::{Occupied, OnFailure, Op, Owned};
use crate::Result;
use crate::key::{Key, Value};

/// Runs the operations of a mixed batch in order; `run_one` says whether one found its key occupied or absent. How many
/// ran, and the error of the one after them, if any.
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
    /// The operation's answer, given the value that its key had before.
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
