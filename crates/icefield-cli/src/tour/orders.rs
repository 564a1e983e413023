//! The orders of the TPC-H benchmark.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use icefield::{Arg, Value};
use tpchgen::generators::OrderGenerator;

use icefield_console::failure::Failure;
use icefield_console::progress;

/// An order, with the fields that the tables store.
#[derive(Debug, PartialEq, Eq)]
pub struct Order {
    /// `o_orderkey`.
    pub key: u64,
    /// `o_totalprice` in cents.
    pub cents: u64,
    /// The whole row, in the format of TPC-H's own tool.
    pub row: String,
}

/// The part of an order that a table stores.
pub trait Stored: Value {
    /// Describes the stored part.
    const TITLE: &'static str;
    /// Returns the stored part.
    fn of(order: &Order) -> Arg<'_, Self>;
}

impl Stored for u64 {
    const TITLE: &'static str = "price, 8 bytes";
    fn of(order: &Order) -> u64 {
        order.cents
    }
}

impl Stored for [u8] {
    const TITLE: &'static str = "row, ~110 bytes";
    fn of(order: &Order) -> &[u8] {
        order.row.as_bytes()
    }
}

/// Returns the order key of each line item of the orders whose keys are `orders`. These must be the first orders; each
/// has one to seven line items.
pub fn line_items(orders: &[u64]) -> Vec<u64> {
    let mut count = OrderGenerator::create_line_count_random();
    let lines_of = |&order: &u64| {
        let lines = count.next_value().unsigned_abs() as usize;
        count.row_finished();
        std::iter::repeat_n(order, lines)
    };
    orders.iter().flat_map(lines_of).collect()
}

/// Generates all orders of a scale factor.
pub fn generate(scale: f64) -> Result<Vec<Order>, Failure> {
    let count = OrderGenerator::calculate_row_count(scale, 1, 1);
    let bar = progress::over_records("making orders", count.unsigned_abs());
    let mut orders = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
    for order in OrderGenerator::new(scale, 1, 1).iter() {
        let row = order.to_string();
        orders.push(Order {
            key: order.o_orderkey.unsigned_abs(),
            cents: order.o_totalprice.0.unsigned_abs(),
            row,
        });
        if orders.len().is_multiple_of(1 << 14) {
            bar.set_position(orders.len() as u64);
        }
    }
    bar.finish_and_clear();
    Ok(orders)
}

/// Writes the rows to a file, for the child process.
pub fn write(orders: &[Order], path: &Path) -> Result<(), Failure> {
    let write = || {
        let mut file = BufWriter::new(File::create(path)?);
        orders.iter().try_for_each(|order| writeln!(file, "{}", order.row))?;
        file.flush()
    };
    write().map_err(|error| Failure::io(path, &error))
}

/// Reads the rows written by [`write`].
pub fn read(path: &Path) -> Result<Vec<Order>, Failure> {
    let file = File::open(path).map_err(|error| Failure::io(path, &error))?;
    let mut orders = Vec::new();
    for row in BufReader::new(file).lines() {
        let row = row.map_err(|error| Failure::io(path, &error))?;
        let order =
            parse(row).ok_or_else(|| Failure::Problem(format!("{}: no orders", path.display())))?;
        orders.push(order);
    }
    Ok(orders)
}

fn parse(row: String) -> Option<Order> {
    let mut fields = row.split('|');
    let key = fields.next()?.parse().ok()?;
    let price = fields.nth(2)?;
    let cents = price.replace('.', "").parse().ok()?;
    Some(Order { key, cents, row })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders.tbl");
        let orders = generate(0.001).unwrap();
        assert_eq!(orders.len(), 1500);
        write(&orders, &path).unwrap();
        assert_eq!(read(&path).unwrap(), orders);
    }
}
