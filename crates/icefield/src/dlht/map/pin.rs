//! Pinning a map.

use super::memory::RecordAllocator;
use super::{DlhtGuard, DlhtOwnedGuard, DlhtRecordMap};
use crate::dlht::mode::Threading;

impl<K, V, S, A: RecordAllocator, M: Threading> DlhtRecordMap<K, V, S, A, M> {
    /// Returns a guard, which protects all data read from the map until the guard is dropped.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, "one".to_owned())]);
    /// let guard = map.pin();
    /// let name = map.get(&1, &guard);
    /// map.delete(&1);
    /// assert_eq!(name.map(String::as_str), Some("one"), "freed after the guard");
    /// ```
    #[inline]
    pub fn pin(&self) -> DlhtGuard<'_> {
        DlhtGuard::of_thread(self.reclaimer.pin())
    }

    /// Like [`DlhtMap::pin`](crate::DlhtMap::pin), but the guard may be held across an `.await`, sent to other threads
    /// and shared between them. It costs a lock for a few instructions, when it is created and when it is dropped.
    ///
    /// While the guard lives, the memory of all records that any thread replaces or removes is kept.
    ///
    /// ```
    /// # fn block_on<F: Future + Send>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
    /// #     }
    /// # }
    /// let map = icefield::DlhtMap::from([("one".to_owned(), 1)]);
    /// let task = async {
    ///     let guard = map.pin_owned();
    ///     let one = map.get("one", &guard);
    ///     map.delete("one");
    ///     std::future::ready(()).await; // The task may continue on another thread.
    ///     assert_eq!(one, Some(&1));
    /// };
    /// block_on(task); // Requires a future that is `Send`.
    /// ```
    pub fn pin_owned(&self) -> DlhtOwnedGuard<'_> {
        DlhtOwnedGuard::new(self.reclaimer.pin_owned())
    }

    /// Panics if the guard belongs to another map, because it would protect nothing of this one.
    #[inline]
    pub(super) fn checked<'g>(&self, guard: &'g DlhtGuard<'_>) -> &'g DlhtGuard<'g> {
        assert!(
            std::ptr::eq(guard.reclaimer(), &self.reclaimer),
            "the guard belongs to another map; pin this one"
        );
        guard
    }
}
