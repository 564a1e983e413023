//! One call, over and over: `get`, `get-miss`, `insert`, `populate`, `insdel`, `delete`.

use super::growth::describe_space;
use crate::Outcome;
use crate::args::{Batch, Medium};
use crate::limit::{Arena, Loop};
use crate::place::RemovedDir;
use crate::row::{Row, rounded};
use crate::session::{Placed, Session, ceiling, pace};
use crate::stats::median;
use crate::table::{Call, Design};

/// What a table holds when the clock starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// All keys.
    Loaded,
    /// Nothing, sized for all keys and touched.
    Sized,
    /// Nothing, sized for 1024.
    Tiny,
}

/// An experiment of this kind.
pub(super) struct Spec {
    name: &'static str,
    call: Call,
    start: Start,
    /// Whether a table is used up by one measurement.
    uses_up: bool,
}

pub(super) const GET: Spec =
    Spec { name: "get", call: Call::Get, start: Start::Loaded, uses_up: false };
pub(super) const GET_MISS: Spec =
    Spec { name: "get-miss", call: Call::GetMiss, start: Start::Loaded, uses_up: false };
pub(super) const INSERT: Spec =
    Spec { name: "insert", call: Call::TryInsert, start: Start::Sized, uses_up: true };
pub(super) const POPULATE: Spec =
    Spec { name: "populate", call: Call::TryInsert, start: Start::Tiny, uses_up: true };
pub(super) const INSDEL: Spec =
    Spec { name: "insdel", call: Call::InsDel, start: Start::Loaded, uses_up: false };
pub(super) const DELETE: Spec =
    Spec { name: "delete", call: Call::Remove, start: Start::Loaded, uses_up: true };

/// What one row is about.
#[derive(Clone, Copy)]
struct Setting {
    threads: usize,
    batch: Batch,
}

/// One table in the rotation, with what stays from measurement to measurement.
struct Contender {
    design: &'static dyn Design,
    placed: Option<Placed>,
    /// Records that the table holds, or will.
    keys: u64,
    /// Memory like the table's, for the loops.
    arena: Option<(Arena, RemovedDir)>,
    /// The row in the making: as the last measurement left it.
    row: Row,
    table: Vec<f64>,
    ceiling: Vec<f64>,
    shape: Vec<f64>,
}

pub(super) fn run(session: &mut Session, spec: &Spec) -> Outcome {
    let mut contenders: Vec<Contender> =
        session.designs.iter().map(|design| Contender::new(*design)).collect();
    for threads in session.threads() {
        for batch in session.batches(&[Batch::Stream]) {
            for round in 0..session.repeat() {
                for contender in &mut contenders {
                    contender.measure(session, spec, Setting { threads, batch }, round as u64)?;
                }
            }
            for contender in &mut contenders {
                let row = contender.report();
                session.output.row(row)?;
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

    /// One round: the table, then the loops that it is compared with.
    fn measure(
        &mut self,
        session: &mut Session,
        spec: &Spec,
        setting: Setting,
        round: u64,
    ) -> Outcome {
        let medium = session.medium();
        self.ready(session, spec, medium)?;
        let Some(Placed { table, .. }) = &self.placed else { return Ok(()) };
        let keys = phase_keys(session, spec, self.keys, round);
        if spec.start == Start::Sized {
            // Maps every page of the table; none of the keys is there yet.
            session.timed(
                &**table,
                Call::GetMiss,
                &keys,
                session.machine.cores(),
                Batch::Stream,
            )?;
        }
        let Setting { threads, batch } = setting;
        let what = format!("{} {}", spec.name, self.design.name());
        session.progress(&format!("{what}: {threads} threads, batch {batch}, round {}", round + 1));
        let (mops, found) = session.timed(&**table, spec.call, &keys, threads, batch)?;
        session.check(&what, found, spec.call.expected(&keys));
        self.table.push(mops);

        let mut row = session.row(spec.name, self.design, medium);
        (row.threads, row.batch, row.keys) = (Some(threads), Some(batch), Some(self.keys));
        row.ops = Some((keys.len() * spec.call.operations()) as u64);
        row.dist = (spec.call == Call::Get).then(|| session.args.dist.to_string());
        describe_space(&mut row, &**table);
        self.row = row;
        self.measure_loops(session, spec.call, setting, (keys.len(), round))
    }

    /// Sees to it that there is a table to start from.
    fn ready(&mut self, session: &Session, spec: &Spec, medium: Medium) -> Outcome {
        if !spec.uses_up && self.placed.is_some() {
            return Ok(());
        }
        // The old table first: two of them may not fit.
        self.placed = None;
        self.keys = session.keys(medium);
        let placed = match spec.start {
            Start::Loaded => {
                let (placed, keys) = session.create_loaded(self.design, medium)?;
                self.keys = keys;
                placed
            }
            Start::Sized => session.create(self.design, medium, session.setup(self.keys))?,
            Start::Tiny => session.create(self.design, medium, session.setup(1024))?,
        };
        self.placed = Some(placed);
        Ok(())
    }

    /// The ceiling and the shape of the call, in turn with the table.
    fn measure_loops(
        &mut self,
        session: &Session,
        call: Call,
        setting: Setting,
        (ops, round): (usize, u64),
    ) -> Outcome {
        let (Setting { threads, batch }, medium) = (setting, session.medium());
        let (Some(bare), Some(Placed { table, .. })) = (ceiling(call, medium, batch), &self.placed)
        else {
            return Ok(());
        };
        if self.arena.is_none() {
            self.arena = Some(session.arena(medium, table.stats().pm_bytes)?);
        }
        let Some((arena, _)) = &self.arena else { return Ok(()) };
        session.progress(&format!("ceiling {}: {threads} threads", bare.name()));
        self.ceiling.push(session.timed_loop(bare, arena, ops, threads, round));
        let shape = Loop::Shape(self.design.cost(call), pace(batch));
        let shape_mops = session.timed_loop(shape, arena, ops, threads, round);
        self.shape.push(shape_mops * call.operations() as f64);
        self.row.ceiling = Some(bare.name());
        Ok(())
    }

    /// The row of all rounds of a setting; the next setting starts afresh.
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

/// The keys of one measurement: the same for every contender.
fn phase_keys(session: &Session, spec: &Spec, present: u64, round: u64) -> Vec<u64> {
    let ops = session.ops(present);
    let space = session.space;
    match spec.call {
        Call::Get => {
            space.draw(session.args.dist, present, ops as usize, session.args.seed + round)
        }
        Call::GetMiss => space.keys(present..present + ops),
        Call::InsDel => space.keys(present..present + ops.div_ceil(2)),
        Call::Remove => space.keys(0..ops.min(present)),
        _ => space.keys(0..ops),
    }
}
