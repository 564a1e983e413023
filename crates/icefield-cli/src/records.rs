//! `icefield get`, `put` and `del`: access single records.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use icefield::{AnyTable, Error};

use crate::rows::{self, BadRow, Input};
use crate::table::{HexArg, KeepingArg, TableArg, Types, argument, open_to_read};
use icefield_console::failure::{Failure, Outcome};
use icefield_console::json::{JsonArgs, Line, Output, warn, with_output};

/// Examples for `get --help`.
pub const GET_EXAMPLES: &str = "\
Examples:
  icefield get orders.ice 7
  icefield get orders.ice 7 8 9 --json -
  icefield get blobs.ice 0xdeadbeef --hex

With one key, only its value is printed, unchanged; with several keys, each key, a tab and its value
on a line, as `icefield scan` prints them.
Exit status: 0 all found, 1 a key is absent or its record damaged, 2 bad usage";

/// Examples for `put --help`.
pub const PUT_EXAMPLES: &str = "\
Examples:
  icefield put orders.ice 7 seven
  icefield put blobs.ice 7 0xdeadbeef --hex
  icefield put scores.ice -- -7 -0.5";

/// Examples for `del --help`.
pub const DEL_EXAMPLES: &str = "\
Examples:
  icefield del orders.ice 7
  icefield del orders.ice 7 8 9
  icefield del orders.ice --from cancelled.txt
  grep -l spam mails/* | icefield del mails.ice --from -

--from reads one key per line, also from gzip or zstd, and makes 1024 removals durable at once. A key that is
absent is reported; the exit status is still 0. A line that is not a key is reported and skipped: exit status 1";

/// Print the values of keys
#[derive(clap::Args, Debug)]
#[command(after_help = GET_EXAMPLES)]
pub struct GetArgs {
    #[command(flatten)]
    table: TableArg,
    /// Look up these keys, as text of the table's key type
    #[arg(value_name = "KEY", required = true, allow_negative_numbers = true)]
    keys: Vec<String>,
    #[command(flatten)]
    hex: HexArg,
    #[command(flatten)]
    json: JsonArgs,
}

/// Insert a record, or replace its value
#[derive(clap::Args, Debug)]
#[command(after_help = PUT_EXAMPLES)]
pub struct PutArgs {
    #[command(flatten)]
    table: TableArg,
    /// Store under this key, as text of the table's key type
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    key: String,
    /// Store this value, as text of the table's value type
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    value: String,
    #[command(flatten)]
    keeping: KeepingArg,
    #[command(flatten)]
    hex: HexArg,
    #[command(flatten)]
    json: JsonArgs,
}

/// Remove records
#[derive(clap::Args, Debug)]
#[command(after_help = DEL_EXAMPLES)]
pub struct DelArgs {
    #[command(flatten)]
    table: TableArg,
    /// Remove these keys, as text of the table's key type
    #[arg(value_name = "KEY", required_unless_present = "from", allow_negative_numbers = true)]
    keys: Vec<String>,
    /// Read the keys from a file, one per line; `-` is standard input
    #[arg(long, value_name = "FILE|-", conflicts_with = "keys")]
    from: Option<PathBuf>,
    #[command(flatten)]
    keeping: KeepingArg,
    #[command(flatten)]
    hex: HexArg,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs `get`.
pub fn get(args: &GetArgs) -> Outcome {
    with_output(&args.json, &[&args.table.table], |out| {
        let table = open_to_read(&args.table.table)?;
        let types = Types::of(&table, args.hex);
        let keys = types.keys(&args.keys)?;
        let found = match table.get_batch(&slices(&keys)) {
            Ok(found) => found.into_iter().map(Ok).collect(),
            // A damaged record fails the whole batch, so the keys are read one by one.
            Err(Error::Corrupt { .. }) => keys.iter().map(|key| table.get(key)).collect(),
            Err(error) => return Err(error.into()),
        };
        let found: Vec<icefield::Result<Option<Vec<u8>>>> = found;
        let mut all_found = true;
        for (key, value) in keys.iter().zip(found) {
            let line = Line::new().raw("key", &types.key.json(key));
            let listed = types.key.listed(key);
            all_found &= matches!(value, Ok(Some(_)));
            let line = match &value {
                Ok(Some(value)) => {
                    match keys.len() {
                        1 => out.say_exactly(&types.value.text(value))?,
                        _ => out.say(format_args!("{listed}\t{}", types.value.listed(value)))?,
                    }
                    line.field("found", &true).raw("value", &types.value.json(value))
                }
                Ok(None) => {
                    warn(format_args!("{listed}: absent"));
                    line.field("found", &false)
                }
                Err(error) => {
                    warn(format_args!("{listed}: damaged: {error}"));
                    line.field("found", &true).field("damaged", &error.to_string())
                }
            };
            out.line(line)?;
        }
        Ok(all_found)
    })
}

/// Runs `put`.
pub fn put(args: &PutArgs) -> Outcome {
    with_output(&args.json, &[&args.table.table], |out| {
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

/// Number of keys of a file that are removed in one batch.
const BATCH: usize = 1024;
/// The maximum number of absent keys of a file that are reported individually, and of lines that are not keys.
const TOLD: u64 = 10;

/// Runs `del`.
pub fn del(args: &DelArgs) -> Outcome {
    let reads = [Some(args.table.table.as_path()), args.from.as_deref()];
    let reads: Vec<&Path> = reads.into_iter().flatten().collect();
    with_output(&args.json, &reads, |out| {
        let table = args.table.open(args.keeping.durability)?;
        let types = Types::of(&table, args.hex);
        let mut del = Del { table, types, removed: 0, absent: 0, told: u64::MAX, out };
        let mut malformed = 0;
        match &args.from {
            None => {
                let keys = del.types.keys(&args.keys)?;
                del.keys(&keys)?;
            }
            Some(file) => {
                del.told = TOLD;
                malformed = del.lines(KeyLines::open(file)?)?;
            }
        }
        let Del { removed, absent, told, out, .. } = del;
        if absent > told {
            warn(format_args!("... and {} more absent keys", absent - told));
        }
        if malformed > TOLD {
            warn(format_args!("... and {} more malformed lines", malformed - TOLD));
        }
        out.say(format_args!("removed {removed}"))?;
        Ok(malformed == 0)
    })
}

struct Del<'a> {
    table: AnyTable,
    types: Types,
    removed: u64,
    absent: u64,
    /// The maximum number of absent keys that are reported individually.
    told: u64,
    out: &'a mut Output,
}

impl Del<'_> {
    fn keys(&mut self, keys: &[Vec<u8>]) -> Result<(), Failure> {
        // Presence is checked before the removal, because the removal of a damaged record cannot report whether it was
        // present. A repeated key counts once. Between the two steps, no other process can change the table.
        let mut seen = HashSet::new();
        let mut present = Vec::with_capacity(keys.len());
        for key in keys {
            present.push(seen.insert(key) && self.table.contains(key)?);
        }
        match self.table.remove_batch(&slices(keys)) {
            Ok(_) => {}
            Err(error @ Error::Corrupt { .. }) => {
                for key in keys {
                    if self.table.contains(key)? {
                        return Err(error.into());
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
        for (key, present) in keys.iter().zip(present) {
            if present {
                self.removed += 1;
            } else {
                self.absent += 1;
                if self.absent <= self.told {
                    warn(format_args!("{}: absent", self.types.key.listed(key)));
                }
            }
            let line = Line::new().raw("key", &self.types.key.json(key));
            self.out.line(line.field("removed", &present))?;
        }
        Ok(())
    }

    /// Removes the keys listed in a file. Returns the number of lines that are not keys.
    fn lines(&mut self, mut lines: KeyLines) -> Result<u64, Failure> {
        let (mut keys, mut malformed) = (Vec::new(), 0);
        while let Some(line) = lines.next()? {
            let key = line.and_then(|text| {
                let key = self.types.key.parse(&text);
                key.map_err(|reason| BadRow { line: lines.number, reason })
            });
            match key {
                Ok(key) => keys.push(key),
                Err(bad) => {
                    malformed += 1;
                    if malformed <= TOLD {
                        warn(&bad);
                    }
                    let line = Line::new().field("line", &bad.line);
                    self.out.line(line.field("rejected", &bad.reason))?;
                }
            }
            if keys.len() >= BATCH {
                self.keys(&std::mem::take(&mut keys))?;
            }
        }
        self.keys(&keys)?;
        Ok(malformed)
    }
}

/// A reader of keys, one per line.
struct KeyLines {
    input: BufReader<Input>,
    number: u64,
}

/// The longest line: a key of the greatest length that tables accept (16 MiB), as two hexadecimal digits per byte.
const LONGEST_KEY_BYTES: u64 = 33 << 20;

impl KeyLines {
    fn open(file: &Path) -> Result<Self, Failure> {
        let input: Input = match file == Path::new("-") {
            true => Box::new(io::stdin()),
            false => Box::new(File::open(file).map_err(|error| Failure::io(file, &error))?),
        };
        Ok(Self { input: BufReader::new(rows::text(input)?), number: 0 })
    }

    /// Returns the next line without its line end; `None` after the last one.
    fn next(&mut self) -> Result<Option<Result<Vec<u8>, BadRow>>, Failure> {
        let fault = |error: io::Error| Failure::Problem(format!("the input: {error}"));
        let mut line = Vec::new();
        let read = self.input.by_ref().take(LONGEST_KEY_BYTES).read_until(b'\n', &mut line);
        if read.map_err(fault)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if line.len() as u64 == LONGEST_KEY_BYTES && !line.ends_with(b"\n") {
            self.input.skip_until(b'\n').map_err(fault)?;
            let reason = format!("more than {LONGEST_KEY_BYTES} bytes in a line");
            return Ok(Some(Err(BadRow { line: self.number, reason })));
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        Ok(Some(Ok(text.strip_suffix(b"\r").unwrap_or(text).to_vec())))
    }
}

fn slices(keys: &[Vec<u8>]) -> Vec<&[u8]> {
    keys.iter().map(Vec::as_slice).collect()
}
