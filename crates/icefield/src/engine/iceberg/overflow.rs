//! The overflow yard (§3.2, level 3): records that have no room in the other two yards.
//!
//! On the medium, the yard consists only of slots. The lists of slots, among them the list of free slots, are in DRAM,
//! and recovery rebuilds them from the slots. Some bits of the hash select the list; they do not depend on the size of
//! the table, so doublings do not affect the lists. Because few records come here, every walk of a list takes a mutex;
//! the check that a list is empty takes none.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::layout::{SLOT_BYTES, Slot};
use crate::Result;
use crate::base::memory::{GrowingArray, ZeroedArray};
use crate::storage::{Medium, Region};

/// Number of lists: about a thousand times the number of overflow records in a table of some gigabytes at 95 % load.
const LISTS: usize = 1 << 16;
/// Number of mutexes that guard the lists.
const STRIPES: usize = 64;
/// The minimum growth of the yard, which otherwise grows by an eighth.
const GROWTH_BYTES: u64 = 4096;

pub(super) struct Overflow {
    region: Region,
    /// Set once a slot is in a list. Reads of most tables then need not look at the lists.
    is_used: AtomicBool,
    /// The first slot of each list, plus one.
    heads: ZeroedArray<AtomicU32>,
    /// For each slot in a list: the next slot plus one in the low half, the upper half of its record's hash in the high
    /// half.
    links: GrowingArray<AtomicU64>,
    walking: [Mutex<()>; STRIPES],
    free: Mutex<Free>,
}

/// The slots in no list, and the number of all slots.
#[derive(Default)]
struct Free {
    slots: Vec<u32>,
    /// Number of slots that are listed, claimed or free; the region may be longer.
    end: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Links are changed by single stores, and the free list is consistent after any panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn list_of(hash: u64) -> usize {
    hash as usize % LISTS
}

/// Returns a link word: the hash's upper half, the next slot plus one.
fn link_word(hash: u64, next: u32) -> u64 {
    hash >> 32 << 32 | u64::from(next)
}

impl Overflow {
    /// Creates a yard without lists; recovery fills them.
    pub(super) fn new(region: Region) -> io::Result<Self> {
        let most = (region.max_bytes() / SLOT_BYTES).min(u64::from(u32::MAX - 1)) as usize;
        let end = (region.len() / SLOT_BYTES).min(most as u64) as u32;
        let links = GrowingArray::sparse(most)?;
        links.extend(end as usize)?;
        Ok(Self {
            region,
            is_used: AtomicBool::new(false),
            heads: ZeroedArray::new(LISTS)?,
            links,
            walking: std::array::from_fn(|_| Mutex::new(())),
            free: Mutex::new(Free { slots: Vec::new(), end }),
        })
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    pub(super) fn slots(&self) -> u32 {
        lock(&self.free).end
    }

    #[inline]
    pub(super) fn slot(&self, number: u32) -> Option<&Slot> {
        self.region.at(u64::from(number) * SLOT_BYTES)
    }

    /// Returns whether no record with this hash can be here.
    #[inline(always)]
    pub(super) fn is_empty(&self, hash: u64) -> bool {
        // Acquire (E2): both loads pair with the Releases in `link`.
        !self.is_used.load(Acquire) || self.heads[list_of(hash)].load(Acquire) == 0
    }

    /// Calls `take` with each slot in the list of `hash` whose record may have this hash, until `take` returns a
    /// result.
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

    /// Claims a free slot.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`].
    pub(super) fn claim(&self, storage: &impl Medium) -> Result<u32> {
        let mut free = lock(&self.free);
        if let Some(slot) = free.slots.pop() {
            return Ok(slot);
        }
        let needed = (u64::from(free.end) + 1) * SLOT_BYTES;
        if needed > self.region.len() {
            let more = (self.region.len() / 8).max(GROWTH_BYTES);
            let generous = (self.region.len() + more).min(self.region.max_bytes()).max(needed);
            storage.grow(&self.region, generous).or_else(|_| storage.grow(&self.region, needed))?;
        }
        let extended = self.links.extend(free.end as usize + 1);
        extended.map_err(|source| crate::Error::io(storage.path(), source))?;
        free.end += 1;
        Ok(free.end - 1)
    }

    /// Frees a slot that is in no list.
    pub(super) fn free_slot(&self, slot: u32) {
        lock(&self.free).slots.push(slot);
    }

    /// Puts a filled, durable slot into its list.
    pub(super) fn link(&self, slot: u32, hash: u64) {
        let list = list_of(hash);
        let _walking = lock(&self.walking[list % STRIPES]);
        let head = &self.heads[list];
        self.links[slot as usize].store(link_word(hash, head.load(Relaxed)), Relaxed);
        // Release (E2): the slot is durable.
        self.is_used.store(true, Release);
        head.store(slot + 1, Release);
    }

    /// Removes a slot from its list and frees it. The removal of its record is already durable.
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
        self.free_slot(slot);
    }

    /// Removes all lists, which makes every slot free. Called by `clear`, while writers are excluded.
    pub(super) fn forget(&self) {
        let mut free = lock(&self.free);
        for (list, head) in self.heads.iter().enumerate() {
            let _walking = lock(&self.walking[list % STRIPES]);
            if head.load(Relaxed) != 0 {
                // Release, like all stores of heads, although an empty list publishes nothing.
                head.store(0, Release);
            }
        }
        // Release (E2): a read that sees it sees that the shape has changed, and repeats its search.
        self.is_used.store(false, Release);
        free.slots = (0..free.end).rev().collect();
    }

    /// Returns the free slots, sorted, for `check`.
    pub(super) fn free_slots(&self) -> Vec<u32> {
        let mut slots = lock(&self.free).slots.clone();
        slots.sort_unstable();
        slots
    }

    /// Returns the approximate DRAM in use.
    pub(super) fn dram_bytes(&self) -> u64 {
        let slots = u64::from(self.slots());
        let touched = (slots * 4096).min(LISTS as u64 * 4);
        touched + slots * 12
    }
}
