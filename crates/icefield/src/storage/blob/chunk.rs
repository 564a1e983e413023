//! The state that DRAM holds of each chunk: which blocks are owned and which are free.

use std::sync::{Mutex, OnceLock};

/// A set of block numbers. `low` shortens the search for the lowest member.
#[derive(Debug)]
pub(super) struct Bitmap {
    words: Box<[u64]>,
    /// All members are below this number.
    bound: u32,
    members: u32,
    /// No word before this one has a member.
    low: usize,
}

impl Bitmap {
    /// Returns the empty set of numbers below `bound`.
    pub fn empty(bound: u32) -> Self {
        let words = vec![0; bound.div_ceil(64) as usize].into_boxed_slice();
        Self { low: words.len(), words, bound, members: 0 }
    }

    /// Returns the set of all numbers below `bound`.
    pub fn full(bound: u32) -> Self {
        let mut set = Self::empty(bound);
        for number in 0..bound {
            set.insert(number);
        }
        set
    }

    /// Returns the number of members.
    #[inline]
    pub fn len(&self) -> u32 {
        self.members
    }

    /// Returns the bound, which is above every member.
    pub fn bound(&self) -> u32 {
        self.bound
    }

    /// Returns whether `number` is a member.
    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Adds `number`; returns whether it was missing.
    #[inline]
    pub fn insert(&mut self, number: u32) -> bool {
        let index = number as usize / 64;
        let bit = 1 << (number % 64);
        let new = self.words[index] & bit == 0;
        self.words[index] |= bit;
        self.members += u32::from(new);
        self.low = self.low.min(index);
        new
    }

    /// Removes `number`; returns whether it was present.
    #[inline]
    pub fn remove(&mut self, number: u32) -> bool {
        if !self.contains(number) {
            return false;
        }
        self.words[number as usize / 64] &= !(1 << (number % 64));
        self.members -= 1;
        true
    }

    /// Removes and returns the lowest member.
    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        while let Some(&word) = self.words.get(self.low) {
            if word != 0 {
                self.words[self.low] = word & (word - 1);
                self.members -= 1;
                return Some(self.low as u32 * 64 + word.trailing_zeros());
            }
            self.low += 1;
        }
        None
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.bound).filter(|&number| self.contains(number))
    }
}

/// A chunk of equal blocks. A block is *owned* (allocated in this session, or found live by the scan), or *free*, or
/// neither: not examined yet, or waiting for readers to leave. Only owned blocks can be discarded or retired.
#[derive(Debug)]
pub(super) struct SmallChunk {
    pub class: usize,
    pub blocks: u32,
    pub owned: Bitmap,
    pub free: Bitmap,
    /// The number of stripes that allocate from the chunk.
    pub users: u32,
    /// The chunk is on its class's list of chunks with room.
    pub listed: bool,
    /// The chunk is being emptied: no block is handed out.
    pub closed: bool,
}

impl SmallChunk {
    /// Returns a chunk whose blocks are all unexamined.
    pub fn unexamined(class: usize, blocks: u32) -> Self {
        Self {
            class,
            blocks,
            owned: Bitmap::empty(blocks),
            free: Bitmap::empty(blocks),
            users: 0,
            listed: false,
            closed: false,
        }
    }

    /// Returns a chunk whose blocks are all free.
    pub fn vacant(class: usize, blocks: u32) -> Self {
        Self { free: Bitmap::full(blocks), ..Self::unexamined(class, blocks) }
    }

    /// Allocates the lowest free block. Returns `None` if the chunk is closed or has no free block.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        if self.closed {
            return None;
        }
        let block = self.free.pop()?;
        let new = self.owned.insert(block);
        debug_assert!(new, "a free block has no owner");
        Some(block)
    }

    /// Returns whether all blocks are free: none is owned, unexamined, or waiting for readers.
    pub fn is_vacant(&self) -> bool {
        self.free.len() == self.blocks
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
    Small(Box<SmallChunk>),
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

type Leaf = Box<[Mutex<Chunk>]>;
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
        let (top, middle, leaf) = split(number);
        let middle = &self.top[top].get_or_init(|| blank(MIDDLE_BITS))[middle];
        &middle.get_or_init(|| blank(LEAF_BITS))[leaf]
    }

    /// Returns the state of chunk `number`; `None` when its leaf of the tree has not been allocated.
    pub fn peek(&self, number: u32) -> Option<&Mutex<Chunk>> {
        let (top, middle, leaf) = split(number);
        Some(&self.top[top].get()?[middle].get()?[leaf])
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
    fn bitmaps_are_sets() {
        let mut set = Bitmap::full(130);
        assert_eq!((set.len(), set.pop(), set.pop()), (130, Some(0), Some(1)));
        assert!(set.remove(129) && !set.remove(129) && !set.contains(129) && !set.contains(500));
        assert!(set.insert(0) && !set.insert(0));
        assert_eq!(set.pop(), Some(0));
        let rest: Vec<u32> = set.iter().collect();
        assert_eq!(rest, (2..129).collect::<Vec<_>>());
        for expected in 2..129 {
            assert_eq!(set.pop(), Some(expected));
        }
        assert_eq!((set.pop(), set.len()), (None, 0));
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
