//! The public interface of the tables of records: their traits, and the durable table.
//!
//! `traits` contains [`Collection`], [`Table`] and [`Durable`]. `durable` contains [`DurableTable`], the one
//! implementation for the persistent designs. `dash`, `iceberg` and `plush` contain its aliases, with the calls and
//! options that only one design has.

mod dash;
mod durable;
mod held;
mod iceberg;
#[cfg(test)]
mod iceberg_tests;
mod mixed;
mod op;
mod options;
#[cfg(test)]
mod panic_tests;
mod plush;
mod salvage;
mod traits;

pub use dash::{Dash, DashEh, DashLh, DashOptions};
pub use durable::DurableTable;
pub use held::{HeldKeys, NotShadowed};
pub use iceberg::{Iceberg, IcebergOptions};
pub(crate) use op::same_length;
pub use op::{Exchanged, Op, Page, TryInsert};
pub use options::TableOptions;
pub use plush::{Plush, PlushOptions};
pub(crate) use salvage::salvage;
pub(crate) use traits::yield_once;
pub use traits::{Collection, Durable, Iter, Table};
