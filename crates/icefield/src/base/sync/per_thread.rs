//! One `T` for each thread that has ever asked, by the threads' numbers.

#[cfg(not(loom))]
mod real {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::base::thread;

    /// The logarithm of the length of the first block; each further block is twice as long.
    const FIRST_BITS: u32 = 3;
    /// For more threads than there can be.
    const BLOCKS: usize = 40;

    /// One `T` for each thread. It outlives its thread, and is that of the next one to get the thread's number.
    pub struct PerThread<T> {
        /// Of no other one that there ever is.
        name: u64,
        blocks: [OnceLock<Box<[T]>>; BLOCKS],
    }

    impl<T> Default for PerThread<T> {
        fn default() -> Self {
            static NAMES: AtomicU64 = AtomicU64::new(1);
            // Relaxed: they need only differ.
            let name = NAMES.fetch_add(1, Ordering::Relaxed);
            Self { name, blocks: [const { OnceLock::new() }; BLOCKS] }
        }
    }

    impl<T: Default> PerThread<T> {
        /// This thread's. A few instructions, unless the thread has asked many others since.
        #[inline(always)]
        pub fn mine(&self) -> &T {
            match thread::recall(self.name) {
                // SAFETY: remembered below, by this thread under this name: one of these, which live as long as `self`
                // and do not move. The number by which it is this thread's has not been given back since.
                Some(mine) => unsafe { &*mine.cast::<T>() },
                None => self.look_up(),
            }
        }

        #[cold]
        #[inline(never)]
        fn look_up(&self) -> &T {
            let place = thread::number() + (1 << FIRST_BITS);
            let block = place.ilog2() - FIRST_BITS;
            let first = 1 << (block + FIRST_BITS);
            let things = self.blocks[block as usize]
                .get_or_init(|| (0..first).map(|_| T::default()).collect());
            let mine = &things[place - first];
            thread::remember(self.name, std::ptr::from_ref(mine).cast());
            mine
        }

        /// Everybody's.
        pub fn iter(&self) -> impl Iterator<Item = &T> {
            self.blocks.iter().filter_map(OnceLock::get).flatten()
        }
    }
}

#[cfg(loom)]
mod modelled {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Threads that a model may have.
    const THREADS: usize = 4;

    loom::lazy_static! {
        /// Threads that have a number. Anew for every execution of a model.
        static ref TAKEN: AtomicUsize = AtomicUsize::new(0);
    }

    loom::thread_local! {
        static NUMBER: Cell<usize> = Cell::new(THREADS);
    }

    /// One `T` for each thread of a model; its threads are none to the standard library.
    #[derive(Default)]
    pub struct PerThread<T> {
        things: [T; THREADS],
    }

    impl<T: Default> PerThread<T> {
        /// This thread's.
        pub fn mine(&self) -> &T {
            let number = NUMBER.with(|number| {
                if number.get() == THREADS {
                    // Relaxed: a model runs one thread at a time.
                    number.set(TAKEN.fetch_add(1, Ordering::Relaxed));
                }
                number.get()
            });
            &self.things[number]
        }

        /// Everybody's.
        pub fn iter(&self) -> impl Iterator<Item = &T> {
            self.things.iter()
        }
    }
}

#[cfg(loom)]
pub use modelled::PerThread;
#[cfg(not(loom))]
pub use real::PerThread;
