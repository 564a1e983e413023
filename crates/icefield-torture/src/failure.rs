//! The failure report of a scenario: complete enough to replay it and short enough to read.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Longest trace that is printed in full.
const SHOWN_STEPS: usize = 40;
/// Longest step that is printed in full.
const SHOWN_CHARS: usize = 600;

/// A violation, with the seed that replays it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The scenario.
    pub scenario: &'static str,
    /// The seed with which the scenario function was called.
    pub seed: u64,
    /// The description of the violation.
    pub what: String,
    /// The steps that led to the violation, in order.
    pub trace: Vec<String>,
}

impl Failure {
    /// Creates a violation without a trace.
    pub fn new(scenario: &'static str, seed: u64, what: impl Into<String>) -> Self {
        Self { scenario, seed, what: what.into(), trace: Vec::new() }
    }

    /// Adds the steps that led to the violation.
    #[must_use]
    pub fn with_trace(mut self, steps: impl IntoIterator<Item = String>) -> Self {
        self.trace = steps.into_iter().collect();
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} failed with seed {}: {}", self.scenario, self.seed, self.what)?;
        let hidden = self.trace.len().saturating_sub(SHOWN_STEPS);
        if hidden > 0 {
            writeln!(f, "  ... {hidden} earlier steps")?;
        }
        for (at, step) in self.trace.iter().enumerate().skip(hidden) {
            let (shown, cut) = step
                .char_indices()
                .nth(SHOWN_CHARS)
                .map_or((step.as_str(), ""), |(end, _)| (&step[..end], " ..."));
            writeln!(f, "  {at:4} {shown}{cut}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Runs one scenario and converts a panic into a failure.
///
/// # Errors
/// Returns the failure of `run`, or a failure that describes its panic.
pub fn guarded<C>(
    scenario: &'static str,
    seed: u64,
    run: impl FnOnce() -> Result<C, Failure>,
) -> Result<C, Failure> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result,
        Err(payload) => {
            Err(Failure::new(scenario, seed, format!("panicked: {}", panic_text(payload.as_ref()))))
        }
    }
}

/// Returns the message of a panic.
#[must_use]
pub fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "(no message)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_trace_is_shortened_to_its_end() {
        let failure =
            Failure::new("model", 7, "lost").with_trace((0..100).map(|n| format!("step {n}")));
        let text = failure.to_string();
        assert!(text.starts_with("model failed with seed 7: lost"), "{text}");
        assert!(
            text.contains("60 earlier steps")
                && text.contains("step 99")
                && !text.contains("step 59"),
            "{text}"
        );
    }
}
