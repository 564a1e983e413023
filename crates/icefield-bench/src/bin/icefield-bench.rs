//! The command `icefield-bench`: a front end of the library of the same name.

use std::process::ExitCode;

use clap::Parser;
use icefield_bench::{Args, Error};
use icefield_console::failure::{Failure, Outcome};

/// Provides huge pages to the peers, which use the global allocator. Icefield's in-memory tables map huge pages
/// themselves.
#[cfg(feature = "peers")]
#[global_allocator]
static ALLOCATOR: icefield_peers::HugePages = icefield_peers::HugePages;

/// Measure Icefield's tables against what this machine can do
#[derive(Parser, Debug)]
#[command(name = "icefield-bench", version, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

const EXAMPLES: &str = "\
Examples:
  icefield-bench list
  icefield-bench get --quick
  icefield-bench insert --tables dash-eh --threads 1 --batch none,32
  icefield-bench get --tables dlht --peers all --batch none,32,stream --threads 1
  icefield-bench insdel --tables dlht --peer-lib ./libmytable.so
  icefield-bench put --tables plush --medium disk --dir . --peers redb,lmdb,rocksdb --batch 100 --sync always
  icefield-bench all --quick --json results.jsonl
  icefield-bench compare before.jsonl after.jsonl

Competitors need a build with --features peers (in memory), peers-cpp (libcuckoo, oneTBB) or peers-kv (on a disk: redb,
LMDB, RocksDB); --peer-lib needs none, only icefield_peer.h.

Exit status: 0 measured, 1 a table answered wrongly, the run failed or `compare` found it worse, 2 bad usage";

fn main() -> ExitCode {
    icefield_console::main(run)
}

fn run(cli: &Cli) -> Outcome {
    icefield_bench::run(cli.args.clone()).map_err(failure)
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Table(error) => Failure::Table(error),
        Error::File { path, source } => Failure::io(&path, &source),
        Error::NoExperiment(_) | Error::Arguments(_) | Error::Option { .. } => {
            Failure::Usage(error.to_string())
        }
        other => Failure::Problem(other.to_string()),
    }
}
