//! Crashes at every fence of short histories: each image must hold all acknowledged changes, and no space may be lost.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::storage::sim::{
    CrashPoint, EventKind, Image, Mutation, Pick, Pool, Sim, SimOptions, SiteKind, SiteLog,
};

const SLOTS: usize = 6;
/// The number of images sampled at one crash point. If at most twice this number exist, all of them are checked.
const IMAGES: u64 = 12;

/// The content that must survive a crash at this moment.
#[derive(Clone, Default)]
struct Promise {
    slots: [Option<Vec<u8>>; SLOTS],
    /// The slot that an operation is changing, and its new content.
    in_flight: Option<(usize, Option<Vec<u8>>)>,
    fault: Option<String>,
    images: u64,
}

fn options(pool: &Pool, recording: bool) -> SimOptions {
    SimOptions { recording, region_bytes: 1 << 19, pool: pool.clone(), ..SimOptions::default() }
}

fn params(session: u64) -> BlobParams {
    BlobParams { max_bytes: 1 << 19, growth_chunks: 2, session, ..TINY }
}

/// Opens an image and checks it against the promise.
fn judge(
    image: &Image,
    promise: &Promise,
    pool: &Pool,
    seed: u64,
) -> std::result::Result<(), String> {
    let look = || -> Result<()> {
        let sim = Sim::from_image(image, options(pool, false));
        let toy = Toy::open(Arc::new(sim), params(seed), SLOTS)?;
        for slot in 0..SLOTS {
            let found = toy.get(slot)?;
            let in_flight = promise.in_flight.as_ref().filter(|(changing, _)| *changing == slot);
            assert!(
                found == promise.slots[slot] || in_flight.is_some_and(|(_, new)| *new == found),
                "slot {slot} holds {:?} bytes, promised {:?}",
                found.map(|bytes| bytes.len()),
                promise.slots[slot].as_ref().map(Vec::len),
            );
        }
        toy.check();
        // Writes, scans and recycles on the recovered state before the final check.
        let kept: Vec<_> = (1..SLOTS).map(|slot| toy.get(slot)).collect::<Result<_>>()?;
        for round in 0..8 {
            toy.put(0, &content(seed + round, (round * 150) as usize))?;
        }
        for (slot, kept) in (1..).zip(kept) {
            assert_eq!(toy.get(slot)?, kept, "slot {slot} was overwritten");
        }
        toy.check_nothing_lost();
        Ok(())
    };
    match catch_unwind(AssertUnwindSafe(look)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => {
            Err(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".into()))
        }
    }
}

fn look_at(point: &CrashPoint<'_>, promise: &Mutex<Promise>, pool: &Pool, seed: u64) {
    let mut promise = lock(promise);
    if promise.fault.is_some() {
        return;
    }
    let space = point.space();
    let count = space.count().filter(|&count| count <= 2 * IMAGES);
    let mut image = Image::default();
    for n in 0..count.unwrap_or(IMAGES) {
        let pick = if count.is_some() {
            Pick::Nth(n)
        } else {
            Pick::sample(n, seed ^ point.event().number)
        };
        space.image(pick, &mut image);
        promise.images += 1;
        if let Err(fault) = judge(&image, &promise, pool, seed) {
            promise.fault = Some(format!("seed {seed}, {pick:?} at {:?}: {fault}", point.event()));
            return;
        }
    }
}

/// Runs one session of a few operations on `image`, and checks images at every crash point. Returns a crash image taken
/// in the middle of the session.
fn session(
    image: &Image,
    promise: &Arc<Mutex<Promise>>,
    seed: u64,
    pool: &Pool,
    sites: Option<&SiteLog>,
    mutation: Option<&Arc<Mutation>>,
) -> Result<Option<Image>> {
    let options = SimOptions {
        sites: sites.cloned(),
        mutation: mutation.cloned(),
        seed,
        ..options(pool, true)
    };
    let sim = Sim::from_image(image, options);
    let toy = Toy::open(Arc::new(sim.clone()), params(seed), SLOTS)?;
    let (watched, observed) = (Arc::clone(promise), pool.clone());
    sim.on_event(move |point| {
        let due =
            matches!(point.event().kind, EventKind::Fence | EventKind::Grow | EventKind::Punch);
        if due && point.is_open() || point.is_reordered() {
            look_at(point, &watched, &observed, seed);
        }
    });
    let mut choices = Choices::new(seed);
    let mut middle = None;
    for step in 0..14 {
        let slot = choices.below(SLOTS as u64) as usize;
        let len = [3, 60, 130, 300, 450, 450, 900, 1500, 3000][choices.below(9) as usize];
        let new = (choices.below(3) > 0).then(|| content(seed + step, len));
        lock(promise).in_flight = Some((slot, new.clone()));
        sim.begin_op();
        if choices.below(4) == 0 {
            // `compact` changes no contents, only the positions of blobs.
            lock(promise).in_flight = None;
            toy.compact()?;
            lock(promise).in_flight = Some((slot, new.clone()));
        }
        match &new {
            Some(bytes) => toy.put(slot, bytes)?,
            None => _ = toy.remove(slot)?,
        }
        {
            let mut promise = lock(promise);
            promise.in_flight = None;
            promise.slots[slot] = new;
        }
        sim.crash_point(|point| look_at(point, promise, pool, seed));
        if step == 7 {
            middle = Some(sim.crash_point(|point| {
                let mut image = Image::default();
                point.space().image(Pick::Random(seed), &mut image);
                (image, lock(promise).slots.clone())
            }));
        }
    }
    sim.no_observer();
    sim.check_shadow();
    Ok(middle.map(|(image, slots)| {
        lock(promise).slots = slots;
        image
    }))
}

/// Runs three sessions; the second and the third start from a crash image of the previous one. Returns the number of
/// images checked, or the fault.
fn history(
    seed: u64,
    pool: &Pool,
    sites: Option<&SiteLog>,
    mutation: Option<&Arc<Mutation>>,
) -> std::result::Result<u64, String> {
    let promise = Arc::new(Mutex::new(Promise::default()));
    let run = || -> Result<()> {
        let mut image = Image::default();
        for depth in 0..3 {
            let Some(next) = session(&image, &promise, seed * 3 + depth, pool, sites, mutation)?
            else {
                break;
            };
            image = next;
        }
        Ok(())
    };
    let outcome = catch_unwind(AssertUnwindSafe(run));
    let promise = lock(&promise);
    match (&promise.fault, outcome) {
        (Some(fault), _) => Err(fault.clone()),
        (None, Ok(Ok(()))) => Ok(promise.images),
        (None, Ok(Err(error))) => Err(error.to_string()),
        (None, Err(_)) => Err(format!("seed {seed}: a panic in the session itself")),
    }
}

/// One thread takes a chunk and does not fence yet; another publishes a block of that chunk.
fn shared_chunk(pool: &Pool, mutation: Option<&Arc<Mutation>>) -> std::result::Result<u64, String> {
    let sim = Sim::new(SimOptions { mutation: mutation.cloned(), ..options(pool, true) });
    let toy =
        Toy::open(Arc::new(sim.clone()), params(0), SLOTS).map_err(|error| error.to_string())?;
    toy.store.write(&sim, 0, b"in flight").map_err(|error| error.to_string())?;
    std::thread::scope(|scope| scope.spawn(|| toy.put(1, b"published")).join())
        .map_err(|_| "a panic".to_owned())?
        .map_err(|error| error.to_string())?;
    let mut promise = Promise::default();
    promise.slots[1] = Some(b"published".to_vec());
    let promise = Mutex::new(promise);
    sim.crash_point(|point| look_at(point, &promise, pool, 0));
    let promise = lock(&promise);
    promise.fault.clone().map_or(Ok(promise.images), Err)
}

#[test]
fn no_crash_loses_or_leaks_a_blob() {
    let pool = Pool::default();
    let mut images = shared_chunk(&pool, None).unwrap();
    for seed in 0..150 {
        images += history(seed, &pool, None, None).unwrap_or_else(|fault| panic!("{fault}"));
    }
    assert!(images > 20_000, "only {images} images");
}

#[test]
fn every_flush_and_fence_is_needed() {
    let pool = Pool::default();
    let log = SiteLog::default();
    for seed in 0..10 {
        history(seed, &pool, Some(&log), None).unwrap();
    }
    let sites: Vec<_> = log.sites().into_iter().map(|(site, _)| site).collect();
    let ours = |file: &str| file.contains("blob") && !file.contains("tests");
    let mutants: Vec<_> =
        sites.into_iter().filter(|site| ours(site.file) && site.kind != SiteKind::Store).collect();
    assert_eq!(
        mutants.len(),
        6,
        "flush of a block; fence of copies; flush, fence of a chunk's word; flush, fence of words given up: {mutants:?}"
    );
    for site in mutants {
        let mutation = Mutation::of(site);
        let caught = shared_chunk(&pool, Some(&mutation)).is_err()
            || (0..100).any(|seed| history(seed, &pool, None, Some(&mutation)).is_err());
        assert!(
            caught,
            "{site} can go: nothing fails without it ({} times skipped)",
            mutation.applied()
        );
    }
}
