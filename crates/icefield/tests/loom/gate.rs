//! The gate: no thread is inside while another one has closed it, and every waiting thread continues in the end (a
//! model whose threads wait forever is an error).

use icefield::base::gate::Gate;
use icefield::base::sync::{AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

/// A gate, and two words that it protects.
struct Yard {
    gate: Gate,
    /// Changed by threads inside; odd while one of them is working.
    works: AtomicU64,
    /// Changed by threads that have closed the gate; odd while one of them makes its step.
    step: AtomicU64,
}

impl Yard {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { gate: Gate::default(), works: zero(), step: zero() }
    }

    // All accesses are Relaxed, because the gate must provide the ordering.
    fn load(word: &AtomicU64) -> u64 {
        word.load(Ordering::Relaxed)
    }

    /// Adds 1, by a load and a store.
    fn advance(word: &AtomicU64) {
        word.store(Self::load(word) + 1, Ordering::Relaxed);
    }

    /// Enters and works inside. Only one role of a model may do this.
    fn enter(&self) {
        let _pass = self.gate.enter();
        let step = Self::load(&self.step);
        assert_eq!(step % 2, 0, "inside during a step");
        Self::advance(&self.works);
        assert_eq!(Self::load(&self.step), step, "a step while somebody is inside");
        Self::advance(&self.works);
    }

    /// Enters and only reads.
    fn pass(&self) {
        let _pass = self.gate.enter();
        assert_eq!(Self::load(&self.step) % 2, 0, "inside during a step");
    }

    /// Makes a step while the gate is closed.
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

/// Lets `roles` race, the last one on the main thread. Every rotation of the roles is explored. With three roles, one
/// preemption is allowed: waiting threads yield, which gives enough interleavings. Afterwards, the threads inside must
/// have worked `works` times, and the closing threads must have made `steps` steps.
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

/// A thread leaves the gate before it enters again, and may find the gate closed in between.
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

/// One thread is inside, the second waits for it to leave, and the third arrives meanwhile.
#[test]
fn who_arrives_while_somebody_waits_to_close_comes_in_later() {
    race([Yard::pass, Yard::pass, Yard::close], 0, 1);
}

#[test]
fn one_closes_at_a_time() {
    race([Yard::enter, Yard::close, Yard::close], 1, 2);
}
