//! A crash test machine that mainly stores blobs, so that chunks fill, become empty and change their use within a few
//! steps.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use icefield::base::reclaim::Reclaimer;
use icefield::storage::blob::{BlobParams, BlobRef, BlobStore, Owner};
use icefield::storage::sim::Sim;
use icefield::storage::{Medium, Persist};
use icefield::{Error, Result};

use super::map::{Entry, Frame, Map, Store};
use crate::rng::mix;

/// A map that stores each value as a blob, often a large one. The word of an entry is the blob reference.
pub(super) type BlobMap = Map<Blobs>;

/// Small, so that a blob of a few thousand bytes spans several chunks.
const CHUNK_BYTES: u32 = 1 << 10;

pub(super) struct Blobs {
    store: BlobStore,
    reclaimer: Arc<Reclaimer>,
}

/// Reports to the store's scan which blobs the map refers to. The caller holds the map's lock.
struct Slots<'a>(&'a Frame);

impl Owner for Slots<'_> {
    fn is_live(&self, _owner: u64, blob: BlobRef, mark: &mut dyn FnMut(bool)) {
        let Ok(live) = self.0.live() else { return };
        mark(live.iter().any(|&(_, word)| BlobRef::from_word(word).same_block(blob)));
    }

    fn relink(&self, _owner: u64, blob: BlobRef, copy: BlobRef) -> Result<bool> {
        let storage = &self.0.storage;
        let refers = |entry: &&Entry| {
            let word = entry.word.load(storage, Relaxed);
            word != 0 && BlobRef::from_word(word).same_block(blob)
        };
        let Some(entry) = self.0.entries()?.iter().find(refers) else { return Ok(false) };
        entry.word.store(storage, copy.word(), Release);
        storage.persist(&entry.word);
        Ok(true)
    }
}

/// The blob content for a value: mostly a few bytes, sometimes several chunks.
fn content(value: u64) -> Vec<u8> {
    let mixed = mix(value);
    let tail = match mixed % 4 {
        0 => 1 << 10 | mixed >> 8 & 0x7FF,
        1 => mixed >> 8 & 0x1FF,
        _ => mixed >> 8 & 0x1F,
    };
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(8 + tail as usize, mixed as u8);
    bytes
}

impl Blobs {
    /// Writes a blob. Before that, another thread writes a blob without a fence at the end; that blob may take a new
    /// chunk. This thread's fence does not cover the other thread's flushes, so the store itself must make the chunk's
    /// map word durable (P1 of the store).
    fn write(&self, frame: &Frame, key: u64, bytes: &[u8]) -> Result<BlobRef> {
        let storage = &frame.storage;
        self.store.prepare(storage, &Slots(frame), bytes.len())?;
        let other = || self.store.write(storage, !key, bytes);
        let other = std::thread::scope(|scope| scope.spawn(other).join())
            .map_err(|_| Error::Unsupported("the other writer panicked".into()))??;
        let blob = self.store.write(storage, key, bytes)?;
        storage.fence();
        self.store.discard(other);
        Ok(blob)
    }

    /// Makes the entry refer to another blob or to none, and retires the old one.
    fn link(&self, frame: &Frame, entry: &Entry, new: u64) {
        let guard = self.reclaimer.pin();
        let old = entry.word.load(&frame.storage, Relaxed);
        entry.word.store(&frame.storage, new, Release);
        frame.storage.persist(&entry.word);
        if old != 0 {
            self.store.retire(&guard, BlobRef::from_word(old));
        }
        drop(guard);
        self.reclaimer.pin().flush();
    }
}

impl Store for Blobs {
    const NAME: &'static str = "blob-store";

    fn map(storage: &Sim) -> Result<Self> {
        let reclaimer = Arc::new(Reclaimer::with_batch(1));
        let params = BlobParams {
            chunk_bytes: CHUNK_BYTES,
            growth_chunks: 4,
            max_bytes: 1 << 20,
            ..BlobParams::default()
        };
        Ok(Self { store: BlobStore::open(storage, params, Arc::clone(&reclaimer))?, reclaimer })
    }

    fn read(&self, frame: &Frame, word: u64) -> Result<u64> {
        let bytes = self.store.read(&frame.storage, BlobRef::from_word(word))?.to_vec();
        let value = bytes.first_chunk().map(|first| u64::from_le_bytes(*first));
        value
            .filter(|&value| content(value) == bytes)
            .ok_or_else(|| Error::Unsupported("a blob was overwritten".into()))
    }

    fn put(&self, frame: &Frame, key: u64, entry: &Entry, value: u64) -> Result<()> {
        if mix(!value).is_multiple_of(6) {
            self.store.compact(&frame.storage, &Slots(frame))?;
        }
        let blob = self.write(frame, key, &content(value))?;
        self.link(frame, entry, blob.word());
        Ok(())
    }

    fn remove(&self, frame: &Frame, entry: &Entry) -> Result<()> {
        self.link(frame, entry, 0);
        Ok(())
    }

    fn faults(&self, frame: &Frame) -> Result<Vec<String>> {
        let live = frame.live()?.into_iter().map(|(key, word)| (key, BlobRef::from_word(word)));
        let report = self.store.check(&frame.storage, live);
        let leaked = (report.leaked > 0).then(|| format!("{} blocks leaked", report.leaked));
        Ok(report.faults.into_iter().chain(leaked).collect())
    }
}
