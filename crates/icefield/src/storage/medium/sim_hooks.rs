//! The points at which the simulator schedules threads and watches reads.

use std::time::Duration;

use super::sealed::Sealed;

/// The number of rounds in which [`SimHooks::wait_patiently`] spins or yields, and of those in which it then sleeps.
const AWAKE: u32 = 256;
const ASLEEP: u32 = 100;

/// Points in the code of tables at which the simulator lets another thread run, or stops watching reads or stores. On a
/// mapped medium they do nothing, except that [`SimHooks::wait`] spins and then yields.
pub trait SimHooks: Sealed {
    /// Called in every loop that waits for another thread, with the number of rounds so far. Spins first, then yields.
    fn wait(&self, rounds: u32) {
        if rounds < 64 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    /// Called in loops that wait, for a bounded time, for threads that the system may have suspended. Like
    /// [`SimHooks::wait`], but sleeps after some rounds, because rounds alone may pass before the other thread runs
    /// again. Returns `false` when about a tenth of a second has passed: the loop ends.
    fn wait_patiently(&self, rounds: u32) -> bool {
        if rounds >= AWAKE {
            std::thread::sleep(Duration::from_millis(1));
        } else {
            self.wait(rounds);
        }
        rounds < AWAKE + ASLEEP
    }

    /// Called before a table reads or changes words that threads share in DRAM, outside the medium. Does nothing except
    /// in the simulator, where another thread may run at this point, as at every access to the medium.
    #[inline(always)]
    fn sim_yield_point(&self) {}

    /// Called when an optimistic read has raced with a writer and starts again: nothing depends on the values read so
    /// far. Used by the simulator's detector only.
    #[inline(always)]
    fn forget_reads(&self) {}

    /// Runs `look`, whose loads do not influence the result of a call. They only decide, for example, what to prefetch
    /// or whether to do maintenance afterwards. If a result comes to depend on them, [`SimHooks::repeat_reads`] repeats
    /// them. Used by the simulator's detector only.
    #[inline(always)]
    fn read_unvalidated<T>(&self, look: impl FnOnce() -> T) -> T {
        look()
    }

    /// Runs `look`, which repeats loads that ran ahead of time in [`SimHooks::read_unvalidated`], and on which a result
    /// depends after all. Does nothing except in the simulator, for its detector.
    #[inline(always)]
    fn repeat_reads(&self, _look: impl FnOnce()) {}

    /// Runs `copy`, which stores a copy of bytes whose original stays until the copy is durable, or a reference to such
    /// a copy or to an empty block. Other threads may rely on the store before it is durable: after a crash that
    /// reverts it, they find the same. Used by the simulator's detector only.
    #[inline(always)]
    fn store_copy<T>(&self, copy: impl FnOnce() -> T) -> T {
        copy()
    }
}
