//! The options of a run of crash scenarios.

use std::sync::Arc;
use std::time::Instant;

use icefield::SyncMode;
use icefield::storage::sim::{Model, Mutation, SiteLog};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct CrashOptions {
    /// The seed of the first history.
    pub seed: u64,
    /// Minimum number of images to check.
    pub states: u64,
    /// The crash model of the medium.
    pub model: Model,
    /// Determines when writes are acknowledged, under [`Model::Disk`].
    pub sync: SyncMode,
    /// Steps in a history.
    pub length: usize,
    /// Keys in a history.
    pub keys: usize,
    /// All images of a crash point are checked if there are at most this many.
    pub exhaustive: u64,
    /// Images to check at any other crash point.
    pub samples: u64,
    /// One image in this number is crashed again during its recovery.
    pub recover_one_in: u64,
    /// Also run histories of several threads.
    pub threads: bool,
    /// Shorten the first failing history.
    pub shrink: bool,
    /// Number of violations that ends the run.
    pub enough: u64,
    /// Time at which the run ends in any case.
    pub deadline: Option<Instant>,
    /// The mutation to apply to one code site.
    pub mutation: Option<Arc<Mutation>>,
    /// Collects the code sites that the run reaches, if set.
    pub sites: Option<SiteLog>,
}

impl Default for CrashOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            states: 20_000,
            model: Model::Pmem,
            sync: SyncMode::Always,
            length: 30,
            keys: 14,
            exhaustive: 64,
            samples: 16,
            recover_one_in: 12,
            threads: true,
            shrink: true,
            enough: 3,
            deadline: None,
            mutation: None,
            sites: None,
        }
    }
}
