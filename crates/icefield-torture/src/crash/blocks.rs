//! A crash test machine that mainly allocates. It reaches states of the block allocator that are rare in a table's
//! history: several claims at once and long free lists.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use icefield::storage::alloc::{Allocator, Blocks, Words};
use icefield::storage::cell::Overlay;
use icefield::storage::sim::Sim;
use icefield::storage::{Cell64, LINE_BYTES, Medium, Persist, Region, Regions};
use icefield::{Error, Result};

use super::map::{Entry, Frame, Map, Store, damaged};

/// A map that stores each value in a separate block. The word of an entry is the block number plus one.
pub(super) type BlockMap = Map<OwnBlocks>;

const INTENTS_IN_LINE: usize = LINE_BYTES / size_of::<Cell64>();

/// A block of the allocator. While the block is on the free list, `next` is valid; otherwise `value` is.
#[repr(C, align(64))]
struct Block {
    next: Cell64,
    value: Cell64,
    _reserved: [Cell64; 6],
}

// SAFETY: `repr(C)`, cells only.
unsafe impl Overlay for Block {}

#[derive(Debug)]
pub(super) struct OwnBlocks {
    blocks: Region,
    allocator: Allocator,
}

struct Shelf<'a>(&'a OwnBlocks, &'a Sim);

impl Blocks for Shelf<'_> {
    fn find(&self, block: u32) -> Result<()> {
        self.0.block(block).map(drop)
    }

    fn next(&self, block: u32) -> Result<u64> {
        Ok(self.0.block(block)?.next.load(self.1, Acquire))
    }

    fn set_next(&self, block: u32, next: u64) -> Result<()> {
        let block = self.0.block(block)?;
        block.next.store(self.1, next, Release);
        self.1.flush_object(&block.next);
        Ok(())
    }

    fn reserve(&self, count: u64) -> Result<()> {
        self.1.grow(&self.0.blocks, count * size_of::<Block>() as u64)
    }
}

fn words(frame: &Frame) -> Result<&Words> {
    frame.at(Frame::FREE_OFFSET)
}

fn owned(frame: &Frame) -> Result<Vec<u32>> {
    Ok(frame.live()?.into_iter().map(|(_, word)| (word - 1) as u32).collect())
}

impl OwnBlocks {
    fn block(&self, block: u32) -> Result<&Block> {
        let offset = u64::from(block) * size_of::<Block>() as u64;
        self.blocks.at(offset).ok_or_else(|| damaged(&self.blocks))
    }
}

impl Store for OwnBlocks {
    const NAME: &'static str = "block-allocator";

    fn map(storage: &Sim) -> Result<Self> {
        Ok(Self { blocks: storage.region("blocks", 1 << 16)?, allocator: Allocator::new(0) })
    }

    fn recover(&self, frame: &Frame) -> Result<()> {
        let (storage, owned) = (&frame.storage, owned(frame)?);
        let is_owned = |block, _| Ok(owned.contains(&block));
        self.allocator.recover(storage, words(frame)?, &Shelf(self, storage), is_owned)?;
        storage.fence();
        Ok(())
    }

    fn read(&self, frame: &Frame, word: u64) -> Result<u64> {
        Ok(self.block((word - 1) as u32)?.value.load(&frame.storage, Acquire))
    }

    /// Stores the value in a block that is claimed between other claims, which are abandoned afterwards.
    fn put(&self, frame: &Frame, _key: u64, entry: &Entry, value: u64) -> Result<()> {
        let (storage, words, shelf) = (&frame.storage, words(frame)?, Shelf(self, &frame.storage));
        let before = self.allocator.claim(storage, words, &shelf, 0)?;
        let claim = self.allocator.claim(storage, words, &shelf, 0)?;
        // Every fourth value makes more claims than one line has intents, so that some intents are in another line and
        // do not become durable together with the first ones.
        let crowd = if value.is_multiple_of(4) { INTENTS_IN_LINE } else { 1 };
        let mut after = Vec::new();
        while after.len() < crowd {
            let tags = vec![0; crowd - after.len()];
            after.extend(self.allocator.claim_some(storage, words, &shelf, &tags)?);
        }
        let block = self.block(claim.block)?;
        block.value.store(storage, value, Release);
        storage.persist(&block.value);
        let link = || {
            entry.word.store(storage, u64::from(claim.block) + 1, Release);
            storage.persist(&entry.word);
            Ok(())
        };
        match entry.word.load(storage, Relaxed) {
            0 => link()?,
            old => self.allocator.free(storage, words, &shelf, ((old - 1) as u32, 0), link)?,
        }
        // Another thread ends the claims and does not fence afterwards. The announcement of the allocator's next change
        // must make the end of these claims durable (A3).
        let end = || {
            self.allocator.commit(storage, words, &[claim]);
            self.allocator.abandon(storage, words, &shelf, before)?;
            after
                .into_iter()
                .try_for_each(|claim| self.allocator.abandon(storage, words, &shelf, claim))
        };
        std::thread::scope(|scope| scope.spawn(end).join())
            .map_err(|_| Error::Unsupported("the other thread panicked".into()))?
    }

    fn remove(&self, frame: &Frame, entry: &Entry) -> Result<()> {
        let storage = &frame.storage;
        let block = entry.word.load(storage, Relaxed);
        let unlink = || {
            entry.word.store(storage, 0, Release);
            storage.persist(&entry.word);
            Ok(())
        };
        let shelf = Shelf(self, storage);
        self.allocator.free(storage, words(frame)?, &shelf, ((block - 1) as u32, 0), unlink)
    }

    /// Checks that every block has exactly one owner: an entry or the free list.
    fn faults(&self, frame: &Frame) -> Result<Vec<String>> {
        let (storage, words) = (&frame.storage, words(frame)?);
        let mut owners = vec![0; self.allocator.used(storage, words) as usize];
        let free = self.allocator.free_blocks(storage, words, &Shelf(self, storage))?;
        for block in owned(frame)?.into_iter().chain(free) {
            match owners.get_mut(block as usize) {
                Some(owners) => *owners += 1,
                None => return Ok(vec![format!("block {block} was never allocated")]),
            }
        }
        let wrong = owners.iter().enumerate().filter(|&(_, &owners)| owners != 1);
        Ok(wrong.map(|(block, owners)| format!("block {block} has {owners} owners")).collect())
    }
}
