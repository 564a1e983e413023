//! The same join every night: orders with their customers, by an index that is built only on the first night.
//!
//! ```sh
//! cargo run --release -p icefield --example nightly_join
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use icefield::JoinIndex;

const CUSTOMERS: u64 = 200_000;
const NEW_CUSTOMERS: u64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("customers.ice");

    // A table of customers as columns: their numbers, and the shipping cost of each.
    let mut customers: Vec<u64> = (0..CUSTOMERS).map(number_of).collect();
    let mut shipping: Vec<u64> = (0..CUSTOMERS).map(|row| 300 + row % 7 * 50).collect();
    let rows: Vec<u64> = (0..CUSTOMERS).collect();
    let begun = Instant::now();
    drop(JoinIndex::<u64>::build(&path, &customers, &rows)?);
    println!("built for {CUSTOMERS} customers in {:.1} ms", milliseconds(begun));

    for night in 1..=3 {
        let begun = Instant::now();
        let index = JoinIndex::<u64>::open(&path)?;
        println!("night {night}: opened in {:.1} ms", milliseconds(begun));

        // Customers added since yesterday. They are durable and visible to probes at once, and merged at the end of the
        // night.
        let first = customers.len() as u64;
        let new: Vec<(u64, u64)> =
            (first..first + NEW_CUSTOMERS).map(|row| (number_of(row), row)).collect();
        customers.extend(new.iter().map(|pair| pair.0));
        shipping.extend(new.iter().map(|pair| 300 + pair.1 % 7 * 50));
        index.insert_batch(&new)?;

        let orders: Vec<u64> =
            (0..1_000_000).map(|order| number_of(order * 7919 % (first * 2))).collect();
        let begun = Instant::now();
        let (matched, cost) = (AtomicU64::new(0), AtomicU64::new(0));
        index.probe(&orders, |_order, row| {
            matched.fetch_add(1, Relaxed);
            cost.fetch_add(shipping[row as usize], Relaxed);
        })?;
        let (matched, cost) = (matched.into_inner(), cost.into_inner());
        println!(
            "  {} orders in {:.1} ms: {matched} of known customers, shipping {}.{:02}",
            orders.len(),
            milliseconds(begun),
            cost / 100,
            cost % 100
        );
        assert_eq!(index.semi(&orders)?.count_ones(), matched);
        println!("  orders without a customer: {}", index.anti(&orders)?.count_ones());
        let report = index.merge()?;
        println!("  merged: {:?}", report.kind);
    }
    Ok(())
}

/// The number on a customer's card.
fn number_of(row: u64) -> u64 {
    row.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
