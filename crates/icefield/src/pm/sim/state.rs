//! What the simulated medium knows: per region the bytes that surely survive and a shadow of the mapping, per line the
//! stores that may or may not survive, per thread the lines that its next fence makes sure.

use std::panic::Location;
use std::thread::ThreadId;

use super::cost::Cost;
use super::detect::Observed;
use super::image::ImageRegion;
use super::mutate::Mutator;
use super::space::{CrashPoint, DirtyLine, Event, EventKind};
use super::{Model, arena::SLOTS};
use crate::pm::{LINE_BYTES, Region};

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// A line with more pending stores than this loses the oldest to the medium, as a cache that evicts it would do.
const PENDING_MAX: u16 = 48;

/// How much of the mapping each fence compares with its shadow, on average.
const SHADOW_BYTES_PER_FENCE: usize = 1 << 17;

/// The hook that looks at crash points.
pub(super) type Observer = Box<dyn FnMut(&CrashPoint<'_>) + Send>;

/// A cache line of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineId {
    pub(super) region: u8,
    pub(super) line: u32,
}

impl LineId {
    pub(super) fn offset(self) -> usize {
        self.line as usize * LINE_BYTES
    }
}

/// How a store is ordered against the earlier ones to its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    /// Not at all: the compiler may swap it with its neighbours.
    Relaxed,
    /// After every earlier atomic store.
    Release,
    /// Part of a bulk write: unordered against everything until it is persisted.
    Bulk,
}

/// One store that is not surely persistent yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) value: u64,
    /// Global number of the store.
    pub(super) seq: u64,
    /// The next entry of the line, in program order.
    next: u32,
    pub(super) thread: u16,
    /// Byte offset in the line.
    pub(super) offset: u8,
    /// 1 to 8 bytes, inside one 8-byte word.
    pub(super) bytes: u8,
    pub(super) kind: StoreKind,
}

impl Entry {
    /// Does the store to a copy of the line.
    pub(super) fn apply(&self, line: &mut [u8]) {
        let (at, bytes) = (usize::from(self.offset), usize::from(self.bytes));
        line[at..at + bytes].copy_from_slice(&self.value.to_le_bytes()[..bytes]);
    }

    /// Which of the line's eight words it changes.
    pub(super) fn word(&self) -> usize {
        usize::from(self.offset) / 8
    }

    pub(super) fn overlaps(&self, offset: usize, bytes: usize) -> bool {
        let at = usize::from(self.offset);
        at < offset + bytes && offset < at + usize::from(self.bytes)
    }
}

/// The pending stores of one line, and the cost counter's marks.
#[derive(Clone, Copy)]
pub(super) struct Line {
    first: u32,
    last: u32,
    /// Where in `State::dirty` the line stands, when it has entries.
    dirty_at: u32,
    count: u16,
    /// Written since the last write-back.
    pub(super) unflushed: bool,
    /// The last operation that read, or wrote, the line.
    pub(super) read_op: u32,
    pub(super) write_op: u32,
}

impl Line {
    const CLEAN: Self = Self {
        first: NONE,
        last: NONE,
        dirty_at: NONE,
        count: 0,
        unflushed: false,
        read_op: 0,
        write_op: 0,
    };
}

/// One region as the simulator sees it.
#[derive(Default)]
pub(super) struct RegionState {
    pub(super) name: &'static str,
    pub(super) region: Option<Region>,
    pub(super) len: usize,
    /// What any crash leaves, before pending stores.
    pub(super) persistent: Vec<u8>,
    /// What the mapping must hold if every store was recorded.
    pub(super) shadow: Vec<u8>,
    /// One bit for each 4-byte word that was last used through a volatile cell.
    pub(super) volatile: Vec<u64>,
    pub(super) lines: Vec<Line>,
    /// Loads may run ahead of the medium here.
    pub(super) exempt: bool,
    pub(super) line_reads: u64,
}

impl RegionState {
    fn empty(&mut self) {
        self.region = None;
        self.len = 0;
        self.persistent.clear();
        self.shadow.clear();
        self.volatile.clear();
        self.lines.clear();
        self.exempt = false;
        self.line_reads = 0;
    }

    /// Notes that the words of the range are used through volatile cells, or no longer are.
    pub(super) fn mark(&mut self, offset: usize, bytes: usize, volatile: bool) {
        for word in offset / 4..(offset + bytes).div_ceil(4) {
            let bit = 1 << (word % 64);
            match self.volatile.get_mut(word / 64) {
                Some(bits) if volatile => *bits |= bit,
                Some(bits) => *bits &= !bit,
                None => {}
            }
        }
    }
}

/// What one thread has done since its last fence.
pub(super) struct Thread {
    id: ThreadId,
    /// Lines flushed, each with the number of the newest store then.
    flushed: Vec<(LineId, u64)>,
    /// Words read before they were persistent.
    pub(super) observed: Vec<Observed>,
    pub(super) ahead: Vec<Observed>,
    /// What was pending just before this thread's last fence in this operation; kept for `SwapStore` only.
    before_fence: Vec<DirtyLine>,
}

/// Everything behind the simulator's lock.
#[derive(Default)]
pub(super) struct State {
    regions: Vec<RegionState>,
    used: usize,
    entries: Vec<Entry>,
    free: u32,
    pub(super) dirty: Vec<LineId>,
    threads: Vec<Thread>,
    seq: u64,
    events: u64,
    pub(super) model: Model,
    pub(super) seed: u64,
    /// Whether stores are logged at all.
    pub(super) recording: bool,
    pub(super) counting: bool,
    /// Whether a store by a thread that has read an unpersisted word is reported.
    pub(super) strict: bool,
    pub(super) observer: Option<Observer>,
    pub(super) mutator: Mutator,
    pub(super) cost: Cost,
    /// Bytes that all regions together may have.
    pub(super) space: u64,
    /// Names of the regions in which loads may run ahead of the medium.
    pub(super) exempt: &'static [&'static str],
    /// Bytes of shadow that fences have earned a look at.
    shadow_credit: usize,
}

impl State {
    pub(super) fn regions(&self) -> &[RegionState] {
        &self.regions[..self.used]
    }

    pub(super) fn regions_mut(&mut self) -> &mut [RegionState] {
        &mut self.regions[..self.used]
    }

    pub(super) fn used_bytes(&self) -> impl Iterator<Item = usize> {
        self.regions().iter().map(|region| region.len)
    }

    /// Forgets everything, keeping the memory for the next medium.
    pub(super) fn reset(&mut self) {
        self.regions_mut().iter_mut().for_each(RegionState::empty);
        self.used = 0;
        self.entries.clear();
        self.free = NONE;
        self.dirty.clear();
        self.threads.clear();
        self.seq = 0;
        self.events = 0;
        self.observer = None;
        self.mutator = Mutator::default();
        self.cost.reset();
    }

    /// A new, empty region; its slot.
    pub(super) fn add_region(&mut self, name: &'static str) -> usize {
        assert!(self.used < SLOTS, "a simulated medium holds at most {SLOTS} regions");
        if self.used == self.regions.len() {
            self.regions.push(RegionState::default());
        }
        self.regions[self.used].name = name;
        self.used += 1;
        self.used - 1
    }

    /// Lengthens a region by zeros that are persistent at once.
    pub(super) fn lengthen(&mut self, slot: usize, len: usize) {
        let keep_logs = self.recording;
        let keep_lines = keep_logs || self.counting;
        let region = &mut self.regions[slot];
        region.len = len;
        region.volatile.resize(len.div_ceil(256), 0);
        if keep_logs {
            region.persistent.resize(len, 0);
            region.shadow.resize(len, 0);
        }
        if keep_lines {
            region.lines.resize(len.div_ceil(LINE_BYTES), Line::CLEAN);
        }
    }

    pub(super) fn line(&self, id: LineId) -> Option<&Line> {
        self.regions[usize::from(id.region)].lines.get(id.line as usize)
    }

    pub(super) fn line_mut(&mut self, id: LineId) -> Option<&mut Line> {
        self.regions[usize::from(id.region)].lines.get_mut(id.line as usize)
    }

    /// The pending stores of a line, oldest first.
    pub(super) fn pending(&self, id: LineId) -> impl Iterator<Item = &Entry> {
        let first = self.line(id).map_or(NONE, |line| line.first);
        let mut at = first;
        std::iter::from_fn(move || {
            let entry = self.entries.get(at as usize)?;
            at = entry.next;
            Some(entry)
        })
    }

    /// Whether the store numbered `seq` of a line may still be lost.
    pub(super) fn is_pending(&self, id: LineId, seq: u64) -> bool {
        self.pending(id).next().is_some_and(|oldest| oldest.seq <= seq)
    }

    /// The calling thread's place.
    pub(super) fn thread(&mut self) -> usize {
        let id = std::thread::current().id();
        if let Some(at) = self.threads.iter().position(|thread| thread.id == id) {
            return at;
        }
        self.threads.push(Thread {
            id,
            flushed: Vec::new(),
            observed: Vec::new(),
            ahead: Vec::new(),
            before_fence: Vec::new(),
        });
        self.threads.len() - 1
    }

    pub(super) fn thread_mut(&mut self, thread: usize) -> &mut Thread {
        &mut self.threads[thread]
    }

    /// Begins an operation of the calling thread.
    pub(super) fn begin_op(&mut self) {
        let at = self.thread();
        let thread = &mut self.threads[at];
        thread.observed.clear();
        thread.ahead.clear();
        thread.before_fence.clear();
        self.cost.begin_op();
    }

    /// Records one store of at most 8 bytes inside an aligned word. The mapping holds it already.
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

    /// Records a bulk write: its words in no order.
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

    /// What every recorded store sets off besides its log entry.
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

    /// Lets the newest store of a line happen before the preceding one to the line, and before the thread's preceding fence.
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
        self.observe(|state| CrashPoint::reordered(state, event, lines, moved));
    }

    /// Exchanges the two newest stores of a line, if only their order keeps them apart.
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
        // A Relaxed store is in no order anyway, nor is a bulk write.
        let ordered = b.kind == StoreKind::Release && a.kind != StoreKind::Bulk;
        if a.word() != b.word() && a.thread == b.thread && ordered {
            self.mutator.applied();
            self.entries[earlier] = Entry { seq: a.seq, next: a.next, ..b };
            self.entries[later] = Entry { seq: b.seq, next: b.next, ..a };
        }
    }

    /// What of a line is surely there.
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
        if !self.mutator.flush(site, dirty > 0) {
            for line in lines {
                let id = LineId { region: slot as u8, line: line as u32 };
                if self.line(id).is_some_and(|line| line.first != NONE) {
                    self.threads[thread].flushed.push((id, self.seq));
                }
            }
        }
        self.event(EventKind::Flush, thread, site);
    }

    /// Makes sure of everything that the thread has flushed.
    pub(super) fn fence(&mut self, site: &'static Location<'static>) {
        let thread = self.thread();
        self.cost.fence();
        if !self.recording {
            return;
        }
        self.event(EventKind::Fence, thread, site);
        let skipped = self.mutator.fence(site, !self.threads[thread].flushed.is_empty());
        if skipped {
            return;
        }
        if self.mutator.wants_swap() && !self.threads[thread].flushed.is_empty() {
            self.threads[thread].before_fence = self.dirty_lines();
        }
        let mut flushed = std::mem::take(&mut self.threads[thread].flushed);
        for &(id, seq) in &flushed {
            while self.is_pending(id, seq) {
                self.persist_oldest(id);
            }
        }
        flushed.clear();
        self.threads[thread].flushed = flushed;
    }

    /// Forgets what is pending in a range whose pages were given back, and zeroes it everywhere.
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

    /// A copy of every line with pending stores.
    pub(super) fn dirty_lines(&self) -> Vec<DirtyLine> {
        let lines = self.dirty.iter().map(|&id| {
            let mut line = DirtyLine::new(id, self.persistent_line(id));
            line.entries.extend(self.pending(id));
            line
        });
        lines.collect()
    }

    /// Tells the observer.
    pub(super) fn event(
        &mut self,
        kind: EventKind,
        thread: usize,
        site: &'static Location<'static>,
    ) {
        self.events += 1;
        if self.observer.is_some() {
            let event = Event { kind, number: self.events, thread, site };
            self.observe(|state| CrashPoint::new(state, event));
        }
    }

    fn observe(&mut self, point: impl for<'a> FnOnce(&'a Self) -> CrashPoint<'a>) {
        if let Some(mut observer) = self.observer.take() {
            observer(&point(self));
            self.observer = Some(observer);
        }
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Fills a new region with the bytes of an image, all persistent.
    pub(super) fn load_image(&mut self, slot: usize, image: &ImageRegion) {
        self.lengthen(slot, image.bytes.len());
        let region = &mut self.regions[slot];
        if self.recording {
            region.persistent.copy_from_slice(&image.bytes);
            region.shadow.copy_from_slice(&image.bytes);
        }
        let words = region.volatile.len().min(image.volatile.len());
        region.volatile[..words].copy_from_slice(&image.volatile[..words]);
    }

    /// Whether the mapping should be compared with its shadow at this fence: always for tiny tables, rarely for large ones.
    pub(super) fn shadow_due(&mut self) -> bool {
        if !self.recording {
            return false;
        }
        self.shadow_credit += SHADOW_BYTES_PER_FENCE;
        let due = self.shadow_credit >= self.used_bytes().sum();
        if due {
            self.shadow_credit = 0;
        }
        due
    }
}
