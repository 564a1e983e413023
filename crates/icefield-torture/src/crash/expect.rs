//! The values that a crash image may hold, per key.

use icefield::OnFailure;

use super::step::Step;
use crate::call::{BatchKind, Reply};
use crate::reference::Reference;

/// The values that each key has had since the last sync. Empty if writes are acknowledged only when they are durable.
pub(super) type Past = Vec<Vec<Option<u64>>>;

#[derive(Clone, Debug, Default)]
pub(super) struct Expect {
    /// The allowed values of all keys, concatenated.
    pub(super) values: Vec<Option<u64>>,
    /// The index in `values` at which each key's values end.
    pub(super) ends: Vec<usize>,
    /// Set for a `clear` in flight: either every key has the last of its allowed values, or every key has an earlier
    /// one.
    pub(super) together: bool,
    /// `true` if the recovery report must show a clean shutdown, `false` if it must not. `None` while the table is
    /// being opened or closed: both are allowed.
    pub(super) closed: Option<bool>,
    /// True while the table may be missing, because its creation is in flight.
    pub(super) may_be_missing: bool,
}

impl Expect {
    /// Returns an empty expectation for an open table.
    fn open() -> Self {
        Self { closed: Some(false), ..Self::default() }
    }

    /// Allows exactly the reference's value of each key, for an open table.
    pub(super) fn exact(keys: &[u64], right: &Reference) -> Self {
        Self::settled(keys, right, &Past::new())
    }

    /// Allows the reference's value of each key, and the values that the key has had since the last sync.
    pub(super) fn settled(keys: &[u64], right: &Reference, past: &Past) -> Self {
        let mut expect = Self::open();
        for (at, &key) in keys.iter().enumerate() {
            expect.push(earlier(past, at).chain([right.get(key)]));
        }
        expect
    }

    /// Converts the allowed values of each key to its past, for the expectations of later steps.
    pub(super) fn into_past(self) -> Past {
        let distinct = |values: &[Option<u64>]| {
            let mut values = values.to_vec();
            values.sort_unstable();
            values.dedup();
            values
        };
        (0..self.ends.len()).map(|at| distinct(self.allowed(at))).collect()
    }

    /// Allows exactly the value of each key in `got`, for an open table.
    pub(super) fn only(got: &[Option<u64>]) -> Self {
        let mut expect = Self::open();
        got.iter().for_each(|&value| expect.push([value]));
        expect
    }

    /// Allows the reference's value of each key, its values since the last sync, and each value that `step`, which is
    /// in flight, gives the key.
    pub(super) fn in_flight(keys: &[u64], right: &Reference, past: &Past, step: &Step) -> Self {
        let mut expect = Self::open();
        let mut after = right.clone();
        let mut passed: Vec<(u64, Option<u64>)> = Vec::new();
        match step {
            Step::One(call) => {
                after.ask(*call);
                passed.push((call.key, after.get(call.key)));
            }
            Step::Batch(kind, calls) => {
                for &call in calls {
                    let reply = after.ask(call);
                    passed.push((call.key, after.get(call.key)));
                    if *kind == BatchKind::Execute(OnFailure::Stop) && call.action.failed(&reply) {
                        break;
                    }
                }
            }
            Step::Retain { drop_multiples_of } => {
                let dropped = keys.iter().filter(|key| key.is_multiple_of(*drop_multiples_of));
                passed.extend(dropped.map(|&key| (key, None)));
            }
            Step::Clear => {
                expect.together = true;
                passed.extend(keys.iter().map(|&key| (key, None)));
            }
            Step::CrashIn { step, .. } => return Self::in_flight(keys, right, past, step),
            Step::Scan | Step::Sync | Step::Reserve(_) | Step::Shrink | Step::Reopen => {}
        }
        for (at, &key) in keys.iter().enumerate() {
            let later = passed.iter().filter(|(passed, _)| *passed == key).map(|(_, value)| *value);
            expect.push(earlier(past, at).chain([right.get(key)]).chain(later));
        }
        expect
    }

    /// Adds the allowed values of the next key.
    pub(super) fn push(&mut self, values: impl IntoIterator<Item = Option<u64>>) {
        self.values.extend(values);
        self.ends.push(self.values.len());
    }

    /// Returns the allowed values of the key at `at`.
    pub(super) fn allowed(&self, at: usize) -> &[Option<u64>] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.values[start..self.ends[at]]
    }

    /// Checks the condition of `together` on the values of all keys.
    pub(super) fn agree(&self, got: &[Option<u64>]) -> bool {
        let all = |agrees: fn(&[Option<u64>], &Option<u64>) -> bool| {
            got.iter().enumerate().all(|(at, value)| agrees(self.allowed(at), value))
        };
        let before = |allowed: &[Option<u64>], value: &Option<u64>| {
            allowed.split_last().is_some_and(|(_, before)| before.contains(value))
        };
        !self.together || all(before) || all(|allowed, value| allowed.last() == Some(value))
    }

    /// Returns the expectation for a crash during recovery, after reads of the first keys have returned `got`.
    pub(super) fn told(&self, got: &[Option<u64>]) -> Self {
        // A table that has returned a value is open.
        let closed = if got.is_empty() { None } else { Some(false) };
        let mut expect = Self { together: self.together, closed, ..Self::default() };
        for at in 0..self.ends.len() {
            match got.get(at) {
                // With `together`, `agree` treats the last allowed value differently. Every value therefore keeps its
                // position, and disallowed ones are replaced.
                Some(&value) if self.together => {
                    let allowed = self.allowed(at).iter().copied();
                    expect.push(
                        allowed.map(|other| if other == value { other } else { Some(NEVER) }),
                    );
                }
                Some(&value) => expect.push([value]),
                None => expect.push(self.allowed(at).iter().copied()),
            }
        }
        expect
    }
}

/// Returns the earlier values of the key at `at`.
fn earlier(past: &Past, at: usize) -> impl Iterator<Item = Option<u64>> {
    past.get(at).into_iter().flatten().copied()
}

/// A value that no history writes and no table returns.
const NEVER: u64 = u64::MAX - 1;

/// Applies `step` to the reference and returns the correct replies, if the step has any.
pub(super) fn run_reference(right: &mut Reference, step: &Step) -> Vec<Reply> {
    match step {
        Step::One(call) => vec![right.ask(*call)],
        Step::Batch(kind, calls) => right.ask_batch(*kind, calls),
        Step::Clear => {
            right.clear();
            Vec::new()
        }
        Step::Retain { drop_multiples_of } => {
            right.retain(|key, _| !key.is_multiple_of(*drop_multiples_of));
            Vec::new()
        }
        Step::CrashIn { step, .. } => run_reference(right, step),
        Step::Scan | Step::Sync | Step::Reserve(_) | Step::Shrink | Step::Reopen => Vec::new(),
    }
}
