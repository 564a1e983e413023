//! A trial: one table, used while a plan makes system calls fail.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icefield::storage::FaultPlan;
use icefield::{Durability, Error};

use super::ledger::Ledger;
use crate::call::{Action, BatchKind, Call};
use crate::file_subject::{FileOptions, FileSubject};
use crate::rng::Rng;

/// Number of rounds of loading in each session, before the table is copied.
const ROUNDS: u64 = 10;

pub(super) struct Trial<T> {
    path: PathBuf,
    copy: PathBuf,
    how: FileOptions,
    rng: Rng,
    ledger: Ledger,
    table: PhantomData<fn() -> T>,
}

impl<T: FileSubject> Trial<T> {
    pub(super) fn new(seed: u64, place: &Path, plan: Arc<FaultPlan>) -> Self {
        Self {
            path: place.join("table"),
            copy: place.join("copy"),
            how: FileOptions {
                variant: seed,
                durability: Durability::PmemForced,
                faults: Some(plan),
                ..FileOptions::default()
            },
            rng: Rng::fork(seed, 4),
            ledger: Ledger::default(),
            table: PhantomData,
        }
    }

    /// Runs the trial. Returns the number of failed calls of the table, or a description of the violation.
    pub(super) fn run(mut self) -> Result<u64, String> {
        self.remove_leftovers()?;
        let created = match T::create_at(&self.path, self.how.clone()) {
            Ok(table) => {
                self.live(&table).map_err(|what| format!("after creation: {what}"))?;
                true
            }
            Err(_) => {
                self.ledger.errors += 1;
                false
            }
        };
        if created {
            match T::open_at(&self.path, self.how.clone()) {
                Ok(table) => {
                    self.live(&table).map_err(|what| format!("after reopening: {what}"))?
                }
                Err(Error::Locked { pid, .. }) => {
                    return Err(format!("still locked by {pid} after closing"));
                }
                Err(_) => self.ledger.errors += 1,
            }
        }
        self.verify(created)?;
        self.remove_leftovers()?;
        Ok(self.ledger.errors)
    }

    /// Loads the table, reads all records back through the same handle, and copies the table.
    fn live(&mut self, table: &T) -> Result<(), String> {
        for round in 0..ROUNDS {
            self.load(table, round)?;
        }
        self.ledger.compare(table)?;
        self.copy(table)
    }

    fn load(&mut self, table: &T, round: u64) -> Result<(), String> {
        for n in 0..20 {
            let key = self.rng.below(500);
            let value = 256 + round * 100 + n;
            let action = match self.rng.below(8) {
                0 => Action::Remove,
                1 => Action::Update(value),
                2 => Action::TryInsert(value),
                _ => Action::Insert(value),
            };
            self.ledger.ask(table, Call { key, action })?;
        }
        let calls: Vec<Call> = (0..30)
            .map(|n| Call {
                key: self.rng.below(500),
                action: Action::Put(256 + round * 100 + 50 + n),
            })
            .collect();
        self.ledger.write_batch(table, BatchKind::Put, &calls)
    }

    /// Copies the table. The copy must open and hold the same records, or must not exist.
    fn copy(&mut self, table: &T) -> Result<(), String> {
        if table.backup(&self.copy).is_err() {
            self.ledger.errors += 1;
            return if self.copy.exists() {
                Err("a failed backup left files".to_owned())
            } else {
                Ok(())
            };
        }
        let copy = T::open_at(&self.copy, FileOptions::default())
            .map_err(|error| format!("the backup: {error}"))?;
        self.ledger.compare(&copy).map_err(|what| format!("the backup: {what}"))?;
        drop(copy);
        std::fs::remove_dir_all(&self.copy)
            .map_err(|error| format!("{}: {error}", self.copy.display()))
    }

    /// Opens the table without faults. Acknowledged writes must be present, and the table must be clean and accept
    /// writes.
    fn verify(&mut self, created: bool) -> Result<(), String> {
        let table = match T::open_at(&self.path, FileOptions::default()) {
            Ok(table) => table,
            Err(Error::NotFound { .. }) if !created => return self.create_again(),
            Err(error) => return Err(format!("opening without faults: {error}")),
        };
        self.ledger.compare(&table).map_err(|what| format!("at the end: {what}"))?;
        let report = table.check().map_err(|error| format!("check: {error}"))?;
        if !report.is_clean() {
            return Err(format!("not clean: {report:?}"));
        }
        let errors = self.ledger.errors;
        self.load(&table, ROUNDS)?;
        if self.ledger.errors != errors {
            return Err("writes fail although no call does".to_owned());
        }
        self.ledger.compare(&table)
    }

    /// Creates the table again: a failed creation must not prevent the next one.
    fn create_again(&self) -> Result<(), String> {
        let how = FileOptions { faults: None, ..self.how.clone() };
        T::create_at(&self.path, how)
            .map(drop)
            .map_err(|error| format!("creating anew after a failed creation: {error}"))
    }

    fn remove_leftovers(&self) -> Result<(), String> {
        for path in [&self.path, &self.copy] {
            if path.exists() {
                std::fs::remove_dir_all(path)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        Ok(())
    }
}
