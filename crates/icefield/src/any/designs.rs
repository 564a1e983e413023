//! The designs that can be opened by name.

use std::path::Path;

use super::erased::Erased;
use super::options::AnyOptions;
use super::types::DataType;
use crate::engine::Design;
use crate::engine::dash::{Eh, Lh};
use crate::engine::iceberg::IcebergHt;
use crate::engine::new_table::create_at;
use crate::engine::opening::{Common, refusal_of_disks};
use crate::engine::plush::PlushHt;
use crate::engine::stored_types::StoredTypes;
use crate::report::{RecoveryReport, SalvageReport};
use crate::storage::superblock::{self, Identity};
use crate::storage::{Durability, Mapped, MappedOptions};
use crate::table::salvage;
use crate::types::{Form, InAnyBytes, InBytes, InWord, RecordForm, Types};
use crate::{Error, Result};

/// Every design that can be created and opened.
///
/// All functions that use `KNOWN` are `#[inline]`, so the engines that it refers to are compiled in the crates that
/// open tables by name, and not in this one. Programs that open no table by name compile in a fifth of the time. With
/// the feature `any-compiled-once`, they are compiled here.
const KNOWN: [Known; 4] =
    [Known::of::<Eh>(), Known::of::<Lh>(), Known::of::<IcebergHt>(), Known::of::<PlushHt>()];

/// The names of the designs.
pub(super) const NAMES: &[&str] = &{
    let mut names = [""; KNOWN.len()];
    let mut at = 0;
    while at < KNOWN.len() {
        names[at] = KNOWN[at].name;
        at += 1;
    }
    names
};

/// A table whose types have been erased, and the recovery report of opening it.
type Untyped = (Box<dyn Erased>, RecoveryReport);

/// An open table with its design and types.
pub(super) struct Opened {
    pub(super) table: Box<dyn Erased>,
    pub(super) recovery: RecoveryReport,
    pub(super) design: &'static str,
    pub(super) key: DataType,
    pub(super) value: DataType,
}

/// The form in which an engine keeps keys or values.
#[derive(Clone, Copy)]
enum Kept {
    Word,
    Fixed,
    Variable,
}

/// Calls a function for the engine of design `$d` that keeps keys and values in `$forms`.
macro_rules! engine {
    ($d:ident, $forms:expr, $call:ident, $args:tt) => {
        match $forms {
            [Kept::Word, Kept::Word] => $call::<$d, $d::Form<InWord, InWord>>$args,
            [Kept::Word, Kept::Fixed] => $call::<$d, $d::Form<InWord, InAnyBytes>>$args,
            [Kept::Fixed, Kept::Word] => $call::<$d, $d::Form<InAnyBytes, InWord>>$args,
            [Kept::Fixed, Kept::Fixed] => $call::<$d, $d::Form<InAnyBytes, InAnyBytes>>$args,
            [Kept::Word, _] => $call::<$d, $d::Form<InWord, InBytes>>$args,
            [_, Kept::Word] => $call::<$d, $d::Form<InBytes, InWord>>$args,
            [_, _] => $call::<$d, $d::Form<InBytes, InBytes>>$args,
        }
    };
}

/// A design as a table of functions.
#[derive(Clone, Copy)]
pub(super) struct Known {
    name: &'static str,
    allows_disk: bool,
    /// `create`, `open` and `salvage` select the engine by the forms in which keys and values are kept.
    create: fn([Kept; 2], Common, &Path) -> Result<Untyped>,
    open: fn([Kept; 2], Common, Mapped) -> Result<Untyped>,
    salvage: fn([Kept; 2], Common, Mapped, &Path, &Types) -> Result<SalvageReport>,
}

impl Known {
    const fn of<D: Design>() -> Self {
        Self {
            name: D::NAME,
            allows_disk: D::ALLOWS_DISK,
            create: |forms, common, path| engine!(D, forms, create, (common, path)),
            open: |forms, common, storage| engine!(D, forms, open_as, (common, storage)),
            salvage: |forms, common, storage, new, types| {
                engine!(D, forms, salvage, (common, D::Settings::default(), storage, new, types))
            },
        }
    }

    #[cfg_attr(any(test, not(feature = "any-compiled-once")), inline)]
    pub(super) fn named(name: &str) -> Option<Self> {
        KNOWN.iter().copied().find(|known| known.name == name)
    }

    #[cfg_attr(any(test, not(feature = "any-compiled-once")), inline)]
    pub(super) fn create(
        self,
        path: &Path,
        key: DataType,
        value: DataType,
        options: &AnyOptions,
    ) -> Result<Opened> {
        let common = common(&key, &value, options);
        let (table, recovery) = (self.create)(kept(&key, &value), common, path)?;
        Ok(Opened { table, recovery, design: self.name, key, value })
    }
}

fn create<D: Design, R: RecordForm>(common: Common, path: &Path) -> Result<Untyped> {
    let (engine, recovery) = create_at::<D, R>(common, D::Settings::default(), path)?;
    Ok((Box::new(engine), recovery))
}

fn open_as<D: Design, R: RecordForm>(common: Common, storage: Mapped) -> Result<Untyped> {
    let (engine, recovery) = D::open::<R, Mapped>(common, D::Settings::default(), storage)?;
    Ok((Box::new(engine), recovery))
}

/// Returns the forms in which the engine of a table keeps keys and values. If one of the two has variable length, a
/// design also keeps the other as variable, unless the other is a word.
fn kept(key: &DataType, value: &DataType) -> [Kept; 2] {
    let forms = [key, value].map(DataType::form);
    forms.map(|form| match form {
        Form::Word => Kept::Word,
        Form::Fixed(_) if !forms.contains(&Form::Variable) => Kept::Fixed,
        Form::Fixed(_) | Form::Variable => Kept::Variable,
    })
}

/// Returns the options of a table with these types.
fn common(key: &DataType, value: &DataType, options: &AnyOptions) -> Common {
    let [key, value] = [key, value].map(|data_type| (data_type.name(), data_type.form()));
    Common {
        capacity: options.capacity.unwrap_or(0),
        durability: options.durability,
        sync: options.sync,
        max_bytes: options.max_bytes,
        verify: options.verify,
        types: StoredTypes::named(key, value),
        ..Common::default()
    }
}

/// Opens the table at `path`, whatever its design.
#[cfg_attr(any(test, not(feature = "any-compiled-once")), inline)]
pub(super) fn open(path: &Path, read_only: bool, options: &AnyOptions) -> Result<Opened> {
    let medium = MappedOptions {
        durability: options.durability,
        sync: options.sync,
        max_bytes: options.max_bytes,
        ..MappedOptions::default()
    };
    let storage =
        if read_only { Mapped::open_read_only(path, medium) } else { Mapped::open(path, medium) }?;
    let (known, identity) = named(&storage, path)?;
    if options.durability == Durability::Disk && !known.allows_disk {
        return Err(refusal_of_disks(&format!("{}: {}", path.display(), known.name)));
    }
    let [key, value] = types(&identity);
    // The option `capacity` applies only to new tables.
    let common = Common { capacity: 0, ..common(&key, &value, options) };
    let (table, recovery) = (known.open)(kept(&key, &value), common, storage)?;
    Ok(Opened { table, recovery, design: known.name, key, value })
}

/// Salvages the files of the table at `path`, whatever its design.
#[cfg_attr(any(test, not(feature = "any-compiled-once")), inline)]
pub(super) fn salvage_files(path: &Path, new: &Path) -> Result<SalvageReport> {
    let storage = Mapped::open_read_only(path, MappedOptions::default())?;
    let (known, identity) = named(&storage, path)?;
    let [key, value] = types(&identity);
    let common = common(&key, &value, &AnyOptions::default());
    let kinds = Types { key: key.kind(), value: value.kind() };
    (known.salvage)(kept(&key, &value), common, storage, new, &kinds)
}

/// Returns the key and value type that the superblock names.
fn types(identity: &Identity) -> [DataType; 2] {
    [DataType::stored(&identity.key_type), DataType::stored(&identity.value_type)]
}

/// Returns the design that the superblock names, and the rest of the superblock's content.
#[cfg_attr(any(test, not(feature = "any-compiled-once")), inline)]
fn named(storage: &Mapped, path: &Path) -> Result<(Known, Identity)> {
    let (_, identity) = superblock::read(storage)?;
    let known = Known::named(&identity.design).ok_or_else(|| {
        let (path, found) = (path.display(), identity.design.as_str());
        Error::Unsupported(match found {
            crate::join::DESIGN => format!(
                "{path}: this is a join index, not a table of records; probe it with `JoinIndex::open` or \
                 `icefield-sql join`; `icefield stat`, `check` and `backup` accept it"
            ),
            _ => format!(
                "{path}: a table of design `{found}` cannot be opened by name; the designs that can are {}",
                NAMES.join(", ")
            ),
        })
    })?;
    Ok((known, identity))
}
