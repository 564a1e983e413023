//! AVX-512 (F, BW): a whole line, or eight words, in one comparison that produces the mask directly.

use core::arch::asm;
use core::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_cmpeq_epi8_mask, _mm512_cmpeq_epi64_mask,
    _mm512_mask_testn_epi64_mask, _mm512_rolv_epi64, _mm512_set1_epi8, _mm512_set1_epi64,
    _mm512_setr_epi64, _mm512_srlv_epi64,
};

use std::sync::atomic::AtomicU64;

use super::avx2::{Avx2, has_bit_manipulation};
use super::isa::{Isa, Kernel};
use super::whole_loads::WholeLoads;

/// The instruction sets AVX-512 F and BW.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(Avx2);

impl Avx512 {
    /// Returns a proof that this processor has AVX-512 F and BW, or `None`.
    #[inline]
    #[must_use]
    pub fn detect() -> Option<Self> {
        let avx2 = Avx2::detect()?;
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"))
            .then_some(Self(avx2))
    }

    /// Runs `kernel` compiled for AVX-512.
    #[inline]
    pub fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2,popcnt")]
        fn compiled<K: Kernel>(isa: Avx512, kernel: K) -> K::Output {
            kernel.run(isa)
        }
        if !has_bit_manipulation() {
            return kernel.run(self);
        }
        // SAFETY: `self` proves AVX-512 and AVX2, and the other features were checked above.
        unsafe { compiled(self, kernel) }
    }
}

impl Isa for Avx512 {
    const NAME: &'static str = "avx512";

    #[inline(always)]
    fn whole_loads(self) -> Option<WholeLoads> {
        WholeLoads::with_avx2()
    }

    #[inline(always)]
    fn match16(self, words: [u64; 2], byte: u8) -> u32 {
        self.0.match16(words, byte)
    }

    #[inline(always)]
    fn find_keys(self, line: &[AtomicU64; 8], key: u64) -> u32 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { find_keys(line, key) }
    }

    #[inline(always)]
    fn find_last_keys(self, line: &[AtomicU64; 8], key: u64) -> u32 {
        self.find_keys(line, key)
    }

    #[inline(always)]
    fn has_bits(self, line: &[AtomicU64; 8], hash: u64) -> bool {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { has_bits(line, hash) }
    }

    #[inline(always)]
    fn find_bytes(self, line: &[AtomicU64; 8], byte: u8) -> u64 {
        // SAFETY: `self` proves AVX-512 F and BW.
        unsafe { find_bytes(line, byte) }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn find_keys(line: &[AtomicU64; 8], key: u64) -> u32 {
    u32::from(_mm512_cmpeq_epi64_mask(load(line), _mm512_set1_epi64(key as i64)))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn has_bits(line: &[AtomicU64; 8], hash: u64) -> bool {
    const WORDS: u8 = 0xF8;
    let shifts = _mm512_setr_epi64(0, 0, 0, 4, 10, 16, 22, 28);
    // The rotation takes its counts modulo 64.
    let numbers = _mm512_srlv_epi64(_mm512_set1_epi64(hash as i64), shifts);
    let bits = _mm512_rolv_epi64(_mm512_set1_epi64(1), numbers);
    _mm512_mask_testn_epi64_mask(WORDS, load(line), bits) == 0
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn find_bytes(line: &[AtomicU64; 8], byte: u8) -> u64 {
    let compared = _mm512_setr_epi64(-1, -1, -1, -1, -1, -1, -1, i64::MAX);
    let byte = _mm512_set1_epi8(byte as i8);
    let words = _mm512_and_si512(load(line), compared);
    _mm512_cmpeq_epi8_mask(words, _mm512_and_si512(byte, compared))
}

/// Loads the words of a line that other threads may be storing to.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(line: &[AtomicU64; 8]) -> __m512i {
    let words: __m512i;
    // SAFETY: reads only the 64 bytes of `line`. The words are aligned, so each is read whole.
    unsafe {
        asm!(
            "vmovdqu64 {words}, [{line}]",
            words = out(zmm_reg) words,
            line = in(reg) line.as_ptr(),
            options(nostack, preserves_flags, readonly)
        );
    }
    words
}
