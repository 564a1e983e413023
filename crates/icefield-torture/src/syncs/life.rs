//! The history of a table with a failing sync.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::path::Path;

use icefield::{Data, Durability, SyncMode};

use super::film::Film;
use super::{Counts, Flaw, Life, Options, every_sync};
use crate::call::{Action, BatchKind, Call, ask, ask_batch};
use crate::failure::Failure;
use crate::faults::ledger::Ledger;
use crate::file_subject::{FileOptions, FileSubject, TINY};
use crate::rng::Rng;
use crate::subject::Sample;

/// Number of calls of a history.
const CALLS: u64 = 60;
/// Number of keys of a history.
const KEYS: u64 = 40;
/// One history in this many has calls on the whole table. In these histories, they are one tenth of all calls.
const WHOLE_ONE_IN: u64 = 3;
/// Number of calls after the failure.
const AFTER: u64 = 4;

/// Fails every sync of a history of a table in turn. The files are below `place`.
///
/// # Errors
/// Returns an error if the history fails without a failing sync or if the images cannot be created.
pub fn tables<T: FileSubject>(options: &Options, place: &Path) -> Result<Counts, Failure> {
    every_sync(&Lived::<T> { options: *options, table: PhantomData }, options, place)
}

struct Lived<T> {
    options: Options,
    table: PhantomData<fn() -> T>,
}

/// The values that each key may have. The last one is the value that the table returns.
#[derive(Default)]
pub(crate) struct Allowed {
    values: BTreeMap<u64, Vec<Option<u64>>>,
    /// True if acknowledged calls are durable.
    is_strict: bool,
}

impl Allowed {
    fn of(&mut self, key: u64) -> &mut Vec<Option<u64>> {
        self.values.entry(key).or_insert_with(|| vec![None])
    }

    fn acknowledge(&mut self, call: Call) {
        let is_strict = self.is_strict;
        let values = self.of(call.key);
        let after = values.last().and_then(|last| call.action.step(*last).0);
        if is_strict {
            values.clear();
        }
        values.push(after);
    }

    /// Records a failed call, which may have taken effect or not.
    fn doubt(&mut self, call: Call) {
        let values = self.of(call.key);
        let after: Vec<_> = values.iter().map(|value| call.action.step(*value).0).collect();
        // The value that the table returns stays the last one.
        values.splice(0..0, after);
    }

    /// Records a call on all keys. If `done` is set, the call succeeded; otherwise it failed and may have changed some
    /// keys.
    fn change_all(&mut self, after: impl Fn(u64, Option<u64>) -> Option<u64>, done: bool) {
        for (&key, values) in &mut self.values {
            let changed: Vec<_> = values.iter().map(|value| after(key, *value)).collect();
            match (done, self.is_strict) {
                (true, true) => *values = changed.last().copied().into_iter().collect(),
                (true, false) => values.extend(changed.last()),
                (false, _) => _ = values.splice(0..0, changed),
            }
        }
    }

    /// Records that all acknowledged calls are durable.
    fn settle(&mut self) {
        for values in self.values.values_mut() {
            *values = values.last().copied().into_iter().collect();
        }
    }
}

impl<T: FileSubject> Lived<T> {
    /// Makes a call on the whole table. Returns whether it succeeded.
    fn change_all(table: &T, rng: &mut Rng, allowed: &mut Allowed) -> bool {
        match rng.below(4) {
            0 => {
                let done = table.clear().is_ok();
                allowed.change_all(|_, _| None, done);
                done
            }
            1 => {
                let keep = |key: u64| key % 2 == 1;
                let retained = table.retain(|key, _| {
                    let owned = T::Key::own(T::Key::raw(key));
                    owned.and_then(|key| T::Key::number(&key)).is_none_or(keep)
                });
                let done = retained.is_ok();
                allowed.change_all(|key, value| value.filter(|_| keep(key)), done);
                done
            }
            _ => table.shrink_to_fit().is_ok(),
        }
    }

    fn step(&self, table: &T, rng: &mut Rng, allowed: &mut Allowed, nth: u64) -> bool {
        if self.options.seed.is_multiple_of(WHOLE_ONE_IN) && rng.one_in(10) {
            return Self::change_all(table, rng, allowed);
        }
        let value = 256 + nth * 16;
        let call = |rng: &mut Rng, value| Call {
            key: rng.below(KEYS),
            action: match rng.below(8) {
                0 => Action::Remove,
                1 => Action::Delete,
                2 => Action::Update(value),
                3 => Action::TryInsert(value),
                4 => Action::Insert(value),
                _ => Action::Put(value),
            },
        };
        match rng.below(16) {
            0 => {
                let calls: Vec<Call> = (0..8)
                    .map(|n| Call { key: rng.below(KEYS), action: Action::Put(value + 1 + n) })
                    .collect();
                let done = ask_batch(table, BatchKind::Put, &calls).is_ok();
                for call in calls {
                    if done { allowed.acknowledge(call) } else { allowed.doubt(call) }
                }
                done
            }
            1 => {
                let done = table.sync().is_ok();
                if done {
                    allowed.settle();
                }
                done
            }
            _ => {
                let call = call(rng, value);
                let done = ask(table, call).is_ok();
                if done {
                    allowed.acknowledge(call)
                } else {
                    allowed.doubt(call)
                }
                done
            }
        }
    }
}

impl<T: FileSubject> Life for Lived<T> {
    type Expected = Allowed;

    fn live(&self, film: &Film) -> Result<(Allowed, u64), String> {
        let Options { seed, sync, .. } = self.options;
        let is_strict = sync == SyncMode::Always;
        let mut allowed = Allowed { is_strict, ..Allowed::default() };
        let how = FileOptions {
            variant: TINY + seed,
            durability: Durability::Disk,
            sync,
            faults: Some(film.plan()),
            ..FileOptions::default()
        };
        let mut errors = 0;
        match T::create_at(film.path(), how) {
            Err(error) if !film.has_failed() => return Err(format!("creating it: {error}")),
            Err(_) => errors += 1,
            Ok(table) => {
                let (mut rng, mut after) = (Rng::fork(seed, 8), 0);
                for nth in 0..CALLS {
                    if !self.step(&table, &mut rng, &mut allowed, nth) {
                        if !film.has_failed() {
                            return Err(format!("call {nth} failed"));
                        }
                        errors += 1;
                    }
                    if film.has_failed() {
                        film.look();
                        after += 1;
                        if after > AFTER {
                            break;
                        }
                    }
                }
                drop(table);
                if !film.has_failed() {
                    // A clean shutdown makes all calls durable.
                    allowed.settle();
                }
            }
        }
        if film.has_failed() {
            film.look();
        }
        Ok((allowed, errors))
    }

    fn judge(&self, image: &Path, expected: &Allowed) -> Result<(), Flaw> {
        let table = T::open_at(image, FileOptions::default())
            .map_err(|error| Flaw::Unopened(error.to_string()))?;
        let mut ledger = Ledger::default();
        for (&key, values) in &expected.values {
            ledger.allow(key, values.iter().copied().collect::<BTreeSet<_>>());
        }
        ledger.compare(&table).map_err(Flaw::Wrong)?;
        let report = table.check().map_err(|error| Flaw::Wrong(format!("check: {error}")))?;
        match report.is_clean() {
            true => Ok(()),
            false => Err(Flaw::Wrong(format!("not clean: {report:?}"))),
        }
    }
}
