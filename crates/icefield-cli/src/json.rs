//! What commands print: words for people, or one JSON object a line for programs.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::failure::{Failure, Outcome};

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
    text: Option<Box<dyn Write>>,
    json: Option<(PathBuf, Box<dyn Write>)>,
}

impl Output {
    fn new(args: &JsonArgs) -> Result<Self, Failure> {
        let json: Option<(PathBuf, Box<dyn Write>)> = match &args.json {
            None => None,
            Some(_) if args.takes_stdout() => Some((PathBuf::from("output"), stdout())),
            Some(path) => {
                let file = File::create(path).map_err(|error| Failure::io(path, &error))?;
                Some((path.clone(), Box::new(BufWriter::new(file))))
            }
        };
        Ok(Self { text: (!args.takes_stdout()).then(stdout), json })
    }

    /// Prints a line for people, unless standard output is for JSON.
    pub fn say(&mut self, line: impl Display) -> Result<(), Failure> {
        match &mut self.text {
            Some(text) => Ok(writeln!(text, "{line}")?),
            None => Ok(()),
        }
    }

    /// Whether JSON lines are wanted: making them may cost something.
    pub fn wants_json(&self) -> bool {
        self.json.is_some()
    }

    /// Writes a JSON line, if they are wanted.
    pub fn line(&mut self, line: Line) -> Result<(), Failure> {
        let Some((path, json)) = &mut self.json else { return Ok(()) };
        writeln!(json, "{}", line.end()).map_err(|error| Failure::io(path, &error))
    }

    /// Brings everything printed so far to its reader.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if let Some(text) = &mut self.text {
            text.flush()?;
        }
        match &mut self.json {
            Some((path, json)) => json.flush().map_err(|error| Failure::io(path, &error)),
            None => Ok(()),
        }
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

/// Runs a command with its output; a failure becomes a JSON line too.
pub fn with_output(args: &JsonArgs, command: impl FnOnce(&mut Output) -> Outcome) -> Outcome {
    let mut out = Output::new(args)?;
    let outcome = command(&mut out);
    match &outcome {
        Ok(_) | Err(Failure::BrokenPipe) => {}
        // The failure itself is what the user must see, whatever happens to its JSON line.
        Err(failure) => drop(out.line(Line::new().field("error", &failure.to_string()))),
    }
    out.flush()?;
    outcome
}

/// Tells the user something on standard error; nothing can be done when even that is closed.
pub fn warn(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// A JSON object in the making.
pub struct Line(String);

impl Line {
    /// `{}`.
    pub fn new() -> Self {
        Self(String::from("{"))
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
