//! Allocator mode (§3.1): keys and values of any type, in separately allocated records.
//!
//! The index is a table of words that leads from hashes to records ([`record`]), so it has the properties of such a
//! table: a get accesses a bin and the record, reads never wait, and a resize delays a write only while the write's bin
//! is being moved. The paper keeps a key's size and namespace in the upper bits of the pointer, to avoid reading
//! records of other keys. Here the slot's key word is the whole hash, which avoids more of these reads and leaves the
//! upper bits of the pointer to the address.
//!
//! Records are allocated from the map's allocator ([`memory`]) and freed to it, even if another thread reclaims them
//! later: an object that waits for reclamation carries a clone of the allocator, and all objects have been reclaimed
//! when the map has been dropped. The default, the global allocator, needs no clones, so it has no such cost. Lists of
//! records with equal hashes are also allocated from the allocator; the index is allocated from the system.
//!
//! Pinning protects the data that a reader holds (§3.2.3's epochs, but advanced without the client): a replaced or
//! removed record is freed after all threads that were pinned at that moment have left. A thread is pinned before it
//! reads the value word of a slot, and a writer retires a record after taking it out of the table. A guard belongs to a
//! thread, or to no thread (`pin_owned`): then it has a slot of the reclaimer for itself, and may be sent to other
//! threads. Both protect what is read under them on any thread, so iterators and futures, which only borrow their
//! guard, may be sent as well.
//!
//! # Operations
//!
//! A record never changes. A write creates a new record, and its linearization point is one exchange or one store of
//! the word that leads to the record, as in the table of words. *compute*, *compare_exchange* and *get_or_insert_with*
//! succeed only if the word is still the one that led to the value they saw. An equal word cannot lead to other
//! records, because records that the caller has seen are not freed while it is pinned. No bin is claimed, and no index
//! is pinned, while a closure of the user runs. The other calls pin the index once and search once: a write begins with
//! the slot that its search found, and searches again only if the bin has changed since ([`spot`]). While the index is
//! pinned, keys are compared and records allocated; this holds back the memory of old indexes only.
//!
//! *clear* replaces the index. The records of the old one are freed in steps, when no guard protects them ([`walk`]).
//! Dropping a map, and moving its records out, walk along the bins; none of these needs memory for the records. A
//! *snapshot* is the old index: its records were in the table when the last bin was frozen, and the guard of the
//! caller, which is older, protects them. *Shadow inserts* are those of the table of words ([`shadow`]).
//!
//! Memory is allocated before any change. If there is none, the record is returned to the caller
//! ([`DlhtMap::checked_insert`] and others), or the call drops it and panics; the map is unchanged. A removal needs
//! memory only if three or more keys have the hash of the removed key.

mod api;
mod batch;
mod batches;
mod change;
mod checked;
mod compute;
mod entry;
mod guard;
mod hasher;
mod iter;
mod make;
mod memory;
mod mixed;
mod options;
mod owned;
#[cfg(feature = "rayon")]
mod parallel;
mod pin;
mod read;
mod record;
#[cfg(feature = "serde")]
mod serialize;
mod shadow;
mod snapshot;
mod spot;
mod traits;
mod walk;
mod whole;
mod write;

use std::marker::PhantomData;

use super::core::Core;
use super::mode::{Local, Shared, Synchronization, Threading};
use crate::base::reclaim::Reclaimer;

pub use allocator_api2::alloc::{AllocError, Allocator, Global};
pub use api::DlhtNamespace;
pub use entry::{DlhtMapAndModify, DlhtMapEntry};
pub use guard::{DlhtGuard, DlhtOwnedGuard};
pub use hasher::{DlhtBuildHasher, DlhtHasher};
pub use iter::{DlhtMapIter, DlhtMapKeys, DlhtMapValues};
pub use memory::RecordAllocator;
pub use mixed::DlhtMapOp;
pub use options::DlhtMapOptions;
pub use owned::{DlhtMapDrain, DlhtMapIntoIter};
#[cfg(feature = "rayon")]
pub use parallel::{DlhtMapIntoParIter, DlhtMapParIter};
pub use record::Refused;
pub use shadow::DlhtMapShadow;
pub use snapshot::{DlhtMapPage, DlhtMapSnapshot, DlhtMapSnapshotIter};

/// A map of records: keys and values of any type. Use it as [`DlhtMap`], where its calls are explained, or as
/// [`DlhtMapLocal`].
///
/// ```
/// use icefield::{DlhtBuildHasher, DlhtRecordMap, Global, Threading};
///
/// fn names<M: Threading>(map: &DlhtRecordMap<u32, String, DlhtBuildHasher, Global, M>) -> String {
///     map.values(&map.pin()).cloned().collect()
/// }
/// let name = || [(1, "one".to_owned())];
/// assert_eq!(names(&icefield::DlhtMap::from(name())), "one");
/// assert_eq!(names(&icefield::DlhtMapLocal::from(name())), "one");
/// ```
pub struct DlhtRecordMap<
    K,
    V,
    S = DlhtBuildHasher,
    A: RecordAllocator = Global,
    M: Threading = Shared,
> {
    core: Core<M>,
    hash: S,
    /// The number of records beyond the first of each hash. `core` counts only hashes.
    crowded: M::Count,
    /// Reclaims records and lists of records with equal hashes.
    reclaimer: Reclaimer,
    allocator: A,
    records: PhantomData<*mut (K, V)>,
}

// SAFETY: owns its records like a map of boxes; they may be dropped on the thread that drops the map.
unsafe impl<K, V, S, A, M> Send for DlhtRecordMap<K, V, S, A, M>
where
    K: Send,
    V: Send,
    S: Send,
    A: RecordAllocator,
    M: Synchronization<Reclaimer: Send, Count: Send>,
{
}
// SAFETY: gives access to `&K` and `&V`, takes records on one thread and drops them on another; all other state is
// shared through atomics.
unsafe impl<K, V, S, A, M> Sync for DlhtRecordMap<K, V, S, A, M>
where
    K: Send + Sync,
    V: Send + Sync,
    S: Sync,
    A: RecordAllocator,
    M: Synchronization<Reclaimer: Sync, Count: Sync>,
{
}

/// DLHT for keys and values of any type.
///
/// Calls take a guard from [`DlhtMap::pin`], or from [`DlhtMap::pin_owned`] if the guard is to be held across an
/// `.await` or sent to another thread. References that calls return are valid as long as the guard lives. A guard that
/// lives long holds back the memory of all records that are replaced and removed meanwhile. `&DlhtMap` has no
/// `IntoIterator`, because it would have no guard for the references: use [`DlhtMap::iter`].
///
/// A write creates a new record, in memory from the allocator `A` ([`DlhtMap::new_in`]). Values that must change in
/// place can be atomics or locks. Changes that depend on the present value are [`DlhtMap::entry`],
/// [`DlhtMap::compute`], [`DlhtMap::compare_exchange`] and [`DlhtMap::remove_if`]; none of them holds a lock.
///
/// Calls on a map concern namespace 0, except those for the map as a whole, which concern all namespaces: `len`,
/// `capacity`, `reserve`, `shrink_to_fit`, `clear`, `drain`, `clone`, `==` and the owning iterator.
///
/// # Panics
/// Calls panic if they are given the guard of another map. If memory runs out, or if the [options](DlhtMap::options)
/// forbid a larger index, calls that insert panic, and so do the constructors, [`DlhtMap::reserve`],
/// [`DlhtMap::shrink_to_fit`], [`DlhtMap::clear`], [`DlhtMap::snapshot`], `clone`, and the removal of one of three or
/// more keys with equal 64-bit hashes. Calls named `checked_` or `try_` return an error instead. The map is unchanged
/// then, except for the earlier operations of a batch.
///
/// ```
/// let map = icefield::DlhtMap::<String, Vec<u32>>::new();
/// let guard = map.pin();
/// map.insert("primes".to_owned(), vec![2, 3, 5], &guard);
/// assert_eq!(map.get("primes", &guard), Some(&vec![2, 3, 5]));
///
/// // Batches overlap the memory latencies of many keys.
/// map.insert_batch((0..100_u32).map(|n| (n.to_string(), vec![n])), &guard);
/// let mut found = [None; 2];
/// map.get_batch(&["7", "seven"], &mut found, &guard);
/// assert_eq!(found, [Some(&vec![7]), None]);
/// ```
pub type DlhtMap<K, V, S = DlhtBuildHasher, A = Global> = DlhtRecordMap<K, V, S, A, Shared>;

/// [`DlhtMap`] for one thread: it may be sent to another thread, but not shared. Its calls are those of a [`DlhtMap`],
/// and changing a slot takes no locked instruction. Keys and values must be `Send`, because an owned guard may free
/// them on another thread.
///
/// ```
/// let map = icefield::DlhtMapLocal::<String, u32>::new();
/// let guard = map.pin();
/// map.insert("one".to_owned(), 1, &guard);
/// assert_eq!(map.get("one", &guard), Some(&1));
/// ```
pub type DlhtMapLocal<K, V, S = DlhtBuildHasher, A = Global> = DlhtRecordMap<K, V, S, A, Local>;
