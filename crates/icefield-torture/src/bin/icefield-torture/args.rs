//! The command line.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Parser, Subcommand, ValueEnum};
use icefield::SyncMode;
use icefield::storage::sim::Model as CrashModel;
use icefield_torture::churn::ChurnOptions;
use icefield_torture::crash::mutate;
use icefield_torture::{scenarios, syncs};

use super::tables;
use icefield_console::json::JsonArgs;

const EXAMPLES: &str = "\
Examples:
  icefield-torture crash --table dash-eh --images 1000000
  icefield-torture linear --table dash-eh --records bytes --seconds 600
  icefield-torture linear --table dlht --histories 1000000
  icefield-torture model --table dlht-local --seconds 60
  icefield-torture kill --table dash-lh --rounds 500 --json result.ndjson
  icefield-torture churn --table plush --records bytes --turnovers 2000

Exit status: 0 no violation, 1 a violation (its seed is printed), 2 bad usage";

/// Try to break Icefield's tables, and print the seed of each violation
#[derive(Parser, Debug)]
#[command(name = "icefield-torture", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) kind: Kind,
}

#[derive(Subcommand, Debug)]
pub(super) enum Kind {
    /// Run random operations against a reference map, with reopenings
    Model {
        /// Run N histories [default: 2000]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        histories: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Reopen and check crash images of histories on the simulated medium
    Crash {
        /// Check N images [default: 200000]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        images: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Disable each flush, fence and store order in turn; a scenario must detect each
    Mutate {
        /// Report a mutation as undetected after N images
        #[arg(long, value_name = "N", default_value_t = mutate::MutateOptions::default().states, value_parser = at_least_one())]
        images: u64,
        /// Restrict the run to sites in files whose path contains TEXT
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Kill a writing child process, and check that every acknowledged write is present
    Kill {
        /// Start N children [default: 200]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        rounds: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Run concurrent histories on hot keys, and check each for linearizability
    Linear {
        /// Run N histories [default: 100000]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        histories: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Open, use and salvage damaged tables
    Corrupt {
        /// Use N damaged tables [default: 20000]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        mutations: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Replace records repeatedly with concurrent readers, then remove most of them, and check the size of the files
    Churn {
        /// Keep N records in the table
        #[arg(long, value_name = "N", default_value_t = ChurnOptions::default().records, value_parser = at_least_one())]
        keep: u64,
        /// Replace each record N times
        #[arg(long, value_name = "N", default_value_t = ChurnOptions::default().turnovers, value_parser = at_least_one())]
        turnovers: u64,
        /// Use N tables [default: 1]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        tables: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Open tables with forged references and lengths, and change them while values are borrowed
    Hostile {
        /// Use N forged tables [default: 20000]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        mutations: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Fail every system call in turn, or every allocation of a table in memory, once and permanently
    Faults {
        #[command(flatten)]
        common: Common,
    },
    /// Fail every sync of a table on disk once, and check that acknowledged writes survive in all resulting page
    /// states
    Syncs {
        /// Check N images [default: 20000]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        images: Option<u64>,
        /// Check at most N images for one failed sync; a power of two, 2^n, covers n pages
        #[arg(long, value_name = "N", default_value_t = syncs::Options::default().images, value_parser = at_least_one())]
        each: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Run as the child of `kill`
    #[command(name = CHILD, hide = true)]
    KillChild {
        #[arg(long)]
        table: String,
        #[arg(long)]
        records: Records,
        #[arg(long)]
        orders: String,
    },
}

impl Kind {
    /// Returns whether the kind tests tables on disks, where writes may be acknowledged before they are durable.
    pub(super) fn syncs(&self) -> bool {
        match self {
            Self::Crash { common, .. } => matches!(common.model, Medium::Disk),
            // Undetected mutations are tried on disks, too.
            Self::Mutate { .. } | Self::Syncs { .. } => true,
            _ => false,
        }
    }

    pub(super) fn common(&self) -> &Common {
        match self {
            Self::Model { common, .. }
            | Self::Crash { common, .. }
            | Self::Mutate { common, .. }
            | Self::Kill { common, .. }
            | Self::Linear { common, .. }
            | Self::Corrupt { common, .. }
            | Self::Syncs { common, .. }
            | Self::Churn { common, .. }
            | Self::Hostile { common, .. }
            | Self::Faults { common } => common,
            Self::KillChild { .. } => unreachable!("a child has no scenario"),
        }
    }
}

/// Rejects 0, because a run of no rounds would find nothing and report success.
fn at_least_one() -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..)
}

/// The hidden subcommand of a child.
pub(super) const CHILD: &str = "kill-child";

#[derive(clap::Args, Clone, Debug)]
pub(super) struct Common {
    /// Test tables of the design T
    #[arg(long, value_name = "T", value_parser = tables::names())]
    pub(super) table: String,
    /// Start with the seed S; a violation prints the seed that replays it
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(super) seed: u64,
    /// Run for S seconds instead of a number of rounds (or until both are reached)
    #[arg(long, value_name = "S", value_parser = at_least_one())]
    pub(super) seconds: Option<u64>,
    /// Simulate crashes of this medium
    #[arg(long, default_value = "pmem")]
    pub(super) model: Medium,
    /// Acknowledge writes in this mode: always, every:MS, never (`crash` with `--model disk`, `mutate`, `syncs`)
    #[arg(long, value_name = "MODE", default_value = "always")]
    pub(super) sync: SyncMode,
    /// Use records of this kind
    #[arg(long, default_value = "words")]
    pub(super) records: Records,
    /// Create real files in DIR [default: in memory; on a disk for scenarios of syncs]
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(super) json: JsonArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Records {
    Words,
    Bytes,
    /// Keys of 16 bytes, values of 32: `plush` only
    Wide,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Medium {
    Pmem,
    Disk,
}

impl From<Records> for scenarios::Records {
    fn from(records: Records) -> Self {
        match records {
            Records::Words => Self::Words,
            Records::Bytes => Self::Bytes,
            Records::Wide => Self::Wide,
        }
    }
}

impl From<Medium> for CrashModel {
    fn from(medium: Medium) -> Self {
        match medium {
            Medium::Pmem => Self::Pmem,
            Medium::Disk => Self::Disk,
        }
    }
}

pub(super) fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
