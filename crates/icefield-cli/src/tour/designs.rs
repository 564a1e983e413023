//! The tables that the tour shows.

use std::path::Path;

use icefield::{DashEh, DashLh, Dlht, Iceberg, Plush, Result, Value};

use super::crash;
use super::design::{Design, Outlives, Shown};
use super::measure;
use super::orders::Stored;

/// Implements [`Shown`] for the persistent tables. A macro, because their functions to create and open tables have
/// equal signatures but no common trait.
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

/// Returns every table of the tour that stores keys and values.
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
