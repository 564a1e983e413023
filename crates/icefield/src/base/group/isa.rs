//! The interface of instruction sets, and of code that is compiled for each of them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::whole_loads::WholeLoads;

/// An instruction set. A value of the type is proof that the processor supports it.
pub trait Isa: Copy + Send + Sync + 'static {
    /// The name of the set, for reports.
    const NAME: &'static str;

    /// Returns a proof that 16 bytes are loaded as one, if every processor with this set does so. A constant, so that a
    /// loop compiled for the set need not ask.
    #[inline(always)]
    fn whole_loads(self) -> Option<WholeLoads> {
        None
    }

    /// Returns a mask: bit `i` is set if byte `i` of the group `words` equals `byte`.
    fn match16(self, words: [u64; 2], byte: u8) -> u32;

    /// Returns a mask: bit `2 * i` is set if word `2 * i` of `line` equals `key`; the odd bits are undefined. Other
    /// threads may be storing to the line. Each word is read once and whole, after every earlier Acquire load, and
    /// before every load that follows a later Acquire fence.
    ///
    /// Vectors are loaded from raced memory only by this method, [`Isa::has_bits`] and [`Isa::find_bytes`]. They use
    /// inline assembly, to which the language's rules for plain loads do not apply, and only on processors that load
    /// each aligned word whole regardless of the width of the load. All other code loads the words one by one, like
    /// this default implementation.
    #[inline(always)]
    fn find_keys(self, line: &[AtomicU64; 8], key: u64) -> u32 {
        // Relaxed: the caller orders the reads and validates the result.
        let equal = |word: usize| u32::from(line[word].load(Relaxed) == key) << word;
        equal(0) | equal(2) | equal(4) | equal(6)
    }

    /// Like [`Isa::find_keys`] for the words 2, 4 and 6; bit 0 is undefined as well.
    #[inline(always)]
    fn find_last_keys(self, line: &[AtomicU64; 8], key: u64) -> u32 {
        // Relaxed: as in `find_keys`.
        let equal = |word: usize| u32::from(line[word].load(Relaxed) == key) << word;
        equal(2) | equal(4) | equal(6)
    }

    /// Tests one bit in each of the words 3 to 7 of `line`, and returns whether all five are set. Six bits of `hash`
    /// select the bit of a word: bits 4 to 9 for word 3, bits 10 to 15 for word 4, and so on. Other threads may be
    /// storing to the line, as for [`Isa::find_keys`].
    #[inline(always)]
    fn has_bits(self, line: &[AtomicU64; 8], hash: u64) -> bool {
        // Relaxed: as in `find_keys`.
        let bit = |word: usize| line[word].load(Relaxed) >> (hash >> (6 * word - 14) & 63);
        bit(3) & bit(4) & bit(5) & bit(6) & bit(7) & 1 == 1
    }

    /// Returns a mask: bit `i` is set if byte `i` of `line` equals `byte`. The highest bit of the line is a lock and is
    /// not compared. Other threads may be storing to the line, as for [`Isa::find_keys`].
    #[inline(always)]
    fn find_bytes(self, line: &[AtomicU64; 8], byte: u8) -> u64 {
        const LAST: u64 = 1 << 63;
        // Relaxed: as in `find_keys`.
        let words = line.each_ref().map(|word| word.load(Relaxed));
        let equal =
            |at: usize| u64::from(self.match16([words[at], words[at + 1]], byte)) << (8 * at);
        let last = (words[7] >> 56) as u8 ^ byte;
        (equal(0) | equal(2) | equal(4) | equal(6)) & !LAST
            | if last & 0x7F == 0 { LAST } else { 0 }
    }
}

/// Code to be run with the best available instruction set, usually the loop over a batch. Implementations mark `run` as
/// `#[inline(always)]`, so that it is compiled for each set.
pub trait Kernel {
    /// The result of [`Kernel::run`].
    type Output;

    /// Runs the code with `isa`.
    fn run<I: Isa>(self, isa: I) -> Self::Output;
}
