//! `DlhtMap`: random sequences of every call against a reference map, with hash functions that are good, bad and
//! constant; threads against one another; allocators that count, and that refuse.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use icefield::{
    AllocError, Allocator, Computed, Decision, DlhtBuildHasher, DlhtGuard, DlhtMap, DlhtNamespace,
    Error, Global, Occupied,
};
use icefield_testkit::Rng;

/// Fewer under Miri, which takes its time.
const fn fewer(usual: usize, under_miri: usize) -> usize {
    if cfg!(miri) { under_miri } else { usual }
}

/// The hash function of a history: the default one, one of eight hashes, or always the same.
#[derive(Clone, Copy)]
enum Spread {
    Good(DlhtBuildHasher),
    Eight(DlhtBuildHasher),
    Constant(DlhtBuildHasher),
}

impl Spread {
    fn any(seed: u64) -> Self {
        let good = DlhtBuildHasher::default();
        match seed % 4 {
            0 => Self::Eight(good),
            1 => Self::Constant(good),
            _ => Self::Good(good),
        }
    }
}

struct Spreading(Spread, <DlhtBuildHasher as BuildHasher>::Hasher);

impl BuildHasher for Spread {
    type Hasher = Spreading;
    fn build_hasher(&self) -> Spreading {
        let (Self::Good(good) | Self::Eight(good) | Self::Constant(good)) = self;
        Spreading(*self, good.build_hasher())
    }
}

impl Hasher for Spreading {
    fn write(&mut self, bytes: &[u8]) {
        self.1.write(bytes);
    }
    fn finish(&self) -> u64 {
        match self.0 {
            Spread::Good(_) => self.1.finish(),
            Spread::Eight(_) => self.1.finish() & 7,
            Spread::Constant(_) => 0,
        }
    }
}

/// The global allocator, with a count of what it has given, that refuses when it is told to.
#[derive(Clone, Default)]
struct Counting(Arc<Counts>);

#[derive(Default)]
struct Counts {
    bytes: AtomicI64,
    blocks: AtomicI64,
    asked: AtomicU64,
    /// Every so manyth time, the answer is no; never, if 0.
    refuse_every: AtomicU64,
}

impl Counting {
    fn refusing(every: u64) -> Self {
        let counting = Self::default();
        counting.0.refuse_every.store(every, Ordering::Relaxed);
        counting
    }

    /// Bytes and blocks that have not come back.
    fn held(&self) -> (i64, i64) {
        (self.0.bytes.load(Ordering::Relaxed), self.0.blocks.load(Ordering::Relaxed))
    }

    fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::Relaxed)
    }
}

// SAFETY: the blocks are the global allocator's; clones are one allocator.
unsafe impl Allocator for Counting {
    fn allocate(&self, layout: std::alloc::Layout) -> Result<NonNull<[u8]>, AllocError> {
        let asked = self.0.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let every = self.0.refuse_every.load(Ordering::Relaxed);
        if every != 0 && asked.is_multiple_of(every) {
            return Err(AllocError);
        }
        let block = Global.allocate(layout)?;
        self.0.bytes.fetch_add(layout.size() as i64, Ordering::Relaxed);
        self.0.blocks.fetch_add(1, Ordering::Relaxed);
        Ok(block)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: std::alloc::Layout) {
        self.0.bytes.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        self.0.blocks.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { Global.deallocate(block, layout) };
    }
}

type Map = DlhtMap<String, String, Spread, Counting>;
type Space<'a> = DlhtNamespace<'a, String, String, Spread, Counting>;
type Right = HashMap<(u16, String), String>;

/// A random sequence of calls on a map and on what is right.
struct History<'a> {
    map: &'a Map,
    right: Right,
    rng: Rng,
    keys: u64,
    /// How often each kind of call was made.
    calls: [u64; 20],
}

/// The namespaces of a history.
const SPACES: [u16; 3] = [0, 7, 4095];

impl History<'_> {
    fn key(&mut self) -> String {
        format!("key {}", self.rng.below(self.keys))
    }

    fn value(&mut self) -> String {
        format!("value {}", self.rng.below(20))
    }

    fn records(&mut self) -> Vec<(String, String)> {
        (0..self.rng.below(40)).map(|_| (self.key(), self.value())).collect()
    }

    /// One call of any kind; whatever it gives must be right. Some of the references given go to `held`, with what they
    /// refer to.
    fn step<'g>(&mut self, guard: &'g DlhtGuard<'_>, held: &mut Vec<(&'g String, String)>) {
        let (space, kind) = (*self.rng.pick(&SPACES), self.rng.index(self.calls.len()));
        self.calls[kind] += 1;
        let map: &Map = self.map;
        let map = map.namespace(space).expect("below 4096");
        let given = match kind {
            0..=5 => self.read_or_write(kind, space, &map, guard),
            6..=10 => self.decide(kind, space, &map, guard),
            11..=15 => self.batch(kind, space, &map, guard),
            _ => {
                self.whole(kind, space, &map, guard);
                None
            }
        };
        held.extend(given.map(|given| (given, given.clone())));
        assert_eq!(self.map.len(), self.right.len() as u64);
    }

    fn read_or_write<'g>(
        &mut self,
        kind: usize,
        space: u16,
        map: &Space<'_>,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g String> {
        let (key, value) = (self.key(), self.value());
        let id = (space, key.clone());
        let before = self.right.get(&id).cloned();
        let given = match kind {
            0 => map.get(key.as_str(), guard),
            1 => {
                let len = map.get_with(key.as_str(), |value| value.len());
                assert_eq!(len, before.as_ref().map(String::len));
                assert_eq!(map.contains(key.as_str()), before.is_some());
                assert_eq!(map.get_cloned(key.as_str()), before);
                return None;
            }
            2 => {
                self.right.insert(id, value.clone());
                map.insert(key, value, guard)
            }
            3 => {
                self.right.insert(id, value.clone());
                map.checked_insert(key, value, guard).expect("there is memory")
            }
            4 => {
                self.right.entry(id).or_insert_with(|| value.clone());
                map.try_insert(key, value, guard).err().map(|Occupied(present)| present)
            }
            _ => {
                self.right.entry(id).and_modify(|present| present.clone_from(&value));
                map.update(key, value, guard)
            }
        };
        assert_eq!(given.cloned(), before);
        given
    }

    fn decide<'g>(
        &mut self,
        kind: usize,
        space: u16,
        map: &Space<'_>,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g String> {
        let (key, value) = (self.key(), self.value());
        let id = (space, key.clone());
        let before = self.right.get(&id).cloned();
        match kind {
            6 => {
                let removed = map.remove(key.as_str(), guard);
                assert_eq!(removed.cloned(), self.right.remove(&id));
                removed
            }
            7 => {
                let computed = map.compute(key, decision(&value), guard);
                assert_eq!(cloned(computed.clone()), self.right_compute(id, &value));
                computed.before()
            }
            8 => {
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
            9 => {
                let made = map.get_or_insert_with(key, || value.clone(), guard);
                assert_eq!(made, self.right.entry(id).or_insert(value));
                Some(made)
            }
            _ => {
                let made = map.get_or_insert(key, value.clone(), guard);
                assert_eq!(made, self.right.entry(id).or_insert(value));
                Some(made)
            }
        }
    }

    fn batch<'g>(
        &mut self,
        kind: usize,
        space: u16,
        map: &Space<'_>,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g String> {
        let records = self.records();
        let keys: Vec<&str> = records.iter().map(|(key, _)| key.as_str()).collect();
        let mut found = vec![None; keys.len()];
        match kind {
            11 => map.get_batch(&keys, &mut found, guard),
            12 => found = map.insert_batch(records.clone(), guard),
            13 => {
                let outcomes = map.try_insert_batch(records.clone(), guard);
                found = outcomes.into_iter().map(|outcome| outcome.err().map(|it| it.0)).collect();
            }
            14 => found = map.update_batch(records.clone(), guard),
            _ => map.remove_batch(&keys, &mut found, guard),
        }
        assert_eq!(found.len(), records.len());
        for ((key, value), found) in records.into_iter().zip(&found) {
            let id = (space, key);
            assert_eq!(*found, self.right.get(&id));
            match kind {
                11 => {}
                12 => {
                    self.right.insert(id, value);
                }
                13 => {
                    self.right.entry(id).or_insert(value);
                }
                14 => {
                    self.right.entry(id).and_modify(|present| *present = value);
                }
                _ => {
                    self.right.remove(&id);
                }
            }
        }
        found.into_iter().flatten().next()
    }

    fn whole(&mut self, kind: usize, space: u16, map: &Space<'_>, guard: &DlhtGuard<'_>) {
        match kind {
            16 => {
                let pair = |key: &String, value: &String| (key.clone(), value.clone());
                let mut records: Vec<_> = map.iter(guard).map(|(key, it)| pair(key, it)).collect();
                records.sort_unstable();
                let right = self.right.iter().filter(|((of, _), _)| *of == space);
                let mut right: Vec<_> = right.map(|((_, key), value)| pair(key, value)).collect();
                right.sort_unstable();
                assert_eq!(records, right);
            }
            17 => match self.rng.below(4) {
                0 => self.map.reserve(self.rng.below(300)),
                1 => self.map.shrink_to_fit(),
                // Miri asks its own system for such a lot.
                2 if !cfg!(miri) => assert!(self.map.try_reserve(1 << 50).is_err()),
                _ => map.prefetch(self.key().as_str()),
            },
            18 => {
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

    fn right_compute(&mut self, id: (u16, String), value: &str) -> Computed<String> {
        let before = self.right.get(&id).cloned();
        match decision(value)(before.as_ref()) {
            Decision::Keep => Computed::Kept(before),
            Decision::Put(new) => Computed::Put(self.right.insert(id, new)),
            Decision::Remove => Computed::Removed(self.right.remove(&id)),
        }
    }
}

/// What `compute` is to do, from the present value and a random one.
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
    let (mut calls, mut asked) = ([0; 20], 0);
    for seed in 0..fewer(120, 4) as u64 {
        let allocator = Counting::default();
        let map = Map::with_capacity_and_hasher_in(0, Spread::any(seed), allocator.clone());
        let keys = [5, 40, 300][(seed / 4 % 3) as usize];
        let right = Right::new();
        let mut history = History { map: &map, right, rng: Rng::new(seed), keys, calls: [0; 20] };
        for _ in 0..fewer(20, 3) {
            let (guard, mut held) = (map.pin(), Vec::new());
            (0..fewer(50, 20)).for_each(|_| history.step(&guard, &mut held));
            // What was given is as it was, whatever has become of the record.
            assert!(held.iter().all(|(given, copy)| *given == copy), "seed {seed}");
        }
        calls.iter_mut().zip(history.calls).for_each(|(all, more)| *all += more);
        assert!(allocator.held().1 as u64 >= map.len());
        asked += allocator.asked();
        drop(map);
        assert_eq!(allocator.held(), (0, 0), "seed {seed}");
    }
    println!("calls of each kind: {calls:?}; {asked} allocations");
    assert!(cfg!(miri) || calls.iter().all(|&count| count > 100), "{calls:?}");
}

/// What an allocator refuses is given back or dropped, and leaves the map as it was.
#[test]
fn a_map_whose_allocator_refuses_goes_on() {
    let (mut refused, mut panics) = (0, 0);
    for every in [1, 2, 3, 7, 50] {
        for seed in 0..fewer(4, 2) as u64 {
            let allocator = Counting::refusing(every);
            let map = Map::with_capacity_and_hasher_in(0, Spread::any(seed), allocator.clone());
            let (mut right, mut rng) = (HashMap::new(), Rng::new(seed));
            for step in 0..fewer(400, 40) as u64 {
                let (key, value) = (format!("key {}", rng.below(60)), format!("value {step}"));
                let guard = map.pin();
                let call = rng.below(4);
                if call == 0 {
                    match map.checked_insert(key.clone(), value.clone(), &guard) {
                        Ok(before) => assert_eq!(before.cloned(), right.insert(key, value)),
                        Err(back) => {
                            assert!(matches!(back.error, Error::NoMemory { .. }), "{back:?}");
                            assert_eq!((back.key, back.value), (key, value));
                            refused += 1;
                        }
                    }
                } else {
                    let done = catch_unwind(AssertUnwindSafe(|| match call {
                        1 => map.remove(key.as_str(), &guard).cloned(),
                        2 => map.insert(key.clone(), value.clone(), &guard).cloned(),
                        _ => map
                            .compute(key.clone(), |_| Decision::Put(value.clone()), &guard)
                            .before()
                            .cloned(),
                    }));
                    match done {
                        Ok(before) if call == 1 => assert_eq!(before, right.remove(&key)),
                        Ok(before) => assert_eq!(before, right.insert(key, value)),
                        Err(_) => panics += 1,
                    }
                }
                assert_eq!(map.len(), right.len() as u64);
            }
            let guard = map.pin();
            assert!(right.iter().all(|(key, value)| map.get(key, &guard) == Some(value)));
            assert_eq!(map.iter(&guard).count(), right.len());
            drop(guard);
            drop(map);
            assert_eq!(allocator.held(), (0, 0));
        }
    }
    println!("{refused} records refused, {panics} calls that panicked");
    assert!(refused > 20 && panics > 20);
}

/// A batch that runs out of memory has done what came before, and nothing else.
#[test]
fn a_batch_stops_where_memory_ends() {
    let allocator = Counting::refusing(8);
    let map = DlhtMap::<u64, u64, _, _>::new_in(allocator.clone());
    let guard = map.pin();
    let all = (0..100).map(|key| (key, key));
    let batch = catch_unwind(AssertUnwindSafe(|| map.insert_batch(all, &guard).len()));
    assert!(batch.is_err());
    assert_eq!(map.len(), 7);
    assert!((0..7).all(|key| map.get(&key, &guard) == Some(&key)));
    drop(guard);
    drop(map);
    assert_eq!(allocator.held(), (0, 0));
}

/// Every addition counts once, whether by `compute`, by `compare_exchange` or by an insert that was first.
#[test]
fn counters_add_up() {
    const COUNTERS: u64 = 40;
    let rounds = fewer(30_000, 60) as u64;
    for spread in 0..3 {
        let map = DlhtMap::with_capacity_and_hasher(0, Spread::any(spread));
        let again = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (map, again) = (&map, &again);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for _ in 0..rounds {
                        add_one(map, &mut rng, again, COUNTERS);
                    }
                });
            }
        });
        let guard = map.pin();
        let sum: u64 = map.iter(&guard).map(|(_, value)| *value).sum();
        println!("spread {spread}: {sum} in {} counters, {again:?} times again", map.len());
        assert_eq!(sum, 3 * rounds);
    }
}

fn add_one(map: &DlhtMap<u64, u64, Spread>, rng: &mut Rng, again: &AtomicU64, counters: u64) {
    let (key, guard) = (rng.below(counters), map.pin());
    if rng.one_in(2) {
        let mut tries = 0;
        map.compute(
            key,
            |value| {
                tries += 1;
                Decision::Put(value.map_or(1, |value| value + 1))
            },
            &guard,
        );
        again.fetch_add(tries - 1, Ordering::Relaxed);
        return;
    }
    let mut value = *map.get_or_insert(key, 0, &guard);
    while let Err(present) = map.compare_exchange(key, &value, value + 1, &guard) {
        again.fetch_add(1, Ordering::Relaxed);
        value = *present.expect("nobody removes");
    }
}

/// Threads with keys of their own, in batches, on a map that grows and shrinks under them; records come from, and go
/// back to, one counting allocator.
#[test]
fn batches_find_what_they_left_while_the_map_grows() {
    let keys = fewer(20_000, 150) as u64;
    let allocator = Counting::default();
    let map = DlhtMap::<u64, String, _, _>::new_in(allocator.clone());
    let before = map.capacity();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let map = &map;
            scope.spawn(move || own_batches(map, thread, keys));
        }
        scope.spawn(|| (0..fewer(20, 3)).for_each(|_| map.shrink_to_fit()));
    });
    println!("{} records, capacity {before} to {}", map.len(), map.capacity());
    assert_eq!(map.len(), 3 * (keys / 2));
    assert_eq!(map.iter(&map.pin()).count() as u64, 3 * (keys / 2));
    assert!(map.capacity() > before);
    map.shrink_to_fit();
    drop(map);
    assert_eq!(allocator.held(), (0, 0));
}

fn own_batches(map: &DlhtMap<u64, String, DlhtBuildHasher, Counting>, thread: u64, keys: u64) {
    let own = |n: u64| n * 3 + thread;
    let mut rng = Rng::new(thread);
    let mut done = 0;
    while done < keys {
        let guard = map.pin();
        let some: Vec<u64> = (done..keys.min(done + 1 + rng.below(200))).collect();
        let records = || some.iter().map(|&n| (own(n), n.to_string()));
        assert!(map.try_insert_batch(records(), &guard).iter().all(Result::is_ok));
        let seen = map.update_batch(records(), &guard);
        assert!(some.iter().zip(seen).all(|(n, value)| value == Some(&n.to_string())));
        done += some.len() as u64;
        let earlier: Vec<u64> = (0..300).map(|_| rng.below(done)).collect();
        let asked: Vec<u64> = earlier.iter().map(|&n| own(n)).collect();
        let asked: Vec<&u64> = asked.iter().collect();
        let mut found = vec![None; asked.len()];
        map.get_batch(&asked, &mut found, &guard);
        assert!(earlier.iter().zip(found).all(|(n, value)| value == Some(&n.to_string())));
    }
    let gone: Vec<u64> = (keys / 2..keys).map(own).collect();
    let asked: Vec<&u64> = gone.iter().collect();
    let mut removed = vec![None; asked.len()];
    let guard = map.pin();
    map.remove_batch(&asked, &mut removed, &guard);
    assert!((keys / 2..keys).zip(removed).all(|(n, value)| value == Some(&n.to_string())));
}

/// Counts how many values live, and notices one that is dropped twice or read after its end.
struct Counted(Arc<AtomicI64>, u64);

const ALIVE: u64 = 0x00A1_1CE0;

impl Counted {
    fn new(count: &Arc<AtomicI64>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone(), ALIVE)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert_eq!(self.1, ALIVE);
        self.1 = 0;
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn maps_free_every_record_once_and_none_that_is_looked_at() {
    let (count, allocator) = (Arc::<AtomicI64>::default(), Counting::default());
    free_every_record(&DlhtMap::<String, Counted>::new(), &count);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    free_every_record(&DlhtMap::new_in(allocator.clone()), &count);
    assert_eq!((count.load(Ordering::Relaxed), allocator.held()), (0, (0, 0)));
}

/// Three threads insert, replace and remove the same keys in every way, and look at what they get.
fn free_every_record<A: icefield::RecordAllocator>(
    map: &DlhtMap<String, Counted, DlhtBuildHasher, A>,
    count: &Arc<AtomicI64>,
) {
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for _ in 0..fewer(20_000, 100) {
                    let (key, guard) = (format!("key {}", rng.below(2000)), map.pin());
                    let seen = disturb(map, &mut rng, key, count, &guard);
                    assert!(seen.is_none_or(|value| value.1 == ALIVE));
                    if rng.one_in(5000) {
                        map.clear();
                    }
                }
            });
        }
    });
    let guard = map.pin();
    assert_eq!(map.len(), map.iter(&guard).count() as u64);
}

fn disturb<'g, A: icefield::RecordAllocator>(
    map: &DlhtMap<String, Counted, DlhtBuildHasher, A>,
    rng: &mut Rng,
    key: String,
    count: &Arc<AtomicI64>,
    guard: &'g DlhtGuard<'_>,
) -> Option<&'g Counted> {
    match rng.below(7) {
        0 => map.insert(key, Counted::new(count), guard),
        1 => map.remove(key.as_str(), guard),
        2 => map.try_insert(key, Counted::new(count), guard).err().map(|present| present.0),
        3 => map.compute(key, |_| Decision::Put(Counted::new(count)), guard).before(),
        4 => {
            let record = |n: usize| (format!("{}{n}", &key[..key.len() - 1]), Counted::new(count));
            map.insert_batch((0..10).map(record), guard).into_iter().flatten().next()
        }
        5 => {
            let keys: Vec<String> = (0..10).map(|_| format!("key {}", rng.below(2000))).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let mut removed = [None; 10];
            map.remove_batch(&keys, &mut removed, guard);
            removed.into_iter().flatten().next()
        }
        _ => map.get(key.as_str(), guard),
    }
}

/// Every key has hash 0: they share one slot, and nothing is confused or lost.
#[test]
fn maps_tell_keys_of_one_hash_apart() {
    let map = DlhtMap::with_hasher(Spread::Constant(DlhtBuildHasher::default()));
    let namespace = map.namespace(4095).expect("below 4096");
    let guard = map.pin();
    let mut right = HashMap::new();
    let mut rng = Rng::new(9);
    for _ in 0..fewer(5000, 300) {
        let (key, value) = (rng.below(40), rng.word());
        match rng.below(4) {
            0 => assert_eq!(map.remove(&key, &guard).copied(), right.remove(&key)),
            1 => assert_eq!(map.get(&key, &guard), right.get(&key)),
            2 => {
                let before = map.update(key, value, &guard).copied();
                assert_eq!(before, right.get(&key).copied());
                right.entry(key).and_modify(|present| *present = value);
            }
            _ => assert_eq!(map.insert(key, value, &guard).copied(), right.insert(key, value)),
        }
        if key == 7 {
            namespace.insert(key, 1, &guard);
        }
        assert_eq!(map.len(), (right.len() + namespace.iter(&guard).count()) as u64);
    }
    assert_eq!(namespace.get(&7, &guard), Some(&1));
    let mut records: Vec<_> = map.iter(&guard).map(|(&key, &value)| (key, value)).collect();
    let mut right: Vec<_> = right.into_iter().collect();
    records.sort_unstable();
    right.sort_unstable();
    assert_eq!(records, right);
    assert!(map.namespace(4096).is_err());
}

#[test]
fn maps_refuse_the_guard_of_another_map() {
    let (one, other) = (DlhtMap::<u32, u32>::new(), DlhtMap::<u32, u32>::new());
    let guard = other.pin();
    let refuses = |call: &dyn Fn() -> bool| assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    refuses(&|| one.get(&1, &guard).is_some());
    refuses(&|| one.insert(1, 1, &guard).is_some());
    refuses(&|| one.insert_batch([(1, 1)], &guard).is_empty());
    refuses(&|| {
        one.get_batch(&[&1], &mut [None], &guard);
        true
    });
    refuses(&|| {
        one.remove_batch(&[&1], &mut [None], &guard);
        true
    });
    refuses(&|| one.compute(1, |_| Decision::Remove, &guard).before().is_some());
    refuses(&|| one.iter(&guard).next().is_some());
    assert!(one.is_empty());
}

#[test]
fn what_user_code_does_in_a_call_is_its_own_affair() {
    let (map, more) = (DlhtMap::<u32, String>::new(), fewer(1000, 100) as u32);
    let guard = map.pin();
    // A closure that panics leaves everything as it was.
    map.insert(1, "one".to_owned(), &guard);
    let panics = |call: &dyn Fn() -> bool| assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    panics(&|| map.compute(1, |_| panic!("not now"), &guard).before().is_some());
    panics(&|| map.get_or_insert_with(2, || panic!("not now"), &guard).is_empty());
    panics(&|| {
        map.retain(|_, _| panic!("not now"));
        true
    });
    assert_eq!((map.len(), map.get(&1, &guard)), (1, Some(&"one".to_owned())));
    // One that uses the map is shown what it did.
    let mut shown = Vec::new();
    let computed = map.compute(
        1,
        |value| {
            shown.push(value.cloned());
            if shown.len() == 1 {
                map.insert_batch((10..more).map(|key| (key, "more".to_owned())), &guard);
                map.insert(1, "uno".to_owned(), &guard);
            }
            Decision::Put("eins".to_owned())
        },
        &guard,
    );
    assert_eq!(computed, Computed::Put(Some(&"uno".to_owned())));
    assert_eq!(shown, [Some("one".to_owned()), Some("uno".to_owned())]);
    // So is one that makes a value: the first to come stays.
    let first = |key| {
        map.insert(key, "first".to_owned(), &guard);
        "second".to_owned()
    };
    assert_eq!(map.get_or_insert_with(5, || first(5), &guard), "first");
    assert_eq!(map.len(), u64::from(more - 10) + 2);
}
