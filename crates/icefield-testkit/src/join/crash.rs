//! Crash images of every crash point: of a build, of changes, merges and openings. Each image must open as the state
//! before or after the step in flight (a batch: any part of it from its beginning), and be clean; what a crash during
//! that opening leaves, too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use icefield::Error;
use icefield::pm::sim::{CrashPoint, EventKind, Image, Model, Pick, Pool, Sim, SimOptions};

use super::options;
use super::steps::{Pairs, Step, first_pairs};
use crate::crash::{CrashOptions, CrashReport, NAME};
use crate::failure::{Failure, guarded};
use crate::rng::{Rng, mix};

/// Keys of a history.
const KEYS: u64 = 9;
/// Pairs that an index is built of, at most: more than a group's line tells the ends of.
const PAIRS: [u64; 4] = [12, 40, 90, 320];

/// What is looked for, shared with the medium's observer.
struct Watch {
    variant: u64,
    model: Model,
    pool: Pool,
    /// The states that an image may have.
    allowed: Vec<Pairs>,
    /// Whether there may be no index yet.
    may_be_absent: bool,
    exhaustive: u64,
    samples: u64,
    recover_one_in: u64,
    points: u64,
    states: u64,
    image: Image,
    found: Option<String>,
}

fn lock(watch: &Mutex<Watch>) -> MutexGuard<'_, Watch> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    fn sim(&self, image: &Image, recording: bool) -> Sim {
        let options = SimOptions {
            seed: self.states,
            model: self.model,
            recording,
            pool: self.pool.clone(),
            ..SimOptions::default()
        };
        Sim::from_image(image, options)
    }

    /// Judges images of a crash point.
    fn look(&mut self, point: &CrashPoint<'_>) {
        let lasting = matches!(point.event().kind, EventKind::Store | EventKind::Flush);
        if lasting && !point.is_reordered() || self.found.is_some() {
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

    /// Opens an image and compares it; whether there was an index.
    fn judge(&self, image: &Image) -> Result<bool, String> {
        match options(self.variant).open_on(self.sim(image, false)) {
            Err(Error::NotFound { .. }) if self.may_be_absent => Ok(false),
            Err(error) => Err(format!("does not open: {error}")),
            Ok(index) => {
                let pairs = Pairs::of_index(&index).map_err(|error| error.to_string())?;
                if !self.allowed.contains(&pairs) {
                    return Err(format!("has {pairs:?}, none of {:?}", self.allowed));
                }
                pairs.compare(&index).map_err(|trouble| trouble.to_string())?;
                Ok(true)
            }
        }
    }

    /// The same, and images of crashes during the opening.
    fn judge_twice(&mut self, image: &Image) -> Result<(), String> {
        if !self.judge(image)? {
            return Ok(());
        }
        let left = Arc::new(Mutex::new(Vec::new()));
        let sim = self.sim(image, true);
        let (into, samples) = (Arc::clone(&left), self.samples.min(3));
        sim.on_event(move |point| {
            if matches!(point.event().kind, EventKind::Fence | EventKind::Punch) {
                for n in 0..samples {
                    let mut image = Image::default();
                    point.space().image(Pick::sample(n, point.event().number), &mut image);
                    into.lock().unwrap_or_else(PoisonError::into_inner).push(image);
                }
            }
        });
        let opened = options(self.variant).open_on(sim.clone());
        opened.map_err(|error| format!("does not open: {error}"))?;
        sim.no_observer();
        let left = std::mem::take(&mut *left.lock().unwrap_or_else(PoisonError::into_inner));
        for image in left {
            self.states += 1;
            self.judge(&image).map_err(|what| format!("a second crash, then: {what}"))?;
        }
        Ok(())
    }
}

/// Runs histories until enough images were judged. Of the options, those count that say how many, which seed, which
/// model, and how many images of a point.
#[must_use]
pub fn crash(options: &CrashOptions) -> CrashReport {
    let mut report = CrashReport::default();
    let mut seed = options.seed;
    while report.states < options.states && report.violations < options.enough {
        let done = guarded(NAME, seed, || history(seed, options));
        report.histories += 1;
        match done {
            Ok((operations, points, states)) => {
                report.operations += operations;
                report.points += points;
                report.states += states;
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

/// Steps, points and images of one history.
fn history(seed: u64, asked: &CrashOptions) -> Result<(u64, u64, u64), Failure> {
    let mut rng = Rng::fork(seed, 2);
    let pool = Pool::default();
    let sim = Sim::new(SimOptions {
        seed,
        model: asked.model,
        pool: pool.clone(),
        ..SimOptions::default()
    });
    let most = *rng.pick(&PAIRS);
    let mut pairs = first_pairs(&mut rng, KEYS, most);
    let watch = Arc::new(Mutex::new(Watch {
        variant: seed,
        model: asked.model,
        pool,
        allowed: vec![pairs.clone()],
        may_be_absent: true,
        exhaustive: asked.exhaustive,
        samples: asked.samples,
        recover_one_in: asked.recover_one_in.max(1),
        points: 0,
        states: 0,
        image: Image::default(),
        found: None,
    }));
    let watching = Arc::clone(&watch);
    sim.on_event(move |point| lock(&watching).look(point));
    let mut trace = vec![format!("built of {} pairs", pairs.0.len())];
    let fail = |what: String, trace: &[String]| {
        Failure::new(NAME, seed, what).with_trace(trace.iter().cloned())
    };
    let index = options(seed).build_on(sim.clone(), &pairs);
    let index = index.map_err(|error| fail(error.to_string(), &trace))?;
    lock(&watch).may_be_absent = false;
    let mut operations = 0;
    for _ in 0..asked.length {
        let step = Step::draw(&mut rng, KEYS);
        trace.push(format!("{step:?}"));
        lock(&watch).allowed = step.outcomes(&pairs);
        step.run(&index, &pairs).map_err(|trouble| fail(trouble.to_string(), &trace))?;
        pairs.apply(&step);
        lock(&watch).allowed = vec![pairs.clone()];
        // What returned is there from now on.
        sim.crash_point(|point| lock(&watch).look(point));
        operations += 1;
        if let Some(what) = lock(&watch).found.take() {
            return Err(fail(what, &trace));
        }
    }
    sim.no_observer();
    drop(index);
    let watch = lock(&watch);
    watch.judge(&sim.image()).map_err(|what| fail(format!("after closing: {what}"), &trace))?;
    Ok((operations, watch.points, watch.states))
}
