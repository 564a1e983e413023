//! Comparisons by integer arithmetic: correct on every processor, and the reference for the tests of the other
//! instruction sets.

use super::isa::Isa;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Plain integer arithmetic, without a particular instruction set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Generic;

impl Isa for Generic {
    const NAME: &'static str = "generic";

    #[inline(always)]
    fn match16(self, words: [u64; 2], byte: u8) -> u32 {
        let pattern = LOW_BITS * u64::from(byte);
        let [low, high] = words.map(|word| zero_bytes(word ^ pattern) as u32);
        low | high << 8
    }
}

/// Returns a mask: bit `i` is set if byte `i` of `word` is zero. The shorter formula with a subtraction would be wrong:
/// a borrow runs into the next byte.
#[inline(always)]
fn zero_bytes(word: u64) -> u64 {
    let seven_bits = word & !HIGH_BITS;
    // The sum sets the high bit of each byte in which any of the seven lower bits is set; no carry leaves a byte.
    let zero = !((seven_bits + !HIGH_BITS) | word) & HIGH_BITS;
    // Gathers bits 7, 15, .. 63 in the top byte: each of its bits is the product of exactly one bit of `zero` and one
    // bit of the factor.
    (zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}
