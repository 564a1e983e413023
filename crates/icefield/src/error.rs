//! Errors. Their messages say what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The result of every fallible call of this crate.
///
/// ```
/// fn count(path: &std::path::Path) -> icefield::Result<u64> {
///     icefield::DashEh::<u64, u64>::open_read_only(path)?.len()
/// }
/// assert!(count("no/such.ice".as_ref()).is_err());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an operation on a table failed. The table is unchanged unless the variant's documentation says
/// otherwise.
///
/// ```
/// use icefield::{DashEh, Error};
///
/// match DashEh::<u64, u64>::open("no/such.ice") {
///     Err(Error::NotFound { path }) => println!("nothing at {}", path.display()),
///     Err(Error::Locked { path, pid }) => println!("process {pid} has {}", path.display()),
///     Err(other) => println!("{other}"),
///     Ok(_) => unreachable!(),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory of the call.
        path: PathBuf,
        /// The error that the system returned.
        #[source]
        source: io::Error,
    },
    /// The content of a file is invalid.
    #[error("{}: corrupt at byte {offset}: {detail}{ADVICE}", file.display())]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// The byte in the file at which the fault was found.
        offset: u64,
        /// The fault.
        detail: String,
    },
    /// Another process, or another handle in this process, has the table open.
    #[error(
        "{}: the table is in use by process {pid}; close it there, or open it read-only if that process only reads", path.display()
    )]
    Locked {
        /// The table's directory.
        path: PathBuf,
        /// The process that holds the lock; 0 when it could not be read.
        pid: u32,
    },
    /// The table on disk has another design, or other key or value types.
    #[error("{}: this is a {found}, not a {expected}; open it with the design and types that it has", path.display())]
    TypeMismatch {
        /// The table's directory.
        path: PathBuf,
        /// The requested table type, for example `dash-eh<u64, bytes>`.
        expected: String,
        /// The type that the superblock names.
        found: String,
    },
    /// The table was written by another version of the file format.
    #[error("{}: format version {found}, but this build reads version {supported}; export the table with the build that created it, and load it with this one", path.display())]
    FormatVersion {
        /// The table's directory.
        path: PathBuf,
        /// The version in the superblock.
        found: u32,
        /// The version that this build reads and writes.
        supported: u32,
    },
    /// The directory holds no table.
    #[error("{}: no table here; create one first, or check the path", path.display())]
    NotFound {
        /// The path that was opened.
        path: PathBuf,
    },
    /// `create` found something at the path.
    #[error("{}: already exists; open it, or choose another path", path.display())]
    AlreadyExists {
        /// The path.
        path: PathBuf,
    },
    /// The file system, or the table's `max_bytes`, has no room left. The table stays open, readable and consistent,
    /// and accepts changes again when there is space.
    #[error("{}: no space for {needed_bytes} more bytes; free space, or raise `max_bytes`", path.display())]
    NoSpace {
        /// The file that could not grow.
        path: PathBuf,
        /// The number of bytes requested.
        needed_bytes: u64,
    },
    /// A table of fixed size has no slot left for this key.
    #[error(
        "the table is full and may not grow; create it with a larger capacity, or allow it to resize"
    )]
    Full,
    /// A shadow insert that has neither committed nor aborted holds the key.
    #[error("a shadow insert holds the key; try again after it commits or aborts")]
    Shadowed,
    /// The system has no memory for a larger table in DRAM. The table is unchanged, and accepts records again when
    /// there is memory.
    #[error("no memory for {needed_bytes} more bytes; free memory, and try again")]
    NoMemory {
        /// The number of bytes requested.
        needed_bytes: u64,
    },
    /// The key is longer than the design can store.
    #[error(
        "the key has {len} bytes, but at most {max} are possible; store a hash as the key, and the key in the value"
    )]
    KeyTooLong {
        /// The length of the key in bytes.
        len: usize,
        /// The maximum length of a key.
        max: usize,
    },
    /// The value is longer than the design can store.
    #[error(
        "the value has {len} bytes, but at most {max} are possible; split it, or store it in a file and its name here"
    )]
    ValueTooLong {
        /// The length of the value in bytes.
        len: usize,
        /// The maximum length of a value.
        max: usize,
    },
    /// The table was opened read-only and cannot be changed.
    #[error("the table is open read-only; open it for writing to change it")]
    ReadOnly,
    /// An earlier sync failed, so the content of the medium is unknown. Reads still work; every change fails until the
    /// table is opened again.
    #[error(
        "an earlier sync failed; close the table and open it again to see which records survived"
    )]
    Poisoned,
    /// The table was opened by the parent of this process. Only the parent may change it.
    #[error(
        "this process was forked from the one that opened the table; open it again here after the parent has closed it"
    )]
    Forked,
    /// The design, the medium or the system does not support the operation.
    #[error("{0}")]
    Unsupported(String),
    /// The delta store of a join index is full, and the index may not merge it automatically.
    #[error("the delta store is full; call `merge`, or let inserts merge it")]
    DeltaFull,
    /// The source of a join index could not be read.
    #[error("the source of pairs: {detail}")]
    Source {
        /// The fault.
        detail: String,
    },
    /// An option or argument has an invalid value.
    #[error("{option}: {detail}")]
    InvalidOption {
        /// The option or argument.
        option: &'static str,
        /// The reason why the value is invalid.
        detail: String,
    },
}

impl Error {
    /// Wraps the system's error for `path`.
    pub(crate) fn io(path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.into(), source: source.into() }
    }

    /// Returns an error for a fault at byte `offset` of `file`.
    pub(crate) fn corrupt(
        file: impl Into<PathBuf>,
        offset: u64,
        detail: impl Into<String>,
    ) -> Self {
        Self::Corrupt { file: file.into(), offset, detail: detail.into() }
    }
}

/// The end of each message about damage.
const ADVICE: &str =
    "; `icefield check` lists every fault, `icefield salvage` copies the readable records";

/// Returns a message without [`ADVICE`], for reports that list damage: these reports are the output of the very
/// commands that [`ADVICE`] recommends.
pub(crate) fn without_advice(words: impl fmt::Display) -> String {
    let mut words = words.to_string();
    if let Some(at) = words.find(ADVICE) {
        words.replace_range(at..at + ADVICE.len(), "");
    }
    words
}
