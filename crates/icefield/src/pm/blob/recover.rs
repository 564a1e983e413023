//! The scan: finding out, piece by piece, which blocks of former sessions are still owned.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, TryLockError};

use super::block::BlobRef;
use super::chunk::{Chunk, SmallChunk};
use super::class::{Damaged, Extent, FREE};
use super::space::map_word;
use super::{BlobStore, Held, Shared, lock};
use crate::pm::Medium;
use crate::Result;

/// Blocks that one call of [`BlobStore::tend`] examines at most.
const BLOCKS_PER_CALL: u32 = 256;

/// The table, as far as the scan asks it.
pub trait Owner {
    /// Tells whether a slot refers to `blob`, which was written for `owner`: calls `mark` once with the answer, *while it
    /// holds the locks that keep that answer true*, i.e. those under which a record with this `owner` would be linked,
    /// moved or unlinked. Slots are compared by [`BlobRef::same_block`].
    ///
    /// `owner` may be garbage: then no slot refers to the block. When the table cannot tell (a damaged segment), it does
    /// not call `mark`, and the block is left alone for this session. Before it says `false` the unlinking must be durable,
    /// which the locks see to if writers hold them over their fence.
    ///
    /// The store calls this with none of its short locks held; `mark` takes one of them.
    fn is_live(&self, owner: u64, blob: BlobRef, mark: &mut dyn FnMut(bool));
}

/// How far the scan has come.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    /// The next chunk to look at; those below belong to the DRAM state.
    next: u32,
    /// The scan ends here: chunks from here on were first used in this session (or lie behind damage).
    end: u32,
    /// The chunk that is being examined.
    current: Option<Examination>,
}

impl Scanner {
    /// A scan of the chunks below `end`.
    pub fn new(end: u32) -> Mutex<Self> {
        Mutex::new(Self { next: 0, end, current: None })
    }

    fn is_done(&self) -> bool {
        self.next == self.end && self.current.is_none()
    }
}

/// A small chunk that is being examined, block by block.
#[derive(Debug)]
struct Examination {
    chunk: u32,
    class: usize,
    next_block: u32,
    /// Blocks that nobody owns. They become free when every reader of now has left.
    condemned: Vec<u32>,
}

/// What the table said of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Live,
    Dead,
    /// The table could not tell, or said what cannot be: nothing is done to the block in this session.
    Unclear,
}

impl BlobStore {
    /// Does a bounded part of the work that is due: examines up to 256 blocks of former sessions, puts reclaimed chunks
    /// among the free ones. One or two loads when nothing is due, and nothing when another thread is at it.
    ///
    /// Every writing operation of a table calls it first, holding no lock of its own.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`] when a fence failed.
    #[inline]
    pub fn tend<M: Medium>(&self, pm: &M, table: &impl Owner) -> Result<()> {
        // Relaxed, both: hints; the locks behind them order what they stand for.
        let due = self.shared.scan_due.load(Ordering::Relaxed) | self.shared.ripe_runs.load(Ordering::Relaxed) as u32;
        if due == 0 { Ok(()) } else { self.tend_now(pm, table) }
    }

    #[cold]
    fn tend_now<M: Medium>(&self, pm: &M, table: &impl Owner) -> Result<()> {
        self.shared.settle_ripe(pm)?;
        let mut scanner = match self.scanner.try_lock() {
            Ok(scanner) => scanner,
            Err(TryLockError::Poisoned(scanner)) => scanner.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let mut budget = BLOCKS_PER_CALL;
        while budget > 0 && self.shared.scan_due.load(Ordering::Relaxed) > 0 && !scanner.is_done() {
            let examined = self.scan_step(pm, table, &mut scanner, budget);
            budget = budget.saturating_sub(examined);
        }
        Ok(())
    }

    /// Scans all that is left, whatever it takes, and asks for retired blocks: for a table that got [`crate::Error::NoSpace`] and
    /// is about to try once more. What readers still hold does not come back. The caller holds no lock of its own.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`] when a fence failed.
    pub fn make_room<M: Medium>(&self, pm: &M, table: &impl Owner) -> Result<()> {
        let mut scanner = lock(&self.scanner);
        while !scanner.is_done() {
            self.scan_step(pm, table, &mut scanner, u32::MAX);
        }
        drop(scanner);
        self.reclaimer.pin().flush();
        self.shared.settle_ripe(pm)
    }

    /// Goes on with the scan; gives the number of blocks (or map words) looked at, at most `budget` and at least one.
    fn scan_step<M: Medium>(&self, pm: &M, table: &impl Owner, scanner: &mut Scanner, budget: u32) -> u32 {
        if let Some(examination) = &mut scanner.current {
            let examined = self.examine_blocks(pm, table, examination, budget);
            if examination.next_block == self.shared.classes.blocks(examination.class) {
                self.condemn(scanner.current.take());
                self.count_scanned(scanner, 1);
            }
            return examined;
        }
        let number = scanner.next;
        let word = map_word(&self.shared.map, number).map_or(FREE, |word| word.load(pm, Ordering::Relaxed));
        match self.shared.classes.decode(number, word) {
            Ok(None) => {
                let new = lock(&self.shared.space).runs.put(number, 1);
                debug_assert!(new, "the scan passes a chunk once");
                scanner.next += 1;
                self.count_scanned(scanner, 1);
            }
            Ok(Some(Extent::Small(class))) => {
                let unexamined = SmallChunk::unexamined(class, self.shared.classes.blocks(class));
                *lock(self.shared.chunks.get(number)) = Chunk::Small(Box::new(unexamined));
                scanner.current = Some(Examination { chunk: number, class, next_block: 0, condemned: Vec::new() });
                scanner.next += 1;
            }
            Ok(Some(Extent::Large(chunks))) if self.is_run(pm, number, chunks, scanner.end) => {
                self.examine_run(pm, table, number, chunks);
                scanner.next += chunks;
                self.count_scanned(scanner, chunks);
            }
            // What follows may be the inside of a run whose word was damaged: nothing there is given away. `check` says so.
            Ok(Some(Extent::Large(_))) | Err(Damaged) => {
                let rest = scanner.end - number;
                scanner.end = number;
                self.count_scanned(scanner, rest);
            }
        }
        1
    }

    /// Takes `chunks` off what is due and what is left.
    fn count_scanned(&self, scanner: &Scanner, chunks: u32) {
        let shared = &self.shared;
        // Relaxed, all: hints and statistics; only the holder of the scanner lowers them.
        let left = shared.unscanned.load(Ordering::Relaxed).saturating_sub(chunks);
        shared.unscanned.store(left, Ordering::Relaxed);
        let paid = |due: u32| Some(if scanner.is_done() { 0 } else { due.saturating_sub(chunks) });
        let _ = shared.scan_due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
    }

    /// Whether a run that the map claims lies below `end` and has an inside that begins nothing.
    fn is_run<M: Medium>(&self, pm: &M, start: u32, chunks: u32, end: u32) -> bool {
        let inside = |number| map_word(&self.shared.map, number).is_some_and(|word| word.load(pm, Ordering::Relaxed) == FREE);
        chunks <= end - start && (start + 1..start + chunks).all(inside)
    }

    fn examine_blocks<M: Medium>(&self, pm: &M, table: &impl Owner, at: &mut Examination, budget: u32) -> u32 {
        let first = at.next_block;
        let last = self.shared.classes.blocks(at.class).min(first.saturating_add(budget));
        let start = u64::from(at.chunk) * u64::from(self.shared.params.chunk_bytes);
        for block in first..last {
            let offset = start + u64::from(block) * u64::from(self.shared.classes.size(at.class));
            let own = || {
                if let Chunk::Small(small) = &mut *lock(self.shared.chunks.get(at.chunk)) {
                    small.owned.insert(block);
                }
            };
            if self.examine(pm, table, offset, Extent::Small(at.class), own) == Verdict::Dead {
                at.condemned.push(block);
            }
        }
        at.next_block = last;
        last - first
    }

    fn examine_run<M: Medium>(&self, pm: &M, table: &impl Owner, start: u32, chunks: u32) {
        let chunk = self.shared.chunks.get(start);
        *lock(chunk) = Chunk::Large { chunks, owned: false };
        let own = || *lock(chunk) = Chunk::Large { chunks, owned: true };
        let offset = u64::from(start) * u64::from(self.shared.params.chunk_bytes);
        if self.examine(pm, table, offset, Extent::Large(chunks), own) == Verdict::Dead {
            self.after_readers(move |shared| shared.release(Held::Run { start, chunks }));
        }
    }

    /// Asks the table about one block; `own` is called under the table's locks when it is live.
    fn examine<M: Medium>(
        &self,
        pm: &M,
        table: &impl Owner,
        offset: u64,
        extent: Extent,
        own: impl Fn(),
    ) -> Verdict {
        let Some(header) = self.header(offset) else { return Verdict::Unclear };
        if header.is_blank(pm) {
            return Verdict::Dead;
        }
        let fits = self.shared.classes.extent(header.len(pm)) == extent;
        let mut verdict = Verdict::Unclear;
        table.is_live(header.owner(pm), BlobRef::at(offset), &mut |live| {
            verdict = match (live, fits) {
                (true, true) => {
                    own();
                    Verdict::Live
                }
                (true, false) => Verdict::Unclear,
                (false, _) => Verdict::Dead,
            };
        });
        if verdict == Verdict::Live {
            self.shared.used_bytes.add(self.shared.extent_bytes(extent) as i64);
        }
        verdict
    }

    /// Frees the blocks of an examined chunk that nobody owns, once nobody can be looking at them.
    fn condemn(&self, examination: Option<Examination>) {
        let Some(Examination { chunk, condemned, .. }) = examination.filter(|done| !done.condemned.is_empty()) else {
            return;
        };
        self.after_readers(move |shared| {
            shared.after_change(chunk, |small| {
                for block in condemned {
                    small.free.insert(block);
                }
            });
        });
    }

    fn after_readers(&self, work: impl FnOnce(&Shared) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let guard = self.reclaimer.pin();
        guard.retire(move || work(&shared));
        guard.flush();
    }
}
