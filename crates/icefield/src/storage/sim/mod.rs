//! The simulated medium: runs a table in memory, determines at every moment which states a crash could leave, and
//! counts the cost of each operation.
//!
//! # Model
//!
//! Every durable store is logged with its line. A flush records the present end of its lines' logs; the same thread's
//! next fence makes the logs persistent up to that point. After a crash, the stores that are still in a log may or may
//! not be present:
//!
//! - [`Model::Pmem`]: within a line, a Release store is present only if every earlier atomic store to the line is
//!   present, too. Relaxed stores after it, and each word of a bulk write, are present or absent independently. Lines
//!   are independent.
//! - [`Model::Disk`]: each 8-byte word has any of its versions since the last sync, independently of all other words.
//! - Volatile words hold garbage in every image, whether after a crash or not.
//! - A fence that may be deferred (`fence_later`) leaves its lines to the next `fence_deferred`. One that has begun
//!   (`begin_fence`) takes effect when it ends, or one that began later (`end_fence`).
//! - A region's length is durable when `grow` returns, and so are punched pages.
//!
//! [`CrashPoint`] provides the images; [`Sim::on_event`] provides the moments. The simulator keeps a shadow of every
//! region and stops with "unrecorded store" when the mapping differs from it. [`Sim::op_returned`] reports words that
//! a thread has read and relied on before they were persistent. [`Mutation`] makes single sites of the code
//! ineffective.
//!
//! # Cost of the simulation
//!
//! Loads of durable words take the medium's lock only while counting or detecting. Stores of words, and all accesses to
//! volatile words, take the lock only while recording or counting. A medium that only examines a reopened image does
//! none of these. Arenas and logs are recycled through a [`Pool`].

mod accesses;
mod arena;
mod cost;
mod counting;
mod detect;
mod dirty_line;
mod event;
mod image;
mod line;
mod log;
mod mapping;
mod model;
mod mutate;
mod options;
mod persist;
mod pool;
mod regions;
mod space;
mod state;
mod steps;
#[cfg(test)]
mod tests;

use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::arena::Arena;
use self::image::ImageRegion;
use self::state::State;

pub use self::cost::Counters;
pub use self::detect::ReadAhead;
pub use self::event::{Event, EventKind};
pub use self::image::Image;
pub use self::model::Model;
pub use self::mutate::{Mutation, Site, SiteKind, SiteLog};
pub use self::options::SimOptions;
pub use self::pool::Pool;
pub use self::space::{CrashPoint, CrashSpace, Pick};

/// The beginning of the panic message when one operation takes more steps than the budget allows.
pub const HANG: &str = "hang: the operation exceeded its step budget";

/// The beginning of the panic message when the mapping was changed without the medium's calls.
pub const UNRECORDED: &str = "unrecorded store";

/// Bits of `Inner::modes`: the work that an access has to do besides the access itself.
mod mode {
    pub(super) const RECORD: u32 = 1;
    pub(super) const COUNT: u32 = 2;
    pub(super) const DETECT: u32 = 4;
    pub(super) const YIELD: u32 = 8;
    pub(super) const READ_ONLY: u32 = 16;
}

/// A simulated medium. Clones are handles of the same medium. While a table is open on it, only the table's handle can
/// access the regions; the others take images, count and observe.
#[derive(Clone)]
pub struct Sim(Arc<Inner>, Option<Arc<Claim>>);

/// Held by the handle of the table that is open on the medium.
struct Claim(Arc<Inner>);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).is_claimed = false;
    }
}

struct Inner {
    base: NonNull<u8>,
    slot_shift: u32,
    modes: AtomicU32,
    steps: AtomicU64,
    step_budget: AtomicU64,
    yield_one_in: AtomicU32,
    yields: AtomicU64,
    give_way: fn(),
    state: Mutex<State>,
    arena: Option<Arena>,
    pool: Pool,
}

// SAFETY: `base` points into `arena`, which is Send; access to the bytes is by atomics, or under the medium's
// contracts.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        if let Some(arena) = self.arena.take() {
            self.pool.put(arena, state);
        }
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sim")
    }
}

impl Sim {
    /// Returns an empty medium.
    ///
    /// # Panics
    /// The system has no address space left.
    #[must_use]
    pub fn new(options: SimOptions) -> Self {
        // Destructured, so that no option can be forgotten.
        let SimOptions {
            seed,
            model,
            sync,
            free_fences,
            recording,
            counting,
            detecting,
            strict_stores,
            exempt,
            step_budget,
            yield_one_in,
            give_way,
            read_only,
            sites,
            mutation,
            region_bytes,
            space_bytes,
            pool,
        } = options;
        let slot_bytes = region_bytes.next_power_of_two().max(4096) as usize;
        let (arena, mut state) = pool
            .take(slot_bytes)
            .expect("address space for the simulated medium; lower `region_bytes`");
        state.model = model;
        state.sync = sync;
        state.free_fences = free_fences;
        state.seed = seed;
        state.recording = recording;
        state.counting = counting;
        state.strict = strict_stores;
        state.space = space_bytes;
        state.exempt = exempt;
        state.mutator.sites = sites;
        state.mutator.mutation = mutation;
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let modes = flag(recording, mode::RECORD)
            | flag(counting, mode::COUNT)
            | flag(detecting, mode::DETECT)
            | flag(yield_one_in > 0, mode::YIELD)
            | flag(read_only, mode::READ_ONLY);
        Self(
            Arc::new(Inner {
                base: arena.base(),
                slot_shift: slot_bytes.trailing_zeros(),
                modes: AtomicU32::new(modes),
                steps: AtomicU64::new(0),
                step_budget: AtomicU64::new(step_budget),
                yield_one_in: AtomicU32::new(yield_one_in),
                yields: AtomicU64::new(image::mix(seed) | 1),
                give_way,
                state: Mutex::new(state),
                arena: Some(arena),
                pool,
            }),
            None,
        )
    }

    /// Returns a medium that holds `image`, with everything persistent.
    ///
    /// # Panics
    /// A region of the image is longer than `region_bytes`, or the system has no address space left.
    #[must_use]
    pub fn from_image(image: &Image, options: SimOptions) -> Self {
        let sim = Self::new(options);
        {
            let mut state = sim.state();
            for region in image.regions.iter().filter(|region| !region.name.is_empty()) {
                let len = region.bytes.len();
                assert!(
                    len <= 1 << sim.0.slot_shift,
                    "{} has {len} bytes; raise `region_bytes`",
                    region.name
                );
                let slot = state.add_region(region.name);
                state.load_image(slot, region);
                // SAFETY: the slot is that long (just checked), and no other thread has the medium yet.
                unsafe {
                    sim.slot(slot)
                        .copy_from_nonoverlapping(NonNull::from(&region.bytes[..]).cast(), len)
                };
            }
        }
        sim
    }

    /// Returns the state that a clean shutdown at this moment would leave: the mapping, with volatile words replaced
    /// by garbage.
    #[must_use]
    pub fn image(&self) -> Image {
        let state = self.state();
        let copy = |(slot, region): (usize, &state::RegionState)| ImageRegion {
            name: region.name,
            bytes: self.copied(slot, region.len),
            volatile: region.volatile.clone(),
        };
        let mut image = Image { regions: state.regions().iter().enumerate().map(copy).collect() };
        image.scramble(state.seed);
        image
    }

    /// Calls `observer` at every store, flush, fence, growth and punch, with every other thread stopped. The observer
    /// must not use this medium; it can open images on other media.
    pub fn on_event(&self, mut observer: impl FnMut(&CrashPoint<'_>) + Send + 'static) {
        self.state().observer = Some(Box::new(move |state, event, reordered| {
            observer(&CrashPoint::new(state, event, reordered));
        }));
    }

    /// Ends [`Sim::on_event`].
    pub fn no_observer(&self) {
        let observer = self.state().observer.take();
        drop(observer);
    }

    /// Calls `toucher` with the number of each line that is loaded from or stored to, in order and once for each
    /// access, as input for a simulated cache. Needs `counting`. The toucher must not use this medium.
    pub fn on_touch(&self, toucher: impl FnMut(u64) + Send + 'static) {
        self.state().toucher = Some(Box::new(toucher));
    }

    /// Presents this moment as a crash point, with every other thread stopped. `look` must not use this medium.
    #[track_caller]
    pub fn crash_point<R>(&self, look: impl FnOnce(&CrashPoint<'_>) -> R) -> R {
        let site = Location::caller();
        let mut state = self.state();
        let thread = state.thread();
        let event = Event { kind: EventKind::Asked, number: state.events, thread, site };
        look(&CrashPoint::new(&state, event, None))
    }

    /// Begins an operation of the calling thread. The step budget, the counters, the detector and mutations distinguish
    /// operations by these calls.
    pub fn begin_op(&self) {
        // Relaxed: the budget is a safety net, not a count.
        self.0.steps.store(0, Ordering::Relaxed);
        if self.modes() != 0 {
            self.state().begin_op();
        }
    }

    /// Makes the simulator treat the calling thread as a new one from here on: its later fences do not cover its
    /// earlier flushes. So one thread can produce histories that otherwise need several.
    pub fn change_threads(&self) {
        self.state().new_thread();
    }

    /// Returns whether the mutation has left out a flush or fence whose effect is still missing: not all of its lines
    /// have become durable in another way.
    #[must_use]
    pub fn is_left_out(&self) -> bool {
        self.state().is_left_out()
    }

    /// Ends an operation of the calling thread. Returns the words that the operation read and that a crash can
    /// still revert, or could revert when the operation stored something (`strict_stores`). Needs `detecting`.
    #[must_use]
    pub fn op_returned(&self) -> Vec<ReadAhead> {
        if self.modes() & mode::DETECT == 0 { Vec::new() } else { self.state().op_returned() }
    }

    /// Returns the cost of all operations so far. Needs `counting`.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.state().counters()
    }

    /// Returns the sites that all media with the same log have reached so far, each with its count. Empty without a
    /// log.
    #[must_use]
    pub fn sites(&self) -> Vec<(Site, u64)> {
        let log = self.state().mutator.sites.clone();
        log.map(|log| log.sites()).unwrap_or_default()
    }

    /// Yields the processor at one in `one_in` steps from now on; 0: never.
    pub fn set_yield(&self, one_in: u32) {
        self.0.yield_one_in.store(one_in, Ordering::Relaxed);
        let bit = mode::YIELD;
        // Relaxed: a thread that sees the mode late yields late.
        if one_in > 0 {
            self.0.modes.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.0.modes.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Changes the number of bytes that all regions together may have.
    pub fn set_space(&self, bytes: u64) {
        self.state().space = bytes;
    }

    /// Makes the medium read-only from now on, or writable again.
    #[cfg(test)]
    pub(crate) fn set_read_only(&self, read_only: bool) {
        let bit = mode::READ_ONLY;
        // Relaxed: called by the thread that uses the table.
        match read_only {
            true => self.0.modes.fetch_or(bit, Ordering::Relaxed),
            false => self.0.modes.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    /// Makes a range of a region a hole without space: `reserve` fails for every range that meets it.
    #[cfg(test)]
    pub(crate) fn lose_space(&self, region: &crate::storage::Region, range: std::ops::Range<u64>) {
        let slot = self.slot_of(region);
        self.state().lost.push((slot, range));
    }

    /// Makes the next `punches` punches fail.
    #[cfg(test)]
    pub(crate) fn fail_punches(&self, punches: u32) {
        self.state().failing_punches = punches;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Poisoning is ignored: a panic of the code under test leaves no incomplete change that an image could show.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    fn modes(&self) -> u32 {
        // Relaxed: `YIELD` is a hint, and the other bits are set before the medium is shared.
        self.0.modes.load(Ordering::Relaxed)
    }
}
