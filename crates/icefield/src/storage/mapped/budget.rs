//! The bound on the total size of a table's regions.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the bytes of the regions against `max_bytes`.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    taken: AtomicU64,
}

impl Budget {
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self { limit: limit.unwrap_or(u64::MAX), taken: AtomicU64::new(0) }
    }

    /// Counts bytes that exist already, even beyond the limit.
    pub(super) fn take_unchecked(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn take(&self, bytes: u64) -> bool {
        // Relaxed: the count orders nothing else.
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            taken.checked_add(bytes).filter(|sum| *sum <= self.limit)
        });
        taken.is_ok()
    }

    pub(super) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    pub(super) fn give(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_overdrawn() {
        let budget = Budget::new(Some(100));
        assert!(budget.take(60));
        assert!(!budget.take(41));
        assert!(budget.take(40));
        assert!(!budget.take(1));
        assert_eq!(budget.left(), 0);
        budget.give(40);
        assert_eq!(budget.left(), 40);
        assert!(budget.take(1));
        assert!(!budget.take(u64::MAX));
    }
}
