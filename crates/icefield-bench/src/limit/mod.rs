//! The machine's own ceilings. What a table reaches is told as a share of what a bare loop reaches on the same kind of
//! memory, in the same run, with the same threads.

mod arena;
mod loops;

pub(crate) use arena::{Arena, Pages};
pub(crate) use loops::{Loop, Pace};
