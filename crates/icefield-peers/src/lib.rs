//! Other people's tables behind one interface, so that `icefield-bench` can measure them beside Icefield's.
//!
//! This is the only crate that depends on competitors. [`built_in`] gives those that were compiled in (features `rust`,
//! `cpp` and `kv`), and [`load`] any table that comes as a shared library with the functions of `icefield_peer.h`.
//!
//! Every call takes an array of keys, so that a call through `dyn` costs nothing per operation.

use std::path::{Path, PathBuf};

#[cfg(feature = "cpp")]
mod cpp;
#[cfg(feature = "kv")]
mod kv;
mod library;
#[cfg(feature = "rust")]
mod maps;
#[cfg(feature = "rust")]
mod memory;

pub use library::load;
#[cfg(feature = "rust")]
pub use memory::HugePages;

/// What a table may be able to do.
///
/// ```
/// use icefield_peers::{Operation, built_in};
/// assert!(built_in().iter().all(|kind| kind.offers(Operation::InsDel)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`Peer::insert`].
    Insert,
    /// [`Peer::put`].
    Put,
    /// [`Peer::get`].
    Get,
    /// [`Peer::update`].
    Update,
    /// [`Peer::remove`].
    Remove,
    /// [`Peer::insdel`].
    InsDel,
}

/// When a table in files has made durable what a call wrote.
///
/// ```
/// use icefield_peers::{Writes, built_in};
/// let dir = std::env::temp_dir().join(format!("icefield-peers-{}", std::process::id()));
/// for kind in built_in().iter().filter(|kind| kind.is_persistent()) {
///     let table = kind.open(&dir.join(kind.name()), Writes::Durable)?;
///     assert_eq!(table.put(&[1, 2], &[10, 20]), 2);
/// }
/// # let _ = std::fs::remove_dir_all(dir);
/// # Ok::<(), icefield_peers::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// When the call returns.
    Durable,
    /// At some later time, by the laxest mode that the table has for writes that still reach its files.
    Relaxed,
}

/// What gets answered.
///
/// ```
/// assert_eq!(icefield_peers::Found::default().hits, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// How many keys were present.
    pub hits: u64,
    /// The wrapping sum of their values.
    pub sum: u64,
}

/// A table under measurement. Any number of threads may call it at once. Calls that [`Kind::offers`] denies do nothing.
pub trait Peer: Send + Sync {
    /// Says that this thread, the `index`-th, begins to call, or has ended.
    fn thread(&self, _index: usize, _begins: bool) {}

    /// Stores each value, whether its key is present or not, and does not say; how many were stored. The slices are of
    /// one length.
    fn put(&self, _keys: &[u64], _values: &[u64]) -> u64 {
        0
    }

    /// Inserts each key that is absent; how many were. The slices are of one length.
    fn insert(&self, keys: &[u64], values: &[u64]) -> u64;

    /// Looks each key up.
    fn get(&self, keys: &[u64]) -> Found;

    /// Replaces the value of each key that is present; how many were. The slices are of one length.
    fn update(&self, keys: &[u64], values: &[u64]) -> u64;

    /// Removes each key; how many were present.
    fn remove(&self, keys: &[u64]) -> u64;

    /// Inserts and removes each key, one after another; how many did both.
    fn insdel(&self, keys: &[u64]) -> u64;

    /// Why the first of the calls that failed did so. Such a call counts nothing.
    fn failure(&self) -> Option<&str> {
        None
    }
}

/// Makes tables of one kind.
pub trait Kind: Send + Sync {
    /// Its name in options and results.
    fn name(&self) -> &str;

    /// Whether its tables can do that.
    fn offers(&self, operation: Operation) -> bool;

    /// A table for so many records. `dir` is a place for its files, if it has any.
    ///
    /// # Errors
    /// [`Error::NotMade`].
    fn create(&self, capacity: u64, dir: Option<&Path>) -> Result<Box<dyn Peer>, Error>;

    /// Whether its tables live in files, so that [`Kind::open`] makes them.
    fn is_persistent(&self) -> bool {
        false
    }

    /// The table in `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// [`Error::NotOpened`]; [`Error::NotMade`] of tables that do not live in files.
    fn open(&self, _dir: &Path, _writes: Writes) -> Result<Box<dyn Peer>, Error> {
        Err(Error::NotMade(self.name().to_owned()))
    }
}

/// Why there is no table.
///
/// ```
/// let error = icefield_peers::load("/no/such/library.so".as_ref()).err();
/// assert!(matches!(error, Some(icefield_peers::Error::NotLoaded { .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shared library that cannot be loaded.
    #[error("{}: {detail}", path.display())]
    NotLoaded {
        /// Which.
        path: PathBuf,
        /// What the system said.
        detail: String,
    },
    /// A shared library without a function that every peer has.
    #[error("{}: has no {symbol}; see icefield_peer.h", path.display())]
    NoSymbol {
        /// Which.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
    },
    /// A shared library whose name for itself cannot be used.
    #[error("{}: its name is not letters, digits, `-`, `_` and `.`", path.display())]
    BadName {
        /// Which.
        path: PathBuf,
    },
    /// A table that was not made.
    #[error("{0} made no table")]
    NotMade(String),
    /// A table in files that cannot be opened or made.
    #[error("{name}: {detail}")]
    NotOpened {
        /// Which kind.
        name: String,
        /// What it said.
        detail: String,
    },
}

/// The kinds that were compiled in.
///
/// ```
/// let names: Vec<_> = icefield_peers::built_in().iter().map(|kind| kind.name().to_owned()).collect();
/// assert_eq!(names.contains(&"papaya".to_owned()), cfg!(feature = "rust"));
/// ```
#[must_use]
pub fn built_in() -> Vec<Box<dyn Kind>> {
    let kinds: Vec<Box<dyn Kind>> = Vec::new();
    #[cfg(feature = "rust")]
    let kinds = kinds.into_iter().chain(maps::all()).collect::<Vec<_>>();
    #[cfg(feature = "cpp")]
    let kinds = kinds.into_iter().chain(cpp::all()).collect::<Vec<_>>();
    #[cfg(feature = "kv")]
    let kinds = kinds.into_iter().chain(kv::all()).collect::<Vec<_>>();
    kinds
}
