//! The machine that the allocators' crash scenarios share: a map with few keys in one page. The store under test
//! translates each value into the word of its entry.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use icefield::storage::cell::Overlay;
use icefield::storage::sim::Sim;
use icefield::storage::{Cell64, Medium, Properties, Region, Regions};
use icefield::{Error, Result};

use super::machine::Machine;
use crate::call::{Call, Reply};

const ENTRIES: usize = 32;
const PAGE_BYTES: u64 = 4096;

#[repr(C)]
struct Root {
    made: Cell64,
    _reserved: [Cell64; 7],
    entries: [Entry; ENTRIES],
}

/// An entry of the map: `key` is the key plus one, or 0 if the entry is free; `word` is the store's word for the value,
/// or 0 if the key is absent.
#[repr(C)]
pub(super) struct Entry {
    key: Cell64,
    pub(super) word: Cell64,
}

// SAFETY: `repr(C)`, cells only.
unsafe impl Overlay for Entry {}
// SAFETY: `repr(C)`, cells and overlays only.
unsafe impl Overlay for Root {}

/// The page that holds the map.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) storage: Sim,
    root: Region,
}

/// Storage of the values. All calls are made under the map's lock.
pub(super) trait Store: Send + Sync + Sized + 'static {
    const NAME: &'static str;

    fn map(storage: &Sim) -> Result<Self>;

    fn recover(&self, _frame: &Frame) -> Result<()> {
        Ok(())
    }

    /// Returns the value for an entry's word.
    fn read(&self, frame: &Frame, word: u64) -> Result<u64>;

    /// Stores a value and durably sets the entry's word, from which [`Self::read`] then returns the value.
    fn put(&self, frame: &Frame, key: u64, entry: &Entry, value: u64) -> Result<()>;

    /// Durably sets the entry's word to 0 and frees the storage of its value.
    fn remove(&self, frame: &Frame, entry: &Entry) -> Result<()>;

    fn faults(&self, frame: &Frame) -> Result<Vec<String>>;
}

impl Frame {
    /// Offset in the page from which a store may keep its own words.
    pub(super) const FREE_OFFSET: u64 = 1024;

    /// Returns the object at `offset` in the page.
    pub(super) fn at<T: Overlay>(&self, offset: u64) -> Result<&T> {
        self.root.at(offset).ok_or_else(|| damaged(&self.root))
    }

    /// Returns each key that has a value, with its word.
    pub(super) fn live(&self) -> Result<Vec<(u64, u64)>> {
        let words = self.at::<Root>(0)?.entries.iter().map(|entry| {
            (entry.key.load(&self.storage, Acquire), entry.word.load(&self.storage, Acquire))
        });
        Ok(words.filter(|&(_, word)| word != 0).map(|(key, word)| (key - 1, word)).collect())
    }

    pub(super) fn entries(&self) -> Result<&[Entry]> {
        Ok(&self.at::<Root>(0)?.entries)
    }

    fn entry(&self, key: u64) -> Result<Option<&Entry>> {
        let entries = &self.at::<Root>(0)?.entries;
        Ok(entries.iter().find(|entry| entry.key.load(&self.storage, Acquire) == key + 1))
    }

    /// Returns the key's entry. If there is none, assigns a free one to the key permanently.
    fn entry_or_new(&self, key: u64) -> Result<&Entry> {
        if let Some(entry) = self.entry(key)? {
            return Ok(entry);
        }
        let mut entries = self.at::<Root>(0)?.entries.iter();
        let free = entries.find(|entry| entry.key.load(&self.storage, Relaxed) == 0);
        let free = free.ok_or(Error::Full)?;
        free.key.store(&self.storage, key + 1, Release);
        self.storage.persist(&free.key);
        Ok(free)
    }
}

const _: () = assert!(size_of::<Root>() as u64 <= Frame::FREE_OFFSET);

pub(super) fn damaged(region: &Region) -> Error {
    Error::Unsupported(format!("{} is too short", region.name()))
}

/// A map with its values in the store `S`.
#[derive(Debug)]
pub(super) struct Map<S> {
    frame: Frame,
    store: S,
    lock: Mutex<()>,
}

impl<S: Store> Map<S> {
    fn on(storage: Sim) -> Result<Self> {
        let root = storage.region("root", PAGE_BYTES)?;
        let store = S::map(&storage)?;
        Ok(Self { frame: Frame { storage, root }, store, lock: Mutex::new(()) })
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        match self.frame.entry(key)?.map(|entry| entry.word.load(&self.frame.storage, Acquire)) {
            None | Some(0) => Ok(None),
            Some(word) => self.store.read(&self.frame, word).map(Some),
        }
    }

    fn set(&self, key: u64, value: Option<u64>) -> Result<()> {
        let entry = self.frame.entry_or_new(key)?;
        match value {
            Some(value) => self.store.put(&self.frame, key, entry, value),
            None => self.store.remove(&self.frame, entry),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> Machine for Map<S> {
    const NAME: &'static str = S::NAME;
    const SIMPLE: bool = true;

    fn create(sim: Sim, _variant: u64) -> Result<Self> {
        let map = Self::on(sim)?;
        let storage = &map.frame.storage;
        storage.grow(&map.frame.root, PAGE_BYTES)?;
        let made = &map.frame.at::<Root>(0)?.made;
        made.store(storage, 1, Release);
        storage.persist(made);
        storage.publish_created()?;
        Ok(map)
    }

    fn open(sim: Sim) -> Result<Self> {
        let map = Self::on(sim)?;
        let made =
            map.frame.at::<Root>(0).map_or(0, |root| root.made.load(&map.frame.storage, Acquire));
        if made == 0 {
            return Err(Error::NotFound { path: map.frame.storage.path().into() });
        }
        map.store.recover(&map.frame)?;
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
        let live = self.frame.live()?.into_iter();
        live.map(|(key, word)| Ok((key, self.store.read(&self.frame, word)?))).collect()
    }

    fn faults(&self) -> Result<Vec<String>> {
        let _lock = self.lock();
        self.store.faults(&self.frame)
    }
}
