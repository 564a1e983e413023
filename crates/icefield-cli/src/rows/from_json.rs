//! Newline-delimited JSON: an object a line.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{BadRow, Columns, Input, LONGEST_BYTES, Row, RowResult, Schema, settle};
use crate::failure::Failure;
use crate::json::Line;

/// The rows of a JSON input.
pub struct JsonRows {
    lines: Lines,
    /// The lines that settling the columns has read already.
    pending: VecDeque<LineResult>,
}

/// A line with its number, from 1; the outer error ends reading.
type LineResult = io::Result<Result<(u64, String), BadRow>>;

/// How many lines may come before the first JSON object.
const FIRST_OBJECT_WITHIN: usize = 1000;

impl JsonRows {
    /// Reads up to the first object and settles the columns.
    pub fn open(input: Input, asked: &Columns) -> Result<(Self, Schema), Failure> {
        let mut lines =
            Lines { input: BufReader::with_capacity(1 << 16, input), number: 0, consumed: 0 };
        let mut pending = VecDeque::new();
        let mut names = Vec::new();
        // Lines that are no object are reported when their turn comes; the first that is one names the columns.
        while names.is_empty() && pending.len() < FIRST_OBJECT_WITHIN {
            let Some(line) = lines.next() else { break };
            if let Ok(Ok((_, text))) = &line
                && let Ok(Members(members)) = serde_json::from_str(text)
            {
                names = members.into_iter().map(|(name, _)| name).collect();
            }
            pending.push_back(line);
        }
        if names.is_empty() && pending.is_empty() {
            // An empty input has no rows, whatever their columns.
            names = vec![asked.key.clone().unwrap_or_else(|| "key".to_owned())];
            names.extend(asked.value.clone().or_else(|| Some("value".to_owned())));
        }
        let schema = settle(&names, asked)?;
        Ok((Self { lines, pending }, schema))
    }

    /// How many bytes of the input have been read so far.
    pub fn consumed(&self) -> u64 {
        self.lines.consumed
    }

    /// The next row.
    pub fn next(&mut self, schema: &Schema) -> Option<RowResult> {
        let line = self.pending.pop_front().or_else(|| self.lines.next())?;
        Some(line.map(|line| line.and_then(|(number, text)| row(number, &text, schema))))
    }
}

/// Lines of text that are not blank, with their numbers.
struct Lines {
    input: BufReader<Input>,
    number: u64,
    consumed: u64,
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
            if bytes.len() > LONGEST_BYTES {
                return bad(format!("more than {LONGEST_BYTES} bytes in a line"));
            }
            let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
            match std::str::from_utf8(bytes) {
                Ok(text) if text.trim().is_empty() => {}
                Ok(text) => return Some(Ok(Ok((self.number, text.to_owned())))),
                Err(_) => return bad("not UTF-8".to_owned()),
            }
        }
    }

    /// Reads a line, the excess of a very long one not; gives how many bytes there were.
    fn read_line(&mut self, bytes: &mut Vec<u8>) -> io::Result<u64> {
        let limit = LONGEST_BYTES as u64 + 1;
        let mut read = self.input.by_ref().take(limit).read_until(b'\n', bytes)? as u64;
        if read == limit && bytes.last() != Some(&b'\n') {
            read += self.input.skip_until(b'\n')? as u64;
        }
        self.number += 1;
        self.consumed += read;
        Ok(read)
    }
}

/// The members of a JSON object in their order, values as they were written.
struct Members<'a>(Vec<(String, &'a RawValue)>);

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

fn row(line: u64, text: &str, schema: &Schema) -> Result<Row, BadRow> {
    let bad = |reason| BadRow { line, reason };
    let Members(members) = serde_json::from_str(text).map_err(|error| bad(json_fault(&error)))?;
    let key = member(&members, &schema.key).map_err(bad)?;
    let value = match &schema.value {
        Some(column) => member(&members, column).map_err(bad)?,
        None => {
            let others = members.iter().filter(|(name, _)| *name != schema.key);
            others
                .fold(Line::new(), |object, (name, raw)| object.raw(name, raw.get()))
                .end()
                .into_bytes()
        }
    };
    Ok(Row { line, key, value })
}

/// A member's text: the content of a string, anything else as it is written.
fn member(members: &[(String, &RawValue)], column: &str) -> Result<Vec<u8>, String> {
    let mut found = members.iter().filter(|(name, _)| name == column).map(|(_, raw)| raw.get());
    let raw = found.next().ok_or_else(|| format!("no member `{column}`"))?;
    if found.next().is_some() {
        return Err(format!("two members `{column}`"));
    }
    match raw {
        "null" => Err(format!("`{column}` is null")),
        _ if raw.starts_with('"') => serde_json::from_str::<String>(raw)
            .map(String::into_bytes)
            .map_err(|error| json_fault(&error)),
        _ => Ok(raw.as_bytes().to_vec()),
    }
}

/// The parser's message; its own line numbers count from the row.
fn json_fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    format!("no JSON object: {text} at column {}", error.column())
}
