//! IcebergHT (Pandey, Bender, Conway, Farach-Colton, Kuszmaul, Tagliavini, Johnson: *IcebergHT: High Performance Hash
//! Tables Through Stability and Low Associativity*, SIGMOD 2023): a stable, compact hash table that writes one line per
//! update.
//!
//! # 1. What and when
//!
//! Best at: durable inserts, updates and removals (one line, one flush, one fence each), reads of records that are
//! there or not, space (slots are nine tenths of all bytes, DRAM included, and may be filled to the last). Worst at:
//! opening, which reads the whole table (some hundred million records a second); DRAM, of which it takes a line per 64
//! slots; ordered access (there is none); media that reorder the stores to one line (`Durability::Disk` is refused).
//!
//! # 2. Origin
//!
//! The paper's section, our file; then what differs, and why.
//!
//! - §2 three levels (`layout`, `core`): front yard, back yard, overflow lists, the first two of equally many buckets.
//! - §2.3 two choices (`layout`): one back bucket with an even number and one with an odd one, so that no halving joins
//!   them.
//! - §3.1 fingerprints in DRAM, a line for each front bucket (`fingerprints`). 254 of them: a byte is never 0 in its
//!   low seven bits, so that EMPTY and RESERVED are free, and so that the fingerprint which shares its byte with the
//!   lock is still one. Beside them a byte that guesses each bucket's next empty slot, for hints only (`core`, `batch`).
//! - §3.2 operations (`op`). The paper inserts the slot and then the fingerprint in the front yard, the other way round
//!   in the back yard; here a slot of the back yard is claimed with RESERVED, and every fingerprint is published when
//!   its slot is durable: no read returns what a crash could take back.
//! - §3.2 level 3 (`overflow`). The lists are in DRAM, over slots on the medium that know nothing of them: a record
//!   there costs one line, one flush, one fence like any other, nothing can leak, and a doubling does not concern them,
//!   as they go by the hash. Their emptiness costs a DRAM look, not a line of the medium.
//! - §4, §5.3 doubling (`grow`). In place, the address space being reserved; buckets move when a write comes to them,
//!   and every write moves a few more, so that a doubling ends. A record keeps its slot number when it moves: the
//!   target bucket has nothing else.
//! - §4 halving (`shrink`), in one go while writers wait, and only as far as every record keeps its level.
//! - §5.1 locks (`fingerprints`): a bit in the front bucket's line. One key word means an empty slot; its own record
//!   has a slot of its own, on the medium (`layout::Root`). The paper sets a key *and* a value aside, and keeps that
//!   record in DRAM.
//! - §5.1 queries (`lookup`): lockless on all levels that have records; overflow lists that are not empty are walked
//!   under a mutex. They end with a look at the lock bit.
//! - §5.3 global lock (`base::gate`): writers pass it, reads validate a word instead.
//! - §6 recovery (`recover`): parallel; it finishes an interrupted doubling and strikes the duplicates that one leaves.
//!   A session that only reads leaves an interrupted step where it is.
//! - Where the paper is silent. `clear` in one durable store. Variable-length records (`crate::record`, `pm::blob`).
//!   Batches share a fence (`window`), or, where a fence costs nothing, are single operations whose latencies overlap
//!   (`at_once`).
//!
//! # 3. Layout
//!
//! Regions of a table: `table.ice` (superblock, then [`layout::Root`]), `front.ice` and `back.ice` (buckets of 64 and 8
//! slots, 16 bytes a slot, back to back), `overflow.ice` (slots), and for by-reference types `blobs.ice`,
//! `blobmap.ice`. Byte tables are in `docs/format.md`; `layout` asserts the offsets. Zero is an empty slot, so fresh
//! files need no writing.
//!
//! ```text
//! hash    63 fingerprint 56 | ...... | front bucket (low bits)        back buckets: halves of a product of the hash
//! slot    key | value                 key 0: empty
//! DRAM    front bucket: | 63 fingerprints | lock bit, 7-bit fingerprint |     back bucket: | 8 fingerprints |
//! ```
//!
//! # 4. Invariants
//!
//! For a quiescent table; [`Iceberg::check`] reports breaches under these numbers.
//!
//! - I1 The files are as long as the shape word says; nothing is in the middle of a step.
//! - I2 A record is in the front bucket of its hash, in one of its two back buckets, or in the overflow yard and the
//!   list of its hash; both its words are of the table's types.
//! - I3 A used slot has the fingerprint of its record, an empty one has EMPTY.
//! - I4 A key is in one slot at most. The record of key word 0 is in the side slot.
//! - I5 Every overflow slot is in one list or free.
//! - I6 Every blob that a slot refers to is whole and has the key's hash for owner (the blob store's I1 to I5).
//! - I7 The record counter is right.
//!
//! # 5. Operations
//!
//! Each with its linearization point. *get*: a load of the slot that holds the key, found by its fingerprint, or in a
//! batch where an earlier look at the fingerprints has led (while the shape is stable a key is in one slot at most);
//! the answer waits until the lock bit has been seen clear, so what was loaded is durable. For a miss: a moment between
//! its loads at which the key was nowhere (records never change their level, and a move publishes the new place before
//! it gives up the old one, which is looked at first). *insert* of an absent key: the store of the key word, but no
//! read answers by it before its fingerprint is there, unless an old one leads it to the slot, and then it waits for
//! the lock. *update*: the store of the value word. *remove*: the store of the empty key word. *compute*: as what it
//! decides; when nothing, as *get*. *clear*: the store of the DRAM shape word. *scan*: each bucket, record by record.
//! *len*: none; exact when quiescent.
//!
//! # 6. Ordering
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | E1 | unlock (Release) | lock (Acquire), the last look (Acquire) | everything a writer changed, durable |
//! | E2 | fingerprint (Release) | fingerprints (Acquire) | a durable slot |
//! | E3 | slot words (Release) | slot (Acquire) | the blob behind a reference; the lock bit set before |
//! | E4 | shape word, `shape`, its `cell` (Release) | the same (Acquire) | longer yards, flags of unmoved buckets |
//! | E5 | MOVED (Release) | the same (Acquire) | the records of a bucket at their new places |
//!
//! A slot is stored by 8-byte stores and loaded whole (`pm::Cell128`). Where the processor cannot, reads take the lock.
//!
//! # 7. Crash
//!
//! Every store changes one word of a slot, a value before its key; stores to one line reach the medium in order. So
//! whatever a crash leaves of an insert, update or removal is the slot before or after it.
//!
//! | persist point | what holds from here on | a crash just before leaves |
//! |---|---|---|
//! | P1 blobs of a record | a slot may refer to them | blocks that nobody owns |
//! | **P2** slot (insert, update, remove) | the change is kept | the slot before or after |
//! | **P3** shape word | the doubling is rolled forward | longer files |
//! | P4 copies in the target bucket | the originals may go | a doubling to finish; copies, some of them |
//! | P5 the originals' end | the copies may change | duplicates, slot by slot, which `recover` strikes |
//! | P6 shape word, stable | the doubling is over | a doubling that has nothing left to do |
//! | **P7** shape word, clearing | the table is empty | the table as before |
//! | P8 all slots empty | | a wipe to repeat |
//! | P9 shape word, stable | the `clear` is over | a wipe to repeat |
//! | **P10** shape word, halving | the halving is rolled forward | the table as before |
//! | P11 copies below | the originals may go | a halving to finish; copies, some of them |
//! | P12 the originals' end | the shape word, and so later doublings | duplicates, which `recover` strikes |
//! | P13 shape word, stable | the halving is over | a halving that has nothing left to do |
//! | **P14** word of a slot whose blob has moved | the old block may be used again | the old block, as whole as the new |
//!
//! Fingerprints, locks, lists and counters are in DRAM: recovery makes them anew. What it stores on the medium (moves,
//! the wipe) only repeats what may have been done.
//!
//! # 8. Progress
//!
//! A read waits for the writer that holds its front bucket: for one fence, for a window's, or for eight operations where
//! fences cost nothing; nobody waits for a read. A thread that waits for a lock holds none; a read between the writes of a
//! batch that would wait ends the window first. A write during a doubling waits for at most three buckets that others are moving, and moves at most five. A
//! step (doubling, halving, `clear`, `backup`) lets the writers inside finish and holds up the next ones: a doubling
//! for one durable store, the others for as long as they take. Loops: a read repeats only when a step came between. A
//! record's blobs are retired when it is gone; yards are never unmapped while the table is open.
//!
//! # 9. Costs
//!
//! Lines of the medium written, flushes, fences; outside doublings. `tests/costs.rs` asserts this table from the
//! simulator's counters.
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
mod at_once;
mod batch;
mod core;
mod fingerprints;
mod grow;
mod layout;
mod locked;
mod lookup;
mod maintain;
mod op;
mod options;
mod overflow;
mod recover;
mod scan;
mod shrink;
#[cfg(test)]
mod tests;
mod window;

use crate::key::{Key, Value};
use crate::pm::{Mapped, Medium};
use crate::table::RecoveryReport;

use self::core::Core;

#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub use fingerprints::FrontLine;
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub use layout::Yards;
pub use options::IcebergOptions;

/// IcebergHT: a durable, concurrent, stable and compact hash table that writes one line per update.
///
/// ```
/// let table = icefield::Iceberg::<str, u64>::in_memory()?;
/// assert_eq!(table.insert("answer", 42)?, None);
/// assert_eq!(table.get("answer")?, Some(42));
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct Iceberg<K: Key + ?Sized, V: Value + ?Sized, M: Medium = Mapped> {
    recovery: RecoveryReport,
    core: Core<K, V, M>,
}
