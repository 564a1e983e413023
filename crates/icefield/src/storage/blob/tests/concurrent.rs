//! Readers, writers and the scan run at the same time.

use std::sync::atomic::{AtomicBool, AtomicU64};

use super::*;

const SLOTS: usize = 24;
/// The number of sessions, the number of each writer's steps in a session, and the least number of reads. All are
/// smaller under Miri, which is slow.
const SESSIONS: u64 = if cfg!(miri) { 2 } else { 30 };
const STEPS: u64 = if cfg!(miri) { 20 } else { 300 };
const MIN_READS: u64 = if cfg!(miri) { 10 } else { 1_000 };
const WRITERS: u64 = 3;

/// Content that can be verified without a model: the first eight bytes are the seed of the other bytes.
fn marked(seed: u64) -> Vec<u8> {
    let mut bytes = content(seed, 8 + (seed % 700) as usize);
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes
}

fn assert_whole(bytes: &[u8]) {
    let seed = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, marked(seed));
}

#[test]
fn readers_never_see_a_block_used_again() {
    let storage = Arc::new(Plain::default());
    let (reads, writes) = (AtomicU64::new(0), AtomicU64::new(0));
    for session in 0..SESSIONS {
        let toy = Toy::open(Arc::clone(&storage), TINY, SLOTS).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|thread| {
                    let (toy, writes) = (&toy, &writes);
                    scope.spawn(move || {
                        let mut choices = Choices::new(session * 100 + thread);
                        for step in 0..STEPS {
                            let slot = choices.below(SLOTS as u64) as usize;
                            if choices.below(3) == 0 {
                                toy.remove(slot).unwrap();
                            } else {
                                toy.put(slot, &marked(choices.below(1 << 20) + step)).unwrap();
                            }
                            writes.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    toy.compact().unwrap();
                }
            });
            for thread in 0..2 {
                let (toy, done, reads) = (&toy, &done, &reads);
                scope.spawn(move || {
                    let mut choices = Choices::new(session * 100 + 50 + thread);
                    while !done.load(Ordering::Relaxed) {
                        if let Some(bytes) = toy.get(choices.below(SLOTS as u64) as usize).unwrap()
                        {
                            assert_whole(&bytes);
                            reads.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            let outcomes: Vec<_> =
                writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            done.store(true, Ordering::Relaxed);
            assert!(outcomes.iter().all(std::result::Result::is_ok));
        });
        toy.check();
        if session % 3 == 0 {
            toy.close_and_check_nothing_lost();
        }
    }
    assert_eq!(writes.load(Ordering::Relaxed), SESSIONS * WRITERS * STEPS);
    assert!(reads.load(Ordering::Relaxed) > MIN_READS, "only {reads:?} reads");
}

#[test]
fn a_retire_that_comes_late_finds_nothing() {
    let storage = Arc::new(Plain::default());
    let toy = Toy::open(Arc::clone(&storage), TINY, SLOTS).unwrap();
    (0..SLOTS).for_each(|slot| toy.put(slot, &content(slot as u64, 100)).unwrap());
    let toy = Toy::open(Arc::clone(&storage), TINY, SLOTS).unwrap();

    // The blob is unlinked, and the scan finds the block dead before the remover retires it.
    let guard = toy.reclaimer.pin();
    let late = toy.load(3).unwrap();
    toy.publish(3, 0);
    std::thread::scope(|scope| {
        let scan = || {
            toy.store.make_room(&*storage, &toy).unwrap();
            // The remover's guard is still pinned, so no allocation may return the block.
            (0..SLOTS)
                .filter(|&slot| slot != 3)
                .for_each(|slot| toy.put(slot, &content(9, 100)).unwrap());
            assert!(toy.live().iter().all(|(_, blob)| !blob.same_block(late)));
        };
        scope.spawn(scan).join().unwrap();
    });
    toy.store.retire(&guard, late);
    drop(guard);
    toy.check_nothing_lost();
}
