//! Small tables in one region of cells: a common wrapper that implements their calls, and helpers for words.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, PoisonError};

use icefield::storage::sim::Sim;
use icefield::storage::{Cell32, Cell64, Persist, Region, Regions};
use icefield::{Error, OnFailure, Result};
use icefield_torture::call::{BatchKind, Call, Reply};
use icefield_torture::crash::Machine;

/// The word that marks a finished table.
const MAGIC_AT: u64 = 0;
const MAGIC: u64 = 0x5EED_F00D;
const BYTES: u64 = 4096;

/// A region of words.
pub struct Words {
    pub sim: Sim,
    pub region: Region,
}

impl Words {
    pub fn cell(&self, word: u64) -> &Cell64 {
        self.region.at(word * 8).expect("inside the region")
    }

    pub fn half(&self, half: u64) -> &Cell32 {
        self.region.at(half * 4).expect("inside the region")
    }

    pub fn load(&self, word: u64) -> u64 {
        self.cell(word).load(&self.sim, Acquire)
    }

    /// Stores with Release, ordered after every earlier store to the line.
    #[track_caller]
    pub fn store(&self, word: u64, value: u64) {
        self.cell(word).store(&self.sim, value, Release);
    }

    /// Stores without ordering.
    #[track_caller]
    pub fn store_relaxed(&self, word: u64, value: u64) {
        self.cell(word).store(&self.sim, value, Relaxed);
    }

    #[track_caller]
    pub fn flush(&self, word: u64, words: u64) {
        let start = std::ptr::from_ref(self.cell(word)).cast();
        self.sim.flush(start, words as usize * 8);
    }

    #[track_caller]
    pub fn fence(&self) {
        self.sim.fence();
    }

    #[track_caller]
    pub fn persist(&self, word: u64, words: u64) {
        self.flush(word, words);
        self.fence();
    }
}

/// A small table: a map from words to words.
pub trait Small: Send + Sync + 'static {
    const NAME: &'static str;
    /// If set, reads exclude writes.
    const LOCKED_READS: bool = true;
    /// If set, passes over all records exclude writes.
    const LOCKED_PASSES: bool = true;
    /// If set, the table is sealed before `format` runs.
    const SEALED_FIRST: bool = false;
    /// If set, batches, `clear`, `retain` and passes are also tested.
    const WHOLE: bool = false;

    fn format(_pm: &Words) {}
    fn recover(_pm: &Words) {}
    fn get(storage: &Words, key: u64) -> Option<u64>;
    fn set(storage: &Words, key: u64, value: Option<u64>);
    fn records(storage: &Words) -> Vec<(u64, u64)>;
    fn clear(_pm: &Words) {}
    fn faults(_pm: &Words) -> Vec<String> {
        Vec::new()
    }
}

/// Turns a [`Small`] into a [`Machine`].
pub struct Shelf<T> {
    storage: Words,
    lock: Mutex<()>,
    small: PhantomData<fn() -> T>,
}

impl<T: Small> Shelf<T> {
    fn on(sim: Sim) -> Result<Self> {
        let region = sim.region("shelf.ice", BYTES)?;
        Ok(Self { storage: Words { sim, region }, lock: Mutex::new(()), small: PhantomData })
    }
}

impl<T: Small> Machine for Shelf<T> {
    const NAME: &'static str = T::NAME;
    const SIMPLE: bool = !T::WHOLE;

    fn create(sim: Sim, _variant: u64) -> Result<Self> {
        let shelf = Self::on(sim)?;
        shelf.storage.sim.grow(&shelf.storage.region, BYTES)?;
        let seal = || {
            shelf.storage.store(MAGIC_AT, MAGIC);
            shelf.storage.persist(MAGIC_AT, 1);
        };
        if T::SEALED_FIRST {
            seal();
            T::format(&shelf.storage);
        } else {
            T::format(&shelf.storage);
            seal();
        }
        Ok(shelf)
    }

    fn open(sim: Sim) -> Result<Self> {
        let shelf = Self::on(sim)?;
        if shelf.storage.region.is_empty() || shelf.storage.load(MAGIC_AT) != MAGIC {
            return Err(Error::NotFound { path: "shelf".into() });
        }
        T::recover(&shelf.storage);
        Ok(shelf)
    }

    fn ask(&self, call: Call) -> Result<Reply> {
        let writes = call.action.writes();
        let guard = (writes || T::LOCKED_READS)
            .then(|| self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        let value = T::get(&self.storage, call.key);
        let (after, reply) = call.action.step(value);
        if after != value {
            T::set(&self.storage, call.key, after);
        }
        drop(guard);
        Ok(reply)
    }

    fn batch(&self, kind: BatchKind, calls: &[Call]) -> Result<Vec<Reply>> {
        let mut replies = Vec::new();
        for &call in calls {
            replies.push(self.ask(call)?);
            let failed = replies.last().is_some_and(|reply| call.action.failed(reply));
            if failed && kind == BatchKind::Execute(OnFailure::Stop) {
                break;
            }
        }
        Ok(replies)
    }

    fn clear(&self) -> Result<()> {
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        T::clear(&self.storage);
        Ok(())
    }

    fn drop_multiples_of(&self, divisor: u64) -> Result<()> {
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, _) in T::records(&self.storage) {
            if key.is_multiple_of(divisor) {
                T::set(&self.storage, key, None);
            }
        }
        Ok(())
    }

    fn records(&self) -> Result<Vec<(u64, u64)>> {
        let _guard =
            T::LOCKED_PASSES.then(|| self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(T::records(&self.storage))
    }

    fn faults(&self) -> Result<Vec<String>> {
        Ok(T::faults(&self.storage))
    }
}
