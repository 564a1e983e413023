//! `report.html`: a page that shows, claim by claim, what the papers state and what this machine measured.
//!
//! The page is self-contained: it loads no script, font or picture, and follows the reader's light or dark mode. It
//! is generated from `results.jsonl` and `run.json` of a directory when a run ends, or later by `icefield-bench
//! report DIR`. The figures are also written beside it as separate SVG files.

mod chart;
mod facts;
mod figures;
mod judge;
mod page;

pub(crate) use facts::RunFacts;

use std::path::{Path, PathBuf};

use crate::output::replace;
use crate::results::{RESULTS, read};
use crate::{Error, Outcome};

const PAGE: &str = "report.html";
const FIGURES: &str = "figures";

/// Generates the page and its figures from the results in `dir`. Returns the page's path.
///
/// `what` returns the description of an experiment by its name.
///
/// # Errors
/// The directory has no results, or a file cannot be read or written.
pub(crate) fn write(dir: &Path, what: impl Fn(&str) -> Option<&'static str>) -> Outcome<PathBuf> {
    let rows = read(&dir.join(RESULTS))?;
    let run = RunFacts::read(dir)?;
    let figures = dir.join(FIGURES);
    std::fs::create_dir_all(&figures).map_err(|error| Error::file(&figures, error))?;
    let page = page::page(&run, &rows, |name, svg| replace(&figures.join(name), svg), what)?;
    let path = dir.join(PAGE);
    replace(&path, &page)?;
    Ok(path)
}
