//! Every table that can be measured. A new one is a [`Design`] here and a line in [`DESIGNS`].

use icefield::{DashEh, Result};

use crate::table::{BenchTable, Call, Cost, Design, Ours, Place, Setup};

/// All designs, in the order of results.
pub(crate) const DESIGNS: &[&dyn Design] = &[&Dash];

/// Dash with extendible hashing.
struct Dash;

impl Design for Dash {
    fn name(&self) -> &'static str {
        "dash-eh"
    }

    fn create(&self, place: &Place, setup: Setup) -> Result<Box<dyn BenchTable>> {
        let mut options = DashEh::<u64, u64>::options()
            .capacity(setup.capacity)
            .hash_seed([setup.seed, !setup.seed]);
        if let Some(stash) = setup.stash_buckets {
            options = options.stash_buckets(stash);
        }
        Ok(match place {
            Place::Memory => Box::new(Ours(options.in_memory()?)),
            Place::Dir { path, durability } => {
                Box::new(Ours(options.durability(*durability).create(path)?))
            }
            Place::Simulated(sim) => Box::new(Ours(options.create_on(sim.clone())?)),
        })
    }

    fn open(&self, place: &Place) -> Result<Box<dyn BenchTable>> {
        let options = DashEh::<u64, u64>::options();
        Ok(match place {
            Place::Memory => Box::new(Ours(options.in_memory()?)),
            Place::Dir { path, durability } => {
                Box::new(Ours(options.durability(*durability).open(path)?))
            }
            Place::Simulated(sim) => Box::new(Ours(options.open_on(sim.clone())?)),
        })
    }

    /// The costs in the header of `icefield::dash`. The directory and the headers of our sizes stay in the cache and
    /// are not counted.
    fn cost(&self, call: Call) -> Cost {
        match call {
            // The first lines of two buckets, and the record's.
            Call::Get => Cost { reads: 3, writes: 0, fences: 0 },
            // No fingerprint matches, in 99 of 100 cases.
            Call::GetMiss => Cost { reads: 2, writes: 0, fences: 0 },
            // The record, then the metadata.
            Call::TryInsert | Call::Insert | Call::Put => Cost { reads: 2, writes: 2, fences: 2 },
            // One word in place.
            Call::Update | Call::Remove => Cost { reads: 3, writes: 1, fences: 1 },
            // The pair; the remove finds the insert's lines in the cache.
            Call::InsDel => Cost { reads: 3, writes: 3, fences: 3 },
        }
    }

    fn regions(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("table.ice", "root"),
            ("directory-0.ice", "directory"),
            ("directory-1.ice", "directory"),
            ("headers.ice", "segment-header"),
            ("segments.ice", "bucket"),
            ("chains.ice", "chain"),
            ("blobs.ice", "blob"),
            ("blobmap.ice", "blob"),
        ]
    }
}
