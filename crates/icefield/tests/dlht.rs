//! DLHT: random sequences against a reference map, threads against one another, keys that defeat the hash function,
//! tables that may not grow, snapshots, shadow inserts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use icefield::base::hash::HashKind;
use icefield::{Cursor, Decision, Dlht, DlhtHash, DlhtLocal, DlhtSet, Error, NotShadowed, Table};
use icefield_testkit::budget::Budget;
use icefield_testkit::call::{Action, BatchKind, Call, ask, ask_batch};
use icefield_testkit::linear::Counts;
use icefield_testkit::pool::Pool;
use icefield_testkit::reference::Reference;
use icefield_testkit::{Rng, dlht, iterate};

/// Tables of every shape: tiny ones that grow often and through several sizes at once, without and with link buckets.
fn shaped(seed: u64) -> Dlht<u64, u64> {
    let hash = match seed % 7 {
        0 | 1 => DlhtHash::Modulo,
        2 => DlhtHash::Kind(HashKind::Crowded),
        _ => DlhtHash::Strong,
    };
    let ratio = [0.125, 0.0, 1.0, 3.0][(seed / 7 % 4) as usize];
    let options = Dlht::options().hash(hash).hash_seed([seed, 1]).link_ratio(ratio);
    options.geometry((seed % 4) as u32, 1 + (seed % 3) as u32).build().expect("small")
}

fn action(rng: &mut Rng) -> Action {
    let value = rng.word();
    Action::any(rng, value)
}

/// A key from a set of `keys`, with gaps, extremes and strides.
fn key(rng: &mut Rng, keys: u64, stride: u64) -> u64 {
    match rng.below(keys) {
        0 => 0,
        1 => u64::MAX,
        n => n.wrapping_mul(stride),
    }
}

fn sorted(mut records: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    records.sort_unstable();
    records
}

fn scanned(table: &Dlht<u64, u64>, page: usize) -> Vec<(u64, u64)> {
    let mut records = Vec::new();
    let mut next = Some(Cursor::START);
    while let Some(cursor) = next {
        let page = table.scan(cursor, page);
        records.extend(page.records);
        assert_ne!(page.next, Some(cursor));
        next = page.next;
    }
    records
}

fn history(seed: u64, steps: usize) {
    let mut rng = Rng::new(seed);
    let table = shaped(seed);
    let mut right = Reference::new();
    let keys = [8, 60, 400][(seed % 3) as usize];
    let stride = [1, 1 << 20, 0x9E37_79B9_7F4A_7C15, 64][(seed / 3 % 4) as usize];
    for step in 0..steps {
        match rng.below(100) {
            0 => {
                table.clear();
                right.clear();
            }
            1 => table.shrink_to_fit(),
            2 => table.reserve(rng.below(300)),
            3 => {
                table.retain(|key, _| key % 3 != 0);
                right.retain(|key, _| key % 3 != 0);
            }
            4..8 => {
                let page = 1 + rng.index(20);
                assert_eq!(sorted(scanned(&table, page)), right.sorted(), "{seed} {step}");
            }
            8 => {
                let snapshot = table.snapshot();
                assert_eq!(sorted(snapshot.iter().collect()), right.sorted(), "{seed} {step}");
            }
            9..30 => {
                let kind = *rng.pick(&BatchKind::ALL);
                let calls: Vec<Call> = (0..rng.below(40))
                    .map(|_| {
                        let action = kind.action(action(&mut rng), rng.word());
                        Call { key: key(&mut rng, keys, stride), action }
                    })
                    .collect();
                let replies = ask_batch(&table, kind, &calls).expect("nothing refuses");
                assert_eq!(replies, right.ask_batch(kind, &calls), "{seed} {step} {kind:?}");
            }
            _ => {
                let call = Call { key: key(&mut rng, keys, stride), action: action(&mut rng) };
                let reply = ask(&table, call).expect("nothing refuses");
                assert_eq!(reply, right.ask(call), "{seed} {step} {call:?}");
            }
        }
        assert_eq!(table.len(), right.len() as u64, "{seed} {step}");
    }
    assert_eq!(sorted(table.iter().collect()), right.sorted());
}

#[test]
fn random_sequences_agree_with_a_map() {
    for seed in 0..300 {
        history(seed, 300);
    }
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
                // The closure may use the table, even so that it grows.
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
    assert_eq!(table.len(), right.len() as u64);
    assert_eq!(sorted(table.iter().collect()), sorted(right.into_iter().collect()));
}

#[test]
fn every_history_has_an_order() {
    let pool = Pool::new(3);
    let mut counts = Counts::default();
    let mut budget = Budget::time(Duration::from_secs(8)).at_least(2048).at_most(60_000);
    while let Some((number, histories)) = budget.chunk(512) {
        let done = dlht::linear(1_000_000 + number, histories, &pool);
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{counts:?}, overlap {:.3}", counts.overlap());
    if let Err(failure) = counts.meaningful(1_000_000) {
        panic!("{failure}");
    }
}

#[test]
fn scans_among_writers_see_what_stays() {
    let pool = Pool::new(3);
    let mut counts = iterate::Counts::default();
    let mut budget = Budget::time(Duration::from_secs(3)).at_least(100).at_most(500);
    while let Some((seed, _)) = budget.chunk(1) {
        let table = dlht::tiny(seed).expect("small");
        let done = iterate::passes_on(seed, table, &pool);
        counts.add(done.unwrap_or_else(|what| panic!("{seed}: {what}")));
    }
    println!("{counts:?}");
    assert!(counts.scans > 50 && counts.grown_tables > 5, "{counts:?}");
}

/// All these keys have one hash, or share a bin for any small number of bins: the table must not grow for them for
/// ever.
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
            // A scan under way meets the change of the hash function; whatever was there when it began, it sees once.
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
        assert_eq!(table.len(), KEYS);
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
        let len = 4000 - refused.len() as u64;
        assert!(len >= 900 && table.len() == len, "{len}");
        // Everything else goes on: reads, updates, removals, and inserts into the slots that they free.
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
    // It survives growing, shrinking and clearing.
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

/// Transfers between accounts, each two additions; a snapshot may see money on its way, never money that came from
/// nowhere: every addition is preceded by its subtraction, and a snapshot is of one moment.
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

/// Threads with keys of their own, on a table that grows under them and is cleared of nothing: each must find exactly
/// what it left, by single calls and by batches.
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
        assert_eq!((table.len(), table.iter().count() as u64), (3 * KEYS / 2, 3 * KEYS / 2));
        table.shrink_to_fit();
        assert_eq!(table.iter().count() as u64, 3 * KEYS / 2);
    }
}

#[test]
fn link_buckets_fill_the_table_as_far_as_poisson_says() {
    for (ratio, per_bin) in [(0.125, 1.89), (0.2, 2.27)] {
        let table =
            Dlht::<u64, u64>::options().geometry(14, 1).link_ratio(ratio).build().expect("small");
        let capacity = table.capacity();
        let grown = (0..).find(|&key| {
            table.put(key, key);
            table.capacity() > capacity
        });
        let reached = grown.expect("it grows") as f64 / f64::from(1 << 14);
        assert!((reached / per_bin - 1.0).abs() < 0.05, "{reached} at {ratio}");
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
