//! The join index of the tour: built over the orders, reopened, and probed with every line item.

use std::time::{Duration, Instant};

use icefield::JoinIndex;

use super::measure::remove;
use super::orders::line_items;
use super::stage::Stage;
use icefield_console::failure::Failure;

/// The measurements of the join of line items with their orders.
pub struct Join {
    /// Orders indexed per second.
    pub built: f64,
    /// The time from the call of `open` to the first answer.
    pub open: Duration,
    /// Line items per second that were joined with their order.
    pub joined: f64,
    /// The number of line items.
    pub items: u64,
    /// The number of orders found for the line items. It is correct if it equals `items`.
    pub found: u64,
    /// Bytes on the medium per order.
    pub bytes_per_key: f64,
}

/// Builds, opens and probes an index.
pub fn join(stage: &Stage<'_>) -> Result<Join, Failure> {
    let path = stage.dir.join("joined.ice");
    let keys: Vec<u64> = stage.orders.iter().map(|order| order.key).collect();
    let rows: Vec<u64> = (0..keys.len() as u64).collect();
    let items = line_items(&keys);
    stage.go_on()?;

    let begun = Instant::now();
    drop(JoinIndex::build(&path, &keys, &rows)?);
    let built = per_second(keys.len(), begun);

    let begun = Instant::now();
    let index = JoinIndex::<u64>::open(&path)?;
    index.probe_count(&keys[..keys.len().min(1)])?;
    let open = begun.elapsed();

    let begun = Instant::now();
    let found = index.probe_count(&items)?;
    let joined = per_second(items.len(), begun);
    let bytes_per_key = index.stats()?.file_bytes as f64 / keys.len().max(1) as f64;
    drop(index);
    remove(&path)?;
    Ok(Join { built, open, joined, items: items.len() as u64, found, bytes_per_key })
}

fn per_second(things: usize, begun: Instant) -> f64 {
    things as f64 / begun.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
}
