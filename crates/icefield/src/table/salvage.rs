//! Salvage of a table whose files may not open.

use std::path::Path;

use crate::Result;
use crate::engine::mending::{self, Mending};
use crate::engine::opening::Common;
use crate::engine::{Design, Maintenance};
use crate::error::without_advice;
use crate::report::SalvageReport;
use crate::storage::Mapped;
use crate::types::{RecordForm, Types};

/// Copies everything that can still be read from `storage`, which was opened read-only, to a new table at `new`.
pub(crate) fn salvage<D: Design, R: RecordForm>(
    common: Common,
    settings: D::Settings,
    storage: Mapped,
    new: &Path,
    types: &Types,
) -> Result<SalvageReport> {
    let mending = Mending::default();
    let common = Common { mending: Some(mending.clone()), ..common };
    let recorded = mending::recorded(&storage);
    let (engine, _) = D::open::<R, Mapped>(common, settings, storage)?;
    let mut report = engine.salvage(new, types)?;
    report.lost.splice(0..0, mending.take().into_iter().map(without_advice));
    let found = report.records + report.damaged.len() as u64;
    if let Some(missing) = recorded.and_then(|recorded| recorded.checked_sub(found))
        && missing > 0
    {
        report
            .lost
            .push(format!("{missing} records that the table had when it was closed are missing"));
    }
    Ok(report)
}
