//! Fault injection: makes the Nth system call fail, or kills the process at that call.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::Signal;

use super::synced::Synced;
use crate::storage::mutex::lock;

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// The call fails with this error and does nothing.
    Fail(Errno),
    /// The process is killed instead of making the call.
    Kill,
}

/// The duration of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultMode {
    /// Only the Nth call is hit.
    Once,
    /// The Nth call and every later one are hit.
    ForGood,
}

/// The call at which a fault happens, and its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultAt {
    /// The number of the call, from 1.
    pub nth: u64,
    /// Selects whether later calls are hit, too.
    pub mode: FaultMode,
    /// The effect.
    pub action: FaultAction,
}

/// Receives each sync before it is made, and returns whether it fails.
struct Watcher(Box<dyn Fn(Synced) -> bool + Send + Sync>);

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

/// A plan of faults, for tests: makes a system call of the persistent layer fail, kills the process at such a call, or
/// makes an allocation of a table in memory fail.
#[derive(Debug, Default)]
pub struct FaultPlan {
    at: Option<FaultAt>,
    watcher: Option<Watcher>,
    /// Names of calls that always fail.
    refused: Option<(&'static [&'static str], Errno)>,
    calls: AtomicU64,
    fired: AtomicU64,
    healed: AtomicBool,
    sites: Mutex<Vec<&'static str>>,
}

impl FaultPlan {
    /// Returns a plan with one fault.
    #[must_use]
    pub fn new(at: FaultAt) -> Self {
        Self { at: Some(at), ..Self::default() }
    }

    /// Returns a plan in which every call with one of these names fails, as on a system that does not support it.
    #[must_use]
    pub fn refusing(sites: &'static [&'static str], errno: Errno) -> Self {
        Self { refused: Some((sites, errno)), ..Self::default() }
    }

    /// Returns a plan without faults, to count calls.
    #[must_use]
    pub fn counting() -> Self {
        Self::default()
    }

    /// Returns a plan that passes each sync to `fails` before it is made. If that returns `true`, the sync fails and
    /// has no effect.
    #[must_use]
    pub fn watching(fails: impl Fn(Synced) -> bool + Send + Sync + 'static) -> Self {
        Self { watcher: Some(Watcher(Box::new(fails))), ..Self::default() }
    }

    /// Returns the number of calls made.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns the number of calls that were made to fail.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    /// Returns the names of the calls made so far, each once, in the order of their first use.
    #[must_use]
    pub fn sites(&self) -> Vec<&'static str> {
        lock(&self.sites).clone()
    }

    /// Ends the fault that [`FaultPlan::new`] was given: every later call is made as usual.
    pub fn heal(&self) {
        // Relaxed, here and below: the flag publishes no other data.
        self.healed.store(true, Ordering::Relaxed);
    }

    /// Like [`FaultPlan::enter`], for a sync, which is also passed to the watcher.
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
        // Relaxed: a counter; it publishes no other data.
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
