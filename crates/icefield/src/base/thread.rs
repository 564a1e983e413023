//! Small thread numbers: each live thread has its own, and the number of an ended thread is reused.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};

/// The process-wide allocation of numbers. It is global because threads outlive tables, so no table can own it.
static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { fresh: 0, returned: BinaryHeap::new() });

/// The value of `NUMBER` in a thread that has no number yet or has returned it.
const NONE: usize = usize::MAX;

struct Numbers {
    /// The smallest number that has never been used.
    fresh: usize,
    returned: BinaryHeap<Reverse<usize>>,
}

impl Numbers {
    fn take(&mut self) -> usize {
        if let Some(Reverse(number)) = self.returned.pop() {
            return number;
        }
        self.fresh += 1;
        self.fresh - 1
    }
}

/// A pointer that a thread caches for one owner (a `PerThread`), to save the owner a look-up.
#[derive(Clone, Copy)]
struct Memory {
    owner: u64,
    place: *const (),
}

const NOTHING: Memory = Memory { owner: 0, place: std::ptr::null() };

/// The number of cache entries of a thread. Owners with consecutive ids, such as those of one table, use different
/// entries.
const MEMORIES: usize = 8;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NONE) };
    static MEMORY: [Cell<Memory>; MEMORIES] = const { [const { Cell::new(NOTHING) }; MEMORIES] };
    static HOLDS: Cell<usize> = const { Cell::new(0) };
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        // Later calls during the teardown of this thread take a new number.
        MEMORY.with(|memory| memory.iter().for_each(|memory| memory.set(NOTHING)));
        let number = NUMBER.replace(NONE);
        if HOLDS.get() > 0 {
            // A guard that uses this number is still to be dropped, so the number is never reused.
            return;
        }
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.returned.push(Reverse(number));
    }
}

/// Returns the number of this thread. A thread that had the number before has ended, and all its actions happened
/// before this call.
#[inline]
pub fn number() -> usize {
    let number = NUMBER.get();
    if number == NONE { take_number() } else { number }
}

#[cold]
fn take_number() -> usize {
    let number = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner).take();
    NUMBER.set(number);
    // Fails if the thread is being torn down and has already dropped `END`. The number that it takes now is then never
    // returned: one number is lost for each such thread.
    let _ = END.try_with(|_| ());
    number
}

/// Keeps this thread's number from being reused until [`release`] has been called once for each call of `hold`.
#[inline]
pub(super) fn hold() {
    HOLDS.set(HOLDS.get() + 1);
}

#[inline]
pub(super) fn release() {
    HOLDS.set(HOLDS.get() - 1);
}

/// Returns the pointer that this thread [remembers](remember) for `owner`, if no other owner has displaced it.
#[inline(always)]
pub(super) fn recall(owner: u64) -> Option<*const ()> {
    let memory = MEMORY.with(|memory| memory[owner as usize % MEMORIES].get());
    (memory.owner == owner).then_some(memory.place)
}

/// Remembers `place` for `owner` (any number but 0) until another owner displaces it or the thread returns its
/// number.
pub(super) fn remember(owner: u64, place: *const ()) {
    MEMORY.with(|memory| memory[owner as usize % MEMORIES].set(Memory { owner, place }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn living_threads_have_different_numbers() {
        let barrier = std::sync::Barrier::new(8);
        let numbers: Vec<usize> = std::thread::scope(|scope| {
            let number = || {
                let number = number();
                barrier.wait();
                assert_eq!(number, super::number());
                number
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(number)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let mut different = numbers.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 8, "{numbers:?}");
    }

    #[test]
    fn numbers_are_used_again() {
        for _ in 0..1000 {
            let number = std::thread::spawn(number).join().expect("no panic");
            assert!(number < 500, "far more than there are threads in this test: {number}");
        }
    }

    #[test]
    fn what_is_remembered_is_one_owners() {
        let (one, same_place) = (7, 7 + MEMORIES as u64);
        remember(one, std::ptr::without_provenance(64));
        remember(8, std::ptr::null());
        assert_eq!(recall(one), Some(std::ptr::without_provenance(64)));
        assert_eq!(recall(8), Some(std::ptr::null()));
        assert_eq!(recall(same_place), None);
        remember(same_place, std::ptr::null());
        assert_eq!(recall(one), None);
        assert!(std::thread::spawn(|| recall(8).is_none()).join().expect("no panic"));
    }

    /// Requests a number while its thread is torn down, before or after [`End`].
    struct Late;

    impl Drop for Late {
        fn drop(&mut self) {
            assert_eq!(number(), number());
        }
    }

    #[test]
    fn threads_that_end_still_have_numbers() {
        thread_local! {
            static LATE: Late = const { Late };
        }
        for first in [false, true] {
            let late = std::thread::spawn(move || {
                if first {
                    LATE.with(|_| number());
                } else {
                    number();
                    LATE.with(|_| ());
                }
            });
            late.join().expect("no panic");
        }
    }
}
