//! Write-back by `dc cvap` (or `dc cvac`); fence by `dsb sy`.

use std::arch::{asm, is_aarch64_feature_detected};

use super::two_words::TwoWords;
use crate::base::group::WholeLoads;

/// The instruction by which this processor writes a line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Cleans to the point of persistence.
    DcCvap,
    /// Cleans to the point of coherency, on processors without a point of persistence.
    DcCvac,
}

impl Instruction {
    /// Returns the best instruction of this processor. Never `None` on this architecture.
    pub(crate) fn detect() -> Option<Self> {
        Self::all().into_iter().next()
    }

    /// Returns all write-back instructions of this processor, the best first.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        if is_aarch64_feature_detected!("dpb") {
            all.push(Self::DcCvap);
        }
        all.push(Self::DcCvac);
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
            // `dc cvap, xN` is written as its encoding, `sys #3, c7, c12, #1, xN`, because assemblers accept the name
            // only with the extension enabled.
            // SAFETY: the caller's contract. The asm blocks count as reading and writing all memory, so the compiler
            // moves no store across them.
            Self::DcCvap => unsafe {
                asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags))
            },
            // SAFETY: as above.
            Self::DcCvac => unsafe {
                asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags))
            },
        }
    }
}

/// Returns when every write-back that this thread started has completed.
#[inline(always)]
pub(crate) fn store_fence() {
    // SAFETY: a barrier accesses no memory; without `nomem` the compiler moves no store across it.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// Loads both words as one, with Acquire ordering.
#[inline(always)]
pub(crate) fn load128(words: &TwoWords, _: WholeLoads) -> [u64; 2] {
    let (first, second): (u64, u64);
    // SAFETY: reads the 16 bytes of `words` and nothing else. They are aligned to 16 bytes, so this is one load. The
    // block is opaque to the compiler, so the language's rules for plain loads do not apply, and the compiler moves no
    // access across it. The barrier orders the load before all later accesses. Together this is Acquire.
    unsafe {
        asm!(
            "ldp {first}, {second}, [{words}]",
            "dmb ishld",
            words = in(reg) std::ptr::from_ref(words),
            first = out(reg) first,
            second = out(reg) second,
            options(nostack, preserves_flags)
        );
    }
    [first, second]
}
