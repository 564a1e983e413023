//! Keys of 16 bytes and values of any length, which most tables store by reference.
//!
//! - `var-records` (Plush Fig 12): puts and gets, by the share of writes and by the size of records. Writes replace the
//!   values of present keys, so the set of keys does not change.
//! - `var-gets`: gets one by one and in batches. Values are passed in place, not copied to memory of their own.

use std::path::Path;
use std::time::Duration;

use icefield::{DashEh, DashLh, Durability, Iceberg, Plush, Result, SyncMode, Table};
use icefield_peers::{Operation, Peer};

use crate::peers;
use crate::prelude::*;

const KEY_BYTES: usize = 16;
/// The length of values in `var-gets`.
const GET_VALUE_BYTES: usize = 100;
/// The number of records per call while a table is loaded.
const LOAD_BATCH: usize = 4096;
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

/// Returns the word at the start of a value, if the value has the right length.
fn first_word(value: &[u8], bytes: usize) -> Option<u64> {
    let first = value.first_chunk().filter(|_| value.len() == bytes);
    first.map(|word| u64::from_le_bytes(*word))
}

/// A table or peer with keys of 16 bytes. All its values have the same length, `bytes`.
trait LongRecords: Send + Sync {
    /// Stores the values of `keys` in one batch.
    fn put_all(&self, keys: &[u64], bytes: usize) -> Result<()>;

    /// Makes the puts and gets of `steps`, one by one.
    fn make(&self, steps: &[Step], bytes: usize) -> Result<Tally>;

    /// Looks up `keys` in batches.
    fn get_all(&self, keys: &[u64], batch: Batch, bytes: usize) -> Result<Tally>;
}

impl<T: Table<Key = [u8; KEY_BYTES], Value = [u8]>> LongRecords for T {
    fn put_all(&self, keys: &[u64], bytes: usize) -> Result<()> {
        let (keys, values) = records(keys, bytes);
        let records: Vec<_> = keys.into_iter().zip(values.chunks(bytes)).collect();
        self.put_batch(&records)
    }

    fn make(&self, steps: &[Step], bytes: usize) -> Result<Tally> {
        let (mut tally, mut value) = (Tally::default(), vec![0; bytes]);
        for &(writes, key) in steps {
            if writes {
                value[..8].copy_from_slice(&value_of(key).to_le_bytes());
                self.put(long_key(key), &value)?;
                tally.insert(true);
            } else {
                let found = self.get_with(long_key(key), |value| first_word(value, bytes))?;
                tally.answer(found.flatten());
            }
        }
        Ok(tally)
    }

    fn get_all(&self, keys: &[u64], batch: Batch, bytes: usize) -> Result<Tally> {
        let (mut tally, mut long) = (Tally::default(), Vec::new());
        for keys in keys.chunks(batch.size()) {
            if let (Batch::None, [key]) = (batch, keys) {
                let found = self.get_with(long_key(*key), |value| first_word(value, bytes))?;
                tally.answer(found.flatten());
                continue;
            }
            long.clear();
            long.extend(keys.iter().copied().map(long_key));
            self.get_batch_with(&long, |_, value| {
                tally.answer(value.and_then(|value| first_word(value, bytes)));
            })?;
        }
        Ok(tally)
    }
}

struct LongPeer {
    name: &'static str,
    peer: Box<dyn Peer>,
}

impl LongRecords for LongPeer {
    fn put_all(&self, keys: &[u64], bytes: usize) -> Result<()> {
        let (keys, values) = records(keys, bytes);
        self.peer.put_bytes(&slices(&keys), &values.chunks(bytes).collect::<Vec<_>>());
        peers::failure(self.name, &*self.peer)
    }

    fn make(&self, steps: &[Step], bytes: usize) -> Result<Tally> {
        let (mut tally, mut value) = (Tally::default(), vec![0; bytes]);
        for &(writes, key) in steps {
            if writes {
                value[..8].copy_from_slice(&value_of(key).to_le_bytes());
                tally.insert(self.peer.put_bytes(&[&long_key(key)], &[&value]) == 1);
            } else {
                let mut found = |value: &[u8]| tally.answer(first_word(value, bytes));
                self.peer.get_bytes(&[&long_key(key)], &mut found);
            }
        }
        peers::failure(self.name, &*self.peer).map(|()| tally)
    }

    fn get_all(&self, keys: &[u64], batch: Batch, bytes: usize) -> Result<Tally> {
        let (mut tally, mut long) = (Tally::default(), Vec::new());
        for keys in keys.chunks(batch.size()) {
            long.clear();
            long.extend(keys.iter().copied().map(long_key));
            let mut found = |value: &[u8]| tally.answer(first_word(value, bytes));
            self.peer.get_bytes(&slices(&long), &mut found);
        }
        peers::failure(self.name, &*self.peer).map(|()| tally)
    }
}

/// Returns the long keys, and the values one after the other.
fn records(keys: &[u64], bytes: usize) -> (Vec<[u8; KEY_BYTES]>, Vec<u8>) {
    let mut values = vec![0; keys.len() * bytes];
    for (value, key) in values.chunks_mut(bytes).zip(keys) {
        value[..8].copy_from_slice(&value_of(*key).to_le_bytes());
    }
    (keys.iter().copied().map(long_key).collect(), values)
}

fn slices(keys: &[[u8; KEY_BYTES]]) -> Vec<&[u8]> {
    keys.iter().map(<[u8; KEY_BYTES]>::as_slice).collect()
}

/// A loaded table and its directory, which is removed on drop.
struct Loaded {
    design: DesignRef,
    table: Box<dyn LongRecords>,
    _dir: RemovedDir,
}

/// Returns the tables and peers that support these records.
fn designs(session: &Session) -> Outcome<Vec<DesignRef>> {
    let mut designs = session.designs.clone();
    designs.retain(|design| match design.maker {
        Maker::Peer { kind, .. } => kind.is_persistent() && kind.offers(Operation::Bytes),
        Maker::Ours { .. } => TABLES.contains(&design.name),
    });
    if designs.is_empty() {
        return Err(Error::option("tables", "must be some of plush, dash-eh, dash-lh, iceberg"));
    }
    Ok(designs)
}

pub(super) fn gets(session: &mut Session) -> Outcome {
    let (designs, (medium, durability)) = (designs(session)?, session.medium_of_files()?);
    let keys = session.keys_or(USUAL_KEYS);
    let ops = session.ops(keys) as usize;
    let load = |design: &DesignRef| load(session, design, durability, keys, GET_VALUE_BYTES);
    let tables = designs.iter().map(load).collect::<Outcome<Vec<_>>>()?;
    for (threads, batch) in session.settings(&[Batch::None, Batch::Stream]) {
        let row = |loaded: &Loaded| {
            let mut row = session.row(loaded.design, medium);
            row.at(threads, batch, keys, ops as u64);
            row.extra("record_bytes", KEY_BYTES + GET_VALUE_BYTES);
            row
        };
        let mut rows: Vec<_> = tables.iter().map(row).collect();
        for round in 0..session.repeat() {
            let seed = session.args.seed + round as u64;
            let drawn = session.space.draw(session.args.dist, keys, ops, seed);
            for (Loaded { design, table, .. }, row) in tables.iter().zip(&mut rows) {
                session.progress(&format!(
                    "var-gets {}: {threads} threads, batch {batch}",
                    design.name
                ));
                let (time, parts) = session.machine.run(threads, |thread| {
                    let keys = &drawn[part(drawn.len(), thread, threads)];
                    table.get_all(keys, batch, GET_VALUE_BYTES)
                });
                session.check(design, "var-gets", sum(parts)?, Tally::of_values(&drawn));
                row.sample("mops", mops(ops, time));
            }
        }
        session.put_all(rows)?;
    }
    Ok(())
}

pub(super) fn run(session: &mut Session) -> Outcome {
    let (designs, medium) = (designs(session)?, session.medium_of_files()?);
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
        loaded.table.make(&steps[part(steps.len(), thread, threads)], value_bytes)
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
    session.progress(&format!("{} {}: loading {keys} records", session.experiment, design.name));
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
        "plush" => table!(Plush::<[u8; KEY_BYTES], [u8]>::options().sync(sync)),
        _ => peer(design, &path, sync)?,
    };
    let space = session.space;
    // Peers in files have a single writer.
    let threads = if design.is_peer() { 1 } else { session.machine.cores() };
    let (_, parts) = session.machine.run(threads, |thread| {
        let part: Vec<_> = part(keys as usize, thread, threads).collect();
        part.chunks(LOAD_BATCH).try_for_each(|part| {
            let keys: Vec<u64> = part.iter().map(|index| space.key(*index as u64)).collect();
            table.put_all(&keys, value_bytes)
        })
    });
    parts.into_iter().collect::<Result<()>>()?;
    Ok(Loaded { design, table, _dir: dir })
}

fn peer(design: DesignRef, path: &Path, sync: SyncMode) -> Outcome<Box<dyn LongRecords>> {
    let Maker::Peer { kind, .. } = design.maker else {
        return Err(Error::option(
            "tables",
            format!("{} does not support these records", design.name),
        ));
    };
    let peer = kind
        .open(path, peers::writes(sync))
        .map_err(|error| Error::option("peers", error.to_string()))?;
    Ok(Box::new(LongPeer { name: design.name, peer }))
}
