//! The designs that can be opened by name, in one place.

use std::path::Path;

use super::erased::{AnyBytes, AnyWord, Erased, Untyped};
use super::types::DataType;
use super::{AnyOptions, AnyTable};
use crate::dash::DashEh;
use crate::key::{Form, Key, Value};
use crate::pm::{Mapped, MappedOptions, superblock};
use crate::{Error, Result};

const DASH_EH: &str = "dash-eh";

/// Every design that can be created and opened.
pub(super) const NAMES: &[&str] = &[DASH_EH];

/// The design of that name.
pub(super) fn named(design: &str) -> Option<&'static str> {
    NAMES.iter().find(|name| **name == design).copied()
}

/// Makes a table of a [`named`] design.
pub(super) fn create(
    path: &Path,
    design: &'static str,
    key: DataType,
    value: DataType,
    options: &AnyOptions,
) -> Result<AnyTable> {
    let table = match (key.form(), value.form()) {
        (Form::Word, Form::Word) => create_dash::<AnyWord, AnyWord>(path, &key, &value, options),
        (Form::Word, _) => create_dash::<AnyWord, AnyBytes>(path, &key, &value, options),
        (_, Form::Word) => create_dash::<AnyBytes, AnyWord>(path, &key, &value, options),
        (_, _) => create_dash::<AnyBytes, AnyBytes>(path, &key, &value, options),
    }?;
    Ok(AnyTable { table, design, key, value })
}

/// Opens whatever table is at `path`.
pub(super) fn open(path: &Path, read_only: bool) -> Result<AnyTable> {
    let options = MappedOptions::default();
    let pm = if read_only {
        Mapped::open_read_only(path, options)
    } else {
        Mapped::open(path, options)
    }?;
    let (_, identity) = superblock::read(&pm)?;
    let design = named(&identity.design).ok_or_else(|| {
        let (path, found) = (path.display(), &identity.design);
        Error::Unsupported(format!(
            "{path}: the design `{found}` cannot be opened by name; {} can",
            NAMES.join(", ")
        ))
    })?;
    let (key, value) =
        (DataType::stored(&identity.key_type), DataType::stored(&identity.value_type));
    let table = match (key.form(), value.form()) {
        (Form::Word, Form::Word) => open_dash::<AnyWord, AnyWord>(pm),
        (Form::Word, _) => open_dash::<AnyWord, AnyBytes>(pm),
        (_, Form::Word) => open_dash::<AnyBytes, AnyWord>(pm),
        (_, _) => open_dash::<AnyBytes, AnyBytes>(pm),
    }?;
    Ok(AnyTable { table, design, key, value })
}

fn create_dash<K, V>(
    path: &Path,
    key: &DataType,
    value: &DataType,
    options: &AnyOptions,
) -> Result<Box<dyn Erased>>
where
    K: Untyped + Key + ?Sized,
    V: Untyped + Value + ?Sized,
{
    let mut made = DashEh::<K, V>::options()
        .durability(options.durability)
        .stored_types((key.name(), key.form()), (value.name(), value.form()));
    if let Some(capacity) = options.capacity {
        made = made.capacity(capacity);
    }
    if let Some(max_bytes) = options.max_bytes {
        made = made.max_bytes(max_bytes);
    }
    Ok(Box::new(made.create(path)?))
}

fn open_dash<K, V>(pm: Mapped) -> Result<Box<dyn Erased>>
where
    K: Untyped + Key + ?Sized,
    V: Untyped + Value + ?Sized,
{
    Ok(Box::new(DashEh::<K, V>::options().open_on(pm)?))
}
