#![doc = include_str!("../README.md")]

mod batch;
#[doc(hidden)]
pub mod commands;
mod error;
pub mod index;
mod join;
mod registry;
mod session;
mod table;

pub use index::Index;
pub use join::exec::IndexJoinExec;
pub use join::rule::IndexJoinRule;
pub use registry::IndexRegistry;
pub use session::{rules, session_state, session_state_in, session_state_with};
pub use table::{IndexScanExec, IndexTable};
