//! The shared state of a run's experiments: options with their defaults, places of tables, checks, output.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use icefield::Durability;
use icefield::storage::sim::{Sim, SimOptions};

use crate::choice::{chosen_designs, design_named, fits, named};
use crate::frames;
use crate::limit::{Arena, Loop, Pages};
use crate::machine::Machine;
use crate::output::Output;
use crate::peers;
use crate::place::Scratch;
use crate::prelude::*;
use crate::table::Levels;

pub(crate) struct Session {
    /// The name of the running experiment.
    pub experiment: &'static str,
    pub args: Args,
    pub output: Output,
    pub machine: Machine,
    /// The tables to measure: ours, then the peers.
    pub designs: Vec<DesignRef>,
    /// The number of our tables that the options select. They are the first designs; [`Session::invite`] replaces the
    /// others.
    chosen: usize,
    peers: Vec<DesignRef>,
    pub space: KeySpace,
    parent: PathBuf,
    scratch: Scratch,
    places: Cell<u64>,
    /// True if tables are created with a fixed size.
    pub fixed_size: bool,
    /// Options for the first levels of tables with levels; `None` for the table's defaults.
    pub levels: Option<Levels>,
    /// The capacity of a table as a multiple of its number of keys.
    pub room: f64,
    pub records: Records,
    /// The number of records in our table that was loaded last.
    loaded: Cell<Option<u64>>,
    /// The tables that gave a wrong answer.
    wrong: RefCell<BTreeSet<&'static str>>,
}

/// The number of threads and the batch of a measurement.
pub(crate) type Setting = (usize, Batch);

/// The most threads that an option may ask for; a larger number is rejected as a typing error.
const MOST_THREADS: usize = 1 << 14;
/// Limits under `--quick`: records of a table, and operations of a measurement.
const QUICK_KEYS: u64 = 4_000_000;
const QUICK_OPS: u64 = 1_000_000;
/// Number of keys in one step of loading, per thread.
const LOAD_STEP: usize = 1 << 16;

impl Session {
    pub fn new(args: Args) -> Outcome<Self> {
        for (option, zero) in [("repeat", args.repeat == 0), ("threads", args.threads.contains(&0))]
        {
            if zero {
                return Err(Error::option(option, "must be at least 1"));
            }
        }
        if args.threads.iter().any(|&threads| threads > MOST_THREADS) {
            return Err(Error::option("threads", format!("must be at most {MOST_THREADS}")));
        }
        let medium = args.medium.or(args.sync.map(|_| Medium::Disk));
        let args = Args { medium, ..args };
        let parent = args.dir.clone().unwrap_or_else(|| default_dir(medium));
        let (chosen, peers) = (chosen_designs(&args)?, peers::chosen(&args)?);
        Ok(Self {
            experiment: "",
            output: Output::open(&args)?,
            machine: Machine::detect(),
            chosen: chosen.len(),
            designs: [chosen, peers.clone()].concat(),
            peers,
            space: KeySpace::new(args.seed),
            scratch: Scratch::new(&parent)?,
            parent,
            places: Cell::new(0),
            fixed_size: false,
            levels: None,
            room: 1.0,
            records: Records::WORDS,
            loaded: Cell::new(None),
            wrong: RefCell::default(),
            args,
        })
    }

    pub fn is_sound(&self) -> bool {
        self.wrong.borrow().is_empty()
    }

    /// Sets the tables to measure from here on: the chosen ones, `others`, and the peers if `peers` is set. Replaces
    /// the tables of an earlier call.
    pub fn invite(&mut self, peers: bool, others: &[DesignRef]) {
        self.designs.truncate(self.chosen);
        self.designs.extend(others);
        if peers {
            self.designs.extend(&self.peers);
        }
    }

    /// Returns the medium from the options, or the usual one of `design`.
    pub fn medium(&self, design: DesignRef) -> Medium {
        self.args.medium.filter(|_| !design.is_peer()).unwrap_or(design.usual_medium())
    }

    /// Returns the tables that support all of `calls`, without single-threaded ones when `threads` is above 1.
    ///
    /// # Errors
    /// No table supports them.
    pub fn contenders(&self, calls: &[Call], threads: usize) -> Outcome<Vec<DesignRef>> {
        let mut designs = named(self.designs.iter().copied(), |design| {
            calls.iter().all(|call| design.offers(*call))
        })?;
        designs.retain(|design| threads == 1 || !design.is_for_one_thread);
        Ok(designs)
    }

    /// Returns our own tables that support `medium`.
    ///
    /// # Errors
    /// No table of ours supports the medium.
    pub fn ours_on(&self, medium: Medium) -> Outcome<Vec<DesignRef>> {
        named(self.designs.iter().copied(), |design| !design.is_peer() && design.lives_in(medium))
    }

    fn chosen_peers(&self) -> impl Iterator<Item = DesignRef> {
        self.designs.iter().copied().filter(|design| design.is_peer())
    }

    /// Returns our table of this name, even if `--tables` does not name it.
    pub fn our(&self, name: &str) -> Outcome<DesignRef> {
        Ok(chosen_designs(&Args { tables: vec![name.to_owned()], ..self.args.clone() })?[0])
    }

    /// Returns the tables that `--tables` names, or those of `usual` that support the medium of the options; and
    /// the peers.
    pub fn designs_or(&self, usual: &[&str]) -> Vec<DesignRef> {
        if !self.args.tables.is_empty() {
            return self.designs.clone();
        }
        let ours = usual.iter().filter_map(|name| design_named(name));
        ours.filter(|design| fits(&self.args, design)).chain(self.chosen_peers()).collect()
    }

    /// Returns the medium of tables in files: that of the options, or `pmem`.
    ///
    /// # Errors
    /// The medium of the options has no files.
    pub fn medium_of_files(&self) -> Outcome<(Medium, Durability)> {
        let medium = self.args.medium.unwrap_or(Medium::Pmem);
        let durability = medium.durability().filter(|_| medium != Medium::Memory);
        let durability = durability
            .ok_or_else(|| Error::option("medium", "needs files: process, pmem or disk"))?;
        Ok((medium, durability))
    }

    /// Returns the number of records from the options, or the default for `medium`.
    pub fn keys(&self, medium: Medium) -> u64 {
        self.keys_or(match medium {
            Medium::Memory => 32_000_000,
            Medium::Process | Medium::Pmem | Medium::Disk => 8_000_000,
            Medium::Sim => 200_000,
        })
    }

    /// Returns the number of records from the options, or `usual`.
    pub fn keys_or(&self, usual: u64) -> u64 {
        self.args.keys.unwrap_or(if self.args.quick { usual.min(QUICK_KEYS) } else { usual })
    }

    pub fn ops(&self, keys: u64) -> u64 {
        self.args.ops.unwrap_or(if self.args.quick { keys.min(QUICK_OPS) } else { keys })
    }

    pub fn repeat(&self) -> usize {
        if self.args.quick { 1 } else { self.args.repeat }
    }

    /// Returns the points of a sweep: those asked for, or all; with `--quick` the first, the middle and the last.
    pub fn points<T: Copy>(&self, asked: &[T], all: &[T]) -> Vec<T> {
        match (self.args.quick, all) {
            _ if !asked.is_empty() => asked.to_vec(),
            (true, [first, .., last]) => vec![*first, all[all.len() / 2], *last],
            _ => all.to_vec(),
        }
    }

    /// Returns the numbers of threads to measure.
    pub fn threads(&self) -> Vec<usize> {
        let cores = self.machine.cores();
        match self.args.threads.as_slice() {
            [] if cores == 1 => vec![1],
            [] => vec![1, cores],
            asked => asked.to_vec(),
        }
    }

    /// Returns the batch sizes to measure.
    pub fn batches(&self, usual: &[Batch]) -> Vec<Batch> {
        if self.args.batch.is_empty() { usual.to_vec() } else { self.args.batch.clone() }
    }

    /// Returns each number of threads with each batch.
    pub fn settings(&self, usual: &[Batch]) -> Vec<Setting> {
        let batches = self.batches(usual);
        let with = |threads| batches.iter().map(move |batch| (threads, *batch));
        self.threads().into_iter().flat_map(with).collect()
    }

    pub fn progress(&self, text: &str) {
        self.output.progress(text);
    }

    /// Describes the storage behind the files of persistent tables.
    pub fn backing(&self) -> &'static str {
        backing(&self.parent)
    }

    /// Returns a row for `design`, filled in from the options.
    pub fn row(&self, design: DesignRef, medium: Medium) -> Row {
        let mut row = Row::new(self.experiment, design.name);
        (row.peer, row.medium) = (design.is_peer(), Some(medium.name().to_owned()));
        if medium == Medium::Pmem {
            row.extra("backing", self.backing());
            row.extra("huge_pages", !self.args.small_pages);
        }
        if self.args.helper && design.name == "plush" && medium != Medium::Disk {
            row.extra("helper", true);
        }
        if medium == Medium::Disk {
            row.extra("sync", self.args.sync.unwrap_or_default().to_string());
        }
        row
    }

    /// Measures `designs` in turns, once per repeat, and returns a row for each. `one` measures a design and adds
    /// the samples to its row.
    pub fn rotate(
        &mut self,
        designs: &[DesignRef],
        (threads, batch): Setting,
        mut one: impl FnMut(&mut Self, DesignRef, u64, &mut Row) -> Outcome,
    ) -> Outcome<Vec<Row>> {
        let row = |design: &DesignRef| {
            let mut row = self.row(design, self.medium(design));
            (row.threads, row.batch) = (Some(threads), Some(batch));
            row
        };
        let mut rows: Vec<_> = designs.iter().map(row).collect();
        for round in 0..self.repeat() {
            for (design, row) in designs.iter().zip(&mut rows) {
                let experiment = self.experiment;
                self.progress(&format!("{experiment} {}: {threads} threads", design.name));
                one(self, design, round as u64, row)?;
            }
        }
        Ok(rows)
    }

    /// Returns an unused location on `medium`, and the guard that removes it.
    pub fn place(&self, medium: Medium) -> (Place, RemovedDir) {
        match medium.durability() {
            None => (Place::Simulated(Sim::new(counting_sim(self.args.seed))), RemovedDir(None)),
            Some(Durability::Memory) => (Place::Memory, RemovedDir(None)),
            Some(durability) => {
                let (path, dir) = self.fresh_dir();
                (Place::Dir { path, durability, huge_pages: self.args.huge_pages() }, dir)
            }
        }
    }

    /// Returns an unused path in the directory of this run, and the guard that removes it.
    pub fn fresh_dir(&self) -> (PathBuf, RemovedDir) {
        let number = self.places.get();
        self.places.set(number + 1);
        let path = self.scratch.entry(number);
        (path.clone(), RemovedDir(Some(path)))
    }

    pub fn create(&self, design: DesignRef, medium: Medium, setup: Setup) -> Outcome<Placed> {
        let (place, dir) = self.place(medium);
        Ok(Placed { table: design.create(&place, setup)?, design, place, dir })
    }

    /// Returns the setup of a table for `capacity` records. If an option has several values, which some experiments
    /// sweep, the setup contains the first one.
    pub fn setup(&self, capacity: u64) -> Setup {
        Setup {
            fixed_size: self.fixed_size,
            levels: self.levels,
            records: self.records,
            ..setup(&self.args, capacity)
        }
    }

    /// Creates a table and loads it with the number of keys from the options; with `--fill`, up to that share of its
    /// resize point. Returns the number of records. The resize point of a peer is unknown, so with `--fill` a peer gets
    /// as many records as our last table.
    pub fn create_loaded(&self, design: DesignRef) -> Outcome<(Placed, u64)> {
        let medium = self.medium(design);
        let mut keys = self.keys(medium);
        let placed = self.create(design, medium, self.setup((keys as f64 * self.room) as u64))?;
        if let Some(fill) = self.args.fill {
            keys = match design.is_peer() {
                true => self.loaded.get().unwrap_or(keys),
                false => ((placed.stats().capacity as f64 * fill) as u64).max(1),
            };
        }
        self.load(&placed, 0..keys)?;
        if !design.is_peer() {
            self.loaded.set(Some(keys));
        }
        Ok((placed, keys))
    }

    /// Creates an empty table for about `keys` records. Also returns the exact number of records that use the share
    /// `fill` of its slots, or of its resize point if it cannot fill all slots.
    pub fn create_for_fill(
        &self,
        design: DesignRef,
        (medium, keys): (Medium, u64),
        (fill, setup): (f64, Setup),
    ) -> Outcome<(Placed, u64)> {
        let capacity = (keys as f64 / fill.max(0.01)).ceil() as u64;
        let placed = self.create(design, medium, Setup { capacity, filled_up: true, ..setup })?;
        let records = (placed.stats().capacity as f64 * fill) as u64;
        Ok((placed, records.max(1)))
    }

    /// Inserts the keys numbered `range` on all cores.
    pub fn load(&self, placed: &Placed, range: Range<u64>) -> Outcome {
        let name = placed.design.name;
        self.progress(&format!("{name}: loading {} records", range.end - range.start));
        self.write(placed, Call::TryInsert, range)
    }

    /// Makes `call`, a write that returns no values, for the keys numbered `range` on all cores.
    pub fn write(&self, placed: &Placed, call: Call, range: Range<u64>) -> Outcome {
        let (space, count) = (self.space, (range.end - range.start) as usize);
        let (threads, table) = (self.machine.cores(), &**placed);
        let (_, parts) = self.run(table, threads, |thread| {
            let part = part(count, thread, threads);
            let mut found = Tally::default();
            // Generates the keys in steps, so that their array stays small for a table of any size.
            for step in part.clone().step_by(LOAD_STEP) {
                let end = (step + LOAD_STEP).min(part.end);
                let keys = space.keys(range.start + step as u64..range.start + end as u64);
                found.add(table.run(call, &keys, Batch::Stream)?);
            }
            Ok(Tally { sum: 0, ..found })
        });
        let expected = Tally { hits: count as u64, sum: 0 };
        self.check(placed.design, &format!("{call:?}"), sum(parts)?, expected);
        Ok(())
    }

    /// Does the same as [`Machine::run`], with calls of [`BenchTable::thread`] before and after.
    pub fn run<R: Send>(
        &self,
        table: &dyn BenchTable,
        threads: usize,
        work: impl Fn(usize) -> R + Sync,
    ) -> (Duration, Vec<R>) {
        let enter = |thread| table.thread(thread, true);
        let leave = |thread| table.thread(thread, false);
        self.machine.run_between(threads, enter, work, leave)
    }

    /// Prepares an empty table for measurement: looks up every key once, which maps the table's pages, and gives page
    /// frames to all touched memory. The table must hold none of the keys.
    pub fn touch(&self, table: &dyn BenchTable, keys: &[u64]) -> Outcome {
        self.timed(table, Call::GetMiss, keys, (self.machine.cores(), Batch::Stream))?;
        frames::fill()
    }

    /// Makes `call` for all `keys`. Returns the time and the answers.
    pub fn timed(
        &self,
        table: &dyn BenchTable,
        call: Call,
        keys: &[u64],
        (threads, batch): Setting,
    ) -> Outcome<(Duration, Tally)> {
        let (time, parts) = self.run(table, threads, |thread| {
            table.run(call, &keys[part(keys.len(), thread, threads)], batch)
        });
        Ok((time, sum(parts)?))
    }

    /// Makes `call` for all `keys`, and checks the answers. Returns the time.
    pub fn measured(
        &self,
        placed: &Placed,
        call: Call,
        keys: &[u64],
        setting: Setting,
    ) -> Outcome<Duration> {
        let (time, found) = self.timed(&**placed, call, keys, setting)?;
        self.check_call(placed, call, keys, found);
        Ok(time)
    }

    /// Runs the operations of each thread and checks the answers. They are correct if each key is present or absent as
    /// its operation requires. Returns the time.
    pub fn measured_mixed(
        &self,
        placed: &Placed,
        work: &[&[Mixed]],
        batch: Batch,
    ) -> Outcome<Duration> {
        let (time, found) = self.timed_mixed(placed, work, batch)?;
        let (mut expected, answers) = (Tally::default(), placed.answers());
        for op in work.iter().copied().flatten() {
            expected.add(answers.expected(op.call, &[op.key]));
        }
        self.check(placed.design, "mixed", found, expected);
        Ok(time)
    }

    /// Runs the operations of each thread. Returns the time and the answers.
    pub fn timed_mixed(
        &self,
        placed: &Placed,
        work: &[&[Mixed]],
        batch: Batch,
    ) -> Outcome<(Duration, Tally)> {
        let (time, parts) =
            self.run(&**placed, work.len(), |thread| placed.run_mixed(work[thread], batch));
        Ok((time, sum(parts)?))
    }

    /// Checks the answers of `call` for all `keys`.
    pub fn check_call(&self, placed: &Placed, call: Call, keys: &[u64], found: Tally) {
        let expected = placed.answers().expected(call, keys);
        self.check(placed.design, &format!("{call:?}"), found, expected);
    }

    /// Records a wrong answer. The run continues, marks every later row of the table, and exits with status 1.
    pub fn check(&self, design: DesignRef, what: &str, found: Tally, expected: Tally) {
        if found != expected {
            let (hits, sum) = (found.hits, found.sum);
            self.blame(
                design,
                &format!(
                    "{what}: {hits} hits with sum {sum:#x}, not {} with {:#x}",
                    expected.hits, expected.sum
                ),
            );
        }
    }

    /// Records that an impossible state was found in a table of `design`. The run continues as after a wrong answer.
    pub fn blame(&self, design: DesignRef, what: &str) {
        self.wrong.borrow_mut().insert(design.name);
        self.output.warn(&format!("WRONG ANSWERS from {}: {what}", design.name));
    }

    /// Writes a result.
    pub fn put(&mut self, mut row: Row) -> Outcome {
        row.settle();
        if self.wrong.borrow().contains(row.table.as_str()) {
            row.extra("wrong_answers", true);
        }
        self.output.row(row)
    }

    /// Writes results.
    pub fn put_all(&mut self, rows: Vec<Row>) -> Outcome {
        rows.into_iter().try_for_each(|row| self.put(row))
    }

    /// Returns `bytes` of memory for bare loops, of the same kind as the memory of a table on `medium`.
    pub fn arena(&self, medium: Medium, bytes: u64, pages: Pages) -> Outcome<(Arena, RemovedDir)> {
        self.progress("touching memory for the ceiling");
        Ok(match medium.durability() {
            None | Some(Durability::Memory) => (Arena::anonymous(bytes, pages)?, RemovedDir(None)),
            Some(durability) => {
                let (path, dir) = self.fresh_dir();
                (Arena::in_dir(&path, durability, bytes, self.args.huge_pages())?, dir)
            }
        })
    }

    /// Measures `ops` operations of a bare loop.
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

/// Returns the setup that the options describe.
pub(crate) fn setup(args: &Args, capacity: u64) -> Setup {
    Setup {
        capacity,
        stash_buckets: args.stash_buckets.first().copied(),
        yards: args.yards.first().copied(),
        filled_up: false,
        hash: args.hash.unwrap_or_default(),
        link_ratio: args.link_ratio.first().copied(),
        fixed_size: false,
        levels: None,
        helper: args.helper,
        sync: args.sync.unwrap_or_default(),
        records: Records::WORDS,
        seed: args.seed,
    }
}

/// A simulated medium that counts accesses and keeps no crash images.
pub(crate) fn counting_sim(seed: u64) -> SimOptions {
    SimOptions {
        seed,
        recording: false,
        counting: true,
        region_bytes: 1 << 34,
        ..SimOptions::default()
    }
}

fn default_dir(medium: Option<Medium>) -> PathBuf {
    let shared_memory = Path::new("/dev/shm");
    match medium {
        // Tables with `Durability::Disk` refuse files in memory.
        Some(Medium::Disk) => std::env::temp_dir(),
        _ if shared_memory.is_dir() => shared_memory.to_owned(),
        _ => std::env::temp_dir(),
    }
}

/// Describes the storage behind `pmem` results.
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
