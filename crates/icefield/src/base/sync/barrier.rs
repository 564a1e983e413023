//! A barrier with a cheap and a dear side: of a light one and a heavy one on two threads, one is after the other for
//! both.

use super::{Ordering, fence};

/// Whether the system makes barriers for us, or every thread its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// `membarrier`: the light side keeps the compiler from reordering, and costs nothing.
    #[cfg(not(any(miri, loom)))]
    OfTheSystem,
    /// A fence on both sides.
    Fences,
}

#[cfg(not(any(miri, loom)))]
mod system {
    use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

    use super::Barrier;

    impl Barrier {
        /// What this process can have. Asks anew each time, which matters after a fork.
        pub fn detect() -> Self {
            let needed =
                MembarrierQuery::PRIVATE_EXPEDITED | MembarrierQuery::REGISTER_PRIVATE_EXPEDITED;
            let offered = membarrier_query().contains(needed)
                && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
            if offered { Self::OfTheSystem } else { Self::Fences }
        }

        /// A barrier on every processor that runs a thread of this process. `false` when there was none.
        pub(super) fn everywhere() -> bool {
            membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        }
    }
}

#[cfg(any(miri, loom))]
impl Barrier {
    /// What this process can have.
    pub fn detect() -> Self {
        Self::Fences
    }
}

impl Barrier {
    /// The cheap side.
    #[inline(always)]
    pub fn light(self) {
        match self {
            #[cfg(not(any(miri, loom)))]
            // SeqCst: of the compiler only.
            Self::OfTheSystem => std::sync::atomic::compiler_fence(Ordering::SeqCst),
            // SeqCst: pairs with that of `heavy`.
            Self::Fences => fence(Ordering::SeqCst),
        }
    }

    /// The dear side. `false` when it was refused, as a sandbox may do at any time: then nothing is known.
    #[must_use]
    pub fn heavy(self) -> bool {
        // SeqCst: the calling thread's own part.
        fence(Ordering::SeqCst);
        match self {
            #[cfg(not(any(miri, loom)))]
            Self::OfTheSystem => Self::everywhere(),
            Self::Fences => true,
        }
    }
}
