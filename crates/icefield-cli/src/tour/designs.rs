//! The tables that the tour shows.

use std::path::Path;

use icefield::{DashEh, DashLh, Dlht, Durable, Iceberg, Plush, Result, Value};

use super::Stage;
use super::crash::{self, ChildArgs, Crash};
use super::measure::{self, Speed};
use super::orders::Stored;
use icefield_console::failure::Failure;

/// A table type that the tour can load, crash and reopen.
pub trait Shown: Durable<Key = u64> + Sized {
    /// Creates a table.
    fn create(path: &Path) -> Result<Self>;
    /// Opens the table again.
    fn open(path: &Path) -> Result<Self>;
}

/// Implements [`Shown`] for the persistent tables. They have equal functions to create and open, but no trait for
/// them.
macro_rules! shown {
    ($($table:ident: $name:literal),*) => {
        $(impl<V: Value + ?Sized> Shown for $table<u64, V> {
            fn create(path: &Path) -> Result<Self> {
                Self::options().create(path)
            }
            fn open(path: &Path) -> Result<Self> {
                Self::options().open(path)
            }
        })*

        fn lasting() -> Vec<Design> {
            vec![$(design::<$table<u64, u64>>($name), design::<$table<u64, [u8]>>($name)),*]
        }
    };
}
shown!(DashEh: "dash-eh", DashLh: "dash-lh", Iceberg: "iceberg", Plush: "plush");

/// A table of the tour.
pub struct Design {
    /// The design's name.
    pub name: &'static str,
    /// The stored part of each order.
    pub values: &'static str,
    /// Measures the table's speed.
    pub measure: fn(&Stage<'_>, &Design) -> Result<Speed, Failure>,
    /// The crash test, for tables that outlive their processes.
    pub outlives: Option<Outlives>,
}

/// The crash test of a table that outlives its process.
pub struct Outlives {
    /// Kills a process that loads a table, and checks the table.
    pub crash: fn(&Stage<'_>, &Design) -> Result<Crash, Failure>,
    /// The work of the process that is killed.
    pub child: fn(&ChildArgs) -> Result<(), Failure>,
}

/// Returns every table of keys and values.
pub fn designs() -> Vec<Design> {
    let mut designs = lasting();
    designs.push(Design {
        name: "dlht",
        values: <u64 as Stored>::TITLE,
        measure: |stage, design| {
            measure::speed(stage, design.name, |_| Dlht::<u64, u64>::options().build())
        },
        outlives: None,
    });
    designs
}

fn design<T: Shown>(name: &'static str) -> Design
where
    T::Value: Stored,
{
    Design {
        name,
        values: T::Value::TITLE,
        measure: |stage, design| measure::speed(stage, design.name, T::create),
        outlives: Some(Outlives { crash: crash::crash::<T>, child: crash::load::<T> }),
    }
}
