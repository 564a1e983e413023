//! SPAR-HT (Chatterjee, Ray, Finlay, Zuzarte, Stoodley: *SPAR-HT: A PMem-Optimized Hash Table for Efficient Joins*,
//! 2026): a hash index that is built once, and makes every later equi-join cost its probe only.
//!
//! # 1. What and when
//!
//! Best at: probing for many keys at once, of which few or many are there; opening, which maps what was built and reads
//! nothing; sharing, as any number of processes map the same pages; space, 18.3 bytes a pair. Worst at: single changes,
//! which are kept beside the index until they are merged, and a merge writes the whole index; single look-ups, which
//! the ring cannot help (a Dash table finds them in one line less). Nothing is changed in place and everything is
//! covered by checksums, so `Durability::Disk` will do.
//!
//! # 2. Origin
//!
//! The paper's section, our file; then what differs, and why.
//!
//! - §3 bitmap in DRAM (`layout`): on the medium, mapped, in the line that also says where the buckets are; a passing
//!   key costs no other line for that. It is a blocked Bloom filter of five bits a key in 320 (the paper: one bit in 64
//!   of a bucket, of which 12 % pass wrongly at 8 bits a key; here 0.6 % at 11).
//! - §4.1 build, Algorithm 1 (`build`): the first pass counts shares of all hashes, not buckets, so that threads need
//!   no counters of all buckets each, and no atomic ones; the second scatters to shares, which are then settled one by
//!   one in a cache. Persisted are keys and payloads, by who wrote them, when all of a piece is written. Records begin
//!   at a block; buckets are packed back to back within. There are no validity bits: a generation is sealed, or is not.
//! - §4.2 probe, Algorithms 2 and 3 (`probe`): base *and* delta store are asked, for duplicates count; all pairs are
//!   found (M:N), with payloads. SIMD compares two lines at a time, records interleaved with payloads. Keys that pass
//!   are queued without a branch. The filter is not asked while most keys pass.
//! - §4.3 delta store (`delta`, `log`): logged, so as durable as the rest; removals, too; bounded.
//! - §4.3 merge, Algorithm 4 (`merge`): into a next generation, never in place (the paper appends at the *new* size,
//!   and swings bucket pointers before their arrays are persistent). By group, or anew, as `plan` finds cheaper.
//!
//! # 3. Layout
//!
//! Regions of an index: `table.ice` (superblock, then two copies of [`layout::Root`]), and for generations of even and
//! odd numbers `base-0.ice`, `base-1.ice` (sealed) and `delta-0.ice`, `delta-1.ice` (logs). `layout` asserts the sizes.
//!
//! ```text
//! hash     group: its share of all hashes | ... | filter bits (5 x 6) | bucket (4)
//! base     header block | groups | records | wide groups | checksums      each area from a 4 KiB block's beginning
//! group    first record (48 bits), wide (1), 0 | ends of 16 buckets (8 bits each) | 5 words of filter       one line
//! record   key | payload                                               sorted by group and bucket, not within
//! wide     bounds of 16 buckets (17 words)                             of groups with more than 255 records
//! delta    key | payload | kind, records before it in its window | checksum
//! root     generation | checksum of its header | filter bits | 0 0 0 0 | checksum         twice; then the watermark:
//!          number of delta records (40 bits), checksum (24)
//! ```
//!
//! # 4. Invariants
//!
//! [`JoinIndex::check`] reports breaches under these numbers.
//!
//! - I1 Both copies of superblock and root words are whole and agree; what lies between is zero.
//! - I2 The base is as long as its header says, and every block has the checksum with which it was sealed.
//! - I3 Buckets follow one another without a gap, from the first record to the last.
//! - I4 A record is in the group and bucket of its key's hash, and the group's filter knows it.
//! - I5 The delta log has no gap, and zeros behind it; the index has as many pairs as it says.
//! - I6 A generation's files are never written once it is sealed, but for its log's end.
//!
//! # 5. Operations
//!
//! Each with its linearization point. *probe* of a key: where the delta store may know the key, the look into it, under
//! its lock; else the load of the generation, or of the delta store's filter. *insert*, *remove*: the change of the
//! delta store, under its lock, after the log record is durable; a batch, window by window. *merge*: none, it changes
//! nothing that can be seen. A probe uses one generation from its beginning to its end: a change that returned before
//! it began is seen, one that comes meanwhile may be.
//!
//! # 6. Ordering
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | E1 | the present generation, under its lock | the same | all that is in its files, durable |
//! | E2 | delta store, under its lock | the same | its entries, durable |
//! | E3 | number of `changes`, and of pairs, `len` (Release) | the same (Acquire) | the delta filter's bits |
//!
//! # 7. Crash
//!
//! | persist point | what holds from here on | a crash just before leaves |
//! |---|---|---|
//! | **P0** superblock, directory renamed | there is an index | nothing |
//! | **P1** delta records | the changes are kept | some of the window's, which count up to the first gap |
//! | P2 records, then lines, piece by piece | they may be sealed | a file that nothing names |
//! | P3 checksums, wide groups, header, watermark of 0 | the root words may name the generation | the same |
//! | **P4** root words, first copy | the next generation is the present one | the present generation, with its log |
//! | P5 zeros behind the log | records may be appended | words of a lost window, which the next writer removes |
//!
//! A log's records know the generation, their numbers and which of them were persisted together: so none is taken for
//! another's, and a gap that a crash cannot have left is damage, told as such. The watermark, a word that is stored but
//! not flushed when records are durable, tells damage of the last ones from a crash, unless that was a power cut. So does
//! the number in the word of a clean close; where that word is damaged, nothing may follow on the log. The
//! files of the generation before are removed after P4, at the latest by the next writer. Recovery repeats: it
//! publishes the second copy, clears what follows on the log, and removes files.
//!
//! # 8. Progress
//!
//! Probes wait for nobody, but for a delta store that is just being changed, and never while a caller's function runs.
//! Changes exclude one another, and wait while a merge runs. An opening reads without a lock, beside a writer of
//! another process: files are removed, never reused, so what it has mapped stays; it begins again when the root words
//! have named another generation meanwhile. A backup beside a writer does the same, then copies what it has mapped
//! (`copy`). A handle keeps its directory, wherever the path leads later. Names are removed before a merge returns; the pages of a large file are
//! given back by a thread of their own, which a later merge, a full device and the closing wait for. Loops are bounded
//! by the number of records, or of a bucket's.
//!
//! # 9. Costs
//!
//! Lines of the medium; `tests/join.rs` asserts them from the simulator's counters.
//!
//! | operation | lines read | lines written | flushes | fences |
//! |---|---|---|---|---|
//! | probe, miss | 1.01: the group's | 0 | 0 | 0 |
//! | probe, hit (one pair) | 2.5: the group's, the bucket's | 0 | 0 | 0 |
//! | insert, remove of a pair | 0 (a removal: the key's lines up to the pair) | 0.5 | 1 | 1 |
//! | `semi`, `anti` of a key | as a probe, up to its first pair | 0 | 0 | 0 |
//! | 1024 inserts in a batch | 0 | 0.5 each | 0.5 each | 1 in all |
//! | build, a pair | 0.3 of scattering and settling each | 0.29, twice | 0.29 | 1 in 16384, on disks 2 |
//! | merge, a pair | 0.29 | 0.29 | 0.29 | 2 in 8192 |

mod api;
mod base;
mod bitmap;
mod build;
mod by_group;
mod check;
mod copy;
mod core;
mod delta;
mod hashed;
mod layout;
mod log;
mod merge;
mod options;
mod placed;
mod plan;
mod probe;
mod salvage;
mod seal;
mod source;
#[cfg(test)]
mod tests;
mod view;

use std::marker::PhantomData;

use crate::key::Word;
use crate::pm::{Durability, Mapped, Medium};
use crate::table::RecoveryReport;

use self::core::Core;

pub use self::bitmap::Bitmap;
pub use self::core::OnFull;
pub use self::hashed::{HashedJoinIndex, KeyHash};
pub use self::merge::{MergeKind, MergeReport};
pub use self::options::JoinOptions;
pub use self::source::JoinSource;

/// The design's name.
pub(crate) const DESIGN: &str = "join";

/// SPAR-HT: a durable index of pairs of key and payload (a row's number, usually), for joins. Keys may repeat; every
/// value is a key and every value a payload.
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

/// What a [`JoinIndex`] is made of just now.
///
/// ```
/// let stats = icefield::JoinIndex::in_memory(&[1, 2, 2], &[10, 20, 21])?.stats()?;
/// assert_eq!(stats.bucket_sizes.iter().sum::<u64>(), 16);
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JoinStats {
    /// Pairs, those of the base and of the delta store.
    pub pairs: u64,
    /// Pairs of the sealed base.
    pub base_pairs: u64,
    /// Changes that the delta store has had since the last merge.
    pub delta_changes: u64,
    /// How many it may have.
    pub delta_limit: u64,
    /// The number of the present generation.
    pub generation: u64,
    /// Groups, of a line and 16 buckets each.
    pub groups: u64,
    /// Groups with more than 255 records.
    pub wide_groups: u64,
    /// Bits of the filter for each key, as planned; 0: there is no filter.
    pub filter_bits_per_key: u64,
    /// The share of absent keys that the filter lets pass, in the sampled groups.
    pub filter_pass_rate: f64,
    /// How many buckets of the sampled groups have so many records; the last counts all longer ones.
    pub bucket_sizes: Vec<u64>,
    /// Bytes of the base's file.
    pub file_bytes: u64,
    /// Bytes of DRAM beside the mapping: the delta store.
    pub dram_bytes: u64,
    /// The medium.
    pub durability: Option<Durability>,
}

impl<K: Word, M: Medium> std::fmt::Debug for JoinIndex<K, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let view = self.core.view();
        f.debug_struct("JoinIndex")
            .field("path", &view.frame.pm.path())
            .field("pairs", &view.len())
            .field("generation", &view.root.generation)
            .finish_non_exhaustive()
    }
}
