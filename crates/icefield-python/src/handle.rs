//! A table that can be closed, and that a forked process must not use.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Once, PoisonError, RwLock, TryLockError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::ForkedError;

/// Number of forks between the process that imported the package and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_fork() {
    // Relaxed: a forked process begins with one thread.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Makes forks visible. It also counts those that Python does not make.
pub fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler changes an atomic only, which is allowed in a forked process.
        unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
    });
}

fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Opens a read-only table again, in a forked process.
type Reopen<T> = Box<dyn Fn() -> PyResult<T> + Send + Sync>;

/// A table, until it is closed.
pub struct Handle<T> {
    /// Replaced in forked processes, where the lock may be held by a thread that does not exist.
    state: AtomicPtr<State<T>>,
    /// `None` if the table is writable or in memory: then a forked process cannot use it.
    reopen: Option<Reopen<T>>,
}

struct State<T> {
    forks: u32,
    table: RwLock<Option<Arc<T>>>,
}

impl<T> State<T> {
    fn boxed(table: T) -> *mut Self {
        Box::into_raw(Box::new(Self { forks: forks(), table: RwLock::new(Some(Arc::new(table))) }))
    }
}

impl<T> Handle<T> {
    /// Returns a handle of an open table.
    pub fn new(table: T, reopen: Option<Reopen<T>>) -> Self {
        Self { state: AtomicPtr::new(State::boxed(table)), reopen }
    }

    /// Calls `f` with the table. `close` waits until it returns, so `f` must not run Python code that takes long.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&T) -> PyResult<R>) -> PyResult<R> {
        let table = self.state()?.table.read().unwrap_or_else(PoisonError::into_inner);
        f(table.as_ref().ok_or_else(closed)?)
    }

    /// Returns the table, for calls that release the interpreter's lock.
    pub fn table(&self) -> PyResult<Arc<T>> {
        let table = self.state()?.table.read().unwrap_or_else(PoisonError::into_inner);
        table.clone().ok_or_else(closed)
    }

    /// Returns whether the table has been closed. `false` in a forked process.
    pub fn is_closed(&self) -> bool {
        self.state().is_ok_and(|state| match state.table.try_read() {
            Ok(table) => table.is_none(),
            Err(TryLockError::Poisoned(table)) => table.into_inner().is_none(),
            Err(TryLockError::WouldBlock) => true,
        })
    }

    /// Closes the table after the calls of other threads have returned. A second call has no effect.
    pub fn close(&self, py: Python<'_>) -> PyResult<()>
    where
        T: Send + Sync,
    {
        let state = self.state()?;
        let table =
            py.detach(|| state.table.write().unwrap_or_else(PoisonError::into_inner).take());
        let Some(mut table) = table else { return Ok(()) };
        loop {
            match Arc::try_unwrap(table) {
                Ok(table) => {
                    py.detach(|| drop(table));
                    return Ok(());
                }
                Err(shared) => table = shared,
            }
            py.detach(|| std::thread::sleep(Duration::from_millis(1)));
            py.check_signals()?;
        }
    }

    #[inline]
    fn state(&self) -> PyResult<&State<T>> {
        // SAFETY: the pointer is from a box that only `drop` frees.
        let state = unsafe { &*self.state.load(Ordering::Acquire) };
        if state.forks == forks() { Ok(state) } else { self.after_fork() }
    }

    #[cold]
    fn after_fork(&self) -> PyResult<&State<T>> {
        let Some(reopen) = &self.reopen else {
            return Err(ForkedError::new_err(
                "this process was forked from the one that opened the table; open it read-only before the fork, or \
                 here after the parent has closed it",
            ));
        };
        let old = self.state.load(Ordering::Acquire);
        let new = State::boxed(reopen()?);
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        // The old table is leaked: its threads do not exist in this process, and its locks may be held.
        let current = match self.state.compare_exchange(old, new, success, failure) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: no other thread has seen `new`.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        };
        // SAFETY: the pointer is from a box that only `drop` frees.
        Ok(unsafe { &*current })
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        let state = *self.state.get_mut();
        // SAFETY: the pointer is from a box that is freed here only.
        if unsafe { &*state }.forks == forks() {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(state) });
        }
    }
}

#[cold]
fn closed() -> PyErr {
    PyValueError::new_err("the table is closed; open it again")
}
