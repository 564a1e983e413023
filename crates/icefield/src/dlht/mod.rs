//! DLHT (Katsarakis, Gavrielatos, Ntarmos: *DLHT: A Non-blocking Resizable Hashtable with Fast Deletes and
//! Memory-awareness*, HPDC 2024): a concurrent table in memory that answers a get with one cache line.
//!
//! # 1. What and when
//!
//! Best at: words under many threads, batches of any operation (a get costs about one prefetched line), growing while
//! it is used. Worst at: ordered access (there is none), memory that must be filled to the last slot (it grows at 1.9
//! records a bin, 38 bytes a record), blind updates of longer records ([`DlhtMap`] makes a new one each time).
//!
//! # 2. Origin
//!
//! | paper | file | what differs, and why |
//! |---|---|---|
//! | §3.1 Figure 2: index, bins, buckets | `layout`, `header` | The fourth bin state is `Claimed` (see §3.2.4). |
//! | §3.2.1 Get | `get` | Reads go on while their bin is in transfer, as §5.1.4 says and §3.2.5 denies. |
//! | §3.2.2 Insert, chaining | `write`, `layout` | The pool of link buckets is looked at before it is counted down; what a lost race to chain leaves over goes to a stack. |
//! | §3.2.2 shadow inserts | `shadow` | Also in batches. Committed and aborted through a guard whose drop aborts, not by key: nobody settles what is another's. |
//! | §3.2.3 Delete | `write` | |
//! | §3.2.4 Put | `write` | The paper swaps key and value at once and does not look at the header again, so a put can land in a slot that was deleted and reserved for the same key meanwhile. Here an update claims its bin by the header, stores the value, and releases the bin: one more locked instruction on a line that is there, exact previous values, no 16-byte atomics, and no transfer keys. |
//! | §3.2.5 Resize | `transfer`, `plan` | An insert with a full bin moves that bin and at most 8 others, then goes on; it does not wait for all chunks. Indexes form a chain of any length. |
//! | §3.2.5 GC of the old index | `base::reclaim` | By epochs: two plain stores per request or batch, `membarrier` on the resizer's side; given back in steps. |
//! | §3.3 batching | `batch` | A ring that never drains instead of a pass of hints and a pass of work. |
//! | §3.4.3 hash functions | `hasher` | Strong and keyed unless asked otherwise. |
//! | §3.4.4 iterator | `scan`, `snapshot` | Cursors; the old index is the snapshot. |
//! | §3.4.5 single thread | `mode` | |
//! | §3.1 Allocator mode, §3.4.1, §3.4.2 | `map` | The slot's key word is the whole hash, of namespace and key; pointers are whole. Reclamation by guards. Puts make new records. Batches hint records as well as bins. |
//! | §3.1 HashSet mode | `set` | None: slots are the same 16 bytes, the value unused. Of 8 bytes they would want states for more than 15. |
//! | silent | `plan`, `transfer` | Keys that crowd into few bins: when an index is full although nearly empty, the next one has the same size and another hash function. |
//!
//! # 3. Layout
//!
//! An index is 2^*b* bins of one line each and a pool of link buckets, likewise lines; numbers, never addresses, refer
//! to them. `layout` asserts the sizes.
//!
//! ```text
//! bin     | header | single link, double link | key value | key value | key value |
//! bucket  | key value | key value | key value | key value |
//! header  63 .. version .. 32 | bin state 2 | 15 x slot state 2
//! ```
//!
//! # 4. Invariants
//!
//! - I1 A key is in at most one slot that is `Valid` or `Shadow`, of the first index of the chain whose bin for it is
//!   not `DoneTransfer`. (While a bin is in transfer its records may be further on as well; nobody looks there.)
//! - I2 Keys and values change only in slots that are `TryInsert`, by the thread that made them so, and in `Claimed`
//!   bins, by the thread that claimed.
//! - I3 Every change of a slot's state, every claim and every return from transfer changes the version. (After 2^32
//!   changes of one bin it comes round; a thread would have to sleep exactly that long.)
//! - I4 A bin's link numbers are set once. A link bucket belongs to one bin, to the stack, or to nobody yet.
//! - I5 The bins of an index that have been moved are counted once each; `current` is the first index that has unmoved
//!   ones.
//!
//! # 5. Operations
//!
//! Each with its linearization point. *get*: the load of the value, or of the header for a miss, when the header proves
//! unchanged afterwards; in a bin in transfer likewise. *try_insert*, and *insert* of an absent key: the exchange that
//! makes the slot `Valid`; it fails if the header changed, and the bin is searched again. *update*, and *insert* of a
//! present key: the store of the value in the claimed bin. *remove*: the exchange that makes the slot `Invalid`; the
//! value read before it is exact, because a claim would have changed the header. *compute*: as what it decides, on
//! condition that the value is still the one shown. *shadow insert*: the exchange that makes the slot `Shadow`; its
//! end: the exchange that makes it `Valid` or `Invalid`. *clear*: the store of `open` in the next index, when every bin
//! is frozen. *snapshot*: the moment at which the last bin is frozen; writers that would come later wait for it.
//! *scan*: each bin at one moment. *len*: none; exact when quiescent.
//!
//! # 6. Ordering
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | E1 | header (AcqRel exchange, Release) | header (Acquire) | the slots as the header describes them; the next index, for a bin that has left |
//! | E2 | key, value (Release) | key, value (Relaxed), `fence(Acquire)`, header | who sees a later record, or a replaced value, sees the header change before it |
//! | E3 | `moved` (AcqRel), `open` (Release) | the same (Acquire) | every bin of the old index is frozen |
//! | E4 | `next`, `current` (SeqCst) | `next` (SeqCst), `current` (`PROTECTED`) | complete indexes |
//! | E5 | link numbers (AcqRel exchange) | the same (Acquire, or after E1) | a bucket that is this bin's |
//! | E6 | top of the stack (AcqRel exchange) | the same (Acquire) | the number below it |
//!
//! # 7. Crash
//!
//! The table does not outlive its process. Were the same layout put into memory that several processes share, each of
//! which may die at any instruction, then: a `TryInsert` slot whose owner died would need its owner's name, to be made
//! `Invalid` by another; a `Claimed` bin likewise, its value being old or new, both of which are right; a bin in
//! transfer can be moved by anybody, skipping keys that are there already.
//!
//! # 8. Progress
//!
//! Gets never wait and store nothing but their announcement: they repeat only when their bin has changed (lock-free).
//! Inserts and removes of different keys never wait for one another (lock-free), but for two short states of their own
//! bin: an update that is between its claim and its release (three instructions), and the transfer of this bin (15
//! records at most). Of these a thread that loses the processor delays the writers of that one bin. A transfer never
//! waits for requests but for such a claim. An insert moves its own bin and at most [`transfer::HELP_WHEN_FULL`]
//! others; a write that finds its bin gone, [`transfer::HELP_WHEN_MOVED`]. `clear` and `snapshot` hold writers up until
//! every bin is frozen, or moved. An index is retired when all its bins have been moved and requests have left it. User
//! code runs outside all of this.
//!
//! Memory is bounded: an index of 4096 bins or more grows only when it holds a quarter of what it should, so keys that
//! crowd cost another hash function, not another index of eight times the size. A transfer that gets no memory puts the
//! bin in hand back as it was; the insert that needed it is refused, and everything else goes on.
//!
//! # 9. Costs
//!
//! Lines touched, and locked instructions. At the resize point one bin in eight has a link bucket.
//!
//! | operation | lines | locked instructions |
//! |---|---|---|
//! | get, hit | 1.0 to 1.1 | 0 |
//! | get, miss | 1.0 to 1.13 | 0 |
//! | insert | as a miss | 2, and 1 to count (per batch); 2 more when its bin gets a link bucket |
//! | update | as a hit | 1 |
//! | remove | as a hit | 1, and 1 to count (per batch) |
//! | shadow insert, then commit or abort | as a miss, as a hit | 2, then 1, and 1 to count a commit |
//!
//! A write that changes nothing (the key is present, or absent) has none. `tests/costs.rs` holds this table to it.

mod api;
mod batch;
mod core;
mod get;
mod hasher;
mod header;
mod index;
mod layout;
mod map;
mod mode;
mod options;
mod plan;
mod scan;
mod set;
mod shadow;
mod snapshot;
mod transfer;
mod typed;
mod write;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use crate::table::Cursor;

use self::core::Core;

pub use hasher::DlhtHash;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub use layout::LinkPool;
pub use map::{
    AllocError, Allocator, DlhtBuildHasher, DlhtGuard, DlhtHasher, DlhtMap, DlhtMapIter, DlhtMapOp,
    DlhtNamespace, Global, RecordAllocator, Refused,
};
#[cfg(feature = "sim")]
#[doc(hidden)]
pub use mode::{Interleaved, Turns};
pub use mode::{Local, Mode, Shared};
pub use options::DlhtOptions;
pub use set::{DlhtSet, DlhtSetIter};
pub use shadow::{Shadow, Shadows};
pub use snapshot::{Snapshot, SnapshotIter};

/// A DLHT table of words; use it as [`Dlht`] or [`DlhtLocal`].
///
/// ```
/// use icefield::{DlhtTable, Mode};
///
/// fn total<M: Mode>(table: &DlhtTable<u64, u64, M>) -> u64 {
///     table.iter().map(|(_, value)| value).sum()
/// }
/// assert_eq!(total(&icefield::Dlht::from_iter([(1, 10), (2, 20)])), 30);
/// assert_eq!(total(&icefield::DlhtLocal::from_iter([(1, 10)])), 10);
/// ```
pub struct DlhtTable<K, V, M: Mode = Shared> {
    core: Core<M>,
    types: PhantomData<fn(K, V)>,
}

/// DLHT for any number of threads.
///
/// ```
/// let table = icefield::Dlht::<u64, u64>::new();
/// std::thread::scope(|scope| {
///     for thread in 0..2 {
///         scope.spawn({
///             let table = &table;
///             move || table.insert(thread, thread * 10)
///         });
///     }
/// });
/// assert_eq!((table.get(0), table.get(1)), (Some(0), Some(10)));
/// ```
pub type Dlht<K, V> = DlhtTable<K, V, Shared>;

/// DLHT for one thread.
///
/// ```
/// let table = icefield::DlhtLocal::<u64, u64>::new();
/// table.insert(1, 10);
/// assert_eq!(table.get(1), Some(10));
/// ```
pub type DlhtLocal<K, V> = DlhtTable<K, V, Local>;

/// An iterator over a table's records, from [`DlhtTable::iter`]; reads ahead a page at a time.
///
/// ```
/// let table = icefield::Dlht::<u64, u64>::from_iter([(1, 10), (2, 20)]);
/// let mut records: Vec<(u64, u64)> = table.iter().collect();
/// records.sort();
/// assert_eq!(records, [(1, 10), (2, 20)]);
/// ```
pub struct DlhtIter<'a, K, V, M: Mode = Shared> {
    table: &'a DlhtTable<K, V, M>,
    page: std::vec::IntoIter<(K, V)>,
    next: Option<Cursor>,
}
