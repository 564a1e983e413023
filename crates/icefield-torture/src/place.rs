//! Where a scenario's table lives: on the simulated medium, in anonymous memory, or in a directory.

use std::marker::PhantomData;
use std::path::PathBuf;

use icefield::pm::sim::{Model, Pool, Sim, SimOptions};
use icefield::{CheckReport, Durable, Result};

use crate::file_subject::{FileOptions, FileSubject};
use crate::reference::Reference;
use crate::subject::Subject;

/// Makes tables and brings them back.
pub trait Place<T> {
    /// A new table; what the place held before is gone.
    ///
    /// # Errors
    /// The table's.
    fn create(&mut self) -> Result<T>;

    /// Closes `table` properly and opens it again; gives it back as it is where nothing outlives a table.
    ///
    /// # Errors
    /// The table's.
    fn reopen(&mut self, table: T) -> Result<T>;

    /// Looks for broken invariants, and counts the records.
    ///
    /// # Errors
    /// The table's.
    fn check(&self, table: &T) -> Result<CheckReport>;

    /// A random call, or a few that belong together, that only tables of this design have, beside the reference map;
    /// whether there was any.
    ///
    /// # Errors
    /// A wrong answer, in words.
    fn own_call(&self, _: &T, _seed: u64, _: &mut Reference) -> std::result::Result<bool, String> {
        Ok(false)
    }
}

/// Steps of one whole history, after which something hangs.
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
    /// A place whose garbage and geometry follow from `seed`.
    #[must_use]
    pub fn new(seed: u64, model: Model, pool: &Pool) -> Self {
        Self { seed, model, variant: seed, pool: pool.clone(), sim: None }
    }

    fn options(&self) -> SimOptions {
        // Recording finds stores that bypass the medium; it is slow, so not every history has it.
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
    /// Picks the geometry.
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

/// A directory that the place owns: its table is made anew and removed at the end.
#[derive(Debug)]
pub struct FilePlace<T> {
    path: PathBuf,
    how: FileOptions,
    table: PhantomData<fn() -> T>,
}

impl<T> FilePlace<T> {
    /// A place at `path`, where nothing is yet.
    #[must_use]
    pub fn new(path: PathBuf, how: FileOptions) -> Self {
        Self { path, how, table: PhantomData }
    }

    fn remove(&self) {
        // Nothing there is the usual case, and whatever else went wrong shows when the table is created.
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
