//! Facts of a run: the machine and the command.

use std::path::Path;
use std::time::{Duration, SystemTime};

use procfs::{CpuInfo, Current, Meminfo};
use serde::{Deserialize, Serialize};

use crate::output::replace;
use crate::{Error, Outcome};

const RUN: &str = "run.json";

/// The facts at the top of the page; empty or zero where the system does not report them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunFacts {
    pub version: String,
    pub command: String,
    pub processor: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub system: String,
    /// The setting that determines when the system backs memory with huge pages.
    pub huge_pages: String,
    /// The storage behind the files of persistent tables.
    pub backing: String,
    pub ended: u64,
    pub seconds: u64,
}

impl RunFacts {
    /// Returns the facts of this process and machine, for a run that took `took` and ends now.
    pub fn gather(cores: usize, backing: &str, took: Duration) -> Self {
        let ended = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        let command: Vec<_> =
            std::iter::once("icefield-bench".to_owned()).chain(arguments).collect();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.join(" "),
            processor: CpuInfo::current().ok().and_then(model).unwrap_or_default(),
            cores,
            memory_bytes: Meminfo::current().map_or(0, |memory| memory.mem_total),
            system: format!("{} {}", std::env::consts::OS, line("/proc/sys/kernel/osrelease")),
            huge_pages: chosen(&line("/sys/kernel/mm/transparent_hugepage/enabled")),
            backing: backing.to_owned(),
            ended: ended.as_secs(),
            seconds: took.as_secs(),
        }
    }

    /// Writes the facts beside the results.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, dir: &Path) -> Outcome {
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|error| Error::failed(format!("{RUN}: {error}")))?;
        replace(&dir.join(RUN), &text)
    }

    /// Reads the facts beside the results. Returns empty facts if the file does not exist, for example because the
    /// results were collected by hand.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn read(dir: &Path) -> Outcome<Self> {
        let path = dir.join(RUN);
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| Error::failed(format!("{}: {error}", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Error::file(&path, error)),
        }
    }
}

/// Returns the first line of a file, or an empty string.
fn line(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

fn model(processor: CpuInfo) -> Option<String> {
    processor.model_name(0).map(str::to_owned)
}

/// Returns the word in brackets of a list such as `always [madvise] never`.
fn chosen(choices: &str) -> String {
    let inner = choices.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map(|(chosen, _)| chosen.to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_written_and_read_back() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(RunFacts::read(dir.path()).expect("none").cores, 0);
        let facts = RunFacts::gather(2, "tmpfs", Duration::from_secs(75));
        facts.write(dir.path()).expect("a file");
        let read = RunFacts::read(dir.path()).expect("facts");
        assert_eq!((read.cores, read.seconds, read.backing.as_str()), (2, 75, "tmpfs"));
        std::fs::write(dir.path().join(RUN), "nonsense").expect("a file");
        assert!(RunFacts::read(dir.path()).expect_err("nonsense").to_string().contains(RUN));
    }

    #[test]
    fn the_chosen_one_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen(""), "");
    }
}
