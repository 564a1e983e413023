//! The persistent layer: lines, offsets, stores, flushes, fences and files. It does not depend on tables or
//! hashing.
//!
//! The code of a table is written once, against [`Medium`], and runs both on real files ([`Mapped`]) and on the
//! simulated medium ([`sim::Sim`]). The rules are those of `docs/crash-model.md`:
//!
//! - Every word that threads share lives in a typed cell ([`cell`]). Every store to a cell names its medium, so
//!   that the simulator records it. The simulator also finds stores that bypass the cells, because it compares the
//!   mapping with the recorded stores.
//! - [`Cell32`] and [`Cell64`] are durable: after a crash, each holds the value that was last persisted, or a later
//!   one. A [`Cell128`] is two `Cell64`s that readers load as one. [`Volatile32`] and [`Volatile64`] live on the medium
//!   for locality only: after a crash, *and after every reopening*, they may hold any value, and the simulator fills
//!   them with garbage.
//! - `flush` starts the write-back of lines. `fence` returns when all lines that this thread has flushed are durable.
//! - References on the medium are offsets or indices, checked against the region's length before use.

pub mod alloc;
mod arch;
pub mod blob;
mod bytes;
pub mod cell;
mod commit;
mod durability;
mod io;
pub mod lock;
mod mapped;
pub mod medium;
mod mutex;
mod overlay;
pub mod region;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod superblock;

pub use arch::{LINE_BYTES, TwoWords};
pub use bytes::SharedBytes;
pub use cell::{Cell32, Cell64, Cell128, Volatile32, Volatile64};
pub use commit::{Committed, SyncMode};
pub use durability::Durability;
#[doc(hidden)]
pub use io::{Errno, FaultPlan, Synced};
#[cfg(any(test, feature = "sim"))]
#[doc(hidden)]
pub use io::{FaultAction, FaultAt, FaultMode};
pub use mapped::{HugePages, Mapped, MappedOptions};
pub use medium::{Bytes, Medium, Persist, Properties, Regions, SimHooks, Words};
pub(crate) use medium::{not_poisoned, refuse_child, sound};
pub use region::Region;
