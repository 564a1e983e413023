//! The values that every stage of the tour uses.

use std::path::Path;

use super::orders::Order;
use icefield_console::failure::Failure;
use icefield_console::interrupt::Interrupt;

/// The state shared by the stages of the tour.
pub struct Stage<'a> {
    /// The orders to store.
    pub orders: &'a [Order],
    /// The same orders in a file, for the child process.
    pub file: &'a Path,
    /// The directory for tables.
    pub dir: &'a Path,
    /// The flag set by Ctrl-C.
    pub interrupt: &'a Interrupt,
}

impl Stage<'_> {
    /// Fails after Ctrl-C.
    pub fn go_on(&self) -> Result<(), Failure> {
        if self.interrupt.asked() {
            return Err(Failure::Interrupted(
                "interrupted; everything the tour made is removed".to_owned(),
            ));
        }
        Ok(())
    }
}
