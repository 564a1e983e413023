//! The state of the simulated medium. For each region: the bytes that certainly survive, and a shadow of the mapping.
//! For each line: the stores that may or may not survive. For each thread: the lines that its next fence makes
//! persistent.

use std::panic::Location;
use std::thread::ThreadId;

use super::arena::SLOTS;
use super::cost::Cost;
use super::dirty_line::DirtyLine;
use super::event::{Event, Reordered};
use super::image::ImageRegion;
use super::line::{Entry, Line, LineId, NONE};
use super::model::Model;
use super::mutate::Mutator;
use crate::storage::arch::LINE_BYTES;
use crate::storage::commit::SyncMode;
use crate::storage::region::Region;

/// The average number of mapped bytes that are compared with the shadow at each fence.
const SHADOW_BYTES_PER_FENCE: usize = 1 << 17;

/// The hook that examines crash points. It gets the state, the event, and the lines that a mutation has reordered.
pub(super) type Observer = Box<dyn FnMut(&State, Event, Option<Reordered>) + Send>;

/// The hook that is called for each line that is accessed.
pub(super) type Toucher = Box<dyn FnMut(u64) + Send>;

/// The simulator's state of one region.
#[derive(Default)]
pub(super) struct RegionState {
    pub(super) name: &'static str,
    pub(super) region: Option<Region>,
    pub(super) len: usize,
    /// The bytes that a crash leaves if no pending store survives.
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

    /// Records whether the words of the range were last used through volatile cells.
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

/// A word that a thread read while another thread's store to it was not persistent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) line: LineId,
    pub(super) seq: u64,
    pub(super) offset: usize,
    pub(super) site: &'static Location<'static>,
}

/// The activity of one thread since its last fence.
pub(super) struct Thread {
    pub(super) id: ThreadId,
    /// The lines flushed, each with the number of its newest store at the time of the flush.
    pub(super) flushed: Vec<(LineId, u64)>,
    /// Words read before they were persistent.
    pub(super) observed: Vec<Observed>,
    pub(super) ahead: Vec<Observed>,
    /// The thread is in `store_copy`.
    pub(super) is_copying: bool,
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
    /// Lines of fences that were begun and not ended, with the number of the fence.
    pub(super) begun: Vec<(u64, LineId, u64)>,
    pub(super) begun_fences: u64,
    /// Lines that would be durable, or flushed, without the mutation: the thread of the cancelled call, the line, and
    /// the number of the newest store at that time.
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
    /// Ranges without space, with the slots of their regions.
    #[cfg(test)]
    pub(super) lost: Vec<(usize, std::ops::Range<u64>)>,
    /// The number of the next punches that fail.
    #[cfg(test)]
    pub(super) failing_punches: u32,
    /// Names of the regions in which the detector accepts loads of words that are not persistent.
    pub(super) exempt: &'static [&'static str],
    /// Grows at each fence. When it reaches the size of all regions, they are compared with their shadows.
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
        self.begun.clear();
        self.begun_fences = 0;
        self.left_out.clear();
        self.seq = 0;
        self.events = 0;
        self.observer = None;
        self.toucher = None;
        self.mutator = Mutator::default();
        self.cost.reset();
        #[cfg(test)]
        {
            self.lost.clear();
            self.failing_punches = 0;
        }
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
            is_copying: false,
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
        // Set only if a panic ended a copy.
        thread.is_copying = false;
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
