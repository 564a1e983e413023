//! Plans of failing system calls, as scenarios want them.

use std::sync::Arc;

use icefield::pm::{Errno, FaultAction, FaultAt, FaultMode, FaultPlan};

/// The process dies at the `nth` system call of the persistent layer, counted from 1.
#[must_use]
pub fn kill_at(nth: u64) -> Arc<FaultPlan> {
    Arc::new(FaultPlan::new(FaultAt { nth, mode: FaultMode::Once, action: FaultAction::Kill }))
}

/// The `nth` system call fails with `errno`: only that one, or every one from then on.
#[must_use]
pub fn fail_at(nth: u64, mode: FaultMode, errno: Errno) -> Arc<FaultPlan> {
    Arc::new(FaultPlan::new(FaultAt { nth, mode, action: FaultAction::Fail(errno) }))
}
