//! Icefield's join index as an operator of Apache DataFusion.
//!
//! An [`Index`] of the keys of a table's files is built once. Every later query that joins this table by these keys
//! probes the index instead of reading the table and building a hash table of it.

#[doc(hidden)]
pub mod commands;
mod error;
pub mod index;
pub mod join;
mod registry;
mod session;

pub use index::Index;
pub use registry::IndexRegistry;
pub use session::{rules, session_state, session_state_in, session_state_with};
