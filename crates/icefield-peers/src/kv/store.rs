//! The interface that redb, LMDB and RocksDB implement.

use std::error::Error;
use std::path::Path;

use crate::{Found, Writes};

pub(super) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A store of words and of byte strings, shared by any number of threads. Each call is one transaction.
pub(super) trait Store: Send + Sync + Sized + 'static {
    const NAME: &'static str;

    /// Opens the store in `dir`, or creates it.
    fn open(dir: &Path, writes: Writes) -> Outcome<Self>;
    fn put(&self, keys: &[u64], values: &[u64]) -> Outcome<u64>;
    fn insert(&self, keys: &[u64], values: &[u64]) -> Outcome<u64>;
    fn get(&self, keys: &[u64]) -> Outcome<Found>;
    fn update(&self, keys: &[u64], values: &[u64]) -> Outcome<u64>;
    fn remove(&self, keys: &[u64]) -> Outcome<u64>;
    fn put_bytes(&self, keys: &[&[u8]], values: &[&[u8]]) -> Outcome<u64>;
    fn get_bytes(&self, keys: &[&[u8]], found: &mut dyn FnMut(&[u8])) -> Outcome<()>;
}

impl Found {
    pub(super) fn take(&mut self, value: u64) {
        self.hits += 1;
        self.sum = self.sum.wrapping_add(value);
    }
}
