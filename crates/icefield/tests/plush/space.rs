//! Space in long use: stale records are reclaimed, the space of removed records is returned to the file system, and
//! removals need no space.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use icefield::storage::sim::{
    CrashPoint, Image, Model, Mutation, Pick, Sim, SimOptions, SiteKind, SiteLog,
};
use icefield::{Error, Plush, Shape};
use icefield_torture::rng::mix;

use super::{Check, TINY};

/// A table of few entries, so that its constant size is small.
const SMALL: Shape =
    Shape { root_bits: 2, log_bits: 0, log_chunks: 4, log_records: 512, ..DEFAULT };
const DEFAULT: Shape = Shape {
    root_bits: 6,
    first_bits: 0,
    fan_bits: 4,
    slots: 16,
    log_bits: 2,
    log_chunks: 4,
    log_records: 2048,
};
const CONSTANT: u64 = 4 << 20;

fn value(seed: u64) -> Vec<u8> {
    vec![seed as u8; (mix(seed) % 200) as usize + 9]
}

/// Runs `write` while another thread reads records and compares the borrowed bytes with a copy. `write` gets a
/// function that waits for the next read: on a busy machine the reader may be suspended inside a read, and payloads
/// cannot be freed then.
fn beside_a_reader(
    table: &Plush<u64, [u8]>,
    write: impl FnOnce(&dyn Fn()) -> icefield::Result<()>,
) -> Check {
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| -> Check {
        let reader = scope.spawn(|| -> icefield::Result<()> {
            while !done.load(Acquire) {
                let seed = reads.fetch_add(1, Release);
                table.get_with(mix(seed) % 1_000_000, |bytes: &[u8]| {
                    let before = bytes.to_vec();
                    std::thread::yield_now();
                    assert_eq!(bytes, before);
                })?;
            }
            Ok(())
        });
        let written = write(&|| {
            let before = reads.load(Acquire);
            while reads.load(Acquire) == before && !reader.is_finished() {
                std::thread::yield_now();
            }
        });
        done.store(true, Release);
        reader.join().expect("no panic")?;
        Ok(written?)
    })
}

/// Makes two thousand times as many writes as there are records: once with new keys for old ones, once with updates.
#[test]
fn bytes_take_bounded_space() -> Check {
    const LIVE: u64 = 1_000;
    const TURNS: u64 = 2_000;
    for updates in [false, true] {
        let options = Plush::<u64, [u8]>::options().shape(SMALL).blob_chunk_bytes(1 << 13);
        let table = options.in_memory()?;
        beside_a_reader(&table, |wait| {
            for n in 0..LIVE * TURNS {
                if n % 1024 == 0 {
                    wait();
                }
                let key = if updates { mix(n) % LIVE } else { n };
                table.put(key, &value(n))?;
                if !updates && n >= LIVE {
                    table.delete(n - LIVE)?;
                }
            }
            Ok(())
        })?;
        let live = table.len()? * 117;
        let stats = table.stats();
        println!("updates {updates}: {live} bytes live, {stats:?}");
        assert!(stats.storage_bytes <= 4 * live + CONSTANT, "{live} bytes live, {stats:?}");
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

#[test]
fn words_take_bounded_space() -> Check {
    const LIVE: u64 = 20_000;
    for updates in [false, true] {
        let table = Plush::<u64, u64>::options().shape(SMALL).in_memory()?;
        for n in 0..LIVE * 100 {
            let key = if updates { mix(n) % LIVE } else { n };
            table.put(key, n)?;
            if !updates && n >= LIVE {
                table.delete(n - LIVE)?;
            }
        }
        let (live, stats) = (LIVE * 16, table.stats());
        println!("updates {updates}: {stats:?}");
        assert!(stats.storage_bytes <= 4 * live + CONSTANT, "{stats:?}");
    }
    Ok(())
}

/// Returns the bytes that the file system has allocated for a table.
fn space_of(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(path).expect("a table");
    files.map(|file| file.and_then(|file| file.metadata()).expect("a file").blocks() * 512).sum()
}

/// Removes most records and shrinks the table, with a concurrent reader. The table can then be reopened and refilled.
#[test]
fn a_table_shrinks_with_its_records() -> Check {
    const RECORDS: u64 = 60_000;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("t.ice");
    let options = || Plush::<u64, [u8]>::options();
    let table = options().create(&path)?;
    (0..RECORDS).try_for_each(|key| table.put(key, &[key as u8; 300]))?;
    let full = space_of(&path);
    let kept = |key: u64| key.is_multiple_of(14);
    beside_a_reader(&table, |_| {
        (0..RECORDS).filter(|&key| !kept(key)).try_for_each(|key| table.delete(key))?;
        table.shrink_to_fit()
    })?;
    let (live, constant) = (RECORDS / 14 * 308, 6 << 20);
    println!("{live} bytes live, {full} -> {}", space_of(&path));
    assert!(space_of(&path) <= 2 * live + constant, "{full} -> {}", space_of(&path));
    let check = |table: &Plush<u64, [u8]>| -> Check {
        assert_eq!(table.len()?, RECORDS.div_ceil(14));
        for key in 0..RECORDS {
            assert_eq!(table.get(key)?, kept(key).then(|| vec![key as u8; 300]), "key {key}");
        }
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
        Ok(())
    };
    check(&table)?;
    drop(table);
    let table = options().open(&path)?;
    check(&table)?;
    assert!(space_of(&path) <= 2 * live + constant, "opened: {}", space_of(&path));
    (0..RECORDS).try_for_each(|key| table.put(key, &[key as u8; 300]))?;
    assert!(table.check()?.is_clean());
    table.clear()?;
    println!("cleared: {}", space_of(&path));
    assert!(space_of(&path) <= constant, "cleared: {}", space_of(&path));
    table.put(1, b"one")?;
    drop(table);
    assert_eq!(options().open(&path)?.get(1)?, Some(b"one".to_vec()));
    Ok(())
}

/// Sessions with few writes also leave little garbage.
#[test]
fn short_sessions_take_bounded_space() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("t.ice");
    let options = || Plush::<u64, [u8]>::options().shape(TINY).blob_chunk_bytes(1 << 12);
    drop(options().create(&path)?);
    for round in 0..400_u64 {
        let table = options().open(&path)?;
        (0..20).try_for_each(|key| table.put(key, &[round as u8; 100]))?;
    }
    let table = options().open(&path)?;
    assert!(space_of(&path) < 600 << 10, "{}", space_of(&path));
    for key in 0..20 {
        assert_eq!(table.get(key)?, Some(vec![143; 100]));
    }
    Ok(())
}

/// Puts records with ascending keys until one is refused for lack of space. Evaluates to the number of records put.
macro_rules! fill {
    ($table:expr, $from:expr, $value:expr) => {{
        let mut key = $from;
        loop {
            match $table.put(key, $value) {
                Ok(()) => key += 1,
                Err(Error::NoSpace { .. }) => break key - $from,
                Err(error) => return Err(error.into()),
            }
        }
    }};
}

/// Fills a table, removes all records, and refills it until the first put without space, repeatedly. Each time it
/// must hold at least four fifths of the first number of records.
macro_rules! fill_and_empty {
    ($table:ty, $value:expr, $times:expr) => {{
        for batched in [false, true] {
            let options = <$table>::options().max_bytes(5 << 20).hash_seed([1, 7]);
            let table = options.in_memory()?;
            let first = fill!(table, 0, $value);
            let (mut from, mut records) = (0, first);
            for time in 1..=$times {
                for key in (from..from + records).step_by(100) {
                    let end = (from + records).min(key + 100);
                    if batched {
                        let keys: Vec<u64> = (key..end).collect();
                        let mut removed = vec![None; keys.len()];
                        table.remove_batch(&keys, &mut removed)?;
                        assert!(removed.iter().all(Option::is_some), "keys from {key} on");
                    } else {
                        (key..end).try_for_each(|key| table.delete(key))?;
                    }
                }
                assert_eq!(table.len()?, 0);
                let report = table.check()?;
                assert!(report.is_clean(), "{report:?}");
                from = time << 40;
                // The estimate must be near 0, because `len` has left an exact count.
                table.delete(from)?;
                let estimate = table.stats().len_estimate;
                assert!(estimate <= first / 50, "{estimate} records estimated, of {first}");
                records = fill!(table, from, $value);
                println!("{}: {first}, then {records}", stringify!($table));
                assert!(records * 5 >= first * 4, "{first}, then {records}");
                for key in from..from + records {
                    assert!(table.contains(key)?);
                }
            }
            let report = table.check()?;
            assert!(report.is_clean(), "{report:?}");
        }
    }};
}

#[test]
fn a_full_table_removes_and_takes_again() -> Check {
    fill_and_empty!(Plush<u64, u64>, 1, 2);
    fill_and_empty!(Plush<u64, [u8]>, &[9; 100], 4);
    fill_and_empty!(Plush<u64, [u8]>, &[9; 1_000], 5);
    fill_and_empty!(Plush<u64, [u8; 32]>, [9; 32], 2);
    Ok(())
}

/// Uses a new session for each round, in which the chunks that the previous session freed are not known.
#[test]
fn a_full_table_is_opened_and_takes_again() -> Check {
    for len in [100, 1_000] {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("t.ice");
        let options = || Plush::<u64, [u8]>::options().max_bytes(5 << 20).hash_seed([1, 7]);
        let mut table = options().create(&path)?;
        let first = fill!(table, 0, &vec![9; len]);
        let (mut from, mut records) = (0, first);
        for time in 1..5 {
            (from..from + records).try_for_each(|key| table.delete(key))?;
            drop(table);
            table = options().open(&path)?;
            assert_eq!(table.len()?, 0);
            from = time << 40;
            records = fill!(table, from, &vec![9; len]);
            assert!(records * 5 >= first * 4, "{first}, then {records}");
        }
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

/// A table that is largely full takes any number of updates.
macro_rules! fill_and_update {
    ($table:ty, $value:expr, $percent:expr) => {{
        for size in [1, 100] {
            let options = || <$table>::options().max_bytes(5 << 20).hash_seed([1, 7]);
            let table = options().in_memory()?;
            let live = fill!(table, 0, $value) * $percent / 100;
            let table = options().in_memory()?;
            (0..live).try_for_each(|key| table.put(key, $value))?;
            for first in (0..live * 6).step_by(size) {
                if size == 1 {
                    table.put(mix(first) % live, $value)?;
                } else {
                    let keys = first..first + size as u64;
                    let pairs: Vec<_> = keys.map(|n| (mix(n) % live, $value)).collect();
                    table.put_batch(&pairs)?;
                }
            }
            assert_eq!(table.len()?, live);
            let report = table.check()?;
            assert!(report.is_clean(), "{report:?}");
        }
    }};
}

#[test]
fn a_table_that_is_nearly_full_takes_updates() -> Check {
    fill_and_update!(Plush<u64, [u8]>, &[9; 100][..], 80);
    fill_and_update!(Plush<u64, [u8]>, &[9; 1_000][..], 80);
    fill_and_update!(Plush<u64, u64>, 9, 60);
    fill_and_update!(Plush<u64, [u8; 32]>, [9; 32], 60);
    Ok(())
}

/// A nearly full table takes any number of updates, in batches of any size and without a log.
#[test]
fn a_full_table_takes_batches_of_updates() -> Check {
    for size in [1, 7, 100, 3_000, 100_000] {
        let keys = 3_000_u64;
        let options = Plush::<u64, [u8]>::options().shape(SMALL).blob_chunk_bytes(1 << 13);
        let table = options.max_bytes(3 << 20).in_memory()?;
        let mut n = 0;
        for _ in 0..(60_000 / size).max(2) {
            let values: Vec<_> =
                (n..n + size).map(|n| (mix(n) % keys, vec![n as u8; 100])).collect();
            let pairs: Vec<_> = values.iter().map(|(key, value)| (*key, &value[..])).collect();
            table.put_batch(&pairs)?;
            n += size;
        }
        for n in 0..60_000 {
            table.put_unlogged(n % keys, &[n as u8; 100])?;
        }
        table.checkpoint(1)?;
        assert!(table.check()?.is_clean());
    }
    Ok(())
}

/// After a crash during removals without free space, each key is in the state of its last write.
#[test]
fn a_crash_finds_keys_removed_in_place() -> Check {
    let mut images = 0;
    for seed in 0..10_u64 {
        let sim = Sim::new(SimOptions { seed, ..SimOptions::default() });
        let options = || {
            Plush::<u64, [u8]>::options().shape(TINY).blob_chunk_bytes(1 << 10).hash_seed([seed, 2])
        };
        let table = options().create_on(sim.clone())?;
        let mut known = BTreeMap::new();
        for key in 0..40 + seed * 9 {
            table.put(key % 60, &value(key))?;
            known.insert(key % 60, value(key));
        }
        sim.set_space(0);
        for turn in 0..80 {
            let key = mix(seed << 8 | turn) % 60;
            if turn % 3 == 2 {
                match table.put(key, &value(turn)) {
                    Ok(()) => drop(known.insert(key, value(turn))),
                    Err(Error::NoSpace { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            } else {
                table.delete(key)?;
                known.remove(&key);
            }
            for n in 0..4 {
                let mut image = sim.image();
                let pick = Pick::sample(n, seed << 8 | turn);
                sim.crash_point(|point| point.space().image(pick, &mut image));
                let again = Sim::from_image(&image, SimOptions { seed, ..SimOptions::default() });
                let table = options().open_on(again)?;
                let report = table.check()?;
                assert!(report.is_clean(), "{report:?}");
                let found = table.iter().collect::<icefield::Result<BTreeMap<_, _>>>()?;
                assert!(found == known, "seed {seed}, turn {turn}: {found:?}, not {known:?}");
                images += 1;
            }
        }
    }
    println!("{images} images");
    Ok(())
}

/// Simulates crashes during updates without free space, in which payloads move without a log record. Each key must have
/// one of its last two values. Returns the number of images.
fn updates_without_space(seed: u64, more: SimOptions) -> Result<u64, String> {
    type Known = BTreeMap<u64, Vec<u8>>;
    let text = |error: Error| error.to_string();
    let options =
        || Plush::<u64, [u8]>::options().shape(TINY).blob_chunk_bytes(1 << 10).hash_seed([seed, 2]);
    let sim = Sim::new(SimOptions { seed, ..more });
    let table = options().create_on(sim.clone()).map_err(text)?;
    let keys = 25 + seed * 3;
    let mut known = Known::new();
    for n in 0..keys {
        table.put(n, &value(n)).map_err(text)?;
        known.insert(n, value(n));
    }
    sim.set_space(0);
    let images: Arc<Mutex<Vec<Image>>> = Arc::default();
    let mut judged = 0;
    for turn in 0..150 {
        let n = mix(seed << 8 | turn);
        let (key, new) = (n % keys, value(n >> 8));
        let (noted, mut picks) = (Arc::clone(&images), 0);
        let note = move |point: &CrashPoint<'_>, picked: u64| {
            let mut image = Image::default();
            point.space().image(Pick::sample(picked % 16, seed << 8 | turn), &mut image);
            noted.lock().expect("no panic").push(image);
        };
        let note_inside = note.clone();
        sim.on_event(move |point| {
            if point.event().site.file().ends_with("plush/need.rs") {
                picks += 1;
                note_inside(point, picks);
            }
        });
        let before = known.clone();
        match table.put(key, &new) {
            Ok(()) => drop(known.insert(key, new)),
            Err(Error::NoSpace { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
        sim.no_observer();
        for picked in 0..4 {
            sim.crash_point(|point| note(point, picked));
        }
        for image in images.lock().expect("no panic").drain(..) {
            let again = Sim::from_image(&image, SimOptions { seed, ..SimOptions::default() });
            let table = options().open_on(again).map_err(text)?;
            let report = table.check().map_err(text)?;
            let found = table.iter().collect::<icefield::Result<Known>>().map_err(text)?;
            if !report.is_clean() || found != known && found != before {
                return Err(format!("seed {seed}, turn {turn}: {report:?}"));
            }
            judged += 1;
        }
    }
    Ok(judged)
}

#[test]
fn a_crash_finds_payloads_that_moved_in_place() -> Check {
    const SEEDS: std::ops::Range<u64> = 0..8;
    const MODELS: [Model; 2] = [Model::Pmem, Model::Disk];
    let sites = SiteLog::default();
    let mut images = 0;
    for (seed, model) in SEEDS.flat_map(|seed| MODELS.map(|model| (seed, model))) {
        let sites = Some(sites.clone());
        images +=
            updates_without_space(seed, SimOptions { sites, model, ..SimOptions::default() })?;
    }
    let mut fences = sites.sites();
    fences.retain(|(site, _)| site.kind == SiteKind::Fence && site.file.ends_with("plush/need.rs"));
    println!("{images} images, {fences:?}");
    // The fences of P22 and P23.
    assert_eq!(fences.len(), 2, "{fences:?}");
    for (site, _) in fences {
        let mut caught = SEEDS.filter_map(|seed| {
            let (mutation, model) = (Some(Mutation::of(site)), Model::Disk);
            updates_without_space(seed, SimOptions { mutation, model, ..SimOptions::default() })
                .err()
        });
        let first = caught.next();
        println!("without the {site}: {first:?}");
        assert!(first.is_some(), "nothing was noticed without the {site}");
    }
    Ok(())
}

/// A wrong length in a file causes an error, or returns bytes that do not change while they are borrowed.
#[test]
fn lent_bytes_stay_whatever_the_file_says() -> Check {
    use std::os::unix::fs::FileExt;
    for len in [17_u32, 60, 400, 2_000, 100_000, 1 << 20, u32::MAX] {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("t.ice");
        let table = Plush::<u64, [u8]>::create(&path)?;
        (0..3).try_for_each(|key| table.put(key, b"aaaaaaaaaaaaaaaa"))?;
        (100..160).try_for_each(|key| table.put(key, &[b'e'; 4_000]))?;
        drop(table);
        let file = path.join("payload.ice");
        let bytes = std::fs::read(&file)?;
        let at = bytes.windows(16).position(|bytes| bytes == b"aaaaaaaaaaaaaaaa").expect("it");
        let file = std::fs::OpenOptions::new().write(true).open(file)?;
        // The value's length is the second half word of the head. The head and a key of eight bytes precede the
        // value.
        file.write_all_at(&len.to_le_bytes(), at as u64 - 8 - 24 + 4)?;
        let table = Plush::<u64, [u8]>::open(&path)?;
        let shown = table.get_with(0, |shown: &[u8]| {
            let before = shown.to_vec();
            for round in 0..40 {
                for key in 20..60 {
                    table.put(key, &[round; 3_000]).expect("there is space");
                }
            }
            assert_eq!(before, shown, "a value of {len} bytes");
        });
        assert!(matches!(shown, Ok(Some(())) | Err(Error::Corrupt { .. })), "{shown:?}");
        assert!(!table.check()?.is_clean());
    }
    Ok(())
}
