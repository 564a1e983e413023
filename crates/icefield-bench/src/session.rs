//! The shared state of a run's experiments: options with their defaults, directories, timing, output.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use icefield::Durability;
use icefield::storage::sim::{Sim, SimOptions};

use crate::args::{Args, Batch, Medium};
use crate::designs::DESIGNS;
use crate::frames;
use crate::keys::{KeySpace, Tally};
use crate::limit::{Arena, Loop, Pace, Pages};
use crate::machine::{Machine, part};
use crate::output::Output;
use crate::peer_runner;
use crate::place::{RemovedDir, Scratch};
use crate::row::Row;
use crate::table::{BenchTable, Call, Design, Levels, Mixed, Place, Records, Setup};
use crate::{Error, Outcome};

pub(crate) struct Session {
    pub args: Args,
    pub output: Output,
    pub machine: Machine,
    /// The tables to measure: ours, then the peers.
    pub designs: Vec<&'static dyn Design>,
    /// The number of leading `designs` that take part in the whole session.
    chosen: usize,
    peers: Vec<&'static dyn Design>,
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
    /// The number of records loaded into the last table of ours.
    loaded: Cell<Option<u64>>,
    /// The tables that gave a wrong answer.
    wrong: RefCell<BTreeSet<&'static str>>,
}

/// A table and its directory, which is removed on drop.
pub(crate) struct Placed {
    // Field order matters: the table is dropped before its directory.
    pub table: Box<dyn BenchTable>,
    pub place: Place,
    pub _dir: RemovedDir,
}

/// The most threads that an option may ask for; a larger number is rejected as a typing error.
const MOST_THREADS: usize = 1 << 14;

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
        let (chosen, peers) = (chosen_designs(&args)?, peer_runner::chosen(&args)?);
        Ok(Self {
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
            records: Records::default(),
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
    pub fn invite(&mut self, peers: bool, others: &[&'static dyn Design]) {
        self.designs.truncate(self.chosen);
        self.designs.extend(others);
        if peers {
            self.designs.extend(&self.peers);
        }
    }

    /// Returns the medium from the options, or the usual one of `design`.
    pub fn medium(&self, design: &dyn Design) -> Medium {
        match self.args.medium {
            Some(medium) if !design.is_peer() => medium,
            _ => design.usual_medium(),
        }
    }

    /// Returns the tables that support all of `calls`, without single-threaded ones when `threads` is above 1.
    ///
    /// # Errors
    /// No table supports them.
    pub fn contenders(&self, calls: &[Call], threads: usize) -> Outcome<Vec<&'static dyn Design>> {
        let able = |design: &&&dyn Design| calls.iter().all(|call| design.offers(*call));
        let mut designs = named(self.designs.iter().filter(able).copied().collect())?;
        designs.retain(|design| threads == 1 || !design.is_for_one_thread());
        Ok(designs)
    }

    /// Returns our own tables that support `medium`.
    ///
    /// # Errors
    /// There are none.
    pub fn ours_on(&self, medium: Medium) -> Outcome<Vec<&'static dyn Design>> {
        let able = |design: &&&dyn Design| !design.is_peer() && design.lives_in(medium);
        named(self.designs.iter().filter(able).copied().collect())
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

    /// Returns the points of a sweep: all of them, or with `--quick` the first, the middle and the last.
    pub fn points<T: Copy>(&self, all: &[T]) -> Vec<T> {
        match (self.args.quick, all) {
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

    pub fn progress(&self, text: &str) {
        self.output.progress(text);
    }

    /// Returns the tables of these names, whatever `--tables` says, and the peers.
    pub fn designs_named(&self, names: &[&str]) -> Outcome<Vec<&'static dyn Design>> {
        let tables = names.iter().map(|name| (*name).to_owned()).collect();
        let mut designs = chosen_designs(&Args { tables, ..self.args.clone() })?;
        designs.extend(self.designs.iter().copied().filter(|design| design.is_peer()));
        Ok(designs)
    }

    /// Returns the tables that `--tables` names, or those of `usual` that support the medium of the options; and
    /// the peers.
    pub fn designs_or(&self, usual: &[&str]) -> Vec<&'static dyn Design> {
        if !self.args.tables.is_empty() {
            return self.designs.clone();
        }
        let fits =
            |design: &&dyn Design| self.args.medium.is_none_or(|medium| design.lives_in(medium));
        let named = |name: &&str| DESIGNS.iter().find(|design| design.name() == *name).copied();
        let ours = usual.iter().filter_map(named).filter(fits);
        ours.chain(self.designs.iter().copied().filter(|design| design.is_peer())).collect()
    }

    /// Describes the storage behind the files of persistent tables.
    pub fn backing(&self) -> &'static str {
        backing(&self.parent)
    }

    /// Returns a row for `design`, filled in from the options.
    pub fn row(&self, experiment: &'static str, design: &dyn Design, medium: Medium) -> Row {
        let mut row = Row {
            experiment,
            table: design.name().to_owned(),
            op: experiment,
            peer: design.is_peer(),
            medium: Some(medium.name()),
            ..Row::default()
        };
        if medium == Medium::Pmem {
            row.extra("backing", self.backing());
            row.extra("huge_pages", !self.args.small_pages);
        }
        if medium == Medium::Disk {
            row.extra("sync", self.args.sync.unwrap_or_default().to_string());
        }
        row
    }

    /// Returns an unused location on `medium`, and the guard that removes it.
    pub fn place(&self, medium: Medium) -> (Place, RemovedDir) {
        let place = self.fresh_place(medium);
        let dir = RemovedDir(match &place {
            Place::Dir { path, .. } => Some(path.clone()),
            _ => None,
        });
        (place, dir)
    }

    fn fresh_place(&self, medium: Medium) -> Place {
        match medium.durability() {
            None => Place::Simulated(Sim::new(counting_sim(self.args.seed))),
            Some(Durability::Memory) => Place::Memory,
            Some(durability) => {
                let huge_pages = self.args.huge_pages();
                Place::Dir { path: self.fresh_path(), durability, huge_pages }
            }
        }
    }

    /// Returns an unused path in the directory of this run.
    pub fn fresh_path(&self) -> PathBuf {
        let number = self.places.get();
        self.places.set(number + 1);
        self.scratch.entry(number)
    }

    pub fn create(&self, design: &dyn Design, medium: Medium, setup: Setup) -> Outcome<Placed> {
        let (place, dir) = self.place(medium);
        Ok(Placed { table: design.create(&place, setup)?, place, _dir: dir })
    }

    /// Returns the setup of a table for `capacity` records. Options that some experiments sweep get their first
    /// value.
    pub fn setup(&self, capacity: u64) -> Setup {
        Setup {
            capacity,
            stash_buckets: self.args.stash_buckets.first().copied(),
            yards: self.args.yards.first().copied(),
            filled_up: false,
            hash: self.args.hash.unwrap_or_default(),
            link_ratio: self.args.link_ratio.first().copied(),
            fixed_size: self.fixed_size,
            levels: self.levels,
            sync: self.args.sync.unwrap_or_default(),
            records: self.records,
            seed: self.args.seed,
        }
    }

    /// Creates a table and loads it, with the number of keys from the options or up to `--fill` of its resize
    /// point. Returns the number of records. The resize point of a peer is unknown, so a peer holds as many records
    /// as our last table.
    pub fn create_loaded(&self, design: &'static dyn Design) -> Outcome<(Placed, u64)> {
        let medium = self.medium(design);
        let mut keys = self.keys(medium);
        let placed = self.create(design, medium, self.setup((keys as f64 * self.room) as u64))?;
        if let Some(fill) = self.args.fill {
            keys = match design.is_peer() {
                true => self.loaded.get().unwrap_or(keys),
                false => ((placed.table.stats().capacity as f64 * fill) as u64).max(1),
            };
        }
        self.load(design, &*placed.table, 0..keys)?;
        if !design.is_peer() {
            self.loaded.set(Some(keys));
        }
        Ok((placed, keys))
    }

    /// Inserts the keys numbered `range` on all cores.
    pub fn load(
        &self,
        design: &'static dyn Design,
        table: &dyn BenchTable,
        range: std::ops::Range<u64>,
    ) -> Outcome {
        self.progress(&format!("{}: loading {} records", design.name(), range.end - range.start));
        self.write(design, table, Call::TryInsert, range)
    }

    /// Makes `call`, a write that returns no values, for the keys numbered `range` on all cores.
    pub fn write(
        &self,
        design: &'static dyn Design,
        table: &dyn BenchTable,
        call: Call,
        range: std::ops::Range<u64>,
    ) -> Outcome {
        let threads = self.machine.cores();
        let (space, count) = (self.space, (range.end - range.start) as usize);
        let (_, parts) = self.run(table, threads, |thread| {
            let part = part(count, thread, threads);
            let mut hits = 0;
            // In steps, so that the array of keys stays small for a table of any size.
            for step in part.clone().step_by(LOAD_STEP) {
                let end = (step + LOAD_STEP).min(part.end);
                let keys = space.keys(range.start + step as u64..range.start + end as u64);
                hits += table.run(call, &keys, Batch::Stream)?.hits;
            }
            Ok::<u64, icefield::Error>(hits)
        });
        let hits = parts.into_iter().sum::<Result<u64, _>>()?;
        let (found, expected) = (Tally { hits, sum: 0 }, Tally { hits: count as u64, sum: 0 });
        self.check(design, &format!("{call:?}"), found, expected);
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

    /// Looks up every key once in a table that holds none of them, which maps the table's pages; then gives frames
    /// to touched pages of memory.
    pub fn touch(&self, table: &dyn BenchTable, keys: &[u64]) -> Outcome {
        self.timed(table, Call::GetMiss, keys, self.machine.cores(), Batch::Stream)?;
        frames::fill()
    }

    /// Makes `call` for all `keys` on `threads` threads. Returns the time and the answers.
    pub fn timed(
        &self,
        table: &dyn BenchTable,
        call: Call,
        keys: &[u64],
        threads: usize,
        batch: Batch,
    ) -> Outcome<(Duration, Tally)> {
        let (time, parts) = self.run(table, threads, |thread| {
            table.run(call, &keys[part(keys.len(), thread, threads)], batch)
        });
        let mut tally = Tally::default();
        for part in parts {
            tally.add(part?);
        }
        Ok((time, tally))
    }

    /// Checks the answers of `call` for all `keys`.
    pub fn check_call(
        &self,
        design: &'static dyn Design,
        table: &dyn BenchTable,
        (call, keys): (Call, &[u64]),
        found: Tally,
    ) {
        let expected = table.answers().expected(call, keys);
        self.check(design, &format!("{call:?}"), found, expected);
    }

    /// Records a wrong answer. The run continues, marks every later row of the table, and exits with status 1.
    pub fn check(&self, design: &'static dyn Design, what: &str, found: Tally, expected: Tally) {
        if found != expected {
            self.wrong.borrow_mut().insert(design.name());
            self.output.warn(&format!(
                "WRONG ANSWERS from {} ({what}): {} hits with sum {:#x}, not {} with {:#x}",
                design.name(),
                found.hits,
                found.sum,
                expected.hits,
                expected.sum
            ));
        }
    }

    /// Checks the answers of a mixed phase in which each key was as its operation expects.
    pub fn check_mixed(
        &self,
        design: &'static dyn Design,
        table: &dyn BenchTable,
        ops: &[Mixed],
        found: Tally,
    ) {
        let mut expected = Tally::default();
        for op in ops {
            expected.add(table.answers().expected(op.call, &[op.key]));
        }
        self.check(design, "mixed", found, expected);
    }

    /// Records that `design` left an impossible state; see [`Session::check`].
    pub fn blame(&self, design: &'static dyn Design, what: &str) {
        self.wrong.borrow_mut().insert(design.name());
        self.output.warn(&format!("WRONG ANSWERS from {}: {what}", design.name()));
    }

    /// Writes a result.
    pub fn put(&mut self, mut row: Row) -> Outcome {
        if self.wrong.borrow().contains(row.table.as_str()) {
            row.extra("wrong_answers", true);
        }
        self.output.row(row)
    }

    /// Returns memory of the same kind and size as that of a table on `medium`.
    pub fn arena(&self, medium: Medium, bytes: u64, pages: Pages) -> Outcome<(Arena, RemovedDir)> {
        self.progress("touching memory for the ceiling");
        Ok(match medium.durability() {
            None | Some(Durability::Memory) => (Arena::anonymous(bytes, pages)?, RemovedDir(None)),
            Some(durability) => {
                let path = self.fresh_path();
                (
                    Arena::in_dir(&path, durability, bytes, self.args.huge_pages())?,
                    RemovedDir(Some(path)),
                )
            }
        })
    }

    /// Measures `ops` operations of a bare loop on `threads` threads.
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

/// Limits under `--quick`: records of a table, and operations of a measurement.
const QUICK_KEYS: u64 = 4_000_000;
const QUICK_OPS: u64 = 1_000_000;

/// Keys in one step of loading, per thread.
const LOAD_STEP: usize = 1 << 16;

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

/// Returns the pace of a bare loop that hides latency as a table does under `batch`.
pub(crate) fn pace(batch: Batch) -> Pace {
    match batch {
        Batch::None => Pace::Single,
        Batch::Of(size) => Pace::Batch(size),
        Batch::Stream => Pace::Ring(64),
    }
}

/// Returns the loop that bounds `call` on `medium`; `None` where a bare loop gives no meaningful bound.
pub(crate) fn ceiling(call: Call, medium: Medium, batch: Batch) -> Option<Loop> {
    match (call, medium) {
        (_, Medium::Disk | Medium::Sim) => None,
        (Call::Get | Call::GetMiss, _) => Some(Loop::Read(pace(batch))),
        (_, Medium::Memory | Medium::Process) => Some(Loop::Cas(pace(batch))),
        (_, Medium::Pmem) => Some(Loop::Persist(if batch == Batch::None { 1 } else { 32 })),
    }
}

/// Returns `designs`, or an error if it is empty.
pub(crate) fn named(designs: Vec<&'static dyn Design>) -> Outcome<Vec<&'static dyn Design>> {
    match designs.as_slice() {
        [] => Err(Error::option("tables", "none of these tables can do this")),
        _ => Ok(designs),
    }
}

/// Returns the tables that `--tables` names, or all usual ones that support the medium of the options.
pub(crate) fn chosen_designs(args: &Args) -> Outcome<Vec<&'static dyn Design>> {
    let fits = |design: &dyn Design| args.medium.is_none_or(|medium| design.lives_in(medium));
    let hashes = |design: &dyn Design| args.hash.is_none() || design.offers_hashes();
    if args.tables.is_empty() {
        let able = |design: &&&dyn Design| design.is_usual() && fits(**design) && hashes(**design);
        return named(DESIGNS.iter().filter(able).copied().collect());
    }
    let find = |name: &String| -> Outcome<&'static dyn Design> {
        let known = || DESIGNS.iter().map(|design| design.name()).collect::<Vec<_>>().join(", ");
        let found = DESIGNS.iter().find(|design| design.name() == name).copied();
        let unknown = || Error::option("tables", format!("`{name}` is none of {}", known()));
        let design = found.ok_or_else(unknown)?;
        if let Some(medium) = args.medium.filter(|medium| !design.lives_in(*medium)) {
            let (asked, usual) = (medium.name(), design.usual_medium().name());
            let detail = format!("{name} cannot live in {asked}; it usually lives in {usual}");
            return Err(Error::option("medium", detail));
        }
        if !hashes(design) {
            return Err(Error::option("hash", format!("{name} has one hash function")));
        }
        Ok(design)
    };
    args.tables.iter().map(find).collect()
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
