//! The cheapest guard, for a few instructions inside a table.

use std::marker::PhantomData;
use std::ops::ControlFlow;

use super::presence::{NOWHERE, Presence};
use super::retired::Retired;
use super::{Reclaimer, Slot};
use crate::base::sync::{MODELLED, Ordering};
use crate::base::thread;

impl Reclaimer {
    /// Like [`Reclaimer::pin`], for a few instructions inside a table. While the section exists, the thread may create
    /// a guard of this reclaimer only if it already holds one; otherwise [`Reclaimer::pin`] panics. A section inside a
    /// guard or another section must be dropped before that one. This is the cheapest protection: about ten
    /// instructions, none of them locked.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Section<'_> {
        self.enter_at(self.slots.mine())
    }

    #[inline(always)]
    fn enter_at<'a>(&'a self, slot: &'a Slot) -> Section<'a> {
        if MODELLED {
            return Section { reclaimer: self, presence: &slot.inner, thread: PhantomData };
        }
        let mut presence = &slot.presence;
        // Relaxed: only this thread stores it.
        if presence.announced.load(Ordering::Relaxed) != NOWHERE {
            presence = slot.inner();
        }
        self.announce(presence);
        Section { reclaimer: self, presence, thread: PhantomData }
    }

    /// Looks this thread's slot up once, for many sections.
    pub(crate) fn desk(&self) -> Desk<'_> {
        let slot = self.slots.mine();
        thread::hold();
        Desk { reclaimer: self, slot, thread: PhantomData }
    }
}

/// The slot of a thread in a reclaimer, from `Reclaimer::desk`. Only its sections protect objects.
pub(crate) struct Desk<'a> {
    reclaimer: &'a Reclaimer,
    slot: &'a Slot,
    /// Makes the desk `!Send`.
    thread: PhantomData<*mut ()>,
}

impl<'a> Desk<'a> {
    /// Calls [`Reclaimer::enter`].
    #[inline(always)]
    pub(crate) fn enter(&self) -> Section<'a> {
        self.reclaimer.enter_at(self.slot)
    }
}

impl Drop for Desk<'_> {
    fn drop(&mut self) {
        thread::release();
    }
}

/// A [`Guard`](super::Guard) for a few instructions inside a table, from `Reclaimer::enter`.
#[must_use = "nothing is protected once the section is dropped"]
pub struct Section<'a> {
    reclaimer: &'a Reclaimer,
    presence: &'a Presence,
    /// Makes the section `!Send`.
    thread: PhantomData<*mut ()>,
}

impl std::fmt::Debug for Section<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Section")
    }
}

impl Drop for Section<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !MODELLED {
            self.reclaimer.withdraw(self.presence);
        }
    }
}

impl Section<'_> {
    /// Retires a large object that is freed in steps. Once no reader can hold the object, `step` runs each time that a
    /// thread leaves and processes the queue, until `step` returns `Break`. `step` must neither panic nor wait.
    pub(crate) fn retire_in_steps<F>(&self, step: F)
    where
        F: FnMut() -> ControlFlow<()> + Send + 'static,
    {
        let slot = self.reclaimer.slots.mine();
        // SAFETY: a `'static` closure borrows nothing that the reclaimer could outlive.
        self.reclaimer.retire(slot, unsafe { Retired::steps(step) });
        slot.flush();
    }
}
