//! The writes of a child and the contents allowed after its death. The writes are a function of the child's seed, so
//! no log is needed.

use std::collections::{BTreeMap, BTreeSet};

use crate::call::{Action, BatchKind, Call, Rule};
use crate::reference::Reference;
use crate::rng::{Rng, mix};

/// Number of keys that one thread writes to: enough for a small table to grow through several sizes.
const KEYS_PER_THREAD: u64 = 600;

/// A step of a thread: one call or one batch.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The kind of batch, if the step is one.
    pub batch: Option<BatchKind>,
    /// The operations, in order.
    pub calls: Vec<Call>,
}

/// Returns step number `n` of `thread`. Threads share no keys.
pub(super) fn step(seed: u64, thread: usize, n: u64) -> Step {
    let mut rng = Rng::new(mix(seed ^ mix(thread as u64)) ^ n);
    let mut call = |at: u64| {
        let key = ((thread as u64 + 1) << 20) + rng.below(KEYS_PER_THREAD);
        // Values identify the step that wrote them, so that a stale one is detected.
        let value = 256 + (n * 64 + at) * 16 + thread as u64;
        let action = match rng.below(20) {
            0..6 => Action::Insert(value),
            6..10 => Action::TryInsert(value),
            10..12 => Action::Put(value),
            12..14 => Action::Update(value),
            14..16 => Action::Remove,
            16 => Action::Delete,
            17 => Action::Compute(Rule::Put(value)),
            18 => Action::Compute(Rule::RemoveEven),
            _ => Action::Get,
        };
        Call { key, action }
    };
    let single = call(0);
    if !mix(n ^ seed).is_multiple_of(8) {
        return Step { batch: None, calls: vec![single] };
    }
    let kinds = BatchKind::ALL;
    let kind = kinds[mix(n) as usize % kinds.len()];
    let calls = (1..2 + mix(n + 1) % 40)
        .map(|at| {
            let call = call(at);
            Call {
                action: kind.action(call.action, 256 + (n * 64 + at) * 16 + thread as u64),
                ..call
            }
        })
        .collect();
    Step { batch: Some(kind), calls }
}

/// The values that each key may have after a child's death.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// The allowed values of every key that was ever written; they include `None` if the key may be absent.
    pub allowed: BTreeMap<u64, BTreeSet<Option<u64>>>,
    /// Number of acknowledged operations.
    pub acknowledged: u64,
}

impl Expected {
    /// Returns the contents that `before` may have become. `progress` holds, for each thread, the number of steps that
    /// have returned and the number of steps that have started.
    pub(super) fn after(before: &Reference, seed: u64, progress: &[(u64, u64)]) -> Self {
        let mut state = before.clone();
        let mut expected = Self::default();
        let mut last = Vec::new();
        for (thread, &(done, begun)) in progress.iter().enumerate() {
            for n in 0..done {
                let step = step(seed, thread, n);
                expected.acknowledged += perform(&mut state, &step);
                expected.mention(&step);
            }
            last.extend((done..begun).map(|n| step(seed, thread, n)));
        }
        for (key, _) in before.sorted() {
            expected.allowed.entry(key).or_default();
        }
        for (&key, values) in &mut expected.allowed {
            values.insert(state.get(key));
        }
        for step in last {
            expected.perhaps(&mut state, &step);
        }
        expected
    }

    /// Adds the step's keys to the keys that the table may hold.
    fn mention(&mut self, step: &Step) {
        for call in &step.calls {
            self.allowed.entry(call.key).or_default();
        }
    }

    /// Records a step in flight: for each key, any prefix of the step's operations on it may have taken effect.
    fn perhaps(&mut self, state: &mut Reference, step: &Step) {
        for &call in &step.calls {
            let before = state.get(call.key);
            state.ask(call);
            let allowed = self.allowed.entry(call.key).or_insert_with(|| BTreeSet::from([before]));
            allowed.insert(state.get(call.key));
        }
    }
}

/// Executes a step on the reference. Returns the number of operations that ran.
fn perform(state: &mut Reference, step: &Step) -> u64 {
    match step.batch {
        None => step.calls.iter().map(|&call| state.ask(call)).count() as u64,
        Some(kind) => state.ask_batch(kind, &step.calls).len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_steps_leave_one_value_and_a_begun_one_leaves_a_choice() {
        let before = Reference::new();
        let sure = Expected::after(&before, 9, &[(200, 200), (100, 100)]);
        assert!(sure.acknowledged >= 300);
        assert!(sure.allowed.values().all(|values| values.len() == 1));
        let unsure = (0..20).any(|n| {
            let expected = Expected::after(&before, 9, &[(200 + n, 201 + n)]);
            expected.allowed.values().any(|values| values.len() > 1)
        });
        assert!(unsure);
    }

    #[test]
    fn threads_share_no_key_and_batches_occur() {
        let keys = |thread| -> BTreeSet<u64> {
            (0..500).flat_map(|n| step(3, thread, n).calls).map(|call| call.key).collect()
        };
        assert!(keys(0).is_disjoint(&keys(1)));
        assert!((0..500).any(|n| step(3, 0, n).batch.is_some()));
    }
}
