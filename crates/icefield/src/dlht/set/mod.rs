//! HashSet mode (§3.1): keys only.
//!
//! A set is a table whose values have no content. Its calls are those of the table.

mod algebra;
mod api;
mod iter;
mod shadow;
mod std_traits;
mod whole;

use std::marker::PhantomData;

use super::DlhtTable;
use super::mode::{Local, Shared, Threading};
use super::options::DlhtOptions;
use crate::Result;
use crate::types::{Key, Word};

pub use iter::{
    DlhtSetDrain, DlhtSetIntoIter, DlhtSetIter, DlhtSetPage, DlhtSetSnapshot, DlhtSetSnapshotIter,
};
pub use shadow::DlhtSetShadow;

/// The value of all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoValue;

impl Word for NoValue {
    const TYPE: &'static str = "none";
    const ACCEPTS_ALL: bool = true;

    #[inline(always)]
    fn to_word(self) -> u64 {
        0
    }
    #[inline(always)]
    fn from_word(_: u64) -> Option<Self> {
        Some(Self)
    }
}

/// A set of words: DLHT without values. Use it as [`DlhtSet`] or [`DlhtSetLocal`].
///
/// ```
/// use icefield::{DlhtWordSet, Threading};
///
/// fn total<M: Threading>(set: &DlhtWordSet<u64, M>) -> u64 {
///     set.iter().sum()
/// }
/// assert_eq!(total(&icefield::DlhtSet::from([1, 2])), 3);
/// assert_eq!(total(&icefield::DlhtSetLocal::from([1])), 1);
/// ```
pub struct DlhtWordSet<K, M: Threading = Shared> {
    pub(super) table: DlhtTable<K, NoValue, M>,
}

/// A set of words for any number of threads. It can also serve as a lock manager: a successful insert takes a lock, a
/// removal releases it, and batches keep their order.
///
/// ```
/// let locks = icefield::DlhtSet::<u64>::new();
/// assert!(locks.insert(7));
/// assert!(!locks.insert(7), "another caller has it");
/// locks.remove(7);
/// ```
pub type DlhtSet<K> = DlhtWordSet<K, Shared>;

/// A set of words for one thread.
///
/// ```
/// let set = icefield::DlhtSetLocal::<u64>::new();
/// assert_eq!((set.insert(7), set.insert(7)), (true, false));
/// ```
pub type DlhtSetLocal<K> = DlhtWordSet<K, Local>;

impl<K: Word, M: Threading> DlhtOptions<DlhtWordSet<K, M>> {
    /// Creates the set.
    ///
    /// # Errors
    /// As for a table: [`Error::InvalidOption`](crate::Error::InvalidOption),
    /// [`Error::NoMemory`](crate::Error::NoMemory).
    ///
    /// ```
    /// use icefield::{DlhtSet, Error};
    /// let set = DlhtSet::<u32>::options().capacity(100).fixed_size().build()?;
    /// let refused = (0..).find_map(|key| set.checked_insert(key).err());
    /// assert!(matches!(refused, Some(Error::Full)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn build(self) -> Result<DlhtWordSet<K, M>> {
        const { <K as Key>::USABLE };
        Ok(DlhtWordSet { table: DlhtTable { core: self.core()?, types: PhantomData } })
    }
}
