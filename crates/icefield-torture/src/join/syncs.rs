//! Lets every sync in the life of an index fail once.

use std::path::Path;

use icefield::{Durability, JoinIndex};

use super::options::options;
use super::steps::{Pairs, Step, Trouble, first_pairs};
use crate::failure::Failure;
use crate::rng::Rng;
use crate::syncs::film::Film;
use crate::syncs::{Counts, Flaw, Life, Options, every_sync};

/// Number of keys of an index.
const KEYS: u64 = 20;
/// Number of steps of a history.
const STEPS: u64 = 40;
/// Number of steps after the failure.
const AFTER: u64 = 4;

/// Runs a history of an index in files below `place`, and fails each of its syncs in turn. The effect of each call is
/// durable when the call returns, whatever mode `options` has.
///
/// # Errors
/// Returns an error if the history fails without a failing sync or if the images cannot be created.
pub fn syncs(options: &Options, place: &Path) -> Result<Counts, Failure> {
    every_sync(&Lived(options.seed), options, place)
}

/// The history of a seed.
struct Lived(u64);

impl Lived {
    /// Executes steps, only a few of them after the failure. Returns the states that the index may have, and the number
    /// of failed steps.
    fn change(
        &self,
        film: &Film,
        index: &JoinIndex<u64>,
        (rng, mut pairs): (&mut Rng, Pairs),
    ) -> Result<(Vec<Pairs>, u64), String> {
        let (mut allowed, mut errors, mut after) = (vec![pairs.clone()], 0, 0);
        for _ in 0..STEPS {
            let step = Step::draw(rng, KEYS);
            match step.run(index, &pairs) {
                Ok(()) => {
                    pairs.apply(&step);
                    allowed.iter_mut().for_each(|pairs| pairs.apply(&step));
                }
                Err(Trouble::Wrong(what)) => return Err(what),
                Err(Trouble::Error(error)) if !film.has_failed() => return Err(error.to_string()),
                Err(Trouble::Error(_)) => {
                    errors += 1;
                    allowed = allowed.iter().flat_map(|pairs| step.outcomes(pairs)).collect();
                    allowed.dedup();
                    // The index returns the part of the step that it has made durable. The medium may hold more of
                    // it.
                    let found = Pairs::of_index(index).map_err(|error| error.to_string())?;
                    if !step.outcomes(&pairs).contains(&found) {
                        return Err(format!("{step:?} failed and left {found:?}"));
                    }
                    pairs = found;
                }
            }
            if film.has_failed() {
                film.look();
                after += 1;
                if after > AFTER {
                    break;
                }
            }
        }
        Ok((allowed, errors))
    }
}

impl Life for Lived {
    type Expected = Vec<Pairs>;

    fn live(&self, film: &Film) -> Result<(Vec<Pairs>, u64), String> {
        let mut rng = Rng::fork(self.0, 9);
        let pairs = first_pairs(&mut rng, KEYS, 60);
        let how = options(self.0).durability(Durability::Disk).faults(film.plan());
        let lived = match how.build_from(film.path(), &pairs) {
            Err(error) if !film.has_failed() => return Err(format!("building it: {error}")),
            Err(_) => (vec![pairs], 1),
            Ok(index) => self.change(film, &index, (&mut rng, pairs))?,
        };
        if film.has_failed() {
            film.look();
        }
        Ok(lived)
    }

    fn judge(&self, image: &Path, expected: &Vec<Pairs>) -> Result<(), Flaw> {
        let index =
            options(self.0).open(image).map_err(|error| Flaw::Unopened(error.to_string()))?;
        let found = Pairs::of_index(&index).map_err(|error| Flaw::Wrong(error.to_string()))?;
        if !expected.contains(&found) {
            return Err(Flaw::Wrong(format!("holds {found:?}, which is not one of {expected:?}")));
        }
        found.compare(&index).map_err(|trouble| Flaw::Wrong(trouble.to_string()))
    }
}
