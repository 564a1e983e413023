//! Scenarios, checkers and workloads shared by Icefield's tests, benchmarks and torture runs.

pub mod budget;
pub mod call;
pub mod churn;
pub mod corrupt;
pub mod crash;
pub mod dlht;
pub mod failure;
pub mod faults;
pub mod faulty;
pub mod file_subject;
pub mod history;
pub mod hostile;
pub mod iterate;
pub mod operation;
#[cfg(not(test))]
pub mod scenarios;
pub mod scheduler;
// Unit tests use a toy table and do not need the instantiations in this module and in `scenarios`.
#[cfg(not(test))]
pub mod join;
pub mod kill;
pub mod linear;
pub mod model;
pub mod pass;
pub mod place;
pub mod pool;
pub mod reference;
pub mod rng;
pub mod scratch;
pub mod shrink;
pub mod smallbank;
pub mod subject;
pub mod subjects;
pub mod syncs;
pub mod tatp;
pub mod timed;
pub mod tpch;
pub mod workload;

#[cfg(test)]
mod toy;

pub use failure::Failure;
pub use file_subject::{FileOptions, FileSubject};
pub use rng::{Rng, Xoshiro};
pub use subject::{Sample, Subject};
