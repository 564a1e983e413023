//! A machine that does little but store blobs: chunks fill, empty and change their use within a few steps.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use icefield::base::reclaim::Reclaimer;
use icefield::pm::blob::{BlobParams, BlobRef, BlobStore, Owner};
use icefield::pm::cell::Overlay;
use icefield::pm::sim::Sim;
use icefield::pm::{Cell64, Medium, Region};
use icefield::{Error, Result};

use super::machine::Machine;
use crate::call::{Call, Reply};
use crate::rng::mix;

const ENTRIES: usize = 32;
/// Small, so that a blob of some thousand bytes is a run of chunks.
const CHUNK_BYTES: u32 = 1 << 10;

#[repr(C)]
struct Root {
    made: Cell64,
    _reserved: [Cell64; 7],
    entries: [Entry; ENTRIES],
}

/// A key, plus one, and its blob, or 0.
#[repr(C)]
struct Entry {
    key: Cell64,
    blob: Cell64,
}

// SAFETY: `repr(C)`, cells only.
unsafe impl Overlay for Entry {}
// SAFETY: `repr(C)`, cells and overlays only.
unsafe impl Overlay for Root {}

/// A map whose every value is a blob, often a large one.
pub(super) struct BlobMap {
    root: Region,
    store: BlobStore,
    reclaimer: Arc<Reclaimer>,
    lock: Mutex<()>,
    pm: Sim,
}

/// The map as the store's scan asks it; its one lock is held by the caller.
struct Slots<'a>(&'a BlobMap);

impl Owner for Slots<'_> {
    fn is_live(&self, _owner: u64, blob: BlobRef, mark: &mut dyn FnMut(bool)) {
        let Ok(root) = self.0.root() else { return };
        let mut words = root.entries.iter().map(|entry| entry.blob.load(&self.0.pm, Acquire));
        mark(words.any(|word| word != 0 && BlobRef::from_word(word).same_block(blob)));
    }
}

/// The content that stands for a value: mostly a few bytes, now and then several chunks.
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

impl BlobMap {
    fn map(pm: Sim) -> Result<Self> {
        let root = pm.region("root", 4096)?;
        let reclaimer = Arc::new(Reclaimer::with_batch(1));
        let params = BlobParams {
            chunk_bytes: CHUNK_BYTES,
            growth_chunks: 4,
            max_bytes: 1 << 20,
            ..BlobParams::default()
        };
        let store = BlobStore::open(&pm, params, Arc::clone(&reclaimer))?;
        Ok(Self { root, store, reclaimer, lock: Mutex::new(()), pm })
    }

    fn root(&self) -> Result<&Root> {
        self.root.at(0).ok_or_else(|| Error::Unsupported("the root is too short".into()))
    }

    fn entry(&self, key: u64) -> Result<Option<&Entry>> {
        Ok(self.root()?.entries.iter().find(|entry| entry.key.load(&self.pm, Acquire) == key + 1))
    }

    fn read(&self, blob: u64) -> Result<u64> {
        // SAFETY: the map's lock is held, and nothing is retired without it.
        let bytes = unsafe { self.store.read(&self.pm, BlobRef::from_word(blob)) }?;
        let value = bytes.first_chunk().map(|first| u64::from_le_bytes(*first));
        value
            .filter(|&value| content(value) == bytes)
            .ok_or_else(|| Error::Unsupported("a blob was overwritten".into()))
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        match self.entry(key)?.map(|entry| entry.blob.load(&self.pm, Acquire)) {
            None | Some(0) => Ok(None),
            Some(blob) => self.read(blob).map(Some),
        }
    }

    fn set(&self, key: u64, value: Option<u64>) -> Result<()> {
        let pm = &self.pm;
        let entry = match self.entry(key)? {
            Some(entry) => entry,
            None => {
                let mut free = self.root()?.entries.iter();
                let free =
                    free.find(|entry| entry.key.load(pm, Relaxed) == 0).ok_or(Error::Full)?;
                free.key.store(pm, key + 1, Release);
                pm.persist(&free.key);
                free
            }
        };
        let new = value.map(|value| self.write(key, &content(value))).transpose()?.unwrap_or(0);
        let guard = self.reclaimer.pin();
        let old = entry.blob.load(pm, Relaxed);
        entry.blob.store(pm, new, Release);
        pm.persist(&entry.blob);
        if old != 0 {
            self.store.retire(&guard, BlobRef::from_word(old));
        }
        drop(guard);
        self.reclaimer.pin().flush();
        Ok(())
    }

    /// Another thread opens up the chunk and fences nothing: what it claimed must be durable without this thread's doing.
    fn write(&self, key: u64, bytes: &[u8]) -> Result<u64> {
        self.store.prepare(&self.pm, &Slots(self), bytes.len())?;
        let other = std::thread::scope(|scope| {
            scope.spawn(|| self.store.write(&self.pm, !key, bytes)).join()
        });
        let other = other.map_err(|_| Error::Unsupported("the other writer panicked".into()))??;
        let blob = self.store.write(&self.pm, key, bytes)?;
        self.pm.fence();
        self.store.discard(other);
        Ok(blob.word())
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine for BlobMap {
    const NAME: &'static str = "blob-store";
    const SIMPLE: bool = true;

    fn create(sim: Sim, _variant: u64) -> Result<Self> {
        let map = Self::map(sim)?;
        map.pm.grow(&map.root, 4096)?;
        map.root()?.made.store(&map.pm, 1, Release);
        map.pm.persist(&map.root()?.made);
        map.pm.publish_created()?;
        Ok(map)
    }

    fn open(sim: Sim) -> Result<Self> {
        let map = Self::map(sim)?;
        let made = map.root.at::<Root>(0).map_or(0, |root| root.made.load(&map.pm, Acquire));
        if made == 0 {
            return Err(Error::NotFound { path: map.pm.path().into() });
        }
        Ok(map)
    }

    fn ask(&self, call: Call) -> Result<Reply> {
        let _lock = self.lock();
        let value = self.get(call.key)?;
        let (after, reply) = call.action.step(value);
        if after != value {
            self.set(call.key, after)?;
        }
        Ok(reply)
    }

    fn records(&self) -> Result<Vec<(u64, u64)>> {
        let _lock = self.lock();
        let keys = self.root()?.entries.iter().map(|entry| entry.key.load(&self.pm, Acquire));
        let present = keys.filter(|&key| key != 0).map(|key| Ok((key - 1, self.get(key - 1)?)));
        let records: Result<Vec<_>> = present.collect();
        Ok(records?.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
    }

    fn faults(&self) -> Result<Vec<String>> {
        let _lock = self.lock();
        let entries =
            self.root()?.entries.iter().map(|entry| {
                (entry.key.load(&self.pm, Acquire), entry.blob.load(&self.pm, Acquire))
            });
        let live = entries
            .filter(|&(_, blob)| blob != 0)
            .map(|(key, blob)| (key - 1, BlobRef::from_word(blob)));
        let report = self.store.check(&self.pm, live);
        let leaked = (report.leaked > 0).then(|| format!("{} blocks leaked", report.leaked));
        Ok(report.faults.into_iter().chain(leaked).collect())
    }
}
