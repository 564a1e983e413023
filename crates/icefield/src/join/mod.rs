//! SPAR-HT (Chatterjee, Ray, Finlay, Zuzarte, Stoodley: *SPAR-HT: A PMem-Optimized Hash Table for Efficient Joins*,
//! 2026): a hash index that is built once, so that every later equi-join costs only its probe.
//!
//! # 1. What and when
//!
//! Strengths: probing for many keys at once, whether few or many of them are present; opening, which maps the base
//! without reading it; sharing, as any number of processes map the same pages; space, 18.3 bytes a pair. Weaknesses:
//! single changes, because a delta store keeps them until a merge, which writes the whole index; single lookups, whose
//! cache misses cannot overlap with those of other keys (a Dash table reads one line less). Nothing is changed in place
//! and checksums cover everything, so the design supports `Durability::Disk`.
//!
//! # 2. Origin
//!
//! Each item names the section of the paper and our file, then the differences and their reasons.
//!
//! - §3 bitmap in DRAM (`layout`): here a filter on the medium, mapped into memory. It lies in the line that also
//!   contains the bounds of the buckets, so that a probe for a key that passes reads no other line for the bounds. It
//!   is a blocked Bloom filter: each key sets five of 320 bits. (The paper sets one of a bucket's 64 bits, which lets
//!   12 % of absent keys pass at 8 bits a key; here 0.6 % pass at 11 bits a key.)
//! - §4.1 build, Algorithm 1 (`build`): the first pass counts records by share of the hash range, not by bucket, so
//!   that no thread needs its own counters for all buckets, and no counter is atomic. The second pass scatters pairs to
//!   shares, which are then sorted into buckets one by one in a cache. Each thread persists the records of a share when
//!   it has completed the share. The area of records begins at a block; buckets are packed back to back. Records have
//!   no validity bits: a generation is either sealed or not.
//! - §4.2 probe, Algorithms 2 and 3 (`probe`): a probe reads the base *and* the delta store, because both may contain
//!   pairs of a key. It finds all pairs (M:N), with payloads. SIMD compares two lines at a time, in which keys
//!   alternate with payloads. Keys that pass the filter are queued without a branch. The filter is bypassed while most
//!   keys pass. Keys that may be in the delta store are looked up there in batches (`changed`).
//! - §4.3 delta store (`delta`, `log`): logged, and so as durable as the base; it supports removals and snapshots; its
//!   size is bounded.
//! - §4.3 merge, Algorithm 4 (`merge`): writes a next generation, never in place (the paper appends at the *new* size,
//!   and switches bucket pointers before their arrays are persistent). Goes group by group or rebuilds the index,
//!   whichever costs less by the model in `plan`.
//!
//! # 3. Layout
//!
//! The regions of an index: `table.ice` (superblock, then two copies of [`layout::Root`]); for generations with even
//! and odd numbers, `base-0.ice` and `base-1.ice` (sealed), `delta-0.ice` and `delta-1.ice` (logs). `layout` asserts
//! the sizes.
//!
//! ```text
//! hash     group: its share of all hashes | ... | filter bits (5 x 6) | bucket (4)
//! base     header block | groups | records | wide groups | checksums      each area begins at a 4 KiB block
//! group    first record (48 bits), wide (1), 0 | ends of 16 buckets (8 bits each) | 5 words of filter       one line
//! record   key | payload                                               sorted by group, then by bucket
//! wide     bounds of 16 buckets (17 words)                             of groups with more than 255 records
//! delta    key | payload | kind, records before it in its window | checksum
//! root     generation | checksum of its header | filter bits | 0 0 0 0 | checksum         twice; then the watermark:
//!          number of delta records (40 bits), checksum (24)
//! ```
//!
//! # 4. Invariants
//!
//! [`JoinIndex::check`] reports violations under these numbers.
//!
//! - I1 Both copies of the superblock and of the root words are whole and equal; unused bytes are zero.
//! - I2 The base is as long as its header says, and every block has the checksum with which it was sealed.
//! - I3 Buckets are contiguous, from the first record to the last.
//! - I4 A record is in the group and bucket of its key's hash, and the key passes the group's filter.
//! - I5 The delta log has no gap, and zeros follow it; the number of pairs is the number that the index reports.
//! - I6 Once a generation is sealed, its base is never written again. Its log is written only after its last record:
//!   records are appended, and the next writer clears the words that a crash has left there.
//!
//! # 5. Operations
//!
//! The linearization points are these. *probe* of any number of keys: the snapshot of the delta store at the beginning,
//! under its lock; if the store is empty, the load of its number of changes. *insert*, *remove*: the change of the delta
//! store, under its lock, after the log record is durable; a batch changes it window by window (up to 1024 changes that
//! one fence persists). *merge*: none, as a merge does not change the visible pairs. A probe uses one generation and one
//! snapshot from its beginning to its end: it sees every change whose call returned before the probe began. It sees a
//! concurrent change for all of its keys or for none.
//!
//! # 6. Ordering
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | E1 | the present generation, under its lock | the same | the content of its files, durable |
//! | E2 | delta store, under its lock | the same | its entries, durable; the snapshots in use |
//! | E3 | `changes` and `len`: numbers of changes and pairs (Release) | the same (Acquire) | the delta filter's bits |
//!
//! # 7. Crash
//!
//! | persist point | what holds from here on | a crash just before leaves |
//! |---|---|---|
//! | **P0** superblock, directory renamed | the index exists | nothing |
//! | **P1** delta records | the changes are kept | a subset of the window's records; those before the first gap count |
//! | P2 records, then lines, piece by piece | they may be sealed | a file that nothing names |
//! | P3 checksums, wide groups, header, watermark of 0 | the root words may name the generation | the same |
//! | **P4** root words, first copy | the next generation is the present one | the present generation, with its log |
//! | P5 zeros behind the log | records may be appended | words of a lost window, which the next writer removes |
//!
//! The checksum of a log record covers the generation and the record's number, so a record of another log is not
//! mistaken for one of this log. The record also stores how many earlier records the same fence persisted, so a gap
//! that a crash cannot have left is reported as damage. The watermark is stored, but not flushed, when records are
//! durable: if fewer records than it counts are found, the last ones are damaged. After a power cut it may be too low;
//! damage of the last records then looks like the effect of the power cut. The superblock's word for a clean close also
//! contains the number of records, for the same check. If that word is damaged, nonzero words after the log are
//! reported as damage. The files of the previous generation are removed after P4, at the latest by the next writer.
//! Recovery can be repeated: it publishes both copies of the root words again unless they are equal, clears the words
//! after the log, and removes files.
//!
//! # 8. Progress
//!
//! Probes wait only while a change holds the lock of the delta store, and changes while a probe looks up a batch of keys
//! there; no lock is held while a probe's callback runs. A snapshot blocks no change: entries that die stay in their
//! chains as long as a snapshot contains them.
//! Probes at the same time share the index's threads. A probe does not wait for a thread that works for another probe.
//! Changes exclude one another, and wait while a merge runs. Opening reads without a lock, concurrently with a writer
//! in another process: files are removed but never reused, so mapped pages stay intact. Opening starts again if the
//! root words name another generation by the end. A backup through a handle that is not the writer opens the files in
//! the same way, then copies them (`copy`). A handle keeps its directory open, even if the path later names another
//! one. A merge removes the names of the old files before it returns; a separate thread frees the pages of a large
//! file, and a later merge, an insert on a full device, and closing the index wait for it. All loops are bounded by the
//! number of records, or of a bucket's records.
//!
//! # 9. Costs
//!
//! Lines are those of the medium. `tests/join.rs` checks the table against the simulator's counters.
//!
//! | operation | lines read | lines written | flushes | fences |
//! |---|---|---|---|---|
//! | probe, miss | 1.01: the group's | 0 | 0 | 0 |
//! | probe, hit (one pair) | 2.5: the group's, the bucket's | 0 | 0 | 0 |
//! | insert, remove of a pair | 0 (a removal: the key's lines up to the pair) | 0.5 | 1 | 1 |
//! | `semi`, `anti` of a key | as a probe, up to its first pair | 0 | 0 | 0 |
//! | 1024 inserts in a batch | 0 | 0.5 each | 0.5 each | 1 in all |
//! | build, a pair | 0.3 each for scattering and settling | 0.29, twice | 0.29 | 1 in 16384, on disks 2 |
//! | merge, a pair | 0.29 | 0.29 | 0.29 | 2 in 8192 |

mod api;
mod base;
mod bitmap;
mod build;
mod by_group;
mod changed;
mod check;
mod copy;
mod core;
mod delta;
mod delta_filter;
mod hashed;
mod layout;
mod line;
mod log;
mod merge;
mod options;
mod pairs;
mod placed;
mod plan;
mod probe;
mod salvage;
mod seal;
mod sink;
mod source;
#[cfg(test)]
mod tests;
mod view;

use std::marker::PhantomData;

use crate::report::RecoveryReport;
use crate::storage::{Durability, Mapped, Medium};
use crate::types::Word;

use self::core::Core;

pub use self::bitmap::Bitmap;
pub use self::core::OnFull;
pub use self::hashed::HashedJoinIndex;
pub use self::merge::{MergeKind, MergeReport};
pub use self::options::{JoinOptions, KeyHash};
pub use self::pairs::Pairs;
pub use self::source::JoinSource;

/// The design's name.
pub(crate) const DESIGN: &str = "join";

/// SPAR-HT: a durable index of pairs of key and payload for joins. A payload is usually the number of a row. Keys may
/// repeat; every value of the key type is a valid key, and every `u64` a valid payload.
///
/// ```
/// use icefield::JoinIndex;
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("orders.ice");
/// let customer_of_order: [u64; 4] = [7, 9, 7, 8]; // Row by row.
/// drop(JoinIndex::build(&path, &customer_of_order, &[0, 1, 2, 3])?);
///
/// let orders = JoinIndex::<u64>::open(&path)?; // In milliseconds, by any number of processes.
/// assert_eq!(orders.probe_count(&[7, 8, 5])?, 3);
/// assert_eq!(orders.semi(&[7, 8, 5])?.to_bytes(), [0b011]);
/// orders.insert(5, 4)?; // Durable and visible when it returns.
/// assert_eq!(orders.probe_count(&[7, 8, 5])?, 4);
/// orders.merge()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct JoinIndex<K, M: Medium = Mapped> {
    recovery: RecoveryReport,
    core: Core<M>,
    key: PhantomData<fn(&K)>,
}

/// Statistics of a [`JoinIndex`] at one moment, from [`JoinIndex::stats`].
///
/// ```
/// let index = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?;
/// index.insert(3, 30)?;
/// let stats = index.stats()?;
/// assert_eq!((stats.pairs, stats.delta_changes), (4, 1)); // A merge moves the change into the base.
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JoinStats {
    /// Number of pairs, in the base and the delta store.
    pub pairs: u64,
    /// Number of pairs in the sealed base.
    pub base_pairs: u64,
    /// Number of changes in the delta store since the last merge.
    pub delta_changes: u64,
    /// Maximum number of changes in the delta store.
    pub delta_limit: u64,
    /// The number of the present generation.
    pub generation: u64,
    /// Number of groups. A group has one line and 16 buckets.
    pub groups: u64,
    /// Number of groups with more than 255 records.
    pub wide_groups: u64,
    /// Planned filter bits for each key; 0 if there is no filter.
    pub filter_bits_per_key: u64,
    /// Share of absent keys that pass the filter, in the sampled groups.
    pub filter_pass_rate: f64,
    /// Histogram of the bucket lengths in the sampled groups: entry `i` counts the buckets with `i` records. The last
    /// entry also counts all longer buckets.
    pub bucket_sizes: Vec<u64>,
    /// Size of the base's file in bytes.
    pub file_bytes: u64,
    /// DRAM used by the delta store, in bytes. The mapping of the base is not included.
    pub dram_bytes: u64,
    /// The events that the files survive.
    pub durability: Option<Durability>,
}

impl<K: Word, M: Medium> std::fmt::Debug for JoinIndex<K, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let view = self.core.view();
        f.debug_struct("JoinIndex")
            .field("path", &view.frame.storage.path())
            .field("pairs", &view.len())
            .field("generation", &view.root.generation)
            .finish_non_exhaustive()
    }
}
