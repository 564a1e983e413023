//! Vectors whose memory a thread keeps for the next one.
//!
//! A batch of writes needs a few vectors of one to three kilobytes. Allocating and freeing them took 7 % of a writer's
//! time in batches of 32 puts (docs/decisions/0130-migrations-copy-less.md).

use std::alloc::{Layout, dealloc};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The number of blocks that a thread keeps, and the size of the largest.
const BLOCKS: usize = 8;
const LARGEST: usize = 16 << 10;

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept { blocks: [None; BLOCKS], next: 0 }) };
}

/// Memory from the global allocator that no vector owns.
#[derive(Clone, Copy)]
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

/// The blocks of a thread.
struct Kept {
    blocks: [Option<Block>; BLOCKS],
    /// The place whose block is replaced when all places are taken.
    next: usize,
}

impl Kept {
    /// Takes a block that has exactly this layout, so that a vector can own it.
    #[inline]
    fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let fits = |block: &&mut Option<Block>| block.is_some_and(|block| block.layout == layout);
        Some(self.blocks.iter_mut().find(fits)?.take()?.start)
    }

    /// Keeps a block. Returns another one if there are too many.
    #[inline]
    fn keep(&mut self, block: Block) -> Option<Block> {
        if let Some(free) = self.blocks.iter_mut().find(|block| block.is_none()) {
            *free = Some(block);
            return None;
        }
        self.next = (self.next + 1) % BLOCKS;
        self.blocks[self.next].replace(block)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.blocks.iter_mut().filter_map(Option::take).for_each(free);
    }
}

#[cold]
fn free(Block { start, layout }: Block) {
    // SAFETY: the global allocator has returned the block for this layout, and no vector owns it.
    unsafe { dealloc(start.as_ptr(), layout) };
}

/// A vector that takes its memory from the thread that creates it, if that has kept some, and leaves it to the thread
/// that drops it.
#[derive(Debug)]
pub(crate) struct Recycled<T> {
    vector: ManuallyDrop<Vec<T>>,
    /// The capacity at the creation. The memory of a vector that has grown is not kept, because later vectors are
    /// created with another size.
    capacity: usize,
}

impl<T> Recycled<T> {
    /// Returns an empty vector with room for `capacity` elements.
    ///
    /// # Panics
    /// The elements take more than `isize::MAX` bytes.
    #[inline]
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let kept = Layout::array::<T>(capacity).ok().filter(|layout| layout.size() > 0).and_then(
            // Fails if the thread ends and has freed its blocks.
            |layout| KEPT.try_with(|kept| kept.borrow_mut().take(layout)).ok().flatten(),
        );
        let vector = match kept {
            // SAFETY: the global allocator has returned the block for the layout of `capacity` elements.
            Some(start) => unsafe { Vec::from_raw_parts(start.cast().as_ptr(), 0, capacity) },
            None => Vec::with_capacity(capacity),
        };
        Self { vector: ManuallyDrop::new(vector), capacity }
    }
}

impl<T> Drop for Recycled<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self.vector` is not used afterwards.
        let mut vector = unsafe { ManuallyDrop::take(&mut self.vector) };
        vector.clear();
        let Ok(layout) = Layout::array::<T>(vector.capacity()) else { return };
        if vector.capacity() != self.capacity || layout.size() == 0 || layout.size() > LARGEST {
            return;
        }
        let mut vector = ManuallyDrop::new(vector);
        let Some(start) = NonNull::new(vector.as_mut_ptr().cast()) else { return };
        let block = Block { start, layout };
        let too_many = KEPT.try_with(|kept| kept.borrow_mut().keep(block)).unwrap_or(Some(block));
        too_many.into_iter().for_each(free);
    }
}

impl<T> Deref for Recycled<T> {
    type Target = Vec<T>;

    #[inline(always)]
    fn deref(&self) -> &Vec<T> {
        &self.vector
    }
}

impl<T> DerefMut for Recycled<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.vector
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_by_vectors_of_the_same_layout() {
        let place = |vector: &Recycled<u64>| vector.as_ptr() as usize;
        let first = Recycled::<u64>::with_capacity(100);
        let (second, start) = (Recycled::<u64>::with_capacity(100), place(&first));
        assert_ne!(place(&second), start);
        drop(first);
        let mut other = Recycled::<u32>::with_capacity(200);
        other.push(1);
        assert_ne!(other.as_ptr() as usize, start);
        let mut again = Recycled::<u64>::with_capacity(100);
        assert_eq!((place(&again), again.len(), again.capacity()), (start, 0, 100));
        again.extend(0..1000);
        assert!(again.iter().copied().eq(0..1000));
        let kept = || KEPT.with(|kept| kept.borrow().blocks.iter().flatten().count());
        let before = kept();
        // Neither elements without size nor vectors that are long or have grown are kept.
        drop(again);
        drop(Recycled::<()>::with_capacity(5));
        drop(Recycled::<u64>::with_capacity(LARGEST));
        assert_eq!(kept(), before);
        let many: Vec<_> = (1..3 * BLOCKS).map(Recycled::<u64>::with_capacity).collect();
        drop(many);
        assert_eq!(kept(), BLOCKS);
        let sent = Recycled::<u64>::with_capacity(100);
        std::thread::spawn(move || drop(sent)).join().expect("no panic");
    }

    #[test]
    fn elements_are_dropped() {
        let one = std::rc::Rc::new(());
        let mut vector = Recycled::with_capacity(4);
        vector.extend([one.clone(), one.clone()]);
        drop(vector);
        assert_eq!(std::rc::Rc::strong_count(&one), 1);
    }
}
