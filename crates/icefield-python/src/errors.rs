//! Exceptions, and the one that each error of the library becomes.

use std::path::Path;

use icefield::Error;
use pyo3::create_exception;
use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyMemoryError, PyOSError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;

create_exception!(
    icefield,
    IcefieldError,
    PyOSError,
    "The base class of this package's exceptions."
);
create_exception!(icefield, CorruptError, IcefieldError, "A file's content is invalid.");
create_exception!(
    icefield,
    LockedError,
    IcefieldError,
    "Another process or handle has the table open."
);
create_exception!(
    icefield,
    ReadOnlyError,
    IcefieldError,
    "The handle was opened with `mode=\"r\"`."
);
create_exception!(
    icefield,
    ForkedError,
    IcefieldError,
    "The handle was opened before this process was forked."
);
create_exception!(
    icefield,
    PoisonedError,
    IcefieldError,
    "An earlier sync failed: close the table, and open it again."
);

/// Adds the exceptions to the module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("IcefieldError", py.get_type::<IcefieldError>())?;
    module.add("CorruptError", py.get_type::<CorruptError>())?;
    module.add("LockedError", py.get_type::<LockedError>())?;
    module.add("ReadOnlyError", py.get_type::<ReadOnlyError>())?;
    module.add("ForkedError", py.get_type::<ForkedError>())?;
    module.add("PoisonedError", py.get_type::<PoisonedError>())
}

/// Converts an error of the library.
pub fn raised(error: Error) -> PyErr {
    let text = error.to_string();
    match &error {
        Error::Io { path, source } => match source.raw_os_error() {
            // Python chooses the subclass of `OSError` by the number.
            Some(number) => PyOSError::new_err((number, system_text(source), path.clone())),
            None => IcefieldError::new_err(text),
        },
        Error::NoSpace { path, .. } => PyOSError::new_err((libc::ENOSPC, text, path.clone())),
        Error::NotFound { path } => {
            PyFileNotFoundError::new_err((libc::ENOENT, text, path.clone()))
        }
        Error::AlreadyExists { path } => {
            PyFileExistsError::new_err((libc::EEXIST, text, path.clone()))
        }
        Error::Corrupt { .. } => CorruptError::new_err(text),
        Error::Locked { .. } => LockedError::new_err(text),
        Error::ReadOnly => ReadOnlyError::new_err(text),
        Error::Forked => ForkedError::new_err(text),
        Error::Poisoned => PoisonedError::new_err(text),
        Error::TypeMismatch { .. } => PyTypeError::new_err(text),
        Error::KeyTooLong { .. } | Error::ValueTooLong { .. } | Error::InvalidOption { .. } => {
            PyValueError::new_err(text)
        }
        Error::Full | Error::NoMemory { .. } => PyMemoryError::new_err(text),
        _ => IcefieldError::new_err(text),
    }
}

/// Returns the error of a read-only handle whose path has another table or index than the handle was made for.
pub fn replaced(path: &Path, what: &str, before: &str) -> PyErr {
    IcefieldError::new_err(format!(
        "{}: another {what} has taken the place of the {before} one",
        path.display()
    ))
}

fn system_text(source: &std::io::Error) -> String {
    let text = source.to_string();
    // The number is a separate attribute of the exception.
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
