//! The marks of segments in DRAM: what this session has done with each.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::storage::Medium;
use crate::{Error, Result};

/// The segment has not been touched in this session.
pub(super) const UNTOUCHED: u8 = 0;
/// A thread is recovering the segment.
pub(super) const RECOVERING: u8 = 1;
/// The segment may be used.
pub(super) const READY: u8 = 2;
/// The segment is not part of the table, but was used in this session: its locks are valid.
pub(super) const AWAY: u8 = 3;
/// The segment may be read, in a session that only reads.
pub(super) const STILL: u8 = 4;
/// In a session that only reads: the split that makes the segment is due, so its records are in another segment.
pub(super) const DUE: u8 = 5;

/// The exclusive right to recover a segment: its mark is `RECOVERING`. `Core::set_mark` ends the recovery. If this is
/// dropped before, another thread can try.
pub(super) struct Mark<'a> {
    state: &'a AtomicU8,
    before: u8,
}

impl<'a> Mark<'a> {
    /// Waits for a thread that recovers the segment; returns `None` if the recovery is done.
    ///
    /// # Errors
    /// The process was forked while a thread of its parent recovered the segment: in this process the recovery would
    /// never end.
    pub(super) fn take(storage: &impl Medium, state: &'a AtomicU8) -> Result<Option<Self>> {
        let mut before = state.load(Acquire);
        let mut rounds = 0;
        loop {
            match before {
                READY | STILL | DUE => return Ok(None),
                RECOVERING => {
                    if let Err(Error::Forked) = storage.check_writable() {
                        return Err(Error::Forked);
                    }
                    storage.wait(rounds);
                    rounds = rounds.saturating_add(1);
                    before = state.load(Acquire);
                }
                // AcqRel: only one thread recovers; Acquire pairs with the Release in `set_mark`.
                _ => match state.compare_exchange(before, RECOVERING, AcqRel, Acquire) {
                    Ok(before) => return Ok(Some(Self { state, before })),
                    Err(now) => before = now,
                },
            }
        }
    }
}

impl<'a> Mark<'a> {
    /// Takes the mark of a segment that is `AWAY`. Returns `None` if the segment is in another state.
    pub(super) fn take_away(state: &'a AtomicU8) -> Option<Self> {
        state
            .compare_exchange(AWAY, RECOVERING, AcqRel, Relaxed)
            .ok()
            .map(|before| Self { state, before })
    }

    /// Returns whether the segment has not been used in this session, so that its locks are invalid.
    pub(super) fn is_fresh(&self) -> bool {
        self.before == UNTOUCHED
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        // Fails if the segment is ready, and perhaps already in use.
        let _ = self.state.compare_exchange(RECOVERING, self.before, Release, Relaxed);
    }
}
