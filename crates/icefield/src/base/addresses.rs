//! Where growing mappings are placed.
//!
//! A mapping that will grow maps what it needs and is extended in place. Most of the addresses behind it are left free
//! rather than taken: each new mapping is placed at the start of a free window, of a terabyte while a process has few of
//! them and of less the more it has, and the rest of the window is given back at once. The kernel takes the highest
//! addresses that suffice, so other mappings, smaller windows among them, fill a window from its far end. The addresses
//! right behind a mapping are taken last. A mapping that cannot go on at another address holds some of them.
//!
//! What is mapped counts against `RLIMIT_AS`, and anonymous or private mappings against the kernel's limit of committed
//! memory where that is strict. What is left free counts against nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest window.
const MOST_WINDOW: u64 = 1 << 40;
/// The smallest one.
const LEAST_WINDOW: u64 = 1 << 30;
/// So many mappings have the largest windows; three times as many those of a quarter of them, and so on.
const LARGEST_WINDOWS: usize = 16;

/// Mappings in windows, in this process.
static WINDOWS: AtomicUsize = AtomicUsize::new(0);

/// One of the process's windows; ends with the mapping.
#[derive(Debug)]
pub(crate) struct Window {
    bytes: u64,
}

impl Window {
    /// The next window.
    pub(crate) fn next() -> Self {
        // Relaxed, here and below: a count.
        Self { bytes: window_for(WINDOWS.fetch_add(1, Ordering::Relaxed)) }
    }

    /// How many addresses are looked for, for a mapping that begins with `first` bytes and may have `most`.
    pub(crate) fn bytes(&self, first: u64, most: u64) -> u64 {
        self.bytes.max(first.saturating_mul(8)).min(most).max(first)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        WINDOWS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The size of the next window where there are `windows` already: 76 TiB suffice for 16,000 of them, and the last ones
/// still have a gigabyte each.
fn window_for(windows: usize) -> u64 {
    let class = (windows / LARGEST_WINDOWS).checked_ilog2().map_or(0, |log| log / 2 + 1);
    (MOST_WINDOW >> (2 * class).min(40)).max(LEAST_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_for_thousands_of_mappings_fit_into_47_bits() {
        assert_eq!(window_for(0), 1 << 40);
        assert_eq!([16, 63, 64, 16_384].map(window_for), [1 << 38, 1 << 38, 1 << 36, 1 << 30]);
        let all: u64 = (0..16_000).map(window_for).sum();
        assert!(all < 80 << 40, "{} TiB", all >> 40);
        assert_eq!(window_for(usize::MAX), 1 << 30);
    }
}
