//! One thread uses the store; its results are compared with those of a plain map.

use std::collections::HashMap;
use std::sync::Barrier;
use std::time::Duration;

use super::super::class::{Extent, FREE};
use super::super::space::map_word;
use super::*;
use crate::storage::{Mapped, MappedOptions, Regions, superblock};

/// Returns a random length: mostly small, over all classes, and sometimes longer than a chunk.
fn length(choices: &mut Choices) -> usize {
    match choices.below(20) {
        0 => 0,
        1 => 1,
        2..15 => choices.below(120) as usize,
        15..19 => choices.below(900) as usize,
        _ => choices.below(5_000) as usize,
    }
}

fn run(seed: u64, params: BlobParams, operations: u32) {
    const SLOTS: usize = 40;
    let mut choices = Choices::new(seed);
    let storage = Arc::new(Plain::default());
    let mut toy = Toy::open(Arc::clone(&storage), params, SLOTS).unwrap();
    let mut model: HashMap<usize, Vec<u8>> = HashMap::new();
    for step in 0..operations {
        let slot = choices.below(SLOTS as u64) as usize;
        match choices.below(100) {
            0..50 => {
                let bytes = content(u64::from(step), length(&mut choices));
                toy.put(slot, &bytes).unwrap();
                model.insert(slot, bytes);
            }
            50..80 => {
                assert_eq!(toy.remove(slot).unwrap(), model.remove(&slot).is_some(), "seed {seed}")
            }
            80..84 => {
                let blob = toy
                    .store
                    .write(&*storage, slot as u64, &content(7, length(&mut choices)))
                    .unwrap();
                toy.store.discard(blob);
            }
            84..86 => {
                drop(toy);
                toy = Toy::open(
                    Arc::clone(&storage),
                    BlobParams { session: u64::from(step), ..params },
                    SLOTS,
                )
                .unwrap();
            }
            86..88 => toy.check_nothing_lost(),
            _ => assert_eq!(
                toy.get(slot).unwrap(),
                model.get(&slot).cloned(),
                "seed {seed}, step {step}"
            ),
        }
        toy.check();
    }
    for slot in 0..SLOTS {
        assert_eq!(toy.get(slot).unwrap(), model.get(&slot).cloned(), "seed {seed}, slot {slot}");
    }
    toy.check_nothing_lost();
}

#[test]
fn behaves_like_a_map_across_reopenings() {
    for seed in 0..60 {
        run(seed, TINY, 400);
    }
    for seed in 0..6 {
        run(seed, BlobParams { max_bytes: 64 << 20, ..BlobParams::default() }, 400);
    }
}

#[test]
fn every_length_comes_back() {
    let storage = Arc::new(Plain::default());
    let params = BlobParams { max_bytes: 256 << 20, ..BlobParams::default() };
    let lengths = [
        0,
        1,
        15,
        16,
        17,
        112,
        113,
        16_368,
        16_369,
        32_752,
        32_753,
        65_520,
        65_521,
        1 << 20,
        MAX_BLOB_BYTES,
    ];
    let toy = Toy::open(Arc::clone(&storage), params, lengths.len()).unwrap();
    for (slot, &len) in lengths.iter().enumerate() {
        toy.put(slot, &content(slot as u64, len)).unwrap();
    }
    let reopened = Toy::open(Arc::clone(&storage), params, lengths.len()).unwrap();
    for (slot, &len) in lengths.iter().enumerate() {
        assert!(reopened.get(slot).unwrap() == Some(content(slot as u64, len)), "{len} bytes");
    }
    reopened.check_nothing_lost();
    let long = vec![0; MAX_BLOB_BYTES + 1];
    assert!(matches!(reopened.put(0, &long), Err(Error::ValueTooLong { .. })));
}

/// Runs many sessions of `operations` puts each, and returns the region's size after the first half and at the end.
fn creep(operations: u64, sessions: u64, longest: u64) -> (u64, u64) {
    let storage = Arc::new(Plain::default());
    let mut choices = Choices::new(operations);
    let mut half = 0;
    for session in 0..sessions {
        let toy = Toy::open(Arc::clone(&storage), BlobParams { session, ..TINY }, 32).unwrap();
        for step in 0..operations {
            let len = choices.below(longest) as usize;
            toy.put(choices.below(32) as usize, &content(step, len)).unwrap();
        }
        if session == sessions / 2 {
            half = toy.store.stats().region_bytes;
        }
    }
    let toy = Toy::open(storage, TINY, 32).unwrap();
    toy.check_nothing_lost();
    (half, toy.store.stats().region_bytes)
}

#[test]
fn short_sessions_do_not_make_the_region_creep() {
    for (operations, sessions, longest) in
        [(1, 4000, 700), (1, 4000, 2000), (5, 1000, 700), (30, 400, 700), (300, 160, 3000)]
    {
        let (half, end) = creep(operations, sessions, longest);
        assert!(
            end <= half * 5 / 4,
            "{operations} puts a session, up to {longest} bytes: {half}, later {end} bytes"
        );
    }
}

#[test]
fn a_full_region_is_an_error_and_recovers() {
    let params = BlobParams { max_bytes: 64 << 10, ..TINY };
    let storage = Arc::new(Plain::default());
    let toy = Toy::open(Arc::clone(&storage), params, 100).unwrap();
    let fitting = (0..100).take_while(|&slot| toy.put(slot, &content(1, 1_000)).is_ok()).count();
    assert_eq!(fitting, 64);
    assert!(matches!(toy.put(99, &content(1, 5_000)), Err(Error::NoSpace { .. })));
    toy.check();
    // There is enough free space, but a new session has to find it.
    (0..fitting).for_each(|slot| assert!(toy.remove(slot).unwrap()));
    drop(toy);
    let toy = Toy::open(Arc::clone(&storage), params, 100).unwrap();
    toy.put(5, &content(2, 40_000)).unwrap();
    assert_eq!(toy.get(5).unwrap(), Some(content(2, 40_000)));
    toy.check_nothing_lost();
}

#[test]
fn a_full_device_is_an_error_and_loses_nothing() {
    let storage = Arc::new(Plain::default());
    let toy = Toy::open(Arc::clone(&storage), TINY, 10).unwrap();
    toy.put(0, &content(1, 100)).unwrap();
    storage.full.store(true, Ordering::Relaxed);
    for len in [100, 300, 5_000] {
        let outcome = toy.put(1, &content(1, len));
        assert_eq!(outcome.is_err(), len != 100, "{len} bytes");
    }
    toy.check_nothing_lost();
    storage.full.store(false, Ordering::Relaxed);
    toy.put(1, &content(1, 5_000)).unwrap();
    toy.check_nothing_lost();
}

fn identity() -> superblock::Identity {
    superblock::Identity {
        design: "toy".into(),
        key_type: "u64".into(),
        value_type: "bytes".into(),
        hash_id: 1,
        hash_seed: [2, 3],
        params: [0; 16],
        uuid: [4, 5],
    }
}

#[test]
fn files_keep_blobs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let mut model = HashMap::new();
    let mut choices = Choices::new(8);
    for session in 0..6 {
        let options = MappedOptions::default();
        let opened = if session == 0 {
            Mapped::create(&path, options)
        } else {
            Mapped::open(&path, options)
        };
        let storage = Arc::new(opened.unwrap());
        let params = BlobParams { session, max_bytes: 1 << 30, ..BlobParams::default() };
        let toy = Toy::open(Arc::clone(&storage), params, 16).unwrap();
        if session == 0 {
            let table = superblock::create(&*storage).unwrap();
            superblock::seal(&*storage, &table, &identity()).unwrap();
            storage.publish_created().unwrap();
        }
        for step in 0..100 {
            let slot = choices.below(16) as usize;
            let bytes =
                content(step, [10, 500, 20_000, 300_000, 1_000_000][choices.below(5) as usize]);
            if choices.below(3) == 0 {
                assert_eq!(toy.remove(slot).unwrap(), model.remove(&slot).is_some());
            } else {
                toy.put(slot, &bytes).unwrap();
                model.insert(slot, bytes);
            }
        }
        for slot in 0..16 {
            assert!(
                toy.get(slot).unwrap() == model.get(&slot).cloned(),
                "slot {slot}, session {session}"
            );
        }
        toy.check_nothing_lost();
        drop(toy);
        storage.close();
    }
}

#[test]
fn plenty_of_free_space_goes_back_to_the_file_system() {
    let storage = Arc::new(Plain::default());
    let toy = Toy::open(Arc::clone(&storage), TINY, 20).unwrap();
    (0..20).for_each(|slot| toy.put(slot, &content(slot as u64, 9_000)).unwrap());
    (0..20).for_each(|slot| assert!(toy.remove(slot).unwrap()));
    toy.check_nothing_lost();
    assert!(!lock(&storage.punched).is_empty());
    (0..20).for_each(|slot| toy.put(slot, &content(slot as u64, 900)).unwrap());
    for (_, blob) in toy.live() {
        let offset = blob.offset().unwrap();
        let holes = lock(&storage.punched);
        let hole = holes.iter().find(|&&(start, length)| (start..start + length).contains(&offset));
        assert_eq!(hole, None, "stored into a hole");
    }
}

/// Returns the number of bytes in chunks that are used.
fn used_chunk_bytes(toy: &Toy<Plain>) -> u64 {
    let stats = toy.store.stats();
    let shared = &toy.store.shared;
    shared.blobs.len() - stats.free_bytes
}

#[test]
fn what_is_left_of_many_is_moved_together() {
    const SLOTS: usize = 2_000;
    for reopened in [false, true] {
        let storage = Arc::new(Plain::default());
        let mut toy = Toy::open(Arc::clone(&storage), TINY, SLOTS).unwrap();
        let of = |slot: usize| content(slot as u64, 40 + slot % 160);
        for slot in 0..SLOTS {
            toy.put(slot, &of(slot)).unwrap();
        }
        let full = used_chunk_bytes(&toy);
        for slot in (0..SLOTS).filter(|slot| slot % 20 != 0) {
            toy.remove(slot).unwrap();
        }
        if reopened {
            // The new session has not scanned for dead blocks yet.
            toy = Toy::open(Arc::clone(&storage), TINY, SLOTS).unwrap();
        }
        toy.compact().unwrap();
        for slot in 0..SLOTS {
            let expected = slot.is_multiple_of(20).then(|| of(slot));
            assert_eq!(toy.get(slot).unwrap(), expected, "slot {slot}");
        }
        // The bound allows one partly used chunk (1024 bytes) for each class.
        let classes = u64::from(toy.store.shared.classes.count() as u32);
        let used = used_chunk_bytes(&toy);
        assert!(used <= 2 * toy.live_bytes() + classes * 1024, "{used} bytes of {full}");
        let punched: u64 = lock(&storage.punched).iter().map(|&(_, bytes)| bytes).sum();
        assert!(
            punched >= storage.region(BLOBS_REGION, 0).unwrap().len() - used,
            "{punched} bytes"
        );
        toy.check_nothing_lost();
        // A second compaction finds nothing to move.
        let places = toy.live();
        toy.compact().unwrap();
        assert_eq!(toy.live(), places);
        // The space that was given back is used again.
        for slot in 0..SLOTS {
            toy.put(slot, &of(slot)).unwrap();
        }
        assert!(used_chunk_bytes(&toy) <= full + full / 8);
        toy.check_nothing_lost();
    }
}

/// The system may suspend a reader for longer than any number of rounds of spinning and yielding takes.
#[test]
fn compaction_waits_for_a_suspended_reader() {
    const SLOTS: usize = 400;
    let toy = Toy::open(Arc::new(Plain::default()), TINY, SLOTS).unwrap();
    (0..SLOTS).for_each(|slot| toy.put(slot, &content(slot as u64, 100)).unwrap());
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = toy.reclaimer.pin();
            barrier.wait();
            std::thread::sleep(Duration::from_millis(40));
        });
        barrier.wait();
        (0..SLOTS).filter(|slot| slot % 20 != 0).for_each(|slot| _ = toy.remove(slot).unwrap());
        toy.compact().unwrap();
    });
    let used = used_chunk_bytes(&toy);
    assert!(used <= 2 * toy.live_bytes() + 1024, "{used} bytes");
}

#[test]
fn a_damaged_blob_is_not_made_good_by_moving_it() {
    let storage = Arc::new(Plain::default());
    let toy = Toy::open(Arc::clone(&storage), TINY, 40).unwrap();
    (0..40).for_each(|slot| toy.put(slot, &content(slot as u64, 100)).unwrap());
    (0..40).filter(|slot| slot % 8 != 7).for_each(|slot| _ = toy.remove(slot).unwrap());
    let blob = toy.load(7).unwrap();
    let word: &Cell64 = toy.store.shared.blobs.at(blob.offset().unwrap() + 16).unwrap();
    word.store(&*storage, !word.load(&*storage, Ordering::Relaxed), Ordering::Relaxed);
    toy.compact().unwrap();
    assert!(toy.load(7).unwrap().same_block(blob));
    assert!(matches!(toy.get(7), Err(Error::Corrupt { .. })));
    for slot in [15, 23, 31, 39] {
        assert_eq!(toy.get(slot).unwrap(), Some(content(slot as u64, 100)));
    }
}

/// The map claims a run over a chunk that the session uses already.
#[test]
fn a_run_over_chunks_in_use_is_refused() {
    let storage = Arc::new(Plain::default());
    let toy = Toy::open(Arc::clone(&storage), TINY, 40).unwrap();
    (0..40).for_each(|slot| toy.put(slot, &content(slot as u64, 400)).unwrap());
    let number = 4;
    let claim = toy.store.shared.classes.encode(number, Extent::Large(6));
    let word = |number| map_word(&toy.store.shared.map, number).unwrap();
    word(number).store(&*storage, claim, Ordering::Relaxed);
    for inside in number + 1..number + 6 {
        word(inside).store(&*storage, FREE, Ordering::Relaxed);
    }
    let toy = Toy::open(Arc::clone(&storage), TINY, 40).unwrap();
    // The session uses this chunk although its word is FREE.
    *lock(toy.store.shared.chunks.get(number + 2)) = Chunk::Vacant;
    toy.store.make_room(&*storage, &toy).unwrap();
    assert!(matches!(*lock(toy.store.shared.chunks.get(number)), Chunk::Unscanned));
}

#[test]
fn damage_is_an_error() {
    let storage = Arc::new(Plain::default());
    let toy = Toy::open(Arc::clone(&storage), TINY, 4).unwrap();
    toy.put(0, &content(1, 100)).unwrap();
    toy.put(1, &content(2, 3_000)).unwrap();
    let corrupt =
        |blob: BlobRef| matches!(toy.store.verify(&*storage, 0, blob), Err(Error::Corrupt { .. }));
    for word in [0, 1 << 40, u64::MAX, 0xFFFF << 48] {
        assert!(corrupt(BlobRef::from_word(word)), "{word:#x}");
    }
    let blob = toy.load(0).unwrap();
    assert!(corrupt(toy.load(1).unwrap()), "another owner");
    let shape: &Cell64 = toy.store.shared.blobs.at(blob.offset().unwrap()).unwrap();
    let good = shape.load(&*storage, Ordering::Relaxed);
    for bad in [good ^ 1, good ^ 1 << 20, good | 0xFFFF_FFFF, good ^ 1 << 40, 0] {
        shape.store(&*storage, bad, Ordering::Relaxed);
        assert!(corrupt(blob), "{bad:#x}");
        assert!(!toy.report(toy.live()).is_clean());
    }
    shape.store(&*storage, good, Ordering::Relaxed);
    toy.check();
}

#[test]
fn nothing_behind_a_damaged_word_is_given_away() {
    for damage in [1_u64, 1 << 9, 1 << 50, u64::MAX] {
        let storage = Arc::new(Plain::default());
        let toy = Toy::open(Arc::clone(&storage), TINY, 30).unwrap();
        (0..30).for_each(|slot| toy.put(slot, &content(slot as u64, 400 * (slot % 4))).unwrap());
        drop(toy);
        let toy = Toy::open(Arc::clone(&storage), TINY, 31).unwrap();
        let word: &Cell64 = toy.store.shared.map.at(3 * WORD_BYTES).unwrap();
        word.store(&*storage, word.load(&*storage, Ordering::Relaxed) ^ damage, Ordering::Relaxed);
        for step in 0..100 {
            toy.put(30, &content(step, step as usize * 20)).unwrap();
        }
        toy.store.make_room(&*storage, &toy).unwrap();
        for slot in 0..30 {
            let len = 400 * (slot % 4);
            match toy.get(slot) {
                // Only the blob whose run the damaged word describes is unreadable.
                Err(Error::Corrupt { .. }) => assert!(len > 1024, "damage {damage:#x}"),
                found => {
                    let right = Some(content(slot as u64, len));
                    assert_eq!(found.unwrap(), right, "damage {damage:#x}");
                }
            }
        }
        let report = toy.report(toy.live());
        assert!(report.faults.iter().any(|fault| fault.contains("I1")), "{report:?}");
    }
}

#[test]
fn the_check_tells_leaks_and_double_owners() {
    let storage = Arc::new(Plain::default());
    let toy = Toy::open(Arc::clone(&storage), TINY, 4).unwrap();
    toy.put(0, b"zero").unwrap();
    toy.put(1, b"one").unwrap();
    let mut live = toy.live();
    live.push(live[0]);
    assert!(toy.report(live).faults.iter().any(|fault| fault.contains("I3")));
    assert_eq!(toy.report(toy.live().into_iter().skip(1)).leaked, 1);
    let blob = toy.load(1).unwrap();
    toy.store.discard(blob);
    assert!(toy.report(toy.live()).faults.iter().any(|fault| fault.contains("I5")));
}

/// Blobs of equal size that are replaced again and again use the blocks that become free, from whichever chunk, and the
/// last of them can still be given back.
#[test]
fn replaced_blobs_use_spare_blocks_and_chunks_still_become_free() {
    let storage = Arc::new(Plain::default());
    let toy = Toy::open(Arc::clone(&storage), TINY, 400).unwrap();
    let mut choices = Choices::new(11);
    (0..400).for_each(|slot| toy.put(slot, &content(slot as u64, 40)).unwrap());
    // The blocks of the retired batches come on top of the live ones.
    (0..4_000).for_each(|_| toy.put(choices.below(400) as usize, &content(7, 40)).unwrap());
    let grown = toy.store.stats().region_bytes;
    for step in 0..20_000 {
        toy.put(choices.below(400) as usize, &content(step, 40)).unwrap();
    }
    assert_eq!(toy.store.stats().region_bytes, grown, "a store of constant size does not grow");
    toy.check();
    (0..400).for_each(|slot| assert!(toy.remove(slot).unwrap()));
    toy.check_nothing_lost();
    let (stats, chunks) = (toy.store.stats(), toy.store.shared.blobs.len());
    // The stripe keeps its chunk.
    let chunk = u64::from(TINY.chunk_bytes);
    assert_eq!((stats.used_bytes, stats.free_bytes), (0, chunks - chunk));
}

/// A region without a free chunk: the space of spare blocks of one class is available to the other classes.
#[test]
fn spare_blocks_do_not_keep_other_classes_from_room() {
    let storage = Arc::new(Plain::default());
    let params = BlobParams { max_bytes: 16 << 10, ..TINY };
    let toy = Toy::open(Arc::clone(&storage), params, 300).unwrap();
    let fill =
        |len: usize| (0..300).take_while(|&slot| toy.put(slot, &content(1, len)).is_ok()).count();
    for len in [40, 200, 90, 40, 450] {
        let count = fill(len);
        assert!(count * (len + 16) > 16 << 10 >> 1, "{count} blobs of {len} bytes");
        (0..count).for_each(|slot| assert!(toy.remove(slot).unwrap()));
    }
    toy.check_nothing_lost();
}
