//! `icefield salvage`: rebuilds a table from the readable records of a damaged one.
//!
//! The new table is built in a hidden directory ([`icefield_console::site`]) and renamed when it is complete. Damaged records
//! are left out; with `--keep-damaged` they are written to a separate file.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use icefield::{AnyTable, DamagedRecord, Error, SalvageReport};

use crate::columns::Columns;
use crate::join_index;
use crate::table::{HexArg, TableArg, Types};
use crate::text::to_hex;
use icefield_console::destination::{Destination, is_stdout};
use icefield_console::failure::{Failure, Outcome};
use icefield_console::interrupt::Interrupt;
use icefield_console::json::{JsonArgs, Line, Output, with_output};
use icefield_console::progress;
use icefield_console::site::Site;
use icefield_console::terminal::{shown, shown_path};

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield salvage damaged.ice rescued.ice
  icefield salvage damaged.ice rescued.ice --keep-damaged damaged.ndjson

A record with a wrong checksum, place or type is left out of NEW. With --keep-damaged it is written to FILE, one
JSON object per line: the key as in `scan --json`, the record's place, the fault, and the stored key and value in
hexadecimal digits (numbers are little-endian); null for a part that cannot be read. NEW and FILE appear when they
are complete. A join index that was built from a file is not salvaged; build it again from that file.
Exit status: 0 everything could be read, 1 something was damaged or lost, 2 bad usage, 130 Ctrl-C";

/// Copy the readable records of a damaged table to a new one
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    table: TableArg,
    /// Create the new table in this directory; nothing may be there yet
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Write the remains of damaged records to FILE
    #[arg(long, value_name = "FILE")]
    keep_damaged: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArgs,
}

/// The number of losses that are reported individually.
const TOLD: usize = 10;

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let (table, new) = (args.table.table.as_path(), args.new.as_path());
    with_output(&args.json, &[table, new], |out| {
        if let Some(rebuild) = join_index::rebuild(table) {
            return Err(Failure::Usage(format!(
                "{}: a join index that was built from a file is not salvaged but built again; `icefield check` reports \
                 whether it is damaged; {rebuild}",
                shown_path(table)
            )));
        }
        let index = join_index::kind(table)?;
        let side = args.keep_damaged.as_deref().map(|file| side_file(args, file)).transpose()?;
        if is_taken(new) {
            return Err(Error::AlreadyExists { path: new.to_owned() }.into());
        }
        let site = Site::new(new, &[crate::columns::NAME])?;
        let report = match index {
            Some(index) => run_interruptibly(table, &site.path(), index.salvage)?,
            None => run_interruptibly(table, &site.path(), |table, new| {
                AnyTable::salvage_files(table, new)
            })?,
        };
        Columns::copy(table, &site.path())?;
        let hex = HexArg { hex: false };
        let types = match index {
            Some(index) => Types::named(index.key_type, "u64", hex),
            None => Types::of(&AnyTable::open_read_only(site.path())?, hex),
        };
        if let Some(side) = side {
            keep(&report.damaged, &types, side)?;
        }
        site.publish(false)?;
        tell(args, &report, &types, out)?;
        Ok(report.lost.is_empty())
    })
}

fn side_file(args: &Args, file: &Path) -> Result<Destination, Failure> {
    if is_stdout(file) {
        return Err(Failure::Usage(
            "--keep-damaged: the report goes to standard output; name another file".to_owned(),
        ));
    }
    let json = args.json.json.as_deref().filter(|_| !args.json.takes_stdout());
    let others: Vec<&Path> =
        [args.table.table.as_path(), &args.new].into_iter().chain(json).collect();
    Destination::create(file, &others)
}

/// Returns whether the path exists and is not an empty directory.
fn is_taken(new: &Path) -> bool {
    let is_empty = |mut entries: std::fs::ReadDir| entries.next().is_none();
    match new.symlink_metadata() {
        Ok(found) if found.is_dir() => !std::fs::read_dir(new).is_ok_and(is_empty),
        found => found.is_ok(),
    }
}

/// Runs the salvage on a second thread. After Ctrl-C, the thread is not stopped; it ends with the process.
fn run_interruptibly(
    table: &Path,
    new: &Path,
    salvage: fn(&Path, &Path) -> icefield::Result<SalvageReport>,
) -> Result<SalvageReport, Failure> {
    let interrupt = Interrupt::listen()?;
    let sign = progress::waiting("salvaging");
    let (sender, receiver) = channel();
    let (table, new) = (table.to_owned(), new.to_owned());
    thread::Builder::new()
        .name("salvage".to_owned())
        .spawn(move || sender.send(salvage(&table, &new)))
        .map_err(|error| Failure::Problem(format!("cannot start a thread: {error}")))?;
    let report = loop {
        match receiver.recv_timeout(Duration::from_millis(100)) {
            Ok(report) => break report.map_err(Failure::from),
            Err(RecvTimeoutError::Timeout) if interrupt.asked() => {
                break Err(Failure::Interrupted("interrupted; no table was made".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                break Err(Failure::Problem(
                    "the salvage thread ended without a result".to_owned(),
                ));
            }
        }
    };
    sign.finish_and_clear();
    report
}

/// Writes the damaged records to their file.
fn keep(damaged: &[DamagedRecord], types: &Types, side: Destination) -> Result<(), Failure> {
    let name = side.name().to_owned();
    let fault = |error: &std::io::Error| Failure::io(&name, error);
    let mut side = BufWriter::new(side);
    for record in damaged {
        let DamagedRecord { key, value, place, reason, .. } = record;
        let stored = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(to_hex);
        let readable = key.as_ref().map_or_else(|| "null".to_owned(), |key| types.key.json(key));
        let line = Line::new()
            .raw("key", &readable)
            .field("where", place)
            .field("reason", reason)
            .field("stored_key", &stored(key))
            .field("stored_value", &stored(value));
        writeln!(side, "{}", line.end()).map_err(|error| fault(&error))?;
    }
    side.into_inner().map_err(|error| fault(error.error()))?.finish()
}

fn tell(
    args: &Args,
    report: &SalvageReport,
    types: &Types,
    out: &mut Output,
) -> Result<(), Failure> {
    let SalvageReport { records, lost, damaged, .. } = report;
    // The damaged records are a subsequence of the losses, in the same order, so one pass matches them.
    let mut those = damaged.iter().peekable();
    for loss in lost.iter().take(TOLD) {
        let key = those.next_if(|record| record.to_string() == *loss).map(|record| &record.key);
        match key {
            Some(Some(key)) => {
                let (key, loss) = (types.key.named(key), shown(loss));
                out.say(format_args!("damaged: record {key}: {loss}"))?;
            }
            Some(None) => out.say(format_args!("damaged: a record: {}", shown(loss)))?,
            None => out.say(format_args!("lost: {}", shown(loss)))?,
        }
    }
    if lost.len() > TOLD {
        let all = match args.keep_damaged {
            Some(_) => "",
            None => "; --json and --keep-damaged list all",
        };
        out.say(format_args!("... and {} more losses{all}", lost.len() - TOLD))?;
    }
    let (count, others) = (damaged.len(), lost.len() - damaged.len());
    let kept = match &args.keep_damaged {
        Some(file) => format!(" (in {})", shown_path(file)),
        None => String::new(),
    };
    out.say(format_args!(
        "{}: {records} records rescued, {count} damaged{kept}, {others} other losses",
        shown_path(&args.new)
    ))?;
    let line = Line::new()
        .field("salvaged", &args.new.display().to_string())
        .field("records", records)
        .field("damaged", &count)
        .field("lost", lost);
    out.line(line)
}
