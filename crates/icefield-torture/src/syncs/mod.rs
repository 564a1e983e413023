//! Lets every sync fail once while a table on [`Durability::Disk`](icefield::Durability::Disk) is created, written
//! and closed. The state of the pages of the failed call is unknown, and later stores to them may still be written.
//! Each page may therefore be in its state at its last successful sync, at the failed call, or at any later time.
//! Each combination of these is an image. Up to [`Options::images`] images are checked for a sync; if there are more,
//! a sample is drawn. Each image must open, be clean, and hold what was acknowledged before the call.

pub(crate) mod film;
mod life;

use std::path::Path;

use icefield::SyncMode;

use crate::failure::Failure;

pub use life::tables;

/// The name of the scenario.
pub const NAME: &str = "syncs";

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Determines the histories.
    pub seed: u64,
    /// Determines when writes are acknowledged.
    pub sync: SyncMode,
    /// Maximum number of images for one failed sync. A power of two, 2^n, covers all images of n pages with two
    /// states each.
    pub images: u64,
    /// Number of images after which no further sync is made to fail.
    pub enough: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, sync: SyncMode::Always, images: 1 << 12, enough: u64::MAX }
    }
}

/// Results of failing syncs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Syncs that failed.
    pub syncs: u64,
    /// Failed syncs of which all images were checked.
    pub exhaustive: u64,
    /// Images that were opened.
    pub images: u64,
    /// The largest number of pages and file names that one failed sync left in more than one state.
    pub most_pages: u64,
    /// Calls of the table that failed.
    pub errors: u64,
    /// Images that did not open.
    pub unopened: u64,
    /// Images that lacked an acknowledged record or were not clean.
    pub wrong: u64,
    /// Descriptions of the first violations.
    pub examples: Vec<String>,
}

/// The fault of an image.
#[derive(Clone, Debug)]
pub(crate) enum Flaw {
    Unopened(String),
    Wrong(String),
}

impl Counts {
    /// Adds the results of other histories.
    pub fn add(&mut self, other: Self) {
        self.syncs += other.syncs;
        self.exhaustive += other.exhaustive;
        self.images += other.images;
        self.most_pages = self.most_pages.max(other.most_pages);
        self.errors += other.errors;
        self.unopened += other.unopened;
        self.wrong += other.wrong;
        self.examples.extend(other.examples);
        self.examples.truncate(MOST_EXAMPLES);
    }

    fn note(&mut self, judged: Result<(), Flaw>, how: impl FnOnce() -> String) {
        self.images += 1;
        let what = match judged {
            Ok(()) => return,
            Err(Flaw::Unopened(what)) => {
                self.unopened += 1;
                format!("does not open: {what}")
            }
            Err(Flaw::Wrong(what)) => {
                self.wrong += 1;
                what
            }
        };
        if self.examples.len() < MOST_EXAMPLES {
            self.examples.push(format!("{}: {what}", how()));
        }
    }

    /// Returns the number of wrong images.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.unopened + self.wrong
    }

    /// Returns the counts if no image was wrong.
    ///
    /// # Errors
    /// Returns an error for a violation, or for a run in which no sync failed, no call failed, or images are missing.
    pub fn judged(self, seed: u64) -> Result<Self, Failure> {
        if self.violations() > 0 {
            let what = format!(
                "{} of {} images do not open, {} are wrong",
                self.unopened, self.images, self.wrong
            );
            return Err(Failure::new(NAME, seed, what).with_trace(self.examples));
        }
        if self.syncs == 0 || self.errors == 0 || self.images < self.syncs {
            return Err(Failure::new(NAME, seed, format!("too few syncs failed: {self:?}")));
        }
        Ok(self)
    }
}

const MOST_EXAMPLES: usize = 10;

/// A history that can be repeated.
pub(crate) trait Life {
    /// The expected contents of the table.
    type Expected;

    /// Creates the table at the path of `film`, the recorder; writes to the table and closes it. After the failing
    /// sync, the history continues for a few calls. Returns the expected contents and the number of failed calls.
    fn live(&self, film: &film::Film) -> Result<(Self::Expected, u64), String>;

    /// Opens an image and compares its contents.
    fn judge(&self, image: &Path, expected: &Self::Expected) -> Result<(), Flaw>;
}

/// Fails each sync of a history in turn. The files are below `place`.
pub(crate) fn every_sync<L: Life>(
    life: &L,
    options: &Options,
    place: &Path,
) -> Result<Counts, Failure> {
    let failure = |what: String| Failure::new(NAME, options.seed, what);
    let mut counts = Counts::default();
    let (path, image) = (place.join("table"), place.join("image"));
    let film = film::Film::new(&path, None);
    let (expected, _) =
        life.live(&film).map_err(|what| failure(format!("without any failure: {what}")))?;
    if let Err(flaw) = life.judge(&path, &expected) {
        return Err(failure(format!("without any failure: {flaw:?}")));
    }
    for nth in 1..=film.syncs() {
        if counts.images >= options.enough {
            break;
        }
        let film = film::Film::new(&path, Some(nth));
        let (expected, errors) =
            life.live(&film).map_err(|what| failure(format!("sync {nth} fails: {what}")))?;
        counts.errors += errors;
        let Some(images) = film.images().map_err(|error| failure(error.to_string()))? else {
            // No table was published, or there were fewer syncs than in the run before.
            continue;
        };
        counts.syncs += 1;
        counts.most_pages = counts.most_pages.max(images.pages() as u64);
        counts.exhaustive += u64::from(images.count() <= u128::from(options.images));
        for choice in images.choices(options.images, options.seed ^ nth) {
            images.write(&choice, &image).map_err(|error| failure(error.to_string()))?;
            counts.note(life.judge(&image, &expected), || {
                format!("seed {}, sync {nth}, {}", options.seed, images.describe(&choice))
            });
        }
    }
    Ok(counts)
}
