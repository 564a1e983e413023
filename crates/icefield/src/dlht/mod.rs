//! DLHT (Katsarakis, Gavrielatos, Ntarmos: *DLHT: A Non-blocking Resizable Hashtable with Fast Deletes and
//! Memory-awareness*, HPDC 2024): a concurrent table in memory that answers a get with one cache line.
//!
//! # 1. What and when
//!
//! Strengths: fixed-size words under many threads, batches of any operation (a get costs about one prefetched line),
//! growing while in use. Weaknesses: no ordered access; memory use (the table doubles at 1.9 records per bin, so it
//! takes 37 to 77 bytes per record); blind updates of longer records ([`DlhtMap`] allocates a new record each time).
//!
//! # 2. Origin
//!
//! | paper | file | what differs, and why |
//! |---|---|---|
//! | §3.1 Figure 2: index, bins, buckets | `layout`, `header` | The fourth bin state is `Claimed` (see §3.2.4). |
//! | §3.2.1 Get | `get` | Reads continue while their bin is in transfer. §5.1.4 of the paper describes this, §3.2.5 contradicts it. |
//! | §3.2.2 Insert, chaining | `write`, `layout` | The pool's counter is checked before it is advanced. A link bucket goes to a stack if its thread loses the race to chain it. Single and double link buckets come from separate pools. |
//! | §3.2.2 shadow inserts | `shadow` | Also in batches. They commit and abort through a guard whose drop aborts, not by key, so a thread cannot settle another thread's insert. |
//! | §3.2.3 Delete | `write` | The paper's bins keep their link buckets for ever, so a table of constant size grows. Here the last record of a bin moves to the slot that becomes free in an earlier bucket, and an empty link bucket returns to its pool. |
//! | §3.2.4 Put | `write` | The paper swaps key and value at once and does not check the header again, so a put can hit a slot that was deleted and reserved for the same key meanwhile. Here an update claims its bin in the header, stores the value, and releases the bin. This costs one more locked instruction on a cached line. It gives exact previous values and needs neither 16-byte atomics nor transfer keys. |
//! | §3.2.5 Resize | `transfer`, `plan` | An insert into a full bin moves that bin and at most 8 others, then continues; it does not wait for all chunks. Indexes form a chain of any length. |
//! | §3.2.5 GC of the old index | `base::reclaim` | Epochs: two plain stores per request or batch, and `membarrier` on the resizer's side. The memory is freed in steps. |
//! | §3.3 batching | `batch` | A ring (`base::pipeline`) instead of a pass of prefetches and a pass of operations. |
//! | §3.4.3 hash functions | `hasher` | Strong and keyed by default. The number of bins need not be a power of two. |
//! | §3.4.4 iterator | `scan`, `snapshot` | Cursors; the old index is the snapshot. |
//! | §3.4.5 single thread | `mode` | |
//! | §3.1 Allocator mode, §3.4.1, §3.4.2 | `map` | The slot's key word is the whole hash of namespace and key; pointers are stored whole. Guards protect records from reclamation. A put allocates a new record. Batches prefetch records as well as bins. |
//! | §3.1 HashSet mode | `set` | Slots have the same 16 bytes as in the other modes, with the value unused. Slots of 8 bytes would need more than 15 slot states in the header. |
//! | not in the paper | `plan`, `transfer` | Keys that crowd into few bins get a new hash function (section 8). |
//!
//! # 3. Layout
//!
//! An index consists of bins of one line each, a pool of link buckets, also of one line each, and a word for each region
//! of 512 bins, which says whether the region was ever written to. A bin refers to its link buckets by number, never by
//! address. `layout` asserts the sizes.
//!
//! ```text
//! bin     | header | single link, double link | key value | key value | key value |
//! bucket  | key value | key value | key value | key value |
//! header  63 .. version .. 32 | bin state 2 | 15 x slot state 2
//! ```
//!
//! # 4. Invariants
//!
//! - I1 A key is in at most one slot that is `Valid` or `Shadow`, in the first index of the chain whose bin for the key
//!   is not `DoneTransfer`. (While a bin is in transfer, later indexes may hold copies of its records; they are not
//!   read.)
//! - I2 Keys and values change only in `TryInsert` slots, by the thread that reserved the slot, and in `Claimed` bins,
//!   by the thread that claimed the bin.
//! - I3 Every change of a slot's state, every claim and every return from transfer changes the version. (It wraps after
//!   2^32 changes of one bin; a thread would have to be suspended for exactly that many.)
//! - I4 A bin's link number is set while it is 0, and becomes 0 only while the bin is claimed and its header says that no
//!   slot of the bucket is taken. A link bucket is owned by one bin, lies on a stack, or is unused.
//! - I5 Each moved bin of an index is counted once. `current` is the first index that has unmoved bins.
//! - I6 The header of a bin is 0 unless its region is `TOUCHED`. A region that is not is moved as a whole, without
//!   accessing its bins: from then on, a header that is 0 means that the bin belongs to the next index.
//!
//! # 5. Operations
//!
//! Linearization points:
//! - *get*: the load of the value, or of the header for a miss, provided that the header is unchanged afterwards. This
//!   also holds for a bin in transfer. A header of 0 is a miss if there is no next index afterwards, or if the bin's
//!   region has not moved.
//! - *try_insert*, and *insert* of an absent key: the exchange that makes the slot `Valid`. It fails if the header has
//!   changed; the bin is searched again then.
//! - *update*, and *insert* of a present key: the store of the value in the claimed bin.
//! - *remove*: the exchange that makes the slot `Invalid`. The value read before it is exact, because a claim would
//!   have changed the header. If another record of the bin then moves to the free slot, the bin is claimed meanwhile:
//!   readers find that record in one of the two slots, by the header.
//! - *compute*: that of its write, or of its get if the closure keeps the record. The write succeeds only if the value
//!   is still the one shown to the closure.
//! - *entry*: that of its call, which is one `compute`, insert or removal.
//! - *shadow insert*: the exchange that makes the slot `Shadow`. Its commit or abort: the exchange that makes the slot
//!   `Valid` or `Invalid`.
//! - *clear*, *drain*: the store of `open` in the next index, when every bin is frozen.
//! - *snapshot*: the moment at which the last bin is frozen. A writer whose bin has moved waits for the others.
//! - *scan*: one for each bin. *len*: none; it is exact if no other thread writes meanwhile.
//!
//! # 6. Ordering
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | E1 | header (AcqRel exchange, Release) | header (Acquire) | the slots as the header describes them; the next index, for a bin that has left |
//! | E2 | key, value (Release) | key, value (Relaxed), `fence(Acquire)`, header | the header change before the store |
//! | E3 | `moved` (AcqRel), `open` (Release) | the same (Acquire) | every bin of the old index is frozen |
//! | E4 | `next`, `current` (SeqCst) | `next` (SeqCst; Acquire for its presence), `current` (`PROTECTED`) | complete indexes |
//! | E5 | link numbers (AcqRel exchange) | the same (Acquire, or after E1) | a bucket that this bin owns |
//! | E6 | top of a stack (AcqRel exchange) | the same (Acquire) | the number below it |
//! | E7 | state of a region (AcqRel exchange) | the same (Acquire) | which index its bins belong to |
//!
//! # 7. Crash
//!
//! The table does not outlive its process. If the layout were placed in memory shared by several processes, each of
//! which may die at any instruction, the transient states would need the following. A `TryInsert` slot would have to
//! name its owner, so that another process can make it `Invalid` after the owner's death. A `Claimed` bin would have to
//! name its owner as well; its value is the old or the new one, and both are correct. A bin in transfer can be moved by
//! any process, skipping keys that were already copied.
//!
//! # 8. Progress
//!
//! Gets store nothing except an announcement to the reclaimer, wait for nothing, and retry only when their bin has
//! changed (lock-free). The exception is a transfer in progress, with which they help: then they also store to the bin that
//! they move, and may wait for a claim or a move of the bin in the next index that gets its records.
//! Inserts and removes of different keys never wait for one another (lock-free), except for short states of their own
//! bin: an update between its claim and its release (three instructions), a removal that moves a record and returns link
//! buckets, and the transfer of this bin (at most 15 records). A thread that is preempted in one of them delays the
//! writers of that one bin. A transfer waits for no request except one that has claimed the bin. An insert whose bin is
//! full moves it and at most `HELP_WHEN_FULL` others; while a transfer is in progress, each write moves at most
//! `HELP_OF_WRITES` bins, and each read `HELP_OF_READS`; both leave claimed bins to later requests. After as many
//! requests of any kind as an index has bins, all have been moved, unless bins were claimed each time. `clear`, `drain`
//! and `snapshot` make writers wait until every bin is frozen or moved. An index is retired when all its bins have been
//! moved, and freed when all requests have left it. User code runs outside all of these states.
//!
//! Memory is bounded: an index is followed by a larger one only if it holds its capacity (or nearly: `plan`). Keys that
//! crowd into few bins therefore lead to a new hash function, not to a larger index. If a transfer gets no memory, it
//! restores its current bin. The insert that needed the transfer is refused, and all other operations continue. A
//! `clear` needs memory only for the new index, before it begins: that takes the same slots and link buckets for the
//! shadow inserts which it keeps as the old one.
//!
//! An index at its capacity holds on average 1.9 records per bin. It has 4.5 standard deviations more link buckets than
//! it needs on average, and a bin has more than its 15 records in less than one of 50 such indexes. If a table of fixed
//! size cannot place a record for one of these reasons, all its records move to an index of the same size with another
//! hash function, which needs memory for two indexes meanwhile; so it refuses nothing below its capacity.
//!
//! # 9. Costs
//!
//! These are the numbers of lines that an operation accesses and of locked instructions that it executes. By the time
//! a table grows, one link bucket is in use for every eight bins. The first write to a region of 512 bins executes one
//! locked instruction more.
//!
//! | operation | lines | locked instructions |
//! |---|---|---|
//! | get, hit | 1.0 to 1.1 | 0 |
//! | get, miss | 1.0 to 1.13 | 0 |
//! | insert | as a miss | 2, and 1 to count (per batch); 2 more when its bin gets a link bucket |
//! | update | as a hit | 1 |
//! | remove | as a hit | 1, and 1 to count (per batch); 2 more for each link bucket that it returns |
//! | shadow insert, then commit or abort | as a miss, as a hit | 2, then 1, and 1 to count a commit |
//!
//! A write that changes nothing (because the key is present, or absent) executes no locked instruction. "1 to count" is
//! an update of the record count: a plain load and store of the thread's own part (`base::counter`), which
//! `tests/costs.rs` counts like a locked instruction when it checks this table.

mod api;
mod batch;
mod batch_calls;
mod common;
mod core;
mod entry;
mod exchange;
mod get;
mod hasher;
mod header;
mod index;
mod iter;
mod layout;
#[cfg(feature = "sim")]
mod link_pool;
mod map;
mod mode;
mod options;
#[cfg(feature = "rayon")]
mod parallel;
mod plan;
mod reader;
mod scan;
#[cfg(feature = "serde")]
mod serialize;
mod set;
mod shadow;
mod snapshot;
mod std_traits;
mod transfer;
mod typed;
mod walk;
mod whole;
mod write;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use crate::outcome::Cursor;

use self::core::Core;

pub use entry::{DlhtAndModify, DlhtEntry};
pub use hasher::DlhtHash;
pub use iter::{DlhtDrain, DlhtIntoIter, DlhtKeys, DlhtValues};
#[cfg(feature = "sim")]
#[doc(hidden)]
pub use link_pool::LinkPool;
pub use map::{
    AllocError, Allocator, DlhtBuildHasher, DlhtGuard, DlhtHasher, DlhtMap, DlhtMapAndModify,
    DlhtMapDrain, DlhtMapEntry, DlhtMapIntoIter, DlhtMapIter, DlhtMapKeys, DlhtMapLocal, DlhtMapOp,
    DlhtMapOptions, DlhtMapPage, DlhtMapShadow, DlhtMapSnapshot, DlhtMapSnapshotIter,
    DlhtMapValues, DlhtNamespace, DlhtOwnedGuard, DlhtRecordMap, Global, RecordAllocator, Refused,
};
#[cfg(feature = "rayon")]
pub use map::{DlhtMapIntoParIter, DlhtMapParIter};
#[cfg(feature = "sim")]
#[doc(hidden)]
pub use mode::{Interleaved, Turns};
pub use mode::{Local, Shared, Threading};
pub use options::DlhtOptions;
#[cfg(feature = "rayon")]
pub use parallel::{DlhtIntoParIter, DlhtParIter, DlhtSetIntoParIter, DlhtSetParIter};
pub use reader::DlhtReader;
pub use set::{
    DlhtSet, DlhtSetDrain, DlhtSetIntoIter, DlhtSetIter, DlhtSetLocal, DlhtSetPage, DlhtSetShadow,
    DlhtSetSnapshot, DlhtSetSnapshotIter, DlhtWordSet,
};
pub use shadow::{Shadow, Shadows};
pub use snapshot::{Snapshot, SnapshotIter};

/// A DLHT table of words. Use it as [`Dlht`] or [`DlhtLocal`].
///
/// ```
/// use icefield::{DlhtTable, Threading};
///
/// fn total<M: Threading>(table: &DlhtTable<u64, u64, M>) -> u64 {
///     table.iter().map(|(_, value)| value).sum()
/// }
/// assert_eq!(total(&icefield::Dlht::from_iter([(1, 10), (2, 20)])), 30);
/// assert_eq!(total(&icefield::DlhtLocal::from_iter([(1, 10)])), 10);
/// ```
pub struct DlhtTable<K, V, M: Threading = Shared> {
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

/// An iterator over the records of a table, from [`DlhtTable::iter`]. It reads ahead one page at a time.
///
/// ```
/// let table = icefield::Dlht::<u64, u64>::from_iter([(1, 10), (2, 20)]);
/// let mut records: Vec<(u64, u64)> = table.iter().collect();
/// records.sort();
/// assert_eq!(records, [(1, 10), (2, 20)]);
/// ```
pub struct DlhtIter<'a, K, V, M: Threading = Shared> {
    table: &'a DlhtTable<K, V, M>,
    page: std::vec::IntoIter<(K, V)>,
    next: Option<Cursor>,
}
