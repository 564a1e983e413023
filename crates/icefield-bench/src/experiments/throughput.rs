//! One call, repeated: `get`, `get-miss`, `insert`, `put`, `populate`, `insdel`, `putheavy`, `delete`, `ycsb-load`.

use std::time::Duration;

use serde_json::Value;

use crate::choice::{ceiling, pace};
use crate::limit::{Arena, Loop};
use crate::prelude::*;
use crate::table::updates;

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
}

const fn spec(name: &'static str, call: Call, start: Start) -> Spec {
    Spec { name, call, start }
}

pub(super) const GET: Spec = spec("get", Call::Get, Start::Loaded);
pub(super) const GET_MISS: Spec = spec("get-miss", Call::GetMiss, Start::Loaded);
pub(super) const INSERT: Spec = spec("insert", Call::TryInsert, Start::Sized);
const PUT: Spec = spec("put", Call::Put, Start::Sized);
const POPULATE: Spec = spec("populate", Call::TryInsert, Start::Tiny);
pub(super) const INSDEL: Spec = spec("insdel", Call::InsDel, Start::Loaded);
const PUTHEAVY: Spec = spec("putheavy", Call::PutHeavy, Start::Loaded);
const DELETE: Spec = spec("delete", Call::Remove, Start::Loaded);
const ALL: [Spec; 8] = [GET, GET_MISS, INSERT, PUT, POPULATE, INSDEL, PUTHEAVY, DELETE];

/// The number of keys per turn. In each turn, the table processes these keys, and then each bare loop makes as many
/// operations.
const TURN_KEYS: usize = 50_000;

/// The most turns of a measurement. In the turn before, the loops have displaced the table's lines and page translations
/// from the caches. Turns must be so long that the time to load them again does not count.
const MOST_TURNS: usize = 8;

/// The approximate bytes per key of a grown table. They determine the size of the loops' memory when the table is still
/// small or does not report its size.
const GROWN_BYTES_PER_KEY: u64 = 32;

/// Selects what an experiment measures of a [`Spec`].
pub(super) struct Sweep<'a> {
    pub settings: Vec<Setting>,
    /// The position in a sweep, written to the row's `extra`.
    pub point: &'a [(&'static str, Value)],
    /// Returns whether a table takes part, among those that support the call.
    pub admits: fn(DesignRef) -> bool,
}

impl Sweep<'_> {
    /// Returns the settings that the options describe, with no position in a sweep.
    pub fn new(session: &Session) -> Self {
        let settings = session.settings(&[Batch::Stream]);
        Self { settings, point: &[], admits: |_| true }
    }
}

pub(super) fn run(session: &mut Session) -> Outcome {
    // `ycsb-load` has no `Spec`, because loading a table for YCSB is what `populate` measures.
    let spec = ALL.iter().find(|spec| spec.name == session.experiment).unwrap_or(&POPULATE);
    let sweep = Sweep::new(session);
    run_sweep(session, spec, &sweep)
}

pub(super) fn run_sweep(session: &mut Session, spec: &Spec, sweep: &Sweep<'_>) -> Outcome {
    let mut designs = session.contenders(&[spec.call], 1)?;
    designs.retain(|design| (sweep.admits)(design) && (design.holds)(session.records));
    let contender = |design: &DesignRef| Contender { design, placed: None, keys: 0, arena: None };
    let mut contenders: Vec<Contender> = designs.iter().map(contender).collect();
    for setting in sweep.settings.iter().copied() {
        let takes = |one: &&mut Contender| setting.0 == 1 || !one.design.is_for_one_thread;
        let mut measured: Vec<_> =
            contenders.iter_mut().filter(takes).map(|one| (one, Row::default())).collect();
        for round in 0..session.repeat() {
            for (contender, row) in &mut measured {
                contender.measure(session, spec, setting, round as u64, row)?;
            }
        }
        for (_, mut row) in measured {
            spec.name.clone_into(&mut row.op);
            sweep.point.iter().for_each(|(name, value)| row.extra(name, value.clone()));
            let medians = row.median("mops").zip(row.median("ceiling_mops"));
            if let Some(((mops, ceiling), shape)) = medians.zip(row.median("shape_mops")) {
                row.limit_ratio = Some(rounded(mops / ceiling));
                row.shape_ratio = Some(rounded(mops / shape));
            }
            session.put(row)?;
        }
    }
    Ok(())
}

/// One table in the rotation, with its state between measurements.
struct Contender {
    design: DesignRef,
    placed: Option<Placed>,
    /// The number of records that the table holds, or will hold.
    keys: u64,
    /// Memory of the table's kind and size, for the loops.
    arena: Option<(Arena, RemovedDir)>,
}

impl Contender {
    /// Runs one round: the table and the bare loops alternate, so that disturbances on the machine affect all of
    /// them.
    fn measure(
        &mut self,
        session: &Session,
        spec: &Spec,
        (threads, batch): Setting,
        round: u64,
        row: &mut Row,
    ) -> Outcome {
        let medium = session.medium(self.design);
        let placed = self.ready(session, spec, medium)?;
        let keys = phase_keys(session, spec, (self.keys, batch), round);
        if spec.start == Start::Sized {
            // Maps every page of the table; none of the keys is present yet.
            session.touch(&*placed, &keys)?;
        }
        let what = format!("{} {}", spec.name, self.design.name);
        session.progress(&format!("{what}: {threads} threads, batch {batch}, round {}", round + 1));
        let loops = ceiling(spec.call, medium, batch)
            .zip(self.design.cost(spec.call))
            .map(|(ceiling, cost)| (ceiling, Loop::Shape(cost, pace(batch))))
            .zip(self.arena.as_ref());
        let (mut times, mut found) = ([Duration::ZERO; 3], Tally::default());
        let turns = (keys.len() / TURN_KEYS).clamp(1, MOST_TURNS);
        for turn in 0..turns {
            let keys = &keys[part(keys.len(), turn, turns)];
            let (time, answered) = session.timed(&*placed, spec.call, keys, (threads, batch))?;
            times[0] += time;
            found.add(answered);
            if let Some(((ceiling, shape), (arena, _))) = loops {
                let seed = (round << 20) + turn as u64;
                times[1] += session.timed_loop(ceiling, arena, keys.len(), threads, seed);
                times[2] += session.timed_loop(shape, arena, keys.len(), threads, seed);
            }
        }
        session.check_call(&placed, spec.call, &keys, found);
        if spec.call == Call::Put {
            // Puts return nothing, so check their effect.
            session.measured(
                &placed,
                Call::Get,
                &keys,
                (session.machine.cores(), Batch::Stream),
            )?;
        }
        let operations = keys.len() * spec.call.operations();
        if row.table.is_empty() {
            *row = session.row(self.design, medium);
        }
        row.at(threads, batch, self.keys, operations as u64);
        row.dist =
            matches!(spec.call, Call::Get | Call::PutHeavy).then(|| session.args.dist.to_string());
        row.sample("mops", mops(operations, times[0]));
        if let Some(((ceiling, _), _)) = loops {
            row.ceiling = Some(ceiling.name());
            row.sample("ceiling_mops", mops(keys.len(), times[1]));
            row.sample("shape_mops", mops(operations, times[2]));
        }
        describe_space(row, &*placed);
        // Reads leave the table as it was, and so do inserts that are followed by removals.
        let reusable = spec.start == Start::Loaded && spec.call != Call::Remove;
        self.placed = reusable.then_some(placed);
        Ok(())
    }

    /// Creates and loads a table, unless one can be reused.
    fn ready(&mut self, session: &Session, spec: &Spec, medium: Medium) -> Outcome<Placed> {
        if let Some(placed) = self.placed.take() {
            return Ok(placed);
        }
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
            let stats = placed.stats();
            let footprint = match stats.storage_bytes + stats.dram_bytes {
                bytes @ 1.. if spec.start != Start::Tiny => bytes,
                // A set does not report its size.
                _ => self.keys * GROWN_BYTES_PER_KEY,
            };
            self.arena = Some(session.arena(medium, footprint, self.design.pages)?);
        }
        Ok(placed)
    }
}

/// Returns the keys of one measurement: the same for every table.
fn phase_keys(
    session: &Session,
    spec: &Spec,
    (present, batch): (u64, Batch),
    round: u64,
) -> Vec<u64> {
    let ops = session.ops(present);
    let space = session.space;
    let draw = || space.draw(session.args.dist, present, ops as usize, session.args.seed + round);
    match spec.call {
        Call::Get => draw(),
        Call::PutHeavy => {
            let mut keys = draw();
            for batch in keys.chunks_mut(batch.size()) {
                batch.sort_unstable_by_key(|key| updates(*key));
            }
            keys
        }
        Call::GetMiss => space.keys(present..present + ops),
        Call::InsDel => space.keys(present..present + ops.div_ceil(2)),
        Call::Remove => space.keys(0..ops.min(present)),
        _ => space.keys(0..ops),
    }
}
