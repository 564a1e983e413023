//! The settings of the histories of a run.

use std::sync::Arc;

use icefield::SyncMode;
use icefield::storage::sim::{Model, SimOptions};

use super::machine::Machine;
use super::options::CrashOptions;
use super::step::{self, Draw};
use crate::rng::mix;

/// The settings that all histories of a run share.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) keys: Arc<[u64]>,
    pub(super) length: usize,
    pub(super) exhaustive: u64,
    pub(super) samples: u64,
    pub(super) recover_one_in: u64,
    /// Check only crash points whose images the mutation may have changed.
    pub(super) only_mutated: bool,
    /// Set if writes are acknowledged before they are durable. Then a crash may revert each key to a value that it had
    /// since the last sync.
    pub(super) relaxed: bool,
    pub(super) sim: SimOptions,
}

impl Plan {
    pub(super) fn new<M: Machine>(options: &CrashOptions) -> Self {
        Self {
            keys: step::universe(options.keys).into(),
            length: options.length,
            exhaustive: options.exhaustive,
            samples: options.samples,
            recover_one_in: options.recover_one_in.max(1),
            only_mutated: false,
            relaxed: options.model == Model::Disk && options.sync != SyncMode::Always,
            sim: SimOptions {
                model: options.model,
                sync: options.sync,
                mutation: options.mutation.clone(),
                sites: options.sites.clone(),
                exempt: M::EXEMPT,
                step_budget: 20_000_000,
                ..SimOptions::default()
            },
        }
    }

    pub(super) fn sim(&self, seed: u64) -> SimOptions {
        SimOptions { seed, free_fences: fences_are_free(seed), ..self.sim.clone() }
    }

    pub(super) fn draw<M: Machine>(&self, seed: u64) -> Draw<'_> {
        Draw::new(seed, &self.keys, M::SIMPLE).relaxed(self.relaxed)
    }
}

/// Returns whether the simulated medium of a seed reports fences as free, so that both implementations of batches are
/// tested.
pub(crate) fn fences_are_free(seed: u64) -> bool {
    mix(seed).is_multiple_of(4)
}
