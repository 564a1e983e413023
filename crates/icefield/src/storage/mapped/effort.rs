//! The work that a flush and a fence do, depending on the durability.

use crate::storage::arch::Instruction;
use crate::storage::durability::Durability;
use crate::{Error, Result};

/// The work of a flush and a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// Flush and fence: nothing. The store itself suffices.
    None,
    /// Flush: write lines back. Fence: a store fence.
    Lines(Instruction),
    /// Flush: nothing. Fence: a store fence.
    FenceOnly,
    /// Flush: record the range. Fence: sync the recorded ranges.
    Sync,
}

impl Effort {
    /// Returns the work of flushes and fences for `durability`.
    pub(super) fn of(durability: Durability, skip_flush: bool) -> Result<Self> {
        Ok(match durability {
            Durability::Auto | Durability::Memory | Durability::Process => Self::None,
            Durability::Disk => Self::Sync,
            Durability::Pmem | Durability::PmemForced if skip_flush => Self::FenceOnly,
            Durability::Pmem | Durability::PmemForced => {
                Self::Lines(Instruction::detect().ok_or_else(|| {
                    Error::Unsupported(
                        "this processor cannot write cache lines back; use durability `process`"
                            .into(),
                    )
                })?)
            }
        })
    }
}
