//! A machine that does little but allocate: it reaches states of the block allocator that a table's history meets too
//! rarely, several claims at once and long free lists.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use icefield::pm::alloc::{Allocator, Blocks, Words};
use icefield::pm::cell::Overlay;
use icefield::pm::sim::Sim;
use icefield::pm::{Cell64, LINE_BYTES, Medium, Region};
use icefield::{Error, Result};

use super::machine::Machine;
use crate::call::{Call, Reply};

const ENTRIES: usize = 32;
const INTENTS_IN_LINE: usize = LINE_BYTES / size_of::<Cell64>();

#[repr(C)]
struct Root {
    made: Cell64,
    _reserved: [Cell64; 7],
    words: Words,
    entries: [Entry; ENTRIES],
}

/// A key, plus one, and its block, plus one.
#[repr(C)]
struct Entry {
    key: Cell64,
    block: Cell64,
}

/// What the allocator hands out: on the free list `next` counts, else `value`.
#[repr(C, align(64))]
struct Block {
    next: Cell64,
    value: Cell64,
    _reserved: [Cell64; 6],
}

// SAFETY: `repr(C)`, cells only.
unsafe impl Overlay for Entry {}
// SAFETY: `repr(C)`, cells and overlays only.
unsafe impl Overlay for Root {}
// SAFETY: `repr(C)`, cells only.
unsafe impl Overlay for Block {}

/// A map whose every value has a block of its own.
#[derive(Debug)]
pub(super) struct BlockMap {
    pm: Sim,
    root: Region,
    blocks: Region,
    allocator: Allocator,
    lock: Mutex<()>,
}

struct Shelf<'a>(&'a BlockMap);

impl Blocks for Shelf<'_> {
    fn next(&self, block: u32) -> Result<u64> {
        Ok(self.0.block(block)?.next.load(&self.0.pm, Acquire))
    }

    fn set_next(&self, block: u32, next: u64) -> Result<()> {
        let block = self.0.block(block)?;
        block.next.store(&self.0.pm, next, Release);
        self.0.pm.persist(&block.next);
        Ok(())
    }

    fn reserve(&self, count: u64) -> Result<()> {
        self.0.pm.grow(&self.0.blocks, count * size_of::<Block>() as u64)
    }
}

fn damaged(region: &Region) -> Error {
    Error::Unsupported(format!("{} is too short", region.name()))
}

impl BlockMap {
    fn map(pm: Sim) -> Result<Self> {
        let root = pm.region("root", 4096)?;
        let blocks = pm.region("blocks", 1 << 16)?;
        Ok(Self { root, blocks, allocator: Allocator::new(0), lock: Mutex::new(()), pm })
    }

    fn root(&self) -> Result<&Root> {
        self.root.at(0).ok_or_else(|| damaged(&self.root))
    }

    fn block(&self, block: u32) -> Result<&Block> {
        let offset = u64::from(block) * size_of::<Block>() as u64;
        self.blocks.at(offset).ok_or_else(|| damaged(&self.blocks))
    }

    fn owned(&self) -> Result<Vec<u32>> {
        let entries = self.root()?.entries.iter();
        let blocks = entries.map(|entry| entry.block.load(&self.pm, Acquire));
        Ok(blocks.filter(|&block| block != 0).map(|block| (block - 1) as u32).collect())
    }

    fn entry(&self, key: u64) -> Result<Option<&Entry>> {
        Ok(self.root()?.entries.iter().find(|entry| entry.key.load(&self.pm, Acquire) == key + 1))
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        match self.entry(key)?.map(|entry| entry.block.load(&self.pm, Acquire)) {
            None | Some(0) => Ok(None),
            Some(block) => Ok(Some(self.block((block - 1) as u32)?.value.load(&self.pm, Acquire))),
        }
    }

    /// Puts a value into a block of its own, among claims that come to nothing, in place of the former one.
    fn put(&self, key: u64, value: u64) -> Result<()> {
        let (pm, words, shelf) = (&self.pm, &self.root()?.words, Shelf(self));
        let entry = match self.entry(key)? {
            Some(entry) => entry,
            None => {
                let mut free = self.root()?.entries.iter();
                let free =
                    free.find(|entry| entry.key.load(pm, Relaxed) == 0).ok_or(Error::Full)?;
                free.key.store(pm, key + 1, Release);
                pm.persist(&free.key);
                free
            }
        };
        let before = self.allocator.claim(pm, words, &shelf, 0)?;
        let claim = self.allocator.claim(pm, words, &shelf, 0)?;
        // Now and then more claims than one line has intents: an old intent in another line than the next ones does not
        // become durable along with them.
        let crowd = if value.is_multiple_of(4) { INTENTS_IN_LINE } else { 1 };
        let after = (0..crowd).map(|_| self.allocator.claim(pm, words, &shelf, 0));
        let after = after.collect::<Result<Vec<_>>>()?;
        let block = self.block(claim.block)?;
        block.value.store(pm, value, Release);
        pm.persist(&block.value);
        let link = || {
            entry.block.store(pm, u64::from(claim.block) + 1, Release);
            pm.persist(&entry.block);
            Ok(())
        };
        match entry.block.load(pm, Relaxed) {
            0 => link()?,
            old => self.allocator.free(pm, words, &shelf, ((old - 1) as u32, 0), link)?,
        }
        // On another thread, which fences nothing afterwards: ending a claim must be durable at once.
        let end = || {
            self.allocator.commit(pm, words, claim);
            self.allocator.abandon(pm, words, &shelf, before)?;
            after.into_iter().try_for_each(|claim| self.allocator.abandon(pm, words, &shelf, claim))
        };
        std::thread::scope(|scope| scope.spawn(end).join())
            .map_err(|_| Error::Unsupported("the other thread panicked".into()))??;
        Ok(())
    }

    fn remove(&self, key: u64) -> Result<()> {
        let (pm, words) = (&self.pm, &self.root()?.words);
        let Some(entry) = self.entry(key)? else { return Ok(()) };
        let block = entry.block.load(pm, Relaxed);
        self.allocator.free(pm, words, &Shelf(self), ((block - 1) as u32, 0), || {
            entry.block.store(pm, 0, Release);
            pm.persist(&entry.block);
            Ok(())
        })
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine for BlockMap {
    const NAME: &'static str = "block-allocator";
    const SIMPLE: bool = true;

    fn create(sim: Sim, _variant: u64) -> Result<Self> {
        let map = Self::map(sim)?;
        map.pm.grow(&map.root, 4096)?;
        map.root()?.made.store(&map.pm, 1, Release);
        map.pm.persist(&map.root()?.made);
        map.pm.publish_created()?;
        Ok(map)
    }

    fn open(sim: Sim) -> Result<Self> {
        let map = Self::map(sim)?;
        let made = map.root.at::<Root>(0).map_or(0, |root| root.made.load(&map.pm, Acquire));
        if made == 0 {
            return Err(Error::NotFound { path: map.pm.path().into() });
        }
        let owned = map.owned()?;
        map.allocator.recover(&map.pm, &map.root()?.words, &Shelf(&map), |block, _| {
            Ok(owned.contains(&block))
        })?;
        map.pm.fence();
        Ok(map)
    }

    fn ask(&self, call: Call) -> Result<Reply> {
        let _guard = self.lock();
        let value = self.get(call.key)?;
        let (after, reply) = call.action.step(value);
        match after {
            _ if after == value => {}
            Some(after) => self.put(call.key, after)?,
            None => self.remove(call.key)?,
        }
        Ok(reply)
    }

    fn records(&self) -> Result<Vec<(u64, u64)>> {
        let keys = self.root()?.entries.iter().map(|entry| entry.key.load(&self.pm, Acquire));
        let present = keys.filter(|&key| key != 0).map(|key| Ok((key - 1, self.get(key - 1)?)));
        let records: Result<Vec<_>> = present.collect();
        Ok(records?.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
    }

    /// Every block has one owner: an entry or the free list.
    fn faults(&self) -> Result<Vec<String>> {
        let words = &self.root()?.words;
        let mut owners = vec![0; self.allocator.used(&self.pm, words) as usize];
        for block in self.owned()?.into_iter().chain(self.allocator.free_blocks(
            &self.pm,
            words,
            &Shelf(self),
        )?) {
            match owners.get_mut(block as usize) {
                Some(owners) => *owners += 1,
                None => return Ok(vec![format!("block {block} was never handed out")]),
            }
        }
        let wrong = owners.iter().enumerate().filter(|&(_, &owners)| owners != 1);
        Ok(wrong.map(|(block, owners)| format!("block {block} has {owners} owners")).collect())
    }
}
