//! Opens one image and checks whether a crash may leave it: every key has an allowed value, no record is duplicated
//! or invented, the table's own check is clean, the table is usable, and a second crash during all this does no harm.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use icefield::Error;
use icefield::storage::sim::{CrashPoint, EventKind, Image, Pick, Sim, SimOptions};
use icefield::storage::superblock;

use super::expect::Expect;
use super::machine::Machine;
use super::step::PROBE;
use crate::call::{Action, Call, Reply};
use crate::failure::panic_text;
use crate::rng::mix;

/// Maximum number of opened images of crashes during one recovery.
const SECOND_IMAGES: usize = 24;
/// One in `READ_ONE_IN` images is also opened read-only.
const READ_ONE_IN: u64 = 4;

/// Number of records for which room is reserved on some images. If a crash has left records beyond the table's end,
/// this growth makes them visible.
const ROOM: u64 = 24;

/// Number of steps of the medium after which a call on a reopened tiny table is reported as hanging.
pub(super) const JUDGE_STEPS: u64 = 1_000_000;

/// The settings under which images are checked.
#[derive(Clone, Debug)]
pub(super) struct Court {
    pub(super) keys: Arc<[u64]>,
    /// Options of the media on which images are opened.
    pub(super) sim: SimOptions,
    /// True if writes are acknowledged before they are durable.
    pub(super) relaxed: bool,
}

impl Court {
    /// Checks one image. Returns the number of images opened, including those of crashes during recovery. `variation`
    /// changes the order of the checks; `depth` is the number of nested crashes during recovery.
    pub(super) fn judge<M: Machine>(
        &self,
        image: &Image,
        expect: &Expect,
        variation: u64,
        depth: u32,
    ) -> Result<u64, String> {
        let options = SimOptions {
            seed: mix(variation),
            recording: depth > 0,
            step_budget: JUDGE_STEPS,
            ..self.sim.clone()
        };
        let sim = Sim::from_image(image, options);
        let told = Arc::new(AtomicUsize::new(0));
        let second = Arc::new(Mutex::new(Vec::new()));
        if depth > 0 {
            let (told, second) = (told.clone(), second.clone());
            sim.on_event(move |point| {
                collect(point, told.load(Ordering::Relaxed), variation, &second);
            });
        }
        let inspect = || self.inspect::<M>(&sim, expect, variation, &told, &second);
        let got = match catch_unwind(AssertUnwindSafe(inspect)) {
            Ok(result) => result?,
            Err(payload) => return Err(format!("panic: {}", panic_text(payload.as_ref()))),
        };
        let mut states = 1;
        let images = std::mem::take(&mut *second.lock().unwrap_or_else(PoisonError::into_inner));
        for (at, (image, told)) in images.iter().enumerate() {
            let known = got.as_deref().unwrap_or_default();
            let mut expect = expect.told(&known[..*told]);
            expect.may_be_missing = got.is_none();
            let judged = self.judge::<M>(image, &expect, mix(variation ^ at as u64), depth - 1);
            states += judged.map_err(|what| format!("crash during recovery: {what}"))?;
        }
        if let Some(got) = &got
            && variation % READ_ONE_IN == 1
        {
            let read = || self.read_only::<M>(image, got, variation);
            let read = catch_unwind(AssertUnwindSafe(read))
                .unwrap_or_else(|payload| Err(format!("panic: {}", panic_text(payload.as_ref()))));
            read.map_err(|what| format!("opened for reading only: {what}"))?;
            states += 1;
        }
        if let Some(got) = got.filter(|_| depth > 0) {
            states += self.hand_over::<M>(image, &got, variation)?;
        }
        Ok(states)
    }

    /// Checks that a read-only session sees the same records as a session that recovers.
    fn read_only<M: Machine>(
        &self,
        image: &Image,
        got: &[Option<u64>],
        variation: u64,
    ) -> Result<(), String> {
        let options = SimOptions {
            seed: mix(variation ^ 1),
            recording: false,
            step_budget: JUDGE_STEPS,
            read_only: true,
            ..self.sim.clone()
        };
        let sim = Sim::from_image(image, options);
        sim.begin_op();
        let table = M::open(sim.clone()).map_err(|error| format!("open: {error}"))?;
        // A crash during the table's creation can leave one copy of its superblock torn. The next writable session
        // repairs it; a read-only session reports it.
        let check = || {
            sim.begin_op();
            let mut faults = table.faults().map_err(|error| format!("check: {error}"))?;
            faults.retain(|fault| !fault.contains("the copy of the superblock"));
            none_of(&faults)
        };
        let check_first = (variation / READ_ONE_IN).is_multiple_of(2);
        if check_first {
            check()?;
        }
        for (&key, right) in self.keys.iter().zip(got) {
            let value = get(&sim, &table, key)?;
            if value != *right {
                return Err(format!("key {key} is {value:?}, and {right:?} elsewhere"));
            }
        }
        self.compare_records(&sim, &table, got)?;
        if !check_first {
            check()?;
        }
        Ok(())
    }

    /// Recovers on one thread and removes every record on another. The changes of the first thread must be durable
    /// without a further fence of that thread.
    fn hand_over<M: Machine>(
        &self,
        image: &Image,
        got: &[Option<u64>],
        variation: u64,
    ) -> Result<u64, String> {
        let options =
            SimOptions { seed: mix(variation), step_budget: JUDGE_STEPS, ..self.sim.clone() };
        let sim = Sim::from_image(image, options);
        sim.begin_op();
        let table = M::open(sim.clone()).map_err(|error| format!("open: {error}"))?;
        for &key in self.keys.iter() {
            get(&sim, &table, key)?;
        }
        let remove_all = || {
            let present = self.keys.iter().zip(got).filter(|(_, value)| value.is_some());
            let removals = present.map(|(&key, _)| ask(&sim, &table, key, Action::Remove));
            let failed = removals.filter_map(Result::err).next();
            let synced = if self.relaxed { table.sync() } else { Ok(()) };
            failed.or_else(|| synced.err().map(|error| format!("sync: {error}")))
        };
        let removed = std::thread::scope(|scope| scope.spawn(remove_all).join());
        if let Some(what) =
            removed.map_err(|payload| format!("panic: {}", panic_text(payload.as_ref())))?
        {
            return Err(what);
        }
        let images = Mutex::new(Vec::new());
        sim.crash_point(|point| collect(point, 0, variation, &images));
        let images = images.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (image, _) in &images {
            let judged =
                self.judge::<M>(image, &Expect::only(&vec![None; got.len()]), variation, 0);
            judged.map_err(|what| {
                format!("after removals by another thread than the recovering one: {what}")
            })?;
        }
        Ok(images.len() as u64)
    }

    fn inspect<M: Machine>(
        &self,
        sim: &Sim,
        expect: &Expect,
        variation: u64,
        told: &AtomicUsize,
        second: &Mutex<Vec<(Image, usize)>>,
    ) -> Result<Option<Vec<Option<u64>>>, String> {
        if expect.closed.is_some() && variation.is_multiple_of(4) {
            named_twice(sim)?;
        }
        sim.begin_op();
        let table = match M::open(sim.clone()) {
            Ok(table) => table,
            Err(Error::NotFound { .. }) if expect.may_be_missing => return Ok(None),
            Err(error) => return Err(format!("open: {error}")),
        };
        match (expect.closed, table.was_closed()) {
            (Some(true), Some(false)) => {
                return Err("a table that was closed counts as open".into());
            }
            (Some(false), Some(true)) => {
                return Err("a table that was open counts as closed".into());
            }
            _ => {}
        }
        let check_first = variation.is_multiple_of(2);
        if check_first {
            check(sim, &table)?;
        }
        let got = self.read_keys(sim, &table, expect, told)?;
        self.compare_records(sim, &table, &got)?;
        if !check_first {
            check(sim, &table)?;
        }
        sim.no_observer();
        sim.crash_point(|point| collect(point, got.len(), variation, second));
        use_it(sim, &table)?;
        if variation % 8 < 2 {
            sim.begin_op();
            table.reserve(ROOM).map_err(|error| format!("reserve after the crash: {error}"))?;
            self.compare_records(sim, &table, &got)
                .map_err(|what| format!("when the table had grown: {what}"))?;
        }
        sim.begin_op();
        drop(table);
        Ok(Some(got))
    }

    fn read_keys<M: Machine>(
        &self,
        sim: &Sim,
        table: &M,
        expect: &Expect,
        told: &AtomicUsize,
    ) -> Result<Vec<Option<u64>>, String> {
        let mut got = Vec::with_capacity(self.keys.len());
        for (at, &key) in self.keys.iter().enumerate() {
            let value = get(sim, table, key)?;
            if !expect.allowed(at).contains(&value) {
                return Err(format!("key {key} is {value:?}; allowed: {:?}", expect.allowed(at)));
            }
            got.push(value);
            // Relaxed: the same thread reads it.
            told.store(at + 1, Ordering::Relaxed);
        }
        if !expect.agree(&got) {
            return Err(format!("a clear took effect in part: {got:?}"));
        }
        Ok(got)
    }

    fn compare_records<M: Machine>(
        &self,
        sim: &Sim,
        table: &M,
        got: &[Option<u64>],
    ) -> Result<(), String> {
        sim.begin_op();
        let mut records = table.records().map_err(|error| format!("scan: {error}"))?;
        records.sort_unstable();
        let known = self.keys.iter().zip(got);
        let mut right: Vec<_> =
            known.filter_map(|(&key, value)| value.map(|value| (key, value))).collect();
        right.sort_unstable();
        if records != right {
            return Err(format!("a pass sees {records:?}, gets see {right:?}"));
        }
        sim.begin_op();
        let len = table.count().map_err(|error| format!("len: {error}"))?;
        if len != right.len() as u64 {
            return Err(format!("len is {len}, there are {} records", right.len()));
        }
        Ok(())
    }
}

/// Checks that both copies of the superblock are intact. They must be intact once a writable session has opened the
/// table, because the opening repairs a torn copy.
pub(crate) fn named_twice(sim: &Sim) -> Result<(), String> {
    let Ok((region, _)) = superblock::read(sim) else { return Ok(()) };
    let faults = superblock::check(sim, &region).map_err(|error| error.to_string())?;
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

fn check<M: Machine>(sim: &Sim, table: &M) -> Result<(), String> {
    sim.begin_op();
    none_of(&table.faults().map_err(|error| format!("check: {error}"))?)
}

fn none_of(faults: &[String]) -> Result<(), String> {
    if faults.is_empty() { Ok(()) } else { Err(format!("check: {}", faults.join("; "))) }
}

fn get<M: Machine>(sim: &Sim, table: &M, key: u64) -> Result<Option<u64>, String> {
    match ask(sim, table, key, Action::Get)? {
        Reply::Value(value) => Ok(value),
        other => Err(format!("get of key {key} returned {other:?}")),
    }
}

fn ask<M: Machine>(sim: &Sim, table: &M, key: u64, action: Action) -> Result<Reply, String> {
    sim.begin_op();
    table
        .ask(Call { key, action })
        .map_err(|error| format!("{action:?} of key {key} after the crash: {error}"))
}

/// Inserts and removes a key that no history uses, which shows that no lock is left set and no slot is lost.
fn use_it<M: Machine>(sim: &Sim, table: &M) -> Result<(), String> {
    let steps = [
        (Action::TryInsert(7), Reply::TryInsert(Ok(()))),
        (Action::Get, Reply::Value(Some(7))),
        (Action::Remove, Reply::Value(Some(7))),
        (Action::Get, Reply::Value(None)),
    ];
    for (action, right) in steps {
        let reply = ask(sim, table, PROBE, action)?;
        if reply != right {
            return Err(format!("{action:?} of a new key after the crash returned {reply:?}"));
        }
    }
    Ok(())
}

/// Takes some images at the fences and call returns of a recovery, each with the number of keys read before it.
fn collect(
    point: &CrashPoint<'_>,
    told: usize,
    variation: u64,
    images: &Mutex<Vec<(Image, usize)>>,
) {
    if !matches!(point.event().kind, EventKind::Fence | EventKind::Asked) && !point.is_reordered() {
        return;
    }
    let mut images = images.lock().unwrap_or_else(PoisonError::into_inner);
    if images.len() >= SECOND_IMAGES || !point.is_open() {
        return;
    }
    let space = point.space();
    let all = space.count().filter(|&count| count <= 6);
    for n in 0..all.unwrap_or(4) {
        let pick = match all {
            Some(_) => Pick::Nth(n),
            None => Pick::sample(n, variation ^ point.event().number),
        };
        let mut image = Image::default();
        space.image(pick, &mut image);
        images.push((image, told));
    }
}
