//! The library's own batches, timed for `bench/batches.py` in the same process. The feature `bench` compiles them.

use std::path::PathBuf;
use std::time::Instant;

use icefield::{DashEh, Dlht, Table};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::column::Column;
use crate::errors::raised;
use crate::store::Piece;
use crate::types::named;

/// Returns the shortest time in seconds in which the batch is read from a table with these keys, with `get_batch`.
#[pyfunction]
pub fn _native_get(
    py: Python<'_>,
    table: &str,
    path: PathBuf,
    keys: &Bound<'_, PyAny>,
    batch: &Bound<'_, PyAny>,
    rounds: usize,
) -> PyResult<f64> {
    let durable =
        || DashEh::<u64, u64>::options().capacity(keys.len().unwrap_or(0) as u64).create(&path);
    match table {
        "dlht" => words(py, &Dlht::<u64, u64>::with_capacity(keys.len()?), keys, batch, rounds),
        "dash-eh" => words(py, &durable().map_err(raised)?, keys, batch, rounds),
        "dash-eh<str>" => texts(py, &path, keys, batch, rounds),
        _ => Err(PyValueError::new_err("table: expected dlht, dash-eh or dash-eh<str>")),
    }
}

fn words(
    py: Python<'_>,
    table: &impl Table<Key = u64, Value = u64>,
    keys: &Bound<'_, PyAny>,
    batch: &Bound<'_, PyAny>,
    rounds: usize,
) -> PyResult<f64> {
    let word = named("u64", "keys")?;
    let (keys, batch) = (Column::read(keys, word, "keys")?, Column::read(batch, word, "batch")?);
    let (Some(keys), Some(batch)) = (keys.words(), batch.words()) else { return Ok(0.0) };
    py.detach(|| {
        for keys in keys.chunks(1 << 16) {
            table.put_batch(&keys.iter().map(|&key| (key, key)).collect::<Vec<_>>())?;
        }
        let mut found = vec![None; batch.len()];
        fastest(rounds, || table.get_batch(batch, &mut found))
    })
    .map_err(raised)
}

fn texts(
    py: Python<'_>,
    path: &std::path::Path,
    keys: &Bound<'_, PyAny>,
    batch: &Bound<'_, PyAny>,
    rounds: usize,
) -> PyResult<f64> {
    fn strings<'a>(piece: &Piece<'a>) -> Vec<&'a str> {
        (0..piece.len()).filter_map(|index| std::str::from_utf8(piece.get(index)).ok()).collect()
    }
    let text = named("str", "keys")?;
    let (keys, batch) = (Column::read(keys, text, "keys")?, Column::read(batch, text, "batch")?);
    let (keys, batch) = (keys.piece(0..keys.len()), batch.piece(0..batch.len()));
    let (keys, batch) = (strings(&keys), strings(&batch));
    py.detach(|| {
        let table = DashEh::<str, u64>::options().capacity(keys.len() as u64).create(path)?;
        for keys in keys.chunks(1 << 16) {
            table.put_batch(&keys.iter().map(|&key| (key, 1)).collect::<Vec<_>>())?;
        }
        let mut found = vec![None; batch.len()];
        fastest(rounds, || table.get_batch(&batch, &mut found))
    })
    .map_err(raised)
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
