//! NEON: every 64-bit Arm processor has it. No instruction gathers a mask, so each lane gets a weight, and a sum across
//! the vector combines them.

use core::arch::aarch64::{
    uint8x16_t, vaddv_u8, vaddvq_u64, vandq_u8, vandq_u64, vceqq_u8, vceqq_u64, vcombine_u64,
    vcreate_u64, vdupq_n_u8, vdupq_n_u64, vget_high_u8, vget_low_u8, vorrq_u64,
    vreinterpretq_u8_u64,
};

use super::isa::Isa;

/// The instruction set NEON.
#[derive(Clone, Copy, Debug, Default)]
pub struct Neon;

impl Isa for Neon {
    const NAME: &'static str = "neon";

    #[inline(always)]
    fn match16(self, words: [u64; 2], byte: u8) -> u32 {
        // SAFETY: NEON is part of every 64-bit Arm target that Rust has.
        unsafe { match16(words, byte) }
    }

    #[inline(always)]
    fn match32(self, [a, b, c, d]: [u64; 4], byte: u8) -> u32 {
        self.match16([a, b], byte) | self.match16([c, d], byte) << 16
    }

    #[inline(always)]
    fn match64(self, [a, b, c, d, e, f, g, h]: [u64; 8], byte: u8) -> u64 {
        u64::from(self.match32([a, b, c, d], byte))
            | u64::from(self.match32([e, f, g, h], byte)) << 32
    }

    #[inline(always)]
    fn find8(self, words: [u64; 8], key: u64) -> u32 {
        // SAFETY: as for `match16`.
        unsafe { find8(words, key) }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn match16([low, high]: [u64; 2], byte: u8) -> u32 {
    let group = vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)));
    let weights: uint8x16_t = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
    let bits = vandq_u8(vceqq_u8(group, vdupq_n_u8(byte)), weights);
    u32::from(vaddv_u8(vget_low_u8(bits))) | u32::from(vaddv_u8(vget_high_u8(bits))) << 8
}

#[inline]
#[target_feature(enable = "neon")]
fn find8(words: [u64; 8], key: u64) -> u32 {
    let pattern = vdupq_n_u64(key);
    let mut bits = vdupq_n_u64(0);
    for pair in 0..4 {
        let lanes = vcombine_u64(vcreate_u64(words[2 * pair]), vcreate_u64(words[2 * pair + 1]));
        let weights = vcombine_u64(vcreate_u64(1 << (2 * pair)), vcreate_u64(2 << (2 * pair)));
        bits = vorrq_u64(bits, vandq_u64(vceqq_u64(lanes, pattern), weights));
    }
    vaddvq_u64(bits) as u32
}
