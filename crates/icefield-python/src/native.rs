//! The library's own batches, timed for `bench/batches.py` in the same process. The feature `bench` compiles them.

use std::path::PathBuf;
use std::time::Instant;

use icefield::{DashEh, Dlht, Table};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::column::Column;
use crate::errors::raised;
use crate::types::named;

/// Returns the shortest time in seconds in which the batch is read with `get_batch`: from a new `dlht` with these keys, or
/// from the durable table at `path`.
#[pyfunction]
#[pyo3(signature = (table, batch, rounds, keys = None, path = None))]
pub fn _native_get(
    py: Python<'_>,
    table: &str,
    batch: &Bound<'_, PyAny>,
    rounds: usize,
    keys: Option<&Bound<'_, PyAny>>,
    path: Option<PathBuf>,
) -> PyResult<f64> {
    match (table, keys, path) {
        ("dlht", Some(keys), None) => {
            let keys = Column::read(keys, named("u64", "keys")?, "keys")?;
            let table = Dlht::<u64, u64>::with_capacity(keys.len());
            for keys in keys.words().unwrap_or_default().chunks(1 << 16) {
                let records: Vec<_> = keys.iter().map(|&key| (key, key)).collect();
                table.put_batch(&records);
            }
            words(py, &table, batch, rounds)
        }
        ("dash-eh", None, Some(path)) => {
            let table = DashEh::<u64, u64>::options().open_read_only(path).map_err(raised)?;
            words(py, &table, batch, rounds)
        }
        ("dash-eh<str>", None, Some(path)) => texts(py, &path, batch, rounds),
        _ => Err(PyValueError::new_err(
            "table: expected dlht with keys, dash-eh or dash-eh<str> with a path",
        )),
    }
}

fn words(
    py: Python<'_>,
    table: &impl Table<Key = u64, Value = u64>,
    batch: &Bound<'_, PyAny>,
    rounds: usize,
) -> PyResult<f64> {
    let batch = Column::read(batch, named("u64", "batch")?, "batch")?;
    let Some(batch) = batch.words() else { return Ok(0.0) };
    let mut found = vec![None; batch.len()];
    py.detach(|| fastest(rounds, || table.get_batch(batch, &mut found))).map_err(raised)
}

fn texts(
    py: Python<'_>,
    path: &std::path::Path,
    batch: &Bound<'_, PyAny>,
    rounds: usize,
) -> PyResult<f64> {
    let batch = Column::read(batch, named("str", "batch")?, "batch")?;
    let batch = batch.piece(0..batch.len());
    let batch: Vec<_> =
        (0..batch.len()).filter_map(|index| std::str::from_utf8(batch.get(index)).ok()).collect();
    let table = DashEh::<str, u64>::options().open_read_only(path).map_err(raised)?;
    let mut found = vec![None; batch.len()];
    py.detach(|| fastest(rounds, || table.get_batch(&batch, &mut found))).map_err(raised)
}

fn fastest(rounds: usize, mut call: impl FnMut() -> icefield::Result<()>) -> icefield::Result<f64> {
    let mut shortest = f64::INFINITY;
    for _ in 0..rounds {
        let start = Instant::now();
        call()?;
        shortest = shortest.min(start.elapsed().as_secs_f64());
    }
    Ok(shortest)
}
