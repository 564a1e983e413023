//! The state that DRAM holds of each chunk: which blocks are owned and which are free.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::base::group::prefetch::prefetch_write;
use crate::storage::mutex::lock;

/// A chunk of equal blocks. A block is *owned* (allocated in this session, or found live by the scan), or *free*, or
/// neither: not examined yet, waiting for readers to leave, or a spare of a stripe. Only owned blocks can be discarded
/// or retired.
#[derive(Debug)]
pub(super) struct SmallChunk {
    /// For each 64 blocks, a word with a bit for each owned block, then one with a bit for each free block: freeing and
    /// allocating a block change the same line.
    words: Box<[[u64; 2]]>,
    class: u32,
    blocks: u32,
    owned: u32,
    free: u32,
    /// No pair of `words` before this one has a free block.
    low: u32,
    /// The number of stripes that allocate from the chunk.
    pub users: u16,
    /// The chunk is on its class's list of chunks with room.
    pub listed: bool,
    /// The chunk is being emptied: no block is handed out.
    pub closed: bool,
}

const OWNED: usize = 0;
const FREE: usize = 1;

impl SmallChunk {
    /// Returns a chunk whose blocks are all unexamined.
    pub fn unexamined(class: usize, blocks: u32) -> Self {
        let words = vec![[0; 2]; blocks.div_ceil(64) as usize].into_boxed_slice();
        Self {
            low: words.len() as u32,
            words,
            class: class as u32,
            blocks,
            owned: 0,
            free: 0,
            users: 0,
            listed: false,
            closed: false,
        }
    }

    /// Returns a chunk whose blocks are all free.
    pub fn vacant(class: usize, blocks: u32) -> Self {
        let mut chunk = Self::unexamined(class, blocks);
        for (pair, first) in chunk.words.iter_mut().zip((0..blocks).step_by(64)) {
            pair[FREE] = u64::MAX >> (64 - (blocks - first).min(64));
        }
        Self { free: blocks, low: 0, ..chunk }
    }

    /// Returns the class of the blocks.
    #[inline]
    pub fn class(&self) -> usize {
        self.class as usize
    }

    /// Returns the number of owned blocks.
    pub fn owned_count(&self) -> u32 {
        self.owned
    }

    /// Returns the number of free blocks.
    pub fn free_count(&self) -> u32 {
        self.free
    }

    /// Records that a block has an owner, which it had not before.
    #[inline]
    pub fn own(&mut self, block: u32) {
        let new = self.set(OWNED, block);
        debug_assert!(new, "a block has one owner");
        self.owned += u32::from(new);
    }

    /// Takes a block from its owner. Returns `false` if it has none.
    #[inline]
    pub fn disown(&mut self, block: u32) -> bool {
        let Some(pair) = self.words.get_mut(block as usize / 64) else { return false };
        let bit = 1 << (block % 64);
        let had = pair[OWNED] & bit != 0;
        pair[OWNED] &= !bit;
        self.owned -= u32::from(had);
        had
    }

    /// Records that a block without an owner is free, which it was not before.
    #[inline]
    pub fn free(&mut self, block: u32) {
        let new = self.set(FREE, block);
        debug_assert!(new, "a block is freed once");
        self.free += u32::from(new);
        self.low = self.low.min(block / 64);
    }

    /// Sets a block's bit; returns whether it was not set before.
    #[inline]
    fn set(&mut self, which: usize, block: u32) -> bool {
        let word = &mut self.words[block as usize / 64][which];
        let bit = 1 << (block % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Allocates the lowest free block. Returns `None` if the chunk is closed or has no free block.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        if self.closed {
            return None;
        }
        while let Some(pair) = self.words.get_mut(self.low as usize) {
            if pair[FREE] != 0 {
                let block = self.low * 64 + pair[FREE].trailing_zeros();
                pair[FREE] &= pair[FREE] - 1;
                self.free -= 1;
                self.own(block);
                return Some(block);
            }
            self.low += 1;
        }
        None
    }

    /// Returns the owned blocks in ascending order.
    pub fn owned(&self) -> impl Iterator<Item = u32> + '_ {
        self.with(OWNED)
    }

    /// Returns the free blocks in ascending order.
    pub fn free_blocks(&self) -> impl Iterator<Item = u32> + '_ {
        self.with(FREE)
    }

    fn with(&self, which: usize) -> impl Iterator<Item = u32> + '_ {
        (0..self.blocks)
            .filter(move |&block| self.words[block as usize / 64][which] >> (block % 64) & 1 == 1)
    }

    /// Returns whether all blocks are free: none is owned, unexamined, spare, or waiting for readers.
    pub fn is_vacant(&self) -> bool {
        self.free == self.blocks
    }
}

/// The state of one chunk.
#[derive(Debug, Default)]
pub(super) enum Chunk {
    /// Not scanned yet, or never used.
    #[default]
    Unscanned,
    /// No block begins here: the chunk is free, about to be used, or inside a large run. It was scanned or first used
    /// in this session.
    Vacant,
    Small(SmallChunk),
    /// The first chunk of a run that holds one blob.
    Large {
        chunks: u32,
        /// The block was allocated in this session, or found live by the scan.
        owned: bool,
    },
}

const LEAF_BITS: u32 = 10;
const MIDDLE_BITS: u32 = 11;
const TOP_BITS: u32 = 32 - MIDDLE_BITS - LEAF_BITS;

/// The state of one chunk. It fills one line.
#[derive(Default)]
#[repr(align(64))]
struct Place {
    chunk: Mutex<Chunk>,
    /// Where the words of a small chunk begin, or began: for prefetches only.
    words: AtomicPtr<[u64; 2]>,
}

const _: () = assert!(size_of::<Place>() == 64);

type Leaf = Box<[Place]>;
type Middle = Box<[OnceLock<Leaf>]>;

/// The state of every chunk by its number: a tree of three levels whose parts are allocated on first use, so that
/// opening a store costs the same for any size.
pub(super) struct ChunkTable {
    top: Box<[OnceLock<Middle>]>,
}

impl ChunkTable {
    /// Returns a table in which every chunk is [`Chunk::Unscanned`]; allocates only the top of the tree.
    pub fn new() -> Self {
        Self { top: blank(TOP_BITS) }
    }

    /// Returns the state of chunk `number`.
    pub fn get(&self, number: u32) -> &Mutex<Chunk> {
        &self.place(number).chunk
    }

    fn place(&self, number: u32) -> &Place {
        let (top, middle, leaf) = split(number);
        let middle = &self.top[top].get_or_init(|| blank(MIDDLE_BITS))[middle];
        &middle.get_or_init(|| blank(LEAF_BITS))[leaf]
    }

    /// Returns the state of chunk `number`; `None` when its leaf of the tree has not been allocated.
    pub fn peek(&self, number: u32) -> Option<&Mutex<Chunk>> {
        self.peek_place(number).map(|place| &place.chunk)
    }

    #[inline]
    fn peek_place(&self, number: u32) -> Option<&Place> {
        let (top, middle, leaf) = split(number);
        Some(&self.top[top].get()?[middle].get()?[leaf])
    }

    /// Makes chunk `number` a small one.
    pub fn set_small(&self, number: u32, mut small: SmallChunk) {
        let place = self.place(number);
        // Relaxed: a hint.
        place.words.store(small.words.as_mut_ptr(), Ordering::Relaxed);
        *lock(&place.chunk) = Chunk::Small(small);
    }

    /// Prefetches, for writing, the state of a block of a small chunk.
    #[inline]
    pub fn prefetch(&self, number: u32, block: u32) {
        let Some(place) = self.peek_place(number) else { return };
        prefetch_write(place);
        // Relaxed: a hint.
        let words = place.words.load(Ordering::Relaxed);
        prefetch_write(words.wrapping_add(block as usize / 64));
    }
}

fn blank<T: Default>(bits: u32) -> Box<[T]> {
    (0..1_u32 << bits).map(|_| T::default()).collect()
}

fn split(number: u32) -> (usize, usize, usize) {
    let leaf = number & ((1 << LEAF_BITS) - 1);
    let middle = number >> LEAF_BITS & ((1 << MIDDLE_BITS) - 1);
    ((number >> (LEAF_BITS + MIDDLE_BITS)) as usize, middle as usize, leaf as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_owned_or_free_or_neither() {
        let mut chunk = SmallChunk::vacant(3, 130);
        assert!(chunk.is_vacant() && chunk.free_blocks().eq(0..130));
        assert_eq!((chunk.take(), chunk.take()), (Some(0), Some(1)));
        assert_eq!((chunk.owned_count(), chunk.free_count()), (2, 128));
        assert!(!chunk.disown(129) && !chunk.disown(500));
        assert!(chunk.disown(0) && !chunk.disown(0));
        assert_eq!((chunk.owned_count(), chunk.free_count()), (1, 128), "block 0 is neither");
        assert_eq!(chunk.take(), Some(2));
        chunk.free(0);
        assert_eq!(chunk.take(), Some(0));
        for expected in 3..130 {
            assert_eq!(chunk.take(), Some(expected));
        }
        assert_eq!((chunk.take(), chunk.free_count()), (None, 0));
        assert!(chunk.owned().eq(0..130));
        assert!((0..130).all(|block| chunk.disown(block)));
        (0..130).rev().for_each(|block| chunk.free(block));
        assert!(chunk.is_vacant() && chunk.owned_count() == 0);
        chunk.closed = true;
        assert_eq!(chunk.take(), None);
    }

    #[test]
    fn unexamined_blocks_are_neither() {
        for blocks in [2, 63, 64, 65, 512] {
            let mut chunk = SmallChunk::unexamined(0, blocks);
            assert_eq!((chunk.take(), chunk.owned().count()), (None, 0));
            chunk.own(blocks - 1);
            chunk.free(0);
            assert_eq!((chunk.take(), chunk.take()), (Some(0), None));
            assert_eq!(SmallChunk::vacant(0, blocks).free_blocks().count(), blocks as usize);
        }
    }

    #[test]
    fn chunks_keep_their_places() {
        let table = ChunkTable::new();
        for number in [0, 1, 1023, 1024, 1 << 21, u32::MAX] {
            assert!(number < 1024 && number > 0 || table.peek(number).is_none());
            *table.get(number).lock().unwrap() = Chunk::Large { chunks: number, owned: true };
        }
        for number in [0, 1, 1023, 1024, 1 << 21, u32::MAX] {
            let chunk = table.peek(number).unwrap().lock().unwrap();
            assert!(matches!(*chunk, Chunk::Large { chunks, .. } if chunks == number));
        }
    }
}
