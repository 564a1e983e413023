//! The delta store in DRAM: pairs that were added to a generation and pairs that were removed from it, found by key.
//!
//! An entry adds a pair, hides one pair of the base, or hides all pairs of a key in the base. A key's pairs are those
//! of the base that no entry hides, and those that entries add. An entry becomes dead, that is, loses its effect, when
//! the pair that it added is removed, or when one change removes all pairs of its key. The order of a key's entries
//! therefore does not matter. Entries of keys with equal hash bits form a chain.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::share_of;
use crate::base::hash::Hash;
use crate::base::memory::ZeroedArray;
use crate::base::pipeline::prefetch_write;
use crate::{Error, Result};

/// Marks the end of a chain.
const NONE: u32 = u32::MAX;
/// Maximum number of entries.
pub(super) const MAX_ENTRIES: u64 = 1 << 31;

/// A change of the delta store, as its log records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Adds a pair.
    Insert(u64, u64),
    /// Removes all pairs of a key.
    Remove(u64),
    /// Removes one pair.
    RemovePair(u64, u64),
}

impl Change {
    /// Returns whether this removes one pair of `key`.
    pub(super) fn removes_of(self, key: u64) -> bool {
        matches!(self, Self::RemovePair(mine, _) if mine == key)
    }

    /// Returns the payload; 0 for [`Change::Remove`].
    pub(super) fn payload(self) -> u64 {
        match self {
            Self::Insert(_, payload) | Self::RemovePair(_, payload) => payload,
            Self::Remove(_) => 0,
        }
    }

    pub(super) fn key(self) -> u64 {
        match self {
            Self::Insert(key, _) | Self::Remove(key) | Self::RemovePair(key, _) => key,
        }
    }
}

/// The effect of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Adds the pair.
    Add,
    /// Hides one pair of the base with this payload.
    Hide,
    /// Hides all pairs of the key in the base; the payload is their number.
    HideAll,
    /// No effect: the entry is dead.
    Dead,
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) payload: u64,
    next: u32,
    pub(super) effect: Effect,
}

/// The entries and the heads of their chains.
#[derive(Default)]
pub(super) struct Delta {
    pub(super) entries: Vec<Entry>,
    heads: Vec<u32>,
    dead: u64,
}

/// The content of the delta store for one key.
#[derive(Default)]
pub(super) struct KeyDelta {
    /// Number of the key's pairs in the base if an entry hides all of them; otherwise `None`.
    pub(super) hides_all: Option<u64>,
    /// Number of hidden pairs of the base, by payload.
    pub(super) hidden: HashMap<u64, u64>,
    pub(super) added: Vec<u64>,
}

impl KeyDelta {
    /// Returns whether a pair of the base is visible. Must be called at most once for each of the key's pairs in the
    /// base: a call that finds the payload in `hidden` decrements its count.
    pub(super) fn shows(&mut self, payload: u64) -> bool {
        if self.hides_all.is_some() {
            return false;
        }
        match self.hidden.get_mut(&payload).filter(|count| **count > 0) {
            Some(count) => {
                *count -= 1;
                false
            }
            None => true,
        }
    }
}

/// The state of one pair in the delta store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadDelta {
    /// The store adds the pair.
    Added,
    /// The store hides this number of equal pairs of the base.
    Hidden(u64),
    /// The store hides all pairs of the key in the base.
    AllHidden,
}

impl Delta {
    fn head(&self, hash: u64) -> usize {
        // The choice of these hash bits is arbitrary.
        (hash >> 20) as usize & (self.heads.len() - 1)
    }

    /// Prefetches the head of a hash's chain.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        if !self.heads.is_empty() {
            prefetch_write(&raw const self.heads[self.head(hash)]);
        }
    }

    fn chain(&self, hash: u64) -> impl Iterator<Item = usize> + '_ {
        let first = if self.heads.is_empty() { NONE } else { self.heads[self.head(hash)] };
        let mut at = first;
        std::iter::from_fn(move || {
            let index = at as usize;
            at = self.entries.get(index)?.next;
            Some(index)
        })
    }

    /// Adds the entries of a key to `into`, which must be empty.
    pub(super) fn look_up(&self, hash: u64, key: u64, into: &mut KeyDelta) {
        for entry in self.chain(hash).map(|at| self.entries[at]).filter(|entry| entry.key == key) {
            match entry.effect {
                Effect::Add => into.added.push(entry.payload),
                Effect::Hide => *into.hidden.entry(entry.payload).or_default() += 1,
                Effect::HideAll => into.hides_all = Some(entry.payload),
                Effect::Dead => {}
            }
        }
    }

    /// Looks up one pair.
    pub(super) fn look_up_pair(&self, hash: u64, key: u64, payload: u64) -> PayloadDelta {
        let mut known = PayloadDelta::Hidden(0);
        for entry in self.chain(hash).map(|at| self.entries[at]).filter(|entry| entry.key == key) {
            match (entry.effect, &mut known) {
                (Effect::Add, _) if entry.payload == payload => return PayloadDelta::Added,
                (Effect::Hide, PayloadDelta::Hidden(hidden)) if entry.payload == payload => {
                    *hidden += 1
                }
                (Effect::HideAll, _) => known = PayloadDelta::AllHidden,
                _ => {}
            }
        }
        known
    }

    /// Makes room for `more` entries.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; nothing has changed.
    pub(super) fn reserve(&mut self, hash: &Hash, more: usize) -> Result<()> {
        let needed = self.entries.len() + more;
        let no_memory = |bytes: usize| move |_| Error::NoMemory { needed_bytes: bytes as u64 };
        self.entries.try_reserve(more).map_err(no_memory(more * size_of::<Entry>()))?;
        if needed <= self.heads.len() {
            return Ok(());
        }
        let count = needed.next_power_of_two().max(64);
        let mut heads = Vec::new();
        heads.try_reserve_exact(count).map_err(no_memory(count * size_of::<u32>()))?;
        heads.resize(count, NONE);
        self.heads = heads;
        for at in 0..self.entries.len() {
            let Entry { key, effect, .. } = self.entries[at];
            if effect == Effect::Dead {
                continue;
            }
            let head = self.head(hash.word(key));
            self.entries[at].next = self.heads[head];
            self.heads[head] = at as u32;
        }
        Ok(())
    }

    /// Applies a change; there must be room for an entry. For [`Change::Remove`], `in_base` is the number of the key's
    /// pairs in the base.
    pub(super) fn apply(&mut self, change: Change, hash: u64, in_base: u64) {
        match change {
            Change::Insert(key, payload) => self.push(hash, key, payload, Effect::Add),
            Change::Remove(key) => {
                self.kill(hash, usize::MAX, |entry| entry.key == key);
                if in_base > 0 {
                    self.push(hash, key, in_base, Effect::HideAll);
                }
            }
            Change::RemovePair(key, payload) => {
                let added = |entry: &Entry| {
                    entry.effect == Effect::Add && (entry.key, entry.payload) == (key, payload)
                };
                if self.kill(hash, 1, added) == 0 {
                    self.push(hash, key, payload, Effect::Hide);
                }
            }
        }
    }

    /// Removes pairs of one key, all of which are present. Takes time linear in the number of the key's entries and of
    /// the pairs. The caller has made room for an entry per pair.
    pub(super) fn remove_pairs(
        &mut self,
        hash: u64,
        key: u64,
        payloads: impl Iterator<Item = u64>,
    ) {
        let mut added = HashMap::<u64, Vec<usize>>::new();
        for at in self.chain(hash) {
            let entry = self.entries[at];
            if entry.key == key && entry.effect == Effect::Add {
                added.entry(entry.payload).or_default().push(at);
            }
        }
        for payload in payloads {
            match added.get_mut(&payload).and_then(Vec::pop) {
                Some(at) => {
                    self.dead += 1;
                    self.entries[at].effect = Effect::Dead;
                }
                None => self.push(hash, key, payload, Effect::Hide),
            }
        }
        // This call kills nothing; it unlinks the dead entries from the chain.
        self.kill(hash, usize::MAX, |_| false);
    }

    /// Makes at most `most` entries dead and returns their number. Unlinks the dead entries that it passes, so that
    /// inserting and removing a key repeatedly does not lengthen the chain.
    fn kill(&mut self, hash: u64, most: usize, which: impl Fn(&Entry) -> bool) -> usize {
        if self.heads.is_empty() {
            return 0;
        }
        let head = self.head(hash);
        let (mut killed, mut before, mut at) = (0, None, self.heads[head]);
        while killed < most
            && let Some(entry) = self.entries.get_mut(at as usize)
        {
            let next = entry.next;
            if entry.effect != Effect::Dead && which(entry) {
                entry.effect = Effect::Dead;
                self.dead += 1;
                killed += 1;
            }
            if entry.effect != Effect::Dead {
                before = Some(at);
            } else if let Some(before) = before {
                self.entries[before as usize].next = next;
            } else {
                self.heads[head] = next;
            }
            at = next;
        }
        killed
    }

    fn push(&mut self, hash: u64, key: u64, payload: u64, effect: Effect) {
        let head = self.head(hash);
        let entry = Entry { key, payload, next: self.heads[head], effect };
        self.heads[head] = self.entries.len() as u32;
        self.entries.push(entry);
    }

    /// Returns the number of living entries.
    pub(super) fn living(&self) -> u64 {
        self.entries.len() as u64 - self.dead
    }

    /// Returns the size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let entries = self.entries.capacity() * size_of::<Entry>();
        (entries + self.heads.capacity() * size_of::<u32>()) as u64
    }
}

/// A filter of the keys that may have entries: each key sets two bits of a word. Bits are set before the call that adds
/// the entry returns, and never cleared.
pub(super) struct DeltaFilter {
    words: ZeroedArray<AtomicU64>,
}

impl DeltaFilter {
    /// Returns a filter for this number of entries, with 16 bits each. Untouched pages take no memory.
    pub(super) fn new(entries: u64) -> Result<Self> {
        let words = entries.div_ceil(4).max(1) as usize;
        let words = ZeroedArray::sparse(words)
            .map_err(|_| Error::NoMemory { needed_bytes: words as u64 * 8 })?;
        Ok(Self { words })
    }

    /// Returns the word of a hash.
    #[inline(always)]
    pub(super) fn word(&self, hash: u64) -> &AtomicU64 {
        // In bounds: `share_of` returns less than the number of words.
        &self.words[share_of(hash, self.words.len() as u64) as usize]
    }

    #[inline(always)]
    fn bits(hash: u64) -> u64 {
        1 << (hash & 63) | 1 << (hash >> 6 & 63)
    }

    pub(super) fn set(&self, hash: u64) {
        // Relaxed, and no read-modify-write: only the holder of the delta store's lock sets bits. It sets them before
        // it adds the entry, so a thread that has synchronized with the addition sees the bits as well.
        let word = self.word(hash);
        word.store(word.load(Relaxed) | Self::bits(hash), Relaxed);
    }

    #[inline(always)]
    pub(super) fn may_know(&self, hash: u64) -> bool {
        let bits = Self::bits(hash);
        self.word(hash).load(Relaxed) & bits == bits
    }

    pub(super) fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::HashKind;

    /// Dead entries must be unlinked, because the time of reads and changes grows with the length of the chain.
    #[test]
    fn the_dead_leave_their_chain() {
        let hash = Hash::new(HashKind::Strong, [1, 2]);
        let word = hash.word(7);
        let mut delta = Delta::default();
        let apply = |delta: &mut Delta, change| {
            delta.reserve(&hash, 1).unwrap();
            delta.apply(change, word, 3);
            delta.chain(word).filter(|&at| delta.entries[at].key == 7).count()
        };
        for _ in 0..200 {
            assert!(apply(&mut delta, Change::Insert(7, 1)) <= 2);
            assert!(apply(&mut delta, Change::Remove(7)) <= 1);
        }
        for payload in 0..100 {
            apply(&mut delta, Change::Insert(7, payload));
            apply(&mut delta, Change::RemovePair(7, payload));
        }
        assert_eq!(apply(&mut delta, Change::Insert(7, 1)), 2, "the pair, and what hides the base");
        assert_eq!((delta.living(), delta.bytes() > 0), (2, true));
        let pairs = [1, 2, 2].into_iter();
        delta.reserve(&hash, 3).unwrap();
        delta.remove_pairs(word, 7, pairs);
        let mut known = KeyDelta::default();
        delta.look_up(word, 7, &mut known);
        assert_eq!(
            (known.added.len(), known.hidden.get(&2), known.hides_all),
            (0, Some(&2), Some(3))
        );
        assert_eq!(delta.chain(word).count(), 3);
    }
}
