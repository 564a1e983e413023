//! Scans concurrent with a writer whose records go to the stash and the chain. Threads take turns every few steps of
//! the simulated medium, in the order of a seed.

use std::sync::Mutex;

use icefield::base::hash::HashKind;
use icefield::storage::sim::{Sim, SimOptions};
use icefield::{Cursor, DashOptions, Directory, Eh, Geometry, Lh};
use icefield_torture::scheduler::{self, Scheduler};

/// All keys have one home bucket. It and its neighbour together have room for two records, the stash for two more; the
/// chain gets the rest.
const KEYS: u64 = 10;
const GEOMETRY: Geometry = Geometry { buckets: 2, slots: 1, stash: 2 };
const SEEDS: u64 = 150;

/// Returns the number of scans in one interleaving that saw some but not all records of the stash or the chain.
fn judged<P: Directory>(seed: u64, batch: u64) -> Result<u64, String> {
    let sim = Sim::new(SimOptions {
        seed,
        detecting: true,
        // Directories may be read before they are durable, because each of their entries leads to a durable segment.
        exempt: &["directory-0.ice", "directory-1.ice"],
        give_way: scheduler::tick,
        ..SimOptions::default()
    });
    let options = DashOptions::<u64, u64, P>::default().geometry(GEOMETRY).max_bytes(1 << 22);
    let table = options
        .hash(HashKind::Constant)
        .create_on(sim.clone())
        .map_err(|error| error.to_string())?;
    sim.set_yield(1);
    let (scheduler, trouble, between) =
        (Scheduler::new(seed, 2), Mutex::new(None), Mutex::new(0_u64));
    let write = || -> icefield::Result<()> {
        for first in (0..KEYS).step_by(batch as usize) {
            scheduler::begin();
            sim.begin_op();
            let records: Vec<_> = (first..KEYS.min(first + batch)).map(|key| (key, key)).collect();
            match records.as_slice() {
                [(key, value)] => table.put(*key, *value)?,
                records => table.put_batch(records)?,
            }
        }
        Ok(())
    };
    let read = || -> Result<(), String> {
        let mut seen = Vec::new();
        while seen.len() < KEYS as usize {
            scheduler::begin();
            sim.begin_op();
            let page = table.scan(Cursor::START, 100).map_err(|error| error.to_string())?;
            if let Some(read) = sim.op_returned().first() {
                return Err(format!("{:?}, which depends on {read}", page.records));
            }
            if let Some((key, _)) = seen.iter().find(|record| !page.records.contains(record)) {
                return Err(format!("key {key} was seen, and is not any more"));
            }
            seen = page.records;
            for &(key, value) in &seen {
                scheduler::begin();
                sim.begin_op();
                let found = table.get(key).map_err(|error| error.to_string())?;
                if found != Some(value) {
                    return Err(format!("a scan shows key {key}, `get` then finds {found:?}"));
                }
            }
            let stashed = (3..KEYS as usize).contains(&seen.len());
            *between.lock().expect("no panic") += u64::from(stashed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let told = |outcome: Result<(), String>| {
            if let Err(what) = outcome {
                trouble.lock().expect("no panic").get_or_insert(what);
            }
        };
        let [writer, reader] = [&scheduler, &scheduler];
        scope.spawn(move || {
            writer.take_turns(0, || told(write().map_err(|error| error.to_string())));
        });
        scope.spawn(move || reader.take_turns(1, || told(read())));
    });
    sim.set_yield(0);
    match trouble.into_inner().expect("no panic") {
        Some(what) => Err(what),
        None => Ok(between.into_inner().expect("no panic")),
    }
}

#[track_caller]
fn all<P: Directory>() {
    for batch in [1, 4] {
        let mut between = 0;
        for seed in 0..SEEDS {
            match judged::<P>(seed, batch) {
                Ok(scans) => between += scans,
                Err(what) => panic!("{}, batches of {batch}, seed {seed}: {what}", P::DESIGN),
            }
        }
        println!("{}: {between} scans between inserts", P::DESIGN);
        assert!(between > SEEDS / 2, "{between}");
    }
}

#[test]
fn scans_show_what_lasts_and_what_get_finds() {
    all::<Eh>();
    all::<Lh>();
}
