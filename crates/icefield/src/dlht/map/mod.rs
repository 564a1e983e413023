//! Allocator mode (§3.1): keys and values of any type, in records of their own behind the slots.
//!
//! The index is a table of words from hashes to records ([`record`]), so everything that is true of it is true here: a
//! get touches a bin and the record, reads never wait, resizes block nobody. Where the paper keeps a key's size and
//! namespace in the upper bits of the pointer, to spare looking at records of other keys, the slot's whole key word is
//! the hash here: that spares it better, and leaves pointers whole.
//!
//! Records come from the allocator that the map was given ([`memory`]) and go back to it, also when another thread
//! reclaims them later: what waits to be reclaimed has a clone of the allocator with it, and everything has been
//! reclaimed when the map has been dropped. The default, the global allocator, has no clones to keep and costs nothing.
//! Lists of records with one hash are the allocator's too; the index is the system's.
//!
//! What a reader holds stays, because it is pinned (§3.2.3's epochs, without anybody driving them): a record that was
//! replaced or removed is freed when everybody who was pinned at that moment has left. A thread is pinned before it
//! reads a slot's value word, and writers retire what they have taken out of the table, after that.
//!
//! # Operations
//!
//! A record never changes; a write makes a new one, and one exchange or one store of the word that leads to it is its
//! linearization point, as in the table of words. *compute*, *compare_exchange*, *get_or_insert_with*: on condition
//! that the word is still the one that led to the value shown. It cannot be the same word for other records, because
//! what the caller has seen is not freed while it is pinned. Nothing is claimed, and no index is held, while user code
//! of such a call runs.
//!
//! Memory is asked for before anything changes. When there is none the record goes back to the caller
//! ([`DlhtMap::checked_insert`]) or is dropped with a panic, and the map is as it was. Only one removal needs memory:
//! that of one of three or more keys whose hashes are equal.

mod api;
mod batch;
mod hasher;
mod iter;
mod make;
mod memory;
mod mixed;
mod record;
mod write;

use std::marker::PhantomData;

use super::core::Core;
use super::mode::Shared;
use crate::base::counter::ShardedCounter;
use crate::base::reclaim::{Guard, Reclaimer};

pub use allocator_api2::alloc::{AllocError, Allocator, Global};
pub use api::DlhtNamespace;
pub use hasher::{DlhtBuildHasher, DlhtHasher};
pub use iter::DlhtMapIter;
pub use memory::RecordAllocator;
pub use mixed::DlhtMapOp;
pub use record::Refused;

/// DLHT for keys and values of any type.
///
/// Calls take a guard from [`DlhtMap::pin`]; references that they give are good for as long as it lives. A guard that
/// lives long holds back the memory of everything that is replaced and removed meanwhile. There is no `IntoIterator`
/// for `&DlhtMap`, which would have no guard to give references under: [`DlhtMap::iter`] takes one.
///
/// A write makes a new record, in memory from the allocator `A` ([`DlhtMap::new_in`]); values that are to change in
/// place are atomics or locks.
///
/// # Panics
/// Calls panic when they get the guard of another map; those that insert, when there is no memory for a record or for a
/// larger index ([`DlhtMap::checked_insert`] gives an error instead), and so does `remove` of one of several keys whose
/// 64-bit hashes are equal. The map is as it was then.
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
pub struct DlhtMap<K, V, S = DlhtBuildHasher, A: RecordAllocator = Global> {
    core: Core<Shared>,
    hash: S,
    /// Records beyond the first of their hash; the core counts hashes.
    crowded: ShardedCounter,
    /// Of records and crowds.
    reclaimer: Reclaimer,
    allocator: A,
    records: PhantomData<*mut (K, V)>,
}

// SAFETY: owns its records as a map of boxes would; they may be dropped on the thread that drops the map.
unsafe impl<K: Send, V: Send, S: Send, A: RecordAllocator> Send for DlhtMap<K, V, S, A> {}
// SAFETY: gives out `&K` and `&V`, takes in records on one thread and drops them on another; everything else is shared
// by atomics.
unsafe impl<K, V, S, A> Sync for DlhtMap<K, V, S, A>
where
    K: Send + Sync,
    V: Send + Sync,
    S: Sync,
    A: RecordAllocator,
{
}

/// While this lives, nothing that was got from the map under it goes away. From [`DlhtMap::pin`].
///
/// ```
/// let map = icefield::DlhtMap::from_iter([(1, "one".to_owned())]);
/// let guard = map.pin();
/// let one = map.get(&1, &guard);
/// map.remove(&1, &guard);
/// assert_eq!(one.map(String::as_str), Some("one")); // Gone from the map, not from memory.
/// ```
#[must_use = "nothing is protected once the guard is dropped"]
#[derive(Debug)]
pub struct DlhtGuard<'a> {
    guard: Guard<'a>,
    /// Whose records it keeps.
    reclaimer: &'a Reclaimer,
}

impl DlhtGuard<'_> {
    /// Ends this thread's epoch (§3.2.3): says that nothing got under this guard is in use any more, which the borrow
    /// checker sees to, so that what was replaced and removed meanwhile can be freed. For a thread that keeps one guard
    /// and calls this between requests: the paper's epoch driven by the client. Does nothing while the thread has
    /// another guard of this map.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u64, String>::new();
    /// let mut guard = map.pin();
    /// for request in 0..1000 {
    ///     map.insert(request % 8, format!("request {request}"), &guard);
    ///     assert!(map.get(&(request % 8), &guard).is_some());
    ///     guard.advance_epoch(); // What the insert replaced may go.
    /// }
    /// ```
    ///
    /// What was got before cannot be used after:
    ///
    /// ```compile_fail
    /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
    /// let mut guard = map.pin();
    /// let value = map.get(&1, &guard);
    /// guard.advance_epoch();
    /// assert_eq!(value, Some(&10));
    /// ```
    pub fn advance_epoch(&mut self) {
        self.guard.renew();
    }
}
