//! One `T` for each thread that has used it, indexed by thread number.

#[cfg(not(loom))]
mod real {
    use std::sync::OnceLock;

    use crate::base::thread;

    /// The logarithm of the length of the first block; each further block is twice as long.
    const FIRST_BITS: u32 = 3;
    /// Enough for more threads than can exist.
    const BLOCKS: usize = 40;

    /// One `T` for each thread. A `T` outlives its thread, and the next thread with the same number inherits it.
    pub struct PerThread<T> {
        /// A unique id, under which each thread caches the pointer to its `T`.
        name: u64,
        blocks: [OnceLock<Box<[T]>>; BLOCKS],
    }

    impl<T> Default for PerThread<T> {
        fn default() -> Self {
            Self { name: thread::new_owner(), blocks: [const { OnceLock::new() }; BLOCKS] }
        }
    }

    impl<T> Drop for PerThread<T> {
        fn drop(&mut self) {
            thread::end_owner(self.name);
        }
    }

    impl<T: Default> PerThread<T> {
        /// Returns this thread's value. Takes a few instructions if the thread still caches the pointer to it.
        #[inline(always)]
        pub fn mine(&self) -> &T {
            match thread::recall(self.name) {
                // SAFETY: `look_up` cached this pointer for this thread under this unique name. It points to an
                // element of `blocks`, which live as long as `self` and do not move. The thread has kept its number
                // since, so the element is still its own.
                Some(mine) => unsafe { &*mine.cast::<T>() },
                None => self.look_up(),
            }
        }

        #[cold]
        #[inline(never)]
        fn look_up(&self) -> &T {
            let mine = self.numbered(thread::number());
            thread::remember(self.name, std::ptr::from_ref(mine).cast());
            mine
        }

        /// Returns the value of the thread with this number. If the numbers are not those of threads, the owner must
        /// not call [`PerThread::mine`].
        pub fn numbered(&self, number: usize) -> &T {
            let place = number + (1 << FIRST_BITS);
            let block = place.ilog2() - FIRST_BITS;
            let first = 1 << (block + FIRST_BITS);
            let things = self.blocks[block as usize]
                .get_or_init(|| (0..first).map(|_| T::default()).collect());
            &things[place - first]
        }

        /// Returns the values of all threads.
        pub fn iter(&self) -> impl Iterator<Item = &T> {
            self.blocks.iter().filter_map(OnceLock::get).flatten()
        }
    }
}

#[cfg(loom)]
mod modelled {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The maximum number of threads in a model.
    const THREADS: usize = 4;

    loom::lazy_static! {
        /// The number of threads that have taken a number; 0 at the start of every execution of a model.
        static ref TAKEN: AtomicUsize = AtomicUsize::new(0);
    }

    loom::thread_local! {
        static NUMBER: Cell<usize> = Cell::new(THREADS);
    }

    /// One `T` for each thread of a model. A model's threads are not threads of the standard library.
    #[derive(Default)]
    pub struct PerThread<T> {
        things: [T; THREADS],
    }

    impl<T: Default> PerThread<T> {
        /// Returns this thread's value.
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

        /// Returns the value with this number, for owners that do not call [`PerThread::mine`].
        pub fn numbered(&self, number: usize) -> &T {
            &self.things[number]
        }

        /// Returns the values of all threads.
        pub fn iter(&self) -> impl Iterator<Item = &T> {
            self.things.iter()
        }
    }
}

#[cfg(loom)]
pub use modelled::PerThread;
#[cfg(not(loom))]
pub use real::PerThread;
