//! Tests of the model: the images that a few stores can leave, case by case.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::mpsc;

use super::*;
use crate::Error;
use crate::storage::{
    Bytes, Cell32, Cell64, Medium, Persist, Region, Regions, SimHooks, Volatile32,
};

const NAME: &str = "test.ice";

fn sim_with(options: SimOptions, bytes: u64) -> (Sim, Region) {
    let sim = Sim::new(options);
    let region = sim.region(NAME, 1 << 16).unwrap();
    sim.grow(&region, bytes).unwrap();
    (sim, region)
}

fn sim(model: Model) -> (Sim, Region) {
    sim_with(SimOptions { model, ..SimOptions::default() }, 4096)
}

fn cell(region: &Region, word: u64) -> &Cell64 {
    region.at(word * 8).unwrap()
}

fn store(sim: &Sim, region: &Region, word: u64, value: u64) {
    cell(region, word).store(sim, value, Release);
}

fn word_of(image: &Image, word: usize) -> u64 {
    u64::from_le_bytes(*image.region(NAME).unwrap()[word * 8..].first_chunk().unwrap())
}

/// Returns all images of this moment, as the values of `words`.
fn images<const N: usize>(sim: &Sim, words: [usize; N]) -> BTreeSet<[u64; N]> {
    sim.crash_point(|point| {
        let space = point.space();
        let mut image = Image::default();
        let values = |pick| {
            space.image(pick, &mut image);
            words.map(|word| word_of(&image, word))
        };
        (0..space.count().unwrap()).map(Pick::Nth).map(values).collect()
    })
}

fn sampled<const N: usize>(sim: &Sim, words: [usize; N], samples: u64) -> BTreeSet<[u64; N]> {
    sim.crash_point(|point| {
        let space = point.space();
        let mut image = Image::default();
        let mut values = |n| {
            space.image(Pick::sample(n, 77), &mut image);
            words.map(|word| word_of(&image, word))
        };
        (0..samples).map(&mut values).collect()
    })
}

#[test]
fn a_store_is_sure_after_flush_and_fence_of_one_thread() {
    let (sim, region) = sim(Model::Pmem);
    store(&sim, &region, 0, 1);
    sim.fence();
    assert_eq!(images(&sim, [0]), [[0], [1]].into(), "a fence without a flush");
    sim.flush_object(cell(&region, 0));
    std::thread::scope(|scope| scope.spawn(|| sim.fence()).join()).unwrap();
    assert_eq!(images(&sim, [0]), [[0], [1]].into(), "another thread's fence");
    store(&sim, &region, 0, 2);
    sim.fence();
    assert_eq!(images(&sim, [0]), [[1], [2]].into(), "the flush covered the first store only");
    sim.persist(cell(&region, 0));
    assert_eq!(images(&sim, [0]), [[2]].into());
}

#[test]
fn a_flush_takes_other_threads_stores_along() {
    let (sim, region) = sim(Model::Pmem);
    std::thread::scope(|scope| scope.spawn(|| store(&sim, &region, 0, 1)).join()).unwrap();
    sim.persist(cell(&region, 0));
    assert_eq!(images(&sim, [0]), [[1]].into());
}

#[test]
fn release_stores_to_a_line_come_in_order_and_relaxed_ones_in_none() {
    let (sim, region) = sim(Model::Pmem);
    cell(&region, 0).store(&sim, 1, Relaxed);
    cell(&region, 1).store(&sim, 1, Release);
    cell(&region, 2).store(&sim, 1, Relaxed);
    let expected = [[0, 0, 0], [1, 0, 0], [0, 0, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1]];
    assert_eq!(images(&sim, [0, 1, 2]), expected.into());
    assert_eq!(sampled(&sim, [0, 1, 2], 200), expected.into());
}

#[test]
fn lines_are_independent() {
    let (sim, region) = sim(Model::Pmem);
    store(&sim, &region, 0, 1);
    store(&sim, &region, 8, 1);
    assert_eq!(images(&sim, [0, 8]), [[0, 0], [0, 1], [1, 0], [1, 1]].into());
}

#[test]
fn on_a_disk_every_word_has_any_of_its_versions() {
    let (sim, region) = sim(Model::Disk);
    store(&sim, &region, 0, 1);
    store(&sim, &region, 1, 1);
    store(&sim, &region, 0, 2);
    let expected = [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]];
    assert_eq!(images(&sim, [0, 1]), expected.into());
    assert_eq!(sampled(&sim, [0, 1], 200), expected.into());
    sim.persist(cell(&region, 0));
    assert_eq!(images(&sim, [0, 1]), [[2, 1]].into());
}

#[test]
fn a_fence_on_a_disk_takes_effect_when_it_or_a_later_one_ends() {
    let (sim, region) = sim(Model::Disk);
    let begin = |at, value| {
        store(&sim, &region, at, value);
        sim.flush_object(cell(&region, at));
        sim.begin_fence().unwrap()
    };
    let (first, second, third) = (begin(0, 1), begin(8, 1), begin(16, 1));
    sim.fence_deferred().unwrap();
    assert_eq!(images(&sim, [0, 8, 16]).len(), 8, "begun only");
    sim.end_fence(second).unwrap();
    assert_eq!(images(&sim, [0, 8, 16]), [[1, 1, 0], [1, 1, 1]].into());
    sim.end_fence(first).unwrap();
    assert_eq!(images(&sim, [0, 8, 16]).len(), 2);
    sim.end_fence(third).unwrap();
    assert_eq!(images(&sim, [0, 8, 16]), [[1, 1, 1]].into());
}

#[test]
fn half_words_may_tear() {
    let (sim, region) = sim(Model::Pmem);
    let half = |at: u64| region.at::<Cell32>(at * 4).unwrap();
    half(0).store(&sim, 1, Release);
    half(1).store(&sim, 1, Release);
    assert_eq!(images(&sim, [0]), [[0], [1], [1 | 1 << 32]].into());
}

#[test]
fn bulk_writes_have_no_order_even_against_a_later_release() {
    let (sim, region) = sim(Model::Pmem);
    let bytes = [[1; 8], [1; 8]].concat();
    // SAFETY: no other thread uses the range.
    unsafe { sim.write_bytes(&region, 0, &bytes) };
    store(&sim, &region, 2, 1);
    assert_eq!(images(&sim, [0, 1, 2]).len(), 8);
    // SAFETY: written above.
    assert_eq!(unsafe { sim.read_bytes(&region, 0, 16) }, Some(bytes.as_slice()));
    sim.flush(region.base().as_ptr(), 24);
    sim.fence();
    assert_eq!(images(&sim, [0, 1, 2]).len(), 1);
}

#[test]
fn bulk_writes_of_odd_bytes_keep_their_neighbours() {
    let (sim, region) = sim(Model::Pmem);
    store(&sim, &region, 0, u64::MAX);
    sim.persist(cell(&region, 0));
    // SAFETY: no other thread uses the range.
    unsafe { sim.write_bytes(&region, 3, &[0; 7]) };
    let expected = [[u64::MAX, 0], [0xFF_FFFF, 0]];
    assert_eq!(images(&sim, [0, 1]), expected.into());
    sim.check_shadow();
}

#[test]
fn volatile_words_are_garbage_in_every_image() {
    let (sim, region) = sim(Model::Pmem);
    let lock = region.at::<Volatile32>(0).unwrap();
    lock.store(&sim, 5, Relaxed);
    assert_eq!(lock.compare_exchange_weak(&sim, 6, 7, Acquire, Relaxed), Err(5));
    assert_eq!(lock.load(&sim, Relaxed), 5);
    store(&sim, &region, 1, 9);
    sim.persist(cell(&region, 1));
    let garbage = |seed| {
        let options = SimOptions { seed, ..SimOptions::default() };
        word_of(&Sim::from_image(&sim.image(), options).image(), 0)
    };
    let seen: BTreeSet<u64> = (0..20).map(garbage).collect();
    assert!(seen.len() > 5 && seen.iter().all(|&word| word <= u64::from(u32::MAX)), "{seen:?}");
    assert_eq!(word_of(&sim.image(), 1), 9);
    store(&sim, &region, 0, 3);
    assert_eq!(word_of(&sim.image(), 0), 3, "a durable store takes the word back");
}

#[test]
fn a_store_behind_the_medium_is_found() {
    let (sim, region) = sim(Model::Pmem);
    store(&sim, &region, 0, 1);
    // SAFETY: in bounds, and there is no other thread.
    unsafe { region.base().add(100).write(1) };
    let message = catch_unwind(AssertUnwindSafe(|| sim.fence())).unwrap_err();
    let message = message.downcast::<String>().unwrap();
    assert_eq!(*message, format!("{UNRECORDED} to {NAME} at byte 100"));
}

#[test]
fn a_loop_without_end_is_found() {
    let options = SimOptions { step_budget: 1000, ..SimOptions::default() };
    let (sim, region) = sim_with(options, 4096);
    for _ in 0..10 {
        sim.begin_op();
        (0..900).for_each(|_| assert_eq!(cell(&region, 0).load(&sim, Acquire), 0));
    }
    let wait = || (0..10_000).for_each(|rounds| sim.wait(rounds));
    let message = catch_unwind(AssertUnwindSafe(wait)).unwrap_err().downcast::<String>().unwrap();
    assert!(message.starts_with(HANG), "{message}");
}

#[test]
fn lines_count_once_per_operation() {
    let options = SimOptions { counting: true, ..SimOptions::default() };
    let (sim, region) = sim_with(options, 1 << 16);
    for _ in 0..3 {
        sim.begin_op();
        (0..16).for_each(|word| assert_eq!(cell(&region, word).load(&sim, Acquire), 0));
    }
    sim.begin_op();
    store(&sim, &region, 512, 1);
    store(&sim, &region, 513, 1);
    sim.persist(cell(&region, 512));
    let counters = sim.counters();
    assert_eq!(counters.line_reads, [(NAME, 6)]);
    assert_eq!((counters.line_writes, counters.flushes, counters.fences), (1, 1, 1));
    assert_eq!((counters.media_reads, counters.media_writes), (1, 0));
}

#[test]
fn touches_are_told_in_order() {
    let options = SimOptions { counting: true, recording: false, ..SimOptions::default() };
    let (sim, region) = sim_with(options, 1 << 16);
    let (tell, told) = mpsc::channel();
    sim.on_touch(move |line| tell.send(line).unwrap());
    for word in [0, 16, 17, 0] {
        cell(&region, word).load(&sim, Acquire);
    }
    store(&sim, &region, 24, 1);
    assert_eq!(told.try_iter().map(|line| line as u32).collect::<Vec<_>>(), [0, 2, 2, 0, 3]);
}

#[test]
fn whole_blocks_are_written_once_and_partial_ones_are_read_first() {
    let options = SimOptions { counting: true, recording: false, ..SimOptions::default() };
    let (sim, region) = sim_with(options, 1 << 16);
    let write = |line: u64| {
        sim.begin_op();
        store(&sim, &region, line * 8, 1);
        sim.persist(cell(&region, line * 8));
    };
    // 64 whole blocks fit into the buffer; 36 more evict 36 of them.
    (0..400).for_each(write);
    let counters = sim.counters();
    assert_eq!((counters.media_writes, counters.media_reads), (36, 0));
    // One line each of 100 other blocks: the 64 whole blocks are evicted first, then 36 partial ones.
    (100..200).for_each(|block| write(block * 4));
    let counters = sim.counters();
    assert_eq!((counters.media_writes, counters.media_reads), (136, 36));
}

/// Runs `first` here, then `second` on another thread, then `third` here.
fn in_turn(first: impl FnOnce(), second: impl FnOnce() + Send, third: impl FnOnce()) {
    let (go, wait) = mpsc::channel();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            wait.recv().unwrap();
            second();
        });
        first();
        go.send(()).unwrap();
        other.join().unwrap();
        third();
    });
}

#[test]
fn answers_built_on_unpersisted_words_are_reported() {
    let options = SimOptions { detecting: true, strict_stores: true, ..SimOptions::default() };
    let (sim, region) = sim_with(options, 4096);
    let read = || {
        sim.begin_op();
        cell(&region, 0).load(&sim, Acquire)
    };
    in_turn(
        || store(&sim, &region, 0, 1),
        || {
            read();
            let found = sim.op_returned();
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].region, found[0].offset, found[0].stored), (NAME, 0, false));
            read();
            sim.forget_reads();
            assert!(sim.op_returned().is_empty(), "thrown away");
            assert_eq!(sim.read_unvalidated(read), 1);
            assert!(sim.op_returned().is_empty(), "decided nothing");
            read();
            store(&sim, &region, 8, 1);
            assert!(sim.op_returned().iter().any(|read| read.stored), "built upon");
        },
        || {
            assert_eq!(read(), 1);
            assert!(sim.op_returned().is_empty(), "its own store");
            sim.persist(cell(&region, 0));
        },
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            read();
            assert!(sim.op_returned().is_empty(), "persistent by now");
        });
    });
}

#[test]
fn copies_may_be_read_ahead() {
    let options = SimOptions { detecting: true, ..SimOptions::default() };
    let (sim, region) = sim_with(options, 4096);
    let read = |byte| {
        sim.begin_op();
        cell(&region, byte).load(&sim, Acquire);
        sim.op_returned().len()
    };
    in_turn(
        || {
            sim.store_copy(|| store(&sim, &region, 0, 1));
            store(&sim, &region, 8, 1);
        },
        || assert_eq!([read(0), read(8)], [0, 1]),
        || (),
    );
}

#[test]
fn exempt_regions_may_be_read_ahead() {
    let options = SimOptions { detecting: true, exempt: &[NAME], ..SimOptions::default() };
    let (sim, region) = sim_with(options, 4096);
    let second = || {
        sim.begin_op();
        cell(&region, 0).load(&sim, Acquire);
        assert!(sim.op_returned().is_empty());
    };
    in_turn(|| store(&sim, &region, 0, 1), second, || ());
}

/// Stores and persists a data word, then two publication words on another line: three stores, two flushes, two fences.
fn publish(sim: &Sim, region: &Region) {
    store(sim, region, 0, 1);
    sim.flush_object(cell(region, 0));
    sim.fence();
    cell(region, 8).store(sim, 1, Release);
    cell(region, 9).store(sim, 1, Release);
    sim.flush(region.base().as_ptr().wrapping_add(64), 16);
    sim.fence();
}

/// Returns all images of `publish` under a mutation of the `n`th site of a kind, and how often the mutation was
/// applied.
fn mutated(kind: SiteKind, n: usize) -> (BTreeSet<[u64; 3]>, u64) {
    let sites = SiteLog::default();
    let (sim, region) =
        sim_with(SimOptions { sites: Some(sites.clone()), ..SimOptions::default() }, 4096);
    publish(&sim, &region);
    let site = sites.sites().into_iter().filter(|(site, _)| site.kind == kind).nth(n).unwrap().0;
    let mutation = Mutation::of(site);
    let options = SimOptions { mutation: Some(mutation.clone()), ..SimOptions::default() };
    let (sim, region) = sim_with(options, 4096);
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let sink = seen.clone();
    sim.on_event(move |point| {
        let space = point.space();
        let mut image = Image::default();
        for n in 0..space.count().unwrap() {
            space.image(Pick::Nth(n), &mut image);
            sink.lock().unwrap().insert([0, 8, 9].map(|word| word_of(&image, word)));
        }
    });
    sim.begin_op();
    publish(&sim, &region);
    sim.no_observer();
    seen.lock().unwrap().extend(images(&sim, [0, 8, 9]));
    let seen = seen.lock().unwrap().clone();
    (seen, mutation.applied())
}

#[test]
fn mutations_add_exactly_the_images_that_the_site_forbids() {
    let right: BTreeSet<_> = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]].into();
    let early: BTreeSet<_> = [[0, 1, 0], [0, 1, 1]].into();
    let with = |more: &BTreeSet<[u64; 3]>| right.union(more).copied().collect::<BTreeSet<_>>();
    assert_eq!(mutated(SiteKind::Flush, 0), (with(&early), 1));
    assert_eq!(mutated(SiteKind::Fence, 0), (with(&early), 1));
    assert_eq!(mutated(SiteKind::Store, 0).0, right, "nothing stands before it");
    // The first publication word moves before the fence; the second moves before the fence and before the first word.
    assert_eq!(mutated(SiteKind::Store, 1).0, with(&[[0, 1, 0]].into()));
    assert_eq!(mutated(SiteKind::Store, 2).0, with(&[[0, 0, 1], [1, 0, 1]].into()));
    assert_eq!(
        mutated(SiteKind::Fence, 1).0,
        right,
        "visible to whoever knows that the call returned"
    );
}

#[test]
fn who_has_left_something_out_stands_back_before_the_fence_that_makes_up_for_it() {
    static GAVE_WAY: AtomicU64 = AtomicU64::new(0);
    let sites = SiteLog::default();
    let (sim, region) =
        sim_with(SimOptions { sites: Some(sites.clone()), ..SimOptions::default() }, 4096);
    publish(&sim, &region);
    let fences = sites.sites().into_iter().filter(|(site, _)| site.kind == SiteKind::Fence);
    let gave_way: Vec<u64> = fences
        .map(|(site, _)| {
            let options = SimOptions {
                mutation: Some(Mutation::of(site)),
                yield_one_in: u32::MAX,
                give_way: || _ = GAVE_WAY.fetch_add(1, Relaxed),
                ..SimOptions::default()
            };
            let (sim, region) = sim_with(options, 4096);
            GAVE_WAY.store(0, Relaxed);
            publish(&sim, &region);
            GAVE_WAY.load(Relaxed)
        })
        .collect();
    assert!(gave_way[0] > 0, "{gave_way:?}");
    assert_eq!(gave_way[1..], [0], "the last fence has none behind it");
}

#[test]
fn space_is_limited_and_lengths_are_published() {
    let options = SimOptions { space_bytes: 8192, ..SimOptions::default() };
    let (sim, region) = sim_with(options, 100);
    assert_eq!((region.len(), region.max_bytes()), (128, 1 << 16));
    assert!(matches!(sim.grow(&region, 8193), Err(Error::NoSpace { .. })));
    assert_eq!(region.len(), 128);
    sim.set_space(u64::MAX);
    sim.grow(&region, 8192).unwrap();
    assert!(matches!(sim.grow(&region, (1 << 16) + 1), Err(Error::NoSpace { .. })));
    let same = sim.region(NAME, 1).unwrap();
    assert_eq!((same.len(), same.base()), (8192, region.base()));
}

#[test]
fn punched_pages_are_zero_for_good() {
    let (sim, region) = sim_with(SimOptions::default(), 16384);
    for word in [0, 512, 1024, 1536] {
        store(&sim, &region, word, 7);
    }
    sim.punch(&region, 100, 12200).unwrap();
    assert_eq!(images(&sim, [512, 1024]), [[0, 0]].into());
    assert_eq!(cell(&region, 512).load(&sim, Acquire), 0);
    assert_eq!(images(&sim, [0, 1536]).len(), 4);
    sim.check_shadow();
}

#[test]
fn recycled_memory_is_clean() {
    let pool = Pool::default();
    let options = || SimOptions { pool: pool.clone(), ..SimOptions::default() };
    // Word 8 is left out: it is used as a volatile word of 32 bits, and atomics of two sizes must not be mixed.
    let durable = || (0..1024).filter(|&word| word != 8);
    for _ in 0..3 {
        let (sim, region) = sim_with(options(), 8192);
        let volatile = region.at::<Volatile32>(64).unwrap();
        assert!(durable().all(|word| cell(&region, word).load(&sim, Relaxed) == 0));
        assert_eq!(volatile.load(&sim, Relaxed), 0);
        assert_eq!(images(&sim, [0, 1000]), [[0, 0]].into());
        durable().for_each(|word| store(&sim, &region, word, u64::MAX));
        volatile.store(&sim, 1, Relaxed);
    }
}

#[test]
fn images_open_as_they_are() {
    let (sim, region) = sim(Model::Pmem);
    (0..512).for_each(|word| store(&sim, &region, word, word * 3));
    let mut image = sim.image();
    image.set_region("other.ice", vec![1, 2, 3]);
    image.region_mut(NAME).unwrap().truncate(100);
    for recording in [true, false] {
        let options = SimOptions { recording, ..SimOptions::default() };
        let copy = Sim::from_image(&image, options);
        assert_eq!(copy.image().region(NAME), image.region(NAME));
        let other = copy.region("other.ice", 4096).unwrap();
        assert_eq!((other.len(), copy.region(NAME, 4096).unwrap().len()), (3, 100));
        copy.grow(&other, 4096).unwrap();
        other.at::<Cell64>(8).unwrap().store(&copy, 1, Release);
        copy.persist(other.at::<Cell64>(8).unwrap());
        assert_eq!(copy.image().region("other.ice").unwrap()[..9], [1, 2, 3, 0, 0, 0, 0, 0, 1]);
    }
    image.remove_region(NAME);
    assert_eq!(image.regions().count(), 1);
}

#[test]
fn logs_of_lines_that_nobody_flushes_stay_short() {
    let (sim, region) = sim(Model::Pmem);
    (1..=1000).for_each(|value| store(&sim, &region, 0, value));
    let seen = images(&sim, [0]);
    assert!(seen.len() < 64 && seen.contains(&[1000]) && !seen.contains(&[1]), "{seen:?}");
}

#[test]
fn the_observer_hears_of_everything_and_sees_it_late() {
    let (sim, region) = sim(Model::Pmem);
    let (sink, events) = mpsc::channel();
    sim.on_event(move |point| sink.send((point.event().kind, point.is_open())).unwrap());
    store(&sim, &region, 0, 1);
    sim.flush_object(cell(&region, 0));
    sim.fence();
    sim.grow(&region, 8192).unwrap();
    sim.no_observer();
    store(&sim, &region, 0, 2);
    let expected = [
        (EventKind::Store, true),
        (EventKind::Flush, true),
        (EventKind::Fence, true),
        (EventKind::Grow, false),
    ];
    assert_eq!(events.iter().collect::<Vec<_>>(), expected);
}
