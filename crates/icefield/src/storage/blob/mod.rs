//! Records of any length: keys and values up to 16 MiB, for every table.
//!
//! # Ownership
//!
//! A slot of the table holds one word, a [`BlobRef`]; the bytes are in the store. **Reachability is ownership**: a
//! block is allocated if and only if a slot of the table refers to it. Neither a free list nor an allocation bit is
//! durable. Allocating and freeing therefore cost no flush and no fence (except one of each when a *chunk* is put to a
//! new use), and no crash can leak a block or give one to two owners: after a crash the slots alone determine which
//! blocks are allocated. The price: the store finds the free space of former sessions only by querying the table. A
//! lazy, bounded *scan* does this while writes continue.
//!
//! # Layout
//!
//! ```text
//! blobs.ice    chunks of 64 KiB (BlobParams), back to back from byte 0
//!   block      { len: u32, checksum: u32, owner: u64, content: [u8; len] }   16-byte aligned, `block::Header`
//! blobmap.ice  one 8-byte word for each chunk
//!   FREE  = 0                                  no block begins here: free, never used, or inside a large run
//!   SMALL = { kind: u8 = 1, size: u32, check: u16 }    equal blocks of `size` bytes
//!   LARGE = { kind: u8 = 2, chunks: u32, check: u16 }  one block of `chunks` chunks
//! ```
//! Sizes (`class.rs`): 32, 48, .. 128, then four sizes per doubling up to a quarter of a chunk (waste <= 25 %), then a
//! third and a half of a chunk. Longer blobs take whole contiguous chunks (waste <= 50 %, at most one chunk). The owner
//! word is the hash of the key that the blob belongs to: the scan finds the bucket by it, and a split finds the new
//! segment without hashing the key again.
//!
//! # Invariants
//!
//! They hold for a quiescent store. `check` reports violations under these numbers.
//! - I1 Every map word is FREE, or one that the store wrote for that chunk; words inside a run are FREE.
//! - I2 Every reference of the table names a block of the size class that its content needs.
//! - I3 No two references name the same block.
//! - I4 A referenced block holds the content that was written, for the owner that it was written for (checksum).
//! - I5 In DRAM, a block is *owned*, or *free*, or neither. Owned blocks are referenced (otherwise they are
//!   leaked); free blocks are not. A block is neither while it is unexamined, held by the reclaimer, undecided
//!   by the table, or a *spare* (see "Spare blocks").
//!
//! # The table's part
//!
//! - T1 The table calls `write`, stores the slot's record, executes one fence for both, and then publishes the slot.
//!   Before the fence no other thread sees the reference.
//! - T2 The table calls `discard` for a blob that was written but not published. It calls `retire` for a blob that was
//!   unlinked, *after the unlinking is durable* (so that the block is not reused while a crash could bring the old slot
//!   back), under a guard that was pinned *before* the unlinking.
//! - T3 A reader pins before it loads a reference. It may use the content only after it has validated, by the bucket's
//!   version, that the slot was published when it loaded the reference: the blob of a slot that is still being filled
//!   may be discarded and its block written again.
//! - T4 A record that moves can always be found under the locks of its key: it is linked at the new place before it
//!   is unlinked from the old one.
//! - T5 [`Owner::is_live`] decides and calls `mark` under the locks of the key; [`Owner::relink`] changes a slot under
//!   the same locks.
//!
//! # Damaged files
//!
//! References and lengths are words of a file. In a damaged file they may lead anywhere: to a free block, into the
//! middle of a block, across several blocks; two slots may share one block. The store therefore never lends a plain
//! reference into the mapping. [`BlobStore::read`] checks that a content lies in the region, and either within one
//! chunk or in the run that the map records there (so that a small file cannot claim a huge content). It returns
//! [`SharedBytes`], which are copied out or compared by atomic words. Headers are cells, and [`BlobStore::write`]
//! stores by atomic words, too. Whatever a file holds, every access to a region is in bounds and atomic: no two
//! accesses race, and a reader holds its own copy. T1 to T5 guarantee that this copy is the right one in a sound
//! file; memory safety does not depend on them. References do not influence which blocks are handed out: free space
//! is recorded in DRAM and found only by means of map words, each of which is read once.
//!
//! # Operations and crashes
//!
//! `write` takes a free block in DRAM, writes content and header, and flushes them; the caller fences. After a crash
//! before the slot is published, no slot refers to the block, so it is free. After a crash later than that, the fence
//! has made block and record durable together. `retire` follows the durable unlinking: after any later crash no slot
//! refers to the block. A block is never written while a slot, in memory or on the medium, refers to it (T2). The map:
//! - P1 A chunk's word is durable before a slot refers to a block in it: the thread that takes the chunk flushes the
//!   word before it flushes a block, and fences at once if other threads will allocate from the chunk (a large run has
//!   only one block, so the caller's fence suffices). After a crash before that point the chunk is still free: it may
//!   contain stale headers, but no slot refers to their blocks.
//! - P2 A chunk (or run) that is given back gets FREE words, which are durable before it is used again. Otherwise
//!   an old LARGE word could span chunks that have been given blocks since, and the scan would skip those blocks,
//!   or free them.
//! - P3 Copies that `compact` makes are durable before slots refer to them.
//! - The words inside a run need no store: free chunks have FREE words by P2, and fresh chunks have never had others.
//!
//! `open` walks the map back from its end over at most one step of growth (4096 chunks) and one run, to find the chunks
//! that were never used. All others are *unscanned*: nothing is allocated in them, and the scan examines each of them
//! once, in order (the *sweep*), from a start that differs from session to session. Taking a fresh chunk makes eight
//! unscanned chunks due for the sweep, and so does an opening. Each write ([`BlobStore::prepare`]) examines up to 256
//! blocks while any chunks are due. So a region grows by about an eighth more than its live blobs need before
//! everything has been scanned, and no operation waits long. When a class has no known room, the next writes search
//! unscanned chunks of that class first (the *hunt*), from the end of the map: at most eight chunks for each chunk used
//! up, and at most 256 blocks per write. Thus a session continues in the half-filled chunks of the previous one, and a
//! thousand sessions of one write each do not cost a chunk each. Further crashes change nothing: the scan makes no
//! durable stores except P2's words.
//!
//! Holes: the store may punch reclaimed chunks, and a copy of the file may have more holes. Space is reserved
//! before a chunk is reused and before the scan frees blocks in it, so a full device is an error from `write`, not
//! a page fault inside it.
//!
//! When a map word fails its check, the sweep skips the rest of the present range in this session: the chunks behind
//! the word might be the inside of a run, and the scan never frees space on a guess. `check` reports the word. Blobs
//! within one chunk are still read; a longer blob, whose run the word describes, is `Corrupt`.
//!
//! # Spare blocks
//!
//! In a store whose blobs are replaced, each block that becomes free is in another chunk. If it became free there, the
//! chunk would be listed for this one block, and fetched for one allocation. Instead, the reclaimer gives the block to
//! the stripe of its thread, which hands it out next. The stripe keeps at most as many spares as it has been asked
//! for since, and at most one batch of the reclaimer or 2 MiB; all others become free in their chunks. A chunk with a
//! spare is not given back before the spare is used: at most 256 chunks for each class and stripe. All spares become
//! free before the region grows, and in `make_room`, `compact` and `check`.
//!
//! The stripe knows its next block while the table still writes the present one: it prefetches the block and its state.
//!
//! # The scan and concurrent writers
//!
//! A block in an unscanned chunk can only lose its owner: allocation uses examined blocks alone. So the scan never
//! meets a blob on its way from `write` to its slot, and a block found dead cannot become live. Let U be the
//! durable unlinking of block b by a remover R, and S the moment at which the table marks b for the scan. Both
//! happen under the locks of b's key, so they are ordered.
//! - S before U: b was marked live and is owned. R's `retire` follows U and takes the ownership, and the reclaimer
//!   frees b.
//! - U before S: b was marked dead and is condemned. R's `retire`, whether before or after S, finds b without an
//!   owner (unexamined or condemned) and does nothing. This `retire` cannot come so late that b has been freed and
//!   given to another owner: condemned blocks are freed through the reclaimer, whose grace period began after S,
//!   hence after U, hence after R's guard was pinned (T2), and R holds that guard until its `retire` is done.
//! - In both cases the grace period waits for readers that reached b before U.
//!
//! # Locks
//!
//! Locks are taken in this order: the scanner's, the table's bucket locks, one of the short locks. Short locks are a
//! class's `refill` (held while a chunk is fetched: the map's fence, growth), then the lock of a chunk, a class's
//! `room`, a stripe's `spares`, `space`, `ripe`. The locks after `refill` are held for a few instructions (`space` also
//! during growth). No thread holds two of them at once, or holds one of them during a call to the table or the
//! reclaimer. So `write`, `discard` and `retire` may be called under bucket locks; `prepare`, `make_room` and `compact`
//! must not. A usual `write` takes two locks, one after the other: that of its stripe's spares and that of a chunk.
//! `compact` has its own lock, which comes before all of these.
//!
//! # Costs
//!
//! | call | lines written | flushes | fences |
//! |---|---|---|---|
//! | `write` | those of header and content | the same, once each | 0 (the caller's) |
//! | `write`, when a chunk is put to a new use | 1 map word more | 1 more | 1, for a large run 0 |
//! | `read` | 0 (reads the header's line and what the caller copies) | 0 | 0 |
//! | `discard`, `retire` | 0 | 0 | 0 |
//! | a chunk given back | 1 map word | 1 | 1 for all given back together |
//! | a blob moved | those of header and content, a slot | the same, once each | 1 (the table's), 1 for up to 64 |
//!
//! DRAM: two bits for each block of the scanned chunks, 64 bytes for each chunk in those groups of 1024 chunks that
//! have been accessed, 8 bytes for each spare.
//!
//! Time: `write` is two uncontended locks, one pass of the checksum (8 GB/s on our machines), the copy and the flushes;
//! `retire` is one lock. Examining a block costs the scan one line, plus what the table's `is_live` reads; a write
//! examines at most 512 blocks (256 each for hunt and sweep), more for a content of megabytes.

mod allocate;
mod block;
mod check;
mod chunk;
mod class;
mod compact;
mod owner;
mod params;
mod pool;
mod report;
mod scan;
mod scanner;
mod shared;
mod space;
#[cfg(test)]
mod tests;
mod whole_chunks;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex};

use crate::base::counter::ShardedCounter;
use crate::base::reclaim::{Guard, Reclaimer};
use crate::storage::bytes::SharedBytes;
use crate::storage::medium::Medium;
use crate::storage::mutex::lock;
use crate::storage::region::READ_LINES;
use crate::{Error, Result};

use allocate::Held;
use block::{HEADER_BYTES, Header};
use chunk::ChunkTable;
use class::{Classes, size_hint};
use pool::{MOST_WAITING_BYTES, Pool};
use scanner::Scanner;
use shared::Shared;
use space::{SCAN_PER_CHUNK, Space, WORD_BYTES, chunks_in, map_word as map_word_at};

#[doc(hidden)]
pub use block::header_words;
pub use block::{BlobRef, MAX_BLOB_BYTES};
#[doc(hidden)]
pub use class::map_word;
pub use owner::Owner;
pub use params::BlobParams;
pub(crate) use pool::RETIRED_TOGETHER;
pub use report::BlobReport;

/// The region of the blocks.
pub const BLOBS_REGION: &str = "blobs.ice";
/// The region of the chunks' words.
pub const MAP_REGION: &str = "blobmap.ice";

/// A snapshot of a store's space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobStats {
    /// Bytes of both regions.
    pub region_bytes: u64,
    /// Bytes in owned blocks, including their headers and rounding. Unexamined blocks do not count.
    pub used_bytes: u64,
    /// Bytes in chunks that the scan has not reached yet.
    pub unscanned_bytes: u64,
    /// Bytes in chunks that are free or were never used.
    pub free_bytes: u64,
}

/// The blobs of one table. The module's header lists the obligations of a table.
pub struct BlobStore {
    shared: Arc<Shared>,
    reclaimer: Arc<Reclaimer>,
    scanner: Mutex<Scanner>,
    /// Held during [`BlobStore::compact`].
    compacting: Mutex<()>,
}

impl std::fmt::Debug for BlobStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobStore")
            .field("params", &self.shared.params)
            .field("stats", &self.stats())
            .finish()
    }
}

impl BlobStore {
    /// Opens the store of `storage`, or creates an empty one: maps two regions and walks over at most 4096 words of the
    /// map (and one run). Stores nothing.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for impossible parameters; the errors of mapping the regions.
    pub fn open<M: Medium>(
        storage: &M,
        params: BlobParams,
        reclaimer: Arc<Reclaimer>,
    ) -> Result<Self> {
        params.validate()?;
        let chunk_bytes = u64::from(params.chunk_bytes);
        let blobs = storage.region_with_holes(BLOBS_REGION, params.max_bytes.max(chunk_bytes))?;
        let map_bytes =
            (blobs.max_bytes() / chunk_bytes * WORD_BYTES).next_multiple_of(MAP_PAGE_BYTES);
        let map = storage.region(MAP_REGION, map_bytes)?;
        let classes = Classes::new(params.chunk_bytes);
        let end = chunks_in(&params, &blobs, &map);
        let mut shared = Shared {
            pools: (0..classes.count()).map(|_| Pool::hungry()).collect(),
            classes,
            params,
            blobs,
            map,
            chunks: ChunkTable::new(),
            space: Mutex::default(),
            ripe: Mutex::default(),
            ripe_runs: AtomicUsize::new(0),
            unscanned: AtomicU32::new(0),
            scan_due: AtomicU32::new(0),
            used_bytes: ShardedCounter::new(0),
        };
        let fresh = shared.find_fresh(storage, end);
        shared.space = Mutex::new(Space { fresh, end, ..Space::default() });
        shared.unscanned = AtomicU32::new(fresh);
        // Chunks are due already at the first write: otherwise sessions of one operation each would take a fresh chunk
        // each.
        shared.scan_due = AtomicU32::new(fresh.min(SCAN_PER_CHUNK));
        let scanner = shared.scanner(storage, fresh);
        let shared = Arc::new(shared);
        reclaimer.keep(Arc::clone(&shared) as _);
        Ok(Self { shared, reclaimer, scanner, compacting: Mutex::default() })
    }

    /// Stores `content` for `owner` (the hash of its key) and flushes it. The blob is durable after this thread's next
    /// fence. The caller must link it to a slot or [`BlobStore::discard`] it. The work besides copying is constant.
    ///
    /// # Errors
    /// [`Error::ValueTooLong`] beyond [`MAX_BLOB_BYTES`]; [`Error::NoSpace`] (the table may try
    /// [`BlobStore::make_room`]); [`Error::Poisoned`] when the fence for a new chunk failed.
    pub fn write<M: Medium>(&self, storage: &M, owner: u64, content: &[u8]) -> Result<BlobRef> {
        if content.len() > MAX_BLOB_BYTES {
            return Err(Error::ValueTooLong { len: content.len(), max: MAX_BLOB_BYTES });
        }
        let offset = self.shared.allocate(storage, content.len())?;
        self.fill(storage, offset, owner, content)
    }

    #[inline]
    fn fill<M: Medium>(
        &self,
        storage: &M,
        offset: u64,
        owner: u64,
        content: &[u8],
    ) -> Result<BlobRef> {
        let Some(header) = self.header(offset) else {
            return Err(self.shared.fault(offset, "an allocated block lies outside the region"));
        };
        header.store(storage, owner, content);
        if !content.is_empty() {
            storage.store_bytes(&self.shared.blobs, offset + HEADER_BYTES, content);
        }
        storage.flush_range(&self.shared.blobs, offset, HEADER_BYTES + content.len() as u64);
        Ok(BlobRef::at(offset))
    }

    /// Returns the content of `blob`, to be copied out or compared. It is the content that was written if two
    /// conditions hold: the reference was loaded from a published slot (T3), and from before this load until the
    /// copy is made, the caller held a guard or the lock of the key. Otherwise, or in a damaged file, the content is
    /// arbitrary.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the reference, or the length in the blob's header, is impossible.
    #[inline]
    #[track_caller]
    pub fn read<M: Medium>(&self, storage: &M, blob: BlobRef) -> Result<SharedBytes<'_>> {
        let (offset, header) = self.resolve(blob)?;
        let len = header.len(storage);
        if len > MAX_BLOB_BYTES {
            return Err(self.shared.fault(offset, "the blob's length is impossible"));
        }
        // A small block lies in one chunk. A longer blob must be the run that the map records.
        let chunk_bytes = u64::from(self.shared.params.chunk_bytes);
        let end = (offset & (chunk_bytes - 1)) + HEADER_BYTES + len as u64;
        if end > chunk_bytes && !self.shared.is_run_of(storage, offset, len) {
            return Err(self.shared.fault(offset, "the blob is longer than its block"));
        }
        let content = storage.shared_bytes(&self.shared.blobs, offset + HEADER_BYTES, len);
        content.ok_or_else(|| self.shared.fault(offset, "the blob reaches beyond the region"))
    }

    /// Returns a copy of the content of `blob`, after checking its checksum and owner.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the blob is damaged or was written for another owner.
    pub fn verify<M: Medium>(&self, storage: &M, owner: u64, blob: BlobRef) -> Result<Vec<u8>> {
        let content = self.read(storage, blob)?.to_vec();
        self.vouch(storage, Some(owner), blob, &content)?;
        Ok(content)
    }

    /// Checks that `content`, which was copied from `blob`, is what was written there and, if `owner` is given, that it
    /// was written for `owner`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it is not.
    pub fn vouch<M: Medium>(
        &self,
        storage: &M,
        owner: Option<u64>,
        blob: BlobRef,
        content: &[u8],
    ) -> Result<()> {
        let (offset, header) = self.resolve(blob)?;
        if header.describes(storage, owner.unwrap_or_else(|| header.owner(storage)), content) {
            return Ok(());
        }
        Err(self.shared.fault(offset, "the blob's checksum or owner is wrong"))
    }

    /// Returns the owner word that `blob` was written with: the hash of its key, which a split needs. The word is not
    /// verified.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the reference is impossible.
    #[inline]
    pub fn owner_of<M: Medium>(&self, storage: &M, blob: BlobRef) -> Result<u64> {
        Ok(self.resolve(blob)?.1.owner(storage))
    }

    /// Prefetches the block of `blob`, whose size is that of all blocks of its chunk. Any word will do, at any time,
    /// because nothing is read from the block. The map's words are dense enough to be cached. `hint` prefetches a line.
    #[inline(always)]
    pub fn prefetch<M: Medium>(&self, storage: &M, blob: BlobRef, hint: impl Fn(*const u8)) {
        let Some(offset) = blob.offset() else { return };
        let number = offset >> self.shared.params.chunk_bytes.trailing_zeros();
        let Some(word) = map_word_at(&self.shared.map, number as u32) else { return };
        // Relaxed: a hint only.
        let size = storage.read_unvalidated(|| size_hint(word.load(storage, Relaxed)));
        self.shared.blobs.prefetch(offset, u64::from(size), READ_LINES, hint);
    }

    /// Prefetches the state that a later [`BlobStore::retire`] of `blob` changes. Any word will do, at any time.
    #[inline]
    pub fn prefetch_state<M: Medium>(&self, storage: &M, blob: BlobRef) {
        let Some((number, inside)) = self.shared.locate(blob) else { return };
        let Some(word) = map_word_at(&self.shared.map, number) else { return };
        // Relaxed: a hint only.
        let size = size_hint(storage.read_unvalidated(|| word.load(storage, Relaxed)));
        self.shared.chunks.prefetch(number, inside.checked_div(size).unwrap_or(0));
    }

    /// Frees a blob at once. [`BlobStore::write`] must have returned it, and no published slot may have referred to it.
    pub fn discard(&self, blob: BlobRef) {
        if let Some(held) = self.shared.disown(blob) {
            self.shared.release(held);
        }
    }

    /// Frees a blob that a slot referred to, after every present reader has left. The unlinking must be durable,
    /// and `guard` pinned before it (T2).
    ///
    /// # Panics
    /// If `guard` is of another reclaimer than the store's.
    #[inline]
    pub fn retire(&self, guard: &Guard<'_>, blob: BlobRef) {
        let same = std::ptr::eq(guard.reclaimer(), &*self.reclaimer);
        assert!(same, "the guard is of another reclaimer");
        let Some(held) = self.shared.disown(blob) else { return };
        let bytes = match held {
            Held::Block { class, .. } => self.shared.classes.size(class) as usize,
            Held::Run { .. } => usize::MAX,
        };
        // SAFETY: `open` had this reclaimer keep `shared`.
        let waiting = unsafe { guard.retire_word(&*self.shared, held.word(), bytes) };
        // Neither much memory nor much of a small store waits until the reclaimer's batch is full.
        if waiting > MOST_WAITING_BYTES.min((self.shared.blobs.len() / 64) as usize) {
            guard.flush();
        }
    }

    /// Returns the store's space figures in constant time.
    #[must_use]
    pub fn stats(&self) -> BlobStats {
        let shared = &self.shared;
        let chunk_bytes = u64::from(shared.params.chunk_bytes);
        let free = {
            let space = lock(&shared.space);
            space.runs.chunks() + (space.end - space.fresh)
        };
        // Relaxed: statistics.
        let unscanned = shared.unscanned.load(Relaxed);
        BlobStats {
            region_bytes: shared.blobs.len() + shared.map.len(),
            used_bytes: shared.used_bytes.sum().max(0) as u64,
            unscanned_bytes: u64::from(unscanned) * chunk_bytes,
            free_bytes: u64::from(free) * chunk_bytes,
        }
    }

    /// Returns the number of bytes in blocks that slots refer to, as far as the store has examined them. Unscanned
    /// chunks count in full, unless the map marks them free.
    pub fn bytes_in_use<M: Medium>(&self, storage: &M) -> u64 {
        let stats = self.stats();
        if stats.unscanned_bytes == 0 {
            return stats.used_bytes;
        }
        stats.used_bytes
            + self.shared.unscanned_in_use(storage) * u64::from(self.shared.params.chunk_bytes)
    }

    #[inline]
    fn header(&self, offset: u64) -> Option<&Header> {
        self.shared.blobs.at(offset)
    }

    #[inline]
    fn resolve(&self, blob: BlobRef) -> Result<(u64, &Header)> {
        let offset = blob.offset().unwrap_or(u64::MAX);
        let header = self.header(offset).ok_or_else(|| {
            self.shared.fault(offset, "a blob reference leads outside the region")
        })?;
        Ok((offset, header))
    }
}

const MAP_PAGE_BYTES: u64 = 4096;
