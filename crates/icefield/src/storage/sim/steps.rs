//! The steps of the simulator: each access counts as one, and may let another thread run.

use std::sync::atomic::Ordering;

use super::{HANG, Sim, image, mode};
use crate::storage::medium::SimHooks;

/// The number of steps of other threads that `stand_back` waits for: about the length of a longer operation.
const STEPS_APART: u64 = 500;
/// The largest number of yields in one call of `stand_back`.
const WAITS_APART: u32 = 2_000;

impl Sim {
    /// Counts one step towards the budget, and yields sometimes. Returns the medium's modes.
    #[inline(always)]
    pub(super) fn step(&self) -> u32 {
        // Relaxed, and a separate load and store: a lost count is harmless.
        let steps = self.0.steps.load(Ordering::Relaxed) + 1;
        self.0.steps.store(steps, Ordering::Relaxed);
        if steps > self.0.step_budget.load(Ordering::Relaxed) {
            self.hang(steps);
        }
        let modes = self.modes();
        if modes & mode::YIELD != 0 {
            self.maybe_yield();
        }
        modes
    }

    #[cold]
    fn hang(&self, steps: u64) {
        if std::thread::panicking() {
            // Unwinding from the first report ran into the same loop, so it cannot be stopped by another panic.
            if steps > self.0.step_budget.load(Ordering::Relaxed).saturating_mul(100) {
                eprintln!("{HANG}, and so did unwinding from it");
                std::process::abort();
            }
            return;
        }
        self.0.steps.store(0, Ordering::Relaxed);
        panic!("{HANG} of {} steps", self.0.step_budget.load(Ordering::Relaxed));
    }

    #[cold]
    fn maybe_yield(&self) {
        // Relaxed: races do not harm a pseudo-random generator.
        let n = image::mix(self.0.yields.load(Ordering::Relaxed));
        self.0.yields.store(n, Ordering::Relaxed);
        let one_in = u64::from(self.0.yield_one_in.load(Ordering::Relaxed));
        if one_in > 0 && n.is_multiple_of(one_in) {
            (self.0.give_way)();
        }
    }

    /// Lets the other threads run for about one operation, or until they seem to wait. In this time they can rely on
    /// lines whose write-back the mutation has left out, before this thread's fence makes up for the omission.
    #[cold]
    pub(super) fn stand_back(&self) {
        // Relaxed: an estimate.
        let steps = || self.0.steps.load(Ordering::Relaxed);
        let mut before = steps();
        let (mut taken, mut waited) = (0, 0);
        while taken < STEPS_APART && waited < WAITS_APART {
            (self.0.give_way)();
            let now = steps();
            // The count restarts at zero with each operation.
            taken += now.checked_sub(before).unwrap_or(now);
            before = now;
            waited += 1;
        }
    }
}

impl SimHooks for Sim {
    fn wait(&self, rounds: u32) {
        self.step();
        if rounds < 16 {
            std::hint::spin_loop();
        } else {
            (self.0.give_way)();
        }
    }

    fn wait_patiently(&self, rounds: u32) -> bool {
        self.wait(rounds);
        rounds < 256
    }

    fn sim_yield_point(&self) {
        self.step();
    }

    fn forget_reads(&self) {
        if self.modes() & mode::DETECT != 0 {
            self.state().forget_reads();
        }
    }

    fn repeat_reads(&self, look: impl FnOnce()) {
        if self.modes() & mode::DETECT != 0 {
            look();
        }
    }

    fn read_unvalidated<T>(&self, look: impl FnOnce() -> T) -> T {
        if self.modes() & mode::DETECT == 0 {
            return look();
        }
        let before = self.state().reads();
        let found = look();
        self.state().forget_reads_since(before);
        found
    }

    fn store_copy<T>(&self, copy: impl FnOnce() -> T) -> T {
        if self.modes() & mode::DETECT == 0 {
            return copy();
        }
        self.state().set_copying(true);
        let copied = copy();
        self.state().set_copying(false);
        copied
    }
}
