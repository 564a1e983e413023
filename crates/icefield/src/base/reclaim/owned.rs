//! Guards that belong to no thread.
//!
//! An [`OwnedGuard`] announces itself in a slot that no other guard uses meanwhile, so it may be sent to other threads,
//! and several threads may use it at once.

use std::ops::ControlFlow;

use super::Reclaimer;
use super::owned_slots::OwnedSlot;
use super::presence::NOWHERE;
use super::retired::Retired;
use crate::base::sync::Ordering;

impl Reclaimer {
    /// Like [`Reclaimer::pin`], but the guard belongs to no thread: it may be sent to other threads and shared between
    /// them. Costs a lock and a slot, so it is slower.
    ///
    /// Objects that are loaded under the guard are protected on every thread to which the guard, or a reference to it,
    /// was handed over (for example through a channel or a join). See "Owned guards" in the description of this module.
    pub fn pin_owned(&self) -> OwnedGuard<'_> {
        let (number, slot) = self.owned.take();
        self.announce(&slot.presence);
        OwnedGuard { reclaimer: self, slot, number }
    }
}

/// A guard that belongs to no thread, from [`Reclaimer::pin_owned`]. Protects objects as [`Guard`](super::Guard) does.
#[must_use = "nothing is protected once the guard is dropped"]
pub struct OwnedGuard<'a> {
    reclaimer: &'a Reclaimer,
    slot: &'a OwnedSlot,
    number: usize,
}

impl std::fmt::Debug for OwnedGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnedGuard")
    }
}

impl Drop for OwnedGuard<'_> {
    fn drop(&mut self) {
        let presence = &self.slot.presence;
        // Release (R3): all reads under the announcement are complete, on every thread that used the guard, because the
        // guard has been handed back since.
        presence.announced.store(NOWHERE, Ordering::Release);
        self.reclaimer.barrier.light();
        // Relaxed (R4): the barrier orders it.
        let asked = presence.asked.load(Ordering::Relaxed);
        let work = asked.then(|| self.take_work());
        // The number is returned before objects are reclaimed, because their destructors may panic.
        self.reclaimer.owned.give_back(self.number);
        if let Some((retired, urgent)) = work {
            self.look_after(retired, urgent);
        }
    }
}

impl<'a> OwnedGuard<'a> {
    /// Returns the reclaimer of the guard.
    pub(crate) fn reclaimer(&self) -> &'a Reclaimer {
        self.reclaimer
    }

    /// Takes over the objects retired in this slot, and whether they are urgent, as in `Reclaimer::look_after`.
    fn take_work(&self) -> (Vec<Retired>, bool) {
        // SeqCst (R4): a thread whose swap in `all_know` still returns `true` relies on this thread to process the
        // queue later.
        self.slot.presence.asked.store(false, Ordering::SeqCst);
        let retired = std::mem::take(&mut *self.slot.retired());
        // Relaxed: the lock above orders it.
        let flushed = self.slot.flushed.swap(false, Ordering::Relaxed);
        let urgent = flushed || retired.len() < self.reclaimer.batch;
        (retired, urgent)
    }

    #[cold]
    fn look_after(&self, retired: Vec<Retired>, urgent: bool) {
        if self.reclaimer.collect(retired, urgent) {
            // The next step of a large object runs when the next guard of this slot is dropped. If there is one
            // already, it only processes the queue once more.
            self.slot.presence.asked.store(true, Ordering::SeqCst);
        }
    }

    fn retire_object(&self, retired: Retired) {
        let mut things = self.slot.retired();
        things.push(retired);
        if things.len() >= self.reclaimer.batch {
            // Relaxed: the thread that drops the guard reads it, after the guard has been handed to it.
            self.slot.presence.asked.store(true, Ordering::Relaxed);
        }
    }

    /// Like [`Guard::retire_box`](super::Guard::retire_box).
    ///
    /// # Safety
    /// As there.
    pub unsafe fn retire_box<T: Send>(&self, boxed: *mut T) {
        // SAFETY: the caller's contract.
        self.retire_object(unsafe { Retired::boxed(boxed) });
    }

    /// Like [`Guard::retire`](super::Guard::retire).
    pub fn retire(&self, reclaim: impl FnOnce() + Send + 'static) {
        // SAFETY: a `'static` closure borrows nothing that the reclaimer could outlive.
        unsafe { self.retire_borrowing(reclaim) };
    }

    /// Like [`Guard::retire_borrowing`](super::Guard::retire_borrowing).
    ///
    /// # Safety
    /// As there.
    pub unsafe fn retire_borrowing<F: FnOnce() + Send>(&self, reclaim: F) {
        // SAFETY: the caller's contract.
        self.retire_object(unsafe { Retired::closure(reclaim) });
    }

    /// Like `Guard::retire_steps_borrowing`.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn retire_steps_borrowing<F>(&self, step: F)
    where
        F: FnMut() -> ControlFlow<()> + Send,
    {
        // SAFETY: the caller's contract.
        self.retire_object(unsafe { Retired::steps(step) });
        self.flush();
    }

    /// Declares that the holder no longer holds any object that it reached before, and announces the current epoch.
    pub fn renew(&mut self) {
        let presence = &self.slot.presence;
        // Acquire (R1): as in `announce`.
        let epoch = self.reclaimer.epoch.load(Ordering::Acquire);
        // Release (R3, R2): all reads in the previous epoch are complete.
        presence.announced.store(epoch, Ordering::Release);
        self.reclaimer.barrier.light();
        // Relaxed (R4): the barrier orders it.
        if presence.asked.load(Ordering::Relaxed) {
            let (retired, urgent) = self.take_work();
            self.look_after(retired, urgent);
        }
    }

    /// Lets the objects retired through this slot be reclaimed as soon as the guards that exist now (including this
    /// one) have been dropped, even if there are fewer than a batch.
    pub fn flush(&self) {
        // Relaxed, both: as in `retire_object`.
        self.slot.flushed.store(true, Ordering::Relaxed);
        self.slot.presence.asked.store(true, Ordering::Relaxed);
    }
}
