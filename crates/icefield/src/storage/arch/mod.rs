//! The processor's part of persistence: writing cache lines back, and waiting for the write-backs.
//!
//! One file for each instruction set, each with the same items: `Instruction` (the processor's write-back instruction,
//! detected when a medium opens), `store_fence`, and `load128`, which loads two neighbouring words as one.
//! [`flush_range`] splits ranges into lines.

use std::sync::atomic::Ordering::Acquire;

use crate::base::group::WholeLoads;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod generic;
mod two_words;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as native;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use generic as native;
#[cfg(target_arch = "x86_64")]
use x86_64 as native;

pub(crate) use native::{Instruction, store_fence};

pub use two_words::TwoWords;

/// Bytes in a cache line: the unit of flushing.
pub const LINE_BYTES: usize = 64;

/// Loads two words with Acquire ordering: as one, given the proof that the processor can.
#[inline(always)]
pub(crate) fn load_two(words: &TwoWords, whole: Option<WholeLoads>) -> [u64; 2] {
    match whole {
        Some(whole) => native::load128(words, whole),
        // Acquire: as the load of both.
        None => words.0.each_ref().map(|word| word.load(Acquire)),
    }
}

/// Starts the write-back of the line that holds `byte`, which is mapped.
#[inline(always)]
pub(crate) fn flush_line(instruction: Instruction, byte: *const u8) {
    // SAFETY: the instruction was detected. If the byte were not mapped, this would be a fault without a memory
    // access.
    unsafe { instruction.write_back(byte) }
}

/// Starts the write-back of every line that overlaps `bytes` bytes from `start`, which are mapped.
// Not inlined, to keep callers small: compared with a write-back, a call costs next to nothing.
#[inline(never)]
pub(crate) fn flush_range(instruction: Instruction, start: *const u8, bytes: usize) {
    let lines = lines(start, bytes);
    let mut line = start.map_addr(|address| address & !(LINE_BYTES - 1));
    for _ in 0..lines {
        // SAFETY: as in `flush_line`; the line overlaps the range, and lines do not cross pages.
        unsafe { instruction.write_back(line) };
        line = line.wrapping_add(LINE_BYTES);
    }
}

/// Returns the number of lines that overlap the range.
fn lines(start: *const u8, bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let skipped = start.addr() & (LINE_BYTES - 1);
    (skipped + bytes).div_ceil(LINE_BYTES)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn counts_the_lines_that_a_range_touches() {
        let at = |address: usize| std::ptr::without_provenance::<u8>(address);
        for (start, bytes, expected) in [
            (0, 0, 0),
            (63, 0, 0),
            (0, 1, 1),
            (0, 64, 1),
            (0, 65, 2),
            (63, 1, 1),
            (63, 2, 2),
            (8, 64, 2),
            (1, 129, 3),
        ] {
            assert_eq!(lines(at(4096 + start), bytes), expected, "{bytes} bytes from {start}");
        }
    }

    #[test]
    fn two_words_are_loaded_in_their_order() {
        let Some(whole) = WholeLoads::detect() else { return };
        let words = TwoWords([AtomicU64::new(1), AtomicU64::new(u64::MAX - 1)]);
        assert_eq!(load_two(&words, Some(whole)), [1, u64::MAX - 1]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "two loads there")]
    fn two_words_are_loaded_as_one() {
        let Some(whole) = WholeLoads::detect() else { return };
        // At any moment, the second word equals the first, or is one less. A torn load would show other differences.
        let words = TwoWords([AtomicU64::new(0), AtomicU64::new(0)]);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 1..400_000 {
                    words.0[0].store(n, std::sync::atomic::Ordering::Release);
                    words.0[1].store(n, std::sync::atomic::Ordering::Release);
                }
            });
            while !writer.is_finished() {
                let [first, second] = load_two(&words, Some(whole));
                assert!(first == second || first == second + 1, "{first} {second}");
            }
        });
    }

    #[test]
    fn flushing_keeps_what_was_stored() {
        let bytes = vec![7_u8; 1000];
        for instruction in Instruction::all() {
            flush_range(instruction, bytes[3..].as_ptr(), 900);
            store_fence();
        }
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
