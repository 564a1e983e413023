//! Prints the library's warnings on standard error.

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::json::warn;
use crate::terminal::shown;

/// Starts printing the library's warnings.
pub fn listen() {
    // The call fails only if a logger is set already.
    let _ = log::set_logger(&Warnings);
    log::set_max_level(LevelFilter::Warn);
}

struct Warnings;

/// The log target of the warning that a table on an ordinary file system does not survive a power failure. Commands
/// that create tables print a note instead; other commands would repeat the warning with every write.
const DURABILITY: &str = "icefield::durability";

impl Log for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        let is_ours = target == "icefield" || target.starts_with("icefield::");
        metadata.level() <= Level::Warn && is_ours && target != DURABILITY
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            warn(line(record));
        }
    }

    fn flush(&self) {}
}

fn line(record: &Record<'_>) -> String {
    format!("icefield: warning: {}", shown(&record.args().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_the_library_are_lines_that_a_terminal_shows() {
        let is_shown = |level, target| {
            Warnings.enabled(&Metadata::builder().level(level).target(target).build())
        };
        assert!(is_shown(Level::Warn, "icefield::storage::mapped::directory"));
        assert!(is_shown(Level::Error, "icefield"));
        assert!(!is_shown(Level::Info, "icefield"));
        assert!(!is_shown(Level::Warn, DURABILITY));
        assert!(!is_shown(Level::Warn, "icefield_elsewhere"));
        let record = Record::builder().args(format_args!("a\nb\x1b[2J: on FUSE")).build();
        assert_eq!(line(&record), "icefield: warning: a\\nb\\u{1b}[2J: on FUSE");
    }
}
