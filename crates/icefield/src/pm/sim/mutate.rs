//! Mutation of the simulator's input: a flush or fence in the code that has no effect, a store that happens too early.
//! Each must make some test fail; one that does not is untested or not needed.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Sim;

/// What stands at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SiteKind {
    /// A durable store, or a bulk write.
    Store,
    /// A flush.
    Flush,
    /// A fence.
    Fence,
}

/// A place in the code that stores, flushes or fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The source file.
    pub file: &'static str,
    /// The line in it.
    pub line: u32,
    /// The column.
    pub column: u32,
    /// What stands there.
    pub kind: SiteKind,
}

impl Site {
    fn new(at: &'static Location<'static>, kind: SiteKind) -> Self {
        Self { file: at.file(), line: at.line(), column: at.column(), kind }
    }

    fn is_at(&self, at: &'static Location<'static>) -> bool {
        self.line == at.line() && self.column == at.column() && self.file == at.file()
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            SiteKind::Store => "store",
            SiteKind::Flush => "flush",
            SiteKind::Fence => "fence",
        };
        write!(f, "{kind} at {}:{}:{}", self.file, self.line, self.column)
    }
}

/// Collects the sites that any number of simulated media reach. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SiteLog(Arc<Mutex<Hits>>);

/// By the address of the location and what stands there: the site and how often it was reached.
type Hits = HashMap<(usize, SiteKind), (Site, u64)>;

impl SiteLog {
    fn hit(&self, at: &'static Location<'static>, kind: SiteKind) {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sites.entry((std::ptr::from_ref(at).addr(), kind));
        known.or_insert_with(|| (Site::new(at, kind), 0)).1 += 1;
    }

    /// The sites, each with how often it was reached.
    #[must_use]
    pub fn sites(&self) -> Vec<(Site, u64)> {
        let mut merged = BTreeMap::new();
        // One place in the code has several addresses when it was compiled several times.
        for (site, count) in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            *merged.entry(*site).or_insert(0) += count;
        }
        merged.into_iter().collect()
    }
}

/// A change of what one site does. Shared by every medium that it is given to.
#[derive(Debug)]
pub struct Mutation {
    site: Site,
    applied: AtomicU64,
}

impl Mutation {
    /// A flush or fence that does nothing; a store that takes effect before this thread's preceding fence in the same
    /// operation, and before the preceding store to the same line.
    #[must_use]
    pub fn of(site: Site) -> Arc<Self> {
        Arc::new(Self { site, applied: AtomicU64::new(0) })
    }

    /// The site.
    #[must_use]
    pub fn site(&self) -> Site {
        self.site
    }

    /// How often it changed what the medium could hold after a crash. 0: nothing was tested.
    #[must_use]
    pub fn applied(&self) -> u64 {
        // Relaxed: a count.
        self.applied.load(Ordering::Relaxed)
    }

    fn apply(&self) {
        // Relaxed: a count.
        self.applied.fetch_add(1, Ordering::Relaxed);
    }
}

/// The medium's side: what to log, what to change.
#[derive(Default)]
pub(super) struct Mutator {
    pub(super) sites: Option<SiteLog>,
    pub(super) mutation: Option<Arc<Mutation>>,
}

impl Mutator {
    fn hit(&self, at: &'static Location<'static>, kind: SiteKind) -> bool {
        if let Some(sites) = &self.sites {
            sites.hit(at, kind);
        }
        self.mutation
            .as_ref()
            .is_some_and(|mutation| mutation.site.kind == kind && mutation.site.is_at(at))
    }

    /// Whether the store is to happen too early.
    pub(super) fn store(&self, at: &'static Location<'static>) -> bool {
        self.hit(at, SiteKind::Store)
    }

    /// Whether the flush is to do nothing; `effective` when it would have done something.
    pub(super) fn flush(&self, at: &'static Location<'static>, effective: bool) -> bool {
        let skip = self.hit(at, SiteKind::Flush);
        if skip && effective {
            self.applied();
        }
        skip
    }

    /// Whether the fence is to do nothing.
    pub(super) fn fence(&self, at: &'static Location<'static>, effective: bool) -> bool {
        let skip = self.hit(at, SiteKind::Fence);
        if skip && effective {
            self.applied();
        }
        skip
    }

    /// Whether some store is to happen before its preceding fence, so that the state before fences must be kept.
    pub(super) fn wants_swap(&self) -> bool {
        self.mutation.as_ref().is_some_and(|mutation| mutation.site.kind == SiteKind::Store)
    }

    pub(super) fn applied(&self) {
        if let Some(mutation) = &self.mutation {
            mutation.apply();
        }
    }
}

/// Steps of others that a thread stands back for: what a longer operation takes.
const STEPS_APART: u64 = 500;
/// Times that it gives way meanwhile, at most.
const WAITS_APART: u32 = 2_000;

impl Sim {
    /// Lets the other threads go on for about an operation, or until they seem to wait: they may build on what the
    /// mutation has left out while it is still missing.
    #[cold]
    pub(super) fn stand_back(&self) {
        // Relaxed: an estimate.
        let steps = || self.0.steps.load(Ordering::Relaxed);
        let mut before = steps();
        let (mut taken, mut waited) = (0, 0);
        while taken < STEPS_APART && waited < WAITS_APART {
            (self.0.give_way)();
            let now = steps();
            // Operations begin at zero.
            taken += now.checked_sub(before).unwrap_or(now);
            before = now;
            waited += 1;
        }
    }
}
