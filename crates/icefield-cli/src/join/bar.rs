//! The progress bar of `build-index` and `run`.

use indicatif::ProgressBar;

use icefield_console::progress;

/// Returns a progress bar over the rows of a file.
pub fn bar(title: &'static str, rows: Option<u64>) -> ProgressBar {
    match rows {
        Some(rows) => progress::over_records(title, rows),
        None => progress::waiting(title),
    }
}
