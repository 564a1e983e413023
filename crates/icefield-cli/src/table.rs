//! The parts that all commands on one table use: the table's path, the text form of its types, the parsing of
//! arguments.

use std::path::{Path, PathBuf};

use icefield::{AnyOptions, AnyTable, Durability, SyncMode};

use crate::text::TextType;
use icefield_console::failure::Failure;
use icefield_console::terminal::shown;

#[derive(clap::Args, Clone, Debug)]
pub struct TableArg {
    /// Use the table in this directory
    #[arg(value_name = "TABLE")]
    pub table: PathBuf,
}

/// The failures that a table's writes survive, and, on a disk, the time at which writes are acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeping {
    /// The failures that writes survive.
    pub durability: Durability,
    /// Determines when writes are acknowledged.
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
                "`{text}` is not one of auto, process, pmem, pmem-forced, disk, always, every:MS, never"
            )
        })?;
        Ok(Self { durability, sync: SyncMode::Always })
    }
}

/// The option for opening an existing table for writing.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct KeepingArg {
    /// Make writes survive what this durability covers: auto, process, pmem, pmem-forced, disk (also: always, or
    /// relaxed: every:MS, never)
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

/// Opens a table for reading, with verification of checksums.
pub fn open_to_read(path: &Path) -> icefield::Result<AnyTable> {
    AnyTable::open_read_only_with(path, &AnyOptions { verify: true, ..AnyOptions::default() })
}

/// The option for hexadecimal digits.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct HexArg {
    /// Read and write `bytes` as hexadecimal digits, with or without `0x`, instead of raw bytes
    #[arg(long)]
    pub hex: bool,
}

/// The text form of a table's keys and values.
#[derive(Clone, Debug)]
pub struct Types {
    /// The keys.
    pub key: TextType,
    /// The values.
    pub value: TextType,
    /// True if a key is refused when the parsed key would be printed as a different text.
    pub exact_keys: bool,
    /// True if a value is refused when the parsed value would be printed as a different text.
    pub exact_values: bool,
}

impl Types {
    /// Returns the types of an open table.
    pub fn of(table: &AnyTable, hex: HexArg) -> Self {
        Self::named(table.key_type(), table.value_type(), hex)
    }

    /// Returns the types named in a superblock.
    pub fn named(key: &str, value: &str, hex: HexArg) -> Self {
        Self {
            key: TextType::new(key, hex.hex),
            value: TextType::new(value, hex.hex),
            exact_keys: false,
            exact_values: false,
        }
    }

    /// Parses the keys given on the command line.
    pub fn keys(&self, texts: &[String]) -> Result<Vec<Vec<u8>>, Failure> {
        texts.iter().map(|text| argument("KEY", &self.key, text)).collect()
    }
}

/// Parses a key or value given on the command line.
pub fn argument(name: &str, text_type: &TextType, text: &str) -> Result<Vec<u8>, Failure> {
    text_type.parse(text.as_bytes()).map_err(|reason| Failure::Usage(format!("{name}: {reason}")))
}

/// Returns the design and types of a table, such as `dash-eh<u64, bytes>`.
pub fn describe(table: &AnyTable) -> String {
    let (key, value) = (shown(table.key_type()), shown(table.value_type()));
    format!("{}<{key}, {value}>", table.design())
}
