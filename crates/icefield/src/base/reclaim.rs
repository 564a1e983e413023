//! Deferred reclamation: what a reader may still look at is given back only after the reader has left.
//!
//! By epochs. A reader announces the epoch in which it came, in a slot of its own, and takes that back when it leaves:
//! two plain stores, no locked instruction and no fence, so that requests overlap in the processor as if there were no
//! reclaimer. Whoever reclaims pays: it begins a new epoch, asks the system for a barrier on every processor that runs
//! a thread of this process (`membarrier`), and looks at all announcements. Where there is no such call, readers pay
//! for fences instead.
//!
//! The rules of use:
//! 1. A reader pins *before* it loads the reference, offset or index that leads to something which may be retired, and
//!    loads it with [`PROTECTED`] (or stronger). What it reached stays valid until its guard is dropped.
//! 2. A writer makes a thing unreachable for newcomers first, then retires it.
//! 3. No guard lives across user code or an `.await`: a pinned thread holds back everything that is retired meanwhile.
//!
//! # Why nothing is reclaimed too early
//!
//! A thing that was unlinked and then retired gets as its tag the epoch *e* that `collect` ends. It is
//! given back when no slot announces an epoch up to *e*, as seen after the barrier. Take a reader that holds it, so
//! that loaded it before it was unlinked, after announcing *a*:
//! - *a* ≤ *e*: had the reader loaded *e* + 1, it would have seen (R1) what was unlinked before.
//! - The announcement is seen: the barrier comes after the unlinking, so either it is after the reader's announcement in
//!   the reader's own order, which makes that visible, or before the reader's load, which would then see the unlinking.
//!
//! # Why nothing is forgotten
//!
//! Things wait with the thread that retired them until they are a batch, then for that thread to leave. What is held
//! back then goes to a common queue, and is looked at again with the next batch of anybody. When that may take too long
//! (it was [flushed](Guard::flush), or the queue is long) the slots that hold it back are *asked* to look after it when
//! they leave. An owner that leaves takes back its announcement, then looks whether it was asked; who asks does so, has
//! a barrier, and looks at the announcement again: one of the two sees the other.
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | R1 | `epoch` (SeqCst addition) | `epoch` (Acquire) | what was unlinked in the epochs before |
//! | R2 | announcement (Relaxed, light barrier) | announcement (heavy barrier, Acquire) | that the reader is here |
//! | R3 | announcement taken back (Release, light barrier) | as R2 | that the reader's loads are done |
//! | R4 | `asked` (SeqCst, heavy barrier) | `asked` (light barrier, Relaxed) | that things wait for this reader |

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::PoisonError;

use super::sync::{
    AtomicBool, AtomicU64, Barrier, MODELLED, Mutex, MutexGuard, Ordering, PerThread,
};
use super::thread;

/// The order of loads that lead to things which may be retired: Acquire, for the store that made them reachable was a
/// Release.
pub const PROTECTED: Ordering = Ordering::Acquire;

/// Retired things wait in batches of this many, to share the cost of the barrier.
const BATCH: usize = 64;

/// So many things that are held back are looked after by those who hold them back.
const LONG_QUEUE: usize = 8 * BATCH;

/// An epoch that nobody announces: the slot's owner is elsewhere.
const NOWHERE: u64 = 0;

/// The reclamation state of one table. Dropping it reclaims whatever is still waiting.
pub struct Reclaimer {
    /// From 1 on. Never wraps.
    epoch: AtomicU64,
    barrier: Barrier,
    batch: usize,
    slots: PerThread<Slot>,
    /// What was held back, by tag.
    waiting: Mutex<VecDeque<Tagged>>,
}

/// What a reclaimer knows of one thread. A line pair: the processors' adjacent-line prefetch would otherwise join
/// neighbours.
#[derive(Default)]
#[repr(align(128))]
struct Slot {
    presence: Presence,
    /// Where a section inside another one, or inside a guard, announces itself: nobody looks there.
    inner: Presence,
    /// How many guards the thread has.
    depth: Cell<usize>,
    retired: RefCell<Vec<Retired>>,
    /// Whether what is retired shall not wait for more than those who hold it.
    flushed: Cell<bool>,
}

impl Slot {
    /// Out of line, so that the usual case is a branch not taken.
    #[cold]
    #[inline(never)]
    fn inner(&self) -> &Presence {
        &self.inner
    }

    fn flush(&self) {
        self.flushed.set(true);
        // Relaxed: this thread reads it.
        self.presence.asked.store(true, Ordering::Relaxed);
    }
}

/// Whether a thread is here.
#[derive(Default)]
struct Presence {
    /// The epoch in which the thread was pinned; [`NOWHERE`] when it is not.
    announced: AtomicU64,
    /// Whether the thread is to look after waiting things when it leaves.
    asked: AtomicBool,
}

// SAFETY: `depth`, `retired` and `flushed` are touched by the thread whose slot it is, which is one at a time (a thread
// that gets the slot of one that has ended comes after it), and by the reclaimer's drop. The rest is atomic.
unsafe impl Sync for Slot {}

/// A thing, and how to give it back.
struct Retired {
    thing: *mut (),
    /// Gives back `thing`, or a part of it.
    reclaim: unsafe fn(*mut ()) -> ControlFlow<()>,
}

// SAFETY: those who retire promise that things may be given back by any thread.
unsafe impl Send for Retired {}

struct Tagged {
    /// The epoch in which it was retired; readers that announce a later one do not hold it.
    tag: u64,
    retired: Retired,
}

impl Default for Reclaimer {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Reclaimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reclaimer").finish_non_exhaustive()
    }
}

impl Reclaimer {
    /// A reclaimer with the usual batches.
    #[must_use]
    pub fn new() -> Self {
        Self::with_batch(BATCH)
    }

    /// A reclaimer that tries to reclaim as soon as a thread has retired `things`. Tests use 1; a table that retires
    /// few big things flushes instead.
    #[must_use]
    pub fn with_batch(things: usize) -> Self {
        Self {
            epoch: AtomicU64::new(NOWHERE + 1),
            barrier: Barrier::detect(),
            batch: things.max(1),
            slots: PerThread::default(),
            waiting: Mutex::new(VecDeque::new()),
        }
    }

    /// Announces this thread as a reader until the guard is dropped. Guards nest; only the outermost announces.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        let slot = self.slots.mine();
        let depth = slot.depth.get();
        if depth == 0 {
            // Relaxed: this thread's own.
            let inside = slot.presence.announced.load(Ordering::Relaxed) != NOWHERE;
            assert!(!inside, "a section does not run what makes guards");
            self.announce(&slot.presence);
        }
        slot.depth.set(depth + 1);
        thread::hold();
        Guard { reclaimer: self, slot, thread: PhantomData }
    }

    /// As [`Reclaimer::pin`], for a few instructions of a table's own, in which nothing makes a guard of this reclaimer
    /// that outlives them. The cheapest way to be safe: some ten instructions, none of them locked.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Section<'_> {
        let slot = self.slots.mine();
        if MODELLED {
            return Section { reclaimer: self, presence: &slot.inner, thread: PhantomData };
        }
        let mut presence = &slot.presence;
        // Relaxed: this thread's own.
        if presence.announced.load(Ordering::Relaxed) != NOWHERE {
            presence = slot.inner();
        }
        self.announce(presence);
        Section { reclaimer: self, presence, thread: PhantomData }
    }

    #[inline(always)]
    fn announce(&self, presence: &Presence) {
        // Acquire (R1): whoever announces an epoch has seen what was unlinked before it began.
        let epoch = self.epoch.load(Ordering::Acquire);
        // Relaxed (R2): the barrier orders it.
        presence.announced.store(epoch, Ordering::Relaxed);
        self.barrier.light();
    }

    /// Takes back what this thread announced.
    #[inline(always)]
    fn withdraw(&self, presence: &Presence) {
        // Release (R3): what was read under it has been read.
        presence.announced.store(NOWHERE, Ordering::Release);
        self.barrier.light();
        // Relaxed (R4): the barrier orders it.
        if presence.asked.load(Ordering::Relaxed) {
            self.look_after();
        }
    }

    /// Reclaims what this thread retired and what waits for it, on its way out.
    #[cold]
    #[inline(never)]
    fn look_after(&self) {
        let slot = self.slots.mine();
        // SeqCst: who sees the question still standing knows that this thread has yet to come for the queue.
        slot.presence.asked.store(false, Ordering::SeqCst);
        let retired = slot.retired.take();
        // Less than a batch: somebody has asked.
        let urgent = slot.flushed.take() || retired.len() < self.batch;
        if self.collect(retired, urgent) {
            // One step of a big thing at a time: the next when this thread leaves the next time.
            slot.presence.asked.store(true, Ordering::SeqCst);
        }
    }

    /// Takes over a thing that this thread has made unreachable.
    #[inline]
    fn retire(&self, slot: &Slot, retired: Retired) {
        let mut things = slot.retired.borrow_mut();
        things.push(retired);
        if things.len() >= self.batch {
            // Relaxed: this thread reads it. It holds back its own things until it leaves.
            slot.presence.asked.store(true, Ordering::Relaxed);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Tagged>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the epoch, takes over what was `retired` in it, and gives back what nobody can hold any more. When
    /// `urgent`, asks those who hold the rest back. Whether things are left that could be given back at once.
    fn collect(&self, retired: Vec<Retired>, urgent: bool) -> bool {
        let mut waiting = self.waiting();
        // SeqCst (R1). Under the lock, so that tags in the queue rise.
        let tag = self.epoch.fetch_add(1, Ordering::SeqCst);
        waiting.extend(retired.into_iter().map(|retired| Tagged { tag, retired }));
        let mut free = Vec::new();
        // Without a barrier, nothing is certain: everything waits for a better time.
        while self.barrier.heavy() {
            let oldest = self.oldest();
            let freed = waiting.partition_point(|thing| thing.tag < oldest);
            free.extend(waiting.drain(..freed));
            let Some(last) = waiting.back() else { break };
            let patient = !urgent && waiting.len() < LONG_QUEUE;
            // Those who left before they could see that they were asked are found gone at the next look.
            if patient || self.all_know(last.tag) {
                break;
            }
        }
        drop(waiting);
        self.give_back(free)
    }

    /// The oldest epoch that a reader is in.
    fn oldest(&self) -> u64 {
        // Acquire (R2, R3): after the heavy barrier.
        let announced =
            self.slots.iter().map(|slot| slot.presence.announced.load(Ordering::Acquire));
        announced.filter(|&epoch| epoch != NOWHERE).min().unwrap_or(u64::MAX)
    }

    /// Asks all who may hold something of epoch `tag` or before. Whether there are such and all had been asked before.
    fn all_know(&self, tag: u64) -> bool {
        let (mut holders, mut news) = (0, false);
        for Slot { presence, .. } in self.slots.iter() {
            // Acquire (R2, R3): after the heavy barrier.
            let announced = presence.announced.load(Ordering::Acquire);
            if announced != NOWHERE && announced <= tag {
                holders += 1;
                // SeqCst (R4): the heavy barrier follows. Who was asked and has not come yet will find the queue as the
                // holder of its lock leaves it.
                news |= !presence.asked.swap(true, Ordering::SeqCst);
            }
        }
        holders > 0 && !news
    }

    /// Gives things back, whole or in part; the parts that are left may be given back at any time. Whether there are.
    fn give_back(&self, free: Vec<Tagged>) -> bool {
        let mut left = Vec::new();
        for Tagged { retired, .. } in free {
            // SAFETY: nobody holds it, and it is in no queue.
            if unsafe { (retired.reclaim)(retired.thing) }.is_continue() {
                left.push(Tagged { tag: NOWHERE, retired });
            }
        }
        let more = !left.is_empty();
        if more {
            let mut waiting = self.waiting();
            left.into_iter().for_each(|part| waiting.push_front(part));
        }
        more
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        let mut rest: Vec<Retired> =
            self.waiting().drain(..).map(|tagged| tagged.retired).collect();
        rest.extend(self.slots.iter().flat_map(|slot| slot.retired.take()));
        for retired in rest {
            // SAFETY: every guard borrows the reclaimer, so there is none; each thing was in one place only.
            while unsafe { (retired.reclaim)(retired.thing) }.is_continue() {}
        }
    }
}

/// While this lives, nothing that its thread has reached is reclaimed.
#[must_use = "nothing is protected once the guard is dropped"]
pub struct Guard<'a> {
    reclaimer: &'a Reclaimer,
    slot: &'a Slot,
    /// Stays where it was made.
    thread: PhantomData<*mut ()>,
}

impl std::fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        thread::release();
        let depth = self.slot.depth.get() - 1;
        self.slot.depth.set(depth);
        if depth == 0 {
            self.reclaimer.withdraw(&self.slot.presence);
        }
    }
}

/// A [`Guard`] that does not leave the function that made it.
#[must_use = "nothing is protected once the section is dropped"]
pub struct Section<'a> {
    reclaimer: &'a Reclaimer,
    presence: &'a Presence,
    /// Stays where it was made.
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
    /// Gives back something big in steps, once nobody can be looking at it, as soon as that is so: `step` runs until it
    /// breaks, once each time that some thread leaves. It must neither panic nor wait.
    pub(crate) fn retire_in_steps<F>(&self, step: F)
    where
        F: FnMut() -> ControlFlow<()> + Send + 'static,
    {
        let slot = self.reclaimer.slots.mine();
        let retired =
            Retired { thing: Box::into_raw(Box::new(step)).cast(), reclaim: run_step::<F> };
        self.reclaimer.retire(slot, retired);
        slot.flush();
    }
}

impl Guard<'_> {
    /// Drops what `boxed` points to, once nobody can be looking at it.
    ///
    /// # Safety
    /// `boxed` came from [`Box::into_raw`], is retired once, and no thread that pins from now on can reach it. `T` may
    /// be dropped on any thread.
    #[inline]
    pub unsafe fn retire_box<T: Send>(&self, boxed: *mut T) {
        self.reclaimer.retire(self.slot, Retired { thing: boxed.cast(), reclaim: drop_box::<T> });
    }

    /// Runs `reclaim` once every thread that is pinned now has left; at the latest when the reclaimer is dropped.
    /// Whatever it gives back must be unreachable already for threads that pin from now on.
    ///
    /// Costs one allocation. `reclaim` runs on whichever thread leaves last or retires next, after it has left, and
    /// must neither panic nor wait.
    #[inline]
    pub fn retire(&self, reclaim: impl FnOnce() + Send + 'static) {
        // SAFETY: a `'static` closure outlives every reclaimer.
        unsafe { self.retire_borrowing(reclaim) };
    }

    /// [`Guard::retire`] for closures that borrow.
    ///
    /// # Safety
    /// Whatever `reclaim` borrows lives at least as long as the reclaimer, its drop included.
    #[inline]
    pub unsafe fn retire_borrowing<F: FnOnce() + Send>(&self, reclaim: F) {
        self.reclaimer.retire(
            self.slot,
            Retired { thing: Box::into_raw(Box::new(reclaim)).cast(), reclaim: run::<F> },
        );
    }

    /// Says that the thread holds nothing any more that it reached before, and goes on as if it had been pinned now.
    /// Does nothing while the thread has another guard. For threads that keep one guard for many requests: one store
    /// each time, where dropping the guard and pinning anew costs two.
    pub fn renew(&mut self) {
        if self.slot.depth.get() == 1 {
            let presence = &self.slot.presence;
            // Acquire (R1): as in `announce`.
            let epoch = self.reclaimer.epoch.load(Ordering::Acquire);
            // Release (R3, R2): what was read in the former epoch has been read.
            presence.announced.store(epoch, Ordering::Release);
            self.reclaimer.barrier.light();
            // Relaxed (R4): the barrier orders it.
            if presence.asked.load(Ordering::Relaxed) {
                self.reclaimer.look_after();
            }
        }
    }

    /// Lets this thread's waiting things be reclaimed as soon as the threads that are pinned now (this one too) have
    /// left, even if they are less than a batch.
    pub fn flush(&self) {
        self.slot.flush();
    }
}

/// Drops a box.
///
/// # Safety
/// `boxed` came from [`Box::into_raw`] of a `Box<T>` and is passed once.
unsafe fn drop_box<T>(boxed: *mut ()) -> ControlFlow<()> {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(boxed.cast::<T>()) });
    ControlFlow::Break(())
}

/// Takes a retired closure out of its box and runs it.
///
/// # Safety
/// As for [`drop_box`].
unsafe fn run<F: FnOnce()>(boxed: *mut ()) -> ControlFlow<()> {
    // SAFETY: the caller's promise.
    let reclaim = unsafe { Box::from_raw(boxed.cast::<F>()) };
    reclaim();
    ControlFlow::Break(())
}

/// Runs one step of a retired closure, and drops it after the last.
///
/// # Safety
/// `boxed` came from [`Box::into_raw`] of a `Box<F>`; nobody else has it, and it is not passed again after a break.
unsafe fn run_step<F: FnMut() -> ControlFlow<()>>(boxed: *mut ()) -> ControlFlow<()> {
    // SAFETY: the caller's promise.
    let mut step = unsafe { Box::from_raw(boxed.cast::<F>()) };
    let done = step();
    if done.is_continue() {
        // It stays where it was.
        let _ = Box::into_raw(step);
    }
    done
}

#[cfg(test)]
mod tests;
