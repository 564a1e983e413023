//! How fast a table takes the orders, and how much room they need.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use icefield::{Arg, Durability, Table};
use indicatif::ProgressBar;

use super::Stage;
use super::orders::{Order, Stored};
use crate::failure::Failure;
use crate::progress;

/// Orders a second and bytes an order.
pub struct Speed {
    /// Puts, each durable when it returns.
    pub puts: f64,
    /// Puts in batches of [`BATCH`], each batch durable when it returns.
    pub batched_puts: f64,
    /// Lookups, one by one.
    pub gets: f64,
    /// Bytes for each order: on the medium, or in memory.
    pub bytes_per_key: f64,
    /// What the medium survives, if there is one.
    pub durability: Option<Durability>,
}

/// Orders in a batch.
pub const BATCH: usize = 32;
/// Orders between two looks at the clock, the bar and Ctrl-C.
const STEP: usize = 1024;

/// Measures tables that `make` makes at a path.
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
    let bytes = if stats.durability.is_some() { stats.pm_bytes } else { stats.dram_bytes };
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

/// Runs `work` over all `things` in steps, and gives things a second; bars and looks at Ctrl-C are not timed.
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

/// Moves the bar, and looks whether to stop.
pub fn step(stage: &Stage<'_>, bar: &ProgressBar, orders: usize) -> Result<(), Failure> {
    bar.inc(orders as u64);
    stage.go_on()
}

/// Removes a table that has served, if it has left anything.
pub fn remove(path: &Path) -> Result<(), Failure> {
    if !path.exists() {
        return Ok(());
    }
    fs::remove_dir_all(path).map_err(|error| Failure::io(path, &error))
}
