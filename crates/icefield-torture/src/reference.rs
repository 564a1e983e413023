//! The reference map for all tables: a `HashMap` that [`Action::step`](crate::call::Action::step) changes.

use std::collections::HashMap;

use icefield::OnFailure;

use crate::call::{BatchKind, Call, Reply};

/// A map that returns the correct replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    map: HashMap<u64, u64>,
}

impl Reference {
    /// Creates an empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the value of `key`.
    #[must_use]
    pub fn get(&self, key: u64) -> Option<u64> {
        self.map.get(&key).copied()
    }

    /// Sets or removes the value of `key`.
    pub fn set(&mut self, key: u64, value: Option<u64>) {
        match value {
            Some(value) => self.map.insert(key, value),
            None => self.map.remove(&key),
        };
    }

    /// Executes `call` and returns the correct reply.
    pub fn ask(&mut self, call: Call) -> Reply {
        let (after, reply) = call.action.step(self.get(call.key));
        self.set(call.key, after);
        reply
    }

    /// Executes a batch and returns the correct replies of the operations that run.
    pub fn ask_batch(&mut self, kind: BatchKind, calls: &[Call]) -> Vec<Reply> {
        let mut replies = Vec::with_capacity(calls.len());
        for &call in calls {
            let reply = self.ask(call);
            let stop = kind == BatchKind::Execute(OnFailure::Stop) && call.action.failed(&reply);
            replies.push(reply);
            if stop {
                break;
            }
        }
        replies
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.map.clear();
    }

    /// Keeps the pairs that `keep` accepts.
    pub fn retain(&mut self, keep: impl Fn(u64, u64) -> bool) {
        self.map.retain(|&key, value| keep(key, *value));
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Returns all pairs, sorted by key.
    #[must_use]
    pub fn sorted(&self) -> Vec<(u64, u64)> {
        let mut pairs: Vec<_> = self.map.iter().map(|(&key, &value)| (key, value)).collect();
        pairs.sort_unstable();
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Action, Rule};
    use icefield::Computed;

    fn call(key: u64, action: Action) -> Call {
        Call { key, action }
    }

    #[test]
    fn every_call_means_what_the_contract_says() {
        let mut map = Reference::new();
        assert_eq!(map.ask(call(1, Action::Update(5))), Reply::Value(None));
        assert_eq!(map.ask(call(1, Action::TryInsert(6))), Reply::TryInsert(Ok(())));
        assert_eq!(map.ask(call(1, Action::TryInsert(7))), Reply::TryInsert(Err(6)));
        assert_eq!(map.ask(call(1, Action::Insert(8))), Reply::Value(Some(6)));
        assert_eq!(map.ask(call(1, Action::Update(9))), Reply::Value(Some(8)));
        assert_eq!(
            map.ask(call(1, Action::Compute(Rule::RemoveEven))),
            Reply::Computed(Computed::Kept(Some(9)))
        );
        assert_eq!(
            map.ask(call(1, Action::Compute(Rule::Put(4)))),
            Reply::Computed(Computed::Put(Some(9)))
        );
        assert_eq!(
            map.ask(call(1, Action::Compute(Rule::RemoveEven))),
            Reply::Computed(Computed::Removed(Some(4)))
        );
        assert_eq!(map.ask(call(1, Action::Put(2))), Reply::Done);
        assert_eq!(map.ask(call(1, Action::Contains)), Reply::Present(true));
        assert_eq!(map.ask(call(1, Action::Remove)), Reply::Value(Some(2)));
        assert_eq!(map.ask(call(1, Action::Delete)), Reply::Done);
        assert!(map.is_empty());
    }

    #[test]
    fn stop_ends_after_the_first_failure() {
        let mut map = Reference::new();
        let calls =
            [call(1, Action::Insert(1)), call(1, Action::TryInsert(2)), call(2, Action::Insert(3))];
        assert_eq!(map.ask_batch(BatchKind::Execute(OnFailure::Stop), &calls).len(), 2);
        assert_eq!(map.len(), 1);
        assert_eq!(map.ask_batch(BatchKind::Execute(OnFailure::Continue), &calls).len(), 3);
    }
}
