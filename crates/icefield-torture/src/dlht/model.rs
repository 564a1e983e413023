//! Creates DLHT tables of every shape for the model scenario.

use std::ops::ControlFlow;

use icefield::{CheckReport, Dlht, DlhtLocal, Result, Table};

use super::own::own_call;
use super::{Alone, DlhtRecords, shaped};
use crate::place::Place;
use crate::reference::Reference;

/// Creates tables of one shape, which the number selects. A reopening returns the same table.
#[derive(Clone, Copy, Debug)]
pub struct DlhtPlace(
    /// Selects the shape.
    pub u64,
);

/// Counts the records and compares the count with `len`, the only check of a table without a medium.
fn count(table: &impl Table) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    table.for_each(|_, _| {
        report.records += 1;
        ControlFlow::Continue(())
    })?;
    if report.records != table.len()? {
        report.faults.push(format!("{} records, but len is {}", report.records, table.len()?));
    }
    Ok(report)
}

impl Place<Dlht<u64, u64>> for DlhtPlace {
    fn create(&mut self) -> Result<Dlht<u64, u64>> {
        shaped::<Dlht<u64, u64>>(self.0).build()
    }

    fn reopen(&mut self, table: Dlht<u64, u64>) -> Result<Dlht<u64, u64>> {
        Ok(table)
    }

    fn check(&self, table: &Dlht<u64, u64>) -> Result<CheckReport> {
        count(table)
    }

    fn own_call(
        &self,
        table: &Dlht<u64, u64>,
        seed: u64,
        right: &mut Reference,
    ) -> std::result::Result<bool, String> {
        own_call(table, seed, right).map(|()| true)
    }
}

impl Place<Alone> for DlhtPlace {
    fn create(&mut self) -> Result<Alone> {
        shaped::<DlhtLocal<u64, u64>>(self.0).build().map(Alone::new)
    }

    fn reopen(&mut self, table: Alone) -> Result<Alone> {
        Ok(table)
    }

    fn check(&self, table: &Alone) -> Result<CheckReport> {
        count(table)
    }

    fn own_call(
        &self,
        table: &Alone,
        seed: u64,
        right: &mut Reference,
    ) -> std::result::Result<bool, String> {
        own_call(&table.table(), seed, right).map(|()| true)
    }
}

impl Place<DlhtRecords> for DlhtPlace {
    fn create(&mut self) -> Result<DlhtRecords> {
        DlhtRecords::new(self.0)
    }

    fn reopen(&mut self, table: DlhtRecords) -> Result<DlhtRecords> {
        Ok(table)
    }

    fn check(&self, table: &DlhtRecords) -> Result<CheckReport> {
        count(table)
    }
}
