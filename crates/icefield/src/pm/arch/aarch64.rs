//! `dc cvap` (or `dc cvac`); `dsb sy`.

use std::arch::{asm, is_aarch64_feature_detected};
use std::sync::atomic::Ordering;

use crate::pm::Cell128;

/// How this processor writes a line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Cleans to the point of persistence.
    DcCvap,
    /// Cleans to the point of coherency: as far as processors without a point of persistence can.
    DcCvac,
}

impl Instruction {
    /// Asks the processor. `None` where it cannot write lines back; never so on this architecture.
    pub(crate) fn detect() -> Option<Self> {
        Self::all().into_iter().next()
    }

    /// Every write-back that this processor has, the best first.
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
    /// The processor has the instruction (`detect` or `all` gave it). No memory changes; an address that is not mapped
    /// ends the process by a signal.
    #[inline(always)]
    pub(crate) unsafe fn write_back(self, line: *const u8) {
        match self {
            // By its encoding (`dc cvap, xN` is `sys #3, c7, c12, #1, xN`): assemblers want the extension switched on.
            // SAFETY: the caller's contract. The asm blocks count as reading and writing all memory, so the compiler
            // keeps every store before them and every later one behind.
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
    // SAFETY: a barrier touches no memory; without `nomem` the compiler keeps stores on their side of it.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// Whether [`load128`] is one load: on processors with the second extension of the large-system atomics. As on
/// x86-64, neither Miri nor ThreadSanitizer sees what the instructions load.
#[inline(always)]
pub(crate) fn loads_whole() -> bool {
    !cfg!(any(miri, icefield_sanitize)) && is_aarch64_feature_detected!("lse2")
}

/// Loads both words as one where [`loads_whole`] says so; of order Acquire.
#[inline(always)]
pub(crate) fn load128(cell: &Cell128) -> [u64; 2] {
    if !loads_whole() {
        return cell.0.each_ref().map(|word| word.load(Ordering::Acquire));
    }
    let (first, second): (u64, u64);
    // SAFETY: reads the 16 bytes of `cell` and nothing else, as one because they are aligned so. The compiler does not
    // look into the block, so that the language's rules for plain loads do not apply, and moves no access over it; the
    // barrier orders the load before all that follows: together that is Acquire.
    unsafe {
        asm!(
            "ldp {first}, {second}, [{cell}]",
            "dmb ishld",
            cell = in(reg) std::ptr::from_ref(cell),
            first = out(reg) first,
            second = out(reg) second,
            options(nostack, preserves_flags)
        );
    }
    [first, second]
}
