//! How Dash tables grow and shrink, in both of their designs: load factors, options, merges, freed space, repeated
//! crashes.

mod dash {
    mod read_only;
    mod scans;
    mod writers;
}

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use icefield::storage::sim::{Sim, SimOptions};
use icefield::{
    Dash, DashEh, DashLh, DashOptions, Directory, Eh, Error, Expansion, Geometry, Lh, Stats,
};
// Its tables are compiled already (record 0108).
use icefield_torture as _;

type Check = Result<(), Box<dyn std::error::Error>>;

const TINY: Geometry = Geometry { buckets: 2, slots: 2, stash: 1 };

fn detail(stats: &Stats, name: &str) -> u64 {
    stats.details.iter().find(|(found, _)| *found == name).map_or(0, |(_, count)| *count)
}

/// Returns the peak, mean and least load while a table grows tenfold, by `batch` records at a time. Chained buckets
/// and allocated but unused segments count as capacity.
fn loads(expansion: Expansion, batch: u64) -> Result<[f64; 3], Error> {
    const RECORDS: u64 = 2_000_000;
    let table = DashLh::<u64, u64>::options().hash_seed([1, 2]).expansion(expansion).in_memory()?;
    let (mut peak, mut least, mut sum, mut samples) = (0.0_f64, 1.0_f64, 0.0, 0.0);
    for first in (0..RECORDS).step_by(1_000) {
        let records: Vec<(u64, u64)> = (first..first + 1_000).map(|key| (key, key)).collect();
        for records in records.chunks(batch as usize) {
            match records {
                [(key, value)] => table.put(*key, *value)?,
                records => table.put_batch(records)?,
            }
        }
        let stats = table.stats();
        let slots = detail(&stats, "slots") + 14 * detail(&stats, "chained_buckets");
        let load = (first + 1_000) as f64 / slots as f64;
        if first >= RECORDS / 10 {
            (peak, least) = (peak.max(load), least.min(load));
            (sum, samples) = (sum + load, samples + 1.0);
        }
    }
    assert!(table.check()?.is_clean());
    let loads = [peak, sum / samples, least];
    println!("{expansion:?}, {batch} at a time: peak, mean, least {loads:.3?}");
    Ok(loads)
}

#[test]
fn linear_hashing_keeps_its_slots_in_use() -> Check {
    // A batch uses the stash before it displaces records. When a segment has no room left, `rebalance_stash` makes up
    // for this: it moves stashed records home, and displaces others where that helps, before the table grows.
    for batch in [1, 1_000] {
        let [peak, mean, least] = loads(Expansion::ChainedBucket, batch)?;
        assert!(peak >= 0.85 && mean >= 0.65 && least >= 0.45, "{peak} {mean} {least}");
    }
    let [peak, mean, _] = loads(Expansion::Load { percent: 80 }, 1_000)?;
    assert!(peak <= 0.9 && mean >= 0.65, "{peak} {mean}");
    Ok(())
}

#[test]
fn impossible_shapes_are_refused() {
    let options = || DashLh::<u64, u64>::options().geometry(TINY);
    let shapes = [
        options().first_array(3),
        options().first_array(0),
        options().first_array(1 << 13),
        options().stride(6),
        options().stride(128),
        options().expansion(Expansion::Load { percent: 0 }),
        options().expansion(Expansion::Load { percent: 101 }),
    ];
    for options in shapes {
        assert!(matches!(options.in_memory(), Err(Error::InvalidOption { .. })));
    }
}

#[test]
fn a_table_remembers_its_shape() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let options = DashLh::<u64, u64>::options().geometry(TINY).first_array(2).stride(1);
    let table = options.expansion(Expansion::Load { percent: 60 }).create(&path)?;
    for key in 0..500 {
        table.put(key, key)?;
    }
    let before = detail(&table.stats(), "segments_in_use");
    drop(table);
    let table = DashLh::<u64, u64>::open(&path)?;
    assert_eq!(detail(&table.stats(), "segments_in_use"), before);
    for key in 500..1_000 {
        table.put(key, key)?;
    }
    println!("{:?}", table.stats());
    assert_eq!(table.iter().count(), 1_000);
    assert!(table.check()?.is_clean());
    assert!(matches!(DashEh::<u64, u64>::open(&path), Err(Error::Locked { .. })));
    drop(table);
    assert!(matches!(DashEh::<u64, u64>::open(&path), Err(Error::TypeMismatch { .. })));
    Ok(())
}

fn cleared_tables_start_anew<P: Directory>(options: DashOptions<u64, u64, P>) -> Check {
    let table = options.geometry(TINY).in_memory()?;
    for round in 0..5_u64 {
        for key in 0..400 {
            assert_eq!(table.insert(key, round)?, None, "key {key} of round {round}");
        }
        for key in 0..400 {
            assert_eq!(table.get(key)?, Some(round));
        }
        assert!(table.check()?.is_clean());
        table.clear()?;
        assert_eq!((table.len()?, table.get(7)?), (0, None));
        assert!(table.check()?.is_clean());
    }
    Ok(())
}

#[test]
fn generations_take_turns() -> Check {
    cleared_tables_start_anew(DashEh::<u64, u64>::options())?;
    cleared_tables_start_anew(DashLh::<u64, u64>::options().first_array(1).stride(1))?;
    cleared_tables_start_anew(DashLh::<u64, u64>::options().first_array(4).stride(2))
}

/// Grows and shrinks a table repeatedly. Reserved capacity must stay.
fn breathes<P: Directory>(options: DashOptions<u64, u64, P>) -> Check {
    let table = options.in_memory()?;
    let mut merges = 0;
    for round in 0..4 {
        for key in 0..20_000 {
            table.put(key, key)?;
        }
        for key in (0..20_000).filter(|key| key % 16 != round) {
            assert_eq!(table.remove(key)?, Some(key));
        }
        let now = detail(&table.stats(), "merges");
        assert!(now > merges, "{:?}", table.stats());
        table.shrink_to_fit()?;
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
        for key in 0..20_000 {
            assert_eq!(table.get(key)?, (key % 16 == round).then_some(key));
        }
        merges = detail(&table.stats(), "merges");
    }
    println!("{:?}", table.stats());
    table.clear()?;
    table.reserve(100_000)?;
    let reserved = table.capacity();
    for key in 0..1_000 {
        table.put(key, key)?;
    }
    for key in 0..1_000 {
        table.delete(key)?;
    }
    assert!(table.capacity() >= reserved, "{} {reserved}", table.capacity());
    Ok(())
}

#[test]
fn tables_become_smaller_by_themselves() -> Check {
    let geometry = Geometry { buckets: 8, slots: 14, stash: 2 };
    breathes(DashEh::<u64, u64>::options().geometry(geometry))?;
    breathes(DashLh::<u64, u64>::options().geometry(geometry).first_array(2).stride(2))
}

/// Returns the allocated bytes of a table's files.
fn allocated(path: &Path) -> Result<u64, std::io::Error> {
    let mut bytes = 0;
    for file in std::fs::read_dir(path)? {
        bytes += file?.metadata()?.blocks() * 512;
    }
    Ok(bytes)
}

/// Removes most records during reads, and checks that the file system gets their space back.
fn gives_back<P: Directory>(options: DashOptions<u64, u64, P>, records: u64) -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let table: Dash<u64, u64, P> = options.create(&path)?;
    let all: Vec<(u64, u64)> = (0..records).map(|key| (key, key)).collect();
    table.put_batch(&all)?;
    let peak = allocated(&path)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Check {
        let reader = scope.spawn(|| {
            let mut reads = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let key = reads * 7_919 % (records / 10) * 10;
                assert_eq!(table.get(key).expect("readable"), Some(key));
                reads += 1;
            }
            reads
        });
        let gone: Vec<u64> = (0..records).filter(|key| key % 10 != 0).collect();
        for keys in gone.chunks(1_000) {
            let mut removed = vec![None; keys.len()];
            table.remove_batch(keys, &mut removed)?;
            assert!(removed.iter().zip(keys).all(|(value, key)| *value == Some(*key)));
        }
        // A reader that is suspended inside a read delays the freeing. Then a later call frees the space.
        let deadline = Instant::now() + Duration::from_secs(20);
        let by_itself = loop {
            let bytes = allocated(&path)?;
            if bytes < peak || Instant::now() > deadline {
                break bytes;
            }
            std::thread::sleep(Duration::from_millis(1));
            table.put(0, 0)?;
        };
        table.shrink_to_fit()?;
        stop.store(true, Ordering::Relaxed);
        let reads = reader.join().map_err(|_| "the reader panicked")?;
        // A reader that was suspended inside a read may have delayed the freeing of some space.
        table.shrink_to_fit()?;
        let left = allocated(&path)?;
        println!(
            "{}: {left} bytes left of {peak} ({:.3}), {by_itself} before being asked; {reads} reads",
            P::DESIGN,
            left as f64 / peak as f64
        );
        assert!(left * 4 <= peak && by_itself < peak);
        assert!(reads > 1_000);
        Ok(())
    })?;
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    drop(table);
    let table = DashOptions::<u64, u64, P>::default().open(&path)?;
    assert_eq!((table.len()?, table.iter().count() as u64), (records / 10, records / 10));
    // Freed space can be used again.
    table.put_batch(&all)?;
    assert!(table.check()?.is_clean());
    Ok(())
}

#[test]
fn the_file_system_gets_space_back() -> Check {
    gives_back(DashEh::<u64, u64>::options(), 400_000)?;
    gives_back(DashLh::<u64, u64>::options().first_array(16), 400_000)
}

/// Runs sessions that insert and remove a few records, shrink or grow the table, and crash.
fn crashes_in_a_row<P: Directory>(options: DashOptions<u64, u64, P>) -> Check {
    const CRASHES: u64 = 600;
    let small = SimOptions { recording: false, ..SimOptions::default() };
    let sim = Sim::new(small.clone());
    let mut image = sim.image();
    let mut keys = std::collections::BTreeSet::new();
    for crash in 0..CRASHES {
        let sim = Sim::from_image(&image, SimOptions { seed: crash, ..small.clone() });
        let table = if crash == 0 {
            options.clone().geometry(TINY).max_bytes(1 << 23).create_on(sim.clone())?
        } else {
            options.clone().max_bytes(1 << 23).open_on(sim.clone())?
        };
        for key in crash..crash + 8 {
            assert_eq!(table.insert(key, key)?.is_none(), keys.insert(key));
        }
        if crash % 50 > 25 {
            for _ in 0..14 {
                let Some(key) = keys.pop_first() else { break };
                assert_eq!(table.remove(key)?, Some(key));
            }
        }
        if crash % 60 == 7 {
            table.shrink_to_fit()?;
        }
        if crash % 20 == 0 {
            assert!(table.check()?.is_clean(), "after crash {crash}");
            assert_eq!(table.len()?, keys.len() as u64);
        }
        image = sim.image();
    }
    println!("{}: {CRASHES} crashes, {} records left", P::DESIGN, keys.len());
    Ok(())
}

#[test]
fn hundreds_of_crashes_change_nothing() -> Check {
    crashes_in_a_row::<Eh>(DashEh::<u64, u64>::options())?;
    crashes_in_a_row::<Lh>(DashLh::<u64, u64>::options().first_array(2).stride(2))
}
