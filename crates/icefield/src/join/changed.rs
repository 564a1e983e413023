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
            lookup: Lookup::default(),
            states: Vec::new(),
            long: Vec::new(),
            keys: Vec::new(),
            places: Vec::new(),
            hidden: HashMap::new(),
        }
    }

    /// Looks up the flagged keys of a task in the delta store. Passes the pairs that it adds to `sink`, without a lock.
    pub(super) fn look_up<M: Medium>(
        &mut self,
        task: &DeltaTask<'_, M, K>,
        flagged: &[usize],
        sink: &mut impl Sink,
    ) {
        self.keys.clear();
        self.places.clear();
        self.hidden.clear();
        for batch in flagged.chunks(BATCH) {
            self.look_up_batch(task, batch, STEPS, sink);
        }
        while let Some(at) = self.long.pop() {
            self.look_up_batch(task, &[at], usize::MAX, sink);
        }
    }

    fn look_up_batch<M: Medium>(
        &mut self,
        task: &DeltaTask<'_, M, K>,
        batch: &[usize],
        steps: usize,
        sink: &mut impl Sink,
    ) {
        let &DeltaTask { view, snapshot, keys, first } = task;
        let hashed = batch.iter().map(|&at| {
            let key = keys[at].to_word();
            (view.frame.hash.word(key), key)
        });
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
