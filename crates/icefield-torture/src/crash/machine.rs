//! The interface that crash scenarios need of a table. It is small, so that a faulty table can be written in a few
//! lines.

use icefield::storage::Properties;
use icefield::storage::sim::Sim;
use icefield::{Cursor, Data, Result, SyncMode};

use crate::call::{Action, BatchKind, Call, Reply, ask, ask_batch};
use crate::subject::{FOREIGN, Sample, Subject};

/// A table on the simulated medium, with keys and values as numbers.
pub trait Machine: Send + Sync + Sized + 'static {
    /// The name in reports.
    const NAME: &'static str;
    /// Set if the table has only single-key calls: no batches, `clear`, `retain` or passes.
    const SIMPLE: bool = false;
    /// Regions in which loads may return words that are not yet persistent.
    const EXEMPT: &'static [&'static str] = &[];

    /// Creates a table.
    ///
    /// # Errors
    /// Returns the table's error.
    fn create(sim: Sim, variant: u64) -> Result<Self>;

    /// Opens the table that `sim` holds.
    ///
    /// # Errors
    /// Returns the table's error. It is `NotFound` if a crash interrupted the creation.
    fn open(sim: Sim) -> Result<Self>;

    /// Executes one call.
    ///
    /// # Errors
    /// Returns the table's error.
    fn ask(&self, call: Call) -> Result<Reply>;

    /// Executes a batch and returns the replies of the operations that ran.
    ///
    /// # Errors
    /// Returns the table's error.
    fn batch(&self, _kind: BatchKind, calls: &[Call]) -> Result<Vec<Reply>> {
        calls.iter().map(|&call| self.ask(call)).collect()
    }

    /// Removes all records.
    ///
    /// # Errors
    /// Returns the table's error.
    fn clear(&self) -> Result<()> {
        Ok(())
    }

    /// Makes all acknowledged writes durable.
    ///
    /// # Errors
    /// Returns the table's error.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Makes room for more records.
    ///
    /// # Errors
    /// Returns the table's error.
    fn reserve(&self, _additional: u64) -> Result<()> {
        Ok(())
    }

    /// Frees unused space.
    ///
    /// # Errors
    /// Returns the table's error.
    fn shrink(&self) -> Result<()> {
        Ok(())
    }

    /// Removes the keys whose number is a multiple of `divisor`.
    ///
    /// # Errors
    /// Returns the table's error.
    fn drop_multiples_of(&self, _divisor: u64) -> Result<()> {
        Ok(())
    }

    /// Does the work that waits for the table's helper, if its callers help.
    fn help(&self) {}

    /// Returns whether the opening found the table cleanly closed, or `None` if the table does not report this.
    fn was_closed(&self) -> Option<bool> {
        None
    }

    /// Returns all records, in any order.
    ///
    /// # Errors
    /// Returns the table's error.
    fn records(&self) -> Result<Vec<(u64, u64)>>;

    /// Returns the number of records.
    ///
    /// # Errors
    /// Returns the table's error.
    fn count(&self) -> Result<u64> {
        Ok(self.records()?.len() as u64)
    }

    /// Returns the faults that the table's own check finds, leaks included.
    ///
    /// # Errors
    /// Returns the table's error.
    fn faults(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// A real table as a [`Machine`].
#[derive(Debug)]
pub struct Whole<S> {
    table: S,
    /// True if the table acknowledges writes before they are durable.
    relaxed: bool,
}

impl<S> Whole<S> {
    fn on(sim: Sim, table: impl FnOnce(Sim) -> Result<S>) -> Result<Self> {
        let relaxed = sim.sync_mode() != SyncMode::Always;
        Ok(Self { table: table(sim)?, relaxed })
    }
}

impl<S: Subject> Machine for Whole<S> {
    const NAME: &'static str = S::NAME;
    const EXEMPT: &'static [&'static str] = S::EXEMPT;

    fn create(sim: Sim, variant: u64) -> Result<Self> {
        Self::on(sim, |sim| S::create_tiny(sim, variant))
    }

    fn was_closed(&self) -> Option<bool> {
        Some(self.table.recovery().was_clean)
    }

    fn open(sim: Sim) -> Result<Self> {
        Self::on(sim, S::open_on)
    }

    fn ask(&self, call: Call) -> Result<Reply> {
        match call.action {
            Action::Put(value) if self.relaxed => {
                let (key, owned) = (S::Key::sample(call.key), S::Value::sample(value));
                self.table.put_relaxed(S::Key::arg(&key), S::Value::arg(&owned), value)?;
                Ok(Reply::Done)
            }
            _ => ask(&self.table, call),
        }
    }

    fn batch(&self, kind: BatchKind, calls: &[Call]) -> Result<Vec<Reply>> {
        ask_batch(&self.table, kind, calls)
    }

    fn clear(&self) -> Result<()> {
        self.table.clear()
    }

    fn sync(&self) -> Result<()> {
        self.table.sync()
    }

    fn help(&self) {
        self.table.help();
    }

    fn reserve(&self, additional: u64) -> Result<()> {
        self.table.reserve(additional)
    }

    fn shrink(&self) -> Result<()> {
        self.table.shrink_to_fit()
    }

    fn drop_multiples_of(&self, divisor: u64) -> Result<()> {
        self.table.retain(|key, _| {
            let owned = S::Key::own(S::Key::raw(key));
            let number = owned.and_then(|key| S::Key::number(&key)).unwrap_or(FOREIGN);
            !number.is_multiple_of(divisor)
        })?;
        Ok(())
    }

    fn records(&self) -> Result<Vec<(u64, u64)>> {
        let mut records = Vec::new();
        let mut next = Some(Cursor::START);
        while let Some(cursor) = next {
            let page = self.table.scan(cursor, 64)?;
            records.extend(page.records.iter().map(|(key, value)| {
                (S::Key::number(key).unwrap_or(FOREIGN), S::Value::number(value).unwrap_or(FOREIGN))
            }));
            next = page.next.filter(|&next| next != cursor);
        }
        Ok(records)
    }

    fn count(&self) -> Result<u64> {
        self.table.len()
    }

    fn faults(&self) -> Result<Vec<String>> {
        let report = self.table.check()?;
        let mut faults = report.faults;
        if report.leaked > 0 {
            faults.push(format!("{} blocks leaked", report.leaked));
        }
        Ok(faults)
    }
}
