//! Chunks: the packed forms of references, of the words of the map and of the states in DRAM, and the array of the
//! states.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::storage::Medium;

/// Records begin at multiples of this.
pub(super) const UNIT_BYTES: u64 = 8;
const UNIT_BITS: u32 = 16;
const EPOCH_BITS: u32 = 20;
pub(super) const CHUNK_BITS: u32 = 64 - UNIT_BITS - EPOCH_BITS;
/// No reference has this epoch.
pub(super) const LAST_EPOCH: u64 = (1 << EPOCH_BITS) - 1;
/// The largest chunk in which references can address every record.
pub(in crate::engine::plush) const MAX_CHUNK_BYTES: u64 = UNIT_BYTES << UNIT_BITS;

/// Where a payload is: chunk, epoch and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine::plush) struct PayloadRef {
    pub(in crate::engine::plush) chunk: u32,
    pub(super) epoch: u64,
    pub(super) offset: u64,
}

impl PayloadRef {
    pub(in crate::engine::plush) fn pack(self) -> u64 {
        u64::from(self.chunk) << (UNIT_BITS + EPOCH_BITS)
            | self.epoch << UNIT_BITS
            | (self.offset / UNIT_BYTES)
    }

    #[inline(always)]
    pub(in crate::engine::plush) fn unpack(word: u64) -> Self {
        Self {
            chunk: (word >> (UNIT_BITS + EPOCH_BITS)) as u32,
            epoch: word >> UNIT_BITS & LAST_EPOCH,
            offset: (word & ((1 << UNIT_BITS) - 1)) * UNIT_BYTES,
        }
    }
}

/// The word of a chunk in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkWord {
    pub(super) epoch: u64,
    pub(super) used: bool,
    /// The chunk belongs to the same run as the chunk before it.
    pub(super) continues: bool,
}

impl ChunkWord {
    pub(super) fn pack(self) -> u64 {
        self.epoch << 2 | u64::from(self.continues) << 1 | u64::from(self.used)
    }

    pub(super) fn unpack(word: u64) -> Self {
        Self { epoch: word >> 2, used: word & 1 == 1, continues: word & 2 == 2 }
    }
}

/// The state of a chunk in DRAM. A word of zeros represents a chunk without records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkState {
    pub(super) epoch: u64,
    /// `true` if references of this epoch are valid; `false` for free chunks and chunks that continue another.
    pub(super) used: bool,
    /// The bytes from the chunk's start up to this offset are written, and do not change until the chunk is taken
    /// again.
    pub(super) limit: u64,
}

impl ChunkState {
    #[inline(always)]
    pub(super) fn pack(self) -> u64 {
        u64::from(self.used) << (u32::BITS + EPOCH_BITS)
            | (self.epoch & LAST_EPOCH) << u32::BITS
            | (self.limit / UNIT_BYTES).min(u32::MAX.into())
    }

    #[inline(always)]
    pub(super) fn unpack(word: u64) -> Self {
        Self {
            epoch: word >> u32::BITS & LAST_EPOCH,
            used: word >> (u32::BITS + EPOCH_BITS) & 1 == 1,
            limit: (word & u64::from(u32::MAX)) * UNIT_BYTES,
        }
    }

    #[inline(always)]
    pub(super) fn is_of(self, place: PayloadRef) -> bool {
        self.used && self.epoch == place.epoch
    }
}

/// A chunk in DRAM.
#[derive(Default)]
pub(super) struct Chunk {
    /// [`ChunkState`].
    pub(super) state: AtomicU64,
    /// Number of records to which no slot refers yet.
    pub(super) pending: AtomicU32,
}

/// The states of all chunks, in segments of doubling length that never move.
#[derive(Default)]
pub(super) struct Chunks([OnceLock<Box<[Chunk]>>; SEGMENTS]);

const FIRST_SEGMENT: u32 = 64;
const SEGMENTS: usize = (CHUNK_BITS - FIRST_SEGMENT.ilog2() + 1) as usize;

impl Chunks {
    /// The segment of a chunk, and its index there. Chunks with consecutive numbers, which threads often write to at the
    /// same time, are two lines apart.
    #[inline(always)]
    fn place(chunk: u32) -> (usize, usize) {
        let number = chunk + FIRST_SEGMENT;
        let (bits, segment) = (number.ilog2(), number.ilog2() - FIRST_SEGMENT.ilog2());
        let len = FIRST_SEGMENT << segment;
        let at = number - len;
        (segment as usize, ((at << 3 | at >> (bits - 3)) & (len - 1)) as usize)
    }

    #[inline(always)]
    pub(super) fn get(&self, chunk: u32) -> Option<&Chunk> {
        let (segment, at) = Self::place(chunk);
        self.0.get(segment)?.get()?.get(at)
    }

    /// Ensures that the states of the first `chunks` chunks exist.
    pub(super) fn extend(&self, chunks: u32) {
        let Some(last) = chunks.checked_sub(1) else { return };
        for (segment, chunks) in self.0.iter().enumerate().take(Self::place(last).0 + 1) {
            let len = (FIRST_SEGMENT as usize) << segment;
            chunks.get_or_init(|| std::iter::repeat_with(Chunk::default).take(len).collect());
        }
    }

    pub(super) fn set(&self, storage: &impl Medium, chunk: u32, state: ChunkState) {
        storage.sim_yield_point();
        if let Some(chunk) = self.get(chunk) {
            // Release (E10): pairs with the Acquire in `state`; the bytes below the limit are written.
            chunk.state.store(state.pack(), Release);
        }
    }

    /// The state of a chunk. For an unknown chunk, that of a free one.
    #[inline(always)]
    pub(super) fn state(&self, storage: &impl Medium, chunk: u32) -> ChunkState {
        storage.sim_yield_point();
        // Acquire (E10): pairs with the Release in `set`.
        ChunkState::unpack(self.get(chunk).map_or(0, |chunk| chunk.state.load(Acquire)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_places_of_their_own() {
        let mut places: Vec<_> = (0..5_000).map(Chunks::place).collect();
        assert!(
            places.windows(2).all(|two| two[0].0 != two[1].0 || two[0].1.abs_diff(two[1].1) >= 7)
        );
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 5_000);
        let len = |segment: usize| (FIRST_SEGMENT as usize) << segment;
        assert!(places.iter().all(|&(segment, at)| at < len(segment)));
    }

    #[test]
    fn references_and_chunk_words_survive_packing() {
        let place = PayloadRef {
            chunk: (1 << CHUNK_BITS) - 1,
            epoch: LAST_EPOCH - 1,
            offset: MAX_CHUNK_BYTES - UNIT_BYTES,
        };
        assert_eq!(PayloadRef::unpack(place.pack()), place);
        for (used, continues) in [(false, false), (true, false), (true, true)] {
            let word = ChunkWord { epoch: LAST_EPOCH, used, continues };
            assert_eq!(ChunkWord::unpack(word.pack()), word);
        }
        for used in [false, true] {
            let limit = u64::from(u32::MAX) * UNIT_BYTES;
            let state = ChunkState { epoch: LAST_EPOCH, used, limit };
            assert_eq!(ChunkState::unpack(state.pack()), state);
        }
    }
}
