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

/// The number of cache entries of a thread. Up to this number of owners, no two use the same entry: a table has two to
/// four owners, and a thread that writes to two tables alternately should find both.
const MEMORIES: usize = 64;

/// The process-wide allocation of owners' ids.
static OWNERS: Mutex<Owners> = Mutex::new(Owners { made: 0, users: [0; MEMORIES] });

struct Owners {
    /// The number of ids so far.
    made: u64,
    /// The number of owners that use each cache entry.
    users: [u32; MEMORIES],
}

/// Returns a new owner's id, which is unique and not 0. The owner uses the cache entry `id % MEMORIES`.
pub(super) fn new_owner() -> u64 {
    let mut owners = OWNERS.lock().unwrap_or_else(PoisonError::into_inner);
    let users = owners.users.iter().enumerate();
    let entry = users.min_by_key(|&(_, &users)| users).map_or(0, |(entry, _)| entry);
    owners.users[entry] += 1;
    owners.made += 1;
    owners.made * MEMORIES as u64 + entry as u64
}

/// Ends the use of an owner's cache entry. Threads may still remember something for the owner, whose id is never used
/// again.
pub(super) fn end_owner(owner: u64) {
    let mut owners = OWNERS.lock().unwrap_or_else(PoisonError::into_inner);
    owners.users[owner as usize % MEMORIES] -= 1;
}

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
        let (one, other) = (new_owner(), new_owner());
        let same_place = one + ((MEMORIES as u64) << 32);
        remember(one, std::ptr::without_provenance(64));
        remember(other, std::ptr::null());
        assert_eq!(recall(one), Some(std::ptr::without_provenance(64)));
        assert_eq!(recall(other), Some(std::ptr::null()));
        assert_eq!(recall(same_place), None);
        remember(same_place, std::ptr::null());
        assert_eq!(recall(one), None);
        assert!(std::thread::spawn(move || recall(other).is_none()).join().expect("no panic"));
        [one, other].into_iter().for_each(end_owner);
    }

    #[test]
    fn owners_displace_one_another_only_if_there_are_many() {
        let lasting: Vec<u64> = (0..4).map(|_| new_owner()).collect();
        for owner in &lasting {
            remember(*owner, std::ptr::without_provenance(8));
        }
        for _ in 0..10 * MEMORIES {
            let owner = new_owner();
            remember(owner, std::ptr::null());
            end_owner(owner);
        }
        // Other tests use owners meanwhile, but far fewer than there are entries.
        assert!(lasting.iter().all(|&owner| recall(owner).is_some()));
        lasting.into_iter().for_each(end_owner);
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
