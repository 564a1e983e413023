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
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::layout::share_of;
use crate::base::hash::Hash;
use crate::base::memory::ZeroedArray;
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

    /// Returns the payloads of the pairs that a snapshot adds to a key.
    fn added(delta: &Delta, snapshot: Snapshot, hash: u64, key: u64) -> Vec<u64> {
        let mut lookup = Lookup::default();
        delta.look_up_all(snapshot, [(hash, key)].into_iter(), usize::MAX, &mut lookup);
        lookup.found.iter().map(|found| found.payload).collect()
    }

    /// A snapshot keeps its entries, and only these, in the chains.
    #[test]
    fn snapshots_keep_their_entries() {
        let hash = Hash::new(HashKind::Strong, [1, 2]);
        let word = hash.word(7);
        let mut delta = Delta::default();
        let apply = |delta: &mut Delta, change: Change| {
            delta.reserve(&hash, 1).unwrap();
            delta.apply(change, hash.word(change.key()), 0);
            delta.next_version();
        };
        let toggle = |delta: &mut Delta, times: u64| {
            for payload in 0..times {
                apply(delta, Change::Insert(7, 100 + payload));
                apply(delta, Change::RemovePair(7, 100 + payload));
            }
        };
        apply(&mut delta, Change::Insert(7, 1));
        let first = delta.snapshot();
        apply(&mut delta, Change::RemovePair(7, 1));
        apply(&mut delta, Change::Insert(7, 2));
        let [second, again] = [delta.snapshot(), delta.snapshot()];
        assert_eq!((second == again, second == first), (true, false));
        apply(&mut delta, Change::Remove(7));
        toggle(&mut delta, 100);
        // Other keys enlarge the table of heads.
        for key in 1000..2000 {
            apply(&mut delta, Change::Insert(key, key));
        }
        toggle(&mut delta, 100);
        let of_key =
            |delta: &Delta| delta.chain(word).filter(|&at| delta.entries[at].key == 7).count();
        assert_eq!(added(&delta, first, word, 7), [1]);
        assert_eq!(added(&delta, second, word, 7), [2]);
        assert_eq!(of_key(&delta), 2, "one for each snapshot");
        delta.release(first);
        delta.release(second);
        apply(&mut delta, Change::Remove(7));
        assert_eq!((added(&delta, again, word, 7), of_key(&delta)), (vec![2], 1), "one is in use");
        delta.release(again);
        apply(&mut delta, Change::Remove(7));
        assert_eq!((of_key(&delta), delta.living()), (0, 1000));
        assert!(delta.snapshots().0.is_empty());
        // The removal of one pair unlinks the dead entries behind it.
        let mut delta = Delta::default();
        for payload in 0..100 {
            apply(&mut delta, Change::Insert(7, payload));
            let snapshot = delta.snapshot();
            apply(&mut delta, Change::RemovePair(7, payload));
            delta.release(snapshot);
            assert_eq!(of_key(&delta), 1);
        }
    }

    /// Random changes of keys in one chain or two. Each snapshot shows the state in which it was taken.
    #[test]
    fn snapshots_show_the_states_of_a_model() {
        use std::collections::BTreeMap;
        /// The added and the hidden payloads, sorted, and the number of pairs of the base that are hidden together.
        type State = BTreeMap<u64, (Vec<u64>, Vec<u64>, Option<u64>)>;
        const KEYS: u64 = 5;
        let mut seed = 1_u64;
        let mut below = |end: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % end
        };
        for kind in [HashKind::Strong, HashKind::Constant] {
            let hash = Hash::new(kind, [1, 2]);
            let (mut delta, mut model) = (Delta::default(), State::new());
            let mut taken: Vec<(Snapshot, State)> = Vec::new();
            for step in 0..3000 {
                let (key, payload) = (below(KEYS), below(3));
                let state = model.entry(key).or_default();
                let word = hash.word(key);
                delta.reserve(&hash, 4).unwrap();
                match below(12) {
                    0..5 => {
                        delta.apply(Change::Insert(key, payload), word, 0);
                        state.0.push(payload);
                        if below(2) == 0 {
                            delta.apply(Change::Insert(key, 9), word, 0);
                            state.0.push(9);
                        }
                    }
                    5 => {
                        let in_base = below(2) * 3;
                        delta.apply(Change::Remove(key), word, in_base);
                        *state = (Vec::new(), Vec::new(), (in_base > 0).then_some(in_base));
                    }
                    kind => {
                        let payloads: Vec<u64> = (0..below(3) + 1).map(|_| below(3)).collect();
                        let payloads = if kind < 9 { &payloads[..] } else { &payloads[..1] };
                        if let &[payload] = payloads {
                            delta.apply(Change::RemovePair(key, payload), word, 0);
                        } else {
                            delta.remove_pairs(word, key, payloads.iter().copied());
                        }
                        for &payload in payloads {
                            match state.0.iter().position(|&found| found == payload) {
                                Some(at) => {
                                    state.0.swap_remove(at);
                                }
                                None => state.1.push(payload),
                            }
                        }
                    }
                }
                state.0.sort_unstable();
                state.1.sort_unstable();
                delta.next_version();
                if below(5) == 0 {
                    taken.push((delta.snapshot(), model.clone()));
                }
                if below(5) == 0 && !taken.is_empty() {
                    let (snapshot, _) = taken.swap_remove(below(taken.len() as u64) as usize);
                    delta.release(snapshot);
                }
                if step % 1000 == 999 {
                    taken.drain(..).for_each(|(snapshot, _)| delta.release(snapshot));
                }
                for (snapshot, model) in &taken {
                    let mut lookup = Lookup::default();
                    let keys = (0..KEYS).map(|key| (hash.word(key), key));
                    delta.look_up_all(*snapshot, keys, usize::MAX, &mut lookup);
                    let mut found = State::new();
                    for &Found { index, effect, payload } in &lookup.found {
                        let state = found.entry(index as u64).or_default();
                        match effect {
                            Effect::Add => state.0.push(payload),
                            Effect::Hide => state.1.push(payload),
                            Effect::HideAll => assert!(state.2.replace(payload).is_none()),
                        }
                    }
                    for key in 0..KEYS {
                        let mut found = found.remove(&key).unwrap_or_default();
                        found.0.sort_unstable();
                        found.1.sort_unstable();
                        assert_eq!(found, model.get(&key).cloned().unwrap_or_default(), "{step}");
                    }
                }
            }
        }
    }

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
