//! Newline-delimited JSON: one object per line.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::row::{BadRow, Input, Row, RowResult};
use super::schema::{Columns, Schema, settle};
use icefield_console::failure::Failure;
use icefield_console::json::Line;
use icefield_console::terminal::shown;

/// The longest line of JSON: key and value of the greatest length that tables accept (16 MiB each), as six characters
/// per byte (`\u0001`), and 1 MiB for names and other columns.
const LONGEST_LINE_BYTES: usize = 193 << 20;

/// The rows of a JSON input.
pub struct JsonRows {
    lines: Lines,
    /// Lines that were read while selecting the columns.
    pending: VecDeque<LineResult>,
    /// The number of rows read so far, including malformed ones.
    number: u64,
}

/// A line with its number, from 1. The inner error is a malformed line; the outer error ends reading.
type LineResult = io::Result<Result<(u64, String), BadRow>>;

/// The first JSON object must begin within this number of lines and about this number of bytes.
const FIRST_OBJECT_WITHIN: usize = 1000;
const FIRST_OBJECT_WITHIN_BYTES: usize = 1 << 20;

impl JsonRows {
    /// Reads up to the first object and selects the columns.
    pub fn open(input: Input, asked: &Columns) -> Result<(Self, Schema), Failure> {
        let mut lines = Lines { input: BufReader::with_capacity(1 << 16, input), number: 0 };
        let mut pending = VecDeque::new();
        let (mut names, mut bytes, mut first_fault) = (Vec::new(), 0, None);
        // The first object names the columns. Earlier lines, which are not objects, are kept and reported in order by
        // `next`.
        while names.is_empty()
            && pending.len() < FIRST_OBJECT_WITHIN
            && bytes < FIRST_OBJECT_WITHIN_BYTES
        {
            let Some(line) = lines.next() else { break };
            let fault = match &line {
                Ok(Ok((number, text))) => {
                    bytes += text.len();
                    match serde_json::from_str(text) {
                        Ok(Members(members)) => {
                            names = members.into_iter().map(|(name, _)| name).collect();
                            (number, "an object without members".to_owned())
                        }
                        Err(error) => (number, json_fault(&error)),
                    }
                }
                Ok(Err(bad)) => (&bad.line, bad.reason.clone()),
                Err(error) => return Err(Failure::Problem(format!("the input: {error}"))),
            };
            first_fault.get_or_insert_with(|| format!("line {}: {}", fault.0, fault.1));
            pending.push_back(line);
        }
        if let Some(fault) = first_fault.filter(|_| names.is_empty()) {
            return Err(Failure::Problem(format!(
                "no JSON object among the first lines, so the columns have no names; {fault}"
            )));
        }
        if names.is_empty() {
            // An input without lines has no rows, so the names of its columns do not matter.
            names = vec![asked.key.clone().unwrap_or_else(|| "key".to_owned())];
            names.extend(asked.value.clone().or_else(|| Some("value".to_owned())));
        }
        let schema = settle(&names, asked)?;
        Ok((Self { lines, pending, number: 0 }, schema))
    }

    /// Returns the next row.
    pub fn next(&mut self, schema: &Schema) -> Option<RowResult> {
        let line = self.pending.pop_front().or_else(|| self.lines.next())?;
        self.number += 1;
        Some(line.map(|line| line.and_then(|(line, text)| row(line, self.number, &text, schema))))
    }
}

/// Lines of text that are not blank, with their numbers.
struct Lines {
    input: BufReader<Input>,
    number: u64,
}

impl Lines {
    fn next(&mut self) -> Option<LineResult> {
        loop {
            let mut bytes = Vec::new();
            match self.read_line(&mut bytes) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
            let bad = |reason| Some(Ok(Err(BadRow { line: self.number, reason })));
            if bytes.len() > LONGEST_LINE_BYTES {
                return bad(format!("more than {LONGEST_LINE_BYTES} bytes in a line"));
            }
            match String::from_utf8(bytes) {
                Ok(text) if text.trim().is_empty() => {}
                Ok(text) => return Some(Ok(Ok((self.number, text)))),
                Err(_) => return bad("not UTF-8".to_owned()),
            }
        }
    }

    /// Reads a line. Stores at most one byte more than the limit, and returns the line's full length.
    fn read_line(&mut self, bytes: &mut Vec<u8>) -> io::Result<u64> {
        let limit = LONGEST_LINE_BYTES as u64 + 1;
        let mut read = self.input.by_ref().take(limit).read_until(b'\n', bytes)? as u64;
        if read == limit && bytes.last() != Some(&b'\n') {
            read += self.input.skip_until(b'\n')? as u64;
        }
        self.number += 1;
        Ok(read)
    }
}

/// The members of a JSON object in order, with their values as written.
pub struct Members<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

fn row(line: u64, number: u64, text: &str, schema: &Schema) -> Result<Row, BadRow> {
    let bad = |reason| BadRow { line, reason };
    let Members(members) = serde_json::from_str(text).map_err(|error| bad(json_fault(&error)))?;
    let key = match &schema.key {
        Some(column) => member(&members, column).map_err(bad)?,
        None => number.to_string().into_bytes(),
    };
    let value = match &schema.value {
        Some(column) => member(&members, column).map_err(bad)?,
        None => object(&members, schema.key.as_deref()).map_err(bad)?,
    };
    Ok(Row { line, key, value })
}

/// Returns all members but the key as a JSON object.
fn object(members: &[(String, &RawValue)], key: Option<&str>) -> Result<Vec<u8>, String> {
    let (mut object, mut names) = (Line::new(), HashSet::new());
    for (name, raw) in members.iter().filter(|(name, _)| Some(name.as_str()) != key) {
        if !names.insert(name) {
            return Err(format!("two members `{}`", shown(name)));
        }
        object = object.raw(name, raw.get());
    }
    Ok(object.end().into_bytes())
}

/// Returns the text of the member `column`: the content of a string, or any other value as written.
fn member(members: &[(String, &RawValue)], column: &str) -> Result<Vec<u8>, String> {
    let mut found = members.iter().filter(|(name, _)| name == column).map(|(_, raw)| raw.get());
    let name = shown(column);
    let raw = found.next().ok_or_else(|| format!("no member `{name}`"))?;
    if found.next().is_some() {
        return Err(format!("two members `{name}`"));
    }
    match raw {
        "null" => Err(format!("`{name}` is null")),
        _ => match unquoted(raw) {
            None => Ok(raw.as_bytes().to_vec()),
            Some(text) => text.map(String::into_bytes).map_err(|error| json_fault(&error)),
        },
    }
}

/// Returns the content of a JSON string; `None` for JSON that is not a string.
pub fn unquoted(raw: &str) -> Option<serde_json::Result<String>> {
    raw.starts_with('"').then(|| serde_json::from_str(raw))
}

/// Returns the parser's message, without its line numbers, which are relative to the row.
fn json_fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    format!("not a JSON object: {text} at column {}", error.column())
}
