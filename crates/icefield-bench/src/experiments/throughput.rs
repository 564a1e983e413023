//! One call, repeated: `get`, `get-miss`, `insert`, `put`, `populate`, `insdel`, `putheavy`, `delete`.

use std::time::Duration;

use serde_json::Value;

use super::growth::describe_space;
use crate::Outcome;
use crate::args::{Batch, Medium};
use crate::keys::Tally;
use crate::limit::{Arena, Loop};
use crate::machine::{mops, part};
use crate::place::RemovedDir;
use crate::row::{Row, rounded};
use crate::session::{Placed, Session, ceiling, pace};
use crate::stats::median;
use crate::table::{Call, Design};

/// The content of a table when the clock starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// All keys.
    Loaded,
    /// Empty, sized for all keys and touched.
    Sized,
    /// Empty, sized for 1024.
    Tiny,
}

pub(super) struct Spec {
    name: &'static str,
    call: Call,
    start: Start,
    /// True if each measurement needs a new table.
    uses_up: bool,
}

pub(super) const GET: Spec =
    Spec { name: "get", call: Call::Get, start: Start::Loaded, uses_up: false };
pub(super) const GET_MISS: Spec =
    Spec { name: "get-miss", call: Call::GetMiss, start: Start::Loaded, uses_up: false };
pub(super) const INSERT: Spec =
    Spec { name: "insert", call: Call::TryInsert, start: Start::Sized, uses_up: true };
pub(super) const PUT: Spec =
    Spec { name: "put", call: Call::Put, start: Start::Sized, uses_up: true };
pub(super) const POPULATE: Spec =
    Spec { name: "populate", call: Call::TryInsert, start: Start::Tiny, uses_up: true };
pub(super) const INSDEL: Spec =
    Spec { name: "insdel", call: Call::InsDel, start: Start::Loaded, uses_up: false };
pub(super) const PUTHEAVY: Spec =
    Spec { name: "putheavy", call: Call::PutHeavy, start: Start::Loaded, uses_up: false };
pub(super) const DELETE: Spec =
    Spec { name: "delete", call: Call::Remove, start: Start::Loaded, uses_up: true };

/// The number of keys that a table, and then each loop, processes per turn.
const TURN_KEYS: usize = 50_000;

const MOST_TURNS: usize = 32;

/// The approximate size of a grown table, for a loop's memory while the table itself is still small.
const GROWN_BYTES_PER_KEY: u64 = 32;

#[derive(Clone, Copy)]
struct Setting {
    threads: usize,
    batch: Batch,
}

/// One table in the rotation, with its state between measurements.
struct Contender {
    design: &'static dyn Design,
    placed: Option<Placed>,
    /// The number of records that the table holds, or will hold.
    keys: u64,
    /// Memory of the table's kind and size, for the loops.
    arena: Option<(Arena, RemovedDir)>,
    /// The row so far: set by the last measurement.
    row: Row,
    table: Vec<f64>,
    ceiling: Vec<f64>,
    shape: Vec<f64>,
}

/// The variation of a [`Spec`] that an experiment measures.
pub(super) struct Sweep<'a> {
    pub experiment: &'static str,
    pub threads: Vec<usize>,
    pub batches: Vec<Batch>,
    /// The parameters of this point of a sweep, for the row's `extra`.
    pub point: &'a [(&'static str, Value)],
    /// Selects the tables that take part, among those that support the call.
    pub admits: fn(&dyn Design) -> bool,
}

impl Sweep<'_> {
    /// Returns the sweep that the options describe, under this name.
    pub fn new(session: &Session, experiment: &'static str) -> Self {
        let (threads, batches) = (session.threads(), session.batches(&[Batch::Stream]));
        Self { experiment, threads, batches, point: &[], admits: |_| true }
    }
}

pub(super) fn run(session: &mut Session, spec: &Spec) -> Outcome {
    let sweep = Sweep::new(session, spec.name);
    run_sweep(session, spec, &sweep)
}

pub(super) fn run_sweep(session: &mut Session, spec: &Spec, sweep: &Sweep<'_>) -> Outcome {
    let mut contenders: Vec<Contender> = session
        .contenders(&[spec.call], 1)?
        .into_iter()
        .filter(|design| (sweep.admits)(*design) && design.holds(session.records))
        .map(Contender::new)
        .collect();
    for threads in sweep.threads.iter().copied() {
        for batch in sweep.batches.iter().copied() {
            for round in 0..session.repeat() {
                for contender in contenders.iter_mut().filter(|one| one.takes(threads)) {
                    contender.measure(session, spec, Setting { threads, batch }, round as u64)?;
                }
            }
            for contender in contenders.iter_mut().filter(|one| one.takes(threads)) {
                let mut row = contender.report();
                (row.experiment, row.op) = (sweep.experiment, spec.name);
                sweep.point.iter().for_each(|(name, value)| row.extra(name, value.clone()));
                session.put(row)?;
            }
        }
    }
    Ok(())
}

impl Contender {
    fn new(design: &'static dyn Design) -> Self {
        let (table, ceiling, shape) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            design,
            placed: None,
            keys: 0,
            arena: None,
            row: Row::default(),
            table,
            ceiling,
            shape,
        }
    }

    fn takes(&self, threads: usize) -> bool {
        threads == 1 || !self.design.is_for_one_thread()
    }

    /// Runs one round: the table and the bare loops alternate, so that disturbances on the machine affect all of
    /// them.
    fn measure(
        &mut self,
        session: &mut Session,
        spec: &Spec,
        setting: Setting,
        round: u64,
    ) -> Outcome {
        let (Setting { threads, batch }, medium) = (setting, session.medium(self.design));
        self.ready(session, spec, medium)?;
        let Some(Placed { table, .. }) = &self.placed else { return Ok(()) };
        let keys = phase_keys(session, spec, self.keys, round);
        if spec.start == Start::Sized {
            // Maps every page of the table; none of the keys is present yet.
            session.touch(&**table, &keys)?;
        }
        let what = format!("{} {}", spec.name, self.design.name());
        session.progress(&format!("{what}: {threads} threads, batch {batch}, round {}", round + 1));
        let loops = ceiling(spec.call, medium, batch)
            .zip(self.design.cost(spec.call))
            .map(|(ceiling, cost)| (ceiling, Loop::Shape(cost, pace(batch))))
            .zip(self.arena.as_ref());
        let (mut times, mut found) = ([Duration::ZERO; 3], Tally::default());
        let turns = (keys.len() / TURN_KEYS).clamp(1, MOST_TURNS);
        for turn in 0..turns {
            let keys = &keys[part(keys.len(), turn, turns)];
            let (time, answered) = session.timed(&**table, spec.call, keys, threads, batch)?;
            times[0] += time;
            found.add(answered);
            if let Some(((ceiling, shape), (arena, _))) = loops {
                let seed = (round << 20) + turn as u64;
                times[1] += session.timed_loop(ceiling, arena, keys.len(), threads, seed);
                times[2] += session.timed_loop(shape, arena, keys.len(), threads, seed);
            }
        }
        session.check_call(self.design, &**table, (spec.call, &keys), found);
        if spec.call == Call::Put {
            // Puts return nothing, so check their effect.
            let cores = session.machine.cores();
            let (_, found) = session.timed(&**table, Call::Get, &keys, cores, Batch::Stream)?;
            session.check_call(self.design, &**table, (Call::Get, &keys), found);
        }
        let operations = keys.len() * spec.call.operations();
        self.table.push(mops(operations, times[0]));
        if loops.is_some() {
            self.ceiling.push(mops(keys.len(), times[1]));
            self.shape.push(mops(operations, times[2]));
        }

        let mut row = session.row(spec.name, self.design, medium);
        (row.threads, row.batch, row.keys) = (Some(threads), Some(batch), Some(self.keys));
        row.ops = Some(operations as u64);
        row.dist =
            matches!(spec.call, Call::Get | Call::PutHeavy).then(|| session.args.dist.to_string());
        row.ceiling = loops.map(|((ceiling, _), _)| ceiling.name());
        describe_space(&mut row, &**table);
        self.row = row;
        Ok(())
    }

    /// Creates and loads a table, unless one can be reused.
    fn ready(&mut self, session: &Session, spec: &Spec, medium: Medium) -> Outcome {
        if !spec.uses_up && self.placed.is_some() {
            return Ok(());
        }
        // Drop the old table first: two may not fit into memory.
        self.placed = None;
        self.keys = session.keys(medium);
        let placed = match spec.start {
            Start::Loaded => {
                let (placed, keys) = session.create_loaded(self.design)?;
                self.keys = keys;
                placed
            }
            Start::Sized => session.create(self.design, medium, session.setup(self.keys))?,
            Start::Tiny => session.create(self.design, medium, session.setup(1024))?,
        };
        let compared = ceiling(spec.call, medium, Batch::None).is_some() && !self.design.is_peer();
        if self.arena.is_none() && compared {
            let stats = placed.table.stats();
            let footprint = match spec.start {
                Start::Tiny => self.keys * GROWN_BYTES_PER_KEY,
                Start::Loaded | Start::Sized => match stats.storage_bytes + stats.dram_bytes {
                    // A set does not report its size.
                    0 => self.keys * GROWN_BYTES_PER_KEY,
                    bytes => bytes,
                },
            };
            self.arena = Some(session.arena(medium, footprint, self.design.pages())?);
        }
        self.placed = Some(placed);
        Ok(())
    }

    /// Returns the row of all rounds of a setting, and clears the state for the next setting.
    fn report(&mut self) -> Row {
        let mut row = std::mem::take(&mut self.row);
        let [table, ceiling, shape] =
            [&mut self.table, &mut self.ceiling, &mut self.shape].map(std::mem::take);
        row.throughput(&table);
        if let (Some(mops), Some(ceiling), Some(shape)) =
            (median(&table), median(&ceiling), median(&shape))
        {
            row.limit_ratio = Some(rounded(mops / ceiling));
            row.shape_ratio = Some(rounded(mops / shape));
            row.extra("ceiling_mops", rounded(ceiling));
            row.extra("shape_mops", rounded(shape));
        }
        row
    }
}

/// Returns the keys of one measurement: the same for every table.
fn phase_keys(session: &Session, spec: &Spec, present: u64, round: u64) -> Vec<u64> {
    let ops = session.ops(present);
    let space = session.space;
    match spec.call {
        Call::Get | Call::PutHeavy => {
            space.draw(session.args.dist, present, ops as usize, session.args.seed + round)
        }
        Call::GetMiss => space.keys(present..present + ops),
        Call::InsDel => space.keys(present..present + ops.div_ceil(2)),
        Call::Remove => space.keys(0..ops.min(present)),
        _ => space.keys(0..ops),
    }
}
