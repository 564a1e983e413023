//! The results of a table, and how their figures are printed.

use std::time::Duration;

use super::design::{Crash, Design};
use super::measure::Speeds;

/// The results of one table.
pub struct Row {
    pub design: Design,
    pub speed: Speeds,
    /// The result of the crash test, for a table that outlives its process.
    pub crash: Option<Crash>,
}

impl Row {
    pub fn lost(&self) -> u64 {
        self.crash.as_ref().map_or(0, |crash| crash.lost)
    }

    pub fn has_faults(&self) -> bool {
        self.crash.as_ref().is_some_and(|crash| !crash.faults.is_empty())
    }
}

pub fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

/// Formats a number with commas between the thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_have_commas() {
        assert_eq!(
            [grouped(7), grouped(999), grouped(1000), grouped(1_234_567)],
            ["7", "999", "1,000", "1,234,567"]
        );
    }
}
