//! Mutexes whose holders may wait on the medium.

use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::storage::Medium;

/// Locks a mutex whose holder may store to the medium and wait there.
pub(super) fn lock<'a, T>(storage: &impl Medium, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
    let mut rounds = 0;
    loop {
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
        storage.wait(rounds);
        rounds = rounds.saturating_add(1);
    }
}

/// Like [`lock`], but returns `None` when another thread holds the mutex.
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        // The data under these mutexes is valid after any panic, or a crash could have left it in the same state.
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
