//! Changes of the records that one hash leads to.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::record::{Fresh, Pointer, Record, free_crowd, records_of, retire_crowd, word_of};
use super::{DlhtGuard, DlhtMap};
use crate::Result;
use crate::base::reclaim::Guard;
use crate::dlht::api::plain;
use crate::dlht::header::SlotState;
use crate::dlht::index::{Entry, Index};
use crate::dlht::write::{Outcome, Rule};

/// When a new record is put.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Absent,
    Present,
    Always,
}

/// What putting a record came to.
pub(super) enum Put<'g, V> {
    Inserted,
    /// It took the place of one with this value.
    Replaced(&'g V),
    /// Nothing; the value present.
    Kept(Option<&'g V>),
}

impl<'g, V> Put<'g, V> {
    /// The value that was replaced.
    pub(super) fn replaced(self) -> Option<&'g V> {
        match self {
            Put::Replaced(before) => Some(before),
            Put::Inserted | Put::Kept(_) => None,
        }
    }
}

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher> DlhtMap<K, V, S> {
    #[inline]
    pub(super) fn hash_of<Q: Hash + ?Sized>(&self, namespace: u16, key: &Q) -> u64 {
        self.hash.hash_one((namespace, key))
    }

    /// Refuses the guard of another map: it would protect nothing of this one.
    #[inline]
    pub(super) fn checked<'g>(&self, guard: &'g DlhtGuard<'_>) -> &'g Guard<'g> {
        assert!(
            std::ptr::eq(guard.reclaimer, &self.reclaimer),
            "the guard is that of another map: pin this one"
        );
        shorter(&guard.guard)
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
        let record = unsafe { find_in::<K, V, Q>(word, namespace, key) }?;
        // SAFETY: likewise; records are never changed, and `'g` is the guard's.
        Some(unsafe { record.as_ref() })
    }

    /// Puts a record of `key` and `value` into the table when `when` says so. `'g` is the guard's, and what was
    /// replaced is retired under it.
    pub(super) fn put<'g>(
        &self,
        namespace: u16,
        key: K,
        value: V,
        when: When,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<Put<'g, V>>
    where
        K: 'g,
    {
        let pinned = self.checked(guard);
        let hash = self.hash_of(namespace, &key);
        let fresh = Fresh::new(namespace, key, value);
        loop {
            let word = self.core.get(hash);
            // SAFETY: `fresh` is ours; the word was read under the guard.
            let present = unsafe {
                word.and_then(|word| find_in(word, namespace, &fresh.pointer().as_ref().key))
            };
            // SAFETY: read under the guard, whose lifetime is `'g`.
            let value = present.map(|record| unsafe { &record.as_ref().value });
            match when {
                When::Absent if present.is_some() => return Ok(Put::Kept(value)),
                When::Present if present.is_none() => return Ok(Put::Kept(None)),
                _ => {}
            }
            // SAFETY: the word was read under the guard.
            let new = unsafe { word_of(word, present, Some(fresh.pointer())) };
            if !self.exchange(hash, word, new, pinned)? {
                continue;
            }
            fresh.hand_over();
            let Some(old) = present else {
                self.len.add(1);
                return Ok(Put::Inserted);
            };
            // SAFETY: boxed by `Fresh`; the exchange has taken it out of the table, and was made once.
            unsafe { pinned.retire_box(old.as_ptr().cast::<SendRecord<K, V>>()) };
            return Ok(value.map_or(Put::Inserted, Put::Replaced));
        }
    }

    /// Takes the record of `key` out, if `wanted` says so of it.
    pub(super) fn take<'g, Q: Hash + Eq + ?Sized>(
        &self,
        namespace: u16,
        key: &Q,
        mut wanted: impl FnMut(&Record<K, V>) -> bool,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g Record<K, V>>
    where
        K: Borrow<Q>,
    {
        let pinned = self.checked(guard);
        let hash = self.hash_of(namespace, key);
        loop {
            let word = self.core.get(hash)?;
            // SAFETY: read under the guard.
            let old = unsafe { find_in::<K, V, Q>(word, namespace, key) }?;
            // SAFETY: likewise, for as long as the guard lives.
            let record = unsafe { old.as_ref() };
            if !wanted(record) {
                return None;
            }
            // SAFETY: the word was read under the guard.
            let new = unsafe { word_of(Some(word), Some(old), None) };
            // Never refused: there is a slot.
            if plain(self.exchange(hash, Some(word), new, pinned)) {
                self.len.add(-1);
                // SAFETY: boxed by `Fresh`; the exchange has taken it out of the table, and was made once.
                unsafe { pinned.retire_box(old.as_ptr().cast::<SendRecord<K, V>>()) };
                return Some(record);
            }
        }
    }

    /// Replaces what `hash` leads to. An equal word leads to equal records: nothing that the caller saw has been freed,
    /// so no address has been used again. `new` is freed when it is not taken, and the crowd of `old` retired when it
    /// is.
    fn exchange(
        &self,
        hash: u64,
        old: Option<u64>,
        new: Option<u64>,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        let outcome = match (old, new) {
            (old, Some(new)) => {
                let rule = old.map_or(Rule::IfAbsent, Rule::IfEquals);
                self.core.store(hash, new, rule, SlotState::Valid)
            }
            (old, None) => Ok(self.core.take(hash, old)),
        };
        let done = matches!(outcome, Ok(Outcome::Inserted | Outcome::Replaced(_)));
        match (done, old, new) {
            // SAFETY: the table held it until now.
            (true, Some(old), _) => unsafe { retire_crowd::<K, V>(guard, old) },
            // SAFETY: the table has not taken it.
            (false, _, Some(new)) => unsafe { free_crowd::<K, V>(new) },
            _ => {}
        }
        outcome.map(|_| done)
    }

    /// Removes every record of every namespace at one moment.
    pub(super) fn clear_all(&self, guard: &DlhtGuard<'_>) -> Result<()> {
        let pinned = self.checked(guard);
        let old = self.core.replace(Entry::Clear)?;
        for bin in 0..old.len() {
            let line = old.bin(bin);
            for &(_, word) in old.read_all(line, Index::header(line)).records() {
                // SAFETY: every bin is frozen and has been left; this is the one pass over them.
                for record in unsafe { records_of::<K, V>(word) } {
                    self.len.add(-1);
                    // SAFETY: boxed by `Fresh`; newcomers begin at the next index.
                    unsafe { pinned.retire_box(record.as_ptr().cast::<SendRecord<K, V>>()) };
                }
                // SAFETY: as for the records, of which it is the list.
                unsafe { retire_crowd::<K, V>(pinned, word) };
            }
        }
        Ok(())
    }
}

/// The same guard, borrowed for less.
fn shorter<'g>(guard: &'g Guard<'_>) -> &'g Guard<'g> {
    guard
}

/// The record of `key` among those that `word` leads to.
///
/// # Safety
/// As for [`records_of`].
unsafe fn find_in<K: Borrow<Q>, V, Q: Eq + ?Sized>(
    word: u64,
    namespace: u16,
    key: &Q,
) -> Option<Pointer<K, V>> {
    // SAFETY: the caller's promise, for both.
    unsafe { records_of::<K, V>(word).find(|record| record.as_ref().is(namespace, key)) }
}

/// A record that may be dropped on another thread.
#[repr(transparent)]
struct SendRecord<K, V>(#[allow(dead_code, reason = "only to be dropped")] Record<K, V>);

// SAFETY: key and value may be.
unsafe impl<K: Send, V: Send> Send for SendRecord<K, V> {}

impl<K, V, S> Drop for DlhtMap<K, V, S> {
    fn drop(&mut self) {
        let mut words = Vec::new();
        // Nobody else is here, so nothing can be refused: a transfer under way is read through.
        let mut next = Some(0);
        while let Some(cursor) = next {
            next = self.core.scan(cursor, usize::MAX, &mut words).ok().flatten();
        }
        for (_, word) in words {
            // SAFETY: the table is ours alone; each record is in it once.
            unsafe {
                records_of::<K, V>(word).for_each(|record| drop(Box::from_raw(record.as_ptr())));
                free_crowd::<K, V>(word);
            }
        }
    }
}
