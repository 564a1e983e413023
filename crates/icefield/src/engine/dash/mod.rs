//! Dash (Lu, Hao, Wang, Lo: *Dash: Scalable Hashing on Persistent Memory*, VLDB 2020): durable, concurrent hashing that
//! opens instantly.
//!
//! # 1. What and when
//!
//! Two tables share one kind of segment: `DashEh` uses extendible hashing (*EH*), `DashLh` uses linear hashing (*LH*).
//! All code from the segment downwards is common to both; a [`Directory`] maps a hash to a segment. EH splits the
//! segment that is full; its directory usually has one or two entries per segment. LH grows by one segment at a time,
//! in a fixed order. A segment that is full before its turn comes gets a longer stash. The LH directory has a few
//! hundred bytes.
//!
//! Best at: point reads and writes of records that must survive a crash, opening in constant time at any size, tables
//! that grow. A hit reads two bucket lines and the record's line; a miss reads two lines; reads write nothing. Worst
//! at: bulk writes of single records (two fences for most inserts; `batch` needs two per 32 inserts), ordered access
//! (not supported), media that reorder the stores to one line (`Durability::Disk` is refused).
//!
//! # 2. Origin
//!
//! Each item gives the section of the paper, our file, and the differences with their reasons.
//!
//! - §4.1 Figures 3, 4: layout (`layout`). Overflow metadata has its own word, apart from the allocation bitmap,
//!   because the overflow metadata is volatile and the bitmap is durable. The population count of the bitmap replaces
//!   a record counter. Segment headers have their own region, so a segment consists of exactly 64 buckets and its stash
//!   buckets.
//! - §4.2 fingerprints (`bucket`, `search`). The fingerprint is the low byte of the hash; the bits above it select the
//!   bucket; the top bits select the directory entry.
//! - §4.3 balanced insert, displacement, stash (`insert`, `stash`). While one of the first nine slots of the home
//!   bucket is free, that bucket takes a new record, however few the probing bucket has; so most batched writes need
//!   one bucket. A write locks the home bucket, and the probing bucket only to change its metadata; the paper locks
//!   both. An insert displaces up to two records before it uses the stash, and up to three once the stash is full.
//!   Batches use the stash before displacement; in LH, `rebalance_stash` later moves stashed records home. The target
//!   bucket of a displacement is locked, which Algorithm 1 omits: the insert tries the lock and falls back to the next
//!   method if that fails. A search tests the overflow count of the *home* bucket, not of the probing bucket as in
//!   Algorithm 3.
//! - §4.4 concurrency (`base::version_lock`, `search`). A lock has three states: free, held by a writer that prepares a
//!   change, and changing. Readers proceed while a writer prepares a change; they wait only from the publishing store
//!   to its fence. So no read returns a value that a crash could take back.
//! - §4.5 variable-length keys (`engine::slots`, `storage::blob`). Values can have variable length as well. A reference
//!   also holds 16 other bits of the hash, which avoid most reads of other keys.
//! - §4.6 operations (`op`, `batch`). The paper has no update; here an update is one store of the value word under the
//!   lock. The operations of a batch share fences.
//! - §4.7 splits (`split`, `segment_builder`, `eh::grow`). The paper moves records under a transaction. Here the new
//!   segment is complete and durable before a single store commits the split; that store writes the state and the side
//!   link, which share a word. Each directory depth has its own place, where doubling writes the new directory.
//! - §4.7 merging (`merge`, `eh`, `lh`). The paper only mentions it. Here a merge is a split run backwards. A removal
//!   that leaves its two buckets nearly empty sometimes checks its segment. Two segments are merged when together they
//!   fill at most half of one, far below the 95 % at which segments split. Removals do not shrink a table below the
//!   size that `capacity` or `reserve` requested in this session.
//! - §4.8 recovery (`recover`). Marks in DRAM, all clear when the table opens, replace the version numbers of segments,
//!   so no version can wrap. A session that only reads leaves segments unchanged (`still`).
//! - §5.1, §5.3 linear hashing (`lh`, `extent`). A round visits prefixes of the hash instead of suffixes, in hash
//!   order. Thus every segment covers a contiguous range of hashes, so that scans, cursors and splits work as in EH.
//!   A few instructions compute the number of a segment from its prefix. The generation of `clear` shares the root word
//!   with `N` and `Next`: 24, 8 and 32 bits. Only a thread that needs the *new* segment of an expansion must perform
//!   the split first; until then the old segment holds all records. Before a segment gets a chained bucket, or the
//!   table gets another segment, `rebalance_stash` moves stashed records home, displacing others where that helps.
//!   Equal hashes: if many chained buckets are in use, a segment with a long chain does not make the table grow.
//! - §5.2 hybrid expansion (`arrays`). It needs no allocator: the number of a segment gives its place in the file,
//!   which is mapped once. The directory entries record which arrays exist and are checked when the table opens.
//! - Additions (`eh::grow`, `chain`). Many equal hashes: if the directory would become disproportionately large, a
//!   segment gets a chain of further stash buckets instead. `clear` takes effect by one store.
//!
//! # 3. Layout
//!
//! Regions of a table: `table.ice` (superblock, then [`layout::Root`]), `directory-0.ice` and `directory-1.ice` (8-byte
//! entries; generations alternate between the two), `headers.ice` (32 bytes a segment), `segments.ice` (buckets, 256
//! bytes each), `chains.ice` (320 bytes a chained stash bucket), and for by-reference types `blobs.ice`, `blobmap.ice`.
//! Byte tables are in `docs/format.md`; `layout` asserts the offsets. In LH an entry names an array of segments: by
//! default, the first eight arrays have 64 segments each, the next eight twice as many, and so on. `table.ice` stores
//! the two numbers, 8 and 64.
//!
//! ```text
//! hash   63 ............ directory index (top `depth` bits) ... | ..8 home bucket | 7..0 fingerprint
//! LH     root word: 63..40 generation | 39..32 N | 31..0 Next
//!        path p: a 1 bit, then the prefix of a segment; number of this segment: p >> ctz(p) >> 1
//! bucket lock | overflow | overflow fingerprints | meta | 14 fingerprints | 14 x (key, value)
//! ```
//!
//! # 4. Invariants
//!
//! They hold for a quiescent table whose segments have all been recovered in this session; `check` reports violations
//! under these numbers.
//!
//! - I1 EH: exactly the 2^(*g*-*d*) directory entries of its pattern name a segment of local depth *d*, where *g* is
//!   the depth of the directory. LH: a segment has the depth and the pattern that the root word gives its number. Every
//!   segment is in state stable.
//! - I2 A record is in the segment of its hash, has its hash's fingerprint, and both its words are valid for the
//!   table's types.
//! - I3 A record in a normal bucket is in its home bucket (membership bit clear) or the one after it (bit set).
//! - I4 For each record in the stash, the overflow metadata of its home bucket holds its fingerprint or counts the
//!   record, or the overflow metadata of the next bucket holds its fingerprint with a membership bit. A record in the
//!   chain is counted. If the next bucket holds a record or such a fingerprint, the spill bit is set. The records of a
//!   home bucket change only under the lock of that bucket.
//! - I5 A key is in at most one slot.
//! - I6 Every segment and chained bucket is named exactly once: by the directory, a chain or a free list (only EH has a
//!   free list of segments).
//! - I7 Every blob that a slot refers to is intact and has the key's hash as its owner (the blob store's I1 to I5).
//! - I8 The record counter is exact.
//!
//! # 5. Operations
//!
//! The linearization point of each operation:
//!
//! - *get*, hit or miss: the second read of the lock word, if it finds the word unchanged. After the first
//!   read, the search has checked that the key belongs to the segment, by the directory entry or the number of changes
//!   of the directory (in LH by the root word).
//! - *try_insert*, *insert*, *put* of an absent key: the store of the metadata word of the bucket that takes the record
//!   (for a stashed record, the stash bucket). Before a record is stashed, the changing bits of the home and probing
//!   bucket are set, because scans check only the versions of normal buckets. The bits stay set, and readers wait,
//!   until the overflow metadata is written.
//! - *update*, *insert* and *put* of a present key: the store of the value word.
//! - *remove*: the store of the metadata word.
//! - *compute*: as the operation that it decides on; if it changes nothing, as *get*.
//! - *clear*: the store of the DRAM mirror of the root word. A writer that checked its segment against the old root is
//!   ordered before this store; readers that still use the old root start again.
//! - *scan*: one moment for each segment.
//! - *len*: none; exact when quiescent.
//!
//! An expansion of LH, and the splits that follow it, have no effect that an operation can observe.
//!
//! # 6. Ordering
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | E1 | unlock (Release) | `read_begin` (Acquire) | everything a writer changed |
//! | E2 | metadata word, `meta` (Release) | same (Acquire) | fingerprints and records; on the medium: one line |
//! | E3 | slot words, `key`, `value` (Release) | slot words (`PROTECTED`) | the blobs behind references, which a pin protects |
//! | E4 | directory `entry`, root mirror (Release) | the same, `entries` (Acquire) | complete segments, complete directories |
//! | E5 | segment's mark, `state` (Release) | the same (Acquire) | reset locks; in LH, a new segment; bits of `still` |
//! | E6 | words of headers: `link`, `pattern`, `chain`, `birth` (Release) | the same (Acquire) | the segments and chains that they describe |
//! | E6 | `next` of a chained bucket, `directory` of the root (Release) | the same (Acquire) | the complete object that they name |
//! | E7 | `changes` of the directory of EH (Release) | the same (Acquire) | the entries that were changed |
//!
//! A writer that holds only the home bucket's lock also reads the probing bucket, which other threads may be changing.
//! Every record of that home, wherever it is, changes only under the lock that it holds (I4): a displacement, a
//! removal or an insert of such a record locks the home bucket, and so do splits, which lock all buckets. So the
//! slots, bits, fingerprints and overflow places of these records are stable, and so is the spill bit. The search
//! finds the key if and only if it is present. All else in the probing bucket is a hint: the number of its records
//! only selects the bucket for a new one. A metadata word, a fingerprint or an overflow word is shared by records of
//! two homes, so it changes only under the lock of the bucket that contains it. A value word belongs to one record, so
//! the lock of that record's home bucket is enough: readers validate the versions of both buckets, and scans those of
//! all normal buckets.
//!
//! Words of E4 and E6 use Release and Acquire even where a lock, or exclusive access, would allow Relaxed: on the
//! medium, Release keeps the order of the stores to one line, and no argument about the absence of other threads is
//! needed.
//!
//! A reader or writer of LH checks the mark again once it has the versions or locks (`is_current`): `clear` may have
//! discarded the segment meanwhile, and the split that makes the segment may be due again.
//!
//! # 7. Crash
//!
//! | persist point | what is durable afterwards, and what it permits | state after a crash just before it |
//! |---|---|---|
//! | P1 record (and blobs); not needed beside the metadata word | | a free slot with garbage |
//! | **P2** metadata word | the record is durable | as P1 |
//! | P3, **P4** one or more displaced copies | two copies exist | no change; or a duplicate, which `recover` removes |
//! | P5 removal of the original | its slot may be reused | the duplicate of P4 |
//! | P6 new segment, complete | | an intent that names it: recovery puts it back on the free list |
//! | P7 chained bucket, empty | its segment may name it | as P6 |
//! | P8 records removed; P9, P10, P11 records moved home | slots may be reused | a split to finish, duplicates to remove |
//! | P12 root word | doubling, expansion, `clear` have taken effect | the directory as before |
//! | P13 new directory, complete; entry of an array | the root may name it | as P12 |
//! | P14 directory entries (with P8) | the split may be marked as finished | a split to finish |
//! | **P15** link word, splitting | the split is rolled forward | as P6 |
//! | P16 link word, stable | the split is finished | a split to finish |
//! | P17 duplicates removed | the remaining copy may change | as before |
//! | P18 blob of an update | a slot may refer to it | a block without an owner |
//! | P20 link word of a merge, splitting; P21, P22 copies | | copies, which recovery removes as those of a split |
//! | P23 EH: link word of the right segment, leaving | recovery of the right segment recovers the left one first | as before |
//! | **P24** EH: link word, absorbing; LH: root word | the merge is rolled forward | as P20 |
//! | P25 EH: directory entries (with the allocator's intents) | the segment may be freed | a merge to finish |
//! | P26 link word, stable | the merge is finished | as P25 |
//! | **P27** word of a slot whose blob has moved | the old block may be reused | the old block, as intact as the new one |
//! | P19 LH: no chain, birth word (with P6 or P7) | the new segment has its own chain | as after P12: a split is due |
//!
//! LH allocates nothing but chained buckets. After P12 of an expansion a split is due. A crash before P15 leaves the
//! split due, and the next attempt copies the records again. If the birth word of a segment has the current generation,
//! the segment owns its chain even while its split is still due; that chain is freed before the split starts again.
//!
//! Two of the 14 slots lie in the line of the metadata word (*beside* it). Stores to one line reach the medium in
//! order, so a record of words in such a slot is durable when the metadata word is, without a flush and a fence of its
//! own.
//!
//! The store of the value word is the commit point of an update. Locks and overflow metadata are volatile cells: before
//! a segment is used, recovery resets the locks and rebuilds the overflow metadata. Interrupted allocations are
//! resolved when the table opens (`storage::alloc`), everything else when a segment is first touched. Both only repeat
//! steps that may already have been done.
//!
//! # 8. Progress
//!
//! Readers never wait for a writer that prepares a change, only for one between its publishing store and its fence. A
//! write locks the home bucket first and, if it needs it, the probing bucket second; where the probing bucket is the
//! first bucket of the segment, it locks that one first, in any case. So a thread that waits for a lock while it holds
//! another one acquires the buckets of one segment in ascending order, stash last; a window waits only for its first
//! lock, and displacements only try locks. A split locks a whole segment: the writers of this segment wait for some
//! microseconds, its readers only while the moved records are removed at the end.
//!
//! In LH the first thread that needs a new segment, be it a reader or a writer, performs the due split that makes the
//! segment; other threads that need the segment wait for that thread. Splits that are due for the source are performed
//! first, at most one per round. This recursion ends, because the number of a source has fewer bits set than the number
//! of its new segment. No thread does this while it holds a lock: a read inside a batch commits the window first. The
//! space for a split is allocated before the split is due. `clear` and `backup` wait for splits and block them.
//!
//! Loops: a lookup repeats only when a writer intervened; an insert repeats only after a split or an extension of the
//! chain.
//!
//! A blob is retired when its record is removed. Segments and directories are never unmapped while the table is open. A
//! merge holds all locks of two segments and acquires those of the left segment first; no thread waits for a lock of a
//! segment while it holds a lock of another segment to the right of it. Space that a merge frees may be reused at once:
//! a thread that reuses it waits for its locks, and a thread that was on the way to the old segment detects the change.
//! The space is returned to the file system only when all operations that could still access it have ended
//! (`deferred_free`). For that purpose every operation is pinned, at the cost of two plain stores.
//!
//! # 9. Costs
//!
//! The numbers below count bucket lines read, lines flushed and fences, without the directory entry. `tests/costs.rs`
//! checks them against the simulator's counters.
//!
//! | operation | lines read | flushes | fences |
//! |---|---|---|---|
//! | get, hit | 2 or 3 | 0 | 0 |
//! | get, miss | 2 (and one for each false fingerprint) | 0 | 0 |
//! | insert, direct or stash | 2 or 3 (4 with stash) | 2 | 2 |
//! | the same, beside the metadata word | 2 (4 with stash) | 1 | 1 |
//! | insert that displaces *n* records | | 3*n* more | 3*n* more |
//! | update, remove | as get | 1 | 1 |
//! | 32 inserts in a batch | 1 or 2 each | 1 or 2 each | 2 in all (1 if all are beside it) |
//! | by-reference records | + the blobs' lines | + the blobs' lines | 1 more in an update |
//!
//! A merge has five fences in LH; in EH it has six, and those of freeing a segment. An expansion of LH costs one fence
//! (two if it needs a new array). The split that follows has as many fences as one of EH, without those of allocating
//! the segment. When a segment of LH has no room, `rebalance_stash` first moves stashed records home. This costs three
//! fences, and three for each of at most three rounds of displacements.

mod api;
mod arrays;
mod batch;
mod blocks;
mod bucket;
mod chain;
mod deferred_free;
mod directory;
mod eh;
mod extent;
mod insert;
mod kinds;
mod layout;
mod lh;
mod located;
mod maintain;
mod marks;
mod mend;
mod merge;
mod moves;
mod op;
mod options;
mod rebalance_stash;
mod recover;
mod root;
mod scan;
mod search;
mod segment;
mod segment_builder;
mod split;
mod stash;
mod still;
mod window;
mod writer;

use crate::engine::length::Length;
use crate::storage::Medium;
use crate::types::RecordForm;

use kinds::Of;
use segment::Core;

#[doc(hidden)]
pub use directory::Directory;
pub use eh::Eh;
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub use kinds::{Ablation, Parts, Whole};
#[doc(hidden)]
pub use layout::Geometry;
pub use lh::{Expansion, Lh};

/// A Dash table below the typed interface: keys and values are words or byte strings.
pub struct Dash<R: RecordForm, P: Directory, M: Medium> {
    length: Length,
    directory: P,
    core: Core<Of<R, M, P::Ablation>>,
}
