//! The persistent layer: lines, offsets, stores, flushes, fences, files. It knows no tables and no hashing.
//!
//! A table is written once, against [`Medium`], and runs on real files ([`Mapped`]) and on the simulated medium
//! ([`sim::Sim`]) alike. The rules are those of `docs/crash-model.md`:
//!
//! - Every word that threads share lives in a typed cell ([`cell`]); every store to a cell names its medium, so that
//!   the simulator sees it. A store that bypasses the cells is found by comparing the mapping with its shadow.
//! - [`Cell32`] and [`Cell64`] are durable: what they hold after a crash is some value stored since they were last
//!   persisted. A [`Cell128`] is two of them that readers load as one, a [`CellLine`] eight in which keys are sought.
//!   [`Volatile32`] and [`Volatile64`] live on the medium for locality only: after a crash, *and after every
//!   reopening*, they hold anything, and the simulator sees to it that they do.
//! - `flush` names lines, `fence` makes the lines that this thread flushed before it durable.
//! - References on the medium are offsets or indices, checked against the region's length before use.

pub mod blob;
pub mod cell;
pub mod medium;
pub mod region;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod superblock;

pub mod alloc;
mod arch;
mod bytes;
mod commit;
mod io;
pub mod lock;
mod mapped;

#[doc(hidden)]
pub use io::{Errno, FaultPlan, Synced};
#[cfg(any(test, feature = "sim"))]
#[doc(hidden)]
pub use io::{FaultAction, FaultAt, FaultMode};
pub use mapped::{HugePages, Mapped, MappedOptions};

pub use commit::{Committed, SyncMode};

pub use bytes::SharedBytes;
pub use cell::{Cell32, Cell64, Cell128, CellLine, Volatile32, Volatile64};
pub use medium::{Durability, Medium};
pub(crate) use medium::{not_poisoned, refuse_child, sound};
pub use region::Region;

/// Bytes in a cache line: the unit of flushing.
pub const LINE_BYTES: usize = 64;
