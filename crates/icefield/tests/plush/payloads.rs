//! Keys and values in the payload log.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use icefield::storage::Medium;
use icefield::storage::sim::{Image, Pick, Sim, SimOptions};
use icefield::{Error, Plush, Shape};
use icefield_torture::rng::mix;

use super::{Check, TINY};

#[test]
fn bytes_of_any_length() -> Check {
    for shape in [TINY, Shape::default()] {
        let table = Plush::<[u8], [u8]>::options().shape(shape).in_memory()?;
        let count = if shape == TINY { 300 } else { 5_000 };
        let key = |n: u32| format!("key number {n}").into_bytes();
        let value = |n: u32| vec![n as u8; (n as usize * 37) % 3000];
        for n in 0..count {
            assert_eq!(table.insert(&key(n), &value(n))?, None);
        }
        for n in 0..count {
            assert_eq!(table.get(&key(n))?, Some(value(n)));
            assert_eq!(table.get_with(&key(n), |bytes| bytes.len())?, Some(value(n).len()));
        }
        for n in (0..count).step_by(3) {
            assert_eq!(table.insert(&key(n), b"new")?, Some(value(n)));
            assert_eq!(table.remove(&key(n + 1))?, Some(value(n + 1)).filter(|_| n + 1 < count));
        }
        let big = vec![7; 16 << 20];
        table.put(b"big", &big)?;
        assert_eq!(table.get(b"big")?, Some(big));
        let long = vec![0; (16 << 20) + 1];
        assert!(matches!(table.put(b"big", &long), Err(Error::ValueTooLong { .. })));
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

/// Chunks of the payload log are freed and reused, even if the same keys are updated without end.
#[test]
fn payloads_take_bounded_space() -> Check {
    let table = Plush::<str, [u8]>::options().shape(TINY).blob_chunk_bytes(1 << 12).in_memory()?;
    for n in 0..50 {
        table.put(&format!("stays {n}"), &[n; 100])?;
    }
    for round in 0..3_000_u32 {
        for n in 0..10 {
            table.put(&format!("changes {n}"), &[round as u8; 100])?;
        }
    }
    println!("{:?}", table.stats());
    assert!(table.stats().storage_bytes < 4 << 20, "{:?}", table.stats());
    for n in 0..50 {
        assert_eq!(table.get(&format!("stays {n}"))?, Some(vec![n; 100]));
    }
    for n in 0..10 {
        assert_eq!(table.get(&format!("changes {n}"))?, Some(vec![2_999_u32 as u8; 100]));
    }
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

/// After a crash, the chunks with a long key's records hold complete records. Freed chunks may have been rewritten in
/// the meantime, by this session or by one after a crash.
#[test]
fn a_crash_leaves_long_keys_whole() -> Check {
    let (mut images, mut sessions) = (0, 0);
    for seed in 0..12_u64 {
        let sim = Sim::new(SimOptions { seed, ..SimOptions::default() });
        let table = chunky().create_on(sim.clone())?;
        let mut known = BTreeMap::new();
        for round in 0..24 {
            write_round(&table, seed, round, &mut known)?;
            for image in crashes(&sim, seed << 8 | round) {
                let again = Sim::from_image(&image, SimOptions { seed, ..SimOptions::default() });
                let table = chunky().open_on(again.clone())?;
                expect_whole(&table, &known)?;
                images += 1;
                if round % 4 != 0 {
                    continue;
                }
                let mut known = known.clone();
                for round in 24..32 {
                    write_round(&table, seed, round, &mut known)?;
                    for image in crashes(&again, seed << 8 | round) {
                        let third = Sim::from_image(&image, SimOptions::default());
                        expect_whole(&chunky().open_on(third)?, &known)?;
                        images += 1;
                    }
                }
                sessions += 1;
            }
        }
    }
    println!("{images} images, {sessions} sessions after crashes");
    Ok(())
}

/// Payloads move while the records of their root entry migrate to several entries below, one after the other. A record
/// whose old payload was freed is not copied to the entry below, but that entry must store the epoch all the same, so
/// that the record counts as migrated. Recovery once counted such records as records of the root entry, which then had
/// more than fit into it.
#[test]
fn a_crash_counts_departed_records_whose_payloads_moved() -> Check {
    const SHAPE: Shape =
        Shape { first_bits: 2, fan_bits: 2, log_bits: 1, log_chunks: 4, log_records: 4, ..TINY };
    let mut images = 0;
    for seed in 0..40_u64 {
        let options = || chunky().shape(SHAPE).hash_seed([seed, 1]);
        let sim = Sim::new(SimOptions { seed, ..SimOptions::default() });
        let table = options().create_on(sim.clone())?;
        let mut known = BTreeMap::new();
        for round in 0..60_u64 {
            let turn = mix(seed << 8 | round);
            let key = vec![(turn % 12) as u8];
            if turn >> 8 & 3 == 0 {
                table.delete(&key)?;
                known.remove(&key);
            } else {
                let value = vec![round as u8; (turn >> 16) as usize % 300];
                table.put(&key, &value)?;
                known.insert(key, value);
            }
            for image in crashes(&sim, turn) {
                let again = Sim::from_image(&image, SimOptions { seed, ..SimOptions::default() });
                expect_whole(&options().open_on(again)?, &known)?;
                images += 1;
            }
        }
    }
    println!("{images} images");
    Ok(())
}

fn chunky() -> icefield::PlushOptions<[u8], [u8]> {
    Plush::<[u8], [u8]>::options().shape(TINY).blob_chunk_bytes(1 << 10)
}

/// Writes a few records: one long key, the same each time, which takes three chunks, and short keys, which share
/// chunks. Sometimes the long key is removed instead.
fn write_round<M: Medium>(
    table: &Plush<[u8], [u8], M>,
    seed: u64,
    round: u64,
    known: &mut BTreeMap<Vec<u8>, Vec<u8>>,
) -> icefield::Result<()> {
    let turn = mix(seed << 8 | round);
    let long = vec![1; 2_500];
    if turn.is_multiple_of(4) {
        table.delete(&long)?;
        known.remove(&long);
    } else {
        table.put(&long, &[round as u8; 100])?;
        known.insert(long, vec![round as u8; 100]);
    }
    for key in 0..turn % 7 {
        let (key, value) = (vec![2, key as u8], vec![round as u8; 300]);
        table.put(&key, &value)?;
        known.insert(key, value);
    }
    Ok(())
}

/// Returns images of crashes at this moment.
fn crashes(sim: &Sim, seed: u64) -> Vec<Image> {
    let mut images = Vec::new();
    for n in 0..4 {
        let mut image = sim.image();
        sim.crash_point(|point| point.space().image(Pick::sample(n, seed), &mut image));
        images.push(image);
    }
    images
}

fn expect_whole<M: Medium>(
    table: &Plush<[u8], [u8], M>,
    known: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Check {
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    let found = table.iter().collect::<icefield::Result<BTreeMap<_, _>>>()?;
    assert!(found == *known, "{} records, not {}", found.len(), known.len());
    Ok(())
}

/// Keys that are never removed are always found with their newest value, and writers get the values that they
/// replace, while the chunks of these values are freed and rewritten.
#[test]
fn reads_among_collections_find_every_key() -> Check {
    const WRITERS: u64 = 3;
    const KEYS: u64 = 12;
    let value = |round: u64| [round; 13].map(u64::to_le_bytes).concat();
    let round_of = |value: &[u8]| {
        assert_eq!(value[..96], value[8..], "one value's words");
        u64::from_le_bytes(*value.first_chunk().expect("thirteen words"))
    };
    let options = Plush::<u64, [u8]>::options().shape(TINY).blob_chunk_bytes(1 << 10);
    let table = options.in_memory()?;
    (0..WRITERS * KEYS).try_for_each(|key| table.put(key, &value(0)))?;
    let done = AtomicBool::new(false);
    let write = |writer: u64| -> icefield::Result<()> {
        for round in 1..4_000 {
            for key in writer * KEYS..(writer + 1) * KEYS {
                let before = match (key + round) % 3 {
                    0 => table.update(key, &value(round))?,
                    _ => table.insert(key, &value(round))?,
                };
                assert_eq!(before.map(|before| round_of(&before)), Some(round - 1));
            }
        }
        Ok(())
    };
    let read = || -> icefield::Result<u64> {
        let (mut reads, mut newest) = (0, [0; (WRITERS * KEYS) as usize]);
        while !done.load(Acquire) {
            for (key, newest) in (0..).zip(&mut newest) {
                let round = round_of(&table.get(key)?.expect("it is always there"));
                assert!(round >= *newest, "key {key} of {round} after {newest}");
                *newest = round;
            }
            assert_eq!(table.iter().count() as u64, WRITERS * KEYS);
            reads += 1;
        }
        Ok(reads)
    };
    std::thread::scope(|scope| -> Check {
        let reader = scope.spawn(read);
        let write = &write;
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Release);
        println!("{} rounds of reads", reader.join().expect("no panic")?);
        written.into_iter().try_for_each(|written| written.expect("no panic"))?;
        Ok(())
    })
}

/// Without verification, a changed byte is returned or makes its key absent. With verification, reads fail. Damaged
/// records can still be moved and replaced.
#[test]
fn reads_are_verified_where_asked_for() -> Check {
    use std::os::unix::fs::FileExt;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("t.ice");
    let options = || Plush::<str, [u8]>::options().shape(TINY);
    let table = options().create(&path)?;
    table.put("the first key, damaged", b"a value that is whole")?;
    table.put("the second key, whole", b"A VALUE THAT WILL BE DAMAGED")?;
    table.put("the third key, whole", b"a value that is whole, too")?;
    drop(table);
    let file = path.join("payload.ice");
    let bytes = std::fs::read(&file)?;
    for text in [&b"first key"[..], b"VALUE"] {
        let at = bytes.windows(text.len()).position(|bytes| bytes == text);
        let file = std::fs::File::options().write(true).open(&file)?;
        file.write_all_at(b"?", at.expect("stored") as u64)?;
    }
    let table = options().open(&path)?;
    assert_eq!(table.get("the first key, damaged")?, None);
    let damaged = table.get("the second key, whole")?;
    assert_eq!(damaged.as_deref(), Some(&b"A ?ALUE THAT WILL BE DAMAGED"[..]));
    drop(table);
    let table = options().verify(true).open(&path)?;
    let corrupt = |answer: icefield::Result<()>| matches!(answer, Err(Error::Corrupt { .. }));
    for key in ["the first key, damaged", "the second key, whole"] {
        assert!(corrupt(table.get(key).map(drop)), "get of {key}");
        assert!(corrupt(table.get_with(key, |_| ()).map(drop)), "get_with of {key}");
    }
    assert!(corrupt(table.iter().try_for_each(|record| record.map(drop))));
    let whole = table.get_with("the third key, whole", <[u8]>::to_vec)?;
    assert_eq!(whole.as_deref(), Some(&b"a value that is whole, too"[..]));
    assert_eq!(table.get("some other key")?, None);
    for round in 0..50 {
        for key in ["the first key, damaged", "the second key, whole", "the third key, whole"] {
            table.put(key, &[round; 40])?;
        }
        table.put(&format!("key {round}"), b"moves others on")?;
    }
    for key in ["the first key, damaged", "the second key, whole", "the third key, whole"] {
        assert_eq!(table.get(key)?, Some(vec![49; 40]), "{key}");
    }
    Ok(())
}
