//! The designs that can be opened by name.

use std::path::Path;

use super::erased::{AnyBytes, AnyWord, Erased, Untyped};
use super::types::DataType;
use super::{AnyOptions, AnyTable};
use crate::dash::{DashEh, DashLh};
use crate::iceberg::Iceberg;
use crate::key::{Form, Key, Value};
use crate::plush::Plush;
use crate::record::opening::refusal_of_disks;
use crate::storage::superblock::{self, Identity};
use crate::storage::{Durability, Mapped, MappedOptions};
use crate::table::SalvageReport;
use crate::{Error, Result};

/// A table whose types have been erased.
type AnyBox = Box<dyn Erased>;

/// The functions of a design that can be created and opened by name.
trait Design {
    /// The name in superblocks and commands.
    const NAME: &'static str;
    /// `true` if the design is correct on media that reorder the stores within a line.
    const DISKS: bool;

    fn create<K, V>(path: &Path, types: Types<'_>, options: &AnyOptions) -> Result<AnyBox>
    where
        K: Untyped + Key + ?Sized,
        V: Untyped + Value + ?Sized;

    fn open<K, V>(storage: Mapped, verify: bool) -> Result<AnyBox>
    where
        K: Untyped + Key + ?Sized,
        V: Untyped + Value + ?Sized;

    fn salvage<K, V>(storage: Mapped, new: &Path) -> Result<SalvageReport>
    where
        K: Untyped + Key + ?Sized,
        V: Untyped + Value + ?Sized;
}

/// The key and value types of a new table, by name and form.
#[derive(Clone, Copy)]
struct Types<'a> {
    key: (&'a str, Form),
    value: (&'a str, Form),
}

/// Implements [`Design`] for each design. A macro, because the designs' options and tables have no common trait.
macro_rules! designs {
    ($($design:ident: $name:literal, $table:ident, disks: $disks:literal;)*) => {
        /// Every design that can be created and opened.
        const KNOWN: &[Known] = &[$(Known::of::<$design>()),*];

        $(
            struct $design;

            impl Design for $design {
                const NAME: &'static str = $name;
                const DISKS: bool = $disks;

                fn create<K, V>(path: &Path, types: Types<'_>, options: &AnyOptions) -> Result<AnyBox>
                where
                    K: Untyped + Key + ?Sized,
                    V: Untyped + Value + ?Sized,
                {
                    let mut made = $table::<K, V>::options()
                        .durability(options.durability)
                        .acknowledging(options.sync)
                        .verify(options.verify)
                        .stored_types(types.key, types.value);
                    if let Some(capacity) = options.capacity {
                        made = made.capacity(capacity);
                    }
                    if let Some(max_bytes) = options.max_bytes {
                        made = made.max_bytes(max_bytes);
                    }
                    Ok(Box::new(made.create(path)?))
                }

                fn open<K, V>(storage: Mapped, verify: bool) -> Result<AnyBox>
                where
                    K: Untyped + Key + ?Sized,
                    V: Untyped + Value + ?Sized,
                {
                    Ok(Box::new($table::<K, V>::options().verify(verify).open_on(storage)?))
                }

                fn salvage<K, V>(storage: Mapped, new: &Path) -> Result<SalvageReport>
                where
                    K: Untyped + Key + ?Sized,
                    V: Untyped + Value + ?Sized,
                {
                    $table::<K, V>::options().salvage_on(storage, new)
                }
            }
        )*
    };
}
designs! {
    DashExtendible: "dash-eh", DashEh, disks: false;
    DashLinear: "dash-lh", DashLh, disks: false;
    IcebergHt: "iceberg", Iceberg, disks: false;
    PlushHt: "plush", Plush, disks: true;
}

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

/// A design as a table of functions.
#[derive(Clone, Copy)]
pub(super) struct Known {
    name: &'static str,
    disks: bool,
    create: fn(&Path, Types<'_>, &AnyOptions) -> Result<AnyBox>,
    open: fn(Mapped, (Form, Form), bool) -> Result<AnyBox>,
    salvage: fn(Mapped, (Form, Form), &Path) -> Result<SalvageReport>,
}

impl Known {
    const fn of<D: Design>() -> Self {
        Self {
            name: D::NAME,
            disks: D::DISKS,
            create: create_as::<D>,
            open: open_as::<D>,
            salvage: salvage_as::<D>,
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        KNOWN.iter().copied().find(|known| known.name == name)
    }

    pub(super) fn create(
        self,
        path: &Path,
        key: DataType,
        value: DataType,
        options: &AnyOptions,
    ) -> Result<AnyTable> {
        let types = Types { key: (key.name(), key.form()), value: (value.name(), value.form()) };
        let table = (self.create)(path, types, options)?;
        Ok(AnyTable { table, design: self.name, key, value })
    }
}

/// Opens the table at `path`, whatever its design.
pub(super) fn open(path: &Path, read_only: bool, options: &AnyOptions) -> Result<AnyTable> {
    let (wanted, verify) = (options.durability, options.verify);
    let options = MappedOptions {
        durability: wanted,
        sync: options.sync,
        max_bytes: options.max_bytes,
        ..MappedOptions::default()
    };
    let storage = if read_only {
        Mapped::open_read_only(path, options)
    } else {
        Mapped::open(path, options)
    }?;
    let (known, identity) = named(&storage, path)?;
    if wanted == Durability::Disk && !known.disks {
        return Err(refusal_of_disks(&format!("{}: {}", path.display(), known.name)));
    }
    let (key, value) =
        (DataType::stored(&identity.key_type), DataType::stored(&identity.value_type));
    let table = (known.open)(storage, (key.form(), value.form()), verify)?;
    Ok(AnyTable { table, design: known.name, key, value })
}

/// Salvages the files of the table at `path`, whatever its design.
pub(super) fn salvage(path: &Path, new: &Path) -> Result<SalvageReport> {
    let storage = Mapped::open_read_only(path, MappedOptions::default())?;
    let (known, identity) = named(&storage, path)?;
    let (key, value) =
        (DataType::stored(&identity.key_type), DataType::stored(&identity.value_type));
    (known.salvage)(storage, (key.form(), value.form()), new)
}

/// Returns the design that the superblock names.
fn named(storage: &Mapped, path: &Path) -> Result<(Known, Identity)> {
    let (_, identity) = superblock::read(storage)?;
    let known = Known::named(&identity.design).ok_or_else(|| {
        let (path, found) = (path.display(), identity.design.as_str());
        Error::Unsupported(match found {
            crate::join::DESIGN => format!(
                "{path}: a join index, which has no records to be asked for by key; `icefield join run` probes it, \
                 `icefield stat`, `check` and `backup` take it, and `JoinIndex::open` does"
            ),
            _ => format!(
                "{path}: the design `{found}` cannot be opened by name; {} can",
                NAMES.join(", ")
            ),
        })
    })?;
    Ok((known, identity))
}

fn create_as<D: Design>(path: &Path, types: Types<'_>, options: &AnyOptions) -> Result<AnyBox> {
    match (types.key.1, types.value.1) {
        (Form::Word, Form::Word) => D::create::<AnyWord, AnyWord>(path, types, options),
        (Form::Word, _) => D::create::<AnyWord, AnyBytes>(path, types, options),
        (_, Form::Word) => D::create::<AnyBytes, AnyWord>(path, types, options),
        (_, _) => D::create::<AnyBytes, AnyBytes>(path, types, options),
    }
}

fn open_as<D: Design>(storage: Mapped, forms: (Form, Form), verify: bool) -> Result<AnyBox> {
    match forms {
        (Form::Word, Form::Word) => D::open::<AnyWord, AnyWord>(storage, verify),
        (Form::Word, _) => D::open::<AnyWord, AnyBytes>(storage, verify),
        (_, Form::Word) => D::open::<AnyBytes, AnyWord>(storage, verify),
        (_, _) => D::open::<AnyBytes, AnyBytes>(storage, verify),
    }
}

fn salvage_as<D: Design>(
    storage: Mapped,
    forms: (Form, Form),
    new: &Path,
) -> Result<SalvageReport> {
    match forms {
        (Form::Word, Form::Word) => D::salvage::<AnyWord, AnyWord>(storage, new),
        (Form::Word, _) => D::salvage::<AnyWord, AnyBytes>(storage, new),
        (_, Form::Word) => D::salvage::<AnyBytes, AnyWord>(storage, new),
        (_, _) => D::salvage::<AnyBytes, AnyBytes>(storage, new),
    }
}
