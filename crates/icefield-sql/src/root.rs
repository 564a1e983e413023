//! The directory below which the processes of a cluster find their indexes.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::error::{DataFusionError, Result};

use crate::error::{at_path, usage};
use crate::index::Index;

/// Maximum number of directories between the root and an index.
const MOST_LEVELS: usize = 8;

/// The name of an index and of its state in all processes that have the same root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexReference {
    /// Its path below the root, with `/` between names.
    pub path: String,
    /// [`Index::uuid`]. Each build has another one.
    pub uuid: u128,
    /// [`Index::generation`].
    pub generation: u64,
}

/// A directory below which indexes are opened, and no others. Clones share the indexes that are open.
///
/// An index that has been opened stays open, and in use by queries that were planned with it, until its directory has
/// another one.
#[derive(Clone, Debug)]
pub struct IndexRoot {
    root: PathBuf,
    allow_stale: bool,
    /// By path, and by whether they were opened without a look at their files.
    open: Arc<Mutex<Open>>,
}

type Open = HashMap<(PathBuf, bool), Arc<Index>>;

impl IndexRoot {
    /// Returns the root at `path`. Unless `allow_stale` is true, [`indexes`](Self::indexes) gives only indexes whose
    /// files are unchanged.
    ///
    /// # Errors
    /// If `path` is not a directory.
    pub fn new(path: &Path, allow_stale: bool) -> Result<Self> {
        let root = path.canonicalize().map_err(|error| at_path(path, error))?;
        if !root.is_dir() {
            return Err(usage(format!("{}: not a directory", path.display())));
        }
        Ok(Self { root, allow_stale, open: Arc::default() })
    }

    /// Returns the indexes below the root, in the order of their paths, and why others cannot be used.
    ///
    /// Complexity: one visit of each directory that is not itself an index. Only indexes that are new or have been
    /// replaced are opened.
    pub fn indexes(&self) -> (Vec<Arc<Index>>, Vec<String>) {
        let (mut paths, mut problems) = (Vec::new(), Vec::new());
        find(&self.root, 0, &mut paths, &mut problems);
        paths.sort_unstable();
        let mut indexes = Vec::new();
        for path in &paths {
            match self.current(path, self.allow_stale) {
                Ok(index) => indexes.push(index),
                Err(error) => problems.push(error.strip_backtrace()),
            }
        }
        self.lock().retain(|(path, _), _| paths.contains(path));
        (indexes, problems)
    }

    /// Returns what identifies an index in other processes.
    ///
    /// # Errors
    /// If the index is not below the root.
    pub fn reference(&self, index: &Index) -> Result<IndexReference> {
        let below = index.path().strip_prefix(&self.root).ok();
        let path = below.and_then(Path::to_str).ok_or_else(|| {
            usage(format!(
                "{}: the index is not below the root {}, or its name is not valid Unicode",
                index.path().display(),
                self.root.display()
            ))
        })?;
        let (uuid, generation) = (index.uuid(), index.generation());
        Ok(IndexReference { path: path.to_owned(), uuid, generation })
    }

    /// Opens the index that another process refers to. It does not check the index's files: that process has done so.
    ///
    /// # Errors
    /// If the path leaves the root, or does not have this state of the index.
    pub fn open(&self, reference: &IndexReference) -> Result<Arc<Index>> {
        let path = self.below(&reference.path)?;
        let is_same = |index: &Index| {
            index.uuid() == reference.uuid && index.generation() == reference.generation
        };
        // A query that was planned before the index was replaced can still use the former one where it is open.
        let key = (path, true);
        if let Some(index) = self.lock().get(&key).filter(|index| is_same(index)) {
            return Ok(Arc::clone(index));
        }
        let path = key.0;
        let index = self.current(&path, true)?;
        if !is_same(&index) {
            return Err(DataFusionError::Execution(format!(
                "{}: generation {} of {:032x} is here, but the query was planned with generation {} of {:032x}: give \
                 all processes of the cluster the same indexes, and repeat the query",
                path.display(),
                index.generation(),
                index.uuid(),
                reference.generation,
                reference.uuid
            )));
        }
        Ok(index)
    }

    /// Makes an open index known, for queries that were planned with it.
    pub fn add(&self, index: Arc<Index>) {
        self.lock().insert((index.path().to_owned(), true), index);
    }

    /// Returns the place of a path below the root.
    fn below(&self, path: &str) -> Result<PathBuf> {
        let leaves = || usage(format!("{path}: leaves the root {}", self.root.display()));
        let is_name = |component| matches!(component, Component::Normal(_));
        if path.is_empty() || !Path::new(path).components().all(is_name) {
            return Err(leaves());
        }
        let path = self.root.join(path);
        let real = path.canonicalize().map_err(|error| at_path(&path, error))?;
        if real.starts_with(&self.root) { Ok(real) } else { Err(leaves()) }
    }

    /// Returns the index that is at `path` now.
    fn current(&self, path: &Path, allow_stale: bool) -> Result<Arc<Index>> {
        let key = (path.to_owned(), allow_stale);
        let open = self.lock().get(&key).cloned();
        if let Some(index) = open
            && index.is_at_its_path()
        {
            return Ok(index);
        }
        let index = Arc::new(Index::open(path, allow_stale)?);
        self.lock().insert(key, Arc::clone(&index));
        Ok(index)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds the indexes below a directory. Names that begin with a dot, such as those of unfinished builds, and symbolic
/// links are passed over.
fn find(directory: &Path, level: usize, paths: &mut Vec<PathBuf>, problems: &mut Vec<String>) {
    if directory.join(icefield_console::stamp::NAME).is_file() {
        paths.push(directory.to_owned());
        return;
    }
    if level == MOST_LEVELS {
        return;
    }
    let entries = match fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries,
        Err(error) => return problems.push(at_path(directory, error).strip_backtrace()),
    };
    for entry in entries {
        let is_directory = entry.file_type().is_ok_and(|file_type| file_type.is_dir());
        if is_directory && !entry.file_name().as_encoded_bytes().starts_with(b".") {
            find(&entry.path(), level + 1, paths, problems);
        }
    }
}
