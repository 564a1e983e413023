//! Making the Nth system call fail, or killing the process there.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::Signal;

use super::{Synced, lock};

/// What a [`FaultPlan`] does when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// The call fails with this error and does nothing.
    Fail(Errno),
    /// The process is killed instead of making the call.
    Kill,
}

/// Whether a fault passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultMode {
    /// Only the Nth call is hit.
    Once,
    /// The Nth call and every later one are hit.
    ForGood,
}

/// Which call is hit, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultAt {
    /// The number of the call, from 1.
    pub nth: u64,
    /// Once, or from then on.
    pub mode: FaultMode,
    /// What happens.
    pub action: FaultAction,
}

/// Looks at each sync before it is made, and says whether it fails.
struct Watcher(Box<dyn Fn(Synced) -> bool + Send + Sync>);

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

/// Makes a system call of the persistent layer fail, or an allocation of a table in memory, or kills the process there.
/// For tests.
#[derive(Debug, Default)]
pub struct FaultPlan {
    at: Option<FaultAt>,
    watcher: Option<Watcher>,
    /// Calls that always fail, by their names.
    refused: Option<(&'static [&'static str], Errno)>,
    calls: AtomicU64,
    fired: AtomicU64,
    healed: AtomicBool,
    sites: Mutex<Vec<&'static str>>,
}

impl FaultPlan {
    /// A plan with one fault.
    #[must_use]
    pub fn new(at: FaultAt) -> Self {
        Self { at: Some(at), ..Self::default() }
    }

    /// A plan in which every call of some names fails, as on a system that does not have them.
    #[must_use]
    pub fn refusing(sites: &'static [&'static str], errno: Errno) -> Self {
        Self { refused: Some((sites, errno)), ..Self::default() }
    }

    /// A plan without faults, to count calls.
    #[must_use]
    pub fn counting() -> Self {
        Self::default()
    }

    /// A plan that shows each sync to `fails` before it is made; where that says so, the sync fails and does nothing.
    #[must_use]
    pub fn watching(fails: impl Fn(Synced) -> bool + Send + Sync + 'static) -> Self {
        Self { watcher: Some(Watcher(Box::new(fails))), ..Self::default() }
    }

    /// How many calls were made.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// How many calls were made to fail.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    /// The names of the calls made so far, each once, in the order of their first use.
    #[must_use]
    pub fn sites(&self) -> Vec<&'static str> {
        lock(&self.sites).clone()
    }

    /// Ends the fault: every later call is made as usual.
    pub fn heal(&self) {
        // Relaxed, here and below: nothing is published by it.
        self.healed.store(true, Ordering::Relaxed);
    }

    /// [`FaultPlan::enter`] of a sync.
    pub(crate) fn enter_sync(&self, site: &'static str, synced: Synced) -> Result<(), Errno> {
        self.enter(site, true)?;
        match &self.watcher {
            Some(Watcher(fails)) if fails(synced) => {
                self.fired.fetch_add(1, Ordering::Relaxed);
                Err(Errno::IO)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn enter(&self, site: &'static str, may_fail: bool) -> Result<(), Errno> {
        // Relaxed: a counter; nothing is published by it.
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        {
            let mut sites = lock(&self.sites);
            if !sites.contains(&site) {
                sites.push(site);
            }
        }
        match self.refused {
            Some((refused, errno)) if refused.contains(&site) && may_fail => {
                self.fired.fetch_add(1, Ordering::Relaxed);
                return Err(errno);
            }
            _ => {}
        }
        let Some(at) = self.at else { return Ok(()) };
        let hit = call == at.nth || (call > at.nth && at.mode == FaultMode::ForGood);
        if !hit || self.healed.load(Ordering::Relaxed) {
            return Ok(());
        }
        match at.action {
            FaultAction::Fail(errno) if may_fail => {
                self.fired.fetch_add(1, Ordering::Relaxed);
                Err(errno)
            }
            FaultAction::Fail(_) => Ok(()),
            FaultAction::Kill => {
                rustix::process::kill_process(rustix::process::getpid(), Signal::KILL)?;
                Ok(())
            }
        }
    }
}
