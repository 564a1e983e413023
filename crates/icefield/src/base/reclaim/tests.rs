use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use super::*;

#[test]
fn nothing_is_reclaimed_under_a_guard() {
    let reclaimed = Arc::new(AtomicUsize::new(0));
    let reclaimer = Reclaimer::with_batch(1);
    let outer = reclaimer.pin();
    for _ in 0..100 {
        let reclaimed = Arc::clone(&reclaimed);
        reclaimer.pin().retire(move || {
            reclaimed.fetch_add(1, Ordering::Relaxed);
        });
    }
    outer.flush();
    assert_eq!(reclaimed.load(Ordering::Relaxed), 0);
    drop(outer);
    assert_eq!(reclaimed.load(Ordering::Relaxed), 100);
}

#[test]
fn dropping_the_reclaimer_reclaims_the_rest() {
    let reclaimed = Arc::new(AtomicUsize::new(0));
    let reclaimer = Reclaimer::new();
    for _ in 0..3 {
        let reclaimed = Arc::clone(&reclaimed);
        reclaimer.pin().retire(move || {
            reclaimed.fetch_add(1, Ordering::Relaxed);
        });
    }
    drop(reclaimer);
    assert_eq!(reclaimed.load(Ordering::Relaxed), 3);
}

#[test]
fn readers_never_see_a_reclaimed_box() {
    const VALID: u64 = 0x5AFE;
    struct Thing(u64);
    impl Drop for Thing {
        fn drop(&mut self) {
            self.0 = 0;
        }
    }
    let rounds = if cfg!(miri) { 50 } else { 20_000 };
    let reclaimer = Reclaimer::with_batch(1);
    let current = AtomicPtr::new(Box::into_raw(Box::new(Thing(VALID))));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let _guard = reclaimer.pin();
                    // SAFETY: loaded under a guard, so it is not reclaimed before the guard is dropped.
                    assert_eq!(unsafe { &*current.load(PROTECTED) }.0, VALID);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..rounds {
                let guard = reclaimer.pin();
                let old = current.swap(Box::into_raw(Box::new(Thing(VALID))), Ordering::SeqCst);
                // SAFETY: boxed above, unreachable since the swap, and retired only here.
                unsafe { guard.retire_box(old) };
            }
        });
    });
    // SAFETY: boxed above, and the threads have ended.
    drop(unsafe { Box::from_raw(current.load(Ordering::Relaxed)) });
}

#[test]
fn big_things_go_in_steps() {
    let reclaimer = Reclaimer::new();
    let left = Arc::new(AtomicUsize::new(5));
    let steps = Arc::clone(&left);
    reclaimer.enter().retire_in_steps(move || match steps.fetch_sub(1, Ordering::Relaxed) {
        1 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    for done in 1..=5 {
        assert_eq!(left.load(Ordering::Relaxed), 5 - done, "one step whenever somebody leaves");
        drop(reclaimer.enter());
    }
    drop(reclaimer);
    assert_eq!(left.load(Ordering::Relaxed), 0, "and none after the last");
}

#[test]
fn a_renewed_guard_lets_go() {
    let reclaimer = Reclaimer::with_batch(1);
    let gone = Arc::new(AtomicUsize::new(0));
    let mut guard = reclaimer.pin();
    for round in 1..=100 {
        let going = Arc::clone(&gone);
        guard.retire(move || {
            going.fetch_add(1, Ordering::Relaxed);
        });
        guard.renew();
        guard.renew();
        assert!(gone.load(Ordering::Relaxed) >= round - 1);
    }
    {
        let inner = reclaimer.pin();
        let before = gone.load(Ordering::Relaxed);
        inner.retire(|| ());
        guard.renew();
        assert_eq!(gone.load(Ordering::Relaxed), before, "the inner guard may hold something");
    }
    drop(guard);
    assert_eq!(gone.load(Ordering::Relaxed), 100);
}

#[test]
fn sections_and_guards_nest() {
    let reclaimer = Reclaimer::with_batch(1);
    let gone = Arc::new(AtomicUsize::new(0));
    let retire = |guard: &Guard<'_>| {
        let gone = Arc::clone(&gone);
        guard.retire(move || {
            gone.fetch_add(1, Ordering::Relaxed);
        });
    };
    let guard = reclaimer.pin();
    let (first, second) = (reclaimer.enter(), reclaimer.enter());
    retire(&guard);
    drop(second);
    drop(first);
    drop(reclaimer.enter());
    assert_eq!(gone.load(Ordering::Relaxed), 0, "the guard is still there");
    drop(guard);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
}

/// If a thread ends while one of its thread-locals still holds a guard, its slot is not reused.
#[test]
fn a_guard_may_outlive_its_threads_number() {
    static TABLE: std::sync::LazyLock<Reclaimer> = std::sync::LazyLock::new(Reclaimer::new);
    thread_local! {
        static KEPT: std::cell::RefCell<Option<Guard<'static>>> = const { std::cell::RefCell::new(None) };
    }
    for first in [false, true] {
        let thread = std::thread::spawn(move || {
            if first {
                KEPT.with(|_| ());
            }
            let guard = TABLE.pin();
            KEPT.with(|kept| *kept.borrow_mut() = Some(guard));
        });
        thread.join().expect("no panic");
        std::thread::spawn(|| drop(TABLE.pin())).join().expect("no panic");
    }
}

/// Returns a closure that counts its call.
fn counting(gone: &Arc<AtomicUsize>) -> impl FnOnce() + Send + use<> {
    let gone = Arc::clone(gone);
    move || {
        gone.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn owned_guards_hold_back_what_they_may_reach() {
    let (reclaimer, gone) = (Reclaimer::with_batch(1), Arc::new(AtomicUsize::new(0)));
    let first = reclaimer.pin_owned();
    let second = reclaimer.pin_owned();
    let retiring = (reclaimer.pin(), reclaimer.pin_owned());
    retiring.0.retire(counting(&gone));
    retiring.0.flush();
    retiring.1.retire(counting(&gone));
    retiring.1.flush();
    drop(retiring);
    assert_eq!(gone.load(Ordering::Relaxed), 0, "two guards are older");
    // A guard that is newer does not hold the objects.
    let newer = reclaimer.pin_owned();
    let count = std::thread::scope(|scope| {
        let drop_both = || {
            drop(first);
            assert_eq!(gone.load(Ordering::Relaxed), 0, "one guard is older");
            drop(second);
            gone.load(Ordering::Relaxed)
        };
        scope.spawn(drop_both).join().expect("no panic")
    });
    assert_eq!(count, 2, "the last guard that may hold an object reclaims it, on any thread");
    newer.retire(counting(&gone));
    assert_eq!(gone.load(Ordering::Relaxed), 2);
    drop(newer);
    assert_eq!(gone.load(Ordering::Relaxed), 3);
}

#[test]
fn owned_guards_retire_in_batches_flush_and_renew() {
    let (reclaimer, gone) = (Reclaimer::with_batch(4), Arc::new(AtomicUsize::new(0)));
    // The objects wait in the slot, which the next guard inherits.
    for retired in 1..=8 {
        reclaimer.pin_owned().retire(counting(&gone));
        assert_eq!(gone.load(Ordering::Relaxed), retired / 4 * 4);
    }
    let mut guard = reclaimer.pin_owned();
    guard.retire(counting(&gone));
    guard.flush();
    guard.renew();
    guard.renew();
    assert_eq!(gone.load(Ordering::Relaxed), 9);
    guard.retire(counting(&gone));
    // Large objects go in steps.
    let left = Arc::new(AtomicUsize::new(5));
    let steps = Arc::clone(&left);
    let step = move || match steps.fetch_sub(1, Ordering::Relaxed) {
        1 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    // SAFETY: the closure borrows nothing.
    unsafe { guard.retire_steps_borrowing(step) };
    drop(guard);
    for done in 1..=5 {
        assert_eq!(left.load(Ordering::Relaxed), 5 - done);
        drop(reclaimer.pin_owned());
    }
    reclaimer.pin_owned().retire(counting(&gone));
    drop(reclaimer);
    assert_eq!((gone.load(Ordering::Relaxed), left.load(Ordering::Relaxed)), (11, 0));
}

#[test]
fn slots_of_owned_guards_are_used_again() {
    let reclaimer = Reclaimer::new();
    for _ in 0..100 {
        let guards: Vec<_> = (0..5).map(|_| reclaimer.pin_owned()).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(guards));
        });
    }
    assert!(reclaimer.presences().count() < 32, "{}", reclaimer.presences().count());
    assert_eq!(reclaimer.oldest(), u64::MAX);
}

/// Each thread passes its guards to the next one, which reads under them.
#[test]
fn boxes_read_under_guards_that_travel_are_valid() {
    const VALID: u64 = 0x5AFE;
    struct Thing(u64);
    impl Drop for Thing {
        fn drop(&mut self) {
            self.0 = 0;
        }
    }
    let rounds = if cfg!(miri) { 30 } else { 5_000 };
    let reclaimer = Reclaimer::with_batch(1);
    let current = AtomicPtr::new(Box::into_raw(Box::new(Thing(VALID))));
    // SAFETY: each caller holds a guard, so the box that it loads is not reclaimed before the guard is dropped.
    let read = |_: &OwnedGuard<'_>| assert_eq!(unsafe { &*current.load(PROTECTED) }.0, VALID);
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::sync_channel::<OwnedGuard<'_>>(2);
        scope.spawn(|| {
            let send = send;
            for _ in 0..rounds {
                let guard = reclaimer.pin_owned();
                read(&guard);
                send.send(guard).expect("received");
            }
        });
        scope.spawn(|| receive.into_iter().for_each(|guard| read(&guard)));
        scope.spawn(|| {
            for _ in 0..rounds {
                let guard = reclaimer.pin_owned();
                let old = current.swap(Box::into_raw(Box::new(Thing(VALID))), Ordering::SeqCst);
                // SAFETY: boxed above, unreachable since the swap, and retired only here.
                unsafe { guard.retire_box(old) };
            }
        });
    });
    // SAFETY: boxed above, and the threads have ended.
    drop(unsafe { Box::from_raw(current.load(Ordering::Relaxed)) });
}

/// A destructor that panics does not keep the objects after it from being reclaimed.
#[test]
fn destructors_that_panic_leak_no_other_object() {
    for in_drop in [false, true] {
        let (reclaimer, gone) = (Reclaimer::with_batch(10), Arc::new(AtomicUsize::new(0)));
        let run = std::panic::AssertUnwindSafe(|| {
            let guard = reclaimer.pin();
            for at in 0..if in_drop { 9 } else { 10 } {
                let count = counting(&gone);
                guard.retire(move || {
                    count();
                    assert!(at % 3 != 0, "this destructor panics");
                });
            }
            drop(guard);
            drop(reclaimer);
        });
        assert!(std::panic::catch_unwind(run).is_err());
        assert_eq!(gone.load(Ordering::Relaxed), if in_drop { 9 } else { 10 });
    }
}

/// An owner that counts the words it got back. It must be kept until the last one.
struct Ledger {
    words: AtomicUsize,
    gone: Arc<AtomicUsize>,
}

impl Reclaim for Ledger {
    fn reclaim(&self, word: u64) {
        self.words.fetch_add(word as usize, Ordering::Relaxed);
        self.gone.store(self.words.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.gone.fetch_add(1_000, Ordering::Relaxed);
    }
}

#[test]
fn words_go_back_to_an_owner_that_the_reclaimer_keeps() {
    let (reclaimer, gone) = (Reclaimer::with_batch(3), Arc::new(AtomicUsize::new(0)));
    let ledger = Arc::new(Ledger { words: AtomicUsize::new(0), gone: Arc::clone(&gone) });
    reclaimer.keep(Arc::clone(&ledger) as _);
    // SAFETY: the reclaimer keeps the ledger.
    let retire = |guard: &Guard<'_>, word| unsafe { guard.retire_word(&*ledger, word, 7) };
    let guard = reclaimer.pin();
    assert_eq!((retire(&guard, 1), retire(&guard, 10), gone.load(Ordering::Relaxed)), (7, 14, 0));
    assert_eq!(retire(&guard, 100), 21);
    drop(guard);
    assert_eq!(gone.load(Ordering::Relaxed), 111);
    assert_eq!(retire(&reclaimer.pin(), 200), 7, "only what still waits");
    drop(ledger);
    assert_eq!(gone.load(Ordering::Relaxed), 111, "less than a batch");
    drop(reclaimer);
    assert_eq!(gone.load(Ordering::Relaxed), 1_311, "the last word, then the owner");
}
