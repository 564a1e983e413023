//! The log of stores: stores append to it, fences remove from it, mutations change it.

use std::panic::Location;

use super::dirty_line::DirtyLine;
use super::event::{Event, EventKind, Reordered};
use super::line::{Entry, LineId, NONE, StoreKind};
use super::state::State;
use crate::storage::arch::LINE_BYTES;

/// The largest number of pending stores of a line. A further store makes the oldest one persistent, like a cache
/// eviction.
const PENDING_MAX: u16 = 48;

impl State {
    /// Records one store of at most 8 bytes inside an aligned word. The mapping already holds it.
    pub(super) fn store(
        &mut self,
        slot: usize,
        offset: usize,
        bytes: usize,
        value: u64,
        kind: StoreKind,
        site: &'static Location<'static>,
    ) {
        let thread = self.thread();
        self.push_entry(slot, offset, bytes, value, kind, thread);
        self.after_store(slot, offset, thread, site);
    }

    /// Records a bulk write, whose words have no order.
    pub(super) fn store_bulk(
        &mut self,
        slot: usize,
        offset: usize,
        src: &[u8],
        site: &'static Location<'static>,
    ) {
        let thread = self.thread();
        let mut at = 0;
        while at < src.len() {
            let bytes = (8 - (offset + at) % 8).min(src.len() - at);
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&src[at..at + bytes]);
            self.push_entry(
                slot,
                offset + at,
                bytes,
                u64::from_le_bytes(word),
                StoreKind::Bulk,
                thread,
            );
            at += bytes;
        }
        if !src.is_empty() {
            self.after_store(slot, offset, thread, site);
        }
    }

    fn push_entry(
        &mut self,
        slot: usize,
        offset: usize,
        bytes: usize,
        value: u64,
        kind: StoreKind,
        thread: usize,
    ) {
        let region = &mut self.regions[slot];
        region.shadow[offset..offset + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        region.mark(offset, bytes, false);
        self.seq += 1;
        let entry = Entry {
            value,
            seq: self.seq,
            next: NONE,
            thread: thread as u16,
            offset: (offset % LINE_BYTES) as u8,
            bytes: bytes as u8,
            kind,
            is_copy: self.threads[thread].is_copying,
        };
        let id = LineId { region: slot as u8, line: (offset / LINE_BYTES) as u32 };
        if region.lines[id.line as usize].count >= PENDING_MAX {
            self.persist_oldest(id);
        }
        let at = self.new_entry(entry);
        self.append(id, at);
    }

    fn new_entry(&mut self, entry: Entry) -> u32 {
        if self.entries.is_empty() {
            self.free = NONE;
        }
        let at = self.free;
        if at == NONE {
            self.entries.push(entry);
            return (self.entries.len() - 1) as u32;
        }
        self.free = self.entries[at as usize].next;
        self.entries[at as usize] = entry;
        at
    }

    fn append(&mut self, id: LineId, at: u32) {
        let dirty_at = self.dirty.len() as u32;
        let line = &mut self.regions[usize::from(id.region)].lines[id.line as usize];
        line.count += 1;
        if line.first == NONE {
            line.first = at;
            line.dirty_at = dirty_at;
            self.dirty.push(id);
        } else {
            self.entries[line.last as usize].next = at;
        }
        line.last = at;
    }

    /// Makes the oldest pending store of a line persistent.
    fn persist_oldest(&mut self, id: LineId) {
        let region = &mut self.regions[usize::from(id.region)];
        let line = &mut region.lines[id.line as usize];
        let at = line.first;
        let entry = self.entries[at as usize];
        let end = region.len.min(id.offset() + LINE_BYTES);
        entry.apply(&mut region.persistent[id.offset()..end]);
        line.first = entry.next;
        line.count -= 1;
        self.entries[at as usize].next = self.free;
        self.free = at;
        if line.first == NONE {
            line.last = NONE;
            let hole = line.dirty_at as usize;
            line.dirty_at = NONE;
            self.dirty.swap_remove(hole);
            if let Some(&moved) = self.dirty.get(hole) {
                self.regions[usize::from(moved.region)].lines[moved.line as usize].dirty_at =
                    hole as u32;
            }
        }
    }

    /// Does the rest of the work for a store that is in the log: detection, mutation and the event.
    fn after_store(
        &mut self,
        slot: usize,
        offset: usize,
        thread: usize,
        site: &'static Location<'static>,
    ) {
        if self.strict {
            self.note_store_ahead(thread);
        }
        let swapped = self.mutator.store(site);
        if swapped {
            self.swap_store(
                LineId { region: slot as u8, line: (offset / LINE_BYTES) as u32 },
                thread,
                site,
            );
        }
        self.event(EventKind::Store, thread, site);
    }

    /// Moves the newest store of a line before the preceding store to that line, and before the thread's preceding
    /// fence.
    fn swap_store(&mut self, id: LineId, thread: usize, site: &'static Location<'static>) {
        let Some(store) = self.pending(id).last().copied() else { return };
        self.swap_in_line(id);
        if self.threads[thread].before_fence.is_empty() {
            return;
        }
        self.mutator.applied();
        let mut lines = self.threads[thread].before_fence.clone();
        let moved = lines.iter().position(|line| line.id == id).unwrap_or_else(|| {
            lines.push(DirtyLine::new(id, self.persistent_line(id)));
            lines.len() - 1
        });
        lines[moved].entries.push(store);
        let event = Event { kind: EventKind::Store, number: self.events, thread, site };
        self.observe(event, Some(Reordered { lines, moved }));
    }

    /// Exchanges the two newest stores of a line, if they are ordered stores of one thread to different words.
    fn swap_in_line(&mut self, id: LineId) {
        let later = self.line(id).map_or(NONE, |line| line.last) as usize;
        let mut earlier = self.line(id).map_or(NONE, |line| line.first) as usize;
        while self.entries[earlier].next as usize != later {
            if earlier == later {
                return;
            }
            earlier = self.entries[earlier].next as usize;
        }
        let (a, b) = (self.entries[earlier], self.entries[later]);
        // Relaxed stores and bulk writes have no order anyway.
        let ordered = b.kind == StoreKind::Release && a.kind != StoreKind::Bulk;
        if a.word() != b.word() && a.thread == b.thread && ordered {
            self.mutator.applied();
            self.entries[earlier] = Entry { seq: a.seq, next: a.next, ..b };
            self.entries[later] = Entry { seq: b.seq, next: b.next, ..a };
        }
    }

    /// Returns the bytes of a line that are certainly persistent.
    fn persistent_line(&self, id: LineId) -> &[u8] {
        let region = &self.regions[usize::from(id.region)];
        &region.persistent[id.offset()..region.len.min(id.offset() + LINE_BYTES)]
    }

    /// Starts the write-back of the lines that overlap the range.
    pub(super) fn flush(
        &mut self,
        slot: usize,
        offset: usize,
        bytes: usize,
        site: &'static Location<'static>,
    ) {
        let thread = self.thread();
        if self.counting {
            self.count_flush(slot, offset, bytes);
        }
        if !self.recording {
            return;
        }
        let lines = offset / LINE_BYTES..(offset + bytes).div_ceil(LINE_BYTES);
        let is_dirty = |line: &usize| {
            self.regions[slot].lines.get(*line).is_some_and(|line| line.first != NONE)
        };
        let dirty: usize = lines.clone().filter(is_dirty).count();
        let skipped = self.mutator.flush(site, dirty > 0);
        if skipped {
            self.forget_made_up();
        }
        for line in lines {
            let id = LineId { region: slot as u8, line: line as u32 };
            if self.line(id).is_some_and(|line| line.first != NONE) {
                if skipped {
                    self.left_out.push((thread, id, self.seq));
                } else {
                    self.threads[thread].flushed.push((id, self.seq));
                }
            }
        }
        self.event(EventKind::Flush, thread, site);
    }

    /// Makes persistent everything that the thread has flushed.
    pub(super) fn fence(&mut self, site: &'static Location<'static>) {
        let thread = self.thread();
        self.cost.fence();
        if !self.recording {
            return;
        }
        self.event(EventKind::Fence, thread, site);
        let skipped = self.mutator.fence(site, !self.threads[thread].flushed.is_empty());
        if skipped {
            self.leave_out(thread);
            return;
        }
        if self.mutator.wants_swap() && !self.threads[thread].flushed.is_empty() {
            self.threads[thread].before_fence = self.dirty_lines();
        }
        let mut flushed = std::mem::take(&mut self.threads[thread].flushed);
        self.persist_all(&flushed);
        flushed.clear();
        self.threads[thread].flushed = flushed;
    }

    /// Returns whether anything that the mutation left out is still not durable.
    pub(super) fn is_left_out(&self) -> bool {
        self.left_out.iter().any(|&(_, id, seq)| self.is_pending(id, seq))
    }

    /// Returns whether a write-back that the mutation left out on the calling thread is still missing, so that the
    /// thread's next fence makes up for the omission.
    pub(super) fn makes_up(&mut self) -> bool {
        let thread = self.thread();
        self.left_out.iter().any(|&(by, id, seq)| by == thread && self.is_pending(id, seq))
    }

    /// Removes omissions whose lines have become durable.
    fn forget_made_up(&mut self) {
        let mut left_out = std::mem::take(&mut self.left_out);
        left_out.retain(|&(_, id, seq)| self.is_pending(id, seq));
        self.left_out = left_out;
    }

    /// Skips the thread's fence: its flushed lines do not become persistent.
    fn leave_out(&mut self, thread: usize) {
        self.forget_made_up();
        let flushed = self.threads[thread].flushed.iter();
        self.left_out.extend(flushed.map(|&(id, seq)| (thread, id, seq)));
    }

    fn persist_all(&mut self, flushed: &[(LineId, u64)]) {
        for &(id, seq) in flushed {
            while self.is_pending(id, seq) {
                self.persist_oldest(id);
            }
        }
    }

    /// Defers the thread's flushed lines to the next [`State::fence_deferred`].
    pub(super) fn fence_later(&mut self, site: &'static Location<'static>) {
        let flushed = self.flushed(site);
        self.left.extend(flushed);
    }

    /// The lines that the thread has flushed, for a fence that takes effect later.
    fn flushed(&mut self, site: &'static Location<'static>) -> Vec<(LineId, u64)> {
        let thread = self.thread();
        if !self.recording {
            return Vec::new();
        }
        if self.mutator.fence(site, !self.threads[thread].flushed.is_empty()) {
            self.leave_out(thread);
            return Vec::new();
        }
        std::mem::take(&mut self.threads[thread].flushed)
    }

    /// Begins a fence for the thread's flushed lines, and returns its number.
    pub(super) fn begin_fence(&mut self, site: &'static Location<'static>) -> u64 {
        let flushed = self.flushed(site);
        self.begun_fences += 1;
        let number = self.begun_fences;
        self.begun.extend(flushed.into_iter().map(|(id, seq)| (number, id, seq)));
        number
    }

    /// Makes persistent the lines of a fence that was begun, and of all fences begun before it.
    pub(super) fn end_fence(&mut self, begun: u64, site: &'static Location<'static>) {
        let thread = self.thread();
        self.cost.fence();
        if !self.recording {
            return;
        }
        self.event(EventKind::Fence, thread, site);
        let is_due = |&(number, ..): &(u64, LineId, u64)| number <= begun;
        if self.mutator.fence(site, self.begun.iter().any(is_due)) {
            self.forget_made_up();
            let due = self.begun.iter().filter(|&begun| is_due(begun));
            self.left_out.extend(due.map(|&(_, id, seq)| (thread, id, seq)));
        } else {
            let due = self.begun.extract_if(.., |begun| is_due(begun));
            let due: Vec<_> = due.map(|(_, id, seq)| (id, seq)).collect();
            if self.mutator.wants_swap() && !due.is_empty() {
                self.threads[thread].before_fence = self.dirty_lines();
            }
            self.persist_all(&due);
        }
    }

    /// Makes persistent what any thread has deferred.
    pub(super) fn fence_deferred(&mut self, site: &'static Location<'static>) {
        let thread = self.thread();
        if self.left.is_empty() {
            return;
        }
        self.cost.fence();
        self.event(EventKind::Fence, thread, site);
        if self.mutator.fence(site, true) {
            self.left_out.extend(self.left.iter().map(|&(id, seq)| (thread, id, seq)));
        } else {
            let left = std::mem::take(&mut self.left);
            self.persist_all(&left);
        }
    }

    /// Drops pending stores of a range whose pages were punched, and zeroes its persistent bytes and its shadow.
    pub(super) fn punch(&mut self, slot: usize, offset: usize, bytes: usize) {
        if !self.recording {
            return;
        }
        for line in offset / LINE_BYTES..(offset + bytes) / LINE_BYTES {
            let id = LineId { region: slot as u8, line: line as u32 };
            while self.line(id).is_some_and(|line| line.first != NONE) {
                self.persist_oldest(id);
            }
        }
        let region = &mut self.regions[slot];
        region.mark(offset, bytes, false);
        region.persistent[offset..offset + bytes].fill(0);
        region.shadow[offset..offset + bytes].fill(0);
    }

    /// Returns a copy of every line with pending stores.
    pub(super) fn dirty_lines(&self) -> Vec<DirtyLine> {
        let lines = self.dirty.iter().map(|&id| {
            let mut line = DirtyLine::new(id, self.persistent_line(id));
            line.entries.extend(self.pending(id));
            line
        });
        lines.collect()
    }

    /// Calls the observer.
    pub(super) fn event(
        &mut self,
        kind: EventKind,
        thread: usize,
        site: &'static Location<'static>,
    ) {
        self.events += 1;
        if self.observer.is_some() {
            let event = Event { kind, number: self.events, thread, site };
            self.observe(event, None);
        }
    }

    fn observe(&mut self, event: Event, reordered: Option<Reordered>) {
        if let Some(mut observer) = self.observer.take() {
            observer(self, event, reordered);
            self.observer = Some(observer);
        }
    }
}
