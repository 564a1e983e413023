//! `icefield create`: creates a table.

use std::path::Path;

use icefield::{AnyOptions, AnyTable, Durability};

use crate::table::{Keeping, TableArg, describe};
use crate::text::{self, canonical_type};
use icefield_console::failure::{Failure, Outcome};
use icefield_console::json::{JsonArgs, Line, Output, with_output};
use icefield_console::terminal::shown_path;

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield create orders.ice
  icefield create names.ice --key u32 --value str --capacity 1000000
  icefield create blobs.ice --key '[u8; 16]' --value bytes --durability process";

/// Options for a new table, shared by `create` and `load --create`.
#[derive(clap::Args, Clone, Debug)]
pub struct NewTable {
    /// Use this table: dash-eh, dash-lh, iceberg or plush
    #[arg(long = "table", value_name = "NAME", default_value = DESIGN)]
    pub design: String,
    /// Make room for N records; the table grows beyond them
    #[arg(long, value_name = "N")]
    pub capacity: Option<u64>,
    /// Make writes survive what this durability covers: auto, process, pmem, pmem-forced (for tests), disk (also:
    /// always, or relaxed: every:MS, never)
    #[arg(long, value_name = "DURABILITY", default_value = "auto")]
    pub durability: Keeping,
    /// Limit the table to this number of bytes
    #[arg(long, value_name = "BYTES")]
    pub max_bytes: Option<u64>,
}

/// The default design.
const DESIGN: &str = "dash-eh";

impl NewTable {
    /// Returns whether any option other than the durability differs from its default.
    pub fn is_asked(&self) -> bool {
        self.design != DESIGN || self.capacity.is_some() || self.max_bytes.is_some()
    }
}

/// Create a new, empty table
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = after_long_help())]
pub struct Args {
    #[command(flatten)]
    table: TableArg,
    #[command(flatten)]
    new: NewTable,
    /// Store keys of this type
    #[arg(long = "key", visible_alias = "key-type", value_name = "TYPE", default_value = "u64", value_parser = canonical_type)]
    key_type: String,
    /// Store values of this type
    #[arg(long = "value", visible_alias = "value-type", value_name = "TYPE", default_value = "bytes", value_parser = canonical_type)]
    value_type: String,
    #[command(flatten)]
    json: JsonArgs,
}

fn after_long_help() -> String {
    format!("Types: {}\n(floats can be values only)\n\n{EXAMPLES}", text::TYPES)
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    with_output(&args.json, &[&args.table.table], |out| {
        let table = make(&args.table.table, &args.new, &args.key_type, &args.value_type)?;
        announce(&table, out)?;
        Ok(true)
    })
}

/// Creates the table.
pub fn make(
    path: &Path,
    new: &NewTable,
    key_type: &str,
    value_type: &str,
) -> Result<AnyTable, Failure> {
    if new.design == "join" {
        return Err(Failure::Usage(
            "--table join: a join index is built from files; use `icefield-sql build-index`"
                .to_owned(),
        ));
    }
    let Keeping { durability, sync } = new.durability;
    if durability == Durability::Memory {
        return Err(Failure::Usage(
            "--durability memory: the table would not outlive this command; choose another durability".to_owned(),
        ));
    }
    let options = AnyOptions {
        capacity: new.capacity,
        durability,
        sync,
        max_bytes: new.max_bytes,
        ..AnyOptions::default()
    };
    Ok(AnyTable::create(path, &new.design, key_type, value_type, &options)?)
}

/// Prints the new table, and a note about the failures that its durability does not cover.
pub fn announce(table: &AnyTable, out: &mut Output) -> Result<(), Failure> {
    let durability = table.stats().durability.unwrap_or_default();
    let path = shown_path(table.path());
    out.say(format_args!("created {path}: {}, durability {durability}", describe(table)))?;
    let warning = warning(durability);
    if let Some(warning) = warning {
        out.say(warning)?;
    }
    let line = Line::new()
        .field("created", &table.path().display().to_string())
        .field("design", table.design())
        .field("key", table.key_type())
        .field("value", table.value_type())
        .field("durability", &durability.to_string())
        .field("survives_power_cut", &warning.is_none());
    out.line(line)
}

/// Returns the warning that a new table of this durability needs, if there is one.
pub fn warning(durability: Durability) -> Option<&'static str> {
    match durability {
        Durability::Pmem | Durability::Disk => None,
        Durability::PmemForced => Some(
            "note: this file system is not persistent memory, so the table may not survive a power cut",
        ),
        Durability::Auto | Durability::Memory | Durability::Process => {
            Some("note: this medium survives the end of any process, but not a power cut")
        }
    }
}
