//! The guards of a map.

use std::ops::{ControlFlow, Deref};

use crate::base::reclaim::{Guard, OwnedGuard, Reclaimer};

/// A guard, from [`DlhtMap::pin`](crate::DlhtMap::pin), that protects all data obtained from the map under it.
///
/// ```
/// let map = icefield::DlhtMap::from([(1, "one".to_owned())]);
/// let guard = map.pin();
/// let one = map.get(&1, &guard);
/// map.remove(&1, &guard);
/// assert_eq!(one.map(String::as_str), Some("one")); // Gone from the map, not from memory.
/// ```
#[must_use = "nothing is protected once the guard is dropped"]
#[derive(Debug)]
pub struct DlhtGuard<'a>(Holder<'a>);

#[derive(Debug)]
enum Holder<'a> {
    Thread(Guard<'a>),
    Owned(OwnedGuard<'a>),
}

impl<'a> DlhtGuard<'a> {
    #[inline(always)]
    pub(super) fn of_thread(guard: Guard<'a>) -> Self {
        Self(Holder::Thread(guard))
    }

    /// Ends this thread's epoch (§3.2.3): all references obtained under this guard end, as the borrow checker ensures,
    /// and records that were replaced and removed meanwhile can be freed. This is the paper's client-driven epoch, for
    /// a thread that keeps one guard and calls this between requests. Does nothing while the thread has another guard
    /// of this map.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u64, String>::new();
    /// let mut guard = map.pin();
    /// for request in 0..1000 {
    ///     map.insert(request % 8, format!("request {request}"), &guard);
    ///     assert!(map.get(&(request % 8), &guard).is_some());
    ///     guard.advance_epoch(); // The replaced record can be freed.
    /// }
    /// ```
    ///
    /// References obtained before cannot be used afterwards:
    ///
    /// ```compile_fail
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// let mut guard = map.pin();
    /// let value = map.get(&1, &guard);
    /// guard.advance_epoch();
    /// assert_eq!(value, Some(&10));
    /// ```
    pub fn advance_epoch(&mut self) {
        match &mut self.0 {
            Holder::Thread(guard) => guard.renew(),
            Holder::Owned(guard) => guard.renew(),
        }
    }

    #[inline(always)]
    pub(super) fn reclaimer(&self) -> &Reclaimer {
        match &self.0 {
            Holder::Thread(guard) => guard.reclaimer(),
            Holder::Owned(guard) => guard.reclaimer(),
        }
    }

    /// # Safety
    /// As for [`Guard::retire_box`].
    #[inline]
    pub(super) unsafe fn retire_box<T: Send>(&self, boxed: *mut T) {
        // SAFETY: the caller's contract.
        unsafe {
            match &self.0 {
                Holder::Thread(guard) => guard.retire_box(boxed),
                Holder::Owned(guard) => guard.retire_box(boxed),
            }
        }
    }

    /// # Safety
    /// As for [`Guard::retire_borrowing`].
    #[inline]
    pub(super) unsafe fn retire_borrowing<F: FnOnce() + Send>(&self, reclaim: F) {
        // SAFETY: the caller's contract.
        unsafe {
            match &self.0 {
                Holder::Thread(guard) => guard.retire_borrowing(reclaim),
                Holder::Owned(guard) => guard.retire_borrowing(reclaim),
            }
        }
    }

    /// # Safety
    /// As for [`Guard::retire_borrowing`].
    pub(super) unsafe fn retire_steps_borrowing<F>(&self, step: F)
    where
        F: FnMut() -> ControlFlow<()> + Send,
    {
        // SAFETY: the caller's contract.
        unsafe {
            match &self.0 {
                Holder::Thread(guard) => guard.retire_steps_borrowing(step),
                Holder::Owned(guard) => guard.retire_steps_borrowing(step),
            }
        }
    }
}

/// A guard that may be held across an `.await`, sent to other threads and shared between them, from
/// [`DlhtMap::pin_owned`](crate::DlhtMap::pin_owned).
///
/// It dereferences to [`DlhtGuard`], so `&guard` is accepted wherever a guard is. While it lives, the memory of all
/// records that any thread replaces or removes is kept: a task that waits for a slow peer under such a guard holds back
/// memory for as long. Copy what you need ([`DlhtMap::get_cloned`](crate::DlhtMap::get_cloned)), or call
/// [`advance_epoch`](DlhtOwnedGuard::advance_epoch), before a long wait.
///
/// ```
/// let map = icefield::DlhtMap::from([(1, "one".to_owned())]);
/// let guard = map.pin_owned();
/// let one = map.get(&1, &guard);
/// std::thread::scope(|scope| {
///     // Another thread may use the guard, and references obtained under it.
///     scope.spawn(|| {
///         map.remove(&1, &guard);
///         assert_eq!(one.map(String::as_str), Some("one"));
///     });
/// });
/// ```
#[must_use = "nothing is protected once the guard is dropped"]
#[derive(Debug)]
pub struct DlhtOwnedGuard<'a>(DlhtGuard<'a>);

// SAFETY: always holds an `OwnedGuard`, which is `Send` and `Sync`; the other variant is the only reason why a
// `DlhtGuard` is neither. No method gives mutable access to the `DlhtGuard`, so it cannot be exchanged for another.
unsafe impl Send for DlhtOwnedGuard<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for DlhtOwnedGuard<'_> {}

// The promise that the implementations above rely on.
const fn is_send_and_sync<T: Send + Sync>() {}
const _: () = is_send_and_sync::<OwnedGuard<'_>>();

impl<'a> Deref for DlhtOwnedGuard<'a> {
    type Target = DlhtGuard<'a>;

    fn deref(&self) -> &DlhtGuard<'a> {
        &self.0
    }
}

impl<'a> DlhtOwnedGuard<'a> {
    pub(super) fn new(guard: OwnedGuard<'a>) -> Self {
        Self(DlhtGuard(Holder::Owned(guard)))
    }

    /// Ends all references obtained under this guard, so that records which were replaced and removed meanwhile can be
    /// freed, and protects what is read from now on.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u64, String>::new();
    /// let mut guard = map.pin_owned();
    /// for request in 0..1000 {
    ///     map.insert(request % 8, format!("request {request}"), &guard);
    ///     guard.advance_epoch(); // The replaced record can be freed.
    /// }
    /// ```
    pub fn advance_epoch(&mut self) {
        self.0.advance_epoch();
    }
}
