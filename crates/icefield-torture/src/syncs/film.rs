//! Records the states of a table's pages at its syncs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use icefield::storage::{FaultPlan, Synced};

use crate::rng::Rng;

/// Bytes of a page.
const PAGE: usize = 4096;
/// A file without table contents.
const LOCK_FILE: &str = "lock";
/// In a sampled image, one page or file name in this many, on average, is in a random state. For all others, the number
/// of the state is the same: the first, second or third state, or the last one if there are fewer.
const ODD_ONE_IN: u64 = 3;

type Page = [u8; PAGE];
/// The files of a directory, in whole pages.
type Files = BTreeMap<OsString, Vec<Page>>;

/// Observes each sync of a table, and lets one of them fail.
pub(crate) struct Film {
    path: PathBuf,
    reel: Arc<Mutex<Reel>>,
    plan: Arc<FaultPlan>,
}

#[derive(Default)]
struct Reel {
    path: PathBuf,
    /// The sync that fails.
    nth: Option<u64>,
    syncs: u64,
    /// Pages as of their last successful sync before the failure.
    durable: Files,
    failed: Option<Files>,
    later: Vec<Files>,
    error: Option<io::Error>,
}

impl Film {
    /// Creates the recorder for a table at `path`, and removes what exists there. Sync number `nth` fails.
    pub(super) fn new(path: &Path, nth: Option<u64>) -> Self {
        // If something cannot be removed, the creation of the table fails.
        let _ = std::fs::remove_dir_all(path);
        let reel = Arc::new(Mutex::new(Reel { path: path.to_owned(), nth, ..Reel::default() }));
        let watched = Arc::clone(&reel);
        let plan = Arc::new(FaultPlan::watching(move |synced| lock(&watched).see(synced)));
        Self { path: path.to_owned(), reel, plan }
    }

    /// Returns the path of the table.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the fault plan for the table.
    pub(crate) fn plan(&self) -> Arc<FaultPlan> {
        Arc::clone(&self.plan)
    }

    /// Returns the number of syncs so far.
    pub(super) fn syncs(&self) -> u64 {
        lock(&self.reel).syncs
    }

    /// Returns whether sync number `nth` has failed.
    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.reel).failed.is_some()
    }

    /// Records the files after the failure.
    pub(crate) fn look(&self) {
        lock(&self.reel).look();
    }

    /// Returns the images, or `None` if no sync failed or no table is at its path at the end.
    pub(super) fn images(&self) -> io::Result<Option<Images>> {
        let mut reel = lock(&self.reel);
        if let Some(error) = reel.error.take() {
            return Err(error);
        }
        let Some(failed) = reel.failed.take() else { return Ok(None) };
        let later = std::mem::take(&mut reel.later);
        if later.last().is_none_or(BTreeMap::is_empty) {
            return Ok(None);
        }
        Ok(Some(Images::new(&reel.durable, &failed, &later)))
    }
}

fn lock(reel: &Mutex<Reel>) -> MutexGuard<'_, Reel> {
    reel.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reel {
    /// Records a sync. Returns whether it must fail.
    fn see(&mut self, synced: Synced) -> bool {
        self.syncs += 1;
        if self.failed.is_some() {
            self.look();
            return false;
        }
        if self.nth == Some(self.syncs) {
            match files_of(&self.path) {
                Ok(files) => self.failed = Some(files),
                Err(error) => self.error = Some(error),
            }
            return true;
        }
        if let Err(error) = self.keep(synced) {
            self.error = Some(error);
        }
        false
    }

    /// Records the pages of a sync as durable: the sync will succeed.
    fn keep(&mut self, synced: Synced) -> io::Result<()> {
        let (path, range) = match synced {
            Synced::Names => return Ok(()),
            Synced::File(file) => {
                let path = std::fs::read_link(format!("/proc/self/fd/{file}"))?;
                let pages = std::fs::metadata(&path)?.len().div_ceil(PAGE as u64) as usize;
                (path, 0..pages)
            }
            Synced::Mapping { address, bytes } => mapped_at(address, bytes)?,
        };
        let Some(name) = path.file_name().filter(|name| *name != LOCK_FILE) else { return Ok(()) };
        let pages = pages_of(&path)?;
        let durable = self.durable.entry(name.to_owned()).or_default();
        durable.resize(durable.len().max(range.end.min(pages.len())), [0; PAGE]);
        for (kept, page) in durable.iter_mut().zip(pages).take(range.end).skip(range.start) {
            *kept = page;
        }
        Ok(())
    }

    fn look(&mut self) {
        match files_of(&self.path) {
            Ok(files) => self.later.push(files),
            Err(error) => self.error = Some(error),
        }
    }
}

/// Returns the file that is mapped at an address, and the pages of the range.
fn mapped_at(address: usize, bytes: usize) -> io::Result<(PathBuf, Range<usize>)> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let found = maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let offset = usize::from_str_radix(fields.nth(1)?, 16).ok()?;
        let path = fields.nth(2)?;
        (start..end).contains(&address).then(|| (PathBuf::from(path), offset + address - start))
    });
    let (path, offset) =
        found.ok_or_else(|| io::Error::other(format!("no file is mapped at {address:#x}")))?;
    Ok((path, offset / PAGE..(offset + bytes).div_ceil(PAGE)))
}

fn pages_of(path: &Path) -> io::Result<Vec<Page>> {
    let content = std::fs::read(path)?;
    let page = |chunk: &[u8]| {
        let mut page = [0; PAGE];
        page[..chunk.len()].copy_from_slice(chunk);
        page
    };
    Ok(content.chunks(PAGE).map(page).collect())
}

/// Returns the files of a directory, or none if the directory does not exist.
fn files_of(path: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == LOCK_FILE {
            continue;
        }
        files.insert(entry.file_name(), pages_of(&entry.path())?);
    }
    Ok(files)
}

/// The states that a crash after the failure may leave.
pub(super) struct Images {
    /// The files in their last state, and the files that existed at the failed sync and were removed later.
    files: Files,
    dims: Vec<Dim>,
}

/// A page or a file name with several possible states.
struct Dim {
    file: OsString,
    what: What,
}

enum What {
    /// The distinct states of a page: its durable one, that at the failure, and later ones.
    Page(usize, Vec<Page>),
    /// The existence of the file.
    Presence,
}

impl Dim {
    fn states(&self) -> usize {
        match &self.what {
            What::Page(_, states) => states.len(),
            What::Presence => 2,
        }
    }
}

impl Images {
    fn new(durable: &Files, failed: &Files, later: &[Files]) -> Self {
        let mut files = later.last().cloned().unwrap_or_default();
        let mut dims = Vec::new();
        for (name, pages) in failed {
            if !files.contains_key(name) {
                files.insert(name.clone(), pages.clone());
                dims.push(Dim { file: name.clone(), what: What::Presence });
            }
        }
        for (name, last) in &files {
            if !failed.contains_key(name) {
                dims.push(Dim { file: name.clone(), what: What::Presence });
            }
            let times: Vec<_> =
                [durable, failed].into_iter().chain(later).map(|files| files.get(name)).collect();
            for at in 0..last.len() {
                let mut states: Vec<Page> = Vec::new();
                for (time, pages) in times.iter().enumerate() {
                    let page = match pages {
                        Some(pages) => pages.get(at).copied().unwrap_or([0; PAGE]),
                        // A file that was never synced reads as zeros.
                        None if time == 0 => [0; PAGE],
                        None => continue,
                    };
                    if !states.contains(&page) {
                        states.push(page);
                    }
                }
                if states.len() > 1 {
                    dims.push(Dim { file: name.clone(), what: What::Page(at, states) });
                }
            }
        }
        Self { files, dims }
    }

    /// Returns the number of pages and file names with more than one state.
    pub(super) fn pages(&self) -> usize {
        self.dims.len()
    }

    /// Returns the number of images.
    pub(super) fn count(&self) -> u128 {
        self.dims.iter().fold(1, |all: u128, dim| all.saturating_mul(dim.states() as u128))
    }

    /// Returns all images if there are at most `most`, otherwise a sample of that size.
    pub(super) fn choices(&self, most: u64, seed: u64) -> Vec<Vec<usize>> {
        let count = self.count();
        if count <= u128::from(most) {
            let choice = |mut number: u128| {
                let state = |dim: &Dim| {
                    let states = dim.states() as u128;
                    let state = (number % states) as usize;
                    number /= states;
                    state
                };
                self.dims.iter().map(state).collect()
            };
            return (0..count).map(choice).collect();
        }
        let mut rng = Rng::fork(seed, 7);
        let draw = |_| {
            let common = rng.index(3);
            let state = |dim: &Dim| match rng.one_in(ODD_ONE_IN) {
                true => rng.index(dim.states()),
                false => common.min(dim.states() - 1),
            };
            self.dims.iter().map(state).collect()
        };
        (0..most).map(draw).collect()
    }

    /// Writes an image to `path`, and removes what exists there.
    pub(super) fn write(&self, choice: &[usize], path: &Path) -> io::Result<()> {
        if path.exists() {
            std::fs::remove_dir_all(path)?;
        }
        std::fs::create_dir(path)?;
        std::fs::write(path.join(LOCK_FILE), "")?;
        for (name, pages) in &self.files {
            let (mut content, mut is_there) = (pages.as_flattened().to_vec(), true);
            let chosen = self.dims.iter().zip(choice);
            for (dim, &state) in chosen.filter(|(dim, _)| dim.file == *name) {
                match &dim.what {
                    What::Page(at, states) => {
                        content[at * PAGE..][..PAGE].copy_from_slice(&states[state]);
                    }
                    What::Presence => is_there = state == 0,
                }
            }
            if is_there {
                std::fs::write(path.join(name), content)?;
            }
        }
        Ok(())
    }

    /// Describes an image by the chosen state of each page and file name that has several.
    pub(super) fn describe(&self, choice: &[usize]) -> String {
        let mut text = String::new();
        for (dim, state) in self.dims.iter().zip(choice) {
            let name = dim.file.to_string_lossy();
            // Writing to a string cannot fail.
            let _ = match dim.what {
                What::Page(at, _) => write!(text, "{name}[{at}]={state} "),
                What::Presence => write!(text, "{name}={} ", ["there", "gone"][*state]),
            };
        }
        text
    }
}
