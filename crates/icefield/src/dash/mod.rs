//! Dash (Lu, Hao, Wang, Lo: *Dash: Scalable Hashing on Persistent Memory*, VLDB 2020): durable, concurrent hashing that
//! opens instantly.
//!
//! # 1. What and when
//!
//! Two tables over one kind of segment: with extendible hashing ([`DashEh`], *EH*) and with linear hashing ([`DashLh`],
//! *LH*). Everything from a segment downwards is the same code; a [`Directory`] is what lies between a hash and a
//! segment. EH splits the segment that is full; its directory has an entry or two for each segment. LH grows by one
//! segment at a time, in a fixed order, and lets full segments have longer stashes until it is their turn; its
//! directory is some hundred bytes.
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
//! - §4.2 fingerprints (`bucket`, `search`). Taken from the low byte of the hash; bucket from the bits above;
//!   directory from the top.
//! - §4.3 balanced insert, displacement, stash (`insert`, `stash`). Up to three records are displaced once the stash is
//!   full; batches stash first, which `tidy` makes up for in LH. The target of a displacement is locked, which
//!   Algorithm 1 forgets: tried, else the record goes on. The *home* bucket's overflow count is tested, not the probing
//!   bucket's as Algorithm 3 has it.
//! - §4.4 concurrency (`base::version_lock`, `search`). Three states: a writer prepares while readers go on; readers
//!   wait only from the publishing store to its fence. So no read returns what a crash could take back.
//! - §4.5 variable-length keys (`crate::record`, `pm::blob`). Values too. 16 more hash bits in the reference spare
//!   fetching other keys.
//! - §4.6 operations (`op`, `batch`). The paper has no update: one store of the value word under the lock. Batches
//!   share fences.
//! - §4.7 splits (`split`, `newcomer`, `eh::grow`). The new segment is complete and durable before a single store
//!   commits the split, instead of moving records under a transaction; the state word and the side link are that store.
//!   Doubling goes to a place that each depth has of its own.
//! - §4.7 merging (`merge`, `eh`, `lh`). The paper names it in half a sentence. Here it is a split run backwards. A
//!   removal that leaves its buckets nearly empty looks at its segment now and then; two that would fill half of one
//!   become one, far from the 95 % at which they split. What was asked for (`capacity`, `reserve`) stays.
//! - §4.8 recovery (`recover`). The version numbers of segments are replaced by DRAM marks, all clear at opening:
//!   nothing to wrap. A session that only reads leaves segments as they are (`still`).
//! - §5.1, §5.3 linear hashing (`lh`, `extent`). Rounds go over prefixes of the hash, not suffixes, in the order of the
//!   hashes: every segment covers a run of them, so scans, cursors and splits are those of EH, and the number of a
//!   segment is two instructions away from its prefix. The generation of `clear` shares the word with `N` and `Next`:
//!   24, 8 and 32 bits. Only who needs the *new* segment must split first: until then the old one holds all records.
//!   Before a segment gets a chained bucket, and the table another segment, stashed records come home if moving others
//!   on lets them (`tidy`). Equal hashes: a long chain in a table that has many does not make it grow.
//! - §5.2 hybrid expansion (`arrays`). No allocator: each segment's number gives its place in the file, which is mapped
//!   once; the directory's entries say which arrays are there, and are checked when a table is opened.
//! - Where the paper is silent (`eh::grow`, `chain`). Crowds of equal hashes: when the directory would be out of
//!   proportion, a segment gets a chain of further stash buckets. `clear` in one store.
//!
//! # 3. Layout
//!
//! Regions of a table: `table.ice` (superblock, then [`layout::Root`]), `directory-0.ice` and `directory-1.ice` (8-byte
//! entries; generations take turns), `headers.ice` (32 bytes a segment), `segments.ice` (buckets, 256 bytes each),
//! `chains.ice` (320 bytes a chained stash bucket), and for by-reference types `blobs.ice`, `blobmap.ice`. Byte tables
//! are in `docs/format.md`; `layout` asserts the offsets. In LH an entry is for an array of segments: 64 in each of the
//! first eight, twice as many in each of the next eight, and so on; and `table.ice` also says how many those are.
//!
//! ```text
//! hash   63 ............ directory index (top `depth` bits) ... | 8 + .. home bucket | 7..0 fingerprint
//! LH     root word: 63..40 generation | 39..32 N | 31..0 Next; number of a path p = 1 prefix: p >> ctz(p) >> 1
//! bucket lock | overflow | overflow fingerprints | meta | 14 fingerprints | 14 x (key, value)
//! ```
//!
//! # 4. Invariants
//!
//! For a quiescent table whose segments have all been touched; [`Dash::check`] reports breaches under these numbers.
//!
//! - I1 EH: a segment of local depth *d* is named by exactly the 2^(*g*-*d*) directory entries of its pattern; LH: it
//!   has the depth and the pattern that the root word gives its number. Its state is stable.
//! - I2 A record is in the segment of its hash, has its hash's fingerprint, and both its words are of the table's
//!   types.
//! - I3 A record in a normal bucket is in its home bucket (membership bit clear) or the one after it (bit set).
//! - I4 A record in the stash has a place in the overflow metadata of its home bucket (or, as a member, of the next
//!   one), or is counted there; one in the chain is counted. Records of one home change only under the lock of that
//!   home.
//! - I5 A key is in one slot at most.
//! - I6 Every segment and chained bucket is named once: by the directory or a chain, or by a free list (of segments
//!   only in EH).
//! - I7 Every blob that a slot refers to is whole and has the key's hash for owner (the blob store's I1 to I5).
//! - I8 The record counter is right.
//!
//! # 5. Operations
//!
//! Each with its linearization point. *get*: the second look at the lock word that finds it unchanged (validating, as
//! it does, the directory entry, of LH the root word, read after the first look); misses likewise. *try_insert*,
//! *insert*, *put* of an absent key: the store of the metadata word of the bucket that takes the record. For a stashed
//! record: of the stash bucket, but readers wait for the overflow metadata that follows under the same changing bits,
//! which are those of the home pair: set before that store, for scans go by them alone.
//! *update* and *insert* of a present key: the store of the value word. *remove*: the store of the metadata word.
//! *compute*: as what it decides; when nothing, as *get*. *clear*: the store of the DRAM mirror of the root word;
//! writers that passed the old root before count as before, and readers who still look there start again. An expansion
//! of LH, and the splits that follow it, change what no operation can tell. *scan*: each segment at one moment. *len*:
//! none; exact when quiescent.
//!
//! # 6. Ordering
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | E1 | unlock (Release) | `read_begin` (Acquire) | everything a writer changed |
//! | E2 | metadata word, `meta` (Release) | same (Acquire) | fingerprints and records; on the medium: one line |
//! | E3 | slot words, `key`, `value` (Release) | slot words (`PROTECTED`) | the blobs behind references, which a pin keeps |
//! | E4 | directory `entry`, root mirror (Release) | the same, `entries` (Acquire) | complete segments, complete directories |
//! | E5 | mark of a segment in DRAM, `state`: ready, still (Release) | the same (Acquire) | reset locks; in LH, a finished copy; `still` |
//! | E6 | words of headers: `link`, `pattern`, `chain`, `birth` (Release) | the same (Acquire) | segments and chains as they say |
//! | E6 | `next` of a chained bucket, `directory` of the root (Release) | the same (Acquire) | what they name, complete |
//!
//! Words of E4 and E6 are stored and loaded so also where a lock, or being alone, would allow Relaxed: on the medium Release
//! keeps the order of the stores to one line, and no reader has to know who else is there.
//!
//! A reader or writer of LH looks at the mark again once it has the versions or locks (`is_current`): a segment may be
//! given up by `clear` and be due again.
//!
//! # 7. Crash
//!
//! | persist point | what holds from here on | a crash just before leaves |
//! |---|---|---|
//! | P1 record (and blobs) | | a free slot with garbage |
//! | **P2** metadata word | the record is kept | as P1 |
//! | P3, **P4** displaced copy, or several | two copies | nothing; or a duplicate, which `recover` strikes |
//! | P5 the original's end | its slot may be reused | the duplicate of P4 |
//! | P6 new segment, whole | | an intent that names it: back on the free list |
//! | P7 chained bucket, empty | its segment may name it | as P6 |
//! | P8 records struck out; P9, P10, P11 brought home | slots may be reused | a split to finish, duplicates to strike |
//! | P12 root word | doubling, expansion, `clear` | the directory as before |
//! | P13 new directory, whole; entry of an array | the root may name it | as P12 |
//! | P14 directory entries (with P8) | the split may be declared over | a split to finish |
//! | **P15** link word, splitting | the split is rolled forward | P6 |
//! | P16 link word, stable | the split is over | a split to finish |
//! | P17 duplicates struck out | either copy may change | as before |
//! | P18 blob of an update | a slot may refer to it | a block that nobody owns |
//! | P20 link word of a merge, splitting; P21, P22 copies | | copies, which recovery strikes as a split's |
//! | P23 EH: link word of the right one, leaving | who needs it looks at the left one first | as before |
//! | **P24** EH: link word, absorbing; LH: root word | the merge is rolled forward | as P20 |
//! | P25 EH: directory entries (with the freeing's intents) | the segment may be freed | a merge to finish |
//! | P26 link word, stable | the merge is over | as P25 |
//! | **P27** word of a slot whose blob has moved | the old block may be used again | the old block, as whole as the new |
//! | P19 LH: no chain, birth word (with P6 or P7) | the new segment has a chain of its own | P12, a split that is due |
//!
//! In LH nothing is allocated but chained buckets. After P12 of an expansion a split is due; a crash anywhere before
//! P15 leaves it due, and what was already copied is copied again. The chain of a segment whose birth word is of this
//! generation belongs to it even while its split is still due: it is freed before the split begins anew.
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
//! for the strike at the end. In LH whoever first needs a segment whose split is due, readers included, does it, and
//! others who need it wait for them; before that the splits that its source owes, at most one for each round, sources
//! always being of a lower number with fewer bits set. Nobody does so while holding a lock: a read inside a batch lets
//! the window go first. Space for a split is there before it is due. `clear` and `backup` wait for splits and hold them
//! up. Loops: a lookup repeats only when a writer came between; an insert repeats only after a split or a longer chain.
//! A segment's blobs are retired when their record is gone; segments and directories are never unmapped while the table
//! is open. A merge holds all locks of two segments, the left one's first; nobody else waits for a lock of one segment
//! while holding one of another that is to its right. What a merge frees may be used again at once (newcomers wait for
//! its locks, and who was on the way there finds out), but its space goes back to the file system only when everybody
//! who was there has left (`limbo`): every operation is pinned for that, at two plain stores.
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
//!
//! A merge has five fences in LH; in EH six, and those of freeing a segment. An expansion of LH costs one fence (two
//! for a new array); the split that follows as many as one of EH, but for its segment's allocation. A segment of LH
//! without room brings stashed records home first: three fences for those, and three for each of at most three rounds
//! of moves.

mod api;
mod arrays;
mod batch;
mod blocks;
mod bucket;
mod chain;
mod directory;
mod eh;
mod extent;
mod insert;
mod kinds;
mod layout;
mod lh;
mod limbo;
mod maintain;
mod mend;
mod merge;
mod moves;
mod newcomer;
mod op;
mod options;
mod recover;
mod root;
mod scan;
mod search;
mod segment;
mod split;
mod stash;
mod still;
mod tidy;
mod window;
mod writer;

use crate::key::{Key, Value};
use crate::pm::{Mapped, Medium};
use crate::record::length::Length;
use crate::table::RecoveryReport;

use kinds::Of;
use segment::Core;

#[doc(hidden)]
pub use directory::Directory;
pub use eh::Eh;
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub use kinds::{Ablation, Parts, Whole};
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub use layout::Geometry;
pub use lh::{Expansion, Lh};
pub use options::DashOptions;

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
    core: Core<Of<K, V, M, P::Ablation>>,
}

/// Dash with extendible hashing: a durable, concurrent hash table that opens instantly.
///
/// ```
/// let table = icefield::DashEh::<str, u64>::in_memory()?;
/// table.insert("one", 1)?;
/// assert_eq!(table.get("one")?, Some(1));
/// # Ok::<(), icefield::Error>(())
/// ```
pub type DashEh<K, V, M = Mapped> = Dash<K, V, Eh, M>;

/// Dash with linear hashing: a durable, concurrent hash table that opens instantly and grows by a segment at a time.
///
/// ```
/// let table = icefield::DashLh::<u64, str>::in_memory()?;
/// assert_eq!(table.insert(7, "seven")?, None);
/// assert_eq!(table.get(7)?.as_deref(), Some("seven"));
/// # Ok::<(), icefield::Error>(())
/// ```
pub type DashLh<K, V, M = Mapped> = Dash<K, V, Lh, M>;
