//! Exclusion between operations on a whole table and, where needed, between them and writers.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use crate::base::gate::{Closed, Gate, Pass};
use crate::storage::Medium;
use crate::{Error, Result};

/// The gate of a table's writers, and the mutex of its operations on the whole table.
#[derive(Debug, Default)]
pub(crate) struct Exclusion {
    gate: Gate,
    structure: Mutex<()>,
}

impl Exclusion {
    /// Enters the gate as a writer. A thread must not enter twice.
    #[inline]
    pub(crate) fn enter(&self) -> Pass<'_> {
        self.gate.enter()
    }

    /// Like [`Exclusion::enter`], but returns `None` while writers are kept out.
    pub(crate) fn try_enter(&self) -> Option<Pass<'_>> {
        self.gate.try_enter()
    }

    /// Keeps writers out until the result is dropped.
    pub(crate) fn close(&self, storage: &impl Medium) -> Result<Closed<'_>> {
        self.gate.close().map_err(|error| Error::io(storage.path(), error))
    }

    /// Excludes other operations on the whole table.
    pub(crate) fn lock(&self, storage: &impl Medium) -> MutexGuard<'_, ()> {
        lock(storage, &self.structure)
    }

    /// Like [`Exclusion::lock`], but returns `None` when there is another operation.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        try_lock(&self.structure)
    }
}

/// After this number of rounds, a waiting thread sleeps: the holder may be an operation on the whole table, which can
/// last seconds.
const PATIENCE: u32 = 1 << 10;
const PAUSE: Duration = Duration::from_micros(50);

/// Locks a mutex whose holder may store to the medium and wait there.
pub(crate) fn lock<'a, T>(storage: &impl Medium, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
    let mut rounds = 0;
    loop {
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
        // Called in each round: the simulator may have to let the holder run.
        storage.wait(rounds);
        if rounds >= PATIENCE {
            std::thread::sleep(PAUSE);
        }
        rounds = rounds.saturating_add(1);
    }
}

/// Like [`lock`], but returns `None` when another thread holds the mutex.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        // A panic leaves the data under these mutexes valid, or in a state that a crash can leave, too.
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
