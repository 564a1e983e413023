//! The reclaimer: an object is not reclaimed while a thread holds it, and every retired object is reclaimed
//! afterwards.

use icefield::base::reclaim::{OwnedGuard, PROTECTED, Reclaimer};
use icefield::base::sync::{AtomicBool, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

/// A pointer to the current object, by number, and a flag for each object that records its reclamation.
struct Shop {
    current: AtomicU64,
    gone: Arc<[AtomicBool; 3]>,
    reclaimer: Reclaimer,
}

impl Shop {
    fn new() -> Self {
        Self {
            current: AtomicU64::new(0),
            gone: Arc::new(std::array::from_fn(|_| AtomicBool::new(false))),
            reclaimer: Reclaimer::with_batch(1),
        }
    }

    fn is_gone(&self, thing: u64) -> bool {
        // Relaxed: the reclaimer must provide the ordering.
        self.gone[thing as usize].load(Ordering::Relaxed)
    }

    /// Reads the current object.
    fn read(&self) {
        let _guard = self.reclaimer.pin();
        let thing = self.current.load(PROTECTED);
        assert!(!self.is_gone(thing), "thing {thing} went while it was held");
        assert!(!self.is_gone(thing), "thing {thing} went while it was held");
    }

    /// Reads the current object in two separate epochs.
    fn read_twice(&self) {
        let mut guard = self.reclaimer.pin();
        assert!(!self.is_gone(self.current.load(PROTECTED)));
        guard.renew();
        assert!(!self.is_gone(self.current.load(PROTECTED)));
    }

    /// Reads the current object under an owned guard.
    fn read_owned(&self) {
        let guard = self.reclaimer.pin_owned();
        let thing = self.current.load(PROTECTED);
        assert!(!self.is_gone(thing), "thing {thing} went while it was held");
        drop(guard);
    }

    /// Makes `thing` the current object and retires the previous one.
    fn replace(&self, thing: u64, flush: bool) {
        let guard = self.reclaimer.pin();
        let before = self.current.swap(thing, Ordering::AcqRel);
        let gone = Arc::clone(&self.gone);
        guard.retire(move || {
            let twice = gone[before as usize].swap(true, Ordering::Relaxed);
            assert!(!twice, "thing {before} was given back twice");
        });
        if flush {
            guard.flush();
        }
    }
}

/// Runs two roles concurrently, each of them once on the main thread, then checks the final state.
fn side_by_side(roles: [fn(&Shop); 2], afterwards: fn(&Shop)) {
    for turn in 0..2 {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(3));
        builder.check(move || {
            let shop = Arc::new(Shop::new());
            let other = Arc::clone(&shop);
            let thread = thread::spawn(move || roles[turn](&other));
            roles[1 - turn](&shop);
            thread.join().unwrap();
            afterwards(&shop);
        });
    }
}

#[test]
fn nothing_goes_while_it_is_held() {
    side_by_side([Shop::read, |shop| shop.replace(1, false)], |_| ());
}

#[test]
fn what_was_flushed_goes_with_the_last_who_holds_it() {
    side_by_side([Shop::read, |shop| shop.replace(1, true)], |shop| {
        assert!(shop.is_gone(0), "nobody holds it, and nobody will come for it");
        assert!(!shop.is_gone(1));
    });
}

#[test]
fn a_renewed_guard_holds_what_it_reaches_then() {
    side_by_side([Shop::read_twice, |shop| shop.replace(1, true)], |shop| {
        assert!(shop.is_gone(0) && !shop.is_gone(1));
    });
}

#[test]
fn an_owned_guard_holds_what_it_reaches() {
    side_by_side([Shop::read_owned, |shop| shop.replace(1, true)], |shop| {
        assert!(shop.is_gone(0), "the last guard that may hold it reclaims it");
        assert!(!shop.is_gone(1));
    });
}

/// One thread creates the guard, and another reads under it and drops it, while a third replaces the object.
#[test]
fn an_owned_guard_holds_what_another_thread_reaches() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(|| {
        let shop = Arc::new(Shop::new());
        let other = Arc::clone(&shop);
        let replacing = thread::spawn(move || other.replace(1, true));
        let announced = shop.reclaimer.pin_owned();
        // SAFETY: the guard is dropped before the shop, because its thread is joined.
        let announced: OwnedGuard<'static> = unsafe { std::mem::transmute(announced) };
        let other = Arc::clone(&shop);
        let reading = thread::spawn(move || {
            let thing = other.current.load(PROTECTED);
            assert!(!other.is_gone(thing), "thing {thing} went while it was held");
            drop(announced);
        });
        replacing.join().unwrap();
        reading.join().unwrap();
        assert!(shop.is_gone(0) && !shop.is_gone(1));
    });
}

#[test]
fn two_who_retire_give_everything_back() {
    side_by_side([|shop| shop.replace(1, true), |shop| shop.replace(2, true)], |shop| {
        let current = shop.current.load(Ordering::Relaxed);
        for thing in 0..3 {
            assert_eq!(shop.is_gone(thing), thing != current, "thing {thing} of {current}");
        }
    });
}
