//! What commands print: words for people, or one JSON object a line for programs.

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
    /// Also write machine-readable lines, one JSON object each, to FILE; `-` writes them to standard output instead of
    /// the ordinary text
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

impl JsonArgs {
    /// Whether standard output is for JSON lines alone.
    pub fn takes_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }
}

/// Where a command's results go.
pub struct Output {
    stdout: Box<dyn Write>,
    json: Json,
}

/// Where JSON lines go.
enum Json {
    Nowhere,
    /// To standard output, where no text for people goes then.
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

    /// Prints a value as it is, where a program may read it; on a terminal as [`Output::say`].
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

    /// Whether JSON lines are wanted: making them may cost something.
    pub fn wants_json(&self) -> bool {
        !matches!(self.json, Json::Nowhere)
    }

    /// Writes a JSON line, if they are wanted.
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

    /// Brings everything printed so far to its reader.
    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.stdout.flush()?)
    }

    /// Ends the output; a file of JSON lines gets its name.
    fn finish(mut self) -> Result<(), Failure> {
        self.flush()?;
        let Json::File(file) = self.json else { return Ok(()) };
        let name = file.get_ref().name().to_owned();
        let file = file.into_inner().map_err(|error| Failure::io(&name, error.error()))?;
        file.finish()
    }
}

/// Standard output: by lines on a terminal, in blocks elsewhere.
fn stdout() -> Box<dyn Write> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        Box::new(stdout)
    } else {
        Box::new(BufWriter::with_capacity(1 << 16, stdout))
    }
}

/// Runs a command with its output; a failure becomes a JSON line too. No output may be one of the files and tables that
/// the command reads.
pub fn with_output(
    args: &JsonArgs,
    reads: &[&Path],
    command: impl FnOnce(&mut Output) -> Outcome,
) -> Outcome {
    let mut out = Output::new(args, reads)?;
    let outcome = command(&mut out);
    match outcome {
        // The output is not complete, so a file of it gets no name.
        Err(Failure::BrokenPipe) => outcome,
        Ok(_) => out.finish().and(outcome),
        Err(failure) => {
            // The failure itself is what the user must see, whatever happens to its JSON line.
            let line = out.line(Line::new().field("error", &failure.to_string()));
            drop(line.and_then(|()| out.finish()));
            Err(failure)
        }
    }
}

/// Tells the user something on standard error; nothing can be done when even that is closed.
pub fn warn(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", shown_lines(&line.to_string()));
}

/// A JSON object in the making.
pub struct Line(String);

impl Default for Line {
    /// An object without members.
    fn default() -> Self {
        Self(String::from("{"))
    }
}

impl Line {
    /// An object without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member.
    pub fn field(self, name: &str, value: &(impl Serialize + ?Sized)) -> Self {
        // Only maps with strange keys fail, which none of our callers has.
        let value = serde_json::to_string(value).unwrap_or_else(|_| String::from("null"));
        self.raw(name, &value)
    }

    /// Adds a member that is JSON already.
    pub fn raw(mut self, name: &str, json: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(json);
        self
    }

    /// The object's text.
    pub fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// `text` as a JSON string.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
