//! Plush (Vogel, van Renen, Imamura, Giceva, Neumann, Kemper: *Plush: A Write-Optimized Persistent Log-Structured
//! Hash-Table*, VLDB 2022).

mod api;
mod batch;
mod compact;
mod core;
mod filter;
mod layout;
mod level;
mod maintain;
mod migrate;
mod op;
mod options;
mod recover;
mod recovery_log;
mod root;
mod scan;

use crate::key::{Key, Value};
use crate::pm::{Mapped, Medium};
use crate::table::RecoveryReport;

use self::core::Core;

#[doc(hidden)]
pub use layout::Shape;
pub use options::PlushOptions;
pub use scan::PlushIter;

/// Plush: a durable, concurrent hash table for writing.
///
/// ```
/// let table = icefield::Plush::<u64, u64>::in_memory()?;
/// table.put(1, 42)?;
/// assert_eq!(table.get(1)?, Some(42));
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct Plush<K: Key + ?Sized, V: Value + ?Sized, M: Medium = Mapped> {
    recovery: RecoveryReport,
    core: Core<K, V, M>,
}
