//! Random sequences of all operations, checked against the reference map, with clean reopenings on persistent media.
//!
//! A history is generated from its seed before it runs and does not depend on the table's replies. Therefore a
//! failing history can be shortened by leaving steps out.

mod counts;
mod run;
mod step;

use icefield::Table;

use crate::failure::{Failure, guarded};
use crate::place::Place;
use crate::shrink::shrink;
use crate::subject::Sample;

pub use counts::Counts;
pub use step::{Step, history};

/// The name of the scenario.
pub const NAME: &str = "model";

/// Runs one history of about `length` steps on a table that `place()` creates.
///
/// # Errors
/// Returns the first wrong reply, with a shortened history.
pub fn scenario<T, P>(seed: u64, length: usize, place: impl Fn() -> P) -> Result<Counts, Failure>
where
    T: Table<Key: Sample, Value: Sample>,
    P: Place<T>,
{
    run_steps::<T, P>(seed, history(seed, length), place)
}

/// Runs a history whose steps are determined by `bytes`, the input of a fuzzer. Equal bytes give equal histories.
///
/// # Errors
/// Returns the first wrong reply, with a shortened history.
pub fn scenario_of_bytes<T, P>(bytes: &[u8], place: impl Fn() -> P) -> Result<Counts, Failure>
where
    T: Table<Key: Sample, Value: Sample>,
    P: Place<T>,
{
    run_steps::<T, P>(0, step::history_of_bytes(bytes, MOST_FUZZED_STEPS), place)
}

/// Maximum number of steps in a fuzzed history. Longer inputs are slower and find no more.
const MOST_FUZZED_STEPS: usize = 400;

/// Runs `steps`, and shortens them if they fail.
fn run_steps<T, P>(seed: u64, steps: Vec<Step>, place: impl Fn() -> P) -> Result<Counts, Failure>
where
    T: Table<Key: Sample, Value: Sample>,
    P: Place<T>,
{
    let attempt = |steps: &[Step]| {
        guarded(NAME, seed, || {
            run::run::<T, P>(steps, place()).map_err(|what| Failure::new(NAME, seed, what))
        })
    };
    let failure = match attempt(&steps) {
        Ok(counts) => return Ok(counts),
        Err(failure) => failure,
    };
    let mut short = shrink(steps, |steps| attempt(steps).is_err());
    for at in 0..short.len() {
        shrink_calls(&mut short, at, &|steps| attempt(steps).is_err());
    }
    Err(attempt(&short)
        .err()
        .unwrap_or(failure)
        .with_trace(short.iter().map(|step| format!("{step:?}"))))
}

/// Removes calls from the batch or scan at `at` while the history still fails.
fn shrink_calls(steps: &mut [Step], at: usize, fails: &dyn Fn(&[Step]) -> bool) {
    let Some(calls) = steps[at].calls_mut().cloned() else { return };
    let mut candidate = steps.to_vec();
    let short = shrink(calls, |calls| {
        if let Some(place) = candidate[at].calls_mut() {
            place.clone_from(&calls.to_vec());
        }
        fails(&candidate)
    });
    if let Some(place) = steps[at].calls_mut() {
        *place = short;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Bug, Toy, ToyPlace};

    fn first_failure(bug: Bug) -> Option<Failure> {
        (0..40).find_map(|seed| scenario::<Toy, _>(seed, 100, || ToyPlace(bug)).err())
    }

    #[test]
    fn a_right_table_passes_and_is_asked_everything() {
        let mut counts = Counts::default();
        for seed in 0..40 {
            counts.add(
                scenario::<Toy, _>(seed, 100, || ToyPlace(Bug::None))
                    .unwrap_or_else(|failure| panic!("{failure}")),
            );
        }
        assert!(
            counts.reopens > 20 && counts.scans > 100 && counts.operations > 4000,
            "{counts:?}"
        );
    }

    #[test]
    fn bytes_choose_histories() {
        let bytes: Vec<u8> = (0..400).map(|at| crate::rng::mix(at) as u8).collect();
        let run = |bug| scenario_of_bytes::<Toy, _>(&bytes, || ToyPlace(bug));
        let counts = run(Bug::None).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(counts.operations > 50, "{counts:?}");
        assert!(run(Bug::UpdateInserts).is_err());
    }

    #[test]
    fn wrong_tables_are_caught_with_a_short_history() {
        for bug in [Bug::UpdateInserts, Bug::NeverStops, Bug::ScanLoses] {
            let failure = first_failure(bug).unwrap_or_else(|| panic!("{bug:?} was not noticed"));
            assert!(failure.trace.len() <= 5, "{failure}");
        }
    }
}
