//! Crash-safe allocation of equal blocks, such as segments and chained buckets.
//!
//! # Layout
//! [`Words`] in a table's root page: two sets of `{bump, skip, free}` (a table that clears itself by one store
//! switches between them) and a row of intents. Blocks below `bump` have been handed out at some time. If `skip` is not
//! 0, block `skip - 1` has also been handed out, even if `bump` has not reached it yet. `free` heads a list of free
//! blocks, which are linked through a word in each block ([`Blocks::next`]).
//!
//! # Invariants
//! - A1: every block below `bump` except `skip - 1` is owned by the table, or is on the free list once, or is named by
//!   an intent.
//! - A2: all changes of `bump` and `free` are made under one mutex, and durable intents announce each change. So at a
//!   crash, the intents of an unfinished list change name blocks at or above `bump`, or blocks that were the first of
//!   the list.
//! - A3: the announcement of the next change of the list makes the ends of earlier intents durable. Until then, a crash
//!   may bring back an intent that has ended. Blocks leave their owners only by being freed, which is announced. So the
//!   block of such an intent still has its owner, or is near the head of the list: the changes announced earlier put at
//!   most one block for each intent in front of it.
//!
//! # Crashes
//! Allocation: P1 the intent (block, tag) is durable; P2 the block is off the list. Then the owner links the block
//! durably, and [`Allocator::commit`] ends the intent, or [`Allocator::abandon`] puts the block back. Freeing: P1
//! intent; the owner unlinks; P2 the block's next word; P3 the list's head; the intent ends. [`Allocator::recover`]
//! queries the owner about each block that an intent names. Owned blocks are left alone. A block at or above `bump`, or
//! among the first of the list, is free already (A2). All other blocks go back on the list. Recovery only repeats these
//! steps, so a crash during recovery needs no further treatment.
//!
//! An owner may link new blocks before `bump` is durable, if a fence makes both the link and `bump` durable before the
//! owner [commits](Allocator::commit). A crash before that fence leaves one of four states. Neither is durable: the
//! block is still free. Only `bump` is durable: the block goes on the list. Both are durable: the block is owned. Only
//! the link is durable: an owned block lies at or above `bump`. Therefore recovery first [raises](Allocator::raise)
//! `bump` above such blocks. Other blocks, which were handed out before the crash but have no owner, may then lie below
//! `bump`, too. Recovery settles them like all others: their intents have not ended, because a thread makes a higher
//! `bump` durable before it ends an intent.
//!
//! After a failed sync, blocks are neither claimed nor freed. The owner of an intent forgets it in DRAM, so that no
//! thread waits for it. Its word stays: no other intent is stored over it, and the next opening settles it.
//!
//! # Ordering
//! The words (`bump`, `skip`, `free`, `count`, `intents`, `intent`) are stored Release, and loaded Acquire where the
//! mutex does not order them already. On the medium, Release keeps the order of the stores to one line, which two
//! intents may share.
//!
//! # Costs
//! Allocating one or several blocks costs one fence, or two when they come off the list; committing costs none.
//! Freeing one or several costs three. The allocator is meant for structure changes, not for single records.

use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Mutex, MutexGuard};

use super::cell::Overlay;
use super::{Cell64, Medium, Region, not_poisoned};
use crate::{Error, Result};

mod pool;
mod recover;

pub(crate) use pool::{Pool, check_length};

/// The number of blocks that can be between the list and an owner at once; further callers wait.
const INTENTS: usize = 32;

/// An allocator's words on the medium.
#[repr(C)]
pub struct Words {
    sets: [Set; 2],
    intents: [Cell64; INTENTS],
}

impl Words {
    /// Clears the free lists and the intents. A reader needs neither, and both may be damaged.
    pub(crate) fn forget(&self, storage: &impl Medium) {
        for set in &self.sets {
            set.free.store(storage, 0, Relaxed);
        }
        for intent in &self.intents {
            intent.store(storage, 0, Relaxed);
        }
    }

    /// Reduces the counts of handed-out blocks that exceed `used`.
    pub(crate) fn bound(&self, storage: &impl Medium, used: u64) {
        for set in &self.sets {
            for cell in [&set.bump, &set.skip] {
                if cell.load(storage, Relaxed) > used {
                    cell.store(storage, used, Relaxed);
                }
            }
        }
    }
}

#[repr(C)]
struct Set {
    bump: Cell64,
    skip: Cell64,
    free: Cell64,
    _reserved: Cell64,
}

impl Set {
    /// Returns the first block from `bump` on that was never handed out.
    fn beyond(&self, storage: &impl Medium, bump: u64) -> u64 {
        if bump + 1 == self.skip.load(storage, Relaxed) { bump + 1 } else { bump }
    }
}

// SAFETY: `repr(C)`, cells only.
unsafe impl Overlay for Set {}
// SAFETY: `repr(C)`, cells and overlays only.
unsafe impl Overlay for Words {}

/// The table's access to the blocks that an allocator hands out.
pub trait Blocks {
    /// Checks that a block lies within its region.
    ///
    /// # Errors
    /// It does not.
    fn find(&self, block: u32) -> Result<()>;
    /// Returns the next word of a block on the free list: the next block plus one, or 0.
    ///
    /// # Errors
    /// The block lies outside its region.
    fn next(&self, block: u32) -> Result<u64>;
    /// Stores and flushes the next word of a block.
    ///
    /// # Errors
    /// As for [`Blocks::next`].
    fn set_next(&self, block: u32, next: u64) -> Result<()>;
    /// Makes the first `count` blocks usable.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    fn reserve(&self, count: u64) -> Result<()>;
}

/// Makes the first `count` blocks of a region usable, for [`Blocks::reserve`], and some more so that growth costs few
/// system calls: an eighth more in a small file, a thirty-second in a large one. The region keeps its length when the
/// table shrinks.
///
/// # Errors
/// [`Error::NoSpace`]; the region has not changed.
pub(crate) fn reserve_blocks(
    storage: &impl Medium,
    region: &Region,
    count: u64,
    block_bytes: u64,
) -> Result<()> {
    let too_much = || Error::NoSpace { path: region.path(storage), needed_bytes: u64::MAX };
    let needed = count.checked_mul(block_bytes).ok_or_else(too_much)?;
    if needed <= region.len() {
        return Ok(());
    }
    let slack = (needed / 8).min(1 << 20).max(needed / 32).min(64 << 20);
    let generous = needed.saturating_add(slack).min(region.max_bytes()).max(needed);
    match storage.grow(region, generous) {
        Err(Error::NoSpace { .. }) => storage.grow(region, needed),
        grown => grown,
    }
}

/// A block that has been allocated and has no durable owner yet.
#[derive(Debug)]
#[must_use = "a claimed block must be committed or abandoned"]
pub struct Claim {
    /// The block.
    pub block: u32,
    intent: usize,
}

/// The DRAM half of an allocator.
#[derive(Debug)]
pub struct Allocator {
    state: Mutex<DramState>,
}

#[derive(Debug)]
struct DramState {
    /// The index of the set in use.
    set: usize,
    /// One bit for each intent, set while the intent is in use.
    busy: u32,
    /// One bit for each intent, set if the intent has changed since the intents were last flushed.
    changed: u32,
}

fn intent_word(block: u32, tag: u32) -> u64 {
    u64::from(tag) << 32 | (u64::from(block) + 1)
}

/// Returns the block and the tag of an intent; `None` if the word is 0.
fn intent_of(word: u64) -> Option<(u32, u32)> {
    (word != 0).then(|| ((word as u32).wrapping_sub(1), (word >> 32) as u32))
}

impl DramState {
    /// Stores an intent. Durable when the caller has flushed and fenced.
    fn begin(&mut self, storage: &impl Medium, words: &Words, claim: &Claim, tag: u32) {
        words.intents[claim.intent].store(storage, intent_word(claim.block, tag), Release);
        self.busy |= 1 << claim.intent;
        self.changed |= 1 << claim.intent;
    }

    /// Ends intents. The ends become durable before the next change of the list (A3).
    fn end(&mut self, storage: &impl Medium, words: &Words, claims: &[Claim]) {
        for claim in claims {
            words.intents[claim.intent].store(storage, 0, Release);
            self.busy &= !(1 << claim.intent);
            self.changed |= 1 << claim.intent;
        }
    }

    /// Forgets intents whose owners cannot continue because the medium takes no more writes.
    fn forget(&mut self, claims: &[Claim]) {
        claims.iter().for_each(|claim| self.busy &= !(1 << claim.intent));
    }

    /// Flushes the intents that have changed. The caller fences under the mutex, so that the next holder can rely on
    /// them.
    fn flush_intents(&mut self, storage: &impl Medium, words: &Words) {
        if self.changed != 0 {
            let (first, last) = (self.changed.trailing_zeros(), self.changed.ilog2());
            let changed = &words.intents[first as usize..=last as usize];
            storage.flush(changed.as_ptr().cast(), size_of_val(changed));
        }
        self.changed = 0;
    }

    /// Stores and flushes intents for blocks, up to the number of free intents. The caller fences under the mutex.
    fn announce<B>(&mut self, storage: &impl Medium, freed: &Freed<'_, B>) -> Vec<Claim> {
        let mut claims = Vec::with_capacity(freed.owned.len());
        for &(block, tag) in &freed.owned {
            let Some(intent) = free_bit(self.busy) else { break };
            let claim = Claim { block, intent };
            self.begin(storage, freed.words, &claim, tag);
            claims.push(claim);
        }
        self.flush_intents(storage, freed.words);
        claims
    }
}

impl Allocator {
    /// Returns an allocator that uses the words of set `set`.
    #[must_use]
    pub fn new(set: usize) -> Self {
        Self { state: Mutex::new(DramState { set, busy: 0, changed: 0 }) }
    }

    /// Returns the number of blocks ever handed out in the present set: all blocks in use have smaller numbers.
    pub fn used(&self, storage: &impl Medium, words: &Words) -> u64 {
        let set = &words.sets[self.lock().set];
        // Read without validation: another thread's new block may not be durable yet. The count of blocks reveals
        // nothing about records.
        storage.read_unvalidated(|| {
            set.bump.load(storage, Relaxed).max(set.skip.load(storage, Relaxed))
        })
    }

    /// Returns a bound on the number of blocks handed out in either set, for walks over blocks.
    pub fn bound(storage: &impl Medium, words: &Words) -> u64 {
        // Read without validation: a bound on a walk does not influence results.
        storage.read_unvalidated(|| {
            let counts = words.sets.iter().map(|set| {
                let [bump, skip] = [&set.bump, &set.skip].map(|word| word.load(storage, Relaxed));
                bump.max(skip)
            });
            counts.max().unwrap_or(0)
        })
    }

    /// Returns the unused blocks from `bump` on that precede block `skip - 1`, which was handed out before its turn.
    pub(crate) fn passed_over(&self, storage: &impl Medium, words: &Words) -> Range<u64> {
        let set = &words.sets[self.lock().set];
        set.bump.load(storage, Relaxed)..set.skip.load(storage, Relaxed).saturating_sub(1)
    }

    /// Returns whether a block has ever been handed out in the present set.
    pub(crate) fn has_handed_out(&self, storage: &impl Medium, words: &Words, block: u32) -> bool {
        let set = &words.sets[self.lock().set];
        // Read without validation: as in `used`.
        storage.read_unvalidated(|| {
            let [bump, skip] = [&set.bump, &set.skip].map(|word| word.load(storage, Relaxed));
            u64::from(block) < bump || u64::from(block) + 1 == skip
        })
    }

    /// Returns the unused blocks from `bump` on that precede block `skip - 1`, then the blocks of the free list in
    /// order. For `check`.
    ///
    /// # Errors
    /// A block lies outside its region.
    pub fn free_blocks(
        &self,
        storage: &impl Medium,
        words: &Words,
        blocks: &impl Blocks,
    ) -> Result<Vec<u32>> {
        let mut free: Vec<u32> =
            self.passed_over(storage, words).map(|block| block as u32).collect();
        let set = &words.sets[self.lock().set];
        let most = set.bump.load(storage, Relaxed).max(set.skip.load(storage, Relaxed));
        let mut next = set.free.load(storage, Relaxed);
        while next != 0 && free.len() as u64 <= most {
            let block = (next - 1) as u32;
            free.push(block);
            next = blocks.next(block)?;
        }
        Ok(free)
    }

    /// Takes a block off the list, or a new one, for an owner that [`Allocator::recover`] finds by `tag`.
    ///
    /// # Errors
    /// No space for another block; nothing has changed.
    pub fn claim(
        &self,
        storage: &impl Medium,
        words: &Words,
        blocks: &impl Blocks,
        tag: u32,
    ) -> Result<Claim> {
        let mut rounds = 0;
        loop {
            if let Some(claim) = self.try_claim(storage, words, blocks, &[tag])?.pop() {
                return Ok(claim);
            }
            storage.wait(rounds);
            rounds = rounds.saturating_add(1);
        }
    }

    /// Like [`Allocator::claim`], for several owners, which share its fences. Claims at least one block and at most as
    /// many as there are free intents; either all come off the list or all are new.
    ///
    /// # Errors
    /// No space for another block; nothing has changed.
    pub fn claim_some(
        &self,
        storage: &impl Medium,
        words: &Words,
        blocks: &impl Blocks,
        tags: &[u32],
    ) -> Result<Vec<Claim>> {
        let Some(&first) = tags.first() else { return Ok(Vec::new()) };
        match self.try_claim(storage, words, blocks, tags) {
            Ok(claims) if !claims.is_empty() => Ok(claims),
            // No intent is free, or there is not enough space for all.
            Ok(_) | Err(Error::NoSpace { .. }) => {
                Ok(vec![self.claim(storage, words, blocks, first)?])
            }
            Err(error) => Err(error),
        }
    }

    /// Claims blocks for the first owners in `tags`, at most one for each free intent. Returns no claims if no intent
    /// is free.
    fn try_claim(
        &self,
        storage: &impl Medium,
        words: &Words,
        blocks: &impl Blocks,
        tags: &[u32],
    ) -> Result<Vec<Claim>> {
        let mut state = self.lock();
        // After a failed sync, no intent may be stored: a forgotten one is free in DRAM, but its word must stay, so
        // that the next opening settles its block.
        not_poisoned(storage)?;
        let set = &words.sets[state.set];
        let (mut free, mut bump) =
            (set.free.load(storage, Relaxed), set.bump.load(storage, Relaxed));
        let (mut busy, listed) = (state.busy, free != 0);
        let mut claims = Vec::new();
        for _ in tags {
            let Some(intent) = free_bit(busy) else { break };
            let block = match (listed, free) {
                (true, 0) => break,
                (true, _) => (free - 1) as u32,
                (false, _) => set.beyond(storage, bump) as u32,
            };
            // Checked before any store: a block outside the region ends the call here.
            match listed {
                true => free = blocks.next(block)?,
                false => bump = u64::from(block) + 1,
            }
            claims.push(Claim { block, intent });
            busy |= 1 << intent;
        }
        if claims.is_empty() {
            return Ok(claims);
        }
        if !listed {
            blocks.reserve(bump)?;
        }
        for (claim, &tag) in claims.iter().zip(tags) {
            state.begin(storage, words, claim, tag);
        }
        state.flush_intents(storage, words);
        // P1: from here on, recovery examines the blocks.
        let announced = storage.try_fence();
        // P2: the blocks have been handed out.
        let taken = announced.and_then(|()| {
            if listed {
                set.free.store(storage, free, Release);
                return storage.try_persist(&set.free);
            }
            // A fence of the owner makes `bump` durable before the intents end. A crash before that fence may leave the
            // blocks at or above the durable `bump`, as if they had not been handed out.
            set.bump.store(storage, bump, Release);
            storage.flush_object(&set.bump);
            Ok(())
        });
        taken.inspect_err(|_| state.forget(&claims))?;
        Ok(claims)
    }

    /// Ends the intents of blocks that their owners have linked durably.
    pub fn commit(&self, storage: &impl Medium, words: &Words, claims: &[Claim]) {
        self.lock().end(storage, words, claims);
    }

    /// Forgets claims whose links may not have become durable, because the medium takes no more writes.
    pub fn forget_all(&self, claims: &[Claim]) {
        self.lock().forget(claims);
    }

    /// Puts back a claimed block that its owner does not need.
    ///
    /// # Errors
    /// The block lies outside its region, or a sync failed.
    pub fn abandon(
        &self,
        storage: &impl Medium,
        words: &Words,
        blocks: &impl Blocks,
        claim: Claim,
    ) -> Result<()> {
        let mut state = self.lock();
        state.flush_intents(storage, words);
        let pushed = push(storage, &words.sets[state.set], blocks, claim.block);
        match &pushed {
            Ok(()) => state.end(storage, words, &[claim]),
            Err(_) => state.forget(&[claim]),
        }
        pushed
    }

    /// Calls [`free_all`] for one block.
    ///
    /// # Errors
    /// As for [`free_all`].
    pub fn free(
        &self,
        storage: &impl Medium,
        words: &Words,
        blocks: &impl Blocks,
        owned: (u32, u32),
        unlink: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        free_all(storage, &[Freed { allocator: self, words, blocks, owned: vec![owned] }], unlink)
    }

    /// Prepares the other set so that all blocks but `keep` are free in it. The stores are flushed; the owner fences
    /// before it switches durably and calls [`Allocator::switch`].
    pub fn prepare_switch(&self, storage: &impl Medium, words: &Words, keep: Option<u32>) {
        self.prepare(storage, words, 0, keep.map_or(0, |block| u64::from(block) + 1));
    }

    /// Prepares the other set so that the first `used` blocks have owners in it and all others are free; otherwise
    /// like [`Allocator::prepare_switch`].
    pub fn prepare_packed(&self, storage: &impl Medium, words: &Words, used: u64) {
        self.prepare(storage, words, used, 0);
    }

    fn prepare(&self, storage: &impl Medium, words: &Words, bump: u64, skip: u64) {
        let mut state = self.lock();
        // A3: flushes earlier ends, because in the other set no block that an intent names has an owner.
        state.flush_intents(storage, words);
        let set = &words.sets[1 - state.set];
        set.bump.store(storage, bump, Release);
        set.skip.store(storage, skip, Release);
        set.free.store(storage, 0, Release);
        storage.flush_object(set);
    }

    /// Makes the ends of all intents durable, so that none reappears after a crash, whatever is done with the blocks
    /// later. No block may be claimed meanwhile.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn end_intents(&self, storage: &impl Medium, words: &Words) -> Result<()> {
        let mut state = self.lock();
        state.flush_intents(storage, words);
        storage.try_fence()
    }

    /// Switches to the other set.
    pub fn switch(&self) {
        let mut state = self.lock();
        state.set = 1 - state.set;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, DramState> {
        // The state is a few integers, consistent after any panic.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Blocks of an allocator that leave their owners, each with the tag by which [`Allocator::recover`] finds its owner.
pub struct Freed<'a, B> {
    /// The allocator.
    pub allocator: &'a Allocator,
    /// The allocator's words.
    pub words: &'a Words,
    /// The table's access to the blocks.
    pub blocks: &'a B,
    /// The blocks, each with its tag.
    pub owned: Vec<(u32, u32)>,
}

/// Unlinks blocks from their owners by `unlink`, which flushes its stores, and puts them on the lists of their
/// allocators, with three fences for all. Readers that may still access a block must expect to find another owner's
/// data in it. All callers list allocators in the same order, which prevents deadlocks.
///
/// # Errors
/// A block lies outside its region, and nothing has changed; or `unlink` or a sync failed.
pub fn free_all<B: Blocks>(
    storage: &impl Medium,
    frees: &[Freed<'_, B>],
    unlink: impl FnOnce() -> Result<()>,
) -> Result<()> {
    // Checked before the first store: an error behind the intents would leave them to the next opening, while other
    // blocks get intents at the same places.
    for Freed { blocks, owned, .. } in frees {
        owned.iter().try_for_each(|&(block, _)| blocks.find(block))?;
    }
    let all_claims = announce(storage, frees)?;
    let unlinked = unlink();
    let mut states: Vec<_> = frees.iter().map(|freed| freed.allocator.lock()).collect();
    let put_back = unlinked.and_then(|()| put_back(storage, frees, &states));
    for ((state, freed), claims) in states.iter_mut().zip(frees).zip(&all_claims) {
        match &put_back {
            Ok(()) => state.end(storage, freed.words, claims),
            Err(_) => state.forget(claims),
        }
    }
    put_back
}

/// Executes P2 and P3 of freeing several blocks.
fn put_back<B: Blocks>(
    storage: &impl Medium,
    frees: &[Freed<'_, B>],
    states: &[MutexGuard<'_, DramState>],
) -> Result<()> {
    let mut heads = Vec::with_capacity(frees.len());
    for (state, freed) in states.iter().zip(frees) {
        let set = &freed.words.sets[state.set];
        let mut head = set.free.load(storage, Relaxed);
        for &(block, _) in &freed.owned {
            freed.blocks.set_next(block, head)?;
            head = u64::from(block) + 1;
        }
        heads.push((set, head));
    }
    // P2: the unlinking and the next words are durable before a head names the blocks. Only the head determines whether
    // a block is on the list, so the next words may be stored before the unlinking is durable.
    storage.try_fence()?;
    for (set, head) in heads {
        set.free.store(storage, head, Release);
        storage.flush_object(&set.free);
    }
    // P3: the head is durable before the intents end.
    storage.try_fence()
}

/// Stores intents for all blocks once there are enough free intents. A caller holds no intents while it waits, so two
/// callers never wait for each other.
fn announce<B>(storage: &impl Medium, frees: &[Freed<'_, B>]) -> Result<Vec<Vec<Claim>>> {
    let mut rounds = 0;
    loop {
        let mut states: Vec<_> = frees.iter().map(|freed| freed.allocator.lock()).collect();
        // As in `try_claim`.
        not_poisoned(storage)?;
        let room = |state: &DramState| state.busy.count_zeros() as usize;
        if states.iter().zip(frees).all(|(state, freed)| freed.owned.len() <= room(state)) {
            let announced = states.iter_mut().zip(frees);
            let claims: Vec<_> =
                announced.map(|(state, freed)| state.announce(storage, freed)).collect();
            // P1 of freeing: the intents are durable before the owner unlinks the blocks.
            storage.try_fence().inspect_err(|_| {
                states.iter_mut().zip(&claims).for_each(|(state, claims)| state.forget(claims));
            })?;
            return Ok(claims);
        }
        drop(states);
        storage.wait(rounds);
        rounds = rounds.saturating_add(1);
    }
}

fn free_bit(busy: u32) -> Option<usize> {
    (busy != u32::MAX).then(|| busy.trailing_ones() as usize)
}

/// Executes P2 and P3 of freeing one block.
fn push(storage: &impl Medium, set: &Set, blocks: &impl Blocks, block: u32) -> Result<()> {
    blocks.set_next(block, set.free.load(storage, Relaxed))?;
    storage.try_fence()?;
    set.free.store(storage, u64::from(block) + 1, Release);
    storage.try_persist(&set.free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::medium::Regions;
    use crate::storage::sim::{Sim, SimOptions};

    /// Blocks without contents; their region has three.
    struct Three;

    impl Blocks for Three {
        fn find(&self, block: u32) -> Result<()> {
            let outside = || Error::corrupt("blocks", 0, block.to_string());
            (block < 3).then_some(()).ok_or_else(outside)
        }

        fn next(&self, block: u32) -> Result<u64> {
            self.find(block).map(|()| 0)
        }

        fn set_next(&self, block: u32, _: u64) -> Result<()> {
            self.find(block)
        }

        fn reserve(&self, _: u64) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn freeing_a_block_outside_the_region_changes_nothing() {
        let sim = Sim::new(SimOptions::default());
        let root = sim.region("root", 4096).unwrap();
        sim.grow(&root, 4096).unwrap();
        let words: &Words = root.at(0).unwrap();
        let allocator = Allocator::new(0);
        for _ in 0..3 {
            let claim = allocator.claim(&sim, words, &Three, 0).unwrap();
            allocator.commit(&sim, words, &[claim]);
        }
        let mut unlinked = false;
        for owned in [vec![(7, 0)], vec![(0, 0), (7, 0)]] {
            let frees = [Freed { allocator: &allocator, words, blocks: &Three, owned }];
            let freed = free_all(&sim, &frees, || {
                unlinked = true;
                Ok(())
            });
            assert!(matches!(freed, Err(Error::Corrupt { .. })), "{freed:?}");
        }
        assert!(!unlinked);
        assert!(words.intents.iter().all(|intent| intent.load(&sim, Relaxed) == 0));
        assert!(allocator.free_blocks(&sim, words, &Three).unwrap().is_empty());
    }
}
