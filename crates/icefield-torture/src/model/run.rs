//! Runs a history on a table and on the reference map side by side.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use icefield::{Cursor, Data, Error, Table};

use super::counts::Counts;
use super::step::Step;
use crate::call::{BatchKind, Call, ask, ask_batch};
use crate::place::Place;
use crate::reference::Reference;
use crate::subject::{FOREIGN, Sample};

/// A result, or a description of the fault.
type Verdict<T = ()> = Result<T, String>;

/// Runs `steps` on a new table.
pub(super) fn run<T, P>(steps: &[Step], mut place: P) -> Verdict<Counts>
where
    T: Table<Key: Sample, Value: Sample>,
    P: Place<T>,
{
    let table = place.create().map_err(|error| format!("create: {error}"))?;
    let mut run =
        Run { place, table: Some(table), right: Reference::new(), counts: Counts::default() };
    run.counts.histories = 1;
    for (at, step) in steps.iter().enumerate() {
        run.step(step).map_err(|what| format!("step {at}: {what}"))?;
        run.counts.steps += 1;
    }
    Ok(run.counts)
}

struct Run<T, P> {
    place: P,
    /// Absent only during a reopening.
    table: Option<T>,
    right: Reference,
    counts: Counts,
}

/// Checks for equality and describes the difference.
fn same<A: PartialEq + std::fmt::Debug>(got: A, right: A) -> Verdict {
    if got == right { Ok(()) } else { Err(format!("got {got:?} instead of {right:?}")) }
}

/// Converts an error into a fault: no call may fail here.
fn fine<A>(result: Result<A, Error>) -> Verdict<A> {
    result.map_err(|error| format!("error: {error}"))
}

impl<T, P> Run<T, P>
where
    T: Table<Key: Sample, Value: Sample>,
    P: Place<T>,
{
    fn table(&self) -> Verdict<&T> {
        self.table.as_ref().ok_or_else(|| "an earlier reopening failed".to_owned())
    }

    fn step(&mut self, step: &Step) -> Verdict {
        match step {
            Step::One(call) => self.one(*call),
            Step::Batch(kind, calls) => self.batch(*kind, calls),
            Step::GetWith { key, inner } => self.get_with(*key, *inner),
            Step::GetAsync(key) => self.get_async(*key),
            Step::Len => self.len(),
            Step::Scan { page } => self.scan(*page),
            Step::ScanAmongWrites { page, writes, reopen } => {
                self.scan_among_writes(*page, writes, *reopen)
            }
            Step::ForEach { stop_after } => self.for_each(*stop_after),
            Step::Clear => {
                fine(self.table()?.clear())?;
                self.right.clear();
                self.len()
            }
            Step::Reserve(more) => fine(self.table()?.reserve(*more)),
            Step::Shrink => fine(self.table()?.shrink_to_fit()),
            Step::Retain { drop_multiples_of } => self.retain(*drop_multiples_of),
            Step::Check => self.check(),
            Step::OwnCall(seed) => self.own_call(*seed),
            Step::Reopen => self.reopen(),
        }
    }

    fn one(&mut self, call: Call) -> Verdict {
        self.counts.operations += 1;
        let reply = fine(ask(self.table()?, call))?;
        same(reply, self.right.ask(call))
    }

    fn batch(&mut self, kind: BatchKind, calls: &[Call]) -> Verdict {
        self.counts.operations += calls.len() as u64;
        let replies = fine(ask_batch(self.table()?, kind, calls))?;
        same(replies, self.right.ask_batch(kind, calls))?;
        if kind == BatchKind::Get && !calls.is_empty() {
            let keys: Vec<_> = calls.iter().map(|call| T::Key::sample(call.key)).collect();
            let args: Vec<_> = keys.iter().map(T::Key::arg).collect();
            let short = self.table()?.get_batch(&args, &mut []);
            same(matches!(short, Err(Error::InvalidOption { .. })), true)?;
        }
        Ok(())
    }

    fn get_with(&mut self, key: u64, inner: u64) -> Verdict {
        let table = self.table()?;
        let (owned, owned_inner) = (T::Key::sample(key), T::Key::sample(inner));
        let seen = fine(table.get_with(T::Key::arg(&owned), |value| {
            (T::Value::number(&value.own_ref()), table.contains(T::Key::arg(&owned_inner)))
        }))?;
        match (seen, self.right.get(key)) {
            (Some((value, present)), Some(right)) => {
                same(value, Some(right))?;
                same(fine(present)?, self.right.get(inner).is_some())
            }
            (None, None) => Ok(()),
            (seen, right) => same(seen.map(|(value, _)| value.unwrap_or(FOREIGN)), right),
        }
    }

    fn get_async(&mut self, key: u64) -> Verdict {
        let owned = T::Key::sample(key);
        let table = self.table()?;
        let mut future = pin!(table.get_async(T::Key::arg(&owned)));
        let mut context = Context::from_waker(Waker::noop());
        same(future.as_mut().poll(&mut context).is_pending(), true)?;
        let Poll::Ready(found) = future.as_mut().poll(&mut context) else {
            return Err("pending for the second time".to_owned());
        };
        same(
            fine(found)?.map(|value| T::Value::number(&value).unwrap_or(FOREIGN)),
            self.right.get(key),
        )
    }

    fn len(&mut self) -> Verdict {
        let table = self.table()?;
        same(fine(table.len())?, self.right.len() as u64)?;
        same(fine(table.is_empty())?, self.right.is_empty())?;
        same(table.stats().len_estimate, self.right.len() as u64)
    }

    fn scan(&mut self, page: usize) -> Verdict {
        self.counts.scans += 1;
        let mut seen = Vec::new();
        let mut next = Some(Cursor::START);
        while let Some(cursor) = next {
            next = self.page(cursor, page, &mut seen)?;
        }
        seen.sort_unstable();
        same(seen, self.right.sorted())
    }

    /// Reads one page into `seen` and returns the cursor of the next.
    fn page(
        &mut self,
        cursor: Cursor,
        page: usize,
        seen: &mut Vec<(u64, u64)>,
    ) -> Verdict<Option<Cursor>> {
        let page = fine(self.table()?.scan(cursor, page))?;
        seen.extend(page.records.iter().map(|(key, value)| {
            (T::Key::number(key).unwrap_or(FOREIGN), T::Value::number(value).unwrap_or(FOREIGN))
        }));
        if page.next == Some(cursor) {
            return Err(format!("the cursor {cursor:?} does not move"));
        }
        Ok(page.next)
    }

    /// Scans with writes between the pages. Every key that no write touches must be returned exactly once, with its
    /// value.
    fn scan_among_writes(&mut self, page: usize, writes: &[Call], reopen: bool) -> Verdict {
        self.counts.scans += 1;
        let stable: HashMap<u64, u64> = self
            .right
            .sorted()
            .into_iter()
            .filter(|&(key, _)| !writes.iter().any(|call| call.key == key))
            .collect();
        let mut seen = Vec::new();
        let mut writes = writes.iter();
        let mut next = Some(Cursor::START);
        let mut pages = 0;
        while let Some(cursor) = next {
            next = self.page(cursor, page, &mut seen)?;
            pages += 1;
            for call in writes.by_ref().take(3) {
                self.one(*call)?;
            }
            if reopen && pages == 2 {
                self.reopen()?;
            }
        }
        seen.retain(|(key, _)| stable.contains_key(key));
        seen.sort_unstable();
        let mut right: Vec<_> = stable.into_iter().collect();
        right.sort_unstable();
        same(seen, right)
    }

    fn for_each(&mut self, stop_after: usize) -> Verdict {
        let mut seen = Vec::new();
        fine(self.table()?.for_each(|key, value| {
            seen.push((T::Key::number(key), T::Value::number(value)));
            if seen.len() > stop_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }))?;
        same(seen.len(), self.right.len().min(stop_after + 1))?;
        for (key, value) in seen {
            same(value, self.right.get(key.unwrap_or(FOREIGN)))?;
        }
        Ok(())
    }

    fn retain(&mut self, divisor: u64) -> Verdict {
        let keep = |key: u64| !key.is_multiple_of(divisor);
        let removed = fine(self.table()?.retain(|key, _| {
            let owned = T::Key::own(T::Key::raw(key));
            owned.and_then(|key| T::Key::number(&key)).is_none_or(keep)
        }))?;
        let before = self.right.len();
        self.right.retain(|key, _| keep(key));
        same(removed, before - self.right.len())?;
        self.len()
    }

    fn check(&mut self) -> Verdict {
        let report = fine(self.place.check(self.table()?))?;
        if !report.is_clean() {
            return Err(format!("{} leaked, faults: {:?}", report.leaked, report.faults));
        }
        same(report.records, self.right.len() as u64)
    }

    fn own_call(&mut self, seed: u64) -> Verdict {
        let Some(table) = &self.table else { return self.len() };
        self.counts.own_calls += u64::from(self.place.own_call(table, seed, &mut self.right)?);
        self.len()
    }

    fn reopen(&mut self) -> Verdict {
        let Some(table) = self.table.take() else {
            return Err("an earlier reopening failed".to_owned());
        };
        self.table = Some(fine(self.place.reopen(table))?);
        self.counts.reopens += 1;
        self.len()
    }
}
