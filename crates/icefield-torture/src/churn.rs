//! Replaces the records of a table of constant size for a long time and checks that the size of its files reaches a
//! plateau. Then it removes most records, shrinks the table and checks that the files shrink too. Readers run all the
//! time.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use icefield::{Arg, Cursor, Data, Error, Raw};
use std::os::unix::fs::MetadataExt;

use crate::failure::{Failure, guarded};
use crate::file_subject::FileSubject;
use crate::pool::lock;
use crate::rng::Rng;
use crate::subject::Sample;

/// The name of the scenario.
pub const NAME: &str = "churn";
/// Bytes that the files may take in addition to the allowance for the records.
pub const CONSTANT: u64 = 15 << 20;
/// Allowed size of the files of a table of constant size, as a multiple of the bytes of its records.
pub const TIMES_LIVE: u64 = 4;
/// Allowed size after `shrink_to_fit`, as a multiple of the bytes of the records.
pub const TIMES_SHRUNK: u64 = 2;
/// Percentage of the records that are removed before the table is shrunk.
const REMOVED_PERCENT: u64 = 93;
/// The largest batch.
const MOST_IN_BATCH: u64 = 100_000;
/// The first key. Keys ascend from here, and each is inserted once.
const FIRST_KEY: u64 = 1 << 20;
/// Number of records in a page of a reader's scan.
const PAGE: usize = 64;

/// Options of a churn run.
#[derive(Clone, Copy, Debug)]
pub struct ChurnOptions {
    /// Determines keys, batches and readers' calls.
    pub seed: u64,
    /// Live records.
    pub records: u64,
    /// Number of times that each record is replaced.
    pub turnovers: u64,
    /// Reader threads.
    pub readers: usize,
}

impl Default for ChurnOptions {
    fn default() -> Self {
        Self { seed: 1, records: 20_000, turnovers: 2000, readers: 2 }
    }
}

/// Results of a churn run, and the sizes of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records put or removed.
    pub writes: u64,
    /// Calls made by readers.
    pub reads: u64,
    /// Bytes of the live records; a word counts as eight.
    pub live_bytes: u64,
    /// Maximum size of the files in the first quarter of the turnovers.
    pub early_bytes: u64,
    /// Maximum size of the files while the table had a constant size.
    pub most_bytes: u64,
    /// Bytes of the records left after the removal.
    pub left_bytes: u64,
    /// Size of the files after the table was shrunk to these records.
    pub shrunk_bytes: u64,
    /// Size of the files after the table was cleared and shrunk.
    pub cleared_bytes: u64,
}

/// Churns a table at `path`. An existing directory there is removed first.
///
/// # Errors
/// Returns files that exceed their bounds, a record that is missing or wrong, or the table's error.
pub fn scenario<T: FileSubject>(options: &ChurnOptions, path: &Path) -> Result<Counts, Failure> {
    // Usually the directory does not exist. Any other failure shows when the table is created.
    let _ = std::fs::remove_dir_all(path);
    let done = guarded(NAME, options.seed, || {
        let table = T::create_whole(path).map_err(|error| error.to_string());
        let churned = table.and_then(|table| churn(&table, options, path));
        churned.map_err(|what| Failure::new(NAME, options.seed, what))
    });
    let _ = std::fs::remove_dir_all(path);
    done
}

fn churn<T: FileSubject>(table: &T, options: &ChurnOptions, path: &Path) -> Result<Counts, String> {
    let stage = Stage {
        table,
        options,
        path,
        oldest: AtomicU64::new(FIRST_KEY),
        newest: AtomicU64::new(FIRST_KEY),
        done: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        trouble: Mutex::default(),
    };
    let mut counts = std::thread::scope(|scope| {
        for reader in 0..options.readers {
            let stage = &stage;
            scope.spawn(move || stage.read_on(Rng::fork(options.seed, 1 + reader as u64)));
        }
        let _end = End(&stage.done);
        stage.write()
    })?;
    match lock(&stage.trouble).take() {
        Some(trouble) => Err(trouble),
        None => {
            counts.reads = stage.reads.load(Ordering::Relaxed);
            Ok(counts)
        }
    }
}

/// Stops the readers, also when the writer panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

struct Stage<'a, T> {
    table: &'a T,
    options: &'a ChurnOptions,
    path: &'a Path,
    /// All keys from `oldest` up to, but not including, `newest` are present.
    oldest: AtomicU64,
    newest: AtomicU64,
    done: AtomicBool,
    reads: AtomicU64,
    trouble: Mutex<Option<String>>,
}

fn in_words(error: Error) -> String {
    error.to_string()
}

/// Returns one of the two values of a key. An update writes one of them, chosen at random.
fn value_of(key: u64, updated: bool) -> u64 {
    2 * key + u64::from(updated)
}

impl<T: FileSubject> Stage<'_, T> {
    fn write(&self) -> Result<Counts, String> {
        let mut rng = Rng::fork(self.options.seed, 0);
        let mut counts = Counts::default();
        self.insert(&mut rng, self.options.records, &mut counts)?;
        counts.live_bytes = self.live_bytes();
        for turnover in 0..self.options.turnovers {
            if turnover % 4 == 3 {
                self.update(&mut rng, &mut counts)?;
            } else {
                self.turn_over(&mut rng, &mut counts)?;
            }
            counts.live_bytes = counts.live_bytes.max(self.live_bytes_now_and_then(turnover));
            let taken = disk_bytes(self.path)?;
            counts.most_bytes = counts.most_bytes.max(taken);
            if 4 * turnover < self.options.turnovers {
                counts.early_bytes = counts.most_bytes;
            }
            let bound = TIMES_LIVE * counts.live_bytes + CONSTANT;
            if taken > bound {
                return Err(format!(
                    "after {} turnovers of {} records with {} bytes, the files have {taken} bytes; the limit is \
                     {bound}",
                    turnover + 1,
                    self.options.records,
                    counts.live_bytes,
                ));
            }
        }
        self.remove(&mut rng, self.options.records * REMOVED_PERCENT / 100, &mut counts)?;
        self.table.shrink_to_fit().map_err(in_words)?;
        counts.left_bytes = self.live_bytes();
        counts.shrunk_bytes = disk_bytes(self.path)?;
        let bound = TIMES_SHRUNK * counts.left_bytes + CONSTANT;
        if counts.shrunk_bytes > bound {
            return Err(format!(
                "after shrinking to records with {} bytes, the files have {} bytes; the limit is {bound}",
                counts.left_bytes, counts.shrunk_bytes,
            ));
        }
        self.compare()?;
        // From here on every key may be missing.
        self.oldest.store(u64::MAX, Ordering::SeqCst);
        self.table.clear().map_err(in_words)?;
        self.table.shrink_to_fit().map_err(in_words)?;
        counts.cleared_bytes = disk_bytes(self.path)?;
        if counts.cleared_bytes > CONSTANT {
            return Err(format!(
                "after clearing and shrinking, the files have {} bytes; the limit is {CONSTANT}",
                counts.cleared_bytes
            ));
        }
        Ok(counts)
    }

    /// Replaces as many records as the table has, in batches of all sizes.
    fn turn_over(&self, rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
        let mut left = self.options.records;
        while left > 0 {
            let batch = batch(rng).min(left);
            self.remove(rng, batch, counts)?;
            self.insert(rng, batch, counts)?;
            left -= batch;
        }
        Ok(())
    }

    /// Updates every record.
    fn update(&self, rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
        let (oldest, newest) = self.live();
        let mut next = oldest;
        while next < newest {
            let end = newest.min(next + batch(rng));
            let updated = rng.one_in(2);
            self.put(next..end, updated)?;
            counts.writes += end - next;
            next = end;
        }
        Ok(())
    }

    fn live(&self) -> (u64, u64) {
        // Relaxed: only the writer stores them.
        (self.oldest.load(Ordering::Relaxed), self.newest.load(Ordering::Relaxed))
    }

    fn insert(&self, rng: &mut Rng, records: u64, counts: &mut Counts) -> Result<(), String> {
        let mut left = records;
        while left > 0 {
            let batch = batch(rng).min(left);
            let newest = self.newest.load(Ordering::Relaxed);
            self.put(newest..newest + batch, false)?;
            // Release: a reader that loads this number finds the records below it.
            self.newest.store(newest + batch, Ordering::Release);
            (left, counts.writes) = (left - batch, counts.writes + batch);
        }
        Ok(())
    }

    fn put(&self, keys: std::ops::Range<u64>, updated: bool) -> Result<(), String> {
        let numbers: Vec<u64> = keys.collect();
        let owned: Vec<_> = numbers
            .iter()
            .map(|&key| (T::Key::sample(key), T::Value::sample(value_of(key, updated))))
            .collect();
        let records: Vec<_> =
            owned.iter().map(|(key, value)| (T::Key::arg(key), T::Value::arg(value))).collect();
        match records.as_slice() {
            [(key, value)] => self.table.put(*key, *value),
            _ => self.table.put_batch(&records),
        }
        .map_err(in_words)
    }

    fn remove(&self, rng: &mut Rng, records: u64, counts: &mut Counts) -> Result<(), String> {
        let mut left = records;
        while left > 0 {
            let batch = batch(rng).min(left);
            let oldest = self.oldest.load(Ordering::Relaxed);
            // SeqCst: pairs with the readers' load after a miss. From now on, any key below the stored one may be
            // missing.
            self.oldest.store(oldest + batch, Ordering::SeqCst);
            let owned: Vec<_> = (oldest..oldest + batch).map(T::Key::sample).collect();
            let keys: Vec<Arg<'_, T::Key>> = owned.iter().map(T::Key::arg).collect();
            match keys.as_slice() {
                [key] => self.table.delete(*key).map_err(in_words)?,
                _ => {
                    let mut removed = vec![None; keys.len()];
                    self.table.remove_batch(&keys, &mut removed).map_err(in_words)?;
                    if removed.iter().any(Option::is_none) {
                        return Err("a record was missing before it was removed".to_owned());
                    }
                }
            }
            (left, counts.writes) = (left - batch, counts.writes + batch);
        }
        Ok(())
    }

    /// Returns the number of bytes of the live records' keys and values. The longer of a record's two values counts.
    fn live_bytes(&self) -> u64 {
        let (oldest, newest) = self.live();
        let bytes = |key| {
            let values = [false, true].map(|updated| T::Value::sample(value_of(key, updated)));
            bytes_of::<T::Key>(&T::Key::sample(key))
                + values.iter().map(bytes_of::<T::Value>).max().unwrap_or(0)
        };
        (oldest..newest).map(bytes).sum()
    }

    /// Returns [`Self::live_bytes`] in every 64th turnover, otherwise 0, because it is slow.
    fn live_bytes_now_and_then(&self, turnover: u64) -> u64 {
        if turnover.is_multiple_of(64) { self.live_bytes() } else { 0 }
    }

    /// Checks that the table holds exactly the live records.
    fn compare(&self) -> Result<(), String> {
        let (oldest, newest) = self.live();
        let mut seen = 0;
        let mut next = Some(Cursor::START);
        while let Some(cursor) = next {
            let page = self.table.scan(cursor, 1024).map_err(in_words)?;
            for (key, value) in &page.records {
                let key = T::Key::number(key).filter(|key| (oldest..newest).contains(key));
                let key = key.ok_or("a scan shows a key that is absent")?;
                self.judge(key, Some(value))?;
                seen += 1;
            }
            next = page.next;
        }
        let len = self.table.len().map_err(in_words)?;
        if (seen, len) != (newest - oldest, newest - oldest) {
            return Err(format!(
                "a scan shows {seen} records, `len` returns {len}, and there are {}",
                newest - oldest
            ));
        }
        let report = self.table.check().map_err(in_words)?;
        if report.is_clean() { Ok(()) } else { Err(format!("check: {report:?}")) }
    }

    fn judge(&self, key: u64, value: Option<&<T::Value as Data>::Owned>) -> Result<(), String> {
        let Some(value) = value else {
            // SeqCst: pairs with the store before the removal.
            let removed = key < self.oldest.load(Ordering::SeqCst);
            return if removed { Ok(()) } else { Err(format!("key {key} is missing")) };
        };
        match T::Value::number(value) {
            Some(number) if number / 2 == key => Ok(()),
            number => Err(format!("key {key} has the value {number:?}")),
        }
    }

    /// Makes a reader's calls until the writer has finished.
    fn read_on(&self, mut rng: Rng) {
        let mut cursor = Cursor::START;
        // Acquire: pairs with the Release store at the end of the writer.
        while !self.done.load(Ordering::Acquire) {
            if let Err(trouble) = self.read(&mut rng, &mut cursor) {
                lock(&self.trouble).get_or_insert(trouble);
                return;
            }
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read(&self, rng: &mut Rng, cursor: &mut Cursor) -> Result<(), String> {
        if rng.one_in(16) {
            let page = self.table.scan(*cursor, PAGE).map_err(in_words)?;
            for (key, value) in &page.records {
                let key = T::Key::number(key).ok_or("a scan shows a key that was never written")?;
                self.judge(key, Some(value))?;
            }
            *cursor = page.next.unwrap_or(Cursor::START);
            return Ok(());
        }
        // Acquire: the records below `newest` are visible.
        let newest = self.newest.load(Ordering::Acquire);
        let oldest = self.oldest.load(Ordering::SeqCst);
        if oldest >= newest {
            return Ok(());
        }
        let some = 1 + rng.index(32);
        let numbers: Vec<u64> = (0..some).map(|_| oldest + rng.below(newest - oldest)).collect();
        let owned: Vec<_> = numbers.iter().map(|&key| T::Key::sample(key)).collect();
        let keys: Vec<Arg<'_, T::Key>> = owned.iter().map(T::Key::arg).collect();
        let mut found = vec![None; keys.len()];
        match keys.as_slice() {
            [key] => found[0] = self.table.get(*key).map_err(in_words)?,
            _ => self.table.get_batch(&keys, &mut found).map_err(in_words)?,
        }
        numbers.iter().zip(&found).try_for_each(|(&key, found)| self.judge(key, found.as_ref()))
    }
}

/// Returns a random batch size: at most a power of ten, which is random too.
fn batch(rng: &mut Rng) -> u64 {
    let most = 10_u64.pow(1 + rng.below(5) as u32).min(MOST_IN_BATCH);
    1 + rng.below(most)
}

fn bytes_of<D: Sample + ?Sized>(owned: &D::Owned) -> u64 {
    match D::raw(D::arg(owned)) {
        Raw::Word(_) => 8,
        raw => raw.bytes().len() as u64,
    }
}

/// Returns the bytes that the files of a table occupy on the medium.
///
/// # Errors
/// Returns a description of the error if the directory cannot be read.
pub fn disk_bytes(path: &Path) -> Result<u64, String> {
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::read_dir(path).map_err(told)?.try_fold(0, |sum, entry| {
        let file = entry.and_then(|entry| entry.metadata()).map_err(told)?;
        // `st_blocks` counts units of 512 bytes, independent of the file system's block size.
        Ok(sum + file.blocks() * 512)
    })
}
