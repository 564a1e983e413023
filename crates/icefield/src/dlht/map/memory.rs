//! Allocation of records from the allocator of a map.

use std::alloc::Layout;
use std::any::TypeId;
use std::ptr::NonNull;

use allocator_api2::alloc::{Allocator, Global};

use super::guard::DlhtGuard;
use crate::{Error, Result};

/// An allocator for the records of a [`DlhtMap`](crate::DlhtMap): any [`Allocator`] whose clones may be sent to other
/// threads.
///
/// A record that is replaced or removed is freed later, by any thread, through a clone of the allocator. Several
/// threads may therefore allocate and free at once. All records have been freed when the map has been dropped. With an
/// allocator other than [`Global`], a record that waits to be freed also costs one small allocation from the global
/// one.
///
/// ```
/// use icefield::{DlhtMap, RecordAllocator};
///
/// fn holds<A: RecordAllocator>(map: &DlhtMap<u32, u32, icefield::DlhtBuildHasher, A>) -> usize {
///     map.len()
/// }
/// assert_eq!(holds(&DlhtMap::new_in(icefield::Global)), 0);
/// ```
pub trait RecordAllocator: Allocator + Clone + Send + Sync + 'static {}

impl<A: Allocator + Clone + Send + Sync + 'static> RecordAllocator for A {}

/// Returns the error for a failed allocation of `bytes` bytes.
#[cold]
pub(super) fn no_memory(bytes: usize) -> Error {
    Error::NoMemory { needed_bytes: bytes as u64 }
}

/// Allocates memory for a `T`.
#[inline]
pub(super) fn room<T>(allocator: &impl Allocator) -> Result<NonNull<T>> {
    let layout = Layout::new::<T>();
    allocator.allocate(layout).map(NonNull::cast).map_err(|_| no_memory(layout.size()))
}

/// Frees the memory of a `T` without dropping it.
///
/// # Safety
/// `room` came from [`room`] of this allocator or a clone, and is not used again.
#[inline]
pub(super) unsafe fn give_back<T>(allocator: &impl Allocator, room: NonNull<T>) {
    // SAFETY: the caller's contract.
    unsafe { allocator.deallocate(room.cast(), Layout::new::<T>()) };
}

/// Drops a `T` and frees its memory, also if the drop panics.
///
/// # Safety
/// As for [`give_back`]; `thing` is an initialised `T` that is not used any more.
#[inline]
pub(super) unsafe fn free<T>(allocator: &impl Allocator, thing: NonNull<T>) {
    struct Room<'a, T, A: Allocator>(&'a A, NonNull<T>);
    impl<T, A: Allocator> Drop for Room<'_, T, A> {
        #[inline]
        fn drop(&mut self) {
            // SAFETY: the contract of `free`.
            unsafe { give_back(self.0, self.1) };
        }
    }
    let room = Room(allocator, thing);
    // SAFETY: the caller's contract.
    unsafe { room.1.drop_in_place() };
}

/// Calls [`free`] after every thread that is pinned now has unpinned.
///
/// # Safety
/// As for [`free`], except that threads that are pinned now may still use `thing`. It must be unreachable for threads
/// that pin from now on, and must be retired once. Dropping it must be sound on any thread and at any time until the
/// reclaimer has been dropped.
#[inline]
pub(super) unsafe fn retire<T, A: RecordAllocator>(
    guard: &DlhtGuard<'_>,
    allocator: &A,
    thing: NonNull<T>,
) {
    // The compiler evaluates this condition.
    if TypeId::of::<A>() == TypeId::of::<Global>() {
        // SAFETY: the caller's contract. A box also uses memory of the global allocator with the layout of a `T`.
        unsafe { guard.retire_box(thing.as_ptr().cast::<Sent<T>>()) };
        return;
    }
    let waiting = Waiting { thing, allocator: allocator.clone() };
    // SAFETY: data that `thing` borrows outlives the reclaimer, by the caller's contract; the allocator is a clone.
    unsafe { guard.retire_borrowing(move || waiting.free()) };
}

/// A value that may be dropped on another thread, by the contract of `retire`.
#[repr(transparent)]
struct Sent<T>(#[allow(dead_code, reason = "only to be dropped")] T);

// SAFETY: the value is only dropped, which may happen on any thread by the contract of `retire`.
unsafe impl<T> Send for Sent<T> {}

/// A retired object, and the allocator from which it was allocated.
struct Waiting<T, A> {
    thing: NonNull<T>,
    allocator: A,
}

// SAFETY: `thing` may be dropped on another thread, by the contract of `retire`.
unsafe impl<T, A: Send> Send for Waiting<T, A> {}

impl<T, A: RecordAllocator> Waiting<T, A> {
    fn free(self) {
        // SAFETY: the contract of `retire`. This runs once, because it consumes `self`.
        unsafe { free(&self.allocator, self.thing) };
    }
}
