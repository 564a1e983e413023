//! The medium of a scenario's table: the simulated one, anonymous memory, or a directory.

use std::marker::PhantomData;
use std::path::PathBuf;

use icefield::storage::sim::{Model, Pool, Sim, SimOptions};
use icefield::{CheckReport, Durable, Result};

use crate::file_subject::{FileOptions, FileSubject};
use crate::reference::Reference;
use crate::subject::Subject;

/// Creates tables and reopens them.
pub trait Place<T> {
    /// Creates a table. The previous content of the place is lost.
    ///
    /// # Errors
    /// Returns the table's error.
    fn create(&mut self) -> Result<T>;

    /// Closes `table` cleanly and opens it again. Returns it unchanged if the medium is not persistent.
    ///
    /// # Errors
    /// Returns the table's error.
    fn reopen(&mut self, table: T) -> Result<T>;

    /// Checks the invariants of the table and counts its records.
    ///
    /// # Errors
    /// Returns the table's error.
    fn check(&self, table: &T) -> Result<CheckReport>;

    /// Makes one or a few random calls that only this design has, on the table and on the reference map. Returns
    /// whether the design has such calls.
    ///
    /// # Errors
    /// Returns a description of the wrong result.
    fn own_call(&self, _: &T, _seed: u64, _: &mut Reference) -> std::result::Result<bool, String> {
        Ok(false)
    }
}

/// Number of steps of one history after which it is reported as hanging.
const STEP_BUDGET: u64 = 1_000_000_000;

/// The simulated medium.
#[derive(Debug)]
pub struct SimPlace {
    seed: u64,
    model: Model,
    variant: u64,
    pool: Pool,
    sim: Option<Sim>,
}

impl SimPlace {
    /// Creates a place. `seed` determines the geometry of its tables and the garbage in the medium's volatile words.
    #[must_use]
    pub fn new(seed: u64, model: Model, pool: &Pool) -> Self {
        Self { seed, model, variant: seed, pool: pool.clone(), sim: None }
    }

    fn options(&self) -> SimOptions {
        // Recording finds stores that bypass the medium. It is slow, so only some histories use it.
        let recording = self.variant.is_multiple_of(4);
        SimOptions {
            seed: self.seed,
            model: self.model,
            recording,
            step_budget: STEP_BUDGET,
            pool: self.pool.clone(),
            ..SimOptions::default()
        }
    }
}

impl<T: Subject> Place<T> for SimPlace {
    fn create(&mut self) -> Result<T> {
        let sim = Sim::new(self.options());
        self.sim = Some(sim.clone());
        T::create_tiny(sim, self.variant)
    }

    fn reopen(&mut self, table: T) -> Result<T> {
        drop(table);
        let Some(sim) = &self.sim else { return self.create() };
        let image = sim.image();
        self.seed = self.seed.wrapping_add(1);
        let sim = Sim::from_image(&image, self.options());
        self.sim = Some(sim.clone());
        T::open_on(sim)
    }

    fn check(&self, table: &T) -> Result<CheckReport> {
        Durable::check(table)
    }
}

/// Anonymous memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPlace(
    /// Selects the geometry.
    pub u64,
);

impl<T: FileSubject> Place<T> for MemoryPlace {
    fn create(&mut self) -> Result<T> {
        T::in_memory(self.0)
    }

    fn reopen(&mut self, table: T) -> Result<T> {
        Ok(table)
    }

    fn check(&self, table: &T) -> Result<CheckReport> {
        Durable::check(table)
    }
}

/// A directory that the place owns. Each table is created anew, and the last one is removed at the end.
#[derive(Debug)]
pub struct FilePlace<T> {
    path: PathBuf,
    how: FileOptions,
    table: PhantomData<fn() -> T>,
}

impl<T> FilePlace<T> {
    /// Creates a place at `path`, which must not exist yet.
    #[must_use]
    pub fn new(path: PathBuf, how: FileOptions) -> Self {
        Self { path, how, table: PhantomData }
    }

    fn remove(&self) {
        // Usually the directory does not exist. Any other failure shows when the table is created.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl<T: FileSubject> Place<T> for FilePlace<T> {
    fn create(&mut self) -> Result<T> {
        self.remove();
        T::create_at(&self.path, self.how.clone())
    }

    fn reopen(&mut self, table: T) -> Result<T> {
        drop(table);
        T::open_at(&self.path, self.how.clone())
    }

    fn check(&self, table: &T) -> Result<CheckReport> {
        Durable::check(table)
    }
}

impl<T> Drop for FilePlace<T> {
    fn drop(&mut self) {
        self.remove();
    }
}
