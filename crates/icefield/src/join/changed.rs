//! The keys of a probe that may be in the delta store.

use std::collections::HashMap;

use super::base::Areas;
use super::delta::{Effect, Found, Lookup, Snapshot};
use super::sink::{Sink, any_payload};
use super::view::View;
use crate::storage::Medium;
use crate::types::Word;

/// Number of keys that are looked up in the delta store at a time, under its lock.
const BATCH: usize = 64;
/// Number of entries of a chain that are read for all keys of a batch. Keys with longer chains are looked up one by
/// one: many entries may be theirs, and a batch of such keys would need memory for all of them at once.
const STEPS: usize = 16;
/// Number of hidden pairs of the base after which the keys looked up so far are probed for in the base. A frequent key
/// of which many pairs are removed needs memory for them at each of its positions.
const MOST_HIDDEN: usize = 1 << 16;

/// A task of a probe, and the state of the delta store for it.
pub(super) struct DeltaTask<'a, M, K> {
    pub(super) view: &'a View<M>,
    pub(super) snapshot: Snapshot,
    pub(super) keys: &'a [K],
    /// The position of the first key.
    pub(super) first: usize,
}

/// The keys of a task that may be in the delta store, and their entries.
pub(super) struct ChangedKeys<K> {
    /// Hashes and keys of a batch.
    hashed: Vec<(u64, u64)>,
    lookup: Lookup,
    states: Vec<State>,
    /// Indexes, in the task, of keys with long chains.
    long: Vec<usize>,
    /// The keys to look up in the base.
    keys: Vec<K>,
    places: Vec<Place>,
    /// Number of hidden pairs of the base, by position and payload.
    hidden: HashMap<(usize, u64), u64>,
}

/// The state of a key of a batch.
#[derive(Clone, Copy, Default)]
struct State {
    /// `true` if the chain is long.
    is_long: bool,
    /// `true` if no pairs of the base are needed.
    is_done: bool,
    /// `true` if the sink needs no further pairs.
    is_satisfied: bool,
    /// `true` if single pairs of the base are hidden.
    hides: bool,
}

/// A key that is looked up in the base.
#[derive(Clone, Copy)]
struct Place {
    position: usize,
    /// `true` if some of its pairs are hidden.
    hides: bool,
}

impl<K: Word> ChangedKeys<K> {
    pub(super) fn new() -> Self {
        Self {
            hashed: Vec::new(),
            lookup: Lookup::default(),
            states: Vec::new(),
            long: Vec::new(),
            keys: Vec::new(),
            places: Vec::new(),
            hidden: HashMap::new(),
        }
    }

    /// Looks up flagged keys of a task in the delta store, and removes them from `flagged`. Passes the pairs that it adds
    /// to `sink`, without a lock. Returns `true` if it was the last call for the task; otherwise the keys of this call
    /// must be looked up in the base before the next call.
    pub(super) fn look_up<M: Medium>(
        &mut self,
        task: &DeltaTask<'_, M, K>,
        flagged: &mut &[usize],
        sink: &mut impl Sink,
    ) -> bool {
        self.keys.clear();
        self.places.clear();
        self.hidden.clear();
        while self.hidden.len() < MOST_HIDDEN {
            let (batch, rest) = flagged.split_at(flagged.len().min(BATCH));
            if !batch.is_empty() {
                *flagged = rest;
                self.look_up_batch(task, batch, STEPS, sink);
            } else if let Some(at) = self.long.pop() {
                self.look_up_batch(task, &[at], usize::MAX, sink);
            } else {
                break;
            }
        }
        flagged.is_empty() && self.long.is_empty()
    }

    fn look_up_batch<M: Medium>(
        &mut self,
        task: &DeltaTask<'_, M, K>,
        batch: &[usize],
        steps: usize,
        sink: &mut impl Sink,
    ) {
        let &DeltaTask { view, snapshot, keys, first } = task;
        // Before the lock is taken: `to_word` may be a caller's function.
        self.hashed.clear();
        self.hashed.extend(batch.iter().map(|&at| {
            let key = keys[at].to_word();
            (view.frame.hash.word(key), key)
        }));
        let hashed = self.hashed.iter().copied();
        view.read_delta().look_up_all(snapshot, hashed, steps, &mut self.lookup);
        self.states.clear();
        self.states.resize(batch.len(), State::default());
        for walk in &self.lookup.walks {
            self.states[walk.index].is_long = true;
        }
        for &Found { index, effect, payload } in &self.lookup.found {
            let (state, position) = (&mut self.states[index], first + batch[index]);
            match effect {
                _ if state.is_long || state.is_satisfied => {}
                Effect::Add => state.is_satisfied = sink.gathered(position, payload),
                Effect::Hide => {
                    state.hides = true;
                    *self.hidden.entry((position, payload)).or_default() += 1;
                }
                Effect::HideAll => state.is_done = true,
            }
        }
        for (&at, state) in batch.iter().zip(&self.states) {
            if state.is_long {
                self.long.push(at);
            } else if !state.is_done && !state.is_satisfied {
                self.keys.push(keys[at]);
                self.places.push(Place { position: first + at, hides: state.hides });
            }
        }
    }

    /// Returns the keys to look up in the base, and the sink for their pairs. For that sink, the position of a key is
    /// its index among these keys.
    pub(super) fn in_base<'s, S: Sink>(&'s mut self, sink: &'s mut S) -> (&'s [K], Shown<'s, S>) {
        let Self { keys, places, hidden, .. } = self;
        (keys, Shown { sink, places, hidden })
    }
}

/// Passes on the pairs of the base that the delta store does not hide.
pub(super) struct Shown<'s, S> {
    sink: &'s mut S,
    places: &'s [Place],
    hidden: &'s mut HashMap<(usize, u64), u64>,
}

impl<S: Sink> Sink for Shown<'_, S> {
    #[inline(always)]
    fn hits(
        &mut self,
        storage: &impl Medium,
        areas: &Areas<'_>,
        index: usize,
        first: u64,
        mask: u32,
    ) -> bool {
        let Place { position, hides } = self.places[index];
        if !hides {
            return self.sink.hits(storage, areas, position, first, mask);
        }
        any_payload(storage, areas, first, mask, |payload| self.gathered(index, payload))
    }

    fn gathered(&mut self, index: usize, payload: u64) -> bool {
        let position = self.places[index].position;
        match self.hidden.get_mut(&(position, payload)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => self.sink.gathered(position, payload),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::JoinIndex;
    use crate::join::sink::Count;

    /// Hidden pairs of a frequent key do not take memory for all of its positions at once.
    #[test]
    fn hidden_pairs_of_frequent_keys_are_few_at_a_time() {
        const PAIRS: u64 = 400;
        const LEFT: u64 = 100;
        const POSITIONS: u64 = 2000;
        let payloads: Vec<u64> = (0..PAIRS).collect();
        let index = JoinIndex::in_memory(&[7_u64; PAIRS as usize], &payloads).unwrap();
        index.core.remove_pairs(7, &payloads[LEFT as usize..]).unwrap();
        let keys = [7_u64; POSITIONS as usize];
        let view = index.core.view();
        let snapshot = view.snapshot().unwrap();
        let task = DeltaTask { view: &view, snapshot: snapshot.state, keys: &keys, first: 0 };
        let flagged: Vec<usize> = (0..keys.len()).collect();
        let (mut left, mut changed, mut sink) =
            (&flagged[..], ChangedKeys::new(), Count::default());
        let (mut is_last, mut looked_up) = (false, 0);
        while !is_last {
            is_last = changed.look_up(&task, &mut left, &mut sink);
            looked_up += changed.in_base(&mut sink).0.len();
            assert!(changed.hidden.len() < MOST_HIDDEN + PAIRS as usize);
        }
        assert_eq!((looked_up, sink.0), (keys.len(), 0));
        assert_eq!(index.probe_count(&keys).unwrap(), POSITIONS * LEFT);
        let (marked, pairs) = index.semi_count(&keys).unwrap();
        assert_eq!((marked.count_ones(), pairs), (POSITIONS, POSITIONS * LEFT));
    }
}
