//! Mutation of the simulator's input: a flush or fence in the code that has no effect, or a store that happens too
//! early. Each mutation must make some test fail; if none fails, the site is untested or not needed.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The kind of access to the medium at a site.
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
    /// The kind of operation there.
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

/// A log of the sites that simulated media reach. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SiteLog(Arc<Mutex<Hits>>);

/// Maps a location's address and a kind to the site, with the number of times that it was reached.
type Hits = HashMap<(usize, SiteKind), (Site, u64)>;

impl SiteLog {
    fn hit(&self, at: &'static Location<'static>, kind: SiteKind) {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sites.entry((std::ptr::from_ref(at).addr(), kind));
        known.or_insert_with(|| (Site::new(at, kind), 0)).1 += 1;
    }

    /// Returns the sites, each with the number of times that it was reached.
    #[must_use]
    pub fn sites(&self) -> Vec<(Site, u64)> {
        let mut merged = BTreeMap::new();
        // Code that was compiled several times has several `Location` addresses for one position.
        for (site, count) in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            *merged.entry(*site).or_insert(0) += count;
        }
        merged.into_iter().collect()
    }
}

/// A change of the effect of one site. All media that get the mutation share it.
#[derive(Debug)]
pub struct Mutation {
    site: Site,
    applied: AtomicU64,
}

impl Mutation {
    /// Creates the mutation of a site: a flush or fence gets no effect; a store takes effect before the preceding fence
    /// of its thread in the same operation, and before the preceding store to the same line.
    #[must_use]
    pub fn of(site: Site) -> Arc<Self> {
        Arc::new(Self { site, applied: AtomicU64::new(0) })
    }

    /// Returns the site.
    #[must_use]
    pub fn site(&self) -> Site {
        self.site
    }

    /// Returns how often the mutation changed the states that a crash could leave. If the result is 0, the mutation
    /// tested nothing.
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

/// The part of a medium's state that mutation uses: the log of sites, and the mutation.
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

    /// Returns whether the mutation makes the store happen too early.
    pub(super) fn store(&self, at: &'static Location<'static>) -> bool {
        self.hit(at, SiteKind::Store)
    }

    /// Returns whether the mutation cancels the flush. `effective`: the flush has an effect without the mutation.
    pub(super) fn flush(&self, at: &'static Location<'static>, effective: bool) -> bool {
        let skip = self.hit(at, SiteKind::Flush);
        if skip && effective {
            self.applied();
        }
        skip
    }

    /// Returns whether the mutation cancels the fence; `effective` as in `flush`.
    pub(super) fn fence(&self, at: &'static Location<'static>, effective: bool) -> bool {
        let skip = self.hit(at, SiteKind::Fence);
        if skip && effective {
            self.applied();
        }
        skip
    }

    /// Returns whether the mutation moves a store before the preceding fence, so that the state before each fence must
    /// be kept.
    pub(super) fn wants_swap(&self) -> bool {
        self.mutation.as_ref().is_some_and(|mutation| mutation.site.kind == SiteKind::Store)
    }

    pub(super) fn applied(&self) {
        if let Some(mutation) = &self.mutation {
            mutation.apply();
        }
    }
}
