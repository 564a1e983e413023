//! Locks whose poisoning can be ignored.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose data is valid at every instruction, so that poisoning can be ignored.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
