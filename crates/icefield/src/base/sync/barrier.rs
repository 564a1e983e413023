//! An asymmetric barrier with a cheap (light) and an expensive (heavy) side. A light and a heavy barrier on two
//! threads are ordered: both threads agree which comes first.

#[cfg(not(any(miri, loom)))]
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

use super::atomic::{Ordering, fence};

/// The implementation of the barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// The system call `membarrier`: the light side only stops the compiler from reordering, and costs nothing.
    #[cfg(not(any(miri, loom)))]
    OfTheSystem,
    /// Both sides are fences.
    Fences,
}

#[cfg(not(any(miri, loom)))]
impl Barrier {
    /// Returns the best barrier that this process can use. Queries the system on each call, which matters after a
    /// fork.
    pub fn detect() -> Self {
        let needed =
            MembarrierQuery::PRIVATE_EXPEDITED | MembarrierQuery::REGISTER_PRIVATE_EXPEDITED;
        let offered = membarrier_query().contains(needed)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        if offered { Self::OfTheSystem } else { Self::Fences }
    }

    /// Executes a barrier on every processor that runs a thread of this process. Returns `false` if the system
    /// refused.
    fn everywhere() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(any(miri, loom))]
impl Barrier {
    /// Returns the best barrier that this process can use.
    pub fn detect() -> Self {
        Self::Fences
    }
}

impl Barrier {
    /// Executes the cheap side.
    #[inline(always)]
    pub fn light(self) {
        match self {
            #[cfg(not(any(miri, loom)))]
            // SeqCst: orders the compiler only.
            Self::OfTheSystem => std::sync::atomic::compiler_fence(Ordering::SeqCst),
            // SeqCst: pairs with the fence in `heavy`.
            Self::Fences => fence(Ordering::SeqCst),
        }
    }

    /// Executes the expensive side. Returns `false` if the system refused, as a sandbox may at any time; nothing is
    /// ordered then.
    #[must_use]
    pub fn heavy(self) -> bool {
        // SeqCst: the calling thread's own share of the barrier.
        fence(Ordering::SeqCst);
        match self {
            #[cfg(not(any(miri, loom)))]
            Self::OfTheSystem => Self::everywhere(),
            Self::Fences => true,
        }
    }
}
