//! The state of the collection, which frees chunks (`collect`).

use std::collections::{BTreeMap, BTreeSet};

use super::state::Usage;

/// The state of the collection.
#[derive(Default)]
pub(in crate::engine::plush) struct Collection {
    /// The result of the last round; none in a table that was just opened.
    pub(in crate::engine::plush) known: Option<Known>,
    pub(in crate::engine::plush) round: Option<Round>,
    /// Chunks to be freed, each with the last reference into it; the emptiest chunk is the last one.
    pub(in crate::engine::plush) victims: Vec<(u32, u64)>,
    /// Chunks with gaps between their records, and the references into them that the last round found.
    pub(in crate::engine::plush) gapped: BTreeSet<u32>,
    pub(in crate::engine::plush) referred: BTreeMap<u32, Vec<u64>>,
    /// The next chunk to be checked.
    pub(in crate::engine::plush) look_at: u32,
}

/// The result of a round, and the usage of the log at that time.
#[derive(Default)]
pub(in crate::engine::plush) struct Known {
    /// Needed bytes and records.
    pub(in crate::engine::plush) bytes: u64,
    pub(in crate::engine::plush) records: u64,
    pub(in crate::engine::plush) usage: Usage,
    pub(in crate::engine::plush) estimate: i64,
}

/// A round in progress.
pub(in crate::engine::plush) struct Round {
    /// The hash at which the next range to be counted begins.
    pub(in crate::engine::plush) next: u64,
    /// Records counted.
    pub(in crate::engine::plush) records: u64,
    /// By chunk; `None` for chunks that were not full when the round began.
    pub(in crate::engine::plush) counts: Vec<Option<Count>>,
    pub(in crate::engine::plush) referred: BTreeMap<u32, Vec<u64>>,
}

#[derive(Clone, Copy, Default)]
pub(in crate::engine::plush) struct Count {
    /// Needed bytes.
    pub(in crate::engine::plush) needed: u64,
    /// The last reference into the chunk.
    pub(in crate::engine::plush) last: u64,
}

impl Collection {
    /// The state for a new table, or an empty one.
    pub(in crate::engine::plush) fn of_empty() -> Self {
        Self { known: Some(Known::default()), ..Self::default() }
    }

    /// The state for a table that was just opened. The chunk to be checked first differs between sessions.
    pub(in crate::engine::plush) fn of_unknown(seed: u64) -> Self {
        Self { look_at: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) as u32 >> 16, ..Self::default() }
    }
}
