//! Shadow inserts (§3.2.2, "Transactions"): records that stay invisible until their insert commits.
//!
//! The slot of a shadow insert has the state `Shadow`, so lookups, iterators and snapshots skip it, and its word leads
//! to one record. It survives resizes and `clear` like a shadow insert of a word. No other thread ever gets the word of
//! such a slot: only the holder may access the record before the commit. A slot has one state, so a hash with a shadow
//! insert has one record: two keys with equal 64-bit hashes cannot both be present if one of them is shadowed.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use super::api::{asked, both};
use super::memory::{RecordAllocator, free};
use super::record::{Fresh, Pointer, Record, Refused};
use super::{DlhtBuildHasher, DlhtGuard, DlhtNamespace, DlhtRecordMap, Global};
use crate::Error;
use crate::dlht::header::SlotState;
use crate::dlht::mode::{Shared, Threading};
use crate::dlht::write::{Outcome, Rule};
use crate::table::NotShadowed;

/// A shadow insert that has neither committed nor aborted, from
/// [`DlhtMap::try_insert_shadow`](crate::DlhtMap::try_insert_shadow). Its key is absent for all readers, and other
/// inserts of the key are refused. Dropping this value aborts the insert; forgetting it holds the key as long as the
/// map exists, and leaks the record.
///
/// ```
/// let map = icefield::DlhtMap::<String, u32>::new();
/// let guard = map.pin();
/// let shadow = map.try_insert_shadow("one".to_owned(), 1, &guard).expect("absent");
/// assert_eq!(map.get("one", &guard), None); // The record is invisible, and its key is reserved.
/// shadow.commit();
/// assert_eq!(map.get("one", &guard), Some(&1));
/// ```
#[must_use = "dropping a shadow insert aborts it"]
pub struct DlhtMapShadow<
    'm,
    K,
    V,
    S = DlhtBuildHasher,
    A: RecordAllocator = Global,
    M: Threading = Shared,
> {
    map: &'m DlhtRecordMap<K, V, S, A, M>,
    hash: u64,
    record: Pointer<K, V>,
}

// SAFETY: owns the record like a box, and refers to a map that is shared between threads.
unsafe impl<K, V, S, A, M> Send for DlhtMapShadow<'_, K, V, S, A, M>
where
    K: Send,
    V: Send,
    A: RecordAllocator,
    M: Threading,
    DlhtRecordMap<K, V, S, A, M>: Sync,
{
}
// SAFETY: gives access to `&K` and `&V`, and to the map.
unsafe impl<K, V, S, A, M> Sync for DlhtMapShadow<'_, K, V, S, A, M>
where
    K: Sync,
    V: Sync,
    A: RecordAllocator,
    M: Threading,
    DlhtRecordMap<K, V, S, A, M>: Sync,
{
}

/// The result of a shadow insert.
type Shadowing<'m, 'g, K, V, S, A, M> =
    Result<Result<DlhtMapShadow<'m, K, V, S, A, M>, NotShadowed<&'g V>>, Refused<K, V>>;

both! {
    /// Inserts `key` invisibly if it is absent: the record becomes visible when the returned value
    /// [commits](DlhtMapShadow::commit). Until then, the key is absent for reads, updates, removals, `len` and
    /// iteration, and inserts of the key are refused: the `checked_` calls return [`Error::Shadowed`], and the plain
    /// calls panic. A shadow insert survives resizes and [`DlhtMap::clear`](crate::DlhtMap::clear).
    ///
    /// A key whose 64-bit hash equals that of another key counts as held by a shadow insert, if one of the two is
    /// shadowed: with a good hash function, this happens once in 2^64 pairs of keys.
    ///
    /// # Errors
    /// Returns [`NotShadowed::Occupied`] if the key is present, and [`NotShadowed::Shadowed`] if another shadow insert
    /// holds it.
    ///
    /// # Panics
    /// As [`insert`](Self::insert).
    ///
    /// ```
    /// use icefield::{DlhtMap, Error, NotShadowed};
    /// let map = DlhtMap::from([(1, "present")]);
    /// let guard = map.pin();
    /// assert_eq!(map.try_insert_shadow(1, "one", &guard).err(), Some(NotShadowed::Occupied(&"present")));
    /// let shadow = map.try_insert_shadow(2, "two", &guard).expect("absent");
    /// assert_eq!(map.try_insert_shadow(2, "too", &guard).err(), Some(NotShadowed::Shadowed));
    /// let refused = map.checked_insert(2, "to", &guard);
    /// assert!(refused.is_err_and(|refused| matches!(refused.error, Error::Shadowed)));
    /// shadow.abort();
    /// assert_eq!(map.insert(2, "deux", &guard), None);
    /// ```
    pub fn try_insert_shadow<'g>(
        &self,
        key: K,
        value: V,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<DlhtMapShadow<'_, K, V, S, A, M>, NotShadowed<&'g V>>
    where
        K: 'g,
    {
        asked(self.map().shadow_one(self.number(), key, value, guard))
    }

    /// Like [`try_insert_shadow`](Self::try_insert_shadow), but returns an error, with the record, instead of
    /// panicking.
    ///
    /// # Errors
    /// As [`checked_insert`](Self::checked_insert).
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// match map.checked_insert_shadow(1, 10, &guard)? {
    ///     Ok(shadow) => shadow.commit(),
    ///     Err(present) => println!("{present}"),
    /// }
    /// assert_eq!(map.get(&1, &guard), Some(&10));
    /// # Ok::<(), icefield::Refused<u32, u32>>(())
    /// ```
    #[allow(clippy::type_complexity, reason = "a refusal, or the result of the plain call")]
    pub fn checked_insert_shadow<'g>(
        &self,
        key: K,
        value: V,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<Result<DlhtMapShadow<'_, K, V, S, A, M>, NotShadowed<&'g V>>, Refused<K, V>>
    where
        K: 'g,
    {
        self.map().shadow_one(self.number(), key, value, guard)
    }
}

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher, A: RecordAllocator, M: Threading>
    DlhtRecordMap<K, V, S, A, M>
{
    fn shadow_one<'g>(
        &self,
        namespace: u16,
        key: K,
        value: V,
        guard: &'g DlhtGuard<'_>,
    ) -> Shadowing<'_, 'g, K, V, S, A, M>
    where
        K: 'g,
    {
        self.checked(guard);
        let spot = self.alone(namespace, &key);
        let hash = spot.hash;
        let refused = |key: &K| {
            let seen = self.look(&spot, namespace, key);
            // SAFETY: seen under the guard.
            let present = unsafe { seen.value::<'g>() };
            // A slot with other records has no room for a shadow insert.
            present.map(NotShadowed::Occupied).or(seen.is_held().then_some(NotShadowed::Shadowed))
        };
        // Checks the condition before any memory is allocated.
        if let Some(refused) = refused(&key) {
            return Ok(Err(refused));
        }
        let fresh = Fresh::new(&self.allocator, namespace, key, value)?;
        let (record, word) = (fresh.pointer(), fresh.word());
        loop {
            match self.core.store(hash, word, Rule::IfAbsent, SlotState::Shadow) {
                Ok(Outcome::Inserted) => {
                    fresh.hand_over();
                    return Ok(Ok(DlhtMapShadow { map: self, hash, record }));
                }
                Ok(Outcome::Shadowed) => return Ok(Err(NotShadowed::Shadowed)),
                Ok(Outcome::Kept(Some(_)) | Outcome::Replaced(_)) => {
                    if let Some(refused) = refused(fresh.key()) {
                        return Ok(Err(refused));
                    }
                }
                Ok(Outcome::Kept(None)) => return Err(fresh.refused(Error::Full)),
                Err(error) => return Err(fresh.refused(error)),
            }
        }
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> DlhtMapShadow<'_, K, V, S, A, M> {
    fn record(&self) -> &Record<K, V> {
        // SAFETY: owned by this value until it commits or aborts.
        unsafe { self.record.as_ref() }
    }

    /// Returns the key.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.try_insert_shadow(1, 10, &guard).expect("absent").key(), &1);
    /// ```
    pub fn key(&self) -> &K {
        &self.record().key
    }

    /// Returns the value.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.try_insert_shadow(1, 10, &guard).expect("absent").value(), &10);
    /// ```
    pub fn value(&self) -> &V {
        &self.record().value
    }

    /// Makes the record visible. Never needs memory or room: the slot is already reserved.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// map.try_insert_shadow(1, 10, &guard).expect("absent").commit();
    /// assert_eq!(map.get(&1, &guard), Some(&10));
    /// ```
    pub fn commit(self) {
        let committed = self.map.core.resolve(self.hash, SlotState::Valid);
        debug_assert!(committed, "only its holder may commit or abort a shadow insert");
        std::mem::forget(self);
    }

    /// Removes the record, like dropping the shadow insert.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// map.try_insert_shadow(1, 10, &guard).expect("absent").abort();
    /// assert_eq!(map.try_insert(1, 11, &guard), Ok(()));
    /// ```
    pub fn abort(self) {
        drop(self);
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> Drop for DlhtMapShadow<'_, K, V, S, A, M> {
    fn drop(&mut self) {
        if self.map.core.resolve(self.hash, SlotState::Invalid) {
            // SAFETY: made by `Fresh` with this allocator. The slot that led to the record is empty, and no other
            // thread has had the word: reads and writes of other threads skip slots in state `Shadow`.
            unsafe { free(&self.map.allocator, self.record) };
        } else {
            debug_assert!(false, "only its holder may commit or abort a shadow insert");
        }
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S, A, M> fmt::Debug for DlhtMapShadow<'_, K, V, S, A, M>
where
    A: RecordAllocator,
    M: Threading,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { key, value, .. } = self.record();
        f.debug_struct("DlhtMapShadow").field("key", key).field("value", value).finish()
    }
}
