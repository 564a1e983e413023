//! Batches whose windows find full logs: operations without space go into the next window, in their order.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use icefield::{Plush, Shape};

use super::{Check, TINY};

/// If a batch puts a key several times, the last value stays, even if the log is full in several windows.
#[test]
fn the_last_of_equal_keys_stays() -> Check {
    let (mut records, mut rounds) = (0, 0);
    for shape in [TINY, Shape { log_bits: 1, log_records: 4, ..TINY }] {
        let words = Plush::<u64, u64>::options().shape(shape).in_memory()?;
        let bytes = Plush::<u64, [u8]>::options().shape(shape).in_memory()?;
        for round in 0..400_u64 {
            let pairs: Vec<(u64, u64)> =
                (0..97).map(|at| (at * (round + 3) % 31, round * 97 + at)).collect();
            words.put_batch(&pairs)?;
            let values: Vec<_> =
                pairs.iter().map(|(key, value)| (*key, value.to_le_bytes())).collect();
            let byte_pairs: Vec<(u64, &[u8])> =
                values.iter().map(|(key, value)| (*key, value.as_slice())).collect();
            bytes.put_batch(&byte_pairs)?;
            for (key, _) in &pairs {
                let last = pairs.iter().rev().find(|(other, _)| other == key).map(|pair| pair.1);
                assert_eq!(words.get(*key)?, last);
                assert_eq!(bytes.get(*key)?, last.map(|value| value.to_le_bytes().to_vec()));
            }
            records += pairs.len();
            rounds += 1;
        }
        for report in [words.check()?, bytes.check()?] {
            assert!(report.is_clean(), "{report:?}");
        }
    }
    println!("{records} records in {rounds} batches");
    Ok(())
}

/// Three threads put batches into the same small logs while a fourth clears the table. No thread may wait forever,
/// readers see complete values, and the table is consistent at the end.
#[test]
fn batches_and_clears_meet_at_full_logs() -> Check {
    let table = Plush::<u64, [u8]>::options().shape(TINY).blob_chunk_bytes(1 << 10).in_memory()?;
    let done = AtomicBool::new(false);
    let write = |thread: u64| -> icefield::Result<()> {
        for round in 0..150_u64 {
            let values: Vec<_> = (0..40).map(|at| (at * 7 % 40, [thread, round, at])).collect();
            let values: Vec<_> = values
                .iter()
                .map(|(key, value)| (*key, value.map(u64::to_le_bytes).concat()))
                .collect();
            let pairs: Vec<(u64, &[u8])> =
                values.iter().map(|(key, value)| (*key, value.as_slice())).collect();
            table.put_batch(&pairs)?;
        }
        Ok(())
    };
    let mut clears = 0;
    std::thread::scope(|scope| -> Check {
        let writers: Vec<_> = (0..3).map(|thread| scope.spawn(move || write(thread))).collect();
        let reader = scope.spawn(|| -> icefield::Result<()> {
            while !done.load(Acquire) {
                for key in 0..40 {
                    let value = table.get(key)?;
                    assert!(value.is_none_or(|value| value.len() == 24));
                }
            }
            Ok(())
        });
        while writers.iter().any(|writer| !writer.is_finished()) {
            table.clear()?;
            clears += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        done.store(true, Release);
        writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))?;
        reader.join().expect("no panic")?;
        Ok(())
    })?;
    println!("{clears} clears");
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}
