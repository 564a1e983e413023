//! A join index under measurement. It is built from all its records at once; a probe counts the pairs of each key.

use std::any::Any;

use icefield::storage::Medium as PmMedium;
use icefield::{Error, JoinIndex, JoinOptions, JoinSource, Result, Stats};

use crate::adapter::{Adapter, Scratch, Shared};
use crate::prelude::*;

pub(crate) static JOIN: Design = Design {
    media: &[Medium::Pmem, Medium::Memory, Medium::Process, Medium::Disk, Medium::Sim],
    is_usual: false,
    calls: Some(&[]),
    // Two files each for base and delta store: those of even and of odd generations.
    regions: regions! {
        "table.ice" "root", "base-0.ice" "base", "base-1.ice" "base", "delta-0.ice" "delta",
        "delta-1.ice" "delta",
    },
    ..Design::new("join", Maker::Ours { create, open, build: Some(build) })
};

/// Number of rows that the source passes to the index per call.
const SHOWN: usize = 4096;

struct Rows<'a>(&'a [u64]);

impl JoinSource for Rows<'_> {
    fn read(
        &self,
        part_number: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()> {
        let mut values = Vec::with_capacity(SHOWN);
        for keys in self.0[part(self.0.len(), part_number, parts)].chunks(SHOWN) {
            values.clear();
            values.extend(keys.iter().copied().map(value_of));
            show(keys, &values)?;
        }
        Ok(())
    }
}

fn create(_place: &Place, _setup: Setup) -> Made {
    Err(unsupported(
        "tables",
        "join is built from all its records at once; `icefield-bench list` shows its experiments",
    ))
}

fn build(place: &Place, setup: Setup, keys: &[u64], threads: usize) -> Made {
    let seed = [setup.seed, !setup.seed];
    let options = JoinOptions::default().replace(true).hash_seed(seed).threads(threads);
    let rows = Rows(keys);
    Ok(match place {
        Place::Memory => measured(options.build_in_memory_from(&rows)?),
        Place::Dir { path, durability, huge_pages } => {
            let options = options.durability(*durability).huge_pages(*huge_pages);
            measured(options.build_from(path, &rows)?)
        }
        Place::Simulated(sim) => measured(options.build_on(sim.clone(), &rows)?),
    })
}

fn open(place: &Place, threads: usize) -> Made {
    let options = JoinOptions::default().threads(threads);
    Ok(match place {
        Place::Memory => {
            return Err(unsupported("medium", "an index in memory does not survive its process"));
        }
        Place::Dir { path, durability, huge_pages } => {
            measured(options.durability(*durability).huge_pages(*huge_pages).open(path)?)
        }
        Place::Simulated(sim) => measured(options.open_on(sim.clone())?),
    })
}

/// Wraps an index. The threads of a measurement are pinned, so each probe runs on its calling thread.
fn measured<M: PmMedium>(index: JoinIndex<u64, M>) -> Box<dyn crate::table::BenchTable> {
    index.set_threads(1);
    Box::new(Shared(Indexed(index)))
}

struct Indexed<M: PmMedium>(JoinIndex<u64, M>);

impl<M: PmMedium> Adapter for Indexed<M> {
    type Key = u64;

    fn one(&self, call: Call, key: u64, s: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        self.many(call, &[key], s, t)
    }

    fn many(&self, call: Call, keys: &[u64], _: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        if call != Call::Get {
            return Err(Error::Unsupported(format!("{call:?} of a join index")));
        }
        t.hits += self.0.probe_count(keys)?;
        Ok(())
    }

    /// A stream passes all keys at once, because the index has its own prefetch ring.
    fn chunk(&self, batch: Batch) -> usize {
        if batch == Batch::Stream { usize::MAX } else { batch.size() }
    }

    fn answers(&self) -> Answers {
        Answers::Hits
    }

    fn stats(&self) -> Stats {
        let Ok(stats) = self.0.stats() else { return Stats::default() };
        let mut told = Stats::default();
        told.len_estimate = stats.pairs;
        (told.storage_bytes, told.dram_bytes) = (stats.file_bytes, stats.dram_bytes);
        told.durability = stats.durability;
        told.details = vec![
            ("groups", stats.groups),
            ("filter_bits", stats.filter_bits_per_key),
            ("filter_pass_ppm", (stats.filter_pass_rate * 1e6) as u64),
        ];
        told
    }

    fn index(&self) -> Option<&JoinIndex<u64>> {
        (&self.0 as &dyn Any).downcast_ref()
    }
}
