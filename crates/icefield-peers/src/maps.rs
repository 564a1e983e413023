//! Rust's concurrent maps, with our strong hash function, so that a comparison is between tables and not hash
//! functions.
//!
//! Each map is used in the way that its documentation recommends for fast reads and writes of copied values, with
//! one guard per array of keys where the map has guards.

use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use hashbrown::HashTable;
use icefield::base::hash::{Hash, HashKind, random_seed};

use crate::{Error, Found, Kind, Operation, Peer};

/// Returns the kinds in this module.
pub(crate) fn all() -> Vec<Box<dyn Kind>> {
    vec![
        kind("dashmap", DashMap::create),
        kind("papaya", Papaya::create),
        kind("scc", Scc::create),
        kind("hashbrown-sharded", Sharded::create),
    ]
}

fn kind<M: Map + 'static>(name: &'static str, create: fn(usize) -> M) -> Box<dyn Kind> {
    Box::new(Made { name, create })
}

struct Made<M> {
    name: &'static str,
    create: fn(usize) -> M,
}

impl<M: Map + 'static> Kind for Made<M> {
    fn name(&self) -> &str {
        self.name
    }

    fn offers(&self, operation: Operation) -> bool {
        !matches!(operation, Operation::Put | Operation::Bytes)
    }

    fn create(&self, capacity: u64, _dir: Option<&Path>) -> Result<Box<dyn Peer>, Error> {
        let capacity =
            usize::try_from(capacity).map_err(|_| Error::NotMade(self.name.to_owned()))?;
        Ok(Box::new(Loops((self.create)(capacity))))
    }
}

/// Our keyed hash as a `BuildHasher`.
#[derive(Clone)]
struct Strong(Hash);

impl Strong {
    fn new() -> Self {
        Self(Hash::new(HashKind::Strong, random_seed()))
    }
}

impl BuildHasher for Strong {
    type Hasher = StrongWord;

    #[inline(always)]
    fn build_hasher(&self) -> StrongWord {
        StrongWord { hash: self.0, state: 0 }
    }
}

struct StrongWord {
    hash: Hash,
    state: u64,
}

impl Hasher for StrongWord {
    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        self.state = self.hash.word(word);
    }

    fn write(&mut self, bytes: &[u8]) {
        self.state = self.hash.bytes(bytes);
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        self.state
    }
}

/// A map, accessed one key at a time.
trait Map: Send + Sync {
    /// The guard that is held for an array of keys.
    type Session<'a>
    where
        Self: 'a;

    fn session(&self) -> Self::Session<'_>;
    /// Returns whether the key was absent; if so, inserts it.
    fn insert(session: &Self::Session<'_>, key: u64, value: u64) -> bool;
    fn get(session: &Self::Session<'_>, key: u64) -> Option<u64>;
    /// Returns whether the key was present; if so, replaces its value.
    fn update(session: &Self::Session<'_>, key: u64, value: u64) -> bool;
    fn remove(session: &Self::Session<'_>, key: u64) -> bool;
}

struct Loops<M>(M);

/// Counts the items for which `act` returns `true`.
#[inline(always)]
fn count<T>(items: impl Iterator<Item = T>, act: impl Fn(T) -> bool) -> u64 {
    items.map(|item| u64::from(act(item))).sum()
}

impl<M: Map> Peer for Loops<M> {
    fn insert(&self, keys: &[u64], values: &[u64]) -> u64 {
        let session = self.0.session();
        count(keys.iter().zip(values), |(key, value)| M::insert(&session, *key, *value))
    }

    fn get(&self, keys: &[u64]) -> Found {
        let session = self.0.session();
        let mut found = Found::default();
        for key in keys {
            if let Some(value) = M::get(&session, *key) {
                found.hits += 1;
                found.sum = found.sum.wrapping_add(value);
            }
        }
        found
    }

    fn update(&self, keys: &[u64], values: &[u64]) -> u64 {
        let session = self.0.session();
        count(keys.iter().zip(values), |(key, value)| M::update(&session, *key, *value))
    }

    fn remove(&self, keys: &[u64]) -> u64 {
        let session = self.0.session();
        count(keys.iter(), |key| M::remove(&session, *key))
    }

    fn insdel(&self, keys: &[u64]) -> u64 {
        let session = self.0.session();
        count(keys.iter(), |key| M::insert(&session, *key, *key) & M::remove(&session, *key))
    }
}

struct DashMap(dashmap::DashMap<u64, u64, Strong>);

impl DashMap {
    fn create(capacity: usize) -> Self {
        Self(dashmap::DashMap::with_capacity_and_hasher(capacity, Strong::new()))
    }
}

impl Map for DashMap {
    type Session<'a> = &'a dashmap::DashMap<u64, u64, Strong>;

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }

    #[inline(always)]
    fn insert(map: &Self::Session<'_>, key: u64, value: u64) -> bool {
        match map.entry(key) {
            dashmap::Entry::Vacant(place) => {
                place.insert(value);
                true
            }
            dashmap::Entry::Occupied(_) => false,
        }
    }

    #[inline(always)]
    fn get(map: &Self::Session<'_>, key: u64) -> Option<u64> {
        map.get(&key).map(|value| *value)
    }

    #[inline(always)]
    fn update(map: &Self::Session<'_>, key: u64, value: u64) -> bool {
        map.get_mut(&key).map(|mut present| *present = value).is_some()
    }

    #[inline(always)]
    fn remove(map: &Self::Session<'_>, key: u64) -> bool {
        map.remove(&key).is_some()
    }
}

struct Papaya(papaya::HashMap<u64, u64, Strong>);

impl Papaya {
    fn create(capacity: usize) -> Self {
        Self(papaya::HashMap::with_capacity_and_hasher(capacity, Strong::new()))
    }
}

impl Map for Papaya {
    type Session<'a> = papaya::HashMapRef<'a, u64, u64, Strong, papaya::LocalGuard<'a>>;

    fn session(&self) -> Self::Session<'_> {
        self.0.pin()
    }

    #[inline(always)]
    fn insert(map: &Self::Session<'_>, key: u64, value: u64) -> bool {
        map.try_insert(key, value).is_ok()
    }

    #[inline(always)]
    fn get(map: &Self::Session<'_>, key: u64) -> Option<u64> {
        map.get(&key).copied()
    }

    #[inline(always)]
    fn update(map: &Self::Session<'_>, key: u64, value: u64) -> bool {
        map.update(key, |_| value).is_some()
    }

    #[inline(always)]
    fn remove(map: &Self::Session<'_>, key: u64) -> bool {
        map.remove(&key).is_some()
    }
}

struct Scc(scc::HashMap<u64, u64, Strong>);

impl Scc {
    fn create(capacity: usize) -> Self {
        Self(scc::HashMap::with_capacity_and_hasher(capacity, Strong::new()))
    }
}

impl Map for Scc {
    type Session<'a> = &'a scc::HashMap<u64, u64, Strong>;

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }

    #[inline(always)]
    fn insert(map: &Self::Session<'_>, key: u64, value: u64) -> bool {
        map.insert_sync(key, value).is_ok()
    }

    #[inline(always)]
    fn get(map: &Self::Session<'_>, key: u64) -> Option<u64> {
        map.read_sync(&key, |_, value| *value)
    }

    #[inline(always)]
    fn update(map: &Self::Session<'_>, key: u64, value: u64) -> bool {
        map.update_sync(&key, |_, present| *present = value).is_some()
    }

    #[inline(always)]
    fn remove(map: &Self::Session<'_>, key: u64) -> bool {
        map.remove_sync(&key).is_some()
    }
}

/// The number of shards, large enough that threads rarely contend for one.
const SHARDS: usize = 64;

/// A common pattern in programs: an array of hashbrown tables, each behind a lock. The key is hashed once.
struct Sharded {
    hash: Hash,
    shards: Vec<Shard>,
}

/// A shard on its own cache lines.
#[repr(align(128))]
struct Shard(RwLock<HashTable<(u64, u64)>>);

impl Sharded {
    fn create(capacity: usize) -> Self {
        // Reserve five percent more, because keys are not spread evenly over the shards.
        let each = capacity / SHARDS + capacity / SHARDS / 20 + 8;
        let shard = |_| Shard(RwLock::new(HashTable::with_capacity(each)));
        let hash = Hash::new(HashKind::Strong, random_seed());
        Self { hash, shards: (0..SHARDS).map(shard).collect() }
    }

    /// Returns the hash of `key` and its shard, which is selected by bits of the hash that hashbrown hardly uses.
    #[inline(always)]
    fn shard(&self, key: u64) -> (u64, &RwLock<HashTable<(u64, u64)>>) {
        let hash = self.hash.word(key);
        (hash, &self.shards[(hash >> 48) as usize % SHARDS].0)
    }
}

impl Map for Sharded {
    type Session<'a> = &'a Sharded;

    fn session(&self) -> Self::Session<'_> {
        self
    }

    #[inline(always)]
    fn insert(map: &Self::Session<'_>, key: u64, value: u64) -> bool {
        let (hash, shard) = map.shard(key);
        let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
        let entry =
            shard.entry(hash, |(known, _)| *known == key, |(known, _)| map.hash.word(*known));
        match entry {
            hashbrown::hash_table::Entry::Vacant(place) => {
                place.insert((key, value));
                true
            }
            hashbrown::hash_table::Entry::Occupied(_) => false,
        }
    }

    #[inline(always)]
    fn get(map: &Self::Session<'_>, key: u64) -> Option<u64> {
        let (hash, shard) = map.shard(key);
        let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
        shard.find(hash, |(known, _)| *known == key).map(|(_, value)| *value)
    }

    #[inline(always)]
    fn update(map: &Self::Session<'_>, key: u64, value: u64) -> bool {
        let (hash, shard) = map.shard(key);
        let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
        let present = shard.find_mut(hash, |(known, _)| *known == key);
        present.map(|record| record.1 = value).is_some()
    }

    #[inline(always)]
    fn remove(map: &Self::Session<'_>, key: u64) -> bool {
        let (hash, shard) = map.shard(key);
        let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
        shard.find_entry(hash, |(known, _)| *known == key).map(|entry| entry.remove()).is_ok()
    }
}
