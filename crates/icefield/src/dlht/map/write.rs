//! Changes of the records that one hash leads to.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::memory::{RecordAllocator, retire};
use super::record::{
    Fresh, Pointer, Record, Refused, find_in, free_crowd, records_of, retire_crowd, word_of,
};
use super::spot::{Alone, Single, Spot};
use super::walk::{Sweep, words_of};
use super::{DlhtGuard, DlhtRecordMap};
use crate::dlht::api::plain;
use crate::dlht::index::Entry;
use crate::dlht::mode::Threading;
use crate::dlht::write::{Outcome, Rule};
use crate::{Error, Result};

/// The condition under which a record is put.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Absent,
    Present,
    Always,
}

/// The outcome of putting a record.
pub(super) enum Put<'g, V> {
    Inserted,
    /// The new record replaced one that had this value.
    Replaced(&'g V),
    /// Nothing changed. Contains the present value, if there is one.
    Kept(Option<&'g V>),
}

impl<'g, V> Put<'g, V> {
    pub(super) fn replaced(self) -> Option<&'g V> {
        match self {
            Put::Replaced(before) => Some(before),
            Put::Inserted | Put::Kept(_) => None,
        }
    }

    pub(super) fn before(self) -> Option<&'g V> {
        match self {
            Put::Replaced(before) => Some(before),
            Put::Kept(present) => present,
            Put::Inserted => None,
        }
    }
}

/// The content of the slot of a hash at one moment.
pub(super) struct Seen<K, V> {
    word: Option<u64>,
    /// The record of the key, among those of the hash.
    present: Option<Pointer<K, V>>,
}

impl<K, V> Clone for Seen<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Seen<K, V> {}

impl<K, V> Seen<K, V> {
    /// # Safety
    /// The state was seen under a guard that lives as long as `'g`.
    pub(super) unsafe fn value<'g>(self) -> Option<&'g V>
    where
        K: 'g,
    {
        // SAFETY: the caller's contract; records never change.
        self.present.map(|record| unsafe { &record.as_ref().value })
    }
}

impl<K, V> Seen<K, V> {
    /// Returns whether the slot leads to any record.
    pub(super) fn is_held(self) -> bool {
        self.word.is_some()
    }
}

impl<K: Send, V: Send, S, A: RecordAllocator, M: Threading> DlhtRecordMap<K, V, S, A, M> {
    /// Changes the records of the hash, if its word is still that of `seen`: removes the record that was present, and
    /// adds `new`. Returns whether the word was still the same. An equal word means equal records: objects seen under
    /// the guard have not been freed, so no address has been reused. On success, `new` is taken and the record that it
    /// replaces is retired.
    ///
    /// # Errors
    /// Fails if memory runs out, if the index is full, or if a shadow insert holds the slot; the map is unchanged.
    pub(super) fn change(
        &self,
        spot: &impl Spot,
        seen: Seen<K, V>,
        new: &mut Option<Fresh<'_, K, V, A>>,
        guard: &DlhtGuard<'_>,
    ) -> Result<bool> {
        let (allocator, Seen { word: old, present }) = (&self.allocator, seen);
        let pointer = new.as_ref().map(Fresh::pointer);
        // SAFETY: the word was seen under the guard.
        let next = unsafe { word_of(allocator, old, present, pointer)? };
        let outcome = match (old, next) {
            (None, None) => return Ok(true),
            (None, Some(next)) => spot.store(next, Rule::IfAbsent),
            (Some(old), Some(next)) => spot.store(next, Rule::IfEquals(old)),
            (Some(old), None) => Ok(spot.take(old)),
        };
        if !matches!(outcome, Ok(Outcome::Inserted | Outcome::Replaced(_))) {
            if let Some(next) = next {
                // SAFETY: the table has not taken the word.
                unsafe { free_crowd::<K, V, A>(allocator, next) };
            }
            // Any other word than the one seen means that the caller must look again. A shadow insert is not seen.
            return match outcome {
                Ok(Outcome::Shadowed) => Err(Error::Shadowed),
                other => other.map(|_| false),
            };
        }
        // Hand `new` over first, because the calls below may panic.
        let (gone, came) = (present.is_some(), new.take().map(Fresh::hand_over).is_some());
        let crowded = i64::from(came && !gone && old.is_some());
        let less = i64::from(gone && !came && next.is_some());
        if crowded != less {
            M::add(&self.crowded, crowded - less);
        }
        if let Some(old) = old {
            // SAFETY: the table held the word until now.
            unsafe { retire_crowd::<K, V, A>(guard, allocator, old) };
        }
        if let Some(record) = present {
            // SAFETY: made by `Fresh` with this allocator, and just taken out of the table by this thread.
            unsafe { retire(guard, allocator, record) };
        }
        Ok(true)
    }

    /// Removes all records of all namespaces at one moment. Their memory is freed in steps, one each time that a thread
    /// leaves: as many threads must leave as this returns.
    pub(super) fn clear_all(&self, guard: &DlhtGuard<'_>) -> Result<u64> {
        let pinned = self.checked(guard);
        let old = self.core.replace(Entry::Clear)?;
        for word in words_of(&old) {
            // SAFETY: every bin is frozen, and the records are retired only below.
            let others = unsafe { records_of::<K, V, A>(word) }.count() - 1;
            if others > 0 {
                M::add(&self.crowded, -(others as i64));
            }
        }
        // SAFETY: every bin is frozen, and only the frozen index leads to the records.
        let sweep: Sweep<K, V, A> = unsafe { Sweep::new(old, self.allocator.clone()) };
        let steps = sweep.steps();
        // SAFETY: made by `Fresh` with this allocator; new requests begin at the next index.
        unsafe { sweep.retire(pinned) };
        Ok(steps)
    }
}

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher, A: RecordAllocator, M: Threading>
    DlhtRecordMap<K, V, S, A, M>
{
    #[inline]
    pub(super) fn hash_of<Q: Hash + ?Sized>(&self, namespace: u16, key: &Q) -> u64 {
        // Namespace 0 costs nothing. Equal hashes of different namespaces are as rare as those of different keys.
        match namespace {
            0 => self.hash.hash_one(key),
            _ => self.hash.hash_one((namespace, key)),
        }
    }

    pub(super) fn alone<Q: Hash + ?Sized>(&self, namespace: u16, key: &Q) -> Alone<'_, M> {
        Alone { core: &self.core, hash: self.hash_of(namespace, key) }
    }

    #[inline]
    pub(super) fn find<'g, Q: Hash + Eq + ?Sized>(
        &self,
        namespace: u16,
        key: &Q,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g Record<K, V>>
    where
        K: Borrow<Q>,
    {
        self.checked(guard);
        // SAFETY: the guard lives for `'g`.
        unsafe { self.find_protected(namespace, key) }
    }

    /// Like [`DlhtMap::find`](crate::DlhtMap::find), for callers that have checked their guard before.
    ///
    /// # Safety
    /// A guard of this map lives for `'g`.
    #[inline]
    pub(super) unsafe fn find_protected<'g, Q: Hash + Eq + ?Sized>(
        &self,
        namespace: u16,
        key: &Q,
    ) -> Option<&'g Record<K, V>>
    where
        K: Borrow<Q>,
    {
        let word = self.core.get(self.hash_of(namespace, key))?;
        // SAFETY: read under the guard.
        let record = unsafe { find_in::<K, V, A, Q>(word, namespace, key) }?;
        // SAFETY: read under the guard; records never change, and `'g` is the guard's lifetime.
        Some(unsafe { record.as_ref() })
    }

    #[inline(always)]
    pub(super) fn look<Q: Eq + ?Sized>(
        &self,
        spot: &impl Spot,
        namespace: u16,
        key: &Q,
    ) -> Seen<K, V>
    where
        K: Borrow<Q>,
    {
        let word = spot.get();
        // SAFETY: every caller has checked its guard.
        let present = word.and_then(|word| unsafe { find_in::<_, _, A, Q>(word, namespace, key) });
        Seen { word, present }
    }

    /// Returns the value of `key`. `'g` is the guard's lifetime.
    #[inline(always)]
    pub(super) fn value_at<'g, Q: Eq + ?Sized>(
        &self,
        spot: &impl Spot,
        namespace: u16,
        key: &Q,
        _pinned: &'g DlhtGuard<'_>,
    ) -> Option<&'g V>
    where
        K: Borrow<Q> + 'g,
    {
        // SAFETY: seen under the guard.
        unsafe { self.look(spot, namespace, key).value() }
    }

    /// Puts a record of `key` and `value` into the table if `when` allows it. `'g` is the guard's lifetime; the
    /// replaced record is retired under the guard.
    ///
    /// # Errors
    /// Fails if memory runs out; the map is unchanged.
    pub(super) fn put_one<'g>(
        &self,
        namespace: u16,
        key: K,
        value: V,
        when: When,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<Put<'g, V>, Refused<K, V>>
    where
        K: 'g,
    {
        let (pinned, hash) = (self.checked(guard), self.hash_of(namespace, &key));
        let section = self.core.pin();
        let spot = Single::new(&self.core, self.core.current_for_writes(&section, 1), hash);
        if when == When::Always {
            // The record is allocated while the bin is being loaded.
            spot.prefetch();
        }
        self.put_at(&spot, namespace, (key, value), when, pinned)
    }

    pub(super) fn put_at<'g>(
        &self,
        spot: &impl Spot,
        namespace: u16,
        (key, value): (K, V),
        when: When,
        pinned: &'g DlhtGuard<'_>,
    ) -> Result<Put<'g, V>, Refused<K, V>>
    where
        K: 'g,
    {
        let kept = |seen: Seen<K, V>| match when {
            // SAFETY: seen under the guard.
            When::Absent => unsafe { seen.value() }.map(|value| Put::Kept(Some(value))),
            When::Present if seen.present.is_none() => Some(Put::Kept(None)),
            _ => None,
        };
        // If the record may be refused, the search comes before the allocation.
        let mut seen = None;
        if when != When::Always {
            let now = self.look(spot, namespace, &key);
            if let Some(kept) = kept(now) {
                return Ok(kept);
            }
            seen = Some(now);
        }
        let mut fresh = Some(Fresh::new(&self.allocator, namespace, key, value)?);
        while let Some(unused) = fresh {
            let now = seen.take().unwrap_or_else(|| self.look(spot, namespace, unused.key()));
            if let Some(kept) = kept(now) {
                return Ok(kept);
            }
            fresh = Some(unused);
            let changed = self.change(spot, now, &mut fresh, pinned);
            match (changed, fresh.take()) {
                (Err(error), Some(unused)) => return Err(unused.refused(error)),
                (Ok(false), Some(unused)) => fresh = Some(unused),
                (_, _) => {
                    // SAFETY: seen under the guard.
                    let before = unsafe { now.value() };
                    return Ok(before.map_or(Put::Inserted, Put::Replaced));
                }
            }
        }
        Ok(Put::Inserted)
    }

    /// Removes the record of `key` if `wanted` returns `true` for it.
    pub(super) fn take<'g, Q: Hash + Eq + ?Sized>(
        &self,
        namespace: u16,
        key: &Q,
        wanted: impl FnMut(&Record<K, V>) -> bool,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g Record<K, V>>
    where
        K: Borrow<Q>,
    {
        let pinned = self.checked(guard);
        self.take_at(&self.alone(namespace, key), namespace, key, wanted, pinned)
    }

    /// Removes the record of `key`.
    pub(super) fn take_one<'g, Q: Hash + Eq + ?Sized>(
        &self,
        namespace: u16,
        key: &Q,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g Record<K, V>>
    where
        K: Borrow<Q>,
    {
        let (pinned, hash) = (self.checked(guard), self.hash_of(namespace, key));
        let section = self.core.pin();
        let spot = Single::new(&self.core, self.core.current_for_writes(&section, 1), hash);
        self.take_at(&spot, namespace, key, |_| true, pinned)
    }

    pub(super) fn take_at<'g, Q: Eq + ?Sized>(
        &self,
        spot: &impl Spot,
        namespace: u16,
        key: &Q,
        mut wanted: impl FnMut(&Record<K, V>) -> bool,
        pinned: &'g DlhtGuard<'_>,
    ) -> Option<&'g Record<K, V>>
    where
        K: Borrow<Q>,
    {
        loop {
            let seen = self.look(spot, namespace, key);
            // SAFETY: seen under the guard, which lives for `'g`.
            let record = unsafe { seen.present?.as_ref() };
            if !wanted(record) {
                return None;
            }
            // This fails only if a crowd of three or more records cannot be copied. The slot exists, so no larger index
            // is needed.
            if plain(self.change(spot, seen, &mut None, pinned)) {
                return Some(record);
            }
        }
    }
}
