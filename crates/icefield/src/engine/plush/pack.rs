//! Packing: the runs of buckets and the chained entries that are in use move to the lowest blocks of their files, so
//! that the space behind them goes back to the file system. No other thread writes; readers are not blocked.
//!
//! Free blocks hold the links of the allocators' free lists, and a move overwrites them. So before the first move the
//! phase word marks the lists as invalid: after a crash, opening packs again, based on the references of the entries.
//! Each block is copied, durably, before its entry refers to the copy. At the end the phase word switches to the
//! other set of the allocators' words, in which the blocks below the limit are exactly those in use.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::core::Core;
use super::layout::{CLASSES, Entry, EntryId, EntryRef, Phase, RUNS, class_of};
use crate::Result;
use crate::storage::alloc::Pool;
use crate::storage::superblock::ROOT_OFFSET;
use crate::storage::{Cell64, Medium, Region};
use crate::types::RecordForm;

/// Selects whether packing keeps or removes the last level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    Stays,
    /// All its records are also in the levels above.
    Goes,
}

/// The blocks of one file that are in use.
struct Used {
    /// By block number.
    blocks: Vec<bool>,
    count: u64,
}

impl Used {
    fn new(pool: &Pool) -> Self {
        Self { blocks: vec![false; pool.room() as usize], count: 0 }
    }

    /// Adds a block. Returns whether the block lies in the file and was not added before.
    fn add(&mut self, block: u32) -> bool {
        self.count += 1;
        let place = self.blocks.get_mut(block as usize);
        place.is_some_and(|used| !std::mem::replace(used, true))
    }

    /// The free blocks whose numbers are below the number of used blocks.
    fn holes(&self) -> VecDeque<u32> {
        let below = self.blocks.iter().take(self.count as usize);
        below.enumerate().filter(|(_, used)| !**used).map(|(block, _)| block as u32).collect()
    }
}

/// All blocks that are in use: runs by class, and chained entries.
struct AllUsed {
    runs: [Used; CLASSES],
    chains: Used,
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Packs all blocks; with `Last::Goes`, first removes the last level. Called while no other thread writes.
    pub(super) fn pack(&self, last: Last) -> Result<()> {
        let words = self.root_words()?;
        let phase = Phase::unpack(words.phase.load(&self.storage, Acquire));
        let Some(phase) = phase else {
            let detail = "the phase word is impossible";
            return Err(self.table.fault(&self.storage, ROOT_OFFSET, detail));
        };
        // Checked before any change, so that a table with damaged references remains as it is.
        self.used_blocks()?;
        for (pool, words) in self.pools(words) {
            pool.allocator().end_intents(&self.storage, words)?;
        }
        // P17: from here on the free lists are invalid, and opening after a crash packs again.
        self.set_phase(Phase::Packing { set: phase.set() })?;
        if last == Last::Goes {
            self.take_last_level()?;
        }
        self.pack_all(phase.set())
    }

    /// Gives the space behind the used blocks back to the file system. Called while no other thread writes.
    pub(super) fn give_back_unused(&self) -> Result<()> {
        // A file system that cannot punch holes keeps the pages.
        let behind = |region: &Region, bytes: u64| {
            let _ = self.storage.punch(region, bytes, region.len().saturating_sub(bytes));
        };
        for (pool, words) in self.pools(self.root_words()?) {
            behind(pool.region(), pool.used_bytes(&self.storage, words));
        }
        behind(self.levels.region(), self.levels.bytes_of(self.levels.count(&self.storage)));
        Ok(())
    }

    /// Packs all blocks in phase `Packing`, also after a crash has interrupted the packing. `set` is the set of the
    /// allocators' words in use until now.
    pub(super) fn pack_all(&self, set: usize) -> Result<()> {
        let used = self.used_blocks()?;
        let mut holes = used.runs.each_ref().map(Used::holes);
        let mut chain_holes = used.chains.holes();
        for root_entry in 0..self.root.entries() {
            let held = self.root.lock(&self.storage, root_entry);
            let mut moves = Vec::new();
            self.each_entry_below(root_entry, |entry| {
                for run in 0..RUNS {
                    let class = class_of(run);
                    let block = entry.entry.runs[run].load(&self.storage, Acquire);
                    if u64::from(block) > used.runs[class].count
                        && let Some(hole) = holes[class].pop_front()
                    {
                        self.copy_run(class, block - 1, hole)?;
                        moves.push((entry, run, hole));
                    }
                }
                Ok(())
            })?;
            if !moves.is_empty() {
                // P18: the copies are durable before any entry refers to them.
                self.storage.try_fence()?;
                held.begin_change();
                for (entry, run, hole) in moves {
                    let cell = &entry.entry.runs[run];
                    // A crash before P19 may leave the former reference, which leads to the same records.
                    self.storage.store_copy(|| cell.store(&self.storage, hole + 1, Release));
                    self.storage.flush_object(cell);
                }
                held.end_change();
            }
            if !chain_holes.is_empty() {
                held.begin_change();
                let moved = self.pack_chains(root_entry, used.chains.count, &mut chain_holes);
                held.end_change();
                moved?;
            }
        }
        let words = self.root_words()?;
        for ((pool, words), used) in self.pools(words).zip(used.runs.iter().chain([&used.chains])) {
            pool.allocator().prepare_packed(&self.storage, words, used.count);
        }
        // P19: the references to the copies are durable before the former blocks are free, and the other set of the
        // allocators' words before the phase word selects it. Until then no former block is used again.
        self.storage.try_fence()?;
        // P20: from here on the other set of the allocators' words is valid.
        self.set_phase(Phase::Stable { set: 1 - set })?;
        self.pools(words).for_each(|(pool, _)| pool.allocator().switch());
        Ok(())
    }

    /// Calls `show` with all entries below a root entry, each before those that continue it.
    fn each_entry_below<'a>(
        &'a self,
        root_entry: usize,
        mut show: impl FnMut(EntryRef<'a>) -> Result<()>,
    ) -> Result<()> {
        for level in 1..=self.levels.count(&self.storage) {
            for index in self.entries_below(root_entry, level) {
                let chain = self.chain_of(self.level_entry(level, index)?)?;
                chain.into_iter().try_for_each(&mut show)?;
            }
        }
        Ok(())
    }

    fn used_blocks(&self) -> Result<AllUsed> {
        let runs = self.runs.each_ref().map(Used::new);
        let mut used = AllUsed { runs, chains: Used::new(&self.chains) };
        for root_entry in 0..self.root.entries() {
            self.each_entry_below(root_entry, |entry| {
                let twice = || {
                    format!(
                        "{:?} refers to a block that does not exist or that another entry owns",
                        entry.id
                    )
                };
                for (run, cell) in entry.entry.runs.iter().enumerate() {
                    let block = cell.load(&self.storage, Acquire).checked_sub(1);
                    if block.is_some_and(|block| !used.runs[class_of(run)].add(block)) {
                        return Err(self.runs[class_of(run)].region().fault(
                            &self.storage,
                            0,
                            twice(),
                        ));
                    }
                }
                if let EntryId::Chained(block) = entry.id
                    && !used.chains.add(block)
                {
                    return Err(self.chains.region().fault(&self.storage, 0, twice()));
                }
                Ok(())
            })?;
        }
        Ok(used)
    }

    /// Copies a run. The stores are flushed.
    fn copy_run(&self, class: usize, from: u32, to: u32) -> Result<()> {
        let bytes = self.runs[class].block_bytes();
        let words = |block: u32| {
            let words = (bytes / size_of::<Cell64>() as u64) as usize;
            let region = self.runs[class].region();
            region.get_slice::<Cell64>(&self.storage, u64::from(block) * bytes, words, "the run")
        };
        let (from, to) = (words(from)?, words(to)?);
        for (from, to) in from.iter().zip(to) {
            // Release (E3): a payload was written before the reference to it is stored.
            to.store(&self.storage, from.load(&self.storage, Acquire), Release);
        }
        self.storage.flush(to.as_ptr().cast(), size_of_val(to));
        Ok(())
    }

    /// Moves the chained entries with block numbers from `count` on that are below a root entry. Called while readers
    /// wait.
    fn pack_chains(&self, root_entry: usize, count: u64, holes: &mut VecDeque<u32>) -> Result<()> {
        let mut firsts = Vec::new();
        self.each_entry_below(root_entry, |entry| {
            firsts.extend(matches!(entry.id, EntryId::Level(_)).then_some(entry));
            Ok(())
        })?;
        for first in firsts {
            let moved = self.pack_chain(first, count, holes);
            // The bounds of the leaves refer to block numbers.
            self.leaves.forget(first.id);
            moved?;
        }
        Ok(())
    }

    fn pack_chain(&self, first: EntryRef<'_>, count: u64, holes: &mut VecDeque<u32>) -> Result<()> {
        let mut before = first;
        while let Some(mut next) = self.next_of(before)? {
            if let EntryId::Chained(block) = next.id
                && u64::from(block) >= count
                && let Some(hole) = holes.pop_front()
            {
                let to = self.entry(EntryId::Chained(hole))?;
                self.copy_entry(next.entry, to.entry);
                // P18, as in `pack_all`.
                self.storage.try_fence()?;
                let cell = &before.entry.next;
                // A crash before P19 may leave the former reference, which leads to the same records.
                self.storage.store_copy(|| cell.store(&self.storage, hole + 1, Release));
                self.storage.flush_object(cell);
                next = to;
            }
            before = next;
        }
        Ok(())
    }

    /// Copies an entry. The stores are flushed.
    fn copy_entry(&self, from: &Entry, to: &Entry) {
        let storage = &self.storage;
        to.state.store(storage, from.state.load(storage, Relaxed), Relaxed);
        to.next.store(storage, from.next.load(storage, Relaxed), Relaxed);
        for (from, to) in from.runs.iter().zip(&to.runs) {
            to.store(storage, from.load(storage, Relaxed), Relaxed);
        }
        for (from, to) in from.dead.iter().zip(&to.dead).chain(from.filter.iter().zip(&to.filter)) {
            // Relaxed, all: published by the reference that will be stored.
            to.store(storage, from.load(storage, Relaxed), Relaxed);
        }
        storage.flush_object(to);
    }

    /// Allocates the space of the used blocks and of the levels, because a copy of a file may have holes there.
    pub(super) fn fill_used_blocks(&self) -> Result<()> {
        for (pool, words) in self.pools(self.root_words()?) {
            self.storage.reserve(pool.region(), 0, pool.used_bytes(&self.storage, words))?;
        }
        let bytes = self.levels.bytes_of(self.levels.count(&self.storage));
        self.storage.reserve(self.levels.region(), 0, bytes)
    }
}
