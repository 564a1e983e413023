//! Dash without some of its techniques returns the same results as complete Dash, also for batches and threads, and
//! leaves files that complete Dash can read.

use std::collections::HashMap;

use icefield::{Ablation, Dash, DashEh, Durability, Eh, Geometry, Key, Parts};
// Its tables are compiled already (record 0108).
use icefield_torture as _;

type Check = Result<(), Box<dyn std::error::Error>>;

macro_rules! without {
    ($($name:ident { $($part:ident),+ })*) => {$(
        struct $name;
        impl Ablation for $name {
            const PARTS: Parts = {
                let mut parts = Parts::ALL;
                $(parts.$part = false;)+
                parts
            };
        }
    )*};
}
without! {
    Fingerprints { fingerprints }
    Overflow { overflow_metadata }
    Filters { fingerprints, overflow_metadata }
    Balance { balancing }
    Probing { probing, balancing }
    Optimism { optimistic }
    Most { fingerprints, probing, balancing, optimistic }
    All { fingerprints, overflow_metadata, probing, balancing, optimistic }
}

/// Changes a table at random. Returns the number of searches that found a record.
fn churn<K, A: Ablation>(
    table: &Dash<K, u64, Eh<A>>,
    (first, seed): (u64, u64),
    key_of: fn(u64) -> K,
    model: &mut HashMap<u64, u64>,
) -> Result<u64, icefield::Error>
where
    K: for<'a> Key<Arg<'a> = K, Owned = K> + Copy,
{
    let (mut random, mut found) = (seed | 1, 0);
    for round in 0..4_000 {
        random = random.wrapping_mul(0xD129_0D3B_0B4B_1F35).rotate_left(23) ^ round;
        let key = first + random % 900;
        match random >> 20 & 7 {
            0..=2 => assert_eq!(table.insert(key_of(key), round)?, model.insert(key, round)),
            3 => {
                let pairs: Vec<_> = (key..key + 40).map(|key| (key_of(key), round)).collect();
                table.put_batch(&pairs)?;
                model.extend((key..key + 40).map(|key| (key, round)));
            }
            4 | 5 => assert_eq!(table.remove(key_of(key))?, model.remove(&key)),
            _ => {
                let answer = table.get(key_of(key))?;
                assert_eq!(answer, model.get(&key).copied(), "key {key}");
                found += u64::from(answer.is_some());
            }
        }
    }
    Ok(found)
}

fn answers_rightly<K, A: Ablation>(geometry: Geometry, key_of: fn(u64) -> K) -> Check
where
    K: for<'a> Key<Arg<'a> = K, Owned = K> + Copy + Send + Sync + std::hash::Hash + Eq + 'static,
{
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let options = Dash::<K, u64, Eh<A>>::options().geometry(geometry).hash_seed([1, 2]);
    let table = options.durability(Durability::Process).create(&path)?;
    let mut models = [HashMap::new(), HashMap::new()];
    let found = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(&mut models)
            .map(|(thread, model)| {
                let table = &table;
                scope.spawn(move || churn(table, (thread * 10_000, 77 + thread), key_of, model))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<Result<u64, _>>()
    })?;
    assert!(table.check()?.is_clean());
    let splits = table.stats().details.iter().find(|(name, _)| *name == "splits").map(|(_, n)| *n);
    println!("{:?} {geometry:?}: {found} found, {splits:?} splits", A::PARTS);
    assert!(found > 500 && splits > Some(3));
    drop(table);
    // An ablated table still maintains the parts that it does not use.
    let whole = DashEh::<K, u64>::open(&path)?;
    assert!(whole.check()?.is_clean());
    for (key, value) in models.iter().flatten() {
        assert_eq!(whole.get(key_of(*key))?, Some(*value));
    }
    assert_eq!(whole.len()?, models.iter().map(HashMap::len).sum::<usize>() as u64);
    Ok(())
}

fn in_all_shapes<A: Ablation>() -> Check {
    for stash in [0, 2] {
        let geometry = Geometry { buckets: 4, slots: 7, stash };
        answers_rightly::<u64, A>(geometry, |key| key)?;
        answers_rightly::<u128, A>(geometry, |key| u128::from(key) << 40 | 7)?;
    }
    Ok(())
}

#[test]
fn tables_without_filters_answer_rightly() -> Check {
    in_all_shapes::<Fingerprints>()?;
    in_all_shapes::<Overflow>()?;
    in_all_shapes::<Filters>()
}

#[test]
fn tables_without_balance_answer_rightly() -> Check {
    in_all_shapes::<Balance>()?;
    in_all_shapes::<Probing>()
}

#[test]
fn tables_whose_searches_take_locks_answer_rightly() -> Check {
    in_all_shapes::<Optimism>()?;
    in_all_shapes::<Most>()?;
    in_all_shapes::<All>()
}
