//! What a table must hold after some of its operations failed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use icefield::{Data, Table};

use crate::call::{BatchKind, Call, FOREIGN, Reply, ask, ask_batch};
use crate::reference::Reference;
use crate::subject::Sample;

/// The acknowledged state, and the keys of failed batches, which may be either way.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    state: Reference,
    unsure: BTreeMap<u64, BTreeSet<Option<u64>>>,
    pub(super) errors: u64,
}

impl Ledger {
    /// Asks `table`: the right answer, or an error that changed nothing.
    pub(super) fn ask<T>(&mut self, table: &T, call: Call) -> Result<(), String>
    where
        T: Table<Key: Sample, Value: Sample>,
    {
        match ask(table, call) {
            Err(_) => {
                self.errors += 1;
                Ok(())
            }
            Ok(reply) => self.expect(call, &reply),
        }
    }

    /// The answer must be right for one of the values that the key may have, which becomes the value it had.
    fn expect(&mut self, call: Call, reply: &Reply) -> Result<(), String> {
        let before = self.allowed(call.key);
        let after: BTreeSet<Option<u64>> = before
            .iter()
            .map(|value| call.action.step(*value))
            .filter(|(_, right)| right == reply)
            .map(|(after, _)| after)
            .collect();
        if after.is_empty() {
            return Err(format!("{call:?} answered {reply:?}; the key held one of {before:?}"));
        }
        self.state.set(call.key, after.first().copied().flatten());
        if after.len() > 1 {
            self.unsure.insert(call.key, after);
        } else {
            self.unsure.remove(&call.key);
        }
        Ok(())
    }

    fn allowed(&self, key: u64) -> BTreeSet<Option<u64>> {
        self.unsure.get(&key).cloned().unwrap_or_else(|| BTreeSet::from([self.state.get(key)]))
    }

    /// Asks `table` for a batch of puts or removals, whose answers do not matter. If it fails, each key holds what some
    /// prefix of its operations leaves.
    pub(super) fn write_batch<T>(&mut self, table: &T, kind: BatchKind, calls: &[Call])
    where
        T: Table<Key: Sample, Value: Sample>,
    {
        if ask_batch(table, kind, calls).is_ok() {
            for &call in calls {
                self.unsure.remove(&call.key);
                self.state.ask(call);
            }
            return;
        }
        self.errors += 1;
        for &call in calls {
            let before = self.allowed(call.key);
            let after: Vec<_> = before.iter().map(|value| call.action.step(*value).0).collect();
            self.unsure.insert(call.key, before.into_iter().chain(after).collect());
        }
    }

    /// Compares with everything that `table` holds, by a scan and by reads.
    pub(super) fn compare<T>(&self, table: &T) -> Result<(), String>
    where
        T: Table<Key: Sample, Value: Sample>,
    {
        let mut seen = BTreeMap::new();
        let mut twice = false;
        let scanned = table.for_each(|key, value| {
            let pair = (
                T::Key::number(key).unwrap_or(FOREIGN),
                T::Value::number(value).unwrap_or(FOREIGN),
            );
            twice |= seen.insert(pair.0, pair.1).is_some();
            ControlFlow::Continue(())
        });
        scanned.map_err(|error| format!("scan: {error}"))?;
        if twice {
            return Err("a key is there twice".to_owned());
        }
        let keys: BTreeSet<u64> = seen
            .keys()
            .copied()
            .chain(self.state.sorted().into_iter().map(|(key, _)| key))
            .chain(self.unsure.keys().copied())
            .collect();
        for key in keys {
            let owned = T::Key::sample(key);
            let found = table.get(T::Key::arg(&owned)).map_err(|error| format!("get: {error}"))?;
            let found = found.map(|value| T::Value::number(&value).unwrap_or(FOREIGN));
            self.judge(key, found, seen.get(&key).copied())?;
        }
        Ok(())
    }

    fn judge(&self, key: u64, found: Option<u64>, scanned: Option<u64>) -> Result<(), String> {
        let allowed = self.allowed(key);
        if found == scanned && allowed.contains(&found) {
            return Ok(());
        }
        Err(format!(
            "key {key} holds {found:?} by get and {scanned:?} by scan instead of one of {allowed:?}"
        ))
    }
}
