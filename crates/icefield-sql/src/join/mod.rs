//! Joins through an index.
//!
//! - [`rule`] finds joins in a physical plan that an index can answer. [`side`] tells which part of the plan the index
//!   replaces.
//! - [`kind`] tells what is joined and what is returned. [`exec`] is the operator that takes the join's place, [`stream`] what it does for one partition of the probe side.
//!   [`rows`] has what the partitions share: which rows of the index have a match, and which satisfy its predicate.

pub mod exec;
pub mod kind;
pub mod rows;
pub mod rule;
pub mod side;
pub mod stream;
