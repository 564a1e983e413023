//! Runs one history and checks the images of its crash points while it runs. The simulator treats each step as the work
//! of a different thread.

use std::sync::{Arc, Mutex, MutexGuard};

use icefield::storage::sim::{
    CrashPoint, CrashSpace, EventKind, Image, Mutation, Pick, Sim, SiteKind,
};

use super::capture::Capture;
use super::expect::{Expect, Past, run_reference};
use super::judge::Court;
use super::machine::Machine;
use super::plan::Plan;
use super::step::Step;
use crate::call::{Action, Call, Reply};
use crate::pool::lock;
use crate::reference::Reference;
use crate::rng::mix;

/// Maximum number of aftermaths in a history. A mutation disables a flush or a fence. If its effect is still missing
/// when a step has returned, an aftermath follows: a few steps that try to expose the missing effect.
const AFTERMATHS: u64 = 3;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) operations: u64,
    pub(super) points: u64,
    pub(super) states: u64,
    /// Steps that returned although stores were not durable, because the mutation had disabled their flush or fence.
    pub(super) lasting: u64,
}

/// The state of the observer, and its findings.
pub(super) struct Bench {
    pub(super) court: Court,
    pub(super) expect: Expect,
    pub(super) found: Option<String>,
    pub(super) counts: Counts,
    capture: Option<Capture<(Image, Expect)>>,
    image: Image,
    exhaustive: u64,
    samples: u64,
    recover_one_in: u64,
    /// A mutation, and the number of its applications before this history. Crash points before the next application are
    /// skipped, and so are points at which everything that the mutation left out is durable.
    awaited: Option<(Arc<Mutation>, u64)>,
    seed: u64,
}

impl Bench {
    pub(super) fn new(plan: &Plan, seed: u64) -> Self {
        Self {
            court: Court { keys: plan.keys.clone(), sim: plan.sim.clone(), relaxed: plan.relaxed },
            expect: Expect::default(),
            found: None,
            counts: Counts::default(),
            capture: None,
            image: Image::default(),
            exhaustive: plan.exhaustive,
            samples: plan.samples,
            recover_one_in: plan.recover_one_in,
            awaited: plan
                .sim
                .mutation
                .clone()
                .filter(|_| plan.only_mutated)
                .map(|mutation| (mutation.clone(), mutation.applied())),
            seed,
        }
    }

    /// Checks whether `point` has images that no other point has, or that must meet stricter demands.
    pub(super) fn wants(&self, point: &CrashPoint<'_>) -> bool {
        let kind = point.event().kind;
        // Stores and flushes only add images, so the next fence, growth or return still has all images of this point.
        let passing = matches!(kind, EventKind::Store | EventKind::Flush) && !point.is_reordered();
        // Without pending stores, the point has the same images as the previous one. They are checked again only when a
        // call returns, because the demands are stricter then.
        let stale = !point.is_open() && kind != EventKind::Asked;
        let early = self.awaited.as_ref().is_some_and(|(mutation, before)| {
            let takes_back = mutation.site().kind == SiteKind::Store || point.is_left_out();
            mutation.applied() == *before || !takes_back
        });
        self.found.is_none() && self.samples > 0 && !passing && !stale && !early
    }

    /// Counts a step that returned while the effect of the disabled flush or fence was missing. Returns whether to run
    /// an aftermath.
    fn note_lasting(&mut self) -> bool {
        self.counts.lasting += 1;
        self.counts.lasting <= AFTERMATHS
    }

    pub(super) fn look<M: Machine>(&mut self, point: &CrashPoint<'_>) {
        self.capture(point);
        if !self.wants(point) {
            return;
        }
        self.counts.points += 1;
        self.expect.may_be_missing &= !point.is_published();
        let space = point.space();
        let all = space.count().filter(|&count| count <= self.exhaustive);
        for n in 0..all.unwrap_or(self.samples) {
            let pick = match all {
                Some(_) => Pick::Nth(n),
                None => Pick::sample(n, self.seed ^ point.event().number),
            };
            if let Err(what) = self.judge::<M>(&space, pick) {
                let event = point.event();
                self.found = Some(format!(
                    "event {} ({:?} at {}), image {pick:?} of {:?}: {what}",
                    event.number,
                    event.kind,
                    event.site,
                    space.count(),
                ));
                return;
            }
        }
    }

    fn judge<M: Machine>(&mut self, space: &CrashSpace<'_>, pick: Pick) -> Result<(), String> {
        space.image(pick, &mut self.image);
        let variation = mix(self.seed ^ self.counts.states);
        let depth = u32::from((variation >> 8).is_multiple_of(self.recover_one_in));
        self.counts.states += self.court.judge::<M>(&self.image, &self.expect, variation, depth)?;
        Ok(())
    }

    fn capture(&mut self, point: &CrashPoint<'_>) {
        let Some(capture) = &mut self.capture else { return };
        if let Some(image) = capture.due(point) {
            capture.taken = Some((image, self.expect.clone()));
        }
    }
}

/// A running history.
struct Run<'a, M> {
    bench: Arc<Mutex<Bench>>,
    plan: &'a Plan,
    sim: Sim,
    /// Absent only during a reopening.
    table: Option<M>,
    right: Reference,
    /// The values that the keys had since the last sync.
    past: Past,
    seed: u64,
}

/// Runs `steps` on a new table.
///
/// # Errors
/// The first violation.
pub(super) fn run<M: Machine>(
    plan: &Plan,
    seed: u64,
    steps: &[Step],
    counts: &mut Counts,
) -> Result<(), String> {
    let mut run = Run::<M>::create(plan, seed)?;
    let result = run.steps(steps).and_then(|()| run.close());
    let done = run.bench().counts;
    counts.operations += steps.len() as u64;
    counts.points += done.points;
    counts.states += done.states;
    counts.lasting += done.lasting;
    result
}

/// Checks every crash point of `sim`.
pub(super) fn watch<M: Machine>(sim: &Sim, bench: &Arc<Mutex<Bench>>) {
    let bench = bench.clone();
    sim.on_event(move |point| lock(&bench).look::<M>(point));
}

impl<'a, M: Machine> Run<'a, M> {
    fn create(plan: &'a Plan, seed: u64) -> Result<Self, String> {
        let bench = Arc::new(Mutex::new(Bench::new(plan, seed)));
        let sim = Sim::new(plan.sim(seed));
        let right = Reference::new();
        let mut expect = Expect::exact(&plan.keys, &right);
        expect.may_be_missing = true;
        expect.closed = None;
        lock(&bench).expect = expect;
        watch::<M>(&sim, &bench);
        sim.begin_op();
        let table = M::create(sim.clone(), seed).map_err(|error| format!("create: {error}"))?;
        let past = Past::new();
        let run = Self { bench, plan, sim, table: Some(table), right, past, seed };
        run.settle()?;
        Ok(run)
    }

    fn bench(&self) -> MutexGuard<'_, Bench> {
        lock(&self.bench)
    }

    fn table(&self) -> Result<&M, String> {
        self.table.as_ref().ok_or_else(|| "the table is closed".to_owned())
    }

    /// Checks the present images under the strictest demands: all calls have returned.
    fn settle(&self) -> Result<(), String> {
        self.look_with(Expect::settled(&self.plan.keys, &self.right, &self.past))
    }

    fn look_with(&self, expect: Expect) -> Result<(), String> {
        self.bench().expect = expect;
        self.sim.crash_point(|point| self.bench().look::<M>(point));
        self.verdict()
    }

    fn verdict(&self) -> Result<(), String> {
        self.bench().found.take().map_or(Ok(()), Err)
    }

    fn steps(&mut self, steps: &[Step]) -> Result<(), String> {
        let mut draw = self.plan.draw::<M>(mix(self.seed)).beside();
        for (at, step) in steps.iter().enumerate() {
            self.step(step).map_err(|what| format!("step {at} ({step:?}): {what}"))?;
            let lasting = self.plan.only_mutated && self.sim.is_left_out();
            if lasting && self.bench().note_lasting() {
                for step in draw.aftermath() {
                    let told = |what| format!("after step {at}, {step:?}: {what}");
                    self.step(&step).map_err(told)?;
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Reopen => self.reopen(),
            Step::CrashIn { step, at, pick } => self.crash_in(step, *at, *pick),
            _ => self.plain(step),
        }
    }

    fn plain(&mut self, step: &Step) -> Result<(), String> {
        let expect = Expect::in_flight(&self.plan.keys, &self.right, &self.past, step);
        self.bench().expect = expect.clone();
        // A call must not leave flushed lines to the fence of the next call, because another thread may make that call.
        self.sim.change_threads();
        let answers = self.call(step).map_err(|error| format!("error: {error}"));
        self.verdict()?;
        let right = run_reference(&mut self.right, step);
        self.past = match step {
            // `sync` and `clear` are durable when they return, together with everything before them.
            Step::Sync | Step::Clear => Past::new(),
            _ if self.plan.relaxed => expect.into_past(),
            _ => Past::new(),
        };
        let answers = answers?;
        if answers != right {
            return Err(format!("returned {answers:?} instead of {right:?}"));
        }
        self.settle()
    }

    fn call(&self, step: &Step) -> Result<Vec<Reply>, String> {
        self.table()?.help();
        // The helper is another thread, whose flushes this thread's fences do not complete.
        self.sim.change_threads();
        self.sim.begin_op();
        let table = self.table()?;
        let answers = match step {
            Step::One(call) => table.ask(*call).map(|reply| vec![reply]),
            Step::Batch(kind, calls) => table.batch(*kind, calls),
            Step::Clear => table.clear().map(|()| Vec::new()),
            Step::Sync => table.sync().map(|()| Vec::new()),
            Step::Reserve(additional) => table.reserve(*additional).map(|()| Vec::new()),
            Step::Shrink => table.shrink().map(|()| Vec::new()),
            Step::Retain { drop_multiples_of } => {
                table.drop_multiples_of(*drop_multiples_of).map(|()| Vec::new())
            }
            Step::Scan | Step::Reopen | Step::CrashIn { .. } => {
                let mut records = table.records().map_err(|error| error.to_string())?;
                records.sort_unstable();
                if records != self.right.sorted() {
                    return Err(format!("a pass sees {records:?}, not {:?}", self.right.sorted()));
                }
                Ok(Vec::new())
            }
        };
        answers.map_err(|error| error.to_string())
    }

    /// Closes the table. The crash points of the shutdown are checked as well.
    fn close(&mut self) -> Result<(), String> {
        self.sim.begin_op();
        self.bench().expect.closed = None;
        drop(self.table.take());
        let closed = Expect { closed: Some(true), ..Expect::exact(&self.plan.keys, &self.right) };
        self.past.clear();
        self.look_with(closed)?;
        let image = self.sim.image();
        let mut bench = self.bench();
        let variation = mix(self.seed);
        let judged = bench.court.judge::<M>(&image, &bench.expect, variation, 1);
        // The next opening removes the mark of a closed table. Both values of `closed` are allowed until it ends.
        bench.expect.closed = None;
        judged.map(|_| ()).map_err(|what| format!("after a clean shutdown: {what}"))
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.close()?;
        let image = self.sim.image();
        self.start_on(&image)?;
        self.settle()
    }

    /// Opens `image` under observation.
    fn start_on(&mut self, image: &Image) -> Result<(), String> {
        self.seed = mix(self.seed);
        self.sim.no_observer();
        self.sim = Sim::from_image(image, self.plan.sim(self.seed));
        watch::<M>(&self.sim, &self.bench);
        self.sim.begin_op();
        let table = M::open(self.sim.clone()).map_err(|error| format!("open: {error}"))?;
        self.table = Some(table);
        self.verdict()
    }

    /// Simulates a power failure inside `step` and continues from an image of that moment. The values that are then
    /// read become the reference.
    fn crash_in(&mut self, step: &Step, at: u64, pick: u64) -> Result<(), String> {
        self.bench().capture = Some(Capture::after(at, pick));
        self.plain(step)?;
        let taken = self.bench().capture.take().and_then(|capture| capture.taken);
        let Some((image, expect)) = taken else {
            return Err("no crash point was seen".to_owned());
        };
        // The old table is dropped without observation: its further stores happen after the crash.
        self.sim.no_observer();
        drop(self.table.take());
        self.bench().expect = expect.clone();
        self.start_on(&image)?;
        self.past.clear();
        let mut got = Vec::new();
        for (at, &key) in self.plan.keys.iter().enumerate() {
            self.sim.begin_op();
            let reply = self.table()?.ask(Call { key, action: Action::Get });
            let Ok(Reply::Value(value)) = reply else {
                return Err(format!("get of key {key} after the crash: {reply:?}"));
            };
            if !expect.allowed(at).contains(&value) {
                let allowed = expect.allowed(at);
                return Err(format!(
                    "after the crash key {key} is {value:?}; allowed: {allowed:?}"
                ));
            }
            got.push(value);
            self.right.set(key, value);
            self.bench().expect = expect.told(&got);
        }
        self.settle()
    }
}
