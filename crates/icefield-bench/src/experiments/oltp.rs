//! Shared by the transaction benchmarks: rows with an embedded lock, in a table of words.
//!
//! A row is a word: a lock bit, a version that every write changes, and 48 bits of data. A transaction locks the rows
//! that it writes. Every benchmark takes its locks in a fixed order of tables and keys, which rules out deadlocks. A
//! transaction that needs a consistent snapshot of several rows reads them twice without locks: if no word changed in
//! between, the reads are such a snapshot.

use icefield::{Computed, Decision, Dlht};

use crate::prelude::*;

const LOCK: u64 = 1;
const VERSION_BITS: u32 = 15;
const DATA_SHIFT: u32 = 1 + VERSION_BITS;

/// Number of checks of a locked row before the thread yields.
const SPINS: u32 = 64;

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

    /// Returns the table itself, for rows that are inserted and removed.
    pub fn table(&self) -> &Dlht<u64, u64> {
        &self.0
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
        let same =
            |(word, (table, key)): (&u64, (&Rows, u64))| table.table().get(key) == Some(*word);
        if words.iter().zip(rows).all(same) {
            return Some(words.map(data_of));
        }
        pause(spin);
    }
    None
}

fn pause(spin: u32) {
    if spin < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
}

/// Creates rows on all cores: calls `load` for each number below `count`.
pub(super) fn load_all(session: &Session, count: u32, load: impl Fn(u32) + Sync) {
    let threads = session.machine.cores();
    session.machine.run(threads, |thread| {
        part(count as usize, thread, threads).for_each(|number| load(number as u32));
    });
}

/// A benchmark of transactions on loaded tables.
pub(super) trait Benchmark: Sync {
    type Transaction: Copy + Sync;

    /// Returns the number of subscribers or customers.
    fn count(&self) -> u32;

    /// Draws `count` transactions.
    fn draw(&self, session: &Session, seed: u64, count: u64) -> Vec<Self::Transaction>;

    /// Runs a transaction and returns the change of the sum of all balances; `None` if the transaction did not commit.
    fn run(&self, transaction: Self::Transaction) -> Option<i64>;

    /// Checks for partial transactions after a run on `threads` threads that changed the sum of all balances by `net`.
    /// Returns a description of the fault, if there is one.
    fn fault(&mut self, session: &Session, threads: usize, net: i64) -> Outcome<Option<String>>;

    /// Writes a row for each number of threads.
    fn measure(&mut self, session: &mut Session, dist: Option<String>) -> Outcome {
        let design = session.our("dlht")?;
        let each = session.ops(self.count().into());
        for threads in session.threads() {
            let (mut committed, mut net) = (0, 0);
            let mut row = session.row(design, Medium::Memory);
            for round in 0..session.repeat() as u64 {
                let work = self.draw(session, session.args.seed + round, each);
                session.progress(&format!("{}: {threads} threads", session.experiment));
                let (time, parts) = session.machine.run(threads, |thread| {
                    let work = &work[part(work.len(), thread, threads)];
                    let done = work.iter().filter_map(|transaction| self.run(*transaction));
                    done.fold((0_u64, 0), |(count, sum), net| (count + 1, sum + net))
                });
                committed += parts.iter().map(|part| part.0).sum::<u64>();
                net += parts.iter().map(|part| part.1).sum::<i64>();
                row.sample("mops", mops(work.len(), time));
            }
            if let Some(fault) = self.fault(session, threads, net)? {
                session.blame(design, &fault);
            }
            let ops = each * session.repeat() as u64;
            row.at(threads, Batch::None, self.count().into(), ops);
            row.dist.clone_from(&dist);
            row.extra("committed", rounded(committed as f64 / ops as f64));
            session.put(row)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
