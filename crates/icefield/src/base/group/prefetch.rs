//! Hints to the processor that a line is about to be read or written. They never fault, regardless of the address.

use std::sync::LazyLock;

/// Returns whether many reads in flight are faster with [`prefetch_second_level`] than with [`prefetch_read`], although
/// each of them then waits for the second-level cache. `true` for Intel's processors, of which one model was measured
/// (docs/decisions/0128-iceberg-and-dash-reads.md).
#[inline]
pub fn fills_first_level_slowly() -> bool {
    static IS_INTEL: LazyLock<bool> = LazyLock::new(is_intel);
    *IS_INTEL
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_intel() -> bool {
    // SAFETY: every processor of this architecture has the instruction `cpuid`.
    #[allow(unused_unsafe, reason = "newer versions of Rust declare it safe")]
    let found = unsafe { core::arch::x86_64::__cpuid(0) };
    let name = [found.ebx, found.edx, found.ecx].map(u32::to_le_bytes);
    name.as_flattened() == b"GenuineIntel"
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn is_intel() -> bool {
    false
}

/// Prefetches the line of `address` for reading.
#[inline(always)]
pub fn prefetch_read<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE is part of x86-64; a hint touches no memory that the program can observe.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint touches no memory that the program can observe.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Prefetches the line of `address` for reading into the second-level cache, which can have more line fills in flight
/// than the first level has buffers for.
#[inline(always)]
pub fn prefetch_second_level<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE is part of x86-64; a hint touches no memory that the program can observe.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint touches no memory that the program can observe.
    unsafe {
        core::arch::asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Prefetches the line of `address` in a state in which this processor may write it. Not for reads: it takes the line
/// away from all other processors.
#[inline(always)]
pub fn prefetch_write<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // Assembly, because the compiler omits the instruction unless it targets a processor that has it. Every 64-bit x86
    // processor accepts it; on the oldest Intel ones it does nothing.
    // SAFETY: a hint touches no memory that the program can observe.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint touches no memory that the program can observe.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
