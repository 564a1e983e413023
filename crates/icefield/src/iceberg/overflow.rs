//! The overflow yard (§3.2, level 3): records for which neither yard has room.
//!
//! On the medium it is slots and nothing else; lists, free slots and emptiness are in DRAM, and recovery makes them
//! from the slots. A list is that of some bits of the hash, whatever the size of the table: no doubling concerns it. So
//! few records come here that a mutex for every walk is no loss; that a list is empty is seen without one.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::layout::{SLOT_BYTES, Slot};
use crate::Result;
use crate::base::memory::{GrowingArray, ZeroedArray};
use crate::pm::{Medium, Region};

/// Lists. As many as a table of some gigabytes at 95 % fill has records here, a thousand times.
const LISTS: usize = 1 << 16;
/// Mutexes for them.
const STRIPES: usize = 64;
/// The yard grows by an eighth, but at least by so many bytes.
const GROWTH_BYTES: u64 = 4096;

/// The yard. See the module.
pub(super) struct Overflow {
    region: Region,
    /// For each list its first slot, plus one.
    heads: ZeroedArray<AtomicU32>,
    /// For each slot in a list: the next one plus one, and in the high half the upper half of its record's hash.
    links: GrowingArray<AtomicU64>,
    walking: [Mutex<()>; STRIPES],
    free: Mutex<Free>,
}

/// Slots in no list.
#[derive(Default)]
struct Free {
    slots: Vec<u32>,
    /// Slots that the region has.
    end: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Links are changed by single stores, and the free list is whole after any panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn list_of(hash: u64) -> usize {
    hash as usize % LISTS
}

/// A link word: the hash's upper half, the next slot plus one.
fn link_word(hash: u64, next: u32) -> u64 {
    hash >> 32 << 32 | u64::from(next)
}

impl Overflow {
    /// A yard without lists; [`Overflow::adopt`] makes them.
    pub(super) fn new(region: Region) -> io::Result<Self> {
        let most = (region.max_bytes() / SLOT_BYTES).min(u64::from(u32::MAX - 1)) as usize;
        let end = (region.len() / SLOT_BYTES).min(most as u64) as u32;
        let links = GrowingArray::sparse(most)?;
        links.extend(end as usize)?;
        Ok(Self {
            region,
            heads: ZeroedArray::new(LISTS)?,
            links,
            walking: std::array::from_fn(|_| Mutex::new(())),
            free: Mutex::new(Free { slots: Vec::new(), end }),
        })
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> u32 {
        lock(&self.free).end
    }

    #[inline]
    pub(super) fn slot(&self, number: u32) -> Option<&Slot> {
        self.region.at(u64::from(number) * SLOT_BYTES)
    }

    /// Whether no record with this hash can be here.
    #[inline(always)]
    pub(super) fn is_empty(&self, hash: u64) -> bool {
        // Acquire (E2): pairs with the Release in `link`.
        self.heads[list_of(hash)].load(Acquire) == 0
    }

    /// The first slot in the list of `hash` that `take` takes; it is shown those whose record may have the hash.
    #[cold]
    pub(super) fn find<T>(
        &self,
        hash: u64,
        mut take: impl FnMut(u32, &Slot) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let list = list_of(hash);
        let _walking = lock(&self.walking[list % STRIPES]);
        let mut next = self.heads[list].load(Relaxed);
        while next != 0 {
            let link = self.links[next as usize - 1].load(Relaxed);
            if link >> 32 == hash >> 32
                && let Some(slot) = self.slot(next - 1)
                && let Some(found) = take(next - 1, slot)?
            {
                return Ok(Some(found));
            }
            next = link as u32;
        }
        Ok(None)
    }

    /// Takes a free slot.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`].
    pub(super) fn claim(&self, pm: &impl Medium) -> Result<u32> {
        let mut free = lock(&self.free);
        if let Some(slot) = free.slots.pop() {
            return Ok(slot);
        }
        let needed = (u64::from(free.end) + 1) * SLOT_BYTES;
        if needed > self.region.len() {
            let more = (self.region.len() / 8).max(GROWTH_BYTES);
            let generous = (self.region.len() + more).min(self.region.max_bytes()).max(needed);
            pm.grow(&self.region, generous).or_else(|_| pm.grow(&self.region, needed))?;
        }
        let extended = self.links.extend(free.end as usize + 1);
        extended.map_err(|source| crate::Error::io(pm.path(), source))?;
        free.end += 1;
        Ok(free.end - 1)
    }

    /// Gives a slot back that is in no list.
    pub(super) fn give_up(&self, slot: u32) {
        lock(&self.free).slots.push(slot);
    }

    /// Puts a filled, durable slot into its list.
    pub(super) fn link(&self, slot: u32, hash: u64) {
        let list = list_of(hash);
        let _walking = lock(&self.walking[list % STRIPES]);
        let head = &self.heads[list];
        self.links[slot as usize].store(link_word(hash, head.load(Relaxed)), Relaxed);
        // Release (E2): the slot is durable.
        head.store(slot + 1, Release);
    }

    /// Takes a slot out of its list whose record is gone, durably, and gives it back.
    pub(super) fn unlink(&self, slot: u32, hash: u64) {
        {
            let list = list_of(hash);
            let _walking = lock(&self.walking[list % STRIPES]);
            let after = self.links[slot as usize].load(Relaxed) as u32;
            let mut next = self.heads[list].load(Relaxed);
            if next == slot + 1 {
                // Release (E2), as in `link`.
                self.heads[list].store(after, Release);
            } else {
                while next != 0 {
                    let link = &self.links[next as usize - 1];
                    let word = link.load(Relaxed);
                    if word as u32 == slot + 1 {
                        link.store(word >> 32 << 32 | u64::from(after), Relaxed);
                        break;
                    }
                    next = word as u32;
                }
            }
        }
        self.give_up(slot);
    }

    /// Forgets all lists: every slot is free. For `clear`, while nobody writes.
    pub(super) fn forget(&self) {
        let mut free = lock(&self.free);
        for (list, head) in self.heads.iter().enumerate() {
            let _walking = lock(&self.walking[list % STRIPES]);
            if head.load(Relaxed) != 0 {
                // Release: as where a list gets a record; an empty one publishes nothing.
                head.store(0, Release);
            }
        }
        free.slots = (0..free.end).rev().collect();
    }

    /// The free slots, sorted. For `check`.
    pub(super) fn free_slots(&self) -> Vec<u32> {
        let mut slots = lock(&self.free).slots.clone();
        slots.sort_unstable();
        slots
    }

    /// Bytes of DRAM that have been touched, about.
    pub(super) fn dram_bytes(&self) -> u64 {
        let slots = u64::from(self.slots());
        let touched = (slots * 4096).min(LISTS as u64 * 4);
        touched + slots * 12
    }
}
