//! Joins through an index.
//!
//! - [`rule`] finds joins in a physical plan that an index can answer. [`side`] determines the part of the plan that
//!   the index replaces. `order` moves joins with other indexes out of that part.
//! - [`kind`] describes a join. [`exec`] is the operator that replaces it, and [`stream`] runs one partition of the
//!   operator. All partitions share [`rows`], the rows of the index that have a match, and [`predicate`], those that
//!   satisfy its predicate. [`filter`] hands the keys of these rows to the plans below.
//!   `probe` has a batch of the other side and its keys, and `rest` the rows of the index that are emitted at the end;
//!   `output` makes batches of the rows that are returned.
//!   `names` finds out which columns a filter may use.
//! - [`missing`] replaces an index join on a machine that does not have the index.
//! - [`parts`] distributes the probe side, where partitions run in different processes.

pub mod exec;
pub mod filter;
mod found;
mod grouped;
pub mod kind;
pub mod missing;
mod names;
mod order;
mod output;
pub mod parts;
pub mod predicate;
mod probe;
mod rest;
pub mod rows;
pub mod rule;
mod scan;
pub mod side;
pub mod stream;
