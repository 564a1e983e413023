//! `any-table`: compares the calls of `AnyTable` with those of the typed tables, on the same engines and the same
//! records. The difference is what a program pays for choosing its types at run time.

use std::hint::black_box;
use std::time::Instant;

use icefield::{AnyOptions, AnyTable, DashEh, DashLh, Durability, Iceberg, Plush, Result, Table};

use crate::prelude::*;

/// The number of records without `--keys`.
const USUAL_KEYS: u64 = 1_000_000;
/// The number of operations in a batch.
const BATCH: usize = 32;

#[derive(Clone, Copy)]
enum Calls {
    Get,
    Put,
    GetBatch,
    PutBatch,
}

const CALLS: [(&str, Calls, Batch); 4] = [
    ("get", Calls::Get, Batch::None),
    ("put", Calls::Put, Batch::None),
    ("get", Calls::GetBatch, Batch::Of(BATCH)),
    ("put", Calls::PutBatch, Batch::Of(BATCH)),
];

/// The tables that can be opened by name.
const TABLES: [&str; 4] = ["dash-eh", "dash-lh", "iceberg", "plush"];

/// Returns a number as a string of 16 bytes.
fn name_of(key: u64) -> String {
    format!("{key:016x}")
}

/// A table of words or of strings. The value of each record is equal to its key.
trait Subject {
    /// Makes the calls `calls` for each key. Returns the number of reads that found their key.
    fn run(&self, calls: Calls, words: &[u64], names: &[String]) -> Result<usize>;
}

/// A typed table of words.
struct Words<T>(T);

impl<T: Table<Key = u64, Value = u64>> Subject for Words<T> {
    fn run(&self, calls: Calls, words: &[u64], _: &[String]) -> Result<usize> {
        let mut found = 0;
        match calls {
            Calls::Get => {
                for &key in words {
                    found +=
                        usize::from(self.0.get_with(key, |&value| value == key)? == Some(true));
                }
            }
            Calls::Put => words.iter().try_for_each(|&key| self.0.put(key, key))?,
            Calls::GetBatch => {
                let mut values = [None; BATCH];
                for keys in words.chunks_exact(BATCH) {
                    self.0.get_batch(keys, &mut values)?;
                    found += black_box(&values).iter().flatten().count();
                }
            }
            Calls::PutBatch => {
                let mut records = [(0, 0); BATCH];
                for keys in words.chunks_exact(BATCH) {
                    records.iter_mut().zip(keys).for_each(|(record, &key)| *record = (key, key));
                    self.0.put_batch(&records)?;
                }
            }
        }
        Ok(found)
    }
}

/// A typed table of strings.
struct Names<T>(T);

impl<T: Table<Key = str, Value = str>> Subject for Names<T> {
    fn run(&self, calls: Calls, _: &[u64], names: &[String]) -> Result<usize> {
        let mut found = 0;
        match calls {
            Calls::Get => {
                for key in names {
                    found += usize::from(self.0.get_with(key, |value| value == key)? == Some(true));
                }
            }
            Calls::Put => names.iter().try_for_each(|key| self.0.put(key, key))?,
            Calls::GetBatch => {
                let mut values = [const { None }; BATCH];
                for keys in names.chunks_exact(BATCH) {
                    let keys: [&str; BATCH] = std::array::from_fn(|index| keys[index].as_str());
                    self.0.get_batch(&keys, &mut values)?;
                    found += black_box(&values).iter().flatten().count();
                }
            }
            Calls::PutBatch => {
                for keys in names.chunks_exact(BATCH) {
                    let records: [(&str, &str); BATCH] =
                        std::array::from_fn(|index| (keys[index].as_str(), keys[index].as_str()));
                    self.0.put_batch(&records)?;
                }
            }
        }
        Ok(found)
    }
}

/// A table of any types.
struct Any {
    table: AnyTable,
    of_words: bool,
}

impl Any {
    /// Runs calls with keys in their stored form.
    fn run_on<B: AsRef<[u8]>>(&self, calls: Calls, keys: impl Iterator<Item = B>) -> Result<usize> {
        let (table, mut found) = (&self.table, 0);
        match calls {
            Calls::Get => {
                for key in keys {
                    let key = key.as_ref();
                    found += usize::from(table.get_with(key, |value| value == key)? == Some(true));
                }
            }
            Calls::Put => {
                for key in keys {
                    table.put(key.as_ref(), key.as_ref())?;
                }
            }
            Calls::GetBatch | Calls::PutBatch => {
                let mut some = Vec::with_capacity(BATCH);
                for key in keys {
                    some.push(key);
                    if some.len() < BATCH {
                        continue;
                    }
                    let keys: [&[u8]; BATCH] = std::array::from_fn(|index| some[index].as_ref());
                    if matches!(calls, Calls::GetBatch) {
                        table.get_batch_with(&keys, |_, value| {
                            found += usize::from(value.is_some())
                        })?;
                    } else {
                        table.put_batch(&keys.map(|key| (key, key)))?;
                    }
                    some.clear();
                }
            }
        }
        Ok(found)
    }
}

impl Subject for Any {
    fn run(&self, calls: Calls, words: &[u64], names: &[String]) -> Result<usize> {
        if self.of_words {
            return self.run_on(calls, words.iter().map(|key| key.to_le_bytes()));
        }
        self.run_on(calls, names.iter())
    }
}

/// A typed table and an [`AnyTable`] of the same design, with the same records.
struct Pair {
    design: DesignRef,
    typed: Box<dyn Subject>,
    any: Box<dyn Subject>,
    _dirs: [RemovedDir; 2],
}

pub(super) fn run(session: &mut Session) -> Outcome {
    let mut designs = session.designs.clone();
    designs.retain(|design| TABLES.contains(&design.name));
    if designs.is_empty() {
        return Err(Error::option("tables", "must be some of dash-eh, dash-lh, iceberg, plush"));
    }
    let (medium, durability) = session.medium_of_files()?;
    for of_words in [true, false] {
        for design in &designs {
            compare(session, design, (medium, durability), of_words)?;
        }
    }
    Ok(())
}

fn compare(
    session: &mut Session,
    design: DesignRef,
    (medium, durability): (Medium, Durability),
    of_words: bool,
) -> Outcome {
    let keys = session.keys_or(USUAL_KEYS);
    let types = if of_words { "u64" } else { "str" };
    session.progress(&format!("any-table {}: {keys} records of {types}", design.name));
    let words: Vec<u64> = (0..keys).map(|index| session.space.key(index)).collect();
    let names: Vec<String> = words.iter().copied().map(name_of).collect();
    let pair = pair(session, design, durability, keys, of_words)?;
    for subject in [&pair.typed, &pair.any] {
        // Puts the records one by one, because calls in batches skip the keys after the last whole batch.
        subject.run(Calls::Put, &words, &names)?;
    }
    // Rounded down to whole batches.
    let ops = (session.ops(keys) as usize).min(keys as usize) / BATCH * BATCH;
    for (op, calls, batch) in CALLS {
        let mut row = session.row(pair.design, medium);
        row.op = op.to_owned();
        row.at(1, batch, keys, ops as u64);
        row.extra("types", types);
        for round in 0..session.repeat() {
            let seed = session.args.seed + round as u64;
            let words = session.space.draw(session.args.dist, keys, ops, seed);
            let names: Vec<String> = words.iter().copied().map(name_of).collect();
            for (name, subject) in [("typed_ns", &pair.typed), ("any_ns", &pair.any)] {
                let start = Instant::now();
                let found = subject.run(calls, &words, &names)?;
                let time = start.elapsed();
                row.sample(name, time.as_secs_f64() * 1e9 / ops as f64);
                if matches!(calls, Calls::Get | Calls::GetBatch) && found != ops {
                    session.blame(pair.design, &format!("{op}: {found} of {ops} keys found"));
                }
                if name == "typed_ns" {
                    row.sample("mops", mops(ops, time));
                }
            }
        }
        let difference = row.median("any_ns").zip(row.median("typed_ns"));
        row.extra("difference_ns", difference.map(|(any, typed)| rounded(any - typed)));
        session.put(row)?;
    }
    Ok(())
}

fn pair(
    session: &Session,
    design: DesignRef,
    durability: Durability,
    keys: u64,
    of_words: bool,
) -> Outcome<Pair> {
    let ((typed_path, typed_dir), (any_path, any_dir)) = (session.fresh_dir(), session.fresh_dir());
    /// A macro, because the trait of designs has no public name.
    macro_rules! typed {
        ($table:ident) => {
            if of_words {
                let options = $table::<u64, u64>::options().capacity(keys).durability(durability);
                Box::new(Words(options.create(&typed_path)?)) as Box<dyn Subject>
            } else {
                let options = $table::<str, str>::options().capacity(keys).durability(durability);
                Box::new(Names(options.create(&typed_path)?))
            }
        };
    }
    let typed = match design.name {
        "dash-eh" => typed!(DashEh),
        "dash-lh" => typed!(DashLh),
        "iceberg" => typed!(Iceberg),
        _ => typed!(Plush),
    };
    let types = if of_words { "u64" } else { "str" };
    let options = AnyOptions { capacity: Some(keys), durability, ..AnyOptions::default() };
    let table = AnyTable::create(&any_path, design.name, types, types, &options)?;
    let any = Box::new(Any { table, of_words });
    Ok(Pair { design, typed, any, _dirs: [typed_dir, any_dir] })
}
