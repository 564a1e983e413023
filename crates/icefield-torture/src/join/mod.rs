//! The scenarios for [`JoinIndex`](icefield::JoinIndex), a multimap that is built from a source: random changes and
//! probes against a simple list of pairs, crash images, killed children, damaged files, failing system calls.

mod corrupt;
mod crash;
mod faults;
mod forge;
mod kill;
mod large;
mod model;
mod options;
mod steps;
mod syncs;

use icefield::storage::sim::{Mutation, Site};

use crate::crash::mutate::{Histories, Judged, MutateOptions, MutateReport, run_sites};
use crate::crash::{CrashOptions, CrashReport};
use crate::failure::{Failure, guarded};

pub use corrupt::{Flips, corrupt, corrupt_files, every_flip};
pub use crash::crash;
pub use faults::faults;
pub use kill::{KILLED_IN, child, kill};
pub use large::crash_large;
pub use model::{ModelCounts, model_in_files, model_simulated};
pub use syncs::syncs;

/// Disables every flush, fence and store order of the index's code in turn, as [`mutate`](crate::crash::mutate) does
/// for tables.
///
/// # Panics
/// Panics if the unmutated index already fails.
#[must_use]
pub fn mutate(options: &MutateOptions) -> MutateReport {
    let mut report = run_sites::<OfIndexes>(options, true);
    // With one thread, the next fence covers a missing one. Some mutations are therefore detected only with two
    // threads.
    report.redundant.retain(|site| !is_noticed_by_threads(options, *site));
    report.caught = report.sites - report.redundant.len() as u64;
    report
}

/// Checks whether a large index fails with the mutation. The distribution of work among threads varies, so several
/// indexes are tried.
fn is_noticed_by_threads(options: &MutateOptions, site: Site) -> bool {
    let mutation = Some(Mutation::of(site));
    let asked = CrashOptions { model: options.model, mutation, ..CrashOptions::default() };
    (0..LARGE_INDEXES).any(|n| crash_large(options.seed.wrapping_add(n), &asked).is_err())
}

/// Large indexes to try for each site.
const LARGE_INDEXES: u64 = 5;

/// The histories of [`crash`].
struct OfIndexes;

impl Histories for OfIndexes {
    fn one(seed: u64, options: &CrashOptions) -> Result<Judged, Failure> {
        let done = guarded(crate::crash::NAME, seed, || crash::history(seed, options, true))?;
        Ok(Judged { states: done.states, lasting: done.lasting })
    }

    fn all(options: &CrashOptions) -> CrashReport {
        crash(options)
    }
}

/// The table's name in commands and reports.
pub const NAME: &str = "join";
