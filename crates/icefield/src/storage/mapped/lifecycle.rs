//! The use of the real medium by a table, from its claim to its close.

use std::path::Path;

use super::Mapped;
use super::effort::Effort;
use super::lock_file::Purpose;
use super::permit::Refusal;
use crate::storage::medium::{Medium, Persist, Properties, SimHooks, in_use, sealed};
use crate::storage::mutex::lock;
use crate::storage::region::Region;
use crate::{Error, Result};

impl sealed::Sealed for Mapped {}

impl SimHooks for Mapped {}

impl Medium for Mapped {
    type Copied = Self;

    fn claimed(self) -> Result<Self> {
        let purpose = self.directory.as_ref().map(|directory| directory.purpose());
        if purpose == Some(Purpose::ReadBeside) {
            return Err(Error::InvalidOption {
                option: "beside_writer",
                detail: "this table changes its files in place; open it without `beside_writer`"
                    .into(),
            });
        }
        if let Some(file) = lock(&self.regions).iter().find(|file| file.region().is_shared()) {
            return Err(in_use(file.region()));
        }
        Ok(self)
    }

    fn backup_to(&self, path: &Path) -> Result<u64> {
        Self::backup_to(self, path)
    }

    fn copy_regions(&self, path: &Path, parts: &[(&Region, u64)]) -> Result<Self> {
        Self::copy_regions(self, path, parts)
    }

    fn publish_created(&self) -> Result<()> {
        self.refuse_child()?;
        let Some(directory) = &self.directory else { return Ok(()) };
        let regions = lock(&self.regions);
        for file in regions.iter() {
            self.poison_if(file.sync(&self.setting()))?;
        }
        directory.publish(&self.io)
    }

    fn close(&self) {
        if self.effort == Effort::Sync && self.check_writable().is_ok() {
            // A failure poisons the medium, which is handled below.
            let _ = self.synced(self.dirty.sync_all());
        }
        Persist::fence(self);
        if self.permit.refusal() == Some(Refusal::Poisoned) {
            self.dirty.fail();
        }
    }
}
