//! `icefield export`: a table as CSV or newline-delimited JSON, which `load` reads back.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use icefield::{AnyPage, AnyTable, Cursor};

use crate::failure::{Failure, Outcome};
use crate::json::{JsonArgs, Line, with_output};
use crate::progress;
use crate::rows::Format;
use crate::scan::PAGE;
use crate::table::{HexArg, TableArg, Types};

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield export orders.ice orders.csv
  icefield export orders.ice --format ndjson | gzip > orders.ndjson.gz
  icefield export old.ice | icefield load new.ice - --create

The columns are named key and value, as `load` expects them.";

/// Writes a table as CSV or newline-delimited JSON
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    table: TableArg,
    /// Where to; without it, or for `-`, standard output
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// How rows are written; without it what the file's name suggests (.ndjson, .jsonl, .json), else csv
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    hex: HexArg,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let to_stdout = args.file == Path::new("-");
    if to_stdout && args.json.takes_stdout() {
        return Err(Failure::Usage(
            "--json -: the rows go to standard output already; name a FILE for them".to_owned(),
        ));
    }
    with_output(&args.json, |out| {
        let table = AnyTable::open_read_only(&args.table.table)?;
        let types = Types::of(&table, args.hex);
        let format = args.format.unwrap_or_else(|| Format::of_file(&args.file));
        let sink: Box<dyn Write> = if to_stdout {
            Box::new(io::stdout())
        } else {
            Box::new(File::create(&args.file).map_err(|error| Failure::io(&args.file, &error))?)
        };
        let mut sink = BufWriter::with_capacity(1 << 16, sink);
        let records =
            write_all(&table, &types, format, &mut sink).map_err(|failure| match failure {
                WriteFailure::Table(error) => Failure::Table(error),
                WriteFailure::Io(error) => Failure::io(&args.file, &error),
            })?;
        if !to_stdout {
            out.say(format_args!("{}: {records} records", args.file.display()))?;
        }
        out.line(
            Line::new()
                .field("exported", &args.file.display().to_string())
                .field("records", &records),
        )?;
        Ok(true)
    })
}

enum WriteFailure {
    Table(icefield::Error),
    Io(io::Error),
}

impl From<icefield::Error> for WriteFailure {
    fn from(error: icefield::Error) -> Self {
        Self::Table(error)
    }
}

impl From<io::Error> for WriteFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn write_all(
    table: &AnyTable,
    types: &Types,
    format: Format,
    sink: &mut impl Write,
) -> Result<u64, WriteFailure> {
    let bar = progress::over_records("exporting", table.stats().len_estimate);
    if format == Format::Csv {
        sink.write_all(b"key,value\n")?;
    }
    let mut records = 0;
    let mut next = Some(Cursor::START);
    while let Some(cursor) = next {
        let page = table.scan(cursor, PAGE as usize)?;
        match format {
            Format::Csv => write_csv(&page, types, sink)?,
            Format::Ndjson => write_ndjson(&page, types, sink)?,
        }
        records += page.records.len() as u64;
        bar.set_position(records);
        next = page.next;
    }
    sink.flush()?;
    bar.finish_and_clear();
    Ok(records)
}

fn write_csv(page: &AnyPage, types: &Types, sink: &mut impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(sink);
    for (key, value) in &page.records {
        let row = [types.key.plain(key), types.value.plain(value)];
        writer.write_record(row).map_err(|error| match error.into_kind() {
            csv::ErrorKind::Io(error) => error,
            other => io::Error::other(format!("{other:?}")),
        })?;
    }
    writer.flush()
}

fn write_ndjson(page: &AnyPage, types: &Types, sink: &mut impl Write) -> io::Result<()> {
    for (key, value) in &page.records {
        let line =
            Line::new().raw("key", &types.key.json(key)).raw("value", &types.value.json(value));
        writeln!(sink, "{}", line.end())?;
    }
    Ok(())
}
