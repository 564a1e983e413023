//! Plush (Vogel, van Renen, Imamura, Giceva, Neumann, Kemper: *Plush: A Write-Optimized Persistent Log-Structured
//! Hash-Table*, VLDB 2022): levels of hash tables below a root in DRAM and a log, for write-heavy workloads on media
//! that write in blocks.
//!
//! # 1. What and when
//!
//! Best at:
//! - blind writes (`put`, `delete`): they append one record to a log and one to the root, and read nothing;
//! - media writes: records move in whole blocks;
//! - DRAM: an option limits it, independent of the number of records;
//! - opening: it reads the logs and level 1, independent of the number of records.
//!
//! Worst at:
//! - reads: they check every level;
//! - `len`: it reads the whole table;
//! - the latency of single writes: now and then a write also moves about thirty other records, unless a thread of the
//!   table does that (`helper`);
//! - ordered access, unless the table is partitioned by ranges.
//!
//! No invariant depends on the order of stores to one line, so `Durability::Disk` is supported. Pages of a table that is
//! larger than memory are read one by one (`plan_reads`), those of a batch ahead of their use.
//!
//! # 2. Origin
//!
//! Each item names the paper's section and our file, and states what differs from the paper, and why.
//!
//! - §4.1 root and levels (`root`, `level`, `migrate`): a directory entry is seven lines: size, epoch, references and
//!   filter; the entries that one migration changes are adjacent. An entry's buckets come in runs of 1, 1, 2, 4 and 8,
//!   so that an entry needs only five references, and an entry with few records takes little space. Another 256 bits
//!   mark the records that are removals (tombstones), so that every value can be stored. Keys and values of 16, 32 or
//!   64 bytes are in the slots, like words (`words`): a bucket stores the first words of its keys side by side, and of
//!   records with other keys a search reads only this word. In a table created with a capacity, level 1 is large enough
//!   for it, and the files have their full length from the start: a root entry has up to 16 entries there, and no
//!   record moves twice before the table outgrows its capacity. In other tables, and on disks, level 1 is as wide as
//!   the root, which makes migrations to it cheap.
//! - §4.1 filters (`filter`): bit-sliced, so that a search reads one line of a filter. The search checks *all*
//!   buckets that the filter names, newest first (Listing 3 checks one: a false positive would hide the key). Rows
//!   are rotated by the hash, so that all buckets of an entry share the bits of a line.
//! - §6.5 tuning (`top_filters`): copies of the first levels' filters in DRAM; levels whose buckets are all
//!   preallocated.
//! - §4.2 recovery logs (`recovery_log`): a flag in each word detects torn records of any number of words. The last
//!   word of a log record holds the top bits that the flags displace, so that each word can have all 2^64 values.
//!   Opening repairs the torn records that a crash left in a chunk: otherwise words of two rounds ago, which have the
//!   same flag, would count again. Log compaction does not copy: the few root entries that still need the oldest chunk
//!   are migrated. (§4.2 copies their records behind newer ones of the same keys, and a replay would restore the old
//!   values.)
//! - §4.3, §5.1 payload log (`payload_log`, `collect`): one log; threads that contend append to different chunks of
//!   it. A reference contains the epoch of its chunk, and an epoch is never used twice. Chunks are reused after
//!   readers have left (`base::reclaim`), so that values can be borrowed without a copy. Rounds over the table
//!   count the needed bytes of each chunk, and the emptiest chunks are freed first, so that the log takes at most
//!   about three times the needed bytes (the paper collects the oldest chunk). Borrowed bytes are below the limit
//!   that DRAM holds for their chunk, whatever the files contain. Only records with keys or values of variable
//!   length are in this log. With fixed-width types an update is one record in a slot, and nothing is collected.
//! - §5.1 upsert (`op`), migration (`migrate`, Listing 2). Eight targets share their fences, including those for new
//!   runs. A step of a migration has two targets at first, and more as the root entry fills. On disks all targets of up
//!   to 33 root entries share their fences; in a batch, those of the batch's root entries and of 32 more.
//! - §5.2 lookup (`core`): optimistic, validated by a version per root entry, for hits and misses alike (Listing 3
//!   validates hits). It is divided into steps (`seek`), each of which prefetches the lines that the next one reads; in
//!   a batch, a record in the payload log is found one step before its payload is read. A reader waits while sizes are
//!   stored, so that it sees nothing that a crash could undo.
//! - §5.3 delete. A tombstone is dropped when no older record of its key can be below it: when the key's entry of the
//!   last level is compacted, or when the filters of that entry do not contain the key. (Otherwise tombstones would
//!   accumulate.)
//! - §5.4 recovery (`recover`): a log record is skipped when the epoch of its target is the same or later, because a
//!   target stores the epoch of the records that have arrived (Listing 2). Logs of a megabyte or more are replayed in
//!   parallel. Epochs wrap around (`epoch`).
//! - §5.7 bulk loading (`unlogged`). A clean shutdown makes its records durable, too.
//! - §6.6 ranges (`partition`, `scan`, `leaves`): the upper half of the value used as the hash keeps the order of the
//!   keys; the lower half is hashed, for filters and fingerprints. Where keys crowd, for example because of a common
//!   prefix, an entry of the last level is split by keys instead of being continued.
//!
//! Additions to the paper:
//!
//! - Migrations ahead of time, in steps of one per write (`incremental_migration`), instead of whole migrations and
//!   cascades. On disks the migrations of many root entries run together (`grouped_migration`).
//! - An optional thread that migrates ahead of the writers (`helper`).
//! - Group commit on disks (`op`, `storage::commit`): calls share syncs and may return before the sync, and a payload
//!   becomes durable together with its log record.
//! - Compaction in place (`compact`): an entry of the last level that is full of stale records drops them and gives
//!   buckets back, so that updates do not fill the table. An entry that would need more buckets for arriving updates
//!   merges the updates with its records instead.
//! - Continued entries (`level::extend`): until the last level has a quarter more records than fit into its entries, an
//!   entry that overflows gets a further entry, and the table does not get a further level. So a new level is well used
//!   from the start, and keys with equal hashes take bounded space.
//! - `clear` by one durable store.
//! - Batches that share a fence (`window`).
//! - Writes without free space (`need`): removals change records in place, so that they always succeed; other writes
//!   first drop the stale records of all levels.
//! - Shrinking: levels that are nearly empty are removed (`add_level`), and blocks move to the front of their files
//!   (`pack`), so that the space behind them goes back to the file system.
//!
//! # 3. Layout
//!
//! Regions of a table: `table.ice` (superblock, then [`layout::Root`]), `levels.ice` (directory entries, one level
//! after the other), `chains.ice` (entries that continue others), `buckets-1.ice` to `buckets-8.ice` (runs of
//! buckets), `log.ice` (recovery logs, chunk by chunk), `journals.ice` (compactions in progress), and for
//! variable-length types `payload.ice` and `payloadmap.ice`. `layout` asserts the offsets. A key has 1, 2, 4 or 8
//! words, and so has a value; with variable-length types both have one word: the key's is its hash, the value's is a
//! reference to the payload.
//!
//! ```text
//! hash     63 root | level 1 | level 2 | ... | filter line 0; times a constant: filter rows and rotations
//! ranges   63 place of the key among all | 31 hash 0; used in place of the hash
//! entry    state | 5 runs | next | 256 dead bits | 6 lines of 32 filter rows, each one bit a bucket
//! bucket   16 first words of keys | 16 times: the key's other words, the value
//! log      turn | records: key, value, {top bits, dead, epoch}; a flag in the top bit of each word
//! payload  lengths | hash | checksum | key | value
//! ```
//!
//! # 4. Invariants
//!
//! They hold for a quiescent table; `check` reports violations under these numbers.
//!
//! - I1 An entry has the runs that its records need, and no other entry refers to these runs. Every chain ends.
//! - I2 A record is in the entry that its hash selects, and its words are valid for the table's types.
//! - I3 The filter of a level's entry, and its copy in DRAM, contains its keys and the keys of the entries that
//!   continue it; the filter of a continuing entry contains only its own keys. In a table that is partitioned by
//!   ranges, the keys of each leaf of a chain lie between bounds that do not overlap with those of other leaves.
//! - I4 Only entries of level 1 have epochs, all of which are earlier than the epoch of their root entry.
//! - I5 Every block below the allocator's limit is either used by one owner or free.
//! - I6 The flags of the recovery logs are those of their chunks' turns (L1, L2).
//! - I7 The payload of the newest record of each key is in the payload log, and its checksum is correct.
//!
//! # 5. Operations
//!
//! The linearization point of each operation:
//!
//! - *get*: for a hit, the load of the root entry's size or of the state of the level's entry; for a miss, the load
//!   of the root entry's size: validation shows that nothing below has changed since. In a batch, the first steps of a
//!   search run ahead (`seek`). They count if, when the operation runs, the size is still the same and validation
//!   succeeds; appending a record to a root entry changes only its size.
//! - *put*, *delete* and all other writes: the store of the root entry's size, after the log record is durable.
//!   *insert* and other operations that depend on the present value look it up under the lock of the root entry.
//!   On disks, batches release the locks during their sync: the records are in the root already, behind those that the
//!   size counts. Batches that follow may add more, in the order of the log. Whoever is done first shows its records
//!   and all before them, which its sync covered. All other users of the entry wait until none is left unseen.
//! - *compute*: that of the write that it decides on; if it keeps the value, that of *get*.
//! - *clear*: the durable store of the phase word, under all locks.
//! - *scan*: for each range of hashes, that of *get*.
//! - *len*: none; it is exact when the table is quiescent.
//!
//! # 6. Ordering
//!
//! | | store | load | what it publishes |
//! |---|---|---|---|
//! | E1, E2 | lock word (`base::version_lock`) | the same | what a migration or compaction changed, durable |
//! | E3 | words of a slot except the first, also in the root (Release) | the same (Acquire) | the payload referred to |
//! | E4 | size of a root entry (Release) | the same (Acquire) | its records, durable |
//! | E5 | `oldest_chunks` of a root entry (Release) | the same (Acquire) | that the records that left are durable below |
//! | E6 | work below the root, `relieved` (Release) | the same (Acquire) | that level 1 has only copies from the root |
//! | E7 | words of entries, `state`, `runs`, `next` (Release) | the same (Acquire) | the records counted; the block |
//! | E7 | words of free lists and chunks, `link`, `word` (Release) | the same (Acquire) | the block; the records |
//! | E7 | words of logs and journals, `turn`, `seal` (Release) | the same (Acquire) | the words that they cover |
//! | E7 | root words, `levels`, `phase`, `together` (Release) | the same (Acquire) | the levels; that the table is empty |
//! | E8 | `count`, `exact` in DRAM (Release) | the same (Acquire) | a level that is mapped; the exact count for this number of changes |
//! | E9 | how far a log is filled, `filling` (Release) | the same (Acquire) | the chunk's turn, durable |
//! | E9 | how far a log may be filled, `ready` (Release) | the same (Acquire) | that the chunk's records have left |
//! | E10 | the state of a payload chunk in DRAM, `state` (Release) | the same (Acquire) | the bytes below its limit |
//!
//! In the code, a `cell` is any word of E7. These words are stored Release and loaded Acquire also where an entry's
//! lock, or exclusive access, would allow Relaxed: on the medium, Release keeps the order of the stores to one line.
//!
//! # 7. Crash
//!
//! | persist point | what holds from here on | a crash just before leaves |
//! |---|---|---|
//! | P0 payload (unless fences are syncs) | a log record may refer to it | a hole in a chunk, which `collect` skips |
//! | P1 chunk's turn | its records count by the new flag | a chunk whose records are not needed |
//! | **P2** log record (every write) | the change is kept | a torn record, which does not count |
//! | P3 run of an entry, with P6 | it has room for records | an intent, which recovery resolves |
//! | P4, P5 continued entry | it has room for records | likewise |
//! | P6 records and filters of a migration | they may count | slots that do not count; false positives |
//! | **P7** states of targets | the records are below, their log copies not needed | copies above and below |
//! | P8 size of the source, oldest of a chain first | the records are below only | the same |
//! | P9 number of levels | the table has one more level | a longer file |
//! | **P10** journal | the compaction is rolled forward | a journal whose seal is wrong |
//! | P11 the entry, compacted or split | its journal is not needed | a journal to apply again |
//! | P12 journal's end | the entry may change | the same |
//! | **P13** phase word, clearing | the table is empty | the table as before |
//! | P14 all entries empty, their epochs past the logs | the logs' records do not count | a wipe to repeat |
//! | P15 phase word, stable | the `clear` is complete | the same |
//! | **P16** bit of a record that is removed in place, the oldest first | the newest record is a removal | the key |
//! | P17 phase word, packing | the blocks that entries refer to are in use, whatever the free lists contain | the table as before |
//! | P18 copy of a run or chained entry | an entry may refer to it | a packing to continue |
//! | P19 references to the copies; the allocators' new words | the phase word may select these words | the same |
//! | P20 phase word, stable | the allocators' new words are valid | the same |
//! | P21 number of levels, less by one | the last level, which is empty, is removed | the level, empty |
//! | P22 copy of a payload, if space is missing and fences are syncs | records may refer to it | an unused payload |
//! | P23 words that refer to the copy | the payload's chunk may be freed | records that refer to either payload |
//!
//! Only single words are stored atomically. A crash may lose any word of a wide record, and a reader may see a
//! mixture: each word of a log record has a flag (P2), slots that migrations write do not count before P7, slots that
//! compactions write are covered by a sealed journal, and readers validate by the lock word afterwards.
//!
//! The runs that a migration takes cost it one fence for each size of runs, for the allocator's intents. The references
//! to the runs, and the counter that marks the runs as taken, become durable with the records (P6). Only then do the
//! intents end, and their ends are durable before a run can leave its entry (`storage::alloc`, A3). A crash before P6
//! may leave an entry with a run that the allocator does not count as taken; recovery counts it by the intent. A crash
//! after P6 may leave an intent for a run that its entry has.
//!
//! A crash during a migration leaves nothing to repair: of a record that exists twice, the upper copy hides the lower
//! one. A migration in steps leaves more copies: an entry keeps all its records until P8. Records of a root entry are
//! replayed even if they are in level 1 already, until the last portion stores the epoch there (P7). So are records
//! that an entry has merged in a compaction (P10): they stay in their source until P8, and in the log until P7.
//! Recovery replays, for each log, the records that have not arrived in level 1. While records of a root entry depart
//! to several entries, these are the records whose target has not stored the epoch yet, and the records written since
//! the departure began. There are never more of them than a root entry has room for. The next epoch of a root entry
//! begins before its records move: if only some targets get their records, later records do not count as arrived there.
//!
//! A split is a compaction: the journal also holds the new number of records of the new leaf, whose records were made
//! durable before (P6). Records that arrive in leaves are durable there before the epoch is stored for the log (P7).
//!
//! On disks a fence is a sync, and a failed sync is final: nothing that relies on it is stored any more, and the
//! operation fails. There P0 shares the sync of P2: a crash may leave a log record without its payload. The payload's
//! checksum detects this, and opening turns the record into a hole. In the relaxed modes, and with `put_async`, only P2
//! comes later: acknowledged records are visible before they are durable. The table makes these records durable
//! (`fence_deferred`) before each step that overwrites or removes older durable data, or makes references to payloads
//! durable: R1 a log's chunk is begun anew (P1), R2 references to payloads move to a level (P6), R3 a payload chunk is
//! freed, R4 the session ends. So for each key a crash loses only the newest values since the last sync. A removal that
//! finds no space (P16) is an exception: it marks the older records of its key first, so a crash after that may leave the
//! key absent, even if the removal failed. Payloads that a collection moves become visible before their copies are
//! durable, in all modes: until R3 a key keeps its old record and payload, so a crash leaves the value that it would have
//! left without the move.
//!
//! # 8. Progress
//!
//! Readers take no lock. They wait while a migration or compaction of their root entry stores words that readers
//! follow, which takes a few fences. Writers of one root entry exclude one another, also while one of them migrates,
//! but blind writes in batches on disks do not exclude one another during a sync. A thread that needs the entry for
//! itself waits for the syncs of those that have added records by then; no others add any before it has had its turn.
//!
//! A write does at most this much of the migrations:
//!
//! - A part of one migration, some 30 to 60 records. The migration is that of an entry below the root entry, ahead of
//!   time, or of the root entry itself, whose records an earlier write has sorted.
//! - A whole migration when few writes are left before the root entry is full; also in batches and without a log, where
//!   many writes share the migration.
//! - On disks, the migrations of up to 32 other root entries as well, which share the syncs.
//! - A cascade through the levels only where updates filled a log, so that a root entry had to migrate early, or where
//!   most of a table's entries overflow together in more than three levels.
//!
//! With a helper thread that is in time, writes do none of this work, except where a log's chunk is begun anew. The
//! thread holds the lock of a root entry for one whole migration, so a write to that entry may wait as long. From half
//! of a root entry's room on, writers do the work as above.
//!
//! The levels' file grows for a new level ahead of time, by 2 MiB for each entry that overflows because of new keys; on
//! disks the first thread that needs the level extends the file at once.
//!
//! When half of the newest ready chunk of a log is used, a writer prepares the next chunk. On disks, and with fewer
//! than four chunks per log, a writer does so when all of the chunk is used, and other writers of that log wait. The
//! preparing thread waits for the threads that still write records to the oldest chunk. These wait for no lock that the
//! preparing thread holds then.
//!
//! Locks are taken in this order: the helper's `stepping`, `structure`, `in_vain`, `collection`, `recycling`, root entry
//! (one; the further ones of a window and those of `grouped_migration` are only tried), journal, lane of the payload
//! log, its `space`, allocator. While the helper holds `stepping`, it only tries the gate and the root entry.
//!
//! A thread in `fence_deferred` waits for at most one sync of another thread, which may wait up to 5 ms for fences to
//! join, and then for its own. A background thread syncs for `SyncMode::Every` and for futures; it takes no lock of the
//! table.
//!
//! # 9. Costs
//!
//! The table below lists the lines of the medium that are read and written, flushes, and fences, without migrations.
//! Records consist of two words, unless *w* words are given. With migrations, media writes of two-word records are at
//! most 16 (3 moves + 1.6) bytes a record (§6.1), where moves is the average number of moves of a record. This holds
//! for a table created for its number of records, with eight entries of level 1 for each root entry, and for a table
//! created without a capacity, up to three levels; with four levels the factor is 3.02 instead of 3. With sixteen
//! entries for each root entry (beyond 8 M records, where the logs would be too long with eight), the factor is 3.6 to
//! 3.9.
//!
//! A filter in DRAM takes 384 bytes an entry, and saves each search the line of the filter on the medium; opening reads
//! seven lines of each such entry that has records. After a crash, opening also samples 64 entries a level for
//! `len_estimate`, and reads at most 192 lines a level for that (three entries of a chain). `tests/costs.rs` asserts
//! the table and the bound on media writes from the simulator's counters; no test asserts the factors for four levels
//! and for sixteen entries, or the costs of opening.
//!
//! | operation | lines read | lines written | flushes | fences |
//! |---|---|---|---|---|
//! | get, hit | 4 at most, and a filter line per level: state, bucket and value where the filter contains the key | 0 | 0 | 0 |
//! | get, miss | 0.3 at most, and a filter line per level | 0 | 0 | 0 |
//! | the same, filters in DRAM | 4 at most; 0.3 at most | 0 | 0 | 0 |
//! | put, delete | 0 | 1.4 | 1.4 | 1 |
//! | insert, update, remove | as get | 1.4 | 1.4 | 1 |
//! | put, delete, *w* words | 0 | (*w* + 8) / 8 | the same | 1 |
//! | 32 puts in a batch | 0 | 0.6 each | 0.6 each | 1 in all; on disks, 1 for 512 puts |
//! | records in the payload log | + the payload's lines | + the payload's lines | + the payload's lines | 1 more |

mod add_level;
mod api;
mod batch;
mod collect;
mod compact;
mod core;
mod epoch;
mod filter;
mod grouped_migration;
mod helper;
mod incremental_migration;
mod journals;
mod layout;
mod leaf_bounds;
mod leaves;
mod level;
mod level_filters;
mod levels;
mod log_record;
mod maintain;
mod mended;
mod migrate;
mod moving;
mod need;
mod newest;
mod op;
mod options;
mod pack;
mod partition;
mod payload_log;
mod placement;
mod reads;
mod recover;
mod recovery_log;
mod requests;
mod root;
mod root_lock;
mod salvage;
mod scan;
mod seek;
mod tallies;
mod top_filters;
mod unlogged;
mod unseen;
mod window;
mod words;

use std::sync::Arc;

use crate::storage::Medium;
use crate::types::RecordForm;

use self::core::Core;
use self::helper::Helper;

pub(crate) use epoch::LogEpoch;
#[doc(hidden)]
pub use layout::Shape;
pub(crate) use options::Help;
pub use options::PlushHt;
pub use partition::Partition;
pub(crate) use partition::rank_of;
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub use payload_log::checksum as payload_checksum;

/// A Plush table of words and byte strings.
pub struct Plush<R: RecordForm, M: Medium> {
    core: Arc<Core<R, M>>,
    /// Present when the table has a helper thread.
    helper: Option<Helper>,
}
