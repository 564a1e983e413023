//! What the commands on one table share: its path, its types as text, lookups of arguments.

use std::path::{Path, PathBuf};

use icefield::{AnyOptions, AnyTable, Durability, SyncMode};

use crate::text::TextType;
use icefield_console::failure::Failure;
use icefield_console::terminal::shown;

/// The argument that names the table.
#[derive(clap::Args, Clone, Debug)]
pub struct TableArg {
    /// The table's directory
    #[arg(value_name = "TABLE")]
    pub table: PathBuf,
}

/// What a table is to survive, and on a disk when its writes are acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeping {
    /// What it is to survive.
    pub durability: Durability,
    /// When writes are acknowledged.
    pub sync: SyncMode,
}

impl std::str::FromStr for Keeping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(sync) = text.parse() {
            return Ok(Self { durability: Durability::Disk, sync });
        }
        let durability = text.parse().map_err(|_| {
            format!(
                "`{text}` is none of auto, process, pmem, pmem-forced, disk, always, every:MS, never"
            )
        })?;
        Ok(Self { durability, sync: SyncMode::Always })
    }
}

/// The option for how an existing table is opened for writing.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct KeepingArg {
    /// What the writes shall survive: auto, process, pmem, pmem-forced, disk (also: always, or relaxed: every:MS,
    /// never)
    #[arg(long, value_name = "DURABILITY", default_value = "auto")]
    pub durability: Keeping,
}

impl TableArg {
    /// Opens the table for writing.
    pub fn open(&self, keeping: Keeping) -> icefield::Result<AnyTable> {
        let Keeping { durability, sync } = keeping;
        AnyTable::open_with(&self.table, &AnyOptions { durability, sync, ..AnyOptions::default() })
    }
}

/// Opens a table for reading its records: what has a checksum is verified.
pub fn open_to_read(path: &Path) -> icefield::Result<AnyTable> {
    AnyTable::open_read_only_with(path, &AnyOptions { verify: true, ..AnyOptions::default() })
}

/// The option for bytes as hexadecimal digits.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct HexArg {
    /// Read and write `bytes` as hexadecimal digits, with or without `0x`; without it they are what they are
    #[arg(long)]
    pub hex: bool,
}

/// How a table's keys and values are written.
#[derive(Clone, Debug)]
pub struct Types {
    /// The keys.
    pub key: TextType,
    /// The values.
    pub value: TextType,
    /// Whether the text of each key that is read must come back as it is.
    pub exact_keys: bool,
    /// The same of values.
    pub exact_values: bool,
}

impl Types {
    /// Those of an open table.
    pub fn of(table: &AnyTable, hex: HexArg) -> Self {
        Self::named(table.key_type(), table.value_type(), hex)
    }

    /// Those that a superblock names.
    pub fn named(key: &str, value: &str, hex: HexArg) -> Self {
        Self {
            key: TextType::new(key, hex.hex),
            value: TextType::new(value, hex.hex),
            exact_keys: false,
            exact_values: false,
        }
    }

    /// The keys given on the command line.
    pub fn keys(&self, texts: &[String]) -> Result<Vec<Vec<u8>>, Failure> {
        texts.iter().map(|text| argument("KEY", &self.key, text)).collect()
    }
}

/// A key or value given on the command line.
pub fn argument(name: &str, text_type: &TextType, text: &str) -> Result<Vec<u8>, Failure> {
    text_type.parse(text.as_bytes()).map_err(|reason| Failure::Usage(format!("{name}: {reason}")))
}

/// The design and types of a table in one word.
pub fn describe(table: &AnyTable) -> String {
    let (key, value) = (shown(table.key_type()), shown(table.value_type()));
    format!("{}<{key}, {value}>", table.design())
}
