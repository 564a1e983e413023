//! `var-records`: keys of 16 bytes and values of any length (Plush Fig 12), by the share of writes and by the size
//! of records. Writes replace the values of present keys, so the set of keys does not change.

use std::time::Duration;

use icefield::{DashEh, DashLh, Durability, Iceberg, Plush, Result, Table};

use crate::prelude::*;

const KEY_BYTES: usize = 16;
/// The paper's length of values, and its percentages of writes.
const VALUE_BYTES: usize = 1_000;
const WRITE_PERCENT: [usize; 3] = [10, 50, 90];
/// The sizes of records in the second sweep, in which half of the operations are writes.
const RECORD_BYTES: [usize; 6] = [32, 64, 128, 256, 512, 2_048];
/// The number of records without `--keys`.
const USUAL_KEYS: u64 = 1_000_000;

/// The tables that support these records.
const TABLES: [&str; 4] = ["plush", "dash-eh", "dash-lh", "iceberg"];

/// An operation: true if it writes, and its key.
type Step = (bool, u64);

/// Returns the 16-byte key derived from a number.
fn long_key(key: u64) -> [u8; KEY_BYTES] {
    (u128::from(key) << 64 | u128::from(!key)).to_le_bytes()
}

trait LongRecords: Send + Sync {
    /// Makes the puts and gets of `steps`. `value` is a buffer that is as long as the values.
    fn make(&self, steps: &[Step], value: &mut [u8]) -> Result<Tally>;
}

impl<T: Table<Key = [u8; KEY_BYTES], Value = [u8]>> LongRecords for T {
    fn make(&self, steps: &[Step], value: &mut [u8]) -> Result<Tally> {
        let (mut tally, bytes) = (Tally::default(), value.len());
        for &(writes, key) in steps {
            if writes {
                value[..8].copy_from_slice(&value_of(key).to_le_bytes());
                self.put(long_key(key), value)?;
                tally.insert(true);
            } else {
                let found = self.get_with(long_key(key), |value| {
                    let first = value.first_chunk().filter(|_| value.len() == bytes);
                    first.map(|word| u64::from_le_bytes(*word))
                })?;
                tally.answer(found.flatten());
            }
        }
        Ok(tally)
    }
}

/// A loaded table and its directory, which is removed on drop.
struct Loaded {
    design: DesignRef,
    table: Box<dyn LongRecords>,
    _dir: RemovedDir,
}

pub(super) fn run(session: &mut Session) -> Outcome {
    let mut designs = session.designs.clone();
    designs.retain(|design| !design.is_peer() && TABLES.contains(&design.name));
    if designs.is_empty() {
        return Err(Error::option("tables", "must be some of plush, dash-eh, dash-lh, iceberg"));
    }
    let medium = session.medium_of_files()?;
    of_size(session, &designs, medium, (VALUE_BYTES, &WRITE_PERCENT))?;
    for bytes in session.points(&[], &RECORD_BYTES) {
        of_size(session, &designs, medium, (bytes - KEY_BYTES, &[50]))?;
    }
    Ok(())
}

/// Measures all tables with values of one length.
fn of_size(
    session: &mut Session,
    designs: &[DesignRef],
    (medium, durability): (Medium, Durability),
    (value_bytes, write_percents): (usize, &[usize]),
) -> Outcome {
    let keys = session.keys_or(USUAL_KEYS);
    let load = |design: &DesignRef| load(session, design, durability, keys, value_bytes);
    let tables = designs.iter().map(load).collect::<Outcome<Vec<_>>>()?;
    let ops = session.ops(keys) as usize;
    for &percent in write_percents {
        for threads in session.threads() {
            let row = |loaded: &Loaded| {
                let mut row = session.row(loaded.design, medium);
                row.at(threads, Batch::None, keys, ops as u64);
                row.extra("write_percent", percent);
                row.extra("record_bytes", KEY_BYTES + value_bytes);
                row
            };
            let mut rows: Vec<_> = tables.iter().map(row).collect();
            for round in 0..session.repeat() {
                let steps = steps(session, keys, ops, percent, round as u64);
                for (loaded, row) in tables.iter().zip(&mut rows) {
                    let time = measured(session, loaded, &steps, value_bytes, threads)?;
                    row.sample("mops", mops(ops, time));
                }
            }
            session.put_all(rows)?;
        }
    }
    Ok(())
}

/// Returns reads and writes of present keys in random order, `percent` of them writes.
fn steps(session: &Session, keys: u64, ops: usize, percent: usize, round: u64) -> Vec<Step> {
    let drawn = session.space.draw(session.args.dist, keys, ops, session.args.seed + round);
    // 37 has no common factor with 100, so this sequence mixes reads and writes evenly.
    (0..).zip(drawn).map(|(at, key): (usize, u64)| (at * 37 % 100 < percent, key)).collect()
}

fn measured(
    session: &Session,
    loaded: &Loaded,
    steps: &[Step],
    value_bytes: usize,
    threads: usize,
) -> Outcome<Duration> {
    let name = loaded.design.name;
    session.progress(&format!("var-records {name}: {value_bytes}-byte values, {threads} threads"));
    let (time, parts) = session.machine.run(threads, |thread| {
        let mut value = vec![0; value_bytes];
        loaded.table.make(&steps[part(steps.len(), thread, threads)], &mut value)
    });
    let read: Vec<u64> = steps.iter().filter(|step| !step.0).map(|step| step.1).collect();
    let expected = Tally { hits: steps.len() as u64, ..Tally::of_values(&read) };
    session.check(loaded.design, "var-records", sum(parts)?, expected);
    Ok(time)
}

fn load(
    session: &Session,
    design: DesignRef,
    durability: Durability,
    keys: u64,
    value_bytes: usize,
) -> Outcome<Loaded> {
    session.progress(&format!("var-records {}: loading {keys} records", design.name));
    let (path, dir) = session.fresh_dir();
    /// A macro, because each table's options have their own type.
    macro_rules! table {
        ($options:expr) => {
            Box::new($options.capacity(keys).durability(durability).create(&path)?)
        };
    }
    let sync = session.args.sync.unwrap_or_default();
    let table: Box<dyn LongRecords> = match design.name {
        "dash-eh" => table!(DashEh::<[u8; KEY_BYTES], [u8]>::options()),
        "dash-lh" => table!(DashLh::<[u8; KEY_BYTES], [u8]>::options()),
        "iceberg" => table!(Iceberg::<[u8; KEY_BYTES], [u8]>::options()),
        _ => table!(Plush::<[u8; KEY_BYTES], [u8]>::options().sync(sync)),
    };
    let (space, threads) = (session.space, session.machine.cores());
    let (_, parts) = session.machine.run(threads, |thread| {
        let part = part(keys as usize, thread, threads);
        let mut value = vec![0; value_bytes];
        part.into_iter().try_for_each(|index| {
            table.make(&[(true, space.key(index as u64))], &mut value).map(drop)
        })
    });
    parts.into_iter().collect::<Result<()>>()?;
    Ok(Loaded { design, table, _dir: dir })
}
