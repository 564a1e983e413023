//! The interface of tables and of their kinds.

use std::path::{Path, PathBuf};

/// An operation of a table. Not every table supports all operations.
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
    /// [`Peer::put_bytes`] and [`Peer::get_bytes`].
    Bytes,
}

/// Determines when a call's writes to a table in files become durable.
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
    /// Before the call returns.
    Durable,
    /// Later: the table uses its weakest mode in which writes still reach the files.
    Relaxed,
}

/// The result of a lookup.
///
/// ```
/// assert_eq!(icefield_peers::Found::default().hits, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The number of keys that were present.
    pub hits: u64,
    /// The wrapping sum of their values.
    pub sum: u64,
}

/// A table under measurement. Any number of threads may call it at once. Calls for which [`Kind::offers`] returns
/// `false` do nothing.
pub trait Peer: Send + Sync {
    /// Each thread calls this with its number: with `_begins` set before its first use of the table, and with `_begins`
    /// unset after its last use.
    fn thread(&self, _index: usize, _begins: bool) {}

    /// Stores each value, whether its key is present or not. Returns the number of values stored. The slices have
    /// equal lengths.
    fn put(&self, _keys: &[u64], _values: &[u64]) -> u64 {
        0
    }

    /// Inserts each key that is absent. Returns the number of inserted keys. The slices have equal lengths.
    fn insert(&self, keys: &[u64], values: &[u64]) -> u64;

    /// Looks up each key.
    fn get(&self, keys: &[u64]) -> Found;

    /// Replaces the value of each key that is present. Returns the number of replaced values. The slices have equal
    /// lengths.
    fn update(&self, keys: &[u64], values: &[u64]) -> u64;

    /// Removes each key. Returns the number of keys that were present.
    fn remove(&self, keys: &[u64]) -> u64;

    /// Inserts and then removes each key. Returns the number of keys for which both succeeded.
    fn insdel(&self, keys: &[u64]) -> u64;

    /// Stores each value, whether its key is present or not. These records are separate from those of words. Returns the
    /// number of values stored. The slices have equal lengths.
    fn put_bytes(&self, _keys: &[&[u8]], _values: &[&[u8]]) -> u64 {
        0
    }

    /// Looks up each key among the records of bytes and passes the value of each present key to `_found`, in order.
    fn get_bytes(&self, _keys: &[&[u8]], _found: &mut dyn FnMut(&[u8])) {}

    /// Returns the error of the first call that failed. A failed call returns a count of 0.
    fn failure(&self) -> Option<&str> {
        None
    }
}

/// A kind of table.
pub trait Kind: Send + Sync {
    /// Returns the name used in options and results.
    fn name(&self) -> &str;

    /// Returns whether its tables support `operation`.
    fn offers(&self, operation: Operation) -> bool;

    /// Creates a table for `capacity` records. `dir` is a directory for its files, if it has any.
    ///
    /// # Errors
    /// [`Error::NotMade`]; [`Error::NotOpened`] for a table in files.
    fn create(&self, capacity: u64, dir: Option<&Path>) -> Result<Box<dyn Peer>, Error>;

    /// Returns whether its tables live in files and are opened by [`Kind::open`].
    fn is_persistent(&self) -> bool {
        false
    }

    /// Opens the table in `_dir`, or creates it.
    ///
    /// # Errors
    /// [`Error::NotOpened`]; [`Error::NotMade`] if its tables do not live in files.
    fn open(&self, _dir: &Path, _writes: Writes) -> Result<Box<dyn Peer>, Error> {
        Err(Error::NotMade(self.name().to_owned()))
    }
}

/// The reason why a table or library cannot be used.
///
/// ```
/// let error = icefield_peers::load("/no/such/library.so".as_ref()).err();
/// assert!(matches!(error, Some(icefield_peers::Error::NotLoaded { .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shared library cannot be loaded.
    #[error("{}: {detail}", path.display())]
    NotLoaded {
        /// The path of the library.
        path: PathBuf,
        /// The error from the operating system.
        detail: String,
    },
    /// A shared library lacks a required function.
    #[error("{}: has no {symbol}; see icefield_peer.h", path.display())]
    NoSymbol {
        /// The path of the library.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
    },
    /// A shared library returns a name that is not valid.
    #[error("{}: its name may only have letters, digits, `-`, `_` and `.`", path.display())]
    BadName {
        /// The path of the library.
        path: PathBuf,
    },
    /// A table could not be created.
    #[error("{0} returned no table")]
    NotMade(String),
    /// A table in files could not be opened or created.
    #[error("{name}: {detail}")]
    NotOpened {
        /// The name of its kind.
        name: String,
        /// The error from the table.
        detail: String,
    },
}
