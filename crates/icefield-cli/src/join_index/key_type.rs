//! The types of key columns, as stored in an index's stamp.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of values in a key column. Two columns can be joined if their kinds are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Values {
    /// The unknown kind of the keys of a CSV file without keys. Can be joined with every column, and gives no pairs.
    Unknown,
    /// Integers of any width, signed or unsigned.
    Integers,
    /// Strings and bytes.
    Texts,
    /// Days.
    Days,
    /// Dates in milliseconds.
    DateMillis,
    /// Points in time without a time zone, in seconds and fractions of seconds.
    LocalSeconds,
    LocalMillis,
    LocalMicros,
    LocalNanos,
    /// Points in time in UTC.
    UtcSeconds,
    UtcMillis,
    UtcMicros,
    UtcNanos,
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no values",
            Self::Integers => "integers",
            Self::Texts => "strings or bytes",
            Self::Days => "dates in days",
            Self::DateMillis => "dates in milliseconds",
            Self::LocalSeconds => "timestamps in seconds without a zone",
            Self::LocalMillis => "timestamps in milliseconds without a zone",
            Self::LocalMicros => "timestamps in microseconds without a zone",
            Self::LocalNanos => "timestamps in nanoseconds without a zone",
            Self::UtcSeconds => "timestamps in seconds",
            Self::UtcMillis => "timestamps in milliseconds",
            Self::UtcMicros => "timestamps in microseconds",
            Self::UtcNanos => "timestamps in nanoseconds",
        })
    }
}

/// The stored form of an index's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stored {
    /// As `i64`.
    Signed,
    /// As `u64`.
    Unsigned,
    /// As hashes of the bytes.
    Hashes,
}

/// The type of a key column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyType {
    /// The kind of its values.
    pub values: Values,
    /// Their stored form.
    pub stored: Stored,
}
