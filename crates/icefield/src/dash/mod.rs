//! Dash (Lu, Hao, Wang, Lo: *Dash: Scalable Hashing on Persistent Memory*, VLDB 2020): durable, concurrent hashing that
//! opens instantly.
//!
//! # 1. What and when
//!
//! Best at: point reads and writes of records that must survive, opening in constant time whatever the size, tables
//! that grow. A read touches two bucket lines and the record's; a miss touches two lines in all; reads write nothing.
//! Worst at: blind bulk writing (two fences an insert; `batch` brings that to two per 32), ordered access (there is
//! none), media that reorder the stores to one line (`Durability::Disk` is refused).
//!
//! # 2. Origin
//!
//! The paper's section, our file; then what differs, and why.
//!
//! - §4.1 Figures 3, 4: layout (`layout`). Overflow metadata has a word of its own, apart from the allocation bitmap:
//!   it is volatile, the bitmap durable. No record counter: it is the bitmap's population count. Segment headers lie
//!   together in a region of their own, so segments are 64 + stash buckets exactly.
//! - §4.2 fingerprints (`bucket`). Taken from the low byte of the hash; bucket from the bits above; directory from the
//!   top.
//! - §4.3 balanced insert, displacement, stash (`insert`, `stash`). Up to three records are displaced once the stash is
//!   full; batches stash first. The target of a displacement is locked, which Algorithm 1 forgets: tried, else the
//!   record goes on. The *home* bucket's overflow count is tested, not the probing bucket's as Algorithm 3 has it.
//! - §4.4 concurrency (`base::version_lock`, `op`). Three states: a writer prepares while readers go on; readers wait
//!   only from the publishing store to its fence. So no read returns what a crash could take back.
//! - §4.5 variable-length keys (`crate::record`, `pm::blob`). Values too. 16 more hash bits in the reference spare fetching
//!   other keys.
//! - §4.6 operations (`op`, `batch`). The paper has no update: one store of the value word under the lock. Batches
//!   share fences.
//! - §4.7 splits (`split`, `eh`). The new segment is complete and durable before a single store commits the split,
//!   instead of moving records under a transaction; the state word and the side link are that store. Doubling goes to a
//!   place that each depth has of its own.
//! - §4.8 recovery (`recover`). The version numbers of segments are replaced by DRAM marks, all clear at opening:
//!   nothing to wrap.
//! - Where the paper is silent (`eh`, `split`). Crowds of equal hashes: when the directory would be out of proportion,
//!   a segment gets a chain of further stash buckets. `clear` in one store.
//!
//! # 3. Layout
//!
//! Regions of a table: `table.ice` (superblock, then [`layout::Root`]), `directory-0.ice` and `directory-1.ice` (8-byte
//! entries; generations take turns), `headers.ice` (32 bytes a segment), `segments.ice` (buckets, 256 bytes each),
//! `chains.ice` (320 bytes a chained stash bucket), and for by-reference types `blobs.ice`, `blobmap.ice`. Byte tables
//! are in `docs/format.md`; `layout` asserts the offsets.
//!
//! ```text
//! hash   63 ............ directory index (top `depth` bits) ... | 8 + .. home bucket | 7..0 fingerprint
//! bucket lock | overflow | overflow fingerprints | meta | 14 fingerprints | 14 x (key, value)
//! ```
//!
//! # 4. Invariants
//!
//! For a quiescent table whose segments have all been touched; [`Dash::check`] reports breaches under these numbers.
//!
//! - I1 A segment of local depth *d* is named by exactly the 2^(*g*-*d*) directory entries of its pattern; its state is
//!   stable.
//! - I2 A record is in the segment of its hash, has its hash's fingerprint, and both its words are of the table's
//!   types.
//! - I3 A record in a normal bucket is in its home bucket (membership bit clear) or the one after it (bit set).
//! - I4 A record in the stash has a place in the overflow metadata of its home bucket (or, as a member, of the next
//!   one), or is counted there; one in the chain is counted. Records of one home change only under the lock of that
//!   home.
//! - I5 A key is in one slot at most.
//! - I6 Every segment and chained bucket is named once: by the directory or a chain, or by a free list.
//! - I7 Every blob that a slot refers to is whole and has the key's hash for owner (the blob store's I1 to I5).
//! - I8 The record counter is right.
//!
//! # 5. Operations
//!
//! Each with its linearization point. *get*: the second look at the lock word that finds it unchanged (validating, as
//! it does, the directory entry read after the first look); misses likewise. *try_insert*, *insert*, *put* of an absent
//! key: the store of the metadata word of the bucket that takes the record. For a stashed record: of the stash bucket,
//! but readers wait for the overflow metadata that follows under the same changing bits. *update* and *insert* of a
//! present key: the store of the value word. *remove*: the store of the metadata word. *compute*: as what it decides;
//! when nothing, as *get*. *clear*: the store of the DRAM mirror of the root word; writers that passed the old root
//! before count as before. *scan*: each segment at one moment. *len*: none; exact when quiescent.
//!
//! # 6. Ordering
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | E1 | unlock (Release) | `read_begin` (Acquire) | everything a writer changed |
//! | E2 | metadata word (Release) | same (Relaxed, validated) | fingerprints and records; on the medium: one line |
//! | E3 | slot words (Release) | slot words (`PROTECTED`) | the blobs behind references, which a pin keeps |
//! | E4 | directory entry, root mirror (Release) | the same (Acquire) | complete segments, complete directories |
//!
//! # 7. Crash
//!
//! | persist point | what holds from here on | a crash just before leaves |
//! |---|---|---|
//! | P1 record (and blobs) | | a free slot with garbage |
//! | **P2** metadata word | the record is kept | as P1 |
//! | P3, **P4** displaced copy | two copies | nothing; or a duplicate, which `recover` strikes |
//! | P5 the original's end | its slot may be reused | the duplicate of P4 |
//! | P6 new segment, whole | | an intent that names it: back on the free list |
//! | P7 chained bucket, empty | its segment may name it | as P6 |
//! | P8 records struck out; P9, P10, P11 brought home | slots may be reused | a split to finish, duplicates to strike |
//! | P12 root word | doubling, `clear` | the directory as before |
//! | P13 new directory, whole | the root may name it | as P12 |
//! | P14 directory entries (with P8) | the split may be declared over | a split to finish |
//! | **P15** link word, splitting | the split is rolled forward | P6 |
//! | P16 link word, stable | the split is over | a split to finish |
//! | P17 duplicates struck out | either copy may change | as before |
//! | P18 blob of an update | a slot may refer to it | a block that nobody owns |
//!
//! The value word of an update is its own commit point. Locks and overflow metadata are volatile cells: recovery resets
//! the ones and rebuilds the others before a segment is used. Interrupted allocations are settled when the table is
//! opened (`pm::alloc`), everything else when a segment is first touched; both only repeat what may have been done.
//!
//! # 8. Progress
//!
//! Readers never wait for a writer that prepares, only for one between its publishing store and its fence. A thread
//! that waits for a lock while holding another waits in ascending order of the buckets of one segment, stash last;
//! windows and displacements only try. Splits lock a whole segment: writers of it wait for some microseconds, readers
//! for the strike at the end. `clear` and `backup` wait for splits and hold them up. Loops: a lookup repeats only when
//! a writer came between; an insert repeats only after a split or a longer chain. A segment's blobs are retired when
//! their record is gone; segments and directories are never unmapped while the table is open, so readers need no guard
//! for them.
//!
//! # 9. Costs
//!
//! Bucket lines read, lines flushed, fences; without the directory entry. `tests/costs.rs` asserts this table from the
//! simulator's counters.
//!
//! | operation | lines read | flushes | fences |
//! |---|---|---|---|
//! | get, hit | 2 or 3 | 0 | 0 |
//! | get, miss | 2 (and one for each false fingerprint) | 0 | 0 |
//! | insert, direct or stash | 2 or 3 (4 with stash) | 2 | 2 |
//! | insert that displaces *n* records | | 2 + 3*n* | 2 + 3*n* |
//! | update, remove | as get | 1 | 1 |
//! | 32 inserts in a batch | 2 each | 2 each | 2 in all |
//! | by-reference records | + the blobs' lines | + the blobs' lines | 1 more in an update |

mod api;
mod batch;
mod bucket;
mod directory;
mod eh;
mod insert;
mod layout;
mod maintain;
mod op;
mod options;
mod recover;
mod scan;
mod segment;
mod split;
mod stash;
mod window;
mod writer;

use crate::key::{Key, Value};
use crate::pm::{Mapped, Medium};
use crate::record::length::Length;
use crate::table::RecoveryReport;

use directory::Directory;
use segment::Core;

pub use eh::Eh;
#[doc(hidden)]
pub use layout::Geometry;
pub use options::DashOptions;
pub use scan::Iter;

/// A Dash table; use it as [`DashEh`].
///
/// ```
/// let table = icefield::DashEh::<str, u64>::in_memory()?;
/// assert_eq!(table.insert("answer", 42)?, None);
/// assert_eq!(table.get("answer")?, Some(42));
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct Dash<K: Key + ?Sized, V: Value + ?Sized, P: Directory, M: Medium = Mapped> {
    length: Length,
    directory: P,
    recovery: RecoveryReport,
    core: Core<K, V, M>,
}

/// Dash with extendible hashing: a durable, concurrent hash table that opens instantly.
pub type DashEh<K, V, M = Mapped> = Dash<K, V, Eh, M>;
