//! Objects that wait to be reclaimed, and the functions that reclaim them.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// An owner of objects that it knows by a word each, see [`Guard::retire_word`](super::Guard::retire_word).
pub(crate) trait Reclaim: Sync {
    /// Frees the object `word`, which no reader holds any more. Must neither panic nor wait.
    fn reclaim(&self, word: u64);
}

/// An object that is to be reclaimed once.
pub(super) struct Retired {
    thing: *mut (),
    /// The second argument of `reclaim`; 0 if `thing` says everything.
    word: u64,
    /// Frees `thing`, or a part of it; returns `Continue` if a part is left.
    reclaim: unsafe fn(*mut (), u64) -> ControlFlow<()>,
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
        Self { thing: boxed.cast(), word: 0, reclaim: drop_box::<T> }
    }

    /// The object that `owner` knows as `word`.
    ///
    /// # Safety
    /// `owner` lives at least as long as the reclaimer, including its drop.
    pub(super) unsafe fn word<T: Reclaim>(owner: &T, word: u64) -> Self {
        Self { thing: std::ptr::from_ref(owner).cast_mut().cast(), word, reclaim: free_word::<T> }
    }

    /// A closure, to be run once.
    ///
    /// # Safety
    /// All data that the closure borrows lives at least as long as the reclaimer, including its drop.
    pub(super) unsafe fn closure<F: FnOnce() + Send>(reclaim: F) -> Self {
        let thing = Box::into_raw(Box::new(reclaim)).cast();
        Self { thing, word: 0, reclaim: run::<F> }
    }

    /// A closure, to be run until it returns `Break`.
    ///
    /// # Safety
    /// As for [`Retired::closure`].
    pub(super) unsafe fn steps<F: FnMut() -> ControlFlow<()> + Send>(step: F) -> Self {
        Self { thing: Box::into_raw(Box::new(step)).cast(), word: 0, reclaim: run_step::<F> }
    }

    /// Reclaims the object, or a part of it; returns `Continue` if a part is left.
    ///
    /// # Safety
    /// No reader holds the object, and this is not called again after it has returned `Break` or panicked.
    pub(super) unsafe fn reclaim(&self) -> ControlFlow<()> {
        // SAFETY: the caller's contract, and that of the constructor.
        unsafe { (self.reclaim)(self.thing, self.word) }
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
unsafe fn drop_box<T>(boxed: *mut (), _: u64) -> ControlFlow<()> {
    // SAFETY: the caller's contract.
    drop(unsafe { Box::from_raw(boxed.cast::<T>()) });
    ControlFlow::Break(())
}

/// # Safety
/// `owner` points to a `T` that lives.
unsafe fn free_word<T: Reclaim>(owner: *mut (), word: u64) -> ControlFlow<()> {
    // SAFETY: the caller's contract.
    unsafe { &*owner.cast_const().cast::<T>() }.reclaim(word);
    ControlFlow::Break(())
}

/// Moves a retired closure out of its box and runs it.
///
/// # Safety
/// As for [`drop_box`].
unsafe fn run<F: FnOnce()>(boxed: *mut (), _: u64) -> ControlFlow<()> {
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
unsafe fn run_step<F: FnMut() -> ControlFlow<()>>(boxed: *mut (), _: u64) -> ControlFlow<()> {
    // SAFETY: the caller's contract.
    let mut step = unsafe { Box::from_raw(boxed.cast::<F>()) };
    let done = step();
    if done.is_continue() {
        // The closure stays in its box for the next step.
        let _ = Box::into_raw(step);
    }
    done
}
