//! `icefield export`: writes a table as CSV or newline-delimited JSON, which `load` reads back.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use icefield::{AnyDamage, AnyTable, Cursor};

use crate::columns::Columns;
use crate::rows::{Dialect, DialectArgs, Format, Members, io_error, unquoted};
use crate::scan::{PAGE, tell_damage};
use crate::table::{HexArg, TableArg, Types, open_to_read};
use icefield_console::destination::{Destination, is_stdout};
use icefield_console::failure::{Failure, Outcome};
use icefield_console::interrupt::Interrupt;
use icefield_console::json::{JsonArgs, Line, Output, warn, with_output};
use icefield_console::progress;
use icefield_console::terminal::{shown, shown_path};

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield export orders.ice orders.csv
  icefield export orders.ice --format ndjson | gzip > orders.ndjson.gz
  icefield export orders.ice orders.tsv --null NA
  icefield export old.ice --raw | icefield load new.ice - --create

A table that `load` filled from a file is written with that file's columns; other tables, and all
tables with --raw, with the columns key and value, which `load` reads. The rows are not sorted. FILE
appears when it is complete. Damaged records, and records with other columns, are listed and left out.
Exit status: 0 every record was written, 1 some were left out, 2 bad usage, 130 Ctrl-C";

/// Write a table as CSV or newline-delimited JSON
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    table: TableArg,
    /// Write to FILE; without it, or for `-`, to standard output
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Write rows in this format; without it the one that the file's name suggests (.ndjson, .jsonl, .json), else
    /// csv
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    dialect: DialectArgs,
    /// Write the columns key and value, even if the table was loaded from other columns
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    hex: HexArg,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let to_stdout = is_stdout(&args.file);
    if to_stdout && args.json.takes_stdout() {
        return Err(Failure::Usage(
            "--json -: the rows go to standard output already; name a FILE for them".to_owned(),
        ));
    }
    let format = args.format.unwrap_or_else(|| Format::of_file(&args.file));
    let dialect = args.dialect.of(format, &args.file)?;
    let path = args.table.table.as_path();
    with_output(&args.json, &[path], |out| {
        let table = open_to_read(path)?;
        let columns = if args.raw { None } else { Columns::read(path)? };
        let shape = Shape { types: Types::of(&table, args.hex), columns, format, dialect };
        let reads: Vec<&Path> = [path].into_iter().chain(args.json.json.as_deref()).collect();
        let sink = Destination::create(&args.file, &reads)?;
        let interrupt = Interrupt::listen()?;
        let mut export = Export {
            sink: BufWriter::with_capacity(1 << 16, sink),
            shape,
            records: 0,
            left_out: 0,
            out,
        };
        export.all(&table, &interrupt)?;
        export.finish(args, to_stdout)
    })
}

/// The form in which rows are written.
struct Shape {
    types: Types,
    /// The columns of each row; `None` means the two columns key and value.
    columns: Option<Columns>,
    format: Format,
    dialect: Dialect,
}

struct Export<'a> {
    sink: BufWriter<Destination>,
    shape: Shape,
    records: u64,
    left_out: u64,
    out: &'a mut Output,
}

/// The number of skipped records that are reported individually.
const TOLD: u64 = 10;

impl Export<'_> {
    fn all(&mut self, table: &AnyTable, interrupt: &Interrupt) -> Result<(), Failure> {
        let bar = progress::over_records("exporting", table.stats().len_estimate);
        let header = self.shape.header();
        self.write(&header)?;
        let mut row = Vec::new();
        let mut next = Some(Cursor::START);
        while let Some(cursor) = next {
            if interrupt.asked() {
                return Err(Failure::Interrupted(
                    "interrupted; no complete file was written".to_owned(),
                ));
            }
            let page = table.scan(cursor, PAGE as usize)?;
            for (key, value) in &page.records {
                row.clear();
                match self.shape.row(key, value, &mut row) {
                    Ok(()) => {
                        self.records += 1;
                        self.write(&row)?;
                    }
                    Err(detail) => {
                        self.leave_out(&AnyDamage { key: Some(key.clone()), detail })?;
                    }
                }
            }
            for damage in &page.damaged {
                self.leave_out(damage)?;
            }
            bar.set_position(self.records);
            next = page.next;
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.sink.write_all(bytes);
        written.map_err(|error| Failure::io(self.sink.get_ref().name(), &error))
    }

    fn leave_out(&mut self, damage: &AnyDamage) -> Result<(), Failure> {
        self.left_out += 1;
        tell_damage(damage, &self.shape.types, self.left_out <= TOLD, self.out)
    }

    fn finish(self, args: &Args, to_stdout: bool) -> Outcome {
        let Self { sink, records, left_out, out, .. } = self;
        let name = sink.get_ref().name().to_owned();
        let sink = sink.into_inner().map_err(|error| Failure::io(&name, error.error()))?;
        sink.finish()?;
        if left_out > TOLD {
            warn(format_args!("... and {} more records", left_out - TOLD));
        }
        let but = if left_out == 0 { String::new() } else { format!(", {left_out} left out") };
        if to_stdout && left_out > 0 {
            warn(format_args!("{records} records written{but}"));
        } else if !to_stdout {
            out.say(format_args!("{}: {records} records{but}", shown_path(&args.file)))?;
        }
        out.line(
            Line::new()
                .field("exported", &args.file.display().to_string())
                .field("records", &records)
                .field("left_out", &left_out),
        )?;
        Ok(left_out == 0)
    }
}

impl Shape {
    fn header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        if self.format == Format::Csv && self.dialect.header {
            let names: Vec<&[u8]> = match &self.columns {
                Some(columns) => columns.columns.iter().map(|name| name.as_bytes()).collect(),
                None => vec![b"key", b"value"],
            };
            // Writes to memory do not fail.
            let _ = self.csv(&names, &mut header);
        }
        header
    }

    /// Writes a record, or returns the reason why the format cannot represent it.
    fn row(&self, key: &[u8], value: &[u8], row: &mut Vec<u8>) -> Result<(), String> {
        match (self.format, &self.columns) {
            (Format::Csv, None) => {
                self.csv(&[&self.types.key.text(key), &self.types.value.text(value)], row)
            }
            (Format::Csv, Some(columns)) => self.csv_columns(columns, key, value, row),
            (Format::Ndjson, columns) => {
                if !self.types.key.is_utf8(key) || !self.types.value.is_utf8(value) {
                    return Err(
                        "bytes that are not UTF-8 cannot be written as JSON; use --hex or CSV"
                            .to_owned(),
                    );
                }
                let line = match columns {
                    Some(columns) => self.json_columns(columns, key, value)?,
                    None => Line::new()
                        .raw("key", &self.types.key.json(key))
                        .raw("value", &self.types.value.json(value)),
                };
                row.extend_from_slice(line.end().as_bytes());
                row.push(b'\n');
                Ok(())
            }
        }
    }

    fn csv(&self, fields: &[&[u8]], row: &mut Vec<u8>) -> Result<(), String> {
        let mut builder = csv::WriterBuilder::new();
        let mut writer = builder.delimiter(self.dialect.delimiter).from_writer(row);
        let written = writer.write_record(fields).map_err(io_error);
        written.and_then(|()| writer.flush()).map_err(|error: io::Error| error.to_string())
    }

    fn csv_columns(
        &self,
        columns: &Columns,
        key: &[u8],
        value: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<(), String> {
        let members = self.members(columns, value)?;
        if let Some(name) = members.keys().find(|name| !columns.columns.contains(name)) {
            return Err(format!(
                "it has a column `{}` that the table's file did not have; export it with --raw or --format ndjson",
                shown(name)
            ));
        }
        let null = || self.dialect.null.clone().unwrap_or_default().into_bytes();
        let (key, value) = (self.types.key.text(key), self.types.value.text(value));
        let mut fields = Vec::with_capacity(columns.columns.len());
        for name in &columns.columns {
            fields.push(if Some(name) == columns.key.as_ref() {
                key.to_vec()
            } else if Some(name) == columns.value.as_ref() {
                value.to_vec()
            } else {
                match members.get(name.as_str()) {
                    None | Some(&"null") => null(),
                    Some(raw) => match unquoted(raw) {
                        None => raw.as_bytes().to_vec(),
                        Some(text) => text.map_err(|error| error.to_string())?.into_bytes(),
                    },
                }
            });
        }
        self.csv(&fields.iter().map(Vec::as_slice).collect::<Vec<_>>(), row)
    }

    fn json_columns(&self, columns: &Columns, key: &[u8], value: &[u8]) -> Result<Line, String> {
        let mut members = self.members(columns, value)?;
        let mut line = Line::new();
        for name in &columns.columns {
            if Some(name) == columns.key.as_ref() {
                line = line.raw(name, &self.types.key.json(key));
            } else if Some(name) == columns.value.as_ref() {
                line = line.raw(name, &self.types.value.json(value));
            } else if let Some(raw) = members.remove(name.as_str()) {
                line = line.raw(name, raw);
            }
        }
        // Appends the members that the first row of the file did not have.
        let mut others: Vec<_> = members.into_iter().collect();
        others.sort_unstable();
        Ok(others.into_iter().fold(line, |line, (name, raw)| line.raw(&name, raw)))
    }

    /// Returns the members of a value that is a JSON object of columns; none if the value is a single column.
    fn members<'a>(
        &self,
        columns: &Columns,
        value: &'a [u8],
    ) -> Result<HashMap<String, &'a str>, String> {
        if columns.value.is_some() {
            return Ok(HashMap::new());
        }
        match serde_json::from_slice::<Members<'_>>(value) {
            Ok(Members(members)) => {
                Ok(members.into_iter().map(|(name, raw)| (name, raw.get())).collect())
            }
            Err(_) => {
                Err("its value is not a JSON object of the table's columns; export it with --raw"
                    .to_owned())
            }
        }
    }
}
