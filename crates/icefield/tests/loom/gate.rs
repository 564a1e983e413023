//! The gate: who is inside while it is closed, who waits, and that nobody waits for ever (a model whose threads do is
//! an error).

use icefield::base::gate::Gate;
use icefield::base::sync::{AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

/// A gate, and what is behind it: words that those inside change and those who close it.
struct Yard {
    gate: Gate,
    /// Odd while whoever entered is at work.
    works: AtomicU64,
    /// Odd while somebody changes what only those who close may change.
    step: AtomicU64,
}

impl Yard {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { gate: Gate::default(), works: zero(), step: zero() }
    }

    // Relaxed, all: what ordering there is has to come from the gate.
    fn load(word: &AtomicU64) -> u64 {
        word.load(Ordering::Relaxed)
    }

    /// Adds one, which is two steps.
    fn advance(word: &AtomicU64) {
        word.store(Self::load(word) + 1, Ordering::Relaxed);
    }

    /// Goes inside and works there; by one role of a model only.
    fn enter(&self) {
        let _pass = self.gate.enter();
        let step = Self::load(&self.step);
        assert_eq!(step % 2, 0, "inside during a step");
        Self::advance(&self.works);
        assert_eq!(Self::load(&self.step), step, "a step while somebody is inside");
        Self::advance(&self.works);
    }

    /// Goes inside and only looks.
    fn pass(&self) {
        let _pass = self.gate.enter();
        assert_eq!(Self::load(&self.step) % 2, 0, "inside during a step");
    }

    /// Makes a step behind the closed gate.
    fn close(&self) {
        let _closed = self.gate.close().expect("a barrier");
        let before = Self::load(&self.works);
        assert_eq!(before % 2, 0, "somebody is at work");
        Self::advance(&self.step);
        assert_eq!(Self::load(&self.works), before, "somebody came in");
        Self::advance(&self.step);
    }
}

type Role = fn(&Yard);

/// Lets `roles` race, the last one on the main thread; every rotation is explored. Of three roles, one is interrupted
/// against its will: those that wait give way by themselves, which is enough of a mixture. Afterwards there have been
/// `works` works and `steps` steps.
fn race<const ROLES: usize>(mut roles: [Role; ROLES], works: u64, steps: u64) {
    for _ in 0..ROLES {
        roles.rotate_left(1);
        let mut builder = loom::model::Builder::new();
        builder.max_branches = 100_000;
        if ROLES > 2 {
            builder.preemption_bound = builder.preemption_bound.or(Some(1));
        }
        builder.check(move || {
            let yard = Arc::new(Yard::new());
            let [spawned @ .., last] = &roles[..] else { return };
            let threads: Vec<_> = spawned
                .iter()
                .map(|&role| {
                    let yard = Arc::clone(&yard);
                    thread::spawn(move || role(&yard))
                })
                .collect();
            last(&yard);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(Yard::load(&yard.works), 2 * works);
            assert_eq!(Yard::load(&yard.step), 2 * steps);
        });
    }
}

#[test]
fn nobody_is_inside_while_it_is_closed() {
    race([Yard::enter, Yard::close], 1, 1);
}

/// Whoever comes again has left before, and may find the gate closed in between.
#[test]
fn who_leaves_may_come_again() {
    let twice: Role = |yard| (0..2).for_each(|_| yard.enter());
    race([twice, Yard::close], 2, 1);
}

#[test]
fn what_was_done_behind_the_gate_is_seen_by_who_comes_next() {
    let both: Role = |yard| {
        yard.enter();
        yard.close();
        yard.enter();
    };
    race([both, Yard::close], 2, 2);
}

/// One is inside, the second waits for it to leave, the third arrives meanwhile.
#[test]
fn who_arrives_while_somebody_waits_to_close_comes_in_later() {
    race([Yard::pass, Yard::pass, Yard::close], 0, 1);
}

#[test]
fn one_closes_at_a_time() {
    race([Yard::enter, Yard::close, Yard::close], 1, 2);
}
