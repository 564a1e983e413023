//! The C ABI of Icefield. `include/icefield.h` is generated from this crate, and docs/c.md is its guide.
//!
//! The functions are in modules by handle. Each runs its body in `guarded!`, which catches panics, and takes its
//! arguments through `pointers`, which rejects null pointers and impossible lengths. The caller must
//! pass pointers to memory of the types that the header names, which cannot be checked.
//!
//! Names are those of C, because cbindgen copies them into the header.

#![allow(non_camel_case_types, reason = "the names are those of the header")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the same rules hold for all functions; they are at the top of the header"
)]
#![allow(
    clippy::too_many_arguments,
    reason = "C has no slices: a pointer and a length are two arguments"
)]

#[macro_use]
mod guard;

mod batches;
mod bytes;
mod dlht;
mod dlht_batches;
mod error;
mod error_calls;
mod join;
mod join_bytes;
mod join_changes;
mod join_handle;
mod join_probes;
mod objects;
mod options;
mod pointers;
mod reports;
mod scan;
mod table;
mod values;
mod version;
mod whole;
mod words;

/// Any number of threads may use the handles of tables.
const fn is_shared<T: Send + Sync>() {}
const _: () = {
    is_shared::<table::icefield_table>();
    is_shared::<dlht::icefield_dlht>();
    is_shared::<join_handle::icefield_join>();
};

pub use batches::*;
pub use bytes::*;
pub use dlht::*;
pub use dlht_batches::*;
pub use error::*;
pub use error_calls::*;
pub use join::*;
pub use join_bytes::*;
pub use join_changes::*;
pub use join_handle::{icefield_hash_bytes, icefield_join, icefield_row_has_key};
pub use join_probes::*;
pub use options::*;
pub use pointers::{icefield_record, icefield_slice};
pub use reports::*;
pub use scan::*;
pub use table::*;
pub use values::*;
pub use version::*;
pub use whole::*;
pub use words::*;
