//! Recovery of blocks that a crash found between the list and their owners.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{Allocator, Blocks, Claim, INTENTS, Set, Words, intent_of, push};
use crate::Result;
use crate::storage::Medium;

impl Allocator {
    /// Raises `bump` above blocks that a crash left owned at or above it. Called before [`Allocator::recover`], for
    /// owners that link blocks before `bump` is durable.
    ///
    /// # Errors
    /// The errors of `is_owned`.
    pub fn raise(
        &self,
        storage: &impl Medium,
        words: &Words,
        mut is_owned: impl FnMut(u32, u32) -> Result<bool>,
    ) -> Result<()> {
        let set = &words.sets[self.lock().set];
        let (bump, skip) = (set.bump.load(storage, Relaxed), set.skip.load(storage, Relaxed));
        let mut raised = bump;
        for intent in &words.intents {
            let Some((block, tag)) = intent_of(intent.load(storage, Acquire)) else { continue };
            let end = u64::from(block) + 1;
            if end > raised && end != skip && is_owned(block, tag)? {
                raised = end;
            }
        }
        if raised > bump {
            set.bump.store(storage, raised, Release);
            // `bump` is durable before the intents end.
            storage.try_persist(&set.bump)?;
        }
        Ok(())
    }

    /// Settles the blocks that a crash left between the list and the owners, in constant time. Returns the number of
    /// intents.
    ///
    /// # Errors
    /// An intent or list names a block outside the region.
    pub fn recover(
        &self,
        storage: &impl Medium,
        words: &Words,
        blocks: &impl Blocks,
        mut is_owned: impl FnMut(u32, u32) -> Result<bool>,
    ) -> Result<u64> {
        let present = self.lock().set;
        let (set, other) = (&words.sets[present], &words.sets[1 - present]);
        // The other set is undefined until it is prepared again, but its counts bound walks, so damaged counts are
        // cleared.
        for count in [&other.bump, &other.skip] {
            if count.load(storage, Relaxed) != 0 {
                count.store(storage, 0, Release);
            }
        }
        let is_out = |block: u32| {
            u64::from(block) < set.bump.load(storage, Relaxed)
                || u64::from(block) + 1 == set.skip.load(storage, Relaxed)
        };
        let mut resolved = 0;
        let mut listed = None;
        for (number, intent) in words.intents.iter().enumerate() {
            let Some((block, tag)) = intent_of(intent.load(storage, Acquire)) else { continue };
            let listed = match &mut listed {
                Some(listed) => listed,
                none => none.insert(first_listed(storage, set, blocks)?),
            };
            resolved += 1;
            if is_out(block) && !listed.contains(&block) && !is_owned(block, tag)? {
                push(storage, set, blocks, block)?;
            }
            self.lock().end(storage, words, &[Claim { block, intent: number }]);
        }
        Ok(resolved)
    }
}

/// Returns the first blocks of the list, including every block of the list that an intent can name. Their number is
/// twice that of the intents: changes may have put one block per intent in front (A3), and so may earlier recoveries.
fn first_listed(storage: &impl Medium, set: &Set, blocks: &impl Blocks) -> Result<Vec<u32>> {
    let mut listed = Vec::new();
    let mut free = set.free.load(storage, Relaxed);
    while free != 0 && listed.len() < 2 * INTENTS {
        let block = (free - 1) as u32;
        listed.push(block);
        free = blocks.next(block)?;
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::super::intent_word;
    use super::*;
    use crate::storage::medium::Regions;
    use crate::storage::sim::{Sim, SimOptions};

    struct Nothing;

    impl Blocks for Nothing {
        fn find(&self, _: u32) -> Result<()> {
            Ok(())
        }

        fn next(&self, _: u32) -> Result<u64> {
            Ok(0)
        }

        fn set_next(&self, _: u32, _: u64) -> Result<()> {
            Ok(())
        }

        fn reserve(&self, _: u64) -> Result<()> {
            Ok(())
        }
    }

    /// Simulates a crash after the owner's link became durable, but before `bump` did.
    #[test]
    fn an_owned_block_beyond_the_count_is_out_and_others_below_it_are_free() {
        let sim = Sim::new(SimOptions::default());
        let root = sim.region("root", 4096).unwrap();
        sim.grow(&root, 4096).unwrap();
        let words: &Words = root.at(0).unwrap();
        for (intent, block) in [2, 0, 1].into_iter().enumerate() {
            words.intents[intent].store(&sim, intent_word(block, 7), Release);
        }
        let allocator = Allocator::new(0);
        let is_owned = |block, tag| Ok(block == 1 && tag == 7);
        allocator.raise(&sim, words, is_owned).unwrap();
        allocator.recover(&sim, words, &Nothing, is_owned).unwrap();
        assert_eq!(allocator.used(&sim, words), 2);
        assert_eq!(allocator.free_blocks(&sim, words, &Nothing).unwrap(), [0]);
    }

    #[test]
    fn a_damaged_count_of_the_other_set_bounds_no_walk() {
        let sim = Sim::new(SimOptions::default());
        let root = sim.region("root", 4096).unwrap();
        sim.grow(&root, 4096).unwrap();
        let words: &Words = root.at(0).unwrap();
        let allocator = Allocator::new(0);
        let claim = allocator.claim(&sim, words, &Nothing, 0).unwrap();
        allocator.commit(&sim, words, &[claim]);
        words.sets[1].bump.store(&sim, 1 << 60, Release);
        words.sets[1].skip.store(&sim, u64::MAX, Release);
        let allocator = Allocator::new(0);
        allocator.recover(&sim, words, &Nothing, |_, _| Ok(true)).unwrap();
        assert_eq!((Allocator::bound(&sim, words), allocator.used(&sim, words)), (1, 1));
    }
}
