//! The delta store in DRAM: pairs that were added to a generation and pairs that were removed from it, found by key.
//!
//! An entry adds a pair, hides one pair of the base, or hides all pairs of a key in the base. A key's pairs are those
//! of the base that no entry hides, and those that entries add. An entry becomes dead, that is, loses its effect, when
//! the pair that it added is removed, or when one change removes all pairs of its key. The order of a key's entries
//! therefore does not matter. Entries of keys with equal hash bits form a chain.
//!
//! A [`Snapshot`] is a state of the store. Entries are only appended, so the number of entries separates those that the
//! snapshot contains from later ones. A dead entry stores the version of the store in which it died; it remains in its
//! chain until no snapshot contains it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::hash::Hash;
use crate::base::pipeline::{prefetch_read, prefetch_write};
use crate::{Error, Result};

/// Marks the end of a chain.
const NONE: u32 = u32::MAX;
/// Number of bits of the effect in [`Entry::fate`].
const EFFECT_BITS: u32 = 2;
/// The version in which a living entry dies: later than all others.
const ALIVE: u32 = u32::MAX >> EFFECT_BITS;
/// Maximum number of changes, and thus of entries and versions.
pub(super) const MAX_CHANGES: u64 = ALIVE as u64 - 1;

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
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) payload: u64,
    next: u32,
    /// The effect; above it, the version in which the entry died, or [`ALIVE`].
    fate: u32,
}

impl Entry {
    pub(super) fn effect(&self) -> Effect {
        match self.fate & ((1 << EFFECT_BITS) - 1) {
            0 => Effect::Add,
            1 => Effect::Hide,
            _ => Effect::HideAll,
        }
    }

    fn died(&self) -> u32 {
        self.fate >> EFFECT_BITS
    }

    pub(super) fn is_alive(&self) -> bool {
        self.died() == ALIVE
    }

    fn adds(&self, key: u64) -> bool {
        self.is_alive() && self.key == key && self.effect() == Effect::Add
    }

    fn kill(&mut self, version: u32) {
        self.fate = version << EFFECT_BITS | self.effect() as u32;
    }
}

/// A state of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Snapshot {
    version: u32,
    /// Number of entries.
    entries: u32,
}

impl Snapshot {
    fn contains(self, at: usize, entry: &Entry) -> bool {
        (at as u32) < self.entries && entry.died() >= self.version
    }
}

/// The snapshots in use, and how often each of them is used.
#[derive(Default)]
struct Snapshots(BTreeMap<Snapshot, usize>);

impl Snapshots {
    /// Returns whether a snapshot contains a dead entry.
    fn contain(&self, at: usize, entry: &Entry) -> bool {
        // Later snapshots contain more entries, so it suffices to look at the last one before the entry's death.
        let last = Snapshot { version: entry.died(), entries: u32::MAX };
        self.0.range(..=last).next_back().is_some_and(|(last, _)| last.contains(at, entry))
    }
}

/// The entries and the heads of their chains.
#[derive(Default)]
pub(super) struct Delta {
    pub(super) entries: Vec<Entry>,
    heads: Vec<u32>,
    dead: u64,
    /// Number of sets of changes that have been applied.
    version: u32,
    snapshots: Mutex<Snapshots>,
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

/// Buffers for looking up many keys at once, and the result.
#[derive(Default)]
pub(super) struct Lookup {
    /// The keys whose chains are not at their ends.
    pub(super) walks: Vec<Walk>,
    pub(super) found: Vec<Found>,
}

/// The position in a key's chain.
pub(super) struct Walk {
    /// The index of the key.
    pub(super) index: usize,
    key: u64,
    /// The next entry; at first, the head.
    at: usize,
}

/// An entry of a key.
pub(super) struct Found {
    /// The index of the key.
    pub(super) index: usize,
    pub(super) effect: Effect,
    pub(super) payload: u64,
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

    /// Returns the living entries of a key.
    fn of_key(&self, hash: u64, key: u64) -> impl Iterator<Item = Entry> + '_ {
        let entries = self.chain(hash).map(|at| self.entries[at]);
        entries.filter(move |entry| entry.is_alive() && entry.key == key)
    }

    /// Adds the living entries of a key to `into`, which must be empty.
    pub(super) fn look_up(&self, hash: u64, key: u64, into: &mut KeyDelta) {
        for entry in self.of_key(hash, key) {
            match entry.effect() {
                Effect::Add => into.added.push(entry.payload),
                Effect::Hide => *into.hidden.entry(entry.payload).or_default() += 1,
                Effect::HideAll => into.hides_all = Some(entry.payload),
            }
        }
    }

    /// Looks up keys, given as pairs of hash and key, in a snapshot that is in use. Takes one step in the chains of all
    /// keys before the next one, so that their cache misses overlap, and ends after `steps` entries of each chain.
    pub(super) fn look_up_all(
        &self,
        snapshot: Snapshot,
        keys: impl Iterator<Item = (u64, u64)>,
        steps: usize,
        Lookup { walks, found }: &mut Lookup,
    ) {
        walks.clear();
        found.clear();
        let Some(last) = self.entries.len().checked_sub(1) else { return };
        let prefetch = |at: usize| {
            let entry = &self.entries[at.min(last)];
            // An entry may lie in two lines.
            prefetch_read(&raw const entry.key);
            prefetch_read(&raw const entry.fate);
        };
        walks.extend(keys.enumerate().map(|(index, (hash, key))| {
            let head = self.head(hash);
            prefetch_read(&raw const self.heads[head]);
            Walk { index, key, at: head }
        }));
        for walk in &mut *walks {
            walk.at = self.heads[walk.at] as usize;
            prefetch(walk.at);
        }
        for _ in 0..steps {
            walks.retain_mut(|walk| {
                let Some(entry) = self.entries.get(walk.at) else { return false };
                if entry.key == walk.key && snapshot.contains(walk.at, entry) {
                    let (effect, payload) = (entry.effect(), entry.payload);
                    found.push(Found { index: walk.index, effect, payload });
                }
                walk.at = entry.next as usize;
                prefetch(walk.at);
                true
            });
            if walks.is_empty() {
                break;
            }
        }
    }

    /// Returns the present state, which is kept until [`release`](Self::release) is called with it.
    pub(super) fn snapshot(&self) -> Snapshot {
        let snapshot = Snapshot { version: self.version, entries: self.entries.len() as u32 };
        *self.snapshots().0.entry(snapshot).or_default() += 1;
        snapshot
    }

    pub(super) fn release(&self, snapshot: Snapshot) {
        let mut snapshots = self.snapshots();
        if let Some(uses) = snapshots.0.get_mut(&snapshot) {
            *uses -= 1;
            if *uses == 0 {
                snapshots.0.remove(&snapshot);
            }
        }
    }

    fn snapshots(&self) -> MutexGuard<'_, Snapshots> {
        // The holder of this lock does not panic.
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a set of changes that snapshots contain all or none of.
    pub(super) fn next_version(&mut self) {
        self.version += 1;
    }

    /// Looks up one pair.
    pub(super) fn look_up_pair(&self, hash: u64, key: u64, payload: u64) -> PayloadDelta {
        let mut known = PayloadDelta::Hidden(0);
        for entry in self.of_key(hash, key) {
            match (entry.effect(), &mut known) {
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
            let entry = self.entries[at];
            if !entry.is_alive() && !self.snapshots().contain(at, &entry) {
                continue;
            }
            let head = self.head(hash.word(entry.key));
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
                let added = |entry: &Entry| entry.adds(key) && entry.payload == payload;
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
            if entry.adds(key) {
                added.entry(entry.payload).or_default().push(at);
            }
        }
        for payload in payloads {
            match added.get_mut(&payload).and_then(Vec::pop) {
                Some(at) => {
                    self.dead += 1;
                    self.entries[at].kill(self.version);
                }
                None => self.push(hash, key, payload, Effect::Hide),
            }
        }
        // This call kills nothing; it unlinks the dead entries from the chain.
        self.kill(hash, usize::MAX, |_| false);
    }

    /// Makes at most `most` entries dead and returns their number. Unlinks the dead entries that it passes and that no
    /// snapshot contains, so that inserting and removing a key repeatedly does not lengthen the chain.
    fn kill(&mut self, hash: u64, most: usize, which: impl Fn(&Entry) -> bool) -> usize {
        if self.heads.is_empty() {
            return 0;
        }
        let head = self.head(hash);
        let snapshots = self.snapshots.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (mut killed, mut before, mut at) = (0, None, self.heads[head]);
        while let Some(entry) = self.entries.get_mut(at as usize) {
            // Continues over dead entries, which a snapshot may have contained when they died.
            if killed == most && entry.is_alive() {
                break;
            }
            let next = entry.next;
            if entry.is_alive() && which(entry) {
                entry.kill(self.version);
                self.dead += 1;
                killed += 1;
            }
            if entry.is_alive() || snapshots.contain(at as usize, entry) {
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
        let fate = ALIVE << EFFECT_BITS | effect as u32;
        let entry = Entry { key, payload, next: self.heads[head], fate };
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

#[cfg(test)]
mod tests;
