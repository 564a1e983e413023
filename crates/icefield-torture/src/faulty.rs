//! Fault plans for system calls, as the scenarios use them.

use std::sync::Arc;

use icefield::storage::{Errno, FaultAction, FaultAt, FaultMode, FaultPlan};

/// Kills the process at the `nth` system call of the persistent layer, counted from 1.
#[must_use]
pub fn kill_at(nth: u64) -> Arc<FaultPlan> {
    Arc::new(FaultPlan::new(FaultAt { nth, mode: FaultMode::Once, action: FaultAction::Kill }))
}

/// Lets the `nth` system call fail with `errno`. `mode` selects only that call, or every call from then on.
#[must_use]
pub fn fail_at(nth: u64, mode: FaultMode, errno: Errno) -> Arc<FaultPlan> {
    Arc::new(FaultPlan::new(FaultAt { nth, mode, action: FaultAction::Fail(errno) }))
}
