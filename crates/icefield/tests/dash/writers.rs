//! Concurrent writers whose records share the stash and the chain, and that split and merge their segments. The
//! result of each call must stay valid. Threads take turns every few steps of the simulated medium, in the order of a
//! seed.

use std::sync::Mutex;

use icefield::storage::sim::{Sim, SimOptions};
use icefield::{DashOptions, Directory, Eh, Geometry, Lh, Result};
use icefield_torture::rng::Rng;
use icefield_torture::scheduler::{self, Scheduler};

const WRITERS: usize = 3;
/// Number of calls of each writer.
const CALLS: u64 = 60;
const KEYS: u64 = 40;
/// Has room for two disjoint pairs of home and neighbour buckets, which share only the stash.
const GEOMETRY: Geometry = Geometry { buckets: 4, slots: 2, stash: 2 };
const SEEDS: u64 = 60;

/// Events that must occur, or else the test proves nothing.
const EVENTS: [&str; 3] = ["stash_inserts", "splits", "merges"];

/// Returns how often each of [`EVENTS`] occurred in one interleaving.
fn judged<P: Directory>(
    seed: u64,
    options: DashOptions<u64, u64, P>,
) -> std::result::Result<[u64; EVENTS.len()], String> {
    let sim = Sim::new(SimOptions {
        seed,
        detecting: true,
        // Directories may be read before they are durable, because each of their entries leads to a durable segment.
        exempt: &["directory-0.ice", "directory-1.ice"],
        give_way: scheduler::tick,
        ..SimOptions::default()
    });
    let options = options.geometry(GEOMETRY).max_bytes(1 << 22);
    let table = options.create_on(sim.clone()).map_err(|error| error.to_string())?;
    sim.set_yield(1);
    let (scheduler, trouble) = (Scheduler::new(seed, WRITERS), Mutex::new(None));
    let call = |rng: &mut Rng, growing: bool| -> Result<String> {
        let key = rng.below(KEYS);
        let batch: Vec<u64> = (key..key + 4).collect();
        let records: Vec<_> = batch.iter().map(|&key| (key, key)).collect();
        Ok(match (growing, rng.below(8)) {
            (_, 0) => format!("try_insert of {key}: {:?}", table.try_insert(key, key)?),
            (_, 1) => format!("update of {key}: {:?}", table.update(key, key + 1)?),
            (true, 2) => format!("put_batch from {key}: {:?}", table.put_batch(&records)?),
            (true, _) => format!("insert of {key}: {:?}", table.insert(key, key)?),
            (false, 2) => {
                let mut removed = [None; 4];
                table.remove_batch(&batch, &mut removed)?;
                format!("remove_batch from {key}: {removed:?}")
            }
            (false, 3) => format!("shrink_to_fit: {:?}", table.shrink_to_fit()?),
            (false, _) => format!("remove of {key}: {:?}", table.remove(key)?),
        })
    };
    let write = |writer: usize| -> std::result::Result<(), String> {
        let mut rng = Rng::fork(seed, writer as u64);
        for number in 0..CALLS {
            scheduler::begin();
            sim.begin_op();
            let answer = call(&mut rng, number % 30 < 18).map_err(|error| error.to_string())?;
            if let Some(read) = sim.op_returned().first() {
                return Err(format!("{answer}, which depends on {read}"));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (scheduler, write, trouble) = (&scheduler, &write, &trouble);
            scope.spawn(move || {
                scheduler.take_turns(writer, || {
                    if let Err(what) = write(writer) {
                        trouble.lock().expect("no panic").get_or_insert(what);
                    }
                });
            });
        }
    });
    sim.set_yield(0);
    let details = table.stats().details;
    let count =
        |event| details.iter().find(|detail| detail.0 == event).map_or(0, |detail| detail.1);
    trouble.into_inner().expect("no panic").map_or_else(|| Ok(EVENTS.map(count)), Err)
}

#[track_caller]
fn all<P: Directory>(options: impl Fn() -> DashOptions<u64, u64, P>) {
    let mut events = [0; EVENTS.len()];
    for seed in 0..SEEDS {
        match judged(seed, options()) {
            Ok(counts) => {
                events.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            Err(what) => panic!("{}, seed {seed}: {what}", P::DESIGN),
        }
    }
    println!("{}: {EVENTS:?} {events:?}", P::DESIGN);
    assert!(events.iter().all(|&count| count > 0), "{events:?}");
}

#[test]
fn what_writers_answer_lasts() {
    all(DashOptions::<u64, u64, Eh>::default);
    all(|| DashOptions::<u64, u64, Lh>::default().first_array(1));
}
