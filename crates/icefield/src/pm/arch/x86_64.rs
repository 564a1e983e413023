//! `clwb`, `clflushopt`, `clflush`; `sfence`.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence};
use std::sync::atomic::Ordering;

use crate::pm::Cell128;

/// How this processor writes a line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Writes back, may keep the line cached: the best where it exists.
    Clwb,
    /// Writes back and evicts, unordered among themselves.
    ClflushOpt,
    /// Writes back and evicts, one after another. Part of the base instruction set.
    Clflush,
}

impl Instruction {
    /// Asks the processor. `None` where it cannot write lines back; never so on this architecture.
    pub(crate) fn detect() -> Option<Self> {
        Self::all().into_iter().next()
    }

    /// Every write-back that this processor has, the best first.
    pub(crate) fn all() -> Vec<Self> {
        const CLFLUSHOPT: u32 = 1 << 23;
        const CLWB: u32 = 1 << 24;
        // `is_x86_feature_detected!` knows neither of the two.
        let features = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
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
    /// The processor has the instruction (`detect` or `all` gave it). No memory changes; an address that is not mapped
    /// ends the process by a signal.
    #[inline(always)]
    pub(crate) unsafe fn write_back(self, line: *const u8) {
        match self {
            // SAFETY: the caller's contract. The asm blocks count as reading and writing all memory, so the compiler
            // keeps every store before them and every later one behind.
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

/// Returns when every write-back that this thread started has reached the persistence domain, as far as later stores
/// can tell.
#[inline(always)]
pub(crate) fn store_fence() {
    // SAFETY: `sfence` is in the base instruction set of this architecture and touches no memory.
    unsafe { _mm_sfence() };
}

/// Whether [`load128`] is one load. Intel and AMD promise it of aligned loads on every processor with AVX. Neither
/// Miri nor ThreadSanitizer sees what its instructions load.
#[inline(always)]
pub(crate) fn loads_whole() -> bool {
    !cfg!(any(miri, icefield_sanitize)) && is_x86_feature_detected!("avx")
}

/// Loads both words as one where [`loads_whole`] says so; of order Acquire.
#[inline(always)]
pub(crate) fn load128(cell: &Cell128) -> [u64; 2] {
    if !loads_whole() {
        return cell.0.each_ref().map(|word| word.load(Ordering::Acquire));
    }
    let (first, second): (u64, u64);
    // SAFETY: reads the 16 bytes of `cell`, which its type aligns as the instruction wants it, and nothing else. The
    // compiler does not look into the block, so that the language's rules for plain loads do not apply, and moves no
    // access over it; the processor keeps loads in their order: together that is Acquire.
    unsafe {
        asm!(
            "vmovdqa {both}, [{cell}]",
            "vmovq {first}, {both}",
            "vpextrq {second}, {both}, 1",
            cell = in(reg) std::ptr::from_ref(cell),
            both = out(xmm_reg) _,
            first = out(reg) first,
            second = out(reg) second,
            options(nostack, preserves_flags)
        );
    }
    [first, second]
}
