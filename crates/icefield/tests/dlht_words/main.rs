//! DLHT tables and sets of words as a user of the standard library sees them: entries and `drain` among threads, the
//! traits of maps and sets, calls that are refused, and the features `serde` and `rayon`.

mod drains;
mod entries;
mod formats;
mod parallel;
mod refusals;
mod traits;

use std::sync::atomic::{AtomicBool, Ordering};

/// Ends the loops of other threads when dropped, also when an assertion fails: a scope waits for its threads.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
