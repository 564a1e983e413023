//! Changes of the records that one hash leads to.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::memory::{RecordAllocator, free, retire};
use super::record::{
    Fresh, Pointer, Record, Refused, find_in, free_crowd, records_of, retire_crowd, word_of,
};
use super::{DlhtGuard, DlhtMap};
use crate::Result;
use crate::base::reclaim::Guard;
use crate::dlht::api::plain;
use crate::dlht::core::Core;
use crate::dlht::header::SlotState;
use crate::dlht::index::{Entry, Index};
use crate::dlht::mode::Shared;
use crate::dlht::write::{Outcome, Rule};
use crate::outcome::{Computed, Decision};

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

/// Access to the slot of a hash: by separate calls of the table ([`Alone`]), or within a batch.
pub(super) trait Spot {
    fn get(&self) -> Option<u64>;
    fn store(&self, word: u64, rule: Rule) -> Result<Outcome>;
    fn take(&self, expected: u64) -> Outcome;
}

/// A [`Spot`] that keeps no state between calls.
pub(super) struct Alone<'a> {
    core: &'a Core<Shared>,
    hash: u64,
}

impl Spot for Alone<'_> {
    #[inline(always)]
    fn get(&self) -> Option<u64> {
        self.core.get(self.hash)
    }
    #[inline(always)]
    fn store(&self, word: u64, rule: Rule) -> Result<Outcome> {
        self.core.store(self.hash, word, rule, SlotState::Valid)
    }
    #[inline(always)]
    fn take(&self, expected: u64) -> Outcome {
        self.core.take(self.hash, Some(expected))
    }
}

/// The content of the slot of a hash at one moment.
struct Seen<K, V> {
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
    unsafe fn value<'g>(self) -> Option<&'g V>
    where
        K: 'g,
    {
        // SAFETY: the caller's contract; records never change.
        self.present.map(|record| unsafe { &record.as_ref().value })
    }
}

impl<K, V, S, A: RecordAllocator> DlhtMap<K, V, S, A> {
    /// Panics if the guard belongs to another map, because it would protect nothing of this one.
    #[inline]
    pub(super) fn checked<'g>(&self, guard: &'g DlhtGuard<'_>) -> &'g Guard<'g> {
        assert!(
            std::ptr::eq(guard.reclaimer, &self.reclaimer),
            "the guard belongs to another map; pin this one"
        );
        shorter(&guard.guard)
    }
}

impl<K: Send, V: Send, S, A: RecordAllocator> DlhtMap<K, V, S, A> {
    /// Changes the records of the hash, if its word is still that of `seen`: removes the record that was present, and
    /// adds `new`. Returns whether the word was still the same. An equal word means equal records: objects seen under
    /// the guard have not been freed, so no address has been reused. On success, `new` is taken and the record that it
    /// replaces is retired.
    ///
    /// # Errors
    /// Fails if memory runs out; the map is unchanged.
    fn change(
        &self,
        spot: &impl Spot,
        seen: Seen<K, V>,
        new: &mut Option<Fresh<'_, K, V, A>>,
        guard: &Guard<'_>,
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
            return outcome.map(|_| false);
        }
        // Hand `new` over first, because the calls below may panic.
        let (gone, came) = (present.is_some(), new.take().map(Fresh::hand_over).is_some());
        let crowded = i64::from(came && !gone && old.is_some());
        let less = i64::from(gone && !came && next.is_some());
        if crowded != less {
            self.crowded.add(crowded - less);
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

    /// Removes all records of all namespaces at one moment.
    pub(super) fn clear_all(&self, guard: &DlhtGuard<'_>) -> Result<()> {
        let pinned = self.checked(guard);
        let old = self.core.replace(Entry::Clear)?;
        for bin in 0..old.len() {
            let line = old.bin(bin);
            for &(_, word) in old.read_all(line, Index::header(line)).records() {
                // SAFETY: every bin is frozen, and this is the only pass over the bins.
                for (nth, record) in unsafe { records_of::<K, V, A>(word) }.enumerate() {
                    if nth > 0 {
                        self.crowded.add(-1);
                    }
                    // SAFETY: made by `Fresh` with this allocator; new requests begin at the next index.
                    unsafe { retire(pinned, &self.allocator, record) };
                }
                // SAFETY: as for the records that the crowd lists.
                unsafe { retire_crowd::<K, V, A>(pinned, &self.allocator, word) };
            }
        }
        Ok(())
    }
}

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher, A: RecordAllocator> DlhtMap<K, V, S, A> {
    #[inline]
    pub(super) fn hash_of<Q: Hash + ?Sized>(&self, namespace: u16, key: &Q) -> u64 {
        self.hash.hash_one((namespace, key))
    }

    fn alone<Q: Hash + ?Sized>(&self, namespace: u16, key: &Q) -> Alone<'_> {
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
        let word = self.core.get(self.hash_of(namespace, key))?;
        // SAFETY: read under the guard.
        let record = unsafe { find_in::<K, V, A, Q>(word, namespace, key) }?;
        // SAFETY: read under the guard; records never change, and `'g` is the guard's lifetime.
        Some(unsafe { record.as_ref() })
    }

    #[inline(always)]
    fn look<Q: Eq + ?Sized>(&self, spot: &impl Spot, namespace: u16, key: &Q) -> Seen<K, V>
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
        _pinned: &'g Guard<'_>,
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
        let pinned = self.checked(guard);
        self.put_at(&self.alone(namespace, &key), namespace, (key, value), when, pinned)
    }

    pub(super) fn put_at<'g>(
        &self,
        spot: &impl Spot,
        namespace: u16,
        (key, value): (K, V),
        when: When,
        pinned: &'g Guard<'_>,
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
        // Checks the condition before any memory is allocated.
        let mut seen = self.look(spot, namespace, &key);
        if let Some(kept) = kept(seen) {
            return Ok(kept);
        }
        let mut fresh = Some(Fresh::new(&self.allocator, namespace, key, value)?);
        loop {
            match (self.change(spot, seen, &mut fresh, pinned), fresh) {
                (Err(error), Some(unused)) => return Err(unused.refused(error)),
                (Ok(false), Some(unused)) => {
                    seen = self.look(spot, namespace, unused.key());
                    if let Some(kept) = kept(seen) {
                        return Ok(kept);
                    }
                    fresh = Some(unused);
                }
                (_, _) => {
                    // SAFETY: seen under the guard.
                    let before = unsafe { seen.value() };
                    return Ok(before.map_or(Put::Inserted, Put::Replaced));
                }
            }
        }
    }

    /// Returns the value of `key`; if there is none, puts the value that `f` returns.
    pub(super) fn find_or_put<'g>(
        &self,
        namespace: u16,
        key: K,
        f: impl FnOnce() -> V,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<&'g V, Refused<K, V>>
    where
        K: 'g,
    {
        let (pinned, spot) = (self.checked(guard), self.alone(namespace, &key));
        let mut seen = self.look(&spot, namespace, &key);
        // SAFETY: seen under the guard.
        if let Some(value) = unsafe { seen.value() } {
            return Ok(value);
        }
        let fresh = Fresh::new(&self.allocator, namespace, key, f())?;
        let put = fresh.pointer();
        let mut fresh = Some(fresh);
        loop {
            match (self.change(&spot, seen, &mut fresh, pinned), fresh) {
                (Err(error), Some(unused)) => return Err(unused.refused(error)),
                (Ok(false), Some(unused)) => {
                    seen = self.look(&spot, namespace, unused.key());
                    // SAFETY: seen under the guard.
                    if let Some(value) = unsafe { seen.value() } {
                        return Ok(value);
                    }
                    fresh = Some(unused);
                }
                // SAFETY: the record was put under the guard.
                (_, _) => return Ok(unsafe { &put.as_ref().value }),
            }
        }
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

    pub(super) fn take_at<'g, Q: Eq + ?Sized>(
        &self,
        spot: &impl Spot,
        namespace: u16,
        key: &Q,
        mut wanted: impl FnMut(&Record<K, V>) -> bool,
        pinned: &'g Guard<'_>,
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

    /// Passes the value to `f`, and executes its decision if the value has not changed meanwhile; otherwise calls `f`
    /// again. Only the caller's guard is held while `f` runs.
    pub(super) fn compute_one<'g>(
        &self,
        namespace: u16,
        mut key: K,
        mut f: impl FnMut(Option<&V>) -> Decision<V>,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<Computed<&'g V>>
    where
        K: 'g,
    {
        let (pinned, spot) = (self.checked(guard), self.alone(namespace, &key));
        loop {
            let seen = self.look(&spot, namespace, &key);
            // SAFETY: seen under the guard.
            let value = unsafe { seen.value::<'g>() };
            let mut fresh = match f(value) {
                Decision::Keep => return Ok(Computed::Kept(value)),
                Decision::Remove if value.is_none() => return Ok(Computed::Removed(None)),
                Decision::Remove => {
                    if self.change(&spot, seen, &mut None, pinned)? {
                        return Ok(Computed::Removed(value));
                    }
                    continue;
                }
                Decision::Put(new) => Fresh::new(&self.allocator, namespace, key, new)
                    .map(Some)
                    .map_err(Refused::reason)?,
            };
            let done = self.change(&spot, seen, &mut fresh, pinned)?;
            match fresh {
                Some(unused) if !done => (key, _) = unused.into_parts(),
                _ => return Ok(Computed::Put(value)),
            }
        }
    }

    /// Replaces the value by `new` if it is `current`; otherwise returns the present value.
    pub(super) fn exchange_one<'g>(
        &self,
        namespace: u16,
        mut key: K,
        current: &V,
        mut new: V,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<std::result::Result<(), Option<&'g V>>>
    where
        K: 'g,
        V: PartialEq,
    {
        let (pinned, spot) = (self.checked(guard), self.alone(namespace, &key));
        loop {
            let seen = self.look(&spot, namespace, &key);
            // SAFETY: seen under the guard.
            let value = unsafe { seen.value::<'g>() };
            if value != Some(current) {
                return Ok(Err(value));
            }
            let fresh = Fresh::new(&self.allocator, namespace, key, new);
            let mut fresh = Some(fresh.map_err(Refused::reason)?);
            let done = self.change(&spot, seen, &mut fresh, pinned)?;
            match fresh {
                Some(unused) if !done => (key, new) = unused.into_parts(),
                _ => return Ok(Ok(())),
            }
        }
    }
}

/// Shortens the lifetime of a guard.
fn shorter<'g>(guard: &'g Guard<'_>) -> &'g Guard<'g> {
    guard
}

impl<K, V, S, A: RecordAllocator> Drop for DlhtMap<K, V, S, A> {
    fn drop(&mut self) {
        let mut words = Vec::new();
        // The scan does not fail, and it also finds the records of an unfinished transfer. It finds each record once,
        // because no other thread uses the map.
        let mut next = Some(0);
        while let Some(cursor) = next {
            next = self.core.scan(cursor, usize::MAX, &mut words).ok().flatten();
        }
        for (_, word) in words {
            // SAFETY: exclusive access to the table; each record is in it once and comes from this allocator.
            unsafe {
                records_of::<K, V, A>(word).for_each(|record| free(&self.allocator, record));
                free_crowd::<K, V, A>(&self.allocator, word);
            }
        }
    }
}
