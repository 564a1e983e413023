//! The indexes of a session.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use datafusion::datasource::listing::PartitionedFile;
use datafusion::error::Result;
use datafusion::object_store::path::Path as ObjectPath;

use crate::index::Index;
use crate::root::IndexRoot;

/// The indexes that joins may use. Clones share them.
///
/// ```no_run
/// let registry = icefield_sql::IndexRegistry::default();
/// registry.open("orders.ice".as_ref(), false)?;
/// let context = datafusion::prelude::SessionContext::new_with_state(icefield_sql::session_state(&registry));
/// # Ok::<(), datafusion::error::DataFusionError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct IndexRegistry {
    indexes: Arc<RwLock<Vec<Arc<Index>>>>,
    /// Why joins use no index: the latest decisions, of one planning after the other.
    decisions: Arc<RwLock<Vec<String>>>,
    root: Option<IndexRoot>,
}

impl IndexRegistry {
    /// Returns a registry of all indexes below a root. Each planning of a query looks for new ones.
    #[must_use]
    pub fn below(root: IndexRoot) -> Self {
        Self { root: Some(root), ..Self::default() }
    }

    /// Looks for indexes that have appeared, been replaced or gone below the root. The reasons why indexes cannot be
    /// used are added to the decisions.
    pub(crate) fn refresh(&self) {
        let Some(root) = &self.root else { return };
        let (indexes, problems) = root.indexes();
        *self.indexes.write().unwrap_or_else(PoisonError::into_inner) = indexes;
        problems.into_iter().for_each(|problem| self.decided(problem));
    }

    /// Opens an index and adds it.
    ///
    /// # Errors
    /// As [`Index::open`].
    pub fn open(&self, path: &Path, allow_stale: bool) -> Result<Arc<Index>> {
        let index = Arc::new(Index::open(path, allow_stale)?);
        self.add(Arc::clone(&index));
        Ok(index)
    }

    /// Adds an index. It replaces one that was opened at the same path.
    pub fn add(&self, index: Arc<Index>) {
        let mut indexes = self.indexes.write().unwrap_or_else(PoisonError::into_inner);
        indexes.retain(|one| one.path() != index.path());
        indexes.push(index);
    }

    /// Returns all indexes, in the order in which they were added.
    pub fn indexes(&self) -> Vec<Arc<Index>> {
        self.indexes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the indexes of exactly these files.
    pub(crate) fn of_files(&self, files: &[PartitionedFile]) -> Vec<Arc<Index>> {
        let by_place: HashMap<_, _> =
            files.iter().map(|file| (&file.object_meta.location, file)).collect();
        let matches = |index: &Arc<Index>| {
            let known = &index.stamp().files;
            known.len() == files.len()
                && known.iter().all(|one| {
                    let place = ObjectPath::from_absolute_path(&one.path).ok();
                    let file = place.and_then(|place| by_place.get(&place));
                    file.is_some_and(|file| index.allows_stale() || one.has_state_of(file))
                })
        };
        self.indexes().into_iter().filter(matches).collect()
    }

    /// Returns why the joins planned since the last call use an index or none, one line for each join.
    pub fn take_decisions(&self) -> Vec<String> {
        std::mem::take(&mut *self.decisions.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn decided(&self, decision: String) {
        /// A session that never asks must not fill the memory.
        const MOST: usize = 1000;
        let mut decisions = self.decisions.write().unwrap_or_else(PoisonError::into_inner);
        if decisions.len() < MOST {
            decisions.push(decision);
        }
    }
}
