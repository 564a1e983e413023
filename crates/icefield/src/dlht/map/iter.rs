//! Iteration over the records of a namespace, page by page.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;

use super::memory::RecordAllocator;
use super::record::{Record, records_of};
use super::{DlhtBuildHasher, DlhtGuard, DlhtRecordMap, Global};
use crate::Result;
use crate::dlht::api::plain;
use crate::dlht::mode::{Shared, Threading};
use crate::outcome::SCAN_PAGE;

/// An iterator over the records of a namespace, from [`DlhtMap::iter`](crate::DlhtMap::iter).
///
/// ```
/// let map = icefield::DlhtMap::from([(1, "one"), (2, "two")]);
/// let guard = map.pin();
/// let mut names: Vec<_> = map.iter(&guard).map(|(_, name)| *name).collect();
/// names.sort();
/// assert_eq!(names, ["one", "two"]);
/// ```
pub struct DlhtMapIter<
    'g,
    K,
    V,
    S = DlhtBuildHasher,
    A: RecordAllocator = Global,
    M: Threading = Shared,
> {
    map: &'g DlhtRecordMap<K, V, S, A, M>,
    namespace: u16,
    /// The guard, which keeps the references valid, is borrowed for `'g`. Only its announcement matters, so the
    /// iterator may be sent to another thread.
    guard: PhantomData<&'g ()>,
    page: std::vec::IntoIter<&'g Record<K, V>>,
    next: Option<u64>,
}

impl<'g, K, V, S, A: RecordAllocator, M: Threading> DlhtMapIter<'g, K, V, S, A, M> {
    pub(super) fn new(
        map: &'g DlhtRecordMap<K, V, S, A, M>,
        namespace: u16,
        guard: &'g DlhtGuard<'_>,
    ) -> Self {
        map.checked(guard);
        Self { map, namespace, guard: PhantomData, page: Vec::new().into_iter(), next: Some(0) }
    }

    fn read_page(&mut self, cursor: u64) -> Result<()> {
        let mut words = Vec::new();
        self.next = self.map.core.scan(cursor, SCAN_PAGE, &mut words)?;
        let mut page: Vec<&'g Record<K, V>> = Vec::with_capacity(words.len());
        for (_, word) in words {
            // SAFETY: read under the guard, which lives as long as the references.
            page.extend(unsafe { records_of::<K, V, A>(word).map(|record| &*record.as_ptr()) });
        }
        page.retain(|record| record.namespace == self.namespace);
        self.page = page.into_iter();
        Ok(())
    }
}

impl<'g, K, V, S, A: RecordAllocator, M: Threading> Iterator for DlhtMapIter<'g, K, V, S, A, M> {
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<(&'g K, &'g V)> {
        loop {
            if let Some(record) = self.page.next() {
                return Some(record.pair());
            }
            let cursor = self.next.take()?;
            plain(self.read_page(cursor));
        }
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> fmt::Debug for DlhtMapIter<'_, K, V, S, A, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtMapIter").field("next", &self.next).finish_non_exhaustive()
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> FusedIterator for DlhtMapIter<'_, K, V, S, A, M> {}

/// An iterator over the keys of a namespace, from [`DlhtMap::keys`](crate::DlhtMap::keys).
///
/// ```
/// let map = icefield::DlhtMap::from([(1, "one"), (2, "two")]);
/// assert_eq!(map.keys(&map.pin()).sum::<i32>(), 3);
/// ```
#[derive(Debug)]
pub struct DlhtMapKeys<
    'g,
    K,
    V,
    S = DlhtBuildHasher,
    A: RecordAllocator = Global,
    M: Threading = Shared,
>(pub(super) DlhtMapIter<'g, K, V, S, A, M>);

impl<'g, K, V, S, A: RecordAllocator, M: Threading> Iterator for DlhtMapKeys<'g, K, V, S, A, M> {
    type Item = &'g K;

    fn next(&mut self) -> Option<&'g K> {
        self.0.next().map(|(key, _)| key)
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> FusedIterator for DlhtMapKeys<'_, K, V, S, A, M> {}

/// An iterator over the values of a namespace, from [`DlhtMap::values`](crate::DlhtMap::values).
///
/// ```
/// let map = icefield::DlhtMap::from([("one", 1), ("two", 2)]);
/// assert_eq!(map.values(&map.pin()).sum::<i32>(), 3);
/// ```
#[derive(Debug)]
pub struct DlhtMapValues<
    'g,
    K,
    V,
    S = DlhtBuildHasher,
    A: RecordAllocator = Global,
    M: Threading = Shared,
>(pub(super) DlhtMapIter<'g, K, V, S, A, M>);

impl<'g, K, V, S, A: RecordAllocator, M: Threading> Iterator for DlhtMapValues<'g, K, V, S, A, M> {
    type Item = &'g V;

    fn next(&mut self) -> Option<&'g V> {
        self.0.next().map(|(_, value)| value)
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> FusedIterator for DlhtMapValues<'_, K, V, S, A, M> {}
