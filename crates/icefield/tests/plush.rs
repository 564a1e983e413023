//! Plush end to end: words, wide records and bytes, every key and value, levels, reopening, equal hashes, batches,
//! threads.

mod plush {
    mod full_logs;
    mod helper;
    mod payloads;
    mod ranges;
    mod space;
    mod sync;
    mod wakers;
    mod wide;

    use super::{Check, TINY, detail};
}

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use icefield::base::hash::HashKind;
use icefield::storage::Medium;
use icefield::storage::sim::{Pick, Sim, SimOptions};
use icefield::{Error, Occupied, Plush, Shape, Value};
use icefield_torture::rng::mix;

type Check = Result<(), Box<dyn std::error::Error>>;

const TINY: Shape = Shape {
    root_bits: 1,
    first_bits: 0,
    fan_bits: 1,
    slots: 2,
    log_bits: 0,
    log_chunks: 2,
    log_records: 8,
};

#[test]
fn words_sink_through_the_levels_and_stay() -> Check {
    for shape in [Shape::default(), TINY] {
        let table = Plush::<u64, u64>::options().shape(shape).in_memory()?;
        let keys = if shape == TINY { 5_000 } else { 200_000 };
        for key in 0..keys {
            table.put(key, key * 3)?;
        }
        for key in 0..keys {
            assert_eq!(table.get(key)?, Some(key * 3), "key {key}");
        }
        assert_eq!(table.try_insert(7, 0)?, Err(Occupied(21)));
        assert_eq!(table.get(keys)?, None);
        assert_eq!(table.len()?, keys);
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
        for key in (0..keys).step_by(2) {
            assert_eq!(table.remove(key)?, Some(key * 3));
        }
        assert_eq!(table.iter().count() as u64, keys / 2);
        println!("{:?}", table.stats());
        table.clear()?;
        assert_eq!(table.len()?, 0);
        assert_eq!(table.insert(1, 1)?, None);
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

#[test]
fn every_key_and_every_value_can_be_stored() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let edges = [0, 1, 2, 0x80, 1 << 63, u64::MAX - 1, u64::MAX];
    let table = Plush::<u64, u64>::options().shape(TINY).create(&path)?;
    for key in edges {
        for value in edges {
            table.put(key, value)?;
            assert_eq!(table.get(key)?, Some(value));
        }
        assert_eq!(table.remove(key)?, Some(u64::MAX));
        assert_eq!((table.get(key)?, table.remove(key)?), (None, None));
        assert_eq!(table.try_insert(key, !key)?, Ok(()));
        assert_eq!(table.try_insert(key, 5)?, Err(Occupied(!key)));
        assert_eq!(table.update(key, key)?, Some(!key));
    }
    assert!(table.check()?.is_clean());
    drop(table);
    let table = Plush::<u64, u64>::open(&path)?;
    assert_eq!(table.len()?, edges.len() as u64);
    let mut records = table.iter().collect::<Result<Vec<_>, _>>()?;
    records.sort_unstable();
    assert_eq!(records, edges.map(|key| (key, key)));
    table.clear()?;
    assert_eq!(table.get(0)?, None);
    Ok(())
}

#[test]
fn equal_hashes_continue_their_entry() -> Check {
    for shape in [TINY, Shape::default()] {
        let table =
            Plush::<u64, u64>::options().shape(shape).hash(HashKind::Constant).in_memory()?;
        let keys = if shape == TINY { 500 } else { 4_000 };
        for round in 0..2 {
            for key in 0..keys {
                table.put(key, key + round)?;
            }
        }
        for key in (0..keys).step_by(7) {
            assert_eq!(table.get(key)?, Some(key + 1));
        }
        assert_eq!(table.get(keys)?, None);
        assert!(table.stats().storage_bytes < 16 << 20, "{:?}", table.stats());
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.records, keys);
        for key in 0..keys {
            assert_eq!(table.remove(key)?, Some(key + 1));
        }
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

/// Unlimited updates and removals take bounded space.
#[test]
fn stale_records_take_bounded_space() -> Check {
    let table = Plush::<u64, u64>::options().shape(TINY).in_memory()?;
    for round in 0..200 {
        for key in 0..100 {
            table.put(key, round)?;
        }
    }
    let bytes = table.stats().storage_bytes;
    for round in 0..2_000 {
        for key in 0..100 {
            table.put(key, round)?;
        }
    }
    println!("{:?}", table.stats());
    assert!(table.stats().storage_bytes <= bytes * 2, "{bytes} {:?}", table.stats());
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

/// Between one new level and the next, updates take about three times the space of the records. In this test the factor
/// is a little larger, because files grow by an eighth at a time.
#[test]
fn updates_take_bounded_space_at_every_stage() -> Check {
    let shape = Shape { root_bits: 2, log_bits: 0, log_records: 1 << 10, ..Shape::default() };
    let table = Plush::<u64, u64>::options().shape(shape).hash_seed([1, 2]).in_memory()?;
    let mut over_data = Vec::new();
    for records in [40_000_u64, 80_000, 160_000, 320_000] {
        for round in 0..4 {
            let pairs: Vec<_> = (0..records).map(|key| (key, round)).collect();
            table.put_batch(&pairs)?;
        }
        over_data.push(table.stats().storage_bytes as f64 / (16 * records) as f64);
    }
    let mean = over_data.iter().sum::<f64>() / over_data.len() as f64;
    println!("bytes over bytes of records {over_data:.2?}, mean {mean:.2}; {:?}", table.stats());
    assert!(mean <= 3.5 && over_data.iter().all(|&ratio| ratio <= 5.5));
    let report = table.check()?;
    assert!(report.is_clean() && report.records == 320_000, "{report:?}");
    Ok(())
}

/// The file of the levels grows before a level is added, so that no single put has to allocate the level's whole space.
#[test]
fn a_level_to_come_has_its_room_ahead() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("growing.ice");
    let table = Plush::<u64, u64>::options().hash_seed([1, 2]).create(&path)?;
    let look = || -> Result<_, std::io::Error> {
        Ok((detail(&table, "levels"), std::fs::metadata(path.join("levels.ice"))?.len()))
    };
    let mut added = 0;
    let (mut levels, mut bytes) = look()?;
    for key in 0..200_000 {
        table.put(key, key)?;
        let now = look()?;
        if now.0 > levels {
            assert_eq!(now.1, bytes, "the put of key {key}, which added level {}", now.0);
            added += 1;
        }
        (levels, bytes) = now;
    }
    println!("{added} levels added, {bytes} bytes");
    assert!(added > 0);
    Ok(())
}

/// Stale records fill the last level as new ones do, but no level is added for them.
#[test]
fn updates_make_no_room_for_a_level() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("updated.ice");
    let table = Plush::<u64, u64>::options().capacity(1024).hash_seed([1, 2]).create(&path)?;
    let bytes = || std::fs::metadata(path.join("levels.ice")).map(|file| file.len());
    for records in [125_000, 250_000] {
        let pairs: Vec<_> = (0..records).map(|n| (mix(n), n)).collect();
        table.put_batch(&pairs)?;
        let (before, levels) = (bytes()?, detail(&table, "levels"));
        for _ in 0..4 {
            table.put_batch(&pairs)?;
        }
        println!("{records} records in {levels} levels: {before} bytes");
        assert_eq!((bytes()?, detail(&table, "levels")), (before, levels));
    }
    Ok(())
}

/// A crash can lose records that were put without a log, but only those put after the last checkpoint, migration or
/// clean shutdown.
#[test]
fn unlogged_records_are_durable_after_a_checkpoint() -> Check {
    let mut lost = 0;
    for seed in 0..40 {
        let sim = Sim::new(SimOptions { seed, ..SimOptions::default() });
        let table = Plush::<u64, u64>::options().shape(TINY).create_on(sim.clone())?;
        for key in 0..20 {
            table.put(key, 1)?;
            table.put_unlogged(key, 2)?;
        }
        table.checkpoint(2)?;
        for key in 0..5 {
            table.put_unlogged(key, 3)?;
        }
        table.put(5, 4)?;
        let mut image = sim.image();
        sim.crash_point(|point| point.space().image(Pick::AllOld, &mut image));
        let again =
            Plush::<u64, u64>::options().open_on(Sim::from_image(&image, SimOptions::default()))?;
        for key in 0..20 {
            let value = again.get(key)?;
            match key {
                0..5 => assert!(value == Some(2) || value == Some(3), "key {key}: {value:?}"),
                5 => assert_eq!(value, Some(4)),
                _ => assert_eq!(value, Some(2), "key {key}"),
            }
            lost += u64::from(value == Some(2) && key < 5);
        }
        assert!(again.check()?.is_clean());
        drop(table);
        let closed = Sim::from_image(&sim.image(), SimOptions::default());
        let closed = Plush::<u64, u64>::options().open_on(closed)?;
        assert_eq!((closed.get(0)?, closed.get(19)?), (Some(3), Some(2)));
    }
    println!("{lost} unlogged records were lost, as they may");
    assert!(lost > 0);
    Ok(())
}

/// The estimate of the record count continues from its value at the clean shutdown. After a crash it comes from a
/// sample, so that `reserve` does not start from 0.
#[test]
fn the_estimate_outlives_its_session() -> Check {
    let options = || SimOptions { recording: false, ..SimOptions::default() };
    let sim = Sim::new(options());
    let table = Plush::<u64, u64>::options().hash_seed([1, 2]).create_on(sim.clone())?;
    let keys = 100_000;
    for key in 0..keys {
        table.put(key, key)?;
    }
    let crashed = Sim::from_image(&sim.image(), options());
    let crashed = Plush::<u64, u64>::options().open_on(crashed)?;
    crashed.put(keys, 0)?;
    let sampled = crashed.stats().len_estimate;
    println!("{sampled} of {keys}");
    assert!(sampled.abs_diff(keys) < keys / 5);
    drop(table);
    let closed = Sim::from_image(&sim.image(), options());
    let closed = Plush::<u64, u64>::options().open_on(closed)?;
    closed.put(keys, 0)?;
    assert_eq!(closed.stats().len_estimate, keys + 1);
    Ok(())
}

/// Logs of three megabytes are replayed by all threads.
#[test]
fn long_logs_are_replayed_together() -> Check {
    let shape = Shape { root_bits: 8, log_chunks: 2, log_records: 1 << 14, ..Shape::default() };
    let options = SimOptions {
        counting: true,
        recording: false,
        region_bytes: 64 << 20,
        space_bytes: 64 << 20,
        ..SimOptions::default()
    };
    let sim = Sim::new(options.clone());
    let table = Plush::<u64, u64>::options().shape(shape).create_on(sim.clone())?;
    for key in 0..60_000 {
        table.put(key % 50_000, key)?;
    }
    let again = Plush::<u64, u64>::options().open_on(Sim::from_image(&sim.image(), options))?;
    assert!(!again.recovery().was_clean);
    for key in 0..50_000 {
        let newest = if key < 10_000 { key + 50_000 } else { key };
        assert_eq!(again.get(key)?, Some(newest), "key {key}");
    }
    let report = again.check()?;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.records, 50_000);
    Ok(())
}

#[test]
fn shrinking_drops_what_is_stale() -> Check {
    let table = Plush::<u64, u64>::options().shape(TINY).in_memory()?;
    table.bulk_load((0..1_000).map(|key| (key, key)))?;
    table.retain(|key, _| key % 10 == 0)?;
    table.shrink_to_fit()?;
    assert_eq!(table.len()?, 100);
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    table.reserve(1_200)?;
    assert!(table.capacity() >= 1_300, "{:?}", table.stats());
    assert_eq!(table.iter().count(), 100);
    Ok(())
}

/// Records in no log are made durable while another thread drops levels.
#[test]
fn a_sync_beside_a_table_that_shrinks_loses_nothing() -> Check {
    let table = Plush::<u64, u64>::options().shape(TINY).in_memory()?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| -> Check {
        let shrinking = scope.spawn(|| -> Result<(), icefield::Error> {
            while !done.load(Acquire) {
                table.shrink_to_fit()?;
            }
            Ok(())
        });
        let written = (0..40_u64).try_for_each(|round| {
            // Enough for a second level, most of it removed again.
            (0..400).try_for_each(|key| table.put_unlogged(key, round))?;
            table.sync()?;
            (40..400).try_for_each(|key| table.delete(key))?;
            (0..40).try_for_each(|key| table.put_unlogged(key, round + 1))?;
            table.sync()
        });
        done.store(true, Release);
        shrinking.join().expect("no panic")?;
        Ok(written?)
    })?;
    for key in 0..400 {
        assert_eq!(table.get(key)?, (key < 40).then_some(40), "key {key}");
    }
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

/// Puts `writes` records. Returns the numbers of writes that moved no record, 1 to 64 records, and more than 64; and
/// the number of writes that started more than one migration.
fn writes_by_moves(
    table: &Plush<u64, u64>,
    writes: u64,
) -> Result<([u64; 3], u64), Box<dyn std::error::Error>> {
    let mut writes_by_moves = [0_u64; 3];
    let mut cascades = 0;
    let mut before = [0; 2];
    for key in 0..writes {
        table.put(key, key)?;
        let now = ["moves", "migrations"].map(|name| detail(table, name));
        writes_by_moves[(now[0] - before[0]).div_ceil(64).min(2) as usize] += 1;
        cascades += u64::from(now[1] - before[1] > 1);
        before = now;
    }
    println!("{:?}", table.stats());
    println!("writes by moves: {writes_by_moves:?}, cascades: {cascades}");
    Ok((writes_by_moves, cascades))
}

fn detail<V: Value + ?Sized, M: Medium>(table: &Plush<u64, V, M>, name: &str) -> u64 {
    let stats = table.stats();
    stats.details.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
}

/// Migrations are done in steps, one per write, and not in one piece or in cascades through the levels.
#[test]
fn a_write_takes_a_part_of_a_migration() -> Check {
    let shape = Shape { root_bits: 0, log_bits: 0, log_records: 1 << 10, ..Shape::default() };
    let table = Plush::<u64, u64>::options().shape(shape).hash_seed([1, 2]).in_memory()?;
    let (writes_by_moves, cascades) = writes_by_moves(&table, 300_000)?;
    assert_eq!(detail(&table, "levels"), 4);
    // A write moves more than 64 records if the source entry has a chain, or if few writes are left before the space is
    // needed.
    assert!(writes_by_moves[1] > 20_000 && writes_by_moves[2] <= 900 && cascades <= 10);
    Ok(())
}

/// The table has one level, each record moves once, and no write moves many records.
#[test]
fn a_table_that_was_made_for_its_records_moves_them_once() -> Check {
    let options = Plush::<u64, u64>::options().capacity(130_000).hash_seed([1, 2]);
    let table = options.in_memory()?;
    let (writes_by_moves, cascades) = writes_by_moves(&table, 130_000)?;
    let [levels, moves] = ["levels", "moves"].map(|name| detail(&table, name));
    assert_eq!(levels, 1);
    assert!((114_000..=130_000).contains(&moves), "{moves}");
    assert!(writes_by_moves[1] > 3_500 && writes_by_moves[2] + cascades == 0);
    for key in 0..130_000 {
        assert_eq!(table.get(key)?, Some(key));
    }
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

/// While a root entry's records are migrating, all of them and those added since are present; after a `clear`, none
/// is.
#[test]
fn records_may_depart_while_others_come_and_all_are_cleared() -> Check {
    let shape = Shape { root_bits: 0, first_bits: 3, log_bits: 0, ..Shape::default() };
    let options = Plush::<u64, u64>::options().shape(shape).hash_seed([1, 2]);
    let mut departing = 0;
    for keys in 240..270 {
        let sim = Sim::new(SimOptions { recording: false, ..SimOptions::default() });
        let table = options.clone().create_on(sim.clone())?;
        (0..keys).try_for_each(|key| table.put(key, key))?;
        // The table is still open, so the image is that of a crash.
        let options = SimOptions { recording: false, ..SimOptions::default() };
        let reopened =
            Plush::<u64, u64>::options().open_on(Sim::from_image(&sim.image(), options))?;
        for table in [&table, &reopened] {
            for round in 0..2 {
                assert_eq!(table.len()?, keys);
                assert!(
                    (0..keys).all(|key| matches!(table.get(key), Ok(Some(value)) if value == key))
                );
                assert!(table.check()?.is_clean());
                departing += u64::from((1..keys).contains(&detail(table, "moves")));
                table.clear()?;
                assert_eq!((table.len()?, table.get(3)?), (0, None));
                // The first puts are of other keys than those that have just migrated.
                (0..keys).rev().skip(round).try_for_each(|key| table.put(key, key))?;
                (0..keys).try_for_each(|key| table.put(key, key))?;
            }
        }
    }
    println!("{departing} tables were looked at while records departed");
    assert!(departing >= 20);
    Ok(())
}

/// The counter of log epochs wraps around, within sessions and after crashes between them.
#[test]
fn log_epochs_wrap_around() -> Check {
    let mut wraps = 0;
    for first in [(1 << 48) - 40, (1 << 20) - 40] {
        for first_bits in [0, 1, 2] {
            let shape = Shape { first_bits, log_records: 16, ..TINY };
            let options = Plush::<u64, u64>::options().shape(shape).first_epoch(first);
            let mut sim = Sim::new(SimOptions { recording: false, ..SimOptions::default() });
            let mut table = options.create_on(sim.clone())?;
            for round in 0..60 {
                for key in 0..20 {
                    table.put((key * 7 + round) % 50, round)?;
                }
                // The table is not closed, so the image is that of a crash.
                let image = sim.image();
                sim = Sim::from_image(
                    &image,
                    SimOptions { recording: false, ..SimOptions::default() },
                );
                table = Plush::<u64, u64>::options().open_on(sim.clone())?;
                for key in 0..20 {
                    assert_eq!(table.get((key * 7 + round) % 50)?, Some(round));
                }
                let report = table.check()?;
                assert!(report.is_clean(), "{report:?}");
            }
            let stats = table.stats();
            println!("{first:#x}, {first_bits}: {stats:?}");
            wraps += 1;
        }
    }
    assert_eq!(wraps, 6);
    Ok(())
}

#[test]
fn threads_write_together() -> Check {
    for shape in [TINY, Shape::default()] {
        let table = Plush::<u64, u64>::options().shape(shape).in_memory()?;
        let keys = if shape == TINY { 500 } else { 20_000 };
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let table = &table;
                scope.spawn(move || -> icefield::Result<()> {
                    for key in 0..keys {
                        table.fetch_add(key, 1)?;
                        table.put((thread + 1) * 1_000_000 + key, key)?;
                    }
                    Ok(())
                });
            }
        });
        for key in 0..keys {
            assert_eq!(table.get(key)?, Some(3), "key {key}");
        }
        assert_eq!(table.len()?, keys * 4);
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

#[test]
fn reopens_after_closing_and_after_forgetting() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let table = Plush::<str, u64>::create(&path)?;
    for n in 0..30_000 {
        table.put(&format!("key {n}"), n)?;
    }
    assert!(
        matches!(Plush::<str, u64>::open(&path), Err(Error::Locked { pid, .. }) if pid == std::process::id())
    );
    drop(table);
    assert!(matches!(Plush::<u64, u64>::open(&path), Err(Error::TypeMismatch { .. })));
    let reader = Plush::<str, u64>::open_read_only(&path)?;
    let another = Plush::<str, u64>::open_read_only(&path)?;
    assert_eq!(reader.get("key 77")?, Some(77));
    assert_eq!(another.iter().count(), 30_000);
    assert!(matches!(reader.put("x", 1), Err(Error::ReadOnly)));
    drop((reader, another));
    let table = Plush::<str, u64>::open(&path)?;
    assert!(table.recovery().was_clean);
    assert_eq!(table.len()?, 30_000);
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    let copy = directory.path().join("copy.ice");
    table.backup(&copy)?;
    assert_eq!(Plush::<str, u64>::open(&copy)?.len()?, 30_000);
    let rescued = directory.path().join("rescued.ice");
    assert_eq!(table.salvage(&rescued)?.records, 30_000);
    assert_eq!(Plush::<str, u64>::open(&rescued)?.get("key 2999")?, Some(2_999));
    Ok(())
}
