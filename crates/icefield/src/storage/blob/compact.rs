//! Compaction: moves small blobs together, so that the space of sparsely used chunks goes back to the file system.
//!
//! A chunk of small blocks is given back when its last block is free. After many removals, many chunks hold a few
//! blocks each. [`BlobStore::compact`] empties the emptiest chunks of each class into the fullest, until every class
//! has only as many chunks as its blobs need. A run of chunks holds one blob and is never moved.
//!
//! A move writes a copy of the blob, which is durable (P3) before the table makes the slot refer to it. The table
//! changes the slot under the locks of the key ([`Owner::relink`]), and the change is durable before the old block is
//! retired. After any crash the slot refers to one of two equal blocks, and the other block is free.
//!
//! - The copy is complete: a block is copied after the table has found a slot that refers to it. From then on the
//!   block does not change, for two reasons: the guard was pinned earlier, and a chunk that is being emptied allocates
//!   no blocks.
//! - The copy is the present content: the table changes the slot only if it still refers to the block. The block
//!   cannot have been reused meanwhile, for the same two reasons.
//! - A damaged block is not moved: its copy would get a valid checksum.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::BlobStore;
use super::block::BlobRef;
use super::chunk::{Chunk, SmallChunk};
use super::class::Extent;
use super::owner::Owner;
use super::shared::Shared;
use crate::Result;
use crate::storage::Medium;
use crate::storage::mutex::lock;

/// The largest number of blobs that are copied between two fences.
const MOVED_TOGETHER: usize = 64;

/// A copy that no slot refers to yet.
struct Copied {
    owner: u64,
    blob: BlobRef,
    copy: BlobRef,
}

impl BlobStore {
    /// Moves the blobs of each class into as few chunks as they need, and gives the space of the other chunks back.
    /// Reads and writes continue meanwhile. If readers still reference a block when the call ends, a later call gives
    /// its chunk back. The caller must not hold a lock of the table.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`] when a fence failed; errors of the table.
    pub fn compact<M: Medium>(&self, storage: &M, table: &impl Owner) -> Result<()> {
        let _alone = lock(&self.compacting);
        self.make_room(storage, table)?;
        self.wait_for_readers(storage);
        self.shared.free_spares();
        for (class, mut chunks) in self.shared.small_chunks().into_iter().enumerate() {
            let owned: u64 = chunks.iter().map(|&(owned, _)| u64::from(owned)).sum();
            let needed = owned.div_ceil(self.shared.classes.blocks(class).into()) as usize;
            // The emptiest chunks are emptied; the fullest are the targets.
            chunks.sort_unstable();
            let full = chunks.split_off(chunks.len().saturating_sub(needed));
            let mut targets: Vec<u32> = full.into_iter().map(|(_, number)| number).collect();
            for (_, number) in chunks {
                self.empty(storage, table, number, class, &mut targets)?;
            }
        }
        self.wait_for_readers(storage);
        self.shared.free_spares();
        self.shared.settle_ripe(storage)?;
        self.shared.punch_free(storage);
        Ok(())
    }

    /// Moves the blobs of a chunk to the last chunk of `targets` that has room. If some blobs remain, allocation from
    /// the chunk is allowed again.
    fn empty<M: Medium>(
        &self,
        storage: &M,
        table: &impl Owner,
        number: u32,
        class: usize,
        targets: &mut Vec<u32>,
    ) -> Result<()> {
        self.shared.close(number, class);
        let mut next = Some(0);
        let mut moved = Ok(());
        while let Some(from) = next
            && moved.is_ok()
        {
            moved =
                self.move_some(storage, table, (number, class, from), targets).map(|to| next = to);
        }
        self.shared.reopen(number, class);
        moved
    }

    /// Moves some blobs of a chunk, starting at block `from`. Returns the block to continue with.
    fn move_some<M: Medium>(
        &self,
        storage: &M,
        table: &impl Owner,
        (number, class, from): (u32, usize, u32),
        targets: &mut Vec<u32>,
    ) -> Result<Option<u32>> {
        // Pinned before the owned blocks are listed, so that their contents do not change until the guard is dropped.
        let guard = self.reclaimer.pin();
        let blocks = self.shared.owned_blocks(number, class, from);
        let next = blocks.get(MOVED_TOGETHER - 1).map(|block| block + 1);
        let mut copies = Vec::with_capacity(blocks.len());
        let mut result = Ok(next);
        for block in blocks {
            let blob = BlobRef::at(self.shared.block_offset(number, class, block));
            match self.copy(storage, table, blob, class, targets) {
                Ok(copied) => copies.extend(copied),
                Err(error) => result = Err(error),
            }
        }
        // P3: this fence makes the copies durable before slots refer to them.
        storage.fence();
        let durable = storage.check_writable();
        for Copied { owner, blob, copy } in copies {
            let linked = match (&durable, &result) {
                (Ok(()), Ok(_)) => table.relink(owner, blob, copy),
                _ => Ok(false),
            };
            match linked {
                Ok(true) => self.retire(&guard, blob),
                Ok(false) => self.discard(copy),
                // After a crash the slot may refer to either block, so neither is freed.
                Err(error) => result = Err(error),
            }
        }
        durable.and(result)
    }

    /// Copies a blob into one of `targets` and flushes the copy. Returns `None` if no slot refers to the blob, if the
    /// blob is damaged, or if no target has room.
    fn copy<M: Medium>(
        &self,
        storage: &M,
        table: &impl Owner,
        blob: BlobRef,
        class: usize,
        targets: &mut Vec<u32>,
    ) -> Result<Option<Copied>> {
        // Read without validation: the block may not be linked to a slot yet. Only linked blocks are copied.
        let owner = storage.read_unvalidated(|| self.owner_of(storage, blob))?;
        let mut is_linked = false;
        table.is_live(owner, blob, &mut |live| is_linked = live);
        if !is_linked {
            return Ok(None);
        }
        let Ok(content) = self.verify(storage, owner, blob) else { return Ok(None) };
        if self.shared.classes.extent(content.len()) != Extent::Small(class) {
            return Ok(None);
        }
        let Some(offset) = self.shared.take_from(class, targets) else { return Ok(None) };
        Ok(Some(Copied { owner, blob, copy: self.fill(storage, offset, owner, &content)? }))
    }

    /// Waits, for a bounded time, until all present readers and writers have left.
    fn wait_for_readers<M: Medium>(&self, storage: &M) {
        let gone = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&gone);
        // Relaxed, both: no other data depends on the flag; it only ends the wait.
        self.after_readers(move |_| told.store(true, Ordering::Relaxed));
        let mut rounds = 0;
        storage.sim_yield_point();
        while !gone.load(Ordering::Relaxed) && storage.wait_patiently(rounds) {
            storage.sim_yield_point();
            rounds += 1;
        }
    }
}

impl Shared {
    /// Returns the small chunks of each class, each with the number of its owned blocks.
    fn small_chunks(&self) -> Vec<Vec<(u32, u32)>> {
        let mut chunks = vec![Vec::new(); self.classes.count()];
        let fresh = lock(&self.space).fresh;
        for number in 0..fresh {
            let Some(chunk) = self.chunks.peek(number) else { continue };
            if let Chunk::Small(small) = &*lock(chunk) {
                chunks[small.class()].push((small.owned_count(), number));
            }
        }
        chunks
    }

    /// Returns up to `MOVED_TOGETHER` owned blocks of a chunk, from block `from` on; none unless the chunk is still
    /// being emptied.
    fn owned_blocks(&self, number: u32, class: usize, from: u32) -> Vec<u32> {
        match &*lock(self.chunks.get(number)) {
            Chunk::Small(small) if small.class() == class && small.closed => {
                let owned = small.owned().filter(|&block| block >= from);
                owned.take(MOVED_TOGETHER).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Stops allocation from a chunk.
    fn close(&self, number: u32, class: usize) {
        let closed = self.pools[class].detach(number);
        self.change_small(number, class, |small| {
            small.closed = true;
            small.users -= closed;
        });
    }

    /// Allows allocation again from a chunk that still has owned blocks. A chunk without owned blocks becomes vacant
    /// when readers have left.
    fn reopen(&self, number: u32, class: usize) {
        self.change_small(number, class, |small| small.closed = small.owned_count() == 0);
    }

    fn change_small(&self, number: u32, class: usize, change: impl FnOnce(&mut SmallChunk)) {
        self.after_change(number, |small| {
            if small.class() == class {
                change(small);
            }
        });
    }

    /// Allocates a block in the last of `chunks` that has a free one. Removes chunks without free blocks from the list.
    fn take_from(&self, class: usize, chunks: &mut Vec<u32>) -> Option<u64> {
        while let Some(&number) = chunks.last() {
            if let Some(offset) = self.take_of(number, class) {
                self.used_bytes.add(self.extent_bytes(Extent::Small(class)) as i64);
                return Some(offset);
            }
            chunks.pop();
        }
        None
    }

    /// Gives the pages of all free chunks back to the file system.
    fn punch_free<M: Medium>(&self, storage: &M) {
        // The lock is held so that no chunk is taken meanwhile. A thread that takes a chunk later reserves its space
        // again.
        let space = lock(&self.space);
        let chunk_bytes = u64::from(self.params.chunk_bytes);
        let unused = (space.fresh, space.end - space.fresh);
        for (start, chunks) in space.runs.iter().chain([unused]) {
            // A file system that cannot punch holes keeps the pages; the run is free either way.
            drop(storage.punch(
                &self.blobs,
                u64::from(start) * chunk_bytes,
                u64::from(chunks) * chunk_bytes,
            ));
        }
    }
}
