//! Write-back by `clwb`, `clflushopt` or `clflush`; fence by `sfence`.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence};

use super::two_words::TwoWords;
use crate::base::group::WholeLoads;

/// The instruction by which this processor writes a line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Writes back and may keep the line cached: the best where it exists.
    Clwb,
    /// Writes back and evicts; two of these instructions are not ordered among themselves.
    ClflushOpt,
    /// Writes back and evicts, in order. Part of the base instruction set.
    Clflush,
}

impl Instruction {
    /// Returns the best instruction of this processor. Never `None` on this architecture.
    pub(crate) fn detect() -> Option<Self> {
        Self::all().into_iter().next()
    }

    /// Returns all write-back instructions of this processor, the best first.
    pub(crate) fn all() -> Vec<Self> {
        const CLFLUSHOPT: u32 = 1 << 23;
        const CLWB: u32 = 1 << 24;
        // `is_x86_feature_detected!` supports neither `clflushopt` nor `clwb`.
        #[allow(unused_unsafe, reason = "the calls are safe in newer versions of Rust")]
        // SAFETY: every processor of this architecture has the instruction `cpuid`.
        let features = unsafe { if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 } };
        let mut all = Vec::new();
        if features & CLWB != 0 {
            all.push(Self::Clwb);
        }
        if features & CLFLUSHOPT != 0 {
            all.push(Self::ClflushOpt);
        }
        all.push(Self::Clflush);
        all
    }

    /// Starts the write-back of the line that holds `line`.
    ///
    /// # Safety
    /// The processor has the instruction (`detect` or `all` returned it). Memory does not change; an address that is
    /// not mapped ends the process by a signal.
    #[inline(always)]
    pub(crate) unsafe fn write_back(self, line: *const u8) {
        match self {
            // SAFETY: the caller's contract. The asm blocks count as reading and writing all memory, so the compiler
            // moves no store across them.
            Self::Clwb => unsafe {
                asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags))
            },
            // SAFETY: as above.
            Self::ClflushOpt => unsafe {
                asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags))
            },
            // SAFETY: as above.
            Self::Clflush => unsafe { _mm_clflush(line) },
        }
    }
}

/// Orders this thread's write-backs before its later stores. When a later store becomes visible, every write-back that
/// this thread started before has reached the persistence domain.
#[inline(always)]
pub(crate) fn store_fence() {
    // SAFETY: `sfence` is in the base instruction set of this architecture and accesses no memory.
    unsafe { _mm_sfence() };
}

/// Loads both words as one, with Acquire ordering.
#[inline(always)]
pub(crate) fn load128(words: &TwoWords, _: WholeLoads) -> [u64; 2] {
    let (first, second): (u64, u64);
    // SAFETY: reads the 16 bytes of `words`, whose type has the alignment that the instruction needs, and nothing else.
    // The block is opaque to the compiler, so the language's rules for plain loads do not apply, and the compiler
    // moves no access across it. The processor keeps loads in order. Together this is Acquire.
    unsafe {
        asm!(
            "vmovdqa {both}, [{words}]",
            "vmovq {first}, {both}",
            "vpextrq {second}, {both}, 1",
            words = in(reg) std::ptr::from_ref(words),
            both = out(xmm_reg) _,
            first = out(reg) first,
            second = out(reg) second,
            options(nostack, preserves_flags)
        );
    }
    [first, second]
}
