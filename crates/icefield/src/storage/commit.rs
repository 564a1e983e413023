//! Group commit on media whose fences are syncs of files: the modes that determine when a write is acknowledged, and a
//! future that resolves when it is durable.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::mutex::lock;
use crate::{Error, Result};

/// Determines when a write on [`Durability::Disk`](super::Durability::Disk) is acknowledged. On the other media, whose
/// fences cost next to nothing, every write is durable when its call returns, in every mode.
///
/// ```
/// use icefield::SyncMode;
/// assert_eq!("every:100".parse(), Ok(SyncMode::Every(100)));
/// assert_eq!(SyncMode::default().to_string(), "always");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// A write is acknowledged after its sync. Concurrent callers share a sync.
    #[default]
    Always,
    /// A write is acknowledged at once. The table's own thread syncs it at most this number of milliseconds later.
    Every(u64),
    /// A write is acknowledged at once. It is synced on request, when the table is closed, and before the table relies
    /// on it.
    Never,
}

impl fmt::Display for SyncMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Every(milliseconds) => write!(f, "every:{milliseconds}"),
            Self::Never => f.write_str("never"),
        }
    }
}

impl std::str::FromStr for SyncMode {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let every = || text.strip_prefix("every:").and_then(|number| number.parse().ok());
        match text {
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => every()
                .map(Self::Every)
                .ok_or_else(|| format!("`{text}` is not one of always, every:MILLISECONDS, never")),
        }
    }
}

/// A future that resolves when the writes it covers are durable, or when they can no longer become durable. Blocks no
/// thread, needs no runtime, and outlives its table. The table's own thread calls the wakers and holds no lock
/// meanwhile, so wakers may use the table; but a slow waker delays all others.
///
/// ```
/// # fn block_on<F: std::future::Future>(future: F) -> F::Output {
/// #     struct Unpark(std::thread::Thread);
/// #     impl std::task::Wake for Unpark {
/// #         fn wake(self: std::sync::Arc<Self>) { self.0.unpark(); }
/// #     }
/// #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
/// #     let mut context = std::task::Context::from_waker(&waker);
/// #     let mut future = std::pin::pin!(future);
/// #     loop {
/// #         match future.as_mut().poll(&mut context) {
/// #             std::task::Poll::Ready(output) => return output,
/// #             std::task::Poll::Pending => std::thread::park(),
/// #         }
/// #     }
/// # }
/// use icefield::{Durability, Plush, SyncMode};
/// let directory = tempfile::tempdir_in(".")?;
/// let table = Plush::<u64, u64>::options()
///     .durability(Durability::Disk)
///     .sync(SyncMode::Every(100))
///     .create(directory.path().join("orders.ice"))?;
/// table.put(1, 10)?; // Acknowledged, not yet synced.
/// table.put(2, 20)?;
/// block_on(table.committed())?; // Both are durable from here on.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Committed(Stage);

#[derive(Debug)]
enum Stage {
    Known(Result<()>),
    Awaited { group: Arc<Group>, ticket: u64 },
    Told,
}

impl Committed {
    /// Returns a future that is ready at its first poll, with this outcome.
    pub(crate) fn known(outcome: Result<()>) -> Self {
        Self(Stage::Known(outcome))
    }

    /// Returns a future that resolves with the sync that serves `ticket`.
    pub(super) fn by(group: Arc<Group>, ticket: u64) -> Self {
        Self(Stage::Awaited { group, ticket })
    }
}

impl Future for Committed {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Stage::Awaited { group, ticket } = &self.0
            && !group.awaits(*ticket, context.waker())
        {
            return Poll::Pending;
        }
        match std::mem::replace(&mut self.0, Stage::Told) {
            Stage::Known(outcome) => Poll::Ready(outcome),
            Stage::Awaited { group, ticket } => Poll::Ready(group.outcome(ticket)),
            // The future was polled again after it was ready, which the contract of futures does not allow.
            Stage::Told => Poll::Ready(Ok(())),
        }
    }
}

/// The state of completed syncs, and the wakers of futures that wait for one. A ticket is the number of a sync. The
/// thread that made a sync may hold locks of a table. Wakers run user code, so only a thread that holds no lock calls
/// them.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// All tickets below this one are served.
    served: AtomicU64,
    /// No further ticket will be served.
    failed: AtomicBool,
    waiting: Mutex<Vec<(u64, Waker)>>,
}

impl Group {
    /// Returns whether the outcome of a ticket is known; if it is not, registers `waker`, which is called once the
    /// outcome is known.
    fn awaits(&self, ticket: u64, waker: &Waker) -> bool {
        if self.is_settled(ticket) {
            return true;
        }
        // Cloning and dropping a waker run user code, so both happen outside the lock.
        let own = waker.clone();
        let mut waiting = lock(&self.waiting);
        // Checked again under the lock: a sync changes the words first and looks for wakers afterwards.
        if self.is_settled(ticket) {
            drop(waiting);
            return true;
        }
        if !waiting.iter().any(|(known, other)| *known == ticket && other.will_wake(waker)) {
            waiting.push((ticket, own));
        }
        false
    }

    fn is_settled(&self, ticket: u64) -> bool {
        self.is_served(ticket) || self.has_failed()
    }

    /// Returns whether a sync has made everything durable that was queued under `ticket`.
    pub(super) fn is_served(&self, ticket: u64) -> bool {
        // Acquire: pairs with the Release in `serve`; what follows happens after the sync.
        self.served.load(Acquire) > ticket
    }

    /// Returns whether no further ticket will be served.
    pub(super) fn has_failed(&self) -> bool {
        // Acquire: pairs with the Release in `fail`; what follows happens after the failed sync.
        self.failed.load(Acquire)
    }

    fn outcome(&self, ticket: u64) -> Result<()> {
        if self.is_served(ticket) { Ok(()) } else { Err(Error::Poisoned) }
    }

    /// Marks all tickets below `below` as served. [`Group::wake`] must be called afterwards, by a thread that holds no
    /// lock.
    pub(super) fn serve(&self, below: u64) {
        // `fetch_max`, because calls of `serve` may come in another order than their syncs. Release: publishes that the
        // sync is over.
        self.served.fetch_max(below, Release);
    }

    /// Marks that no further ticket will be served. [`Group::wake`] must be called afterwards, by a thread that holds
    /// no lock.
    pub(super) fn fail(&self) {
        // Release: pairs with the Acquire in `has_failed`.
        self.failed.store(true, Release);
    }

    /// Wakes the futures whose outcome is known. The caller holds no lock.
    pub(super) fn wake(&self) {
        let settled: Vec<_> =
            lock(&self.waiting).extract_if(.., |(ticket, _)| self.is_settled(*ticket)).collect();
        for (_, waker) in settled {
            // A waker that panics must not prevent the others from being woken.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(future: &mut Committed) -> Poll<Result<()>> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn futures_hear_of_their_sync_and_of_the_end() {
        let group = Arc::new(Group::default());
        let mut first = Committed::by(group.clone(), 0);
        let mut second = Committed::by(group.clone(), 1);
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        group.serve(1);
        group.wake();
        assert!(matches!(poll(&mut first), Poll::Ready(Ok(()))));
        assert!(poll(&mut second).is_pending());
        group.fail();
        group.wake();
        assert!(matches!(poll(&mut second), Poll::Ready(Err(Error::Poisoned))));
        assert!(lock(&group.waiting).is_empty());
    }

    #[test]
    fn modes_survive_their_names() {
        for mode in [SyncMode::Always, SyncMode::Every(0), SyncMode::Every(250), SyncMode::Never] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        for nonsense in ["", "every", "every:", "every:x", "sometimes"] {
            assert!(nonsense.parse::<SyncMode>().is_err());
        }
    }
}
