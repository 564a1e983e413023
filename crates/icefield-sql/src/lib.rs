#![doc = include_str!("../README.md")]

mod batch;
mod codec;
#[doc(hidden)]
pub mod commands;
mod error;
pub mod index;
mod join;
mod registry;
mod root;
mod session;
mod spelled;
mod table;
mod unary;

pub use codec::IndexCodec;
pub use index::Index;
pub use join::exec::IndexJoinExec;
pub use join::rule::IndexJoinRule;
pub use registry::IndexRegistry;
pub use root::{IndexReference, IndexRoot};
pub use session::{
    cluster_session_state, rules, session_state, session_state_in, session_state_with,
};
pub use table::{IndexScanExec, IndexTable};
