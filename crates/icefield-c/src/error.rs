//! Status codes and error objects.

use std::ffi::CString;

use icefield::Error;

/// The outcome of a call. Codes keep their numbers in all versions; later versions may add codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum icefield_status {
    /// The call succeeded.
    ICEFIELD_OK = 0,
    /// A system call failed; icefield_error_os_code returns its errno.
    ICEFIELD_IO = 1,
    /// The content of a file is invalid.
    ICEFIELD_CORRUPT = 2,
    /// Another process, or another handle of this process, has the table open.
    ICEFIELD_LOCKED = 3,
    /// The table has another design, or other key or value types.
    ICEFIELD_TYPE_MISMATCH = 4,
    /// The table has another version of the file format.
    ICEFIELD_FORMAT_VERSION = 5,
    /// The directory holds no table.
    ICEFIELD_NOT_FOUND = 6,
    /// Something is at the path of a new table.
    ICEFIELD_ALREADY_EXISTS = 7,
    /// The file system, or the table's max_bytes, has no room left.
    ICEFIELD_NO_SPACE = 8,
    /// A table of fixed size has no slot left for the key.
    ICEFIELD_FULL = 9,
    /// A shadow insert holds the key.
    ICEFIELD_SHADOWED = 10,
    /// The system has no memory for a larger table.
    ICEFIELD_NO_MEMORY = 11,
    /// The key is longer than the design can store.
    ICEFIELD_KEY_TOO_LONG = 12,
    /// The value is longer than the design can store.
    ICEFIELD_VALUE_TOO_LONG = 13,
    /// The table is open for reading only.
    ICEFIELD_READ_ONLY = 14,
    /// An earlier sync failed; every change fails until the table is opened again.
    ICEFIELD_POISONED = 15,
    /// The table was opened by the parent of this process.
    ICEFIELD_FORKED = 16,
    /// The design, the medium or the system does not support the operation.
    ICEFIELD_UNSUPPORTED = 17,
    /// The delta store of a join index is full, and the index may not merge it automatically.
    ICEFIELD_DELTA_FULL = 18,
    /// The source of a join index could not be read.
    ICEFIELD_SOURCE = 19,
    /// An argument or an option has an invalid value.
    ICEFIELD_INVALID = 20,
    /// A handle or a pointer is NULL that may not be.
    ICEFIELD_NULL_POINTER = 21,
    /// A buffer is too small for the result; the length that it needs has been stored.
    ICEFIELD_BUFFER_TOO_SMALL = 22,
    /// The library panicked. The table may still be used and closed.
    ICEFIELD_PANIC = 23,
    /// An error for which this version has no code.
    ICEFIELD_OTHER = 24,
}

use icefield_status::*;

/// An error: a status and a message.
pub struct icefield_error {
    pub(crate) status: icefield_status,
    pub(crate) os_code: i32,
    pub(crate) message: CString,
}

/// The reason why a call fails, inside the library.
pub(crate) struct Failure(Box<icefield_error>);

impl Failure {
    #[cold]
    pub(crate) fn new(status: icefield_status, message: impl Into<String>) -> Self {
        let message = c_string(message.into());
        Self(Box::new(icefield_error { status, os_code: 0, message }))
    }

    /// Returns the status, and stores the error in the caller's variable if there is one.
    ///
    /// # Safety
    /// `place` is null or points to a variable for an error.
    #[cold]
    pub(crate) unsafe fn store(self, place: *mut *mut icefield_error) -> icefield_status {
        let status = self.0.status;
        if !place.is_null() {
            // SAFETY: the caller passes the address of a variable.
            unsafe { place.write(Box::into_raw(self.0)) };
        }
        status
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Io { .. } => ICEFIELD_IO,
            Error::Corrupt { .. } => ICEFIELD_CORRUPT,
            Error::Locked { .. } => ICEFIELD_LOCKED,
            Error::TypeMismatch { .. } => ICEFIELD_TYPE_MISMATCH,
            Error::FormatVersion { .. } => ICEFIELD_FORMAT_VERSION,
            Error::NotFound { .. } => ICEFIELD_NOT_FOUND,
            Error::AlreadyExists { .. } => ICEFIELD_ALREADY_EXISTS,
            Error::NoSpace { .. } => ICEFIELD_NO_SPACE,
            Error::Full => ICEFIELD_FULL,
            Error::Shadowed => ICEFIELD_SHADOWED,
            Error::NoMemory { .. } => ICEFIELD_NO_MEMORY,
            Error::KeyTooLong { .. } => ICEFIELD_KEY_TOO_LONG,
            Error::ValueTooLong { .. } => ICEFIELD_VALUE_TOO_LONG,
            Error::ReadOnly => ICEFIELD_READ_ONLY,
            Error::Poisoned => ICEFIELD_POISONED,
            Error::Forked => ICEFIELD_FORKED,
            Error::Unsupported(_) => ICEFIELD_UNSUPPORTED,
            Error::DeltaFull => ICEFIELD_DELTA_FULL,
            Error::Source { .. } => ICEFIELD_SOURCE,
            Error::InvalidOption { .. } => ICEFIELD_INVALID,
            _ => ICEFIELD_OTHER,
        };
        let mut failure = Self::new(status, error.to_string());
        if let Error::Io { source, .. } = &error {
            failure.0.os_code = source.raw_os_error().unwrap_or(0);
        }
        failure
    }
}

/// Converts a text for C, in which a 0 byte ends a string.
pub(crate) fn c_string(text: impl Into<Vec<u8>>) -> CString {
    let mut bytes = text.into();
    bytes.retain(|&byte| byte != 0);
    CString::new(bytes).unwrap_or_default()
}
