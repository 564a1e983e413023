//! The bounds of leaves (`leaves`), in DRAM.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::layout::EntryId;

/// Number of shards of the bounds, each with its own lock.
const SHARDS: usize = 64;

/// The bounds of all chains' leaves. No thread accesses the medium while it holds one of the locks.
pub(super) struct Leaves(Box<[RwLock<Shard>]>);

#[derive(Default)]
pub(super) struct Shard {
    /// By the number of the first leaf, which is an entry of a level.
    pub(super) chains: HashMap<u32, Chain>,
    /// Incremented when chains are forgotten. Leaves that were read from the medium before that may be outdated.
    pub(super) forgotten: u64,
}

/// The leaves of a chain except the first one.
#[derive(Default)]
pub(super) struct Chain {
    /// Chained entries by their lower bounds.
    pub(super) bounds: BTreeMap<Box<[u8]>, u32>,
    /// Leaves without records.
    pub(super) spare: Vec<u32>,
}

/// A leaf (`None`: the first of its chain), and the lower bound of the next leaf.
pub(super) struct Found {
    pub(super) block: Option<u32>,
    pub(super) end: Option<Box<[u8]>>,
}

impl Chain {
    pub(super) fn find(&self, key: &[u8]) -> Found {
        let up_to = self.bounds.range::<[u8], _>((Unbounded, Included(key)));
        let block = up_to.into_iter().next_back().map(|(_, &block)| block);
        let behind = self.bounds.range::<[u8], _>((Excluded(key), Unbounded)).next();
        Found { block, end: behind.map(|(bound, _)| bound.clone()) }
    }
}

impl Leaves {
    pub(super) fn new() -> Self {
        Self((0..SHARDS).map(|_| RwLock::default()).collect())
    }

    fn shard(&self, first: u32) -> &RwLock<Shard> {
        &self.0[first as usize % SHARDS]
    }

    pub(super) fn read(&self, first: u32) -> RwLockReadGuard<'_, Shard> {
        self.shard(first).read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self, first: u32) -> RwLockWriteGuard<'_, Shard> {
        self.shard(first).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the leaves of a chain that has lost some, or was changed without an update of the bounds. Called under
    /// the lock of its root entry, after the change.
    pub(super) fn forget(&self, first: EntryId) {
        if let EntryId::Level(first) = first {
            let mut shard = self.write(first);
            shard.chains.remove(&first);
            shard.forgotten += 1;
        }
    }

    pub(super) fn forget_all(&self) {
        for shard in &self.0 {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.chains.clear();
            shard.forgotten += 1;
        }
    }

    /// Estimates the bytes of DRAM.
    pub(super) fn bytes(&self) -> u64 {
        let of_chain = |chain: &Chain| {
            let keys: usize = chain.bounds.keys().map(|key| key.len()).sum();
            keys + chain.bounds.len() * size_of::<(Box<[u8]>, u32)>()
        };
        let shards = self.0.iter().map(|shard| {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.chains.values().map(of_chain).sum::<usize>()
        });
        shards.sum::<usize>() as u64
    }
}
