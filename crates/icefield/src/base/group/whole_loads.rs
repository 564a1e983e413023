//! The proof that the processor loads 16 bytes at once.

/// A proof that this processor loads 16 aligned bytes as one: Intel and AMD guarantee it for every processor with AVX, Arm
/// for those with LSE2 (Large System Extensions 2).
#[derive(Clone, Copy, Debug)]
pub struct WholeLoads(());

impl WholeLoads {
    /// Returns the proof, or `None` if this processor does not guarantee such loads, or if a tool observes all accesses:
    /// Miri and ThreadSanitizer do not see the loads of inline assembly.
    #[inline]
    #[must_use]
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        let loads_whole = is_x86_feature_detected!("avx");
        #[cfg(target_arch = "aarch64")]
        let loads_whole = std::arch::is_aarch64_feature_detected!("lse2");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let loads_whole = false;
        (loads_whole && !OBSERVED).then_some(Self(()))
    }

    /// Returns the proof on a processor with AVX2, which includes AVX. The caller has the proof of AVX2.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    pub(super) fn with_avx2() -> Option<Self> {
        (!OBSERVED).then_some(Self(()))
    }
}

/// Whether a tool observes all accesses of this build.
const OBSERVED: bool = cfg!(any(miri, icefield_sanitize));
