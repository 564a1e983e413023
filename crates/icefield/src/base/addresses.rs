//! Placement of growing mappings.
//!
//! A growing mapping maps only what it needs and is extended in place. Most of the addresses behind it are left free
//! instead of being reserved. Each new mapping is placed at the start of a window, which is a range of free addresses,
//! and the rest of the window is unmapped at once. A window has a terabyte while the process has few of them, and less
//! as their number grows. The kernel places a mapping at the highest free addresses where it fits, so other mappings,
//! including smaller windows, fill a window from its far end, and the addresses directly behind a mapping are used
//! last. A mapping that cannot be moved to another address also reserves some of the addresses behind it.
//!
//! Mapped memory counts against `RLIMIT_AS`; anonymous and private mappings also count against the kernel's limit of
//! committed memory, if the kernel enforces one strictly. Free addresses count against no limit.

use std::sync::atomic::{AtomicUsize, Ordering};

const MOST_WINDOW: u64 = 1 << 40;
const LEAST_WINDOW: u64 = 1 << 30;
/// The number of mappings with the largest window. The next 48 have a quarter of it, the next 192 a sixteenth, and so
/// on.
const LARGEST_WINDOWS: usize = 16;

/// The number of windows in use in this process.
static WINDOWS: AtomicUsize = AtomicUsize::new(0);

/// A window of this process. It is released with its mapping.
#[derive(Debug)]
pub(crate) struct Window {
    bytes: u64,
}

impl Window {
    pub(crate) fn next() -> Self {
        // Relaxed, here and in `drop`: no other access is ordered by the count.
        Self { bytes: window_for(WINDOWS.fetch_add(1, Ordering::Relaxed)) }
    }

    /// Returns the number of addresses to request, for a mapping of `first` bytes now and at most `most` later.
    pub(crate) fn bytes(&self, first: u64, most: u64) -> u64 {
        self.bytes.max(first.saturating_mul(8)).min(most).max(first)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        WINDOWS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the size of the next window if there are `windows` already. 16,000 windows fit into 76 TiB, and the last of
/// them still have a gigabyte each.
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
