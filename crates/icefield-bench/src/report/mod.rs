//! `report.html`: a page that shows, claim by claim, what the papers promise and what this machine measured.
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

use crate::output::partial;
use crate::results::read;
use crate::{Error, Outcome};

pub(crate) const RESULTS: &str = "results.jsonl";
const RUN: &str = "run.json";
const PAGE: &str = "report.html";
const FIGURES: &str = "figures";

/// Generates the page and its figures from the results in `dir`. Returns the page's path.
///
/// # Errors
/// There are no results, or a file cannot be read or written.
pub(crate) fn write(dir: &Path) -> Outcome<PathBuf> {
    let rows = read(&dir.join(RESULTS))?;
    let run = RunFacts::read(dir)?;
    let figures = dir.join(FIGURES);
    std::fs::create_dir_all(&figures).map_err(|error| Error::file(&figures, error))?;
    let page = page::page(&run, &rows, |name, svg| put(&figures.join(name), svg))?;
    let path = dir.join(PAGE);
    put(&path, &page)?;
    Ok(path)
}

fn put(path: &Path, text: &str) -> Outcome {
    let partial = partial(path);
    let written = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path));
    written.map_err(|error| Error::file(path, error))
}
