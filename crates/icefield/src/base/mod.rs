//! Shared building blocks that do not depend on a medium: atomics, locks, reclamation, hashing, SIMD, memory, the
//! prefetch ring, and parallel work with its threads.
//!
//! This layer imports neither `storage` nor a table. It is the only place for three kinds of code that are easy to get
//! wrong and hard to test when they are scattered: processor-specific code ([`group`]), the choice between real and
//! modelled atomics ([`sync`]), and thread-local state ([`thread`], `recycled`).

pub(crate) mod addresses;
pub mod counter;
pub mod gate;
pub mod group;
pub mod hash;
pub mod memory;
pub(crate) mod parallel;
pub mod pipeline;
pub mod reclaim;
pub(crate) mod recycled;
pub mod sync;
pub mod thread;
pub mod thread_pool;
pub mod version_lock;
