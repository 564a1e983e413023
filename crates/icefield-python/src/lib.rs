#![doc = include_str!("../README.md")]
// A type that Python names needs no documentation for users of Rust.
#![allow(missing_docs)]

mod arrow;
mod base;
mod batches;
mod column;
mod errors;
mod flat;
mod handle;
mod join;
mod join_parts;
mod map;
#[cfg(feature = "bench")]
mod native;
mod opening;
mod output;
mod pages;
mod store;
mod types;

use pyo3::prelude::*;

// Tables are made for threads, and the classes have no state that the interpreter's lock would protect.
#[pymodule(gil_used = false)]
fn _icefield(module: &Bound<'_, PyModule>) -> PyResult<()> {
    handle::watch_forks();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::add_to(module)?;
    module.add_class::<base::MapBase>()?;
    module.add_class::<join::JoinIndex>()?;
    module.add_class::<arrow::Column>()?;
    module.add_class::<arrow::RecordBatch>()?;
    module.add_class::<arrow::ArrowArray>()?;
    module.add_class::<arrow::Batches>()?;
    module.add_class::<output::Memory>()?;
    module.add_class::<pages::Pages>()?;
    #[cfg(feature = "bench")]
    module.add_function(wrap_pyfunction!(native::_native_get, module)?)?;
    Ok(())
}
