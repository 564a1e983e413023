//! SSE2: every x86-64 processor has it.

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8,
};

use std::sync::atomic::AtomicU64;

use super::isa::Isa;

/// The instruction set SSE2.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sse2;

impl Isa for Sse2 {
    const NAME: &'static str = "sse2";

    #[inline(always)]
    fn match16(self, words: [u64; 2], byte: u8) -> u32 {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { match16(words, byte) }
    }

    #[inline(always)]
    fn find_bytes(self, line: &[AtomicU64; 8], byte: u8) -> u64 {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { find_bytes(line, byte) }
    }
}

#[inline]
#[target_feature(enable = "sse2")]
fn find_bytes(line: &[AtomicU64; 8], byte: u8) -> u64 {
    let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
    // SAFETY: reads only the 64 bytes of `line`. The words are aligned, so each is read whole.
    unsafe {
        asm!(
            "movdqu {a}, [{line}]",
            "movdqu {b}, [{line} + 16]",
            "movdqu {c}, [{line} + 32]",
            "movdqu {d}, [{line} + 48]",
            a = out(xmm_reg) a,
            b = out(xmm_reg) b,
            c = out(xmm_reg) c,
            d = out(xmm_reg) d,
            line = in(reg) line.as_ptr(),
            options(nostack, preserves_flags, readonly)
        );
    }
    let compared = _mm_set_epi64x(i64::MAX, -1);
    let byte = _mm_set1_epi8(byte as i8);
    let equal = |a, b| u64::from(_mm_movemask_epi8(_mm_cmpeq_epi8(a, b)) as u16);
    let last = equal(_mm_and_si128(d, compared), _mm_and_si128(byte, compared));
    equal(a, byte) | equal(b, byte) << 16 | equal(c, byte) << 32 | last << 48
}

#[inline]
#[target_feature(enable = "sse2")]
fn match16([low, high]: [u64; 2], byte: u8) -> u32 {
    let group: __m128i = _mm_set_epi64x(high as i64, low as i64);
    _mm_movemask_epi8(_mm_cmpeq_epi8(group, _mm_set1_epi8(byte as i8))) as u32
}
