//! Output of commands: text for people, or one JSON object per line for programs.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::destination::{Destination, refuse_reads};
use crate::failure::{Failure, Outcome};
use crate::terminal::{shown_json, shown_lines};

/// The option that every command has.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct JsonArgs {
    /// Also write machine-readable lines, one JSON object each, to FILE; `-` writes them to standard output instead
    /// of the ordinary text
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

impl JsonArgs {
    /// Returns whether standard output carries JSON lines only.
    pub fn takes_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }
}

/// The destination of a command's results.
pub struct Output {
    stdout: Box<dyn Write>,
    json: Json,
}

/// The destination of JSON lines.
enum Json {
    Nowhere,
    /// Standard output, which then carries no other text.
    Stdout,
    File(BufWriter<Destination>),
}

impl Output {
    fn new(args: &JsonArgs, reads: &[&Path]) -> Result<Self, Failure> {
        refuse_reads(Path::new("-"), reads)?;
        let json = match &args.json {
            None => Json::Nowhere,
            Some(_) if args.takes_stdout() => Json::Stdout,
            Some(path) => Json::File(BufWriter::new(Destination::create(path, reads)?)),
        };
        Ok(Self { stdout: stdout(), json })
    }

    /// Prints lines for people, unless standard output is for JSON. Control characters are escaped.
    pub fn say(&mut self, lines: impl Display) -> Result<(), Failure> {
        match self.json {
            Json::Stdout => Ok(()),
            _ => Ok(writeln!(self.stdout, "{}", shown_lines(&lines.to_string()))?),
        }
    }

    /// Prints the raw bytes of a value. On a terminal, prints them as text with [`Output::say`].
    pub fn say_exactly(&mut self, value: &[u8]) -> Result<(), Failure> {
        match self.json {
            Json::Stdout => return Ok(()),
            _ if io::stdout().is_terminal() => {
                return self.say(String::from_utf8_lossy(value));
            }
            _ => self.stdout.write_all(value)?,
        }
        Ok(self.stdout.write_all(b"\n")?)
    }

    /// Returns whether JSON lines are written. If not, a caller need not build them.
    pub fn wants_json(&self) -> bool {
        !matches!(self.json, Json::Nowhere)
    }

    /// Writes a JSON line if JSON output is requested.
    pub fn line(&mut self, line: Line) -> Result<(), Failure> {
        let line = line.end();
        let line = shown_json(&line);
        match &mut self.json {
            Json::Nowhere => Ok(()),
            Json::Stdout => Ok(writeln!(self.stdout, "{line}")?),
            Json::File(file) => {
                writeln!(file, "{line}").map_err(|error| Failure::io(file.get_ref().name(), &error))
            }
        }
    }

    /// Flushes standard output.
    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.stdout.flush()?)
    }

    /// Completes the output. A file of JSON lines appears under its name only now.
    fn finish(mut self) -> Result<(), Failure> {
        self.flush()?;
        let Json::File(file) = self.json else { return Ok(()) };
        let name = file.get_ref().name().to_owned();
        let file = file.into_inner().map_err(|error| Failure::io(&name, error.error()))?;
        file.finish()
    }
}

/// Returns standard output: line-buffered on a terminal, block-buffered otherwise.
fn stdout() -> Box<dyn Write> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        Box::new(stdout)
    } else {
        Box::new(BufWriter::with_capacity(1 << 16, stdout))
    }
}

/// Runs a command with its output. If the command fails, the error is also written as a JSON line. No output, including
/// a redirected standard output, may be one of `reads`, the files and tables that the command reads.
pub fn with_output(
    args: &JsonArgs,
    reads: &[&Path],
    command: impl FnOnce(&mut Output) -> Outcome,
) -> Outcome {
    let mut out = Output::new(args, reads)?;
    let outcome = command(&mut out);
    match outcome {
        // The output is incomplete, so a file of JSON lines does not appear under its name.
        Err(Failure::BrokenPipe) => outcome,
        Ok(_) => out.finish().and(outcome),
        Err(failure) => {
            // Return the command's failure even if its JSON line cannot be written.
            let line = out.line(Line::new().field("error", &failure.to_string()));
            drop(line.and_then(|()| out.finish()));
            Err(failure)
        }
    }
}

/// Prints a warning on standard error; ignores errors.
pub fn warn(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", shown_lines(&line.to_string()));
}

/// A JSON object that is being built.
pub struct Line(String);

impl Default for Line {
    /// Returns an object without members.
    fn default() -> Self {
        Self(String::from("{"))
    }
}

impl Line {
    /// Returns an object without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member.
    pub fn field(self, name: &str, value: &(impl Serialize + ?Sized)) -> Self {
        // Serialization fails only for maps whose keys are not strings; our callers have none.
        let value = serde_json::to_string(value).unwrap_or_else(|_| String::from("null"));
        self.raw(name, &value)
    }

    /// Adds a member whose value is JSON already.
    pub fn raw(mut self, name: &str, json: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(json);
        self
    }

    /// Returns the object's text.
    pub fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Returns `text` as a JSON string.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
