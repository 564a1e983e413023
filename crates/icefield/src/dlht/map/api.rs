//! Maps and their namespaces as the owners of operations, and the operations on a map as a whole.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use super::memory::RecordAllocator;
use super::record::Refused;
use super::write::Put;
use super::{DlhtBuildHasher, DlhtRecordMap, Global};
use crate::Error;
use crate::dlht::api::plain;
use crate::dlht::mode::{Shared, Threading};
use crate::outcome::Occupied;
use crate::report::Stats;
use crate::table::Collection;

/// The number of namespaces (§3.4.2).
const NAMESPACES: u16 = 4096;

/// Returns the result, or panics with the reason of the refusal.
#[inline]
#[track_caller]
pub(super) fn asked<K, V, T>(put: Result<T, Refused<K, V>>) -> T {
    plain(put.map_err(Refused::reason))
}

/// Converts an outcome to the result of `try_insert`.
#[inline]
pub(super) fn accepted<V>(put: Put<'_, V>) -> Result<(), Occupied<&V>> {
    match put {
        Put::Kept(Some(present)) | Put::Replaced(present) => Err(Occupied(present)),
        Put::Inserted | Put::Kept(None) => Ok(()),
    }
}

/// Defines methods of a map, for namespace 0, and the same methods of a namespace.
macro_rules! both {
    ($($methods:tt)*) => {
        /// Operations on namespace 0.
        impl<K, V, S, A, M> DlhtRecordMap<K, V, S, A, M>
        where
            K: Hash + Eq + Send,
            V: Send,
            S: BuildHasher,
            A: RecordAllocator,
            M: crate::Threading,
        {
            $($methods)*
        }
        /// The operations of [`DlhtMap`](crate::DlhtMap), on this namespace.
        impl<K, V, S, A, M> DlhtNamespace<'_, K, V, S, A, M>
        where
            K: Hash + Eq + Send,
            V: Send,
            S: BuildHasher,
            A: RecordAllocator,
            M: crate::Threading,
        {
            $($methods)*
        }
    };
}
pub(super) use both;

impl<K, V, S, A: RecordAllocator, M: Threading> DlhtRecordMap<K, V, S, A, M> {
    #[inline(always)]
    pub(super) fn map(&self) -> &Self {
        self
    }

    #[inline(always)]
    #[allow(clippy::unused_self, reason = "a namespace has the same method")]
    pub(super) fn number(&self) -> u16 {
        0
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> DlhtNamespace<'_, K, V, S, A, M> {
    #[inline(always)]
    pub(super) fn map(&self) -> &DlhtRecordMap<K, V, S, A, M> {
        self.map
    }

    #[inline(always)]
    pub(super) fn number(&self) -> u16 {
        self.number
    }
}

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher, A: RecordAllocator, M: Threading>
    DlhtRecordMap<K, V, S, A, M>
{
    /// Returns a namespace, whose keys are separate from equal keys of other namespaces (§3.4.2). Namespace 0 is the
    /// map itself.
    ///
    /// # Errors
    /// Returns [`Error::InvalidOption`] if `number` is not below 4096.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let (orders, guard) = (map.namespace(7)?, map.pin());
    /// orders.insert(1, 10, &guard);
    /// assert_eq!((orders.get(&1, &guard), map.get(&1, &guard)), (Some(&10), None));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn namespace(&self, number: u16) -> crate::Result<DlhtNamespace<'_, K, V, S, A, M>> {
        if number >= NAMESPACES {
            return Err(Error::InvalidOption {
                option: "namespace",
                detail: format!("{number} is not below {NAMESPACES}"),
            });
        }
        Ok(DlhtNamespace { map: self, number })
    }

    /// Removes all records of all namespaces at one moment.
    ///
    /// If no guard protects the records, they have been freed when this returns. Otherwise later calls free them, a
    /// thousand bins at a time, after the guard has been dropped.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// map.clear();
    /// assert!(map.is_empty());
    /// ```
    pub fn clear(&self) {
        plain(self.try_clear());
    }

    /// Like [`DlhtMap::clear`](crate::DlhtMap::clear), but returns an error instead of panicking.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`] if the index that replaces the present one cannot be allocated; the map is
    /// unchanged.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// map.try_clear()?;
    /// assert!(map.is_empty());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_clear(&self) -> crate::Result<()> {
        let steps = self.clear_all(&self.pin())?;
        // Each time that this thread leaves, it frees a part of the records that no other thread holds.
        (0..steps).for_each(|_| drop(self.pin()));
        Ok(())
    }
}

impl<K, V, S, A, M> Collection for DlhtRecordMap<K, V, S, A, M>
where
    K: Hash + Eq + Send,
    V: Send,
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
{
    fn len(&self) -> crate::Result<u64> {
        Ok(self.len() as u64)
    }
    fn capacity(&self) -> u64 {
        self.capacity() as u64
    }
    fn stats(&self) -> Stats {
        self.stats()
    }
    fn clear(&self) -> crate::Result<()> {
        self.try_clear()
    }
    fn reserve(&self, additional: u64) -> crate::Result<()> {
        self.try_reserve(usize::try_from(additional).unwrap_or(usize::MAX))
    }
    fn shrink_to_fit(&self) -> crate::Result<()> {
        self.try_shrink_to_fit()
    }
}

/// A namespace of a [`DlhtMap`](crate::DlhtMap), from [`DlhtMap::namespace`](crate::DlhtMap::namespace).
///
/// ```
/// let map = icefield::DlhtMap::<u64, &str>::new();
/// let (animals, plants) = (map.namespace(1)?, map.namespace(2)?);
/// let guard = map.pin();
/// animals.insert(7, "newt", &guard);
/// plants.insert(7, "moss", &guard);
/// assert_eq!(animals.get(&7, &guard), Some(&"newt"));
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct DlhtNamespace<
    'a,
    K,
    V,
    S = DlhtBuildHasher,
    A: RecordAllocator = Global,
    M: Threading = Shared,
> {
    map: &'a DlhtRecordMap<K, V, S, A, M>,
    number: u16,
}

impl<K, V, S, A: RecordAllocator, M: Threading> fmt::Debug for DlhtNamespace<'_, K, V, S, A, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtNamespace").field("number", &self.number).finish_non_exhaustive()
    }
}
