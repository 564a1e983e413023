//! The number of threads of a join.

use std::num::NonZeroUsize;

/// Parses a number of threads. The limit exceeds the number of threads of any machine.
pub fn threads(text: &str) -> Result<usize, String> {
    const MOST: usize = 1 << 10;
    match text.parse() {
        Ok(threads) if (1..=MOST).contains(&threads) => Ok(threads),
        _ => Err(format!("expected a number from 1 to {MOST}")),
    }
}

/// Returns the number of the machine's threads.
pub fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}
