//! `icefield-bench` measures what Icefield's tables cost, as ratios to what this machine can do and as exact
//! counts.
//!
//! Machines are noisy, so no claim is an absolute time. A result either compares a table with bare loops over the
//! same kind of memory, run alternately with it (`limit_ratio`, `shape_ratio`), or counts lines, flushes and fences
//! on the simulated medium, which are free of noise. Keys are generated and memory is touched before the clock
//! starts, threads are pinned, and every answer is checked.
//!
//! The README of this crate lists the fields of a result.

mod adapter;
mod args;
mod cache;
mod choice;
mod compare;
mod designs;
mod error;
mod experiments;
mod frames;
mod index;
mod keys;
mod limit;
mod machine;
mod map;
mod output;
mod peers;
mod place;
mod prelude;
mod report;
mod results;
mod row;
mod session;
mod stats;
mod table;
mod table_stats;

pub use args::{Args, Batch, Hashing, Medium, YcsbWrites};
pub use error::Error;
pub(crate) use error::Outcome;
pub use row::FIELDS;

/// Runs the experiment that `args` names and writes its results, or compares or reports the results of earlier
/// runs.
///
/// Returns `false` when a table gave a wrong answer, or when the second of two compared runs is worse than the
/// first.
///
/// ```
/// let mut args = icefield_bench::Args::new("list");
/// args.json = Some("-".to_owned());
/// assert!(icefield_bench::run(args).unwrap());
/// ```
///
/// # Errors
/// The experiment or an option is invalid, a result cannot be written, or a table cannot be created.
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
            let page = report::write(dir, experiments::what)?;
            let mut output = output::Output::open(&args)?;
            output.told(
                &format!("report: {}", page.display()),
                &serde_json::json!({ "report": page }),
            )?;
            output.finish()?;
            Ok(true)
        }
        ("report", _) => {
            Err(Error::Arguments("report needs a directory of results, which `--out` wrote"))
        }
        ("compare", _) => {
            Err(Error::Arguments("compare needs two files of results, which `--json` wrote"))
        }
        (_, []) => experiments::run(args),
        _ => Err(Error::Arguments("only compare and report read files of results")),
    }
}
