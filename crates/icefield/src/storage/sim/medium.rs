//! The simulator's implementation of [`Medium`]: each access in a fast form and in an observed form.

use std::panic::Location;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::space::EventKind;
use super::state::{State, StoreKind};
use super::{Claim, HANG, Model, Sim, UNRECORDED, arena, image, mode};
use crate::storage::medium::in_use;
use crate::storage::{
    Cell128, Durability, LINE_BYTES, Medium, Region, SharedBytes, SyncMode, arch, bytes,
};
use crate::{Error, Result};

impl Sim {
    pub(super) fn unrecorded(&self, state: &State) -> Option<(&'static str, usize)> {
        if !state.recording {
            return None;
        }
        state.regions().iter().enumerate().find_map(|(slot, region)| {
            let live = self.bytes(slot, region.len);
            if live == region.shadow {
                return None;
            }
            let at = live.iter().zip(&region.shadow).position(|(live, shadow)| live != shadow)?;
            Some((region.name, at))
        })
    }

    /// Counts one step towards the budget, and yields sometimes.
    #[inline(always)]
    fn step(&self) -> u32 {
        // Relaxed, and not one atomic step: a lost count is harmless.
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

    /// Returns a slot for a new region: one of a discarded region without handles, or the next one.
    fn new_slot(&self, state: &mut State, name: &'static str) -> usize {
        let Some((slot, used)) = state.abandoned() else { return state.add_region(name) };
        // SAFETY: inside the slot, and no region over it exists.
        unsafe { self.slot(slot).write_bytes(0, used) };
        state.regions_mut()[slot].name = name;
        slot
    }

    pub(super) fn slot(&self, slot: usize) -> NonNull<u8> {
        // SAFETY: slots are handed out by `State::add_region`, which keeps them inside the arena.
        unsafe { self.0.base.add(slot << self.0.slot_shift) }
    }

    /// Returns the mapping of a region. The caller holds the lock, under which every recorded store happens.
    pub(super) fn bytes(&self, slot: usize, len: usize) -> &[u8] {
        // SAFETY: inside the arena, initialised (zero) memory. Recorded stores happen under the lock that the caller
        // holds; unrecorded ones are the bug that this read detects.
        unsafe { std::slice::from_raw_parts(self.slot(slot).as_ptr(), len) }
    }

    /// Returns a copy of the mapping. A medium that does not record makes word stores without the lock, but they are
    /// atomic.
    pub(super) fn copied(&self, slot: usize, len: usize) -> Vec<u8> {
        let start = self.slot(slot).as_ptr();
        let mut copy = Vec::with_capacity(len);
        for at in (0..len / 8).map(|word| word * 8) {
            // SAFETY: inside the arena, aligned; bulk writes happen under the lock that the caller holds, and every
            // other store is atomic.
            let word = unsafe { &*start.add(at).cast::<AtomicU64>() };
            // Relaxed: the caller's threads are ordered with their own stores.
            copy.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        for at in len / 8 * 8..len {
            // SAFETY: as above.
            let byte = unsafe { &*start.add(at).cast::<AtomicU8>() };
            // Relaxed: as above.
            copy.push(byte.load(Ordering::Relaxed));
        }
        copy
    }

    /// Returns the slot, and the offset in it, of an address in the mapping.
    #[inline(always)]
    fn place(&self, address: usize) -> (usize, usize) {
        let offset = address.wrapping_sub(self.0.base.as_ptr().addr());
        let slot = offset >> self.0.slot_shift;
        assert!(
            slot < arena::SLOTS,
            "an address that belongs to no region was stored to, loaded or flushed"
        );
        (slot, offset & ((1 << self.0.slot_shift) - 1))
    }

    /// Returns whether this handle may access regions: while a table is open, only its handle may.
    fn may_touch(&self, state: &State) -> Result<()> {
        if state.is_claimed && self.1.is_none() { Err(in_use_by_table()) } else { Ok(()) }
    }

    /// Returns a handle of a region that keeps the medium's memory alive.
    fn kept(&self, region: &Region) -> Region {
        let inner = Arc::<super::Inner>::clone(&self.0);
        region.kept_by(inner)
    }

    fn slot_of(&self, region: &Region) -> usize {
        self.place(region.base().as_ptr().addr()).0
    }

    /// Makes a load under the lock, so that the state that is recorded for it is the state that it saw.
    #[cold]
    fn watched_load<R>(
        &self,
        address: usize,
        bytes: usize,
        volatile: bool,
        modes: u32,
        site: &'static Location<'static>,
        load: impl FnOnce() -> R,
    ) -> R {
        let (slot, offset) = self.place(address);
        let mut state = self.state();
        if modes & mode::COUNT != 0 {
            state.count_read(slot, offset, bytes);
        }
        if volatile {
            state.regions_mut()[slot].mark(offset, bytes, true);
        } else if modes & mode::DETECT != 0 {
            state.note_load(slot, offset, bytes, site);
        }
        load()
    }

    /// Makes a durable store and records it.
    fn record(
        &self,
        address: usize,
        bytes: usize,
        value: u64,
        order: Ordering,
        site: &'static Location<'static>,
        store: impl FnOnce(),
    ) {
        let (slot, offset) = self.place(address);
        let mut state = self.state();
        if state.counting {
            state.count_write(slot, offset, bytes);
        }
        store();
        if state.recording {
            let kind =
                if order == Ordering::Relaxed { StoreKind::Relaxed } else { StoreKind::Release };
            state.store(slot, offset, bytes, value, kind, site);
        }
    }

    /// Accesses a volatile word. `access` returns a result and the stored value, `None` if the word did not change.
    fn record_volatile<R>(
        &self,
        address: usize,
        bytes: usize,
        access: impl FnOnce() -> (R, Option<u64>),
    ) -> R {
        let (slot, offset) = self.place(address);
        let mut state = self.state();
        let counting = state.counting;
        if counting {
            state.count_read(slot, offset, bytes);
        }
        let (result, stored) = access();
        let region = &mut state.regions_mut()[slot];
        region.mark(offset, bytes, true);
        if let Some(value) = stored {
            if let Some(shadow) = region.shadow.get_mut(offset..offset + bytes) {
                shadow.copy_from_slice(&value.to_le_bytes()[..bytes]);
            }
            if counting {
                state.count_write(slot, offset, bytes);
            }
        }
        result
    }
}

fn in_use_by_table() -> Error {
    Error::InvalidOption {
        option: "medium",
        detail: "a table is open on another handle of it; drop the table first".into(),
    }
}

pub(super) fn report_unrecorded(found: Option<(&'static str, usize)>) {
    if let Some((region, offset)) = found
        && !std::thread::panicking()
    {
        panic!("{UNRECORDED} to {region} at byte {offset}");
    }
}

/// The four word accesses, the same for both widths.
macro_rules! word_access {
    ($atomic:ty, $word:ty, $load:ident, $store:ident, $load_volatile:ident, $store_volatile:ident, $cas:ident) => {
        #[inline]
        #[track_caller]
        fn $load(&self, cell: &$atomic, order: Ordering) -> $word {
            let modes = self.step();
            let load = || cell.load(order);
            if modes & (mode::COUNT | mode::DETECT) == 0 {
                return load();
            }
            let address = std::ptr::from_ref(cell).addr();
            self.watched_load(address, size_of::<$word>(), false, modes, Location::caller(), load)
        }

        #[inline]
        #[track_caller]
        fn $store(&self, cell: &$atomic, value: $word, order: Ordering) {
            let modes = self.step();
            if modes & (mode::RECORD | mode::COUNT) == 0 {
                return cell.store(value, order);
            }
            let address = std::ptr::from_ref(cell).addr();
            let store = || cell.store(value, order);
            self.record(
                address,
                size_of::<$word>(),
                u64::from(value),
                order,
                Location::caller(),
                store,
            );
        }

        #[inline]
        #[track_caller]
        fn $load_volatile(&self, cell: &$atomic, order: Ordering) -> $word {
            let modes = self.step();
            let load = || cell.load(order);
            if modes & (mode::RECORD | mode::COUNT) == 0 {
                return load();
            }
            let address = std::ptr::from_ref(cell).addr();
            self.watched_load(address, size_of::<$word>(), true, modes, Location::caller(), load)
        }

        #[inline]
        #[track_caller]
        fn $store_volatile(&self, cell: &$atomic, value: $word, order: Ordering) {
            let modes = self.step();
            if modes & (mode::RECORD | mode::COUNT) == 0 {
                return cell.store(value, order);
            }
            let store = || (cell.store(value, order), Some(u64::from(value)));
            self.record_volatile(std::ptr::from_ref(cell).addr(), size_of::<$word>(), store);
        }

        #[inline]
        #[track_caller]
        fn $cas(
            &self,
            cell: &$atomic,
            current: $word,
            new: $word,
            success: Ordering,
            failure: Ordering,
        ) -> std::result::Result<$word, $word> {
            let modes = self.step();
            if modes & (mode::RECORD | mode::COUNT) == 0 {
                return cell.compare_exchange_weak(current, new, success, failure);
            }
            self.record_volatile(std::ptr::from_ref(cell).addr(), size_of::<$word>(), || {
                let result = cell.compare_exchange_weak(current, new, success, failure);
                (result, result.is_ok().then_some(u64::from(new)))
            })
        }
    };
}

impl crate::storage::medium::sealed::Sealed for Sim {}

impl Medium for Sim {
    fn claimed(mut self) -> Result<Self> {
        let mut state = self.state();
        if state.is_claimed {
            return Err(in_use_by_table());
        }
        let mut regions = state.regions().iter().filter_map(|region| region.region.as_ref());
        if let Some(region) = regions.find(|region| region.is_shared()) {
            return Err(in_use(region));
        }
        state.is_claimed = true;
        drop(state);
        self.1 = Some(Arc::new(Claim(Arc::clone(&self.0))));
        Ok(self)
    }

    fn region(&self, name: &'static str, max_bytes: u64) -> Result<Region> {
        let mut state = self.state();
        self.may_touch(&state)?;
        let slot = state.regions().iter().position(|region| region.name == name);
        let slot = slot.unwrap_or_else(|| self.new_slot(&mut state, name));
        let exempt = state.exempt.contains(&name);
        let region = &mut state.regions_mut()[slot];
        if let Some(known) = &region.region {
            return Ok(self.kept(known));
        }
        let max_bytes =
            max_bytes.next_multiple_of(4096).min(1 << self.0.slot_shift).max(region.len as u64);
        // SAFETY: the slot is page-aligned, reserved and readable up to its end, and lives as long as the medium,
        // which every handle of the region keeps alive.
        let mapped = unsafe { Region::new(name, self.slot(slot), region.len as u64, max_bytes) };
        let handle = self.kept(&mapped);
        region.region = Some(mapped);
        region.exempt = exempt;
        Ok(handle)
    }

    #[track_caller]
    fn grow(&self, region: &Region, bytes: u64) -> Result<()> {
        let site = Location::caller();
        self.step();
        let slot = self.slot_of(region);
        let mut state = self.state();
        // Whole lines, so that logs need no partial ones.
        let len = bytes.next_multiple_of(LINE_BYTES as u64);
        let more = len.saturating_sub(region.len());
        if more == 0 {
            return Ok(());
        }
        let used: usize = state.used_bytes().sum();
        if len > region.max_bytes() || used as u64 + more > state.space {
            return Err(Error::NoSpace {
                path: self.path().join(region.name()),
                needed_bytes: more,
            });
        }
        if state.recording {
            let thread = state.thread();
            state.event(EventKind::Grow, thread, site);
        }
        state.lengthen(slot, len as usize);
        region.set_len(len);
        Ok(())
    }

    #[track_caller]
    fn grow_exactly(&self, region: &Region, bytes: u64) -> Result<()> {
        self.grow(region, bytes)
    }

    #[track_caller]
    fn discard_region(&self, name: &'static str) -> Result<()> {
        let site = Location::caller();
        self.step();
        let mut state = self.state();
        self.may_touch(&state)?;
        if state.regions().iter().all(|region| region.name != name) {
            return Ok(());
        }
        if state.recording {
            let thread = state.thread();
            state.event(EventKind::Punch, thread, site);
        }
        state.discard(name);
        Ok(())
    }

    #[track_caller]
    fn punch(&self, region: &Region, offset: u64, bytes: u64) -> Result<()> {
        let site = Location::caller();
        self.step();
        let end = offset.saturating_add(bytes).min(region.len()) / 4096 * 4096;
        let start = offset.next_multiple_of(4096);
        if start >= end {
            return Ok(());
        }
        let slot = self.slot_of(region);
        let mut state = self.state();
        if state.recording {
            let thread = state.thread();
            state.event(EventKind::Punch, thread, site);
        }
        // SAFETY: inside the region; the caller uses nothing in the range meanwhile.
        unsafe { self.slot(slot).add(start as usize).write_bytes(0, (end - start) as usize) };
        state.punch(slot, start as usize, (end - start) as usize);
        Ok(())
    }

    fn check_writable(&self) -> Result<()> {
        if self.modes() & mode::READ_ONLY == 0 { Ok(()) } else { Err(Error::ReadOnly) }
    }

    fn durability(&self) -> Durability {
        match self.state().model {
            Model::Pmem => Durability::Pmem,
            Model::Disk => Durability::Disk,
        }
    }

    fn path(&self) -> &Path {
        Path::new("simulated.ice")
    }

    #[track_caller]
    fn flush(&self, start: *const u8, bytes: usize) {
        let modes = self.step();
        if modes & (mode::RECORD | mode::COUNT) != 0 && bytes > 0 {
            let (slot, offset) = self.place(start.addr());
            self.state().flush(slot, offset, bytes, Location::caller());
        }
    }

    #[track_caller]
    fn fence(&self) {
        let modes = self.step();
        if modes & (mode::RECORD | mode::COUNT) == 0 {
            return;
        }
        let mut state = self.state();
        if modes & mode::YIELD != 0 && state.makes_up() {
            drop(state);
            self.stand_back();
            state = self.state();
        }
        let found = if state.shadow_due() { self.unrecorded(&state) } else { None };
        state.fence(Location::caller());
        drop(state);
        report_unrecorded(found);
    }

    fn sync_mode(&self) -> SyncMode {
        let state = self.state();
        if state.model == Model::Disk { state.sync } else { SyncMode::Always }
    }

    fn fence_is_free(&self) -> bool {
        let state = self.state();
        state.free_fences && state.model == Model::Pmem
    }

    fn fence_syncs(&self) -> bool {
        self.state().model == Model::Disk
    }

    #[track_caller]
    fn fence_later(&self) -> Result<()> {
        if !self.fence_syncs() {
            return self.try_fence();
        }
        self.step();
        let mut state = self.state();
        state.fence_later(Location::caller());
        // Simulates the thread that syncs every few milliseconds.
        if matches!(state.sync, SyncMode::Every(_))
            && image::mix(state.seed ^ state.seq).is_multiple_of(4)
        {
            state.fence_deferred(Location::caller());
        }
        Ok(())
    }

    #[track_caller]
    fn fence_deferred(&self) -> Result<()> {
        if self.fence_syncs() {
            self.step();
            self.state().fence_deferred(Location::caller());
        }
        Ok(())
    }

    #[track_caller]
    unsafe fn write_bytes(&self, region: &Region, offset: u64, src: &[u8]) {
        let modes = self.step();
        let end = offset.checked_add(src.len() as u64);
        assert!(
            end.is_some_and(|end| end <= region.len()),
            "bytes written outside {}",
            region.name()
        );
        let offset = offset as usize;
        // SAFETY: in bounds (just checked); the caller excludes every other access to the range.
        let copy = || unsafe {
            region
                .base()
                .add(offset)
                .copy_from_nonoverlapping(NonNull::from(src).cast(), src.len());
        };
        // The lock is needed in any case: an image must not copy half a write.
        let mut state = self.state();
        if modes & (mode::RECORD | mode::COUNT) == 0 {
            return copy();
        }
        let slot = self.slot_of(region);
        if modes & mode::COUNT != 0 {
            state.count_write(slot, offset, src.len());
        }
        copy();
        if modes & mode::RECORD != 0 {
            state.store_bulk(slot, offset, src, Location::caller());
        }
    }

    #[track_caller]
    unsafe fn read_bytes<'a>(
        &self,
        region: &'a Region,
        offset: u64,
        bytes: usize,
    ) -> Option<&'a [u8]> {
        let modes = self.step();
        if offset.checked_add(bytes as u64)? > region.len() {
            return None;
        }
        // SAFETY: in bounds (just checked); the caller guarantees that the range is not written while the reference
        // lives.
        let start = unsafe { region.base().add(offset as usize) };
        if modes & (mode::COUNT | mode::DETECT) != 0 {
            let address = start.as_ptr().addr();
            self.watched_load(address, bytes, false, modes, Location::caller(), || ());
        }
        // SAFETY: as above.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes) })
    }

    #[track_caller]
    fn shared_bytes<'a>(
        &self,
        region: &'a Region,
        offset: u64,
        bytes: usize,
    ) -> Option<SharedBytes<'a>> {
        let modes = self.step();
        let words: &[bytes::ByteWord] =
            region.slice_at(offset, bytes.div_ceil(size_of::<u64>()))?;
        if modes & (mode::COUNT | mode::DETECT) != 0 {
            let address = words.as_ptr().addr();
            self.watched_load(address, bytes, false, modes, Location::caller(), || ());
        }
        Some(SharedBytes::new(words, bytes))
    }

    #[track_caller]
    fn store_bytes(&self, region: &Region, offset: u64, src: &[u8]) {
        let modes = self.step();
        let words = region.slice_at(offset, src.len().div_ceil(size_of::<u64>()));
        let Some(words) = words else { panic!("bytes stored outside {}", region.name()) };
        if modes & (mode::RECORD | mode::COUNT) == 0 {
            return bytes::store(words, src);
        }
        let slot = self.slot_of(region);
        let mut state = self.state();
        if modes & mode::COUNT != 0 {
            state.count_write(slot, offset as usize, src.len());
        }
        bytes::store(words, src);
        if modes & mode::RECORD != 0 {
            // Includes the zeros that fill the last word.
            let mut stored = src.to_vec();
            stored.resize(src.len().next_multiple_of(size_of::<u64>()), 0);
            state.store_bulk(slot, offset as usize, &stored, Location::caller());
        }
    }

    word_access!(
        AtomicU32,
        u32,
        load32,
        store32,
        load_volatile32,
        store_volatile32,
        cas_volatile32
    );
    word_access!(
        AtomicU64,
        u64,
        load64,
        store64,
        load_volatile64,
        store_volatile64,
        cas_volatile64
    );

    #[inline]
    #[track_caller]
    fn load128(&self, cell: &Cell128) -> [u64; 2] {
        let modes = self.step();
        let load = || arch::load128(cell);
        if modes & (mode::COUNT | mode::DETECT) == 0 {
            return load();
        }
        let address = std::ptr::from_ref(cell).addr();
        self.watched_load(address, size_of::<Cell128>(), false, modes, Location::caller(), load)
    }

    fn wait(&self, rounds: u32) {
        self.step();
        if rounds < 16 {
            std::hint::spin_loop();
        } else {
            (self.0.give_way)();
        }
    }

    fn sim_yield_point(&self) {
        self.step();
    }

    fn forget_reads(&self) {
        if self.modes() & mode::DETECT != 0 {
            self.state().forget_reads();
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

    fn publish_created(&self) -> Result<()> {
        self.state().published = true;
        Ok(())
    }

    fn close(&self) {
        self.check_shadow();
    }
}
