//! Plush (Vogel, van Renen, Imamura, Giceva, Neumann, Kemper: *Plush: A Write-Optimized Persistent Log-Structured
//! Hash-Table*, VLDB 2022): levels of hash tables behind a root in DRAM and a log, for writing much to media that write
//! in blocks.
//!
//! # 1. What and when
//!
//! Best at: blind writes (`put`, `delete`), which append one record to a log and one to DRAM and never look; media
//! writes, as records move in whole blocks; DRAM, of which it takes what it is told, whatever the number of records;
//! opening, which reads the logs and level 1, whatever the number of records. Worst at: reads, which look into every
//! level; `len`, which reads the whole table; a write now and then that moves some thirty records of others on; ordered
//! access, unless the table is partitioned by ranges. Nothing relies on the order of stores to one line, so
//! `Durability::Disk` will do.
//!
//! # 2. Origin
//!
//! The paper's section, our file; then what differs, and why.
//!
//! - §4.1 root and levels (`root`, `level`, `migrate`): a directory entry is seven lines: size, epoch, references and
//!   filter; the entries of one migration lie side by side. Its buckets come in runs of 1, 1, 2, 4 and 8, so that five
//!   references do and an entry of few records takes little space. Another 256 bits say which records are tombstones:
//!   every value can be stored. Keys and values of 16, 32 or 64 bytes are in the slots, as words are (`words`): a
//!   bucket has the first words of its keys side by side, which is all that a search reads of other records.
//!   Level 1 of a table that is told its capacity holds it, in files that have their length from the start: a root entry
//!   has up to 16 entries there, and no record moves twice before the table outgrows it. Of others level 1 is as wide as
//!   the root, which makes its moves cheap.
//! - §4.1 filters (`filter`): bit-sliced, so that a search reads one line of them, and *all* buckets that they name are
//!   searched, newest first (Listing 3 searches one: a false positive would hide the key). Rows are turned by the hash,
//!   so that all buckets of an entry share a line's bits.
//! - §6.5 tuning (`top_filters`): the filters of the first levels in DRAM, too; levels with all buckets from the start.
//! - §4.2 recovery logs (`recovery_log`): torn records are told by flags, one a word, however many words they have (the
//!   words' own top bits are in the last one, so that all 2^64 of each fit). What a crash leaves of a chunk is settled when the table is opened:
//!   otherwise flags of two rounds ago would count again. Compaction does not copy: the few root entries that have not
//!   moved on are migrated (§4.2 copies their records behind newer ones of the same keys, which a replay would undo).
//! - §4.3, §5.1 payload log (`payload_log`, `collect`): one log; references carry the chunk's epoch, which never comes
//!   again; chunks are reused when readers have left (`base::reclaim`), so that values can be shown without a copy. Rounds
//!   over the table count what is needed of each chunk, and the emptiest are freed first, so that the log takes about
//!   three times what is needed at most (the paper looks at the oldest chunk). What is lent is below what DRAM knows to be
//!   written, whatever the files say. Only records with keys or values of any length are there; an update in the slots is one record, and nothing is
//!   collected.
//! - §5.1 upsert (`op`), migration (`migrate`, Listing 2). Eight targets share their fences, those for new runs,
//!   too; in steps two, on disks all of up to 33 root entries, or of a batch's and 32 more.
//! - §5.2 lookup (`core`): optimistic, by a version per root entry, hits and misses alike (Listing 3 validates hits). A
//!   reader waits while sizes are stored, so that it sees nothing that a crash could take back.
//! - §5.3 delete. A tombstone goes when nothing older can be below it: when its entry of the last level is compacted,
//!   or when that entry's filters do not know the key. (They would not vanish otherwise.)
//! - §5.4 recovery (`recover`): a log record is skipped when its target's epoch is the same or later; Listing 2 stores
//!   the equal one. Logs from a megabyte on are replayed in parallel. Epochs wrap around (`epoch`).
//! - §5.7 bulk loading (`unlogged`). A clean shutdown makes such records durable, too.
//! - §6.6 ranges (`partition`, `scan`, `leaves`): what stands for a hash keeps the order of the keys in its upper half; the
//!   lower one is hashed, for filters and fingerprints. Where keys crowd together, as those that begin alike do, an entry
//!   of the last level is split by keys instead of being continued.
//! - Past the paper. Migrations ahead of time in steps, one a write (`ahead`), instead of whole ones and cascades; on disks those of
//!   many root entries at once (`together`). Group commit on disks (`commit`, `pm::commit`): syncs are shared,
//!   acknowledgements may come before them, and a payload becomes durable together with its log record. Compaction in place (`compact`): an entry of the last level that is full of stale
//!   records drops them, and gives buckets back, so that updates do not fill the table for ever; one that would need
//!   more buckets for updates takes them over in their place. Continued entries (`level::extend`): until the last level
//!   is more than full an entry that overflows gets another one, not the whole table a level, so that a new level is
//!   well used from the start and keys with equal hashes take bounded space. `clear` in one durable store. Batches
//!   share a fence (`window`). Where there is no space records become removals in place, so that removals always go
//!   through, and what is stale is looked for in all levels (`need`). A table shrinks: levels that are hardly used are taken
//!   away (`deepen`), and blocks move to the front of their files (`pack`), whose space behind them goes back.
//!
//! # 3. Layout
//!
//! Regions of a table: `table.ice` (superblock, then [`layout::Root`]), `levels.ice` (directory entries, one level
//! after the other), `chains.ice` (entries that continue others), `buckets-1.ice` to `buckets-8.ice` (runs of buckets),
//! `log.ice` (recovery logs, chunk by chunk), `journals.ice` (compactions in progress), and for types of any length
//! `payload.ice` and `payloadmap.ice`. `layout` asserts the offsets. A key has 1, 2, 4 or 8 words, and so has a value;
//! with types of any length the key's one is its hash, the value's a reference.
//!
//! ```text
//! hash     63 root | level 1 | level 2 | ... | filter line 0; times a constant: filter rows and turns
//! ranges   63 place of the key among all | 31 hash 0: what stands for the hash
//! entry    state | 5 runs | next | 256 dead bits | 6 lines of 32 filter rows, each one bit a bucket
//! bucket   16 first words of keys | 16 times: the key's other words, the value
//! log      turn | records: key, value, {top bits, dead, epoch}; a flag in the top bit of each word
//! payload  lengths | hash | checksum | key | value
//! ```
//!
//! # 4. Invariants
//!
//! For a quiescent table; [`Plush::check`] reports breaches under these numbers.
//!
//! - I1 An entry has the runs for its records, and is the only one to have them; chains end.
//! - I2 A record is in the entry of its hash, and of the table's types.
//! - I3 The filter of a level's entry, and its copy in DRAM, knows its records and those of the entries that continue it;
//!   the filter of such a one its own. Of a table that is partitioned by ranges, the records of each of these lie between
//!   bounds of their own.
//! - I4 Only level 1 has epochs, and none that its root entry has not passed.
//! - I5 Every block was handed out once, or is free.
//! - I6 The recovery logs' flags are those of their turns (L1, L2).
//! - I7 What the newest record of a key refers to is in the payload log, and whole.
//!
//! # 5. Operations
//!
//! Each with its linearization point. *get*: for a hit, the moment at which it has loaded the size of the root entry or
//! the state of the level's entry; for a miss, of the root entry: nothing changed below until it was validated. *put*,
//! *delete* and whatever writes: the store of the root entry's size, after the log record is durable. *insert* and
//! others that look do so under the root entry's lock. *compute*: as what it decides; when nothing, as *get*. *clear*:
//! under all locks. *scan*: each range of hashes, as *get* reads. *len*: none; exact when quiescent.
//!
//! # 6. Ordering
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | E1, E2 | lock word (`base::version_lock`) | the same | what a migration or compaction changed, durable |
//! | E3 | words of a slot but the first, in the root, too (Release) | the same (Acquire) | the payload behind a reference |
//! | E4 | size of a root entry (Release) | the same (Acquire) | its records, durable |
//! | E5 | `epoch` and `oldest_chunks` of a root entry (Release) | the same (Acquire) | that former records are durable below |
//! | E6 | relief of a root entry, `relieved` (Release) | the same (Acquire) | that level 1 holds nothing more for it |
//! | E7 | words of entries, `state`, `runs`, `next`, of free lists, `link`, and of chunks, `word` (Release) | the same (Acquire) | what they count or lead to |
//! | E7 | words of logs and journals, `turn`, `seal` (Release) | the same (Acquire) | what they close |
//! | E7 | root words, `levels`, `phase`, `together` (Release) | the same (Acquire) | the levels; that the table is empty |
//! | E8 | `level_count`, `exact` in DRAM (Release) | the same (Acquire) | a level that is mapped; the count that goes with the changes |
//! | E9 | how far a log is filled, `filling`, and may be, `ready` (Release) | the same (Acquire) | the chunk's turn, durable; that its former records have left |
//! | E10 | what DRAM knows of a payload chunk, `state` (Release) | the same (Acquire) | what is written below its limit |
//!
//! A `cell` is any word of E7. They are stored Release and loaded Acquire also where an entry's lock, or being alone, would allow Relaxed: on
//! the medium Release keeps the order of the stores to one line.
//!
//! # 7. Crash
//!
//! | persist point | what holds from here on | a crash just before leaves |
//! |---|---|---|
//! | P0 payload (not where a fence syncs) | a log record may refer to it | a hole in a chunk, which `collect` skips |
//! | P1 chunk's turn | its records count by the new flag | a chunk whose records are not needed |
//! | **P2** log record (every write) | the change is kept | a torn record, which does not count |
//! | P3 run of an entry, with P6 | it has room for records | an intent, by which recovery finds out |
//! | P4, P5 continued entry | it has room for records | likewise |
//! | P6 records and filters of a migration | they may count | slots that do not count; false positives |
//! | **P7** states of targets | the records are below, their log copies not needed | copies above and below |
//! | P8 size of the source, oldest of a chain first | the records are below only | the same |
//! | P9 number of levels | there is one more | a longer file |
//! | **P10** journal | the compaction is rolled forward | a journal that does not fit its seal |
//! | P11 the entry, compacted or split | | a journal to do again |
//! | P12 journal's end | the entry may change | the same |
//! | **P13** phase word, clearing | the table is empty | the table as before |
//! | P14 all entries empty, their epochs past the logs | | a wipe to repeat |
//! | P15 phase word, stable | the `clear` is over | the same |
//! | **P16** bit of a record that is removed in place, the oldest first | the newest says that the key is removed | the key |
//! | P17 phase word, packing | blocks are where entries lead, whatever lists say | the table as before |
//! | P18 copy of a run or chained entry | an entry may lead to it | a packing to go on with |
//! | P19 what leads to it | the block that was left is free | the same |
//! | P20 phase word, stable | the packed blocks count | the same |
//! | P21 number of levels, less by one | the last one, which is empty, is not there | the level, empty |
//! | P22 copy of a payload, where there is no space for a record and a fence syncs | the records that there are may refer to it | a record that nothing refers to |
//! | P23 words that refer to the copy | the payload's chunk may go | records that refer to one or the other |
//!
//! Only words are stored at once. Of a wide record any may be missing after a crash, or be seen by a reader: P2's flags
//! are in every word of the log, what migrations write does not count before P7, what compactions write is in a sealed
//! journal, and readers look at the lock word afterwards.
//!
//! The runs that a migration takes cost it one fence for each size of runs, for the allocator's intents. What counts
//! them as taken and what leads to them become durable with the records (P6), and only then the intents end, durably
//! before a run can leave its entry (`pm::alloc`, A3). A crash before P6 may leave an entry with a run that is not
//! counted as taken, which recovery does by the intent; one after P6 an intent for a run that its entry has.
//!
//! A migration leaves nothing to settle: what is there twice is hidden once. One that is taken in steps leaves more of
//! it: an entry keeps all its records until P8, and what level 1 has of a root entry before the last portion tells it
//! the epoch (P7) is replayed, too. So are records that an entry has taken over
//! when it was compacted (P10), as they stay where they came from until P8, and in the log until P7. Recovery replays,
//! per log, what has not arrived in level 1: of records that depart from a root entry to several entries those whose
//! entries have not been told, and what came meanwhile. An entry of the root has never more than fits.
//!
//! A split is a compaction: the journal also says how many records the new leaf has from then on, which are there before
//! (P6). What comes to leaves is durable in them before the log is told (P7).
//!
//! On disks a fence is a sync, and one that fails is the last: nothing is stored any more that relies on it, and the
//! operation fails. There P0 shares that of P2: a crash may leave a log record without its payload, whose
//! checksum tells, and which opening makes a hole of. In the relaxed modes, and with `put_async`, only P2 comes later:
//! acknowledged records are visible before they are durable. Whatever takes durable things away settles first what may
//! have been acknowledged early and counts on them to be gone: R1 a log's chunk is begun anew (P1), R2 payloads go to a
//! level (P6), R3 a payload chunk is freed, R4 the session ends. A crash then takes per key only the newest values
//! since the last sync.
//!
//! # 8. Progress
//!
//! Readers take no lock. They wait while a migration or compaction of their root entry stores what readers follow: a
//! few fences. Writers of one root entry exclude one another, also for as long as one of them migrates. A write takes
//! a part of one migration, of some 30 to 60 records: ahead of time below its root entry, or of the root entry's own,
//! which the write before the first of these parts puts in order; a whole one when few writes are left before the root
//! entry is full, and in batches and without a log, where writes share it; on disks those of up to 32 other root
//! entries, too, which share the syncs; a cascade through the levels only where updates kept a root entry's log from
//! lasting, or most of a table's entries overflow together in more than three levels. The file of a new level grows
//! ahead, by 2 MiB for each entry that new keys overflow; on disks at once, for whoever comes first. Who finds half of the last chunk of a log filled makes another one ready; on disks, and
//! of logs of fewer than four chunks, who finds all of it filled, while others of that log wait. It waits for those who
//! write their last records to that one, and they wait for nobody. Locks are taken in this order: structure, in vain
//! (`need`), collection, recycling, root entry (one; a window's and those of `together` are tried only), journal,
//! allocator.
//! Who settles waits for one sync at most besides its own. A thread syncs for those who have none of their own
//! (`Every`, futures); it takes no lock of the table.
//!
//! # 9. Costs
//!
//! Lines of the medium written, flushes, fences; outside migrations; of words, and of *w* words in all. With migrations,
//! media writes of words are at most 16 (3 moves + 1.6) bytes a record (§6.1): of a table made for its records, where
//! level 1 has eight entries for one of the root; of one that was not told a capacity up to three levels, with four 3.02
//! in place of the 3. It is 3.6 to 3.9, which no test asserts, with sixteen (beyond 8 M records, as the logs would be
//! too long with eight). A filter in DRAM takes 384 bytes an entry, and its level's line from every read; opening reads seven lines of every entry for it. After a crash it
//! also samples 64 entries a level for `len_estimate`, 128 lines a level at most.
//! `tests/costs.rs` asserts all of this from the simulator's counters.
//!
//! | operation | lines read | lines written | flushes | fences |
//! |---|---|---|---|---|
//! | get, hit | 4 at most, and a filter line per level: state, bucket and value where it knows the key | 0 | 0 | 0 |
//! | get, miss | 0.3 at most, and a filter line per level | 0 | 0 | 0 |
//! | the same, filters in DRAM | 4 at most; 0.3 at most | 0 | 0 | 0 |
//! | put, delete | 0 | 1.4 | 1.4 | 1 |
//! | insert, update, remove | as get | 1.4 | 1.4 | 1 |
//! | put, delete, *w* words | 0 | (*w* + 8) / 8 | the same | 1 |
//! | 32 puts in a batch | 0 | 0.6 each | 0.6 each | 1 in all; 512 on disks |
//! | records in the payload log | + the payload's lines | + the payload's lines | + the payload's lines | 1 more |

mod ahead;
mod api;
mod batch;
mod collect;
mod compact;
mod core;
mod deepen;
mod epoch;
mod filter;
mod layout;
mod leaves;
mod level;
mod log_record;
mod maintain;
mod migrate;
mod need;
mod newest;
mod op;
mod options;
mod pack;
mod partition;
mod payload_log;
mod recover;
mod recovery_log;
mod root;
mod salvage;
mod scan;
mod together;
mod top_filters;
mod unlogged;
mod window;
mod words;

use crate::key::{Key, Value};
use crate::pm::{Mapped, Medium};
use crate::table::RecoveryReport;

use self::core::Core;

#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub use layout::Shape;
pub use options::PlushOptions;
pub use partition::Partition;
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub use payload_log::checksum as payload_checksum;

/// Plush: a durable, concurrent hash table for writing.
///
/// ```
/// let table = icefield::Plush::<u64, u64>::in_memory()?;
/// table.put(1, 42)?;
/// assert_eq!(table.get(1)?, Some(42));
/// # Ok::<(), icefield::Error>(())
/// ```
///
/// Keys and values of 16, 32 and 64 bytes are in the table's slots, as words are:
/// ```
/// let table = icefield::Plush::<u128, [u8; 32]>::in_memory()?;
/// table.put(1 << 100, [7; 32])?;
/// assert_eq!(table.get(1 << 100)?, Some([7; 32]));
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct Plush<K: Key + ?Sized, V: Value + ?Sized, M: Medium = Mapped> {
    recovery: RecoveryReport,
    core: Core<K, V, M>,
}
