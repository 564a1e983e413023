//! Where records come from and go back to: the allocator that a map was given.

use std::alloc::Layout;
use std::any::TypeId;
use std::ptr::NonNull;

use allocator_api2::alloc::{Allocator, Global};

use crate::base::reclaim::Guard;
use crate::{Error, Result};

/// What a [`DlhtMap`](crate::DlhtMap) may take its records from: any [`Allocator`] whose clones may go to other
/// threads.
///
/// A record that is replaced or removed goes back later, from whichever thread comes to it, through a clone; so memory
/// is asked for and given back by several threads at once. Everything has gone back when the map has been dropped. With
/// any allocator but [`Global`], a record that waits for that costs one small allocation from the global one meanwhile.
///
/// ```
/// use icefield::{DlhtMap, RecordAllocator};
///
/// fn holds<A: RecordAllocator>(map: &DlhtMap<u32, u32, icefield::DlhtBuildHasher, A>) -> u64 {
///     map.len()
/// }
/// assert_eq!(holds(&DlhtMap::new_in(icefield::Global)), 0);
/// ```
pub trait RecordAllocator: Allocator + Clone + Send + Sync + 'static {}

impl<A: Allocator + Clone + Send + Sync + 'static> RecordAllocator for A {}

/// The error for bytes that an allocator does not have.
#[cold]
pub(super) fn no_memory(bytes: usize) -> Error {
    Error::NoMemory { needed_bytes: bytes as u64 }
}

/// Memory for a `T`.
#[inline]
pub(super) fn room<T>(allocator: &impl Allocator) -> Result<NonNull<T>> {
    let layout = Layout::new::<T>();
    allocator.allocate(layout).map(NonNull::cast).map_err(|_| no_memory(layout.size()))
}

/// Gives the memory of a `T` back, and nothing else.
///
/// # Safety
/// `room` came from [`room`] of this allocator or a clone, and is not used again.
#[inline]
pub(super) unsafe fn give_back<T>(allocator: &impl Allocator, room: NonNull<T>) {
    // SAFETY: the caller's promise.
    unsafe { allocator.deallocate(room.cast(), Layout::new::<T>()) };
}

/// Drops a `T` and gives its memory back.
///
/// # Safety
/// As for [`give_back`]; there is a `T`, which nobody uses any more.
#[inline]
pub(super) unsafe fn free<T>(allocator: &impl Allocator, thing: NonNull<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        thing.drop_in_place();
        give_back(allocator, thing);
    }
}

/// [`free`], when everybody who is pinned now has left.
///
/// # Safety
/// As for [`free`], but for those who are pinned now; the thing is unreachable for newcomers and retired once. It may
/// be dropped on any thread, until the reclaimer is.
#[inline]
pub(super) unsafe fn retire<T, A: RecordAllocator>(
    guard: &Guard<'_>,
    allocator: &A,
    thing: NonNull<T>,
) {
    // Known when this is compiled.
    if TypeId::of::<A>() == TypeId::of::<Global>() {
        // SAFETY: the caller's promises; memory of the global allocator with the layout of a `T` is what a box has.
        unsafe { guard.retire_box(thing.as_ptr().cast::<Sent<T>>()) };
        return;
    }
    let waiting = Waiting { thing, allocator: allocator.clone() };
    // SAFETY: what the thing borrows outlives the reclaimer, by the caller's promise; the allocator is a clone.
    unsafe { guard.retire_borrowing(move || waiting.free()) };
}

/// What may be dropped on another thread, by the promise of whoever retired it.
#[repr(transparent)]
struct Sent<T>(#[allow(dead_code, reason = "only to be dropped")] T);

// SAFETY: see there.
unsafe impl<T> Send for Sent<T> {}

/// A retired thing, and the allocator that it goes back to.
struct Waiting<T, A> {
    thing: NonNull<T>,
    allocator: A,
}

// SAFETY: the thing may be dropped on another thread, by the promise of whoever retired it.
unsafe impl<T, A: Send> Send for Waiting<T, A> {}

impl<T, A: RecordAllocator> Waiting<T, A> {
    fn free(self) {
        // SAFETY: the promise of whoever retired it; this is called once, for it takes what it frees.
        unsafe { free(&self.allocator, self.thing) };
    }
}
