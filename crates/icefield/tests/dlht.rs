//! DLHT: random sequences against a reference map, threads against one another, keys that defeat the hash function, tables
//! that may not grow, snapshots, shadow inserts.

use std::collections::HashMap;
use std::time::Duration;

use icefield::base::hash::HashKind;
use icefield::{Cursor, Decision, Dlht, DlhtHash, DlhtLocal};
use icefield_testkit::budget::Budget;
use icefield_testkit::call::{Action, BatchKind, Call, Rule, ask, ask_batch};
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
    *rng.pick(&[
        Action::Get,
        Action::Contains,
        Action::TryInsert(value),
        Action::TryInsert(value),
        Action::Insert(value),
        Action::Put(value),
        Action::Update(value),
        Action::Remove,
        Action::Delete,
        Action::Compute(Rule::Put(value)),
        Action::Compute(Rule::PutIfAbsent(value)),
        Action::Compute(Rule::PutIfPresent(value)),
        Action::Compute(Rule::RemoveEven),
    ])
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
    let mut budget = Budget::time(Duration::from_secs(8)).at_most(60_000);
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
    let mut budget = Budget::time(Duration::from_secs(3)).at_most(500);
    while let Some((seed, _)) = budget.chunk(1) {
        let table = dlht::tiny(seed).expect("small");
        let done = iterate::passes_on(seed, table, &pool);
        counts.add(done.unwrap_or_else(|what| panic!("{seed}: {what}")));
    }
    println!("{counts:?}");
    assert!(counts.scans > 50 && counts.grown_tables > 5, "{counts:?}");
}
