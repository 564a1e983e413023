//! `icefield get`, `put` and `del`: single records.

use icefield::AnyTable;

use crate::failure::Outcome;
use crate::json::{JsonArgs, Line, warn, with_output};
use crate::table::{HexArg, KeepingArg, TableArg, Types, argument};

/// Examples for `get --help`.
pub const GET_EXAMPLES: &str = "\
Examples:
  icefield get orders.ice 7
  icefield get orders.ice 7 8 9 --json -
  icefield get blobs.ice 0xdeadbeef --hex

With one key only its value is printed; with several, each key, a tab and its value.
Exit status: 0 all found, 1 a key is absent, 2 bad usage";

/// Examples for `put --help`.
pub const PUT_EXAMPLES: &str = "\
Examples:
  icefield put orders.ice 7 seven
  icefield put blobs.ice 7 0xdeadbeef
  icefield put scores.ice -- -7 -0.5";

/// Examples for `del --help`.
pub const DEL_EXAMPLES: &str = "\
Examples:
  icefield del orders.ice 7
  icefield del orders.ice 7 8 9

A key that is absent is told, and no problem: exit status 0";

/// Prints the values of keys
#[derive(clap::Args, Debug)]
#[command(after_help = GET_EXAMPLES)]
pub struct GetArgs {
    #[command(flatten)]
    table: TableArg,
    /// The keys, as text of the table's key type
    #[arg(value_name = "KEY", required = true, allow_negative_numbers = true)]
    keys: Vec<String>,
    #[command(flatten)]
    hex: HexArg,
    #[command(flatten)]
    json: JsonArgs,
}

/// Inserts a record, or replaces its value
#[derive(clap::Args, Debug)]
#[command(after_help = PUT_EXAMPLES)]
pub struct PutArgs {
    #[command(flatten)]
    table: TableArg,
    /// The key, as text of the table's key type
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    key: String,
    /// The value, as text of the table's value type
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    value: String,
    #[command(flatten)]
    keeping: KeepingArg,
    #[command(flatten)]
    hex: HexArg,
    #[command(flatten)]
    json: JsonArgs,
}

/// Removes records
#[derive(clap::Args, Debug)]
#[command(after_help = DEL_EXAMPLES)]
pub struct DelArgs {
    #[command(flatten)]
    table: TableArg,
    /// The keys, as text of the table's key type
    #[arg(value_name = "KEY", required = true, allow_negative_numbers = true)]
    keys: Vec<String>,
    #[command(flatten)]
    keeping: KeepingArg,
    #[command(flatten)]
    hex: HexArg,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs `get`.
pub fn get(args: &GetArgs) -> Outcome {
    with_output(&args.json, |out| {
        let table = AnyTable::open_read_only(&args.table.table)?;
        let types = Types::of(&table, args.hex);
        let keys = types.keys(&args.keys)?;
        let found = table.get_batch(&slices(&keys))?;
        for (key, value) in keys.iter().zip(&found) {
            let line =
                Line::new().raw("key", &types.key.json(key)).field("found", &value.is_some());
            match value {
                Some(value) if keys.len() == 1 => out.say(types.value.plain(value))?,
                Some(value) => out.say(format_args!(
                    "{}\t{}",
                    types.key.listed(key),
                    types.value.listed(value)
                ))?,
                None => warn(format_args!("{}: absent", types.key.listed(key))),
            }
            out.line(match value {
                Some(value) => line.raw("value", &types.value.json(value)),
                None => line,
            })?;
        }
        Ok(found.iter().all(Option::is_some))
    })
}

/// Runs `put`.
pub fn put(args: &PutArgs) -> Outcome {
    with_output(&args.json, |out| {
        let table = args.table.open(args.keeping.durability)?;
        let types = Types::of(&table, args.hex);
        let key = argument("KEY", &types.key, &args.key)?;
        let value = argument("VALUE", &types.value, &args.value)?;
        let previous = table.insert(&key, &value)?;
        out.say(if previous.is_some() { "replaced" } else { "inserted" })?;
        let line =
            Line::new().raw("key", &types.key.json(&key)).raw("value", &types.value.json(&value));
        let previous =
            previous.map_or_else(|| "null".to_owned(), |previous| types.value.json(&previous));
        out.line(line.raw("previous", &previous))?;
        Ok(true)
    })
}

/// Runs `del`.
pub fn del(args: &DelArgs) -> Outcome {
    with_output(&args.json, |out| {
        let table = args.table.open(args.keeping.durability)?;
        let types = Types::of(&table, args.hex);
        let keys = types.keys(&args.keys)?;
        let removed = table.remove_batch(&slices(&keys))?;
        for (key, value) in keys.iter().zip(&removed) {
            if value.is_none() {
                warn(format_args!("{}: absent", types.key.listed(key)));
            }
            out.line(
                Line::new().raw("key", &types.key.json(key)).field("removed", &value.is_some()),
            )?;
        }
        out.say(format_args!("removed {}", removed.iter().flatten().count()))?;
        Ok(true)
    })
}

fn slices(keys: &[Vec<u8>]) -> Vec<&[u8]> {
    keys.iter().map(Vec::as_slice).collect()
}
