//! Objects that wait to be reclaimed, and the functions that reclaim them.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// An object that is to be reclaimed once.
pub(super) struct Retired {
    thing: *mut (),
    /// Frees `thing`, or a part of it; returns `Continue` if a part is left.
    reclaim: unsafe fn(*mut ()) -> ControlFlow<()>,
}

// SAFETY: callers that retire an object promise that any thread may free it.
unsafe impl Send for Retired {}

impl Retired {
    /// A boxed value, to be dropped.
    ///
    /// # Safety
    /// `boxed` came from [`Box::into_raw`] and is passed once. It may be dropped on any thread until the reclaimer has
    /// been dropped.
    pub(super) unsafe fn boxed<T>(boxed: *mut T) -> Self {
        Self { thing: boxed.cast(), reclaim: drop_box::<T> }
    }

    /// A closure, to be run once.
    ///
    /// # Safety
    /// All data that the closure borrows lives at least as long as the reclaimer, including its drop.
    pub(super) unsafe fn closure<F: FnOnce() + Send>(reclaim: F) -> Self {
        Self { thing: Box::into_raw(Box::new(reclaim)).cast(), reclaim: run::<F> }
    }

    /// A closure, to be run until it returns `Break`.
    ///
    /// # Safety
    /// As for [`Retired::closure`].
    pub(super) unsafe fn steps<F: FnMut() -> ControlFlow<()> + Send>(step: F) -> Self {
        Self { thing: Box::into_raw(Box::new(step)).cast(), reclaim: run_step::<F> }
    }

    /// Reclaims the object, or a part of it; returns `Continue` if a part is left.
    ///
    /// # Safety
    /// No reader holds the object, and this is not called again after it has returned `Break` or panicked.
    pub(super) unsafe fn reclaim(&self) -> ControlFlow<()> {
        // SAFETY: the caller's contract, and that of the constructor.
        unsafe { (self.reclaim)(self.thing) }
    }
}

/// Calls `f` with each thing. If a call panics, continues with the next thing. Returns the first panic.
pub(crate) fn despite_panics<T>(
    things: impl IntoIterator<Item = T>,
    mut f: impl FnMut(T),
) -> Option<Box<dyn Any + Send>> {
    let (mut things, mut first) = (things.into_iter(), None);
    loop {
        // AssertUnwindSafe: the thing whose call panicked has left the iterator, and the caller resumes the panic.
        match catch_unwind(AssertUnwindSafe(|| things.by_ref().for_each(&mut f))) {
            Ok(()) => return first,
            Err(panic) => {
                first.get_or_insert(panic);
            }
        }
    }
}

/// Calls `f` with each thing, and resumes the first panic of a call when all things are done. Destructors of users run
/// in this way: one that panics must not leak the other objects.
pub(crate) fn for_each_despite_panics<T>(things: impl IntoIterator<Item = T>, f: impl FnMut(T)) {
    if let Some(panic) = despite_panics(things, f) {
        resume_unwind(panic);
    }
}

/// # Safety
/// `boxed` came from [`Box::into_raw`] of a `Box<T>` and is passed once.
unsafe fn drop_box<T>(boxed: *mut ()) -> ControlFlow<()> {
    // SAFETY: the caller's contract.
    drop(unsafe { Box::from_raw(boxed.cast::<T>()) });
    ControlFlow::Break(())
}

/// Moves a retired closure out of its box and runs it.
///
/// # Safety
/// As for [`drop_box`].
unsafe fn run<F: FnOnce()>(boxed: *mut ()) -> ControlFlow<()> {
    // SAFETY: the caller's contract.
    let reclaim = unsafe { Box::from_raw(boxed.cast::<F>()) };
    reclaim();
    ControlFlow::Break(())
}

/// Runs one step of a retired closure, and drops the closure after the last step.
///
/// # Safety
/// `boxed` came from [`Box::into_raw`] of a `Box<F>`; the caller owns it and does not pass it again after a break or a
/// panic.
unsafe fn run_step<F: FnMut() -> ControlFlow<()>>(boxed: *mut ()) -> ControlFlow<()> {
    // SAFETY: the caller's contract.
    let mut step = unsafe { Box::from_raw(boxed.cast::<F>()) };
    let done = step();
    if done.is_continue() {
        // The closure stays in its box for the next step.
        let _ = Box::into_raw(step);
    }
    done
}
