//! The shadow inserts that a thread holds between its moves.

use icefield::OnFailure;

use crate::operation::{Answer, Operation};

/// The end of a shadow insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It becomes a record.
    Commit,
    /// It is discarded.
    Abort,
}

impl End {
    pub(super) fn asked(self) -> Operation {
        match self {
            Self::Commit => Operation::Commit,
            Self::Abort => Operation::Abort,
        }
    }
}

/// The shadow inserts that a thread holds. Dropping this aborts them.
pub trait Held {
    /// Tries a shadow insert.
    fn shadow(&mut self, key: u64, value: u64) -> Answer;

    /// Executes a mixed batch of shadow inserts and any calls but `put`. Returns the answers of the operations that
    /// ran; a refused operation is the last one.
    ///
    /// # Errors
    /// Returns a description of the table's error.
    fn batch(
        &mut self,
        on_failure: OnFailure,
        ops: &[(u64, Operation)],
    ) -> Result<Vec<Answer>, String>;

    /// Ends the shadow insert of `key`. Returns its value, or `None` if it is not held.
    fn settle(&mut self, key: u64, end: End) -> Option<u64>;

    /// Ends all shadow inserts.
    fn settle_all(&mut self, end: End);
}

/// Creates the holder of a thread's shadow inserts in a table.
pub type Hold<T> = for<'a> fn(&'a T) -> Box<dyn Held + 'a>;
