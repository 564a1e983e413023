//! Guards that belong to no thread.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::sync_channel;
use std::task::{Context, Poll, Waker};

use icefield::{DlhtMap, DlhtOwnedGuard};
use icefield_torture::Rng;

use crate::counting::Counting;
use crate::fewer;

const ALIVE: u64 = 0x00A1_17E5;

struct Counted(Arc<AtomicI64>, u64);

impl Counted {
    fn new(live: &Arc<AtomicI64>) -> Self {
        live.fetch_add(1, Ordering::Relaxed);
        Self(live.clone(), ALIVE)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert_eq!(self.1, ALIVE);
        self.1 = 0;
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One thread creates guards and reads under them, a second reads more under the same guards, and a third drops them,
/// while others replace, remove and clear the records.
#[test]
fn guards_that_travel_protect_what_is_read_on_the_way() {
    let (live, allocator) = (Arc::<AtomicI64>::default(), Counting::default());
    let map = DlhtMap::<u64, Counted, _, _>::new_in(allocator.clone());
    let (done, travels) = (AtomicBool::new(false), fewer(3000, 4));
    type Passenger<'a> = (Box<DlhtOwnedGuard<'a>>, u64);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (map, live, done) = (&map, &live, &done);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                while !done.load(Ordering::Acquire) {
                    // Both kinds of guards retire records.
                    let (guard, owned) = (map.pin(), map.pin_owned());
                    let key = rng.below(50);
                    map.insert(
                        key,
                        Counted::new(live),
                        if rng.one_in(2) { &guard } else { &owned },
                    );
                    map.remove(&rng.below(50), if rng.one_in(2) { &guard } else { &owned });
                    if rng.one_in(500) {
                        map.clear();
                    }
                }
            });
        }
        let (to_second, at_second) = sync_channel::<Passenger<'_>>(4);
        let (to_third, at_third) = sync_channel::<Passenger<'_>>(4);
        let map = &map;
        let read = |guard: &DlhtOwnedGuard<'_>, keys: u64| {
            let read = (0..50).filter_map(|key| map.get(&((key + keys) % 50), guard));
            let read: Vec<&Counted> = read.collect();
            assert!(read.iter().all(|value| value.1 == ALIVE));
            std::thread::yield_now();
            assert!(read.iter().all(|value| value.1 == ALIVE));
        };
        let second = scope.spawn(move || {
            for (guard, keys) in at_second {
                read(&guard, keys);
                to_third.send((guard, keys)).expect("received");
            }
        });
        let third = scope.spawn(move || {
            for (mut guard, keys) in at_third {
                if keys % 2 == 0 {
                    guard.advance_epoch();
                }
                read(&guard, keys);
            }
        });
        for keys in 0..travels as u64 {
            let guard = Box::new(map.pin_owned());
            read(&guard, keys);
            to_second.send((guard, keys)).expect("received");
        }
        drop(to_second);
        second.join().expect("no panic");
        third.join().expect("no panic");
        done.store(true, Ordering::Release);
    });
    println!("{} values live, {} records", live.load(Ordering::Relaxed), map.len());
    drop(map);
    assert_eq!((live.load(Ordering::Relaxed), allocator.held()), (0, (0, 0)));
}

/// Records that are retired under owned guards are freed although no thread pins.
#[test]
fn owned_guards_alone_free_what_they_retire() {
    let live = Arc::<AtomicI64>::default();
    let map = DlhtMap::<u64, Counted>::new();
    let mut most = 0;
    for round in 0..fewer(2000, 500) as u64 {
        map.insert(round % 8, Counted::new(&live), &map.pin_owned());
        most = most.max(live.load(Ordering::Relaxed));
    }
    println!("at most {most} values");
    assert!(most < 300);
    let mut guard = map.pin_owned();
    for round in 0..fewer(2000, 500) as u64 {
        map.insert(round % 8, Counted::new(&live), &guard);
        guard.advance_epoch();
        most = most.max(live.load(Ordering::Relaxed));
    }
    assert!(most < 300);
    // While a guard lives, all that is retired is kept.
    (0..400).for_each(|round| map.put(round % 8, Counted::new(&live)));
    assert!(live.load(Ordering::Relaxed) >= 400);
    drop(guard);
    (0..200).for_each(|round| map.put(round % 8, Counted::new(&live)));
    assert!(live.load(Ordering::Relaxed) < 300);
}

#[test]
fn futures_with_owned_guards_are_sent_to_other_threads() {
    fn sent<F: Future + Send>(future: F) -> F {
        future
    }
    let map = DlhtMap::from([(1, "one".to_owned())]);
    let mut task = pin!(sent(async {
        let guard = map.pin_owned();
        let before = map.get(&1, &guard);
        let again = map.get_async(&1, &guard).await;
        let values: Vec<&String> = map.values(&guard).collect();
        assert_eq!((before, again, values.len()), (Some(&"one".to_owned()), None, 0));
        before.map(String::len)
    }));
    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    map.delete(&1);
    (0..300).for_each(|key| map.put(key % 2 + 5, key.to_string()));
    map.clear();
    let length = std::thread::scope(|scope| {
        let poll = move || task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        scope.spawn(poll).join().expect("no panic")
    });
    assert_eq!(length, Poll::Ready(Some(3)));
}
