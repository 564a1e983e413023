//! Steps on an index, and the simple list of pairs that gives their correct results.

use std::sync::Mutex;

use icefield::storage::Medium;
use icefield::{Error, JoinIndex, JoinSource, MergeKind, Result};

use crate::rng::Rng;

/// Number of distinct payloads: few, so that pairs repeat.
const PAYLOADS: u64 = 4;

/// A call on the index.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Adds pairs: a single pair by `insert`, several by `insert_batch`.
    Insert(Vec<(u64, u64)>),
    /// Removes keys: a single key by `remove`, several by `remove_batch`.
    Remove(Vec<u64>),
    /// Removes one pair.
    RemovePair(u64, u64),
    /// Creates the next generation.
    Merge,
    /// Probes for keys by every call that probes.
    Probe(Vec<u64>),
}

/// The reason why a step failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The index returned an error.
    Error(Error),
    /// The index returned a wrong result.
    Wrong(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Error(error) => write!(f, "{error}"),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: T,
    expected: T,
) -> std::result::Result<(), Trouble> {
    if found == expected {
        return Ok(());
    }
    Err(Trouble::Wrong(format!("{what}: {found:?} instead of {expected:?}")))
}

/// Returns a key below `keys`, or sometimes an extreme key.
fn key(rng: &mut Rng, keys: u64) -> u64 {
    match rng.below(24) {
        0 => u64::MAX,
        1 => 1 << 63,
        _ => rng.below(keys),
    }
}

fn pair(rng: &mut Rng, keys: u64) -> (u64, u64) {
    (key(rng, keys), rng.below(PAYLOADS))
}

/// Returns pairs to build an index from: sometimes none, sometimes many with one key.
pub(super) fn first_pairs(rng: &mut Rng, keys: u64, most: u64) -> Pairs {
    let count = if rng.one_in(6) { 0 } else { rng.below(most) };
    let skewed = rng.one_in(4);
    let pairs = (0..count).map(|_| match skewed && !rng.one_in(3) {
        true => (1, rng.below(PAYLOADS)),
        false => pair(rng, keys),
    });
    let mut pairs = Pairs(pairs.collect());
    pairs.0.sort_unstable();
    pairs
}

impl Step {
    /// Returns a random step.
    pub(super) fn draw(rng: &mut Rng, keys: u64) -> Self {
        match rng.below(16) {
            0..5 => Self::insert(rng, keys, 1),
            5..7 => Self::Insert((0..rng.below(9)).map(|_| pair(rng, keys)).collect()),
            7 => Self::Remove(vec![key(rng, keys)]),
            8 => Self::Remove((0..rng.below(5)).map(|_| key(rng, keys)).collect()),
            9..12 => {
                let (key, payload) = pair(rng, keys);
                Self::RemovePair(key, payload)
            }
            12 => Self::Merge,
            _ => Self::Probe((0..rng.below(150)).map(|_| key(rng, 2 * keys)).collect()),
        }
    }

    /// Returns a step that adds `count` pairs.
    pub(super) fn insert(rng: &mut Rng, keys: u64, count: u64) -> Self {
        Self::Insert((0..count).map(|_| pair(rng, keys)).collect())
    }

    /// Returns the states that a crash during the step may leave, including `before`. A batch may be cut anywhere.
    pub(super) fn outcomes(&self, before: &Pairs) -> Vec<Pairs> {
        let after = |step: &Self| {
            let mut state = before.clone();
            state.apply(step);
            state
        };
        let mut states = vec![before.clone()];
        match self {
            Self::Insert(pairs) => states.extend(
                (1..=pairs.len()).map(|count| after(&Self::Insert(pairs[..count].to_vec()))),
            ),
            Self::Remove(keys) => states
                .extend((1..=keys.len()).map(|count| after(&Self::Remove(keys[..count].to_vec())))),
            step => states.push(after(step)),
        }
        states
    }

    /// Executes the step and checks its result.
    pub(super) fn run<M: Medium>(
        &self,
        index: &JoinIndex<u64, M>,
        before: &Pairs,
    ) -> std::result::Result<(), Trouble> {
        match self {
            Self::Insert(pairs) => match pairs[..] {
                [(key, payload)] => index.insert(key, payload)?,
                _ => index.insert_batch(pairs)?,
            },
            Self::Remove(keys) => {
                let known =
                    before.0.iter().filter(|(known, _)| keys.contains(known)).count() as u64;
                match keys[..] {
                    [key] => expect("remove", index.remove(key)?, known)?,
                    _ => expect("remove_batch", index.remove_batch(keys)?, known)?,
                }
            }
            Self::RemovePair(key, payload) => {
                let known = before.0.contains(&(*key, *payload));
                expect("remove_pair", index.remove_pair(*key, *payload)?, known)?;
            }
            Self::Merge => {
                let report = index.merge()?;
                if report.kind != MergeKind::Nothing {
                    expect("pairs merged", report.pairs, before.0.len() as u64)?;
                }
            }
            Self::Probe(keys) => before.probe(index, keys)?,
        }
        Ok(())
    }
}

/// The pairs that the index must have, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pairs(pub(super) Vec<(u64, u64)>);

impl Pairs {
    /// Returns the pairs of an index.
    pub(super) fn of_index<M: Medium>(index: &JoinIndex<u64, M>) -> Result<Self> {
        let mut pairs = Vec::new();
        index.for_each(|key, payload| pairs.push((key, payload)))?;
        pairs.sort_unstable();
        Ok(Self(pairs))
    }

    fn of(&self, key: u64) -> impl Iterator<Item = u64> + '_ {
        let start = self.0.partition_point(|&(known, _)| known < key);
        self.0[start..].iter().take_while(move |(known, _)| *known == key).map(|pair| pair.1)
    }

    pub(super) fn apply(&mut self, step: &Step) {
        match step {
            Step::Insert(pairs) => {
                self.0.extend(pairs);
                self.0.sort_unstable();
            }
            Step::Remove(keys) => self.0.retain(|(known, _)| !keys.contains(known)),
            Step::RemovePair(key, payload) => {
                if let Ok(at) = self.0.binary_search(&(*key, *payload)) {
                    self.0.remove(at);
                }
            }
            Step::Merge | Step::Probe(_) => {}
        }
    }

    /// Probes for `keys` by every call that probes, and checks the results.
    fn probe<M: Medium>(
        &self,
        index: &JoinIndex<u64, M>,
        keys: &[u64],
    ) -> std::result::Result<(), Trouble> {
        let mut joined: Vec<(usize, u64)> = Vec::new();
        for (position, &key) in keys.iter().enumerate() {
            joined.extend(self.of(key).map(|payload| (position, payload)));
        }
        let joined_pairs = joined.len() as u64;
        expect("probe_count", index.probe_count(keys)?, joined_pairs)?;
        let found = Mutex::new(Vec::new());
        index.probe(keys, |position, payload| {
            found
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push((position, payload));
        })?;
        let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        found.sort_unstable();
        expect("probe", found, joined.clone())?;
        // In parts of at most 3 pairs, if no single key has more.
        let (mut pairs, mut found, mut done) = (icefield::Pairs::default(), Vec::new(), 0);
        while done < keys.len() {
            let count = index.probe_some(&keys[done..], 3, &mut pairs)?;
            expect("keys of probe_some", count == 0 || pairs.len() > 3 && count > 1, false)?;
            let positions = pairs.positions().iter().map(|&at| done + at as usize);
            found.extend(positions.zip(pairs.payloads().iter().copied()));
            done += count;
        }
        found.sort_unstable();
        expect("probe_some", found, joined)?;
        let there = |&at: &usize| self.of(keys[at]).next().is_some();
        let (semi, anti) = (index.semi(keys)?, index.anti(keys)?);
        expect("semi", semi.ones().collect(), (0..keys.len()).filter(there).collect::<Vec<_>>())?;
        expect("anti", anti.ones().count(), keys.len() - semi.ones().count())?;
        expect("semi_count", index.semi_count(keys)?, (semi, joined_pairs))
    }

    /// Compares all pairs with those of an index, and runs its check.
    pub(super) fn compare<M: Medium>(
        &self,
        index: &JoinIndex<u64, M>,
    ) -> std::result::Result<(), Trouble> {
        expect("pairs", &Self::of_index(index)?, self)?;
        expect("len", index.len(), self.0.len() as u64)?;
        let report = index.check()?;
        expect("check", report.faults, Vec::new())
    }
}

impl JoinSource for Pairs {
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()> {
        for pairs in self.0.chunks(7).skip(part).step_by(parts) {
            let (keys, payloads): (Vec<u64>, Vec<u64>) = pairs.iter().copied().unzip();
            show(&keys, &payloads)?;
        }
        Ok(())
    }
}
