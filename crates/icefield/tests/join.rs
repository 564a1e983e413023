//! The join index: results, persistence, costs.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use icefield::storage::sim::{Model, Pool, Sim, SimOptions};
use icefield::{Durability, Error, JoinIndex, JoinSource, MergeKind, OnFull};
use icefield_torture::crash::CrashOptions;
use icefield_torture::kill::ORDERS_VARIABLE;
use icefield_torture::rng::mix;
use icefield_torture::scratch::Scratch;
use icefield_torture::timed::within;
use icefield_torture::{Failure, join};

#[path = "join/beside.rs"]
mod beside;
#[path = "join/bytes.rs"]
mod bytes;
#[path = "join/many.rs"]
mod many;
#[path = "join/options.rs"]
mod options;
#[path = "join/snapshot.rs"]
mod snapshot;
#[path = "join/threads.rs"]
mod threads;

fn shown<T>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn histories_agree_with_a_list_of_pairs() {
    let (pool, scratch) = (Pool::default(), Scratch::new().expect("a scratch directory"));
    let mut counts = join::ModelCounts::default();
    for seed in 0..120_u64 {
        let model = if seed.is_multiple_of(2) { Model::Pmem } else { Model::Disk };
        counts.add(shown(join::model_simulated(seed, 200, model, &pool)));
    }
    for seed in 0..40 {
        counts.add(shown(join::model_in_files(seed, 200, &scratch.path().join("index"))));
    }
    println!("{counts:?}");
    assert!(counts.histories == 160 && counts.merges > 1000 && counts.reopens > 500, "{counts:?}");
}

#[test]
fn every_crash_image_opens_as_before_or_after() {
    for model in [Model::Pmem, Model::Disk] {
        let report = join::crash(&CrashOptions { model, ..CrashOptions::default() });
        println!("{model:?}: {} histories, {} images", report.histories, report.states);
        assert_eq!(report.violations, 0, "{}", report.first.expect("a violation"));
    }
}

#[test]
fn what_threads_have_built_and_merged_survives() {
    for (seed, model) in [(1, Model::Pmem), (2, Model::Disk)] {
        let images = join::crash_large(seed, &CrashOptions { model, ..CrashOptions::default() });
        assert!(shown(images) > 0);
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for seed in 0..4 {
        let flips = shown(join::every_flip(seed, 11));
        println!("{flips:?}");
        assert!(flips.flipped > 10_000 && flips.failed_probes > 1_000);
    }
}

#[test]
fn every_single_bit_of_a_tiny_index_is_noticed() {
    let flips = shown(join::every_flip(0, 1));
    println!("{flips:?}");
    assert!(flips.flipped > 100_000 && flips.refused > 10_000 && flips.failed_probes > 50_000);
}

#[test]
fn damaged_indexes_do_not_lie() {
    let counts = shown(join::corrupt(1, 3000).and_then(|counts| counts.judged(1)));
    println!("{counts:?}");
    let scratch = Scratch::new().expect("a scratch directory");
    let counts = join::corrupt_files(1, 300, &scratch.path().join("files"));
    println!("{:?}", shown(counts.and_then(|counts| counts.judged(1))));
}

#[test]
fn failing_calls_lose_nothing() {
    let scratch = Scratch::for_syncs().expect("a scratch directory");
    println!("{:?}", shown(join::faults(1, scratch.path()).and_then(|counts| counts.judged(1))));
}

/// The entry of a child process. The next test starts this program again, with orders in an environment variable.
/// Without orders, this test does nothing.
#[test]
fn child_entry() {
    let Some(orders) = std::env::var(ORDERS_VARIABLE).ok() else { return };
    match join::child(&orders) {
        Ok(()) => std::process::exit(0),
        Err(what) => eprintln!("{what}"),
    }
    std::process::exit(1)
}

#[test]
fn killed_children_lose_nothing() {
    let scratch = Scratch::new().expect("a scratch directory");
    let program = std::env::current_exe().expect("the path of this program");
    let command = |orders: &str| {
        let mut command = Command::new(&program);
        command.args(["--exact", "child_entry", "--nocapture", "--test-threads=1"]);
        command.env(ORDERS_VARIABLE, orders);
        command
    };
    let counts = shown(join::kill(1, 104, &scratch.path().join("round"), &command));
    println!("{counts:?}");
    shown(counts.meaningful_in(1, join::KILLED_IN));
}

/// Returns keys without a pattern.
fn keys(range: std::ops::Range<u64>) -> Vec<u64> {
    range.map(mix).collect()
}

#[test]
fn one_key_a_million_times() {
    let keys: Vec<u64> =
        (0..1_200_000_u64).map(|n| if n.is_multiple_of(6) { n } else { u64::MAX }).collect();
    let payloads: Vec<u64> = (0..keys.len() as u64).collect();
    let index = JoinIndex::<u64>::options().threads(2).build_in_memory(&keys, &payloads).unwrap();
    assert_eq!(index.probe_count(&[u64::MAX, 0, 1]).unwrap(), 1_000_001);
    let sum = AtomicU64::new(0);
    let add = |position: usize, payload: u64| {
        assert_eq!(position, 1);
        sum.fetch_add(payload, Ordering::Relaxed);
    };
    index.probe(&[1, u64::MAX], add).unwrap();
    let expected: u64 = (0..1_200_000_u64).filter(|n| !n.is_multiple_of(6)).sum();
    assert_eq!(sum.into_inner(), expected);
    assert!(index.remove_pair(u64::MAX, 1).unwrap());
    assert_eq!(index.remove(u64::MAX).unwrap(), 999_999);
    assert_eq!(index.merge().unwrap().pairs, 200_000);
    assert!(index.check().unwrap().is_clean());
    assert!(index.stats().unwrap().file_bytes < 200_000 * 19);
}

#[test]
fn space_and_open_are_as_promised() {
    let scratch = Scratch::new().expect("a scratch directory");
    let path = scratch.path().join("index");
    let keys = keys(0..1_000_000);
    drop(JoinIndex::build(&path, &keys, &keys).unwrap());
    let bytes: u64 = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    println!("{} bytes a pair", bytes as f64 / 1e6);
    assert!(bytes as f64 <= 18.5e6);
    let index = JoinIndex::<u64>::open(&path).unwrap();
    assert!(index.recovery().was_clean);
    assert_eq!(index.stats().unwrap().dram_bytes, 0);
    assert_eq!(index.probe_count(&keys).unwrap(), 1_000_000);
    assert_eq!(index.anti(&keys).unwrap().count_ones(), 0);
}

#[test]
fn lines_read_are_as_promised() {
    let sim = Sim::new(SimOptions { recording: false, counting: true, ..SimOptions::default() });
    struct Numbers(Vec<u64>);
    impl JoinSource for Numbers {
        fn read(
            &self,
            part: usize,
            parts: usize,
            show: &mut dyn FnMut(&[u64], &[u64]) -> icefield::Result<()>,
        ) -> icefield::Result<()> {
            if part == 0 && parts > 0 { show(&self.0, &self.0) } else { Ok(()) }
        }
    }
    let there = Numbers(keys(0..50_000));
    let options = JoinIndex::<u64>::options().threads(1).hash_seed([7, 8]);
    let index = options.build_on(sim.clone(), &there).unwrap();
    let lines = || sim.counters().line_reads.iter().map(|(_, lines)| lines).sum::<u64>();
    let mean = |keys: &[u64]| {
        let before = lines();
        for &key in keys {
            sim.begin_op();
            index.probe_count(&[key]).unwrap();
        }
        (lines() - before) as f64 / keys.len() as f64
    };
    let (hit, miss) = (mean(&there.0[..5000]), mean(&keys(1_000_000..1_005_000)));
    println!("{hit} lines a hit, {miss} a miss");
    assert!((2.2..=2.6).contains(&hit), "{hit}");
    assert!((1.0..=1.03).contains(&miss), "{miss}");
    let before = sim.counters();
    sim.begin_op();
    index.insert(1, 2).unwrap();
    let after = sim.counters();
    assert_eq!((after.flushes - before.flushes, after.fences - before.fences), (1, 1));
}

#[test]
fn merges_go_on_under_probes() {
    let keys = keys(0..60_000);
    let index = JoinIndex::<u64>::options().threads(2).build_in_memory(&keys, &keys).unwrap();
    let (done, probes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (index, keys, done, probes) = (&index, &keys, &done, &probes);
            scope.spawn(move || {
                // Keys at even positions are inserted and removed; the others are always present, once.
                let odd: Vec<u64> = keys.iter().copied().skip(1 + 2 * part).step_by(4).collect();
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(index.probe_count(&odd).unwrap(), odd.len() as u64);
                    probes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..12 {
            for &key in keys.iter().step_by(120) {
                assert_eq!(index.remove(key).unwrap(), 1);
                index.insert(key, round).unwrap();
            }
            let report = index.merge().unwrap();
            assert_eq!((report.kind, report.pairs), (MergeKind::PerBucket, 60_000));
        }
        done.store(true, Ordering::Relaxed);
    });
    println!("{probes:?} probes");
    assert!(probes.into_inner() > 0);
    assert!(index.check().unwrap().is_clean());
}

#[test]
fn readers_and_one_writer_share_an_index() {
    let scratch = Scratch::new().expect("a scratch directory");
    let path = scratch.path().join("index");
    drop(JoinIndex::build(&path, &[1_u64, 2], &[10, 20]).unwrap());
    let options = JoinIndex::<u64>::options().delta_limit(5).on_full(OnFull::Refuse);
    let [reader, writer, late] = [(); 3].map(|()| options.open(&path).unwrap());
    writer.insert(3, 30).unwrap();
    assert!(matches!(late.insert(4, 40), Err(Error::Locked { .. })));
    // A reader keeps the state that it opened; a new reader has the present state.
    assert_eq!(reader.len(), 2);
    assert_eq!(options.open(&path).unwrap().len(), 3);
    writer.merge().unwrap();
    writer.insert(4, 40).unwrap();
    writer.merge().unwrap();
    assert_eq!(reader.probe_count(&[1, 2, 3, 4]).unwrap(), 2);
    let again = options.open_read_only(&path).unwrap();
    assert_eq!((again.len(), again.generation()), (4, 3));
    drop(writer);
    // The next writer continues from the present state.
    late.insert(5, 50).unwrap();
    assert_eq!((late.len(), late.generation()), (5, 3));
    assert_eq!(late.uuid(), reader.uuid());
}

#[test]
fn empty_sides_and_extreme_keys() {
    let empty = JoinIndex::<i64>::in_memory(&[], &[]).unwrap();
    assert_eq!(empty.probe_count(&[0, -1, i64::MIN]).unwrap(), 0);
    assert_eq!(empty.semi(&[]).unwrap().len(), 0);
    let index = JoinIndex::in_memory(&[i64::MIN, -1, 0, i64::MAX, -1], &[1, 2, 3, 4, 5]).unwrap();
    assert_eq!(index.probe_count(&[-1, i64::MIN, i64::MAX, 0, 1]).unwrap(), 5);
    assert_eq!(index.probe_count(&[]).unwrap(), 0);
    let durable = JoinIndex::<u64>::options().durability(Durability::PmemForced);
    let index = durable.build_in_memory(&[0, u64::MAX], &[u64::MAX, 0]).unwrap();
    assert_eq!(index.probe_count(&[u64::MAX, 0, u64::MAX]).unwrap(), 3);
}

#[test]
fn without_a_filter_and_with_much_of_it() {
    let there = keys(0..30_000);
    let probes = keys(15_000..90_000);
    for bits in [0, 2, 8, 64] {
        let options = JoinIndex::<u64>::options().filter_bits_per_key(bits).threads(2);
        let index = options.build_in_memory(&there, &there).unwrap();
        assert_eq!(index.probe_count(&probes).unwrap(), 15_000, "{bits} bits");
        // Most keys pass the filter, so probes stop using it.
        assert_eq!(index.probe_count(&there.repeat(4)).unwrap(), 120_000, "{bits} bits");
    }
}

/// Closures run without a lock held, so they may change the index that they are called for.
#[test]
fn closures_may_change_the_index() {
    let done = within(Duration::from_secs(60), || -> icefield::Result<u64> {
        let keys: Vec<u64> = (0..500).map(|n| n % 100).collect();
        let index = JoinIndex::in_memory(&keys, &keys)?;
        let change = |key| {
            index.insert(key, key).expect("insert");
            index.remove_pair(key, key).expect("remove_pair");
            index.insert(1_000 + key, key).expect("insert");
            assert!(index.probe_count(&[key]).expect("probe") > 0);
        };
        for round in 0..3 {
            let mut shown = 0;
            index.for_each(|key, _| {
                shown += 1;
                if shown % 50 == 0 {
                    change(key % 100);
                }
            })?;
            index.probe(&[1, 2, 3], |position, _| {
                change(position as u64 + round);
                if position == 2 {
                    index.merge().expect("merge");
                }
            })?;
        }
        Ok(index.len())
    });
    let len = done.expect("it ends").expect("it works");
    assert!(len > 500, "{len}");
}
