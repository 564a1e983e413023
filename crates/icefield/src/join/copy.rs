//! Backups: a copy of one generation, with a prefix of its log.
//!
//! A copy needs no lock, because the copied parts do not change: a base is sealed, and a log only grows. A copy made
//! during a merge contains the generation that was present when the copy began. The superblock and the root words are
//! not copied but created for the copy, because those of the source may be changing.

use std::path::Path;
use std::sync::Arc;

use super::layout::set_watermark;
use super::log;
use super::view::{Frame, View};
use crate::storage::{Medium, superblock};
use crate::{Error, Result};

impl<M: Medium> View<M> {
    /// Copies this generation and its present changes to a new, closed index, which is renamed to `path` after it has
    /// been verified. Returns the number of bytes copied.
    pub(super) fn copy_to(&self, path: &Path, threads: usize) -> Result<u64> {
        let Frame { storage, identity, sums, limit, .. } = &*self.frame;
        let (root, changes) = (self.root, self.changes());
        let log = log::region(storage, root.generation, *limit)?;
        let parts =
            [(&self.base.region, self.base.layout().bytes()), (&log, changes * log::RECORD_BYTES)];
        let copy = storage.copy_regions(path, &parts)?;
        let table = superblock::create(&copy)?;
        root.publish(&copy, &table, sums)?;
        set_watermark(&copy, &table, sums, root.generation, changes)?;
        superblock::begin_session(&copy, &table)?;
        superblock::seal(&copy, &table, identity)?;
        superblock::end_session(&copy, &table, changes)?;
        let bytes = parts.iter().map(|part| part.1).sum::<u64>() + table.len();
        let frame =
            Frame::new(copy, table, identity.clone(), *limit, false, self.frame.delta_limit)?;
        let frame = Arc::new(frame);
        verify(&frame, threads).map_err(|error| self.blame(error))?;
        frame.storage.publish_created()?;
        frame.storage.close();
        Ok(bytes)
    }

    /// Names the source's file in an error instead of the copy's, because the copy is removed.
    fn blame(&self, error: Error) -> Error {
        match error {
            Error::Corrupt { file, offset, detail } => {
                let name = file.file_name().unwrap_or_default();
                Error::Corrupt { file: self.frame.storage.path().join(name), offset, detail }
            }
            error => error,
        }
    }
}

/// Returns an error unless the index can be loaded and all its checksums are correct.
fn verify<M: Medium>(frame: &Arc<Frame<M>>, threads: usize) -> Result<()> {
    let (view, ..) = View::load(frame, frame.root()?)?;
    view.verify_all(threads)
}
