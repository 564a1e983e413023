//! IcebergHT (Pandey, Bender, Conway, Farach-Colton, Kuszmaul, Tagliavini, Johnson: *IcebergHT: High Performance Hash
//! Tables Through Stability and Low Associativity*, SIGMOD 2023): a stable, compact hash table that writes one line per
//! update.
//!
//! # 1. What and when
//!
//! Best at: durable inserts, updates and removals (one line, one flush, one fence each), hits and misses of reads,
//! space (slots make up nine tenths of all bytes, DRAM included, and all of them can be used). Worst at: opening, which
//! reads the whole table (some hundred million records a second); DRAM, of which it needs a line per 64 slots; ordered
//! access (not supported); media that reorder the stores to one line (`Durability::Disk` is refused).
//!
//! # 2. Origin
//!
//! Each item gives the section of the paper, our file, and the differences with their reasons.
//!
//! - §2 three levels (`layout`, `core`): front yard, back yard, overflow lists. Front and back yard have the same
//!   number of buckets.
//! - §2.3 two choices (`layout`): of the two back buckets, one has an even number and one an odd number, so that no
//!   halving joins them.
//! - §3.1 fingerprints in DRAM, a line for each front bucket (`fingerprints`). There are 254 values: the low seven bits
//!   of a fingerprint are never all 0. So no fingerprint equals EMPTY or RESERVED, not even in the byte whose highest
//!   bit is the lock. One more byte per bucket predicts its next empty slot, for prefetches only (`core`, `batch`).
//!   Four others mark buckets with records in the back yard (`buckets`), with a filter of the hashes of these records:
//!   other misses and new keys read no metadata of the back yard. The paper always reads it.
//! - §3.2 operations (`op`). The paper writes the slot before the fingerprint in the front yard, and after it in the
//!   back yard. Here RESERVED claims a slot of the back yard, and every fingerprint is published when its slot is
//!   durable: no read returns what a crash could take back.
//! - §3.2 level 3 (`overflow`). The lists are in DRAM, over plain slots on the medium. A record there costs one line,
//!   one flush and one fence like any other, and nothing can leak. The hash alone selects the list, so doublings do not
//!   affect the lists. Checking that a list is empty costs a DRAM access, not a line of the medium.
//! - §4, §5.3 doubling (`grow`). In place, because the address space is reserved. Buckets move when a write needs them,
//!   and every write moves a few more, so that a doubling ends. A record keeps its slot number when it moves, because
//!   the target bucket has no other records.
//! - §4 halving (`shrink`): in one step while writers wait, and only if every record keeps its level.
//! - §5.1 locks (`fingerprints`): a bit in the front bucket's line. One key word means an empty slot; the record of
//!   that key has its own slot on the medium, the side slot (`layout::Root`). The paper reserves a key *and* a value,
//!   and keeps that record in DRAM.
//! - §5.1 queries (`lookup`): without locks on all levels that have records; overflow lists that are not empty are
//!   walked under a mutex. A query ends with a check of the lock bit.
//! - §5.3 global lock (`base::gate`): writers pass it, reads validate a word instead.
//! - §6 recovery (`recover`): parallel; it finishes an interrupted doubling and removes the duplicates that the
//!   doubling left. A session that only reads leaves an interrupted step unfinished.
//! - Additions. `clear` takes effect by one durable store. Variable-length records (`engine::slots`, `storage::blob`).
//!   Batches share a fence (`window`), or, where a fence costs nothing, run single operations whose latencies overlap
//!   (`unfenced_batch`).
//!
//! # 3. Layout
//!
//! Regions of a table: `table.ice` (superblock, then [`layout::Root`]), `front.ice` and `back.ice` (buckets of 64 and 8
//! slots, 16 bytes a slot, without gaps), `overflow.ice` (slots), and, for by-reference types, `blobs.ice` and
//! `blobmap.ice`. Byte tables are in `docs/format.md`; `layout` asserts the offsets. Zero is an empty slot, so fresh
//! files need no writing.
//!
//! ```text
//! hash    63 fingerprint 56 | ...... | front bucket (low bits)        back buckets: halves of a product of the hash
//! slot    key | value                 key 0: empty
//! DRAM    front bucket: | 63 fingerprints | lock bit, 7-bit fingerprint | room | mark |   back bucket: | 8 fingerprints |
//! ```
//!
//! # 4. Invariants
//!
//! They hold for a quiescent table; `check` reports violations under these numbers.
//!
//! - I1 The files are at least as long as the shape word requires; no step is in progress.
//! - I2 A record is in the front bucket of its hash, in one of its two back buckets, or in the overflow yard and the
//!   list of its hash; both its words are valid for the table's types.
//! - I3 A used slot has the fingerprint of its record, an empty one has EMPTY. The front bucket of a record in the back
//!   yard has the mark of the table's depth, with the bit of the record's hash.
//! - I4 A key is in at most one slot. The record of key word 0 is in the side slot.
//! - I5 Every overflow slot is in one list or free.
//! - I6 Every blob that a slot refers to is intact and has the key's hash as its owner (the blob store's I1 to I5).
//! - I7 The record counter is exact.
//!
//! # 5. Operations
//!
//! The linearization point of each operation:
//!
//! - *get*, hit: the load of the slot that holds the key. The slot is found by its fingerprint, or in a batch by an
//!   earlier search of the fingerprints (while the shape is stable, a key is in at most one slot). The result is
//!   returned only after the lock bit has been seen clear, so the loaded words are durable.
//! - *get*, miss: a moment between its loads at which the key was nowhere. Records never change their level. A move
//!   publishes the new place before it removes the old one, and reads search the old place first. A mark has the bit of a
//!   record before the record is in the back yard, so at the load of a mark without the key's bit, the key is not there.
//! - *insert* of an absent key: the store of the key word. Reads do not find the record before its fingerprint is
//!   published, unless an old fingerprint leads them to the slot; such a read waits for the lock.
//! - *update*: the store of the value word.
//! - *remove*: the store of the empty key word.
//! - *compute*: as the operation that it decides on; if it changes nothing, as *get*.
//! - *clear*: the store of the DRAM shape word.
//! - *scan*: a separate moment for each record.
//! - *len*: none; exact when quiescent.
//!
//! # 6. Ordering
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | E1 | unlock (Release) | lock (Acquire), the last check (Acquire) | everything a writer changed, durable |
//! | E2 | fingerprint (Release) | fingerprints (Acquire) | a durable slot |
//! | E3 | slot words (Release) | slot (Acquire) | the blob behind a reference; the lock bit, which was set before |
//! | E4 | shape word, by `cell`; its copy in DRAM, `shape` (Release) | the same (Acquire) | longer yards, UNMOVED flags |
//! | E5 | MOVED (Release) | the same (Acquire) | the records of a bucket at their new places |
//! | E6 | mark (Release) | the same (Acquire) | the shape of the mark's depth; E2 publishes the record behind it |
//! | E6 | 0, in place of a mark (Release) | the same (Acquire) | the step that removes it |
//!
//! A slot is stored by 8-byte stores and loaded as a whole (`storage::Cell128`). On processors without such loads,
//! reads take the lock.
//!
//! # 7. Crash
//!
//! Every store changes one word of a slot, the value before the key, and stores to one line reach the medium in order.
//! So after a crash during an insert, update or removal, the slot is as before or as after the operation.
//!
//! | persist point | what is durable afterwards, and what it permits | state after a crash just before it |
//! |---|---|---|
//! | P1 blobs of a record | a slot may refer to them | blocks without an owner |
//! | **P2** slot (insert, update, remove) | the change is durable | the slot before or after |
//! | **P3** shape word | the doubling is rolled forward | longer files |
//! | P4 copies in the target bucket | the originals may be removed | a doubling to finish; some of the copies |
//! | P5 removal of the originals | the copies may change | duplicates in equal slots, which `recover` removes |
//! | P6 shape word, stable | the doubling is finished | a doubling that has nothing left to do |
//! | **P7** shape word, clearing | the table is empty | the table as before |
//! | P8 all slots empty | | a wipe to repeat |
//! | P9 shape word, stable | the `clear` is finished | a wipe to repeat |
//! | **P10** shape word, halving | the halving is rolled forward | the table as before |
//! | P11 copies in the lower buckets | the originals may be removed | a halving to finish; some of the copies |
//! | P12 removal of the originals | a stable shape, and so later doublings | duplicates, which `recover` removes |
//! | P13 shape word, stable | the halving is finished | a halving that has nothing left to do |
//! | **P14** word of a slot whose blob has moved | the old block may be reused | the old block, as intact as the new one |
//!
//! Fingerprints, locks, lists and counters are in DRAM and are rebuilt by recovery. What recovery stores on the medium
//! (moves, the wipe) only repeats steps that may already have been done.
//!
//! # 8. Progress
//!
//! A read waits for the writer that holds its front bucket: for one fence, for the fence of a window, or for eight
//! operations where fences cost nothing. No thread waits for a read. A thread that waits for a lock holds none; if a
//! read between the writes of a batch would have to wait, the thread commits the window first. During a doubling, a
//! write moves at most five buckets, or waits for the threads that are moving them.
//!
//! A step (doubling, halving, `clear`, `backup`) lets the writers inside the gate finish and blocks further ones: a
//! doubling for one durable store, the others for their whole duration. Loops: a read repeats only when a step
//! intervened. The blobs of a record are retired when it is removed; yards are never unmapped while the table is open.
//!
//! # 9. Costs
//!
//! The table below counts lines of the medium read and written, flushes and fences, outside doublings.
//! `tests/costs.rs` checks it against the simulator's counters. Prefetches do not count: a single get prefetches one line
//! of its bucket, also if the key is absent (`lookup`). A batch in which many keys are absent also loads one slot, always
//! the same, for each key whose fingerprint it does not find (`reads`).
//!
//! | operation | lines read | lines written | flushes | fences |
//! |---|---|---|---|---|
//! | get, hit | 1.14 at 95 % fill | 0 | 0 | 0 |
//! | get, miss | 0.31 at 95 % fill | 0 | 0 | 0 |
//! | insert, update, remove | as get | 1 | 1 | 1 |
//! | 32 inserts in a batch | as get | 1 each | 1 each | 1 in all |
//! | the same where a fence costs nothing | as get | 1 each | 1 each | 1 each |
//! | by-reference records | + the blobs' lines | + the blobs' lines | + the blobs' lines | 1 more |

mod api;
mod batch;
mod buckets;
mod core;
mod fingerprints;
mod grow;
mod held;
mod judgement;
mod layout;
mod locked;
mod lookup;
mod maintain;
mod moves;
mod op;
mod options;
mod overflow;
mod reads;
mod recover;
mod scan;
mod shrink;
mod unfenced_batch;
mod window;

use crate::storage::Medium;
use crate::types::RecordForm;

use self::core::Core;

#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub use fingerprints::FrontLine;
#[doc(hidden)]
pub use layout::Yards;
pub use options::IcebergHt;

/// An IcebergHT table of words and byte strings.
pub struct Iceberg<R: RecordForm, M: Medium> {
    core: Core<R, M>,
}
