//! The machine's own ceilings: bare loops. A table's speed is reported as a share of the speed of a bare loop on the
//! same kind of memory, in the same run, with the same number of threads.

mod arena;
mod loops;

pub(crate) use arena::{Arena, Pages};
pub(crate) use loops::{Loop, Pace};
