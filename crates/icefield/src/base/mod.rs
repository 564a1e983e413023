//! What every table needs and no medium knows: atomics, locks, reclamation, hashing, SIMD, memory, the prefetch ring,
//! work for several threads.
//!
//! This layer imports neither `pm` nor a table. It is the only home of three things that are easy to get wrong and hard
//! to test when they are scattered: code that depends on the processor ([`group`]), the choice between real and
//! modelled atomics ([`sync`]), and thread-local state ([`thread`]).

pub(crate) mod addresses;
pub mod counter;
pub mod gate;
pub mod group;
pub mod hash;
pub mod memory;
pub(crate) mod parallel;
pub mod pipeline;
pub mod reclaim;
pub mod sync;
pub mod thread;
pub mod version_lock;
