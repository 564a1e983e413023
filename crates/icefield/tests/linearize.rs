//! Concurrent histories on a few hot keys of tiny tables with concurrent splits, each checked for linearizability.

use std::sync::Arc;
use std::time::Duration;

use icefield::storage::sim::{Model, Mutation, Sim, SimOptions, Site, SiteKind, SiteLog};
use icefield::{DashEh, DashLh, Iceberg, Plush};
use icefield_torture::budget::Budget;
use icefield_torture::linear::{Counts, Ground, histories_on};
use icefield_torture::pool::Pool;
use icefield_torture::rng::Rng;
use icefield_torture::scenarios::{Records, scenarios};
use icefield_torture::scheduler::Scheduler;
use icefield_torture::subject::Subject;
use icefield_torture::{Failure, pass, scheduler};

/// Runs histories for `seconds` seconds: at least 512 per second, and at most `most` in total.
fn histories(table: &str, records: Records, seconds: u64, most: u64, first_seed: u64) -> Counts {
    let scenarios = scenarios(table, records).expect("a design");
    let pool = Pool::new(3);
    let mut counts = Counts::default();
    let mut budget =
        Budget::time(Duration::from_secs(seconds)).at_least(512 * seconds).at_most(most);
    while let Some((number, histories)) = budget.chunk(512) {
        let done = (scenarios.linear)(first_seed + number, histories, Model::Pmem, &pool);
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{table}, {records:?}: {counts:?}, overlap {:.3}", counts.overlap());
    if let Err(failure) = counts.meaningful(first_seed) {
        panic!("{failure}");
    }
    counts
}

/// One test, not one per design: parallel tests would compete for the processors and reduce the overlap.
#[test]
fn every_history_has_an_order() {
    for (table, first_seed) in [
        ("dash-eh", 1_000_000),
        ("dash-lh", 7_000_000),
        ("iceberg", 3_000_000),
        ("plush", 5_000_000),
    ] {
        let words = histories(table, Records::Words, 3, 90_000, first_seed);
        let bytes = histories(table, Records::Bytes, 1, 10_000, first_seed + 1_000_000);
        assert!(words.histories >= 1_500 && bytes.histories >= 500, "{words:?} {bytes:?}");
        assert!(words.swapped_rejected > 0, "{words:?}");
    }
    let wide = histories("plush", Records::Wide, 1, 10_000, 9_000_000);
    assert!(wide.histories >= 500, "{wide:?}");
}

/// Threads take turns to fill and clear a table of linear hashing. In a former version, the table was cleared before a
/// split had ended: the split then returned a chained bucket to the set of allocator words that is used after the
/// clear, and the allocator handed the bucket out twice. Without the wait for splits, some of these tables are damaged.
#[test]
fn a_clear_waits_for_splits() {
    let pool = Pool::new(3);
    for seed in 0..800 {
        let sim = Sim::new(SimOptions { seed, give_way: scheduler::tick, ..SimOptions::default() });
        let table = DashLh::<u64, u64, Sim>::create_tiny(sim, seed).expect("room");
        let (table, turns) = (Arc::new(table), Scheduler::new(seed, pool.threads()));
        let shared = Arc::clone(&table);
        let work = move |me: usize| {
            let mut rng = Rng::fork(seed, me as u64);
            turns.take_turns(me, || {
                for _ in 0..200 {
                    scheduler::begin();
                    let key = rng.below(2000);
                    let done = match rng.below(200) {
                        0 => shared.clear(),
                        1..20 => shared.remove(key).map(|_| ()),
                        _ => shared.put(key, key),
                    };
                    done.expect("room");
                }
            });
        };
        pool.run(Arc::new(work)).unwrap_or_else(|panic| panic!("seed {seed}: {panic}"));
        let report = table.check().expect("readable");
        assert!(report.is_clean(), "seed {seed}: {report:?}");
    }
}

/// Runs histories on tables of type `T`, on media with `options`, and looks for results that are not durable.
fn watched<T: Subject>(seed: u64, pool: &Pool, options: &SimOptions) -> Result<Counts, Failure> {
    histories_on(seed, 32, pool, |seed| {
        let sim = Sim::new(SimOptions {
            seed,
            detecting: true,
            exempt: T::EXEMPT,
            give_way: scheduler::tick,
            ..options.clone()
        });
        let table = T::create_tiny(sim.clone(), seed)?;
        Ok(Ground {
            sim: Some(sim),
            pass: pass::own::<T>,
            help: T::help,
            ..Ground::of(table, true)
        })
    })
}

/// Disables the fences in `file`, one at a time, until the histories detect a missing one. Without the fence that makes
/// a write durable, a concurrent writer that finds the record, or finds it missing, returns too early. (In Plush the
/// histories cannot detect this, because the latest writes are in DRAM.)
#[track_caller]
fn writers_are_caught<T: Subject>(file: &str) {
    const SEEDS: std::ops::Range<u64> = 1..60;
    let (pool, sites) = (Pool::new(3), SiteLog::default());
    for seed in SEEDS.take(4) {
        let options = SimOptions { sites: Some(sites.clone()), ..SimOptions::default() };
        watched::<T>(seed, &pool, &options).unwrap_or_else(|failure| panic!("{failure}"));
    }
    let mut fences: Vec<(Site, u64)> = sites.sites();
    fences.retain(|(site, _)| site.kind == SiteKind::Fence && site.file.ends_with(file));
    let is_writer = |failure: &Failure| {
        failure.what.contains("returned a result that depends on")
            && ["TryInsert", "Update", "Remove", "CompareExchange", "Compute", "Insert"]
                .iter()
                .any(|call| failure.what.contains(&format!("Call({call}")))
    };
    let caught = fences.iter().any(|&(site, _)| {
        let mutation = Mutation::of(site);
        let options = SimOptions { mutation: Some(Arc::clone(&mutation)), ..SimOptions::default() };
        SEEDS.filter_map(|seed| watched::<T>(seed, &pool, &options).err()).any(|failure| {
            let found = is_writer(&failure);
            if found {
                println!("{}, without the {site}: {failure}", T::NAME);
            }
            found
        })
    });
    assert!(caught, "{}: nothing was noticed without any of {fences:?}", T::NAME);
}

#[test]
fn writers_that_answer_too_early_are_caught() {
    writers_are_caught::<DashEh<u64, u64, Sim>>("dash/insert.rs");
    writers_are_caught::<DashLh<u64, u64, Sim>>("dash/insert.rs");
    writers_are_caught::<Iceberg<u64, u64, Sim>>("iceberg/locked.rs");
}

/// Batches insert and remove while two threads clear the table. In a former version, a writer updated the count only
/// after it had released its locks, when a second `clear` had already reset the count. `len` was wrong from then on (in
/// one DashEH table of a hundred).
macro_rules! count_beside_clears {
    ($table:ty, $rounds:expr) => {{
        let add = |table: &$table, first: u64| -> icefield::Result<()> {
            for n in 0..40 {
                let keys: Vec<u64> = (first..first + 20).collect();
                let pairs: Vec<(u64, u64)> = keys.iter().map(|&key| (key, n)).collect();
                let (mut former, few) = (vec![None; 20], n as usize % 20);
                table.insert_batch(&pairs, &mut former)?;
                table.remove_batch(&keys[..few], &mut former[..few])?;
            }
            Ok(())
        };
        for _ in 0..$rounds {
            let table = <$table>::options().capacity(64).in_memory()?;
            std::thread::scope(|scope| {
                let writers = [0, 100].map(|first| {
                    scope.spawn({
                        let table = &table;
                        move || add(table, first)
                    })
                });
                let clear = || (0..60).try_for_each(|_| table.clear());
                let clearing = [(); 2].map(|()| scope.spawn(clear));
                writers
                    .into_iter()
                    .chain(clearing)
                    .try_for_each(|done| done.join().expect("no panic"))
            })?;
            assert_eq!(table.len()?, table.iter().count() as u64, "{}", stringify!($table));
        }
    }};
}

#[test]
fn what_writers_count_a_clear_waits_for() -> icefield::Result<()> {
    count_beside_clears!(DashEh<u64, u64>, 600);
    count_beside_clears!(DashLh<u64, u64>, 100);
    count_beside_clears!(Iceberg<u64, u64>, 30);
    count_beside_clears!(Plush<u64, u64>, 100);
    Ok(())
}
