//! Batches of a `Map`. Everything is checked before anything is written; then pieces are processed without the
//! interpreter's lock, and signals are handled between them.

use std::ops::Range;

use icefield::Result;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrow;
use crate::base::MapBase;
use crate::column::{Column, same_length};
use crate::errors::raised;
use crate::flat::Flat;
use crate::output::Output;
use crate::store::{Receive, Store};
use crate::types::Type;

/// Number of keys between two checks for signals, and records that share the flushes of a durable table.
pub const PIECE: usize = 1 << 16;
/// The longest key or value of a durable table.
const MAX_BYTES: usize = 16 << 20;

/// Calls `f` with the ranges of a batch's pieces, without the interpreter's lock.
pub fn in_pieces(
    py: Python<'_>,
    len: usize,
    piece: usize,
    mut f: impl FnMut(Range<usize>) -> Result<()> + Send,
) -> PyResult<()> {
    let mut first = 0;
    while first < len {
        let end = len.min(first + piece);
        py.detach(|| f(first..end)).map_err(raised)?;
        first = end;
        py.check_signals()?;
    }
    Ok(())
}

/// Writes values of one width into a column of results.
struct Fixed<'a> {
    values: &'a mut [u8],
    found: &'a mut [u8],
    width: usize,
    default: [u8; 8],
}

impl Receive for Fixed<'_> {
    #[inline]
    fn value(&mut self, index: usize, value: Option<&[u8]>) {
        let value = value.map(crate::types::word);
        self.word(index, value);
    }

    #[inline]
    fn word(&mut self, index: usize, value: Option<u64>) {
        self.found[index] = u8::from(value.is_some());
        let bytes = value.map_or(self.default, u64::to_le_bytes);
        if self.width == 8 {
            // Separate, so that it compiles to one store.
            self.values[index * 8..index * 8 + 8].copy_from_slice(&bytes);
        } else {
            let at = index * self.width;
            self.values[at..at + self.width].copy_from_slice(&bytes[..self.width]);
        }
    }

    fn words(&mut self, first: usize, values: &[Option<u64>]) {
        if self.width < 8 {
            for (index, value) in values.iter().enumerate() {
                self.word(first + index, *value);
            }
            return;
        }
        // Slices of the same length, so that the loop has no checks of bounds.
        let (places, _) = self.values[first * 8..].as_chunks_mut::<8>();
        let found = &mut self.found[first..first + values.len()];
        for ((place, found), value) in places[..values.len()].iter_mut().zip(found).zip(values) {
            *found = u8::from(value.is_some());
            *place = value.map_or(self.default, u64::to_le_bytes);
        }
    }
}

/// Collects values of variable length.
struct Collected<'a> {
    values: &'a mut Flat,
    found: &'a mut [u8],
    default: &'a [u8],
}

impl Receive for Collected<'_> {
    fn value(&mut self, index: usize, value: Option<&[u8]>) {
        self.found[index] = u8::from(value.is_some());
        self.values.push(value.unwrap_or(self.default));
    }

    fn word(&mut self, index: usize, value: Option<u64>) {
        self.value(index, value.map(u64::to_le_bytes).as_ref().map(<[u8; 8]>::as_slice));
    }
}

/// Notes which keys are present.
struct Present<'a>(&'a mut [u8]);

impl Receive for Present<'_> {
    fn value(&mut self, index: usize, value: Option<&[u8]>) {
        self.0[index] = u8::from(value.is_some());
    }

    fn word(&mut self, index: usize, value: Option<u64>) {
        self.0[index] = u8::from(value.is_some());
    }
}

pub fn get(
    map: &MapBase,
    keys: &Bound<'_, PyAny>,
    default: Option<&Bound<'_, PyAny>>,
    out: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
    let (py, store, [key_type, value_type]) = (keys.py(), map.handle.table()?, map.types);
    let keys = Column::read(keys, key_type, "keys")?;
    let datum = default.map(|default| value_type.datum(default, "default")).transpose()?;
    let default = datum.as_ref().map_or(&[][..], |datum| datum.bytes());
    let mut mask = Output::mask(py, keys.len())?;
    if value_type.width == 0 {
        if out.is_some() {
            return Err(PyValueError::new_err(format!(
                "out: expected None for values of {}",
                value_type.name
            )));
        }
        let mut values = Flat::with_capacity(value_type, keys.len());
        let found = mask.bytes();
        in_pieces(py, keys.len(), PIECE, |range| {
            let found = &mut found[range.clone()];
            store.get_batch(
                &keys.piece(range),
                &mut Collected { values: &mut values, found, default },
            )
        })?;
        let nulls = datum.is_none().then_some(&*found);
        let column = arrow::Column::new(values, value_type, nulls)?;
        return Ok((Py::new(py, column)?.into_any(), mask.into_object()));
    }
    let mut values = match out {
        Some(out) => {
            let mut out = Output::given(out, value_type, keys.len())?;
            if keys.overlaps(out.bytes()) {
                return Err(PyValueError::new_err(
                    "out: expected memory apart from that of the keys",
                ));
            }
            out
        }
        None => Output::new(py, value_type, keys.len())?,
    };
    get_fixed(py, &store, &keys, value_type, default, [values.bytes(), mask.bytes()])?;
    Ok((values.into_object(), mask.into_object()))
}

fn get_fixed(
    py: Python<'_>,
    store: &Store,
    keys: &Column,
    value_type: Type,
    default: &[u8],
    [values, found]: [&mut [u8]; 2],
) -> PyResult<()> {
    let width = value_type.width;
    let default = crate::types::word(default).to_le_bytes();
    in_pieces(py, keys.len(), PIECE, |range| {
        let values = &mut values[range.start * width..range.end * width];
        let found = &mut found[range.clone()];
        store.get_batch(&keys.piece(range), &mut Fixed { values, found, width, default })
    })
}

pub fn contains(map: &MapBase, keys: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let (py, store) = (keys.py(), map.handle.table()?);
    let keys = Column::read(keys, map.types[0], "keys")?;
    let mut mask = Output::mask(py, keys.len())?;
    let found = mask.bytes();
    in_pieces(py, keys.len(), PIECE, |range| {
        store.get_batch(&keys.piece(range.clone()), &mut Present(&mut found[range]))
    })?;
    Ok(mask.into_object())
}

/// Returns the columns of a batch of records.
fn records(
    map: &MapBase,
    keys: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
) -> PyResult<(Column, Column)> {
    map.check_writable()?;
    let keys = Column::read(keys, map.types[0], "keys")?;
    let values = Column::read(values, map.types[1], "values")?;
    same_length(&keys, &values)?;
    keys.check_lengths(MAX_BYTES, "keys")?;
    values.check_lengths(MAX_BYTES, "values")?;
    Ok((keys, values))
}

pub fn put(map: &MapBase, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
    let (py, store) = (keys.py(), map.handle.table()?);
    let (keys, values) = records(map, keys, values)?;
    in_pieces(py, keys.len(), PIECE, |range| {
        store.put_batch(&keys.piece(range.clone()), &values.piece(range))
    })
}

pub fn insert(
    map: &MapBase,
    keys: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
) -> PyResult<Py<PyAny>> {
    let (py, store) = (keys.py(), map.handle.table()?);
    let (keys, values) = records(map, keys, values)?;
    let mut mask = Output::mask(py, keys.len())?;
    let inserted = mask.bytes();
    in_pieces(py, keys.len(), PIECE, |range| {
        let inserted = &mut inserted[range.clone()];
        store.insert_batch(&keys.piece(range.clone()), &values.piece(range), inserted)
    })?;
    Ok(mask.into_object())
}

pub fn remove(map: &MapBase, keys: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    map.check_writable()?;
    let (py, store) = (keys.py(), map.handle.table()?);
    let keys = Column::read(keys, map.types[0], "keys")?;
    let mut mask = Output::mask(py, keys.len())?;
    let removed = mask.bytes();
    in_pieces(py, keys.len(), PIECE, |range| {
        store.remove_batch(&keys.piece(range.clone()), &mut removed[range])
    })?;
    Ok(mask.into_object())
}
