//! Creating tables in directories.

use std::path::Path;

use super::interface::Design;
use super::opening::Common;
use crate::Result;
use crate::report::RecoveryReport;
use crate::storage::{Mapped, Medium, refuse_child, superblock};
use crate::types::RecordForm;

/// Creates a table at `path`.
pub(crate) fn create_at<D: Design, R: RecordForm>(
    common: Common,
    settings: D::Settings,
    path: &Path,
) -> Result<(D::Engine<R, Mapped>, RecoveryReport)> {
    let storage = Mapped::create(path, common.mapped(D::TITLE, D::ALLOWS_DISK)?)?;
    D::create(common, settings, storage)
}

/// Creates a table at `path`, with room for `records` records, that will receive the records salvaged from the table on
/// `storage`.
pub(crate) fn create_for_salvage<D: Design, R: RecordForm>(
    storage: &impl Medium,
    records: u64,
    settings: D::Settings,
    path: &Path,
) -> Result<D::Engine<R, Mapped>> {
    // A forked child cannot read safely: the parent moves records meanwhile.
    refuse_child(storage)?;
    let (_, identity) = superblock::read(storage)?;
    let (rescued, _) = create_at::<D, R>(Common::like(&identity, records), settings, path)?;
    Ok(rescued)
}
