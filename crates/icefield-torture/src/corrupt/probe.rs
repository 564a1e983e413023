//! Makes every kind of call on a damaged table, and detects violations.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use icefield::storage::sim::HANG;
use icefield::{Cursor, Data, Durable, Form};

use crate::call::{Action, BatchKind, Call, ask, ask_batch};
use crate::failure::panic_text;
use crate::rng::Rng;
use crate::subject::Sample;

/// Number of pages after which a scan is considered endless.
const MAX_PAGES: usize = 20_000;

/// The contents of the table before the damage.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The values of each key: those that were written, and the unused ones that were drawn for removals.
    pub written: HashMap<u64, HashSet<u64>>,
}

impl Known {
    /// Returns the keys in ascending order.
    pub(crate) fn keys(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.written.keys().copied().collect();
        keys.sort_unstable();
        keys
    }
}

/// The outcome of using a damaged table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did not open.
    Refused,
    /// It opened, and some call reported a fault.
    Noticed,
    /// It opened, and no call reported a fault.
    Unnoticed,
    Panicked(String),
    Hung(String),
    /// It returned data that was never written, and its check reports no fault.
    WrongRead(String),
}

/// Runs `open` and then all calls. `begin` is called before each operation.
pub(super) fn probe<T>(
    open: impl FnOnce() -> icefield::Result<T>,
    known: &Known,
    seed: u64,
    begin: impl Fn(),
) -> Outcome
where
    T: Durable<Key: Sample, Value: Sample>,
{
    let run = || {
        begin();
        let Ok(table) = open() else { return Outcome::Refused };
        let mut probe = Probe { table: &table, known, begin: &begin, errors: 0, foreign: None };
        probe.everything(seed)
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome,
        Err(payload) => match panic_text(payload.as_ref()) {
            text if text.starts_with(HANG) => Outcome::Hung(text),
            text => Outcome::Panicked(text),
        },
    }
}

struct Probe<'a, T> {
    table: &'a T,
    known: &'a Known,
    begin: &'a dyn Fn(),
    errors: u64,
    /// A description of returned bytes that were never written.
    foreign: Option<String>,
}

impl<T: Durable<Key: Sample, Value: Sample>> Probe<'_, T> {
    fn everything(&mut self, seed: u64) -> Outcome {
        let clean = self.check();
        self.read_all();
        if let Err(text) = self.scan() {
            return Outcome::Hung(text);
        }
        if clean && let Some(foreign) = self.foreign.take() {
            return Outcome::WrongRead(foreign);
        }
        self.write(seed);
        let still_clean = self.check();
        (self.begin)();
        if clean && still_clean && self.errors == 0 { Outcome::Unnoticed } else { Outcome::Noticed }
    }

    fn note<R>(&mut self, result: icefield::Result<R>) -> Option<R> {
        self.errors += u64::from(result.is_err());
        result.ok()
    }

    fn check(&mut self) -> bool {
        (self.begin)();
        let report = self.table.check();
        self.note(report).is_some_and(|report| report.is_clean())
    }

    fn read_all(&mut self) {
        for &key in self.known.written.keys() {
            (self.begin)();
            let owned = T::Key::sample(key);
            let found = self.table.get(T::Key::arg(&owned));
            if let Some(Some(value)) = self.note(found) {
                self.look_at_value(&value);
            }
        }
    }

    /// Records a violation if `value` is a byte string that was never written: byte strings have a checksum. Words have
    /// none, so a damaged word is just another value.
    fn look_at_value(&mut self, value: &<T::Value as Data>::Owned) {
        if T::Value::FORM == Form::Variable && T::Value::number(value).is_none() {
            self.foreign = Some(format!("the value {value:?} was never written"));
        }
    }

    fn scan(&mut self) -> Result<(), String> {
        let mut next = Some(Cursor::START);
        for _ in 0..MAX_PAGES {
            let Some(cursor) = next else { return Ok(()) };
            (self.begin)();
            let page = self.table.scan(cursor, 50);
            let Some(page) = self.note(page) else { return Ok(()) };
            for (key, value) in &page.records {
                self.look_at_value(value);
                if T::Key::FORM == Form::Variable && T::Key::number(key).is_none() {
                    self.foreign = Some(format!("the key {key:?} was never written"));
                }
            }
            next = page.next;
        }
        Err(format!("a scan of {MAX_PAGES} pages did not end"))
    }

    /// Writes to old and new keys, enough of them to make the table grow.
    fn write(&mut self, seed: u64) {
        let mut rng = Rng::fork(seed, 9);
        let old: Vec<u64> = self.known.written.keys().copied().take(40).collect();
        for n in 0..30 {
            (self.begin)();
            let key = if n % 2 == 0 && !old.is_empty() {
                *rng.pick(&old)
            } else {
                5_000 + rng.below(1000)
            };
            let action = *rng.pick(&[
                Action::Insert(900 + n),
                Action::Insert(900 + n),
                Action::TryInsert(900 + n),
                Action::Update(900 + n),
                Action::Remove,
            ]);
            let reply = ask(self.table, Call { key, action });
            self.note(reply);
        }
        (self.begin)();
        let calls: Vec<Call> =
            (0..20).map(|n| Call { key: 7_000 + n, action: Action::Put(n) }).collect();
        let replies = ask_batch(self.table, BatchKind::Put, &calls);
        self.note(replies);
        if rng.one_in(8) {
            (self.begin)();
            let cleared = self.table.clear();
            self.note(cleared);
        }
    }
}
