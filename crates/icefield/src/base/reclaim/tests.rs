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
