//! What all experiments of a run share: options with their defaults, places, the clock, the output.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use icefield::Durability;
use icefield::pm::sim::{Sim, SimOptions};

use crate::args::{Args, Batch, Medium};
use crate::designs::DESIGNS;
use crate::frames;
use crate::keys::{KeySpace, Tally};
use crate::limit::{Arena, Loop, Pace, Pages};
use crate::machine::{Machine, part};
use crate::output::Output;
use crate::place::{RemovedDir, Scratch};
use crate::rival;
use crate::row::Row;
use crate::table::{BenchTable, Call, Design, Levels, Mixed, Place, Records, Setup};
use crate::{Error, Outcome};

/// A run.
pub(crate) struct Session {
    pub args: Args,
    pub output: Output,
    pub machine: Machine,
    /// Who takes part: our tables, then the peers.
    pub designs: Vec<&'static dyn Design>,
    /// How many of these are there for the whole session: those in front.
    chosen: usize,
    peers: Vec<&'static dyn Design>,
    pub space: KeySpace,
    parent: PathBuf,
    scratch: Scratch,
    places: Cell<u64>,
    /// Whether tables are made that never grow.
    pub fixed_size: bool,
    /// What tables of levels do for the first of them, if not as usual.
    pub levels: Option<Levels>,
    /// For how many times its keys a table is sized.
    pub room: f64,
    /// What records tables are made for.
    pub records: Records,
    /// How many records our last table was loaded with.
    loaded: Cell<Option<u64>>,
    /// Who answered wrongly.
    wrong: RefCell<BTreeSet<&'static str>>,
}

/// A table and the directory that goes away with it.
pub(crate) struct Placed {
    // Declared, and so dropped, before its directory.
    pub table: Box<dyn BenchTable>,
    pub place: Place,
    pub _dir: RemovedDir,
}

/// More threads than any machine has; a slip of the finger beyond.
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
        let (chosen, peers) = (chosen_designs(&args)?, rival::chosen(&args)?);
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

    /// Whether every answer so far was right.
    pub fn is_sound(&self) -> bool {
        self.wrong.borrow().is_empty()
    }

    /// Lets competitors and others take part from here on, besides those chosen; none but these.
    pub fn invite(&mut self, peers: bool, others: &[&'static dyn Design]) {
        self.designs.truncate(self.chosen);
        self.designs.extend(others);
        if peers {
            self.designs.extend(&self.peers);
        }
    }

    /// The medium asked for, or where `design` usually lives.
    pub fn medium(&self, design: &dyn Design) -> Medium {
        match self.args.medium {
            Some(medium) if !design.is_peer() => medium,
            _ => design.usual_medium(),
        }
    }

    /// Those that answer all of `calls`, of any number of threads if there are several.
    ///
    /// # Errors
    /// Nobody answers them.
    pub fn contenders(&self, calls: &[Call], threads: usize) -> Outcome<Vec<&'static dyn Design>> {
        let able = |design: &&&dyn Design| calls.iter().all(|call| design.offers(*call));
        let mut designs = named(self.designs.iter().filter(able).copied().collect())?;
        designs.retain(|design| threads == 1 || !design.is_for_one_thread());
        Ok(designs)
    }

    /// Our own tables that can live on `medium`.
    ///
    /// # Errors
    /// There is none.
    pub fn ours_on(&self, medium: Medium) -> Outcome<Vec<&'static dyn Design>> {
        let able = |design: &&&dyn Design| !design.is_peer() && design.lives_in(medium);
        named(self.designs.iter().filter(able).copied().collect())
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
        self.args.keys.unwrap_or(if self.args.quick { usual.min(QUICK_KEYS) } else { usual })
    }

    pub fn ops(&self, keys: u64) -> u64 {
        self.args.ops.unwrap_or(if self.args.quick { keys.min(QUICK_OPS) } else { keys })
    }

    pub fn repeat(&self) -> usize {
        if self.args.quick { 1 } else { self.args.repeat }
    }

    /// The points of a sweep: all of them, or, when it is to be quick, the first, the middle and the last.
    pub fn points<T: Copy>(&self, all: &[T]) -> Vec<T> {
        match (self.args.quick, all) {
            (true, [first, .., last]) => vec![*first, all[all.len() / 2], *last],
            _ => all.to_vec(),
        }
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

    /// Tables by name, whatever `--tables` says, with the peers.
    pub fn designs_named(&self, names: &[&str]) -> Outcome<Vec<&'static dyn Design>> {
        let tables = names.iter().map(|name| (*name).to_owned()).collect();
        let mut designs = chosen_designs(&Args { tables, ..self.args.clone() })?;
        designs.extend(self.designs.iter().copied().filter(|design| design.is_peer()));
        Ok(designs)
    }

    /// The tables that `--tables` names, else those of `usual` that can live where `--medium` says; with the peers.
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

    /// What stands behind the files of persistent tables.
    pub fn backing(&self) -> &'static str {
        backing(&self.parent)
    }

    /// A row of `design` with what the options say.
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

    /// A place on `medium` that nothing uses, and what removes it.
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

    /// A path in this run's directory that nothing uses.
    pub fn fresh_path(&self) -> PathBuf {
        let number = self.places.get();
        self.places.set(number + 1);
        self.scratch.entry(number)
    }

    /// A new table.
    pub fn create(&self, design: &dyn Design, medium: Medium, setup: Setup) -> Outcome<Placed> {
        let (place, dir) = self.place(medium);
        Ok(Placed { table: design.create(&place, setup)?, place, _dir: dir })
    }

    /// How to make a table of so many records; of options that some experiments sweep, the first one.
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

    /// A table that is sized for the keys and holds them: `--keys`, or `--fill` of its resize point. Gives how many.
    /// Peers, whose resize points nobody knows, hold as many as our last table.
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

    /// Inserts the keys numbered `range`, the fast way.
    pub fn load(
        &self,
        design: &'static dyn Design,
        table: &dyn BenchTable,
        range: std::ops::Range<u64>,
    ) -> Outcome {
        self.progress(&format!("{}: loading {} records", design.name(), range.end - range.start));
        self.write(design, table, Call::TryInsert, range)
    }

    /// Makes `call`, which writes and tells no values, for the keys numbered `range`, on all cores.
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
            // In steps: a table of any size loads with a small array of keys.
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

    /// [`Machine::run`], with the table told of the threads.
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

    /// Asks for every key once, which maps the pages of a table that holds none of them, and gives those of memory
    /// frames.
    pub fn touch(&self, table: &dyn BenchTable, keys: &[u64]) -> Outcome {
        self.timed(table, Call::GetMiss, keys, self.machine.cores(), Batch::Stream)?;
        frames::fill()
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
        let (time, parts) = self.run(table, threads, |thread| {
            table.run(call, &keys[part(keys.len(), thread, threads)], batch)
        });
        let mut tally = Tally::default();
        for part in parts {
            tally.add(part?);
        }
        Ok((time, tally))
    }

    /// Compares what `call` for all `keys` answered with what it had to.
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

    /// Notes a wrong answer; the run goes on, marks every later row of the table, and ends with a bad status.
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

    /// Compares what operations of several kinds answered, each of whose keys was as it expects it.
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

    /// Notes that `design` left something in a state that cannot be; see [`Session::check`].
    pub fn blame(&self, design: &'static dyn Design, what: &str) {
        self.wrong.borrow_mut().insert(design.name());
        self.output.warn(&format!("WRONG ANSWERS from {}: {what}", design.name()));
    }

    /// Takes a result.
    pub fn put(&mut self, mut row: Row) -> Outcome {
        if self.wrong.borrow().contains(row.table.as_str()) {
            row.extra("wrong_answers", true);
        }
        self.output.row(row)
    }

    /// Memory like that of a table on `medium`, of the same size.
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

/// Most records of a table, and most operations of a measurement, when it is to be quick.
const QUICK_KEYS: u64 = 4_000_000;
const QUICK_OPS: u64 = 1_000_000;

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

/// `designs`, unless there is none.
pub(crate) fn named(designs: Vec<&'static dyn Design>) -> Outcome<Vec<&'static dyn Design>> {
    match designs.as_slice() {
        [] => Err(Error::option("tables", "none of these tables can do this")),
        _ => Ok(designs),
    }
}

/// The tables that `--tables` names, or all that are usual and can live where `--medium` says.
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
        // Tables refuse it in memory.
        Some(Medium::Disk) => std::env::temp_dir(),
        _ if shared_memory.is_dir() => shared_memory.to_owned(),
        _ => std::env::temp_dir(),
    }
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
