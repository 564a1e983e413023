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
                    // SAFETY: loaded under a guard, so it is not reclaimed before the guard goes.
                    assert_eq!(unsafe { &*current.load(PROTECTED) }.0, VALID);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..rounds {
                let guard = reclaimer.pin();
                let old = current.swap(Box::into_raw(Box::new(Thing(VALID))), Ordering::SeqCst);
                // SAFETY: boxed above, unreachable since the swap, retired here only.
                unsafe { guard.retire_box(old) };
            }
        });
    });
    // SAFETY: boxed above, and the threads are gone.
    drop(unsafe { Box::from_raw(current.load(Ordering::Relaxed)) });
}
