//! AVX2: 32 bytes, or four words, in one comparison.

use core::arch::asm;
use core::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_castsi256_pd, _mm256_cmpeq_epi8, _mm256_cmpeq_epi64,
    _mm256_movemask_epi8, _mm256_movemask_pd, _mm256_set1_epi8, _mm256_set1_epi64x,
    _mm256_setr_epi64x,
};

use std::sync::atomic::AtomicU64;

use super::isa::{Isa, Kernel};
use super::sse2::Sse2;
use super::whole_loads::WholeLoads;

/// The instruction set AVX2.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// Returns a proof that this processor has AVX2, or `None`.
    #[inline]
    #[must_use]
    pub fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Runs `kernel` compiled for AVX2.
    #[inline]
    pub fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
        fn compiled<K: Kernel>(isa: Avx2, kernel: K) -> K::Output {
            kernel.run(isa)
        }
        if !has_bit_manipulation() {
            return kernel.run(self);
        }
        // SAFETY: `self` proves AVX2, and the other features were checked above.
        unsafe { compiled(self, kernel) }
    }
}

/// Returns whether BMI1, BMI2 and POPCNT are available. Every processor with AVX2 has them, but an emulator or a
/// hypervisor may hide them.
#[inline]
pub(super) fn has_bit_manipulation() -> bool {
    is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}

impl Isa for Avx2 {
    const NAME: &'static str = "avx2";

    #[inline(always)]
    fn whole_loads(self) -> Option<WholeLoads> {
        WholeLoads::with_avx2()
    }

    #[inline(always)]
    fn match16(self, words: [u64; 2], byte: u8) -> u32 {
        Sse2.match16(words, byte)
    }

    #[inline(always)]
    fn find_keys(self, line: &[AtomicU64; 8], key: u64) -> u32 {
        // SAFETY: `self` proves AVX2.
        unsafe { find_keys(line, key) }
    }

    #[inline(always)]
    fn find_last_keys(self, line: &[AtomicU64; 8], key: u64) -> u32 {
        self.find_keys(line, key)
    }

    #[inline(always)]
    fn find_bytes(self, line: &[AtomicU64; 8], byte: u8) -> u64 {
        // SAFETY: `self` proves AVX2.
        unsafe { find_bytes(line, byte) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn find_keys(line: &[AtomicU64; 8], key: u64) -> u32 {
    let [low, high] = load(line);
    let key = _mm256_set1_epi64x(key as i64);
    let equal = |words| _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(words, key)));
    (equal(low) | equal(high) << 4) as u32
}

#[inline]
#[target_feature(enable = "avx2")]
fn find_bytes(line: &[AtomicU64; 8], byte: u8) -> u64 {
    let [low, high] = load(line);
    let compared = _mm256_setr_epi64x(-1, -1, -1, i64::MAX);
    let byte = _mm256_set1_epi8(byte as i8);
    let equal = |a, b| u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b)) as u32);
    let last = equal(_mm256_and_si256(high, compared), _mm256_and_si256(byte, compared));
    equal(low, byte) | last << 32
}

/// Loads the words of a line that other threads may be storing to.
#[inline]
#[target_feature(enable = "avx2")]
fn load(line: &[AtomicU64; 8]) -> [__m256i; 2] {
    let (low, high): (__m256i, __m256i);
    // SAFETY: reads only the 64 bytes of `line`. The words are aligned, so each is read whole.
    unsafe {
        asm!(
            "vmovdqu {low}, [{line}]",
            "vmovdqu {high}, [{line} + 32]",
            low = out(ymm_reg) low,
            high = out(ymm_reg) high,
            line = in(reg) line.as_ptr(),
            options(nostack, preserves_flags, readonly)
        );
    }
    [low, high]
}
