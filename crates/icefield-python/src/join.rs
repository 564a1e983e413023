//! The class `JoinIndex`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use icefield::{Bitmap, Error, JoinOptions, Pairs, Result, Word};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::batches::in_pieces;
use crate::column::{Column, same_length};
use crate::errors::{raised, replaced};
use crate::handle::Handle;
use crate::join_parts::{Rows, Source};
use crate::output::{Output, column_of};
use crate::types::{Type, named};

/// Number of keys between two checks for signals. Larger than that of maps: the threads share a piece.
const PIECE: usize = 1 << 18;
/// How often a call that waits for a thread handles signals.
const SIGNALS: Duration = Duration::from_millis(50);

/// An index of either type of keys.
enum Index {
    Unsigned(icefield::JoinIndex<u64>),
    Signed(icefield::JoinIndex<i64>),
}

/// Evaluates the same expression for either type of keys, with words as keys of this type.
macro_rules! either {
    ($index:expr, |$of:ident| $call:expr) => {
        match $index {
            Index::Unsigned($of) => $call,
            Index::Signed($of) => $call,
        }
    };
    ($index:expr, $words:expr, |$of:ident, $keys:ident| $call:expr) => {
        match ($index, $words) {
            (Index::Unsigned($of), $keys) => $call,
            (Index::Signed($of), words) => {
                let $keys = as_signed(words);
                $call
            }
        }
    };
}

/// An index for joins by integer keys, in a directory. Keys may repeat; each pair has a payload of 64 bits, such as the
/// number of a row.
///
/// >>> import icefield, tempfile
/// >>> directory = tempfile.TemporaryDirectory()
/// >>> index = icefield.JoinIndex.build(directory.name + "/orders.ice", [7, 7, 8])
/// >>> positions, rows = index.join([8, 9])
/// >>> positions.tolist(), rows.tolist()
/// ([0], [2])
#[pyclass(frozen, module = "icefield")]
pub struct JoinIndex {
    handle: Handle<Index>,
    key_type: Type,
    path: PathBuf,
    /// The path for other processes: the current directory may change.
    absolute: PathBuf,
    mode: &'static str,
    verify: bool,
}

/// The arguments of `_reopen`: the path, the index's identifier, its generation, and whether reads verify checksums.
type Pickled = (PathBuf, u128, u64, bool);

fn options<K: Word>(
    durability: &str,
    threads: Option<usize>,
    verify: bool,
) -> PyResult<JoinOptions<K>> {
    let durability = durability
        .parse()
        .map_err(|error| PyValueError::new_err(format!("durability: {error}")))?;
    let options = icefield::JoinIndex::<K>::options().durability(durability).verify(verify);
    Ok(match threads {
        Some(threads) => options.threads(threads),
        None => options,
    })
}

/// Waits for the result of a thread, and handles signals meanwhile. After a signal whose handler raised, the thread is
/// stopped by `stop` and waited for, or left alone if there is none.
fn wait_for<T: Send>(
    py: Python<'_>,
    mut result: Receiver<T>,
    stop: Option<&AtomicBool>,
) -> PyResult<T> {
    let mut interrupted = None;
    loop {
        let received;
        (result, received) = py.detach(move || {
            let received = result.recv_timeout(SIGNALS);
            (result, received)
        });
        match received {
            Ok(result) => return interrupted.map_or(Ok(result), Err),
            Err(RecvTimeoutError::Timeout) => {
                let Err(error) = py.check_signals() else { continue };
                let Some(stop) = stop else { return Err(error) };
                stop.store(true, Ordering::Relaxed);
                interrupted = Some(error);
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the thread of the call has failed"));
            }
        }
    }
}

/// Returns the words of a column, aligned.
fn words(column: &Column) -> std::borrow::Cow<'_, [u64]> {
    match column.words() {
        Some(words) => words.into(),
        None => (0..column.len())
            .map(|index| crate::types::word(column.piece(0..column.len()).get(index)))
            .collect(),
    }
}

/// Returns words as keys with a sign.
fn as_signed(words: &[u64]) -> &[i64] {
    // SAFETY: both types have the same size and alignment, and all values are valid.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

impl JoinIndex {
    fn new(index: Index, path: PathBuf, mode: &'static str, verify: bool) -> PyResult<Self> {
        let key_type =
            named(if matches!(index, Index::Unsigned(_)) { "u64" } else { "i64" }, "key")?;
        let absolute = std::path::absolute(&path)?;
        let reopen = (mode == "r").then(|| {
            let (path, state) = (absolute.clone(), state_of(&index));
            Box::new(move || reopened(&path, verify, state, "opened")) as _
        });
        Ok(Self { handle: Handle::new(index, reopen), key_type, path, absolute, mode, verify })
    }

    fn column(&self, keys: &Bound<'_, PyAny>) -> PyResult<Column> {
        Column::read(keys, self.key_type, "keys")
    }

    fn check_writable(&self) -> PyResult<()> {
        if self.mode == "r" { Err(raised(Error::ReadOnly)) } else { Ok(()) }
    }

    /// Calls `add` with the bitmap of each piece, and the piece's first key.
    fn mark(&self, keys: &Bound<'_, PyAny>, bit: bool) -> PyResult<Py<PyAny>> {
        let (py, index, column) = (keys.py(), self.handle.table()?, self.column(keys)?);
        let keys = words(&column);
        let mut mask = Output::mask(py, keys.len())?;
        let found = mask.bytes();
        in_pieces(py, keys.len(), PIECE, |range| {
            let piece = &keys[range.clone()];
            let bits: Bitmap = either!(&*index, piece, |index, keys| index.semi(keys)?);
            for (word, bytes) in bits.as_words().iter().zip(found[range].chunks_mut(64)) {
                for (at, byte) in bytes.iter_mut().enumerate() {
                    *byte = u8::from((word >> at & 1 == 1) == bit);
                }
            }
            Ok(())
        })?;
        Ok(mask.into_object())
    }
}

/// Returns the identifier of an index, and its generation.
fn state_of(index: &Index) -> (u128, u64) {
    either!(index, |index| (index.uuid(), index.generation()))
}

/// Opens the index of another handle again, for reading. `state` is that of the other handle: the index must be the
/// same, and no older.
fn reopened(path: &Path, verify: bool, state: (u128, u64), before: &str) -> PyResult<Index> {
    let unsigned = icefield::JoinIndex::options().verify(verify);
    let signed = icefield::JoinIndex::options().verify(verify);
    let index = open_with(path, true, &unsigned, &signed).map_err(raised)?;
    let (uuid, generation) = state_of(&index);
    if uuid != state.0 || generation < state.1 {
        return Err(replaced(path, "index", before));
    }
    Ok(index)
}

/// Opens an index with keys of either type.
fn open_with(
    path: &Path,
    read_only: bool,
    unsigned: &JoinOptions<u64>,
    signed: &JoinOptions<i64>,
) -> Result<Index> {
    let opened = if read_only { unsigned.open_read_only(path) } else { unsigned.open(path) };
    match opened {
        Err(Error::TypeMismatch { found, .. }) if found.contains("i64") => {
            let opened = if read_only { signed.open_read_only(path) } else { signed.open(path) };
            opened.map(Index::Signed)
        }
        opened => opened.map(Index::Unsigned),
    }
}

#[pymethods]
impl JoinIndex {
    /// Builds an index at `path` of a column of keys. Without `payloads`, the payloads are the numbers of the rows.
    #[classmethod]
    #[pyo3(signature = (
        path, keys, payloads = None, *, key = "u64", durability = "auto", threads = None, verify = false
    ))]
    #[expect(clippy::too_many_arguments, reason = "the options of a build")]
    fn build(
        _class: &Bound<'_, PyType>,
        path: PathBuf,
        keys: &Bound<'_, PyAny>,
        payloads: Option<&Bound<'_, PyAny>>,
        key: &str,
        durability: &str,
        threads: Option<usize>,
        verify: bool,
    ) -> PyResult<Self> {
        let py = keys.py();
        let key_type = named(key, "key")?;
        if !matches!(key, "u64" | "i64") {
            return Err(PyValueError::new_err(format!("key: expected u64 or i64, got `{key}`")));
        }
        let column = Column::read(keys, key_type, "keys")?;
        let payload_type = named("u64", "payloads")?;
        let payloads = payloads
            .map(|payloads| Column::read(payloads, payload_type, "payloads"))
            .transpose()?;
        if let Some(payloads) = &payloads {
            same_length(&column, payloads)?;
        }
        let unsigned = options::<u64>(durability, threads, verify)?;
        let signed = options::<i64>(durability, threads, verify)?;
        let (keys, payloads) = (words(&column), payloads.as_ref().map(words));
        let stopped = AtomicBool::new(false);
        let source = Source { keys: &keys, payloads: payloads.as_deref(), stopped: &stopped };
        let index = std::thread::scope(|scope| {
            let (done, finished) = sync_channel(1);
            let build = || match key {
                "u64" => unsigned.build_from(&path, &source).map(Index::Unsigned),
                _ => signed.build_from(&path, &source).map(Index::Signed),
            };
            // The other end is there until the result has been received.
            scope.spawn(move || drop(done.send(build())));
            wait_for(py, finished, Some(&stopped))?.map_err(raised)
        })?;
        Self::new(index, path.clone(), "a", verify)
    }

    /// Opens the index at `path`: for reading with `mode="r"`, which any number of processes may do beside one writer,
    /// or for changes with `mode="a"`.
    #[classmethod]
    #[pyo3(signature = (path, *, mode = "a", durability = "auto", threads = None, verify = false))]
    fn open(
        class: &Bound<'_, PyType>,
        path: PathBuf,
        mode: &str,
        durability: &str,
        threads: Option<usize>,
        verify: bool,
    ) -> PyResult<Self> {
        let mode = match mode {
            "r" => "r",
            "a" => "a",
            _ => {
                return Err(PyValueError::new_err(format!(
                    "mode: expected one of r, a, got `{mode}`"
                )));
            }
        };
        let unsigned = options::<u64>(durability, threads, verify)?;
        let signed = options::<i64>(durability, threads, verify)?;
        let index = class.py().detach(|| open_with(&path, mode == "r", &unsigned, &signed));
        Self::new(index.map_err(raised)?, path, mode, verify)
    }

    /// Returns the payload of each key as `int64`, -1 for absent keys. It is an error if a key has several pairs.
    fn get_indexer(&self, keys: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let (py, index, column) = (keys.py(), self.handle.table()?, self.column(keys)?);
        let keys = words(&column);
        let mut out = Output::new(py, named("i64", "rows")?, keys.len())?;
        let bytes = out.bytes();
        bytes.fill(0xFF);
        // SAFETY: an atomic has the size and alignment of an integer; the memory is borrowed exclusively.
        let (_, rows, _) = unsafe { bytes.align_to_mut::<AtomicI64>() };
        let rows =
            Rows { rows, repeats: AtomicBool::new(false), too_large: AtomicBool::new(false) };
        in_pieces(py, keys.len(), PIECE, |range| {
            let (piece, first) = (&keys[range.clone()], range.start);
            let note = |position, payload| rows.note(first + position, payload);
            either!(&*index, piece, |index, keys| index.probe(keys, note))
        })?;
        if rows.repeats.into_inner() {
            return Err(PyValueError::new_err(
                "expected keys with one pair each; use `join` for keys that repeat",
            ));
        }
        if rows.too_large.into_inner() {
            return Err(PyValueError::new_err(
                "expected payloads below 2**63; use `join` for larger ones",
            ));
        }
        Ok(out.into_object())
    }

    /// Returns the pairs of the keys, in no order: the position of the key in `keys`, and the payload.
    fn join(&self, keys: &Bound<'_, PyAny>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        let (py, index, column) = (keys.py(), self.handle.table()?, self.column(keys)?);
        let keys = words(&column);
        let (mut positions, mut payloads) = (Vec::new(), Vec::new());
        let mut pairs = Pairs::default();
        in_pieces(py, keys.len(), PIECE, |range| {
            let (piece, first) = (&keys[range.clone()], range.start as u64);
            either!(&*index, piece, |index, keys| index.probe_into(keys, &mut pairs)?);
            if keys.len() == range.len() {
                (positions, payloads) = std::mem::take(&mut pairs).into_parts();
            } else {
                if first == 0 {
                    // Often the other pieces have as many pairs. If they have fewer, there may be no memory for this.
                    let expected = pairs.len().saturating_mul(keys.len().div_ceil(PIECE));
                    let _ = positions.try_reserve(expected);
                    let _ = payloads.try_reserve(expected);
                }
                positions.extend(pairs.positions().iter().map(|position| first + position));
                payloads.extend_from_slice(pairs.payloads());
            }
            Ok(())
        })?;
        let (signed, unsigned) = (named("i64", "positions")?, named("u64", "payloads")?);
        Ok((column_of(py, positions, signed)?, column_of(py, payloads, unsigned)?))
    }

    /// Returns which keys are in the index, as a mask.
    fn semi(&self, keys: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.mark(keys, true)
    }

    /// Returns which keys are not in the index, as a mask.
    fn anti(&self, keys: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.mark(keys, false)
    }

    /// Returns the number of pairs of the keys.
    fn count(&self, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        let (py, index, column) = (keys.py(), self.handle.table()?, self.column(keys)?);
        let (keys, mut count) = (words(&column), 0);
        in_pieces(py, keys.len(), PIECE, |range| {
            count += either!(&*index, &keys[range], |index, keys| index.probe_count(keys)?);
            Ok(())
        })?;
        Ok(count)
    }

    /// Adds a pair for each key, durably.
    fn insert(&self, keys: &Bound<'_, PyAny>, payloads: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check_writable()?;
        let (py, index, column) = (keys.py(), self.handle.table()?, self.column(keys)?);
        let payloads = Column::read(payloads, named("u64", "payloads")?, "payloads")?;
        same_length(&column, &payloads)?;
        let (keys, payloads) = (words(&column), words(&payloads));
        in_pieces(py, keys.len(), PIECE, |range| {
            let payloads = payloads[range.clone()].iter().copied();
            either!(&*index, &keys[range], |index, keys| {
                let pairs: Vec<_> = keys.iter().copied().zip(payloads).collect();
                index.insert_batch(&pairs)
            })
        })
    }

    /// Removes all pairs of the keys, durably. Returns their number.
    fn remove(&self, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.check_writable()?;
        let (py, index, column) = (keys.py(), self.handle.table()?, self.column(keys)?);
        let (keys, mut count) = (words(&column), 0);
        in_pieces(py, keys.len(), PIECE, |range| {
            count += either!(&*index, &keys[range], |index, keys| index.remove_batch(keys)?);
            Ok(())
        })?;
        Ok(count)
    }

    /// Merges the inserted and removed pairs into the next generation. Returns its number. After Ctrl-C, the merge
    /// continues in a thread until it is complete or the process ends.
    fn merge(&self, py: Python<'_>) -> PyResult<u64> {
        self.check_writable()?;
        let index = self.handle.table()?;
        let (done, merged) = sync_channel(1);
        std::thread::spawn(move || {
            let generation = either!(&*index, |index| index.merge().map(|_| index.generation()));
            // `close` waits until no call has the index.
            drop(index);
            drop(done.send(generation));
        });
        wait_for(py, merged, None)?.map_err(raised)
    }

    /// Returns when every earlier change is durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let index = self.handle.table()?;
        py.detach(|| either!(&*index, |index| index.sync())).map_err(raised)
    }

    /// Closes the index. Calls of other threads return first.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.close(py)
    }

    /// `True` after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// The number of merges that the index has seen.
    #[getter]
    fn generation(&self) -> PyResult<u64> {
        self.handle.with(|index| Ok(either!(index, |index| index.generation())))
    }

    /// The directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The type of the keys: `u64` or `i64`.
    #[getter]
    fn key_type(&self) -> &'static str {
        self.key_type.name
    }

    /// `r` or `a`.
    #[getter]
    fn mode(&self) -> &'static str {
        self.mode
    }

    fn __len__(&self) -> PyResult<usize> {
        self.handle.with(|index| Ok(either!(index, |index| index.len()) as usize))
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let closed = if self.closed() { " (closed)" } else { "" };
        format!(
            "<icefield.JoinIndex {:?}, {} keys, mode {}{closed}>",
            self.path, self.key_type.name, self.mode
        )
    }

    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Pickled)> {
        let index = this.get();
        if index.mode != "r" {
            return Err(PyTypeError::new_err(
                "only an index that was opened with mode=\"r\" can be pickled: another process cannot share the writer",
            ));
        }
        let (uuid, generation) = index.handle.with(|index| Ok(state_of(index)))?;
        let reopen = this.getattr("_reopen")?;
        Ok((reopen, (index.absolute.clone(), uuid, generation, index.verify)))
    }

    #[staticmethod]
    fn _reopen(
        py: Python<'_>,
        path: PathBuf,
        uuid: u128,
        generation: u64,
        verify: bool,
    ) -> PyResult<Self> {
        let index = py.detach(|| reopened(&path, verify, (uuid, generation), "pickled"))?;
        Self::new(index, path, "r", verify)
    }
}
