//! Keys and values in the payload log.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use icefield::{Error, Plush, Shape};

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

/// Chunks of the payload log are freed and written again, however often the same keys are updated.
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
    assert!(table.stats().pm_bytes < 4 << 20, "{:?}", table.stats());
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

/// Keys that are always there are always found, each with its newest value, and writers are told the values that they
/// replace, while the chunks that these were in are freed and written again.
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
