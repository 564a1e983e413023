//! A cache of expensive answers that keeps its contents across restarts, on any disk.
//!
//! ```sh
//! cargo run --release -p icefield --example cache
//! ```

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use icefield::{Durability, Plush, SyncMode};

/// Answers by question. A value holds the second at which the answer becomes stale, followed by the answer.
struct Cache {
    answers: Plush<str, [u8]>,
    keep: Duration,
}

impl Cache {
    /// Answers reach the disk within about a tenth of a second. A cache may lose some, so calls need not wait for the
    /// disk.
    fn open(path: &Path, keep: Duration) -> icefield::Result<Self> {
        let options = Plush::options()
            .durability(Durability::Disk)
            .sync(SyncMode::Every(100))
            .dram_limit(16 << 20);
        Ok(Self { answers: options.open_or_create(path)?, keep })
    }

    /// Returns the answer to `question`; computes it if it is not in the cache.
    fn get(&self, question: &str, compute: impl FnOnce() -> String) -> icefield::Result<String> {
        let now = seconds();
        // Looks at the bytes in place; only a fresh answer is copied.
        let fresh = self.answers.get_with(question, |value| match value.split_first_chunk() {
            Some((stale, answer)) if u64::from_le_bytes(*stale) > now => {
                String::from_utf8(answer.to_vec()).ok()
            }
            _ => None,
        })?;
        if let Some(answer) = fresh.flatten() {
            return Ok(answer);
        }
        let answer = compute();
        let stale = now + self.keep.as_secs();
        self.answers.put(question, &[&stale.to_le_bytes(), answer.as_bytes()].concat())?;
        Ok(answer)
    }

    /// Removes the stale answers and returns their number.
    fn sweep(&self) -> icefield::Result<usize> {
        let now = seconds();
        self.answers.retain(|_, value| {
            value.first_chunk().is_some_and(|stale| u64::from_le_bytes(*stale) > now)
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Avoid the temporary directory: on some systems it is in memory, where no sync makes files survive a power cut.
    let directory = tempfile::tempdir_in(".")?;
    let path = directory.path().join("answers.ice");
    for run in ["cold", "warm"] {
        let cache = Cache::open(&path, Duration::from_secs(3600))?;
        let (begun, mut computed) = (Instant::now(), 0);
        for number in 1..=2000_u64 {
            let answer = cache.get(&format!("sum of the divisors of {number}"), || {
                computed += 1;
                (1..=number).filter(|divisor| number % divisor == 0).sum::<u64>().to_string()
            })?;
            assert!(number != 28 || answer == "56", "28 is perfect");
        }
        println!("{run}: {computed} of 2000 answers computed, {:.0?}", begun.elapsed());
        assert_eq!(computed, if run == "cold" { 2000 } else { 0 });
        cache.sweep()?;
        println!("{} answers are kept", cache.answers.len()?);
    }
    Ok(())
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
