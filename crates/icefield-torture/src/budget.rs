//! Limits for loops of scenarios.

use std::time::{Duration, Instant};

/// A number of rounds, a time, or both; the first limit reached ends the loop.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    end: Option<Instant>,
    least: u64,
    rounds: u64,
    done: u64,
}

impl Budget {
    /// Allows `rounds` rounds, without a time limit.
    #[must_use]
    pub fn rounds(rounds: u64) -> Self {
        Self { end: None, least: 0, rounds, done: 0 }
    }

    /// Allows as many rounds as fit into `time`, and at least one.
    #[must_use]
    pub fn time(time: Duration) -> Self {
        Self { end: Instant::now().checked_add(time), least: 1, rounds: u64::MAX, done: 0 }
    }

    /// Allows at least `rounds` rounds, even after the time limit.
    #[must_use]
    pub fn at_least(self, rounds: u64) -> Self {
        Self { least: self.least.max(rounds), ..self }
    }

    /// Limits the number of rounds.
    #[must_use]
    pub fn at_most(self, rounds: u64) -> Self {
        Self { rounds: self.rounds.min(rounds), ..self }
    }

    /// Returns the number of the first round of the next chunk and the chunk's size, at most `size`. Returns `None`
    /// when the budget is spent.
    pub fn chunk(&mut self, size: u64) -> Option<(u64, u64)> {
        let late = self.done >= self.least && self.end.is_some_and(|end| Instant::now() >= end);
        let size = size.min(self.rounds - self.done);
        if late || size == 0 {
            return None;
        }
        let first = self.done;
        self.done += size;
        Some((first, size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_handed_out_in_chunks() {
        let mut budget = Budget::rounds(10);
        assert_eq!(budget.chunk(4), Some((0, 4)));
        assert_eq!(budget.chunk(4), Some((4, 4)));
        assert_eq!(budget.chunk(4), Some((8, 2)));
        assert_eq!(budget.chunk(4), None);
    }

    #[test]
    fn a_spent_time_allows_what_there_must_be() {
        let mut budget = Budget::time(Duration::ZERO);
        assert!(budget.chunk(1).is_some());
        assert!(budget.chunk(1).is_none());
        let mut budget = Budget::time(Duration::ZERO).at_least(5);
        assert_eq!(budget.chunk(4), Some((0, 4)));
        assert_eq!(budget.chunk(4), Some((4, 4)));
        assert_eq!(budget.chunk(4), None);
    }
}
