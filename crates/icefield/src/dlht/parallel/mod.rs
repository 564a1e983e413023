//! The feature `rayon`: parallel iteration, and filling in parallel.
//!
//! A parallel iteration divides the positions of a scan (see `scan`), in the order of the hash function that the table
//! has when the iteration begins. Every key has one position in that order, so it belongs to exactly one part, even if
//! the table changes its size or its hash function meanwhile. The scan of a part returns each of its keys exactly once.

mod extend;
mod scan_range;
mod set;
mod table;

pub(super) use extend::in_pages;
pub(super) use scan_range::drive;
pub use set::{DlhtSetIntoParIter, DlhtSetParIter};
pub use table::{DlhtIntoParIter, DlhtParIter};
