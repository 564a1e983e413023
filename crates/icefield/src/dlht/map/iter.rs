//! Iteration over the records of a namespace, page by page.

use std::fmt;

use super::memory::RecordAllocator;
use super::record::{Record, records_of};
use super::{DlhtBuildHasher, DlhtGuard, DlhtMap, Global};
use crate::Result;
use crate::dlht::api::plain;
use crate::outcome::SCAN_PAGE;

/// An iterator over the records of a namespace, from [`DlhtMap::iter`].
///
/// ```
/// let map = icefield::DlhtMap::from_iter([(1, "one"), (2, "two")]);
/// let guard = map.pin();
/// let mut names: Vec<_> = map.iter(&guard).map(|(_, name)| *name).collect();
/// names.sort();
/// assert_eq!(names, ["one", "two"]);
/// ```
pub struct DlhtMapIter<'g, K, V, S = DlhtBuildHasher, A: RecordAllocator = Global> {
    map: &'g DlhtMap<K, V, S, A>,
    namespace: u16,
    /// Keeps the references valid.
    guard: &'g DlhtGuard<'g>,
    page: std::vec::IntoIter<&'g Record<K, V>>,
    next: Option<u64>,
}

impl<'g, K, V, S, A: RecordAllocator> DlhtMapIter<'g, K, V, S, A> {
    pub(super) fn new(
        map: &'g DlhtMap<K, V, S, A>,
        namespace: u16,
        guard: &'g DlhtGuard<'_>,
    ) -> Self {
        map.checked(guard);
        Self { map, namespace, guard, page: Vec::new().into_iter(), next: Some(0) }
    }

    fn read_page(&mut self, cursor: u64) -> Result<()> {
        let _pinned = self.guard;
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

impl<'g, K, V, S, A: RecordAllocator> Iterator for DlhtMapIter<'g, K, V, S, A> {
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<(&'g K, &'g V)> {
        loop {
            if let Some(record) = self.page.next() {
                return Some((&record.key, &record.value));
            }
            let cursor = self.next.take()?;
            plain(self.read_page(cursor));
        }
    }
}

impl<K, V, S, A: RecordAllocator> fmt::Debug for DlhtMapIter<'_, K, V, S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtMapIter").field("next", &self.next).finish_non_exhaustive()
    }
}
