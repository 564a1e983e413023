//! The options of a simulated medium.

use std::sync::Arc;

use super::model::Model;
use super::mutate::{Mutation, SiteLog};
use super::pool::Pool;
use crate::storage::commit::SyncMode;

/// The options of a simulated medium.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// The seed of garbage and yields.
    pub seed: u64,
    /// Determines which pending stores may survive a crash.
    pub model: Model,
    /// Determines when writes are acknowledged, under [`Model::Disk`]; `Every` syncs at pseudo-random moments.
    pub sync: SyncMode,
    /// Report to tables that fences cost nothing, under [`Model::Pmem`], so that tables need not share fences.
    pub free_fences: bool,
    /// Log stores, so that crash images can be taken and unrecorded stores found. Without it the medium is fast, but
    /// only suitable for examining an image.
    pub recording: bool,
    /// Count costs ([`super::Sim::counters`]).
    pub counting: bool,
    /// Record loads of words that other threads stored and that are not persistent yet ([`super::Sim::op_returned`]).
    pub detecting: bool,
    /// Also report a thread that *stores* anything while a word that it has read in the same operation is not
    /// persistent.
    pub strict_stores: bool,
    /// Regions in which the detector accepts loads of words that are not persistent.
    pub exempt: &'static [&'static str],
    /// Steps (loads, stores, waits) within one operation after which the medium panics with [`super::HANG`].
    pub step_budget: u64,
    /// Yield the processor at one in this number of steps; 0: never.
    pub yield_one_in: u32,
    /// The way to yield: the scheduler's yield, or a test's own choice of the thread that runs next.
    pub give_way: fn(),
    /// Refuse changes, as a table that is opened for reading only does. Stores made by opening and reading stay in
    /// this medium, as they stay in private pages on the real one.
    pub read_only: bool,
    /// The log of the sites in the code.
    pub sites: Option<SiteLog>,
    /// The change to one of the sites.
    pub mutation: Option<Arc<Mutation>>,
    /// Address space per region, a power of two.
    pub region_bytes: u64,
    /// The largest number of bytes of all regions together; a larger growth fails with [`crate::Error::NoSpace`].
    pub space_bytes: u64,
    /// The pool from which memory is taken and to which it is returned.
    pub pool: Pool,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            model: Model::Pmem,
            sync: SyncMode::Always,
            free_fences: false,
            recording: true,
            counting: false,
            detecting: false,
            strict_stores: false,
            exempt: &[],
            step_budget: 100_000_000,
            yield_one_in: 0,
            give_way: std::thread::yield_now,
            read_only: false,
            sites: None,
            mutation: None,
            // Miri allocates the address space in full.
            region_bytes: if cfg!(miri) { 1 << 18 } else { 1 << 24 },
            space_bytes: u64::MAX,
            pool: Pool::default(),
        }
    }
}
