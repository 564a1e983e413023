//! `FaultPlan` in builds without the feature `sim`: it has no values, so the compiler removes the code that consults
//! it.

use rustix::io::Errno;

use super::synced::Synced;

/// A plan of faults. Without the feature `sim`, no value of this type exists.
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
