//! Group commit on media whose fences are syncs of files: when a write is acknowledged, and a future for those who want
//! to know when it is durable.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::io::lock;
use crate::{Error, Result};

/// When a write on [`Durability::Disk`](super::Durability::Disk) is acknowledged. On the other media, whose fences cost
/// next to nothing, every write is durable when its call returns, whatever the mode.
///
/// ```
/// use icefield::SyncMode;
/// assert_eq!("every:100".parse(), Ok(SyncMode::Every(100)));
/// assert_eq!(SyncMode::default().to_string(), "always");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// When it is synced. Callers that meet share a sync.
    #[default]
    Always,
    /// At once. It is synced so many milliseconds later at the latest, by a thread that ends with the table.
    Every(u64),
    /// At once. It is synced when somebody asks for it, when the table is closed, and before the table comes to rely
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
                .ok_or_else(|| format!("`{text}` is none of always, every:MILLISECONDS, never")),
        }
    }
}

/// Resolves when what it stands for is durable, or cannot be made so any more. Blocks no thread, needs no runtime, and
/// outlives its table. Wakers are called by the table's own thread, which holds no lock then: they may use the table,
/// but they keep all others waiting.
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
    /// It is known already.
    pub(crate) fn known(outcome: Result<()>) -> Self {
        Self(Stage::Known(outcome))
    }

    /// The sync that serves `ticket` will tell.
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
            // Polled once more than the contract of futures allows.
            Stage::Told => Poll::Ready(Ok(())),
        }
    }
}

/// Which syncs are over, and who waits for one. A sync is told by whoever made it, who may hold locks of a table; wakers
/// run code of the user's, so only a thread that holds none calls them.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// All tickets below are served.
    served: AtomicU64,
    /// No sync will serve a ticket any more.
    failed: AtomicBool,
    waiting: Mutex<Vec<(u64, Waker)>>,
}

impl Group {
    /// Whether the fate of a ticket is known; if not, `waker` is woken when it is.
    fn awaits(&self, ticket: u64, waker: &Waker) -> bool {
        if self.is_settled(ticket) {
            return true;
        }
        // Cloned and, if needless, dropped without the lock: that is code of the user's, too.
        let own = waker.clone();
        let mut waiting = lock(&self.waiting);
        // Again: whoever tells of a sync changes the words first, and has wakers looked for afterwards.
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

    /// Whether a sync has made everything durable that was queued under `ticket`.
    pub(super) fn is_served(&self, ticket: u64) -> bool {
        // Acquire: pairs with the Release in `serve`; who hears of the sync comes after it.
        self.served.load(Acquire) > ticket
    }

    /// Whether no sync will serve a ticket any more.
    pub(super) fn has_failed(&self) -> bool {
        // Acquire: pairs with the Release in `fail`; who hears of it comes after the sync that failed.
        self.failed.load(Acquire)
    }

    fn outcome(&self, ticket: u64) -> Result<()> {
        if self.is_served(ticket) { Ok(()) } else { Err(Error::Poisoned) }
    }

    /// A sync has served all tickets below one; [`Group::wake`] is to follow.
    pub(super) fn serve(&self, below: u64) {
        // The larger one: syncs follow one another, but not what is told of them. Release: the sync is over.
        self.served.fetch_max(below, Release);
    }

    /// No ticket will be served any more; [`Group::wake`] is to follow.
    pub(super) fn fail(&self) {
        // Release: pairs with the Acquire in `has_failed`.
        self.failed.store(true, Release);
    }

    /// Wakes those whose tickets' fate is known. The caller holds no lock.
    pub(super) fn wake(&self) {
        let settled: Vec<_> =
            lock(&self.waiting).extract_if(.., |(ticket, _)| self.is_settled(*ticket)).collect();
        for (_, waker) in settled {
            // One that panics shall not keep the others asleep.
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
