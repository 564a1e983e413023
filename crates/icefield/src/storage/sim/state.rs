//! The state of the simulated medium. For each region: the bytes that certainly survive, and a shadow of the mapping.
//! For each line: the stores that may or may not survive. For each thread: the lines that its next fence makes
//! persistent.

use std::thread::ThreadId;

use super::cost::Cost;
use super::detect::Observed;
use super::image::ImageRegion;
use super::mutate::Mutator;
use super::space::{CrashPoint, DirtyLine};
use super::{Model, arena::SLOTS};
use crate::storage::{LINE_BYTES, Region, SyncMode};

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// The average number of mapped bytes that are compared with the shadow at each fence.
const SHADOW_BYTES_PER_FENCE: usize = 1 << 17;

/// The hook that examines crash points.
pub(super) type Observer = Box<dyn FnMut(&CrashPoint<'_>) + Send>;

/// The hook that is called for each line that is accessed.
pub(super) type Toucher = Box<dyn FnMut(u64) + Send>;

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

/// The order of a store relative to the earlier ones to its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    /// None: the compiler may swap it with its neighbours.
    Relaxed,
    /// Release or stronger: after every earlier atomic store.
    Release,
    /// Part of a bulk write: unordered until it is persisted.
    Bulk,
}

/// One store that is not certainly persistent yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) value: u64,
    /// Global number of the store.
    pub(super) seq: u64,
    /// The next entry of the line, in program order.
    pub(super) next: u32,
    pub(super) thread: u16,
    /// Byte offset in the line.
    pub(super) offset: u8,
    /// 1 to 8 bytes, inside one 8-byte word.
    pub(super) bytes: u8,
    pub(super) kind: StoreKind,
}

impl Entry {
    /// Applies the store to a copy of the line.
    pub(super) fn apply(&self, line: &mut [u8]) {
        let (at, bytes) = (usize::from(self.offset), usize::from(self.bytes));
        line[at..at + bytes].copy_from_slice(&self.value.to_le_bytes()[..bytes]);
    }

    /// Returns which of the line's eight words it changes.
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
    pub(super) first: u32,
    pub(super) last: u32,
    /// The index of the line in `State::dirty`, if it has entries.
    pub(super) dirty_at: u32,
    pub(super) count: u16,
    /// Written since the last write-back.
    pub(super) unflushed: bool,
    /// The last operations that read and wrote the line.
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

/// The simulator's state of one region.
#[derive(Default)]
pub(super) struct RegionState {
    pub(super) name: &'static str,
    pub(super) region: Option<Region>,
    pub(super) len: usize,
    /// The bytes after any crash, before pending stores are applied.
    pub(super) persistent: Vec<u8>,
    /// The bytes that the mapping must hold if every store was recorded.
    pub(super) shadow: Vec<u8>,
    /// One bit for each 4-byte word that was last used through a volatile cell.
    pub(super) volatile: Vec<u64>,
    pub(super) lines: Vec<Line>,
    /// The detector accepts loads of words that are not persistent.
    pub(super) exempt: bool,
    pub(super) line_reads: u64,
    /// The region's length when it was discarded.
    pub(super) gone: Option<usize>,
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
        self.gone = None;
    }

    /// Marks the words of the range as used through volatile cells, or not.
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

/// The activity of one thread since its last fence.
pub(super) struct Thread {
    pub(super) id: ThreadId,
    /// The lines flushed, each with the number of its newest store then.
    pub(super) flushed: Vec<(LineId, u64)>,
    /// Words read before they were persistent.
    pub(super) observed: Vec<Observed>,
    pub(super) ahead: Vec<Observed>,
    /// The stores that were pending just before this thread's last fence in this operation; kept for store mutations
    /// only.
    pub(super) before_fence: Vec<DirtyLine>,
}

/// The state behind the simulator's lock.
#[derive(Default)]
pub(super) struct State {
    pub(super) regions: Vec<RegionState>,
    pub(super) used: usize,
    pub(super) entries: Vec<Entry>,
    pub(super) free: u32,
    pub(super) dirty: Vec<LineId>,
    /// A table is open on the medium.
    pub(super) is_claimed: bool,
    /// `Medium::publish_created` was called.
    pub(super) published: bool,
    pub(super) threads: Vec<Thread>,
    /// Lines whose fence was deferred to the next `fence_deferred`.
    pub(super) left: Vec<(LineId, u64)>,
    /// Lines that would be durable, or flushed, without the mutation, each with the thread that left that out.
    pub(super) left_out: Vec<(usize, LineId, u64)>,
    pub(super) sync: SyncMode,
    pub(super) free_fences: bool,
    pub(super) seq: u64,
    pub(super) events: u64,
    pub(super) model: Model,
    pub(super) seed: u64,
    /// Log stores.
    pub(super) recording: bool,
    pub(super) counting: bool,
    /// Report a store by a thread that has read a word that is not persistent.
    pub(super) strict: bool,
    pub(super) observer: Option<Observer>,
    pub(super) toucher: Option<Toucher>,
    pub(super) mutator: Mutator,
    pub(super) cost: Cost,
    /// The largest number of bytes of all regions together.
    pub(super) space: u64,
    /// Names of the regions in which the detector accepts loads of words that are not persistent.
    pub(super) exempt: &'static [&'static str],
    /// Bytes of shadow that are due for a comparison.
    pub(super) shadow_credit: usize,
}

impl State {
    pub(super) fn regions(&self) -> &[RegionState] {
        &self.regions[..self.used]
    }

    pub(super) fn regions_mut(&mut self) -> &mut [RegionState] {
        &mut self.regions[..self.used]
    }

    pub(super) fn used_bytes(&self) -> impl Iterator<Item = usize> {
        self.regions().iter().map(|region| region.len.max(region.gone.unwrap_or(0)))
    }

    /// Resets everything, but keeps the memory for the next medium.
    pub(super) fn reset(&mut self) {
        self.regions_mut().iter_mut().for_each(RegionState::empty);
        self.used = 0;
        self.entries.clear();
        self.free = NONE;
        self.dirty.clear();
        self.published = false;
        self.is_claimed = false;
        self.threads.clear();
        self.left.clear();
        self.left_out.clear();
        self.seq = 0;
        self.events = 0;
        self.observer = None;
        self.toucher = None;
        self.mutator = Mutator::default();
        self.cost.reset();
    }

    /// Removes a region from every image. Its slot keeps the bytes as long as a handle of the region exists.
    pub(super) fn discard(&mut self, name: &str) {
        let Some(slot) = self.regions().iter().position(|region| region.name == name) else {
            return;
        };
        let whole = self.regions[slot].len / LINE_BYTES * LINE_BYTES;
        self.punch(slot, 0, whole);
        let region = &mut self.regions[slot];
        region.gone = Some(std::mem::take(&mut region.len));
        region.name = "";
        region.persistent.clear();
        region.shadow.clear();
    }

    /// Empties and returns the slot of a discarded region without handles, and the number of its bytes that were in
    /// use.
    pub(super) fn abandoned(&mut self) -> Option<(usize, usize)> {
        let unused = |region: &RegionState| !region.region.as_ref().is_some_and(Region::is_shared);
        let slot =
            self.regions().iter().position(|region| region.gone.is_some() && unused(region))?;
        let used = self.regions[slot].gone.unwrap_or(0);
        self.regions[slot].empty();
        Some((slot, used))
    }

    /// Adds an empty region and returns its slot.
    pub(super) fn add_region(&mut self, name: &'static str) -> usize {
        assert!(self.used < SLOTS, "a simulated medium holds at most {SLOTS} regions");
        if self.used == self.regions.len() {
            self.regions.push(RegionState::default());
        }
        self.regions[self.used].name = name;
        self.used += 1;
        self.used - 1
    }

    /// Extends a region by zeros, which are persistent at once.
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

    /// Returns the pending stores of a line, oldest first.
    pub(super) fn pending(&self, id: LineId) -> impl Iterator<Item = &Entry> {
        let first = self.line(id).map_or(NONE, |line| line.first);
        let mut at = first;
        std::iter::from_fn(move || {
            let entry = self.entries.get(at as usize)?;
            at = entry.next;
            Some(entry)
        })
    }

    /// Returns whether the store numbered `seq` of a line may still be lost.
    pub(super) fn is_pending(&self, id: LineId, seq: u64) -> bool {
        self.pending(id).next().is_some_and(|oldest| oldest.seq <= seq)
    }

    /// Returns the index of the calling thread.
    pub(super) fn thread(&mut self) -> usize {
        let id = std::thread::current().id();
        match self.threads.iter().rposition(|thread| thread.id == id) {
            Some(at) => at,
            None => self.new_thread(),
        }
    }

    /// Registers the calling thread as a new one.
    pub(super) fn new_thread(&mut self) -> usize {
        self.threads.push(Thread {
            id: std::thread::current().id(),
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

    /// Returns whether the mapping should be compared with its shadow at this fence: always for tiny tables, rarely
    /// for large ones.
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
