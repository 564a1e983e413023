//! Key-value stores in files, for comparison with tables on a disk: redb, LMDB and RocksDB.
//!
//! Each writing call is one transaction for its whole array of keys, with one commit; only `insdel` runs two. In a
//! store with a single writer, one writing call runs at a time. A transaction that fails, for example on a full disk,
//! has no effect, and its call returns a count of 0.
//! A read of absent keys also returns 0; [`Peer::failure`], which returns the first error, distinguishes the two cases.

use std::marker::PhantomData;
use std::path::Path;
use std::sync::OnceLock;

use crate::{Error, Found, Kind, Operation, Peer, Writes};

mod lmdb;
mod redb;
mod rocksdb;
mod rocksdb_c;
mod store;

use store::{Outcome, Store};

/// Returns the kinds in this module.
pub(crate) fn all() -> Vec<Box<dyn Kind>> {
    vec![kind::<redb::Redb>(), kind::<lmdb::Lmdb>(), kind::<rocksdb::RocksDb>()]
}

fn kind<S: Store>() -> Box<dyn Kind> {
    Box::new(Files::<S>(PhantomData))
}

struct Files<S>(PhantomData<fn() -> S>);

impl<S: Store> Kind for Files<S> {
    fn name(&self) -> &str {
        S::NAME
    }

    fn offers(&self, _operation: Operation) -> bool {
        true
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn create(&self, _capacity: u64, dir: Option<&Path>) -> Result<Box<dyn Peer>, Error> {
        let dir = dir.ok_or_else(|| Error::NotMade(S::NAME.to_owned()))?;
        self.open(dir, Writes::Durable)
    }

    fn open(&self, dir: &Path, writes: Writes) -> Result<Box<dyn Peer>, Error> {
        let opened = std::fs::create_dir_all(dir).map_err(Into::into);
        let store = opened.and_then(|()| S::open(dir, writes)).map_err(|error| {
            Error::NotOpened { name: S::NAME.to_owned(), detail: error.to_string() }
        })?;
        Ok(Box::new(Opened { store, failure: OnceLock::new() }))
    }
}

struct Opened<S> {
    store: S,
    /// The error of the first failed call.
    failure: OnceLock<String>,
}

impl<S> Opened<S> {
    fn answer<T: Default>(&self, outcome: Outcome<T>) -> T {
        outcome.unwrap_or_else(|error| {
            self.failure.get_or_init(|| error.to_string());
            T::default()
        })
    }
}

impl<S: Store> Peer for Opened<S> {
    fn put(&self, keys: &[u64], values: &[u64]) -> u64 {
        self.answer(self.store.put(keys, values))
    }

    fn insert(&self, keys: &[u64], values: &[u64]) -> u64 {
        self.answer(self.store.insert(keys, values))
    }

    fn get(&self, keys: &[u64]) -> Found {
        self.answer(self.store.get(keys))
    }

    fn update(&self, keys: &[u64], values: &[u64]) -> u64 {
        self.answer(self.store.update(keys, values))
    }

    fn remove(&self, keys: &[u64]) -> u64 {
        self.answer(self.store.remove(keys))
    }

    /// Runs two transactions: within a single one, the removals would cancel the inserts, and nothing would be written.
    fn insdel(&self, keys: &[u64]) -> u64 {
        self.insert(keys, keys).min(self.remove(keys))
    }

    fn put_bytes(&self, keys: &[&[u8]], values: &[&[u8]]) -> u64 {
        self.answer(self.store.put_bytes(keys, values))
    }

    fn get_bytes(&self, keys: &[&[u8]], found: &mut dyn FnMut(&[u8])) {
        self.answer(self.store.get_bytes(keys, found));
    }

    fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }
}
