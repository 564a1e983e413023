//! `icefield-bench`: what Icefield's tables cost, told as shares of what this very machine can do and as exact counts.
//!
//! Machines are noisy, so no claim is an absolute time. A result compares a table with bare loops over the same kind of
//! memory, measured in turns with it (`limit_ratio`, `shape_ratio`), or counts lines, flushes and fences on the
//! simulated medium, which no noise touches. Keys are made before any clock runs, memory is touched before, threads are
//! pinned, and every answer is checked.
//!
//! The README of this crate lists the fields of a result.

mod ablated;
mod args;
mod cache;
mod compare;
mod counters;
mod designs;
mod error;
mod experiments;
mod frames;
mod index;
mod keys;
mod limit;
mod machine;
mod map;
mod ours;
mod output;
mod place;
mod report;
mod results;
mod rival;
mod row;
mod session;
mod set;
mod stats;
mod table;

pub use args::{Args, Batch, Hashing, Medium, YcsbWrites};
pub use error::Error;
pub use row::FIELDS;

type Outcome<T = ()> = Result<T, Error>;

/// Runs the experiment that `args` names and writes its results where they say, or reads the results of earlier runs.
/// `false` when a table answered wrongly, and when the later of two compared runs is worse.
///
/// ```
/// let mut args = icefield_bench::Args::new("list");
/// args.json = Some("-".to_owned());
/// assert!(icefield_bench::run(args).unwrap());
/// ```
///
/// # Errors
/// An unknown name or impossible option, a result that cannot be written, a table that cannot be made.
pub fn run(args: Args) -> Result<bool, Error> {
    match (args.experiment.as_str(), args.results.as_slice()) {
        ("compare", [before, after]) => {
            let comparison = compare::Comparison::of_files(before, after)?;
            let mut output = output::Output::open(&args)?;
            output.compared(&comparison)?;
            output.finish()?;
            Ok(comparison.is_no_worse())
        }
        ("report", [dir]) => {
            let page = report::write(dir)?;
            let mut output = output::Output::open(&args)?;
            output.written(&page)?;
            output.finish()?;
            Ok(true)
        }
        ("report", _) => Err(Error::Arguments("report needs a directory of results")),
        ("compare", _) => Err(Error::Arguments("compare needs two files of results")),
        (_, []) => experiments::run(args),
        _ => Err(Error::Arguments("only compare and report read files of results")),
    }
}
