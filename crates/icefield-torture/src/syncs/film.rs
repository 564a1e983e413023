//! The states of a table's pages, as its syncs show them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use icefield::pm::{FaultPlan, Synced};

use crate::rng::Rng;

/// Bytes of a page.
const PAGE: usize = 4096;
/// A file that says nothing of the table's contents.
const LOCK_FILE: &str = "lock";
/// Chance that a page of a sampled image is in a state of its own, not in the one that most others are in: one in so
/// many.
const ODD_ONE_IN: u64 = 3;

type Page = [u8; PAGE];
/// A directory's files, in whole pages.
type Files = BTreeMap<OsString, Vec<Page>>;

/// Looks at each sync of a table, and makes one of them fail.
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
    /// Pages as their last successful sync before that has left them.
    durable: Files,
    failed: Option<Files>,
    later: Vec<Files>,
    error: Option<io::Error>,
}

impl Film {
    /// Of a table to be made at `path`, where whatever there is goes; the sync of that number fails.
    pub(super) fn new(path: &Path, nth: Option<u64>) -> Self {
        // What cannot be removed makes the creation fail.
        let _ = std::fs::remove_dir_all(path);
        let reel = Arc::new(Mutex::new(Reel { path: path.to_owned(), nth, ..Reel::default() }));
        let watched = Arc::clone(&reel);
        let plan = Arc::new(FaultPlan::watching(move |synced| lock(&watched).see(synced)));
        Self { path: path.to_owned(), reel, plan }
    }

    /// Where the table is to be made.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The plan under which it is made.
    pub(crate) fn plan(&self) -> Arc<FaultPlan> {
        Arc::clone(&self.plan)
    }

    /// How many syncs there were.
    pub(super) fn syncs(&self) -> u64 {
        lock(&self.reel).syncs
    }

    /// Whether the sync has failed.
    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.reel).failed.is_some()
    }

    /// Looks at the files after the failure.
    pub(crate) fn look(&self) {
        lock(&self.reel).look();
    }

    /// The images; none when there was no failure, or the table was never at its path.
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
    /// Whether the sync fails.
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

    /// The pages of a sync that will succeed are durable as they are.
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

/// The file behind an address, and the pages of a range.
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

/// The files of a directory; none where there is no directory.
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

/// What a crash after the failure may leave.
pub(super) struct Images {
    /// Files as they were last, with those that have gone since the failure.
    files: Files,
    dims: Vec<Dim>,
}

/// Something that may be in several states.
struct Dim {
    file: OsString,
    what: What,
}

enum What {
    /// A page: as it was durable, at the failure, and at later times; each state once.
    Page(usize, Vec<Page>),
    /// Whether the file is there at all.
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
                        // Never synced: what a new file holds.
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

    /// How many pages are in more than one state.
    pub(super) fn pages(&self) -> usize {
        self.dims.len()
    }

    /// How many images there are.
    pub(super) fn count(&self) -> u128 {
        self.dims.iter().fold(1, |all: u128, dim| all.saturating_mul(dim.states() as u128))
    }

    /// All images, or so many that are drawn.
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

    /// Makes an image at `path`, where whatever there is goes.
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

    /// An image in words: what is in which state.
    pub(super) fn describe(&self, choice: &[usize]) -> String {
        let mut text = String::new();
        for (dim, state) in self.dims.iter().zip(choice) {
            let name = dim.file.to_string_lossy();
            // A string takes everything.
            let _ = match dim.what {
                What::Page(at, _) => write!(text, "{name}[{at}]={state} "),
                What::Presence => write!(text, "{name}={} ", ["there", "gone"][*state]),
            };
        }
        text
    }
}
