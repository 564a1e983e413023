//! Progress bars, on a terminal only.

use std::fmt;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Returns a bar over `total` bytes, or a running count where the total is unknown (a pipe).
pub fn over_bytes(total: Option<u64>) -> ProgressBar {
    match total {
        Some(_) => bar(total, "{bar:32} {bytes}/{total_bytes} {bytes_per_sec} {msg} (eta {eta})"),
        None => bar(total, "{spinner} {bytes} {bytes_per_sec} {msg}"),
    }
}

/// Returns a bar over `total` records, with a title.
pub fn over_records(title: &str, total: u64) -> ProgressBar {
    let bar = bar(Some(total), "{prefix} {bar:32} {human_pos}/{human_len} {rate}");
    bar.set_prefix(title.to_owned());
    bar
}

/// Returns an activity indicator for work of unknown length.
pub fn waiting(title: &'static str) -> ProgressBar {
    bar(None, "{spinner} {msg} ({elapsed})").with_message(title)
}

fn bar(total: Option<u64>, template: &str) -> ProgressBar {
    // In a pipe, control sequences would corrupt the output.
    let target = if io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(total, target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        // Indicatif's own rate has four decimals.
        let rate = |state: &ProgressState, text: &mut dyn fmt::Write| {
            let _ = write!(text, "{:.0}/s", state.per_sec());
        };
        bar.set_style(style.with_key("rate", rate).progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
