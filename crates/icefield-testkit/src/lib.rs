//! Scenarios, checkers and workloads shared by Icefield's tests, benchmarks and torture runs.

pub mod rng;
pub mod subject;

pub use rng::Rng;
pub use subject::{Sample, Subject};
