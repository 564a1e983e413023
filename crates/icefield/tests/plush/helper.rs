//! A helper moves records down ahead of the writers.

use std::time::{Duration, Instant};

use icefield::storage::sim::{Sim, SimOptions};
use icefield::{Durability, Plush, Shape};

use super::{Check, TINY, detail};

/// One root entry with room for 256 records. Without a helper, its records begin to leave it with the put that follows
/// number 247, and have left it eight puts later.
const ONE_ENTRY: Shape = Shape {
    root_bits: 0,
    first_bits: 3,
    fan_bits: 4,
    slots: 16,
    log_bits: 0,
    log_chunks: 4,
    log_records: 2048,
};
const NEARLY_FULL: u64 = 244;

/// Number of threads of this process with the helper's name.
fn helpers() -> Result<usize, Box<dyn std::error::Error>> {
    let mut found = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        // A thread may end meanwhile.
        let name = std::fs::read_to_string(thread?.path().join("comm")).unwrap_or_default();
        found += usize::from(name.trim() == "icefield-helper");
    }
    Ok(found)
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The helper empties a root entry that is nearly full, also after it has slept for long.
#[test]
fn a_helper_works_sleeps_and_wakes() -> Check {
    let options = Plush::<u64, u64>::options().shape(ONE_ENTRY).hash_seed([1, 2]);
    let table = options.helper_thread(true).in_memory()?;
    for round in 0..5 {
        if round > 2 {
            // Longer than the helper looks for requests before it sleeps until it is woken.
            std::thread::sleep(Duration::from_millis(100));
        }
        (0..NEARLY_FULL).try_for_each(|key| table.put(round << 32 | key, key))?;
        wait_until("the helper migrates", || detail(&table, "migrations") > round);
        assert_eq!(table.len()?, (round + 1) * NEARLY_FULL);
    }
    Ok(())
}

/// A helper ends with its table. Runs alone in a process, because other tests have helpers, too.
#[test]
fn a_helper_ends_with_its_table() -> Check {
    const ALONE: &str = "ICEFIELD_HELPER_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "plush::helper::a_helper_ends_with_its_table";
        let mut own = std::process::Command::new(std::env::current_exe()?);
        assert!(own.args(["--exact", name]).env(ALONE, "1").status()?.success());
        return Ok(());
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let options = || Plush::<u64, u64>::options().shape(TINY).helper_thread(true);
    let path = directory.path().join("helped.ice");
    let table = options().create(&path)?;
    wait_until("the helper starts", || helpers().is_ok_and(|now| now == 1));
    (0..100).try_for_each(|key| table.put(key, key))?;
    drop(table);
    wait_until("the helper ends", || helpers().is_ok_and(|now| now == 0));
    let table = options().open(&path)?;
    // One that sleeps until it is woken ends, too.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(table.len()?, 100);
    wait_until("the helper starts again", || helpers().is_ok_and(|now| now == 1));
    drop(table);
    wait_until("the helper ends", || helpers().is_ok_and(|now| now == 0));
    let on_disk =
        options().durability(Durability::Disk).create(directory.path().join("disk.ice"))?;
    on_disk.put(1, 1)?;
    assert_eq!(helpers()?, 0);
    Ok(())
}

/// Writers that are faster than the helper take steps themselves. Nothing is lost, and the table may be closed at any
/// time.
#[test]
fn writers_and_a_helper_write_together() -> Check {
    let directory = tempfile::tempdir()?;
    for (number, shape) in [TINY, ONE_ENTRY, Shape::default()].into_iter().enumerate() {
        let path = directory.path().join(format!("{number}.ice"));
        let options = || Plush::<u64, u64>::options().shape(shape).helper_thread(true);
        let keys = if shape == TINY { 600 } else { 30_000 };
        for round in 1..4 {
            let table =
                if round == 1 { options().create(&path)? } else { options().open(&path)? };
            std::thread::scope(|scope| {
                for thread in 0..2_u64 {
                    let table = &table;
                    scope.spawn(move || -> icefield::Result<()> {
                        for first in (0..keys).step_by(20) {
                            for key in first..first + 10 {
                                table.fetch_add(key, 1)?;
                                table.put((thread + 1) << 32 | key, round)?;
                            }
                            let pairs: Vec<_> = (first + 10..first + 20)
                                .map(|key| ((thread + 1) << 32 | key, round))
                                .collect();
                            table.put_batch(&pairs)?;
                        }
                        Ok(())
                    });
                }
            });
            drop(table);
        }
        let table = options().open(&path)?;
        assert!(table.recovery().was_clean);
        for key in 0..keys {
            let counted = (key % 20 < 10).then_some(6);
            assert_eq!(table.get(key)?, counted, "key {key}");
            for thread in 1..3 {
                assert_eq!(table.get(thread << 32 | key)?, Some(3), "key {key}, thread {thread}");
            }
        }
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.records, keys * 5 / 2);
    }
    Ok(())
}

/// Operations on the whole table run beside the helper.
#[test]
fn a_table_with_a_helper_is_cleared_and_shrunk() -> Check {
    let table = Plush::<u64, [u8]>::options().shape(TINY).helper_thread(true).in_memory()?;
    for round in 0..60_u64 {
        for key in 0..200 {
            table.put(key, &round.to_le_bytes().repeat(1 + key as usize % 5))?;
        }
        match round % 4 {
            0 => table.clear()?,
            1 => table.shrink_to_fit()?,
            2 => (0..200).step_by(3).try_for_each(|key| table.delete(key))?,
            _ => table.sync()?,
        }
        let wanted = |key: u64| round % 4 != 0 && (round % 4 != 2 || !key.is_multiple_of(3));
        for key in 0..200 {
            assert_eq!(table.get(key)?.is_some(), wanted(key), "key {key} in round {round}");
        }
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

/// Writers ask for help. Whoever helps in time takes all migrations from them, and a crash at any time loses nothing.
#[test]
fn a_helper_in_time_takes_all_migrations() -> Check {
    for shape in [ONE_ENTRY, Shape { first_bits: 0, ..ONE_ENTRY }] {
        let sim = Sim::new(SimOptions { recording: false, ..SimOptions::default() });
        let options = Plush::<u64, u64>::options().shape(shape).hash_seed([1, 2]);
        let table = options.helped_by_callers().create_on(sim.clone())?;
        let mut helped = 0;
        for key in 0..20_000 {
            let before = detail(&table, "moves");
            table.put(key, key)?;
            assert_eq!(detail(&table, "moves"), before, "key {key}");
            while table.help() {
                helped += 1;
            }
        }
        println!("{helped} times, {:?}", table.stats());
        assert!(helped > 80 && detail(&table, "levels") > 1);
        let options = SimOptions { recording: false, ..SimOptions::default() };
        let again = Plush::<u64, u64>::options().open_on(Sim::from_image(&sim.image(), options))?;
        for table in [&table, &again] {
            assert!(
                (0..20_000).all(|key| matches!(table.get(key), Ok(Some(value)) if value == key))
            );
            assert!(table.check()?.is_clean());
        }
    }
    Ok(())
}

/// Without space, a migration can fail when half of its targets have their records. Records that come afterwards are
/// not lost, and neither are removals.
#[test]
fn a_migration_that_fails_halfway_loses_nothing() -> Check {
    let sixteen = Shape { first_bits: 4, log_records: 512, ..ONE_ENTRY };
    let options = || Plush::<u64, [u8; 64]>::options().hash_seed([1, 2]);
    let least = options().shape(sixteen).create_on(Sim::new(SimOptions::default()))?;
    let least = least.stats().storage_bytes;
    let mut halfway = 0;
    for room in 0..64 {
        let settings =
            |space_bytes| SimOptions { recording: false, space_bytes, ..SimOptions::default() };
        let sim = Sim::new(settings(least + room * 1024));
        let Ok(table) = options().shape(sixteen).helped_by_callers().create_on(sim.clone()) else {
            continue;
        };
        let (mut right, mut failed) = (std::collections::BTreeMap::new(), false);
        // With a few more puts, the writer itself would begin to move the records.
        for key in 0..NEARLY_FULL + 2 {
            if table.put(key, [key as u8; 64]).is_ok() {
                right.insert(key, [key as u8; 64]);
            }
            if failed && key % 3 == 0 {
                table.delete(key / 2)?;
                right.remove(&(key / 2));
            }
            if failed && key % 3 == 1 {
                // May find no space. A record that is hidden now must not be the one that a crash leaves.
                let _ = table.shrink_to_fit();
            }
            while table.help() {}
            failed |= detail(&table, "moves") > 0 && detail(&table, "migrations") == 0;
        }
        halfway += u64::from(failed);
        let crashed = Sim::from_image(&sim.image(), settings(u64::MAX));
        drop(table);
        let closed = Sim::from_image(&sim.image(), settings(u64::MAX));
        for sim in [crashed, closed] {
            let table = options().open_on(sim)?;
            let mut records = table.iter().collect::<Result<Vec<_>, _>>()?;
            records.sort_unstable();
            assert!(records.into_iter().eq(right.clone()), "{room} KiB, halfway: {failed}");
            assert!(table.check()?.is_clean());
        }
    }
    println!("{halfway} migrations failed halfway");
    assert!(halfway > 0);
    Ok(())
}

/// On a disk, migrations run in groups, and writers do not ask for help.
#[test]
fn a_disk_has_no_helper() -> Check {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let options = Plush::<u64, u64>::options().shape(TINY).durability(Durability::Disk);
    let table = options.helped_by_callers().create(directory.path().join("table.ice"))?;
    for key in 0..100 {
        table.put(key, key)?;
        assert!(!table.help());
    }
    assert_eq!(table.len()?, 100);
    Ok(())
}
