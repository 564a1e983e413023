//! Tables whose threads take turns inside their operations.

use icefield::{DlhtTable, Interleaved, Turns};

use crate::scheduler;

/// Lets the [`scheduler`] decide, at each step of an operation, whether another thread continues.
#[derive(Clone, Copy, Debug)]
pub struct Batons;

impl Turns for Batons {
    fn give_way() {
        scheduler::tick();
    }
}

/// A table whose threads take turns.
pub type DlhtInTurns = DlhtTable<u64, u64, Interleaved<Batons>>;
