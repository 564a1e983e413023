//! What all experiments of a run share: options with their defaults, places, the clock, the output.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use icefield::Durability;
use icefield::pm::sim::{Sim, SimOptions};

use crate::args::{Args, Batch, Medium};
use crate::designs::DESIGNS;
use crate::keys::{KeySpace, Tally};
use crate::limit::{Arena, Loop, Pace, Pages};
use crate::machine::{Machine, part};
use crate::output::Output;
use crate::place::{RemovedDir, Scratch};
use crate::row::Row;
use crate::table::{BenchTable, Call, Design, Place, Setup};
use crate::{Error, Outcome};

/// A run.
pub(crate) struct Session {
    pub args: Args,
    pub output: Output,
    pub machine: Machine,
    pub designs: Vec<&'static dyn Design>,
    pub space: KeySpace,
    parent: PathBuf,
    scratch: Scratch,
    places: Cell<u64>,
    /// Whether every answer so far was right.
    pub sound: bool,
}

/// A table and the directory that goes away with it.
pub(crate) struct Placed {
    // Declared, and so dropped, before its directory.
    pub table: Box<dyn BenchTable>,
    pub place: Place,
    _dir: RemovedDir,
}

impl Session {
    pub fn new(args: Args) -> Outcome<Self> {
        if args.peers.iter().any(|peer| peer != "none") {
            return Err(Error::option("peers", "this build has none; say `none`"));
        }
        for (option, zero) in [("repeat", args.repeat == 0), ("threads", args.threads.contains(&0))]
        {
            if zero {
                return Err(Error::option(option, "must be at least 1"));
            }
        }
        let parent = args.dir.clone().unwrap_or_else(default_dir);
        Ok(Self {
            output: Output::open(&args)?,
            machine: Machine::detect(),
            designs: chosen_designs(&args.tables)?,
            space: KeySpace::new(args.seed),
            scratch: Scratch::new(&parent)?,
            parent,
            places: Cell::new(0),
            sound: true,
            args,
        })
    }

    /// The medium asked for, or persistent memory.
    pub fn medium(&self) -> Medium {
        self.args.medium.unwrap_or(Medium::Pmem)
    }

    /// The number of records asked for, or what is usual for `medium`.
    pub fn keys(&self, medium: Medium) -> u64 {
        self.keys_or(match medium {
            Medium::Memory => 32_000_000,
            Medium::Process | Medium::Pmem | Medium::Disk => 8_000_000,
            Medium::Sim => 200_000,
        })
    }

    /// The number of records asked for, or `usual`.
    pub fn keys_or(&self, usual: u64) -> u64 {
        let scale = if self.args.quick { 100 } else { 1 };
        self.args.keys.unwrap_or((usual / scale).max(1_000))
    }

    pub fn ops(&self, keys: u64) -> u64 {
        self.args.ops.unwrap_or(keys)
    }

    pub fn repeat(&self) -> usize {
        if self.args.quick { 1 } else { self.args.repeat }
    }

    /// Each number of threads to measure.
    pub fn threads(&self) -> Vec<usize> {
        let cores = self.machine.cores();
        match self.args.threads.as_slice() {
            [] if cores == 1 => vec![1],
            [] => vec![1, cores],
            asked => asked.to_vec(),
        }
    }

    /// Each way of handing over operations to measure.
    pub fn batches(&self, usual: &[Batch]) -> Vec<Batch> {
        if self.args.batch.is_empty() { usual.to_vec() } else { self.args.batch.clone() }
    }

    pub fn progress(&self, text: &str) {
        self.output.progress(text);
    }

    /// A row of `design` with what the options say.
    pub fn row(&self, experiment: &'static str, design: &dyn Design, medium: Medium) -> Row {
        let mut row = Row {
            experiment,
            table: design.name().to_owned(),
            op: experiment,
            medium: Some(medium.name()),
            ..Row::default()
        };
        if medium == Medium::Pmem {
            row.extra("backing", backing(&self.parent));
        }
        row
    }

    fn fresh_place(&self, medium: Medium) -> Place {
        match medium.durability() {
            None => Place::Simulated(Sim::new(counting_sim(self.args.seed))),
            Some(Durability::Memory) => Place::Memory,
            Some(durability) => Place::Dir { path: self.fresh_path(), durability },
        }
    }

    /// A path in this run's directory that nothing uses.
    pub fn fresh_path(&self) -> PathBuf {
        let number = self.places.get();
        self.places.set(number + 1);
        self.scratch.entry(number)
    }

    /// A new table.
    pub fn create(&self, design: &dyn Design, medium: Medium, setup: Setup) -> Outcome<Placed> {
        let place = self.fresh_place(medium);
        let dir = RemovedDir(match &place {
            Place::Dir { path, .. } => Some(path.clone()),
            _ => None,
        });
        Ok(Placed { table: design.create(&place, setup)?, place, _dir: dir })
    }

    /// The first of the stash sizes asked for: for experiments that do not sweep them.
    pub fn setup(&self, capacity: u64) -> Setup {
        Setup {
            capacity,
            stash_buckets: self.args.stash_buckets.first().copied(),
            seed: self.args.seed,
        }
    }

    /// A table that is sized for the keys and holds them: `--keys`, or `--fill` of its resize point. Gives how many.
    pub fn create_loaded(&self, design: &dyn Design, medium: Medium) -> Outcome<(Placed, u64)> {
        let mut keys = self.keys(medium);
        let placed = self.create(design, medium, self.setup(keys))?;
        if let Some(fill) = self.args.fill {
            keys = ((placed.table.stats().capacity as f64 * fill) as u64).max(1);
        }
        self.load(&*placed.table, 0..keys)?;
        Ok((placed, keys))
    }

    /// Inserts the keys numbered `range`, the fast way.
    pub fn load(&self, table: &dyn BenchTable, range: std::ops::Range<u64>) -> Outcome {
        self.progress(&format!("loading {} records", range.end - range.start));
        let threads = self.machine.cores();
        let (space, count) = (self.space, (range.end - range.start) as usize);
        let (_, parts) = self.machine.run(threads, |thread| {
            let part = part(count, thread, threads);
            let mut hits = 0;
            // In steps: a table of any size loads with a small array of keys.
            for step in part.clone().step_by(LOAD_STEP) {
                let end = (step + LOAD_STEP).min(part.end);
                let keys = space.keys(range.start + step as u64..range.start + end as u64);
                hits += table.run(Call::TryInsert, &keys, Batch::Stream)?.hits;
            }
            Ok::<u64, icefield::Error>(hits)
        });
        let loaded: u64 = parts.into_iter().sum::<Result<u64, _>>()?;
        if loaded != count as u64 {
            let what = format!("loading {count} new records, the table took {loaded} for new");
            return Err(Error::failed(what));
        }
        Ok(())
    }

    /// Makes `call` for all `keys` on so many threads; gives the time and what was answered.
    pub fn timed(
        &self,
        table: &dyn BenchTable,
        call: Call,
        keys: &[u64],
        threads: usize,
        batch: Batch,
    ) -> Outcome<(Duration, Tally)> {
        let (time, parts) = self.machine.run(threads, |thread| {
            table.run(call, &keys[part(keys.len(), thread, threads)], batch)
        });
        let mut tally = Tally::default();
        for part in parts {
            tally.add(part?);
        }
        Ok((time, tally))
    }

    /// Notes a wrong answer; the run goes on and ends with a bad status.
    pub fn check(&mut self, what: &str, found: Tally, expected: Tally) {
        if found != expected {
            self.sound = false;
            self.output.warn(&format!(
                "WRONG ANSWERS from {what}: {} hits with sum {:#x}, not {} with {:#x}",
                found.hits, found.sum, expected.hits, expected.sum
            ));
        }
    }

    /// Memory like that of a table on `medium`, of the same size.
    pub fn arena(&self, medium: Medium, bytes: u64) -> Outcome<(Arena, RemovedDir)> {
        self.progress("touching memory for the ceiling");
        Ok(match medium.durability() {
            None | Some(Durability::Memory) => {
                (Arena::anonymous(bytes, Pages::AsMapped)?, RemovedDir(None))
            }
            Some(durability) => {
                let path = self.fresh_path();
                (Arena::in_dir(&path, durability, bytes)?, RemovedDir(Some(path)))
            }
        })
    }

    /// How long so many operations of a bare loop take, over as many threads.
    pub fn timed_loop(
        &self,
        bare: Loop,
        arena: &Arena,
        ops: usize,
        threads: usize,
        seed: u64,
    ) -> Duration {
        let seed = self.args.seed.wrapping_add(seed << 8);
        let run = |thread| {
            bare.run(arena, part(ops, thread, threads).len(), seed.wrapping_add(thread as u64))
        };
        self.machine.run(threads, run).0
    }
}

/// Keys in one step of loading, per thread.
const LOAD_STEP: usize = 1 << 16;

/// A simulated medium that counts, and keeps no crash images.
pub(crate) fn counting_sim(seed: u64) -> SimOptions {
    SimOptions {
        seed,
        recording: false,
        counting: true,
        region_bytes: 1 << 34,
        ..SimOptions::default()
    }
}

/// How a bare loop hides latency as a table does under `batch`.
pub(crate) fn pace(batch: Batch) -> Pace {
    match batch {
        Batch::None => Pace::Single,
        Batch::Of(size) => Pace::Batch(size),
        Batch::Stream => Pace::Ring(64),
    }
}

/// The loop that no table can beat with `call` on `medium`; `None` where no such loop says anything.
pub(crate) fn ceiling(call: Call, medium: Medium, batch: Batch) -> Option<Loop> {
    match (call, medium) {
        (_, Medium::Disk | Medium::Sim) => None,
        (Call::Get | Call::GetMiss, _) => Some(Loop::Read(pace(batch))),
        (_, Medium::Memory | Medium::Process) => Some(Loop::Cas(pace(batch))),
        (_, Medium::Pmem) => Some(Loop::Persist(if batch == Batch::None { 1 } else { 32 })),
    }
}

pub(crate) fn chosen_designs(names: &[String]) -> Outcome<Vec<&'static dyn Design>> {
    if names.is_empty() {
        return Ok(DESIGNS.to_vec());
    }
    let find = |name: &String| -> Outcome<&'static dyn Design> {
        let known = || DESIGNS.iter().map(|design| design.name()).collect::<Vec<_>>().join(", ");
        let found = DESIGNS.iter().find(|design| design.name() == name);
        let unknown = || Error::option("tables", format!("`{name}` is none of {}", known()));
        found.copied().ok_or_else(unknown)
    };
    names.iter().map(find).collect()
}

fn default_dir() -> PathBuf {
    let shared_memory = Path::new("/dev/shm");
    if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() }
}

/// What `pmem` results stand on, in words.
fn backing(dir: &Path) -> &'static str {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    match rustix::fs::statfs(dir) {
        #[allow(
            clippy::unnecessary_cast,
            reason = "the field's type differs between architectures"
        )]
        Ok(stat) if stat.f_type as i64 == TMPFS_MAGIC => {
            "tmpfs: real flush instructions, DRAM behind them"
        }
        _ => "ordinary file: real flush instructions, page cache behind them",
    }
}
