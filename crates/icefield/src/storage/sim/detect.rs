//! The detector for durable linearizability: finds threads that have relied on a word that a crash could still revert.

use std::panic::Location;

use super::line::{Entry, LineId};
use super::state::{Observed, State};
use crate::storage::arch::LINE_BYTES;

/// A violation: an operation returned, or stored, after it had read a word that a crash could still revert.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    /// The region that holds the word.
    pub region: &'static str,
    /// The word's byte in the region.
    pub offset: u64,
    /// The load in the code.
    pub site: &'static Location<'static>,
    /// The thread stored something before the word was persistent; otherwise the operation returned.
    pub stored: bool,
}

impl std::fmt::Display for ReadAhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { region, offset, site, stored } = self;
        let built = if *stored { ", and stored something meanwhile" } else { "" };
        write!(f, "an unpersisted word: byte {offset} of {region}, read at {site}{built}")
    }
}

impl State {
    /// Records that the calling thread loads some bytes, if another thread has stored them and they are not persistent
    /// yet.
    pub(super) fn note_load(
        &mut self,
        slot: usize,
        offset: usize,
        bytes: usize,
        site: &'static Location<'static>,
    ) {
        if self.dirty.is_empty() || self.regions()[slot].exempt {
            return;
        }
        let thread = self.thread();
        for line in offset / LINE_BYTES..(offset + bytes).div_ceil(LINE_BYTES) {
            let id = LineId { region: slot as u8, line: line as u32 };
            let start = offset.max(id.offset());
            let end = (offset + bytes).min(id.offset() + LINE_BYTES);
            let newest = self
                .pending(id)
                .filter(|entry| entry.overlaps(start - id.offset(), end - start))
                .last();
            let foreign = |entry: &&Entry| usize::from(entry.thread) != thread && !entry.is_copy;
            let Some(seq) = newest.filter(foreign).map(|entry| entry.seq) else {
                continue;
            };
            let observed = &mut self.thread_mut(thread).observed;
            if !observed.iter().any(|known| known.line == id && known.seq == seq) {
                observed.push(Observed { line: id, seq, offset: start, site });
            }
        }
    }

    /// Drops the recorded loads of the calling thread.
    pub(super) fn forget_reads(&mut self) {
        let thread = self.thread();
        self.thread_mut(thread).observed.clear();
    }

    /// Sets whether the calling thread stores copies, as in `store_copy`.
    pub(super) fn set_copying(&mut self, is_copying: bool) {
        let thread = self.thread();
        self.thread_mut(thread).is_copying = is_copying;
    }

    /// Returns the number of recorded loads of the calling thread.
    pub(super) fn reads(&mut self) -> usize {
        let thread = self.thread();
        self.thread_mut(thread).observed.len()
    }

    /// Drops the recorded loads of the calling thread except the first `before`.
    pub(super) fn forget_reads_since(&mut self, before: usize) {
        let thread = self.thread();
        self.thread_mut(thread).observed.truncate(before);
    }

    /// Called at each durable store of a thread, if `strict_stores` is set. Moves the words that the thread has read
    /// and that are not persistent yet to `ahead`, from which `op_returned` reports them.
    pub(super) fn note_store_ahead(&mut self, thread: usize) {
        let mut observed = std::mem::take(&mut self.thread_mut(thread).observed);
        let ahead = observed
            .extract_if(.., |word| self.is_pending(word.line, word.seq))
            .collect::<Vec<_>>();
        let place = self.thread_mut(thread);
        place.ahead.extend(ahead);
        place.observed = observed;
    }

    /// Ends an operation of the calling thread. Returns the words that it read and that may still be lost.
    pub(super) fn op_returned(&mut self) -> Vec<ReadAhead> {
        let thread = self.thread();
        let observed = std::mem::take(&mut self.thread_mut(thread).observed);
        let mut found = Vec::new();
        for word in &observed {
            if self.is_pending(word.line, word.seq) {
                found.push(self.read_ahead(word, false));
            }
        }
        for word in std::mem::take(&mut self.thread_mut(thread).ahead) {
            found.push(self.read_ahead(&word, true));
        }
        found
    }

    fn read_ahead(&self, word: &Observed, stored: bool) -> ReadAhead {
        let region = self.regions()[usize::from(word.line.region)].name;
        ReadAhead { region, offset: word.offset as u64, site: word.site, stored }
    }
}
