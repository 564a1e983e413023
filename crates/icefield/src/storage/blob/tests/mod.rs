//! Tests of the store with a toy table: an array of slots, each with a reference and a lock.

mod concurrent;
mod crash;
mod model;
mod plain;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::chunk::Chunk;
use super::*;
use crate::storage::{Cell64, LINE_BYTES, Region};
use plain::Plain;

/// Chunks of 1 KiB: a few operations suffice to fill chunks, to exhaust classes and to grow.
pub(super) const TINY: BlobParams =
    BlobParams { chunk_bytes: 1 << 10, growth_chunks: 4, max_bytes: 64 << 20, session: 0 };

/// A reproducible generator of choices (xorshift).
pub(super) struct Choices(u64);

impl Choices {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % bound
    }
}

/// Content that depends on its seed.
pub(super) fn content(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (seed.wrapping_mul(31).wrapping_add(i.wrapping_mul(7)) >> 3) as u8)
        .collect()
}

/// A table in which slot `i` holds a blob with owner `i`.
pub(super) struct Toy<M: Medium> {
    pub storage: Arc<M>,
    pub store: BlobStore,
    pub reclaimer: Arc<Reclaimer>,
    slots: Region,
    locks: Box<[Mutex<()>]>,
}

impl<M: Medium> Owner for Toy<M> {
    fn is_live(&self, owner: u64, blob: BlobRef, mark: &mut dyn FnMut(bool)) {
        let Some(bucket) = self.locks.get(owner as usize) else { return mark(false) };
        let _held = lock(bucket);
        mark(self.load(owner as usize).is_some_and(|slot| slot.same_block(blob)));
    }

    fn relink(&self, owner: u64, blob: BlobRef, copy: BlobRef) -> Result<bool> {
        let Some(bucket) = self.locks.get(owner as usize) else { return Ok(false) };
        let _held = lock(bucket);
        let found = self.load(owner as usize).filter(|slot| slot.same_block(blob));
        if let Some(slot) = found {
            self.publish(owner as usize, copy.with_tag(slot.tag()).word());
        }
        Ok(found.is_some())
    }
}

impl<M: Medium> Toy<M> {
    pub fn open(storage: Arc<M>, params: BlobParams, slots: usize) -> Result<Self> {
        let reclaimer = Arc::new(Reclaimer::with_batch(1));
        let store = BlobStore::open(&*storage, params, Arc::clone(&reclaimer))?;
        let region = storage.region("toy.ice", 1 << 20)?;
        storage.grow(&region, (slots * LINE_BYTES) as u64)?;
        let locks = (0..slots).map(|_| Mutex::new(())).collect();
        Ok(Self { storage, store, reclaimer, slots: region, locks })
    }

    /// Each slot has a line to itself, so that a crash can leave any combination of old and new slots.
    fn slot(&self, i: usize) -> &Cell64 {
        self.slots.at((i * LINE_BYTES) as u64).expect("inside")
    }

    pub fn load(&self, i: usize) -> Option<BlobRef> {
        let word = self.slot(i).load(&*self.storage, Ordering::SeqCst);
        (word != 0).then(|| BlobRef::from_word(word))
    }

    fn publish(&self, i: usize, word: u64) {
        self.slot(i).store(&*self.storage, word, Ordering::SeqCst);
        self.storage.persist(self.slot(i));
    }

    pub fn put(&self, i: usize, content: &[u8]) -> Result<()> {
        self.store.prepare(&*self.storage, self, content.len())?;
        let blob = match self.store.write(&*self.storage, i as u64, content) {
            Err(Error::NoSpace { .. }) => {
                self.store.make_room(&*self.storage, self)?;
                self.store.write(&*self.storage, i as u64, content)?
            }
            other => other?,
        };
        self.storage.fence();
        let guard = self.reclaimer.pin();
        let _held = lock(&self.locks[i]);
        let old = self.load(i);
        self.publish(i, blob.with_tag(i as u16).word());
        if let Some(old) = old {
            self.store.retire(&guard, old);
        }
        Ok(())
    }

    pub fn remove(&self, i: usize) -> Result<bool> {
        let guard = self.reclaimer.pin();
        let held = lock(&self.locks[i]);
        let Some(old) = self.load(i) else { return Ok(false) };
        self.publish(i, 0);
        // Outside the lock, so that a scan can run in between.
        drop(held);
        self.store.retire(&guard, old);
        Ok(true)
    }

    pub fn get(&self, i: usize) -> Result<Option<Vec<u8>>> {
        let _guard = self.reclaimer.pin();
        let Some(blob) = self.load(i) else { return Ok(None) };
        self.store.verify(&*self.storage, i as u64, blob).map(Some)
    }

    pub fn compact(&self) -> Result<()> {
        self.store.compact(&*self.storage, self)
    }

    pub fn live(&self) -> Vec<(u64, BlobRef)> {
        (0..self.locks.len()).filter_map(|i| Some((i as u64, self.load(i)?))).collect()
    }

    pub fn report(&self, live: impl IntoIterator<Item = (u64, BlobRef)>) -> BlobReport {
        self.store.check(&*self.storage, live)
    }

    pub fn check(&self) {
        let report = self.report(self.live());
        assert!(report.is_clean(), "{report:?}");
    }

    /// Scans everything and checks that each chunk is accounted for: only referenced blocks are owned, all others are
    /// free.
    pub fn check_nothing_lost(&self) {
        // Two calls are needed, because the first call frees dead blocks only at its end.
        self.store.make_room(&*self.storage, self).expect("room");
        self.store.make_room(&*self.storage, self).expect("room");
        self.check();
        account(&self.store.shared, self.live_bytes());
    }

    /// Like [`Toy::check_nothing_lost`], for a table that other threads have used: the blocks that they retired last
    /// are freed when the reclaimer is dropped.
    pub fn close_and_check_nothing_lost(self) {
        self.store.make_room(&*self.storage, &self).expect("room");
        self.check();
        let (storage, shared, live_bytes) =
            (Arc::clone(&self.storage), Arc::clone(&self.store.shared), self.live_bytes());
        drop(self);
        shared.free_spares();
        shared.settle_ripe(&*storage).expect("settled");
        account(&shared, live_bytes);
    }

    fn live_bytes(&self) -> u64 {
        self.live().iter().map(|&(_, blob)| self.block_bytes(blob)).sum()
    }

    fn block_bytes(&self, blob: BlobRef) -> u64 {
        let (_, header) = self.store.resolve(blob).expect("inside");
        self.store.shared.extent_bytes(self.store.shared.classes.extent(header.len(&*self.storage)))
    }
}

/// Checks that every chunk is used or free, every block is owned or free, and owned blocks have `live_bytes` bytes in
/// total.
fn account(shared: &Shared, live_bytes: u64) {
    assert_eq!(shared.unscanned.load(Ordering::Relaxed), 0);
    assert_eq!(shared.used_bytes.sum(), live_bytes as i64);
    let mut chunks = lock(&shared.space).runs.chunks();
    let fresh = lock(&shared.space).fresh;
    for number in 0..fresh {
        match &*lock(shared.chunks.get(number)) {
            Chunk::Unscanned | Chunk::Vacant => {}
            Chunk::Large { chunks: run, .. } => chunks += run,
            Chunk::Small(small) => {
                chunks += 1;
                assert_eq!(
                    small.owned_count() + small.free_count(),
                    shared.classes.blocks(small.class()),
                    "chunk {number} has lost blocks"
                );
            }
        }
    }
    assert_eq!(chunks, fresh, "chunks that are neither used nor free");
}
