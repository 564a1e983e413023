//! Deferred reclamation: retired objects are freed only after every reader that may hold them has left.
//!
//! Reclamation is based on epochs. A reader announces the current epoch in its own slot when it enters, and withdraws
//! the announcement when it leaves. Both are plain stores, with no locked instruction and no fence, so requests
//! overlap in the processor as if there were no reclaimer. The cost is on the reclaiming thread: it begins a new
//! epoch, requests a barrier on every processor that runs a thread of this process (`membarrier`), and reads all
//! announcements. On systems without `membarrier`, readers execute fences instead.
//!
//! Rules of use:
//! 1. A reader pins *before* it loads the reference, offset or index that leads to an object that may be retired, and
//!    loads it with [`PROTECTED`] (or stronger). The object stays valid until the reader's guard is dropped.
//! 2. A writer first makes an object unreachable for new readers, then retires it.
//! 3. The library holds no guard across user code or an `.await`: a pinned thread holds back all objects that are
//!    retired meanwhile. Users may, with an [`OwnedGuard`], and hold back the memory then.
//!
//! # Why nothing is reclaimed too early
//!
//! An object is unlinked and then retired. Its tag is the epoch *e* that `collect` ends when it queues the object. The
//! object is freed when, after the barrier, no slot announces an epoch of at most *e*. Consider a reader that holds the
//! object: it announced *a* and then loaded the object before the unlinking.
//! - *a* ≤ *e*: if the reader had loaded *e* + 1, it would also have seen the unlinking (R1).
//! - `collect` sees the announcement. The barrier in `collect` comes after the unlinking. Among the reader's own
//!   accesses, the barrier takes effect either after the announcement, which makes the announcement visible, or before
//!   the load of the object; but then this load would have seen the unlinking.
//!
//! # Owned guards
//!
//! An [`OwnedGuard`] announces itself in a slot that belongs to no thread, with the same stores as a thread does in its
//! own. `collect` reads these slots together with those of threads. Let thread A create the guard, thread B load an
//! object under it, and thread C drop it; the guard, or a reference to it, reaches B and C through some
//! synchronisation.
//! - Nothing is reclaimed too early. If `collect` does not see the announcement, its barrier takes effect on A before
//!   the barrier that follows A's announcement. The unlinking comes before the former, and B's load after the latter:
//!   in A's order if B is A, otherwise because handing the guard over makes A's barrier happen before B's load. The
//!   rules for fences hold for all accesses that happen before or after a fence, on any thread, so B's load sees the
//!   unlinking. (`membarrier` acts as a fence on A at that moment, and as one on B.) If `collect` sees the withdrawal,
//!   then B's loads happened before C's Release store (R3).
//! - Every object is reclaimed. C withdraws the announcement and then reads `asked` (R4), as a leaving thread does. The
//!   objects that were retired through the guard stay in the slot until they fill a batch, also if the guards that use
//!   the slot are those of other tasks.
//!
//! [`Reclaimer::pin`] does not access these slots, so owned guards cost nothing where they are not used.
//!
//! # Why every object is reclaimed
//!
//! Retired objects wait with the thread that retired them until they fill a batch and the thread leaves. Objects that
//! readers still hold back then move to a common queue, which is checked again with the next batch of any thread. If
//! that may take too long (the objects were [flushed](Guard::flush), or the queue is long), the reclaiming thread sets
//! `asked` in the slots that hold them back. The owners of these slots process the queue when they leave. A leaving
//! owner withdraws its announcement and then reads `asked`. The reclaiming thread sets `asked`, executes a barrier, and
//! then reads the announcement again. So at least one of the two sees the other's store.
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | R1 | `epoch` (SeqCst addition) | `epoch` (Acquire) | what was unlinked in the epochs before |
//! | R2 | announcement (Relaxed, light barrier) | announcement (heavy barrier, Acquire) | that the reader is here |
//! | R3 | announcement withdrawn (Release, light barrier) | as R2 | that the reader's loads are done |
//! | R4 | `asked` (SeqCst, heavy barrier) | `asked` (light barrier, Relaxed) | that retired objects wait for this reader |

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::{Arc, PoisonError};

use super::sync::{AtomicU64, Barrier, Mutex, MutexGuard, Ordering, PerThread};
use super::thread;
use owned_slots::OwnedSlots;
use presence::{NOWHERE, Presence};
use retired::Retired;

pub use owned::OwnedGuard;
pub(crate) use retired::{Reclaim, despite_panics, for_each_despite_panics};
pub(crate) use section::Desk;
pub use section::Section;

/// The ordering of loads that lead to objects which may be retired. Acquire pairs with the Release store that made
/// the object reachable.
pub const PROTECTED: Ordering = Ordering::Acquire;

/// Retired objects wait in batches of this size, to share the cost of the barrier.
const BATCH: usize = 64;

/// From this queue length on, `asked` is set for the threads that hold objects back.
const LONG_QUEUE: usize = 8 * BATCH;

/// The reclamation state of one table. Dropping it reclaims all objects that are still waiting.
pub struct Reclaimer {
    /// Starts at 1 and never wraps.
    epoch: AtomicU64,
    barrier: Barrier,
    batch: usize,
    slots: PerThread<Slot>,
    owned: OwnedSlots,
    /// Retired objects that readers hold back, in the order of their tags.
    waiting: Mutex<VecDeque<Tagged>>,
    /// The owners of retired words. Fields are dropped after `drop` has reclaimed all objects.
    kept: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

/// The state of one thread. It fills two lines, because processors prefetch lines in pairs: two threads with one line
/// each would contend for the pair.
#[derive(Default)]
#[repr(align(128))]
struct Slot {
    presence: Presence,
    /// The announcement of a [`Section`] inside another section or a guard. The reclaimer does not read it, because the
    /// outer announcement already protects the objects.
    inner: Presence,
    /// The number of guards that the thread holds.
    depth: Cell<usize>,
    retired: RefCell<Vec<Retired>>,
    /// The sum of the bytes of the `retired` words.
    retired_bytes: Cell<usize>,
    /// Set when the retired objects are to be reclaimed as soon as their readers have left, without waiting for a
    /// full batch.
    flushed: Cell<bool>,
}

impl Slot {
    /// Out of line, so that the common case is a branch not taken.
    #[cold]
    #[inline(never)]
    fn inner(&self) -> &Presence {
        &self.inner
    }

    fn flush(&self) {
        self.flushed.set(true);
        // Relaxed: this thread itself reads it when it leaves.
        self.presence.asked.store(true, Ordering::Relaxed);
    }
}

// SAFETY: `depth`, `retired`, `retired_bytes` and `flushed` are accessed only by the thread that owns the slot and by the
// reclaimer's drop. One thread at a time owns a slot: another thread inherits it only after the former owner has ended.
// The other fields are atomic.
unsafe impl Sync for Slot {}

struct Tagged {
    /// The epoch that ended when the object entered the queue. Readers that announce a later epoch do not hold the
    /// object. [`NOWHERE`] for the rest of a large object, which no reader holds any more.
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
    /// Creates a reclaimer with the default batch size.
    #[must_use]
    pub fn new() -> Self {
        Self::with_batch(BATCH)
    }

    /// Creates a reclaimer that tries to reclaim as soon as a thread has retired `things` objects. Tests use 1. A
    /// table that retires few large objects uses a flush instead.
    #[must_use]
    pub fn with_batch(things: usize) -> Self {
        Self {
            epoch: AtomicU64::new(NOWHERE + 1),
            barrier: Barrier::detect(),
            batch: things.max(1),
            slots: PerThread::default(),
            owned: OwnedSlots::default(),
            waiting: Mutex::new(VecDeque::new()),
            kept: Mutex::new(Vec::new()),
        }
    }

    /// Keeps `owner` until every object has been reclaimed, as [`Guard::retire_word`] requires.
    pub(crate) fn keep(&self, owner: Arc<dyn Any + Send + Sync>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(owner);
    }

    /// Announces this thread as a reader until the guard is dropped. Guards nest; only the outermost announces.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        let slot = self.slots.mine();
        let depth = slot.depth.get();
        if depth == 0 {
            // Relaxed: only this thread stores it.
            let inside = slot.presence.announced.load(Ordering::Relaxed) != NOWHERE;
            assert!(!inside, "a section does not run what makes guards");
            self.announce(&slot.presence);
        }
        slot.depth.set(depth + 1);
        thread::hold();
        Guard { reclaimer: self, slot, thread: PhantomData }
    }

    #[inline(always)]
    fn announce(&self, presence: &Presence) {
        // Acquire (R1): a thread that announces an epoch has seen all objects unlinked before that epoch began.
        let epoch = self.epoch.load(Ordering::Acquire);
        // Relaxed (R2): the barrier orders it.
        presence.announced.store(epoch, Ordering::Relaxed);
        self.barrier.light();
    }

    /// Withdraws this thread's announcement.
    #[inline(always)]
    fn withdraw(&self, presence: &Presence) {
        // Release (R3): all reads under the announcement are complete.
        presence.announced.store(NOWHERE, Ordering::Release);
        self.barrier.light();
        // Relaxed (R4): the barrier orders it.
        if presence.asked.load(Ordering::Relaxed) {
            self.look_after();
        }
    }

    /// Reclaims objects that this thread retired, or processes the queue because another thread has set `asked`. Runs
    /// when the thread leaves.
    #[cold]
    #[inline(never)]
    fn look_after(&self) {
        let slot = self.slots.mine();
        // SeqCst (R4): a thread whose swap in `all_know` still returns `true` relies on this thread to process the
        // queue later.
        slot.presence.asked.store(false, Ordering::SeqCst);
        let retired = slot.retired.take();
        slot.retired_bytes.set(0);
        // If the objects do not fill a batch, `asked` was set by a flush, by another thread, or for the next step of a
        // large object.
        let urgent = slot.flushed.take() || retired.len() < self.batch;
        if self.collect(retired, urgent) {
            // A large object is freed one step at a time. The next step runs when this thread leaves again.
            slot.presence.asked.store(true, Ordering::SeqCst);
        }
    }

    /// Adds an object that this thread has made unreachable.
    #[inline]
    fn retire(&self, slot: &Slot, retired: Retired) {
        let mut things = slot.retired.borrow_mut();
        things.push(retired);
        if things.len() >= self.batch {
            // Relaxed: this thread itself reads it when it leaves. Until then its own announcement holds back these
            // objects.
            slot.presence.asked.store(true, Ordering::Relaxed);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Tagged>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the epoch, takes over the objects `retired` in it, and frees those that no reader can hold. If `urgent`,
    /// sets `asked` for the threads that hold back the rest. Returns whether objects remain that can be freed at once.
    fn collect(&self, retired: Vec<Retired>, urgent: bool) -> bool {
        let mut waiting = self.waiting();
        // SeqCst (R1). The addition is under the lock, so that tags in the queue ascend.
        let tag = self.epoch.fetch_add(1, Ordering::SeqCst);
        waiting.extend(retired.into_iter().map(|retired| Tagged { tag, retired }));
        let mut free = Vec::new();
        // Without a barrier, the announcements prove nothing, so all objects wait for a later attempt.
        while self.barrier.heavy() {
            let oldest = self.oldest();
            let freed = waiting.partition_point(|thing| thing.tag < oldest);
            free.extend(waiting.drain(..freed));
            let Some(last) = waiting.back() else { break };
            let patient = !urgent && waiting.len() < LONG_QUEUE;
            // A thread that left too early to see `asked` has withdrawn its announcement by the time that the loop
            // reads the announcements again.
            if patient || self.all_know(last.tag) {
                break;
            }
        }
        drop(waiting);
        self.give_back(free)
    }

    /// Returns the announcements of all threads and of all owned guards.
    fn presences(&self) -> impl Iterator<Item = &Presence> {
        self.slots.iter().map(|slot| &slot.presence).chain(self.owned.presences())
    }

    /// Returns the oldest announced epoch, or `u64::MAX` if there is none.
    fn oldest(&self) -> u64 {
        // Acquire (R2, R3): after the heavy barrier.
        let announced = self.presences().map(|it| it.announced.load(Ordering::Acquire));
        announced.filter(|&epoch| epoch != NOWHERE).min().unwrap_or(u64::MAX)
    }

    /// Sets `asked` for all threads that may hold an object of epoch `tag` or earlier. Returns whether there are such
    /// threads and `asked` had been set before for all of them.
    fn all_know(&self, tag: u64) -> bool {
        let (mut holders, mut news) = (0, false);
        for presence in self.presences() {
            // Acquire (R2, R3): after the heavy barrier.
            let announced = presence.announced.load(Ordering::Acquire);
            if announced != NOWHERE && announced <= tag {
                holders += 1;
                // SeqCst (R4): the heavy barrier follows. A thread whose `asked` is set and that has not processed the
                // queue yet will find the queue as the current lock holder leaves it.
                news |= !presence.asked.swap(true, Ordering::SeqCst);
            }
        }
        holders > 0 && !news
    }

    /// Frees objects, entirely or in part. Remaining parts return to the queue and may be freed at any time. Returns
    /// whether any part remains.
    fn give_back(&self, free: Vec<Tagged>) -> bool {
        let mut left = Vec::new();
        let panic = despite_panics(free, |Tagged { retired, .. }| {
            // SAFETY: no reader holds the object, and it is in no queue.
            if unsafe { retired.reclaim() }.is_continue() {
                left.push(Tagged { tag: NOWHERE, retired });
            }
        });
        let more = !left.is_empty();
        if more {
            let mut waiting = self.waiting();
            left.into_iter().for_each(|part| waiting.push_front(part));
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        more
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        let mut rest: Vec<Retired> =
            self.waiting().drain(..).map(|tagged| tagged.retired).collect();
        rest.extend(self.slots.iter().flat_map(|slot| slot.retired.take()));
        rest.extend(self.owned.take_all());
        for_each_despite_panics(rest, |retired| {
            // SAFETY: every guard borrows the reclaimer, so none exists; each object was in one place only.
            while unsafe { retired.reclaim() }.is_continue() {}
        });
    }
}

/// Protects all objects that the thread reaches while the guard lives: none is reclaimed before the guard is dropped or
/// [renewed](Guard::renew).
#[must_use = "nothing is protected once the guard is dropped"]
pub struct Guard<'a> {
    reclaimer: &'a Reclaimer,
    slot: &'a Slot,
    /// Makes the guard `!Send`.
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

impl<'a> Guard<'a> {
    /// Returns the reclaimer of the guard.
    #[inline(always)]
    pub(crate) fn reclaimer(&self) -> &'a Reclaimer {
        self.reclaimer
    }

    /// Drops the target of `boxed` once no reader can hold it.
    ///
    /// # Safety
    /// `boxed` came from [`Box::into_raw`], is retired once, and no thread that pins from now on can reach it. `T` may
    /// be dropped on any thread.
    #[inline]
    pub unsafe fn retire_box<T: Send>(&self, boxed: *mut T) {
        // SAFETY: the caller's contract.
        self.reclaimer.retire(self.slot, unsafe { Retired::boxed(boxed) });
    }

    /// Runs `reclaim` after every thread that is pinned now has left, at the latest when the reclaimer is dropped.
    /// The resources that `reclaim` frees must already be unreachable for threads that pin from now on.
    ///
    /// Costs one allocation. `reclaim` runs on a thread that has just left or renewed its guard: usually the last of
    /// the threads pinned now, or the next thread that has retired a batch. `reclaim` must neither panic nor wait.
    #[inline]
    pub fn retire(&self, reclaim: impl FnOnce() + Send + 'static) {
        // SAFETY: a `'static` closure borrows nothing that the reclaimer could outlive.
        unsafe { self.retire_borrowing(reclaim) };
    }

    /// Like [`Guard::retire`], for closures that borrow.
    ///
    /// # Safety
    /// All data that `reclaim` borrows lives at least as long as the reclaimer, including its drop.
    #[inline]
    pub unsafe fn retire_borrowing<F: FnOnce() + Send>(&self, reclaim: F) {
        // SAFETY: the caller's contract.
        self.reclaimer.retire(self.slot, unsafe { Retired::closure(reclaim) });
    }

    /// Retires the object that `owner` knows as `word`, of about `bytes` bytes. Unlike [`Guard::retire`], does not
    /// allocate memory for the object. Returns the sum of the bytes that wait with this thread.
    ///
    /// # Safety
    /// `owner` lives at least as long as the reclaimer, including its drop. [`Reclaimer::keep`] ensures that.
    #[inline]
    pub(crate) unsafe fn retire_word<T: Reclaim>(
        &self,
        owner: &T,
        word: u64,
        bytes: usize,
    ) -> usize {
        let waiting = self.slot.retired_bytes.get().saturating_add(bytes);
        self.slot.retired_bytes.set(waiting);
        // SAFETY: the caller's contract.
        self.reclaimer.retire(self.slot, unsafe { Retired::word(owner, word) });
        waiting
    }

    /// Retires a large object that is freed in steps, like `Section::retire_in_steps`, for a `step` that borrows. A
    /// step may panic if it is the last one.
    ///
    /// # Safety
    /// As for [`Guard::retire_borrowing`].
    pub(crate) unsafe fn retire_steps_borrowing<F>(&self, step: F)
    where
        F: FnMut() -> ControlFlow<()> + Send,
    {
        // SAFETY: the caller's contract.
        self.reclaimer.retire(self.slot, unsafe { Retired::steps(step) });
        self.slot.flush();
    }

    /// Declares that the thread no longer holds any object that it reached before, and announces the current epoch.
    /// Does nothing while the thread has another guard. This is for threads that keep one guard for many requests: it
    /// costs one store, while dropping the guard and pinning again costs two.
    pub fn renew(&mut self) {
        if self.slot.depth.get() == 1 {
            let presence = &self.slot.presence;
            // Acquire (R1): as in `announce`.
            let epoch = self.reclaimer.epoch.load(Ordering::Acquire);
            // Release (R3, R2): all reads in the previous epoch are complete.
            presence.announced.store(epoch, Ordering::Release);
            self.reclaimer.barrier.light();
            // Relaxed (R4): the barrier orders it.
            if presence.asked.load(Ordering::Relaxed) {
                self.reclaimer.look_after();
            }
        }
    }

    /// Lets this thread's waiting objects be reclaimed as soon as the threads that are pinned now (including this
    /// one) have left, even if there are fewer than a batch.
    pub fn flush(&self) {
        self.slot.flush();
    }
}

mod owned;
mod owned_slots;
mod presence;
mod retired;
mod section;

#[cfg(test)]
mod tests;
