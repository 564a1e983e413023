//! The designs that can be opened by name, in one place.

use std::path::Path;

use super::erased::Erased;
use super::types::DataType;
use super::{AnyOptions, AnyTable};
use crate::{Error, Result};

/// Every design that can be created and opened.
pub(super) const NAMES: &[&str] = &[];

/// The design of that name.
pub(super) fn named(design: &str) -> Result<&'static str> {
    NAMES.iter().find(|name| **name == design).copied().ok_or_else(|| Error::InvalidOption {
        option: "design",
        detail: format!("`{design}` is no design on disk; there are {}", NAMES.join(", ")),
    })
}

/// Makes a table of a [`named`] design.
pub(super) fn create(
    _path: &Path,
    design: &'static str,
    _key: &DataType,
    _value: &DataType,
    _options: &AnyOptions,
) -> Result<Box<dyn Erased>> {
    Err(Error::Unsupported(format!("no design {design}")))
}

/// Opens whatever table is at `path`.
pub(super) fn open(path: &Path, _read_only: bool) -> Result<AnyTable> {
    Err(Error::NotFound { path: path.to_owned() })
}
