//! What the commands on one table share: its path, its types as text, lookups of arguments.

use std::path::PathBuf;

use icefield::AnyTable;

use crate::failure::Failure;
use crate::text::TextType;

/// The argument that names the table.
#[derive(clap::Args, Clone, Debug)]
pub struct TableArg {
    /// The table's directory
    #[arg(value_name = "TABLE")]
    pub table: PathBuf,
}

/// The option for bytes as hexadecimal digits.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct HexArg {
    /// Read and write `bytes` as hexadecimal digits; without it they are text, or hexadecimal digits after `0x`
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
}

impl Types {
    /// Those of an open table.
    pub fn of(table: &AnyTable, hex: HexArg) -> Self {
        Self {
            key: TextType::new(table.key_type(), hex.hex),
            value: TextType::new(table.value_type(), hex.hex),
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
    format!("{}<{}, {}>", table.design(), table.key_type(), table.value_type())
}
