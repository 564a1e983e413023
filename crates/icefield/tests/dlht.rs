//! DLHT: random sequences against a reference map, concurrent threads, keys that defeat the hash function, tables of
//! fixed size, snapshots, shadow inserts.

mod dlht_size {
    mod churn;
    mod memory;
}

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use icefield::base::hash::HashKind;
use icefield::storage::{Errno, FaultMode};
use icefield::{
    Cursor, DashEh, Decision, Dlht, DlhtHash, DlhtLocal, DlhtSet, Error, NotShadowed, OnFailure,
    Op, Table,
};
use icefield_torture::budget::Budget;
use icefield_torture::dlht::{Alone, DlhtPlace, SetCounts, set_model};
use icefield_torture::failure::Failure;
use icefield_torture::faulty::fail_at;
use icefield_torture::linear::Counts;
use icefield_torture::place::Place;
use icefield_torture::pool::Pool;
use icefield_torture::{Rng, dlht, iterate, model};

fn sorted(mut records: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    records.sort_unstable();
    records
}

/// Runs model histories on tables of type `T`, of every shape.
fn histories<T>(what: &str, seconds: u64, first_seed: u64)
where
    T: Table<Key = u64, Value = u64>,
    DlhtPlace: Place<T>,
{
    let mut counts = model::Counts::default();
    let mut budget = Budget::time(Duration::from_secs(seconds)).at_least(84).at_most(2000);
    while let Some((number, _)) = budget.chunk(1) {
        let seed = first_seed + number;
        let done = model::scenario::<T, _>(seed, 300, || DlhtPlace(seed));
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{what}: {counts:?}");
    assert!(counts.operations >= 20_000 && counts.own_calls >= 300, "{counts:?}");
}

#[test]
fn random_sequences_agree_with_a_map() {
    histories::<Dlht<u64, u64>>("for many threads", 4, 1_000_000);
    histories::<Alone>("for one thread", 2, 2_000_000);
}

#[test]
fn random_sequences_agree_with_a_set() {
    let mut counts = SetCounts::default();
    let mut budget = Budget::time(Duration::from_secs(2)).at_least(40).at_most(1000);
    while let Some((seed, _)) = budget.chunk(1) {
        let done = set_model(3_000_000 + seed, 300);
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{counts:?}");
    assert!(counts.operations >= 20_000 && counts.grown >= 10, "{counts:?}");
}

#[test]
fn one_thread_is_enough_for_the_local_table() {
    let table = DlhtLocal::<u64, u64>::options().geometry(0, 1).build().expect("small");
    let mut right = HashMap::new();
    let mut rng = Rng::new(5);
    for _ in 0..50_000 {
        let (key, value) = (rng.below(5000), rng.word());
        match rng.below(4) {
            0 => assert_eq!(table.remove(key), right.remove(&key)),
            1 => assert_eq!(table.get(key), right.get(&key).copied()),
            2 => {
                // The closure may use the table, even in a way that makes it grow.
                let inner = rng.below(5000);
                table.compute(key, |present| {
                    table.put(inner, value);
                    Decision::Put(present.copied().unwrap_or(0).wrapping_add(value))
                });
                right.insert(inner, value);
                let before =
                    if inner == key { value } else { right.get(&key).copied().unwrap_or(0) };
                right.insert(key, before.wrapping_add(value));
            }
            _ => assert_eq!(table.insert(key, value), right.insert(key, value)),
        }
    }
    assert_eq!(table.len(), right.len());
    assert_eq!(sorted(table.iter().collect()), sorted(right.into_iter().collect()));
}

#[test]
fn every_history_has_an_order() {
    orders(dlht::linear, Duration::from_secs(8), 1_000_000);
}

#[test]
fn every_history_of_maps_and_sets_has_an_order() {
    orders(dlht::linear_map, Duration::from_secs(4), 2_000_000);
    orders(dlht::linear_set, Duration::from_secs(4), 3_000_000);
}

/// Runs concurrent histories and checks each for linearizability.
fn orders(linear: fn(u64, u64, &Pool) -> Result<Counts, Failure>, time: Duration, first_seed: u64) {
    let pool = Pool::new(3);
    let mut counts = Counts::default();
    let mut budget = Budget::time(time).at_least(2048).at_most(60_000);
    while let Some((number, histories)) = budget.chunk(512) {
        let done = linear(first_seed + number, histories, &pool);
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{counts:?}, overlap {:.3}", counts.overlap());
    if let Err(failure) = counts.meaningful(first_seed) {
        panic!("{failure}");
    }
}

#[test]
fn scans_among_writers_see_what_stays() {
    let pool = Pool::new(3);
    let mut counts = iterate::Counts::default();
    let mut budget = Budget::time(Duration::from_secs(3)).at_least(100).at_most(500);
    while let Some((seed, _)) = budget.chunk(1) {
        let table = dlht::tiny::<dlht::DlhtInTurns>(seed).build().expect("small");
        let done = iterate::passes_on(seed, table, &pool, None);
        counts.add(done.unwrap_or_else(|what| panic!("{seed}: {what}")));
    }
    println!("{counts:?}");
    assert!(counts.scans > 50 && counts.grown_tables > 5, "{counts:?}");
}

/// All these keys have the same hash, or share a bin while there are few bins. The table must not grow without bound
/// for them.
#[test]
fn keys_that_crowd_cost_another_hash_function_and_no_memory() {
    const KEYS: u64 = 20_000;
    let options = || Dlht::<u64, u64>::options();
    let tables = [
        options().hash(DlhtHash::Kind(HashKind::Constant)),
        options().hash(DlhtHash::Kind(HashKind::Crowded)),
        options().hash(DlhtHash::Modulo),
        options().hash(DlhtHash::Modulo).link_ratio(1.0),
    ];
    for (stride, options) in [1, 1 << 40, 1 << 14, 4096].into_iter().zip(tables) {
        let table = options.build().expect("small");
        let mut scanned = Vec::new();
        let mut next = Some(Cursor::START);
        for n in 0..KEYS {
            assert_eq!(table.try_insert(n * stride, n), Ok(()));
            // The change of the hash function happens during a scan. The scan must return each record present at its
            // start exactly once.
            if n == 10 {
                let page = table.scan(Cursor::START, 3);
                scanned.extend(page.records);
                next = page.next;
            }
        }
        while let Some(cursor) = next {
            let page = table.scan(cursor, 100);
            scanned.extend(page.records);
            next = page.next;
        }
        for n in 0..10 {
            let seen = scanned.iter().filter(|&&(key, _)| key == n * stride).count();
            assert_eq!(seen, 1, "key {n} of stride {stride}");
        }
        assert!((0..KEYS).all(|n| table.get(n * stride) == Some(n)));
        assert_eq!(table.len() as u64, KEYS);
        let bytes = table.stats().dram_bytes;
        assert!(bytes < 16 << 20, "{bytes} bytes for {KEYS} keys of stride {stride}");
    }
}

#[test]
fn a_table_that_may_not_grow_says_so_and_stays_as_it_is() {
    for fixed in [true, false] {
        let options = Dlht::<u64, u64>::options().capacity(1000);
        let options = if fixed { options.fixed_size() } else { options.max_bytes(60_000) };
        let table = options.build().expect("small");
        let mut refused = Vec::new();
        for key in 0..4000 {
            match Table::try_insert(&table, key, key) {
                Ok(outcome) => assert_eq!(outcome, Ok(())),
                Err(Error::Full) => refused.push(key),
                Err(other) => panic!("{other}"),
            }
        }
        let len = 4000 - refused.len();
        assert!(len >= 900 && table.len() == len, "{len}");
        // All other calls still work: reads, updates, removals, and inserts into the slots that they free.
        assert!((0..4000).all(|key| table.contains(key) != refused.contains(&key)));
        let (first, present) = (refused[0], (0..4000).find(|key| !refused.contains(key)));
        assert_eq!(table.update(present.expect("many"), 7), present);
        let mut outcomes = [Ok(()), Ok(())];
        let batch = Table::try_insert_batch(&table, &[(5000, 1), (first, 1)], &mut outcomes);
        assert!(matches!(batch, Ok(()) | Err(Error::Full)));
        (0..4000).for_each(|key| table.delete(key));
        table.delete(5000);
        assert!(table.is_empty());
        assert!(matches!(Table::try_insert(&table, first, 1), Ok(Ok(()))));
    }
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let refused = Dlht::<u64, u64>::options().capacity(1 << 50).build();
    assert!(matches!(refused, Err(Error::NoMemory { .. })), "{refused:?}");
    let table = Dlht::<u64, u64>::new();
    table.put(1, 10);
    assert!(matches!(Table::reserve(&table, 1 << 50), Err(Error::NoMemory { .. })));
    (0..1000).for_each(|key| table.put(key, key));
    assert_eq!((table.len(), table.get(1)), (1000, Some(1)));
    let odd = Dlht::<u64, u64>::options().link_ratio(f64::NAN).build();
    assert!(matches!(odd, Err(Error::InvalidOption { .. })), "{odd:?}");
}

/// Too many keys share a bin, so the table changes its hash function. The new index is too small for all records, and
/// memory for a third index is missing. Scans continue, including a scan that began with the old hash function.
#[test]
fn scans_need_no_memory_between_two_hash_functions() {
    // The new hash function is random. With many, the next index has room for all records.
    assert!((0..30).any(|_| scans_between_two_hash_functions()));
}

/// Returns whether the records were spread over two indexes with different hash functions.
fn scans_between_two_hash_functions() -> bool {
    let faults = fail_at(5, FaultMode::ForGood, Errno::NOMEM);
    let options = Dlht::<u64, u64>::options().hash(DlhtHash::Modulo).hash_seed([1, 2]);
    let options = options.link_ratio(0.0).geometry(18, 1).faults(Arc::clone(&faults));
    let table = options.build().expect("small");
    // One bin is crowded, so all records are moved, those of the last bins at the end. Meanwhile, the next index gets a
    // new record for every 16 bins that are moved, so that some of its bins are full.
    const BINS: u64 = 1 << 18;
    const CROWDED: u64 = 200_000;
    let mut right: Vec<(u64, u64)> = (50..100).map(|bin| (bin, bin + 1)).collect();
    let last = (BINS - 1_600..BINS).flat_map(|bin| (0..3).map(move |n| bin + n * BINS));
    right.extend(last.map(|key| (key, key + 1)));
    table.put_batch(&right);
    let early = table.scan(Cursor::START, 7);
    let crowded = (0..4).map(|n| CROWDED + n * BINS);
    for key in crowded.chain(100..BINS / 3) {
        match Table::try_insert(&table, key, key + 1) {
            Ok(inserted) => {
                assert_eq!(inserted, Ok(()));
                right.push((key, key + 1));
            }
            // The bin has moved, and the next index has no room for the key.
            Err(Error::NoMemory { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    right.sort_unstable();
    let transferring =
        |table: &Dlht<u64, u64>| table.stats().details.contains(&("transferring", 1));
    if !transferring(&table) {
        return false;
    }
    assert!(matches!(Table::reserve(&table, 1), Err(Error::NoMemory { .. })));
    assert_eq!(sorted(table.iter().collect()), right);
    let (mut seen, mut next) = (early.records, early.next);
    while let Some(cursor) = next {
        let page = table.scan(cursor, 100);
        seen.extend(page.records);
        next = page.next;
    }
    let mut keys: Vec<u64> = seen.into_iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "no key twice");
    assert!((50..100).all(|key| keys.binary_search(&key).is_ok()), "every early key");
    assert!(transferring(&table), "still in between");
    faults.heal();
    (0..5000).for_each(|key| table.put((1 << 30) + key, key));
    assert_eq!((table.len(), table.iter().count()), (right.len() + 5000, right.len() + 5000));
    println!("{} records between two hash functions", right.len());
    true
}

#[test]
fn shadows_hold_their_key_and_nothing_more() {
    let table = Dlht::<u64, u64>::options().geometry(0, 1).build().expect("small");
    let shadow = table.try_insert_shadow(1, 10).expect("absent");
    assert_eq!((table.get(1), table.update(1, 11), table.remove(1)), (None, None, None));
    assert_eq!((table.len(), table.iter().count(), table.snapshot().iter().count()), (0, 0, 0));
    assert!(matches!(Table::try_insert(&table, 1, 11), Err(Error::Shadowed)));
    assert!(matches!(Table::insert(&table, 1, 11), Err(Error::Shadowed)));
    assert!(matches!(Table::put_batch(&table, &[(2, 20), (1, 11)]), Err(Error::Shadowed)));
    assert_eq!(table.get(2), Some(20), "what came before in the batch was done");
    assert_eq!(table.try_insert_shadow(1, 12).err(), Some(NotShadowed::Shadowed));
    assert_eq!(table.try_insert_shadow(2, 12).err(), Some(NotShadowed::Occupied(20)));
    // The shadow insert survives growth, shrinking and clearing.
    (100..400).for_each(|key| table.put(key, key));
    table.clear();
    table.shrink_to_fit();
    assert_eq!(table.try_insert_shadow(1, 12).err(), Some(NotShadowed::Shadowed));
    shadow.commit();
    assert_eq!((table.get(1), table.len()), (Some(10), 1));
    table.delete(1);
    drop(table.try_insert_shadow(1, 13));
    assert_eq!(table.try_insert(1, 14), Ok(()));
}

#[test]
fn shadows_are_operations_of_batches() {
    let table = Dlht::<u64, u64>::options().geometry(0, 1).build().expect("small");
    table.put(5, 50);
    let shadows = table.shadows();
    // Enough keys to make the table grow several times during the batch.
    let mut ops: Vec<Op<'_, u64, u64>> = Vec::new();
    for key in 0..200 {
        ops.extend([Op::shadow(key, 10 * key, &shadows), Op::get(key), Op::put(1000 + key, key)]);
    }
    assert_eq!(table.execute(&mut ops, OnFailure::Continue), 600);
    for (at, op) in ops.iter().enumerate() {
        match op {
            Op::Shadow(5, .., outcome) => assert_eq!(*outcome, Err(NotShadowed::Occupied(50))),
            Op::Shadow(.., outcome) => assert_eq!(*outcome, Ok(()), "{at}"),
            Op::Get(key, found) => assert_eq!(*found, (*key == 5).then_some(50)),
            _ => {}
        }
    }
    assert_eq!((shadows.len(), table.len(), table.iter().count()), (199, 201, 201));
    // Shadow inserts of a later batch, and all other inserts, find these keys locked.
    let others = table.shadows();
    let mut again = [Op::put(3000, 1), Op::shadow(7, 0, &others), Op::put(3001, 1)];
    assert_eq!(table.execute(&mut again, OnFailure::Stop), 2);
    assert!(matches!(again[1], Op::Shadow(.., Err(NotShadowed::Shadowed))) && others.is_empty());
    let mut inserts = [Op::get(5), Op::try_insert(7, 0)];
    let refused = Table::execute(&table, &mut inserts, OnFailure::Continue);
    assert!(matches!(refused, Err(Error::Shadowed)));
    // One key is committed separately, another is aborted, and the rest is committed after the table has grown.
    shadows.take(7).expect("held").commit();
    assert!(shadows.take(7).is_none() && table.get(7) == Some(70));
    drop(shadows.take(8).expect("held"));
    assert_eq!(table.try_insert(8, 88), Ok(()));
    table.reserve(10_000);
    table.clear();
    assert_eq!((table.len(), shadows.len()), (0, 197));
    shadows.commit();
    assert_eq!((table.len(), shadows.len(), table.get(199)), (197, 0, Some(1990)));
    assert!((0..200).all(|key| table.contains(key) != [5, 7, 8].contains(&key)));
}

#[test]
fn dropped_shadows_leave_nothing() {
    let local = DlhtLocal::<u64, u64>::options().geometry(0, 1).build().expect("small");
    for round in 0..3 {
        let shadows = local.shadows();
        let mut ops: Vec<_> = (0..50).map(|key| Op::shadow(key, round, &shadows)).collect();
        assert_eq!(local.execute(&mut ops, OnFailure::Stop), 50);
        assert!(local.is_empty());
    }
    local.put_batch(&(0..50).map(|key| (key, key)).collect::<Vec<_>>());
    assert_eq!(local.len(), 50);
}

#[test]
fn shadows_of_another_table_are_refused() {
    let (table, other) = (Dlht::<u64, u64>::new(), Dlht::<u64, u64>::new());
    let shadows = other.shadows();
    let mut ops = [Op::put(1, 10), Op::shadow(2, 20, &shadows), Op::put(3, 30)];
    let refused = Table::execute(&table, &mut ops, OnFailure::Continue);
    assert!(matches!(refused, Err(Error::InvalidOption { option: "shadows", .. })), "{refused:?}");
    assert_eq!((table.len(), other.len(), shadows.len()), (1, 0, 0));
    assert_eq!((table.try_insert(2, 2), other.try_insert(2, 2)), (Ok(()), Ok(())));
    // A table without shadow inserts refuses such a batch before any operation runs.
    let dash = DashEh::<u64, u64>::in_memory().expect("memory");
    let refused = dash.execute(&mut ops, OnFailure::Continue);
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    assert!(dash.is_empty().expect("readable"));
}

/// Threads lock overlapping sets of keys, all or none of a set. A thread that holds a whole set has exclusive access.
#[test]
fn shadow_batches_exclude_one_another() {
    const ROUNDS: u64 = 4_000;
    let table = Dlht::<u64, u64>::options().geometry(0, 1).build().expect("small");
    let committed: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let table = &table;
                scope.spawn(move || {
                    let (shadows, mut rng) = (table.shadows(), Rng::new(thread));
                    let mut committed = 0;
                    for _ in 0..ROUNDS {
                        let first = rng.below(3000);
                        let keys = first..first + 4;
                        let mut ops: Vec<_> =
                            keys.clone().map(|key| Op::shadow(key, first, &shadows)).collect();
                        let ran = table.execute(&mut ops, OnFailure::Stop);
                        if ran < 4 || ops[3].failed() {
                            shadows.abort();
                            continue;
                        }
                        assert_eq!(shadows.len(), 4);
                        assert!(keys.clone().all(|key| table.get(key).is_none()));
                        shadows.commit();
                        assert!(keys.clone().all(|key| table.get(key) == Some(first)));
                        if rng.one_in(3) {
                            assert!(keys.clone().all(|key| table.remove(key) == Some(first)));
                        } else {
                            committed += 4;
                        }
                    }
                    committed
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    println!("{committed} records stayed");
    assert!(committed > 500 && table.len() as u64 == committed);
    let mut of_first: HashMap<u64, u64> = HashMap::new();
    table.iter().for_each(|(_, first)| *of_first.entry(first).or_default() += 1);
    assert!(of_first.values().all(|&keys| keys == 4), "whole sets only");
}

/// Each transfer between accounts is a subtraction followed by an addition. A snapshot is atomic, so its total may lack
/// money in transfer, but never exceeds the total at the start.
#[test]
fn snapshots_are_of_one_moment() {
    const ACCOUNTS: u64 = 500;
    let table = Dlht::<u64, i64>::options().geometry(2, 1).build().expect("small");
    (0..ACCOUNTS).for_each(|account| table.put(account, 1000));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (table, done) = (&table, &done);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                while !done.load(Ordering::Relaxed) {
                    table.fetch_add(rng.below(ACCOUNTS), -1);
                    table.fetch_add(rng.below(ACCOUNTS), 1);
                }
            });
        }
        for _ in 0..200 {
            let (count, sum) = table
                .snapshot()
                .iter()
                .fold((0, 0), |(count, sum), (_, value)| (count + 1, sum + value));
            let missing = 1000 * ACCOUNTS as i64 - sum;
            assert!(count == ACCOUNTS && (0..=2).contains(&missing), "{count} {missing}");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(table.iter().map(|(_, value)| value).sum::<i64>(), 1000 * ACCOUNTS as i64);
}

/// Threads use disjoint keys on a growing table. Each must find exactly what it wrote, by single calls and by
/// batches.
#[test]
fn threads_do_not_disturb_one_another() {
    const KEYS: u64 = 40_000;
    for local_share in [1, 64] {
        let table = Dlht::<u64, u64>::options().geometry(0, 1).build().expect("small");
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let table = &table;
                scope.spawn(move || {
                    let own = |n: u64| (n * 3 + thread) * local_share;
                    for n in 0..KEYS {
                        assert_eq!(table.insert(own(n), n), None);
                        let earlier = n / 2;
                        assert_eq!(table.get(own(earlier)), Some(earlier));
                        if n % 3 == 0 {
                            assert_eq!(table.update(own(earlier), earlier), Some(earlier));
                        }
                    }
                    let keys: Vec<u64> = (0..KEYS).map(own).collect();
                    let mut found = vec![None; keys.len()];
                    table.get_batch(&keys, &mut found);
                    assert!((0..KEYS).zip(&found).all(|(n, &found)| found == Some(n)));
                    table.remove_batch(&keys[..KEYS as usize / 2], &mut found[..KEYS as usize / 2]);
                    assert!((0..KEYS).zip(&found).all(|(n, &found)| found == Some(n)));
                });
            }
        });
        assert_eq!((table.len() as u64, table.iter().count() as u64), (3 * KEYS / 2, 3 * KEYS / 2));
        table.shrink_to_fit();
        assert_eq!(table.iter().count() as u64, 3 * KEYS / 2);
    }
}

#[test]
fn link_buckets_fill_the_table_as_far_as_poisson_says() {
    for (ratio, per_bin) in [(0.125, 1.89), (0.2, 2.27)] {
        let table =
            Dlht::<u64, u64>::options().geometry(14, 1).link_ratio(ratio).build().expect("small");
        let bytes = table.stats().dram_bytes;
        let grown = (0..).find(|&key| {
            table.put(key, key);
            table.stats().dram_bytes > bytes
        });
        let reached = grown.expect("it grows") as f64 / f64::from(1 << 14);
        // A few link buckets more than needed on average, so that nearly every such table takes its capacity.
        assert!((0.99..1.12).contains(&(reached / per_bin)), "{reached} at {ratio}");
    }
}

#[test]
fn one_of_many_takes_a_lock() {
    let set = DlhtSet::<u32>::new();
    let taken: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| (0..20_000).filter(|&key| set.insert(key)).count() as u64))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!((taken, set.len()), (20_000, 20_000));
    let mut keys: Vec<u32> = set.iter().collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..20_000));
}
