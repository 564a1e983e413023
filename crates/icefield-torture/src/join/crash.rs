//! Crash images of every crash point of builds, changes, merges and openings. Each image must open, be clean, and hold
//! the pairs from before or after the step in flight (for a batch, the pairs after any prefix of it). The same holds
//! for images of a crash during that opening. Some steps end in a crash, and the history continues from its image.

use std::sync::{Arc, Mutex, MutexGuard};

use icefield::storage::sim::{
    CrashPoint, EventKind, Image, Model, Mutation, Pick, Pool, Sim, SimOptions, SiteLog,
};
use icefield::{Error, JoinIndex};

use super::options::options;
use super::steps::{Pairs, Step, first_pairs};
use crate::crash::capture::Capture;
use crate::crash::judge::named_twice;
use crate::crash::{CrashOptions, CrashReport, NAME};
use crate::failure::{Failure, guarded};
use crate::pool::lock;
use crate::rng::{Rng, mix};

/// Number of keys of a history.
const KEYS: u64 = 9;
/// Maximum numbers of pairs in a built index. With the largest, a group may have more than 255 records, whose bucket
/// ends do not fit into its line.
const PAIRS: [u64; 4] = [12, 40, 90, 320];
/// One step in this many ends in a crash.
const CRASH_ONE_IN: u64 = 6;
/// One step in this many closes the index and opens it again.
const REOPEN_ONE_IN: u64 = 16;
/// Maximum number of events before the crash: for a change, a small merge, and a large merge.
const CRASH_WITHIN: [u64; 3] = [6, 40, 200];

/// The state of the checks, shared with the medium's observer.
struct Watch {
    variant: u64,
    model: Model,
    pool: Pool,
    sites: Option<SiteLog>,
    mutation: Option<Arc<Mutation>>,
    /// The number of times that the mutation had been applied before this history. Crash points before its next
    /// application are skipped.
    awaited: Option<u64>,
    /// The states that an image may have.
    allowed: Vec<Pairs>,
    /// Set as long as there may be no index yet.
    may_be_absent: bool,
    /// True if an image must report a clean shutdown, false if it must not; `None` if both are allowed.
    closed: Option<bool>,
    exhaustive: u64,
    samples: u64,
    recover_one_in: u64,
    points: u64,
    states: u64,
    image: Image,
    capture: Option<Capture<Image>>,
    found: Option<String>,
}

impl Watch {
    fn new(seed: u64, asked: &CrashOptions, only_mutated: bool, first: &Pairs) -> Self {
        let applied = |mutation: &Arc<Mutation>| mutation.applied();
        Self {
            variant: seed,
            model: asked.model,
            pool: Pool::default(),
            sites: asked.sites.clone(),
            mutation: asked.mutation.clone(),
            awaited: asked.mutation.as_ref().filter(|_| only_mutated).map(applied),
            allowed: vec![first.clone()],
            may_be_absent: true,
            closed: None,
            exhaustive: asked.exhaustive,
            samples: asked.samples,
            recover_one_in: asked.recover_one_in.max(1),
            points: 0,
            states: 0,
            image: Image::default(),
            capture: None,
            found: None,
        }
    }

    fn options(&self, recording: bool) -> SimOptions {
        SimOptions {
            seed: self.variant ^ self.states,
            model: self.model,
            recording,
            pool: self.pool.clone(),
            sites: self.sites.clone(),
            mutation: self.mutation.clone(),
            ..SimOptions::default()
        }
    }

    /// Checks whether a point has images that no other point has, or that must meet stricter demands.
    fn wants(&self, point: &CrashPoint<'_>) -> bool {
        let kind = point.event().kind;
        let passing = matches!(kind, EventKind::Store | EventKind::Flush) && !point.is_reordered();
        let stale = !point.is_open() && kind != EventKind::Asked;
        let applied = self.mutation.as_ref().map(|mutation| mutation.applied());
        let early = self.awaited.is_some() && self.awaited == applied;
        self.found.is_none() && self.samples > 0 && !passing && !stale && !early
    }

    /// Checks images of a crash point.
    fn look(&mut self, point: &CrashPoint<'_>) {
        self.capture(point);
        if !self.wants(point) {
            return;
        }
        self.points += 1;
        let space = point.space();
        let (count, all) = match space.count() {
            Some(count) if count <= self.exhaustive => (count, true),
            _ => (self.samples, false),
        };
        for n in 0..count {
            let seed = mix(self.variant ^ point.event().number);
            let pick = if all { Pick::Nth(n) } else { Pick::sample(n, seed) };
            let mut image = std::mem::take(&mut self.image);
            space.image(pick, &mut image);
            self.states += 1;
            let deep = self.states.is_multiple_of(self.recover_one_in);
            let judged = if deep { self.judge_twice(&image) } else { self.judge(&image).map(drop) };
            self.image = image;
            if let Err(what) = judged {
                self.found = Some(format!("{pick:?} of {:?}: {what}", point.event()));
                return;
            }
        }
    }

    fn capture(&mut self, point: &CrashPoint<'_>) {
        let Some(capture) = &mut self.capture else { return };
        if let Some(image) = capture.due(point) {
            capture.taken = Some(image);
        }
    }

    /// Opens an image and compares it. Returns the pairs in the index, if there is one. One image in four is opened by
    /// a reader first, which repairs nothing. While the index is being built, no reader opens it, because on files it
    /// has no name yet.
    fn judge(&self, image: &Image) -> Result<Option<Pairs>, String> {
        if !self.may_be_absent && self.states.is_multiple_of(4) {
            let looked = self.judge_as(image, |sim| options(self.variant).look_on(sim));
            looked.map_err(|what| format!("for a reader: {what}"))?;
        }
        self.judge_as(image, |sim| options(self.variant).open_on(sim))
    }

    fn judge_as(
        &self,
        image: &Image,
        open: impl FnOnce(Sim) -> icefield::Result<JoinIndex<u64, Sim>>,
    ) -> Result<Option<Pairs>, String> {
        let sim = Sim::from_image(image, self.options(false));
        if self.closed.is_some() {
            named_twice(&sim)?;
        }
        match open(sim) {
            Err(Error::NotFound { .. }) if self.may_be_absent => Ok(None),
            Err(error) => Err(format!("does not open: {error}")),
            Ok(index) => {
                match (self.closed, index.recovery().was_clean) {
                    (Some(true), false) => {
                        return Err("an index that was closed counts as open".into());
                    }
                    (Some(false), true) => {
                        return Err("an index that was open counts as closed".into());
                    }
                    _ => {}
                }
                let pairs = Pairs::of_index(&index).map_err(|error| error.to_string())?;
                if !self.allowed.contains(&pairs) {
                    return Err(format!("has {pairs:?}, which is not one of {:?}", self.allowed));
                }
                pairs.compare(&index).map_err(|trouble| trouble.to_string())?;
                Ok(Some(pairs))
            }
        }
    }

    /// Checks an image, and images of crashes during its opening.
    fn judge_twice(&mut self, image: &Image) -> Result<(), String> {
        if self.judge(image)?.is_none() {
            return Ok(());
        }
        let left = Arc::new(Mutex::new(Vec::new()));
        let sim = Sim::from_image(image, self.options(true));
        let (into, samples) = (Arc::clone(&left), self.samples.min(3));
        let collect = move |point: &CrashPoint<'_>| {
            for n in 0..samples {
                let mut image = Image::default();
                point.space().image(Pick::sample(n, point.event().number), &mut image);
                lock(&into).push(image);
            }
        };
        let while_opening = collect.clone();
        sim.on_event(move |point| {
            if matches!(point.event().kind, EventKind::Fence | EventKind::Punch) {
                while_opening(point);
            }
        });
        let opened = options(self.variant).open_on(sim.clone());
        let opened = opened.map_err(|error| format!("does not open: {error}"))?;
        sim.no_observer();
        let left_opening = std::mem::take(&mut *lock(&left));
        sim.crash_point(collect);
        drop(opened);
        let left_open = std::mem::take(&mut *lock(&left));
        // The opening removes the mark of a closed index. During the opening, the index may be reported as closed or
        // not; afterwards, only as not closed.
        let before = self.closed;
        let ends = [(before.filter(|&closed| !closed), left_opening), (Some(false), left_open)];
        let judged = ends.into_iter().try_for_each(|(closed, images)| {
            self.closed = closed;
            self.states += images.len() as u64;
            images.iter().try_for_each(|image| self.judge(image).map(drop))
        });
        self.closed = before;
        judged.map_err(|what| format!("a second crash, then: {what}"))
    }
}

/// Runs histories until enough images were checked. Ignores the options `keys`, `sync`, `threads`, `shrink` and
/// `deadline`.
#[must_use]
pub fn crash(options: &CrashOptions) -> CrashReport {
    let mut report = CrashReport::default();
    let mut seed = options.seed;
    while report.states < options.states && report.violations < options.enough {
        let done = guarded(NAME, seed, || history(seed, options, false));
        report.histories += 1;
        match done {
            Ok(done) => {
                report.operations += done.operations;
                report.points += done.points;
                report.states += done.states;
            }
            Err(failure) => {
                report.violations += 1;
                report.first = report.first.or(Some(failure));
            }
        }
        seed = seed.wrapping_add(1);
    }
    report
}

/// Results of a history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    operations: u64,
    points: u64,
    pub(super) states: u64,
    /// Steps that returned although stores were not durable, because the mutation had disabled their flush or fence.
    pub(super) lasting: u64,
}

/// Runs one history. With `only_mutated`, only crash points after an application of the mutation are checked.
pub(super) fn history(
    seed: u64,
    asked: &CrashOptions,
    only_mutated: bool,
) -> Result<Done, Failure> {
    let mut trace = Vec::new();
    let done = Run::create(seed, asked, only_mutated, &mut trace).and_then(|run| run.all(asked));
    done.map_err(|what| Failure::new(NAME, seed, what).with_trace(trace))
}

struct Run<'a> {
    seed: u64,
    rng: Rng,
    watch: Arc<Mutex<Watch>>,
    sim: Sim,
    /// Absent only during a reopening.
    index: Option<JoinIndex<u64, Sim>>,
    pairs: Pairs,
    lasting: u64,
    trace: &'a mut Vec<String>,
}

/// Checks every crash point of `sim`.
fn watched(sim: &Sim, watch: &Arc<Mutex<Watch>>) {
    let watch = Arc::clone(watch);
    sim.on_event(move |point| lock(&watch).look(point));
}

impl<'a> Run<'a> {
    fn create(
        seed: u64,
        asked: &CrashOptions,
        only_mutated: bool,
        trace: &'a mut Vec<String>,
    ) -> Result<Self, String> {
        let mut rng = Rng::fork(seed, 2);
        let most = *rng.pick(&PAIRS);
        let pairs = first_pairs(&mut rng, KEYS, most);
        let watch = Watch::new(seed, asked, only_mutated, &pairs);
        let sim = Sim::new(watch.options(true));
        let watch = Arc::new(Mutex::new(watch));
        watched(&sim, &watch);
        trace.push(format!("built of {} pairs", pairs.0.len()));
        let index = options(seed).build_on(sim.clone(), &pairs);
        let index = Some(index.map_err(|error| error.to_string())?);
        let run = Self { seed, rng, watch, sim, index, pairs, lasting: 0, trace };
        run.watch().may_be_absent = false;
        run.watch().closed = Some(false);
        run.settle()?;
        Ok(run)
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        lock(&self.watch)
    }

    /// Allows only the present state, because all calls have returned, and checks the present images.
    fn settle(&self) -> Result<(), String> {
        self.watch().allowed = vec![self.pairs.clone()];
        self.sim.crash_point(|point| self.watch().look(point));
        self.watch().found.take().map_or(Ok(()), Err)
    }

    fn all(mut self, asked: &CrashOptions) -> Result<Done, String> {
        for _ in 0..asked.length {
            if self.rng.one_in(CRASH_ONE_IN) {
                self.crash_and_go_on()?;
            } else if self.rng.one_in(REOPEN_ONE_IN) {
                self.reopen()?;
            } else {
                let step = Step::draw(&mut self.rng, KEYS);
                self.step(&step)?;
            }
        }
        self.close()?;
        let watch = self.watch();
        let (operations, lasting) = (asked.length as u64, self.lasting);
        Ok(Done { operations, points: watch.points, states: watch.states, lasting })
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        self.trace.push(format!("{step:?}"));
        self.watch().allowed = step.outcomes(&self.pairs);
        // A call must not leave flushed lines to the fence of the next call, because another thread may make that call.
        self.sim.change_threads();
        let index = self.index.as_ref().ok_or("the index is closed")?;
        let ran = step.run(index, &self.pairs).map_err(|trouble| trouble.to_string());
        self.watch().found.take().map_or(ran, Err)?;
        self.pairs.apply(step);
        self.lasting += u64::from(self.sim.is_left_out());
        self.settle()
    }

    /// Closes the index and returns the image. The crash points of the shutdown are checked as well.
    fn close(&mut self) -> Result<Image, String> {
        self.watch().closed = None;
        drop(self.index.take());
        self.watch().closed = Some(true);
        self.settle().map_err(|what| format!("after closing: {what}"))?;
        let image = self.sim.image();
        self.watch().judge_twice(&image).map_err(|what| format!("after closing: {what}"))?;
        Ok(image)
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.trace.push("closed, and opened again".to_owned());
        let image = self.close()?;
        // The opening removes the mark of a closed index. Until it ends, the index may be reported as closed or not.
        self.watch().closed = None;
        self.start_on(&image)
    }

    /// Opens an image that holds `pairs`, under observation.
    fn start_on(&mut self, image: &Image) -> Result<(), String> {
        self.sim.no_observer();
        self.watch().allowed = vec![self.pairs.clone()];
        let medium = self.watch().options(true);
        self.sim = Sim::from_image(image, medium);
        watched(&self.sim, &self.watch);
        let index = options(self.seed).open_on(self.sim.clone());
        self.index = Some(index.map_err(|error| format!("open: {error}"))?);
        self.watch().closed = Some(false);
        self.settle()
    }

    /// Simulates a power failure inside a step, often a batch. Then it adds single pairs, which the log could wrongly
    /// join to the remains of a lost batch.
    fn crash_and_go_on(&mut self) -> Result<(), String> {
        let batch = self.rng.one_in(2).then(|| 2 + self.rng.below(7));
        let step = match batch {
            Some(count) => Step::insert(&mut self.rng, KEYS, count),
            None => Step::draw(&mut self.rng, KEYS),
        };
        self.crash_in(&step)?;
        for _ in 0..self.rng.below(5) {
            let step = Step::insert(&mut self.rng, KEYS, 1);
            self.step(&step)?;
        }
        Ok(())
    }

    /// Simulates a power failure inside a step, and continues from an image of that moment.
    fn crash_in(&mut self, step: &Step) -> Result<(), String> {
        let before = self.pairs.clone();
        let within = *self.rng.pick(&CRASH_WITHIN);
        let (left, pick) = (1 + self.rng.below(within), self.rng.word());
        self.watch().capture = Some(Capture::after(left, pick));
        self.step(step)?;
        let taken = self.watch().capture.take().and_then(|capture| capture.taken);
        let image = taken.ok_or("no crash point was seen")?;
        self.trace.push("a crash in this step, whose image is opened".to_owned());
        // The old index is dropped without observation: its further stores happen after the crash.
        self.sim.no_observer();
        drop(self.index.take());
        self.watch().allowed = step.outcomes(&before);
        let pairs = self.watch().judge(&image)?.ok_or("there is no index")?;
        self.pairs = pairs;
        self.start_on(&image)
    }
}
