//! Measures the speed of a table that stores the orders, and the space that the orders take.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use icefield::{Arg, Durability, Table};
use indicatif::ProgressBar;

use super::orders::{Order, Stored};
use super::stage::Stage;
use icefield_console::failure::Failure;
use icefield_console::progress;

/// The range and the median of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub least: f64,
    pub median: f64,
    pub most: f64,
}

/// Two figures differ by more than the noise if their measured ranges are apart by more than this ratio.
const MARGIN: f64 = 1.05;
/// The largest assumed ratio between a figure that is measured only once and its true value.
const ONCE: f64 = 1.5;

impl Spread {
    /// Returns the spread of one or more measurements.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self {
            least: at(0),
            median: at(values.len() / 2),
            most: at(values.len().saturating_sub(1)),
        }
    }

    /// Returns the assumed spread of a single measurement.
    pub fn once(value: f64) -> Self {
        Self { least: value / ONCE, median: value, most: value * ONCE }
    }

    /// Returns whether this figure is above `other` by more than the noise.
    pub fn is_above(self, other: Self) -> bool {
        self.least > other.most * MARGIN
    }
}

/// The figures of several runs.
pub struct Speeds {
    pub puts: Spread,
    pub batched_puts: Spread,
    pub gets: Spread,
    pub bytes_per_key: Spread,
    pub durability: Option<Durability>,
}

impl Speeds {
    /// Returns the range and median of each figure over several runs of the same table.
    pub fn of(runs: &[Speed]) -> Self {
        let spread = |figure: fn(&Speed) -> f64| Spread::of(runs.iter().map(figure).collect());
        Self {
            puts: spread(|run| run.puts),
            batched_puts: spread(|run| run.batched_puts),
            gets: spread(|run| run.gets),
            bytes_per_key: spread(|run| run.bytes_per_key),
            durability: runs.first().and_then(|run| run.durability),
        }
    }
}

/// The figures of one run: orders per second, and bytes per order.
pub struct Speed {
    /// Puts, each durable when it returns.
    pub puts: f64,
    /// Puts in batches of [`BATCH`], each batch durable when it returns.
    pub batched_puts: f64,
    /// Lookups, one by one.
    pub gets: f64,
    /// Bytes per order: on the medium, or in memory if the table has no medium.
    pub bytes_per_key: f64,
    /// The durability of the table; `None` for a table in memory.
    pub durability: Option<Durability>,
}

/// Number of orders per batch.
pub const BATCH: usize = 32;
/// Number of orders between two clock readings, with an update of the progress bar and a check for Ctrl-C.
const STEP: usize = 1024;

/// Measures the speed of tables that `make` creates.
pub fn speed<T: Table<Key = u64>>(
    stage: &Stage<'_>,
    name: &str,
    make: impl Fn(&Path) -> icefield::Result<T>,
) -> Result<Speed, Failure>
where
    T::Value: Stored,
{
    let title = |what: &str| format!("{name} ({}): {what}", T::Value::TITLE);
    let path = stage.dir.join("measured.ice");

    let table = make(&path)?;
    let puts = timed(stage, &title("putting"), stage.orders, |orders| {
        orders.iter().try_for_each(|order| table.put(order.key, T::Value::of(order)))
    })?;
    drop(table);
    remove(&path)?;

    let table = make(&path)?;
    let batched_puts = timed(stage, &title("putting in batches"), stage.orders, |orders| {
        orders.chunks(BATCH).try_for_each(|orders| table.put_batch(&pairs::<T>(orders)))
    })?;
    let mut missing = 0;
    let gets = timed(stage, &title("getting"), stage.orders, |orders| {
        orders.iter().try_for_each(|order| {
            missing += u64::from(table.get(order.key)?.is_none());
            Ok(())
        })
    })?;
    if missing > 0 {
        return Err(Failure::Problem(format!("{name}: {missing} orders that were put are absent")));
    }
    let stats = table.stats();
    let bytes = if stats.durability.is_some() { stats.storage_bytes } else { stats.dram_bytes };
    let bytes_per_key = bytes as f64 / stage.orders.len().max(1) as f64;
    drop(table);
    remove(&path)?;
    Ok(Speed { puts, batched_puts, gets, bytes_per_key, durability: stats.durability })
}

fn pairs<T: Table<Key = u64>>(orders: &[Order]) -> Vec<(u64, Arg<'_, T::Value>)>
where
    T::Value: Stored,
{
    orders.iter().map(|order| (order.key, T::Value::of(order))).collect()
}

/// Runs `work` over all `things` in steps. Returns the number of things per second. The progress bar and the check for
/// Ctrl-C are outside the measured time.
pub fn timed<T>(
    stage: &Stage<'_>,
    title: &str,
    things: &[T],
    mut work: impl FnMut(&[T]) -> icefield::Result<()>,
) -> Result<f64, Failure> {
    let bar = progress::over_records(title, things.len() as u64);
    let mut time = Duration::ZERO;
    for things in things.chunks(STEP) {
        let begun = Instant::now();
        work(things)?;
        time += begun.elapsed();
        step(stage, &bar, things.len())?;
    }
    bar.finish_and_clear();
    Ok(things.len() as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE))
}

/// Advances the progress bar, and fails after Ctrl-C.
pub fn step(stage: &Stage<'_>, bar: &ProgressBar, orders: usize) -> Result<(), Failure> {
    bar.inc(orders as u64);
    stage.go_on()
}

/// Removes a table after its measurement, if it has files.
pub fn remove(path: &Path) -> Result<(), Failure> {
    if !path.exists() {
        return Ok(());
    }
    fs::remove_dir_all(path).map_err(|error| Failure::io(path, &error))
}
