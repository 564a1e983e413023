//! Dash (Lu et al., VLDB 2020).
mod api;
mod batch;
mod bucket;
mod directory;
mod eh;
mod insert;
mod layout;
mod length;
mod maintain;
mod op;
mod options;
mod record;
mod recover;
mod scan;
mod segment;
mod split;
mod stash;

use crate::key::{Key, Value};
use crate::pm::{Mapped, Medium};
use crate::table::RecoveryReport;

use directory::Directory;
use length::Length;
use segment::Core;

pub use eh::Eh;
#[doc(hidden)]
pub use layout::Geometry;
pub use options::DashOptions;
pub use scan::Iter;

/// A Dash table; use it as [`DashEh`].
pub struct Dash<K: Key + ?Sized, V: Value + ?Sized, P: Directory, M: Medium = Mapped> {
    length: Length,
    directory: P,
    recovery: RecoveryReport,
    core: Core<K, V, M>,
}

/// Dash with extendible hashing: a durable, concurrent hash table that opens instantly.
pub type DashEh<K, V, M = Mapped> = Dash<K, V, Eh, M>;
