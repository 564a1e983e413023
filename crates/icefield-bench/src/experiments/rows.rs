//! Rows with locks: rows of one word in a table of words, for Smallbank, and rows of several columns, for TATP.
//!
//! A transaction locks the rows that it writes. Every benchmark takes its locks in a fixed order of tables and keys,
//! which rules out deadlocks. A transaction that needs a consistent snapshot of several rows of one word reads them
//! twice without locks: if no word changed in between, the reads are such a snapshot.
//!
//! Rows of several columns are records of a [`DlhtMap`](icefield::DlhtMap). Transactions use them through references
//! and change their columns in place: the paper's pointer interface.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use icefield::base::version_lock::{self, WriteGuard};
use icefield::{Computed, Decision, Dlht};

use crate::prelude::*;

const LOCK: u64 = 1;
const VERSION_BITS: u32 = 15;
const DATA_SHIFT: u32 = 1 + VERSION_BITS;

/// Number of checks of a locked row before the thread yields.
const SPINS: u32 = 64;

/// Rows of one word: a lock bit, a version that every write changes, and 48 bits of data.
pub(super) struct Rows(Dlht<u64, u64>);

/// A locked row: its word without the lock bit.
#[derive(Clone, Copy)]
#[must_use = "the row stays locked"]
pub(super) struct Locked {
    key: u64,
    word: u64,
}

impl Locked {
    pub fn data(&self) -> i64 {
        data_of(self.word)
    }
}

fn word_of(version: u64, data: i64) -> u64 {
    (data as u64) << DATA_SHIFT | (version << 1 & ((1 << DATA_SHIFT) - 1))
}

fn data_of(word: u64) -> i64 {
    word as i64 >> DATA_SHIFT
}

impl Rows {
    /// Creates a table with capacity for `rows` rows.
    pub fn new(rows: u64, seed: u64) -> Outcome<Self> {
        Ok(Self(Dlht::options().capacity(rows as usize).hash_seed([seed, !seed]).build()?))
    }

    /// Stores a row. Called before the clock starts.
    pub fn load(&self, key: u64, data: i64) {
        self.0.put(key, word_of(0, data));
    }

    pub fn prefetch(&self, key: u64) {
        self.0.prefetch(key);
    }

    /// Waits until the row is unlocked and locks it; `None` if it is absent.
    pub fn lock(&self, key: u64) -> Option<Locked> {
        for spin in 0.. {
            let taken = self.0.compute(key, |word| match word {
                Some(word) if word & LOCK == 0 => Decision::Put(word | LOCK),
                _ => Decision::Keep,
            });
            match taken {
                Computed::Put(Some(word)) => return Some(Locked { key, word }),
                Computed::Kept(Some(_)) => pause(spin),
                _ => break,
            }
        }
        None
    }

    /// Writes the row and unlocks it.
    pub fn commit(&self, row: Locked, data: i64) {
        self.0.update(row.key, word_of((row.word >> 1) + 1, data));
    }

    /// Unlocks the row without a change.
    pub fn release(&self, row: Locked) {
        self.0.update(row.key, row.word);
    }

    /// Waits until the row is unlocked and returns its word; `None` if it is absent.
    fn settled(&self, key: u64) -> Option<u64> {
        for spin in 0.. {
            match self.0.get(key) {
                Some(word) if word & LOCK != 0 => pause(spin),
                word => return word,
            }
        }
        None
    }

    /// Returns the data of a single row.
    pub fn read(&self, key: u64) -> Option<i64> {
        self.settled(key).map(data_of)
    }

    /// Returns the sum over all rows, for the check at the end; an error if a row is still locked.
    pub fn total(&self) -> Outcome<i64> {
        let mut total = 0;
        for (key, word) in self.0.iter() {
            if word & LOCK != 0 {
                return Err(Error::failed(format!("row {key} is still locked")));
            }
            total += data_of(word);
        }
        Ok(total)
    }
}

/// Returns a consistent snapshot of rows of one or two tables; `None` if a row is absent.
pub(super) fn read_together<const N: usize>(rows: [(&Rows, u64); N]) -> Option<[i64; N]> {
    let mut words = [0; N];
    for spin in 0.. {
        for (word, (table, key)) in words.iter_mut().zip(rows) {
            *word = table.settled(key)?;
        }
        let same = |(word, (rows, key)): (&u64, (&Rows, u64))| rows.0.get(key) == Some(*word);
        if words.iter().zip(rows).all(same) {
            return Some(words.map(data_of));
        }
        pause(spin);
    }
    None
}

/// A row with `N` columns of one word, under a version lock.
pub(super) struct Columns<const N: usize> {
    lock: AtomicU32,
    columns: [AtomicU64; N],
}

impl<const N: usize> Columns<N> {
    pub fn new(columns: [u64; N]) -> Self {
        Self { lock: AtomicU32::new(0), columns: columns.map(AtomicU64::new) }
    }

    /// Returns all columns as they were at one moment, when the row was not locked.
    pub fn read(&self) -> [u64; N] {
        loop {
            let version = version_lock::read_begin(&self.lock);
            // Relaxed: validated below.
            let columns = self.columns.each_ref().map(|column| column.load(Ordering::Relaxed));
            if version_lock::validate(&self.lock, version) {
                return columns;
            }
        }
    }

    /// Waits until the row is unlocked, and locks it.
    pub fn lock(&self) -> LockedRow<'_, N> {
        let guard = version_lock::lock(&self.lock);
        guard.begin_change();
        LockedRow { row: self, _guard: guard }
    }

    pub fn is_locked(&self) -> bool {
        version_lock::try_lock(&self.lock).is_none()
    }
}

/// A row that this thread has locked. Dropping it unlocks the row.
#[must_use = "the row is unlocked when this is dropped"]
pub(super) struct LockedRow<'a, const N: usize> {
    row: &'a Columns<N>,
    _guard: WriteGuard<&'a AtomicU32>,
}

impl<const N: usize> LockedRow<'_, N> {
    /// Replaces a column by what `f` returns for it.
    pub fn change(&self, column: usize, f: impl FnOnce(u64) -> u64) {
        // Relaxed: only the holder of the lock stores columns, and readers validate.
        let column = &self.row.columns[column];
        column.store(f(column.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
}

/// Waits briefly, or yields after many attempts.
fn pause(spin: u32) {
    if spin < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_change_together() {
        let row = Columns::new([0; 5]);
        let change = || {
            for _ in 0..2000 {
                let locked = row.lock();
                (0..5).for_each(|column| locked.change(column, |word| word + 1));
            }
        };
        std::thread::scope(|scope| {
            let writers = [scope.spawn(change), scope.spawn(change)];
            while writers.iter().any(|writer| !writer.is_finished()) {
                let columns = row.read();
                assert_eq!(columns, [columns[0]; 5]);
            }
        });
        assert_eq!(row.read(), [4000; 5]);
        assert!(!row.is_locked());
        let locked = row.lock();
        assert!(row.is_locked());
        drop(locked);
        assert!(!row.is_locked());
    }

    #[test]
    fn rows_keep_what_they_say_under_any_version() {
        let rows = Rows::new(10, 1).unwrap();
        for data in [0, 1, -1, i64::from(i32::MAX) * 1000, -i64::from(i32::MAX) * 1000] {
            rows.load(7, data);
            assert_eq!(rows.read(7), Some(data));
        }
        rows.load(7, -5);
        for _ in 0..(1 << VERSION_BITS) + 3 {
            let row = rows.lock(7).unwrap();
            rows.commit(row, row.data());
        }
        assert_eq!(read_together([(&rows, 7), (&rows, 7)]), Some([-5, -5]));
        assert!(rows.lock(8).is_none() && rows.read(8).is_none());
        let row = rows.lock(7).unwrap();
        assert!(rows.total().is_err(), "a lock is left");
        rows.release(row);
        assert_eq!(rows.total().unwrap(), -5);
    }
}
