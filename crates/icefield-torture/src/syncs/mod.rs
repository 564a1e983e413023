//! Every sync fails once, while a table on [`Durability::Disk`](icefield::Durability::Disk) is made, written and
//! closed. What the system makes of the pages that the failed call concerned is unknown, and what is stored to them
//! afterwards may be written all the same: each page may be as it was at its last successful sync, as it was at the
//! failed call, or as it was at any time after that. Every combination of these is an image, up to
//! [`Options::images`] of them for a sync; beyond that a sample is drawn. Each image must open, be clean, and hold what
//! was acknowledged before the call.

pub(crate) mod film;
mod life;

use std::path::Path;

use icefield::SyncMode;

use crate::failure::Failure;

pub use life::tables;

/// The scenario's name.
pub const NAME: &str = "syncs";

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Picks the histories.
    pub seed: u64,
    /// When writes are acknowledged.
    pub sync: SyncMode,
    /// The most images for one failed sync: a power of two is exhaustive for so many pages of two states.
    pub images: u64,
    /// After so many images no further sync is made to fail.
    pub enough: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, sync: SyncMode::Always, images: 1 << 12, enough: u64::MAX }
    }
}

/// What failing syncs led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Syncs that were made to fail.
    pub syncs: u64,
    /// Those of them whose images were all tried.
    pub exhaustive: u64,
    /// Images that were opened.
    pub images: u64,
    /// The most pages that one failed sync has left in more than one state.
    pub most_pages: u64,
    /// Calls of the table that failed.
    pub errors: u64,
    /// Images that did not open.
    pub unopened: u64,
    /// Images that lacked an acknowledged record, or were not clean.
    pub wrong: u64,
    /// What went wrong, the first few times.
    pub examples: Vec<String>,
}

/// How an image is wrong.
#[derive(Clone, Debug)]
pub(crate) enum Flaw {
    Unopened(String),
    Wrong(String),
}

impl Counts {
    /// Adds what other histories did.
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

    /// Images that are not what they must be.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.unopened + self.wrong
    }

    /// The counts if no image was wrong.
    ///
    /// # Errors
    /// A violation, or a run in which no sync failed.
    pub fn judged(self, seed: u64) -> Result<Self, Failure> {
        if self.violations() > 0 {
            let what = format!(
                "{} of {} images do not open, {} are wrong",
                self.unopened, self.images, self.wrong
            );
            return Err(Failure::new(NAME, seed, what).with_trace(self.examples));
        }
        if self.syncs == 0 || self.errors == 0 || self.images < self.syncs {
            return Err(Failure::new(NAME, seed, format!("hardly a sync failed: {self:?}")));
        }
        Ok(self)
    }
}

const MOST_EXAMPLES: usize = 10;

/// A history that can be lived through again and again.
pub(crate) trait Life {
    /// What the table must hold.
    type Expected;

    /// Makes the table at the film's path, writes to it and closes it; after the film's sync has failed it goes on for a
    /// few calls. Also how many calls failed.
    fn live(&self, film: &film::Film) -> Result<(Self::Expected, u64), String>;

    /// Opens an image and compares.
    fn judge(&self, image: &Path, expected: &Self::Expected) -> Result<(), Flaw>;
}

/// Fails each sync of a history in turn, below `place`.
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
            // No table was published, or fewer syncs were made than the last time.
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
