//! The iterator over the records of any table.

use super::Table;
use crate::Result;
use crate::outcome::{Cursor, SCAN_PAGE};
use crate::types::Owned;

type Record<T> = (Owned<<T as Table>::Key>, Owned<<T as Table>::Value>);

/// An iterator over a table's records, from [`Table::iter`] and the tables' own `iter()`. Reads one page of records
/// ahead, and is as consistent as [`Table::scan`].
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// table.put_batch(&[(1, 10), (2, 20)])?;
/// let sum: u64 = table.iter().map(|record| record.map(|(_, value)| value)).sum::<icefield::Result<u64>>()?;
/// assert_eq!(sum, 30);
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct Iter<'a, T: Table> {
    table: &'a T,
    page: std::vec::IntoIter<Record<T>>,
    next: Option<Cursor>,
}

impl<'a, T: Table> Iter<'a, T> {
    pub(crate) fn new(table: &'a T) -> Self {
        Self { table, page: Vec::new().into_iter(), next: Some(Cursor::START) }
    }
}

impl<T: Table> Iterator for Iter<'_, T> {
    type Item = Result<Record<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.page.next() {
                return Some(Ok(record));
            }
            match self.table.scan(self.next.take()?, SCAN_PAGE) {
                Ok(page) => (self.page, self.next) = (page.records.into_iter(), page.next),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
