//! Words and bytes of the simulated medium. Each access has a fast form and an observed form.

use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::line::StoreKind;
use super::{Sim, mode};
use crate::base::group::WholeLoads;
use crate::storage::arch::{self, TwoWords};
use crate::storage::bytes::{self, SharedBytes};
use crate::storage::medium::{Bytes, Words};
use crate::storage::region::Region;

impl Sim {
    /// Performs a load under the lock, so that no store can come between the load and its record.
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

/// The five accesses to words of one width.
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

impl Words for Sim {
    const DIRECT_LOADS: bool = false;

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
    fn load128(&self, words: &TwoWords, whole: Option<WholeLoads>) -> [u64; 2] {
        let modes = self.step();
        let load = || arch::load_two(words, whole);
        if modes & (mode::COUNT | mode::DETECT) == 0 {
            return load();
        }
        let address = std::ptr::from_ref(words).addr();
        self.watched_load(address, size_of::<TwoWords>(), false, modes, Location::caller(), load)
    }
}

impl Bytes for Sim {
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
        // The lock is needed even without recording: an image must not contain half a write.
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
}
