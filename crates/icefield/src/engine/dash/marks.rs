//! One mark per segment, in DRAM: the state of the segment in this session.

use std::io;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::base::memory::GrowingArray;
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
/// In a session that only reads: the segment may be read.
pub(super) const STILL: u8 = 4;
/// In a session that only reads: the split that makes the segment is due, so its records are in another segment.
pub(super) const DUE: u8 = 5;

/// The exclusive right to recover a segment. While it exists, the segment's mark is `RECOVERING`. [`Marks::set`] ends
/// the recovery. If the right is dropped before that, another thread can recover the segment.
pub(super) struct Mark<'a> {
    state: &'a AtomicU8,
    before: u8,
}

/// The marks of all segments.
pub(super) struct Marks(GrowingArray<AtomicU8>);

impl Marks {
    /// Reserves addresses for the marks of `most` segments. [`Marks::extend`] makes the marks usable.
    pub(super) fn new(most: usize) -> io::Result<Self> {
        GrowingArray::new(most).map(Self)
    }

    /// Makes the marks of the first `segments` segments usable.
    pub(super) fn extend(&self, segments: usize) -> io::Result<()> {
        self.0.extend(segments)
    }

    #[inline]
    pub(super) fn of(&self, id: u32) -> u8 {
        // Acquire (E5): pairs with the Release in `set`.
        self.0.get(id as usize).map_or(UNTOUCHED, |state| state.load(Acquire))
    }

    /// Returns whether a segment has been recovered in this session. A thread that sees the mark sees the reset locks.
    #[inline]
    pub(super) fn is_ready(&self, id: u32) -> bool {
        self.of(id) == READY
    }

    /// Returns the segments that may be used.
    pub(super) fn ready(&self) -> impl Iterator<Item = u32> {
        (0..self.0.len() as u32).filter(|&id| self.is_ready(id))
    }

    /// Returns whether the split that makes the segment is due and will not be performed in this session.
    pub(super) fn is_due(&self, id: u32) -> bool {
        self.of(id) == DUE
    }

    pub(super) fn set(&self, id: u32, mark: u8) {
        if let Some(state) = self.0.get(id as usize) {
            // Release (E5): a thread that sees the mark sees the reset locks and the state that recovery determined.
            state.store(mark, Release);
        }
    }

    /// Changes the mark of a ready segment to `AWAY`, because the segment has left the table.
    pub(super) fn away(&self, id: u32) {
        if let Some(state) = self.0.get(id as usize) {
            // The mark of a segment that this session never used does not change. Release: as in `set`.
            let _ = state.compare_exchange(READY, AWAY, Release, Relaxed);
        }
    }

    /// Waits while another thread recovers the segment, then takes its mark. Returns `None` if the segment needs no
    /// recovery or does not exist.
    pub(super) fn take(&self, storage: &impl Medium, id: u32) -> Result<Option<Mark<'_>>> {
        self.0.get(id as usize).map_or(Ok(None), |state| Mark::take(storage, state))
    }

    /// Takes the mark of a segment that is `AWAY`. Returns `None` for any other segment.
    pub(super) fn take_away(&self, id: u32) -> Option<Mark<'_>> {
        Mark::take_away(self.0.get(id as usize)?)
    }
}

impl<'a> Mark<'a> {
    /// Waits while another thread recovers the segment, then takes the mark. Returns `None` if the segment needs no
    /// recovery.
    ///
    /// # Errors
    /// The process was forked while a thread of its parent recovered the segment: in this process the recovery would
    /// never end.
    fn take(storage: &impl Medium, state: &'a AtomicU8) -> Result<Option<Self>> {
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
                // AcqRel: only one thread recovers; Acquire pairs with the Release in `Marks::set`.
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
    fn take_away(state: &'a AtomicU8) -> Option<Self> {
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
        // Fails if `Marks::set` has ended the recovery; then the mark must not change, because the segment may be in
        // use.
        let _ = self.state.compare_exchange(RECOVERING, self.before, Release, Relaxed);
    }
}
