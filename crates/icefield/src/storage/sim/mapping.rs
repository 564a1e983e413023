//! The mapping of a simulated medium: addresses of regions, copies, and stores that were not recorded.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::state::State;
use super::{Sim, UNRECORDED, arena};

impl Sim {
    /// Compares every mapping with its shadow.
    ///
    /// # Panics
    /// With [`UNRECORDED`], when some code stored without a call of the medium.
    pub fn check_shadow(&self) {
        let state = self.state();
        let found = self.unrecorded(&state);
        drop(state);
        report_unrecorded(found);
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
            // Relaxed: the caller orders this copy after the stores that it must contain.
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
    pub(super) fn place(&self, address: usize) -> (usize, usize) {
        let offset = address.wrapping_sub(self.0.base.as_ptr().addr());
        let slot = offset >> self.0.slot_shift;
        assert!(
            slot < arena::SLOTS,
            "an address that belongs to no region was stored to, loaded or flushed"
        );
        (slot, offset & ((1 << self.0.slot_shift) - 1))
    }

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
}

pub(super) fn report_unrecorded(found: Option<(&'static str, usize)>) {
    if let Some((region, offset)) = found
        && !std::thread::panicking()
    {
        panic!("{UNRECORDED} to {region} at byte {offset}");
    }
}
