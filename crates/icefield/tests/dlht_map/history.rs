//! Random sequences of every call against a reference map.

use std::collections::HashMap;
use std::ops::ControlFlow;

use icefield::{
    Computed, Cursor, Decision, DlhtGuard, DlhtMapOp, DlhtNamespace, DlhtRecordMap, Local,
    Occupied, OnFailure, Shared, Threading,
};
use icefield_torture::Rng;

use crate::counting::Counting;
use crate::fewer;
use crate::spread::Spread;

type Map<M> = DlhtRecordMap<String, String, Spread, Counting, M>;
type Space<'a, M> = DlhtNamespace<'a, String, String, Spread, Counting, M>;
type Right = HashMap<(u16, String), String>;
type Op<'q, 'g> = DlhtMapOp<'q, 'g, String, String, str>;

/// The single calls that also exist as batches.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Get,
    Insert,
    TryInsert,
    Update,
    Remove,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Get, Self::Insert, Self::TryInsert, Self::Update, Self::Remove];

    /// Applies the call to the reference map. Returns the previous value.
    fn on(self, right: &mut Right, id: (u16, String), value: &str) -> Option<String> {
        let (before, value) = (right.get(&id).cloned(), value.to_owned());
        match self {
            Self::Insert => right.insert(id, value),
            Self::TryInsert if before.is_none() => right.insert(id, value),
            Self::Update if before.is_some() => right.insert(id, value),
            Self::Remove => right.remove(&id),
            Self::Get | Self::TryInsert | Self::Update => None,
        };
        before
    }

    fn op<'q>(self, key: &'q str, value: &str) -> Op<'q, 'static> {
        let (owned, value) = (key.to_owned(), value.to_owned());
        match self {
            Self::Get => Op::get(key),
            Self::Insert => Op::insert(owned, value),
            Self::TryInsert => Op::try_insert(owned, value),
            Self::Update => Op::update(owned, value),
            Self::Remove => Op::remove(key),
        }
    }

    /// Returns whether the call counts as failed, given the previous value.
    fn fails(self, before: Option<&String>) -> bool {
        match self {
            Self::Get | Self::Update | Self::Remove => before.is_none(),
            Self::TryInsert => before.is_some(),
            Self::Insert => false,
        }
    }
}

/// Number of kinds of steps.
const STEPS: usize = 21;

/// A random sequence of calls on a map and on a reference map.
struct History<'a, M: Threading> {
    map: &'a Map<M>,
    right: Right,
    rng: Rng,
    keys: u64,
    /// Number of steps of each kind.
    steps: [u64; STEPS],
    /// Number of mixed batches that ended early.
    stopped: u64,
}

/// The namespaces of a history.
const SPACES: [u16; 3] = [0, 7, 4095];

impl<M: Threading> History<'_, M> {
    fn key(&mut self) -> String {
        format!("key {}", self.rng.below(self.keys))
    }

    fn value(&mut self) -> String {
        format!("value {}", self.rng.below(20))
    }

    fn records(&mut self) -> Vec<(String, String)> {
        (0..self.rng.below(40)).map(|_| (self.key(), self.value())).collect()
    }

    /// Executes a step of a random kind and checks its result. Some of the returned references go to `held`, with
    /// copies of their values.
    fn step<'g>(&mut self, guard: &'g DlhtGuard<'_>, held: &mut Vec<(&'g String, String)>) {
        let (space, step) = (*self.rng.pick(&SPACES), self.rng.index(STEPS));
        self.steps[step] += 1;
        let map: &Map<M> = self.map;
        let map = map.namespace(space).expect("below 4096");
        let given = match step {
            0..5 => self.one(Kind::ALL[step], space, &map, guard),
            5..10 => self.batch(Kind::ALL[step - 5], space, &map, guard),
            10 | 11 => self.mixed(space, &map, guard),
            12..16 => self.decide(step, space, &map, guard),
            _ => {
                self.whole(step, space, &map, guard);
                None
            }
        };
        held.extend(given.map(|given| (given, given.clone())));
        assert_eq!(self.map.len(), self.right.len());
    }

    fn one<'g>(
        &mut self,
        kind: Kind,
        space: u16,
        map: &Space<'_, M>,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g String> {
        let (key, value) = (self.key(), self.value());
        let before = kind.on(&mut self.right, (space, key.clone()), &value);
        let given = match kind {
            Kind::Get => {
                let len = map.get_with(key.as_str(), |value| value.len());
                assert_eq!(len, before.as_ref().map(String::len));
                assert_eq!(map.contains(key.as_str()), before.is_some());
                assert_eq!(map.get_cloned(key.as_str()), before);
                map.get(key.as_str(), guard)
            }
            Kind::Insert if self.rng.one_in(2) => {
                map.checked_insert(key, value, guard).expect("there is memory")
            }
            Kind::Insert => map.insert(key, value, guard),
            Kind::TryInsert => map.try_insert(key, value, guard).err().map(|Occupied(it)| it),
            Kind::Update => map.update(key, value, guard),
            Kind::Remove => map.remove(key.as_str(), guard),
        };
        assert_eq!(given.cloned(), before);
        given
    }

    fn batch<'g>(
        &mut self,
        kind: Kind,
        space: u16,
        map: &Space<'_, M>,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g String> {
        let records = self.records();
        let keys: Vec<&str> = records.iter().map(|(key, _)| key.as_str()).collect();
        let mut found = vec![None; keys.len()];
        match kind {
            Kind::Get => map.get_batch(&keys, &mut found, guard),
            Kind::Insert => found = map.insert_batch(records.clone(), guard),
            Kind::TryInsert => {
                let outcomes = map.try_insert_batch(records.clone(), guard);
                found = outcomes.into_iter().map(|outcome| outcome.err().map(|it| it.0)).collect();
            }
            Kind::Update => found = map.update_batch(records.clone(), guard),
            Kind::Remove => map.remove_batch(&keys, &mut found, guard),
        }
        assert_eq!(found.len(), records.len());
        for ((key, value), found) in records.into_iter().zip(&found) {
            assert_eq!(found.cloned(), kind.on(&mut self.right, (space, key), &value));
        }
        found.into_iter().flatten().next()
    }

    /// Executes a mixed batch, which may end early and is then continued.
    fn mixed<'g>(
        &mut self,
        space: u16,
        map: &Space<'_, M>,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g String> {
        let records = self.records();
        let kinds: Vec<Kind> = records.iter().map(|_| *self.rng.pick(&Kind::ALL)).collect();
        let calls = || kinds.iter().copied().zip(&records);
        let mut ops: Vec<Op<'_, '_>> =
            calls().map(|(kind, (key, value))| kind.op(key, value)).collect();
        let mut right = calls().map(|(kind, (key, value))| {
            let before = kind.on(&mut self.right, (space, key.clone()), value);
            (kind.fails(before.as_ref()), before)
        });
        let mut ran = 0;
        while ran < ops.len() {
            let end = map.execute(&mut ops, OnFailure::Stop, guard);
            assert!(ran < end && end <= ops.len());
            for (at, op) in ops.iter().enumerate().take(end).skip(ran) {
                let (failed, before) = right.next().expect("one for each");
                assert_eq!((op.failed(), op.value().cloned()), (failed, before), "{at}: {op:?}");
                assert_eq!(failed, at + 1 == end && (end < ops.len() || op.failed()));
            }
            assert!(ops[end..].iter().all(|op| op.value().is_none() && !op.failed()));
            self.stopped += u64::from(end < ops.len());
            ran = end;
        }
        ops.iter().find_map(DlhtMapOp::value)
    }

    fn decide<'g>(
        &mut self,
        step: usize,
        space: u16,
        map: &Space<'_, M>,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g String> {
        let (key, value) = (self.key(), self.value());
        let id = (space, key.clone());
        let before = self.right.get(&id).cloned();
        match step {
            12 => {
                let computed = map.compute(key, decision(&value), guard);
                assert_eq!(cloned(computed.clone()), self.right_compute(id, &value));
                computed.before()
            }
            13 => {
                let current = before.clone().filter(|_| self.rng.one_in(2)).unwrap_or_default();
                let done = map.compare_exchange(key, &current, value.clone(), guard);
                let same = before.as_ref() == Some(&current);
                let wanted = if same { Ok(()) } else { Err(before) };
                assert_eq!(done.map_err(|present| present.cloned()), wanted);
                if same {
                    self.right.insert(id, value);
                }
                None
            }
            _ => {
                let made = match step {
                    14 => map.get_or_insert_with(key, || value.clone(), guard),
                    _ => map.get_or_insert(key, value.clone(), guard),
                };
                assert_eq!(made, self.right.entry(id).or_insert(value));
                Some(made)
            }
        }
    }

    fn whole(&mut self, step: usize, space: u16, map: &Space<'_, M>, guard: &DlhtGuard<'_>) {
        match step {
            16 => {
                let pair = |key: &String, value: &String| (key.clone(), value.clone());
                let mut records = read_all(self.rng.below(4), map, guard);
                records.sort_unstable();
                let right = self.right.iter().filter(|((of, _), _)| *of == space);
                let mut right: Vec<_> = right.map(|((_, key), value)| pair(key, value)).collect();
                right.sort_unstable();
                assert_eq!(records, right);
            }
            17 => match self.rng.below(3) {
                0 => self.map.reserve(self.rng.index(300)),
                1 => self.map.shrink_to_fit(),
                // Not under Miri, which would request this much memory from the host.
                _ => assert!(cfg!(miri) || self.map.try_reserve(1 << 50).is_err()),
            },
            18 => {
                map.prefetch(self.key().as_str());
                self.blind(space, map);
            }
            19 => {
                let keep = |key: &str, value: &str| !(key.len() + value.len()).is_multiple_of(3);
                map.retain(|key, value| keep(key, value));
                self.right.retain(|(of, key), value| *of != space || keep(key, value));
            }
            _ if self.rng.one_in(4) => {
                self.map.clear();
                self.right.clear();
            }
            _ => {}
        }
    }

    /// Makes one of the calls without a batch, a guard or a result.
    fn blind(&mut self, space: u16, map: &Space<'_, M>) {
        let (key, value) = (self.key(), self.value());
        let id = (space, key.clone());
        match self.rng.below(4) {
            0 => map.put(key, value.clone()),
            1 => assert!(map.checked_put(key, value.clone()).is_ok()),
            2 => {
                map.delete(key.as_str());
                self.right.remove(&id);
                return;
            }
            _ => {
                assert_eq!(map.contains_key(key.as_str()), self.right.contains_key(&id));
                return;
            }
        }
        self.right.insert(id, value);
    }

    fn right_compute(&mut self, id: (u16, String), value: &str) -> Computed<String> {
        let before = self.right.get(&id).cloned();
        match decision(value)(before.as_ref()) {
            Decision::Keep => Computed::Kept(before),
            Decision::Put(new) => Computed::Put(self.right.insert(id, new)),
            Decision::Remove => Computed::Removed(self.right.remove(&id)),
        }
    }
}

/// Returns the records of a namespace, by one of the calls for all records.
fn read_all<M: Threading>(
    call: u64,
    map: &Space<'_, M>,
    guard: &DlhtGuard<'_>,
) -> Vec<(String, String)> {
    let pair = |(key, value): (&String, &String)| (key.clone(), value.clone());
    match call {
        0 => map.iter(guard).map(pair).collect(),
        1 => {
            let mut records = Vec::new();
            map.for_each(|key, value| {
                records.push(pair((key, value)));
                ControlFlow::Continue(())
            });
            records
        }
        2 => {
            let (mut records, mut next) = (Vec::new(), Some(Cursor::START));
            while let Some(cursor) = next {
                let page = map.scan(cursor, 7, guard);
                records.extend(page.records.into_iter().map(pair));
                next = page.next;
            }
            records
        }
        _ => map.snapshot(guard).iter().map(pair).collect(),
    }
}

/// Returns a closure for `compute` that decides by the present value and `value`.
fn decision<'v>(value: &'v str) -> impl Fn(Option<&String>) -> Decision<String> + use<'v> {
    move |present| match present {
        Some(present) if present == value => Decision::Remove,
        Some(present) if present.len() > 30 => Decision::Keep,
        Some(present) => Decision::Put(format!("{present} {value}")),
        None if value.ends_with('3') => Decision::Keep,
        None if value.ends_with('4') => Decision::Remove,
        None => Decision::Put(value.to_owned()),
    }
}

fn cloned(computed: Computed<&String>) -> Computed<String> {
    match computed {
        Computed::Kept(before) => Computed::Kept(before.cloned()),
        Computed::Put(before) => Computed::Put(before.cloned()),
        Computed::Removed(before) => Computed::Removed(before.cloned()),
    }
}

#[test]
fn random_sequences_agree_with_a_map_and_give_everything_back() {
    sequences::<Shared>();
}

#[test]
fn random_sequences_of_one_thread_agree_with_a_map() {
    sequences::<Local>();
}

fn sequences<M: Threading>() {
    let (mut steps, mut stopped, mut asked) = ([0; STEPS], 0, 0);
    for seed in 0..fewer(120, 4) as u64 {
        let allocator = Counting::default();
        let map = Map::<M>::with_capacity_and_hasher_in(0, Spread::any(seed), allocator.clone());
        let keys = [5, 40, 300][(seed / 4 % 3) as usize];
        let right = Right::new();
        let (rng, none) = (Rng::new(seed), [0; STEPS]);
        let mut history = History { map: &map, right, rng, keys, steps: none, stopped: 0 };
        for _ in 0..fewer(20, 3) {
            let (guard, mut held) = (map.pin(), Vec::new());
            (0..fewer(50, 20)).for_each(|_| history.step(&guard, &mut held));
            // Returned references still have their values, although the records may have been removed.
            assert!(held.iter().all(|(given, copy)| *given == copy), "seed {seed}");
        }
        steps.iter_mut().zip(history.steps).for_each(|(all, more)| *all += more);
        stopped += history.stopped;
        assert!(allocator.held().1 as usize >= map.len());
        asked += allocator.asked();
        drop(map);
        assert_eq!(allocator.held(), (0, 0), "seed {seed}");
    }
    println!("steps of each kind: {steps:?}; {stopped} batches stopped; {asked} allocations");
    let enough = stopped > 1000 && steps.iter().all(|&count| count > 100);
    assert!(cfg!(miri) || enough, "{steps:?} {stopped}");
}
