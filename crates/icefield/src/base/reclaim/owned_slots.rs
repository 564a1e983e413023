//! The slots of guards that belong to no thread. Slots have numbers, which are reused; a lock protects the list of free
//! numbers. It is held for a few instructions, when an owned guard is created and when it is dropped.

use std::sync::PoisonError;

use super::presence::Presence;
use super::retired::Retired;
use crate::base::sync::{AtomicBool, Mutex, MutexGuard, PerThread};

/// The slots of all owned guards, by number.
#[derive(Default)]
pub(super) struct OwnedSlots {
    slots: PerThread<OwnedSlot>,
    numbers: Mutex<Numbers>,
}

/// The slot of one owned guard at a time.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct OwnedSlot {
    pub(super) presence: Presence,
    /// The objects that were retired through the guards of this slot and that do not fill a batch yet.
    retired: Mutex<Vec<Retired>>,
    /// As in the slots of threads.
    pub(super) flushed: AtomicBool,
}

#[derive(Default)]
struct Numbers {
    /// The smallest number that has never been used.
    fresh: usize,
    returned: Vec<usize>,
}

impl OwnedSlots {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot that no guard uses, and its number.
    pub(super) fn take(&self) -> (usize, &OwnedSlot) {
        let mut numbers = self.numbers();
        let number = numbers.returned.pop().unwrap_or_else(|| {
            numbers.fresh += 1;
            numbers.fresh - 1
        });
        drop(numbers);
        (number, self.slots.numbered(number))
    }

    /// Takes back the slot of a guard that has left.
    pub(super) fn give_back(&self, number: usize) {
        self.numbers().returned.push(number);
    }

    pub(super) fn presences(&self) -> impl Iterator<Item = &Presence> {
        self.slots.iter().map(|slot| &slot.presence)
    }

    /// Takes all retired objects. No guard exists any more.
    pub(super) fn take_all(&self) -> impl Iterator<Item = Retired> {
        self.slots.iter().flat_map(|slot| std::mem::take(&mut *slot.retired()))
    }
}

impl OwnedSlot {
    pub(super) fn retired(&self) -> MutexGuard<'_, Vec<Retired>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
