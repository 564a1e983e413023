//! A join index under measurement: built from all its records at once; a probe counts the pairs of a key.

use std::any::Any;
use std::time::Instant;

use icefield::storage::Medium as PmMedium;
use icefield::{Error, JoinIndex, JoinOptions, JoinSource, Result, Stats};

use crate::args::{Batch, Medium};
use crate::keys::{Tally, value_of};
use crate::machine::part;
use crate::stats::Histogram;
use crate::table::{Answers, BenchTable, Built, Call, Cost, Design, Mixed, Place, Setup};

pub(crate) struct SparHt;

/// Rows that a source passes on per call.
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

impl Design for SparHt {
    fn name(&self) -> &str {
        "join"
    }

    fn is_usual(&self) -> bool {
        false
    }

    fn is_built(&self) -> bool {
        true
    }

    fn lives_in(&self, _medium: Medium) -> bool {
        true
    }

    fn usual_medium(&self) -> Medium {
        Medium::Pmem
    }

    /// The index supports none of the calls of a map.
    fn offers(&self, _call: Call) -> bool {
        false
    }

    fn build(&self, place: &Place, setup: Setup, keys: &[u64], threads: usize) -> Built {
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

    fn create(&self, _place: &Place, _setup: Setup) -> Built {
        let detail =
            "join is built of all its records at once; see `icefield-bench list`".to_owned();
        Err(Error::InvalidOption { option: "tables", detail })
    }

    fn open(&self, place: &Place, threads: usize) -> Built {
        let options = JoinOptions::default().threads(threads);
        Ok(match place {
            Place::Memory => {
                let detail = "an index in memory does not outlive its process".to_owned();
                return Err(Error::InvalidOption { option: "medium", detail });
            }
            Place::Dir { path, durability, huge_pages } => {
                measured(options.durability(*durability).huge_pages(*huge_pages).open(path)?)
            }
            Place::Simulated(sim) => measured(options.open_on(sim.clone())?),
        })
    }

    fn cost(&self, _call: Call) -> Option<Cost> {
        None
    }

    /// The files of even and odd generations.
    fn regions(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("table.ice", "root"),
            ("base-0.ice", "base"),
            ("base-1.ice", "base"),
            ("delta-0.ice", "delta"),
            ("delta-1.ice", "delta"),
        ]
    }
}

/// Wraps an index. The threads of a measurement are pinned, so each probe runs on its calling thread.
fn measured<M: PmMedium>(index: JoinIndex<u64, M>) -> Box<dyn BenchTable> {
    index.set_threads(1);
    Box::new(Indexed(index))
}

struct Indexed<M: PmMedium>(JoinIndex<u64, M>);

impl<M: PmMedium> BenchTable for Indexed<M> {
    /// Supports reads only. A stream passes all keys at once, because the index has its own prefetch ring.
    fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally> {
        if !matches!(call, Call::Get | Call::GetMiss) {
            return Err(Error::Unsupported(format!("{call:?} of a join index")));
        }
        let mut hits = 0;
        match batch {
            Batch::Stream => hits = self.0.probe_count(keys)?,
            Batch::None | Batch::Of(_) => {
                for keys in keys.chunks(batch.size()) {
                    hits += self.0.probe_count(keys)?;
                }
            }
        }
        Ok(Tally { hits, sum: 0 })
    }

    fn answers(&self) -> Answers {
        Answers::Hits
    }

    fn run_mixed(&self, ops: &[Mixed], _batch: Batch) -> Result<Tally> {
        let mut tally = Tally::default();
        for op in ops {
            tally.add(self.run(op.call, &[op.key], Batch::None)?);
        }
        Ok(tally)
    }

    fn run_timed(&self, call: Call, keys: &[u64], times: &mut Histogram) -> Result<Tally> {
        let (mut tally, mut last) = (Tally::default(), Instant::now());
        for key in keys {
            tally.add(self.run(call, std::slice::from_ref(key), Batch::None)?);
            let now = Instant::now();
            times.saturating_record((now - last).as_nanos() as u64);
            last = now;
        }
        Ok(tally)
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
