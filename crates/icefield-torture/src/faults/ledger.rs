//! The expected contents of a table some of whose operations have failed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use icefield::{Data, Error, Table};

use crate::call::{BatchKind, Call, Reply, ask, ask_batch};
use crate::reference::Reference;
use crate::subject::{FOREIGN, Sample};

/// Checks whether an error is a valid result of a call or a batch. The first argument is the call with the values that
/// its key may have, or `None` for a batch.
pub(crate) type Refusal = fn(Option<(Call, &BTreeSet<Option<u64>>)>, &Error) -> bool;

/// The acknowledged state, and the keys whose value is uncertain after a failed batch, each with its possible values.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    state: Reference,
    unsure: BTreeMap<u64, BTreeSet<Option<u64>>>,
    refusal: Refusal,
    pub(crate) errors: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::with_refusal(|_, _| true)
    }
}

impl Ledger {
    /// Creates a ledger of an empty table whose calls may return the errors that `refusal` accepts.
    pub(crate) fn with_refusal(refusal: Refusal) -> Self {
        Self { state: Reference::new(), unsure: BTreeMap::new(), refusal, errors: 0 }
    }

    /// Executes `call` on `table`. The result must be correct, or an accepted error without any effect.
    pub(crate) fn ask<T>(&mut self, table: &T, call: Call) -> Result<(), String>
    where
        T: Table<Key: Sample, Value: Sample>,
    {
        match ask(table, call) {
            Err(error) if (self.refusal)(Some((call, &self.allowed(call.key))), &error) => {
                self.errors += 1;
                Ok(())
            }
            Err(error) => Err(format!("{call:?}: {error}")),
            Ok(reply) => self.expect(call, &reply),
        }
    }

    /// Checks that the reply is correct for at least one of the values that the key may have. From then on, the key may
    /// have the values that the call gives it, starting from one of these.
    fn expect(&mut self, call: Call, reply: &Reply) -> Result<(), String> {
        let before = self.allowed(call.key);
        let after: BTreeSet<Option<u64>> = before
            .iter()
            .map(|value| call.action.step(*value))
            .filter(|(_, right)| right == reply)
            .map(|(after, _)| after)
            .collect();
        if after.is_empty() {
            return Err(format!("{call:?} returned {reply:?}; the key held one of {before:?}"));
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

    /// Executes a batch of puts or removals on `table` and ignores its results. If it fails, each key holds the
    /// effect of some prefix of its operations.
    pub(crate) fn write_batch<T>(
        &mut self,
        table: &T,
        kind: BatchKind,
        calls: &[Call],
    ) -> Result<(), String>
    where
        T: Table<Key: Sample, Value: Sample>,
    {
        let Err(error) = ask_batch(table, kind, calls) else {
            for &call in calls {
                self.unsure.remove(&call.key);
                self.state.ask(call);
            }
            return Ok(());
        };
        if !(self.refusal)(None, &error) {
            return Err(format!("{kind:?}: {error}"));
        }
        self.errors += 1;
        for &call in calls {
            let before = self.allowed(call.key);
            let after: Vec<_> = before.iter().map(|value| call.action.step(*value).0).collect();
            self.unsure.insert(call.key, before.into_iter().chain(after).collect());
        }
        Ok(())
    }

    /// Records the value of a key.
    pub(crate) fn set(&mut self, key: u64, value: Option<u64>) {
        self.unsure.remove(&key);
        self.state.set(key, value);
    }

    /// Records the values that a key may have.
    pub(crate) fn allow(&mut self, key: u64, values: BTreeSet<Option<u64>>) {
        self.unsure.insert(key, values);
    }

    /// Records that the table is empty.
    pub(crate) fn clear(&mut self) {
        self.unsure.clear();
        self.state.clear();
    }

    /// Adds the contents of another ledger, which is for other keys of the same table.
    pub(crate) fn merge(&mut self, other: Self) {
        other.state.sorted().into_iter().for_each(|(key, value)| self.state.set(key, Some(value)));
        self.unsure.extend(other.unsure);
        self.errors += other.errors;
    }

    /// Compares the ledger with the contents of `table`, read by a scan and by single reads.
    pub(crate) fn compare<T>(&self, table: &T) -> Result<(), String>
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
            return Err("a scan shows a key twice".to_owned());
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

    /// Compares the ledger with `records`, which must be all records of the table.
    pub(crate) fn compare_records(
        &self,
        records: impl Iterator<Item = (u64, u64)>,
    ) -> Result<(), String> {
        let mut seen = BTreeMap::new();
        for (key, value) in records {
            if seen.insert(key, value).is_some() {
                return Err(format!("a scan shows key {key} twice"));
            }
        }
        let known = self.state.sorted().into_iter().map(|(key, _)| key);
        let keys: BTreeSet<u64> =
            seen.keys().copied().chain(known).chain(self.unsure.keys().copied()).collect();
        keys.into_iter().try_for_each(|key| {
            let value = seen.get(&key).copied();
            self.judge(key, value, value)
        })
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
