//! NEON: every 64-bit Arm processor has it. It has no instruction that gathers a mask from the lanes, so each lane gets
//! a weight, and a sum across the vector combines the weights.

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
}

#[inline]
#[target_feature(enable = "neon")]
fn match16([low, high]: [u64; 2], byte: u8) -> u32 {
    let group = vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)));
    let weights: uint8x16_t = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
    let bits = vandq_u8(vceqq_u8(group, vdupq_n_u8(byte)), weights);
    u32::from(vaddv_u8(vget_low_u8(bits))) | u32::from(vaddv_u8(vget_high_u8(bits))) << 8
}
