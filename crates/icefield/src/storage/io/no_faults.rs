//! The plan of faults of a build without the feature `sim`: there is none, and the code that consults it is gone.

use rustix::io::Errno;

use super::synced::Synced;

/// A plan that cannot be made.
#[derive(Debug)]
pub enum FaultPlan {}

impl FaultPlan {
    pub(crate) fn enter(&self, _: &'static str, _: bool) -> Result<(), Errno> {
        match *self {}
    }

    pub(crate) fn enter_sync(&self, _: &'static str, _: Synced) -> Result<(), Errno> {
        match *self {}
    }
}
